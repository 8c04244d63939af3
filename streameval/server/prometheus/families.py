"""Every metric family of /metrics: name, type, labels and meaning. docs/reference/prometheus.md is made of it.

Names are composed here and nowhere else. What adds up is a counter; what does not is a gauge over an event-time
window, absent when undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from streameval.metrics.metric import Gauge
from streameval.metrics.registry import BY_K, METRICS, by_name

PREFIX = "streameval_"
MODEL = ("model_name", "model_version", "source")
WINDOW = (*MODEL, "window")
_SLICE = (*MODEL, "slice", "slice_value")
COMPARISON = ("model_name", "baseline_version", "candidate_version", "setup")


_NEW: dict[str, Callable[..., Metric]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


@dataclass(frozen=True, slots=True)
class Family:
    """One family; `name` is without the prefix and, for counters, with `_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str

    @property
    def exposed(self) -> str:
        """The name as scraped."""
        return PREFIX + self.name

    def new(self) -> Metric:
        """An empty family for one scrape."""
        return _NEW[self.kind](self.exposed, self.meaning, labels=list(self.labels))


def _counters(labels: Sequence[str], **meanings: str) -> tuple[Family, ...]:
    return tuple(Family(name, "counter", tuple(labels), meaning) for name, meaning in meanings.items())


def _gauges(labels: Sequence[str], **meanings: str) -> tuple[Family, ...]:
    return tuple(Family(name, "gauge", tuple(labels), meaning) for name, meaning in meanings.items())


def _of_labelled(gauges: Sequence[tuple[str, Gauge]]) -> tuple[Family, ...]:
    """The families of gauges that have labels of their own, each once."""
    found: dict[str, Family] = {}
    for _, gauge in gauges:
        labels = (*WINDOW, *(name for name, _ in gauge.labels))
        for name, meaning in ((gauge.name, gauge.meaning), (f"{gauge.name}_stderr", gauge.stderr)):
            if meaning is not None:
                found[name] = Family(name, "gauge", labels, meaning)
    return tuple(found.values())


# (metric, its gauge), in the order of /metrics
_GAUGES = sorted(((m.name, m.gauge) for m in METRICS if m.gauge is not None), key=lambda pair: pair[1].place)
OF_METRICS = [(name, gauge) for name, gauge in _GAUGES if not gauge.labels]
_LABELLED = [(name, gauge) for name, gauge in _GAUGES if gauge.labels]  # several metrics of one family
_OF_K = [(m.name, m.gauge) for m in (family.make(1) for family in BY_K) if m.gauge is not None]
_PLAIN = {metric.name for metric in METRICS}
# those that the page shows first: of objectives no more are exported
OF_OBJECTIVES = tuple(m.name for m in METRICS if m.column is not None and m.column.overview)
IN_SLICES = [(name, gauge) for name, gauge in OF_METRICS if gauge.in_slices]


def labelled_gauges(names: Iterable[str]) -> Iterator[tuple[str, Gauge]]:
    """(metric, its gauge) of those of these metrics whose gauges have labels of their own."""
    yield from _LABELLED
    for name in names:
        gauge = None if name in _PLAIN else by_name(name).gauge
        if gauge is not None and gauge.labels:
            yield name, gauge


FAMILIES: tuple[Family, ...] = (
    *_counters(
        MODEL,
        impressions_total="Scored impressions whose label is final.",
        clicks_total="Clicks among them.",
        predicted_clicks_total="Sum of pClick over them.",
        log_loss_nats_total="Sum of their log loss, in nats.",
        squared_error_total="Sum of (pClick - click) squared.",
    ),
    *_counters(
        (*MODEL, "bucket"),
        bucket_impressions_total="Impressions by pClick bucket.",
        bucket_clicks_total="Clicks by pClick bucket.",
        bucket_predicted_clicks_total="Sum of pClick by pClick bucket.",
    ),
    *_gauges(("bucket", "lower", "upper"), bucket_info="1; the pClick edges of a bucket, [lower, upper)."),
    *_gauges(
        WINDOW,
        **{gauge.name: gauge.meaning for _, gauge in OF_METRICS},
        **{f"{gauge.name}_stderr": gauge.stderr for _, gauge in OF_METRICS if gauge.stderr is not None},
        window_impressions="Impressions in the window, labels final.",
        window_clicks="Clicks in the window, labels final.",
        window_matured_ratio="Share of the impressions seen in the window whose label is final.",
        result_reliable="1 when the window's labels are reliable, else 0.",
        result_violations="Scores that could have known their label; above 0 voids the result.",
    ),
    *_gauges(
        (*WINDOW, "point", "block"),
        auction_click_yield="Clicks per request that a version would have received at an operating point: `all`, or in the `mainline`.",
    ),
    *_gauges(
        (*WINDOW, "point"),
        auction_mainline_ads="Mainline ads per request that it would have shown.",
        auction_replayed_ratio="Share of its placements whose query and ad have a history.",
    ),
    *_gauges(MODEL, newest_label_timestamp_seconds="Event time of the newest impression with a final label."),
    *_gauges(
        ("model_name", "model_version", "kind"),
        deploy_timestamp_seconds="Event time when the version last went live.",
    ),
    *_gauges(
        (*COMPARISON, "metric"),
        comparison_difference="Candidate minus baseline; for log_loss and calibration the ratio minus 1.",
        comparison_lower_bound="Lower bound of the difference, valid at all moments at once, per metric.",
        comparison_upper_bound="Upper bound of the difference, valid at all moments at once, per metric.",
        comparison_margin="A difference beyond it, in the bad direction, is worse.",
        comparison_log_e="Evidence for worse: natural logarithm of the e-value; metric overall combines them.",
        comparison_decided_timestamp_seconds="Event time of the current verdict, on the metric that decided it.",
        comparison_decided_difference="comparison_difference of the metric that decided the verdict, at that time.",
        comparison_decided_lower_bound="Its one-sided lower bound at that time, valid at every look.",
        comparison_decided_upper_bound="Its one-sided upper bound at that time, valid at every look.",
    ),
    *_gauges(
        (*COMPARISON, "metric", "verdict"),
        comparison_verdict="1 for the current verdict, 0 for the others; metric overall combines them.",
    ),
    *_gauges(
        (*COMPARISON, "dimension", "metric"),
        comparison_simpson="1 when the difference of a metric and that after adjusting for a dimension have certainly opposite signs, else 0.",
    ),
    *_gauges(
        (*COMPARISON, "metric"),
        comparison_uniform_exposure="Candidate minus baseline as if everything had been shown equally often; for log_loss in nats.",
        comparison_uniform_exposure_stderr="Its standard error, clustered by user.",
    ),
    *_gauges(
        COMPARISON,
        comparison_supported="1 while current data support the verdict, 0 when they do not; absent while undecided.",
        comparison_withheld="1 while verdicts are withheld because the join is unhealthy, else 0.",
        comparison_impressions="Impressions in the comparison, labels final.",
        comparison_clicks="Clicks among them.",
        comparison_start_timestamp_seconds="Event time when the comparison began.",
    ),
    *_gauges(
        (*COMPARISON, "state"),
        comparison_handled="1 when somebody has acknowledged or muted the comparison; absent otherwise.",
    ),
    *_counters(
        _SLICE,
        slice_impressions_total="Scored impressions of a slice whose label is final.",
        slice_clicks_total="Clicks among them.",
        slice_predicted_clicks_total="Sum of pClick over them.",
        slice_log_loss_nats_total="Sum of their log loss, in nats.",
    ),
    *_gauges(
        (*_SLICE, "window"),
        **{f"slice_{gauge.name}": f"{gauge.name} of a slice." for _, gauge in IN_SLICES},
        **{f"slice_{gauge.name}_stderr": f"Standard error of slice_{gauge.name}." for _, gauge in IN_SLICES},
        slice_window_impressions="Impressions of a slice in the window, labels final.",
        slice_window_clicks="Clicks of a slice in the window, labels final.",
    ),
    *_of_labelled([*_LABELLED, *_OF_K]),
    *_gauges(
        (*WINDOW, "metric", "weighting"),
        stratified="A metric combined from strata of propensity: by share (the overall mean), plain, or as under uniform exposure.",
    ),
    *_gauges(
        (*WINDOW, "objective"),
        objective_window_impressions="Impressions in the window, counted by the labels of an objective.",
        objective_window_positives="Clicks among them whose value reaches the objective's threshold.",
    ),
    *_gauges(
        (*WINDOW, "objective", "metric"),
        objective_metric="A metric by the labels of an objective.",
        objective_metric_stderr="User-clustered standard error of objective_metric.",
    ),
    *_gauges(("metric", "reason"), undefined_results="Results in which a metric is currently undefined, by reason."),
    *_counters(("event",), events_received_total="Valid events read."),
    *_counters(("event", "fate"), events_total="Events by outcome; one event may have several."),
    *_counters(("reason",), events_invalid_total="Invalid events, sent to the dead letters."),
    *_gauges((), pending_impressions="Impressions whose label is not final yet."),
    *_gauges((), quarantined_events="Events dated far ahead of their stream, quarantined until it catches up."),
    *_gauges(
        ("partition",),
        watermark_timestamp_seconds="Watermark: event time up to which all events are assumed to have arrived; absent before the first event.",
        label_complete_timestamp_seconds="Event time before which labels are final; absent before the first event.",
    ),
    *_gauges(("topic", "partition"), consumer_lag_records="Consumer lag in messages; absent when unknown."),
    *_gauges(
        ("topic", "partition"),
        consumer_silent=(
            "1 while nothing comes from a partition and no broker says that it was read to its end, as without a leader "
            "or behind a transaction that does not end; absent otherwise."
        ),
    ),
    *_counters(("topic", "partition"), events_lost_total="Messages deleted or skipped before they were read."),
    *_counters(
        ("topic", "partition"),
        empty_offsets_total="Offsets without a message: compacted away, or transaction markers.",
    ),
    *_counters(("topic",), topics_recreated_total="Times a topic was found deleted and recreated."),
    *_gauges(
        ("topic",),
        unpaired_partitions="Partitions that are not read because the other topic lacks them; absent when there are none.",
    ),
    *_gauges(("table",), table_bytes="Memory of a state table."),
    *_gauges(
        ("slice",),
        slice_values="Distinct values of a slice dimension; results show those with the most impressions.",
        slice_overflowed="1 when there were more values than can be kept: which are kept depends on the order of events.",
    ),
    *_gauges(
        ("table",),
        budget_used_ratio="Utilisation of a bounded table; at 1 the documented behaviour at the limit begins.",
    ),
    *_gauges(
        (),
        checkpoint_last_success_timestamp_seconds=(
            "Wall-clock time of the oldest checkpoint among this worker's partitions; absent before the first."
        ),
        checkpoint_missing_partitions="Partitions that this worker has begun to read, without any checkpoint yet.",
        checkpoint_gone_partitions="Partitions that the topics no longer have, and whose counts cannot be restored.",
        checkpoint_size_bytes="Size of the last checkpoint of a partition.",
        checkpoint_duration_seconds="Time to write the last checkpoint, in the background.",
        checkpoint_pause_seconds="Time the last checkpoint blocked ingest.",
        checkpoint_restore_duration_seconds="Time the last restore of a partition took.",
        rows_on_disk="Impressions with mature labels, in files and not in memory, that late clicks can still correct.",
        rows_mapped=(
            "Impressions not in rows_on_disk yet (most wait for their label) whose columns that no longer change are in mapped "
            "files: resident pages of these are page cache, which the system can drop."
        ),
        rows_size_bytes="Size of the files of impressions, including those of rows_mapped, and of the files of their ids.",
    ),
    *_counters(
        (),
        checkpoints_total="Checkpoints written.",
        checkpoint_failures_total="Checkpoints that could not be written.",
        checkpoints_fenced_total="Checkpoints refused because another worker now owns the partition.",
        checkpoint_restores_total="Partitions restored from a checkpoint by this process.",
        restarts_total="Restores of the most often restored partition, over its lifetime.",
        rows_lost_total="Impressions whose file was damaged or missing: late clicks no longer find them.",
    ),
    *_gauges(
        (),
        history_size_bytes="Size of the history's database and its journal.",
        history_unwritten_panes="Panes whose latest counts are not in the history yet.",
    ),
    *_counters(
        (),
        history_panes_written_total="Panes written to the history.",
        history_parts_folded_total="Hours and days merged from finer parts.",
        history_failures_total="Failed transactions of the history; their contents are retried.",
        history_panes_lost_total="Panes evicted from memory before the history could store them.",
        history_rows_skipped_total="Rows that could not be written and are missing from their panes; the log names them.",
        history_panes_refused_total="Panes that arrived after their hour or day had been merged.",
    ),
    *_counters(("why",), history_parts_deleted_total="Parts deleted from the history because of age or size."),
    *_counters(("stage",), stage_seconds_total="Processing time by stage of the loop."),
    Family("join_delay_seconds", "histogram", (), "Click time minus impression time, of matched clicks."),
    *_gauges(
        (),
        join_ratio="Click match rate: matched clicks over clicks that should be matched by now.",
        join_reliable="1 when labels are reliable, else 0.",
        overdue_clicks="Clicks without an impression for longer than the allowed lateness.",
        attribution_window_seconds="The configured attribution window.",
    ),
    *_counters(("model_name",), online_updates_total="Labels an online model has learned."),
    *_counters(
        ("model_name", "reason"),
        online_failures_total="Events an online model failed to score or learn.",
    ),
    *_gauges(
        ("model_name",),
        online_suspended_partitions="Partitions in which an online model is suspended, after too many failures.",
    ),
    *_gauges(
        (),
        snapshot_timestamp_seconds="Wall-clock time of the snapshot behind this scrape.",
        snapshot_number="Number of the snapshot behind this scrape.",
        start_timestamp_seconds="Wall-clock time when the program started.",
    ),
    *_gauges(
        ("receiver",),
        notifications_pending="Messages waiting for a receiver.",
        notifications_oldest_pending_timestamp_seconds="Wall-clock time when the oldest of them was found; absent when there is none.",
    ),
    *_counters(
        ("receiver",),
        notifications_delivered_total="Messages that a receiver has accepted.",
        notifications_failures_total="Failed attempts; they are retried.",
        notifications_dropped_total="Messages dropped because too many waited.",
        notifications_muted_total="Messages not sent because somebody had muted their comparison.",
    ),
    *_gauges(
        ("sink",),
        sink_pending="Panes and verdicts not yet written to a sink.",
        sink_last_success_timestamp_seconds="Wall-clock time of the last write to a sink; absent before the first.",
    ),
    *_counters(
        ("sink",),
        sink_panes_total="Panes written to a sink, including rewrites.",
        sink_verdicts_total="Changes of verdicts written to a sink.",
        sink_failures_total="Failed writes to a sink; they are retried.",
        sink_panes_lost_total="Panes evicted from memory before a sink could store them.",
    ),
    *_gauges(
        (),
        certificate_not_before_timestamp_seconds="Wall-clock time from which the certificate chain of server.tls_certificate is valid; absent without TLS.",
        certificate_not_after_timestamp_seconds="Wall-clock time when the first certificate of that chain expires; absent without TLS.",
    ),
    *_gauges(("url",), page_info="1; server.external_url, absent when it is not set."),
    *_gauges(("version",), build_info="1; the version of streameval."),
    *_counters(("family",), series_dropped_total="Series dropped from scrapes because of server.max_series."),
    *_gauges((), series="Series of streameval in this scrape."),
    *_gauges((), collect_duration_seconds="Time to collect this scrape, without serialising it."),
)

BY_NAME = {family.name: family for family in FAMILIES}

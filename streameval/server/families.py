"""Every metric family of /metrics: name, type, labels and meaning. docs/reference/prometheus.md is made of it.

Names are composed here and nowhere else. What adds up is a counter; what does not is a gauge over an event-time
window, absent when undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

PREFIX = "streameval_"
MODEL = ("model_name", "model_version", "source")
WINDOW = (*MODEL, "window")
SLICE = (*MODEL, "slice", "slice_value")
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
        auc="Area under the ROC curve over all samples of the window, ties 1/2.",
        auc_error_bound="The exact AUC is certainly within this of auc; 0 when auc is exact.",
        gauc="Mean of per-user AUC over users with both labels, weighted as configured.",
        gauc_users="Users that gauc rests on.",
        gauc_request="GAUC with the request (one ranked list) as the group.",
        log_loss="Mean log loss, in nats.",
        normalized_entropy="log_loss over the entropy of the click rate; above 1 is worse than the base rate.",
        calibration_ratio="Predicted clicks over clicks; above 1 is over-prediction.",
        expected_calibration_error="Mean distance of mean pClick and click rate over pClick buckets, by impressions.",
        ctr_ratio="Clicks over impressions.",
        predicted_ctr_ratio="Mean pClick.",
        auc_stderr="Standard error of auc, with the users drawn anew.",
        gauc_stderr="Standard error of gauc.",
        log_loss_stderr="Standard error of log_loss.",
        normalized_entropy_stderr="Standard error of normalized_entropy.",
        calibration_ratio_stderr="Standard error of calibration_ratio.",
        ctr_ratio_stderr="Standard error of ctr_ratio.",
        predicted_ctr_ratio_stderr="Standard error of predicted_ctr_ratio.",
        window_impressions="Impressions in the window, labels final.",
        window_clicks="Clicks in the window, labels final.",
        window_matured_ratio="Share of the impressions seen in the window whose label is final.",
        result_reliable="1 when the window's numbers can be believed, else 0.",
        result_violations="Scores that could have known their label; above 0 voids the result.",
    ),
    *_gauges(MODEL, newest_label_timestamp_seconds="Event time of the newest impression with a final label."),
    *_gauges(
        ("model_name", "model_version", "kind"),
        deploy_timestamp_seconds="Event time when the version last went live.",
    ),
    *_gauges(
        (*COMPARISON, "metric"),
        comparison_difference="Candidate less baseline; of log_loss and calibration the ratio less 1.",
        comparison_lower_bound="Lower bound of the difference, valid at every look at once, per metric.",
        comparison_upper_bound="Upper bound of the difference, valid at every look at once, per metric.",
        comparison_margin="A difference beyond it, in the bad direction, is worse.",
        comparison_log_e="Evidence for worse: natural logarithm of the e-value; metric overall combines them.",
        comparison_decided_timestamp_seconds="Event time when the verdict that stands fell, on this metric.",
        comparison_decided_difference="comparison_difference of the metric that the verdict fell on, as it was then.",
        comparison_decided_lower_bound="Its lower bound then, valid at every look, for this side by itself.",
        comparison_decided_upper_bound="Its upper bound then, valid at every look, for this side by itself.",
    ),
    *_gauges(
        (*COMPARISON, "metric", "verdict"),
        comparison_verdict="1 for the verdict that holds, 0 for the others; metric overall combines them.",
    ),
    *_gauges(
        COMPARISON,
        comparison_supported="1 while what is known now shows the verdict that fell, 0 when it does not; absent while undecided.",
        comparison_withheld="1 while nothing is decided because the join is unhealthy, else 0.",
        comparison_impressions="Impressions that the comparison rests on, labels final.",
        comparison_clicks="Clicks among them.",
        comparison_start_timestamp_seconds="Event time when the comparison began.",
    ),
    *_counters(
        SLICE,
        slice_impressions_total="Scored impressions of a slice whose label is final.",
        slice_clicks_total="Clicks among them.",
        slice_predicted_clicks_total="Sum of pClick over them.",
        slice_log_loss_nats_total="Sum of their log loss, in nats.",
    ),
    *_gauges(
        (*SLICE, "window"),
        slice_auc="auc of a slice.",
        slice_normalized_entropy="normalized_entropy of a slice.",
        slice_calibration_ratio="calibration_ratio of a slice.",
        slice_auc_stderr="Standard error of slice_auc.",
        slice_normalized_entropy_stderr="Standard error of slice_normalized_entropy.",
        slice_calibration_ratio_stderr="Standard error of slice_calibration_ratio.",
        slice_window_impressions="Impressions of a slice in the window, labels final.",
        slice_window_clicks="Clicks of a slice in the window, labels final.",
    ),
    *_gauges(("metric", "reason"), undefined_results="Results in which a metric has no value now, and why."),
    *_counters(("event",), events_received_total="Valid events read."),
    *_counters(("event", "fate"), events_total="Events by what became of them; one event may have several fates."),
    *_counters(("reason",), events_invalid_total="Events that went to the dead letters."),
    *_gauges((), pending_impressions="Impressions whose label is not final yet."),
    *_gauges((), quarantined_events="Events dated far ahead of their stream, held back until it follows."),
    *_gauges(
        ("partition",),
        watermark_timestamp_seconds="Event time up to which everything has arrived; absent before the first event.",
        label_complete_timestamp_seconds="Event time before which labels are final; absent before the first event.",
    ),
    *_gauges(("topic", "partition"), consumer_lag_records="Records not read yet; absent when unknown."),
    *_counters(("topic", "partition"), events_lost_total="Messages that Kafka deleted before they were read."),
    *_gauges(("table",), table_bytes="Memory of a state table."),
    *_gauges(
        ("slice",),
        slice_values="Values of a slice dimension that are told apart; results show those with most impressions.",
        slice_overflowed="1 when more values came than are told apart: which ones depends on the order of events.",
    ),
    *_gauges(
        ("table",), budget_used_ratio="How full a bounded table is; at 1 its stated behaviour at the limit begins."
    ),
    *_gauges(
        (),
        checkpoint_last_success_timestamp_seconds=(
            "Wall-clock time of the state on disk of the partition written longest ago; absent while none is written."
        ),
        checkpoint_missing_partitions="Partitions of this worker without any checkpoint yet.",
        checkpoint_size_bytes="Size of the last checkpoint of a partition.",
        checkpoint_duration_seconds="Time that writing the last checkpoint took, beside the loop.",
        checkpoint_pause_seconds="Time for which the last checkpoint held up ingest.",
        checkpoint_restore_duration_seconds="Time that the last restore of a partition took.",
    ),
    *_counters(
        (),
        checkpoints_total="Checkpoints written.",
        checkpoint_failures_total="Checkpoints that could not be written.",
        checkpoints_fenced_total="Checkpoints refused because another worker has the partition now.",
        checkpoint_restores_total="Partitions restored from a checkpoint by this process.",
        restarts_total="Restores over the life of the partition that was restored most often.",
    ),
    *_gauges(
        (),
        history_size_bytes="Size of the history's database and its journal.",
        history_unwritten_panes="Panes that the history does not have as they are now.",
    ),
    *_counters(
        (),
        history_panes_written_total="Panes written to the history.",
        history_parts_folded_total="Hours and days made of finer parts.",
        history_failures_total="Transactions of the history that failed; what they held is tried again.",
        history_panes_lost_total="Panes that left memory before the history could take them.",
        history_rows_skipped_total="Rows that could not be written, without which their panes were; the log names them.",
        history_panes_refused_total="Panes that came when they were part of an hour or a day already.",
    ),
    *_counters(("why",), history_parts_deleted_total="Parts deleted from the history: too old, or too many bytes."),
    *_counters(("stage",), stage_seconds_total="Time spent in a stage of the loop."),
    Family("join_delay_seconds", "histogram", (), "Click time less impression time, of clicks that joined."),
    *_gauges(
        (),
        join_ratio="Clicks that found their impression over clicks that should have by now.",
        join_reliable="1 when the labels can be believed, else 0.",
        overdue_clicks="Clicks without an impression for longer than the allowed lateness.",
        attribution_window_seconds="The configured attribution window.",
    ),
    *_counters(("model_name",), online_updates_total="Labels that an online model has learned."),
    *_counters(
        ("model_name", "reason"),
        online_failures_total="Events that an online model could not score or learn.",
    ),
    *_gauges(
        ("model_name",),
        online_suspended_partitions="Partitions whose events an online model is not asked for, after too many failures.",
    ),
    *_gauges(
        (),
        snapshot_timestamp_seconds="Wall-clock time of the snapshot behind this scrape.",
        snapshot_number="Number of the snapshot behind this scrape.",
        start_timestamp_seconds="Wall-clock time when the program started.",
    ),
    *_gauges(("version",), build_info="1; the version of streameval."),
    *_counters(("family",), series_dropped_total="Series left out of scrapes because of server.max_series."),
    *_gauges((), series="Series of streameval in this scrape."),
    *_gauges((), collect_duration_seconds="Time taken to collect this scrape, without writing it out."),
)

BY_NAME = {family.name: family for family in FAMILIES}

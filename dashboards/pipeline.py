"""The pipeline: do events arrive in time, join, and survive a crash?"""

from __future__ import annotations

from dashboards import house
from dashboards.grafana import (
    GREEN,
    GREY,
    ORANGE,
    RED,
    UP_IS_BAD,
    YELLOW,
    Column,
    Json,
    Query,
    coloured,
    dashed,
    heatmap,
    link,
    place,
    row,
    stat,
    table,
    timeseries,
    values,
    wide,
)
from dashboards.queries import RANGE, SCOPE, labels_behind, of, rate

UID = "streameval-pipeline"
UP = f"up{{{SCOPE}}}"
INVALID = f"sum({rate('events_invalid_total')})"
ALWAYS = "not_kept_for_slices|values_not_kept|not_configured|no_(propensities|policy|positions|request.*|weight)"
RECEIVED = f"sum({rate('events_received_total')})"


def dashboard() -> Json:
    """The pipeline."""
    return house.dashboard(
        UID,
        "From Kafka to the scrape: events in, event outcomes, the join, the state on disk, and the process.",
        [*house.variables(models=False), house.page_variable()],
        place(
            [
                (4, _process_header()),
                (4, _stream_header()),
                (1, [row("The stream")]),
                (8, _stream()),
                (8, _fates()),
                (1, [row("The join of clicks and impressions")]),
                (8, _join()),
                (1, [row("State and limits")]),
                (8, _limits()),
                (8, _checkpoints()),
                (8, _history()),
                (1, [row("The process")]),
                (8, _process()),
                (8, _scrape()),
                (1, [row("Details")]),
                (9, _tables()),
            ]
        ),
        house.links(UID, f"{house.PAGE}/flow", "Page: flow"),
        house.deploys(models=False),
        since="now-3h",
    )


def runbook(alert: str) -> Json:
    """A link to an alert's runbook."""
    return link(f"Runbook {alert}", f"{house.RUNBOOKS}/{alert}.md")


def _process_header() -> list[Json]:
    return [
        stat(
            "Workers down",
            "Workers that Prometheus cannot scrape, out of all its targets.",
            [Query(f"count({UP} == 0) or vector(0)", "down"), Query(f"count({UP})", "of")],
            named=True,
            steps=UP_IS_BAD,
            overrides=[coloured("of", GREY)],
            links=[runbook("StreamevalTargetDown")],
        ),
        stat(
            "Snapshot age",
            "Age of the latest snapshot, of the slowest worker. It grows when the loop is stalled.",
            [Query(f"max(time() - {of('snapshot_timestamp_seconds')})")],
            unit="s",
            decimals=0,
            steps=((None, GREEN), (30, YELLOW), (120, RED)),
            links=[runbook("StreamevalLoopStalled")],
        ),
        stat(
            "Checkpoint age",
            "Age of the checkpoint of the partition written longest ago: what would be read again after a crash. No store: none.",
            [Query(f"max(time() - {of('checkpoint_last_success_timestamp_seconds')})")],
            unit="s",
            decimals=0,
            steps=((None, GREEN), (120, YELLOW), (300, RED)),
            links=[runbook("StreamevalCheckpointTooOld")],
            empty="no store",
        ),
        stat(
            "Highest table utilisation",
            "How full the fullest bounded table is. At 100% its documented behaviour at the limit applies.",
            [Query(f"max({of('budget_used_ratio')})")],
            unit="percentunit",
            decimals=0,
            steps=((None, GREEN), (0.75, YELLOW), (0.9, RED)),
            links=[runbook("StreamevalBudgetNearlyUsed")],
        ),
        stat(
            "Memory",
            "Resident memory of all workers.",
            [Query(f"sum(process_resident_memory_bytes{{{SCOPE}}})")],
            unit="bytes",
            decimals=1,
        ),
        stat(
            "Series",
            "Series in a scrape of streameval, of the worker with the most; server.max_series bounds it.",
            [Query(f"max({of('series')})")],
            decimals=1,
            links=[runbook("StreamevalSeriesDropped")],
        ),
    ]


def _stream_header() -> list[Json]:
    return [
        stat(
            "Consumer lag",
            "Messages in Kafka not read yet, all partitions.",
            [Query(f"sum({of('consumer_lag_records')})")],
            steps=((None, GREEN), (1_000, YELLOW), (100_000, RED)),
            links=[runbook("StreamevalLagGrowing")],
        ),
        stat(
            "Label delay",
            "Age of the newest final label beyond the attribution window; the slowest worker.",
            [Query(labels_behind())],
            unit="s",
            decimals=0,
            steps=house.BEHIND,
            links=[runbook("StreamevalLabelsOld")],
        ),
        stat(
            "Labels reliable",
            "NO: too few clicks match their impression, or none arrive. Alerts on models are then silenced, and verdicts"
            " withheld.",
            [Query(f"min({of('join_reliable')})")],
            mappings=house.BELIEVABLE,
            steps=((None, RED), (1, GREEN)),
            links=[runbook("StreamevalJoinUnreliable")],
        ),
        stat(
            "Click match rate",
            "Matched clicks over clicks that should be matched by now; the worst worker.",
            [Query(f"min({of('join_ratio')})")],
            unit="percentunit",
            decimals=1,
            steps=((None, RED), (0.9, YELLOW), (0.98, GREEN)),
            links=[runbook("StreamevalJoinUnreliable")],
        ),
        stat(
            "Invalid events",
            "Share of the events that are invalid and go to the dead letters.",
            [Query(f"{INVALID} / ({INVALID} + {RECEIVED})")],
            unit="percentunit",
            decimals=2,
            steps=((None, GREEN), (0.001, YELLOW), (0.01, RED)),
            links=[runbook("StreamevalDeadLetters")],
        ),
        stat(
            "Events lost (range)",
            "Messages that Kafka deleted before they were read, plus panes that the history lost.",
            [
                Query(
                    f"(sum(increase({of('events_lost_total')}[$__range])) or vector(0))"
                    f" + (sum(increase({of('history_panes_lost_total')}[$__range])) or vector(0))"
                )
            ],
            decimals=0,
            steps=UP_IS_BAD,
            links=[runbook("StreamevalEventsLost")],
        ),
    ]


def _stream() -> list[Json]:
    return [
        timeseries(
            "Events in",
            "Valid events read per second.",
            [Query(f"sum by (event) ({rate('events_received_total')})", "{{event}}s")],
            unit="eps",
            least=0,
        ),
        timeseries(
            "Consumer lag",
            "Messages in Kafka not read yet, by topic. A steep straight rise means a stalled worker; a slow one, too"
            " little capacity.",
            [Query(f"sum by (topic) ({of('consumer_lag_records')})", "{{topic}}")],
            least=0,
            links=[runbook("StreamevalLagGrowing")],
        ),
        timeseries(
            "Watermark and label delay",
            "Event time against the clock, of the slowest worker. Labels are final an attribution window (dashed) after the"
            " watermark; anything above that is delay.",
            [
                Query(f"max(time() - {of('watermark_timestamp_seconds')})", "watermark"),
                Query(f"max(time() - {of('label_complete_timestamp_seconds')})", "labels"),
                Query(f"max({of('attribution_window_seconds')})", "attribution window"),
            ],
            unit="s",
            least=0,
            overrides=[dashed("attribution window", ORANGE)],
            links=[runbook("StreamevalLabelsOld"), runbook("StreamevalWatermarkStalled")],
        ),
    ]


def _fates() -> list[Json]:
    return [
        timeseries(
            "Impression outcomes",
            "By outcome, per second. `matured` is normal; `matured_early` and `forgotten_early` mean that memory is short.",
            [Query(f"""sum by (fate) ({rate("events_total", SCOPE, 'event="impression"')})""", "{{fate}}")],
            unit="eps",
            least=0,
            overrides=[
                coloured("matured", "light-green"),
                coloured("matured_early", "dark-orange"),
                coloured("forgotten_early", "dark-red"),
            ],
        ),
        timeseries(
            "Click outcomes",
            "By outcome, per second. `unmatched` clicks have no impression; `corrected` ones arrived after their label.",
            [Query(f"""sum by (fate) ({rate("events_total", SCOPE, 'event="click"')})""", "{{fate}}")],
            unit="eps",
            least=0,
            overrides=[coloured("matched", "dark-green"), coloured("unmatched", "dark-red")],
        ),
        timeseries(
            "Invalid events by reason",
            "Events per second that go to the dead letters.",
            [Query(f"sum by (reason) ({rate('events_invalid_total')})", "{{reason}}")],
            unit="eps",
            stacked=True,
            least=0,
            links=[runbook("StreamevalDeadLetters")],
        ),
    ]


def _join() -> list[Json]:
    buckets = f"sum by (le) ({rate('join_delay_seconds_bucket')})"
    return [
        timeseries(
            "From impression to click",
            "Delay of the matched clicks. A 99th percentile near the attribution window (dashed) means that clicks are cut"
            " off: make the window longer.",
            [
                *(
                    Query(f"histogram_quantile({q}, {buckets})", name)
                    for q, name in (("0.5", "median"), ("0.9", "90%"), ("0.99", "99%"))
                ),
                Query(f"max({of('attribution_window_seconds')})", "attribution window"),
            ],
            unit="s",
            least=0,
            overrides=[dashed("attribution window", ORANGE)],
        ),
        heatmap(
            "Delays of clicks",
            "The same as a distribution: clicks per second by delay.",
            Query(buckets, "{{le}}", heatmap=True),
            unit="eps",
            axis="clicks per second",
            of_rows="s",
            scheme="Oranges",
        ),
        timeseries(
            "Click match rate",
            "Matched clicks over clicks that should be matched by now, by worker.",
            [Query(of("join_ratio"), "{{instance}}")],
            unit="percentunit",
            decimals=1,
            least=0.9,
            most=1,
            links=[runbook("StreamevalJoinUnreliable")],
        ),
        timeseries(
            "Pending impressions and overdue clicks",
            "Impressions whose label is not final, and clicks that have waited too long for their impression.",
            [
                Query(f"sum({of('pending_impressions')})", "pending impressions"),
                Query(f"sum({of('overdue_clicks')})", "overdue clicks"),
            ],
            least=0,
        ),
    ]


def _limits() -> list[Json]:
    # of slices no GAUC is ever kept, and metrics of what the log does not have are nobody's trouble
    undefined = of("undefined_results", SCOPE, f'reason!~"{ALWAYS}"')
    return [
        timeseries(
            "Table utilisation",
            "How full each bounded table is. At 100% (line: 90%, where an alert fires) each does what its runbook says.",
            [Query(f"max by (table) ({of('budget_used_ratio')})", "{{table}}")],
            unit="percentunit",
            steps=((None, "transparent"), (0.9, RED)),
            least=0,
            links=[runbook("StreamevalBudgetNearlyUsed")],
        ),
        timeseries(
            "Table memory",
            "State by table, all workers.",
            [Query(f"sum by (table) ({of('table_bytes')})", "{{table}}")],
            unit="bytes",
            stacked=True,
            least=0,
        ),
        timeseries(
            "Results without a value",
            "Results in which a metric is currently undefined, and why: too few clicks, only one label, ... The ten most"
            " frequent; those of fields that the log does not have are left out.",
            [Query(f"topk(10, sum by (metric, reason) ({undefined}) > 0)", "{{metric}}: {{reason}}")],
            least=0,
            empty="none",
        ),
    ]


def _checkpoints() -> list[Json]:
    return [
        timeseries(
            "Checkpoint age",
            "Of the partition written longest ago, by worker. A sawtooth is healthy; a slope is not.",
            [Query(f"time() - {of('checkpoint_last_success_timestamp_seconds')}", "{{instance}}")],
            unit="s",
            steps=((None, "transparent"), (300, RED)),
            least=0,
            links=[runbook("StreamevalCheckpointTooOld")],
        ),
        timeseries(
            "Checkpoint cost",
            "Time to write one in the background, and the pause of the loop for it.",
            [
                Query(f"max by (instance) ({of('checkpoint_duration_seconds')})", "written in {{instance}}"),
                Query(f"max by (instance) ({of('checkpoint_pause_seconds')})", "pause {{instance}}"),
            ],
            unit="s",
            least=0,
        ),
        timeseries(
            "Checkpoints per minute",
            "Written, failed, fenced because another worker owns the partition, and restored.",
            [
                Query(f"60 * sum({rate('checkpoints_total')})", "written"),
                Query(f"60 * sum({rate('checkpoint_failures_total')})", "failed"),
                Query(f"60 * sum({rate('checkpoints_fenced_total')})", "fenced"),
                Query(f"60 * sum({rate('checkpoint_restores_total')})", "restored"),
            ],
            least=0,
            overrides=[coloured("failed", "dark-red")],
            links=[runbook("StreamevalCheckpointFailing"), runbook("StreamevalRestartingOften")],
        ),
    ]


def _history() -> list[Json]:
    return [
        timeseries(
            "Size on disk",
            "The history's database with its journal, the last checkpoint of a partition, and impressions that late clicks can still correct.",
            [
                Query(f"sum({of('history_size_bytes')})", "history"),
                Query(f"max({of('checkpoint_size_bytes')})", "a checkpoint"),
                Query(f"sum({of('rows_size_bytes')})", "impressions"),
            ],
            unit="bytes",
            least=0,
        ),
        timeseries(
            "History",
            "Panes written per second, and panes folded into hours and days.",
            [
                Query(f"sum({rate('history_panes_written_total')})", "panes written"),
                Query(f"sum({rate('history_parts_folded_total')})", "parts folded"),
                Query(f"sum({rate('history_parts_deleted_total')})", "parts deleted"),
            ],
            unit="wps",
            least=0,
        ),
        timeseries(
            "History backlog and failures",
            "Panes waiting in memory, and failures per interval.",
            [
                Query(f"sum({of('history_unwritten_panes')})", "unwritten panes"),
                Query(f"sum(increase({of('history_failures_total')}{RANGE}))", "failed transactions"),
                Query(f"sum(increase({of('history_panes_refused_total')}{RANGE}))", "refused panes"),
            ],
            least=0,
            links=[runbook("StreamevalHistoryFailing")],
        ),
    ]


def _process() -> list[Json]:
    return [
        timeseries(
            "Processing time by stage",
            "Seconds per second, all workers. `read` is mostly waiting; when it is gone, the loop is saturated.",
            [Query(f"sum by (stage) ({rate('stage_seconds_total')})", "{{stage}}")],
            unit="percentunit",
            stacked=True,
            least=0,
        ),
        timeseries(
            "CPU",
            "Cores in use, by worker.",
            [Query(f"rate(process_cpu_seconds_total{{{SCOPE}}}{RANGE})", "{{instance}}")],
            unit="none",
            decimals=2,
            least=0,
        ),
        timeseries(
            "Memory",
            "Resident memory, by worker. It should be flat after the first hour.",
            [Query(f"process_resident_memory_bytes{{{SCOPE}}}", "{{instance}}")],
            unit="bytes",
            least=0,
        ),
        timeseries(
            "Online model updates",
            "Labels learned per second, by model.",
            [Query(f"sum by (model_name) ({rate('online_updates_total')})", "{{model_name}}")],
            unit="eps",
            least=0,
        ),
    ]


def _scrape() -> list[Json]:
    return [
        timeseries(
            "Series",
            "Series in a scrape of streameval, by worker.",
            [Query(of("series"), "{{instance}}")],
            least=0,
        ),
        timeseries(
            "Series left out",
            "Per second, by family: server.max_series is too small. Alerts on these series are blind.",
            [Query(f"sum by (family) ({rate('series_dropped_total')})", "{{family}}")],
            unit="short",
            least=0,
            links=[runbook("StreamevalSeriesDropped")],
            empty="none",
        ),
        timeseries(
            "Scrape collection time",
            "To collect the families, without rendering them.",
            [Query(of("collect_duration_seconds"), "{{instance}}")],
            unit="s",
            least=0,
        ),
        timeseries(
            "Snapshot age",
            "Of the snapshot that a scrape shows, by worker. It grows when the loop is stalled.",
            [Query(f"time() - {of('snapshot_timestamp_seconds')}", "{{instance}}")],
            unit="s",
            steps=((None, "transparent"), (120, RED)),
            least=0,
            links=[runbook("StreamevalLoopStalled")],
        ),
    ]


def _tables() -> list[Json]:
    by = "instance, partition"
    return [
        wide(
            9,
            table(
                "Partitions",
                "Progress of each partition. One that falls behind delays only its own labels.",
                {"partition": "partition", "instance": "instance"},
                [
                    Column("consumer lag", f"sum by ({by}) ({of('consumer_lag_records')})", "short", 0),
                    Column(
                        "watermark delay",
                        f"max by ({by}) (time() - {of('watermark_timestamp_seconds')})",
                        "s",
                        1,
                        ((None, GREEN), (60, YELLOW), (900, RED)),
                    ),
                    Column("label delay", f"max by ({by}) (time() - {of('label_complete_timestamp_seconds')})", "s", 1),
                ],
                sort="watermark delay",
            ),
        ),
        wide(
            15,
            table(
                "Workers",
                "Version, start time and attribution window of each worker: workers of a job should agree.",
                {"instance": "instance", "version": "streameval"},
                [
                    Column("up", f"max by (instance) ({UP})", "none", mappings=values(yes=(1, GREEN), NO=(0, RED))),
                    Column("build", f"max by (instance, version) ({of('build_info')})", "none"),
                    Column(
                        "started",
                        f"max by (instance) ({of('start_timestamp_seconds')}) * 1000",
                        "dateTimeFromNow",
                        least=110,
                    ),
                    Column("attribution window", f"max by (instance) ({of('attribution_window_seconds')})", "s"),
                    Column(
                        "restarts",
                        f"max by (instance) (changes({of('start_timestamp_seconds')}[$__range]))",
                        "short",
                        0,
                    ),
                    Column("partitions", f"count by (instance) ({of('watermark_timestamp_seconds')})", "none"),
                    Column(
                        "without checkpoint",
                        f"max by (instance) ({of('checkpoint_missing_partitions')})",
                        "none",
                        None,
                        UP_IS_BAD,
                    ),
                ],
                sort="instance",
                descending=False,
                hidden=["Value #B"],
            ),
        ),
    ]

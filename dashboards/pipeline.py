"""The pipeline: does everything arrive, in time, find its partner, and survive a crash?"""

from __future__ import annotations

from dashboards import house
from dashboards.grafana import (
    GREEN,
    ORANGE,
    RED,
    UP_IS_BAD,
    YELLOW,
    Column,
    Json,
    Query,
    dashed,
    heatmap,
    link,
    override,
    place,
    row,
    stat,
    table,
    timeseries,
    values,
)
from dashboards.queries import RANGE, SCOPE, labels_behind, of, rate

UID = "streameval-pipeline"
UP = f"up{{{SCOPE}}}"
INVALID = f"sum({rate('events_invalid_total')})"
RECEIVED = f"sum({rate('events_received_total')})"


def dashboard() -> Json:
    """The pipeline."""
    return house.dashboard(
        UID,
        "From Kafka to the scrape: what arrives, what becomes of it, the join, the state on disk, and the process.",
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
                (1, [row("In tables")]),
                (9, _tables()),
            ]
        ),
        house.links(UID, f"{house.PAGE}/flow", "Page: flow"),
        house.deploys(),
        since="now-3h",
    )


def runbook(alert: str) -> Json:
    """A link to an alert's runbook."""
    return link(f"Runbook {alert}", f"{house.RUNBOOKS}/{alert}.md")


def _process_header() -> list[Json]:
    return [
        stat(
            "Workers up",
            "Workers that Prometheus can scrape, of those it knows.",
            [Query(f"sum({UP})", "up"), Query(f"count({UP})", "of")],
            named=True,
            steps=((None, RED), (1, GREEN)),
            links=[runbook("StreamevalTargetDown")],
        ),
        stat(
            "Snapshot is old",
            "Age of the newest report of the slowest worker. It grows when the loop stands still.",
            [Query(f"max(time() - {of('snapshot_timestamp_seconds')})")],
            unit="s",
            decimals=0,
            steps=((None, GREEN), (30, YELLOW), (120, RED)),
            links=[runbook("StreamevalLoopStalled")],
        ),
        stat(
            "Checkpoint is old",
            "Age of the oldest checkpoint of a partition: what a crash would have read again. No store: no checkpoints.",
            [Query(f"max(time() - {of('checkpoint_last_success_timestamp_seconds')})")],
            unit="s",
            decimals=0,
            steps=((None, GREEN), (120, YELLOW), (300, RED)),
            links=[runbook("StreamevalCheckpointTooOld")],
            empty="no store",
        ),
        stat(
            "Fullest table",
            "How full the fullest bounded table is. At 100% its stated behaviour at the limit begins.",
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
            "Series of streameval in a scrape, of the worker with the most; server.max_series bounds it.",
            [Query(f"max({of('series')})")],
            decimals=1,
            links=[runbook("StreamevalSeriesDropped")],
        ),
    ]


def _stream_header() -> list[Json]:
    return [
        stat(
            "Records waiting",
            "Messages in Kafka not read yet, all partitions.",
            [Query(f"sum({of('consumer_lag_records')})")],
            steps=((None, GREEN), (1_000, YELLOW), (100_000, RED)),
            links=[runbook("StreamevalLagGrowing")],
        ),
        stat(
            "Labels late by",
            "Age of the newest final label beyond the attribution window; the slowest worker.",
            [Query(labels_behind())],
            unit="s",
            decimals=0,
            steps=house.BEHIND,
            links=[runbook("StreamevalLabelsOld")],
        ),
        stat(
            "Labels believable",
            "NO: too few clicks find their impression, or none come. Alerts about models are silent then, and verdicts"
            " withheld.",
            [Query(f"min({of('join_reliable')})")],
            mappings=house.BELIEVABLE,
            steps=((None, RED), (1, GREEN)),
            links=[runbook("StreamevalJoinUnreliable")],
        ),
        stat(
            "Clicks that join",
            "Clicks that found their impression over clicks that should have by now; the worst worker.",
            [Query(f"min({of('join_ratio')})")],
            unit="percentunit",
            decimals=1,
            steps=((None, RED), (0.9, YELLOW), (0.98, GREEN)),
            links=[runbook("StreamevalJoinUnreliable")],
        ),
        stat(
            "Dead letters",
            "Share of the events that cannot be used.",
            [Query(f"{INVALID} / ({INVALID} + {RECEIVED})")],
            unit="percentunit",
            decimals=2,
            steps=((None, GREEN), (0.001, YELLOW), (0.01, RED)),
            links=[runbook("StreamevalDeadLetters")],
        ),
        stat(
            "Lost in the shown time",
            "Messages that Kafka deleted before they were read, and panes that the history lost.",
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
    complete = f"max by (instance) ({of('label_complete_timestamp_seconds')})"
    return [
        timeseries(
            "Events in",
            "Valid events read a second.",
            [Query(f"sum by (event) ({rate('events_received_total')})", "{{event}}s")],
            unit="reqps",
            least=0,
        ),
        timeseries(
            "Records waiting",
            "Messages in Kafka not read yet, by topic. A straight way up is a worker that stands still; a slow one too"
            " little power.",
            [Query(f"sum by (topic) ({of('consumer_lag_records')})", "{{topic}}")],
            least=0,
            links=[runbook("StreamevalLagGrowing")],
        ),
        timeseries(
            "How far behind",
            "Event time against the clock. Labels are final an attribution window (dashed) after the watermark; what is"
            " above that is lateness.",
            [
                Query(f"max by (instance) (time() - {of('watermark_timestamp_seconds')})", "watermark {{instance}}"),
                Query(f"time() - {complete}", "labels {{instance}}"),
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
            "What becomes of impressions",
            "By fate, a second. `matured` is the rule; `matured_early` and `forgotten_early` mean that memory is short.",
            [Query(f"""sum by (fate) ({rate("events_total", SCOPE, 'event="impression"')})""", "{{fate}}")],
            unit="reqps",
            least=0,
        ),
        timeseries(
            "What becomes of clicks",
            "By fate, a second. `unmatched` clicks lack their impression; `corrected` ones came after their label.",
            [Query(f"""sum by (fate) ({rate("events_total", SCOPE, 'event="click"')})""", "{{fate}}")],
            unit="reqps",
            least=0,
        ),
        timeseries(
            "Dead letters by reason",
            "Events a second that cannot be used.",
            [Query(f"sum by (reason) ({rate('events_invalid_total')})", "{{reason}}")],
            unit="reqps",
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
            "Delay of the clicks that joined. A 99% quantile near the attribution window (dashed) says that clicks are cut"
            " off: make it longer.",
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
            "The same, all of it: clicks a second by delay.",
            Query(buckets, "{{le}}", heatmap=True),
            unit="reqps",
            axis="clicks a second",
            scheme="Oranges",
        ),
        timeseries(
            "Clicks that join",
            "Clicks that found their impression over clicks that should have by now, by worker.",
            [Query(of("join_ratio"), "{{instance}}")],
            unit="percentunit",
            decimals=1,
            least=0.9,
            most=1,
            links=[runbook("StreamevalJoinUnreliable")],
        ),
        timeseries(
            "Waiting for their label",
            "Impressions whose label is not final, and clicks that miss their impression for too long.",
            [
                Query(f"sum({of('pending_impressions')})", "pending impressions"),
                Query(f"sum({of('overdue_clicks')})", "overdue clicks"),
            ],
            least=0,
        ),
    ]


def _limits() -> list[Json]:
    # of slices no GAUC is ever kept: no trouble, and always there
    undefined = of("undefined_results", SCOPE, 'reason!="not_kept_for_slices"')
    return [
        timeseries(
            "How full the bounded tables are",
            "At 100% (line: 90%, where an alert fires) each does what its runbook says.",
            [Query(f"max by (table) ({of('budget_used_ratio')})", "{{table}}")],
            unit="percentunit",
            steps=((None, "transparent"), (0.9, RED)),
            least=0,
            links=[runbook("StreamevalBudgetNearlyUsed")],
        ),
        timeseries(
            "Memory of the tables",
            "State by table, all workers.",
            [Query(f"sum by (table) ({of('table_bytes')})", "{{table}}")],
            unit="bytes",
            stacked=True,
            least=0,
        ),
        timeseries(
            "Results without a value",
            "Results in which a metric has no value now, and why: too few clicks, one label only, ...",
            [Query(f"sum by (metric, reason) ({undefined}) > 0", "{{metric}}: {{reason}}")],
            least=0,
        ),
    ]


def _checkpoints() -> list[Json]:
    return [
        timeseries(
            "Age of checkpoints",
            "Of the partition written longest ago, by worker. A saw is healthy; a slope is not.",
            [Query(f"time() - {of('checkpoint_last_success_timestamp_seconds')}", "{{instance}}")],
            unit="s",
            steps=((None, "transparent"), (300, RED)),
            least=0,
            links=[runbook("StreamevalCheckpointTooOld")],
        ),
        timeseries(
            "Cost of checkpoints",
            "Time to write one beside the loop, and the pause of the loop for it.",
            [
                Query(f"max by (instance) ({of('checkpoint_duration_seconds')})", "written in {{instance}}"),
                Query(f"max by (instance) ({of('checkpoint_pause_seconds')})", "pause {{instance}}"),
            ],
            unit="s",
            least=0,
        ),
        timeseries(
            "Checkpoints in the shown step",
            "Written, failed, refused because another worker has the partition, and restored.",
            [
                Query(f"sum(increase({of('checkpoints_total')}{RANGE}))", "written"),
                Query(f"sum(increase({of('checkpoint_failures_total')}{RANGE}))", "failed"),
                Query(f"sum(increase({of('checkpoints_fenced_total')}{RANGE}))", "fenced"),
                Query(f"sum(increase({of('checkpoint_restores_total')}{RANGE}))", "restored"),
            ],
            least=0,
            overrides=[override("failed", {"id": "color", "value": {"mode": "fixed", "fixedColor": RED}})],
            links=[runbook("StreamevalCheckpointFailing"), runbook("StreamevalRestartingOften")],
        ),
    ]


def _history() -> list[Json]:
    return [
        timeseries(
            "Size on disk",
            "The history's database with its journal, and the last checkpoint of a partition.",
            [
                Query(f"sum({of('history_size_bytes')})", "history"),
                Query(f"max({of('checkpoint_size_bytes')})", "a checkpoint"),
            ],
            unit="bytes",
            least=0,
        ),
        timeseries(
            "History",
            "Panes written a second, and hours and days made of them.",
            [
                Query(f"sum({rate('history_panes_written_total')})", "panes written"),
                Query(f"sum({rate('history_parts_folded_total')})", "parts folded"),
                Query(f"sum({rate('history_parts_deleted_total')})", "parts deleted"),
            ],
            unit="wps",
            least=0,
        ),
        timeseries(
            "History in trouble",
            "Panes that wait in memory, and failures in the shown step.",
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
            "Where the loop spends its time",
            "Seconds a second, by stage, all workers. `read` is mostly waiting; when it is gone, the loop is full.",
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
            "Online models learn",
            "Labels a second that each model has learned.",
            [Query(f"sum by (model_name) ({rate('online_updates_total')})", "{{model_name}}")],
            unit="reqps",
            least=0,
        ),
    ]


def _scrape() -> list[Json]:
    return [
        timeseries(
            "Series",
            "Series of streameval in a scrape, by worker.",
            [Query(of("series"), "{{instance}}")],
            least=0,
        ),
        timeseries(
            "Series left out",
            "A second, by family: server.max_series is too small for what there is. Alerts on them are blind.",
            [Query(f"sum by (family) ({rate('series_dropped_total')})", "{{family}}")],
            unit="short",
            least=0,
            links=[runbook("StreamevalSeriesDropped")],
        ),
        timeseries(
            "Time of a scrape",
            "To collect the families, without writing them out.",
            [Query(of("collect_duration_seconds"), "{{instance}}")],
            unit="s",
            least=0,
        ),
        timeseries(
            "Age of the report",
            "Of the snapshot that a scrape shows, by worker. It grows when the loop stands still.",
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
        table(
            "Partitions",
            "How far each partition is. One that stays behind the others holds up its own labels only.",
            {"partition": "partition", "instance": "instance"},
            [
                Column("waiting", f"sum by ({by}) ({of('consumer_lag_records')})", "short", 0),
                Column(
                    "watermark behind",
                    f"max by ({by}) (time() - {of('watermark_timestamp_seconds')})",
                    "s",
                    1,
                    ((None, GREEN), (60, YELLOW), (900, RED)),
                ),
                Column("labels behind", f"max by ({by}) (time() - {of('label_complete_timestamp_seconds')})", "s", 1),
            ],
            sort="watermark behind",
        ),
        table(
            "Workers",
            "What runs, since when, and with which attribution window: workers of a job should agree.",
            {"instance": "instance", "version": "streameval"},
            [
                Column("up", f"max by (instance) ({UP})", "none", mappings=values(yes=(1, GREEN), NO=(0, RED))),
                Column("build", f"max by (instance, version) ({of('build_info')})", "none"),
                Column("started", f"max by (instance) ({of('start_timestamp_seconds')}) * 1000", "dateTimeFromNow"),
                Column("attribution window", f"max by (instance) ({of('attribution_window_seconds')})", "s"),
                Column("restarts", f"max by (instance) (increase({of('restarts_total')}[$__range]))", "short", 0),
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
    ]

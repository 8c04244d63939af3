"""What the readers see: results, and the immutable snapshot that holds them.

The ingest loop publishes a `Snapshot`; the API, the Prometheus collector, the page and `replay --report` read it.
Nothing here is ever changed after it was made (arrays are read-only).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.compare.reading import Comparison, Deploy, Role
from streameval.compare.reading_json import comparison_json, deploy_json, finite
from streameval.events import Series
from streameval.learner import Suspension
from streameval.sketches.sparse import SparseVector

SCHEMA = 1
METRIC_NAMES = (
    "ctr", "mean_pclick", "auc", "auc_error", "gauc", "gauc_users", "gauc_impressions", "gauc_request", "log_loss",
    "rig", "mse", "nmse", "mae", "prediction_error", "calibration", "ece",
)  # fmt: skip
WITH_STDERR = tuple(name for name in METRIC_NAMES if name not in ("auc_error", "gauc_users", "gauc_impressions"))


@dataclass(frozen=True, slots=True)
class Bucket:
    """One row of the bucket table; pClick in [lower, upper), the last bucket closed. None: undefined (empty)."""

    lower: float
    upper: float
    impressions: int
    clicks: int
    mean_pclick: float | None
    ctr: float | None
    log_loss: float | None
    prediction_error: float | None


@dataclass(frozen=True, slots=True)
class Totals:
    """The sums behind a result, in plain numbers: what Prometheus counters and any re-aggregation need."""

    impressions: int
    clicks: int
    predicted_clicks: float  # sum of pClick
    log_loss_nats: float  # sum of log loss, nats
    squared_error: float
    absolute_error: float


@dataclass(frozen=True, slots=True)
class ScoreCounts:
    """The score histogram behind a result: bin i holds scores in [lower[i], upper[i]); only bins in use."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    negatives: NDArray[np.int64]
    positives: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Result:
    """Every metric of one series in one window and slice.

    `metrics` has the names of `METRIC_NAMES`; an undefined one is None and `reasons` says why (a word like
    "no_clicks", "one_class", "no_eligible_user", "not_kept_for_slices"). `stderrs` has their standard errors by the same
    names; why one is None is in `reasons` under "<name>_stderr", or is the metric's own reason. `stderr_df` and, of GAUC,
    `gauc_stderr_df` are their degrees of freedom (see `metrics.errors`).
    """

    series: Series
    window: str  # "all", "5m", ...
    slice: tuple[str, str] | None  # (dimension, value)
    totals: Totals
    metrics: Mapping[str, float | int | None]
    reasons: Mapping[str, str]
    buckets: tuple[Bucket, ...]
    quantiles: tuple[Bucket, ...]
    scores: ScoreCounts
    window_start: int | None  # event time, ms; None when the window is empty
    window_end: int | None
    matured_share: float | None  # matured impressions / impressions seen, in the window's panes
    corrected: int  # labels changed after maturity, in the window's panes
    newest_label: int | None  # event time (ms) of the newest matured impression in it
    violations: int  # scores that could have known their label; any number above 0 voids the result
    reliable: bool  # False: the join is unhealthy (see reliable_reason) or violations > 0
    reliable_reason: str | None
    users_sampled: float = 1.0  # fraction of users that GAUC rests on
    gauc_sampling_error: float | None = None  # standard error of GAUC from sampling users, when users_sampled < 1
    stderrs: Mapping[str, float | None] = field(default_factory=dict)  # by metric, clustered by user; None: undefined
    design_effects: Mapping[str, float] = field(default_factory=dict)  # variance by user over variance by impression
    stderr_df: float | None = None
    gauc_stderr_df: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The result as in the report."""
        where = None if self.slice is None else {"dimension": self.slice[0], "value": self.slice[1]}
        metrics: dict[str, Any] = {}
        reasons = dict(self.reasons)
        for name, value in self.metrics.items():
            metrics[name] = value
            if name in WITH_STDERR:
                error = metrics[f"{name}_stderr"] = finite(self.stderrs.get(name))
                if error is None:
                    reasons.setdefault(f"{name}_stderr", self.reasons.get(name, "not_estimated"))
        return {
            "model": self.series.model,
            "version": self.series.version,
            "source": self.series.source,
            "window": self.window,
            "slice": where,
            "impressions": self.totals.impressions,
            "clicks": self.totals.clicks,
            **metrics,
            "stderr_df": self.stderr_df,
            "gauc_stderr_df": self.gauc_stderr_df,
            "reasons": reasons,
            "window_start": self.window_start,
            "window_end": self.window_end,
            "matured_share": self.matured_share,
            "corrected": self.corrected,
            "newest_label": self.newest_label,
            "violations": self.violations,
            "reliable": self.reliable,
            "reliable_reason": self.reliable_reason,
            "users_sampled": self.users_sampled,
            "gauc_sampling_error": self.gauc_sampling_error,
            "buckets": [bucket_json(b) for b in self.buckets],
        }


def bucket_json(bucket: Bucket) -> dict[str, Any]:
    """One bucket as in the report."""
    return {name: getattr(bucket, name) for name in Bucket.__slots__}


@dataclass(frozen=True, slots=True)
class UserColumns:
    """Every kept user of one series over the whole run, as columns of u users."""

    user: NDArray[np.uint64]  # stable hash of the user id, increasing
    impressions: NDArray[np.int64]
    clicks: NDArray[np.int64]
    pairs: NDArray[np.int64]  # twice the concordant (click, no click) pairs, ties counted once
    predicted_clicks: NDArray[np.float64]
    log_loss_nats: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.user)


@dataclass(frozen=True, slots=True)
class PaneColumns:
    """One series over its panes (complete ones), oldest first: what /api/v1/series serves."""

    start: NDArray[np.int64]  # ms
    impressions: NDArray[np.int64]
    clicks: NDArray[np.int64]
    corrected: NDArray[np.int64]
    metrics: Mapping[str, NDArray[np.float64]]  # NaN: undefined
    stderrs: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)  # of `WITH_STDERR`; NaN: unknown
    df: NDArray[np.float64] | None = None  # their degrees of freedom; NaN: between impressions
    gauc_df: NDArray[np.float64] | None = None  # that of GAUC


@dataclass(frozen=True, slots=True)
class PaneSketches:
    """The vectors of the complete panes in memory, from which steps and slices are added up: one a partition."""

    pane: int  # ms
    edges: tuple[float, ...]  # of the pClick buckets
    series: tuple[Series, ...]  # names by code, which is the row in the overall vectors
    slice_rows: Mapping[tuple[int, str, str], int]  # the row of (series code, dimension, value) in those of slices
    overall: Mapping[int, tuple[SparseVector, ...]]  # by pane number
    slices: Mapping[int, tuple[SparseVector, ...]]


@dataclass(frozen=True, slots=True)
class SliceValues:
    """How many values a slice dimension has had. `overflowed`: more came than are counted, so it depends on the order of
    events which of them are in `__other__`; the numbers of those that are told apart are right all the same."""

    counted: int
    most_counted: int
    most_shown: int  # those with most impressions; the others are in `__other__`
    overflowed: bool


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Where one partition stands. Times are event time in ms; None before the first event."""

    partition: int
    watermark: int | None
    label_complete: int | None  # every impression before it has its final label
    newest_event: int | None
    offsets: Mapping[tuple[str, int], int]  # next offset to read, by (topic, partition)
    lag: Mapping[tuple[str, int], int]  # messages behind the end, where known


@dataclass(frozen=True, slots=True)
class Delays:
    """Click time less impression time: a histogram with upper edges in seconds, the last one infinite."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]  # not cumulative
    sum_seconds: float


@dataclass(frozen=True, slots=True)
class JoinHealth:
    """Can the labels be believed? `reliable` is False with a `reason` when not."""

    reliable: bool
    reason: str | None
    join_rate: float | None  # clicks that found their impression / clicks that should have by now
    overdue_clicks: int  # clicks without an impression for longer than the allowed lateness
    delays: Delays


@dataclass(slots=True)
class CheckpointState:
    """How the checkpoints of this worker's partitions fare. Totals are since the start."""

    oldest: float | None = None  # wall clock of the state that the least recently written partition has on disk
    never_written: int = 0  # partitions without any checkpoint yet
    written: int = 0
    failures: int = 0  # could not be written: disk full, too slow for a stop
    fenced: int = 0  # refused, because another worker has the partition now
    restores: int = 0
    restarts: int = 0  # of the partition that was restored most often, over all of its life
    bytes: int = 0  # of the last one
    write_seconds: float = 0.0  # of the last one
    pause_seconds: float = 0.0  # for which the last one held up ingest
    restore_seconds: float = 0.0  # of the last restore

    def copy(self) -> CheckpointState:
        """As it is now."""
        return replace(self)


@dataclass(frozen=True, slots=True)
class HistoryState:
    """How the history fares. Totals are since the start."""

    bytes: int  # of the database and its journal
    written: int  # panes
    folded: int  # hours and days made of finer parts
    deleted_by_age: int  # parts
    deleted_by_size: int
    refused: int  # panes that came when they were part of an hour already
    failures: int  # of transactions; their panes are tried again
    unwritten: int  # panes that wait to be written
    lost: int  # panes that left memory before they could be written
    skipped: int = 0  # rows that could not be written, without which their panes were; the log names them


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that readers may know, as of one moment between two batches."""

    number: int  # increases with every snapshot
    taken_at: float  # wall clock, seconds since the epoch
    started_at: float
    events: Mapping[str, Any]  # the report's "events": counters by fate, and "invalid" by reason
    results: tuple[Result, ...]
    partitions: tuple[PartitionState, ...]
    join: JoinHealth
    panes: Mapping[Series, PaneColumns] = field(default_factory=dict)
    pane: int = 60_000  # ms, the length of each of them
    sketches: PaneSketches | None = None  # None: a history answers for steps and slices of them
    users: Mapping[Series, UserColumns] = field(default_factory=dict)
    last_seen: Mapping[Series, float] = field(default_factory=dict)  # wall clock, seconds
    stage_seconds: Mapping[str, float] = field(default_factory=dict)  # decode, join, score, learn, observe, publish
    table_bytes: Mapping[str, int] = field(default_factory=dict)  # join, users, panes, models
    bucket_edges: tuple[float, ...] = ()  # 0, the configured edges, 1
    undefined: Mapping[str, int] = field(default_factory=dict)  # "metric:reason" -> results it applies to now
    online_updates: Mapping[str, int] = field(default_factory=dict)  # labels learned, by online model
    online_failures: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by online model and reason
    suspensions: tuple[Suspension, ...] = ()  # of online models, a partition each
    lost: Mapping[tuple[str, int], int] = field(default_factory=dict)  # messages gone before they were read
    empty_offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)  # between messages, without one
    recreated: Mapping[str, int] = field(default_factory=dict)  # topics found made anew, since the start
    unpaired: Mapping[str, int] = field(default_factory=dict)  # partitions that the other topic does not have
    ready: Mapping[str, bool] = field(default_factory=dict)  # named checks of /readyz
    attribution_window: int = 0  # ms
    checkpoints: CheckpointState | None = None  # None: no store
    history: HistoryState | None = None
    budget_used: Mapping[str, float] = field(
        default_factory=dict
    )  # by bounded table; at 1 the oldest or next gives way
    slice_values: Mapping[str, SliceValues] = field(default_factory=dict)  # by dimension
    deploys: tuple[Deploy, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    roles: Mapping[Series, Role] = field(default_factory=dict)  # what every series is there for

    def report(self) -> dict[str, Any]:
        """The report of `replay --report`."""
        return {
            "schema": SCHEMA,
            "events": dict(self.events),
            "join": {
                "reliable": self.join.reliable,
                "reason": self.join.reason,
                "join_rate": self.join.join_rate,
                "overdue_clicks": self.join.overdue_clicks,
            },
            "results": [result.as_json() for result in self.results],
            # without `counted`: a process may know names of which nothing was counted after all
            "slice_values": {
                dimension: {"most_shown": values.most_shown, "overflowed": values.overflowed}
                for dimension, values in self.slice_values.items()
            },
            "deploys": [deploy_json(deploy) for deploy in self.deploys],
            "comparisons": [_settled(comparison_json(comparison)) for comparison in self.comparisons],
        }


def _settled(comparison: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on when somebody looked: without early readings, and users as of their last gathering."""
    comparison["findings"] = [one for one in comparison["findings"] if one["dimension"] != "user"]
    del comparison["early"]
    return comparison


def empty_snapshot(started_at: float, bucket_edges: tuple[float, ...] = ()) -> Snapshot:
    """What readers see before the first batch."""
    return Snapshot(
        number=0,
        taken_at=started_at,
        started_at=started_at,
        events={},
        results=(),
        partitions=(),
        join=JoinHealth(True, None, None, 0, Delays((float("inf"),), (0,), 0.0)),
        bucket_edges=bucket_edges,
    )

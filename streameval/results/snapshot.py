"""What the readers see: results, and the immutable snapshot that holds them.

The ingest loop publishes a `Snapshot`; the API, the Prometheus collector, the page and `replay --report` read it.
Nothing here is ever changed after it was made (arrays are read-only).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.auction.rows import rows
from streameval.compare.reading.as_json import as_json, comparison_json
from streameval.compare.reading.reading import Comparison, Deploy, Role
from streameval.events.batch import Series
from streameval.models.learner import Suspension
from streameval.results.auctions import WindowAuctions
from streameval.results.certificate import CertificateState
from streameval.results.outlets import ReceiverState, SinkState
from streameval.results.results import Results
from streameval.sketches.layout import NO_OPTIONS, Options
from streameval.sketches.sparse import SparseVector

_SCHEMA = 1
BEFORE_FIRST = -1_000_000  # number of the first empty snapshot; those up to 0 hold nothing that was counted


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
    reasons: Sequence[Mapping[str, str]]  # by pane: why a metric is undefined
    stderrs: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)  # of those with one; NaN: unknown
    df: NDArray[np.float64] | None = None  # their degrees of freedom; NaN: between impressions
    gauc_df: NDArray[np.float64] | None = None  # that of GAUC
    user_dfs: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)  # those of other means over users


@dataclass(frozen=True, slots=True)
class PaneSketches:
    """The vectors of the complete panes in memory, from which steps and slices are added up: one a partition."""

    options: Options
    series: tuple[Series, ...]  # names by code, which is the row in the overall vectors
    slice_rows: Mapping[tuple[int, str, str], int]  # the row of (series code, dimension, value) in those of slices
    overall: Mapping[int, tuple[SparseVector, ...]]  # by pane number
    slices: Mapping[int, tuple[SparseVector, ...]]


@dataclass(frozen=True, slots=True)
class SliceValues:
    """How many values a slice dimension has had. `overflowed`: more came than are counted, so it depends on the order of
    events which of them are in `__other__`; the numbers of those that are distinguished are right all the same."""

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
    waiting_since: int | None = None  # the earliest impression whose label is not final; None: none waits


@dataclass(frozen=True, slots=True)
class Delays:
    """Click time minus impression time: a histogram with upper edges in seconds, the last one infinite."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]  # not cumulative
    sum_seconds: float


@dataclass(frozen=True, slots=True)
class JoinHealth:
    """Are the labels reliable? `reliable` is False with a `reason` when not."""

    reliable: bool
    reason: str | None
    join_rate: float | None  # clicks that found their impression / clicks that should have by now
    overdue_clicks: int  # clicks without an impression for longer than the allowed lateness
    delays: Delays


@dataclass(slots=True)
class CheckpointState:
    """The state of the checkpoints of this worker's partitions. Totals are since the start."""

    oldest: float | None = None  # wall clock of the state that the least recently written partition has on disk
    never_written: int = 0  # partitions that have been read, without any checkpoint yet
    written: int = 0
    failures: int = 0  # could not be written: disk full, too slow for a stop
    fenced: int = 0  # refused, because another worker has the partition now
    restores: int = 0
    restarts: int = 0  # of the partition that was restored most often, over all of its life
    bytes: int = 0  # of the last one
    write_seconds: float = 0.0  # of the last one
    pause_seconds: float = 0.0  # for which the last one held up ingest
    restore_seconds: float = 0.0  # of the last restore
    rows: int = 0  # impressions in files of their own, which late clicks can still correct
    rows_mapped: int = 0  # others in memory, but for their immutable columns, which are in mapped files
    rows_bytes: int = 0  # of the files of both
    rows_lost: int = 0  # impressions whose file was damaged or missing
    failing: int = 0  # partitions whose last attempt at one failed
    claimed: int = 0  # partitions that another worker has claimed, and Kafka has not taken from this one
    gone_unread: tuple[int, ...] = ()  # partitions that the topics no longer have, and that cannot be restored

    def copy(self) -> CheckpointState:
        """As it is now."""
        return replace(self)


@dataclass(frozen=True, slots=True)
class HistoryState:
    """The state of the history. Totals are since the start."""

    bytes: int  # of the database and its journal
    written: int  # panes
    folded: int  # hours and days made of finer parts
    deleted_by_age: int  # parts
    deleted_by_size: int
    refused: int  # panes that arrived when their hour had already been merged
    failures: int  # of transactions; their panes are tried again
    unwritten: int  # panes waiting to be written
    lost: int  # panes that left memory before they could be written
    skipped: int = 0  # rows that could not be written, though the rest of their panes was; the log names them
    failing: bool = False  # the last attempt at writing panes failed


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that readers may know, as of one moment between two batches."""

    number: int  # increases with every snapshot; up to 0: nothing has been counted yet
    taken_at: float  # wall clock, seconds since the epoch
    started_at: float
    events: Mapping[str, Any]  # the report's "events": counters by fate, and "invalid" by reason
    results: Results
    partitions: tuple[PartitionState, ...]
    join: JoinHealth
    panes: Mapping[Series, PaneColumns] = field(default_factory=dict)
    pane: int = 60_000  # ms, the length of each of them
    panes_waiting_from: int | None = None  # ms: the oldest that is still to be evaluated begins then
    panes_gone: tuple[int, ...] = ()  # ms: some that left memory while a sink lacked them, the newest last
    sketches: PaneSketches | None = None  # None: a history answers for steps and slices of them
    users: Mapping[Series, UserColumns] = field(default_factory=dict)
    last_seen: Mapping[Series, float] = field(default_factory=dict)  # wall clock, seconds
    stage_seconds: Mapping[str, float] = field(default_factory=dict)  # decode, join, score, learn, observe, publish
    table_bytes: Mapping[str, int] = field(default_factory=dict)  # join, users, panes, models
    options: Options = NO_OPTIONS
    undefined: Mapping[str, int] = field(default_factory=dict)  # "metric:reason" -> results it applies to now
    online_updates: Mapping[str, int] = field(default_factory=dict)  # labels learned, by online model
    online_failures: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by online model and reason
    suspensions: tuple[Suspension, ...] = ()  # of online models, a partition each
    lost: Mapping[tuple[str, int], int] = field(default_factory=dict)  # messages gone before they were read
    empty_offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)  # between messages, without one
    recreated: Mapping[str, int] = field(default_factory=dict)  # topics found recreated, since the start
    unpaired: Mapping[str, int] = field(default_factory=dict)  # partitions that the other topic does not have
    strangers: Mapping[str, int] = field(default_factory=dict)  # partitions that others in our group read, by who it is
    letters: str = ""  # why dead letters wait until somebody acts
    schemas: str = ""  # why messages wait for their schemas
    unread: tuple[tuple[str, int], ...] = ()  # places that nothing has come from, though they are not at their end
    in_transaction: Mapping[tuple[str, int], int] = field(default_factory=dict)  # of those: see `Source.in_transaction`
    ready: Mapping[str, bool] = field(default_factory=dict)  # named checks of /readyz
    attribution_window: int = 0  # ms
    windows: tuple[str, ...] = ()  # the names of all, also of those without an impression at the moment
    checkpoints: CheckpointState | None = None  # None: no store
    history: HistoryState | None = None
    # by bounded table; at 1 the oldest is dropped, or the next rejected
    budget_used: Mapping[str, float] = field(default_factory=dict)
    slice_values: Mapping[str, SliceValues] = field(default_factory=dict)  # by dimension
    deploys: tuple[Deploy, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    roles: Mapping[Series, Role] = field(default_factory=dict)  # what every series is there for
    doubtful: tuple[
        tuple[int, int, str], ...
    ] = ()  # [start, end) of event time, ms, whose labels are not right, and why
    auctions: tuple[WindowAuctions, ...] = ()
    stands_still: bool = False  # all partitions were taken from this process: what was counted is as of then
    whole: bool = False  # every partition of this process is assigned and restored, and has had events
    receivers: tuple[ReceiverState, ...] = ()  # of notifications
    sinks: tuple[SinkState, ...] = ()
    external_url: str = ""  # what links to the page begin with
    preparing: str = ""  # what is done before the first event is read
    certificate: CertificateState | None = None  # None: no TLS

    @property
    def taken_ms(self) -> int:
        """`taken_at` in ms."""
        return round(self.taken_at * 1000)

    def report(self) -> dict[str, Any]:
        """The report of `replay --report`."""
        return {
            "schema": _SCHEMA,
            "events": dict(self.events),
            "join": {
                "reliable": self.join.reliable,
                "reason": self.join.reason,
                "join_rate": self.join.join_rate,
                "overdue_clicks": self.join.overdue_clicks,
            },
            "sampling": self.options.sampling.words(),
            "results": [result.as_json() for result in self.results],
            # without `counted`: a process may know names of which nothing was counted after all
            "slice_values": {
                dimension: {"most_shown": values.most_shown, "overflowed": values.overflowed}
                for dimension, values in self.slice_values.items()
            },
            "deploys": [as_json(deploy) for deploy in self.deploys],
            "comparisons": [_settled(comparison_json(comparison)) for comparison in self.comparisons],
            **({"auctions": self.auction_rows()} if self.auctions else {}),
            **({"online_failures": failures} if (failures := self._failures()) else {}),
        }

    def _failures(self) -> dict[str, Any]:
        """Events that online models could not score or learn, by reason, and why one is suspended; by model."""
        words: dict[str, list[str]] = {}
        for one in self.suspensions:
            words.setdefault(one.model, []).append(one.words())
        return {
            model: {"events": {reason: n for reason, n in reasons.items() if n}, "suspended": words.get(model, [])}
            for model, reasons in self.online_failures.items()
            if any(reasons.values()) or model in words
        }

    def auction_rows(self) -> list[dict[str, Any]]:
        """Replayed auctions: a row per window, version and operating point."""
        return [
            {"window": one.window, "matched_to": one.series[one.reference].version, **row}
            for one in self.auctions
            for row in rows(one.frontier(), one.series, one.settings.points)
        ]


def _settled(comparison: dict[str, Any]) -> dict[str, Any]:
    """The part that does not depend on when it was read: without early readings, and with users as last gathered."""
    comparison["findings"] = [one for one in comparison["findings"] if one["dimension"] != "user"]
    del comparison["early"]
    return comparison


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a process knows beside what it has counted, of its source and its disk: fields of a `Snapshot`, and the lag."""

    lag: Mapping[tuple[str, int], int] = field(default_factory=dict)  # messages behind the end, by (topic, partition)
    lost: Mapping[tuple[str, int], int] = field(default_factory=dict)
    empty_offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    recreated: Mapping[str, int] = field(default_factory=dict)
    unpaired: Mapping[str, int] = field(default_factory=dict)
    strangers: Mapping[str, int] = field(default_factory=dict)
    letters: str = ""
    schemas: str = ""
    unread: tuple[tuple[str, int], ...] = ()
    in_transaction: Mapping[tuple[str, int], int] = field(default_factory=dict)
    ready: Mapping[str, bool] = field(default_factory=dict)
    checkpoints: CheckpointState | None = None
    history: HistoryState | None = None
    whole: bool = False
    receivers: tuple[ReceiverState, ...] = ()
    sinks: tuple[SinkState, ...] = ()
    external_url: str = ""
    certificate: CertificateState | None = None


def empty_snapshot(started_at: float, options: Options = NO_OPTIONS) -> Snapshot:
    """What readers see before the first batch."""
    return Snapshot(
        number=0,
        taken_at=started_at,
        started_at=started_at,
        events={},
        results=Results.of(()),
        partitions=(),
        join=JoinHealth(True, None, None, 0, Delays((float("inf"),), (0,), 0.0)),
        options=options,
    )

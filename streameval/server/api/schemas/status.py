"""Answers about the monitor itself: status, health, dead letters, and the overview that the page follows."""

from __future__ import annotations

from pydantic import Field

from streameval.compare.reading.reading import RoleName
from streameval.server.api.schemas.comparisons import DecidedOn, Estimate
from streameval.server.api.schemas.results import LiveRow
from streameval.server.api.schemas.shape import Named, Shape, Stamped


class Join(Shape):
    """Whether the labels are reliable."""

    reliable: bool
    reason: str | None
    join_rate: float | None
    overdue_clicks: int


class Position(Shape):
    """A number per topic and partition."""

    topic: str
    partition: int
    value: int


class Partition(Shape):
    """State of one partition; times are event time. `complete`: its input has ended and every label is final.

    `waiting_since`: time of the earliest impression whose label is not final; null: none waits.
    """

    partition: int
    watermark: str | None
    label_complete: str | None
    newest_event: str | None
    waiting_since: str | None
    complete: bool
    offsets: list[Position]
    lag: list[Position]


class KnownSeries(Named):
    """A series with its numbers over the whole run."""

    role: RoleName | None
    traffic_share: float | None
    last_seen: str | None
    impressions: int
    clicks: int


class UndefinedCount(Shape):
    """How many results have no value for a metric, and why."""

    metric: str
    reason: str
    results: int


class DeadLetterSample(Shape):
    """An invalid event. `value`: its first 200 characters, of `value_bytes`; `offset`: also line or row."""

    at: str | None
    reason: str
    field: str
    topic: str
    partition: int
    offset: int
    message: str
    value: str
    value_bytes: int


class DeadLetters(Stamped):
    """Counts over the run, and the latest samples since the start; null without the token, and why."""

    total: int
    counts: dict[str, int]
    samples: list[DeadLetterSample] | None
    samples_withheld: str | None


class Checkpoints(Shape):
    """Checkpoints of this worker's partitions; totals since the start.

    `gone_unread`: partitions that the topics no longer have, and whose counts cannot be restored.
    """

    oldest: str | None
    never_written: int
    written: int
    failures: int
    fenced: int
    restores: int
    restarts: int
    bytes: int
    write_seconds: float
    pause_seconds: float
    restore_seconds: float
    rows: int
    rows_mapped: int
    rows_bytes: int
    rows_lost: int
    failing: int
    claimed: int
    gone_unread: list[int]


class History(Shape):
    """The history on disk; totals since the start."""

    bytes: int
    written: int
    folded: int
    deleted_by_age: int
    deleted_by_size: int
    refused: int
    failures: int
    unwritten: int
    lost: int
    skipped: int
    failing: bool


class SliceValues(Shape):
    """How many values of a slice dimension are distinguished; results show those with the most impressions.

    `overflowed`: more came than are counted, and which of them are in `__other__` depends on the order of events.
    """

    counted: int
    most_counted: int
    most_shown: int
    overflowed: bool


class Suspended(Shape):
    """An online model that is suspended in a partition, and the event that caused it."""

    model: str
    topic: str
    partition: int
    offset: int | None
    verb: str
    reason: str
    cause: str


class ReceiverStatus(Shape):
    """A receiver of notifications; totals since the start. `oldest`: when the oldest waiting message was found."""

    name: str
    kind: str
    durable: bool
    waiting: int
    oldest: str | None
    delivered: int
    failures: int
    dropped: int
    muted: int
    error: str


class SinkStatus(Shape):
    """A sink; totals since the start. `waiting`: panes and verdicts that it does not have yet."""

    name: str
    kind: str
    waiting: int
    last_success: str | None
    panes: int
    verdicts: int
    failures: int
    lost: int
    error: str


class Certificate(Shape):
    """When all certificates of the chain that the server shows are valid."""

    not_before: str
    not_after: str


class Status(Stamped):
    """State of the monitor. `preparing`: what is done before the first event is read; null: nothing. `sampling`: the sample that numbers are estimated from, and the versions whose pClick is corrected, in sentences."""

    version: str
    started_at: str
    uptime_seconds: float
    ready: dict[str, bool]
    degraded: list[str]
    preparing: str | None
    events: dict[str, int | dict[str, int]]
    join: Join
    attribution_window_seconds: float
    partitions: list[Partition]
    series: list[KnownSeries]
    objectives: list[str]
    sampling: list[str]
    windows: list[str]
    slices: dict[str, list[str]]
    slice_values: dict[str, SliceValues]
    metrics: list[str]
    undefined: list[UndefinedCount]
    online_updates: dict[str, int]
    online_failures: dict[str, dict[str, int]]
    suspensions: list[Suspended]
    stage_seconds: dict[str, float]
    table_bytes: dict[str, int]
    budget_used: dict[str, float]
    checkpoints: Checkpoints | None
    history: History | None
    certificate: Certificate | None
    receivers: list[ReceiverStatus]
    sinks: list[SinkStatus]


class Health(Shape):
    """A health answer; `checks` names what was checked, `degraded` lists problems that do not stop the monitor. `awaited`: what
    counting waits for at this moment.
    """

    status: str
    checks: dict[str, bool]
    degraded: list[str] = Field(default=[])
    awaited: str = Field(default="")


class Compared(Shape):
    """A metric of candidate minus baseline as it is now; of log loss and calibration the ratio less 1."""

    metric: str
    difference: float | None
    lower: float | None
    upper: float | None
    margin: float | None
    tolerance: float | None
    verdict: str
    supported_now: bool | None


class Headline(Shape):
    """A comparison in one line; the role is its candidate's.

    `deployed_at`: when the deploy began; of a candidate that serves nobody, since when it has been compared. Each bound holds
    with probability 1 - `alpha`. `words` is `claim` with its evidence and its `remarks`.
    """

    comparison: str
    model: str
    candidate: str
    baseline: str
    verdict: str
    deployed_at: str
    decided_at: str | None
    supported_now: bool | None
    withheld: bool
    role: RoleName | None
    traffic_share: float | None
    impressions: int
    clicks: int
    alpha: float
    words: str
    claim: str
    remarks: list[str]
    setup: str
    decided_on: DecidedOn | None
    decided_now: Estimate | None
    metrics: list[Compared]


class WorseLive(Shape):
    """The live versions of a model that are `worse`, those that current data support first: the names of all, and the
    first ten verdicts.
    """

    model: str
    versions: list[str]
    verdicts: list[Headline]


class Overview(Stamped):
    """What `/api/v1/stream` sends with every snapshot: overall results without their buckets, and the flow.

    `verdicts`: that of every model's newest deploy; `worse`: every live version that is worse, whichever deploy it came with.
    `auctions`: whether `/api/v1/auctions` has any. `preparing`, `sampling`: see `/api/v1/status`.
    """

    started_at: str
    verdicts: list[Headline]
    worse: list[WorseLive]
    ready: dict[str, bool]
    degraded: list[str]
    preparing: str | None
    events: dict[str, int | dict[str, int]]
    join: Join
    partitions: list[Partition]
    objectives: list[str]
    sampling: list[str]
    auctions: bool
    attribution_window_seconds: float
    results: list[LiveRow]

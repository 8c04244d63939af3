"""The shapes of the answers, for OpenAPI; tests hold every route to them. Undefined numbers are null with a reason."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from streameval.compare.reading import RoleName


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ParameterError(_Shape):
    """What is wrong with one parameter; `in` is query, path or body."""

    model_config = ConfigDict(extra="allow", strict=True)
    parameter: str
    value: str
    detail: str


class Problem(BaseModel):
    """An error (RFC 9457); some add members of their own, such as `known`, the names there are."""

    model_config = ConfigDict(extra="allow", strict=True)
    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[ParameterError] | None = None


class _Stamped(_Shape):
    snapshot: int
    as_of: str


class _Series(_Shape):
    model: str
    version: str
    source: str


class Slice(_Shape):
    """A slice of the traffic."""

    dimension: str
    value: str


class Bucket(_Shape):
    """One pClick bucket, [lower, upper)."""

    lower: float
    upper: float
    impressions: int
    clicks: int
    mean_pclick: float | None
    ctr: float | None
    log_loss: float | None
    prediction_error: float | None


class Row(_Series):
    """Every metric of one series in one window and slice; `_stderr` is the standard error when users are drawn anew.

    `stderr_df`: degrees of freedom of the standard errors, the effective number of blocks of users less one; null where
    they are between impressions. `gauc_stderr_df`: of GAUC's, likewise of its users.

    `role` is what the series is there for now: live (with `traffic_share`, of its model's recent impressions), shadow,
    learning or retired.
    """

    role: RoleName | None
    traffic_share: float | None
    window: str
    slice: Slice | None
    impressions: int
    clicks: int
    ctr: float | None
    ctr_stderr: float | None
    mean_pclick: float | None
    mean_pclick_stderr: float | None
    auc: float | None
    auc_stderr: float | None
    auc_error: float | None
    gauc: float | None
    gauc_stderr: float | None
    gauc_users: int | None
    gauc_impressions: int | None
    gauc_request: float | None
    gauc_request_stderr: float | None
    log_loss: float | None
    log_loss_stderr: float | None
    rig: float | None
    rig_stderr: float | None
    mse: float | None
    mse_stderr: float | None
    nmse: float | None
    nmse_stderr: float | None
    mae: float | None
    mae_stderr: float | None
    prediction_error: float | None
    prediction_error_stderr: float | None
    calibration: float | None
    calibration_stderr: float | None
    ece: float | None
    ece_stderr: float | None
    stderr_df: float | None
    gauc_stderr_df: float | None
    reasons: dict[str, str]
    window_start: str | None
    window_end: str | None
    matured_share: float | None
    corrected: int
    newest_label: str | None
    violations: int
    reliable: bool
    reliable_reason: str | None
    users_sampled: float
    gauc_sampling_error: float | None


class FullRow(Row):
    """A row with its fixed buckets, as in the report."""

    buckets: list[Bucket]


class Covered(BaseModel):
    """What a past range really is: [from, to) widened to whole stored parts; absent from answers about now.

    `first`, `last`: begin and end of what is stored in it; `panes` of the `panes_expected` are there.
    """

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)
    start: str | None = Field(alias="from")
    end: str | None = Field(alias="to")
    first: str | None
    last: str | None
    panes: int
    panes_expected: int
    share: float | None
    complete: bool


class Results(_Stamped):
    """Results; `matched` counts them before `limit`."""

    range: Covered | None = None
    matched: int
    truncated: bool
    results: list[FullRow]


class BucketTable(_Series):
    """The buckets of one result."""

    window: str
    slice: Slice | None
    impressions: int
    clicks: int
    buckets: list[Bucket]


class Buckets(_Stamped):
    """Bucket tables; `matched` counts them before `limit`."""

    range: Covered | None = None
    kind: str
    matched: int
    truncated: bool
    tables: list[BucketTable]


class RocPoint(_Shape):
    """Scores at or above `threshold` are predicted clicks; null where none is."""

    threshold: float | None
    fpr: float
    tpr: float
    non_clicks: int
    clicks: int


class Roc(_Stamped, _Series):
    """One ROC curve with the result's AUC; `points_total` counts points before thinning."""

    range: Covered | None = None
    window: str
    slice: Slice | None
    impressions: int
    clicks: int
    auc: float | None
    auc_error: float | None
    reason: str | None
    points_total: int
    points: list[RocPoint]


class Scores(_Stamped, _Series):
    """Scores by label: bin i has the scores in [edges[i], edges[i + 1]); no bins without impressions."""

    range: Covered | None = None
    window: str
    slice: Slice | None
    edges: list[float]
    impressions: list[int]
    clicks: list[int]
    impressions_total: int
    clicks_total: int


class SeriesPoint(_Shape):
    """A metric in one pane, or in an hour or a day of the history; `seconds` is its length.

    `stderr`: of the value, users drawn anew, null where unknown. `stderr_df`: its degrees of freedom, null where it is
    between impressions. `error`: of auc the half-width of the certain
    interval, of gauc the standard error from sampling users (0: exact), else null.
    """

    start: str | None
    seconds: float
    value: float | None
    stderr: float | None
    stderr_df: float | None
    reason: str | None
    error: float | None
    impressions: int
    clicks: int
    corrected: int


class SeriesLine(_Series):
    """A metric of one series over its panes, oldest first."""

    truncated: bool
    points: list[SeriesPoint]


class SeriesColumns(_Shape):
    """The points of a line as columns of equal length; `start` in unix seconds."""

    start: list[float]
    seconds: list[float]
    value: list[float | None]
    stderr: list[float | None]
    stderr_df: list[float | None]
    error: list[float | None]
    impressions: list[int]
    clicks: list[int]


class SeriesColumnLine(_Series):
    """A metric of one series over its panes, oldest first, as columns."""

    truncated: bool
    columns: SeriesColumns


class SeriesDeploy(_Shape):
    """A version of one of the models that went live in the range."""

    model: str
    version: str
    kind: str
    at: str | None


class SeriesAnswer(_Stamped):
    """A metric over panes, and the deploys of its models in that time."""

    metric: str
    slice: str
    step: str | None
    series: list[SeriesLine | SeriesColumnLine]
    deploys: list[SeriesDeploy]


class UserRow(_Shape):
    """One user; `user` is the stable hash of the user id, 16 hex digits."""

    user: str
    impressions: int
    clicks: int
    predicted_clicks: float
    ctr: float | None
    mean_pclick: float | None
    auc: float | None
    log_loss: float | None
    log_loss_nats: float
    calibration: float | None
    reasons: dict[str, str]


class Users(_Stamped, _Series):
    """A page of users; `next` is the link to the next page, null on the last."""

    sort: str
    order: str
    total: int
    users_sampled: float
    users: list[UserRow]
    next: str | None


class UserQuantile(_Shape):
    """Below `value` is a fraction `quantile` of the users."""

    quantile: float
    value: float


class UserDistribution(_Stamped, _Series):
    """How a metric of single users is distributed: bin i has those in [edges[i], edges[i + 1]), the last one closed.

    `users_undefined`, those without a value, are among `users_total` and in no bin. `users_sampled`: the fraction of
    users that is kept.
    """

    metric: str
    edges: list[float]
    users: list[int]
    impressions: list[int]
    quantiles: list[UserQuantile]
    users_total: int
    users_undefined: int
    users_sampled: float


class UserInSeries(UserRow, _Series):
    """One user as one series scored it."""


class User(_Stamped):
    """One user in every series that kept it."""

    user: str
    series: list[UserInSeries]


class Join(_Shape):
    """Whether the labels can be believed."""

    reliable: bool
    reason: str | None
    join_rate: float | None
    overdue_clicks: int


class Position(_Shape):
    """A number per topic and partition."""

    topic: str
    partition: int
    value: int


class Partition(_Shape):
    """Where one partition stands; times are event time. `complete`: its input has ended and every label is final."""

    partition: int
    watermark: str | None
    label_complete: str | None
    newest_event: str | None
    complete: bool
    offsets: list[Position]
    lag: list[Position]


class KnownSeries(_Series):
    """A series with its numbers over the whole run."""

    role: RoleName | None
    traffic_share: float | None
    last_seen: str | None
    impressions: int
    clicks: int


class UndefinedCount(_Shape):
    """How many results have no value for a metric, and why."""

    metric: str
    reason: str
    results: int


class DeadLetterSample(_Shape):
    """An event that could not be used. `value`: its first 200 characters, of `value_bytes`; `offset`: also line or row."""

    at: str | None
    reason: str
    field: str
    topic: str
    partition: int
    offset: int
    message: str
    value: str
    value_bytes: int


class DeadLetters(_Stamped):
    """Counts over the run, and the latest samples since the start; null without the token, and why."""

    total: int
    counts: dict[str, int]
    samples: list[DeadLetterSample] | None
    samples_withheld: str | None


class Checkpoints(_Shape):
    """How the checkpoints of this worker's partitions fare; totals since the start."""

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


class History(_Shape):
    """How the history on disk fares; totals since the start."""

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


class SliceValues(_Shape):
    """How many values of a slice dimension are told apart; results show those with most impressions.

    `overflowed`: more came than are counted, and which of them are in `__other__` depends on the order of events.
    """

    counted: int
    most_counted: int
    most_shown: int
    overflowed: bool


class Suspended(_Shape):
    """An online model that a partition's events are not given to any more, and the event that was the last straw."""

    model: str
    topic: str
    partition: int
    offset: int | None
    verb: str
    reason: str
    cause: str


class Status(_Stamped):
    """Where the program stands."""

    version: str
    started_at: str
    uptime_seconds: float
    ready: dict[str, bool]
    degraded: list[str]
    events: dict[str, int | dict[str, int]]
    join: Join
    attribution_window_seconds: float
    partitions: list[Partition]
    series: list[KnownSeries]
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


class Health(_Shape):
    """A health answer; `checks` names what was looked at, `degraded` says what is amiss while the rest goes on."""

    status: str
    checks: dict[str, bool]
    degraded: list[str] = []


class Headline(_Shape):
    """The comparison that speaks for a model's newest deploy, in a line of words; the role is its candidate's."""

    comparison: str
    model: str
    candidate: str
    baseline: str
    verdict: str
    decided_at: str | None
    supported_now: bool | None
    withheld: bool
    role: RoleName | None
    traffic_share: float | None
    impressions: int
    clicks: int
    words: str


class Overview(_Stamped):
    """What `/api/v1/stream` sends with every snapshot: overall results without their buckets, and the flow."""

    started_at: str
    verdicts: list[Headline]
    ready: dict[str, bool]
    degraded: list[str]
    events: dict[str, int | dict[str, int]]
    join: Join
    partitions: list[Partition]
    results: list[Row]

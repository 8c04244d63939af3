"""Answers about results: rows of metrics, buckets, ROC, scores, lines over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from streameval.compare.reading.reading import RoleName
from streameval.metrics.metric import Metric
from streameval.metrics.registry import METRICS, seal
from streameval.server.api.schemas.shape import Named, Shape, Stamped

seal("streameval.server")  # rows are made of the table


class Slice(Shape):
    """A slice of the traffic."""

    dimension: str
    value: str


class Bucket(Shape):
    """One pClick bucket, [lower, upper)."""

    lower: float
    upper: float
    impressions: int
    clicks: int
    mean_pclick: float | None
    ctr: float | None
    log_loss: float | None
    prediction_error: float | None


class Stratum(Shape):
    """Impressions with a propensity in [lower, upper), the last stratum closed; a row without edges has those without one.

    `auc_of_clicks`: the probability that one of its clicks outscores any non-click of the window; weighted by clicks these
    add up to the AUC, within `auc_of_clicks_error`. `inverse_mass`: sum of 1 / propensity. Then `lists` with a gain in
    the stratum, and for every K of `ranking.k` the NDCG of those items alone, in the whole list.
    """

    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, float | None]  # `ndcg_K`

    lower: float | None
    upper: float | None
    impressions: int
    clicks: int
    log_loss: float | None
    calibration: float | None
    auc_of_clicks: float | None
    auc_of_clicks_error: float | None
    inverse_mass: float | None
    lists: int | None = None


class Weightings(Shape):
    """A metric combined from strata: by their share (the overall mean), with equal weights, and as if all had been shown equally often."""

    share: float | None
    plain: float | None
    uniform_exposure: float | None


class _Counted(Named):
    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, float | None]  # metrics with a K of `ranking.k` in their name
    role: RoleName | None
    traffic_share: float | None
    window: str
    slice: Slice | None
    impressions: int
    clicks: int


def _metric_fields(*metrics: Metric) -> dict[str, Any]:
    """A field for each metric, and behind it one for its standard error; null where undefined."""
    fields: dict[str, Any] = {}
    for metric in metrics:
        fields[metric.name] = (int | None if metric.whole else float | None, ...)
        if metric.influence is not None:
            fields[f"{metric.name}_stderr"] = (float | None, ...)
    for metric in metrics:
        if metric.of_users and metric.name != "gauc":
            fields[f"{metric.name}_stderr_df"] = (float | None, ...)
    return fields


if TYPE_CHECKING:
    _Measured = _Counted
else:
    _Measured = create_model("_Measured", __base__=_Counted, **_metric_fields(*METRICS))


class Row(_Measured):
    """Every metric of one series in one window and slice; `_stderr` is the standard error clustered by user.

    `stderr_df`: degrees of freedom of the standard errors, the effective number of blocks of users, of their impressions or
    clicks, whichever is smaller, minus one; null where they are between impressions. `gauc_stderr_df`: the same for GAUC, by its users; likewise for the
    other means over users. `ranking_stderr_df`: of the metrics of ranked lists, which are kept by 16 groups of users; at most
    15, null where there are no lists.

    Further members are metrics with a K of `ranking.k` in their name, such as `ndcg_10` and `ndcg_10_stderr`.

    `role` is its current role: live (with `traffic_share`, of its model's recent impressions), shadow,
    learning or retired.

    `sampled`: impressions stand for others (`[sampling]`), so all of this, including `impressions` and `clicks`, is an estimate for the whole
    traffic; `effective_impressions`: how many equally weighted ones would be as informative, null where all weights are equal, and in slices.
    `recalibrated`: the share of the non-clicks that pClick was trained on and corrected for, null where it was not corrected.
    """

    stderr_df: float | None
    gauc_stderr_df: float | None
    ranking_stderr_df: float | None
    reasons: dict[str, str]
    window_start: str | None
    window_end: str | None
    matured_share: float | None
    corrected: int
    newest_label: str | None
    violations: int
    reliable: bool
    reliable_reason: str | None
    sampled: bool
    effective_impressions: float | None
    recalibrated: float | None
    users_sampled: float
    gauc_sampling_error: float | None


if TYPE_CHECKING:
    LiveRow = Row
else:
    LiveRow = create_model(
        "LiveRow",
        __base__=Row,
        __doc__="A row of the stream, without the metrics of further fields that no row of this snapshot has.",
        **{name: (kind, None) for name, (kind, _) in _metric_fields(*(m for m in METRICS if m.overall)).items()},
    )


class FullRow(Row):
    """A row with its fixed buckets, as in the report; with `[strata]` and without a slice also with strata of propensity."""

    buckets: list[Bucket]
    strata: list[Stratum] | None = None
    stratified: dict[str, Weightings] | None = None


class Covered(BaseModel):
    """What a past range really is: [from, to) widened to whole stored parts; absent from answers about now.

    `first`, `last`: start and end of what is stored in it; `panes` of the `panes_expected` are there.
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


class Results(Stamped):
    """Results; `matched` counts them before `limit`."""

    range: Covered | None = None
    matched: int
    truncated: bool
    results: list[FullRow]


class BucketTable(Named):
    """The buckets of one result."""

    window: str
    slice: Slice | None
    impressions: int
    clicks: int
    buckets: list[Bucket]


class Buckets(Stamped):
    """Bucket tables; `matched` counts them before `limit`."""

    range: Covered | None = None
    kind: str
    matched: int
    truncated: bool
    tables: list[BucketTable]


class RocPoint(Shape):
    """Scores at or above `threshold` are predicted clicks; null where none is."""

    threshold: float | None
    fpr: float
    tpr: float
    non_clicks: int
    clicks: int


class Roc(Stamped, Named):
    """One ROC curve with the result's AUC; `points_total` counts points before thinning.

    `pauc` is the partial AUC between the two false positive rates of `operating_range`.
    """

    range: Covered | None = None
    window: str
    slice: Slice | None
    impressions: int
    clicks: int
    auc: float | None
    auc_error: float | None
    operating_range: list[float]
    pauc: float | None
    pauc_error: float | None
    reason: str | None
    points_total: int
    points: list[RocPoint]


class Scores(Stamped, Named):
    """Scores by label: bin i has the scores in [edges[i], edges[i + 1]); no bins without impressions."""

    range: Covered | None = None
    window: str
    slice: Slice | None
    edges: list[float]
    impressions: list[int]
    clicks: list[int]
    impressions_total: int
    clicks_total: int


class SeriesPoint(Shape):
    """A metric in one pane, or in an hour or a day of the history; `seconds` is its length.

    `stderr`: of the value, clustered by user, null where unknown. `stderr_df`: its degrees of freedom, null where it is
    between impressions. `error`: for auc the half-width of the certified
    interval, for gauc the standard error from sampling users (0: exact), else null.
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


class SeriesLine(Named):
    """A metric of one series over its panes, oldest first."""

    truncated: bool
    points: list[SeriesPoint]


class SeriesColumns(Shape):
    """The points of a line as columns of equal length; `start` in unix seconds."""

    start: list[float]
    seconds: list[float]
    value: list[float | None]
    stderr: list[float | None]
    stderr_df: list[float | None]
    error: list[float | None]
    impressions: list[int]
    clicks: list[int]


class SeriesColumnLine(Named):
    """A metric of one series over its panes, oldest first, as columns."""

    truncated: bool
    columns: SeriesColumns


class SeriesDeploy(Shape):
    """A version of one of the models that went live in the range."""

    model: str
    version: str
    kind: str
    at: str | None


class SeriesAnswer(Stamped):
    """A metric over panes, and the deploys of its models in that time."""

    metric: str
    slice: str
    step: str | None
    series: list[SeriesLine | SeriesColumnLine]
    deploys: list[SeriesDeploy]

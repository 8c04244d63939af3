"""One series in one window and slice, in numbers: every metric with its error, and the tables behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from streameval.events.batch import Series
from streameval.metrics.errors import Errors, standard_errors, standard_errors_of
from streameval.metrics.registry import by_name, evaluate
from streameval.metrics.strata import Stratum, read_strata, stratified
from streameval.metrics.tables import Bucket, ScoreCounts, counts_of, fixed_buckets, quantile_buckets
from streameval.metrics.view import View
from streameval.metrics.when_read import WhenRead
from streameval.sketches.fixed import read_real
from streameval.sketches.layout import (
    BUCKETS,
    CLICKS,
    IMPRESSIONS,
    SUM_ABSOLUTE,
    SUM_LOG_LOSS,
    SUM_PCLICK,
    SUM_SQUARED,
)


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
class Result:
    """Every metric of one series in one window and slice.

    `metrics` has the names of the registry; an undefined one is None and `reasons` says why (a word like
    "no_clicks", "one_class", "no_eligible_user", "not_kept_for_slices"). `stderrs` has their standard errors by the same
    names; the reason for None is in `reasons` under "<name>_stderr", or is the metric's own reason. `stderr_df` and, of GAUC,
    `gauc_stderr_df`, of the other means over users `user_dfs`, are their degrees of freedom (see `metrics.errors`).
    """

    series: Series
    window: str  # "all", "5m", ...
    slice: tuple[str, str] | None  # (dimension, value)
    totals: Totals
    metrics: Mapping[str, float | int | None]
    reasons: Mapping[str, str]
    buckets: Sequence[Bucket]
    quantiles: Sequence[Bucket]
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
    user_dfs: Mapping[str, float | None] = field(default_factory=dict)
    strata: Sequence[Stratum] | None = None  # of propensity; None: not kept
    sampled: bool = False  # impressions stand for others: everything is an estimate for the whole traffic
    effective_impressions: float | None = None  # Kish's; None: unless sampled, and in slices
    recalibrated: float | None = None  # share of the non-clicks by which pClick was corrected; None: it is as given

    @property
    def stratified(self) -> Mapping[str, Mapping[str, float | None]] | None:
        """The strata combined, by metric and weighting; computed on request."""
        return None if self.strata is None else stratified(self.strata)

    def as_json(self) -> dict[str, Any]:
        """The result as in the report."""
        where = None if self.slice is None else {"dimension": self.slice[0], "value": self.slice[1]}
        metrics: dict[str, Any] = {}
        reasons = dict(self.reasons)
        for name, value in self.metrics.items():
            metrics[name] = value
            if by_name(name).influence is not None:
                error = self.stderrs.get(name)
                error = metrics[f"{name}_stderr"] = None if error is None or not math.isfinite(error) else float(error)
                if error is None:
                    reasons.setdefault(f"{name}_stderr", self.reasons.get(name, "not_estimated"))
        if self.strata is not None and not any(one.inverse_mass for one in self.strata):
            reasons["stratified"] = "no_propensities"
        return {
            "model": self.series.model,
            "version": self.series.version,
            "source": self.series.source,
            "objective": self.series.objective or None,
            "window": self.window,
            "slice": where,
            "impressions": self.totals.impressions,
            "clicks": self.totals.clicks,
            **metrics,
            "stderr_df": self.stderr_df,
            "gauc_stderr_df": self.gauc_stderr_df,
            "ranking_stderr_df": by_name("mrr").df(self.stderr_df) if self.metrics.get("requests") else None,
            **{
                f"{name}_stderr_df": self.user_dfs.get(name)
                for name in self.metrics
                if name != "gauc" and by_name(name).of_users
            },
            "reasons": reasons,
            "window_start": self.window_start,
            "window_end": self.window_end,
            "matured_share": self.matured_share,
            "corrected": self.corrected,
            "newest_label": self.newest_label,
            "violations": self.violations,
            "reliable": self.reliable,
            "reliable_reason": self.reliable_reason,
            "sampled": self.sampled,
            "effective_impressions": self.effective_impressions,
            "recalibrated": self.recalibrated,
            "users_sampled": self.users_sampled,
            "gauc_sampling_error": self.gauc_sampling_error,
            "buckets": [bucket_json(b) for b in self.buckets],
            **strata_json(self),
        }


def strata_json(result: Result) -> dict[str, Any]:
    """The strata of a result as in the report: {} where they are not kept."""
    together = result.stratified
    if result.strata is None or together is None:
        return {}
    return {
        "strata": [one.as_json() for one in result.strata],
        "stratified": {metric: dict(weightings) for metric, weightings in together.items()},
    }


def bucket_json(bucket: Bucket) -> dict[str, Any]:
    """One bucket as in the report."""
    return {name: getattr(bucket, name) for name in Bucket.__slots__}


@dataclass(frozen=True, slots=True)
class Span:
    """The window, or past range, that results are of."""

    name: str  # "all", "5m", ..., "range"
    start: int | None  # event time, ms; None: the whole run
    end: int | None
    matured_share: float | None
    newest_label: int | None
    unreliable: str | None = None  # why no label in it is reliable


class SeriesView(NamedTuple):
    """What a series' result over all slices is made of."""

    series: Series
    view: View
    users_sampled: float
    sampling_error: float | None


def make_results(span: Span, every: Sequence[SeriesView], quantiles: int) -> list[Result]:
    """Results over all slices with one layout: faster together than one by one."""
    evaluated = [evaluate(one.view) for one in every]
    errors = standard_errors_of([one.view for one in every], [metrics for metrics, _ in evaluated])
    found = []
    for one, numbers, of in zip(every, evaluated, errors, strict=True):
        result = _result(one.series, span, None, one.view, quantiles, numbers, of)
        found.append(replace(result, users_sampled=one.users_sampled, gauc_sampling_error=one.sampling_error))
    return found


def make_result(
    series: Series, span: Span, where: tuple[str, str], view: View, quantiles: int, whole: Result | None = None
) -> Result:
    """The result of a slice. `whole`: that of all slices together, from whose errors its own follow (see `metrics.errors`)."""
    numbers = evaluate(view)
    of_whole = None
    if whole is not None:
        of_whole = Errors(whole.stderrs, whole.design_effects, whole.stderr_df, whole.gauc_stderr_df)
    result = _result(series, span, where, view, quantiles, numbers, standard_errors(view, numbers[0], of_whole))
    return result if whole is None or not whole.sampled else replace(result, sampled=True)


def _result(
    series: Series,
    span: Span,
    where: tuple[str, str] | None,
    view: View,
    quantiles: int,
    numbers: tuple[Mapping[str, float | int | None], Mapping[str, str]],
    errors: Errors,
) -> Result:
    """Every metric and table of one view, with `quantiles` equal-count buckets."""
    m, (metrics, reasons), scores = view.moments, numbers, counts_of(view.used, view.layout)
    return Result(
        series=series,
        window=span.name,
        slice=where,
        totals=totals_of(view.vector[:BUCKETS].tolist()),
        metrics=metrics,
        reasons=reasons,
        buckets=WhenRead(partial(fixed_buckets, view.buckets, view.layout.edges)),
        quantiles=WhenRead(partial(quantile_buckets, scores, quantiles)),
        scores=scores,
        corrected=m.corrected,
        violations=m.violations,
        stderrs=errors.stderr,
        design_effects=errors.design,
        stderr_df=errors.df,
        gauc_stderr_df=errors.gauc_df,
        user_dfs=errors.user_dfs,
        strata=read_strata(view),
        sampled=view.is_sampled,
        effective_impressions=view.effective_impressions,
        recalibrated=view.options.sampling.recalibrated(series.version),
        **of_span(span, m.violations),
    )


def totals_of(cells: Sequence[int]) -> Totals:
    """Those of a result with these sums; its first `BUCKETS` cells are enough."""
    return Totals(
        impressions=cells[IMPRESSIONS],
        clicks=cells[CLICKS],
        predicted_clicks=read_real(cells[SUM_PCLICK], cells[SUM_PCLICK + 1]),
        log_loss_nats=read_real(cells[SUM_LOG_LOSS], cells[SUM_LOG_LOSS + 1]),
        squared_error=read_real(cells[SUM_SQUARED], cells[SUM_SQUARED + 1]),
        absolute_error=read_real(cells[SUM_ABSOLUTE], cells[SUM_ABSOLUTE + 1]),
    )


def of_span(span: Span, violations: int) -> dict[str, Any]:
    """The fields of a result that follow from its span."""
    unreliable = f"{violations} scores may have known their label" if violations else span.unreliable
    return {
        "window_start": span.start,
        "window_end": span.end,
        "matured_share": span.matured_share,
        "newest_label": span.newest_label,
        "reliable": unreliable is None,
        "reliable_reason": unreliable,
    }


def moved(result: Result, span: Span) -> Result:
    """The same numbers, of another span of the same name."""
    return replace(result, **of_span(span, result.violations))

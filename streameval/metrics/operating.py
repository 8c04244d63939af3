"""Where decisions are made: a part of the ROC curve, and one threshold. All of it follows from the score histogram."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.metrics.auc import partial_area, partial_variance, standardised, standardised_width
from streameval.metrics.metric import Column, Gauge, Metric, OfImpressions
from streameval.metrics.view import Undefined, View
from streameval.sketches.grid import bin_edges
from streameval.sketches.layout import Layout


def pauc(view: View) -> float | Undefined:
    """(1 + (A - m) / (M - m)) / 2, A = area under the ROC curve over false positive rates in `metrics.operating_range` = [a, b], ties on the chord; m = (b^2 - a^2) / 2, M = b - a (McClish 1989)."""
    found = _area(view)
    return found if isinstance(found, Undefined) else standardised(found[0], *view.options.operating_range)


def pauc_error(view: View) -> float | Undefined:
    """max(sum_b w_b x_b, sum_b w_b (pos_b - x_b)) / (2 (M - m) P N) over histogram bins b, of which the range holds w_b non-clicks, with x_b of the bin's clicks above the chord's mean there (half of them unless the range cuts the bin)."""
    found = _area(view)
    return found if isinstance(found, Undefined) else standardised_width(found[1], *view.options.operating_range)


def _area(view: View) -> tuple[float, float] | Undefined:
    missing = view.need_both_classes()
    if missing:
        return missing
    found = view.once(
        "area", lambda: partial_area(view.used.negatives, view.used.positives, *view.options.operating_range)
    )
    return found or Undefined("no_clicks")


def _pauc_variance(view: View) -> float:
    low, high = view.options.operating_range
    weights = view.spread_of_weights or (1.0, 1.0)
    spread = math.sqrt(partial_variance(view.used.negatives, view.used.positives, low, high, weights))
    return standardised_width(spread, low, high) ** 2


class _Selected(NamedTuple):
    """Impressions at or above the threshold: certainly, and those of the bin that the threshold cuts."""

    clicks: int
    others: int
    cut_clicks: int
    cut_others: int
    whole: bool  # the bin that is cut counts as selected

    @property
    def counted(self) -> tuple[int, int]:
        """Clicks and non-clicks that count as selected: by the edge that is nearest to the threshold."""
        whole = int(self.whole)  # NumPy's own would make integers of theirs, whose third power overflows
        return self.clicks + whole * self.cut_clicks, self.others + whole * self.cut_others


def _selected(view: View) -> _Selected:
    return view.once("selected", lambda: _select(view))


def _select(view: View) -> _Selected:
    at, whole, exact = _place(view.options.threshold, view.layout.bits)
    clicks, others, cut_clicks, cut_others = _above(*view.used, at)
    if exact:
        return _Selected(clicks + cut_clicks, others + cut_others, 0, 0, True)
    return _Selected(clicks, others, cut_clicks, cut_others, whole)


@numba.njit(cache=True, nogil=True)
def _above(
    bins: NDArray[np.int64], negatives: NDArray[np.int64], positives: NDArray[np.int64], at: int
) -> tuple[int, int, int, int]:
    """(clicks, non-clicks) of the bins above `at`, and in it; `bins` are those used."""
    clicks = others = clicks_at = others_at = 0
    for i in range(bins.size):
        if bins[i] > at:
            clicks += positives[i]
            others += negatives[i]
        elif bins[i] == at:
            clicks_at, others_at = positives[i], negatives[i]
    return clicks, others, clicks_at, others_at


@lru_cache(maxsize=64)
def _place(threshold: float, bits: int) -> tuple[int, bool, bool]:
    """(the bin in which the threshold lies, whether its nearest edge is the lower one, whether the bin is not cut at all)."""
    edges = bin_edges(bits)
    middle = edges.size // 2 - 1  # the bin of 1/2 alone
    if threshold <= 0.5:  # bins are closed below
        at = int(np.searchsorted(edges[: middle + 1], threshold, side="right")) - 1
        return at, threshold - edges[at] <= edges[at + 1] - threshold, bool(threshold == edges[at])
    at = middle + 1 + int(np.searchsorted(edges[middle + 2 :], threshold, side="left"))
    # closed above: something may lie below. No score is above 1, so whatever a threshold of 1 selects is in the last bin
    return at, bool(threshold - edges[at] < edges[at + 1] - threshold or threshold == 1.0), False


def first_selected(layout: Layout) -> int:
    """The lowest bin that counts as selected."""
    threshold = 0.5 if layout.options is None else layout.options.threshold
    at, whole, exact = _place(threshold, layout.bits)
    return at if whole or exact else at + 1


_Of = Callable[[float, float], float | None]  # of clicks and non-clicks that are selected


def _at(of: _Of, view: View) -> tuple[float, float] | Undefined:
    """(value, how far off it may be): the more clicks and the fewer non-clicks are selected the better, in all of these."""
    s = _selected(view)
    value = of(*s.counted)
    if value is None:
        return Undefined("no_selected_impressions")
    ends = (of(s.clicks, s.others + s.cut_others), of(s.clicks + s.cut_clicks, s.others))
    return value, max((abs(end - value) for end in ends if end is not None), default=0.0)


def _value(of: _Of, view: View) -> float | Undefined:
    found = _at(of, view)
    return found if isinstance(found, Undefined) else found[0]


def _error(of: _Of, view: View) -> float | Undefined:
    found = _at(of, view)
    return found if isinstance(found, Undefined) else found[1]


def _precision(clicks: float, others: float) -> float | None:
    return clicks / (clicks + others) if clicks + others else None


def _recall(view: View) -> _Of:
    return lambda clicks, others: clicks / view.moments.clicks


def _f1(view: View) -> _Of:
    return lambda clicks, others: 2 * clicks / (clicks + others + view.moments.clicks)


def _cost(view: View) -> _Of:
    m, ratio = view.moments, view.options.cost_ratio
    return lambda clicks, others: (ratio * (m.clicks - clicks) + others) / m.impressions


def precision_at(view: View) -> float | Undefined:
    """TP / (TP + FP), selected: pClick >= `metrics.threshold`, to the nearest edge of a histogram bin."""
    return view.need_impressions() or _value(_precision, view)


def precision_at_error(view: View) -> float | Undefined:
    """The largest change of TP / (TP + FP) by what the bin that the threshold cuts holds."""
    return view.need_impressions() or _error(_precision, view)


def recall_at(view: View) -> float | Undefined:
    """TP / P, selected as in `precision_at`."""
    return view.need_clicks() or _value(_recall(view), view)


def recall_at_error(view: View) -> float | Undefined:
    """The largest change of TP / P by what the bin that the threshold cuts holds."""
    return view.need_clicks() or _error(_recall(view), view)


def f1_at(view: View) -> float | Undefined:
    """2 TP / (TP + FP + P), the harmonic mean of precision and recall at the threshold."""
    return view.need_clicks() or _value(_f1(view), view)


def f1_at_error(view: View) -> float | Undefined:
    """The largest change of 2 TP / (TP + FP + P) by what the bin that the threshold cuts holds."""
    return view.need_clicks() or _error(_f1(view), view)


def expected_cost(view: View) -> float | Undefined:
    """(r FN + FP) / n at the threshold, r = `metrics.cost_ratio`: per impression, in costs of a non-click selected."""
    return view.need_impressions() or _value(_cost(view), view)


def expected_cost_error(view: View) -> float | Undefined:
    """The largest change of (r FN + FP) / n by what the bin that the threshold cuts holds."""
    return view.need_impressions() or _error(_cost(view), view)


class _Table(NamedTuple):
    """Impressions by label, selected and not, as they are counted."""

    tp: float
    fp: float
    fn: float
    n: float


def _table(view: View) -> _Table:
    tp, fp = _selected(view).counted
    return _Table(tp, fp, view.moments.clicks - tp, view.moments.impressions)


def _precision_variance(view: View) -> float:
    t, spread = _table(view), view.spread_of_weights
    if spread is None:
        return t.tp * t.fp / (t.tp + t.fp) ** 3
    return t.tp * t.fp * (spread[1] * t.fp + spread[0] * t.tp) / (t.tp + t.fp) ** 4


def _recall_variance(view: View) -> float:
    t = _table(view)
    return t.tp * t.fn / (t.tp + t.fn) ** 3 * (view.spread_of_weights or (1.0, 1.0))[1]


def _f1_variance(view: View) -> float:
    t, (of_others, of_clicks) = _table(view), view.spread_of_weights or (1.0, 1.0)
    size = 2 * t.tp + t.fp + t.fn
    f1 = 2 * t.tp / size
    return (of_clicks * t.tp * (2 - 2 * f1) ** 2 + (of_others * t.fp + of_clicks * t.fn) * f1 * f1) / size**2


def _cost_variance(view: View) -> float:
    t, ratio, spread = _table(view), view.options.cost_ratio, view.spread_of_weights
    mean = (ratio * t.fn + t.fp) / t.n
    if spread is None:
        return max((ratio * ratio * t.fn + t.fp) / t.n - mean * mean, 0.0) / t.n  # rounding: 0 where all cost the same
    of_clicks = t.fn * (ratio - mean) ** 2 + t.tp * mean * mean
    of_others = t.fp * (1 - mean) ** 2 + (t.n - t.tp - t.fn - t.fp) * mean * mean
    return (spread[1] * of_clicks + spread[0] * of_others) / t.n**2


_Measure = Callable[[View], float | Undefined]


def _at_threshold(
    name: str,
    functions: tuple[_Measure, _Measure],
    meaning: str,
    of: str,
    *,
    variance: Callable[[View], float],
    column: Column,
    better: Literal["higher", "lower"] = "higher",
    unit: str = "ratio",
) -> tuple[Metric, Metric]:
    """A metric at the threshold, and its certified error."""
    error = f"{name}_error"
    shown = Metric(
        name,
        functions[0],
        meaning,
        unit=unit,
        better=better,
        influence=OfImpressions(variance, widened_as="ctr"),
        needs="scores",
        bound=error,
        column=column,
    )
    what = f"certified error: {of} at the exact threshold is within this of `{name}`; 0 at an edge of a bin"
    return shown, Metric(error, functions[1], what, better="lower", needs="scores")


ROWS = (
    Metric(
        "pauc",
        pauc,
        "AUC of the false positive rates where decisions are made (`metrics.operating_range`), standardised; 0.5 is chance, 1 perfect",
        better="higher",
        influence=OfImpressions(_pauc_variance, widened_as="auc"),
        needs="scores",
        bound="pauc_error",
        gauge=Gauge(
            "partial_auc",
            "Area under the ROC curve over the operating range of false positive rates, standardised: 0.5 is chance.",
            "User-clustered standard error of partial_auc.",
        ),
        column=Column("Partial AUC", place=6, least=0, most=1),
    ),
    Metric(
        "pauc_error",
        pauc_error,
        "certified error: the partial AUC of the exact scores is within this of `pauc`",
        better="lower",
        needs="scores",
    ),
    *_at_threshold(
        "precision_at",
        (precision_at, precision_at_error),
        "share of clicks among impressions selected at `metrics.threshold`",
        "the precision",
        variance=_precision_variance,
        column=Column("Precision", place=6, least=0, most=1),
    ),
    *_at_threshold(
        "recall_at",
        (recall_at, recall_at_error),
        "share of the clicks that are selected at `metrics.threshold`",
        "the recall",
        variance=_recall_variance,
        column=Column("Recall", place=6, least=0, most=1),
    ),
    *_at_threshold(
        "f1_at",
        (f1_at, f1_at_error),
        "harmonic mean of precision and recall at `metrics.threshold`",
        "F1",
        variance=_f1_variance,
        column=Column("F1", place=6, least=0, most=1),
    ),
    *_at_threshold(
        "expected_cost",
        (expected_cost, expected_cost_error),
        "cost per impression of deciding at `metrics.threshold`, where a missed click costs `metrics.cost_ratio` times as much as a selected non-click",
        "the cost",
        variance=_cost_variance,
        column=Column("Expected cost", place=6, least=0),
        better="lower",
        unit="costs of a non-click selected",
    ),
)

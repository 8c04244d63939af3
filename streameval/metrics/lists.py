"""Metrics of ranked lists: is the top of every request right?

A list is a closed request that a version scored completely; it is ranked by that version's scores, ties at their
expectation (see `sketches.list_terms`), or as it was shown. Lists without a click have no best order: they are excluded
from NDCG, MAP, recall and MRR, but included in precision and hit rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streameval.metrics.metric import ByK, Cells, Column, Gauge, Metric, OfTally, OfView
from streameval.metrics.view import NOT_CONFIGURED, NOT_KEPT_FOR_RANGES, NOT_KEPT_FOR_SLICES, Undefined, UserMeans, View
from streameval.sketches import list_cells as at
from streameval.sketches.layout import read_tally
from streameval.sketches.list_terms import AP, HIT, HITS, NDCG, RECALL

BY_USER = "_by_user"

_NO_REQUEST, _NO_CLICKED = Undefined("no_request"), Undefined("no_clicked_request")
_NO_VALUE, _NO_POSITIONS = Undefined("no_valued_click"), Undefined("no_positions")
_Sum = tuple[Literal["lists", "cut"], int]  # a cell of all lists, or of those cut at K
_LISTS: _Sum = ("lists", at.LISTS)
_CLICKED: _Sum = ("lists", at.LISTS_CLICKED)
_SHOWN: _Sum = ("lists", at.LISTS_SHOWN)


@dataclass(frozen=True, slots=True)
class _Ratio:
    """One sum over another; `per`: and over this number. `graded`: what stands below when a click may be worth nothing."""

    of: _Sum
    to: _Sum
    nothing: Undefined  # why there is no value when `to` is 0
    graded: _Sum | None = None
    per: int = 1

    def below(self, view: View) -> _Sum:
        """What stands below the line."""
        return self.to if self.graded is None or view.options.gain == "click" else self.graded

    def value(self, view: View, k: int | None) -> float | Undefined:
        """What it comes to, or why there is none."""
        missing = _missing(view) if k is None or _is_kept(view, k) else NOT_CONFIGURED
        if missing is not None:
            return missing
        below = float(_by_group(view, self.below(view), k).sum())
        if not below:
            return self.nothing if float(_by_group(view, self.to, k).sum()) == 0 else _NO_VALUE
        return float(_by_group(view, self.of, k).sum()) / below / self.per

    def cells(self, view: View, k: int | None) -> Cells | None:
        """float64[groups of users, 2]: above and below the line; None: not kept."""
        if _missing(view) is not None or not (k is None or _is_kept(view, k)):
            return None
        return np.ascontiguousarray(np.array((_by_group(view, self.of, k), _by_group(view, self.below(view), k))).T)

    def of_cells(self, cells: Cells) -> Cells:
        """The ratio of `cells`."""
        return cells[..., 0] / cells[..., 1] / self.per


def _is_kept(view: View, k: int) -> bool:
    """Whether a cut is kept, for all that the view is of."""
    return k in view.options.k and at.cut_tally(k, view.options.gain) not in view.lacking


def _by_group(view: View, which: _Sum, k: int | None) -> NDArray[np.float64]:
    """A sum by group of users, float64[groups]; most are asked for by several metrics, and again for their errors."""
    where, cell = which
    name = at.LISTS_TALLY if where == "lists" or k is None else at.cut_tally(k, view.options.gain)

    def read() -> NDArray[np.float64]:
        cells = read_tally(view.vector, view.layout, name)
        return np.zeros(at.GROUPS) if cells is None else cells[: at.GROUPS, cell] / at.unit(where, cell)

    return view.once(f"{name} {cell}", read)


def _missing(view: View) -> Undefined | None:
    """Why no metric of lists has a value."""
    return view.once("no lists", lambda: _why_missing(view))


def _why_missing(view: View) -> Undefined | None:
    if view.moments.impressions == 0:
        return view.need_impressions()
    if not view.layout.by_block:
        return NOT_KEPT_FOR_SLICES
    cells = read_tally(view.vector, view.layout, at.LISTS_TALLY)
    if cells is None:
        return NOT_CONFIGURED
    return None if cells[: at.GROUPS, at.LISTS].any() else _NO_REQUEST


def requests(view: View) -> int | Undefined:
    """Closed requests all of whose impressions the version scored."""
    return _count(view, _LISTS)


def requests_clicked(view: View) -> int | Undefined:
    """Those of them with a click."""
    return _count(view, _CLICKED)


def _count(view: View, which: _Sum) -> int | Undefined:
    missing = _missing(view)
    if missing is not None:
        return 0 if missing == _NO_REQUEST else missing
    return int(_by_group(view, which, None).sum())


def _metric(
    name: str,
    ratio: _Ratio,
    k: int | None,
    formula: str,
    explanation: str,
    title: str,
) -> Metric:
    """One metric, `name` without its K, whose function has the formula as its docstring."""

    def value(view: View) -> float | Undefined:
        return ratio.value(view, k)

    def cells(view: View) -> Cells | None:
        return ratio.cells(view, k)

    value.__doc__ = formula
    labels = (("metric", name), ("k", "" if k is None else str(k)), ("average", "request"))
    return Metric(
        name if k is None else f"{name}_{k}",
        value,
        explanation,
        better="higher",
        influence=OfTally(cells, ratio.of_cells, at.GROUPS - 1),
        needs="scores",
        gauge=Gauge(
            "ranking",
            "Ranking metric of closed requests, ties at their expectation; k is the cut of the list, empty: none.",
            "Standard error of ranking, by groups of users.",
            labels=labels,
        ),
        column=Column(title),
    )


def _family(name: str, ratio: Callable[[int], _Ratio], formula: str, explanation: str, title: str) -> ByK:
    """The same metric at every cut; `{k}` stands for it in the texts."""

    def make(k: int) -> Metric:
        return _metric(name, ratio(k), k, *(text.replace("{k}", str(k)) for text in (formula, explanation, title)))

    return ByK(f"{name}_{{k}}", make)


ROWS = (
    Metric(
        "requests",
        requests,
        "closed requests that the version scored whole: the lists of the ranking metrics",
        unit="requests",
        needs="scores",
        whole=True,
        gauge=Gauge("ranking_requests", "Closed requests behind the ranking metrics."),
    ),
    Metric(
        "requests_clicked",
        requests_clicked,
        "those with a click, which NDCG, MAP, recall and MRR are averaged over",
        unit="requests",
        needs="scores",
        whole=True,
    ),
    _metric(
        "mrr",
        _Ratio(("lists", at.RECIPROCAL), _CLICKED, _NO_CLICKED),
        None,
        "mean of 1 / rank of the first click, over lists with a click (Voorhees 1999)",
        "how far up the first click is in its request, as 1 / rank",
        "MRR",
    ),
    _metric(
        "map",
        _Ratio(("lists", at.PRECISION), _CLICKED, _NO_CLICKED),
        None,
        "mean over lists with a click of sum over their clicks of (clicks at or above it / its rank), over all their clicks",
        "mean average precision of requests",
        "MAP",
    ),
    _metric(
        "shown_mrr",
        _Ratio(("lists", at.SHOWN_RECIPROCAL), _SHOWN, _NO_POSITIONS),
        None,
        "mrr with the ranks of `position`, over lists that the version served whole",
        "MRR of the requests as they were shown",
        "MRR as shown",
    ),
)
BY_CUT = (
    _family(
        "ndcg",
        lambda k: _Ratio(("cut", NDCG), _CLICKED, _NO_CLICKED, graded=("cut", at.GAINED)),
        "mean of DCG / ideal DCG, DCG = sum over ranks r up to {k} of gain / log2(r + 1) (Jarvelin and Kekalainen 2002); "
        "ideal over the whole list, cut at {k}; lists with a gain",
        "quality of the first {k} of a request, relative to the best possible order",
        "NDCG@{k}",
    ),
    _family(
        "map",
        lambda k: _Ratio(("cut", AP), _CLICKED, _NO_CLICKED),
        "as map, of the clicks within the first {k}, over all clicks of the list",
        "mean average precision of requests, within the first {k}",
        "MAP@{k}",
    ),
    _family(
        "precision",
        lambda k: _Ratio(("cut", HITS), _LISTS, _NO_REQUEST, per=k),
        "mean of clicks within the first {k}, over {k}, also in shorter lists",
        "share of the first {k} of a request that were clicked",
        "Precision@{k}",
    ),
    _family(
        "recall",
        lambda k: _Ratio(("cut", RECALL), _CLICKED, _NO_CLICKED),
        "mean over lists with a click of clicks within the first {k}, over all their clicks",
        "share of a request's clicks that are within its first {k}",
        "Recall@{k}",
    ),
    _family(
        "hit_rate",
        lambda k: _Ratio(("cut", HIT), _LISTS, _NO_REQUEST),
        "share of lists with a click within the first {k}",
        "share of requests with a click within their first {k}",
        "Hit rate@{k}",
    ),
    _family(
        "click_hit_rate",
        lambda k: _Ratio(("cut", HITS), ("lists", at.LIST_CLICKS), _NO_CLICKED),
        "clicks within the first {k} of their lists, over all clicks of lists",
        "share of clicks that are within the first {k} of their request",
        "Click hit rate@{k}",
    ),
    _family(
        "shown_ndcg",
        lambda k: _Ratio(("cut", at.SHOWN_NDCG), _SHOWN, _NO_POSITIONS, graded=("cut", at.SHOWN_GAINED)),
        "ndcg with the ranks of `position`, over lists that the version served whole",
        "NDCG@{k} of the requests as they were shown",
        "NDCG@{k} as shown",
    ),
)


def by_user(metric: Metric) -> Metric:
    """The same metric averaged by user: every user counts once. Raises KeyError for one that is no metric of ranked lists."""
    gauge = metric.gauge
    if not isinstance(metric.influence, OfTally) or gauge is None or metric.name.startswith("shown"):
        raise KeyError(metric.name + BY_USER)

    def value(view: View) -> float | Undefined:
        found = _means(view, metric.name)
        if isinstance(found, Undefined):
            return found
        if found.users:
            return found.total / found.users / at.MEAN_SCALE
        missing = metric.function(view)
        return missing if isinstance(missing, Undefined) else Undefined("no_eligible_user")

    def error(view: View) -> float | None:
        found = _means(view, metric.name)
        if isinstance(found, Undefined) or found.users < 2:
            return None
        spread = found.squares * found.users - found.total * found.total  # exact
        return math.sqrt(spread / (found.users - 1)) / found.users / at.MEAN_SCALE

    value.__doc__ = f"mean over users of {metric.name} of their own lists"
    labels = tuple((name, "user" if name == "average" else text) for name, text in gauge.labels)
    return replace(
        metric,
        name=metric.name + BY_USER,
        function=value,
        explanation=f"{metric.explanation}; every user counts once",
        influence=OfView(error),
        gauge=replace(gauge, labels=labels),
        column=None if metric.column is None else replace(metric.column, title=f"{metric.column.title} by user"),
    )


def _means(view: View, name: str) -> UserMeans | Undefined:
    missing = _missing(view)
    if missing is not None or isinstance(view.by_user, Undefined):
        return missing or NOT_KEPT_FOR_RANGES
    return view.by_user.get(name, UserMeans())

"""The table of metrics, in the order of the report. Adding one is a function and a row beside it.

Everything that shows metrics reads this table. To add your own metric, call `register` before the server is imported:
its schema is built from the table, once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple

from streameval.metrics import (
    calibration,
    exposed_lists,
    exposure,
    lists,
    losses,
    operating,
    policies,
    ranking,
    rates,
    yields,
)
from streameval.metrics.metric import ByK, Metric
from streameval.metrics.view import NOT_KEPT_FOR_SLICES, WEIGHTS_NOT_SUPPORTED, Undefined, View
from streameval.sketches.layout import Options


def _overall(metrics: Sequence[Metric]) -> list[Metric]:
    """Made of tallies, which slices do not keep, and of whole requests or other weights, which samples do not have."""
    return [replace(metric, overall=True, of_samples=False) for metric in metrics]


_rows: list[Metric] = [
    *rates.ROWS,
    *ranking.ROWS,
    *operating.ROWS,
    *losses.ROWS,
    *calibration.ROWS,
    *_overall(exposure.ROWS),
    *_overall(policies.ROWS),
    *_overall(lists.ROWS),
    *_overall(exposed_lists.ROWS),
    *_overall(yields.ROWS),
]
_named = {metric.name: metric for metric in _rows}
_sealed_by: list[str] = []
_OURS = len(_rows)

METRICS: Sequence[Metric] = _rows
BY_K: Sequence[ByK] = (*lists.BY_CUT, *exposed_lists.EXPOSED_BY_CUT)  # their rows follow from `ranking.k`


def register(metric: Metric) -> None:
    """Adds a metric behind the others. Raises ValueError when its name is taken, or it comes too late."""
    if _sealed_by:
        raise ValueError(f'metric "{metric.name}" comes too late: register it before {_sealed_by[0]} is imported')
    if not metric.name.isidentifier() or metric.name in {name for m in _rows for name in (m.name, f"{m.name}_stderr")}:
        raise ValueError(f'metric "{metric.name}": the name must be new, and made of letters, digits and "_"')
    _rows.append(metric)
    _named[metric.name] = metric
    for known in (_judged, _asked, _shared):
        known.cache_clear()


def has_others() -> bool:
    """Whether any was added."""
    return len(_rows) > _OURS


def seal(by: str) -> None:
    """No more metrics: `by` has built something from the table that can no longer change."""
    _sealed_by.append(by)


@cache
def _at(family: ByK, k: int) -> Metric:
    return replace(family.make(k), overall=True, of_samples=False)


def rows(options: Options | None = None) -> list[Metric]:
    """The metrics with these settings; without any, those that no setting adds to."""
    if options is None:
        return list(_rows)
    return [*_rows, *_asked_for(options.k, options.by_user)]


@cache  # every view asks
def _asked_for(cuts: tuple[int, ...], by_user: tuple[str, ...]) -> list[Metric]:
    return [*(_at(family, k) for k in cuts for family in BY_K), *map(_by_user, by_user)]


def by_name(name: str) -> Metric:
    """The metric of that name, whatever its K. Raises KeyError."""
    return _named.get(name) or _further(name)


@lru_cache(maxsize=1024)  # every number of an answer asks
def _further(name: str) -> Metric:
    for family in BY_K:
        found = re.fullmatch(family.name.replace("{k}", r"([1-9]\d{0,5})"), name)
        if found:
            return _at(family, int(found[1]))
    if name.endswith(lists.BY_USER):
        return _by_user(name.removesuffix(lists.BY_USER))
    raise KeyError(name)


@cache
def _by_user(name: str) -> Metric:
    return lists.by_user(by_name(name))


def judged(options: Options) -> Sequence[Metric]:
    """Those of `rows` that have a standard error."""
    return _judged(options.k, options.by_user)


@cache
def _judged(cuts: tuple[int, ...], by_user: tuple[str, ...]) -> list[Metric]:
    return [metric for metric in (*_rows, *_asked_for(cuts, by_user)) if metric.influence is not None]


def names(options: Options | None = None) -> tuple[str, ...]:
    """The names of `rows`."""
    return tuple(metric.name for metric in rows(options))


def with_stderr(options: Options | None = None) -> tuple[str, ...]:
    """The names of those that have a standard error."""
    return tuple(metric.name for metric in rows(options) if metric.influence is not None)


def means_over_users(options: Options | None = None) -> tuple[str, ...]:
    """The names of those beside `gauc` whose standard error has degrees of freedom of its own."""
    return tuple(metric.name for metric in rows(options) if metric.of_users and metric.name != "gauc")


class _Asked(NamedTuple):
    """The metrics of a kind of views."""

    every: Mapping[str, None]  # by name, in order
    asked: Sequence[Metric]
    left_out: Mapping[str, str]  # why the others have no value


@cache
def _asked(cuts: tuple[int, ...], by_user: tuple[str, ...], in_slice: bool) -> _Asked:
    every = [*_rows, *_asked_for(cuts, by_user)]
    left_out = {metric.name: NOT_KEPT_FOR_SLICES.reason for metric in every if metric.overall and in_slice}
    names = dict.fromkeys(metric.name for metric in every)
    return _Asked(names, [metric for metric in every if metric.name not in left_out], left_out)


def evaluate(view: View) -> tuple[dict[str, float | int | None], Mapping[str, str]]:
    """(values, reasons): every metric by name, None where undefined, and why."""
    in_slice = not view.layout.by_block and view.moments.impressions > 0
    of = _asked(view.options.k, view.options.by_user, in_slice)
    values: dict[str, float | int | None] = {**of.every}
    reasons: dict[str, str] = {}
    is_sampled = view.is_sampled
    for metric in of.asked:
        value: float | int | Undefined
        unsupported = is_sampled and not metric.of_samples
        value = WEIGHTS_NOT_SUPPORTED if unsupported else metric.function(view)
        if isinstance(value, Undefined):
            reasons[metric.name] = value.reason
        else:
            values[metric.name] = value
    return values, _shared(tuple(reasons.items()), view.options.k, view.options.by_user, in_slice)


@lru_cache(maxsize=1024)
def _shared(
    reasons: tuple[tuple[str, str], ...], cuts: tuple[int, ...], by_user: tuple[str, ...], in_slice: bool
) -> Mapping[str, str]:
    """One mapping for all results with the same reasons: most slices have them."""
    return {**dict(reasons), **_asked(cuts, by_user, in_slice).left_out}

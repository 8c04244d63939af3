"""The yield of serving versions: clicks per request, and the value of clicks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from streameval.metrics.metric import Cells, Column, Gauge, Metric, OfTally
from streameval.metrics.view import NOT_KEPT_FOR_SLICES, VALUES_NOT_KEPT, Undefined, View
from streameval.sketches.yield_cells import (
    CLICKS_SERVED,
    IMPRESSIONS_SERVED,
    MAINLINE_CLICKS,
    PLACED,
    REQUESTS_PART,
    REQUESTS_SERVED,
    REQUESTS_WHOLE,
    SERVED_PART,
    SERVED_WHOLE,
    VALUES,
    yields,
)

_USERS = 3  # the cell behind those of `VALUES`: users that were served


def click_yield(view: View) -> float | Undefined:
    """Clicks by closed request that the version served (Yi et al. 2013, sec. 6)."""
    return _ratio(view, _requests(view), _clicks_by_request, "no_request")


def mainline_click_yield(view: View) -> float | Undefined:
    """Clicks at positions below `auction.mainline`, by closed request of which a position is known."""
    return _ratio(view, _requests(view), _mainline_clicks_by_request, "no_positions")


def value_per_impression(view: View) -> float | Undefined:
    """Summed value of clicks over the impressions that the version served."""
    return _ratio(view, _values(view), _value_by_impression, "not_served")


def value_per_request(view: View) -> float | Undefined:
    """Summed value of the clicks in closed requests that the version served, over these requests."""
    cells = VALUES_NOT_KEPT if isinstance(_values(view), Undefined) else _requests(view)
    return _ratio(view, cells, _value_by_request, "no_request")


def value_per_user(view: View) -> float | Undefined:
    """Summed value of clicks over the users that the version served."""
    return _ratio(view, _users(view), _value_by_user, "not_served")


def _ratio(view: View, cells: Cells | Undefined, function: Callable[[Cells], Cells], without: str) -> float | Undefined:
    missing = view.need_impressions()
    if missing:
        return missing
    if not view.layout.by_block:
        return NOT_KEPT_FOR_SLICES
    if isinstance(cells, Undefined):
        return cells
    with np.errstate(divide="ignore", invalid="ignore"):
        found = float(function(cells.sum(axis=0)))
    return found if np.isfinite(found) else Undefined(without)


def _requests(view: View) -> Cells | Undefined:
    """Sums of requests by block of users."""
    cells = view.tally(yields(view.options.mainline).name)
    return Undefined("no_request") if cells is None else cells


def _values(view: View) -> Cells | Undefined:
    """Sums of impressions that were served, by block of users."""
    cells = view.tally(VALUES.name)
    return VALUES_NOT_KEPT if cells is None else cells


def _users(view: View) -> Cells | Undefined:
    """The same, and the users behind them."""
    cells = _values(view)
    if isinstance(cells, Undefined):
        return cells
    if isinstance(view.ranked, Undefined):
        return view.ranked
    if not view.ranked.served_known and cells[:, IMPRESSIONS_SERVED].sum() != view.moments.impressions:
        return Undefined("scored_what_others_served")
    return np.column_stack((cells, view.ranked.by_block))


def _or_none(of: Callable[[View], Cells | Undefined]) -> Callable[[View], Cells | None]:
    def cells(view: View) -> Cells | None:
        found = of(view)
        return None if isinstance(found, Undefined) else found

    return cells


def _clicks_by_request(cells: Cells) -> Cells:
    return cells[..., CLICKS_SERVED] / cells[..., REQUESTS_SERVED]


def _mainline_clicks_by_request(cells: Cells) -> Cells:
    return cells[..., MAINLINE_CLICKS] / cells[..., PLACED]


def _value_by_request(cells: Cells) -> Cells:
    return (cells[..., REQUESTS_WHOLE] + cells[..., REQUESTS_PART]) / cells[..., REQUESTS_SERVED]


def _value_by_impression(cells: Cells) -> Cells:
    return (cells[..., SERVED_WHOLE] + cells[..., SERVED_PART]) / cells[..., IMPRESSIONS_SERVED]


def _value_by_user(cells: Cells) -> Cells:
    return (cells[..., SERVED_WHOLE] + cells[..., SERVED_PART]) / cells[..., _USERS]


def _yield_gauge(block: str) -> Gauge:
    meaning = "Clicks per request that the version served; with block mainline, the clicks there."
    error = "User-clustered standard error of click_yield."
    return Gauge("click_yield", meaning, error, labels=(("block", block),), last=True)


def _value(
    per: str,
    function: Callable[[View], float | Undefined],
    of: Callable[[View], Cells | Undefined],
    by: Callable[[Cells], Cells],
    needs: Literal["sums", "users"] = "sums",
) -> Metric:
    """What clicks are worth, per impression, request or user."""
    meaning = "Value of clicks per impression, request or user that the version served."
    error = "User-clustered standard error of value."
    return Metric(
        f"value_per_{per}",
        function,
        f"value of clicks per {per} that the version served",
        unit="value",
        better="higher",
        influence=OfTally(_or_none(of), by),
        needs=needs,
        gauge=Gauge("value", meaning, error, labels=(("per", per),), last=True),
        column=Column(f"Value per {per}"),
    )


ROWS = (
    Metric(
        "click_yield",
        click_yield,
        "clicks per request that the version served",
        unit="clicks per request",
        better="higher",
        influence=OfTally(_or_none(_requests), _clicks_by_request),
        gauge=_yield_gauge("all"),
        column=Column("Click yield"),
    ),
    Metric(
        "mainline_click_yield",
        mainline_click_yield,
        "clicks in the mainline per request that the version served",
        unit="clicks per request",
        better="higher",
        influence=OfTally(_or_none(_requests), _mainline_clicks_by_request),
        gauge=_yield_gauge("mainline"),
        column=Column("Mainline click yield"),
    ),
    _value("impression", value_per_impression, _values, _value_by_impression),
    _value("request", value_per_request, _requests, _value_by_request),
    _value("user", value_per_user, _users, _value_by_user, needs="users"),
)

"""Results of auctions as plain values: a row for every version and operating point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from streameval.auction.frontier import MEASURES, YIELDS, Frontier
from streameval.events.batch import Series
from streameval.settings.measures import AuctionPoint

_ESTIMATES = (*MEASURES, *(f"matched_{name}" for name in YIELDS))
NUMBERS = tuple(name for one in _ESTIMATES for name in (one, f"{one}_stderr"))  # of a row, in order


def named(series: Series) -> dict[str, str]:
    """Returns the series that gave the scores."""
    return {"model": series.model, "version": series.version, "source": series.source}


def rows(frontier: Frontier, series: Sequence[Series], points: Sequence[AuctionPoint]) -> list[dict[str, Any]]:
    """Returns rows by version, then operating point; undefined numbers are None, with a reason."""
    return [_row(frontier, v, one, p, point) for v, one in enumerate(series) for p, point in enumerate(points)]


def _row(frontier: Frontier, v: int, series: Series, p: int, point: AuctionPoint) -> dict[str, Any]:
    requests = int(frontier.requests[v])
    numbers: dict[str, float | None] = {}
    for name in MEASURES:
        numbers[name] = _number(frontier.measures[name].value[v, p])
        numbers[f"{name}_stderr"] = _number(frontier.measures[name].stderr[v, p])
    for name, one in frontier.matched.items():
        numbers[f"matched_{name}"] = _number(one.value[v, p])
        numbers[f"matched_{name}_stderr"] = _number(one.stderr[v, p])
    return {
        **named(series),
        "point": point.name,
        "mainline_reserve": point.mainline_reserve,
        "sidebar_reserve": point.sidebar_reserve,
        "requests": requests,
        **numbers,
        "reasons": {name: _reason(name, numbers, requests) for name, number in numbers.items() if number is None},
    }


def _reason(name: str, numbers: dict[str, float | None], requests: int) -> str:
    if requests == 0:
        return "no_requests"
    if name.endswith("_stderr") and numbers[name.removesuffix("_stderr")] is not None:
        return "not_spread"
    return "mainline_ads_out_of_reach" if name.startswith("matched_") else "no_ads"


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)

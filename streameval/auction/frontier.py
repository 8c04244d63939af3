"""Results from sums of auctions: by version and operating point, and at matched mainline ads, with errors by blocks of
users.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.auction.rerun import (
    ADS,
    AUCTIONS_RUN,
    CLICK_SCALE,
    EXPECTED_CLICKS,
    EXPECTED_MAINLINE,
    EXTRAPOLATED,
    MAINLINE_ADS,
    USER_GROUPS,
    WITH_HISTORY,
    OperatingPoints,
)

# name -> (numerator, denominator)
MEASURES: dict[str, tuple[int, int]] = {
    "click_yield": (EXPECTED_CLICKS, AUCTIONS_RUN),
    "mainline_click_yield": (EXPECTED_MAINLINE, AUCTIONS_RUN),
    "mainline_ads": (MAINLINE_ADS, AUCTIONS_RUN),
    "ads": (ADS, AUCTIONS_RUN),
    "replayed_share": (WITH_HISTORY, ADS),
    "extrapolated_share": (EXTRAPOLATED, ADS),
}
YIELDS = ("click_yield", "mainline_click_yield")


@dataclass(frozen=True, slots=True)
class ByPoint:
    """A number by (version, operating point) with its standard error, float64[versions, points] each; NaN: undefined."""

    value: NDArray[np.float64]
    stderr: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Frontier:
    """Every measure; `matched`: the yields that each version would have with as many mainline ads as the
    reference has.
    """

    requests: NDArray[np.int64]  # [versions]
    measures: dict[str, ByPoint]
    matched: dict[str, ByPoint]


def frontier_of(
    sums: NDArray[np.int64],
    points: OperatingPoints,
    reference: int,
    through_tables: NDArray[np.int64] | None = None,
    through_groups: NDArray[np.int64] | None = None,
) -> Frontier:
    """From sums int64[versions, points, blocks, AUCTION_CELLS]; `reference`: the version whose mainline ads are
    matched.

    Errors leave out one block of users at a time (jackknife), including its labels' effect through the tables
    (`spread.through_tables`). For a stream that effect is known by group of users (`rerun.run_through`), so for yields
    one group is left out at a time. Without either, what is known about pairs and positions is treated as given.
    """
    whole = sums.sum(axis=2)
    blocks = sums if through_tables is None else sums + through_tables
    values = yields = [values_of(part) for part in _left_out(whole, blocks)]
    if through_groups is not None and through_groups.any():
        yields = [values_of(part) for part in _left_out(whole, _by_group(sums, through_groups))]
    matched = [matched_at(one, points.sidebar_reserve, reference) for one in yields]
    return Frontier(
        whole[:, 0, AUCTIONS_RUN],
        {name: _jackknife([one[name] for one in (yields if name in YIELDS else values)]) for name in MEASURES},
        {name: _jackknife([one[name] for one in matched]) for name in YIELDS},
    )


def _left_out(whole: NDArray[np.int64], blocks: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Returns the total, then the total without each non-empty block."""
    return [whole] + [whole - blocks[:, :, block] for block in range(blocks.shape[2]) if blocks[:, :, block].any()]


def _by_group(sums: NDArray[np.int64], through: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns sums by group of users, int64[versions, points, USER_GROUPS, AUCTION_CELLS], including the effect through
    the tables.
    """
    versions, points, blocks, cells = sums.shape
    out = sums.reshape(versions, points, USER_GROUPS, blocks // USER_GROUPS, cells).sum(axis=3)
    out[..., EXPECTED_CLICKS] += through[..., 0]
    out[..., EXPECTED_MAINLINE] += through[..., 1]
    return out


def values_of(sums: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Returns every measure, float64[versions, points], from sums over the blocks."""
    out = {}
    for name, (above, below) in MEASURES.items():
        unit = 1.0 / CLICK_SCALE if above in (EXPECTED_CLICKS, EXPECTED_MAINLINE) else 1.0
        value = np.full(sums.shape[:2], np.nan)
        np.divide(sums[..., above] * unit, sums[..., below], out=value, where=sums[..., below] > 0)
        out[name] = value
    return out


def matched_at(
    values: dict[str, NDArray[np.float64]], sidebar_reserve: NDArray[np.float64], reference: int
) -> dict[str, NDArray[np.float64]]:
    """Returns every version's yields at the reference's mainline ads at each operating point, float64[versions,
    points].

    Interpolated linearly between the version's own operating points with the same sidebar reserve; NaN where the
    reference's mainline ads are outside their range.
    """
    ads = values["mainline_ads"]
    out = {name: np.full(ads.shape, np.nan) for name in YIELDS}
    for p in range(ads.shape[1]):
        alike = np.flatnonzero(sidebar_reserve == sidebar_reserve[p])
        for v in range(ads.shape[0]):
            for name in YIELDS:
                out[name][v, p] = _at(ads[reference, p], ads[v, alike], values[name][v, alike])
    return out


def _at(wanted: float, x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Returns y at x = wanted, linearly interpolated between the points; points with equal x are averaged."""
    known = ~np.isnan(x)
    place, of = np.unique(x[known], return_inverse=True)
    if not place.size or not place[0] <= wanted <= place[-1]:  # also if it is NaN
        return np.nan
    height = np.bincount(of, weights=y[known]) / np.bincount(of)
    return float(np.interp(wanted, place, height))


def _jackknife(values: list[NDArray[np.float64]]) -> ByPoint:
    """Returns the value and its standard error. `values`: for the total, then without each non-empty block."""
    whole, parts = values[0], np.array(values[1:])
    n = len(parts)
    if n < 2:
        return ByPoint(whole, np.full(whole.shape, np.nan))
    spread = ((parts - parts.mean(axis=0)) ** 2).sum(axis=0)
    return ByPoint(whole, np.sqrt((n - 1) / n * spread))

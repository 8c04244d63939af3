"""Clicks in the log by (query, ad) and by position: the tables with which auctions are replayed.

The click curve is the number of clicks that the same ad gets at every position, up to a factor. Taken from click rates
by position (`observed`, as in Yi et al. 2013) it is confounded by the ranking, which puts the better ads on top: it
falls too steeply, and versions that did not serve look too good. `within_pairs` compares every (query, ad) with itself
at other positions: the maximum likelihood of clicks ~ Poisson(impressions * pair effect * position effect), by
iterative scaling (Darroch and Ratcliff 1972).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.auction.rerun import ClickTables

_PRIOR = 1.0  # weight of the observed curve, in clicks
_PRECISE = 1e-10  # relative change of the curve at which scaling ends
_MOST_ROUNDS = 2_000


class PairCounts(NamedTuple):
    """Impressions and clicks of what was shown: entry e is a pair at a position; pair i has entries indptr[i] to
    indptr[i + 1] - 1.
    """

    indptr: NDArray[np.int64]  # [pairs + 1]
    position: NDArray[np.int64]  # [entries], ascending within a pair
    impressions: NDArray[np.int64]
    clicks: NDArray[np.int64]


def count_pairs(
    pair: NDArray[np.int32], position: NDArray[np.int64], clicked: NDArray[np.int8], pairs: int, slots: int
) -> PairCounts:
    """Counts n impressions that were shown; positions in [0, `slots`), pairs in [0, `pairs`)."""
    key, entry = np.unique(pair.astype(np.int64) * slots + position, return_inverse=True)
    clicks = np.zeros(key.size, np.int64)
    np.add.at(clicks, entry, clicked)
    indptr = np.searchsorted(key, np.arange(pairs + 1, dtype=np.int64) * slots)
    return PairCounts(indptr, key % slots, np.bincount(entry, minlength=key.size).astype(np.int64), clicks)


class ClickCurves(NamedTuple):
    """Counts and curves by position: [slots] each."""

    impressions: NDArray[np.int64]
    clicks: NDArray[np.int64]
    reference: NDArray[np.float64]  # clicks over impressions
    curve: NDArray[np.float64]  # 1 at the first position that has any clicks
    shown: NDArray[np.bool_]


def curves_of(counts: PairCounts, slots: int, kind: Literal["within_pairs", "observed"]) -> ClickCurves:
    """Returns the curves of a history. A position never shown takes those of the nearest earlier one that was, else of
    the nearest later one.
    """
    impressions, clicks = _by_position(counts, slots)
    return curves_from(counts, impressions, clicks, kind)


def curves_from(
    counts: PairCounts,
    impressions: NDArray[np.int64],
    clicks: NDArray[np.int64],
    kind: Literal["within_pairs", "observed"],
) -> ClickCurves:
    """As `curves_of`, from impressions and clicks by position; of the counts only pairs with clicks that were shown at several
    positions are read.
    """
    shown = impressions > 0
    reference = np.where(shown, clicks / np.maximum(impressions, 1), 0.0)
    curve = _within_pairs(counts, impressions, clicks, reference) if kind == "within_pairs" else reference.copy()
    if shown.any():
        stand_in = nearest_shown(shown)
        reference, curve = reference[stand_in], curve[stand_in]
    some = curve[curve > 0]
    return ClickCurves(impressions, clicks, reference, curve / some[0] if some.size else curve, shown)


def tables_of(counts: PairCounts, curves: ClickCurves) -> ClickTables:
    """Returns the tables. A pair whose positions never had a click (curve 0) counts as one without a history."""
    rate = _rates(counts, curves.curve)
    return ClickTables(rate, curves.curve, curves.reference, curves.shown)


def nearest_shown(shown: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Returns, by position, the one used for it: itself, the nearest earlier one that was shown, else the nearest later
    one.
    """
    where = np.flatnonzero(shown)
    before = np.searchsorted(where, np.arange(shown.size), side="right") - 1
    out: NDArray[np.int64] = where[np.maximum(before, 0)]
    return out


def _within_pairs(
    counts: PairCounts, impressions: NDArray[np.int64], clicks: NDArray[np.int64], reference: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns the curve within pairs, float64[slots].

    Only pairs with clicks that were shown at several positions are informative. An additional pseudo-pair, worth
    `_PRIOR` clicks, has the positions of all traffic: it connects the positions that no pair compares, as observed, and
    keeps a position above 0 if the few pairs compared there had no click.
    """
    if not clicks.any():
        return reference.copy()
    share = _PRIOR / clicks.sum()
    own = share * clicks
    telling, exposure, position, total = _telling(counts, own)
    indptr = np.append(telling, telling[-1] + impressions.size)
    exposure = np.concatenate((exposure, share * impressions))
    position = np.concatenate((position, np.arange(impressions.size)))
    curve = reference.copy()
    _scale(indptr, position, exposure, np.append(total, _PRIOR), own, curve)
    return curve


@numba.njit(cache=True, nogil=True)
def _by_position(counts: PairCounts, slots: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    impressions, clicks = np.zeros(slots, np.int64), np.zeros(slots, np.int64)
    for e in range(counts.position.size):
        impressions[counts.position[e]] += counts.impressions[e]
        clicks[counts.position[e]] += counts.clicks[e]
    return impressions, clicks


@numba.njit(cache=True, nogil=True)
def _rates(counts: PairCounts, curve: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns every pair's clicks over its impressions weighted by the curve; NaN if these are 0."""
    rate = np.full(counts.indptr.size - 1, np.nan)
    for i in range(rate.size):
        clicks, chance = 0, 0.0
        for e in range(counts.indptr[i], counts.indptr[i + 1]):
            clicks += counts.clicks[e]
            chance += counts.impressions[e] * curve[counts.position[e]]
        if chance > 0.0:
            rate[i] = clicks / chance
    return rate


@numba.njit(cache=True, nogil=True)
def _telling(
    counts: PairCounts, own: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Returns (where each begins and the last ends, impressions, positions, clicks of each) for the pairs with clicks
    and several positions.

    Adds their clicks to `own`, by position.
    """
    indptr, total = np.zeros(counts.indptr.size, np.int64), np.empty(counts.indptr.size - 1)
    exposure, position = np.empty(counts.position.size), np.empty(counts.position.size, np.int64)
    pairs = n = 0
    for i in range(total.size):
        first, end = counts.indptr[i], counts.indptr[i + 1]
        clicks = 0
        for e in range(first, end):
            clicks += counts.clicks[e]
        if clicks > 0 and end - first > 1:
            for e in range(first, end):
                own[counts.position[e]] += counts.clicks[e]
                exposure[n], position[n] = counts.impressions[e], counts.position[e]
                n += 1
            total[pairs] = clicks
            pairs += 1
            indptr[pairs] = n
    return indptr[: pairs + 1].copy(), exposure[:n].copy(), position[:n].copy(), total[:pairs].copy()


@numba.njit(cache=True, nogil=True)
def _scale(
    indptr: NDArray[np.int64],
    position: NDArray[np.int64],
    exposure: NDArray[np.float64],
    pair_clicks: NDArray[np.float64],
    clicks: NDArray[np.float64],
    curve: NDArray[np.float64],
) -> None:
    """Iterative scaling: pair effects given the curve, then the curve given the pair effects, until it converges."""
    expected = np.empty(curve.size)
    for _ in range(_MOST_ROUNDS):
        expected[:] = 0.0
        for i in range(np.uint64(pair_clicks.size)):  # unsigned indices: not checked for counting from the end
            first, end, chance = np.uint64(indptr[i]), np.uint64(indptr[i + np.uint64(1)]), 0.0
            for e in range(first, end):
                chance += exposure[e] * curve[np.uint64(position[e])]
            effect = pair_clicks[i] / chance
            for e in range(first, end):
                expected[np.uint64(position[e])] += exposure[e] * effect
        change = 0.0
        for k in range(curve.size):
            if clicks[k] > 0.0:
                new = clicks[k] / expected[k]
                change = max(change, abs(new / curve[k] - 1.0))
                curve[k] = new
        if change < _PRECISE:
            return

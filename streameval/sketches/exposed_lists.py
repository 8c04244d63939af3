"""The cells of ranking metrics under uniform exposure, and of NDCG by stratum of propensity.

An item of a list weighs w = 1 / propensity, as in `exposure`; ties count at their expectation, as in `list_terms`. A sum of
reals is two cells, whole units and the remainder in units of 2**-30, for each of 16 groups of users (see `list_cells`).
Every item is rounded separately, so sums do not depend on the order of a list. Capacity: a term is at most 1e4 * 2**30, so
cells of whole units hold 8e5 of the largest terms; with clicks as gains, 9e14.
"""

from __future__ import annotations

from functools import lru_cache

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.exposure import REST, WeightRule
from streameval.sketches.propensity import PropensityStrata
from streameval.sketches.tally import Tally, reals

EXPOSED_TALLY = "exposure_lists"
# over all lists: lists, their items, clipped items; then sums of weights and of squared weights, and how much clipping
# removes from each
EX_LISTS, EX_ITEMS, EX_CLIPPED = range(3)
EX_WEIGHT, EX_SQUARE, EX_LESS_WEIGHT, EX_LESS_SQUARE = range(3, 11, 2)
EX_CELLS = 11
# at a cut: weighted gains times discount, and weighted clicks, of items up to K; and how much clipping removes from each
EX_DCG, EX_HITS, EX_LESS_DCG, EX_LESS_HITS = range(0, 8, 2)
EX_CUT_CELLS = 8


def _pairs(*names: str) -> tuple[str, ...]:
    return tuple(cell for name in names for cell in (name, f"{name}_rest"))


def exposed_cut(k: int) -> str:
    """The name under which the tally of one cut is looked up."""
    return f"{EXPOSED_TALLY}_{k}"


def exposed_tallies(cuts: tuple[int, ...], gain: str, rule: WeightRule, source: str = "") -> tuple[Tally, ...]:
    """The tallies of these cuts, none without cuts; `source`: where propensities come from, if not from the log."""
    if not cuts:
        return ()
    by = f"{rule.least:.15g}:{rule.most:.15g}{source}"
    whole, cut = ("weight", "square", "less_weight", "less_square"), ("dcg", "hits", "less_dcg", "less_hits")
    names = ("requests", "items", "clipped", *_pairs(*whole))
    scales = reals(*(f"{name}_rest" for name in whole), scale=REST)
    of_cut = reals(*(f"{name}_rest" for name in cut), scale=REST)
    return (
        Tally(f"{EXPOSED_TALLY}:{by}", names, scales=scales),
        *(Tally(f"{exposed_cut(k)}:{gain}:{by}", _pairs(*cut), scales=of_cut) for k in cuts),
    )


def strata_ndcg(strata: PropensityStrata, cuts: tuple[int, ...], gain: str) -> str:
    """The name of the tally of NDCG by stratum."""
    return "_".join((strata.clicks, "ndcg", *map(str, cuts), gain, *(() if strata.edges else ("spans",))))


@lru_cache(maxsize=64)  # thousands of names, needed by every pipeline and partition
def strata_ndcg_tallies(strata: PropensityStrata | None, cuts: tuple[int, ...], gain: str) -> tuple[Tally, ...]:
    """Lists with a gain in a stratum, and the sums of the NDCG of those items at every cut, by the parts that strata consist of.

    With fixed edges the parts are the strata. Any other stratum is a run of fine bins, chosen when results are read, and its
    NDCG is not a sum over its bins: a list may have items in several. It is a sum over *spans* of bins. If a list adds f(x, y) to
    the stratum of the bins x to y, it adds to the span (x, y)

        h(x, y) = f(x, y) - f(x + 1, y) - f(x, y - 1) + f(x + 1, y - 1)        f = 0 where x > y

    and a stratum's sum is that of h over all spans within it, exactly. A list whose gains are all in one bin has h(x, x) alone.
    """
    if strata is None or not cuts:
        return ()
    bins = len(strata.bounds) - 1
    parts = [f"{i}" for i in range(bins)] if strata.edges else [f"{x}_{y}" for x in range(bins) for y in range(x, bins)]
    names = [name for part in parts for name in (f"lists_{part}", *(f"ndcg_{k}_{part}" for k in cuts))]
    scaled = reals(*(name for name in names if name.startswith("ndcg")))
    return (Tally(strata_ndcg(strata, cuts, gain), tuple(names), blocks=False, scales=scaled),)


@numba.njit(inline="always")
def span_of(first: int, last: int, bins: int) -> int:
    """The number of the span of bins `first` to `last`: spans are in order of their first bin, then of their last."""
    return first * bins - first * (first - 1) // 2 + last - first


@numba.njit(inline="always")
def standing(key: NDArray[np.float64], start: int, n: int, i: int) -> tuple[int, int]:
    """(items above item i of n, whose keys begin at key[start]; items tied with it, itself included)."""
    above, level = 0, 0
    own = key[start + i]
    for j in range(start, start + n):
        above += key[j] > own
        level += key[j] == own
    return above, level


@numba.njit(inline="always")
def mean_discount(above: int, level: int, k: int, discount: NDArray[np.float64]) -> float:
    """The mean of 1 / log2(rank + 1), or 0 beyond rank k, of one of `level` items behind `above` others."""
    last = min(above + level, k)
    return (discount[last] - discount[above]) / level if last > above else 0.0


@numba.njit(inline="always")
def mean_within(above: int, level: int, k: int) -> float:
    """The probability that such an item is among the first k."""
    return float(min(max(k - above, 0), level)) / float(level)

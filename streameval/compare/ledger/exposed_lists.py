"""How two versions' orders of one list differ in NDCG, plain and weighted by inverse propensity: for the Simpson guard
of a pair.

A click is in its place among all items of its list, as for AUC it is among all non-clicks, and has weight w = 1 /
propensity. With c clicks in a list, and g the discount of a click at its place (0 beyond K; ties at their expectation)
over the list's ideal, a list adds

    D = sum (g_other - g_server)        the difference in NDCG, with clicks as gains
    T = sum w (g_other - g_server)      the same, weighted
    W = sum w / c                       the number of lists that it stands for

so that sum T / sum W is mean D if all weights are equal. A list with a click of unknown propensity is only in D. Every
click is rounded separately, so sums do not depend on the order of a list.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.blocks import BLOCKS, GAUC_OF_ITEMS, SCALE
from streameval.sketches.exposed_lists import mean_discount, standing
from streameval.sketches.list_terms import discounts

# cells by block of users: lists, their D; and for those whose clicks all have a propensity, W and T
XL_N, XL_D, XL_W, XL_T = range(4)
XL_CELLS = 4
OCTAVES = 14  # of W, which is at most 1e4
# scalars: sum of D^2; number of lists with propensities, sums of W^2, W T and T^2; then those lists by octave of W
XL_DD, XL_KNOWN, XL_WW, XL_WT, XL_TT = range(BLOCKS * XL_CELLS, BLOCKS * XL_CELLS + 5)
XL_OCTAVES = XL_TT + 1
EXPOSED_LISTS = XL_OCTAVES + OCTAVES  # cells in total
LIST_UNITS = float(1 << 24)  # of W and T
LIST_SQUARES = float(1 << 12)  # of their products
_TURNED = [*range(XL_D, XL_DD, XL_CELLS), *range(XL_T, XL_DD, XL_CELLS), XL_WT]

_Ints = NDArray[np.int64]


GUARD = "uniform_exposure"  # how the names of these cells begin


class ExposedCut(NamedTuple):
    """NDCG at `k`; propensities below `least` count as `least`."""

    k: int
    least: float

    @property
    def metric(self) -> str:
        """The name of the metric compared."""
        return f"ndcg_{self.k}"

    @property
    def name(self) -> str:
        """The name in checkpoints, with everything that the sums depend on."""
        return f"{GUARD} {self.metric} {self.least:.17g}"


class GuardedLists(NamedTuple):
    """The sums of a comparison, oriented as candidate minus baseline."""

    metric: str
    sums: _Ints  # [EXPOSED_LISTS]


class ListMembers(NamedTuple):
    """Scores of lists by pair: those of list i and pair j are member[start[i * pairs + j]] up to the next start, in
    order of arrival.
    """

    pairs: int
    start: _Ints
    member: _Ints
    logged_at: NDArray[np.int32]  # by impression: the index of its server's score


def add_exposed_lists(
    cut: ExposedCut,
    places: tuple[NDArray[np.int32], NDArray[np.int8], _Ints],
    members: ListMembers,
    impressions: tuple[NDArray[np.int8], NDArray[np.float64]],
    scores: tuple[NDArray[np.int32], NDArray[np.float64]],
    sums: _Ints,
) -> None:
    """Adds lists to the last `EXPOSED_LISTS` cells of sums[window, pair] before those by item.

    `places`: window, block of users and size of the lists, -1 for lists that do not count; `impressions`: label and
    propensity (NaN: none); `scores`: row and p.
    """
    column = sums.shape[2] - GAUC_OF_ITEMS - EXPOSED_LISTS
    _add(cut, discounts(cut.k), places, members, impressions, scores, column, sums)


def turned_lists(row: _Ints) -> _Ints:
    """Converts sums of (candidate served, baseline scored) to (baseline, candidate), int64[EXPOSED_LISTS]; its own
    inverse.
    """
    out = row.copy()
    out[_TURNED] *= -1
    return out


@numba.njit(cache=True, nogil=True)
def _add(
    cut: ExposedCut,
    discount: NDArray[np.float64],
    places: tuple[NDArray[np.int32], NDArray[np.int8], _Ints],
    members: ListMembers,
    impressions: tuple[NDArray[np.int8], NDArray[np.float64]],
    scores: tuple[NDArray[np.int32], NDArray[np.float64]],
    column: int,
    sums: _Ints,
) -> None:
    k, least = cut
    window, block, size = places
    pairs, start, member, logged_at = members
    label, propensity = impressions
    row, p = scores
    most = 1
    for n in size:
        most = max(most, n)
    key = np.empty((2, most))
    for one in range(size.size):
        n = size[one]
        for i in range(pairs):
            a = start[one * pairs + i]
            if start[one * pairs + i + 1] - a != n:
                continue  # not all of it was scored by both
            clicks, known = 0, True
            for j in range(n):
                at = row[member[a + j]]
                key[0, j], key[1, j] = p[logged_at[at]], p[member[a + j]]
                clicks += label[at]
                known = known and (not label[at] or propensity[at] > 0.0)
            if not clicks:
                continue
            ideal = discount[min(clicks, k)]
            d = w = t = np.int64(0)
            for j in range(n):
                at = row[member[a + j]]
                if not label[at]:
                    continue
                old, new = standing(key[0], 0, n, j), standing(key[1], 0, n, j)
                gained = mean_discount(new[0], new[1], k, discount) - mean_discount(old[0], old[1], k, discount)
                d += np.int64(np.rint(gained / ideal * SCALE))
                if known:
                    weight = 1.0 / max(propensity[at], least)
                    w += np.int64(np.rint(weight / clicks * LIST_UNITS))
                    t += np.int64(np.rint(weight * gained / ideal * LIST_UNITS))
            out = sums[window[one], i]
            cell = column + np.int64(block[one]) * XL_CELLS
            out[cell + XL_N] += 1
            out[cell + XL_D] += d
            out[column + XL_DD] += np.int64(np.rint(d / SCALE * (d / SCALE) * SCALE))
            if not known:
                continue
            out[cell + XL_W] += w
            out[cell + XL_T] += t
            lists, weighted = w / LIST_UNITS, t / LIST_UNITS
            out[column + XL_KNOWN] += 1
            out[column + XL_WW] += np.int64(np.rint(lists * lists * LIST_SQUARES))
            out[column + XL_WT] += np.int64(np.rint(lists * weighted * LIST_SQUARES))
            out[column + XL_TT] += np.int64(np.rint(weighted * weighted * LIST_SQUARES))
            octave = math.frexp(max(lists, 1.0))[1] - 1
            out[column + XL_OCTAVES + min(octave, OCTAVES - 1)] += 1

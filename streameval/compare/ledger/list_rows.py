"""Ranking metrics of pairs: how two versions' orders of a list differ, next to the rows of users' AUC (see
`gauc_rows`).

A list is the impressions of a request within a window, with a click and both versions' scores of all of them. Its row
has weight 1, and the form of a row of users' AUC: D is the other's NDCG (or reciprocal rank) on it less the server's,
with clicks as gains and ties at their expectation. So a window's lists are computed from the same rows, at the same
times, and are corrected in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.exposed_lists import (
    EXPOSED_LISTS,
    GUARD,
    XL_KNOWN,
    ExposedCut,
    ListMembers,
    add_exposed_lists,
)
from streameval.compare.reading.further import cut_of
from streameval.events.columns import ScoreList
from streameval.sketches import blocks
from streameval.sketches.blocks import BLOCKS, GAUC_CELLS, GAUC_OF_ITEMS, GAUC_SCALARS, SCALE
from streameval.sketches.list_terms import (
    NDCG,
    TERMS_A_CUT,
    click_room,
    discounts,
    find_clicks,
    list_terms,
    stand_clicks,
)

if TYPE_CHECKING:
    from streameval.compare.ledger.user_aucs import Groups

GAUC_WIDTH = BLOCKS * GAUC_CELLS + GAUC_SCALARS
_BY_ITEM = "users_by_item"  # in the names of what rows have
MOST_OF_A_LIST = 4096  # items: anything longer is not treated as a list
_SCALARS = BLOCKS * GAUC_CELLS


class _Cuts(NamedTuple):
    """`term`: for each metric, its index in `list_terms` with these cuts."""

    cuts: NDArray[np.int64]
    discount: NDArray[np.float64]
    term: NDArray[np.int64]


class ListMetrics:
    """The ranking metrics of comparisons; a row has `GAUC_WIDTH` cells for users' AUC, then as many for each metric.

    After them come those of `exposed_lists`, if the Simpson guard uses lists, and last those of users' AUC by item.
    """

    def __init__(self, metrics: Sequence[str] = (), guard: ExposedCut | None = None) -> None:
        """`metrics`: "mrr", or "ndcg_" and a K; `guard`: the NDCG that is also computed under uniform exposure."""
        self.metrics, self.guard = tuple(metrics), guard
        self._behind = 0 if guard is None else EXPOSED_LISTS
        self.width = GAUC_WIDTH * (1 + len(self.metrics)) + self._behind + GAUC_OF_ITEMS
        cuts = sorted({cut for name in self.metrics if (cut := cut_of(name)) is not None})
        term = [
            TERMS_A_CUT * len(cuts) if cut_of(m) is None else TERMS_A_CUT * cuts.index(cut_of(m) or 0) + NDCG
            for m in metrics
        ]
        self._cuts = _Cuts(np.array(cuts, np.int64), discounts(max(cuts, default=0)), np.array(term, np.int64))

    def of(self, metric: str, row: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns a metric's part of a row: a view."""
        at = GAUC_WIDTH * (1 + self.metrics.index(metric))
        return row[at : at + GAUC_WIDTH]

    def exposed(self, row: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Returns the cells of `exposed_lists` in a row, int64[EXPOSED_LISTS]: a view; None if there are none."""
        at = self.width - GAUC_OF_ITEMS
        return None if self.guard is None else row[at - EXPOSED_LISTS : at]

    @property
    def wanted(self) -> bool:
        """Whether rows have any cells for lists."""
        return bool(self.names[:-1])

    @property
    def names(self) -> list[str]:
        """What rows have after users' AUC, for `fitted`."""
        return [*self.metrics, *([] if self.guard is None else [self.guard.name]), _BY_ITEM]

    def add(
        self,
        groups: Groups,
        request: NDArray[np.uint64],
        scores: ScoreList,
        first: int,
        pair_of: NDArray[np.int32],
        sums: NDArray[np.int64],
        propensity: NDArray[np.float64] | None = None,
    ) -> None:
        """Adds the lists of users (`groups`) to sums[window, pair]; `pair_of[served, other]`: numbers of the pairs, -1:
        none.

        `propensity`: by impression, NaN if it has none; None: no impression has any.
        """
        guarded = self.guard is not None and propensity is not None
        if not (self.metrics or guarded) or not request.size:
            return
        order = np.lexsort((request, groups.group))
        by_group, by_request = groups.group[order], request[order]
        begins = np.ones(order.size, np.bool_)
        begins[1:] = (by_group[1:] != by_group[:-1]) | (by_request[1:] != by_request[:-1])
        number = np.cumsum(begins, dtype=np.int32) - np.int32(1)
        list_of = np.empty(order.size, np.int32)
        list_of[order] = np.where(by_request != 0, number, -1)
        size = np.bincount(number).astype(np.int64)
        of_group = by_group[begins]
        places = groups.window[of_group], groups.block[of_group], np.where(size > MOST_OF_A_LIST, -1, size)
        members = _members(size, list_of, scores, (first, int(pair_of.max(initial=-1)) + 1), pair_of)
        if self.metrics:
            _add_lists(places, members, groups.label, scores, self._cuts, sums)
        if self.guard is not None and propensity is not None:
            of = groups.label, propensity
            add_exposed_lists(self.guard, places, members, of, (scores.row, scores.p), sums)
            at = self.width - GAUC_OF_ITEMS
            mine = sums[:, : members.pairs, at - EXPOSED_LISTS : at]
            mine[mine[..., XL_KNOWN] == 0] = 0  # otherwise it would depend on which windows are computed together

    def _place_of(self, name: str) -> int:
        """Returns where the cells of one of the `names` begin."""
        if name in self.metrics:
            return GAUC_WIDTH * (1 + self.metrics.index(name))
        at = self.width - GAUC_OF_ITEMS
        return at if name == _BY_ITEM else at - EXPOSED_LISTS

    def saved(self, kept: Mapping[int, Mapping[tuple[int, int], NDArray[np.int64]]]) -> list[list[Any]]:
        """Returns the sums by window and pair in the form of checkpoints."""
        out = []
        for window, sums in sorted(kept.items()):
            rows = np.array(list(sums.values()), np.int64).reshape(-1, self.width)
            out.append([window, [list(key) for key in sums], rows])
        return out

    def fitted(self, rows: NDArray[np.int64], names: Sequence[str]) -> NDArray[np.int64]:
        """Returns a copy of rows from a checkpoint with these `names`, in the current layout."""
        out = np.zeros((len(rows), self.width), np.int64)
        out[:, :GAUC_WIDTH] = rows[:, :GAUC_WIDTH]
        at = GAUC_WIDTH
        for name in names:
            width = GAUC_OF_ITEMS if name == _BY_ITEM else EXPOSED_LISTS if name.startswith(GUARD) else GAUC_WIDTH
            if name in self.names:
                to = self._place_of(name)
                out[:, to : to + width] = rows[:, at : at + width]
            at += width
        return out


NO_LISTS = ListMetrics()


@numba.njit(cache=True, nogil=True)
def _members(
    size: NDArray[np.int64],
    list_of: NDArray[np.int32],
    scores: ScoreList,
    span: tuple[int, int],
    pair_of: NDArray[np.int32],
) -> ListMembers:
    """Groups the scores by list and pair; `span`: the index of the first score that is not the server's, and the number
    of pairs.
    """
    row, series, _ = scores
    first, found = span
    logged_at = np.full(list_of.size, -1, np.int32)
    for k in range(first):
        logged_at[row[k]] = k
    start = np.zeros(size.size * found + 1, np.int64)
    pair = np.full(series.size, -1, np.int32)
    for k in range(first, series.size):
        s = logged_at[row[k]]
        if s >= 0 and list_of[row[k]] >= 0 and series[s] != series[k]:
            pair[k] = pair_of[series[s], series[k]]
            if pair[k] >= 0:
                start[list_of[row[k]] * found + pair[k] + 1] += 1
    for i in range(size.size * found):
        start[i + 1] += start[i]
    member, end = np.empty(start[-1], np.int64), start[:-1].copy()
    for k in range(first, series.size):
        if pair[k] >= 0:
            cell = list_of[row[k]] * found + pair[k]
            member[end[cell]] = k
            end[cell] += 1
    return ListMembers(found, start, member, logged_at)


@numba.njit(cache=True, nogil=True)
def _add_lists(
    places: tuple[NDArray[np.int32], NDArray[np.int8], NDArray[np.int64]],
    members: ListMembers,
    label: NDArray[np.int8],
    scores: ScoreList,
    asked: _Cuts,
    sums: NDArray[np.int64],
) -> None:
    """`places`: window, block and size of the lists, -1 for lists that are too long."""
    window, block, size = places
    found, start, member, logged_at = members
    row, _, p = scores
    cuts, discount, term = asked
    most = 1
    for one in size:
        most = max(most, one)
    key, gain, clicked = np.empty((2, most)), np.empty(most), np.empty(most, np.int8)
    room = click_room(most, cuts.size)
    terms = np.empty((2, TERMS_A_CUT * cuts.size + 2))
    for one in range(size.size):
        n = size[one]
        for i in range(found):
            a = start[one * found + i]
            if start[one * found + i + 1] - a != n:
                continue  # not all of it was scored by both
            for j in range(n):
                k = member[a + j]
                key[0, j], key[1, j] = p[logged_at[row[k]]], p[k]
                gain[j] = clicked[j] = label[row[k]]
            clicks, best_gain = find_clicks(clicked, gain, 0, n, cuts, discount, room)
            if not clicks:
                continue
            for side in range(2):
                stand_clicks(key[side], 0, n, clicks, best_gain, room)
                list_terms(room, clicks, cuts, discount, terms[side])
            for m in range(term.size):
                old, d = terms[0, term[m]], terms[1, term[m]] - terms[0, term[m]]
                out = sums[window[one], i]
                at = GAUC_WIDTH * (1 + m)
                cell = at + np.int64(block[one]) * GAUC_CELLS
                d_fixed = np.int64(np.rint(d * SCALE))
                out[cell + blocks.G_W] += 1
                out[cell + blocks.G_WD] += d_fixed
                out[at + _SCALARS + blocks.G_WD_SQ] += np.int64(np.rint(d * d * SCALE))
                out[at + _SCALARS + blocks.G_W_WD] += d_fixed
                out[at + _SCALARS + blocks.G_W_SQ] += 1
                out[at + _SCALARS + blocks.G_ROWS] += 1
                out[at + _SCALARS + blocks.G_W_SERVER] += np.int64(np.rint(old * SCALE))

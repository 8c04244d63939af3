"""AUCs of users by pair: over impressions that one version served and another scored too, the other's AUC less the
server's; and how impressions of every item move them (`user_items`), where items are known.

Scores are added in batches (`UserScores.add`), and reduced to what an AUC needs: whose they are, and a sort key with
the label. They are combined once all have been added (`add_up`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.user_items import FEW_OF_A_USER, add_by_item, find_places
from streameval.join.scores import Others, Served
from streameval.sketches import blocks
from streameval.sketches.blocks import BLOCKS, GAUC_CELLS, NO_ITEM, SCALE
from streameval.sketches.concordance import concordant_pairs, weighted_pairs
from streameval.sketches.grid import score_key

MOST_OF_A_USER = 4096  # impressions in a window: anyone with more is not a person, and would outweigh all others
_ITEM = 2  # column of the item among the scores
_PAIR_BITS = 7  # of a cell's number
MOST_PAIRS = 1 << _PAIR_BITS
_SCALARS = BLOCKS * GAUC_CELLS
_NO_COPIES = np.empty(0, np.uint32)


class Groups(NamedTuple):
    """Users' impressions in a window (groups), and for each impression its group."""

    window: NDArray[np.int32]  # index of the window
    block: NDArray[np.int8]
    group: NDArray[np.int32]  # by impression
    label: NDArray[np.int8]
    copies: NDArray[np.int64] = np.empty(0, np.int64)  # how often each counts; empty: once each
    item: NDArray[np.int8] = np.empty(0, np.int8)  # the item's block, see `sketches.blocks`; empty: not known of any


def known_items(item: NDArray[np.int8]) -> NDArray[np.int8]:
    """Returns the blocks of items for `Groups`: none if no impression has one."""
    return item if (item != NO_ITEM).any() else item[:0]


class _Some(NamedTuple):
    """Scores of pairs."""

    cell: NDArray[np.uint32]  # the group, and in the lowest `_PAIR_BITS` bits the number of the pair
    both: NDArray[np.uint32]  # [n, 2]: score key << 1 | label, of the server and of the other: adjacent in memory;
    # [n, 3] where items are known: the item's block
    copies: NDArray[np.uint32]  # empty: each counts once


@numba.njit(inline="always")
def _concordant(entries: NDArray[np.uint32], clicks: int) -> int:
    """Returns twice the number of concordant pairs of a user's score << 1 | label entries, clicks first; a tie counts 1
    of 2.
    """
    others = entries.size - clicks
    if min(clicks, others) > FEW_OF_A_USER:
        entries.sort()
        return concordant_pairs(entries, entries.size)[0]
    pairs = np.int64(0)
    for i in range(clicks):
        above, at_least = np.int32(0), np.int32(0)
        strictly = entries[i] ^ np.uint32(1)
        for j in range(clicks, entries.size):
            above += np.int32(strictly > entries[j])
            at_least += np.int32(entries[i] > entries[j])
        pairs += np.int64(above) + np.int64(at_least)
    return int(pairs)


@numba.njit(inline="always")
def _auc_of_copies(entries: NDArray[np.uint32], copies: NDArray[np.uint32], clicks: int, others: int) -> float:
    """Returns the AUC of a user's entries, each counted `copies` times; `clicks` and `others`: totals."""
    order = np.argsort(entries)
    pairs, _, _, _ = weighted_pairs(entries[order], copies[order], entries.size)
    return float(pairs / (2.0 * clicks * others))


@numba.njit(cache=True, nogil=True)
def _most(served: Served) -> int:
    """Returns the highest code of the serving versions; -1: there are no rows."""
    most = np.int32(-1)
    for at in served.at:
        most = max(most, served.series[np.uint64(at)])
    return int(most)


@numba.njit(cache=True, nogil=True)
def _size(others: Others) -> int:
    """Returns the number of scores, or more."""
    indptr, n = others.scores.indptr, 0
    for at in others.at:
        n += indptr[at - others.start + 1] - indptr[at - others.start]
    return n


@numba.njit(cache=True, nogil=True)
def _take(
    by: Groups,
    served: Served,
    others: Others,
    pair_of: NDArray[np.int32],
    pairs: NDArray[np.int32],
    known: tuple[int, int],
    out: _Some,
) -> tuple[int, int]:
    """Appends the other versions' scores of served impressions to the `known` ones; returns the number of scores, and of
    pairs.

    New pairs are numbered as long as `pairs` has room; scores of any more are dropped.
    """
    _, _, group, label, copies, item = by
    weighed, by_item = copies.size > 0, item.size > 0
    servers, served_p, served_at = served
    (indptr, series, p), at, start, first = others
    cell, both, many = out
    n, found = known
    # indices that cannot be negative are unsigned: no time is spent on wrapping them around
    for k in range(at.size):
        shown, kept = np.uint32(first + k), np.uint32(at[k] - start)
        place = np.uint64(served_at[shown])
        if np.isnan(served_p[place]):
            continue
        server, clicked = np.uint32(servers[place]), np.uint32(label[shown])
        mine = np.uint32(score_key(served_p[place]) << 1) | clicked
        where = np.uint32(group[shown]) << np.uint32(_PAIR_BITS)
        for j in range(indptr[kept], indptr[kept + np.uint32(1)]):
            if np.isnan(p[j]):
                continue
            other = np.uint32(series[j])
            pair = pair_of[server, other]
            if pair < 0:
                if server == other or found == len(pairs):
                    continue
                pair = pair_of[server, other] = found
                pairs[found, 0], pairs[found, 1] = server, other
                found += 1
            entry = np.uint32(n)
            cell[entry] = where | np.uint32(pair)
            both[entry, 0], both[entry, 1] = mine, np.uint32(score_key(p[j]) << 1) | clicked
            if by_item:
                both[entry, _ITEM] = np.uint32(item[shown])
            if weighed:
                many[entry] = copies[shown]
            n += 1
    return n, found


@numba.njit(inline="always")
def _place_of(cell: np.uint32, found: int) -> np.uint32:
    """Returns the index of a cell's count: a group's pairs are adjacent, also in memory."""
    return np.uint32((cell >> np.uint32(_PAIR_BITS)) * found + (cell & np.uint32(MOST_PAIRS - 1)))


@numba.njit(cache=True, nogil=True)
def _count(cell: NDArray[np.uint32], found: int, start: NDArray[np.int32]) -> None:
    """Adds the number of scores of each cell at the index after its own."""
    for k in range(cell.size):
        start[np.uint32(_place_of(cell[k], found) + np.uint32(1))] += 1


@numba.njit(cache=True, nogil=True)
def _place(
    some: _Some, found: int, ends: NDArray[np.int32], both: NDArray[np.uint32], many: NDArray[np.uint32]
) -> None:
    """Sorts scores into their cells. `ends`: by cell, where the next non-click goes, from the end, and the next click,
    from the start.
    """
    # one record an impression, with the scores of all versions, took a quarter longer in total; reading what is written to
    # before, to wait for memory once, twice as long
    cell, entries, copies = some
    for k in range(cell.size):
        mine, clicked = _place_of(cell[k], found), entries[k, 0] & np.uint32(1)
        place = np.uint32(ends[mine, clicked] - 1 + np.int32(clicked))
        ends[mine, clicked] += 2 * np.int32(clicked) - 1
        for column in range(entries.shape[1]):
            both[place, column] = entries[k, column]
        if copies.size:
            many[place] = copies[k]


@numba.njit(cache=True, nogil=True)
def _add_up(
    by: Groups,
    found: int,
    start: NDArray[np.int32],
    ends: NDArray[np.int32],
    both: NDArray[np.uint32],
    many: NDArray[np.uint32],
    sums: NDArray[np.int64],
) -> None:
    """Adds rows to sums[window, pair], see `blocks`; a cell's scores are from `start` on, its clicks first, up to
    `ends`.
    """
    window, block = by.window, by.block
    weighed, by_item = many.size > 0, both.shape[1] > _ITEM
    entries, place = np.empty((2, MOST_OF_A_USER), np.uint32), np.empty((2, MOST_OF_A_USER))
    for g in range(window.size):
        for i in range(found):
            a, b = start[g * found + i], start[g * found + i + 1]
            w, clicks = np.int64(b - a), np.int64(ends[g * found + i, 1] - a)
            if w > MOST_OF_A_USER or clicks in (0, w):
                continue
            for j in range(w):
                entries[0, j], entries[1, j] = both[a + j, 0], both[a + j, 1]
            copies, of_clicks, of_others = many[a:b], clicks, w - clicks
            if weighed:
                of_clicks, of_others = np.int64(copies[:clicks].sum()), np.int64(copies[clicks:].sum())
                if of_clicks == 0 or of_others == 0:
                    continue
            if by_item:  # before scores are sorted
                find_places(entries[0, :w], copies, clicks, place[0])
                find_places(entries[1, :w], copies, clicks, place[1])
            if weighed:
                served = _auc_of_copies(entries[0, :w], copies, of_clicks, of_others)
                difference = _auc_of_copies(entries[1, :w], copies, of_clicks, of_others) - served
                w = of_clicks + of_others
            else:
                if by_item:
                    old, new = np.int64(place[0, :clicks].sum()), np.int64(place[1, :clicks].sum())
                else:
                    old, new = _concordant(entries[0, :w], clicks), _concordant(entries[1, :w], clicks)
                pairs_of_user = np.float64(2 * clicks * (w - clicks))
                served, difference = np.float64(old) / pairs_of_user, np.float64(new - old) / pairs_of_user
            wd = w * difference
            out = sums[window[g], i]
            cell = np.int64(block[g]) * GAUC_CELLS
            out[cell + blocks.G_W] += w
            out[cell + blocks.G_WD] += np.int64(np.rint(wd * SCALE))
            out[_SCALARS + blocks.G_WD_SQ] += np.int64(np.rint(wd * wd * SCALE))
            out[_SCALARS + blocks.G_W_WD] += np.int64(np.rint(w * wd * SCALE))
            out[_SCALARS + blocks.G_W_SQ] += w * w
            out[_SCALARS + blocks.G_ROWS] += 1
            out[_SCALARS + blocks.G_W_SERVER] += np.int64(np.rint(w * served * SCALE))
            if by_item:
                add_by_item(place, both[a:b, _ITEM], copies, (clicks, of_clicks, of_others), out)


def _columns(by: Groups) -> int:
    return _ITEM + 1 if by.item.size else _ITEM


class UserScores:
    """The scores of pairs in some groups."""

    def __init__(self) -> None:
        self.pair_of = np.full((0, 0), -1, np.int32)  # [served, other]: numbers of the pairs; -1: none
        self._pairs = np.empty((MOST_PAIRS, 2), np.int32)
        self._found = 0
        self._some: list[_Some] = []

    def add(self, by: Groups, served: Served, others: Iterable[Others]) -> None:
        """Adds impressions' scores; pairs beyond `MOST_PAIRS` are dropped."""
        self._reach(_most(served))
        every = list(others)
        size = sum(map(_size, every))  # in one piece, which the system can back with large pages
        copies = np.empty(size if by.copies.size else 0, np.uint32)
        room, n = _Some(np.empty(size, np.uint32), np.empty((size, _columns(by)), np.uint32), copies), 0
        for some in every:
            self._reach(int(some.scores.series.max(initial=-1)))
            n, self._found = _take(by, served, some, self.pair_of, self._pairs, (n, self._found), room)
        self._some.append(_Some(*(column[:n] for column in room)))

    def _reach(self, code: int) -> None:
        codes = code + 1
        if codes > len(self.pair_of):
            more = np.full((codes, codes), -1, np.int32)
            more[: len(self.pair_of), : len(self.pair_of)] = self.pair_of
            self.pair_of = more

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(series that served, series that scored too), by number."""
        return [(int(served), int(other)) for served, other in self._pairs[: self._found]]

    def add_up(self, by: Groups, sums: NDArray[np.int64]) -> None:
        """Adds the rows of all groups to sums[window, pair]."""
        cells = by.window.size * self._found
        start = np.zeros(cells + 1, np.int32)
        for some in self._some:
            _count(some.cell, self._found, start)
        np.cumsum(start, out=start)
        both = np.empty((int(start[-1]), _columns(by)), np.uint32)
        many = np.empty(len(both), np.uint32) if by.copies.size else _NO_COPIES
        ends = np.stack((start[1:], start[:-1]), axis=1)
        for some in self._some:
            _place(some, self._found, ends, both, many)
        _add_up(by, self._found, start, ends, both, many, sums)

"""Placements, which turn the AUC into a sum over impressions, so that it has a variance by user and by item.

The curves of a version are F0(s), the share of non-clicks that score below s, and S1(s), the share of clicks that score
above s (ties by half). With A = F0(s) for a click and B = S1(s) - AUC for a non-click, mean(A) + mean(B) is the AUC,
and what a user adds to the two sums is the user's contribution to the AUC (the structural components of DeLong et al.
1988; for clusters Obuchowski 1997).

The impressions of a comparison are placed among each other, stratum by stratum: a stratum is an hour, or as many of its
panes as contain enough labels, over all partitions. Its curves come from its own labels, for both versions of a pair on
the same impressions; so the sums of a stratum are exactly its AUC, equal scores differ by 0, and a click rate that
varies by hour has no effect. Until a stratum closes its scores are kept as codes.

A code is a uint64: the pair's other version's bin (11 bits), the server's bin (11), the label (1), the user's block
(6), the item's block (7), the row of the ledger (8), its inverse propensity (11; see `exposure`) or, for a sampled log,
how often it counts, the parts of the server's and of the other version's bin (3 each), which of the two it has (1),
whether it is apart (1; see `ledger`), and whether it is removed again (1). Codes of older checkpoints have no parts,
which reads as the first part.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.exposure import EXPOSED, HEAVIEST, place_exposed
from streameval.events.fields import MAX_WEIGHT
from streameval.sketches import blocks
from streameval.sketches.accumulate import CURVE_BITS
from streameval.sketches.blocks import BLOCKS, NO_ITEM, PAIR_CELLS, PAIR_SCALARS, SCALE
from streameval.sketches.grid import PART_BITS, bin_count

BINS = bin_count(CURVE_BITS) << PART_BITS  # parts of bins, the resolution of placements (docs/metrics.md)

SCALARS = BLOCKS * PAIR_CELLS  # first scalar of a row, of either kind
ITEMS = SCALARS + PAIR_SCALARS  # first cell by item
WIDTH = ITEMS + BLOCKS * PAIR_CELLS

_BIN, _SERVER, _LABEL, _USER, _ITEM, _ROW, _WEIGHT, _SERVER_PART, _PART = 0, 11, 22, 23, 29, 36, 44, 55, 58
_BIN_BITS, _USER_BITS, _ITEM_BITS, _ROW_BITS = 11, 6, 7, 8
_PARTS = (1 << PART_BITS) - 1
_ROWS = 1 << _ROW_BITS
ROW_MASK = np.uint64((_ROWS - 1) << _ROW)
_COPIED = np.uint64(1 << 61)  # the field of the weight holds copies instead
_COPIES_BITS = 11
APART = np.uint64(1 << 62)
OUT = np.uint64(1 << 63)

_AT_ONCE = 256  # scores placed at once: a column at a time, which compilers turn into vector steps
# the columns; the last two: where the curves have the placements, then these
_TIMES, _CLICKED, _IS_APART, _CELL, _OF_SERVER, _OF_OTHER = range(0, 6 * _AT_ONCE, _AT_ONCE)

assert BINS >> PART_BITS <= 1 << _SERVER
assert _PART + PART_BITS <= 61
assert HEAVIEST < 1 << 11
assert MAX_WEIGHT < 1 << _COPIES_BITS
assert blocks.SERIES_CELLS == PAIR_CELLS
assert (blocks.PHI1, blocks.PHI0) == (blocks.PAIR_PHI1, blocks.PAIR_PHI0)

ScoreCodes = NDArray[np.uint64]
# [WIDTH], or twice that: all impressions, then those apart; plus EXPOSED where propensities are known
Row = NDArray[np.int64]


@numba.njit(inline="always")
def code_of(row: int, item: int, user: int, label: int, server: int, other: int) -> np.uint64:
    """Returns a code (see the module); `server` and `other` are parts of bins."""
    high = (np.uint64(row) << np.uint64(_ROW)) | (np.uint64(item) << np.uint64(_ITEM))
    middle = (np.uint64(user) << np.uint64(_USER)) | (np.uint64(label) << np.uint64(_LABEL))
    bins = (np.uint64(server >> PART_BITS) << np.uint64(_SERVER)) | np.uint64(other >> PART_BITS)
    parts = (np.uint64(server & _PARTS) << np.uint64(_SERVER_PART)) | (np.uint64(other & _PARTS) << np.uint64(_PART))
    return high | middle | bins | parts


@numba.njit(inline="always")
def weighted(code: np.uint64, weight: int) -> np.uint64:
    """Returns the code with its inverse propensity added (see `exposure.weight_codes`)."""
    return code | (np.uint64(weight) << np.uint64(_WEIGHT))


@numba.njit(inline="always")
def copied(copies: int) -> np.uint64:
    """Returns the bits to add to the code of an impression that counts `copies` times."""
    return np.uint64(0) if copies == 1 else _COPIED | (np.uint64(copies) << np.uint64(_WEIGHT))


@numba.njit(inline="always")
def times_of(code: np.uint64) -> int:
    """Returns how often the impression counts, negative if it is removed again."""
    copies = 1
    if code & _COPIED:
        copies = _field(code, _WEIGHT, _COPIES_BITS)
    return -copies if code & OUT else copies


@numba.njit(inline="always")
def _field(code: np.uint64, first: int, bits: int) -> int:
    return int((code >> np.uint64(first)) & np.uint64((1 << bits) - 1))


@numba.njit(inline="always")
def _server(code: np.uint64) -> int:
    """Returns the part of a bin that contains the server's score."""
    return (_field(code, _SERVER, _BIN_BITS) << PART_BITS) | _field(code, _SERVER_PART, PART_BITS)


@numba.njit(inline="always")
def _other(code: np.uint64) -> int:
    """Returns the part of a bin that contains the other version's score."""
    return (_field(code, _BIN, _BIN_BITS) << PART_BITS) | _field(code, _PART, PART_BITS)


@numba.njit(inline="always")
def read_code(code: np.uint64) -> tuple[int, int, int, int, int]:
    """Returns (label, block of the user, of the item, the server's part of a bin, the other version's) of a code."""
    return (
        _field(code, _LABEL, 1),
        _field(code, _USER, _USER_BITS),
        _field(code, _ITEM, _ITEM_BITS),
        _server(code),
        _other(code),
    )


def rows_of(codes: ScoreCodes) -> NDArray[np.int64]:
    """Returns the row of every code."""
    return ((codes & ROW_MASK) >> np.uint64(_ROW)).astype(np.int64)


def renumbered(codes: ScoreCodes, row: NDArray[np.int64]) -> ScoreCodes:
    """Returns codes with row r replaced by `row[r]`; codes whose row becomes -1 are dropped."""
    now = row[rows_of(codes)]
    keep = now >= 0
    return (codes[keep] & ~ROW_MASK) | (now[keep].astype(np.uint64) << np.uint64(_ROW))


@numba.njit(cache=True, nogil=True)
def by_rows(codes: ScoreCodes) -> tuple[ScoreCodes, NDArray[np.int64], NDArray[np.int64]]:
    """Returns (codes by row, in order within a row; where each of the 256 rows ends; the number of clicks per row).

    If all codes have the same row, they are returned as they are.
    """
    both = np.zeros(_ROWS, np.int64)  # codes, and above 32 bits clicks: a single sum to wait for
    for code in codes:
        both[_field(code, _ROW, _ROW_BITS)] += 1 + (_field(code, _LABEL, 1) << 32)
    ends, clicks = np.cumsum(both & 0xFFFFFFFF), both >> 32
    if codes.size and both[_field(codes[0], _ROW, _ROW_BITS)] & 0xFFFFFFFF == codes.size:
        return codes, ends, clicks
    place = np.zeros(_ROWS, np.int64)
    place[1:] = ends[:-1]
    out = np.empty_like(codes)
    for code in codes:
        row = _field(code, _ROW, _ROW_BITS)
        out[place[row]] = code
        place[row] += 1
    return out, ends, clicks


@numba.njit(cache=True, nogil=True)
def _decode(some: ScoreCodes, cap: bool, work: NDArray[np.int64]) -> None:
    """Fills the columns of `work` that a code tells; of those of curves, where to look."""
    for j in range(some.size):
        label, user, _, server, other = read_code(some[j])
        apart = np.int64(cap and (some[j] & APART) != 0)
        work[_TIMES + j], work[_CLICKED + j], work[_IS_APART + j] = times_of(some[j]), label, apart
        work[_CELL + j] = apart * WIDTH + user * PAIR_CELLS + blocks.PHI0 - label
        work[_OF_SERVER + j] = label * BINS + server
        work[_OF_OTHER + j] = (2 + label) * BINS + other


@numba.njit(cache=True, nogil=True)
def _add_scalars(n: int, pair: bool, work: NDArray[np.int64], out: Row) -> None:
    """Adds n scores to the scalars of the row, and leaves their placements in `work`."""
    # sums of the server's placements and of squares: over all, over clicks, and over those of both that are apart
    own, own_y, own_a, own_ya = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    sq, sq_y, sq_a, sq_ya = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for j in range(n):
        server, times = work[_OF_SERVER + j], work[_TIMES + j]
        placement = work[_OF_OTHER + j] - server if pair else server
        real = placement / SCALE
        server, square = times * server, times * np.int64(np.rint(real * real * SCALE))
        work[_OF_OTHER + j] = times * placement
        clicked, apart = -work[_CLICKED + j], -work[_IS_APART + j]  # masks
        own, own_y = own + server, own_y + (server & clicked)
        own_a, own_ya = own_a + (server & apart), own_ya + (server & clicked & apart)
        sq, sq_y = sq + square, sq_y + (square & clicked)
        sq_a, sq_ya = sq_a + (square & apart), sq_ya + (square & clicked & apart)
    squares = SCALARS + (blocks.PAIR_PHI0_SQ if pair else blocks.PHI0_SQ)
    _add_by_label(out, squares, sq - sq_a, sq_y - sq_ya)
    if pair:
        _add_by_label(out, SCALARS + blocks.SERVER_PHI0, own - own_a, own_y - own_ya)
    if out.size >= 2 * WIDTH:
        _add_by_label(out, WIDTH + squares, sq_a, sq_ya)
        if pair:
            _add_by_label(out, WIDTH + SCALARS + blocks.SERVER_PHI0, own_a, own_ya)


@numba.njit(inline="always")
def _add_by_label(out: Row, at: int, whole: int, clicks: int) -> None:
    """Adds a sum over clicks to the cell before `at`, and the rest of the whole to that at it."""
    out[at - 1] += clicks
    out[at] += whole - clicks


@numba.njit(cache=True, nogil=True)
def place(codes: ScoreCodes, pair: bool, curves: NDArray[np.int32], out: Row) -> None:
    """Adds the placements of scores to their row of zeros, a pair's or that of a version that served."""
    exposed, cap = pair and out.size % WIDTH == EXPOSED, pair and out.size >= 2 * WIDTH
    work, curve = np.empty(6 * _AT_ONCE, np.int64), curves.reshape(curves.size)
    for begin in range(0, codes.size, _AT_ONCE):
        some = codes[begin : begin + _AT_ONCE]
        _decode(some, cap, work)
        for j in range(some.size):
            server, other = np.uint32(_OF_SERVER + j), np.uint32(_OF_OTHER + j)
            work[server], work[other] = curve[np.uint32(work[server])], curve[np.uint32(work[other])]
        _add_scalars(some.size, pair, work, out)
        for j in range(some.size):
            out[np.uint32(work[_CELL + j])] += work[_OF_OTHER + j]
            item = _field(some[j], _ITEM, 7)
            if item != NO_ITEM:
                user = _field(some[j], _USER, 6)
                out[np.uint32(work[_CELL + j] + ITEMS + (item - user) * PAIR_CELLS)] += work[_OF_OTHER + j]
            if exposed and work[_CLICKED + j]:
                weight = _field(some[j], _WEIGHT, 11)
                if weight:
                    times = work[_TIMES + j]
                    once = work[_OF_OTHER + j] / times / SCALE
                    place_exposed(out, out.size - EXPOSED, _field(some[j], _USER, 6), weight, once, times)
    if cap:  # those apart belong to the sums of all, too
        for i in range(WIDTH):
            out[i] += out[WIDTH + i]

"""What comparisons of versions are made of: sums by block of users, of every version that served and of every pair
that scored the same impressions (see `sketches.blocks`), by pane until somebody looks, then by hour.

A look takes the panes before its end out of the waiting ones (`advance`), so it sees whole panes only. What it sees of them
must not depend on when a batch ended, nor a restart: so a label counts as it was when it was due, and what is late (an
impression behind the watermark, a click after maturity) counts once the pane's correction horizon is over, whenever
it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.columns import Scored
from streameval.counting.references import References, score_bins
from streameval.counting.scoreboard import Labelled
from streameval.events import Codes
from streameval.sketches import blocks
from streameval.sketches.accumulate import log_loss
from streameval.sketches.blocks import BLOCKS, PAIR_CELLS, SCALE, SERIES_CELLS, blocks_of

HOUR = 3_600_000
SCALARS = BLOCKS * PAIR_CELLS  # first scalar of a row, of either kind
WIDTH = SCALARS + blocks.PAIR_SCALARS
MOST_ROWS = 128  # versions that served, and pairs; further ones are not compared, and counted
STRICT = 2.0  # nats: within which the strict mode's differences are kept

# a part of the traffic, of a pair: N by block, D by block, then clicks and the sum of squares of D
PART_N, PART_D = 0, BLOCKS
PART_Y, PART_D_SQ = 2 * BLOCKS, 2 * BLOCKS + 1
PART_WIDTH = 2 * BLOCKS + 2
# and of a version that served
SERVED_N, SERVED_Y, SERVED_P, SERVED_L, SERVED_L_SQ = range(5)

assert SERIES_CELLS == PAIR_CELLS

Key = tuple[int, int]  # (series that served, other series); other -1: the served sums themselves
Part = tuple[int, int, int, int]  # (served, other, dimension, value); the last dimension: bucket of the serving pClick
Matrix = NDArray[np.int64]
Both = tuple[Matrix, Matrix]


@numba.njit(inline="always")
def _fixed(x: float) -> int:
    return int(np.rint(x * SCALE))


@numba.njit(cache=True, nogil=True)
def _add_served(
    rows: NDArray[np.int64],
    served_row: NDArray[np.int32],
    series: NDArray[np.int32],
    p: NDArray[np.float64],
    label: NDArray[np.int8],
    block: NDArray[np.int8],
    bins: NDArray[np.int16],
    curve: NDArray[np.int32],
    sign: int,
    loss: NDArray[np.float64],
    sums: Matrix,
    part: NDArray[np.int32],
    parts: Matrix,
) -> None:
    """Adds impressions to what their server has; leaves their log loss in `loss`."""
    for i in rows:
        r = served_row[i]
        if r < 0:
            continue
        clicked = np.int64(label[i])
        loss[i] = log_loss(p[i], clicked)
        error = abs(p[i] - clicked)
        at = np.int64(block[i]) * SERIES_CELLS
        placement = np.int64(curve[series[i], clicked, bins[i]])
        p_fixed, loss_fixed, loss_sq = _fixed(p[i]), _fixed(loss[i]), _fixed(loss[i] * loss[i])
        sums[r, at + blocks.N] += sign
        sums[r, at + blocks.Y] += sign * clicked
        sums[r, at + blocks.P] += sign * p_fixed
        sums[r, at + blocks.L] += sign * loss_fixed
        sums[r, at + blocks.SQUARED] += sign * _fixed(error * error)
        sums[r, at + blocks.ABSOLUTE] += sign * _fixed(error)
        sums[r, at + blocks.PHI0 - clicked] += sign * placement
        sums[r, SCALARS + blocks.LOSS_SQ] += sign * loss_sq
        sums[r, SCALARS + blocks.PHI0_SQ - clicked] += sign * _fixed((placement / SCALE) ** 2)
        for d in range(part.shape[0]):
            q = part[d, i]
            parts[q, SERVED_N] += sign
            parts[q, SERVED_Y] += sign * clicked
            parts[q, SERVED_P] += sign * p_fixed
            parts[q, SERVED_L] += sign * loss_fixed
            parts[q, SERVED_L_SQ] += sign * loss_sq


@numba.njit(cache=True, nogil=True)
def _add_pairs(
    pair_row: NDArray[np.int32],
    row: NDArray[np.int32],
    served: NDArray[np.int32],
    other: NDArray[np.int32],
    p_served: NDArray[np.float64],
    p: NDArray[np.float64],
    label: NDArray[np.int8],
    block: NDArray[np.int8],
    bins_served: NDArray[np.int16],
    bins: NDArray[np.int16],
    ready: NDArray[np.bool_],
    curve: NDArray[np.int32],
    sign: int,
    loss: NDArray[np.float64],
    sums: Matrix,
    part: NDArray[np.int32],
    parts: Matrix,
) -> None:
    """Adds other versions' scores of impressions to what the pair has."""
    for k in range(row.size):
        r = pair_row[k]
        if r < 0:
            continue
        i = row[k]
        clicked = np.int64(label[i])
        d = log_loss(p[k], clicked) - loss[i]
        strict = min(max(d, -STRICT), STRICT)
        d_fixed, d_sq = _fixed(d), _fixed(d * d)
        at = np.int64(block[i]) * PAIR_CELLS
        sums[r, at + blocks.PAIR_N] += sign
        sums[r, at + blocks.PAIR_Y] += sign * clicked
        sums[r, at + blocks.D] += sign * d_fixed
        sums[r, at + blocks.PAIR_L] += sign * _fixed(loss[i])
        sums[r, at + blocks.PAIR_P] += sign * _fixed(p_served[i])
        sums[r, at + blocks.PAIR_P_OTHER] += sign * _fixed(p[k])
        if ready[served[i]] and ready[other[k]]:
            a, b = curve[served[i], clicked, bins_served[i]], curve[other[k], clicked, bins[k]]
            placement = np.int64(b) - np.int64(a)
            sums[r, at + blocks.PAIR_PHI0 - clicked] += sign * placement
            sums[r, SCALARS + blocks.PAIR_PHI0_SQ - clicked] += sign * _fixed((placement / SCALE) ** 2)
        sums[r, SCALARS + blocks.D_SQ] += sign * d_sq
        sums[r, SCALARS + blocks.D_STRICT] += sign * _fixed(strict)
        sums[r, SCALARS + blocks.D_STRICT_SQ] += sign * _fixed(strict * strict)
        sums[r, SCALARS + blocks.STRICT_CLIPPED] += sign * np.int64(strict != d)
        for j in range(part.shape[0]):
            q = part[j, k]
            parts[q, PART_N + block[i]] += sign
            parts[q, PART_D + block[i]] += sign * d_fixed
            parts[q, PART_Y] += sign * clicked
            parts[q, PART_D_SQ] += sign * d_sq


@numba.njit(cache=True, nogil=True)
def _numbers(
    table: NDArray[np.int32],
    count: int,
    most: int,
    row: NDArray[np.int32],
    value: NDArray[np.int64],
    out: NDArray[np.int32],
    new_row: NDArray[np.int32],
    new_value: NDArray[np.int64],
) -> int:
    """`table[row, value]` of n pairs, giving out the next numbers to new ones; -1: row < 0, or none is left."""
    made = 0
    for i in range(row.size):
        out[i] = -1
        if row[i] < 0:
            continue
        number = table[row[i], value[i]]
        if number == -1 and count + made < most:
            number = np.int32(count + made)
            table[row[i], value[i]] = number
            new_row[made] = row[i]
            new_value[made] = value[i]
            made += 1
        out[i] = number
    return made


@dataclass(frozen=True, slots=True)
class _Unplaced:
    """Impressions (`other` -1) or pairs counted before their curves were final; columns."""

    pane: NDArray[np.int64]
    late: NDArray[np.int8]
    served: NDArray[np.int32]
    other: NDArray[np.int32]
    bins_served: NDArray[np.int16]
    bins: NDArray[np.int16]
    block: NDArray[np.int8]
    label: NDArray[np.int8]
    sign: NDArray[np.int8]

    def columns(self) -> dict[str, NDArray[Any]]:
        """By name."""
        return {name: getattr(self, name) for name in self.__slots__}

    def take(self, on: NDArray[np.bool_]) -> _Unplaced:
        """Some of them."""
        return _Unplaced(**{name: column[on] for name, column in self.columns().items()})


class Ledger:
    """The sums of one partition."""

    def __init__(
        self,
        references: References,
        pane: int,
        horizon: int,
        radix: int,
        dimensions: int,
        edges: Sequence[float],
    ) -> None:
        """`pane` and `horizon` (of corrections) in ms; `radix`: see `Catalog.combine`; `edges`: of the pClick buckets."""
        self._references = references
        self._pane = pane
        self._defer = -(-horizon // pane)  # panes after which what is late counts
        self._radix = radix
        self._dimensions = dimensions
        self._edges = np.array(edges)
        self._values = max(radix, len(edges) + 1)
        self._rows: list[Key] = []
        self._row_of = np.full((0, 1), -1, np.int32)  # [served, other + 1]
        self._pair_parts: list[Part] = []
        self._served_parts: list[Part] = []
        self._part_of = np.full((MOST_ROWS, (dimensions + 1) * self._values), -1, np.int32)
        # by pane, what is late apart; the parts are of pairs and of served versions
        self._waiting: tuple[dict[int, Matrix], dict[int, Matrix]] = ({}, {})
        self._waiting_parts: tuple[dict[int, Both], dict[int, Both]] = ({}, {})
        self._segments: dict[int, Matrix] = {}  # by first pane
        self._parts: dict[int, Both] = {}  # the same, by first pane of the segment
        self._cuts: list[int] = []  # panes at which segments begin besides hours
        self._unplaced: list[_Unplaced] = []  # what has no final curves
        self._curve, self._ready = references.curve.copy(), references.ready.copy()  # by which it was placed
        self._changes = references.changes
        self.untracked = 0  # scores of versions beyond `MOST_ROWS`

    # -- counting ------------------------------------------------------------------------------------------------

    def observe(self, labelled: Labelled, scored: Scored, sign: int) -> None:
        """Adds (or with sign -1 takes out) labelled impressions, in order of time, with all their scores."""
        corrected = labelled.corrected & labelled.fresh
        if bool(labelled.fresh.all()) and not corrected.any():
            self._observe(labelled, scored, sign, late=0)
            return
        due = replace(labelled, label=np.where(corrected, 0, labelled.label).astype(np.int8))
        self._observe(*_rows(due, scored, labelled.fresh), sign, late=0)
        self._observe(*_rows(due, scored, corrected), -sign, late=1)
        self._observe(*_rows(labelled, scored, corrected | ~labelled.fresh), sign, late=1)

    def waiting(self, end: int) -> list[int]:
        """The panes before `end` that wait to be looked at, oldest first; what is late apart."""
        return sorted(pane for pane in self._waiting[0] if pane < end)

    def __len__(self) -> int:
        """How many panes wait, what is late apart."""
        return len(self._waiting[0])

    def _observe(self, labelled: Labelled, scored: Scored, sign: int, late: int) -> None:
        n = labelled.ts.size
        if not n or scored.bounds[1] == 0:  # nothing was served by a version that logged a pClick
            return
        logged = slice(0, scored.bounds[1])
        series = np.full(n, -1, np.int32)  # that served
        series[scored.row[logged]] = scored.series[logged]
        p = np.zeros(n)
        p[scored.row[logged]] = scored.p[logged]
        self._place()
        self._reserve(int(scored.series.max()) + 1)
        bins, block = score_bins(p), blocks_of(labelled.user)
        row, other, p_other = scored.row[logged.stop :], scored.series[logged.stop :], scored.p[logged.stop :]
        bins_other = score_bins(p_other)
        served_row = self._number(series, np.full(n, -1, np.int32))
        served = series[row]
        compared = (other != served) & (served_row[row] >= 0)
        pair_row = self._number(np.where(compared, served, np.int32(-1)), other)
        part, pair_part = self._parts_of(labelled, p, served_row, pair_row, row)
        loss = np.zeros(n)
        pane = labelled.ts // self._pane
        first = np.concatenate(([0], np.flatnonzero(np.diff(pane)) + 1, [n]))
        shifted = [bound - logged.stop for bound in scored.bounds[1:]]
        cuts = [a + np.searchsorted(row[a:b], first) for a, b in pairwise(shifted)]
        curve, ready = self._references.curve, self._references.ready
        for j in range(first.size - 1):
            number = int(pane[first[j]])
            sums = self._matrix(self._waiting[late], number, len(self._rows), WIDTH)
            pair_parts, served_parts = self._part_matrices(self._waiting_parts[late], number)
            here = np.arange(first[j], first[j + 1])
            _add_served(
                here, served_row, series, p, labelled.label, block, bins, curve, sign, loss, sums, part, served_parts
            )
            for cut in cuts:
                some = slice(int(cut[j]), int(cut[j + 1]))
                if some.stop > some.start:
                    _add_pairs(
                        pair_row[some], row[some], series, other[some], p, p_other[some], labelled.label, block, bins,
                        bins_other[some], ready, curve, sign, loss, sums, pair_part[:, some], pair_parts,
                    )  # fmt: skip
        self._hold(pane, late, labelled.label, block, sign, series, bins, served_row, row, other, bins_other, pair_row)

    def cut(self, pane: int) -> None:
        """From this pane on sums are kept apart from those before; it must not have been looked at."""
        if pane not in self._cuts:
            self._cuts = sorted([*self._cuts, pane])

    def segment(self, pane: int) -> int:
        """The first pane of the segment that a pane is in: of its hour, or of the last cut in it."""
        begin = pane * self._pane // HOUR * HOUR
        first = -(-begin // self._pane)
        return max([first, *(cut for cut in self._cuts if cut <= pane)])

    # -- reading -------------------------------------------------------------------------------------------------

    def advance(self, end: int) -> list[tuple[int, dict[Key, NDArray[np.int64]]]]:
        """Takes the panes before `end` into their segments: (segment, sums that it gained by row), oldest first.

        And what was late in panes whose horizon ended before it.
        """
        out = []
        due = [(pane, late) for late in (0, 1) for pane in self._waiting[late] if pane + late * self._defer < end]
        for pane, late in sorted(due):
            gained = self._waiting[late].pop(pane)
            number = self.segment(pane)
            total = self._matrix(self._segments, number, len(gained), WIDTH)
            total[: len(gained)] += gained
            out.append((number, self._by_key(gained)))
            if pane in self._waiting_parts[late]:
                totals = self._part_matrices(self._parts, number)
                for whole, some in zip(totals, self._waiting_parts[late].pop(pane), strict=True):
                    whole[: len(some)] += some
        return out

    def segments(self) -> Iterator[tuple[int, dict[Key, NDArray[np.int64]]]]:
        """Everything that was advanced over: (first pane, sums by row), oldest first."""
        for number in sorted(self._segments):
            yield number, self._by_key(self._segments[number])

    def parts(self, start: int) -> tuple[dict[Part, NDArray[np.int64]], dict[Part, NDArray[np.int64]]]:
        """Sums by part of the traffic, of pairs and of versions that served, over the segments from pane `start` on."""
        out: tuple[dict[Part, NDArray[np.int64]], dict[Part, NDArray[np.int64]]] = ({}, {})
        for number in sorted(self._parts):
            if number < start:
                continue
            names = self._pair_parts, self._served_parts
            for into, keys, matrix in zip(out, names, self._parts[number], strict=True):
                for key, sums in zip(keys, matrix, strict=False):
                    if key in into:
                        into[key] = into[key] + sums
                    elif sums.any():
                        into[key] = sums.copy()
        return out

    def forget_before(self, pane: int) -> None:
        """Lets go of segments that ended before a pane."""
        keep = self.segment(pane)
        for kept in (self._segments, self._parts):
            for number in [n for n in kept if n < keep]:
                del kept[number]
        self._cuts = [cut for cut in self._cuts if cut >= keep]

    def clear(self, series: int) -> None:
        """Forgets a series; its code may be given to another."""
        gone = [i for i, key in enumerate(self._rows) if series in key]
        for i in gone:
            served, other = self._rows[i]
            self._row_of[served, other + 1] = -1
            self._rows[i] = (-2, -2)
            for matrix in self._matrices():
                matrix[i : i + 1] = 0
        for keys, place in ((self._pair_parts, 0), (self._served_parts, 1)):
            for i, key in enumerate(keys):
                if series in key[:2]:
                    keys[i] = (-2, -2, 0, 0)
                    for both in self._both():
                        both[place][i : i + 1] = 0
        self._part_of[gone] = -1
        self._unplaced = [u.take((u.served != series) & (u.other != series)) for u in self._unplaced]

    @property
    def nbytes(self) -> int:
        """Bytes of everything."""
        sums = sum(matrix.nbytes for matrix in self._matrices())
        parts = sum(a.nbytes + b.nbytes for a, b in self._both())
        waiting = sum(column.nbytes for u in self._unplaced for column in u.columns().values())
        return sums + parts + waiting + self._part_of.nbytes

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything, for `restore`."""
        unplaced = _joined(self._unplaced)
        return {
            "rows": [list(key) for key in self._rows],
            "pair_parts": [list(key) for key in self._pair_parts],
            "served_parts": [list(key) for key in self._served_parts],
            "waiting": [
                [late, pane, matrix.copy()] for late in (0, 1) for pane, matrix in sorted(self._waiting[late].items())
            ],
            "segments": [[pane, matrix.copy()] for pane, matrix in sorted(self._segments.items())],
            "waiting_parts": [
                [late, pane, a.copy(), b.copy()]
                for late in (0, 1)
                for pane, (a, b) in sorted(self._waiting_parts[late].items())
            ],
            "parts": [[pane, a.copy(), b.copy()] for pane, (a, b) in sorted(self._parts.items())],
            "cuts": list(self._cuts),
            "unplaced": None if unplaced is None else unplaced.columns(),
            "untracked": self.untracked,
        }

    def restore(self, state: Mapping[str, Any], codes: Codes) -> None:
        """Takes over what `state` gave, into a ledger that is empty."""

        def series(code: int) -> int:
            return int(codes.series[code]) if code >= 0 else code

        def part(key: Sequence[int]) -> Part:
            served, other, dimension, value = key
            if dimension < self._dimensions and served >= 0:
                value = int(codes.values[dimension][value])
            return series(served), series(other), dimension, value

        self._rows = [(series(a), series(b)) for a, b in state["rows"]]
        self._reserve(max((max(key) for key in self._rows), default=-1) + 1)
        for i, (served, other) in enumerate(self._rows):
            if served >= 0:
                self._row_of[served, other + 1] = i
        self._pair_parts = [part(key) for key in state["pair_parts"]]
        self._served_parts = [part(key) for key in state["served_parts"]]
        for keys in (self._pair_parts, self._served_parts):
            for i, (served, other, dimension, value) in enumerate(keys):
                if served >= 0:
                    row = self._row_of[served, other + 1]
                    self._part_of[row, dimension * self._values + value] = i
        for late, pane, matrix in state["waiting"]:
            self._waiting[late][pane] = matrix.copy()
        self._segments = {pane: matrix.copy() for pane, matrix in state["segments"]}
        for late, pane, a, b in state["waiting_parts"]:
            self._waiting_parts[late][pane] = a.copy(), b.copy()
        self._parts = {pane: (a.copy(), b.copy()) for pane, a, b in state["parts"]}
        self._cuts = list(state["cuts"])
        self.untracked = state["untracked"]
        if state["unplaced"] is not None:
            columns = {name: column.copy() for name, column in state["unplaced"].items()}
            for name in ("served", "other"):
                on = columns[name] >= 0
                columns[name][on] = codes.series[columns[name][on]]
            self._unplaced = [_Unplaced(**columns)]
        references = self._references  # restored before
        self._curve, self._ready, self._changes = references.curve.copy(), references.ready.copy(), references.changes

    # -- inside --------------------------------------------------------------------------------------------------

    def _matrices(self) -> Iterator[Matrix]:
        for kept in (*self._waiting, self._segments):
            yield from kept.values()

    def _both(self) -> Iterator[Both]:
        for kept in (*self._waiting_parts, self._parts):
            yield from kept.values()

    def _by_key(self, matrix: Matrix) -> dict[Key, NDArray[np.int64]]:
        return {key: matrix[i] for i, key in enumerate(self._rows[: len(matrix)]) if key[0] >= 0 and matrix[i].any()}

    def _reserve(self, series: int) -> None:
        have = len(self._row_of)
        if series > have:
            table = np.full((series, series + 1), -1, np.int32)
            table[:have, : self._row_of.shape[1]] = self._row_of
            self._row_of = table

    def _number(self, served: NDArray[np.int32], other: NDArray[np.int32]) -> NDArray[np.int32]:
        """The row of every (served, other); -1: none."""
        out, new_row = np.empty(served.size, np.int32), np.empty(MOST_ROWS, np.int32)
        new_value = np.empty(MOST_ROWS, np.int64)
        made = _numbers(
            self._row_of, len(self._rows), MOST_ROWS, served, (other + 1).astype(np.int64), out, new_row, new_value
        )
        self._rows += [(int(new_row[i]), int(new_value[i]) - 1) for i in range(made)]
        if len(self._rows) == MOST_ROWS:
            self.untracked += int(((out < 0) & (served >= 0)).sum())
        return out

    def _parts_of(
        self,
        labelled: Labelled,
        p: NDArray[np.float64],
        served_row: NDArray[np.int32],
        pair_row: NDArray[np.int32],
        row: NDArray[np.int32],
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The parts of the traffic that impressions, and pairs, belong to: int32[dimensions + 1, n]."""
        served = np.empty((self._dimensions + 1, p.size), np.int32)
        pairs = np.empty((self._dimensions + 1, row.size), np.int32)
        for dimension in range(self._dimensions + 1):
            if dimension < self._dimensions:
                value = (labelled.slices // self._radix**dimension) % self._radix
            else:
                value = np.searchsorted(self._edges, p, side="right")
            value = value + dimension * self._values
            self._number_parts(self._served_parts, served_row, value, dimension, served[dimension])
            self._number_parts(self._pair_parts, pair_row, value[row], dimension, pairs[dimension])
        return served, pairs

    def _number_parts(
        self,
        names: list[Part],
        row: NDArray[np.int32],
        value: NDArray[np.int64],
        dimension: int,
        out: NDArray[np.int32],
    ) -> None:
        most = MOST_ROWS * self._values
        new_row, new_value = np.empty(most, np.int32), np.empty(most, np.int64)
        made = _numbers(self._part_of, len(names), 1 << 30, row, value, out, new_row, new_value)
        for i in range(made):
            names.append((*self._rows[int(new_row[i])], dimension, int(new_value[i]) - dimension * self._values))

    def _part_matrices(self, kept: dict[int, Both], number: int) -> Both:
        pairs, served = kept.get(number, (np.zeros((0, PART_WIDTH), np.int64), np.zeros((0, 5), np.int64)))
        pairs, served = _grown(pairs, len(self._pair_parts)), _grown(served, len(self._served_parts))
        kept[number] = pairs, served
        return pairs, served

    @staticmethod
    def _matrix(kept: dict[int, Matrix], number: int, rows: int, width: int) -> Matrix:
        matrix = kept.get(number)
        matrix = np.zeros((rows, width), np.int64) if matrix is None else _grown(matrix, rows)
        kept[number] = matrix
        return matrix

    def _hold(
        self,
        pane: NDArray[np.int64],
        late: int,
        label: NDArray[np.int8],
        block: NDArray[np.int8],
        sign: int,
        series: NDArray[np.int32],
        bins: NDArray[np.int16],
        served_row: NDArray[np.int32],
        row: NDArray[np.int32],
        other: NDArray[np.int32],
        bins_other: NDArray[np.int16],
        pair_row: NDArray[np.int32],
    ) -> None:
        """Keeps what has no final curves, to be placed again."""
        if not self._references.open:
            return
        final = self._references.final
        alone = np.flatnonzero((served_row >= 0) & ~final[series])
        if alone.size:
            signs, nobody = np.full(alone.size, sign, np.int8), np.full(alone.size, -1, np.int32)
            nothing = np.zeros(alone.size, np.int16)
            self._unplaced.append(
                _Unplaced(
                    pane[alone],
                    np.full(alone.size, late, np.int8),
                    series[alone],
                    nobody,
                    bins[alone],
                    nothing,
                    block[alone],
                    label[alone],
                    signs,
                )
            )
        both = np.flatnonzero((pair_row >= 0) & ~(final[series[row]] & final[other]))
        if both.size:
            i, signs = row[both], np.full(both.size, sign, np.int8)
            self._unplaced.append(
                _Unplaced(
                    pane[i],
                    np.full(both.size, late, np.int8),
                    series[i],
                    other[both],
                    bins[i],
                    bins_other[both],
                    block[i],
                    label[i],
                    signs,
                )
            )

    def _place(self) -> None:
        """Adds what changes of the curves make of what was counted before; what has final curves is kept no longer."""
        references = self._references
        if references.changes == self._changes:
            return
        rows = _joined(self._unplaced)
        if rows is not None:
            was, squared_was = _placements(rows, self._curve, self._ready)
            now, squared_now = _placements(rows, references.curve, references.ready)
            number = self._row_of[rows.served, rows.other + 1].astype(np.int64)
            cell = rows.block.astype(np.int64) * PAIR_CELLS + blocks.PHI0 - rows.label
            square = np.where(rows.other < 0, blocks.PHI0_SQ, blocks.PAIR_PHI0_SQ) - rows.label + SCALARS
            for pane, late in np.unique(np.stack((rows.pane, rows.late.astype(np.int64))), axis=1).T.tolist():
                on = (rows.pane == pane) & (rows.late == late)
                sums = self._matrix(self._waiting[late], pane, len(self._rows), WIDTH)
                np.add.at(sums, (number[on], cell[on]), ((now - was) * rows.sign)[on])
                np.add.at(sums, (number[on], square[on]), ((squared_now - squared_was) * rows.sign)[on])
            final = references.final
            self._unplaced = [rows.take(~(final[rows.served] & ((rows.other < 0) | final[rows.other])))]
        self._curve, self._ready, self._changes = references.curve.copy(), references.ready.copy(), references.changes


def _placements(
    rows: _Unplaced, curve: NDArray[np.int32], ready: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(placements, their squares) by these curves, fixed point; 0 where a curve is missing."""
    have = ready.size
    known = (rows.served < have) & (rows.other < have)
    served, other = np.where(known, rows.served, 0), np.where(known, rows.other, 0)
    if not have:
        return np.zeros(rows.pane.size, np.int64), np.zeros(rows.pane.size, np.int64)
    known &= ready[served] & ((rows.other < 0) | ready[other])
    mine = curve[served, rows.label, rows.bins_served].astype(np.int64)
    theirs = curve[other, rows.label, rows.bins].astype(np.int64)
    placement = np.where(known, np.where(rows.other < 0, mine, theirs - mine), 0)
    return placement, np.rint((placement / SCALE) ** 2 * SCALE).astype(np.int64)


def _rows(labelled: Labelled, scored: Scored, on: NDArray[np.bool_]) -> tuple[Labelled, Scored]:
    """Some of the rows, with their scores."""
    some = Labelled(
        labelled.ts[on], labelled.user[on], labelled.slices[on], labelled.label[on], labelled.corrected[on],
        None if labelled.value is None else labelled.value[on], labelled.fresh[on],
    )  # fmt: skip
    kept = on[scored.row]
    place = np.cumsum(on, dtype=np.int32) - np.int32(1)
    count = np.concatenate((np.zeros(1, np.int64), np.cumsum(kept)))
    return some, Scored(
        tuple(count[list(scored.bounds)].tolist()), place[scored.row[kept]], scored.series[kept], scored.p[kept],
        scored.violation[kept],
    )  # fmt: skip


def _grown(matrix: Matrix, rows: int) -> Matrix:
    if len(matrix) >= rows:
        return matrix
    return np.concatenate((matrix, np.zeros((rows - len(matrix), matrix.shape[1]), np.int64)))


def _joined(parts: list[_Unplaced]) -> _Unplaced | None:
    some = [part for part in parts if part.pane.size]
    if not some:
        return None
    return _Unplaced(**{name: np.concatenate([p.columns()[name] for p in some]) for name in some[0].columns()})

"""What comparisons of versions are made of: sums by block of users, of every version that served and of every pair
that scored the same impressions (see `sketches.blocks`), by pane until somebody looks, then by hour.

A look takes the panes before its end out of the waiting ones (`advance`), so it sees whole panes only, whatever the
batches; a correction of an older pane waits for the next look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.columns import Scored
from streameval.counting.ledger_sums import (
    PART_WIDTH,
    SCALARS,
    WIDTH,
    Matrix,
    add_pairs,
    add_served,
    new_parts,
    new_rows,
    not_final,
    values_of,
)
from streameval.counting.measured import Measured
from streameval.counting.references import References
from streameval.counting.scoreboard import Labelled
from streameval.events import Codes
from streameval.sketches import blocks
from streameval.sketches.blocks import PAIR_CELLS, SCALE

HOUR = 3_600_000
MOST_ROWS = 128  # versions that served, and pairs; further ones are not compared, and counted
_PARTS_AT_ONCE = 1024  # that are numbered in one go

Key = tuple[int, int]  # (series that served, other series); other -1: the served sums themselves
Part = tuple[int, int, int, int]  # (served, other, dimension, value); the last dimension: bucket of the serving pClick


@dataclass(frozen=True, slots=True)
class _Unplaced:
    """Impressions (`other` -1) or pairs counted before their curves were final; columns."""

    pane: NDArray[np.int64]
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

    def __init__(self, references: References, pane: int, radix: int, dimensions: int, edges: Sequence[float]) -> None:
        """`pane` in ms; `radix`: see `Catalog.combine`; `edges`: inner edges of the pClick buckets."""
        self._references = references
        self._pane = pane
        self._radix = radix
        self._dimensions = dimensions
        self._edges = np.array(edges)
        self._values = max(radix, len(edges) + 1)
        self._rows: list[Key] = []
        self._row_of = np.full((0, 1), -1, np.int32)  # [served, other + 1]
        self._pair_parts: list[Part] = []
        self._served_parts: list[Part] = []
        self._part_of = np.full((MOST_ROWS, (dimensions + 1) * self._values), -1, np.int32)
        self.waiting: dict[int, Matrix] = {}  # by pane
        self._segments: dict[int, Matrix] = {}  # by first pane
        self._waiting_parts: dict[int, tuple[Matrix, Matrix]] = {}  # of pairs and of served versions, by pane
        self._parts: dict[int, tuple[Matrix, Matrix]] = {}  # the same, by first pane of the segment
        self._cuts: list[int] = []  # panes at which segments begin besides hours
        self._unplaced: list[_Unplaced] = []  # what has no final curves
        self._curve, self._ready = references.curve.copy(), references.ready.copy()  # by which it was placed
        self._changes = references.changes
        self.untracked = 0  # scores of versions beyond `MOST_ROWS`

    # -- counting ------------------------------------------------------------------------------------------------

    def observe(self, labelled: Labelled, scored: Scored, sign: int, measured: Measured | None = None) -> None:
        """Adds (or with sign -1 takes out) labelled impressions, in order of time, with all their scores.

        `measured`: what `Measured.of` gives of them, if the caller has it.
        """
        n, first = labelled.ts.size, scored.bounds[1]
        if not n or not first:  # nothing was served by a version that logged a pClick
            return
        known = measured or Measured.of(labelled.ts, labelled.user, labelled.label, scored, self._pane)
        if first == n:
            logged_at = scored.row[:first]  # 0 .. n - 1
        else:
            logged_at = np.full(n, -1, np.int32)
            logged_at[scored.row[:first]] = np.arange(first, dtype=np.int32)
        self._place()
        self._reserve(int(scored.series.max()) + 1)
        value = np.empty((n, self._dimensions + 1), np.int32)
        values_of(labelled.slices, logged_at, scored.p, self._edges, self._radix, self._values, value)
        missed = np.zeros(1, np.int64)
        for j, pane in enumerate(known.panes):
            for giver, cut in enumerate(known.cuts):
                start, end = int(cut[j]), int(cut[j + 1])
                while start < end:
                    sums = self._matrix(self.waiting, pane, len(self._rows), WIDTH)
                    pair_parts, served_parts = self._part_matrices(self._waiting_parts, pane)
                    given = scored.row, scored.series, scored.p, known.loss, known.bin
                    labels = labelled.label, known.block, value
                    tables = self._row_of, self._part_of, len(self._rows) == MOST_ROWS, self._references.curve
                    if giver == 0:
                        start = add_served(
                            start, end, *given, *labels, *tables, sign, sums, served_parts, missed
                        )  # fmt: skip
                    else:
                        start = add_pairs(
                            start, end, *given, logged_at, *labels, *tables, self._references.ready, sign, sums,
                            pair_parts, missed,
                        )  # fmt: skip
                    if start < end:
                        self._number(start, end, giver > 0, scored, logged_at, value)
        self.untracked += int(missed[0])
        self._hold(labelled, scored, known, logged_at, sign)

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
        """Takes the panes before `end` into their segments: (segment, sums that it gained by row), oldest first."""
        out = []
        for pane in sorted(pane for pane in self.waiting if pane < end):
            gained = self.waiting.pop(pane)
            number = self.segment(pane)
            total = self._matrix(self._segments, number, len(gained), WIDTH)
            total[: len(gained)] += gained
            out.append((number, self._by_key(gained)))
            if pane in self._waiting_parts:
                totals = self._part_matrices(self._parts, number)
                for whole, some in zip(totals, self._waiting_parts.pop(pane), strict=True):
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
            for matrix in (*self.waiting.values(), *self._segments.values()):
                matrix[i : i + 1] = 0
        for keys, place in ((self._pair_parts, 0), (self._served_parts, 1)):
            for i, key in enumerate(keys):
                if series in key[:2]:
                    keys[i] = (-2, -2, 0, 0)
                    for both in (*self._waiting_parts.values(), *self._parts.values()):
                        both[place][i : i + 1] = 0
        self._part_of[gone] = -1
        self._unplaced = [u.take((u.served != series) & (u.other != series)) for u in self._unplaced]

    @property
    def nbytes(self) -> int:
        """Bytes of everything."""
        sums = sum(m.nbytes for m in (*self.waiting.values(), *self._segments.values()))
        parts = sum(a.nbytes + b.nbytes for a, b in (*self._waiting_parts.values(), *self._parts.values()))
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
            "waiting": [[pane, matrix.copy()] for pane, matrix in sorted(self.waiting.items())],
            "segments": [[pane, matrix.copy()] for pane, matrix in sorted(self._segments.items())],
            "waiting_parts": [[pane, a.copy(), b.copy()] for pane, (a, b) in sorted(self._waiting_parts.items())],
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
        self.waiting = {pane: matrix.copy() for pane, matrix in state["waiting"]}
        self._segments = {pane: matrix.copy() for pane, matrix in state["segments"]}
        self._waiting_parts = {pane: (a.copy(), b.copy()) for pane, a, b in state["waiting_parts"]}
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

    def _by_key(self, matrix: Matrix) -> dict[Key, NDArray[np.int64]]:
        return {key: matrix[i] for i, key in enumerate(self._rows[: len(matrix)]) if key[0] >= 0 and matrix[i].any()}

    def _reserve(self, series: int) -> None:
        have = len(self._row_of)
        if series > have:
            table = np.full((series, series + 1), -1, np.int32)
            table[:have, : self._row_of.shape[1]] = self._row_of
            self._row_of = table

    def _number(
        self,
        start: int,
        end: int,
        pairs: bool,
        scored: Scored,
        logged_at: NDArray[np.int32],
        value: NDArray[np.int32],
    ) -> None:
        """Numbers the rows that a batch brings, and the parts that scores start .. end - 1 do."""
        given = scored.row, scored.series, logged_at
        rows = np.empty((MOST_ROWS, 2), np.int64)
        made = new_rows(scored.bounds[1], *given, self._row_of, len(self._rows), MOST_ROWS, rows)
        self._rows += [(served, other - 1) for served, other in rows[:made].tolist()]
        names = self._pair_parts if pairs else self._served_parts
        parts = np.empty((_PARTS_AT_ONCE, 2), np.int64)
        made = new_parts(start, end, pairs, *given, value, self._row_of, self._part_of, len(names), parts)
        names += [(*self._rows[row], *divmod(column, self._values)) for row, column in parts[:made].tolist()]

    def _part_matrices(self, kept: dict[int, tuple[Matrix, Matrix]], number: int) -> tuple[Matrix, Matrix]:
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
        self, labelled: Labelled, scored: Scored, known: Measured, logged_at: NDArray[np.int32], sign: int
    ) -> None:
        """Keeps what has no final curves, to be placed again."""
        if not self._references.open:
            return
        on = np.empty(scored.series.size, np.int64)
        alone, n = not_final(
            scored.bounds[1], scored.row, scored.series, logged_at, self._row_of, self._references.final, on
        )
        for k, nobody in ((on[:alone], True), (on[alone:n], False)):
            if k.size:
                i = scored.row[k]
                served = logged_at[i]
                self._unplaced.append(
                    _Unplaced(
                        labelled.ts[i] // self._pane, scored.series[served],
                        np.full(k.size, -1, np.int32) if nobody else scored.series[k], known.bin[served],
                        np.zeros(k.size, np.int16) if nobody else known.bin[k], known.block[i], labelled.label[i],
                        np.full(k.size, sign, np.int8),
                    )
                )  # fmt: skip

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
            for pane in np.unique(rows.pane).tolist():
                on = rows.pane == pane
                sums = self._matrix(self.waiting, pane, len(self._rows), WIDTH)
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


def _grown(matrix: Matrix, rows: int) -> Matrix:
    if len(matrix) >= rows:
        return matrix
    return np.concatenate((matrix, np.zeros((rows - len(matrix), matrix.shape[1]), np.int64)))


def _joined(parts: list[_Unplaced]) -> _Unplaced | None:
    some = [part for part in parts if part.pane.size]
    if not some:
        return None
    return _Unplaced(**{name: np.concatenate([p.columns()[name] for p in some]) for name in some[0].columns()})

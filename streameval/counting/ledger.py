"""What comparisons of versions are made of: sums by block of users, of every version that served and of every pair
that scored the same impressions (see `sketches.blocks`), by pane until somebody looks, then by hour.

A look takes the panes before its end out of the waiting ones (`advance`), so it sees whole panes only. What it sees of them
must not depend on when a batch ended, nor a restart: so a label counts as it was when it was due, and what is late (an
impression behind the watermark, a click after maturity) counts once the pane's correction horizon is over, whenever
it came. What the AUC needs is placed later, by all partitions' labels (`placements`, `strata`): until then the scores are
kept as codes.

With a cap, a pair's row has the same sums once more behind those of all: of what is *apart*, that is beyond a user's first so many
of the day, or late, or put off. All less apart are the sums under the cap; so they cost what heavy users have, and no correction
touches them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.columns import Scored
from streameval.counting.due import DuePanes
from streameval.counting.ledger_sums import (
    LEVEL_WIDTH,
    PART_WIDTH,
    SCALARS,
    SERVED_WIDTH,
    WIDTH,
    Matrix,
    add_pairs,
    add_served,
    new_parts,
    new_rows,
    values_of,
)
from streameval.counting.measured import Measured
from streameval.counting.open_scores import OpenScores, used_rows
from streameval.counting.placements import APART, OUT, place, renumbered
from streameval.counting.placements import Codes as ScoreCodes
from streameval.counting.scoreboard import Labelled
from streameval.counting.user_cap import UserCap, in_pairs
from streameval.events import Codes
from streameval.sketches.blocks import NO_ITEM, SERIES_CELLS, N, Y

HOUR = 3_600_000
MOST_ROWS = 128  # versions that served, and pairs; further ones are not compared, and counted
MANY_PANES = 256  # that wait to be looked at
MANY_CODES = 1 << 22  # scores that do
_PARTS_AT_ONCE = 1024  # that are numbered in one go

Key = tuple[int, int]  # (series that served, other series); other -1: the served sums themselves
Part = tuple[int, int, int, int]  # (served, other, dimension, value); the last dimension: bucket of the serving pClick
Value = tuple[int, int]  # (dimension, value) of a part
ServedSums = tuple[list[Value], dict[int, Matrix]]  # K values, and their sums [K, width] by segment
PAIRS, SERVED, LEVELS = range(3)  # kinds of parts
_WIDTHS = (PART_WIDTH, SERVED_WIDTH, LEVEL_WIDTH)
Parts = tuple[Matrix, Matrix, Matrix]  # of the three kinds


class Ledger:
    """The sums of one partition."""

    def __init__(
        self,
        pane: int,
        horizon: int,
        radix: int,
        dimensions: int,
        edges: Sequence[float],
        user_cap: int = 0,
    ) -> None:
        """`pane` and `horizon` (of corrections) in ms; `radix`: see `Catalog.combine`; `edges`: of the pClick buckets; `user_cap`:
        impressions of a user and day in the sums under the cap, 0 to 255 (0: there are none).
        """
        self._pane = pane
        self._radix = radix
        self._dimensions = dimensions
        self._edges = np.array(edges)
        self._values = max(radix, len(edges) + 1)
        self._cap = UserCap(user_cap) if user_cap else None
        self.width = 2 * WIDTH if user_cap else WIDTH  # of a row
        self._rows: list[Key] = []
        self._row_of = np.full((0, 1), -1, np.int32)  # [served, other + 1]
        self._part_names: tuple[list[Part], list[Part], list[Part]] = ([], [], [])  # of the three kinds
        self._part_of = np.full((MOST_ROWS, (dimensions + 1) * self._values), -1, np.int32)
        self._level_of = np.full((MOST_ROWS, len(edges) + 1), -1, np.int32)  # [row of what was served, bucket]
        defer = -(-horizon // pane)  # panes after which what is late counts
        self._due = DuePanes(defer, lambda pane: self.end_of(self.segment(pane)))
        # by pane, what is late apart
        self._waiting: tuple[dict[int, Matrix], dict[int, Matrix]] = ({}, {})
        self._waiting_parts: tuple[dict[int, Parts], dict[int, Parts]] = ({}, {})
        self._waiting_codes: tuple[dict[int, list[ScoreCodes]], dict[int, list[ScoreCodes]]] = ({}, {})
        self._segments: dict[int, Matrix] = {}  # by first pane
        self.open = OpenScores()  # of panes that were looked at, to be placed with their stratum
        self._parts: dict[int, Parts] = {}  # the same, by first pane of the segment
        self._cuts: list[int] = []  # panes at which segments begin besides hours
        self._codes_waiting = 0
        self.untracked = 0  # scores of versions beyond `MOST_ROWS`

    # -- counting ------------------------------------------------------------------------------------------------

    def observe(self, labelled: Labelled, scored: Scored, sign: int, measured: Measured | None = None) -> None:
        """Adds (or with sign -1 takes out) labelled impressions, in order of time, with all their scores.

        `measured`: what `Measured.of` gives of them, if the caller has it.
        """
        corrected = labelled.corrected & labelled.fresh
        if bool(labelled.fresh.all()) and not corrected.any():
            self._observe(labelled, scored, sign, 0, measured)
            return
        due = replace(labelled, label=np.where(corrected, 0, labelled.label).astype(np.int8))
        self._observe(*_rows(due, scored, labelled.fresh), sign, late=0)
        self._observe(*_rows(due, scored, corrected), -sign, late=1)
        self._observe(*_rows(labelled, scored, corrected | ~labelled.fresh), sign, late=1)

    def waiting(self, end: int, but: Collection[int] = (), start: int = 0) -> list[int]:
        """The panes from `start`, before `end`, `but` for some, that wait to be looked at, oldest first.

        What is late apart, and what a look has put off.
        """
        return self._due.waiting(start, end, but)

    def served(self, pane: int) -> tuple[int, int]:
        """(impressions, clicks) on time of all versions that served in a pane that waits."""
        matrix = self._waiting[0].get(pane)
        if matrix is None:
            return 0, 0
        rows = [i for i, (served, other) in enumerate(self._rows[: len(matrix)]) if served >= 0 and other < 0]
        some = matrix[rows, :SCALARS]
        return int(some[:, N::SERIES_CELLS].sum()), int(some[:, Y::SERIES_CELLS].sum())

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be looked at that it should not wait for the next snapshot."""
        if len(self._waiting[0]) > MANY_PANES:
            return True
        return self._codes_waiting > MANY_CODES

    def _observe(
        self, labelled: Labelled, scored: Scored, sign: int, late: int, measured: Measured | None = None
    ) -> None:
        n, first = labelled.ts.size, scored.bounds[1]
        if not n or not first:  # nothing was served by a version that logged a pClick
            return
        known = measured or Measured.of(labelled.ts, labelled.user, labelled.label, scored, self._pane)
        if first == n:
            logged_at = scored.row[:first]  # 0 .. n - 1
        else:
            logged_at = np.full(n, -1, np.int32)
            logged_at[scored.row[:first]] = np.arange(first, dtype=np.int32)
        self._reserve(int(scored.series.max()) + 1)
        value = np.empty((n, self._dimensions + 1), np.int32)
        values_of(labelled.slices, logged_at, scored.p, self._edges, self._radix, self._values, value)
        item = np.full(n, NO_ITEM, np.int8) if labelled.item is None else labelled.item
        apart = np.full(n, self._cap is not None and late > 0)
        others = scored.row[first:]
        if self._cap is not None and not late and sign > 0 and others.size:  # the cap is of impressions of pairs
            apart = self._cap.beyond(labelled.user, labelled.ts, in_pairs(others, logged_at))
        missed, coded = np.zeros(1, np.int64), np.zeros(1, np.int64)
        for j, pane in enumerate(known.panes):
            codes = np.empty(sum(int(cut[j + 1] - cut[j]) for cut in known.cuts), np.uint64)
            coded[0] = 0
            for giver, cut in enumerate(known.cuts):
                start, end = int(cut[j]), int(cut[j + 1])
                while start < end:
                    if pane not in self._waiting[late]:
                        self._due.add(pane, late)
                    sums = self._matrix(self._waiting[late], pane, len(self._rows), self.width)
                    parts = self._part_matrices(self._waiting_parts[late], pane)
                    given = scored.row, scored.series, scored.p, known.loss, known.bin
                    labels = labelled.label, known.block, item, value
                    tables = self._row_of, self._part_of, len(self._rows) == MOST_ROWS
                    out = sign, codes, coded, sums
                    if giver == 0:
                        levels = self._dimensions * self._values, self._level_of, parts[LEVELS]
                        start = add_served(start, end, *given, *labels, *tables, *out, parts[SERVED], missed, *levels)
                    else:
                        pairs = parts[PAIRS], missed, apart
                        start = add_pairs(start, end, *given, logged_at, *labels, *tables, *out, *pairs)
                    if start < end:
                        self._number(start, end, giver > 0, scored, logged_at, value)
            made = codes[: coded[0]] if sign > 0 else codes[: coded[0]] | OUT
            if made.size:
                self._waiting_codes[late].setdefault(pane, []).append(made)
                self._codes_waiting += made.size
        self.untracked += int(missed[0])

    def cut(self, pane: int) -> None:
        """From this pane on sums are kept apart from those before; it must not have been looked at."""
        if pane not in self._cuts:
            self._cuts = sorted([*self._cuts, pane])
            self._due.cut()

    def segment(self, pane: int) -> int:
        """The first pane of the segment that a pane is in: of its hour, or of the last cut in it."""
        begin = pane * self._pane // HOUR * HOUR
        first = -(-begin // self._pane)
        return max([first, *(cut for cut in self._cuts if cut <= pane)])

    def end_of(self, segment: int) -> int:
        """The first pane behind a segment."""
        end = -(-(segment * self._pane // HOUR + 1) * HOUR // self._pane)
        return min([end, *(cut for cut in self._cuts if segment < cut)])

    # -- reading -------------------------------------------------------------------------------------------------

    def advance(self, end: int, put_off: Collection[int] = ()) -> list[tuple[int, dict[Key, NDArray[np.int64]]]]:
        """Takes the panes before `end` into their segments: (segment, sums that it gained by row), oldest first.

        And what was late in panes whose horizon ended before it; panes that were `put_off` only then, as one with the rest
        of their segment, and apart.
        """
        out = []
        for pane, late in self._due.take(end, put_off):
            gained = self._waiting[late].pop(pane)
            number = self.segment(pane)
            leaves = not late and pane in put_off
            if leaves and self._cap is not None:
                self._set_apart(gained)
            for codes in self._waiting_codes[late].pop(pane, ()):
                self._codes_waiting -= codes.size
                if leaves:
                    np.bitwise_or(codes, APART, out=codes)
                self.open.add(pane, codes)
            total = self._matrix(self._segments, number, len(gained), self.width)
            total[: len(gained)] += gained
            out.append((number, self._by_key(gained)))
            if pane in self._waiting_parts[late]:
                totals = self._part_matrices(self._parts, number)
                for whole, some in zip(totals, self._waiting_parts[late].pop(pane), strict=True):
                    whole[: len(some)] += some
        return out

    def key_of(self, row: int) -> Key:
        """What a row is of."""
        return self._rows[row]

    def place(self, segment: int, row: int, codes: ScoreCodes, curves: NDArray[np.int32]) -> NDArray[np.int64]:
        """Places scores by the curves of their stratum; returns what their row has gained, int64[width]."""
        gained = np.zeros(self.width, np.int64)
        place(codes, self._rows[row][1] >= 0, curves, gained)
        total = self._matrix(self._segments, segment, row + 1, self.width)
        total[row] += gained
        return gained

    def segments(self) -> Iterator[tuple[int, dict[Key, NDArray[np.int64]]]]:
        """Everything that was advanced over: (first pane, sums by row), oldest first."""
        for number in sorted(self._segments):
            yield number, self._by_key(self._segments[number])

    def parts(self, kind: int, start: int) -> dict[Part, NDArray[np.int64]]:
        """Sums by part of the traffic, of one kind, over the segments from pane `start` on."""
        out: dict[Part, NDArray[np.int64]] = {}
        for number in sorted(self._parts):
            if number < start:
                continue
            for key, sums in zip(self._part_names[kind], self._parts[number][kind], strict=False):
                if key in out:
                    out[key] = out[key] + sums
                elif sums.any():
                    out[key] = sums.copy()
        return out

    def pair_parts(self, served: int, other: int, start: int, end: int) -> tuple[list[Value], Matrix]:
        """(values, sums int64[K, PART_WIDTH]) of a pair by part of the traffic, over the segments from pane `start`, before `end`."""
        values, segments = self._parts_of(PAIRS, served, other, start, end)
        out = np.zeros((len(values), PART_WIDTH), np.int64)
        for _, sums in segments:
            out += sums
        return values, out

    def served_parts(self, served: int, start: int, end: int) -> ServedSums:
        """(values, int64[K, SERVED_WIDTH] by segment) of what a version served, as `pair_parts`."""
        values, segments = self._parts_of(SERVED, served, -1, start, end)
        return values, dict(segments)

    def levels(self, served: int, start: int, end: int) -> ServedSums:
        """(values, int64[K, LEVEL_WIDTH] by segment) of what a version served by bucket of its pClick, as `pair_parts`."""
        values, segments = self._parts_of(LEVELS, served, -1, start, end)
        return values, dict(segments)

    def _parts_of(
        self, kind: int, served: int, other: int, start: int, end: int
    ) -> tuple[list[Value], Iterator[tuple[int, Matrix]]]:
        names = self._part_names[kind]
        at = np.array([i for i, key in enumerate(names) if key[:2] == (served, other)], np.int64)

        def segments() -> Iterator[tuple[int, Matrix]]:
            for number, parts in self._parts.items():
                if start <= number < end:
                    have = int(np.searchsorted(at, len(parts[kind])))
                    out = np.zeros((at.size, _WIDTHS[kind]), np.int64)
                    out[:have] = parts[kind][at[:have]]
                    yield number, out

        return [names[i][2:] for i in at.tolist()], segments()

    def forget_before(self, pane: int) -> None:
        """Lets go of segments that ended before a pane."""
        keep = self.segment(pane)
        for kept in (self._segments, self._parts):
            for number in [n for n in kept if n < keep]:
                del kept[number]
        if self._cuts and self._cuts[0] < keep:
            self._cuts = [cut for cut in self._cuts if cut >= keep]
            self._due.cut()
        if len(self._rows) > MOST_ROWS * 3 // 4:
            self._make_room()

    def clear(self, series: int) -> None:
        """Forgets a series; its code may be given to another."""
        gone = [i for i, key in enumerate(self._rows) if series in key]
        for i in gone:
            served, other = self._rows[i]
            self._row_of[served, other + 1] = -1
            self._rows[i] = (-2, -2)
            for matrix in self._matrices():
                matrix[i : i + 1] = 0
        if gone:
            row = np.arange(len(self._rows))
            row[gone] = -1
            self._renumber_codes(row)
        for kind, names in enumerate(self._part_names):
            for i, name in enumerate(names):
                if series in name[:2]:
                    names[i] = (-2, -2, 0, 0)
                    for parts in self._all_parts():
                        parts[kind][i : i + 1] = 0
        self._part_of[gone] = -1
        self._level_of[gone] = -1

    @property
    def nbytes(self) -> int:
        """Bytes of everything."""
        sums = sum(matrix.nbytes for matrix in self._matrices())
        parts = sum(matrix.nbytes for parts in self._all_parts() for matrix in parts)
        codes = 8 * self._codes_waiting + self.open.nbytes
        users = 0 if self._cap is None else self._cap.nbytes
        return sums + parts + codes + users + self._part_of.nbytes + self._level_of.nbytes

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything, for `restore`."""
        return {
            "rows": [list(key) for key in self._rows],
            "part_names": [[list(key) for key in names] for names in self._part_names],
            "waiting": [
                [late, pane, matrix.copy()] for late in (0, 1) for pane, matrix in sorted(self._waiting[late].items())
            ],
            "waiting_codes": [
                [late, pane, np.concatenate(parts)]
                for late in (0, 1)
                for pane, parts in sorted(self._waiting_codes[late].items())
            ],
            "open": self.open.state(),
            "segments": [[pane, matrix.copy()] for pane, matrix in sorted(self._segments.items())],
            "waiting_parts": [
                [late, pane, *(matrix.copy() for matrix in parts)]
                for late in (0, 1)
                for pane, parts in sorted(self._waiting_parts[late].items())
            ],
            "parts": [[pane, *(matrix.copy() for matrix in parts)] for pane, parts in sorted(self._parts.items())],
            "cuts": list(self._cuts),
            "untracked": self.untracked,
            "user_cap": None if self._cap is None else self._cap.state(),
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
        for names, given in zip(self._part_names, state["part_names"], strict=True):
            names[:] = [part(key) for key in given]
        self._enter()
        for late, pane, matrix in state["waiting"]:
            self._waiting[late][pane] = self._fitted(matrix)
            self._due.add(pane, late)
        for late, pane, some in state["waiting_codes"]:
            self._waiting_codes[late][pane] = [some.copy()]
            self._codes_waiting += some.size
        self.open = OpenScores.restore(state["open"])
        self._segments = {pane: self._fitted(matrix) for pane, matrix in state["segments"]}
        for late, pane, a, b, c in state["waiting_parts"]:
            self._waiting_parts[late][pane] = a.copy(), b.copy(), c.copy()
        self._parts = {pane: (a.copy(), b.copy(), c.copy()) for pane, a, b, c in state["parts"]}
        self._cuts = list(state["cuts"])
        self.untracked = state["untracked"]
        if self._cap is not None and state.get("user_cap") is not None:
            self._cap.restore(state["user_cap"])

    # -- inside --------------------------------------------------------------------------------------------------

    def _set_apart(self, matrix: Matrix) -> None:
        """Takes everything of pairs out of the sums under the cap."""
        pairs = [i for i, (_, other) in enumerate(self._rows[: len(matrix)]) if other >= 0]
        matrix[pairs, WIDTH:] = matrix[pairs, :WIDTH]

    def _fitted(self, matrix: Matrix) -> Matrix:
        """A copy as wide as rows are here: there was a cap, or there is one now."""
        out = np.zeros((len(matrix), self.width), np.int64)
        width = min(self.width, matrix.shape[1])
        out[:, :width] = matrix[:, :width]
        return out

    def _matrices(self) -> Iterator[Matrix]:
        for kept in (*self._waiting, self._segments):
            yield from kept.values()

    def _all_parts(self) -> Iterator[Parts]:
        for kept in (*self._waiting_parts, self._parts):
            yield from kept.values()

    def _make_room(self) -> None:
        """Takes the numbers of rows and parts back that nothing is kept of."""
        coded = used_rows(self._waiting_codes[0]) | used_rows(self._waiting_codes[1])
        coded |= set(self.open.rows())
        rows = [i for i, key in enumerate(self._rows) if key[0] >= 0 and (i in coded or _is_used(self._matrices(), i))]
        if len(rows) == len(self._rows):
            return
        code = np.full(len(self._rows), -1, np.int64)
        code[rows] = np.arange(len(rows))
        self._renumber_codes(code)
        names = [self._rows[i] for i in rows]
        kept = []
        for part_names in self._part_names:
            kept.append([i for i, name in enumerate(part_names) if name[:2] in names])
            part_names[:] = [part_names[i] for i in kept[-1]]
        for held in (*self._waiting, self._segments):
            for number, matrix in held.items():
                held[number] = matrix[[i for i in rows if i < len(matrix)]]
        for by_pane in (*self._waiting_parts, self._parts):
            for number, parts in by_pane.items():
                a, b, c = (
                    matrix[[i for i in some if i < len(matrix)]] for matrix, some in zip(parts, kept, strict=True)
                )
                by_pane[number] = a, b, c
        self._rows = names
        self._row_of[:] = -1
        self._part_of[:] = -1
        self._level_of[:] = -1
        self._enter()

    def _renumber_codes(self, row: NDArray[np.int64]) -> None:
        """Row r is `row[r]` from now on; -1: its scores are forgotten."""
        self._codes_waiting = 0
        for waiting in self._waiting_codes:
            for pane, parts in waiting.items():
                waiting[pane] = [renumbered(codes, row) for codes in parts]
                self._codes_waiting += sum(codes.size for codes in waiting[pane])
        self.open.renumber(row)

    def _enter(self) -> None:
        """Fills the tables of numbers."""
        for i, (served, other) in enumerate(self._rows):
            if served >= 0:
                self._row_of[served, other + 1] = i
        for kind, part_names in enumerate(self._part_names):
            for i, (served, other, dimension, value) in enumerate(part_names):
                if served < 0:
                    continue
                row = self._row_of[served, other + 1]
                if kind == LEVELS:
                    self._level_of[row, value] = i
                else:
                    self._part_of[row, dimension * self._values + value] = i

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
        names = self._part_names[PAIRS if pairs else SERVED]
        parts = np.empty((_PARTS_AT_ONCE, 2), np.int64)
        made = new_parts(start, end, pairs, *given, value, self._row_of, self._part_of, len(names), parts)
        for row, column in parts[:made].tolist():
            name = (*self._rows[row], *divmod(column, self._values))
            names.append(name)
            if not pairs and name[2] == self._dimensions:
                self._level_of[row, name[3]] = len(self._part_names[LEVELS])
                self._part_names[LEVELS].append(name)

    def _part_matrices(self, kept: dict[int, Parts], number: int) -> Parts:
        n, m, k = map(len, self._part_names)
        known = kept.get(number)
        if known is None:
            known = np.zeros((n, PART_WIDTH), np.int64), np.zeros((m, SERVED_WIDTH), np.int64), np.zeros((k, LEVEL_WIDTH), np.int64)  # fmt: skip
        elif (len(known[0]), len(known[1]), len(known[2])) != (n, m, k):
            known = _grown(known[0], n), _grown(known[1], m), _grown(known[2], k)
        else:
            return known
        kept[number] = known
        return known

    @staticmethod
    def _matrix(kept: dict[int, Matrix], number: int, rows: int, width: int) -> Matrix:
        matrix = kept.get(number)
        if matrix is None or len(matrix) < rows:
            matrix = kept[number] = np.zeros((rows, width), np.int64) if matrix is None else _grown(matrix, rows)
        return matrix


def _is_used(matrices: Iterator[Matrix], row: int) -> bool:
    return any(row < len(matrix) and matrix[row].any() for matrix in matrices)


def _rows(labelled: Labelled, scored: Scored, on: NDArray[np.bool_]) -> tuple[Labelled, Scored]:
    """Some of the rows, with their scores."""
    some = Labelled(
        labelled.ts[on], labelled.user[on], labelled.slices[on], labelled.label[on], labelled.corrected[on],
        None if labelled.value is None else labelled.value[on], labelled.fresh[on],
        None if labelled.item is None else labelled.item[on],
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

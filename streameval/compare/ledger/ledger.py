"""The sums behind comparisons of versions: by block of users, for every version that served and for every pair that
scored the same impressions (see `sketches.blocks`), by pane until the pane is evaluated, then by hour.

A look removes the panes before its end from the waiting ones (`advance`), so it sees only complete panes. What it sees
must not depend on where a batch ended or on a restart: so a label counts as it was when it was due, and anything late
(an impression behind the watermark, a click after maturity) counts once the pane's correction horizon is over, whenever
it arrived. For the AUC, scores are placed later, by the labels of all partitions (`placements`, `strata`): until then
they are kept as codes.

With a cap per user, a pair's row has the same sums a second time, for impressions set *apart*: those beyond the cap of
a user's day, late ones, and those of deferred panes. The sums under the cap are the sums of all minus those apart, so
corrections do not affect them. While a pane is waiting, its impressions are in one or the other (`_with_apart`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger import numbering
from streameval.compare.ledger.as_due import as_due
from streameval.compare.ledger.due import DuePanes
from streameval.compare.ledger.exposure import EXPOSED, weight_codes
from streameval.compare.ledger.numbering import LEVELS, PAIRS, SERVED, Key, Numbering, TrafficPart
from streameval.compare.ledger.open_scores import OpenScores
from streameval.compare.ledger.packed import PackedSums, restored, saved
from streameval.compare.ledger.parts import PartSums, grown
from streameval.compare.ledger.pieces import NO_PIECES, PieceScores, RowPieces, StratumCurves
from streameval.compare.ledger.placements import APART, ScoreCodes, place
from streameval.compare.ledger.segment_bounds import SegmentBounds
from streameval.compare.ledger.sums import (
    SCALARS,
    WIDTH,
    LedgerLabels,
    LedgerScores,
    LedgerTarget,
    Matrix,
    add_pairs,
    add_served,
    values_of,
)
from streameval.compare.ledger.user_cap import UserCap, in_pairs
from streameval.compare.ledger.waiting_codes import CODED_AT_ONCE, WaitingCodes
from streameval.counting.look_panes import LookPanes
from streameval.counting.measured import Measured
from streameval.counting.scoreboard import Labelled
from streameval.events.codes import Codes
from streameval.events.columns import Scored
from streameval.events.durations import HOUR
from streameval.sketches.blocks import NO_ITEM, SERIES_CELLS, N, Y

MANY_PANES = 256  # panes waiting for their look
MANY_CODES = 1 << 22  # scores waiting for theirs


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
        min_propensity: float | None = None,
        pieces: RowPieces = NO_PIECES,
    ) -> None:
        """`pane` and `horizon` (of corrections) in ms; `radix`: see `Catalog.combine`; `edges`: of the pClick buckets;
        `user_cap`: a user's impressions per day in the sums under the cap, 0 to 255 (0: no such sums);
        `min_propensity`: smaller ones count as this in the sums by inverse propensity (None: no such sums); `pieces`:
        of further metrics.
        """
        self._pane, self._looks = pane, LookPanes(pane)
        self._radix = radix
        self._dimensions = dimensions
        self._edges = np.array(edges)
        self._values = max(radix, len(edges) + 1)
        self._numbers = Numbering(dimensions, self._values, len(edges) + 1)
        self.parts = PartSums(self._numbers)
        self._cap = UserCap(user_cap) if user_cap else None
        self._min_propensity = min_propensity
        self.pieces = pieces
        self._head = WIDTH * (2 if user_cap else 1)  # width of a row's part before its pieces
        self._core = self._head + (0 if min_propensity is None else EXPOSED)  # width of a row without its pieces
        self.width = self._core + pieces.width
        defer = -(-horizon // pane)  # panes after which late labels count
        self._due = DuePanes(defer)
        # by pane, late ones separately; those apart are in their own sums only (see `_with_apart`)
        self._waiting: tuple[dict[int, Matrix], PackedSums] = ({}, PackedSums())
        self._waiting_codes = WaitingCodes()
        self._segments: dict[int, Matrix] = {}  # by first pane
        self.open = OpenScores()  # scores of evaluated panes, to be placed with their stratum
        self.bounds = SegmentBounds(pane)
        self.untracked = 0  # scores of versions beyond `numbering.MOST_ROWS`

    # -- counting ------------------------------------------------------------------------------------------------

    def observe(self, labelled: Labelled, scored: Scored, sign: int, measured: Measured | None = None) -> None:
        """Adds labelled impressions (or with sign -1 subtracts them), in time order, with all their scores.

        `measured`: the result of `Measured.of` for them, if the caller has it.
        """
        for some, its, signed, late in as_due(labelled, scored, sign, self.pieces.values):
            self._observe(some, its, signed, late, measured if some is labelled else None)

    def waiting(self, end: int, but: Collection[int] = (), start: int = 0) -> list[int]:
        """Returns the panes from `start` and before `end` that are waiting for their look, without those in `but`,
        oldest first.

        Late labels, and panes that a look has deferred, are not included.
        """
        return self._due.waiting(start, end, but)

    def served(self, pane: int) -> tuple[int, int]:
        """Returns (impressions, clicks) on time of all versions that served in a waiting pane."""
        return self._served(self._waiting[0].get(pane))

    def served_in(self, segment: int, which: Callable[[int], bool]) -> tuple[int, int]:
        """Returns (impressions, clicks) of a segment so far, of versions that served; `which`: selects them by code."""
        return self._served(self._segments.get(segment), which)

    def _served(self, matrix: Matrix | None, which: Callable[[int], bool] = lambda _: True) -> tuple[int, int]:
        if matrix is None:
            return 0, 0
        keys = enumerate(self._numbers.rows[: len(matrix)])
        some = matrix[[i for i, (served, other) in keys if served >= 0 and other < 0 and which(served)], :SCALARS]
        return int(some[:, N::SERIES_CELLS].sum()), int(some[:, Y::SERIES_CELLS].sum())

    @property
    def is_full(self) -> bool:
        """Whether so much is waiting that the look should not be left to the next snapshot."""
        if len(self._waiting[0]) > MANY_PANES:
            return True
        return self._waiting_codes.size > MANY_CODES

    def _observe(
        self, labelled: Labelled, scored: Scored, sign: int, late: int, measured: Measured | None = None
    ) -> None:
        n, first = labelled.ts.size, scored.bounds[1]
        if not n or not first:  # no version that logged a pClick served anything
            return
        known = measured or Measured.of(labelled.ts, labelled.user, labelled.label, scored, self._pane)
        if first == n:
            logged_at = scored.row[:first]  # 0 .. n - 1
        else:
            logged_at = np.full(n, -1, np.int32)
            logged_at[scored.row[:first]] = np.arange(first, dtype=np.int32)
        self._numbers.reserve(int(scored.series.max()) + 1)
        value = np.empty((n, self._dimensions + 1), np.int32)
        logged = scored.row[:first], scored.p[:first]
        values_of(labelled.slices, *logged, self._edges, self._radix, self._values, value)
        item = np.full(n, NO_ITEM, np.int8) if labelled.item is None else labelled.item
        apart = np.full(n, self._cap is not None and late > 0)
        others = scored.row[first:]
        if self._cap is not None and not late and sign > 0 and others.size:  # the cap is on impressions of pairs
            apart = self._cap.beyond(labelled.user, labelled.ts, in_pairs(others, logged_at), known.users)
        scores = LedgerScores(scored.row, scored.series, scored.p, known.loss, known.part, logged_at)
        weight = weight_codes(labelled.fields.get("propensity"), self._min_propensity, n)
        times, weighed = labelled.times(sign), labelled.copies is not None
        impressions = LedgerLabels(labelled.label, known.block, item, value, apart, weight, times, weighed)
        missed, numbers = np.zeros(1, np.int64), self._numbers.columns
        for pane, first_pane, end_pane in self._looks.runs(known.panes):
            for giver, cut in enumerate(known.cuts):
                begin, end = int(cut[first_pane]), int(cut[end_pane])
                start = begin
                while start < end:
                    if pane not in self._waiting[late]:
                        self._due.add(pane, late)
                    until, rows = min(end, start + CODED_AT_ONCE), len(self._numbers.rows)
                    sums = self._matrix(self._waiting[late], pane, rows, self.width)
                    parts = self.parts.of_pane(pane, late)
                    kind, add = (PAIRS, add_pairs) if giver else (SERVED, add_served)
                    codes, coded = self._waiting_codes.room(rows, until - start)
                    out = LedgerTarget(sums, parts[kind], parts[LEVELS], codes, coded, missed)
                    start = add(start, until, scores, impressions, numbers, sign, out)
                    self._waiting_codes.add(pane, late, codes, coded, sign)
                    if start < until:
                        self._numbers.give(start, end, first, scores, impressions)
                        numbers = self._numbers.columns
                if begin < end and self.pieces.width:
                    fields, policies = labelled.fields, labelled.policies
                    some = PieceScores(begin, end, scores, impressions, numbers.row_of, fields, sign, policies)
                    self.pieces.add(some, giver > 0, sums, self._head)
        self.untracked += int(missed[0])

    def cut(self, pane: int) -> None:
        """Starts a new segment at a pane, which must not have been evaluated yet."""
        if self.bounds.cut(pane):
            self._due.cut()

    # -- reading -------------------------------------------------------------------------------------------------

    def advance(self, end: int, deferred: Collection[int] = ()) -> list[tuple[int, dict[Key, NDArray[np.int64]]]]:
        """Moves the panes before `end` into their segments. Returns (segment, added sums by row), oldest first.

        This includes late labels of panes whose correction horizon ended before it. Panes in `deferred` are moved only
        then, together with the rest of their segment, and set apart.
        """
        out = []
        for pane, late in self._due.take(end, deferred, lambda pane: self.bounds.end(self.bounds.first(pane))):
            gained = self._with_apart(self._waiting[late].pop(pane), np.add)
            number = self.bounds.first(pane)
            leaves = not late and pane in deferred
            if leaves and self._cap is not None:
                self._set_apart(gained)
            for row, codes, clicks in self._waiting_codes.pop(pane, late):
                if leaves:
                    np.bitwise_or(codes, APART, out=codes)
                self.open.add(pane, row, codes, clicks)
            total = self._matrix(self._segments, number, len(gained), self.width)
            total[: len(gained)] += gained
            out.append((number, self._by_key(gained)))
            self.parts.advance(pane, late, number)
        return out

    def key_of(self, row: int) -> Key:
        """Returns the key of a row."""
        return self._numbers.rows[row]

    def placed(self, row: Key, codes: ScoreCodes, curves: StratumCurves) -> NDArray[np.int64]:
        """Returns what scores add to a row when placed by the curves of their stratum, int64[width]."""
        core = np.zeros(self._core, np.int64)
        place(codes, row[1] >= 0, curves.core, core)
        gained = self.pieces.whole(core)
        self.pieces.place(codes, curves, gained)
        return gained

    def place(self, segment: int, row: int, codes: ScoreCodes, curves: StratumCurves) -> NDArray[np.int64]:
        """Adds the result of `placed` to a segment, and returns it."""
        gained = self.placed(self._numbers.rows[row], codes, curves)
        total = self._matrix(self._segments, segment, row + 1, self.width)
        total[row] += gained
        return gained

    def segments(self) -> Iterator[tuple[int, dict[Key, NDArray[np.int64]]]]:
        """Yields (first pane, sums by row) for everything that `advance` has moved, oldest first."""
        for number in sorted(self._segments):
            yield number, self._by_key(self._segments[number])

    def leave_out_of_cap(self, hours: Collection[int]) -> None:
        """Takes pairs in hours that were looked at out of the sums under the cap, which keep labels as they were when due."""
        for number, matrix in self._segments.items():
            if number * self._pane // HOUR in hours and self._cap is not None:
                self._set_apart(matrix)

    def forget_before(self, pane: int) -> None:
        """Drops segments that ended before a pane."""
        keep = self.bounds.first(pane)
        for number in [n for n in self._segments if n < keep]:
            del self._segments[number]
        self.parts.forget_before(keep)
        if self.bounds.forget_before(keep):
            self._due.cut()
        if len(self._numbers.rows) > numbering.MOST_ROWS * 3 // 4:
            self._make_room()

    def clear(self, series: int) -> None:
        """Forgets a series, so that its code can be reused."""
        gone, gone_parts = self._numbers.clear(series)
        for matrix in self._matrices():
            matrix[[i for i in gone if i < len(matrix)]] = 0
        self.parts.clear(gone_parts)
        if gone:
            row = np.arange(len(self._numbers.rows))
            row[gone] = -1
            self._renumber_codes(row)

    @property
    def nbytes(self) -> int:
        """Total size in bytes."""
        on_time, late = self._waiting
        sums = late.nbytes + sum(matrix.nbytes for kept in (on_time, self._segments) for matrix in kept.values())
        codes = self._waiting_codes.nbytes + self.open.nbytes
        users = 0 if self._cap is None else self._cap.nbytes
        return sums + self.parts.nbytes + codes + users + self._numbers.nbytes

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Returns everything, for `restore`."""
        return {
            **self._numbers.state(),
            "pieces": self.pieces.state(),
            "waiting": [
                [late, pane, saved(self._with_apart(self._waiting[late][pane].copy(), np.add))]
                for late in (0, 1)
                for pane in sorted(self._waiting[late])
            ],
            "waiting_codes": self._waiting_codes.state(),
            "open": self.open.state(),
            "segments": [[pane, matrix.copy()] for pane, matrix in sorted(self._segments.items())],
            **self.parts.state(),
            "cuts": list(self.bounds.cuts),
            "untracked": self.untracked,
            "user_cap": None if self._cap is None else self._cap.state(),
        }

    def restore(self, state: Mapping[str, Any], codes: Codes) -> None:
        """Restores what `state` returned, into an empty ledger."""

        def series(code: int) -> int:
            return int(codes.series[code]) if code >= 0 else code

        def part(served: int, other: int, dimension: int, value: int) -> TrafficPart:
            if dimension < self._dimensions and served >= 0:
                value = int(codes.values[dimension][value])
            return series(served), series(other), dimension, value

        rows = [(series(a), series(b)) for a, b in state["rows"]]
        self._numbers.restore(rows, state["part_names"], part)
        pieces = state.get("pieces", [])  # older checkpoints have none
        for late, pane, matrix in state["waiting"]:
            fitted = self._with_apart(self.pieces.fitted(restored(matrix), pieces, self._core), np.subtract)
            look = self._looks.of(pane)  # older checkpoints have every pane
            if look not in self._waiting[late]:
                self._due.add(look, late)
            self._matrix(self._waiting[late], look, len(fitted), self.width)[: len(fitted)] += fitted
        self._waiting_codes.restore(state["waiting_codes"], self._looks.of)
        self.open = OpenScores.restore(state["open"])
        self._segments = {pane: self.pieces.fitted(matrix, pieces, self._core) for pane, matrix in state["segments"]}
        self.parts.restore(state, self._looks.of)
        self.bounds.cuts = list(state["cuts"])
        self.untracked = state["untracked"]
        if self._cap is not None and state.get("user_cap") is not None:
            self._cap.restore(state["user_cap"])

    # -- inside --------------------------------------------------------------------------------------------------

    def _with_apart(self, matrix: Matrix, change: np.ufunc) -> Matrix:
        """Adds the sums of those apart to the others, which become those of all; or subtracts them again."""
        if self._cap is not None:
            change(matrix[:, :WIDTH], matrix[:, WIDTH : 2 * WIDTH], out=matrix[:, :WIDTH])
        return matrix

    def _set_apart(self, matrix: Matrix) -> None:
        """Sets all sums of pairs apart."""
        pairs = [i for i, (_, other) in enumerate(self._numbers.rows[: len(matrix)]) if other >= 0]
        matrix[pairs, WIDTH : 2 * WIDTH] = matrix[pairs, :WIDTH]

    def _matrices(self) -> Iterator[Matrix]:
        for kept in (*self._waiting, self._segments):
            yield from kept.values()

    def _make_room(self) -> None:
        """Frees the numbers of rows and parts that are no longer used."""
        used = self._waiting_codes.rows() | set(self.open.rows())
        for matrix in self._matrices():
            used.update(np.flatnonzero(matrix.any(axis=1)).tolist())
        rows = [i for i, key in enumerate(self._numbers.rows) if key[0] >= 0 and i in used]
        if len(rows) == len(self._numbers.rows):
            return
        code = np.full(len(self._numbers.rows), -1, np.int64)
        code[rows] = np.arange(len(rows))
        self._renumber_codes(code)
        kept = self._numbers.keep(rows)
        for held in (*self._waiting, self._segments):
            for number, matrix in held.items():
                held[number] = matrix[[i for i in rows if i < len(matrix)]]
        self.parts.keep(kept)

    def _renumber_codes(self, row: NDArray[np.int64]) -> None:
        """Replaces row r by `row[r]`; -1: its scores are dropped."""
        self._waiting_codes.renumber(row)
        self.open.renumber(row)

    def _by_key(self, matrix: Matrix) -> dict[Key, NDArray[np.int64]]:
        return {
            key: matrix[i] for i, key in enumerate(self._numbers.rows[: len(matrix)]) if key[0] >= 0 and matrix[i].any()
        }

    @staticmethod
    def _matrix(kept: MutableMapping[int, Matrix], number: int, rows: int, width: int) -> Matrix:
        matrix = kept.get(number)
        if matrix is None or len(matrix) < rows:
            matrix = kept[number] = np.zeros((rows, width), np.int64) if matrix is None else grown(matrix, rows)
        return matrix

"""Additional sums of further metrics in a row of the ledger: pieces among the sums that every row has, one per metric.

A piece is added by its own kernel and read by its own function, so it does not affect other metrics, and a ledger
without pieces has no overhead. Checkpoints identify a piece by its name, which contains everything that its sums depend
on: a new one begins at 0, and one that no longer exists is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.curves import Curve, Labels, dense
from streameval.compare.ledger.parts import fitted
from streameval.compare.ledger.placements import Row, ScoreCodes
from streameval.compare.ledger.sums import WIDTH, LedgerLabels, LedgerScores, Matrix
from streameval.events.columns import ScoreList
from streameval.sketches.sparse import SparseVector

RowOf = NDArray[np.int32]  # [served, other + 1], the row of a pair; -1: none


@dataclass(frozen=True, slots=True)
class PieceScores:
    """Scores `start` .. `end` - 1 of a pane, whose rows are numbered; `fields`: numeric fields of the impressions by
    name.
    """

    start: int
    end: int
    scores: LedgerScores
    labels: LedgerLabels
    row_of: RowOf
    fields: Mapping[str, NDArray[np.float64]]
    sign: int
    policies: ScoreList | None = None  # see `Labelled`


@dataclass(frozen=True, slots=True)
class StratumCurves:
    """The curves by which the scores of a stratum are placed: for the core of a row, and for each piece that has its
    own.
    """

    core: Curve
    pieces: tuple[Curve | None, ...]


@dataclass(frozen=True, slots=True)
class RowPiece:
    """One piece of a row. `pairs`: whether rows of pairs have it, or else those of versions that served.

    `add(some, sums, column)` adds impressions to sums[:, column:] when their labels are due. Alternatively, for pairs,
    `place(codes, curves, row, column)` adds them to row[column:] when their stratum closes, by the `curves` of its
    labels. `values`: it uses the values of clicks.
    """

    metric: str
    name: str
    width: int
    pairs: bool
    add: Callable[[PieceScores, Matrix, int], None] | None = None
    curves: Callable[[Labels], Curve] | None = None
    place: Callable[[ScoreCodes, Curve, Row, int], None] | None = None
    values: bool = False


class RowPieces:
    """The pieces of a row, in order: after the sums of all impressions and of those apart, before those by inverse
    propensity.

    The rest of a row is its core, which is the entire row if there are no pieces.
    """

    def __init__(self, some: Sequence[RowPiece] = ()) -> None:
        self._some = tuple(some)
        self.width = sum(one.width for one in some)
        self.values = any(one.values for one in some)
        self.names = tuple(one.name for one in some)

    def __iter__(self) -> Iterator[tuple[RowPiece, int]]:
        """Yields each piece with the column at which it begins, counted from the first piece."""
        at = 0
        for one in self._some:
            yield one, at
            at += one.width

    def add(self, some: PieceScores, pairs: bool, sums: Matrix, first: int) -> None:
        """Adds scores to all pieces of their kind of row; the pieces begin at column `first`."""
        for piece, at in self:
            if piece.add is not None and piece.pairs == pairs:
                piece.add(some, sums, first + at)

    def curves(self, core: Curve, labels: SparseVector, pair: bool) -> StratumCurves:
        """Returns the given curves of the core with the pieces' own, from the labels of a stratum; `pair`: of a pair,
        or of a version that served.
        """
        return StratumCurves(
            core, tuple(one.curves(dense(labels)) if one.curves is not None and pair else None for one in self._some)
        )

    def place(self, codes: ScoreCodes, curves: StratumCurves, row: Row) -> None:
        """Adds the placements of scores to the pieces of a row."""
        first = _head(row.size - self.width)
        for (piece, at), curve in zip(self, curves.pieces, strict=True):
            if piece.place is not None and curve is not None:
                piece.place(codes, curve, row, first + at)

    def core(self, row: Matrix) -> Matrix:
        """Returns a row, or rows, without the pieces."""
        return _without(row, self.width)

    def whole(self, core: Matrix) -> Matrix:
        """Returns a row with this core, and pieces of 0."""
        return self._joined(core, np.zeros((*core.shape[:-1], self.width), np.int64))

    def of(self, metric: str, row: Matrix) -> Matrix:
        """Returns a metric's piece of a row: a view. KeyError if it has none."""
        first = _head(row.shape[-1] - self.width)
        for one, at in self:
            if one.metric == metric:
                return row[..., first + at : first + at + one.width]
        raise KeyError(metric)

    def state(self) -> list[list[object]]:
        """Returns names and widths, for `fitted`."""
        return [[one.name, one.width] for one in self._some]

    def fitted(self, matrix: Matrix, saved: Sequence[Sequence[object]], core: int) -> Matrix:
        """Returns a copy of rows from a checkpoint with the pieces `saved`, in the current layout, whose core has width
        `core`.
        """
        widths = [int(str(width)) for _, width in saved]
        out = np.zeros((len(matrix), self.width), np.int64)
        first = _head(matrix.shape[1] - sum(widths))
        for (name, _), width in zip(saved, widths, strict=True):
            for one, at in self:
                if (one.name, one.width) == (name, width):
                    out[:, at : at + width] = matrix[:, first : first + width]
            first += width
        return self._joined(fitted(_without(matrix, sum(widths)), core), out)

    def _joined(self, core: Matrix, pieces: Matrix) -> Matrix:
        if not self.width:
            return core
        head = _head(core.shape[-1])
        return np.concatenate((core[..., :head], pieces, core[..., head:]), axis=-1)


def _head(core: int) -> int:
    """Returns how much of a core of that width comes before the pieces."""
    return core - core % WIDTH


def _without(row: Matrix, width: int) -> Matrix:
    if not width:
        return row
    head = _head(row.shape[-1] - width)
    return np.concatenate((row[..., :head], row[..., head + width :]), axis=-1)


NO_PIECES = RowPieces()

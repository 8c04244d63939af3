"""What scores come to, pane by pane: sketches overall and by slice, and what users keep of each score.

Panes that are placed by the same curves go through the kernels in one call, as far as there is room for what they come to:
panes of a second have so few scores that the calls would cost more than the counting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.counting.measured import Measured
from streameval.counting.references import Curves
from streameval.events.columns import Scored
from streameval.sketches.accumulate import Given, LabelColumns, PlacementCurves, ScoreColumns, add_scores
from streameval.sketches.layout import Layout
from streameval.sketches.scratch import Drained, Scratch, no_room, room_of, vectors_of
from streameval.sketches.sparse import SparseVector

_ROOM = 1 << 18  # cells of panes that are counted in one call, unless one alone may have more: 4 MB


class Layer(NamedTuple):
    """Scores of some impressions, by one label."""

    scored: Scored
    measured: Measured
    slice_row: NDArray[np.int32]  # [dimensions, scores]
    labels: LabelColumns
    value: NDArray[np.float64] | None  # of the impressions' clicks, where values are kept
    with_copies: bool  # the log is a sample
    alone: bool  # all scores are of one series

    def columns(self) -> ScoreColumns:
        """The scores, for kernels."""
        scored, known = self.scored, self.measured
        return ScoreColumns(
            scored.p, known.loss, known.part, scored.row, scored.series, self.slice_row, scored.violation
        )

    def parts(self, pane: int) -> Iterator[slice]:
        """The scores of the n-th pane, by giver."""
        for cut in self.measured.cuts:
            yield slice(int(cut[pane]), int(cut[pane + 1]))


class CountedPanes(NamedTuple):
    """What some panes come to."""

    given: Sequence[Given]  # of every layer's scores, by number
    overall: Sequence[SparseVector]  # by pane
    slices: Sequence[SparseVector]


class PaneScores:
    """Room for what is counted, overall and by slice."""

    def __init__(self, overall: Layout, slices: Layout, dimensions: int) -> None:
        self.scratch = Scratch(overall), Scratch(slices)
        self._drained = [room_of(0, 0), room_of(0, 0)]  # kept between calls: new memory would cost more than filling it
        self._dimensions = dimensions

    @property
    def nbytes(self) -> int:
        """Bytes of the room."""
        drained = sum(room.cells.nbytes + room.values.nbytes for room in self._drained)
        return drained + sum(scratch.target.cells.nbytes for scratch in self.scratch)

    def reserve(self, series: int, slice_rows: int, scores: int) -> None:
        """Makes room for so many rows, and scores."""
        for scratch, rows in zip(self.scratch, (series, slice_rows), strict=True):
            scratch.reserve(rows, scores)

    def ends(self, layers: Sequence[Layer]) -> list[int]:
        """By pane: the end of the panes from it on that there is room for. Of several layers, one pane at a time."""
        panes = len(layers[0].measured.panes)
        if len(layers) > 1 or panes == 1:
            return [*range(1, panes + 1)]
        room, pane = np.add(*self._cells(layers)), np.arange(panes)
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(room)))
        return np.maximum(np.searchsorted(before, before[:-1] + _ROOM, side="right") - 1, pane + 1).tolist()

    def count(
        self, layers: Sequence[Layer], first: int, end: int, curves: Curves, counting: NDArray[np.int64], sign: int
    ) -> CountedPanes:
        """Counts the panes from the first-th on; labels on time are added to `counting` (see `References`)."""
        rooms = [int(cells[first:end].sum()) for cells in self._cells(layers)]
        panes = end - first
        placed = PlacementCurves(curves.curve, curves.ready, counting)
        given = []
        for number, layer in enumerate(layers, 1):
            drained = self._room(rooms, panes) if number == len(layers) else [no_room(panes) for _ in rooms]
            cuts = np.stack([cut[first : end + 1] for cut in layer.measured.cuts])
            out = Given.of(layer.scored.series.size, layer.with_copies)
            add_scores(self.scratch, layer.columns(), cuts, layer.labels, placed, drained, out, sign)
            given.append(out)
        return CountedPanes(given, *map(vectors_of, drained))

    def _room(self, cells: Sequence[int], panes: int) -> list[Drained]:
        """Room for so many cells, overall and by slice."""
        for i, most in enumerate(cells):
            if self._drained[i].cells.size < most:
                self._drained[i] = room_of(most, 0)
        return [room._replace(ends=np.zeros(panes + 1, np.int64)) for room in self._drained]

    def _cells(self, layers: Sequence[Layer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """By pane the most cells that are not 0, overall and by slice."""
        cuts = [cut for layer in layers for cut in layer.measured.cuts]
        scores = np.diff(cuts[0] if len(cuts) == 1 else np.sum(cuts, axis=0))
        overall, slices = self.scratch
        return overall.room(scores), slices.room(scores * self._dimensions)


def most_labels(layer: Layer, first: int, end: int, series: int) -> NDArray[np.int64]:
    """At most so many labels on time of either kind are in some panes, int64[series, 2]."""
    out = np.zeros((series, 2), np.int64)
    for cut in layer.measured.cuts:
        part = slice(int(cut[first]), int(cut[end]))
        _add_labels(layer.scored.series[part], layer.scored.row[part], layer.labels.times, layer.labels.label, out)
    return out


@numba.njit(cache=True, nogil=True)
def _add_labels(
    series: NDArray[np.int32],
    row: NDArray[np.int32],
    times: NDArray[np.int64],
    label: NDArray[np.int8],
    out: NDArray[np.int64],
) -> None:
    for k in range(series.size):
        n = abs(times[row[k]])
        out[series[k], 0] += n
        out[series[k], 1] += n * label[row[k]]  # a corrected one counts as no click

"""From live state to the rows of the history, in two steps: `pane_rows` on the loop's thread keeps references
(to arrays that no longer change, so nothing is copied); `encode_pane` on the writer's thread cuts it into
series and slices, samples users, and compresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from streameval.counting.panestats import PaneStats
from streameval.counting.scoreboard import Scoreboard
from streameval.counting.slice_rows import SliceRows
from streameval.counting.users import PaneEntries
from streameval.events.batch import Catalog, Series
from streameval.sketches.layout import Layout
from streameval.sketches.sparse import SparseVector
from streameval.store.history import user_samples
from streameval.store.history.format import SAMPLE_ENTRIES, HistoryFormat
from streameval.store.history.stored import EncodedVector, encode_vector

_NEVER = -(1 << 62)
_UNFIT = (LookupError, ValueError, OverflowError)  # raised by a row that cannot be encoded


@dataclass(frozen=True, slots=True)
class PaneCounts:
    """How far the labels of one pane of one partition are. `newest`: the newest impression with a label, ms."""

    seen: int
    matured: int
    clicks: int
    corrected: int
    newest: int | None


@dataclass(frozen=True, slots=True)
class PaneRows:
    """Everything that one partition counted in one pane, as it was when `pane_rows` read it; immutable."""

    pane: int  # event time // pane length
    counts: PaneCounts
    series: tuple[Series, ...]  # names by code
    overall: SparseVector  # over all series: code * layout.size + cell
    slice_names: Mapping[int, tuple[int, str, str]]  # (series code, dimension, value) by row
    slices: SparseVector  # over all slices: row * layout.size + cell
    users: Mapping[int, PaneEntries]  # by series code

    @property
    def nbytes(self) -> int:
        """Bytes that these rows keep alive, the table of users apart."""
        entries = sum(part.nbytes for kept in self.users.values() for part in (*kept.added, *kept.retracted))
        return self.overall.nbytes + self.slices.nbytes + entries


def pane_rows(
    board: Scoreboard, stats: PaneStats, catalog: Catalog, slice_rows: SliceRows, panes: Iterable[int]
) -> list[PaneRows]:
    """The rows of these panes of one partition. On the loop's thread, when nothing is being counted."""
    names = tuple(catalog.series)
    where = {
        row: (code, catalog.dimensions[dimension], catalog.values[dimension][value])
        for row, code, dimension, value in slice_rows.known()
    }
    return [
        PaneRows(
            number,
            _counts(stats.by_pane.get(number)),
            names,
            board.overall.get(number),
            where,
            board.slices.get(number),
            board.users.pane_entries(number),
        )
        for number in panes
    ]


@dataclass(frozen=True, slots=True)
class EncodedPane:
    """A pane as the database keeps it."""

    start: int  # ms
    counts: PaneCounts
    vectors: tuple[tuple[Series, tuple[str, str] | None, EncodedVector], ...]  # slice None: overall
    samples: tuple[tuple[Series, int, bytes], ...]  # series, k, the sample's bytes
    unfit: tuple[str, ...]  # rows that could not be encoded, and why


def encode_pane(rows: PaneRows, form: HistoryFormat) -> EncodedPane:
    """The rows of a pane, compressed. A row that cannot be is left out: it must not block the others."""
    vectors: list[tuple[Series, tuple[str, str] | None, EncodedVector]] = []
    unfit: list[str] = []
    overall, of_slice = form.overall, form.slice
    for code, vector in _by_row(rows.overall, overall):
        try:
            vectors.append((rows.series[code], None, encode_vector(vector, overall)))
        except _UNFIT as error:
            unfit.append(f"series {code}: {error!r}")
    for row, vector in _by_row(rows.slices, of_slice):
        try:
            code, dimension, value = rows.slice_names[row]
            vectors.append((rows.series[code], (dimension, value), encode_vector(vector, of_slice)))
        except _UNFIT as error:
            unfit.append(f"slice {row}: {error!r}")
    samples = []
    if form.keeps_users:  # or nothing could be computed from them
        counted = {series for series, where, _ in vectors if where is None}
        for code, kept in rows.users.items():
            if code >= len(rows.series) or rows.series[code] not in counted:  # everything was retracted
                continue
            try:
                sample = user_samples.collect(kept.added, kept.retracted, kept.ids, kept.halvings, SAMPLE_ENTRIES[0])
                samples.append((rows.series[code], sample.k, user_samples.encode(sample)))
            except _UNFIT as error:
                unfit.append(f"users of {rows.series[code]!r}: {error!r}")
    return EncodedPane(rows.pane * form.lengths[0], rows.counts, tuple(vectors), tuple(samples), tuple(unfit))


def _by_row(vector: SparseVector, layout: Layout) -> Iterator[tuple[int, SparseVector]]:
    """(row, its vector, cells from 0) of every row of a vector over many."""
    rows = vector.cells // layout.size
    first = np.flatnonzero(np.diff(rows, prepend=-1))
    for begin, end in pairwise([*first.tolist(), rows.size]):
        row = int(rows[begin])
        yield row, SparseVector(vector.cells[begin:end] - row * layout.size, vector.values[begin:end])


def _counts(row: list[int] | None) -> PaneCounts:
    seen, matured, clicks, corrected, newest = (row or (0, 0, 0, 0, _NEVER))[:5]
    return PaneCounts(seen, matured, clicks, corrected, None if newest == _NEVER else newest)

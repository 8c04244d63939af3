"""The rows of a table that are on disk: its oldest ones, segment by segment, mapped over its columns.

Rows are read as before, and written as before when a late click changes a label: that creates a page in memory, and the
row's number is recorded, because checkpoints refer to segments and list what has changed in them. Only ids are looked
up separately: the index of ids covers only rows in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Codes
from streameval.join.cold.filter import IdFilter, Marked
from streameval.join.cold.ground import ALIGN, empty, give_back, will_need, will_need_rows
from streameval.join.cold.ids import SortedIds
from streameval.join.cold.lookup import Lookup
from streameval.join.cold.segment import RowsFile, Segment, content, means_the_same
from streameval.join.kernel import ColdRowsFound
from streameval.join.policy import FOREVER, MATURED, NEVER
from streameval.join.rows import Table
from streameval.join.runs import Runs
from streameval.join.times import RowTimes

_MANY = 64  # segments
_MOST = 1 << 24  # rows of a segment
_ONE_BY_ONE = 256  # rows whose pages are asked for one by one; of more the system reads some for others
_NO_PLACES = np.empty(0, np.uint32)
_GONE = np.int32((1 << 31) - 1)  # rows back to a request's previous impression: one that is not known any more


@dataclass(slots=True)
class Freezing:
    """Rows [first, end) that are being written; they stay in memory until `ColdRows.finish`."""

    first: int
    end: int
    content: dict[str, Any]  # of the file
    ids: NDArray[np.uint64]
    known: IdFilter  # of segments so far
    others: list[Marked]  # the ids of all segments so far

    def enter(self, mark: int) -> IdFilter:
        """The filter with these ids, too, maybe a new one; `mark` of their file. Another thread may call it while rows are looked up."""
        if self.known.used + self.ids.size > self.known.capacity:
            return IdFilter.of([*self.others, Marked(mark, SortedIds.apart(np.sort(self.ids), _NO_PLACES))])
        self.known.add(mark, self.ids)
        return self.known


_NO_ROWS = np.empty(0, np.int64)
NONE_FOUND = ColdRowsFound(_NO_ROWS, _NO_ROWS, _NO_ROWS)


@dataclass(slots=True)
class ColdRows:
    """The segments, oldest first, one right behind the other."""

    rows: int  # of the first segments; 0: there are none
    segments: list[Segment] = field(default_factory=list)
    filter: IdFilter = field(default_factory=lambda: IdFilter(0))
    freezing: Freezing | None = None
    _lookup: Lookup | None = None  # None: to be made of the segments as they are
    _changed: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # see `changed`
    _noted: list[NDArray[np.int64]] = field(default_factory=list)

    @property
    def any(self) -> bool:
        """Whether there are segments, or may be: what rows are in must be of whole pages."""
        return bool(self.rows or self.segments)

    def end(self, start: int) -> int:
        """The first row in memory; `start`: the first that is not forgotten."""
        return max(start, self.segments[-1].end) if self.segments else start

    def base(self, start: int) -> int:
        """The row from which checkpoints count: where the first segment begins, if there is any."""
        return self.segments[0].first if self.segments else start

    def front(self, start: int) -> int:
        """The row from which rows are numbered when they move: a whole number of pages, where files lie or will."""
        return min(self.base(start), self.freezing.first) if self.freezing else self.base(start)

    @property
    def next_rows(self) -> int:
        """How many rows the next segment has: twice as many with every so many segments, so there are never thousands."""
        return min(self.rows << len(self.segments) // _MANY, max(self.rows, _MOST))

    def due(self, start: int, waiting: int) -> int:
        """How many segments could go to the disk now; no row before `waiting` waits for its label."""
        return (waiting - self.end(start)) // self.next_rows if self.rows else 0

    # -- onto the disk -------------------------------------------------------------------------------------------

    def begin(self, table: Table, runs: Runs, start: int, waiting: int) -> Freezing | None:
        """The next segment, when no label of it is waited for. None: not yet, or one is under way."""
        first = self.segments[-1].end if self.segments else start // ALIGN * ALIGN
        end = first + self.next_rows
        if not self.rows or self.freezing is not None or end > waiting:
            return None
        some = content(table, runs.all, first, end)
        self._keep_changed(self.changed(0, first))
        self.freezing = Freezing(first, end, some, table.id[first:end], self.filter, [s.marked for s in self.segments])
        return self.freezing

    def finish(self, table: Table, runs: Runs, start: int, file: RowsFile, known: IdFilter) -> None:
        """The file is on the disk: it takes the place of the memory. Raises OSError; the rows stay in memory then."""
        freezing, self.freezing = self.freezing, None
        if freezing is None or freezing.end <= start:
            return
        segment = Segment.of(file, freezing.first)
        with self._kept(table, segment.first, segment.end):
            _map(table, segment)
        runs.put(segment.run())
        self.segments.append(segment)
        self.filter, self._lookup = known, None

    def lose(self, table: Table, runs: Runs, file: RowsFile) -> None:
        """A file has turned out to be damaged: its rows are not known any more."""
        self._lookup = None
        for segment in (one for one in self.segments if one.file is file):
            for column in table.columns().values():
                give_back(column, segment.first, segment.end)
            segment.file = RowsFile(file.path, file.rows, None)
            segment.ids = segment.file.ids()
            runs.put(segment.run())
            _map(table, segment)
            some = self.changed(0, self.end(0))
            self._keep_changed(some[(some < segment.first) | (some >= segment.end)])

    def note(self, rows: NDArray[np.int64]) -> None:
        """Labels that have changed."""
        end = self.freezing.end if self.freezing else self.segments[-1].end if self.segments else 0
        if (rows < end).any():
            self._noted.append(rows[rows < end])

    def forget_before(self, table: Table, start: int) -> None:
        """Segments whose rows are all forgotten are of no file any more."""
        while self.segments and self.segments[0].end <= start:
            gone, self._lookup = self.segments.pop(0), None
            for column in table.columns().values():
                give_back(column, gone.first, gone.end)

    def move(self, old: Table, to: Table, shift: int) -> None:
        """Maps the files over another table, whose rows have numbers smaller by `shift`."""
        rows = self.changed(0, self.end(0))
        for segment in self.segments:
            segment.first, segment.end = segment.first - shift, segment.end - shift
            _map(to, segment)
        _write(to, rows - shift, *_read(old, rows))
        self._keep_changed(self.changed(0, FOREVER) - shift)
        if self.freezing is not None:
            self.freezing.first, self.freezing.end = self.freezing.first - shift, self.freezing.end - shift

    def copy(self, table: Table, name: str) -> NDArray[Any]:
        """Another column like the one of that name: of scores, for what clicks change is not what the files say."""
        column = table.columns()[name]
        if not self.any:
            return column.copy()
        out, first = empty(column.size, column.dtype), self.end(0)
        out[first:] = column[first:]
        for segment in self.segments:
            if not segment.file.lost:
                segment.file.map_over({name: out}, segment.first)
        return out

    # -- looking up ----------------------------------------------------------------------------------------------

    def fetch(
        self,
        table: Table,
        start: int,
        shown: NDArray[np.uint64],
        clicked: NDArray[np.uint64],
        key: NDArray[np.int64] | None,
    ) -> ColdRowsFound:
        """What the ids of a batch have on disk; `key`: of its clicks, None: later than all impressions that have come."""
        if not self.segments:
            return NONE_FOUND
        wanted = np.concatenate((shown, clicked))
        some = self.filter.known(wanted)
        if not some.size:
            return NONE_FOUND
        self._lookup = lookup = self._lookup or Lookup(self.segments)
        at, row = lookup.find(wanted[some], self.filter)
        at, row = some[at[row >= start]], row[row >= start]
        if not row.size:
            return NONE_FOUND
        if row.size <= _ONE_BY_ONE:
            for column in table.columns().values():
                for one in row.tolist():
                    will_need(column, one, one + 1)
        out = ColdRowsFound(*(np.full(n, -1, np.int64) for n in (shown.size, clicked.size, clicked.size)))
        of_click = at >= shown.size
        np.maximum.at(out.shown, at[~of_click], row[~of_click])
        at, row = at[of_click] - shown.size, row[of_click]
        came = table.ts[row] + table.behind[row]
        later = np.zeros(row.size, np.bool_) if key is None else came > key[at]
        np.maximum.at(out.before, at[~later], row[~later])
        order = np.argsort(-row[later], kind="stable")  # the oldest is written last
        out.after[at[later][order]] = row[later][order]
        return out

    # -- reading -------------------------------------------------------------------------------------------------

    def changed(self, first: int, end: int) -> NDArray[np.int64]:
        """Those of rows [first, end) that are on disk, or on their way there, and not what the file says; ascending."""
        if self._noted:
            self._keep_changed(np.unique(np.concatenate([self._changed, *self._noted])))
        return self._changed[slice(*np.searchsorted(self._changed, (first, end)))]

    def series(self) -> set[int]:
        """The series that rows on disk have."""
        return set[int]().union(*(segment.series for segment in self.segments))

    @property
    def nbytes(self) -> int:
        """Bytes of memory, without the pages that clicks have changed."""
        if not self.segments:
            return 0
        return self._changed.nbytes + self.filter.nbytes + sum(segment.ids.fence.nbytes for segment in self.segments)

    @property
    def filter_size(self) -> int:
        """Bytes of the file of the filter."""
        return 0 if self.filter.file is None else self.filter.file.size

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self, table: Table, start: int) -> dict[str, Any] | None:
        """The segments by name, and what has changed in them, for `restore`; None: there are none."""
        if not self.segments:
            return None
        base = self.base(start)
        rows = self.changed(start, self.end(start))
        self._keep_changed(self.changed(start, FOREVER))
        state, fields = _read(table, rows)
        return {
            "files": [[segment.file.path.name, segment.file.rows] for segment in self.segments],
            "codes": [_saved(segment.codes) for segment in self.segments],
            "filter": None if self.filter.file is None else self.filter.file.name,
            "front": start - base,
            "changed": {"row": rows - base, "state": state, "fields": fields},
        }

    def restore(
        self,
        saved: Mapping[str, Any],
        files: Sequence[RowsFile],
        codes: Codes,
        table: Table,
        runs: Runs,
        times: RowTimes,
    ) -> None:
        """Maps the files that `state` named over the first rows of a table that has room for them. Raises OSError.

        In the place of the filter's name it has a call that waits for the filter, and may give None.
        `codes`: what those of the process that gave the state mean here.
        """
        for file, before in zip(files, saved["codes"], strict=True):
            of_file = codes if before is None else _after(before, codes)
            same = means_the_same(of_file, file.series)
            segment = Segment.of(file, self.end(0), None if same else of_file)
            _map(table, segment)
            runs.put(segment.run())
            times.add_blocks(segment.first, *file.times())
            self.segments.append(segment)
        self._lookup = None
        reading = saved.get("filter")  # format 8 had none at first
        self.filter = self._completed(None if reading is None else reading())
        changed = saved["changed"]
        for name, column in table.columns().items():
            if name == "state" or name in changed["fields"]:
                will_need_rows(column, changed["row"])
        _write(table, changed["row"], changed["state"], changed["fields"])
        self._keep_changed(changed["row"].copy())

    # -- inside --------------------------------------------------------------------------------------------------

    def _keep_changed(self, rows: NDArray[np.int64]) -> None:
        self._changed, self._noted = rows, []

    def _completed(self, known: IdFilter | None) -> IdFilter:
        """A filter that knows the ids of all segments; `known`: one that may know some."""
        if known is not None:
            others = [one.marked for one in self.segments if one.file.mark not in known.marks]
            if known.used + sum(one.ids.size for one in others) <= known.capacity:
                known.add_all(others)
                return known
        return IdFilter.of(one.marked for one in self.segments)

    @contextmanager
    def _kept(self, table: Table, first: int, end: int) -> Iterator[None]:
        """Rows that have changed stay as they are while the file takes their place."""
        rows = self.changed(first, end)
        before = _read(table, rows)
        try:
            yield
        finally:
            _write(table, rows, *before)


def _map(table: Table, segment: Segment) -> None:
    """The file takes the place of the segment's rows; what it has no column for is absent there."""
    file, part = segment.file, slice(segment.first, segment.end)
    if file.lost:
        table.ts[part], table.state[part], table.previous[part] = NEVER, MATURED, _GONE
        return
    columns = table.columns()
    file.map_over(columns, segment.first)
    if segment.codes is not None:  # rewritten in memory, until the rows are forgotten
        table.series[part] = segment.codes.series[table.series[part]]
        table.slices[part] = segment.codes.slices(table.slices[part].astype(np.int64))
    for one in table.kept:
        if (name := f"field.{one.name}") in columns.keys() - file.columns.keys():
            columns[name][part] = one.absent


_Values = tuple[NDArray[np.uint8], dict[str, NDArray[np.float64]]]  # of some rows: states, fields by column


def _read(table: Table, rows: NDArray[np.int64]) -> _Values:
    """What clicks have made of rows."""
    fields = {name: column[rows] for name, column in table.columns().items() if name.startswith("field.")}
    return table.state[rows], fields


def _write(table: Table, rows: NDArray[np.int64], state: NDArray[np.uint8], fields: Mapping[str, Any]) -> None:
    """What `_read` gave, of as many rows; of fields those that are kept."""
    table.state[rows] = state
    columns = table.columns()
    for name in fields.keys() & columns.keys():
        columns[name][rows] = fields[name]


def _saved(codes: Codes | None) -> dict[str, Any] | None:
    if codes is None:
        return None
    return {"series": codes.series, "values": list(codes.values), "radix": codes.radix}


def _after(saved: Mapping[str, Any], codes: Codes) -> Codes:
    """What the codes of a file mean here, that meant something in the process that gave the state (see `_saved`)."""
    values = tuple(now[then] for now, then in zip(codes.values, saved["values"], strict=True))
    return Codes(codes.series[saved["series"]], values, saved["radix"], codes.here or codes.radix)

"""The oldest rows of a table, all mature: on disk, in segments whose files are mapped over the table's columns.

Reading a row is unchanged. Writing one is, too: when a late click changes a label, the page is copied to memory, and the
row's number is recorded, because a checkpoint refers to segments and lists the rows that have changed since. Only
lookups by id differ, because the joiner's hash index covers only rows that are in no segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.events.codes import Codes
from streameval.join.cold.ground import ALIGN, ask_for_rows, empty, give_back
from streameval.join.cold.ids import IdPart
from streameval.join.cold.index import Index, to_merge
from streameval.join.cold.lookup import Lookup
from streameval.join.cold.segment import RowsFile, Segment, content, means_the_same
from streameval.join.cold.unchecked import Unchecked
from streameval.join.kernel import ColdRowsFound
from streameval.join.policy import FOREVER
from streameval.join.rows import Table
from streameval.join.runs import Runs
from streameval.join.times import RowTimes

_MANY = 64  # segments, after which the next ones are twice as large
_MOST = 1 << 24  # rows per segment
_ONE_BY_ONE = 4096  # rows whose pages are requested one by one; more at once lie close together (a log read again)


@dataclass(slots=True)
class Freezing:
    """Rows [first, end), whose segment is being written; they stay in memory until `ColdRows.finish`."""

    first: int
    end: int
    content: dict[str, Any]  # of the file
    ids: NDArray[np.uint64]


@dataclass(slots=True)
class Joining:
    """Indexes that are being merged, or a damaged one that is being rebuilt; in use until `ColdRows.join_indexes`."""

    indexes: list[Index]
    files: list[tuple[RowsFile, int]]  # to rebuild from: files of rows, with their first rows relative to the index

    @property
    def first(self) -> int:
        """The first row of the result."""
        return self.indexes[0].first

    @property
    def rows(self) -> int:
        """Rows of the result."""
        return self.indexes[-1].end - self.first

    @property
    def ids(self) -> int:
        """Ids of the result."""
        if self.files:
            return sum(file.rows for file, _ in self.files if not file.lost)
        return sum(index.ids.size for index in self.indexes)

    def parts(self) -> list[IdPart]:
        """The inputs. Raises OSError."""
        if self.files:
            return [file.part(first) for file, first in self.files]
        first = self.first
        return [IdPart(index.ids, index.first - first) for index in self.indexes]


_NO_ROWS = np.empty(0, np.int64)
NONE_FOUND = ColdRowsFound(_NO_ROWS, _NO_ROWS, _NO_ROWS)


@dataclass(slots=True)
class ColdRows:
    """The segments, oldest first, each beginning where the previous one ends."""

    rows: int  # per segment, until there are many; 0: no segments
    segments: list[Segment] = field(default_factory=list)
    indexes: list[Index] = field(default_factory=list)  # of their ids, likewise
    freezing: Freezing | None = None
    joining: Joining | None = None
    unchecked: Unchecked = field(default_factory=Unchecked)
    _lookup: Lookup | None = None  # None: the indexes have changed
    _changed: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # see `changed`
    _noted: list[NDArray[np.int64]] = field(default_factory=list)

    @property
    def any(self) -> bool:
        """Whether files are mapped over the table, or may be: then it consists of whole pages."""
        return bool(self.rows or self.segments)

    def end(self, start: int) -> int:
        """The first row in no segment; `start`: the first that is not forgotten."""
        return max(start, self.segments[-1].end) if self.segments else start

    def base(self, start: int) -> int:
        """The row that checkpoints count from: the first one of the first segment, if there is one."""
        return self.segments[0].first if self.segments else start

    def front(self, start: int) -> int:
        """The row that becomes row 0 when rows move; at a page boundary if files are or will be mapped."""
        first = self.base(start) // ALIGN * ALIGN if self.any else start
        return min(first, self.freezing.first) if self.freezing else first

    @property
    def next_rows(self) -> int:
        """Rows of the next segment: doubled with every `_MANY` segments, so that there are never thousands."""
        return min(self.rows << len(self.segments) // _MANY, max(self.rows, _MOST))

    def due(self, start: int, waiting: int) -> int:
        """How many segments could be written now; all rows before `waiting` are mature."""
        return (waiting - self.end(start)) // self.next_rows if self.rows else 0

    # -- writing -------------------------------------------------------------------------------------------------

    def begin(self, table: Table, runs: Runs, start: int, waiting: int) -> Freezing | None:
        """Begins the next segment if all of its rows are mature. None: they are not, or a segment is being written."""
        first = self.segments[-1].end if self.segments else start // ALIGN * ALIGN
        end = first + self.next_rows
        if not self.rows or self.freezing is not None or end > waiting:
            return None
        some = content(table, runs.all, first, end)
        self._keep_changed(self.changed(0, first))
        self.freezing = Freezing(first, end, some, table.id[first:end])
        return self.freezing

    def finish(self, table: Table, runs: Runs, start: int, file: RowsFile, index: Index) -> None:
        """The files are on disk: that of the rows replaces their memory. Raises OSError; the rows stay in memory then."""
        freezing, self.freezing = self.freezing, None
        if freezing is None or freezing.end <= start:
            return
        segment = Segment.of(file, freezing.first)
        with self._kept(table, segment.first, segment.end):
            segment.map_over(table)
        runs.put(segment.run())
        self.segments.append(segment)
        index.first, index.end = segment.first, segment.end
        self.indexes.append(index)
        self._lookup = None

    def begin_to_join(self) -> Joining | None:
        """Begins to rebuild a damaged index, or else to merge some. None: nothing to do, or something is under way."""
        if self.joining is not None:
            return None
        damaged = next((index for index in self.indexes if index.damaged), None)
        if damaged is not None:
            self.joining = Joining([damaged], self._files_of(damaged))
            return self.joining
        some = to_merge([index.end - index.first for index in self.indexes])
        if some is not None and not any(index in self.unchecked for index in self.indexes[some]):
            self.joining = Joining(self.indexes[some], [])
        return self.joining

    def join_indexes(self, one: Index) -> None:
        """The result of `joining` is on disk."""
        assert self.joining is not None
        some = self.joining.indexes
        one.first, one.end = some[0].first, some[-1].end
        # some may have been dropped meanwhile
        at = next((at for at, index in enumerate(self.indexes) if index in some), None)
        if at is not None:
            self.indexes = [*self.indexes[:at], one, *(index for index in self.indexes[at:] if index not in some)]
            self._lookup = None

    def lose(self, table: Table, runs: Runs, file: RowsFile) -> None:
        """A file has turned out to be damaged: forgets its rows, but not what has changed in them: the file may be put back."""
        self._lookup = None
        for segment in (one for one in self.segments if one.file is file):
            with self._kept(table, segment.first, segment.end):
                for column in table.columns().values():
                    give_back(column, segment.first, segment.end)
                segment.file = RowsFile(file.path, file.rows, None, models=file.models)
                runs.put(segment.run())
                segment.map_over(table)

    def note(self, rows: NDArray[np.int64]) -> None:
        """Records rows whose labels have changed."""
        end = self.freezing.end if self.freezing else self.segments[-1].end if self.segments else 0
        if (rows < end).any():
            self._noted.append(rows[rows < end])

    def forget_before(self, table: Table, start: int) -> None:
        """Unmaps segments whose rows are all forgotten."""
        while self.segments and self.segments[0].end <= start:
            gone = self.segments.pop(0)
            for column in table.columns().values():
                give_back(column, gone.first, gone.end)
        while self.indexes and self.indexes[0].end <= start:
            del self.indexes[0]
            self._lookup = None

    def move(self, old: Table, to: Table, shift: int) -> None:
        """Maps the files over another table, where row numbers are smaller by `shift`."""
        rows = self.changed(0, self.end(0))
        for segment in self.segments:
            segment.first, segment.end = segment.first - shift, segment.end - shift
            segment.map_over(to)
        for index in {*self.indexes, *(self.joining.indexes if self.joining else ())}:
            index.first, index.end = index.first - shift, index.end - shift
        _write(to, rows - shift, *_read(old, rows))
        self._keep_changed(self.changed(0, FOREVER) - shift)
        if self.freezing is not None:
            self.freezing.first, self.freezing.end = self.freezing.first - shift, self.freezing.end - shift

    def copy(self, table: Table, name: str) -> NDArray[Any]:
        """A copy of a column of scores; segments are mapped, not copied. (A column that clicks change would need more.)"""
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
        """The rows in segments that have the ids of a batch.

        `key`: the keys of its clicks (see `join.kernel`); None: all of them come after every impression so far.
        """
        if not self.segments:
            return NONE_FOUND
        at, row = self._find(np.concatenate((shown, clicked)), start)
        if not row.size:
            return NONE_FOUND
        if row.size <= _ONE_BY_ONE:
            # that was looked for
            ask_for_rows((column for name, column in table.columns().items() if name != "id"), row)
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

    def check(self, first: NDArray[np.int64], end: NDArray[np.int64]) -> None:
        """Has the files of some ranges of rows compared with their checksums, which must precede their use; see `unchecked`."""
        if self.unchecked:
            here = [one for one in self.segments if ((first < one.end) & (end > one.first)).any()]
            self.unchecked.check([one.file for one in here])

    # -- reading -------------------------------------------------------------------------------------------------

    def changed(self, first: int, end: int) -> NDArray[np.int64]:
        """The rows of [first, end), in segments or in the one being written, that differ from the file; ascending."""
        if self._noted:
            self._keep_changed(np.unique(np.concatenate([self._changed, *self._noted])))
        return self._changed[slice(*np.searchsorted(self._changed, (first, end)))]

    def series(self) -> set[int]:
        """The series that occur in segments."""
        return set[int]().union(*(segment.series for segment in self.segments))

    @property
    def nbytes(self) -> int:
        """Bytes of memory, not counting pages that clicks have changed."""
        if not self.segments:
            return 0
        return self._changed.nbytes + sum(index.nbytes for index in self.indexes)

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self, table: Table, start: int) -> dict[str, Any] | None:
        """References to segments and indexes, and the rows that have changed, for `restore`; None: there are no segments."""
        if not self.segments:
            return None
        base = self.base(start)
        rows = self.changed(start, self.end(start))
        self._keep_changed(self.changed(start, FOREVER))
        state, fields = _read(table, rows)
        return {
            "files": [[one.file.path.name, one.file.rows, *one.file.models] for one in self.segments],
            "codes": [None if one.codes is None else one.codes.saved() for one in self.segments],
            "ids": [[index.path.name, index.first - base, index.end - base] for index in self.indexes],
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
        """Maps the files that `state` referred to over the first rows of a table, which has room for them. Raises OSError.

        `saved` holds opened indexes in place of the references to them. `codes` translates the codes of the process that
        made the state.
        """
        for file, before in zip(files, saved["codes"], strict=True):
            of_file = codes if before is None else codes.after(before)
            same = means_the_same(of_file, file.series)
            segment = Segment.of(file, self.end(0), None if same else of_file)
            segment.map_over(table)
            runs.put(segment.run())
            times.add_blocks(segment.first, *file.times())
            self.segments.append(segment)
        self.indexes, self._lookup = list(saved["ids"]), None
        changed = saved["changed"]
        written = (column for name, column in table.columns().items() if name == "state" or name in changed["fields"])
        ask_for_rows(written, changed["row"])
        _write(table, changed["row"], changed["state"], changed["fields"])
        self._keep_changed(changed["row"].copy())

    # -- inside --------------------------------------------------------------------------------------------------

    def _find(self, wanted: NDArray[np.uint64], start: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(positions in `wanted`, rows) of the rows from `start` on that have one of the ids."""
        while True:
            lookup = self._lookup
            if lookup is None:
                lost = [segment for segment in self.segments if segment.file.lost]
                lookup = self._lookup = Lookup(self.indexes, lost)
            at, row, index = lookup.find(wanted)
            known = row >= start
            if self.unchecked or any(one.damaged for one in self.indexes):
                self._mend([self.indexes[number] for number in np.unique(index).tolist()])
                if self._lookup is lookup:
                    self.check(row[known], row[known] + 1)
            if self._lookup is lookup:
                return at[known], row[known]

    def _mend(self, found: Sequence[Index]) -> None:
        """Has indexes compared with their checksums; makes the ids of a damaged one anew, since its file will take longer."""
        self.unchecked.check(found)
        for index in found:
            if index.damaged and not index.mended:
                parts = []
                for file, first in self._files_of(index):
                    with suppress(OSError):  # then its rows are not found until the index has a file again
                        parts.append(file.part(first))
                index.mend(parts)
                self._lookup = None

    def _files_of(self, index: Index) -> list[tuple[RowsFile, int]]:
        """The files of an index's rows, each with its first row relative to the index."""
        here = [one for one in self.segments if index.first <= one.first < index.end]
        return [(one.file, one.first - index.first) for one in here]

    def _keep_changed(self, rows: NDArray[np.int64]) -> None:
        self._changed, self._noted = rows, []

    @contextmanager
    def _kept(self, table: Table, first: int, end: int) -> Iterator[None]:
        """Keeps what has changed in rows while the file is mapped over them."""
        rows = self.changed(first, end)
        before = _read(table, rows)
        try:
            yield
        finally:
            _write(table, rows, *before)


_Values = tuple[NDArray[np.uint8], dict[str, NDArray[np.float64]]]  # states, and fields by column


def _read(table: Table, rows: NDArray[np.int64]) -> _Values:
    """What clicks can change of rows."""
    fields = {name: column[rows] for name, column in table.columns().items() if name.startswith("field.")}
    return table.state[rows], fields


def _write(table: Table, rows: NDArray[np.int64], state: NDArray[np.uint8], fields: Mapping[str, Any]) -> None:
    """Writes what `_read` returned to as many rows; fields that are no longer kept are skipped."""
    table.state[rows] = state
    columns = table.columns()
    for name in fields.keys() & columns.keys():
        columns[name][rows] = fields[name]

"""Rows that are not in segments yet, most of which wait for their label: their immutable columns are on disk, too.

A checkpoint refers to such files instead of copying millions of rows that the previous one has already copied, and once a
file is written it is mapped in place of the memory of its rows: only what still changes (state, kept fields, online
scores) and the index of ids stay in memory. Files are written ahead of the checkpoint if there are rows for more than a
few, otherwise by the first checkpoint that refers to them; a restart compares every byte before it maps them. They are
deleted when no checkpoint refers to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.events.codes import Codes
from streameval.join.cold.ground import ALIGN, Extent, map_file
from streameval.join.cold.segment import distinct, means_the_same
from streameval.join.rows import Table, split_fields

_LEFT = 1  # blocks left to the next checkpoint: by then their rows may be in a segment
_MOST = 1 << 18  # rows of a block: rows that do not fill a block are copied into every checkpoint


class WrittenFile(NamedTuple):
    """A file of immutable columns."""

    path: Path
    size: int  # bytes
    columns: Mapping[str, Extent]

    @staticmethod
    def of(path: Path, layout: Mapping[str, Extent], size: int) -> WrittenFile:
        """From what `container.layout` returns; columns that the table did not have are left out."""
        return WrittenFile(path, size, {name: place for name, place in layout.items() if place[1][0]})

    @property
    def rows(self) -> int:
        """How many."""
        return self.columns["id"][1][0]

    def read(self, name: str, skipped: int) -> NDArray[Any]:
        """A column without its first rows. Raises OSError."""
        dtype, (rows,), offset = self.columns[name]
        return np.fromfile(self.path, dtype, rows - skipped, offset=offset + skipped * np.dtype(dtype).itemsize)


@dataclass(slots=True)
class WrittenBlock:
    """Rows [first, end) of the table."""

    first: int
    end: int
    file: WrittenFile | None = None  # None: not written yet
    columns: dict[str, NDArray[Any]] | None = None  # to be written
    mapped: bool | None = False  # whether the file has replaced the memory; None: it cannot

    def map_over(self, table: Table, begin: int) -> None:
        """Puts the file in place of the table's memory, from row `begin` on. Raises OSError; the rows stay as they are then."""
        assert self.file is not None
        self.mapped = None
        map_file(self.file.path, self.file.columns, _columns(table), begin, begin - self.first)
        self.mapped = True


class NamedRows(NamedTuple):
    """A checkpoint's reference to a block, without its first rows, which are forgotten or in segments."""

    block: WrittenBlock
    skipped: int


class RestoredRows(NamedTuple):
    """The same, read from a checkpoint."""

    file: WrittenFile
    skipped: int


class WrittenRows:
    """The blocks, oldest first, each beginning where the previous one ends."""

    def __init__(self, rows: int) -> None:
        """`rows` per block, at most `_MOST`; 0: no blocks."""
        self._rows = min(rows, _MOST)
        self.blocks: list[WrittenBlock] = []

    def state(self, table: Table, here: slice) -> dict[str, Any]:
        """The rows of a checkpoint, for `restore`: references to blocks, and copies of the rest.

        The caller writes those blocks that have no file yet, in order, before the checkpoint.
        """
        self._leave_out(here.start)
        while self._begin(table, here) is not None:
            pass
        at = self.blocks[-1].end if self.blocks else here.start
        return {
            "written": [NamedRows(block, max(here.start - block.first, 0)) for block in self.blocks],
            "rows": table.unchanging(slice(at, here.stop)) | table.changing(here),
        }

    def early(self, table: Table, here: slice) -> WrittenBlock | None:
        """A block that can be written now, so that the next checkpoint need not; None: there are too few rows.

        If it still has no file at the next call, writing it has failed, and it is given up.
        """
        self._leave_out(here.start)
        return self._begin(table, slice(here.start, here.stop - _LEFT * self._rows))

    def unwritten(self, here: slice) -> int:
        """How many of the rows are in no block."""
        return here.stop - (max(self.blocks[-1].end, here.start) if self.blocks else here.start)

    def map_over(self, table: Table, here: slice) -> None:
        """Maps the files written since the last call. Raises OSError; the rows of that file stay in memory then.

        Nothing may be reading the table on another thread.
        """
        for block in self.blocks:
            if block.file is not None and block.mapped is False and block.end > here.start:
                block.map_over(table, _first_mapped(block, here))

    def mapped_rows(self, here: slice) -> int:
        """How many rows have their immutable columns in mapped files."""
        return sum(block.end - _first_mapped(block, here) for block in self._mapped(here))

    def mapped_bytes(self, table: Table, here: slice) -> int:
        """Bytes of these columns, which take no memory of the process."""
        return self.mapped_rows(here) * sum(column.itemsize for column in _columns(table).values())

    def move(self, old: Table, to: Table, here: slice, shift: int) -> None:
        """Moves rows to another table (or within one without files), where their numbers are smaller by `shift`."""
        mapped = self._mapped(here)
        ends = [here.start, *(block.end for block in mapped)]
        starts = [*(_first_mapped(block, here) for block in mapped), here.stop]
        between = [slice(end, start) for end, start in zip(ends, starts, strict=True) if end < start]
        before, unchanging = old.columns(), _columns(old).keys()
        for name, column in to.columns().items():
            for part in between if name in unchanging else [here]:
                column[part.start - shift : part.stop - shift] = before[name][part]
        for block in self.blocks:
            block.first, block.end = block.first - shift, block.end - shift
        for block in mapped:
            begin = _first_mapped(block, slice(here.start - shift, here.stop - shift))
            try:
                block.map_over(to, begin)
            except OSError:
                for name in unchanging:
                    to.columns()[name][begin : block.end] = before[name][begin + shift : block.end + shift]

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(block.file.size for block in self.blocks if block.file is not None)

    # -- restarts ------------------------------------------------------------------------------------------------

    def restore(self, state: Mapping[str, Any], table: Table, codes: Codes, here: slice) -> None:
        """Puts rows of a checkpoint into a table; `codes`: what its codes mean here.

        Files are mapped if rows are to be on disk, their codes mean the same, and the rows begin at a whole page of them;
        otherwise they are copied into memory, and later checkpoints do not refer to the files. Raises OSError.
        """
        written = [RestoredRows(*one) for one in state.get("written", ())]  # format 7 has none
        aligned = all((here.start - one.skipped) % ALIGN == 0 for one in written[:1])
        fits = self._rows > 0 and aligned and all(_fits(one.file, table, codes) for one in written)
        at = here.start
        for file, skipped in written:
            block = WrittenBlock(at - skipped, at - skipped + file.rows, file)
            if fits:
                self.blocks.append(block)
                with suppress(OSError):
                    block.map_over(table, _first_mapped(block, here))
            if not block.mapped:
                columns = {name: file.read(name, skipped) for name in file.columns}
                table.restore(columns, codes, slice(at, block.end))
            at = block.end
        columns, fields = split_fields(state["rows"])
        table.state[here] = columns.pop("state")
        table.restore(columns, codes, slice(at, here.stop))
        table.restore_fields(fields, here)

    # -- inside --------------------------------------------------------------------------------------------------

    def _mapped(self, here: slice) -> list[WrittenBlock]:
        return [block for block in self.blocks if block.mapped and block.end > here.start]

    def _begin(self, table: Table, here: slice) -> WrittenBlock | None:
        """The next block to be written; None: there are too few rows."""
        if not self._rows or self.unwritten(here) < self._rows:
            return None
        at = self.blocks[-1].end if self.blocks else here.start // ALIGN * ALIGN
        block = WrittenBlock(at, at + self._rows, columns=table.unchanging(slice(at, at + self._rows)))
        self.blocks.append(block)
        return block

    def _leave_out(self, start: int) -> None:
        """Drops blocks that could not be written, and those whose rows are all before `start`."""
        self.blocks = [block for block in self.blocks if block.file is not None and block.end > start]


def _first_mapped(block: WrittenBlock, here: slice) -> int:
    """The first row of a block to be mapped: those before are in segments, or forgotten."""
    return max(block.first, here.start // ALIGN * ALIGN)


def _columns(table: Table) -> dict[str, NDArray[Any]]:
    """The immutable columns that the table has."""
    return {name: column for name, column in table.unchanging(slice(None)).items() if column.size}


def _fits(file: WrittenFile, table: Table, codes: Codes) -> bool:
    """Whether a file can take the place of columns as it is. Raises OSError."""
    columns = table.unchanging(slice(None))
    same = all(columns[name].dtype == np.dtype(place[0]) for name, place in file.columns.items())
    return same and means_the_same(codes, distinct(file.read("series", 0)))

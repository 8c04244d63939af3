"""Rows in memory whose unchanging columns are in files, too: those that wait for their labels, and those not yet on disk.

A checkpoint refers to such files instead of copying millions of rows that the previous one has already copied. They are
written ahead of the checkpoint if there are rows for more than a few, otherwise by the first checkpoint that refers to
them, read completely at a restart, and deleted when no checkpoint refers to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

from streameval.events.codes import Codes
from streameval.join.cold.segment import distinct, means_the_same
from streameval.join.rows import Table, split_fields

_LEFT = 1  # blocks that are left to the next checkpoint: by then their rows may be on disk for good
_MOST = 1 << 18  # rows of a block: of a block that is not whole every checkpoint has the rows


@dataclass(slots=True)
class WrittenBlock:
    """Rows [first, end) of the table."""

    first: int
    end: int
    name: str | None  # of the file; None: not written yet
    columns: dict[str, NDArray[Any]] | None  # what is to be written
    size: int = 0  # of the file, bytes


class NamedRows(NamedTuple):
    """What a checkpoint says of a block, its first rows left out: they are forgotten, or on disk for good."""

    block: WrittenBlock
    skipped: int


class RestoredRows(NamedTuple):
    """The same, of a checkpoint that was read."""

    name: str
    skipped: int
    size: int  # of the file, bytes
    columns: Mapping[str, NDArray[Any]]


class WrittenRows:
    """The blocks, oldest first, one right behind the other."""

    def __init__(self, rows: int) -> None:
        """`rows` of a block, or `_MOST` if that is less; 0: none are made."""
        self._rows = min(rows, _MOST)
        self.blocks: list[WrittenBlock] = []

    def state(self, table: Table, here: slice) -> dict[str, Any]:
        """The rows of a checkpoint, for `restore`: the blocks that it names, and copies of the rest.

        Whoever writes it writes the blocks without a name before it, in order, and gives them one.
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
        """A block that could be written now, so that the next checkpoint need not, by whoever gives it a name then.

        One that has none when this is called again was not written. None: there are too few rows.
        """
        self._leave_out(here.start)
        return self._begin(table, slice(here.start, here.stop - _LEFT * self._rows))

    def unwritten(self, here: slice) -> int:
        """How many of the rows are in no block."""
        return here.stop - (max(self.blocks[-1].end, here.start) if self.blocks else here.start)

    def _begin(self, table: Table, here: slice) -> WrittenBlock | None:
        """The next block, which is to be written; None: there are too few rows."""
        if not self._rows or self.unwritten(here) < self._rows:
            return None
        at = self.blocks[-1].end if self.blocks else here.start
        block = WrittenBlock(at, at + self._rows, None, table.unchanging(slice(at, at + self._rows)))
        self.blocks.append(block)
        return block

    def _leave_out(self, start: int) -> None:
        """Blocks that were not written, or whose rows are all before `start`."""
        self.blocks = [block for block in self.blocks if block.name is not None and block.end > start]

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(block.size for block in self.blocks)

    def restore(self, state: Mapping[str, Any], table: Table, codes: Codes, here: slice) -> None:
        """Writes rows of a checkpoint to a table; `codes`: what its codes mean here.

        Files whose codes mean something else are not named by later checkpoints.
        """
        same, at = True, here.start
        for one in state.get("written", ()):  # format 7 has none
            columns = {name: column[one.skipped :] for name, column in one.columns.items()}
            end = at + columns["id"].size
            table.restore(columns, codes, slice(at, end))
            self.blocks.append(WrittenBlock(at - one.skipped, end, one.name, None, one.size))
            same = same and means_the_same(codes, distinct(columns["series"]))
            at = end
        if not same:
            self.blocks = []
        columns, fields = split_fields(state["rows"])
        table.state[here] = columns.pop("state")
        table.restore(columns, codes, slice(at, here.stop))
        table.restore_fields(fields, here)

    def move(self, shift: int) -> None:
        """Every row number has become smaller by `shift`."""
        for block in self.blocks:
            block.first, block.end = block.first - shift, block.end - shift

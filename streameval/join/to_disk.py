"""Which rows of a joiner go to disk next, and their state there; the caller writes the files."""

from __future__ import annotations

from collections.abc import Sequence

from streameval.join.cold.cold_rows import Freezing, Joining
from streameval.join.cold.index import Index
from streameval.join.cold.segment import RowsFile
from streameval.join.cold.unchecked import Unchecked
from streameval.join.cold.written import WrittenBlock
from streameval.join.joiner import Joiner


class RowsToDisk:
    """The segments, blocks and indexes of one joiner. No other thread may be reading its table."""

    def __init__(self, joiner: Joiner) -> None:
        self._joiner, self._cold, self._written = joiner, joiner.cold, joiner.written

    @property
    def segments_due(self) -> int:
        """The number of segments that could be written now."""
        return self._cold.due(self._joiner.front, self._joiner.waiting)

    @property
    def unwritten(self) -> int:
        """Rows that the next checkpoint would have to write, or to copy; 0 if rows stay in memory."""
        return self._written.unwritten(self._joiner.outside_segments) if self._cold.rows else 0

    def next_segment(self) -> Freezing | None:
        """Starts the next segment; None: none is due, or one is being written."""
        joiner = self._joiner
        return self._cold.begin(joiner.table, joiner.runs, joiner.front, joiner.waiting)

    def segment_written(self, file: RowsFile, index: Index) -> None:
        """Maps the file over its rows. Raises OSError; the rows then stay in memory."""
        self._cold.finish(self._joiner.table, self._joiner.runs, self._joiner.front, file, index)

    def segment_ended(self) -> None:
        """Allows the next segment to start, whether or not this one was written and mapped."""
        self._cold.freezing = None

    def next_block(self) -> WrittenBlock | None:
        """The next block of rows that a checkpoint would otherwise have to write; None: there are too few rows."""
        return self._written.early(self._joiner.table, self._joiner.outside_segments)

    def map_blocks(self) -> None:
        """Maps the blocks that were written. Raises OSError; the rows of the block that failed then stay in memory."""
        self._written.map_over(self._joiner.table, self._joiner.outside_segments)

    def next_merge(self) -> Joining | None:
        """Starts to rebuild a damaged index, or else to merge some; None: none is due, or one is being written."""
        return self._cold.begin_to_join()

    def merge_written(self, index: Index) -> None:
        """Replaces the indexes that were merged."""
        self._cold.join_indexes(index)

    def merge_ended(self) -> None:
        """Allows the next merge to start, whether or not this one was written."""
        self._cold.joining = None

    def put_aside(self, file: RowsFile | Index) -> int | None:
        """Drops the rows of a damaged file and returns their number; 0 for an index, which is rebuilt; None: no longer in use."""
        if isinstance(file, Index):
            if file not in self._cold.indexes:
                return None
            file.damaged = True
            return 0
        if all(segment.file is not file for segment in self._cold.segments):
            return None
        self._cold.lose(self._joiner.table, self._joiner.runs, file)
        return file.rows

    @property
    def unchecked(self) -> Unchecked:
        """The files that were mapped when the partition was restored, until they have been compared with their checksums."""
        return self._cold.unchecked

    @property
    def indexes(self) -> Sequence[Index]:
        """The files of ids."""
        return self._cold.indexes

    @property
    def files_in_use(self) -> frozenset[str]:
        """The names of the files that a checkpoint written now would refer to."""
        paths = [segment.file.path for segment in self._cold.segments]
        paths += [index.path for index in self._cold.indexes]
        paths += [block.file.path for block in self._written.blocks if block.file is not None]
        return frozenset(path.name for path in paths)

    @property
    def segment_files(self) -> list[RowsFile]:
        """The files of segments, also lost ones."""
        return [segment.file for segment in self._cold.segments]

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all files."""
        of_segments = sum(file.size for file in self.segment_files)
        return of_segments + sum(index.size for index in self._cold.indexes) + self._written.size

    @property
    def mapped_rows(self) -> int:
        """Rows in no segment whose immutable columns are in mapped files."""
        return self._written.mapped_rows(self._joiner.outside_segments)

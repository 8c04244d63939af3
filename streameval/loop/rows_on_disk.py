"""Moves rows to disk, and maps them again at a restart. See `streameval.join.cold`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from streameval.join.cold.cold_rows import Freezing
from streameval.join.cold.index import Index, in_order
from streameval.join.cold.segment import RowsFile
from streameval.join.cold.unchecked import OnDisk
from streameval.join.cold.written import RestoredRows, WrittenBlock, WrittenFile
from streameval.join.to_disk import RowsToDisk
from streameval.loop.ids_on_disk import put_indexes, write_index
from streameval.results.snapshot import CheckpointState
from streameval.store import container
from streameval.store.checkpoints import Checkpoints
from streameval.store.errors import DamagedError, StoreError

log = logging.getLogger(__name__)

# unwritten segments of a partition, and rows that a checkpoint would have to write, at which ingest waits for the disk
_MANY_SEGMENTS, _MANY_ROWS = 8, 3 << 18


_NOT_MAPPED = (
    "rows that are on disk cannot be mapped: %s; they stay in memory until their labels have matured; a higher "
    "vm.max_map_count allows more maps"
)


class RowsWork(NamedTuple):
    """What the writing thread calls, and what the loop then calls with the result."""

    call: Callable[[], Any]
    done: Callable[[Future[Any]], None]  # raises StoreError: the rows stay in memory


def work_on_rows(rows: RowsToDisk, files: Checkpoints) -> RowsWork | None:
    """The next job: write a segment of mature rows, or else rows that the next checkpoint would have to write, or else verify a
    file that was mapped at the restart."""
    try:
        rows.map_blocks()
    except OSError as error:
        log.warning(_NOT_MAPPED, error.strerror)
    freezing = rows.next_segment()
    if freezing is not None:
        return RowsWork(partial(_write, files, freezing, rows.files_in_use), partial(_put_on_disk, rows, files))
    block = rows.next_block()
    if block is not None:
        return RowsWork(partial(_write_early, files, block, rows.files_in_use), lambda written: written.result())
    return check_next(rows)


def check_next(rows: RowsToDisk) -> RowsWork | None:
    """The next job: verify a file that was mapped when its partition was restored."""
    file = rows.unchecked.next
    if file is None:
        return None
    return RowsWork(
        partial(container.check, file.path), lambda checked: _put_aside_if_damaged(rows, checked.result, file)
    )


def check_before_use(rows: RowsToDisk, files: Sequence[RowsFile]) -> None:
    """Has the files of a restored partition verified: in the background, or when one is needed before its turn.

    `files`: of its segments. Indexes come first: what is missing from one is not noticed otherwise.
    """
    mapped: list[OnDisk] = [file for file in files if not file.lost]

    def check_now(file: OnDisk) -> None:
        _put_aside_if_damaged(rows, partial(container.check, file.path), file)

    rows.unchecked.put([*mapped, *rows.indexes], check_now)


def rows_wait(rows: RowsToDisk) -> bool:
    """Whether the writing thread is so far behind that ingest must wait for it."""
    return rows.segments_due >= _MANY_SEGMENTS or rows.unwritten >= _MANY_ROWS


def _write(files: Checkpoints, freezing: Freezing, in_use: frozenset[str]) -> tuple[RowsFile, Index]:
    files.forget_rows(in_use)
    path = files.save_rows(freezing.content)
    layout, size = container.layout(path)
    file = RowsFile(path, freezing.end - freezing.first, layout, size)
    return file, write_index(files, lambda: [in_order(freezing.ids)], freezing.ids.size)


def _write_early(files: Checkpoints, block: WrittenBlock, in_use: frozenset[str]) -> None:
    files.forget_rows(in_use)
    _write_block(files, block)


def _write_block(files: Checkpoints, block: WrittenBlock) -> WrittenFile:
    path = files.save_rows(block.columns or {})
    block.file, block.columns = WrittenFile.of(path, *container.layout(path)), None
    return block.file


def _put_on_disk(rows: RowsToDisk, files: Checkpoints, written: Future[tuple[RowsFile, Index]]) -> None:
    """Maps the segment that was written."""
    try:
        file, index = written.result()
        files.named(index.path.name)
        rows.segment_written(file, index)
    except OSError as error:
        raise StoreError(
            f"rows on disk cannot be mapped: {error.strerror}; they stay in memory; a larger store.segment_rows needs fewer "
            "maps, and a higher vm.max_map_count allows more"
        ) from None
    finally:
        rows.segment_ended()


def _put_aside_if_damaged(rows: RowsToDisk, check: Callable[[], Any], file: OnDisk) -> None:
    """Drops the rows of a damaged file; a damaged index is rebuilt. `check` raises what is wrong with it."""
    rows.unchecked.remove(file)
    try:
        check()
    except (DamagedError, OSError) as error:
        lost = rows.put_aside(file)
        if lost:
            _say_lost(file.path, lost, str(error))
        elif lost is not None:
            log.warning("%s: %s: rebuilt from the files of rows", file.path, error)


def count_rows(on_disk: Sequence[RowsToDisk], into: CheckpointState) -> None:
    """Counts the partitions' rows on disk, the bytes of their files, and rows that were lost."""
    files = [file for rows in on_disk for file in rows.segment_files]
    into.rows = sum(file.rows for file in files if not file.lost)
    into.rows_mapped = sum(rows.mapped_rows for rows in on_disk)
    into.rows_bytes = sum(rows.bytes_on_disk for rows in on_disk)
    into.rows_lost = max(into.rows_lost, sum(file.rows for file in files if file.lost))  # some may have expired since


def files_named(monitor: Mapping[str, Any] | None) -> list[str]:
    """The names of the segments and indexes that a partition's state refers to."""
    cold = _cold(monitor)
    return [one[0] for key in ("files", "ids") for one in cold.get(key, ())]


def _cold(monitor: Mapping[str, Any] | None) -> dict[str, Any]:
    """The part of a partition's state about segments."""
    return (None if monitor is None else monitor["joiner"].get("cold")) or {}


def write_named(files: Checkpoints, monitor: Mapping[str, Any] | None) -> tuple[list[str], int]:
    """Writes the blocks of rows in a partition's state that have no file yet, and replaces all blocks by the files' names.

    Returns these names, and the bytes written. Raises as `Checkpoints.save`.
    """
    named = [] if monitor is None else monitor["joiner"]["written"]
    names, size = [], 0
    for block, _ in named:
        file = block.file
        if file is None:
            file = _write_block(files, block)
            size += file.size
        names.append(file.path.name)
    if monitor is not None:
        monitor["joiner"]["written"] = [[name, skipped] for name, (_, skipped) in zip(names, named, strict=True)]
    return names, size


def put_named(
    store: Checkpoints,
    monitor: Mapping[str, Any] | None,
    files: Mapping[str, tuple[Mapping[str, Any], int]],
    rows: Sequence[RowsFile],
) -> None:
    """Replaces file names in a partition's state by what they refer to: blocks of rows (`files`, by name) and indexes. Raises StoreError."""
    if monitor is not None:
        joiner = monitor["joiner"]
        joiner["written"] = [
            RestoredRows(WrittenFile.of(store.folder / name, *files[name]), skipped)
            for name, skipped in joiner.get("written", ())
        ]
    if cold := _cold(monitor):
        put_indexes(store, cold, rows)


def open_rows(folder: Path, monitor: Mapping[str, Any] | None) -> list[RowsFile]:
    """The segments' files that a partition's state refers to; damaged or missing ones are marked as lost, and logged.

    Raises StoreError when a file exists and cannot be read.
    """
    out = []
    for name, rows, *models in _cold(monitor).get("files", ()):
        numbered = tuple(models)
        path = folder / name
        try:
            layout, size = container.layout(path)
        except FileNotFoundError:
            _say_lost(path, rows, "it is missing")
            out.append(RowsFile(path, rows, None, models=numbered))
        except DamagedError as error:
            _say_lost(path, rows, str(error))
            out.append(RowsFile(path, rows, None, models=numbered))
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}; check its permissions, and the disk") from None
        else:
            out.append(RowsFile(path, rows, layout, size, numbered))
    return out


def _say_lost(path: Path, rows: int, cause: str) -> None:
    """Logs what the loss of a file means."""
    log.error(
        "%s: %s; its %d impressions are lost: late clicks on them will count as unmatched, duplicates of them as new, and what was already counted stays as it is; put the file back and restart to recover them",
        path,
        cause,
        rows,
    )

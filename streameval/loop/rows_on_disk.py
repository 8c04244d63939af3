"""Moves rows to disk, and maps them again at a restart. See `streameval.join.cold`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from streameval.join.cold.cold_rows import Freezing
from streameval.join.cold.index import Index, in_order
from streameval.join.cold.segment import RowsFile
from streameval.join.cold.written import RestoredRows, WrittenBlock, WrittenFile
from streameval.join.joiner import Joiner
from streameval.loop.ids_on_disk import put_indexes, write_index
from streameval.loop.partition import Partition
from streameval.results.snapshot import CheckpointState
from streameval.store import container
from streameval.store.checkpoints import Checkpoints
from streameval.store.errors import DamagedError, StoreError

log = logging.getLogger(__name__)

# of a partition, not on the disk yet, at which ingest waits for it: segments, and rows that a checkpoint would have to write
_MANY_SEGMENTS, _MANY_ROWS = 8, 3 << 18


_NOT_MAPPED = (
    "rows that are on disk cannot be mapped: %s; they stay in memory until their labels have matured; a higher "
    "vm.max_map_count allows more maps"
)


class RowsWork(NamedTuple):
    """What another thread calls, and what the loop calls with what has come of it."""

    call: Callable[[], Any]
    done: Callable[[Future[Any]], None]  # raises StoreError: the rows stay in memory


def work_on_rows(joiner: Joiner, files: Checkpoints, unchecked: list[RowsFile | Index]) -> RowsWork | None:
    """Writes the next rows whose labels are mature; when there are none, others that the next checkpoint would write, or reads a file
    that a restart has found."""
    try:
        joiner.written.map_over(joiner.table, joiner.outside_segments)
    except OSError as error:
        log.warning(_NOT_MAPPED, error.strerror)
    freezing = joiner.cold.begin(joiner.table, joiner.runs, joiner.front, joiner.waiting)
    if freezing is not None:
        return RowsWork(partial(_write, files, freezing, _in_use(joiner)), partial(_put_on_disk, joiner, files))
    block = joiner.written.early(joiner.table, joiner.outside_segments)
    if block is not None:
        return RowsWork(partial(_write_early, files, block, _in_use(joiner)), lambda written: written.result())
    if unchecked:
        file = unchecked.pop()
        return RowsWork(partial(container.check, file.path), partial(_put_aside_if_damaged, joiner, file))
    return None


def rows_wait(joiner: Joiner) -> bool:
    """Whether more rows could be on disk than a thread can write while a batch is counted."""
    if not joiner.cold.rows:
        return False
    segments, rows = joiner.cold.due(joiner.front, joiner.waiting), joiner.written.unwritten(joiner.outside_segments)
    return segments >= _MANY_SEGMENTS or rows >= _MANY_ROWS


def _in_use(joiner: Joiner) -> frozenset[str]:
    """The names of the files that a checkpoint of now would name."""
    names = [segment.file.path.name for segment in joiner.cold.segments]
    names += [index.path.name for index in joiner.cold.indexes]
    return frozenset(names + [block.file.path.name for block in joiner.written.blocks if block.file is not None])


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


def _put_on_disk(joiner: Joiner, files: Checkpoints, written: Future[tuple[RowsFile, Index]]) -> None:
    """Maps what was written."""
    try:
        file, index = written.result()
        files.named(index.path.name)
        joiner.cold.finish(joiner.table, joiner.runs, joiner.front, file, index)
    except OSError as error:
        raise StoreError(
            f"rows on disk cannot be mapped: {error.strerror}; they stay in memory; a larger store.segment_rows needs fewer "
            "maps, and a higher vm.max_map_count allows more"
        ) from None
    finally:
        joiner.cold.freezing = None


def _put_aside_if_damaged(joiner: Joiner, file: RowsFile | Index, checked: Future[Any]) -> None:
    """Forgets the rows of a file whose bytes are not what was written; ids are made anew."""
    try:
        checked.result()
    except (DamagedError, OSError) as error:
        if isinstance(file, Index):
            if file in joiner.cold.indexes:
                log.warning("%s: %s: made anew from the files of rows", file.path, error)
                file.damaged = True
            return
        if all(
            segment.file is not file for segment in joiner.cold.segments
        ):  # its rows are forgotten, so it may be gone
            return
        _say_lost(file.path, file.rows, str(error))
        joiner.cold.lose(joiner.table, joiner.runs, file)


def count_rows(partitions: Iterable[Partition], into: CheckpointState) -> None:
    """How many rows of partitions are on disk, what they take there, and how many were lost."""
    joiners = [part.joiner for part in partitions]
    files = [segment.file for joiner in joiners for segment in joiner.cold.segments]
    into.rows = sum(file.rows for file in files if not file.lost)
    into.rows_bytes = sum(file.size for file in files) + sum(one.written.size for one in joiners)
    into.rows_bytes += sum(index.size for joiner in joiners for index in joiner.cold.indexes)
    into.rows_lost = max(into.rows_lost, sum(file.rows for file in files if file.lost))  # some are forgotten by now


def files_named(monitor: Mapping[str, Any] | None) -> list[str]:
    """The names of the files of rows on disk, and of their ids, that a partition's state is made of."""
    cold = _cold(monitor)
    return [one[0] for key in ("files", "ids") for one in cold.get(key, ())]


def _cold(monitor: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a partition's state says of rows on disk."""
    return (None if monitor is None else monitor["joiner"].get("cold")) or {}


def write_named(files: Checkpoints, monitor: Mapping[str, Any] | None) -> tuple[list[str], int]:
    """Writes the rows that a partition's state names and that are in no file yet, and has it say the files' names.

    Returns the names of all, and the bytes written. Raises as `Checkpoints.save`.
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
    """Has a partition's state hold the rows that it names, of files by name, and the indexes of those that are on disk. Raises StoreError."""
    if monitor is not None:
        joiner = monitor["joiner"]
        joiner["written"] = [
            RestoredRows(WrittenFile.of(store.folder / name, *files[name]), skipped)
            for name, skipped in joiner.get("written", ())
        ]
    if cold := _cold(monitor):
        put_indexes(store, cold, rows)


def open_rows(folder: Path, monitor: Mapping[str, Any] | None) -> list[RowsFile]:
    """The files that a partition's state needs; those that are damaged or missing are said to be lost.

    Raises StoreError when one is there and cannot be read.
    """
    out = []
    for name, rows in _cold(monitor).get("files", ()):
        path = folder / name
        try:
            layout, size = container.layout(path)
        except FileNotFoundError:
            _say_lost(path, rows, "it is missing")
            out.append(RowsFile(path, rows, None))
        except DamagedError as error:
            _say_lost(path, rows, str(error))
            out.append(RowsFile(path, rows, None))
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}; check its permissions, and the disk") from None
        else:
            out.append(RowsFile(path, rows, layout, size))
    return out


def _say_lost(path: Path, rows: int, cause: str) -> None:
    """Says what is lost with a file."""
    log.error(
        "%s: %s; its %d impressions are lost: late clicks on them will count as unmatched, duplicates of them as new, and what was already counted stays as it is; put the file back and restart to recover them",
        path,
        cause,
        rows,
    )

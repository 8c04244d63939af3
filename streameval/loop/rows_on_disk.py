"""Rows on their way to the disk, and back at a restart. See `streameval.join.cold`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from streameval.join.cold.cold_rows import Freezing
from streameval.join.cold.filter import IdFilter
from streameval.join.cold.segment import RowsFile
from streameval.join.cold.written import RestoredRows
from streameval.join.joiner import Joiner
from streameval.loop.partition import Partition
from streameval.results.snapshot import CheckpointState
from streameval.store import container
from streameval.store.checkpoints import Checkpoints
from streameval.store.errors import DamagedError, StoreError

log = logging.getLogger(__name__)


class RowsWork(NamedTuple):
    """What another thread calls, and what the loop calls with what has come of it."""

    call: Callable[[], Any]
    done: Callable[[Future[Any]], None]  # raises StoreError: the rows stay in memory


def work_on_rows(joiner: Joiner, files: Checkpoints, unchecked: list[RowsFile]) -> RowsWork | None:
    """Writes the next rows whose labels are mature; when there are none, reads a file that a restart has found."""
    freezing = joiner.cold.begin(joiner.table, joiner.runs, joiner.front, joiner.waiting)
    if freezing is not None:
        return RowsWork(partial(_write, files, freezing), partial(_put_on_disk, joiner))
    if unchecked:
        file = unchecked.pop()
        return RowsWork(partial(container.check, file.path), partial(_put_aside_if_damaged, joiner, file))
    return None


def _write(files: Checkpoints, freezing: Freezing) -> tuple[RowsFile, IdFilter]:
    path = files.save_rows(freezing.content)
    layout, size = container.layout(path)
    file = RowsFile(path, freezing.end - freezing.first, layout, size)
    return file, freezing.enter(file.mark)


def _put_on_disk(joiner: Joiner, written: Future[tuple[RowsFile, IdFilter]]) -> None:
    """Maps what was written."""
    try:
        joiner.cold.finish(joiner.table, joiner.runs, joiner.front, *written.result())
    except OSError as error:
        raise StoreError(
            f"rows on disk cannot be mapped: {error.strerror}; they stay in memory; a larger store.segment_rows needs fewer "
            "maps, and a higher vm.max_map_count allows more"
        ) from None
    finally:
        joiner.cold.freezing = None


def _put_aside_if_damaged(joiner: Joiner, file: RowsFile, checked: Future[None]) -> None:
    """Forgets the rows of a file whose bytes are not what was written."""
    try:
        checked.result()
    except (DamagedError, OSError) as error:
        if all(
            segment.file is not file for segment in joiner.cold.segments
        ):  # its rows are forgotten, so it may be gone
            return
        _say_lost(file.path, file.rows, str(error))
        joiner.cold.lose(joiner.table, joiner.runs, file)


def count_rows(partitions: Iterable[Partition], into: CheckpointState) -> None:
    """How many rows of partitions are on disk, what they take there, and how many were lost."""
    files = [segment.file for part in partitions for segment in part.joiner.cold.segments]
    into.rows = sum(file.rows for file in files if not file.lost)
    into.rows_bytes = sum(file.size for file in files)
    into.rows_lost = max(into.rows_lost, sum(file.rows for file in files if file.lost))  # some are forgotten by now


def files_named(monitor: Mapping[str, Any] | None) -> list[tuple[str, int]]:
    """(name, rows) of the files of rows that a partition's state needs."""
    cold = None if monitor is None else monitor["joiner"].get("cold")
    return [(name, rows) for name, rows in cold["files"]] if cold else []


def write_named(files: Checkpoints, monitor: Mapping[str, Any] | None) -> tuple[list[str], int]:
    """Writes the rows that a partition's state names and that are in no file yet, and has it say the files' names.

    Returns the names of all, and the bytes written. Raises as `Checkpoints.save`.
    """
    named = [] if monitor is None else monitor["joiner"]["written"]
    size = 0
    for block, _ in named:
        if block.name is None:
            path = files.save_rows(block.columns)
            block.name, block.columns = path.name, None
            size += path.stat().st_size
    names = [block.name for block, _ in named]
    if monitor is not None:
        monitor["joiner"]["written"] = [[block.name, skipped] for block, skipped in named]
    return names, size


def put_named(monitor: Mapping[str, Any] | None, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Has a partition's state hold the rows that it names, of files by name."""
    if monitor is not None:
        joiner = monitor["joiner"]
        joiner["written"] = [RestoredRows(name, skipped, files[name]) for name, skipped in joiner.get("written", ())]


def open_rows(folder: Path, monitor: Mapping[str, Any] | None) -> list[RowsFile]:
    """The files that a partition's state needs; those that are damaged or missing are said to be lost.

    Raises StoreError when one is there and cannot be read.
    """
    out = []
    for name, rows in files_named(monitor):
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
        "%s: %s; its %d impressions are not known any more: their late clicks will count as unmatched, copies of them as new, "
        "and what was counted of them stays as it is; put the file back and restart to have them again",
        path,
        cause,
        rows,
    )

"""Indexes of ids on disk: written with segments, merged on a separate thread, read at a restart. See `streameval.join.cold.index`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from streameval.join.cold.cold_rows import Joining
from streameval.join.cold.ids import IdPart
from streameval.join.cold.index import IN_MEMORY, Index, content, index_of
from streameval.join.cold.segment import RowsFile
from streameval.join.to_disk import RowsToDisk
from streameval.store import container
from streameval.store.checkpoints import Checkpoints
from streameval.store.errors import DamagedError, FencedError, StoreError
from streameval.store.thread import WorkThread

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 10.0  # until the next attempt after a file could not be written
_READERS = 4  # threads
_TOGETHER = 1 << 22  # rows per rebuilt index


def write_index(
    files: Checkpoints, make: Callable[[], Sequence[IdPart]], ids: int, goes_on: Callable[[], None] = lambda: None
) -> Index:
    """Writes an index of `ids` ids; the caller sets its first and last row.

    The file is kept at least until `files.named` is called. Raises StoreError. `goes_on`: see `content`.
    """
    path = files.save_ids(content(make, ids, goes_on))
    index = _read(path, 0, 0)
    assert index is not None
    return index


def _read(path: Path, first: int, end: int) -> Index | None:
    """Reads an index; None: it is in another format. Raises DamagedError and OSError."""
    return index_of(path, *container.read_some(path, IN_MEMORY), first, end)


class StoppedError(Exception):
    """The process is ending."""


class _Under(NamedTuple):
    """The index that the thread is working on."""

    rows: RowsToDisk
    files: Checkpoints
    future: Future[Index]


class IdsThread:
    """Merges and rebuilds indexes, one at a time, so that the thread that writes everything else need not wait for this."""

    def __init__(self) -> None:
        self._thread: WorkThread | None = None  # started when there is work
        self._under: _Under | None = None
        self._due = 0.0  # monotonic seconds
        self._stopped = False

    def tick(self, of: Iterable[tuple[RowsToDisk, Checkpoints]]) -> int:
        """Adopts a finished index, and starts the next one that is due, for these partitions; returns the number of failed writes.

        Must not be called while a checkpoint is being written or unused files are deleted: these would miss the new file.
        """
        failed = 0
        if self._under is not None and self._under.future.done():
            failed = self._finish(self._under)
            self._under = None
        if self._under is None and self._due <= time.monotonic():
            for rows, files in of:
                joining = rows.next_merge()
                if joining is not None:
                    self._thread = self._thread or WorkThread("ids")
                    future = self._thread.submit(write_index, files, joining.parts, joining.ids, self._go_on)
                    self._under = _Under(rows, files, future)
                    break
        return failed

    def close(self, timeout: float) -> None:
        """Abandons the index in progress; one that is finished, and that nothing refers to, goes with the next checkpoint."""
        self._stopped = True
        if self._thread is not None:
            self._thread.close(timeout)
        under = self._under
        if under is not None and under.future.done() and not under.future.cancelled() and not under.future.exception():
            under.files.named(under.future.result().path.name)

    def _go_on(self) -> None:
        if self._stopped:
            raise StoppedError

    def _finish(self, done: _Under) -> int:
        try:
            index = done.future.result()
            done.rows.merge_written(index)
            done.files.named(index.path.name)
        except StoppedError:
            return 0
        except FencedError:  # logged and handled where rows are written
            self._due = time.monotonic() + _AGAIN_SECONDS
            return 0
        except (StoreError, OSError) as error:
            self._due = time.monotonic() + _AGAIN_SECONDS
            log.error("%s", error)
            return 1
        finally:
            done.rows.merge_ended()
        return 0


def put_indexes(files: Checkpoints, cold: dict[str, Any], rows: Sequence[RowsFile]) -> None:
    """Replaces a checkpoint's references to indexes by the indexes, rebuilt where they are missing or damaged.

    `rows`: the segments' files. Raises StoreError.
    """
    named = [(files.folder / name, first, end) for name, first, end in cold.get("ids", ())]
    with ThreadPoolExecutor(_READERS) as readers:
        found = list(readers.map(lambda one: _found(*one), named))
    indexes = [index for index in found if index is not None]
    ends = [sum(file.rows for file in rows[: number + 1]) for number in range(len(rows))]
    without = [
        (file, end - file.rows)
        for file, end in zip(rows, ends, strict=True)
        if not any(index.first < end <= index.end for index in indexes)
    ]
    groups: list[list[tuple[RowsFile, int]]] = []  # neighbouring segments whose ids share a rebuilt index
    behind = 0
    for file, first in without:
        if groups and first == behind and first + file.rows - groups[-1][0][1] <= _TOGETHER:
            groups[-1].append((file, first))
        else:
            groups.append([(file, first)])
        behind = first + file.rows
    with ThreadPoolExecutor(_READERS) as writers:
        indexes += writers.map(lambda group: _rebuilt(files, group), groups)
    cold["ids"] = sorted(indexes, key=lambda index: index.first)


def _found(path: Path, first: int, end: int) -> Index | None:
    """Reads an index; None: it must be rebuilt."""
    try:
        return _read(path, first, end)
    except (DamagedError, OSError) as error:
        log.warning("%s: %s: rebuilt from the files of rows", path, error)
        return None


def _rebuilt(files: Checkpoints, group: Sequence[tuple[RowsFile, int]]) -> Index:
    begin = group[0][1]
    joining = Joining([], [(file, first - begin) for file, first in group])
    index = write_index(files, joining.parts, joining.ids)
    index.first, index.end = begin, group[-1][1] + group[-1][0].rows
    return index

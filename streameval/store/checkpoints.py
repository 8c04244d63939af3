"""The checkpoints of one partition: a folder of files, the newest of which is a correct state of the partition.

A file is the state after some prefix of the partition's events, and contains the offsets of that prefix. So *any* of them is
a correct place to continue from; a newer one only saves reading. Names are `<epoch>-<number>.checkpoint`: a worker that takes
the partition claims the next epoch by creating `<epoch>.epoch`, which only one worker can. It comes after that of the history,
too: the folder may have been lost without it. A worker that has lost the partition without knowing (it was frozen) finds a
higher epoch and stops writing. Even if it was frozen between that check and the renaming of its file, the file sorts before
all of the new owner's.

Rows are in separate files `rows-<epoch>-<number>`, which are written once and which checkpoints refer to; files that no
checkpoint refers to, nor will, are deleted. Segments, whose rows are all mature, may be lost; a checkpoint without one of the
other files is damaged. The ids of segments are in files `ids-<epoch>-<number>`, which can be rebuilt from the segments.

What only Python can read (River's pickled models) is in `<epoch>-<number>.models`, which the checkpoint refers to with a
checksum, and which is read only if nobody but the files' owner could have written it.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import logging
import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from streameval.store import container
from streameval.store.errors import DamagedError, FencedError, StoreError, folder_remedy, remedy

log = logging.getLogger(__name__)

_FOLDER = re.compile(r"partition-(\d{5,})")
_NAME = re.compile(r"(\d{10})-(\d{10})\.checkpoint")
_EPOCH = re.compile(r"(\d{10})\.epoch")
_ROWS = re.compile(r"(?:rows|ids)-(\d{10})-\d{10}")
# keys of a checkpoint's tree: the names of its segments and their indexes, and of the files of other rows
ROWS_FILES, READ_WITH_IT = "rows_files", "read_with_it"
_CHECK, _FREE = "check store.path and its permissions", "free some space, or check the permissions"
_MEANWHILE = {"row": "rows stay in memory", "ids": "tried again later"}  # of a file that cannot be written, by its name
_UNREADABLE = (errno.EIO, errno.EISDIR)  # a bad sector, or a folder under the file's name: damaged, whoever asks
_READERS = 4  # threads that read files and their checksums side by side


def folder_of(folder: Path, partition: int) -> Path:
    """Where a partition's checkpoints are; `folder`: of all partitions."""
    return folder / f"partition-{partition:05}"


def newest_by_partition(folder: Path) -> dict[int, Path]:
    """The newest checkpoint, good or damaged, of every partition that has one. Raises OSError."""
    places = {int(of[1]): place for place in folder.iterdir() if (of := _FOLDER.fullmatch(place.name))}
    files = {p: [path for path in place.iterdir() if _NAME.fullmatch(path.name)] for p, place in places.items()}
    return {partition: max(some) for partition, some in sorted(files.items()) if some}


class Checkpoints:
    """The folder of one partition. `claim` before anything else, or `read_on`."""

    def __init__(self, folder: Path, keep: int) -> None:
        """`keep`: files to keep. The folder is made when it is not there. Raises StoreError."""
        self.folder = folder
        self.epoch = 0
        self._keep = keep
        self._number = self._rows_number = 0
        self._ids_numbers = itertools.count(1)  # several threads write such files
        self._unnamed: set[str] = set()  # files of ids being written, or for the next checkpoint to refer to
        self._named: dict[str, frozenset[str]] = {}  # by checkpoint: the files of rows and ids that it refers to
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreError(
                f"{folder}: cannot be created: {error.strerror}; {folder_remedy(error, folder, _CHECK)}"
            ) from None

    def claim(self, above: int = 0) -> None:
        """Takes the partition from its previous owner. `above`: an epoch that another place knows of. Raises StoreError."""
        try:
            while True:
                self.epoch = max(self._highest(), above) + 1
                try:
                    (self.folder / f"{self.epoch:010}.epoch").touch(exist_ok=False)
                except FileExistsError:  # another worker was faster
                    continue
                container.sync_folder(self.folder)
                return
        except OSError as error:
            raise StoreError(
                f"{self.folder}: cannot be claimed: {error.strerror}; {folder_remedy(error, self.folder, _CHECK)}"
            ) from None

    def read_on(self) -> None:
        """Reads what its last owner has left, and takes nothing from whoever owns it next. Raises StoreError."""
        try:
            self.epoch = self._highest()
        except OSError as error:
            raise StoreError(f"{self.folder}: cannot be read: {error.strerror}; {remedy(error, _CHECK)}") from None

    def is_claimed(self) -> bool:
        """Whether another worker has claimed the partition since; False if the folder cannot be read."""
        try:
            return self._highest() > self.epoch
        except OSError:
            return False

    def save(self, tree: Mapping[str, Any], apart: Mapping[str, bytes]) -> int:
        """Writes a checkpoint; returns its bytes. `apart`: pickles by name.

        Raises FencedError when the partition was claimed by another worker, StoreError when it cannot be written.
        """
        self._check_fence()
        self._number += 1
        name = f"{self.epoch:010}-{self._number:010}"
        models = {part: hashlib.sha256(data).hexdigest() for part, data in apart.items()}
        try:
            for part, data in apart.items():
                self._write_apart(self.folder / f"{name}-{part}.models", data)
            path = self.folder / f"{name}.checkpoint"
            size = container.write(path, {**tree, "models": models})
        except OSError as error:
            self._remove(name)
            raise StoreError(
                f"{self.folder}: the checkpoint cannot be written: {error.strerror}; "
                f"the previous one is kept; {remedy(error, _FREE)}"
            ) from None
        try:
            self._check_fence()
        except FencedError:
            self._remove(name)
            raise
        self._forget_old()
        return size + sum(len(data) for data in apart.values())

    def load(self) -> tuple[dict[str, Any], dict[str, bytes], Path] | None:
        """The newest good checkpoint, its pickles and its path; None when there is none at all.

        Its `READ_WITH_IT` are layouts and sizes by name (`container.layout`), every byte of them compared.
        Damaged ones are named in the log, and the one before is taken. Raises StoreError when all are damaged, one is
        of another format, or a pickle lies where others can write.
        """
        refused = []
        for path in sorted(self._files(), reverse=True):
            try:
                tree = container.read(path)
                tree[READ_WITH_IT] = self._check_all(tree.get(READ_WITH_IT, ()))
                apart = {part: self._read_apart(path, part, digest) for part, digest in tree.pop("models").items()}
            except DamagedError as error:
                refused.append(path)
                log.error("checkpoint refused: %s; trying the previous one", error)
            except FileNotFoundError:  # its owner has just deleted it, for a newer one
                continue
            except OSError as error:
                if error.errno not in _UNREADABLE:
                    raise StoreError(
                        f"{error.filename or path}: cannot be read: {error.strerror}; {remedy(error, _CHECK)}"
                    ) from None
                refused.append(path)
                log.error("checkpoint refused: %s: %s; trying the previous one", error.filename or path, error.strerror)
            else:
                return tree, apart, path
        if refused:
            raise StoreError(
                f"{self.folder}: all {len(refused)} checkpoints are damaged, the newest is {refused[0].name}: put a good "
                "copy back, or stop, move this folder away and start over with empty counts; the history stays, and what is "
                "counted again replaces its panes"
            )
        return None

    def save_rows(self, tree: Mapping[str, Any]) -> Path:
        """Writes a file of rows, for the next checkpoint to refer to. Raises as `save`."""
        self._rows_number += 1
        return self._save_named(f"rows-{self.epoch:010}-{self._rows_number:010}", tree, container.PAGE)

    def save_ids(self, tree: Mapping[str, Any]) -> Path:
        """Writes a file of ids, which is kept at least until `named`. Any thread may call it. Raises as `save`."""
        name = f"ids-{self.epoch:010}-{next(self._ids_numbers):010}"
        self._unnamed.add(name)
        try:
            return self._save_named(name, tree, container.PAGE)
        except BaseException:
            self.named(name)
            raise

    def named(self, name: str) -> None:
        """From now on a file of `save_ids` is kept only if a checkpoint refers to it, or `forget_rows` is told to."""
        self._unnamed.discard(name)

    def forget_rows(self, needed: Collection[str]) -> None:
        """Deletes files of rows and ids that no checkpoint refers to, except those `needed` by the next one. Raises as `save`.

        Without this, files that become unused before any checkpoint refers to them would pile up until the next checkpoint.
        """
        self._check_fence()
        try:
            self._forget_unnamed(self._rows_named(self._kept()).union(needed))
        except OSError as error:
            raise StoreError(f"{self.folder}: old files cannot be deleted: {error.strerror}") from None

    # -- inside --------------------------------------------------------------------------------------------------

    def _save_named(self, name: str, tree: Mapping[str, Any], align: int) -> Path:
        self._check_fence()
        path = self.folder / name
        try:
            container.write(path, tree, align)
        except OSError as error:
            raise StoreError(
                f"{path}: cannot be written: {error.strerror}; {_MEANWHILE[name[:3]]}; {remedy(error, _FREE)}"
            ) from None
        return path

    def _files(self) -> list[Path]:
        return [path for path in self.folder.iterdir() if _NAME.fullmatch(path.name)]

    def _highest(self) -> int:
        """The newest epoch: of its file, or of a checkpoint, as a copy of the folder may lack files that are empty."""
        names = [path.name for path in self.folder.iterdir()]
        return max((int(m[1]) for name in names if (m := _EPOCH.fullmatch(name) or _NAME.fullmatch(name))), default=0)

    def _check_fence(self) -> None:
        try:
            highest = self._highest()
        except FileNotFoundError:
            raise StoreError(
                f"{self.folder}: it was deleted, or its disk unmounted, while this worker was running; put it back, or restart "
                "to start over"
            ) from None
        except OSError as error:
            raise StoreError(f"{self.folder}: cannot be read: {error.strerror}") from None
        if highest < self.epoch:
            raise StoreError(f"{self.folder}: it was emptied while this worker was running; restart to start over")
        if highest > self.epoch:
            raise FencedError(
                f"{self.folder}: claimed by another worker since (epoch {highest}, this worker has {self.epoch})"
            )

    def _forget_old(self) -> None:
        """Deletes what is older than the last `keep` checkpoints, and what unfinished writes have left."""
        keep = self._kept()
        oldest = keep[0].name[:21] if keep else ""
        self._forget_unnamed(self._rows_named(keep))
        for path in self.folder.iterdir():
            unfinished = path.name.endswith(".partial") and path.stem not in self._unnamed
            old = re.match(r"\d{10}-\d{10}", path.name) and path.name[:21] < oldest
            passed = (found := _EPOCH.fullmatch(path.name)) and int(found[1]) < self.epoch
            if (unfinished or old or passed) and not path.is_dir():  # a folder is none of ours
                path.unlink(missing_ok=True)

    def _kept(self) -> list[Path]:
        return sorted(self._files())[-self._keep :]

    def _forget_unnamed(self, needed: Collection[str]) -> None:
        for path in self.folder.iterdir():
            passed = (of := _ROWS.fullmatch(path.name)) and int(of[1]) <= self.epoch
            if passed and path.name not in needed and path.name not in self._unnamed:
                path.unlink(missing_ok=True)

    def _rows_named(self, checkpoints: Sequence[Path]) -> frozenset[str]:
        """The files of rows and ids that any of these refers to."""
        known, self._named = self._named, {}
        for path in checkpoints:
            try:
                if (names := known.get(path.name)) is None:
                    tree = container.layout(path)[0]
                    names = frozenset(name for key in (ROWS_FILES, READ_WITH_IT) for name in tree.get(key, ()))
                self._named[path.name] = names
            except (StoreError, FileNotFoundError):  # damaged: nobody will read it
                continue
            except OSError as error:
                if error.errno not in _UNREADABLE:  # else as damaged
                    raise
        return frozenset[str]().union(*self._named.values())

    def _remove(self, name: str) -> None:
        for path in self.folder.glob(f"{name}*"):
            path.unlink(missing_ok=True)

    def _check_all(self, names: Sequence[str]) -> dict[str, tuple[dict[str, Any], int]]:
        with ThreadPoolExecutor(_READERS) as readers:
            return dict(zip(names, readers.map(self._check_rows, names), strict=True))

    def _check_rows(self, name: str) -> tuple[dict[str, Any], int]:
        path = self.folder / name
        try:
            return container.check(path)
        except FileNotFoundError:
            raise DamagedError(f"{path}: is missing") from None

    def _write_apart(self, path: Path, data: bytes) -> None:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(number)

    def _read_apart(self, checkpoint: Path, part: str, digest: str) -> bytes:
        path = checkpoint.with_name(f"{checkpoint.stem}-{part}.models")
        for place in (path, path.parent):
            try:
                status = place.lstat()
            except FileNotFoundError:
                raise DamagedError(f"{path}: is missing") from None
            if stat.S_ISLNK(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
                raise StoreError(
                    f"{place}: others can write to it, and it holds a pickled model, which can run any code: restrict it to your user (chown, chmod go-w) if you trust its content"
                )
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise DamagedError(f"{path}: its checksum does not match: damaged")
        return data

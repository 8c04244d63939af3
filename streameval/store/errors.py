"""What can go wrong with the store."""

from __future__ import annotations

import errno
import logging
import os
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

# errors that `barred` explains; the last two are of a file where a folder should be
BARS = (PermissionError, NotADirectoryError, FileExistsError)


class StoreError(RuntimeError):
    """The store cannot be read or written; what was there before is untouched. The message names file, cause and fix."""


class DamagedError(StoreError):
    """A file that is torn, foreign or whose bytes have changed."""


class FencedError(StoreError):
    """Somebody else has taken the partition since: what this worker knows of it must not be written any more."""


def remedy(error: OSError, otherwise: str) -> str:
    """What to do about an error of the system; `otherwise`: about most of them."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "raise the limit of open files (ulimit -n, LimitNOFILE=)"
    return otherwise


def barred(database: Path) -> str:
    """Why this user cannot use a database of SQLite, and what to do: it writes the file, those beside it and their folder."""
    files = (database.with_name(database.name + end) for end in ("", "-wal", "-shm"))
    found = _barred_folder(database.parent) or next(filter(None, (_barred(file, 0) for file in files)), None)
    return found or "check the file, its folder and their permissions"


def folder_remedy(error: OSError, folder: Path, otherwise: str) -> str:
    """As `remedy`, of an error in a folder that this user should be able to write."""
    found = _barred_folder(folder) if isinstance(error, BARS) or error.errno == errno.EROFS else None
    return found or remedy(error, otherwise)


def _barred_folder(folder: Path) -> str | None:
    """The same of a folder, or of the one in which it would be created; None when nothing bars this user."""
    absolute = folder.absolute()
    place = next(place for place in (absolute, *absolute.parents) if os.access(place, os.F_OK))
    if not place.is_dir():
        return f"{place} is a file, not a folder: set store.path to another folder"
    return _barred(place, os.X_OK)


def _barred(place: Path, more: int) -> str | None:
    if not os.access(place, os.F_OK) or os.access(place, os.R_OK | os.W_OK | more):
        return None
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return (
            f"{place} is on a disk that is mounted read-only: mount it read-write, or set store.path to another folder"
        )
    found = place.stat()
    return (
        f"user {os.geteuid()} may not read and write {place} (of user {found.st_uid}, mode {found.st_mode & 0o7777:o}): "
        "give it to the user that runs this (chown -R), or set store.path to another folder"
    )


def check_writable(database: Path) -> None:
    """Raises StoreError at once: SQLite opens what this user may only read, and every write would fail later."""
    if not os.access(database, os.W_OK):
        raise StoreError(f"{database}: cannot be written; {barred(database)}")


def warn_if_empty(path: Path, what: str) -> None:
    """Says that `what` begins in a file of zero bytes, which SQLite takes for a new one; a file that is not there is a first start."""
    with suppress(FileNotFoundError):
        if path.stat().st_size == 0:
            log.warning("%s: is empty (0 bytes): %s begins; if it held one, put a good copy in its place", path, what)

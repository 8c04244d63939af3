"""What can go wrong with the store."""

from __future__ import annotations

import errno
import logging
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)


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


def warn_if_empty(path: Path, what: str) -> None:
    """Says that `what` begins in a file of zero bytes, which SQLite takes for a new one; a file that is not there is a first start."""
    with suppress(FileNotFoundError):
        if path.stat().st_size == 0:
            log.warning("%s: is empty (0 bytes): %s begins; if it held one, put a good copy in its place", path, what)

"""What can go wrong with the store."""

from __future__ import annotations

import errno


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

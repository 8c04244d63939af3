"""Compiled kernels that Numba keeps beside their modules, and what an upgrade leaves of them.

Numba reads the whole index of a kernel, with the classes of its arguments, before it looks whether the index is of this
source. A class that an upgrade has renamed is then an AttributeError at the kernel's first call, not a cache miss.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def drop_stale(package: Path, elsewhere: str = "") -> None:
    """Deletes every index of kernels that is older than its module, or has none; they are compiled again.

    `elsewhere`: NUMBA_CACHE_DIR, whose names do not tell which module of a folder's name they are of: there it is the newest
    module of all that counts.
    """
    for index in package.glob("**/__pycache__/*.nbi"):
        source = index.parent.parent / f"{index.name.split('.', 1)[0]}.py"
        with suppress(OSError):
            if not source.exists() or source.stat().st_mtime > index.stat().st_mtime:
                index.unlink()
    if elsewhere:
        newest = max(source.stat().st_mtime for source in package.glob("**/*.py"))
        for folder in {source.parent.name for source in package.glob("**/*.py")}:
            for index in Path(elsewhere).glob(f"{folder}_*/*.nbi"):
                with suppress(OSError):
                    if newest > index.stat().st_mtime:
                        index.unlink()

"""Removes stale kernels from Numba's cache after an upgrade.

Numba reads the whole index of a kernel, with the classes of its arguments, before it checks whether the index belongs
to this source. If an upgrade has renamed a class, the kernel's first call is an AttributeError, not a cache miss. And
Numba checks no other source file: what a kernel inlines from other modules, functions and constants, stays as it was
when it was compiled.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

_IMPORTED = re.compile(r"^(?:from|import) ([\w.]+)(?: import ([\w, ]+))?", re.MULTILINE)


def drop_stale(package: Path, elsewhere: str = "") -> None:
    """Deletes every index of kernels that is older than its module, or than one that the module has kernels or constants of, and
    those without a module; they are compiled again.

    `elsewhere`: NUMBA_CACHE_DIR, whose names do not tell which module of a folder's name they are of: there it is the newest
    module of all that counts.
    """
    changed = {source: source.stat().st_mtime for source in package.glob("**/*.py")}
    newest, newest_of = max(changed.values(), default=0.0), dict[Path, float]()
    imported = cache(lambda source: _imported(source, package))
    for index in package.glob("**/__pycache__/*.nbi"):
        source = index.parent.parent / f"{index.name.split('.', 1)[0]}.py"
        with suppress(OSError):
            made = index.stat().st_mtime
            if source in changed and newest > made and source not in newest_of:
                newest_of[source] = max(changed[of] for of in _made_of(source, imported))
            if source not in changed or newest_of.get(source, 0.0) > made:
                index.unlink()
    if elsewhere:
        for folder in {source.parent.name for source in changed}:
            for index in Path(elsewhere).glob(f"{folder}_*/*.nbi"):
                with suppress(OSError):
                    if newest > index.stat().st_mtime:
                        index.unlink()


def _made_of(source: Path, imported: Callable[[Path], set[Path]]) -> set[Path]:
    """The modules that a module's kernels may have something of: itself, what it imports, and what those of them import that have
    kernels.
    """
    found, waiting = {source}, [source]
    while waiting:
        new = imported(waiting.pop()) - found
        found |= new
        waiting += new
    return found


def _imported(source: Path, package: Path) -> set[Path]:
    """The modules of a package that a module with kernels imports; none, if it has no kernels."""
    text = source.read_text()
    if "numba" not in text:
        return set()
    out = set()
    for module, names in _IMPORTED.findall(text):
        for name in (module, *(f"{module}.{one.strip()}" for one in names.split(",") if one.strip())):
            one = package.parent / f"{name.replace('.', '/')}.py"
            if one.is_relative_to(package) and one.exists():
                out.add(one)
    return out

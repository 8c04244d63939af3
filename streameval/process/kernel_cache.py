"""Numba's cache of kernels, made safe: what cannot be read is compiled again, what cannot be stored is used all the same, and
several processes may store kernels at once.

Numba raises the errors in whoever calls the kernel: where a file is read, they look like errors of that file. And it numbers the
machine code of a kernel's signatures by the index that it has just read: two processes that store at the same moment give one
number to two signatures, and a third calls one with the arguments of the other; so does one that stores after a kill between the
index and the code, if code of an older index has that number. Names of our own are of one signature, for ever.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

from streameval.process.kernel_place import ensure_place
from streameval.process.kernels import drop_stale

log = logging.getLogger(__name__)


def make_cache_safe(package: Path) -> None:
    """Gives the package's kernels a place, from which stale ones are removed, and makes Numba's use of it safe.

    Begins with the import of Numba, before any kernel is loaded, whoever imports which module of ours first; Numba is not
    imported before it is needed, and commands without kernels need no place for them.
    """
    if "numba" in sys.modules:
        _prepare(package)
        _wrap()
    else:
        sys.meta_path.insert(0, _NumbaIsImported(package))


class _NumbaIsImported:
    """Prepares the place just before Numba is imported, which then reads NUMBA_CACHE_DIR, and wraps the cache just after."""

    def __init__(self, package: Path) -> None:
        self._package = package

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As of any finder; None: others find it. It may be asked by those who only look whether Numba is there."""
        spec = PathFinder.find_spec(name, path, target) if name == "numba" else None
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_wrap(module: ModuleType) -> None:
            _prepare(self._package)
            run(module)
            _wrap()

        spec.loader.exec_module = run_and_wrap  # type: ignore[method-assign]  # of the loader of this one import
        return spec


def _prepare(package: Path) -> None:
    ensure_place(package)
    drop_stale(package, os.environ.get("NUMBA_CACHE_DIR", ""))


@cache
def _wrap() -> None:
    from numba.core.caching import Cache, IndexDataCacheFile

    load, store = Cache.load_overload, Cache.save_overload

    def load_if_possible(self: Any, signature: Any, target: Any) -> Any:
        try:
            return load(self, signature, target)
        except Exception as error:  # of a damaged pickle nearly any
            _drop(self, _unreadable(self, signature, target), error)
            return None

    def store_if_possible(self: Any, signature: Any, compiled: Any) -> None:
        try:
            store(self, signature, compiled)
            if self._enabled:
                _drop_unnamed(self._cache_file)
        except OSError as error:
            log.warning(
                "%s: compiled kernels cannot be stored: %s; the next start compiles them again; free some space, or set "
                "NUMBA_CACHE_DIR to another folder",
                self.cache_path,
                error.strerror or error,
            )

    def unique_name(self: Any, number: int) -> str:
        return str(self._data_name_pattern.format(number=uuid4().int >> 64))

    Cache.load_overload, Cache.save_overload = load_if_possible, store_if_possible
    IndexDataCacheFile._data_name = unique_name


def _drop_unnamed(files: Any) -> None:
    """Removes machine code that a kernel's index no longer names, as of the source before a change."""
    index = Path(files._index_path)
    # first these: another process's code that is here by now was named before it was written
    here = [one for one in index.parent.iterdir() if one.name.startswith(f"{index.stem}.") and one.suffix == ".nbc"]
    named = set(files._load_index().values())
    for file in here:
        if file.name not in named:
            file.unlink(missing_ok=True)


def _unreadable(kernel: Any, signature: Any, target: Any) -> Path:
    """The file of a kernel that cannot be read: its index, or else the machine code that the index names for this signature."""
    files = kernel._cache_file
    with suppress(Exception):
        return Path(files._data_path(files._load_index()[kernel._index_key(signature, target.codegen())]))
    return Path(files._index_path)


def _drop(kernel: Any, file: Path, error: Exception) -> None:
    reason = type(error).__name__  # what it says may be the bytes of the file
    try:
        file.unlink(missing_ok=True)
    except OSError as barred:
        kernel.disable()  # Numba reads the index before it writes, too
        log.warning(
            "%s: damaged (%s), and cannot be removed: %s; its kernel is compiled at every start: remove the file, or set "
            "NUMBA_CACHE_DIR to another folder",
            file,
            reason,
            barred.strerror or barred,
        )
        return
    log.warning("%s: damaged (%s): removed; its kernel is compiled again", file, reason)

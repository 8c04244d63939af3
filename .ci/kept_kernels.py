"""Kernels that are kept from run to run: `python .ci/kept_kernels.py restore|keep FOLDER [PACKAGE]`.

A clean clone has files of today, so Numba compiles all of them again. Kernels of a module are taken back only where the module
is what it was, and with it all of the package that it imports, directly or not, and the locked packages: a kernel may have
functions and constants of any of them inlined. Python and Numba look at their own versions, and at the processor's kind.
"""

from __future__ import annotations

import ast
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT_S = 14 * 24 * 3_600  # since they were taken back last


@cache
def imported(source: Path, package: Path) -> frozenset[Path]:
    """The modules of the package that a module names, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{source}: relative imports are not followed")
            names |= {node.module or "", *(f"{node.module}.{one.name}" for one in node.names)}
    places = (package.parent / name.replace(".", "/") for name in names)
    return frozenset(one for p in places for one in (p.with_suffix(".py"), p / "__init__.py") if _inside(one, package))


def _inside(path: Path, package: Path) -> bool:
    return path.is_relative_to(package) and path.exists()


def digest(source: Path, package: Path) -> str:
    """Of all that its kernels may be made of."""
    found, waiting = {source}, [source]
    while waiting:
        new = imported(waiting.pop(), package) - found
        found |= new
        waiting += new
    lock = package.parent / "requirements.lock"
    text = sha256(lock.read_bytes() if lock.exists() else b"")
    for one in sorted(found):
        text.update(f"{one.relative_to(package)} {one.stat().st_size}\n".encode() + one.read_bytes())
    return text.hexdigest()


def modules(package: Path) -> Iterator[Path]:
    """Those that have kernels."""
    return (source for source in package.rglob("*.py") if "numba" in source.read_text())


def keep(folder: Path, package: Path) -> None:
    """Kernels as they are now, in place of those that were kept of the same modules; and no old ones."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in modules(package):
        kernels = list(source.parent.glob(f"__pycache__/{source.stem}.*.nb[ic]"))
        if not kernels:
            continue
        place = folder / digest(source, package)
        partial = folder / f"{place.name}.{os.getpid()}"
        partial.mkdir()
        for kernel in kernels:
            shutil.copy(kernel, partial)
        (partial / "modified").write_text(str(source.stat().st_mtime_ns))
        shutil.rmtree(place, ignore_errors=True)
        with suppress(OSError):  # another run was faster: its kernels are as good
            partial.rename(place)
        shutil.rmtree(partial, ignore_errors=True)
    for place in folder.iterdir():
        with suppress(OSError):
            if place.stat().st_mtime < time.time() - KEPT_S:
                shutil.rmtree(place)


def restore(folder: Path, package: Path) -> None:
    """Those that were kept, and for Numba the time at which their module was written when they were compiled."""
    known = [(source, folder / digest(source, package)) for source in modules(package)]
    for source, place in known:
        with suppress(FileNotFoundError):  # none, or another run puts newer ones in their place: what lacks is compiled
            modified = int((place / "modified").read_text())
            os.utime(source, ns=(modified, modified))
            (source.parent / "__pycache__").mkdir(exist_ok=True)
            for kernel in place.glob("*.nb[ic]"):
                shutil.copy(kernel, source.parent / "__pycache__")  # of now: later than whatever they have something of
            os.utime(place)


if __name__ == "__main__":
    what = {"keep": keep, "restore": restore}[sys.argv[1]]
    what(Path(sys.argv[2]), Path(sys.argv[3]).resolve() if len(sys.argv) > 3 else ROOT / "streameval")

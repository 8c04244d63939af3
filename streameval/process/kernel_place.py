"""A folder for compiled kernels where Numba finds none: it refuses to import a kernel that it cannot store."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from hashlib import sha1
from pathlib import Path


def ensure_place(package: Path) -> None:
    """Makes NUMBA_CACHE_DIR a temporary folder of this process and its helpers, if Numba can write to none of its own places.

    Raises OSError if there is no temporary folder either.
    """
    if any(_writable(folder) for folder in _places(package)):
        return
    try:
        folder = tempfile.mkdtemp(prefix="streameval-kernels-")
    except OSError as error:
        raise OSError(
            "no folder for compiled kernels can be written, not even a temporary one; set NUMBA_CACHE_DIR to one "
            f"({error.strerror or error})"
        ) from None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = folder


def _places(package: Path) -> list[Path]:
    """Where Numba stores kernels: the first of these that can be written."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    given = os.environ.get("NUMBA_CACHE_DIR")
    return [
        *([Path(given)] if given and _shared(Path(given), package) else []),
        package / "__pycache__",
        user / "numba",
    ]


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _shared(folder: Path, package: Path) -> bool:
    """Whether Numba's own folders in NUMBA_CACHE_DIR, one for each of the package's, are not those of another user only."""
    for path in {source.parent for source in package.glob("**/*.py")}:
        place = folder / f"{path.name}_{sha1(str(path).encode(), usedforsecurity=False).hexdigest()}"
        if place.exists() and not os.access(place, os.R_OK | os.W_OK | os.X_OK):
            return False
    return True

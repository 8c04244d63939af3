"""An upgrade finds the compiled kernels of the version before."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streameval.process.kernels import drop_stale

_MODULE = """
from typing import NamedTuple
import numba

class {name}(NamedTuple):
    value: int

@numba.njit(cache=True)
def kernel(of):
    return of.value + {more}

print(kernel({name}(1)))
"""


def run(folder: Path, name: str, more: int, elsewhere: str = "") -> subprocess.CompletedProcess[str]:
    module = folder / "kernels.py"
    module.write_text(_MODULE.format(name=name, more=more))
    later = time.time() + more  # the clock of files may be coarse
    os.utime(module, (later, later))
    drop_stale(folder, elsewhere)
    environ = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    if elsewhere:
        environ["NUMBA_CACHE_DIR"] = elsewhere
    return subprocess.run(
        [sys.executable, "-c", "import kernels"], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_class_that_was_renamed_does_not_break_the_first_call(tmp_path: Path) -> None:
    assert run(tmp_path, "Before", 0).stdout == "1\n"
    assert list(tmp_path.glob("__pycache__/*.nbi"))
    done = run(tmp_path, "After", 5)
    assert (done.stdout, done.returncode) == ("6\n", 0), done.stderr


@pytest.mark.slow
def test_nor_where_kernels_are_kept_in_a_folder_of_their_own(tmp_path: Path) -> None:
    package, kept = tmp_path / "package", tmp_path / "kept"
    package.mkdir()
    assert run(package, "Before", 0, str(kept)).stdout == "1\n"
    assert list(kept.glob("*/*.nbi"))
    done = run(package, "After", 5, str(kept))
    assert (done.stdout, done.returncode) == ("6\n", 0), done.stderr


@pytest.mark.slow
def test_what_is_of_this_source_stays(tmp_path: Path) -> None:
    assert run(tmp_path, "Same", 0).returncode == 0
    (index,) = tmp_path.glob("__pycache__/*.nbi")
    drop_stale(tmp_path)
    assert index.exists()
    (tmp_path / "kernels.py").unlink()
    drop_stale(tmp_path)
    assert not index.exists()


_INNER = """
import numba
from parts.constants import MORE

@numba.njit(inline="always")
def inner(n):
    return n + MORE
"""
_OUTER = """
import numba
from parts.inner import inner

@numba.njit(cache=True)
def kernel(n):
    return inner(n)

print(kernel(1))
"""


@pytest.mark.slow
def test_a_kernel_goes_with_what_it_has_of_other_modules(tmp_path: Path) -> None:
    """Its own module has not changed."""
    package = tmp_path / "parts"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "inner.py").write_text(_INNER)
    (package / "outer.py").write_text(_OUTER)
    (package / "other.py").write_text("MORE = 7")
    environ = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}

    def printed() -> str:
        drop_stale(package)
        command = [sys.executable, "-c", "import parts.outer"]
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True).stdout

    for more in (1, 41):
        (package / "constants.py").write_text(f"MORE = {more}")
        later = time.time() + more
        os.utime(package / "constants.py", (later, later))
        assert printed() == f"{1 + more}\n"
    (index,) = package.glob("__pycache__/*.nbi")
    os.utime(index, (later + 1, later + 1))
    os.utime(package / "other.py", (later + 2, later + 2))  # nothing of it is in the kernel
    drop_stale(package)
    assert index.exists()


@pytest.mark.slow
def test_ci_takes_back_kernels_of_what_has_not_changed_and_no_others(tmp_path: Path) -> None:
    """As in a new clone: all files are of today. What is changed is far from the kernel, behind a module without one."""
    package, kept = tmp_path / "parts", tmp_path / "kept"
    files = {
        "__init__": "", "constants": "MORE = 1", "between": "from parts.constants import (\n    MORE,\n)",
        "inner": _INNER.replace("parts.constants", "parts.between"), "outer": _OUTER,
    }  # fmt: skip
    environ = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    script = [sys.executable, str(Path(__file__).parents[2] / ".ci" / "kept_kernels.py")]

    def cloned(at: float, **changed: str) -> None:
        shutil.rmtree(package, ignore_errors=True)
        package.mkdir()
        for name, text in {**files, **changed}.items():
            (package / f"{name}.py").write_text(text)
            os.utime(package / f"{name}.py", (at, at))
        subprocess.run([*script, "restore", str(kept), str(package)], check=True)

    def ran() -> tuple[str, bool]:
        """What it prints, and whether it has compiled."""
        before = {p: p.stat().st_mtime_ns for p in package.glob("__pycache__/*.nbc")}
        drop_stale(package)
        done = subprocess.run(
            [sys.executable, "-c", "import parts.outer"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
        )  # fmt: skip
        return done.stdout, before != {p: p.stat().st_mtime_ns for p in package.glob("__pycache__/*.nbc")}

    now = time.time()
    cloned(now - 300.0)
    assert ran() == ("2\n", True)
    subprocess.run([*script, "keep", str(kept), str(package)], check=True)
    cloned(now - 200.0)
    assert ran() == ("2\n", False)
    cloned(now - 100.0, constants="MORE = 41")
    assert not list(package.glob("__pycache__/*.nbi"))
    assert ran() == ("42\n", True)

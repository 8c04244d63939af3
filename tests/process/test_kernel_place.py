"""Kernels are stored somewhere, or a program that has them cannot even be imported."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streameval.process.kernel_place import ensure_place

_MODULE = """
from pathlib import Path
from streameval.process.kernel_place import ensure_place
ensure_place(Path(__file__).parent)

import numba, os

@numba.njit(cache=True)
def kernel(of):
    return of + 1

print(kernel(1), os.environ["NUMBA_CACHE_DIR"])
"""


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package beside which nothing can be written, even by root, nor in the user's home."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__pycache__").touch()
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/dev/null")
    return package


@pytest.mark.slow
def test_without_a_folder_of_its_own_they_are_stored_for_as_long_as_the_process(nowhere: Path, tmp_path: Path) -> None:
    (nowhere / "kernels.py").write_text(_MODULE)
    done = subprocess.run(
        [sys.executable, "-c", "import kernels"], cwd=nowhere, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path.cwd()), "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    value, folder = done.stdout.split()
    assert value == "2"
    assert Path(folder).parent == tmp_path
    assert not Path(folder).exists(), "it is the process's own"


def test_a_folder_that_can_be_written_is_used(nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "given"))
    ensure_place(nowhere)
    assert os.environ["NUMBA_CACHE_DIR"] == str(tmp_path / "given")
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    ensure_place(nowhere)
    assert "NUMBA_CACHE_DIR" not in os.environ


def test_a_given_folder_in_which_another_user_has_stored_the_same_kernels_is_not_used(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numba found no place at all, and the import failed. Here even root can write nothing: it is no folder."""
    (nowhere / "kernels.py").touch()
    given = tmp_path / "given"
    given.mkdir()
    (given / f"{nowhere.name}_{hashlib.sha1(str(nowhere).encode()).hexdigest()}").touch()  # as Numba names it
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(given))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ensure_place(nowhere)
    assert Path(os.environ["NUMBA_CACHE_DIR"]).name.startswith("streameval-kernels-")


def test_without_any_folder_the_error_names_the_variable(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/dev/null")
    with pytest.raises(OSError, match=r"set NUMBA_CACHE_DIR to one"):
        ensure_place(nowhere)


_FULL = """
import errno, os, pathlib
import numba.core.caching as caching
from streameval.process.compiling import Compiling

def full(self, name, data):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

caching.IndexDataCacheFile._save_data = full
import numba

@numba.njit(cache=True)
def kernel(of):
    return of + 1

with Compiling([]):
    print(kernel(1))
print(kernel(1.5))
"""


@pytest.mark.slow
def test_a_kernel_for_which_the_disk_has_no_room_is_used_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(_FULL)
    done = subprocess.run(
        [sys.executable, "-c", "import kernels"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "2.5"]
    assert "__pycache__: compiled kernels cannot be stored: No space left on device" in done.stderr
    assert "NUMBA_CACHE_DIR" in done.stderr

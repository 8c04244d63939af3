"""Damaged files of compiled kernels, and several processes that store kernels at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_KERNELS = """
import importlib.util, streameval
importlib.util.find_spec("numba")  # as libraries that only look whether it is there
import numba

@numba.njit(cache=True)
def kernel(of):
    return of + 1
"""
_CALL = "from kernels import kernel; print(kernel(1), kernel(1.5))"
# another process, here a second dispatcher, reads the index before it has the first signature, and writes after it
_BOTH = """
import kernels, numba
from numba.core.caching import IndexDataCacheFile
other = numba.njit(cache=True)(kernels.kernel.py_func)
save, waiting = IndexDataCacheFile._save_index, []

def save_after_the_first(self, overloads):
    waiting.append((self, overloads))
    if len(waiting) == 1:
        other(1.5)
    else:
        for one in waiting:
            save(*one)

IndexDataCacheFile._save_index = save_after_the_first
print(kernels.kernel(1))
"""
_KILLED = """
import os
from kernels import kernel, numba
numba.core.caching.IndexDataCacheFile._save_data = lambda *_: os._exit(9)
kernel(1.5)
"""


def run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    if not (folder / "kernels.py").exists():
        (folder / "kernels.py").write_text(_KERNELS)
    environ = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    return subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False,
        env={**environ, "PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", [b"", b"\x93random bytes\xff\x00" * 9])
def test_a_damaged_file_is_removed_and_its_kernel_compiled_again(tmp_path: Path, suffix: str, damage: bytes) -> None:
    """Every start ended with a traceback, or with nothing but an empty line."""
    assert run(tmp_path, _CALL).stdout == "2 2.5\n"
    damaged = sorted(tmp_path.glob(f"__pycache__/*.{suffix}"))[0]
    damaged.write_bytes(damage)
    done = run(tmp_path, _CALL)
    assert (done.returncode, done.stdout) == (0, "2 2.5\n"), done.stderr
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"{damaged}: damaged (")
    assert said.endswith("): removed; its kernel is compiled again")
    done = run(tmp_path, _CALL)
    assert (done.stdout, done.stderr) == ("2 2.5\n", "")


@pytest.mark.slow
def test_the_start_of_machine_code_that_was_cut_off_is_damage(tmp_path: Path) -> None:
    assert run(tmp_path, _CALL).returncode == 0
    damaged = max(tmp_path.glob("__pycache__/*.nbc"))
    damaged.write_bytes(damaged.read_bytes()[:-1_000])
    done = run(tmp_path, _CALL)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "2 2.5\n", 1)


@pytest.mark.slow
def test_two_processes_that_store_at_once_do_not_take_each_others_machine_code(tmp_path: Path) -> None:
    """The index of a signature named the code of the other one: numbers of nothing, or a segmentation fault."""
    assert run(tmp_path, _BOTH).stdout == "2\n"
    for _ in range(2):
        done = run(tmp_path, _CALL)
        assert (done.returncode, done.stdout, done.stderr) == (0, "2 2.5\n", "")


@pytest.mark.slow
def test_machine_code_of_an_older_index_is_not_taken_after_a_kill(tmp_path: Path) -> None:
    """Numba writes the index before the code that it names."""
    assert run(tmp_path, _CALL).returncode == 0
    (index,) = tmp_path.glob("__pycache__/*.nbi")
    index.unlink()  # as after an upgrade
    assert run(tmp_path, _KILLED).returncode == 9
    done = run(tmp_path, _CALL)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 2.5\n", "")
    assert len(list(tmp_path.glob("__pycache__/*.nbc"))) == 2, "code that no index names is removed"

"""Freed memory goes back to the system."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streameval.process import memory

GLIBC = pytest.mark.skipif(memory._libc is None, reason="only glibc keeps freed memory that can be asked back")

# The settings are the process's, so they are tried in one of their own: the heaps of a process whose threads have all
# allocated, and how many bytes lie on pages of their own after a table was let go and a smaller one made.
TRIAL = """
import ctypes, threading
from pathlib import Path
from streameval.process import memory

memory.settle()

class Counts(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks".split()]
    _fields_ += [("fordblks", ctypes.c_size_t), ("keepcost", ctypes.c_size_t)]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Counts
table = bytearray(16 << 20)
del table
table = bytearray(8 << 20)
print(libc.mallinfo2().hblkhd)

barrier = threading.Barrier(4)

def allocate():
    blocks = [bytes(1000) for _ in range(1000)]
    barrier.wait()

threads = [threading.Thread(target=allocate) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc.fopen.restype = libc.fdopen.restype = ctypes.c_void_p
libc.malloc_info(0, ctypes.c_void_p(libc.fdopen(1, b"w")))
libc.fflush(None)
"""


def resident() -> int:
    return int(re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) // 1024


@GLIBC
def test_gaps_between_blocks_in_use_are_given_back() -> None:
    blocks = [np.ones(10_000) for _ in range(4_000)]  # 80 kB each: too small for pages of their own
    kept = blocks[::40]
    full = resident()
    del blocks
    memory.give_back()
    assert resident() < full - 200
    assert len(kept) == 100


@GLIBC
@pytest.mark.parametrize(("chosen", "settled"), [({}, True), ({"MALLOC_ARENA_MAX": "8"}, False)])
def test_threads_share_a_heap_and_tables_lie_beside_it_unless_the_environment_says_otherwise(
    chosen: dict[str, str], settled: bool
) -> None:
    env = {name: value for name, value in os.environ.items() if "MALLOC" not in name.upper()}
    said = subprocess.run(
        [sys.executable, "-u", "-c", TRIAL], env={**env, **chosen}, capture_output=True, text=True, check=True
    ).stdout
    aside, heaps = int(said.split()[0]), said.count("<heap nr=")
    if settled:
        assert aside >= 8 << 20
        assert heaps == 1
    else:
        assert aside < 8 << 20
        assert heaps > 1

"""Freed memory goes back to the system."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from streameval import memory


def resident() -> int:
    return int(re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) // 1024


@pytest.mark.skipif(memory._trim is None, reason="only glibc keeps freed memory that can be asked back")
def test_gaps_between_blocks_in_use_are_given_back() -> None:
    blocks = [np.ones(10_000) for _ in range(4_000)]  # 80 kB each: too small for pages of their own
    kept = blocks[::40]
    full = resident()
    del blocks
    memory.give_back()
    assert resident() < full - 200
    assert len(kept) == 100

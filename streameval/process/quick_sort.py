"""NumPy's sort on AMD's Zen 4.

There its AVX-512 sort of 64-bit keys takes four times as long as the one of AVX2 (1.5 million keys: 53 and 12 ns each), and
sorting was half of the processor time of a loop that compares versions.
"""

from __future__ import annotations

import os
from pathlib import Path

DISABLED = "NPY_DISABLE_CPU_FEATURES"  # read by NumPy when it is imported
_AVX512 = "X86_V4 AVX512_ICL"  # as NumPy 2.4 and later call the two dispatch targets that sort by it
_ZEN_4 = {"vendor_id": "AuthenticAMD", "cpu family": "25"}  # Zen 3 is of this family, too, but has no AVX-512


def choose_sort(cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
    """For this process and its children, before NumPy is imported. Does nothing where the environment has chosen."""
    if DISABLED not in os.environ and _is_slow(cpuinfo):
        os.environ[DISABLED] = _AVX512


def _is_slow(cpuinfo: Path) -> bool:
    try:
        first = cpuinfo.read_text().split("\n\n")[0]
    except OSError:  # not Linux
        return False
    found = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}
    return _ZEN_4.items() <= found.items() and "avx512f" in found.get("flags", "").split()

"""Compiles the kernels into Numba's cache, once: `python -m tests.kernels`, before several processes need them.

It replays the golden record's hour, with its settings and with others, which needs nearly all of them.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.house import runs


def main() -> None:
    """The command."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        runs.hour_replayed(Path(folder) / "a")
        runs.hour_replayed_otherwise(Path(folder) / "b")
    print(f"kernels ready after {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()

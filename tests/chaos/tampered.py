"""streameval with a clock that jumps and a disk that hangs: `python -m tests.chaos.tampered FOLDER run -c ...`.

A test tells it by files in FOLDER. `clock`: the seconds by which the wall clock is off. `hang`: while it is there, no
fsync returns; `hanging` says that one waits. `slow`: the seconds that each takes; `slowed` says that one did. So the machine's own clock and disk stay as they are.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def tamper(folder: Path) -> None:
    """Takes over the clock and fsync of this process; before streameval is imported, which keeps the clock it finds."""
    true_time, true_fsync = time.time, os.fsync
    clock, hang, slow = folder / "clock", folder / "hang", folder / "slow"

    def wall() -> float:
        try:
            return true_time() + float(clock.read_text())
        except FileNotFoundError:
            return true_time()

    def fsync(number: int) -> None:
        if hang.exists():
            (folder / "hanging").touch()
        while hang.exists():
            time.sleep(0.05)
        if slow.exists():
            (folder / "slowed").touch()
            time.sleep(float(slow.read_text()))
        true_fsync(number)

    time.time, os.fsync = wall, fsync  # type: ignore[assignment]


if __name__ == "__main__":
    tamper(Path(sys.argv.pop(1)))
    from streameval.commands.cli import main

    main()

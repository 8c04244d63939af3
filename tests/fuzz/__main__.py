"""The long form: every format in turn, each round in a process of its own, until the time is up.

    python -m tests.fuzz [--minutes 10] [--only FORMAT] [--seed N]

A failure is shrunk by Hypothesis and printed with its input; a process that dies (a crash in a native library), hangs
or takes too much memory is told by name, with the input that it died of, pickled, in the file that is named. Exit
status: 0 nothing found, 1 something.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.targets import TARGETS

ROUND = 400  # examples a process
HANG_S = 300  # of a round
MEMORY = 6 << 30  # address space of a round, of which the libraries take about one


def one_round(name: str, number: int, last: Path) -> None:
    """Some hundred examples of a format, in this process; `last` holds the one under way."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    strategy, check = TARGETS[name]

    @seed(number)
    @settings(
        max_examples=ROUND, deadline=None, database=None, print_blob=False, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.target, Phase.shrink],
    )  # fmt: skip
    @given(strategy)
    def law(example: object) -> None:
        last.write_bytes(pickle.dumps(example))
        check(example)

    law()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", choices=sorted(TARGETS))
    parser.add_argument("--seed", type=int, default=None, help="of the first round; drawn anew by default")
    parser.add_argument("--round", nargs=3, metavar=("FORMAT", "SEED", "FILE"), help=argparse.SUPPRESS)
    given_ = parser.parse_args()
    if given_.round:
        one_round(given_.round[0], int(given_.round[1]), Path(given_.round[2]))
        return 0
    names = [given_.only] if given_.only else list(TARGETS)
    number = random.SystemRandom().randrange(1 << 32) if given_.seed is None else given_.seed
    end = time.monotonic() + given_.minutes * 60
    found = rounds = 0
    while time.monotonic() < end:
        name = names[rounds % len(names)]
        found += not _round(name, number + rounds)
        rounds += 1
    print(f"{rounds} rounds of {ROUND} examples over {', '.join(names)}: {found} with something found")
    return 1 if found else 0


def _round(name: str, number: int) -> bool:
    handle, path = tempfile.mkstemp(prefix=f"streameval-fuzz-{name}-", suffix=".pickle")
    os.close(handle)
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz", "--round", name, str(number), path]
    begin = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
        status, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        status, said = -1, f"still running after {HANG_S} s"
    mark = "ok" if status == 0 else f"FOUND (status {status})"
    print(f"{name:15} seed {number:<10} {time.monotonic() - begin:6.1f} s  {mark}", flush=True)
    if status == 0:
        Path(path).unlink()
        return True
    print(f"{said[-6000:]}\nthe last input is in {path}", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())

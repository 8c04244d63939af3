"""The short forms of the chaos scripts, as CI runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.faults import FAULTS

ROOT = Path(__file__).parents[2]
SHORT = {
    "kill": ("kill", "--kills", "25", "--impressions", "60000"),
    "rebalance": ("rebalance", "--seconds", "60"),
    # in two parts, which go side by side: each has a Kafka of its own, and waits most of the time
    "faults-of-the-broker": ("faults", "broker-restarted", "broker-hangs", "broker-stopped"),
    "faults-of-the-disk": ("faults", "disk-full", "clock-jumps", "checkpoint-truncated", "disk-hangs"),
    # a fixed rate leaves the other parts their share of the processor; in thin traffic event time runs fifty times as fast.
    # Within five minutes of an hour at full load the resident set came and went by 2% at most times, and by 5% when 100 MB
    # of gaps had been given back at once. README.md has the planted leak that this form has found
    "soak": ("soak", "--minutes", "3", "--warm-up", "2", "--rate", "15000", "--density", "200", "--slack", "0.06"),
}
LIMIT_S = 1_800  # six times what the longest takes on two idle cores


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 180)
@pytest.mark.parametrize("name", SHORT)
def test_what_must_hold_holds_in_the_short_form(name: str, tmp_path: Path) -> None:
    script, *arguments = SHORT[name]
    command = ["-m", f"tests.chaos.{script}", *arguments]
    if os.environ.get("STREAMEVAL_REQUIRE_ALL") != "1":
        pytest.skip(f"chaos: takes minutes; set STREAMEVAL_REQUIRE_ALL=1, or run python {' '.join(command)}")
    said = tmp_path / "said"
    with said.open("wb") as out:
        process = subprocess.Popen([sys.executable, *command], stdout=out, stderr=out, cwd=ROOT)
    try:
        status = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        status = None
    finally:
        if process.poll() is None:
            process.terminate()  # it stops what it has started
            process.wait(120)
    assert status == 0, f"python {' '.join(command)}: status {status}\n{said.read_text(errors='replace')[-12_000:]}"


def test_every_fault_has_its_short_form() -> None:
    assert sorted(name for script, *names in SHORT.values() if script == "faults" for name in names) == sorted(FAULTS)

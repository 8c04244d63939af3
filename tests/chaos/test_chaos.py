"""The short forms of the chaos scripts, as CI runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHORT = {
    "kill": ("--kills", "25", "--impressions", "60000"),
    "rebalance": ("--seconds", "60"),
    "faults": (),
    # within five minutes of an hour at 60,000 messages/s it came and went by 2% at most times, and by 5% when 100 MB of gaps
    # had been given back at once; 6% is 2.6 bytes a message
    "soak": ("--minutes", "5", "--warm-up", "5", "--slack", "0.06"),
}
LIMIT_S = 1_200  # four times what the longest takes on two idle cores


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("name", SHORT)
def test_what_must_hold_holds_in_the_short_form(name: str, tmp_path: Path) -> None:
    command = ["-m", f"tests.chaos.{name}", *SHORT[name]]
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
            process.wait(60)
    assert status == 0, f"python {' '.join(command)}: status {status}\n{said.read_text(errors='replace')[-12_000:]}"

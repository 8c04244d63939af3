"""A full disk behind standard output, or behind the report, is an error with its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streameval.sources import object_store

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is full")
PLAN = [sys.executable, "-m", "streameval", "plan", "--auc", "-0.005"]


# help and the version are printed by click itself
@pytest.mark.parametrize(
    "command", [PLAN, [*PLAN[:3], "--help"], [*PLAN[:3], "run", "--help"], [*PLAN[:3], "--version"]]
)
def test_a_full_disk_behind_standard_output_is_an_error_that_names_it(command) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, check=False, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "streameval: [Errno 28] No space left on device: 'standard output'\n")


def test_a_reader_that_has_had_enough_is_no_error_to_speak_of() -> None:
    with subprocess.Popen(PLAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_a_full_device_in_place_of_the_report_is_an_error_that_names_it() -> None:
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        object_store.write("/dev/full", "text")
    assert Path("/dev/full").is_char_device()

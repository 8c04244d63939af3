"""The short form of `python -m tests.chaos.outlets --crash`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.outlets import run


@pytest.mark.slow
@pytest.mark.timeout(900)  # some monitors one after the other, each with the patience of a loaded machine
def test_a_killed_monitor_tells_each_change_once_and_its_sinks_hold_each_pane_once(tmp_path: Path) -> None:
    run(4, 1, tmp_path, print, crash=True)

"""A partition that is gone counts for everything as one that has fallen silent does once all is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streameval.testing import readers_see
from tests.laws.streams import differences, looks_of, make_settings, through_disk
from tests.laws.test_restart_laws import Process, messages, report

STEP = 400  # messages between two looks


def without_gaps(found: dict[str, Any]) -> dict[str, Any]:
    """A report without what it says of events that are missing."""
    for result in found["results"]:
        del result["reliable"], result["reliable_reason"]
    return found


@pytest.mark.parametrize("cut", [0.3, 0.8])
@pytest.mark.parametrize(("models", "shared", "pane"), [(True, True, "10s"), (False, False, "1s")])
def test_reports_and_comparisons_are_those_of_a_run_that_never_ended(
    models: bool, shared: bool, pane: str, cut: float, tmp_path: Path
) -> None:
    config = make_settings("impressions", "impression", models, shared, pane=pane)
    stays, leaves = messages()
    half, last = int(cut * len(stays)), int(cut * len(leaves))
    with looks_of(pane):
        truth = Process(config, [])
        truth.take(0, stays[:half], half)
        truth.take(1, leaves[:last], last)
        saved = [through_disk(truth, p, tmp_path / str(p)) for p in (0, 1)]
        steps = [
            (stays[start : start + STEP], min(start + STEP, len(stays))) for start in range(half, len(stays), STEP)
        ]
        for part, end in steps:
            truth.take(0, part, end)
        expected = report(truth.pipeline)

        process = Process(config, [2, 0, 1])
        for p, tree in enumerate(saved):
            process.pipeline.restore_partition(p, tree)
        process.pipeline.end_reading(1)
        for part, end in steps:
            process.take(0, part, end)
            readers_see(process.pipeline)
        found = report(process.pipeline)
    assert any(one["impressions"] for one in expected["comparisons"])
    assert differences(without_gaps(found), without_gaps(expected)) == []

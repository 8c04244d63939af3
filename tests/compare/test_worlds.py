"""What verdicts must be in worlds that nobody tuned them to: `python -m benchmarks detection` in a few seeded streams.

Every stream goes through the whole pipeline, with a candidate that is cold: the baseline has served alone for half a day.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.detection.feed import Plan
from benchmarks.detection.whole import Case, Outcome, run

PAIRED = Case("600 a minute", "identical", seed=0, hours=6.0, alone=12.0, marks=(1.0, 2.0, 6.0))
SPLIT = replace(PAIRED, plan=Plan("split"), hours=12.5, marks=(1.0, 4.0, 12.0))


@pytest.mark.parametrize("partitions", [1, 8])
@pytest.mark.parametrize("world", ["600 a minute", "trend and swing"])
def test_a_model_deployed_again_differs_by_nothing_and_is_certified(world: str, partitions: int) -> None:
    out = run(replace(PAIRED, world=world, plan=Plan(partitions=partitions)))
    for name in ("log_loss", "auc", "gauc"):
        assert [out.at[mark][name].value for mark in (2.0, 6.0)] == [0.0, 0.0], name
    assert out.worse == {}
    assert {name: out.final[name] for name in ("overall", "log_loss", "auc")} == dict.fromkeys(
        ("overall", "log_loss", "auc"), "not_worse"
    )


@pytest.mark.parametrize("partitions", [1, 8])
def test_pclick_times_a_factor_ranks_the_same(partitions: int) -> None:
    out = run(replace(PAIRED, pair="0.8 x", plan=Plan(partitions=partitions)))
    assert [abs(out.at[mark]["auc"].value) < 5e-5 for mark in (2.0, 6.0)] == [True, True], out.at
    assert not {"auc", "gauc"} & set(out.worse)
    assert out.final["auc"] == "not_worse"


def test_equal_arms_differ_by_no_more_than_their_error() -> None:
    outs = [run(replace(SPLIT, seed=seed)) for seed in range(6)]
    for mark in SPLIT.marks[1:]:
        for name in ("log_loss", "auc", "calibration"):
            assert abs(mean_z(outs, mark, name)) < 2.0, (mark, name)
    for name in ("log_loss", "calibration"):  # in the first hour nothing may be known of the AUC yet
        assert abs(mean_z(outs, 1.0, name)) < 2.0, name
    known = [out for out in outs if np.isfinite(out.at[1.0]["auc"].z)]
    assert not known or abs(mean_z(known, 1.0, "auc")) < 2.0
    assert [out.worse for out in outs] == [{}] * len(outs)


def test_the_number_of_partitions_changes_no_verdict() -> None:
    case = replace(PAIRED, pair="exchangeable", seed=1, world="zipf 0.8", hours=12.0, marks=(12.0,))
    outs = [run(replace(case, plan=Plan(partitions=partitions))) for partitions in (1, 4, 8, 32)]
    for name in ("log_loss", "auc", "gauc"):
        first, *others = (out.at[12.0][name] for out in outs)
        for other in others:
            assert abs(other.value - first.value) < 0.2 * first.stderr, name
    assert [out.final for out in outs[1:]] == [outs[0].final] * 3


def test_clicks_that_stand_still_for_an_hour_leave_no_verdict() -> None:
    for seed in range(3):
        case = Case("200 a minute", "0.93 and 1.07", seed, Plan(pause=1.0), hours=8.0, alone=8.0)
        assert abs(run(replace(case, plan=Plan())).harm) < 0.001  # as good as each other
        out = run(case)
        assert not {"overall", "log_loss", "auc"} & set(out.worse), seed


def mean_z(outs: list[Outcome], mark: float, name: str) -> float:
    """Of the difference at a mark over independent runs, in its own standard errors."""
    return float(np.mean([out.at[mark][name].z for out in outs]) * np.sqrt(len(outs)))

"""The detector, on a seeded world, keeps what docs/detection.md says: a short form of `python -m benchmarks.detection`."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.detection import null, one_stream, power, references, stderr
from benchmarks.detection.looks import MINUTE, PairedLooks, SplitLooks, days
from benchmarks.detection.world import BASELINE, SCENARIOS, World, warm
from streameval.compare.evidence import paired
from streameval.compare.evidence.evidence import Evidence, Rule
from streameval.sketches.blocks import BlockSums

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("setup", ["paired", "split"])
@pytest.mark.parametrize("deff", [1.0, 30.0])
def test_a_gaussian_null_alarms_no_more_often_than_alpha(setup: str, deff: float) -> None:
    alarms = null.gaussian_alarms(deff, setup, 60)
    assert alarms.fired["ours"] <= 7  # P(more | 5%) < 2%
    assert alarms.fired["naive z"] >= 15  # the same sums, tested naively: the simulation can tell


def test_equal_versions_are_certified_and_not_called_worse() -> None:
    worse = certified = 0
    for seed in range(6):
        for taker in (PairedLooks(), PairedLooks(turned=True), SplitLooks()):
            e = Evidence(Rule(alpha=0.05, margins=null.ZERO, min_duration=30 * MINUTE), 0)
            for minutes in days(100 + seed, lambda _: BASELINE, 1, rows=(2, 3)):
                for looks in taker.take(minutes):
                    e.advance(looks.at, looks.clicks, looks.statistics)
            worse += e.standing().worse_at is not None
            certified += e.standing().not_worse_at is not None
    assert worse <= 3  # of 18
    assert certified >= 10


def test_worse_versions_are_found_within_the_stated_impressions() -> None:
    rule = "alpha 0.05, margin 0"
    found = {
        name: [power.run(power.CASES[name], 200 + i) for i in range(7)]
        for name in ("AUC -0.02", "log loss +1%", "pClick x1.2")
    }
    assert power.delays(found["AUC -0.02"], rule, "overall").median <= 25_000
    assert power.delays(found["log loss +1%"], rule, "overall").median <= 45_000
    assert power.delays(found["pClick x1.2"], rule, "overall").median <= 80_000
    at_one_percent = power.delays(found["AUC -0.02"], "alpha 0.01, margin 0", "overall").median
    assert at_one_percent <= 1.5 * max(power.delays(found["AUC -0.02"], rule, "overall").median, 15_000)


def test_a_late_break_is_found_by_the_later_windows() -> None:
    found = [power.run(power.CASES["log loss +1% from day 3"], 300 + i) for i in range(2)]
    assert power.delays(found, "alpha 0.05, margin 0", "overall").median <= 90_000
    candidate = SCENARIOS["log loss +1%"]
    e = Evidence(Rule(alpha=0.05, margins=null.ZERO, first_weight=1.0, windows=1), 0)
    taker, broke = PairedLooks(), 0
    for day, minutes in enumerate(days(300, lambda d: candidate if d >= 3 else BASELINE, 4, rows=())):
        for looks in taker.take(minutes):
            path = e.advance(looks.at, looks.clicks[:, :1], {k: s[:, :1] for k, s in looks.statistics.items()})
            if day < 3:
                broke = int(looks.impressions[-1])
            elif e.standing().verdict == "worse":
                break
    assert path.log_e_worse.shape == (30, 5)
    alone = looks.impressions[-1] - broke
    assert alone > 1.3 * found[0]["alpha 0.05, margin 0", "overall"]  # a cumulated test alone is slower


def test_standard_errors_are_the_empirical_ones() -> None:
    # an hour, over 60 worlds: the days of the full table would take minutes
    got: dict[str, list[tuple[float, float]]] = {}
    for seed in range(60):
        world = World(seed, shocks=1)
        warm(world, SCENARIOS["AUC -0.005"])
        minutes, _ = world.day(0, SCENARIOS["AUC -0.005"], begin=1320, rows=())
        sums = [BlockSums(x.blocks.sum(axis=0), x.scalars.sum(axis=0)) for x in (minutes.pair, minutes.gauc)]
        for name, s in paired.statistics(*sums).items():
            got.setdefault(name, []).append((float(s.theta), float(s.stderr())))
    for name, values in got.items():
        theta, error = np.array(values).T
        assert 0.75 <= error.mean() / theta.std(ddof=1) <= 1.35, name  # 60 runs: 9% noise
        assert (np.abs(theta - theta.mean()) <= 2.0 * error).mean() >= 0.87, name


def test_frozen_references_drift_and_refreshed_ones_do_not() -> None:
    frozen, fresh = (
        np.array([references.error(i, "equal", refresh) for i in range(4)])[:, -1] for refresh in (False, True)
    )
    assert np.abs(fresh).max() < 0.4  # in standard errors
    assert np.abs(frozen).max() > np.abs(fresh).max()


def test_before_after_warns_about_bad_deploys_and_not_about_days() -> None:
    data = one_stream.weeks(1, ("equal", "AUC -0.02"))
    calm, bad = one_stream.log_es(data["equal"]), one_stream.log_es(data["AUC -0.02"])
    assert max(x.max() for x in calm.values()) < np.log(20)
    assert bad["yardstick auc"].max() > np.log(20)
    assert bad["ne"].max() > np.log(20)
    naive = one_stream.log_es(data["equal"], naive=True)
    assert np.abs(naive["raw log loss"]).max() > 2


def test_one_seed_always_gives_the_same() -> None:
    assert stderr.one.__doc__
    a, b = (power.run(power.CASES["AUC -0.02"], 5) for _ in range(2))
    assert a == b

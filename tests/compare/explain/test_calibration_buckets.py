"""Calibration by bucket against a loop, and in worlds of correlated users whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.compare.evidence.evidence import Rule
from streameval.compare.explain.calibration_buckets import _ratios, calibration_buckets
from streameval.sketches.blocks import BLOCKS, SCALE

EDGES = np.array([0.02, 0.05, 0.1, 0.2])
NAMES = ["0-0.02", "0.02-0.05", "0.05-0.1", "0.1-0.2", "0.2-1"]
EVEN = [1.0] * 5
ALPHA = 0.05
RULE = Rule(alpha=ALPHA)
HOURS = 4
Rows = dict[str, NDArray[np.float64]]


def world(rng: np.random.Generator, n: int, old: list[float], new: list[float], users: int = 2_000) -> Rows:
    """Two versions with these E/O by bucket; a user's clicks hang together, and few users make much of the traffic.

    A third of the users are served by both.
    """
    activity = rng.pareto(1.8, users) + 0.2
    user = rng.choice(users, n, p=activity / activity.sum())
    liking = rng.normal(0, 0.5, users)
    liking -= math.log(np.average(np.exp(liking), weights=activity))
    arm = np.where(rng.random(users)[user] < 1 / 3, rng.integers(0, 2, n), rng.integers(0, 2, users)[user])
    p = np.minimum(rng.beta(1, 14, n), 0.7)
    bucket = np.searchsorted(EDGES, p, side="right")
    rate = np.minimum(p / np.array([old, new])[arm, bucket] * np.exp(liking[user]), 0.99)
    hour = np.sort(rng.integers(0, HOURS, n))
    block = rng.integers(0, BLOCKS, users)[user]
    return {"arm": arm, "hour": hour, "bucket": bucket, "p": p, "y": rng.random(n) < rate, "block": block}


def sums(w: Rows, looks: int = 1) -> NDArray[np.int64]:
    """Of the impressions up to each look: int64[looks, 2, S, K, 3, G]."""
    n = w["p"].size
    out = np.zeros((looks, 2, HOURS, 5, 3, BLOCKS), np.int64)
    for cell, x in enumerate((np.ones(n), w["y"], np.rint(w["p"] * SCALE))):
        at = (np.arange(n) * looks // n, *(w[k].astype(int) for k in ("arm", "hour", "bucket")), cell, w["block"])
        np.add.at(out, at, x.astype(np.int64))
    return np.cumsum(out, axis=0)


def test_the_ratios_and_their_errors_are_those_of_a_loop() -> None:
    w = world(np.random.default_rng(0), 30_000, EVEN, [1.0, 1.3, 1.0, 0.8, 1.0])
    keep = ~((w["arm"] == 1) & (w["hour"] == 0) & (w["bucket"] == 3))  # an hour that the candidate lacks is left out
    keep &= (w["arm"] == 0) | (w["hour"] < 2) | (np.random.default_rng(1).random(30_000) < 0.3)  # and a ramp
    w = {name: column[keep] for name, column in w.items()}
    found = calibration_buckets(NAMES, sums(w)[0], RULE)
    assert [b.bucket for b in found] == NAMES
    for k, b in enumerate(found):
        on = w["bucket"] == k
        weighed = np.zeros((2, 2))  # predicted and real clicks, by arm
        counts = np.zeros((2, 2), int)
        means = []
        for h in range(HOURS):
            cells = [on & (w["hour"] == h) & (w["arm"] == a) for a in (0, 1)]
            n = [int(c.sum()) for c in cells]
            if not all(n):
                continue
            om = n[0] * n[1] / (n[0] + n[1])
            for a in (0, 1):
                weighed[:, a] += om * w["p"][cells[a]].mean(), om * w["y"][cells[a]].mean()
                counts[a] += n[a], w["y"][cells[a]].sum()
                means.append((h, a, om / n[a], cells[a]))
        over = weighed[0] / weighed[1]
        devs, has, floor = np.zeros((2, BLOCKS)), np.zeros((2, BLOCKS)), 0.0
        for _, a, share, cell in means:
            error = w["p"][cell] - over[a] * w["y"][cell]
            np.add.at(devs[a], w["block"][cell], share * (error - error.mean()) / weighed[1, a])
            np.add.at(has[a], w["block"][cell], share)
            ctr = w["y"][cell].mean()
            floor += (over[a] * share / weighed[1, a]) ** 2 * cell.sum() * ctr * (1 - ctr)
        blocks = min(np.unique(w["block"][on & (w["arm"] == a)]).size for a in (0, 1))
        devs /= 1 - has / has.sum(axis=1, keepdims=True)  # what a block leaves
        variance = max((blocks - 1) / blocks * ((devs[1] + s * devs[0]) ** 2).sum() for s in (1, -1))
        assert (b.baseline_impressions, b.baseline_clicks) == tuple(counts[0])
        assert (b.candidate_impressions, b.candidate_clicks) == tuple(counts[1])
        assert (b.baseline, b.candidate) == pytest.approx(over, rel=1e-6)
        assert b.difference == pytest.approx(abs(over[1] - 1) - abs(over[0] - 1), abs=1e-6)
        assert b.stderr == pytest.approx(math.sqrt(max(variance, floor)), rel=1e-4)


@pytest.mark.slow
def test_the_error_is_honest() -> None:
    rng = np.random.default_rng(2)
    ratios, errors = [], []
    for _ in range(200):
        found = calibration_buckets(NAMES, sums(world(rng, 30_000, EVEN, EVEN))[0], RULE)
        ratios.append([b.candidate - b.baseline for b in found])
        errors.append([b.stderr**2 for b in found])
    ratio = np.sqrt(np.mean(errors, axis=0)) / np.std(ratios, axis=0)
    assert bool(((ratio > 0.9) & (ratio < 1.3)).all()), ratio  # it is the larger of two, which errs to the careful side


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), [(1.0, 1.1), (1.0, 0.9), (0.7, 1.4), (1.3, 1.4)])
def test_at_the_margin_there_are_no_discoveries_however_often_one_looks(old: float, new: float) -> None:
    """Every bucket of the candidate is off by just the dead band more, in whatever direction."""
    worlds, wrong = 60, 0
    for seed in range(worlds):
        every = sums(world(np.random.default_rng(seed), 60_000, [old] * 5, [new] * 5), looks=8)
        wrong += any(b.significant for look in every for b in calibration_buckets(NAMES, look, RULE))
    assert wrong / worlds <= ALPHA + 2 * math.sqrt(ALPHA * (1 - ALPHA) / worlds)


@pytest.mark.parametrize("off", [0.6, 1.6])
def test_a_bucket_that_is_off_is_named_and_no_other_one(off: float) -> None:
    for seed in range(8):
        truth = [1.0, 1.0, 1.0, off, 1.0]
        found = calibration_buckets(NAMES, sums(world(np.random.default_rng(seed), 200_000, EVEN, truth))[0], RULE)
        assert [b.bucket for b in found if b.significant] == ["0.1-0.2"]
        assert found[3].candidate == pytest.approx(off, rel=0.25)
        better = calibration_buckets(NAMES, sums(world(np.random.default_rng(seed), 200_000, truth, EVEN))[0], RULE)
        assert not any(b.significant for b in better)
        assert better[3].difference < 0


def test_half_of_the_clicks_in_a_block_leave_few_degrees_of_freedom() -> None:
    w = sums(world(np.random.default_rng(4), 60_000, EVEN, EVEN, 100_000))[0]
    alike = _ratios(w).df
    clicks = w[:, :, :, 1].sum(axis=-1)
    for cell, of_one in enumerate((1, 1, SCALE)):
        w[:, :, :, cell, 7] += int(of_one) * clicks
    assert (_ratios(w).df < 8).all()  # fewer than 4 of either version
    assert (alike > 40).all()


def test_no_evidence_below_the_floors_and_nothing_where_one_of_them_did_not_serve() -> None:
    w = world(np.random.default_rng(3), 60_000, EVEN, [3.0] * 5)
    w = {name: column[(w["bucket"] > 0) | (w["arm"] == 0)] for name, column in w.items()}
    found = calibration_buckets(NAMES, sums(w)[0], RULE)
    assert [b.bucket for b in found] == NAMES[1:]
    assert any(b.significant for b in found)
    for rule in (Rule(alpha=ALPHA, min_clicks=10**6), Rule(alpha=ALPHA, min_blocks=BLOCKS + 1)):
        assert {(b.log_e, b.significant) for b in calibration_buckets(NAMES, sums(w)[0], rule)} == {(0.0, False)}
    w["y"][:] = False
    assert {(b.candidate, b.difference, b.log_e) for b in calibration_buckets(NAMES, sums(w)[0], RULE)} == {
        (None, None, 0.0)
    }

"""The strict mode: no false alarms where tails are heavy, and bad models are still found."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streameval.compare.evidence.evidence import Rule
from streameval.compare.ledger.sums import SCALARS, WIDTH, log_odds_ratio, strict_difference
from streameval.compare.reading.reading import Deploy
from streameval.compare.tracking.sequential import SequentialTracked
from streameval.events.batch import Series
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BLOCKS, PAIR_CELLS, SCALE

HOUR = 3_600_000
OLD, NEW = Series("m", "v1", "logged"), Series("m", "v2", "logged")
DEPLOY = Deploy("1", "m", "v2", "v1", 0, "deploy", 0)


def losses(p: np.ndarray, clicked: np.ndarray) -> np.ndarray:
    return -np.where(clicked, np.log(p), np.log1p(-p))


def row(block: np.ndarray, clicked: np.ndarray, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """A row of the ledger of (old, new), from impressions."""
    out = np.zeros(WIDTH, np.int64)
    table = out[:SCALARS].reshape(BLOCKS, PAIR_CELLS)
    a, b = losses(old, clicked), losses(new, clicked)
    logit = np.log(old / (1 - old))
    near = 1 / (1 + np.exp(-np.clip(np.log(new / (1 - new)), logit - 2, logit + 2)))
    d, s = b - a, losses(near, clicked) - a
    for cell, values in (
        (cells.PAIR_N, 1 / SCALE + 0 * a),
        (cells.PAIR_Y, clicked / SCALE),
        (cells.D, d),
        (cells.PAIR_L, a),
        (cells.PAIR_P, old),
        (cells.PAIR_P_OTHER, new),
    ):
        np.add.at(table[:, cell], block, np.rint(values * SCALE).astype(np.int64))
    for cell, values in ((cells.D_SQ, d * d), (cells.D_STRICT, s), (cells.D_STRICT_SQ, s * s)):
        out[SCALARS + cell] = int(np.rint(values * SCALE).astype(np.int64).sum())
    return out


def run(seed: int, *, noise: float, heavy: bool, hours: int = 30, alpha: float = 0.05) -> SequentialTracked:
    """A comparison with a look every hour, 3,000 impressions each. Both versions see a true logit through their own noise."""
    rng = np.random.default_rng(seed)
    margins = {"log_loss": 0.0, "auc": 0.0, "gauc": 0.0, "calibration": 0.1}
    tracked = SequentialTracked(DEPLOY, "paired", OLD, NEW, 0, 0, Rule(alpha=alpha, strict=True, margins=margins))
    for hour in range(hours):
        n = 3000
        truth = rng.normal(-3.2, 1.0, n)
        wrong = rng.standard_t(1.5, (2, n)) if heavy else rng.normal(size=(2, n))
        old, new = 1 / (1 + np.exp(-np.clip(truth + np.array([[0.3], [noise]]) * wrong, -12, 12)))
        clicked = rng.random(n) < 1 / (1 + np.exp(-truth))
        tracked.add(hour * 60, (OLD, NEW), row(rng.integers(0, BLOCKS, n), clicked, old, new))
        tracked.look((hour + 1) * HOUR, None)
    return tracked


@pytest.mark.slow
def test_versions_with_heavy_errors_that_are_equal_on_average_are_not_called_worse() -> None:
    """Both take logits amiss with a t of 1.5 degrees of freedom: a few impressions decide a day."""
    runs, alpha = 60, 0.05
    false = sum(run(seed, noise=0.3, heavy=True, alpha=alpha).verdict == "worse" for seed in range(runs))
    assert false <= runs * (alpha + 2 * math.sqrt(alpha * (1 - alpha) / runs))


@pytest.mark.parametrize("heavy", [False, True])
def test_a_worse_version_is_found_by_its_log_loss_alone(heavy: bool) -> None:
    found = 0
    for seed in range(5):
        tracked = run(seed, noise=0.9, heavy=heavy)
        reading = tracked.reading()
        found += reading.verdict == "worse"
        assert reading.log_e_worse == reading.metrics[0].log_e_worse  # nothing else has a say
    assert found == 5


def test_other_metrics_do_not_decide() -> None:
    """The same log loss throughout, but the new one's pClick is far from the clicks."""
    rng = np.random.default_rng(0)
    tracked = SequentialTracked(DEPLOY, "paired", OLD, NEW, 0, 0, Rule(strict=True))
    for hour in range(10):
        n = 3000
        p = np.full(n, 0.05)
        one = row(rng.integers(0, BLOCKS, n), rng.random(n) < p, p, p)
        table = one[:SCALARS].reshape(BLOCKS, PAIR_CELLS)
        table[:, cells.PAIR_P] = np.rint(0.05 * SCALE * table[:, cells.PAIR_N])
        table[:, cells.PAIR_P_OTHER] = np.rint(0.1 * SCALE * table[:, cells.PAIR_N])
        tracked.add(hour * 60, (OLD, NEW), one)
        tracked.look((hour + 1) * HOUR, None)
    verdicts = {m.metric: m.verdict for m in tracked.reading().metrics}
    assert verdicts["calibration"] == "worse"
    assert tracked.verdict != "worse"


def test_a_restart_keeps_the_margin_that_was_frozen() -> None:
    tracked = run(3, noise=0.5, heavy=False, hours=3)
    again = SequentialTracked(DEPLOY, "paired", OLD, NEW, 0, 0, tracked.rule)
    again.restore(tracked.state())
    assert again.state() == tracked.state()
    assert tracked.state()["strict_margin"] == 0.0  # of a margin of 0


def test_odds_are_clipped_to_within_seven_times_the_servers() -> None:
    rng = np.random.default_rng(1)
    for _ in range(2000):
        served, other = 1 / (1 + np.exp(-rng.normal(0, 4, 2)))
        for clicked in (0, 1):
            loss = losses(np.array(served), np.array(clicked == 1))
            d = losses(np.array(other), np.array(clicked == 1)) - loss
            logit = math.log(served / (1 - served))
            near = 1 / (1 + math.exp(-min(max(math.log(other / (1 - other)), logit - 2), logit + 2)))
            got = strict_difference(served, log_odds_ratio(served, other), clicked, float(loss), float(d))
            assert got == pytest.approx(float(losses(np.array(near), np.array(clicked == 1)) - loss), abs=1e-9)
            assert abs(got) <= 2 + 1e-9
    for served in (0.0, 1.0):  # logs may hold anything in [0, 1]
        for clicked in (0, 1):
            loss = 16.118095 if clicked != served else 1e-7
            assert abs(strict_difference(served, log_odds_ratio(served, 0.5), clicked, loss, 0.0)) <= 2 + 1e-6

"""Arms that have hardly any of the clicks that they promised: judged by calibration, never by luck."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.compare.evidence import split, unclicked
from streameval.compare.evidence.evidence import Evidence, Rule
from streameval.compare.evidence.paired import GAP, MID
from streameval.compare.evidence.ratio import Statistics
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE

HOUR = 3_600_000
FLOOR = 200


def arms(rng: np.random.Generator, n: int, came: tuple[float, float], spread: float = 0.0) -> np.ndarray:
    """Served rows [2, 64, 8] of two arms of n impressions a block whose pClick is 3%; `came`: clicks over promised ones.

    `spread`: sd of the log of a block's clicks, as of a few users who click much.
    """
    rows = np.zeros((2, 64, 8), np.int64)
    for arm in range(2):
        many = rng.poisson(n, 64)
        p = 0.03 * many
        y = rng.poisson(p * came[arm] * np.exp(rng.normal(-spread * spread / 2, spread, 64)))
        rows[arm, :, cells.N], rows[arm, :, cells.Y] = many, np.minimum(y, many)
        rows[arm, :, cells.P] = np.rint(p * SCALE)
        rows[arm, :, cells.L] = np.rint((0.1 * many + y) * SCALE)
    return rows


def found(rows: np.ndarray) -> tuple[Statistics, np.ndarray]:
    """The statistics [1, 1] of arms, and the clicks by which they are judged."""
    sums = split.strata(*rows)
    one = split.StrataSums(sums.totals[None, None], sums.devs[None, None])
    clicks, promised = rows[:, :, cells.Y].sum(axis=1)[None], rows[:, :, cells.P].sum(axis=1)[None] / SCALE
    some = unclicked.statistics(Statistics.of(split.statistics(one)), one, clicks, promised, FLOOR)
    return some, unclicked.judged(clicks, promised, FLOOR).min(axis=1)[None]


def verdicts(rows: np.ndarray, rule: Rule | None = None) -> tuple[str, str]:
    """(overall, calibration) after one look."""
    evidence = Evidence(rule or Rule(), 0)
    some, clicks = found(rows)
    evidence.advance(np.array([2 * HOUR]), clicks, some)
    return evidence.standing().verdict, evidence.standing("calibration").verdict


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1])
def test_an_arm_without_its_clicks_is_worse_by_calibration_alone(share: float) -> None:
    rows = arms(np.random.default_rng(1), 1_000, (1.0, share))
    some, clicks = found(rows)
    promised = rows[1, :, cells.P].sum() / SCALE
    assert clicks[0, 0] == int(promised / unclicked.FOR_A_CLICK)
    assert float(some[MID].theta[0, 0]) == pytest.approx(4.0, abs=0.2)
    assert float(some[GAP].theta[0, 0]) == pytest.approx(4.0, abs=0.2)
    assert float(some[GAP].stderr()[0, 0]) >= unclicked.FOR_A_CLICK / np.sqrt(clicks[0, 0])
    assert not np.isfinite([some[name].variance()[0, 0] for name in ("log_loss", "auc")]).any()
    assert verdicts(rows) == ("worse", "worse")
    assert verdicts(rows[::-1]) == ("undecided", "not_worse")  # the old arm's trouble is no harm of the new one's


def test_arms_with_their_clicks_and_young_ones_are_as_they_were() -> None:
    rng = np.random.default_rng(2)
    for n, came in ((1_000, (1.0, 0.5)), (400, (1.0, 0.0)), (20, (1.0, 1.0))):
        rows = arms(rng, n, came)
        sums = split.strata(*rows)
        plain = Statistics.of(split.statistics(split.StrataSums(sums.totals[None, None], sums.devs[None, None])))
        some, clicks = found(rows)
        assert np.array_equal(some.packed, plain.packed, equal_nan=True)
        assert clicks[0, 0] == rows[:, :, cells.Y].sum(axis=1).min()


def test_without_clicks_in_either_arm_there_is_no_difference() -> None:
    rows = arms(np.random.default_rng(3), 1_000, (0.0, 0.0))
    assert float(found(rows)[0][GAP].theta[0, 0]) == 0.0
    assert verdicts(rows)[0] == "undecided"


@pytest.mark.filterwarnings("error")
def test_beside_an_arm_that_has_no_click_and_promised_few_nothing_is_known() -> None:
    rows = arms(np.random.default_rng(3), 1_000, (0.0, 0.0))
    rows[0] = arms(np.random.default_rng(3), 400, (0.0, 0.0))[0]
    some, clicks = found(rows)
    assert clicks[0, 0] == 0
    assert not np.isfinite([some[name].variance()[0, 0] for name in (MID, GAP, "log_loss", "auc")]).any()


def test_luck_is_not_enough_whoever_clicks() -> None:
    # clicks in lumps: a block's vary by a factor of three
    rng = np.random.default_rng(4)
    rule = Rule(alpha=0.05)
    worse = [
        verdicts(arms(rng, n, (1.0, 1.0), spread=1.0), rule)[0] == "worse"
        for n in (500, 600, 1_000)
        for _ in range(300)
    ]
    assert sum(worse) == 0


def test_a_floor_of_nothing_asks_for_nothing() -> None:
    on = unclicked.unclicked(np.array([[0, 5]]), np.array([[1e6, 1e6]]), 0)
    assert not on.any()


def test_the_error_of_the_arm_that_has_clicks_is_that_of_leaving_out_its_few_blocks() -> None:
    rows = arms(np.random.default_rng(11), 10_000_000, (1.0, 0.0), 0.2)
    rows[:, 4:] = 0
    some, _ = found(rows)
    promised, clicks = rows[0, :4, cells.P] / SCALE, rows[0, :4, cells.Y]
    without = (promised.sum() - promised) / (clicks.sum() - clicks)
    jackknife = 3 / 4 * ((without - without.mean()) ** 2).sum()
    of_the_other = unclicked.FOR_A_CLICK**2 / (
        rows[1, :, cells.P].sum() / SCALE / unclicked.FOR_A_CLICK
    )  # independent clicks
    assert jackknife > 0.5 * of_the_other
    assert float(some[GAP].v_clu[0, 0]) == pytest.approx(jackknife + of_the_other, rel=0.05)


def test_half_of_the_clicks_in_a_block_of_the_arm_that_has_clicks_leave_few_degrees_of_freedom() -> None:
    rows = arms(np.random.default_rng(12), 10_000, (1.0, 0.0))
    alike = found(rows)[0][GAP].df[0, 0]
    more = int(rows[0, :, cells.Y].sum())
    for cell, of_one in ((cells.N, 1.0), (cells.Y, 1.0), (cells.P, 0.5 * SCALE), (cells.L, 0.7 * SCALE)):
        rows[0, 7, cell] += int(more * of_one)
    few = found(rows)[0][GAP].df[0, 0]
    assert alike > 60
    assert few < 8  # nearly all of the variance is that arm's, which has 3

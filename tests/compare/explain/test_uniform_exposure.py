"""The Simpson guard of paired comparisons: against loops over impressions, and in worlds whose truth is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from streameval.compare.evidence import paired
from streameval.compare.explain.findings import Terms
from streameval.compare.explain.uniform_exposure import paired_mixes, uniform_exposure
from streameval.compare.ledger import exposure
from streameval.compare.ledger.ledger import Ledger
from streameval.compare.ledger.strata import Strata
from streameval.compare.reading.reading import Mix
from streameval.compare.tracking.sums import PairedSums
from streameval.counting.scoreboard import Labelled
from streameval.events.batch import Series
from streameval.events.columns import Scored
from streameval.sketches.accumulate import CURVE_BITS
from streameval.sketches.blocks import (
    BLOCKS,
    D_SQ,
    NO_ITEM,
    PAIR_CELLS,
    PAIR_L,
    PAIR_N,
    PAIR_PHI1,
    PAIR_PHI1_SQ,
    PAIR_SCALARS,
    PAIR_Y,
    SCALE,
    BlockSums,
    D,
    blocks_of,
)
from streameval.sketches.grid import key_bin, score_key

ALPHA = 0.05
PANE, BASE = 60_000, 1_700_000_040_000
V1, V3 = Series("m", "v1", "logged"), Series("m", "v3", "logged")
FOUR = np.array([0.01, 0.1, 0.5])  # the strata whose plain mean was the second reading once
Reals = NDArray[np.float64]


@dataclass
class Rows:
    """Impressions in order of time, with the scores of both versions."""

    user: NDArray[np.uint64]
    propensity: Reals
    label: NDArray[np.int8]
    p1: Reals
    p3: Reals
    served3: NDArray[np.bool_]  # by the candidate; v1 served the others

    def __len__(self) -> int:
        return self.label.size

    @property
    def ts(self) -> NDArray[np.int64]:
        return BASE + np.arange(len(self)) * (5 * 3_600_000 // len(self))

    def differences(self) -> Reals:
        def loss(p: Reals) -> Reals:
            return -np.where(self.label > 0, np.log(p), np.log1p(-p))

        return loss(self.p3) - loss(self.p1)


def sums_of(rows: Rows, least: float = 1e-4) -> PairedSums:
    """As a comparison that has looked at all of them."""
    n = len(rows)
    ledger, strata = Ledger(PANE, PANE, 5, 0, (0.1,), min_propensity=least), Strata(PANE, PANE, str)
    index = np.arange(n, dtype=np.int32)
    labelled = Labelled(
        rows.ts, rows.user, np.zeros(n, np.int64), rows.label, np.zeros(n, np.bool_), {"propensity": rows.propensity},
        np.ones(n, np.bool_), np.full(n, NO_ITEM, np.int8),
    )  # fmt: skip
    first, second = np.where(rows.served3, rows.p3, rows.p1), np.where(rows.served3, rows.p1, rows.p3)
    series = np.concatenate((rows.served3, ~rows.served3)).astype(np.int32)
    scored = Scored(
        (0, n, 2 * n), np.tile(index, 2), series, np.concatenate((first, second)), np.zeros(2 * n, np.bool_)
    )
    ledger.observe(labelled, scored, +1)
    end = int(rows.ts[-1]) // PANE + 1
    sums = PairedSums(V1, V3)
    gains = [(segment, key, row) for segment, by_key in ledger.advance(end) for key, row in by_key.items()]
    gains += [(segment, key, row) for (segment, key), row in strata.settle([ledger], end, over=True).items()]
    for segment, (served, other), row in gains:
        if other >= 0:
            sums.add(segment, ((V1, V3)[served], (V1, V3)[other]), row)
    return sums


def guard(rows: Rows, alpha: float = ALPHA) -> dict[str, Mix]:
    sums = sums_of(rows)
    found = {name: some[0, 0] for name, some in sums.statistics().items()}
    terms = Terms(alpha, 0.0, 200, 30, None)
    return {m.metric: m for m in paired_mixes(sums.whole(), found, sums.exposed(), terms, "v3")[0]}


def logit(p: Reals) -> Reals:
    return np.log(p / (1 - p))


def world(
    rng: np.random.Generator, n: int, head: float, tail: float, usual: float = 0.5, missing: float = 0.0
) -> tuple[Rows, float]:
    """200 items, shown with a probability that falls with their rank from 0.17 to below 0.001; (rows, the truth).

    The versions are off by a noise of each item and of each impression: v1 by `usual` everywhere, v3 by `head` on items that are
    shown more often than 0.01, by `tail` on the others. The truth: v3's log loss less v1's, had every item been shown equally often.
    """
    items, users = 200, 4_000
    shown = 1 / np.arange(1, items + 1)
    shown /= shown.sum()
    item = rng.choice(items, n, p=shown)
    user = rng.choice(users, n, p=np.random.default_rng(3).dirichlet(np.full(users, 0.7)))
    about = rng.normal(-2.2, 0.8, items)
    noise = np.where(shown > 0.01, head, tail)

    def versions(item: NDArray[np.int64], liking: Reals) -> tuple[Reals, Reals, Reals]:
        truth = about[item] + liking
        off = rng.normal(0, 1, (2, truth.size))
        return tuple(1 / (1 + np.exp(-z)) for z in (truth, truth + usual * off[0], truth + noise[item] * off[1]))

    p, p1, p3 = versions(item, rng.normal(0, 0.7, users)[user])
    label = (rng.random(n) < p).astype(np.int8)
    propensity = shown[item]
    propensity[rng.random(n) < missing] = np.nan
    alike, a, b = versions(rng.integers(0, items, 400_000), rng.normal(0, 0.7, 400_000))
    gain = alike * np.log(a / b) + (1 - alike) * np.log((1 - a) / (1 - b))
    ids = rng.integers(1, 2**62, users).astype(np.uint64)[user]
    return Rows(ids, propensity, label, p1, p3, rng.random(n) < 0.3), float(gain.mean())


def test_sums_are_those_of_a_loop_over_impressions() -> None:
    rng = np.random.default_rng(0)
    rows, _ = world(rng, 6_000, 0.3, 0.9, missing=0.1)
    rows.propensity[::50] = 1e-6  # below the least
    sums = sums_of(rows).exposed()
    weight = 1 / np.maximum(rows.propensity, 1e-4)
    exact = weight.copy()
    weight = 2.0 ** np.floor(np.log2(weight)) * (
        1 + np.floor((weight / 2.0 ** np.floor(np.log2(weight)) - 1) * 128) / 128
    )
    known = ~np.isnan(weight)
    assert np.all((weight[known] <= exact[known]) & (weight[known] > exact[known] * (1 - 1 / 128)))
    d, block, click = rows.differences(), blocks_of(rows.user), rows.label == 1
    by_block = sums[: exposure.X_N].reshape(BLOCKS, exposure.EXPOSED_CELLS)
    for cell, on, term, unit in (
        (exposure.XW, known, weight, exposure.WEIGHT_SCALE), (exposure.XWD, known, weight * d, exposure.TERM_UNITS),
        (exposure.XW1, known & click, weight, exposure.WEIGHT_SCALE),
    ):  # fmt: skip
        expected = np.bincount(block[on], term[on], minlength=BLOCKS)
        assert by_block[:, cell] / unit == pytest.approx(expected, abs=1e-5)
    assert sums[exposure.X_N] == known.sum()
    assert sums[exposure.X_WW] / exposure.SQUARE_UNITS == pytest.approx((weight[known] ** 2).sum(), rel=1e-9)
    expected = (weight[known] ** 2 * d[known] ** 2).sum()
    assert sums[exposure.X_WWDD] / exposure.SQUARED_TERM_UNITS == pytest.approx(expected, rel=1e-6)
    octave = np.floor(np.log2(weight[known])).astype(int)
    octaves = sums[exposure.X_OCTAVES : exposure.X_OCTAVES1]
    assert octaves.tolist() == np.bincount(octave, minlength=octaves.size).tolist()
    found = uniform_exposure(sums)
    assert float(found["log_loss"].theta) == pytest.approx((weight * d)[known].sum() / weight[known].sum(), abs=1e-9)


@pytest.mark.slow
def test_clicks_are_placed_among_all_non_clicks_and_then_weighted() -> None:
    rows, _ = world(np.random.default_rng(1), 4_000, 0.3, 0.9, missing=0.1)
    rows.served3[:] = False  # one pair, and all of it in one hour: one stratum of placements
    rows = Rows(rows.user, rows.propensity, rows.label, rows.p1, rows.p3, rows.served3)
    sums = sums_of(rows)
    weight = 1 / rows.propensity
    hour = rows.ts // 3_600_000

    def placed(p: Reals) -> Reals:
        tie = np.array([key_bin(score_key(x), CURVE_BITS) for x in p])
        out = np.zeros(tie.size)
        for one in np.unique(hour):
            no = np.sort(tie[(hour == one) & (rows.label == 0)])
            on = hour == one
            out[on] = (np.searchsorted(no, tie[on]) + np.searchsorted(no, tie[on], "right")) / 2 / no.size
        return out

    phi = placed(rows.p3) - placed(rows.p1)
    on = (rows.label == 1) & ~np.isnan(weight)
    expected = float((weight[on] * phi[on]).sum() / weight[on].sum())
    assert float(uniform_exposure(sums.exposed())["auc"].theta) == pytest.approx(expected, rel=0.01)
    plain = rows.label == 1
    first = hour == hour[0]  # unweighted it is the difference in AUC
    difference = roc_auc_score(rows.label[first], placed(rows.p3)[first]) - roc_auc_score(
        rows.label[first], placed(rows.p1)[first]
    )
    assert phi[first & plain].mean() == pytest.approx(difference, abs=1e-9)


def test_who_served_makes_no_difference_to_the_sums() -> None:
    rows, _ = world(np.random.default_rng(2), 3_000, 0.3, 0.9)
    rows.served3[:] = False
    one = sums_of(rows).exposed()
    rows.served3[:] = True
    other = sums_of(rows).exposed()
    assert np.abs(one - other).max() <= rows.label.size  # rounding of w d and -w d, halves apart
    assert uniform_exposure(one)["log_loss"].theta == pytest.approx(uniform_exposure(other)["log_loss"].theta, abs=1e-9)


def test_a_version_that_wins_on_head_items_and_loses_elsewhere_is_called_within_200_000_impressions() -> None:
    """The plain mean of four strata, the guard's second reading before, agrees with the aggregate here."""
    for seed in range(3):
        rows, truth = world(np.random.default_rng(seed), 200_000, 0.05, 0.66)
        d = rows.differences()
        four = np.searchsorted(FOUR, rows.propensity, side="right")
        assert max(d.mean(), np.mean([d[four == k].mean() for k in np.unique(four)])) < 0 < truth
        mix = guard(rows)["log_loss"]
        assert mix.total == pytest.approx(d.mean(), abs=1e-7)
        assert mix.total == pytest.approx(mix.mix + mix.within)
        assert abs(mix.within - truth) < 3 * mix.within_stderr
        assert mix.simpson
        assert "the log loss of v3 is" in mix.text
        assert "lower over what was shown" in mix.text
        assert "higher under uniform exposure" in mix.text


def test_a_version_that_ranks_only_frequently_shown_items_better_is_detected() -> None:
    rows, _ = world(np.random.default_rng(0), 200_000, 0.1, 1.34, usual=0.8)
    mix = guard(rows)["auc"]
    assert mix.simpson
    assert mix.total > 0 > mix.within
    assert "AUC of v3" in mix.text


def test_a_version_that_is_better_everywhere_is_not_called() -> None:
    rows, truth = world(np.random.default_rng(5), 100_000, 0.2, 0.3)
    mixes = guard(rows)
    assert truth < 0
    assert mixes["log_loss"].within < 0 < mixes["auc"].within
    assert not any(m.simpson for m in mixes.values())


def test_it_is_silent_where_propensities_say_too_little() -> None:
    rng = np.random.default_rng(6)
    rows, _ = world(rng, 20_000, 0.05, 0.7)
    assert set(guard(rows)) == {"log_loss", "auc"}
    few = Rows(*(getattr(rows, name)[:1_000] for name in ("user", "propensity", "label", "p1", "p3", "served3")))
    assert guard(few) == {}  # clicks
    known = rows.propensity.copy()
    rows.propensity[rng.random(20_000) < 0.2] = np.nan
    assert guard(rows) == {}  # of too few
    rows.propensity[:] = known
    heavy = int(np.flatnonzero(rows.label)[0])
    rows.propensity[:] = 0.5
    rows.propensity[heavy] = 1e-4  # one click with a seventh of the weight of all
    assert guard(rows) == {}
    rows.propensity[:] = 0.5
    rows.user[:] = rows.user[0]
    assert guard(rows) == {}  # users


@pytest.mark.slow
def test_false_alarms_stay_below_alpha_with_propensities_down_to_a_thousandth() -> None:
    """v3 is better on what is shown, and under uniform exposure exactly as good: half a null, the hardest one for the guard."""
    worlds, alarms, silent = 150, 0, 0
    shown = 1 / np.arange(1, 151)
    shown /= shown.sum()
    assert shown.min() == pytest.approx(0.0012, abs=1e-4)
    shift = np.where(shown > 0.05, -0.02, 0.0)
    shift[shown <= 0.05] = -shift.sum() / (shown <= 0.05).sum()
    for seed in range(worlds):
        rng = np.random.default_rng(100 + seed)
        n = 24_000
        item, user = rng.choice(shown.size, n, p=shown), (rng.pareto(1.5, n) * 40).astype(int) % 3_000
        p = rng.beta(2, 12, n)
        y = (rng.random(n) < p).astype(np.int64)
        taste = rng.normal(0, 0.3, 3_000)  # of a user: differences hang together
        d = (y - p) * (taste[user] + rng.normal(0, 0.4, n)) + shift[item]
        phi = (y * rng.normal(0, 0.05, n)) + y * 0.01 * (shown[item] > 0.05)
        block = rng.permutation(np.arange(3_000) % BLOCKS)[user]
        found = []
        for upto in (6_000, 12_000, 24_000):
            found += summed(block[:upto], y[:upto], d[:upto], phi[:upto], shown[item[:upto]])
        silent += not found
        alarms += any(m.simpson for m in found)
    assert silent == 0
    assert alarms / worlds <= ALPHA


def summed(block: NDArray[np.int64], y: NDArray[np.int64], d: Reals, phi: Reals, propensity: Reals) -> tuple[Mix, ...]:
    """The guard, from sums as the ledger has them."""
    blocks, exposed = np.zeros((BLOCKS, PAIR_CELLS)), np.zeros(exposure.EXPOSED)
    for cell, term in (
        (PAIR_N, y * 0 + 1),
        (PAIR_Y, y),
        (D, d * SCALE),
        (PAIR_L, 0.4 * SCALE + 0 * d),
        (PAIR_PHI1, phi * SCALE),
    ):
        blocks[:, cell] = np.bincount(block, term, minlength=BLOCKS)
    w = 1 / propensity
    cells = exposed[: exposure.X_N].reshape(BLOCKS, exposure.EXPOSED_CELLS)
    for cell, term in (
        (exposure.XW, w * exposure.WEIGHT_SCALE), (exposure.XWD, w * d * exposure.TERM_UNITS),
        (exposure.XW1, w * y * exposure.WEIGHT_SCALE), (exposure.XWPHI, w * y * phi * exposure.TERM_UNITS),
    ):  # fmt: skip
        cells[:, cell] = np.bincount(block, term, minlength=BLOCKS)
    exposed[exposure.X_N] = y.size
    for cell, term, unit in (
        (exposure.X_WW, w * w, exposure.SQUARE_UNITS), (exposure.X_WWD, w * w * d, exposure.SQUARED_TERM_UNITS),
        (exposure.X_WWDD, w * w * d * d, exposure.SQUARED_TERM_UNITS), (exposure.X_WW1, w * w * y, exposure.SQUARE_UNITS),
        (exposure.X_WWPHI, w * w * y * phi, exposure.SQUARED_TERM_UNITS),
        (exposure.X_WWPHI2, w * w * y * phi * phi, exposure.SQUARED_TERM_UNITS),
    ):  # fmt: skip
        exposed[cell] = term.sum() * unit
    octave = np.floor(np.log2(w)).astype(int)
    exposed[exposure.X_OCTAVES : exposure.X_OCTAVES1] = np.bincount(octave, minlength=14)
    exposed[exposure.X_OCTAVES1 :] = np.bincount(octave, y, minlength=14)
    scalars = np.zeros(PAIR_SCALARS, np.int64)
    scalars[D_SQ], scalars[PAIR_PHI1_SQ] = (d * d).sum() * SCALE, (phi * phi).sum() * SCALE
    sums = BlockSums(np.rint(blocks).astype(np.int64), scalars)
    found = paired.statistics(sums)
    return paired_mixes(sums, found, np.rint(exposed).astype(np.int64), Terms(ALPHA, 0.0, 200, 30, None), "v3")[0]

"""Strata of propensity: cuts, the three ways to put them together, and brute force over impressions."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from streameval.counting.scoreboard import Labelled, Scoreboard
from streameval.counting.slice_rows import SliceRows
from streameval.events.batch import Catalog
from streameval.events.columns import Scored
from streameval.metrics.errors import coarse
from streameval.metrics.strata import (
    Stratum,
    Whole,
    combined,
    cut_by_mass,
    cut_by_width,
    strata_of,
    stratified,
)
from streameval.sketches.accumulate import CURVE_BITS
from streameval.sketches.grid import bin_count, key_bin, score_key
from streameval.sketches.layout import Options, read_tally
from streameval.sketches.propensity import (
    FINE_EDGES,
    SCORE_BINS,
    STRATUM_N,
    STRATUM_SCALES,
    STRATUM_Y,
    PropensityStrata,
    score_bins,
)

BOUNDS = (0.0, *FINE_EDGES, 1.0)
Reals = NDArray[np.float64]
KIDNEY = {"A": ((81, 87), (192, 263)), "B": ((234, 270), (55, 80))}  # recovered, treated; small stones, large stones


def stratum(n: int, y: int, log_loss: float | None = 0.5, auc: float | None = 0.5, mass: float | None = 1.0) -> Stratum:
    return Stratum(0.0, 1.0, n, y, log_loss, 1.0, auc, 0.0, mass)


# -- the paper's numbers -----------------------------------------------------------------------------------------


def test_the_kidney_stones_from_their_counts_and_from_rounded_rates() -> None:
    sizes = [KIDNEY["A"][k][1] + KIDNEY["B"][k][1] for k in (0, 1)]  # 357 and 343: what is alike in both arms
    for arm, from_counts, from_rates, rates in (
        ("A", 0.8325, 0.832, (0.93, 0.73)), ("B", 0.7789, 0.782, (0.87, 0.69)),
    ):  # fmt: skip
        assert combined([y / n for y, n in KIDNEY[arm]], sizes) == pytest.approx(from_counts, abs=5e-5)
        assert combined(rates, [0.51, 0.49]) == pytest.approx(from_rates, abs=5e-4)
        treated = [n for _, n in KIDNEY[arm]]
        total = sum(y for y, _ in KIDNEY[arm]) / sum(treated)
        assert combined([y / n for y, n in KIDNEY[arm]], treated) == pytest.approx(total)  # by its own shares: nothing


def test_table_1b_of_the_paper() -> None:
    assert combined([0.339, 0.695], [0.99, 0.01]) == pytest.approx(0.343, abs=5e-4)
    assert combined([0.350, 0.418], [0.99, 0.01]) == pytest.approx(0.351, abs=5e-4)


# -- putting together --------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 10), st.floats(1, 1e4)), min_size=1, max_size=10))
def test_share_gives_back_the_overall_mean_and_corrects_nothing(strata: list[tuple[int, float, float]]) -> None:
    found = stratified([stratum(n, 1, loss, mass=n * w) for n, loss, w in strata])["log_loss"]
    overall = sum(n * loss for n, loss, _ in strata) / sum(n for n, _, _ in strata)
    assert found["share"] == pytest.approx(overall, rel=1e-12, abs=1e-12)
    assert found["plain"] == pytest.approx(np.mean([loss for _, loss, _ in strata]), rel=1e-12, abs=1e-12)
    snips = sum(n * w * loss for n, loss, w in strata) / sum(n * w for n, _, w in strata)
    assert found["uniform_exposure"] == pytest.approx(snips, rel=1e-12, abs=1e-12)


def test_the_three_weightings_are_told_apart() -> None:
    """A stratum of 9 impressions, one of 26,000 that is shown always, and one that is hardly ever shown."""
    rows = [
        stratum(9, 3, 0.9, 0.5, 9 * 10.0),
        stratum(26_000, 2_600, 0.3, 0.8, 26_000.0),
        stratum(2_000, 100, 0.6, 0.6, 2e6),
    ]
    found = stratified(rows)
    assert found["log_loss"]["share"] == pytest.approx((9 * 0.9 + 26_000 * 0.3 + 2_000 * 0.6) / 28_009)
    assert found["log_loss"]["plain"] == pytest.approx(0.6)
    assert found["log_loss"]["uniform_exposure"] == pytest.approx((90 * 0.9 + 26_000 * 0.3 + 2e6 * 0.6) / 2_026_090)
    assert found["auc"]["share"] == pytest.approx((3 * 0.5 + 2_600 * 0.8 + 100 * 0.6) / 2_703)
    assert found["auc"]["uniform_exposure"] == pytest.approx(
        (3 * 10 * 0.5 + 2_600 * 0.8 + 100 * 1_000 * 0.6) / (30 + 2_600 + 1e5)
    )
    for metric in ("log_loss", "auc"):
        assert len({round(v, 3) for v in found[metric].values()}) == 3


def test_what_has_no_value_or_no_propensity_is_left_out() -> None:
    assert stratified([]) == {
        metric: {"share": None, "plain": None, "uniform_exposure": None}
        for metric in ("log_loss", "calibration", "auc")
    }
    rows = [stratum(10, 0, 0.2, None, 20.0), stratum(10, 5, 0.4, 0.7, 10.0), stratum(50, 5, 9.0, 0.1, None)]
    found = stratified(rows)
    assert found["auc"] == {"share": 0.7, "plain": 0.7, "uniform_exposure": 0.7}
    assert found["log_loss"]["share"] == pytest.approx(0.3)


# -- cutting -----------------------------------------------------------------------------------------------------


def test_cut_by_mass_is_of_nearly_equal_impressions() -> None:
    assert cut_by_mass(np.array([25, 25, 25, 25]), 4) == [1, 2, 3]
    assert cut_by_mass(np.array([0, 50, 0, 0, 50, 0]), 2) == [2]
    assert cut_by_mass(np.array([0, 100, 0]), 4) == []
    assert cut_by_mass(np.array([90, 5, 5]), 4) == [1]
    assert cut_by_mass(np.zeros(3, np.int64), 4) == []


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=60), st.integers(2, 10))
def test_strata_by_mass_are_never_empty_and_no_more_than_were_asked_for(n: list[int], count: int) -> None:
    counts = np.array(n)
    cuts = cut_by_mass(counts, count)
    assert len(cuts) < count
    if counts.sum():
        assert all(counts[a:b].sum() > 0 for a, b in pairwise([0, *cuts, counts.size]))
    assert cut_by_mass(counts * 7, count) == cuts


def test_cut_by_width_is_that_of_pandas_to_the_nearest_edge() -> None:
    bounds = np.linspace(0, 1, 101).tolist()
    n = np.zeros(100, np.int64)
    n[[20, 59]] = 99, 1  # propensities 0.20 to 0.60
    assert cut_by_width(bounds, n, 2) == [40]
    assert cut_by_width(bounds, n, 4) == [30, 40, 50]
    assert cut_by_width(bounds, np.zeros(100, np.int64), 4) == []
    n[:] = 0
    n[3] = 5
    assert cut_by_width(bounds, n, 4) == []


# -- the grid ----------------------------------------------------------------------------------------------------


FINE = PropensityStrata(4, "mass", (), 1e-4)


def board_of(strata: PropensityStrata) -> Scoreboard:
    """A board of one version's scores, with panes of a minute."""
    catalog = Catalog()
    catalog.series_code("m", "v1")
    options = Options((), strata.tallies(), strata=strata)
    return Scoreboard(SliceRows(catalog), 0, options, 60_000, [], "impressions", 1 << 30, 3_600_000)


def observe(board: Scoreboard, propensity: Reals, p: Reals, label: NDArray[np.int8], sign: int = 1) -> None:
    """Counts impressions, half of them in each of two panes, in one call."""
    n, no = p.size, np.zeros(p.size, np.bool_)
    ts, user = np.arange(n) * 120_000 // max(n, 1), np.arange(1, n + 1).astype(np.uint64)
    fields = {"propensity": propensity}
    labelled = Labelled(ts, user, np.zeros(n, np.int64), label, no, fields, np.ones(n, np.bool_))
    board.observe(labelled, Scored((0, n), np.arange(n, dtype=np.int32), np.zeros(n, np.int32), p, no), sign)


def counted(
    strata: PropensityStrata, propensity: Reals, p: Reals, label: NDArray[np.int8]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(sums by bin, clicks by bin and score) of impressions of one series."""
    board = board_of(strata)
    observe(board, propensity, p, label)
    for pane in board.overall.numbers():
        vector = board.overall.get(pane)
        assert np.all(np.diff(vector.cells) > 0)
        assert np.all(vector.values != 0)
    sums, clicks = (
        read_tally(board.overall.total.row(0), board.overall_layout, name) for name in (strata.sums, strata.clicks)
    )
    assert sums is not None
    assert clicks is not None
    bins = len(strata.bounds) - 1
    return sums.reshape(bins, -1), clicks.reshape(bins, -1)


def test_what_is_taken_out_of_strata_is_what_was_put_in() -> None:
    rng = np.random.default_rng(3)
    n = 5_000
    propensity = np.where(rng.random(n) < 0.1, np.nan, 10.0 ** rng.uniform(-3, 0, n))
    p, label = np.round(rng.beta(1, 8, n), 2), (rng.random(n) < 0.3).astype(np.int8)  # many clicks of the same score
    board = board_of(FINE)
    observe(board, propensity, p, label)
    before = [board.overall.get(pane) for pane in board.overall.numbers()]
    again = rng.permutation(n)[: n // 2]
    for sign in (-1, 1):
        observe(board, propensity[again], p[again], label[again], sign)
        observe(board, propensity, p, label, sign)
    assert [board.overall.get(pane) for pane in board.overall.numbers()] == before
    observe(board, propensity, p, label, -1)
    assert not board.overall.total.vector().cells.size


def test_clicks_that_all_have_one_score_and_propensity_are_all_counted() -> None:
    n = 3_000
    sums, clicks = counted(FINE, np.full(n, 0.3), np.full(n, 0.25), np.ones(n, np.int8))
    (at,) = np.flatnonzero(clicks.ravel())
    assert clicks.ravel()[at] == n == sums[at // SCORE_BINS, STRATUM_Y]


@pytest.mark.parametrize("edges", [(), (0.01, 0.1, 0.5), (1e-7, 3e-5, 0.3, 0.300001, 0.99)])
def test_a_bin_holds_its_lower_edge_and_not_its_upper_one(edges: tuple[float, ...]) -> None:
    strata = PropensityStrata(4, "mass", edges, 1e-4)
    inner = np.array(strata.bounds[1:-1])
    assert np.all(np.diff(inner) > 0)
    rng = np.random.default_rng(2)
    given = np.concatenate(
        (inner, np.nextafter(inner, 0), [1e-9, 5e-324, 1.0, np.nan], np.exp(rng.uniform(-12, 0, 500)))
    )
    sums, _ = counted(strata, given, np.full(given.size, 0.5), np.ones(given.size, np.int8))
    expected = np.bincount(np.searchsorted(inner, given[~np.isnan(given)], side="right"), minlength=inner.size + 1)
    assert sums[:, STRATUM_N].tolist() == expected.tolist()


def test_strata_are_those_of_a_loop_over_impressions() -> None:
    rng = np.random.default_rng(0)
    n = 20_000
    propensity = np.exp(rng.uniform(np.log(1e-5), 0, n))
    propensity[rng.random(n) < 0.1] = np.nan
    p = np.round(rng.beta(1, 8, n), 3).clip(1e-3, 0.999)  # with ties
    label = (rng.random(n) < p).astype(np.int8)
    loss, weight = -np.where(label > 0, np.log(p), np.log1p(-p)), 1 / np.maximum(propensity, 1e-4)
    sums, by_score = counted(FINE, propensity, p, label)
    tie = np.array([key_bin(score_key(x), CURVE_BITS) for x in p])  # scores as the strata tell them apart
    histograms = [np.bincount(tie[label == y], minlength=bin_count(CURVE_BITS)) for y in (0, 1)]
    whole = Whole(n, int(label.sum()), float(p.sum()), float(loss.sum()), *map(score_bins, histograms))
    cuts = cut_by_mass(sums[:, STRATUM_N], 4)
    table = strata_of(sums / np.array(STRATUM_SCALES), by_score, BOUNDS, [0, *cuts, len(BOUNDS) - 1], whole)
    assert len(table) == 5
    for one in table:
        on = np.isnan(propensity) if one.lower is None else (propensity >= one.lower) & (propensity < one.upper)
        assert (one.impressions, one.clicks) == (on.sum(), label[on].sum())
        assert one.log_loss == pytest.approx(loss[on].mean(), abs=1e-9)
        assert one.calibration == pytest.approx(p[on].sum() / label[on].sum(), abs=1e-9)
        assert one.inverse_mass == (None if one.lower is None else pytest.approx(weight[on].sum(), rel=1e-9))
        against = (label == 0) | (on & (label == 1))
        assert one.auc_of_clicks == pytest.approx(roc_auc_score(label[against], tie[against]), abs=1e-9)
        assert abs(one.auc_of_clicks - roc_auc_score(label[against], p[against])) <= one.auc_of_clicks_error + 1e-12
        assert one.auc_of_clicks_error < 0.02
    together = combined([one.auc_of_clicks for one in table], [one.clicks for one in table])
    assert together == pytest.approx(roc_auc_score(label, tie), abs=1e-12)


def test_the_histogram_of_a_window_is_seen_as_the_clicks_of_strata_are() -> None:
    scores = np.concatenate(
        (np.random.default_rng(1).uniform(0, 1, 3_000), 2.0 ** -np.arange(1, 30), 1 - 2.0 ** -np.arange(1, 30))
    )

    def histogram(bits: int) -> NDArray[np.int64]:
        return np.bincount([key_bin(score_key(p), bits) for p in scores], minlength=bin_count(bits))

    found = score_bins(coarse(histogram(10)))
    assert np.array_equal(found, score_bins(histogram(CURVE_BITS)))
    assert (found.size, found.sum()) == (SCORE_BINS, scores.size)

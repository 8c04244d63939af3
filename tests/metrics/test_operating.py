"""A part of the ROC curve, and one threshold: within the stated bounds of what scikit-learn says of the scores themselves."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import f1_score, precision_score, recall_score, roc_auc_score, root_mean_squared_error

from streameval.metrics.auc import binned_auc, partial_area, partial_variance, standardised
from streameval.metrics.errors import standard_errors
from streameval.metrics.metric import Metric
from streameval.metrics.registry import by_name, evaluate, with_stderr
from streameval.metrics.view import Undefined, View
from streameval.sketches.grid import bin_edges
from streameval.sketches.layout import Layout, Options
from streameval.testing import sketched
from tests import ranked_lists
from tests.metrics.test_errors import HEAVY, Columns, heavy, seen, world

EDGES = (0.01,)
AT = ("precision_at", "recall_at", "f1_at", "expected_cost")
Floats = NDArray[np.float64]
Labels = NDArray[np.bool_]


def view_of(p: Floats, y: Labels, options: Options, bits: int = 10) -> View:
    layout = Layout(bits, EDGES, options=options)
    row = np.zeros(layout.size, np.int64)
    sketched(layout, np.zeros(p.size, np.int32), p, y).add_to(row)
    return View.of(row, layout, Undefined("no_users"))


def value(view: View, name: str) -> float:
    found = by_name(name).function(view)
    assert not isinstance(found, Undefined), found.reason
    return float(found)


def by_score(p: Floats, y: Labels) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A histogram with a bin for every score."""
    _, place = np.unique(p, return_inverse=True)
    return np.bincount(place[~y], minlength=place.max() + 1), np.bincount(place[y], minlength=place.max() + 1)


def area(p: Floats, y: Labels, low: float, high: float) -> float:
    found = partial_area(*by_score(p, y), low, high)
    assert found is not None
    return found[0]


def drawn(seed: int, digits: int, n: int = 5_000) -> tuple[Floats, Labels]:
    rng = np.random.default_rng(seed)
    p = np.round(rng.beta(1, 6, n), digits)
    return p, rng.random(n) < p * 0.8 + 0.02


@pytest.mark.parametrize("digits", [1, 2, 16])
@pytest.mark.parametrize("high", [1e-4, 0.01, 0.1, 0.5, 0.999, 1.0])
def test_of_exact_scores_it_is_what_scikit_learn_says(digits: int, high: float) -> None:
    p, y = drawn(digits, digits)
    assert standardised(area(p, y, 0.0, high), 0.0, high) == pytest.approx(roc_auc_score(y, p, max_fpr=high), abs=1e-12)


@pytest.mark.slow
def test_a_replay_of_40_000_impressions_is_what_scikit_learn_says() -> None:
    """With ties, shadow scores, and clicks that come after their labels have matured."""
    rows = ranked_lists.log(40_000, seed=5)
    pipeline = ranked_lists.run(rows)
    for version in ("v1", "v2"):
        given = [(r.event.pclick if r.event.version == version else r.shadow, r.clicked) for r in rows]
        p, y = zip(*((score, clicked) for score, clicked in given if score is not None), strict=True)
        metrics = ranked_lists.result(pipeline, version).metrics
        # closer than its certified error: here every bin holds equal scores only
        assert metrics["pauc"] == pytest.approx(roc_auc_score(y, p, max_fpr=0.1), abs=1e-9)
        assert metrics["auc"] == pytest.approx(roc_auc_score(y, p), abs=1e-9)
        assert metrics["rmse"] == pytest.approx(root_mean_squared_error(y, p), abs=1e-9)


def test_areas_of_adjoining_ranges_add_up_to_the_auc() -> None:
    for digits in (1, 3):
        p, y = drawn(7, digits)
        cuts = np.concatenate(([0.0], np.sort(np.random.default_rng(0).random(12)), [1.0]))
        parts = [area(p, y, low, high) for low, high in itertools.pairwise(cuts.tolist())]
        assert sum(parts) == pytest.approx(roc_auc_score(y, p), abs=1e-12)
        found = binned_auc(*by_score(p, y))
        assert found is not None
        assert (area(p, y, 0.0, 1.0), standardised(found[0], 0.0, 1.0)) == pytest.approx(
            (found[0], found[0]), abs=1e-14
        )


@pytest.mark.parametrize(
    ("low", "high", "part", "corrected"),
    [(0.0, 0.2, 0.0977381, 0.7159392), (0.1, 0.3, 0.1280952, 0.7752976), (0.0, 1.0, 0.8102381, 0.8102381), (0.5, 1.0, 0.4838095, 0.9352381)],
)  # fmt: skip
def test_ranges_that_do_not_start_at_0_are_standardised_as_proc_does(
    low: float, high: float, part: float, corrected: float
) -> None:
    """The four values of precrec#26."""
    assert standardised(part, low, high) == pytest.approx(corrected, abs=5e-7)


def test_their_areas_are_what_scikit_learn_says_of_one_end_less_what_it_says_of_the_other() -> None:
    p, y = drawn(4, 2)

    def upto(rate: float) -> float:
        least = rate * rate / 2
        return float((2 * roc_auc_score(y, p, max_fpr=rate) - 1) * (rate - least) + least)

    for low, high in [(0.05, 0.2), (0.3, 0.301), (0.5, 1.0)]:
        assert area(p, y, low, high) == pytest.approx(upto(high) - upto(low), abs=1e-12)


def test_a_range_inside_the_first_step_is_on_its_chord() -> None:
    """Elsewhere it is 0 (flambe#52)."""
    y = np.array([True, False, True, False])
    p = np.array([0.9, 0.9, 0.2, 0.1])
    # to the rate 1/2 the chord rises to 1/2
    assert area(p, y, 0.0, 0.1) == pytest.approx(0.1 * 0.1 / 2)
    assert area(p, y, 0.2, 0.3) == pytest.approx((0.2 + 0.3) / 2 * 0.1)
    assert area(p, y, 0.4, 0.7) == pytest.approx((0.4 + 0.5) / 2 * 0.1 + 1.0 * 0.2)


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.1), (0.0, 1.0), (0.2, 0.3), (0.9, 1.0), (0.0, 1e-6)])
def test_a_constant_model_is_chance_and_a_perfect_one_perfect_in_every_range(low: float, high: float) -> None:
    y = np.arange(1000) % 10 == 0
    options = Options(EDGES, operating_range=(low, high))
    assert value(view_of(np.full(y.size, 0.3), y, options), "pauc") == pytest.approx(0.5, abs=1e-9)
    assert value(view_of(np.where(y, 0.8, 0.1), y, options), "pauc") == pytest.approx(1.0, abs=1e-9)
    # the area itself is never more than the range is wide; the standardised one may be (torchmetrics#2259)
    assert area(np.where(y, 0.8, 0.1), y, low, high) == pytest.approx(high - low)


SCORES = st.lists(
    st.tuples(
        st.one_of(
            st.floats(0, 1),
            st.integers(0, 20).map(lambda k: k / 20),
            st.integers(0, 46 * 8).map(lambda k: float(bin_edges(3)[k])),
        ),
        st.booleans(),
    ),
    min_size=2,
    max_size=60,
).filter(lambda rows: len({label for _, label in rows}) == 2)
RANGES = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted).filter(lambda r: r[1] - r[0] > 1e-6)


@given(rows=SCORES, wanted=RANGES, bits=st.integers(0, 4))
def test_the_exact_partial_auc_is_within_its_certified_error(
    rows: list[tuple[float, bool]], wanted: list[float], bits: int
) -> None:
    p, y = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    low, high = wanted
    view = view_of(p, y, Options(EDGES, operating_range=(low, high)), bits)
    exact = standardised(area(p, y, low, high), low, high)
    assert abs(value(view, "pauc") - exact) <= value(view, "pauc_error") + 1e-9


def test_the_certified_error_is_reached() -> None:
    """All clicks of the one bin in use above its non-clicks, and the range ends in it."""
    p, y = np.array([0.3, 0.3001, 0.3002, 0.3003]), np.array([False, False, True, True])
    view = view_of(p, y, Options(EDGES, operating_range=(0.0, 0.5)), bits=2)
    assert value(view, "pauc") == pytest.approx(0.5)
    assert value(view, "pauc") + value(view, "pauc_error") == pytest.approx(1.0)
    assert roc_auc_score(y, p, max_fpr=0.5) == 1.0


def test_the_histograms_of_results_are_fine_enough() -> None:
    p, y = drawn(3, 16, 100_000)
    for bits, worst in ((10, 1e-3), (7, 8e-3)):
        view = view_of(p, y, Options(EDGES), bits)
        error = value(view, "pauc_error")
        assert 0 < error < worst
        assert abs(value(view, "pauc") - roc_auc_score(y, p, max_fpr=0.1)) <= error


# -- its standard error ------------------------------------------------------------------------------------------

RANGES_TRIED = [(0.0, 0.1), (0.0, 0.02), (0.1, 0.5), (0.0, 1.0)]


def test_over_the_whole_curve_the_variance_is_that_of_delong() -> None:
    p, y = drawn(5, 1)
    clicks, others = p[y], p[~y]
    wins = (clicks[:, None] > others).astype(float) + (clicks[:, None] == others) / 2
    want = wins.mean(axis=1).var() / clicks.size + wins.mean(axis=0).var() / others.size
    assert partial_variance(*by_score(p, y), 0.0, 1.0) == pytest.approx(want, rel=1e-9)


def test_what_a_click_or_a_non_click_is_worth_is_what_leaving_it_out_changes() -> None:
    """Ties and ranges that cut them included: the sum of squares of a jackknife."""
    p, y = drawn(11, 1, 700)
    for low, high in [*RANGES_TRIED, (0.3, 0.31)]:
        whole = area(p, y, low, high)
        kinds = {(score, label) for score, label in zip(p.tolist(), y.tolist(), strict=True)}
        total = 0.0
        for score, label in kinds:
            same = (p == score) & (y == label)
            keep = np.ones(p.size, bool)
            keep[np.flatnonzero(same)[0]] = False
            total += same.sum() * (area(p[keep], y[keep], low, high) - whole) ** 2
        assert partial_variance(*by_score(p, y), low, high) == pytest.approx(total, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("users", [300, 3_000], ids=["few users", "many users"])
def test_its_standard_error_is_that_of_repeating_the_experiment(users: int) -> None:
    rng = np.random.default_rng(users)
    ratios = repeated(lambda: world(rng, users, 15_000))
    assert all(0.85 < ratio < 1.25 for ratio in ratios.values()), ratios


@pytest.mark.slow
@pytest.mark.parametrize("activity", HEAVY.values(), ids=HEAVY.keys())
def test_with_heavy_users_too(activity: Floats) -> None:
    """Where errors that take impressions for independent are 20% too small."""
    rng = np.random.default_rng(13)
    ratios = repeated(lambda: heavy(rng, activity))
    assert all(0.85 < ratio < 1.25 for ratio in ratios.values()), ratios


def repeated(draw: Callable[[], Columns]) -> dict[tuple[float, float], float]:
    """By range: the standard error stated on average, over that of 150 repetitions."""
    values, stated = [], []
    for _ in range(150):
        view = seen(*draw())[0]
        rows, widths = [], []
        for wanted in RANGES_TRIED:
            one = with_range(view, wanted)
            metrics = evaluate(one)[0]
            rows.append(float(metrics["pauc"] or 0.0))
            widths.append(float(standard_errors(one, {k: metrics[k] for k in ("auc", "pauc")}).stderr["pauc"] or 0.0))
        values.append(rows)
        stated.append(widths)
    truth = np.std(values, axis=0, ddof=1)
    return dict(zip(RANGES_TRIED, (np.mean(stated, axis=0) / truth).tolist(), strict=True))


def with_range(view: View, wanted: tuple[float, float]) -> View:
    options = replace(view.options, operating_range=wanted)
    return replace(view, layout=replace(view.layout, options=options))


# -- at a threshold ----------------------------------------------------------------------------------------------


def exact_at(p: Floats, y: Labels, threshold: float, ratio: float) -> dict[str, float | None]:
    chosen = p >= threshold
    missed, taken = (y & ~chosen).sum(), (~y & chosen).sum()
    return {
        "precision_at": precision_score(y, chosen) if chosen.any() else None,
        "recall_at": recall_score(y, chosen),
        "f1_at": f1_score(y, chosen),
        "expected_cost": (ratio * missed + taken) / y.size,
    }


@pytest.mark.parametrize("threshold", [0.0, 2.0**-7, 0.125, 0.375, 0.5])
@pytest.mark.parametrize("bits", [7, 10])
def test_at_an_edge_of_a_bin_precision_recall_f1_and_cost_are_exact(threshold: float, bits: int) -> None:
    rng = np.random.default_rng(2)
    p = rng.choice(np.concatenate((rng.random(500), [2.0**-7, 0.125, 0.375, 0.5])), 4_000)
    y = rng.random(p.size) < p
    view = view_of(p, y, Options(EDGES, threshold=threshold, cost_ratio=7.5), bits)
    for name, exact in exact_at(p, y, threshold, 7.5).items():
        assert value(view, name) == pytest.approx(exact, abs=1e-15), name
        assert value(view, f"{name}_error") == 0.0


def test_a_threshold_of_one_selects_what_is_certain() -> None:
    p, y = np.array([1.0, 1.0, 1.0, 0.9, 0.5, 0.0]), np.array([True, True, False, True, False, False])
    view = view_of(p, y, Options(EDGES, threshold=1.0, cost_ratio=7.5), 10)
    for name, exact in exact_at(p, y, 1.0, 7.5).items():
        assert value(view, name) == pytest.approx(exact, abs=1e-15), name


@given(rows=SCORES, threshold=st.one_of(st.floats(0, 1), st.sampled_from([k / 20 for k in range(21)])),
       ratio=st.floats(0.01, 100), bits=st.integers(0, 4))  # fmt: skip
def test_anywhere_else_they_are_within_their_certified_errors(
    rows: list[tuple[float, bool]], threshold: float, ratio: float, bits: int
) -> None:
    p, y = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    view = view_of(p, y, Options(EDGES, threshold=threshold, cost_ratio=ratio), bits)
    metrics, reasons = evaluate(view)
    for name, exact in exact_at(p, y, threshold, ratio).items():
        found, error = metrics[name], metrics[f"{name}_error"]
        if found is None:
            assert (name, reasons[name], error) == ("precision_at", "no_selected_impressions", None)
        elif exact is not None:
            assert error is not None
            assert abs(found - exact) <= error + 1e-9, name


def test_rmse_is_scikit_learns() -> None:
    p, y = drawn(1, 16)
    assert value(view_of(p, y, Options(EDGES)), "rmse") == pytest.approx(root_mean_squared_error(y, p), rel=1e-12)


@pytest.mark.parametrize(
    ("labels", "reason", "without"),
    [([], "no_impressions", ("pauc", *AT, "rmse")), ([0, 0], "no_clicks", ("pauc", "recall_at", "f1_at")), ([1], "no_non_clicks", ("pauc",))],
    ids=["nothing", "no click", "only clicks"],
)  # fmt: skip
def test_what_is_undefined_says_why(labels: list[int], reason: str, without: tuple[str, ...]) -> None:
    metrics, reasons = evaluate(view_of(np.full(len(labels), 0.7), np.array(labels, bool), Options(EDGES)))
    for name in without:
        assert (metrics[name], reasons[name]) == (None, reason), name
    assert all(metrics[name] is not None for name in ("pauc", *AT, "rmse") if name not in without)


@pytest.mark.slow
def test_their_errors_are_never_much_too_small() -> None:
    """They are widened as the CTR's is, which is too much for some: a user's effect on the CTR cancels in part in recall."""
    for users in (300, 3_000):
        rng = np.random.default_rng(users)
        values, stated = [], []
        for _ in range(150):
            view = seen(*world(rng, users, 15_000))[0]
            options = replace(view.options, threshold=0.1, cost_ratio=5.0)
            view = replace(view, layout=replace(view.layout, options=options))
            metrics = evaluate(view)[0]
            errors = standard_errors(view, {name: metrics[name] for name in (*AT, "ctr")})
            values.append([float(metrics[name] or 0.0) for name in AT])
            stated.append([float(errors.stderr[name] or 0.0) for name in AT])
        ratio = dict(zip(AT, (np.mean(stated, axis=0) / np.std(values, axis=0, ddof=1)).tolist(), strict=True))
        assert all(0.9 < r < 1.8 for r in ratio.values()), ratio


@example(missed=3, selected=0, others=0, cost=0.1)
@given(st.integers(1, 400), st.integers(0, 4), st.integers(0, 4), st.floats(1e-6, 1e6))
def test_whatever_a_missed_click_costs_its_error_is_a_number(
    missed: int, selected: int, others: int, cost: float
) -> None:
    """Where every impression costs the same, three missed clicks of a small slice, say, rounding must not make a variance negative."""
    p = np.repeat([0.2, 0.7, 0.2], [missed, selected, others])
    y = np.arange(p.size) < missed + selected
    view = view_of(p, y, Options(EDGES, cost_ratio=cost))
    costs = np.where(y & (p < 0.5), cost, 0.0)
    error = standard_errors(view, evaluate(view)[0]).stderr["expected_cost"]
    assert error == pytest.approx(costs.std() / np.sqrt(p.size), rel=1e-6, abs=1e-7 * cost)


def test_every_one_of_them_has_its_error_in_results() -> None:
    for name in ("pauc", *AT, "rmse"):
        metric: Metric = by_name(name)
        assert name in with_stderr()
        assert name == "rmse" or metric.bound == f"{name}_error"
    columns: Columns = world(np.random.default_rng(0))
    view, errors = seen(*columns)
    assert errors.stderr["pauc"] is not None
    # between impressions, and as much more as users make of the AUC's
    width = np.sqrt(partial_variance(view.negatives, view.positives, 0.0, 0.1) * errors.design["auc"])
    assert errors.stderr["pauc"] == pytest.approx(width / (2 * (0.1 - 0.005)))


def test_a_view_with_other_settings_is_made_anew() -> None:
    p, y = drawn(3, 16, 20_000)
    view = view_of(p, y, Options(EDGES), 10)
    before = value(view, "pauc")
    assert value(with_range(view, (0.1, 0.5)), "pauc") != before
    assert value(view, "pauc") == before

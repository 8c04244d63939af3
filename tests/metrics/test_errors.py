"""Standard errors: what the blocks of users say is what repeating the experiment says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.metrics import log_loss as sk_log_loss
from sklearn.metrics import roc_auc_score

from streameval.counting.scoreboard import Labelled, Scoreboard
from streameval.counting.slice_rows import SliceRows
from streameval.events.batch import Catalog
from streameval.events.columns import Scored
from streameval.metrics.errors import Errors, standard_errors, standard_errors_of
from streameval.metrics.registry import METRICS, evaluate, with_stderr
from streameval.metrics.view import View
from streameval.sketches.blocks import BLOCKS, blocks_of
from streameval.sketches.layout import Options
from streameval.sketches.yield_cells import VALUES

BASE = 1_700_000_040_000
OPTIONS = Options((0.01, 0.05, 0.2), (VALUES,), threshold=0.1)
OF_REQUESTS = {"gauc_request", "click_yield", "mainline_click_yield", "value_per_request"}
AT_A_THRESHOLD = {"precision_at", "recall_at", "f1_at", "expected_cost"}  # on the safe side: test_operating.py
Columns = tuple[NDArray[np.float64], NDArray[np.int8], NDArray[np.uint64]]


def seen(p: NDArray[np.float64], label: NDArray[np.int8], user: NDArray[np.uint64]) -> tuple[View, Errors]:
    """One version's impressions, a hundred a second, as the scoreboard counts them."""
    catalog = Catalog()
    catalog.series_code("m", "v1")
    board = Scoreboard(SliceRows(catalog), 0, OPTIONS, 60_000, [], "impressions", 1 << 30, 3_600_000, values=True)
    n = p.size
    ts, no = BASE + np.arange(n) * 10, np.zeros(n, np.bool_)
    labelled = Labelled(ts, user, np.zeros(n, np.int64), label, no, {"value": 5 * p + 1}, np.ones(n, np.bool_))
    scored = Scored((0, n), np.arange(n, dtype=np.int32), np.zeros(n, np.int32), p, no)
    board.observe(labelled, scored)
    row, layout = board.overall.total.row(0), board.overall_layout
    ranked, _ = board.users.ranked(0, None, 0)
    view = View.of(row, layout, ranked)
    return view, standard_errors(view, evaluate(view)[0])


def world(rng: np.random.Generator, users: int = 3_000, n: int = 40_000) -> Columns:
    """Users of very different activity whose click rates differ beyond what the model knows: a design effect."""
    activity = np.exp(rng.normal(0, 1, users))
    who = rng.choice(users, n, p=activity / activity.sum())
    known, unknown = rng.normal(-3, 0.8, n), rng.normal(0, 0.5, users)[who]
    label = (rng.random(n) < 1 / (1 + np.exp(-known - unknown))).astype(np.int8)
    ids = rng.integers(1, 2**63, users).astype(np.uint64)
    return 1 / (1 + np.exp(-known - 0.125)), label, ids[who]


def test_every_metric_that_can_have_an_error_has_one() -> None:
    view, errors = seen(*world(np.random.default_rng(0)))
    without = {m.bound for m in METRICS} | {
        "gauc_users", "gauc_impressions", "with_propensity", "exposure_ess", "exposure_ess_clipped", "exposure_clipped",
        "exposure_largest_weight", "policy_impressions", "policy_ess", "policy_clipped",
        "requests", "requests_clicked", "exposure_requests", "exposure_requests_clipped", "exposure_requests_ess",
        "exposure_requests_ess_clipped",
    }  # fmt: skip
    assert {m.name for m in METRICS} - without == set(with_stderr())
    undefined = {name for name, value in evaluate(view)[0].items() if value is None}
    assert "gauc_request" in undefined  # nothing was requested
    assert set(errors.stderr) == set(with_stderr()) - undefined
    assert view.blocks is not None
    assert all(value is not None and 0 < value < 1 for value in errors.stderr.values())


def test_several_versions_together_have_the_errors_that_each_has_alone_to_the_bit() -> None:
    """Among them: too few blocks, no click, only clicks, one score, no impression."""
    rng = np.random.default_rng(5)
    p, label, user = world(rng)
    nobody = np.zeros(0, np.int64)
    worlds = [
        (p, label, user),
        *((p[:n], label[:n], user[:n]) for n in (1, 3, 40, 700)),
        *((p[:500], np.full(500, y, np.int8), user[:500]) for y in (0, 1)),
        (np.full(2_000, 0.25), label[:2_000], user[:2_000]),
        (p[:900], label[:900], np.full(900, 7, np.uint64)),
        (p[nobody], label[nobody], user[nobody]),
        (p[20_000:], label[20_000:], user[20_000:]),
    ]
    views, alone = zip(*(seen(*one) for one in worlds), strict=True)
    values = [evaluate(view)[0] for view in views]
    for some in (range(len(worlds)), [9, 0], [10, 3, 8]):
        together = standard_errors_of([views[i] for i in some], [values[i] for i in some])
        assert together == [alone[i] for i in some]


@pytest.mark.parametrize(
    ("users", "low", "high"), [(300, 0.85, 1.25), (3_000, 0.85, 1.25)], ids=["few users", "many users"]
)
@pytest.mark.slow
def test_errors_are_those_of_repeating_the_experiment(users: int, low: float, high: float) -> None:
    rng = np.random.default_rng(users)
    values, stated = [], []
    known = seen(*world(rng, users, 15_000))[1].stderr  # nothing is requested here, and nothing has a propensity
    names = [name for name in with_stderr() if name in known and name not in {"ece", "value_per_user"} | AT_A_THRESHOLD]
    assert {"auc", "pauc", "log_loss", "rmse", "calibration", "gauc", "value_per_impression"} <= set(names)
    for _ in range(150):
        view, errors = seen(*world(rng, users, 15_000))
        metrics = evaluate(view)[0]
        values.append([float(metrics[name] or 0.0) for name in names])
        stated.append([float(errors.stderr[name] or 0.0) for name in names])
    truth = np.std(values, axis=0, ddof=1)
    ratio = dict(zip(names, np.mean(stated, axis=0) / truth, strict=True))
    inside = np.abs(np.array(values) - np.mean(values, axis=0)) < 1.96 * np.array(stated)
    coverage = dict(zip(names, inside.mean(axis=0), strict=True))
    assert all(low < r < high for r in ratio.values()), ratio
    assert all(c > 0.88 for c in coverage.values()), coverage  # 150 runs: 95% less four standard errors


def heavy(rng: np.random.Generator, activity: NDArray[np.float64], n: int = 15_000) -> Columns:
    """Users of the given activity, each with a click rate of its own, half of it unknown to the model."""
    who = rng.choice(activity.size, n, p=activity / activity.sum())
    known = rng.normal(-3, 0.8, n) + rng.normal(0, 0.3, activity.size)[who]
    label = (rng.random(n) < 1 / (1 + np.exp(-known - rng.normal(0, 0.5, activity.size)[who]))).astype(np.int8)
    ids = rng.integers(1, 2**63, activity.size).astype(np.uint64)
    return 1 / (1 + np.exp(-known - 0.125)), label, ids[who]


def whale(users: int) -> NDArray[np.float64]:
    """One user with 30% of the impressions."""
    activity = np.full(users, 0.7 / users)
    activity[0] += 0.3
    return activity


@pytest.mark.parametrize("users", [4, 12, 40])
@pytest.mark.slow
def test_of_a_handful_of_users_t_intervals_cover(users: int) -> None:
    """Between impressions, as all below 30 blocks were, they covered 13 to 30% of the time with 12 users."""
    rng = np.random.default_rng(users)
    names = ("ctr", "mean_pclick", "auc", "log_loss", "rig", "mse", "mae", "calibration", "value_per_impression")
    values, bounds = [], []
    for _ in range(150):
        view, errors = seen(*heavy(rng, rng.gamma(3.0, 1.0, users), 4_000))
        metrics = evaluate(view)[0]
        values.append([float(metrics[name] or 0.0) for name in names])
        bounds.append([student.ppf(0.975, errors.df_of(name)) * float(errors.stderr[name] or 0.0) for name in names])
    off = np.abs(np.array(values) - np.mean(values, axis=0))
    coverage = dict(zip(names, (off < np.array(bounds)).mean(axis=0), strict=True))
    assert all(c > 0.88 for c in coverage.values()), coverage  # 150 runs: 95% less four standard errors


HEAVY = {"Zipf 1.1": 1 / np.arange(1, 20_001) ** 1.1, "Zipf 1.3": 1 / np.arange(1, 20_001) ** 1.3, "30%": whale(3_000)}


@pytest.mark.parametrize("activity", HEAVY.values(), ids=HEAVY.keys())
@pytest.mark.slow
def test_with_heavy_users_variances_are_right_and_t_intervals_cover(activity: NDArray[np.float64]) -> None:
    """By the variance between random groups, without the share of a block, errors of the AUC were 19 to 31% too small here."""
    rng = np.random.default_rng(13)
    names = ("ctr", "mean_pclick", "auc", "log_loss", "rig", "nmse", "mae", "calibration", "gauc")
    values, stated, wide = [], [], []
    for _ in range(400):
        view, errors = seen(*heavy(rng, activity))
        metrics = evaluate(view)[0]
        values.append([float(metrics[name] or 0.0) for name in names])
        stated.append([float(errors.stderr[name] or 0.0) for name in names])
        wide.append([student.ppf(0.975, errors.df_of(name)) for name in names])
    empirical, stderr = np.std(values, axis=0, ddof=1), np.array(stated)
    ratio = np.sqrt((stderr**2).mean(axis=0)) / empirical  # variances are unbiased; t is for their being uncertain
    off = np.abs(np.array(values) - np.mean(values, axis=0)) / stderr
    by_normal, by_t = (off < 1.96).mean(axis=0), (off < np.array(wide)).mean(axis=0)
    said = dict(zip(names, zip(ratio.tolist(), by_normal.tolist(), by_t.tolist(), strict=True), strict=True))
    assert all(0.85 < r < 1.15 for r in ratio[:-1]), said  # GAUC's is between single users
    assert by_t.mean() > max(0.93, by_normal.mean() + 0.01), said
    assert by_t.min() > 0.89, said


def test_a_block_without_which_there_is_no_value_leaves_the_error_between_impressions() -> None:
    p, _, user = world(np.random.default_rng(6))
    label = np.zeros(p.size, np.int8)
    label[np.flatnonzero(user == user[-1])[-3:]] = 1  # all clicks are one user's
    _, errors = seen(p, label, user)
    assert errors.stderr["calibration"] == pytest.approx(p.sum() / 3 / np.sqrt(3), rel=0.01)
    assert "calibration" not in errors.design
    assert errors.design["mean_pclick"] > 0
    assert set(errors.stderr) >= {"ctr", "auc", "rig", "nmse"}


def test_degrees_of_freedom_are_the_effective_blocks_less_one() -> None:
    rng = np.random.default_rng(4)
    p, label, user = world(rng)
    view, errors = seen(p, label, user)
    n, y = (np.bincount(blocks_of(user), of, BLOCKS) for of in (np.ones(user.size), label))
    # clicks alone, independent of each other, would make their squares larger by their variance
    by_clicks = y.sum() ** 2 / ((y * y).sum() - y.sum() * (1 - y.sum() / n.sum()))
    assert errors.df == pytest.approx(min(n.sum() ** 2 / (n * n).sum(), by_clicks) - 1, rel=1e-12)
    assert 30 < errors.df < BLOCKS - 1
    _, users, counts = np.unique(user, return_index=True, return_counts=True)
    clicks = np.array([label[user == user[at]].sum() for at in users])
    weights = counts[(clicks > 0) & (clicks < counts)].astype(np.float64)
    assert view.ranked is not None
    assert view.ranked.users == weights.size
    assert errors.gauc_df == pytest.approx(weights.sum() ** 2 / (weights * weights).sum() - 1, rel=1e-6)
    assert [errors.df_of(name) for name in ("auc", "gauc")] == [errors.df, errors.gauc_df]


def test_a_user_with_half_of_the_clicks_leaves_few_degrees_of_freedom() -> None:
    p, label, user = world(np.random.default_rng(7))
    alike = seen(p, label, user)[1].df
    many = int(label.sum())
    clicker = np.full(many, user[0])
    p, label = np.append(p, np.full(many, 0.5)), np.append(label, np.ones(many, np.int8))
    df = seen(p, label, np.append(user, clicker))[1].df
    assert (alike or 0) > 30
    assert (df or 0) < 4  # by impressions nearly as many as before


def test_a_slice_has_the_degrees_of_freedom_of_the_whole() -> None:
    view, whole = seen(*world(np.random.default_rng(5)))
    part = standard_errors(replace(view, blocks=None, ranked=None), {"ctr": 0.05}, whole)
    assert part.df == whole.df is not None
    assert standard_errors(replace(view, blocks=None, ranked=None), {"ctr": 0.05}).df is None


def test_ignoring_users_would_understate_the_error() -> None:
    _, errors = seen(*world(np.random.default_rng(1), users=100))
    assert errors.design["ctr"] > 3
    assert errors.design["calibration"] > 3


def test_the_error_is_the_delete_one_block_jackknife() -> None:
    p, label, user = world(np.random.default_rng(2), users=500)
    _, errors = seen(p, label, user)
    block = blocks_of(user)
    for name, metric in (("auc", roc_auc_score), ("log_loss", sk_log_loss)):
        left_out = np.array([metric(label[block != g], p[block != g]) for g in range(BLOCKS)])
        jackknife = np.sqrt((BLOCKS - 1) / BLOCKS * ((left_out - left_out.mean()) ** 2).sum())
        assert errors.stderr[name] == pytest.approx(jackknife, rel=0.06)  # the first minute has no curves


def test_without_blocks_enough_impressions_count_one_by_one() -> None:
    rng = np.random.default_rng(3)
    p = rng.uniform(0.1, 0.4, 400)
    label = (rng.random(400) < p).astype(np.int8)
    _, errors = seen(p, label, np.full(400, 7, np.uint64))
    assert errors.stderr["ctr"] == pytest.approx(np.std(label) / 20, rel=1e-6)
    assert errors.stderr["mean_pclick"] == pytest.approx(np.std(p) / 20, rel=0.01)
    assert not errors.design
    assert errors.df is None


def test_what_rounding_leaves_between_impressions_is_no_design_effect() -> None:
    """All scores in one bin: between impressions they vary by nothing, or a little less, between users by what they are."""
    rng = np.random.default_rng(6)
    for n in range(2, 100):
        p = 0.559 + rng.uniform(0, 1e-3, n)
        _, errors = seen(p, np.ones(n, np.int8), rng.integers(1, 4, n).astype(np.uint64))
        assert all(0.0 <= effect <= 4.0 * n for effect in errors.design.values()), errors.design
        assert all(e is None or e >= 0.0 for e in errors.stderr.values()), errors.stderr
        assert 0.0 <= float(errors.stderr["ece"] or 0.0) < 0.1


def test_nothing_has_an_error_where_it_has_no_value() -> None:
    _, errors = seen(np.array([0.2, 0.3]), np.zeros(2, np.int8), np.array([1, 2], np.uint64))
    assert {name for name, error in errors.stderr.items() if error is not None} == {
        "ctr", "mean_pclick", "log_loss", "mse", "rmse", "mae", "ece", "precision_at", "expected_cost", "value_per_impression",
        "value_per_user",
    }  # fmt: skip

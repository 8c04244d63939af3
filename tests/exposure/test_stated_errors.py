"""Stated errors of SNIPS and of policies against what repeating the experiment says, with users who differ."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.counting.exposed_lists import ExposedLists
from streameval.counting.request_lists import RankedLists, lists_of
from streameval.counting.scoreboard import Labelled, Scoreboard
from streameval.counting.slice_rows import SliceRows
from streameval.events.batch import Catalog
from streameval.events.columns import Scored, ScoreList
from streameval.loop.options import options_of, weight_rule
from streameval.metrics.errors import standard_errors
from streameval.metrics.registry import evaluate
from streameval.metrics.view import Undefined, View
from streameval.settings.tree import Settings

BASE = 1_700_000_040_000
NAMES = (
    "log_loss_snips", "mse_snips", "mae_snips", "calibration_snips", "log_loss_ips", "log_loss_snips_clipped", "policy_ips",
    "policy_snips", "policy_value_snips", "policy_mean_weight",
)  # fmt: skip


def once(rng: np.random.Generator, users: int, per_user: int) -> tuple[dict[str, float], dict[str, float]]:
    """One log: users of different activity and taste; propensities from 0.01 up, lower for what is clicked less."""
    activity = np.exp(rng.normal(0, 0.7, users))
    n = users * per_user
    who = rng.choice(users, n, p=activity / activity.sum())
    taste, known = rng.normal(0, 0.7, users)[who], rng.normal(-2, 0.8, n)
    label = (rng.random(n) < 1 / (1 + np.exp(-known - taste))).astype(np.int8)
    propensity = np.clip(np.exp(0.7 * known + rng.normal(0, 0.5, n)), 0.01, 1)
    user = rng.integers(1, 2**63, users).astype(np.uint64)[who]
    weight_one = rng.random(n) < propensity  # so that the mean weight is 1
    catalog = Catalog()
    catalog.series_code("m", "v1")
    config = Settings.model_validate({"exposure": {"max_weight": 20}, "metrics": {"value": True}})
    options, rule = options_of(config), weight_rule(config)
    board = Scoreboard(
        SliceRows(catalog), 0, options, 60_000, [], "impressions", users_budget=1 << 30, horizon=3_600_000, weights=rule
    )
    no = np.zeros(n, np.bool_)
    row = np.arange(n, dtype=np.int32)
    value = np.where(label == 1, rng.gamma(2, 10, n) * np.exp(0.5 * taste), 0.0)
    labelled = Labelled(
        BASE + np.arange(n) * 3, user, np.zeros(n, np.int64), label, no, {"propensity": propensity, "value": value},
        np.ones(n, np.bool_), policies=ScoreList(row, np.zeros(n, np.int32), weight_one.astype(np.float64)),
    )  # fmt: skip
    board.observe(labelled, Scored((0, n), row, np.zeros(n, np.int32), 1 / (1 + np.exp(-known)), no))
    view = View.of(board.overall.total.row(0), board.overall_layout, Undefined("none"))
    values, _ = evaluate(view)
    errors = standard_errors(view, values).stderr
    return {name: values[name] for name in NAMES}, {name: errors[name] for name in NAMES}


@pytest.mark.slow
@pytest.mark.parametrize(("users", "per_user"), [(300, 20), (3_000, 8)])
def test_stated_errors_are_those_of_150_repetitions(users: int, per_user: int) -> None:
    rng = np.random.default_rng(users)
    found = [once(rng, users, per_user) for _ in range(150)]
    ratios = {}
    for name in NAMES:
        empirical = np.std([values[name] for values, _ in found], ddof=1)
        ratios[name] = float(np.sqrt(np.mean([errors[name] ** 2 for _, errors in found])) / empirical)
    assert all(0.85 <= ratio <= 1.25 for ratio in ratios.values()), ratios


OF_LISTS = tuple(f"{name}_5_{by}" for name in ("dcg", "precision") for by in ("ips", "snips", "snips_clipped"))


def once_of_lists(rng: np.random.Generator, users: int, lists: int) -> tuple[dict[str, float], dict[str, float]]:
    """One log of requests of 8, a user's by his activity and taste."""
    activity = np.exp(rng.normal(0, 0.5, users))
    who = np.repeat(rng.choice(users, lists, p=activity / activity.sum()), 8)
    n = who.size
    taste, known = rng.normal(0, 0.7, users)[who], rng.normal(-2, 0.8, n)
    label = (rng.random(n) < 1 / (1 + np.exp(-known - taste))).astype(np.int8)
    propensity = np.clip(np.exp(0.5 * known + rng.normal(0, 0.5, n)), 0.02, 1)
    user = rng.integers(1, 2**63, users).astype(np.uint64)[who]
    catalog = Catalog()
    catalog.series_code("m", "v1")
    config = Settings.model_validate({"exposure": {"max_weight": 20}, "ranking": {"k": [5], "by_user": []}})
    options, rule = options_of(config), weight_rule(config)
    board = Scoreboard(
        SliceRows(catalog), 0, options, 60_000, [], "impressions", users_budget=1 << 30, horizon=3_600_000, weights=rule
    )
    no, row, series = np.zeros(n, np.bool_), np.arange(n, dtype=np.int32), np.zeros(n, np.int32)
    labelled = Labelled(
        BASE + np.arange(n) * 3, user, np.zeros(n, np.int64), label, no, {"propensity": propensity}, np.ones(n, np.bool_)
    )  # fmt: skip
    scored = Scored((0, n), row, series, 1 / (1 + np.exp(-known)), no)
    board.observe(labelled, scored)
    request = np.repeat(np.arange(lists, dtype=np.int32), 8)
    ranked = RankedLists.of(lists_of(labelled.ts, labelled.user, request, board.pane), label, scored)
    ExposedLists(board.overall_layout, rule).observe(board, labelled, ranked, 1)
    view = View.of(board.overall.total.row(0), board.overall_layout, Undefined("none"))
    values, _ = evaluate(view)
    errors = standard_errors(view, values).stderr
    return {name: values[name] for name in OF_LISTS}, {name: errors[name] for name in OF_LISTS}


@pytest.mark.slow
@pytest.mark.parametrize(("users", "lists"), [(300, 900), (3_000, 4_000)])
def test_stated_errors_of_lists_are_those_of_150_repetitions(users: int, lists: int) -> None:
    rng = np.random.default_rng(users)
    found = [once_of_lists(rng, users, lists) for _ in range(150)]
    ratios = {}
    for name in OF_LISTS:
        empirical = np.std([values[name] for values, _ in found], ddof=1)
        ratios[name] = float(np.sqrt(np.mean([errors[name] ** 2 for _, errors in found])) / empirical)
    assert all(0.85 <= ratio <= 1.25 for ratio in ratios.values()), ratios

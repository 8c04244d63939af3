"""A log that keeps few of the non-clicks: by their weights, every metric is that of the whole log within its stated error."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t as student

from streameval.counting.exact_scores import RUN_START
from streameval.counting.scoreboard import Labelled, Scoreboard
from streameval.counting.slice_rows import SliceRows
from streameval.events.batch import Catalog
from streameval.events.columns import Scored
from streameval.metrics.errors import Errors, standard_errors, standard_errors_of
from streameval.metrics.registry import evaluate
from streameval.metrics.view import View
from streameval.sketches.copies import WEIGHTS, Copies, by_label, copies_of
from streameval.sketches.layout import Options

BASE = 1_700_000_040_000
OPTIONS = Options((0.01, 0.05, 0.2), threshold=0.1)
SAMPLED = Options((0.01, 0.05, 0.2), (WEIGHTS,), threshold=0.1)
METRICS = ("auc", "log_loss", "calibration", "gauc", "ctr", "mean_pclick", "rig", "mse", "rmse", "nmse", "mae", "pauc")
Values = Mapping[str, float | int | None]


def counted(
    p: NDArray[np.float64], label: NDArray[np.int8], user: NDArray[np.uint64], copies: Copies | None = None
) -> tuple[View, Values, Errors]:
    """One version's impressions, as the scoreboard counts them."""
    catalog = Catalog()
    catalog.series_code("m", "v1")
    options = OPTIONS if copies is None else SAMPLED
    board = Scoreboard(
        SliceRows(catalog), 0, options, 60_000, [], "impressions", 1 << 30, 3_600_000, with_copies=copies is not None
    )
    n = p.size
    ts, no = BASE + np.arange(n) * 600_000 // n, np.zeros(n, np.bool_)
    labelled = Labelled(
        ts, user, np.zeros(n, np.int64), label, no, {}, np.ones(n, np.bool_), copies=copies
    )  # fmt: skip
    board.observe(labelled, Scored((0, n), np.arange(n, dtype=np.int32), np.zeros(n, np.int32), p, no))
    ranked, _ = board.users.ranked(0, None, 0)
    view = View.of(
        board.overall.total.row(0), board.overall_layout, ranked, board.users.scores(0).auc(RUN_START, -RUN_START)
    )
    values, _ = evaluate(view)
    return view, values, standard_errors(view, values)


def world(
    rng: np.random.Generator, n: int, users: int
) -> tuple[NDArray[np.float64], NDArray[np.int8], NDArray[np.uint64]]:
    """Users of different activity whose click rates differ beyond what the model knows."""
    activity = np.exp(rng.normal(0, 0.7, users))
    who = rng.choice(users, n, p=activity / activity.sum())
    known, unknown = rng.normal(-3, 1.0, n), rng.normal(0, 0.4, users)[who]
    label = (rng.random(n) < 1 / (1 + np.exp(-known - unknown))).astype(np.int8)
    return 1 / (1 + np.exp(-known - 0.1)), label, rng.integers(1, 2**63, users).astype(np.uint64)[who]


def coverage(repetitions: int, n: int, users: int, share: float) -> dict[str, tuple[float, float]]:
    """By metric: how often the whole log's value is within the 95% interval of the thinned one's, and the mean of (thinned - whole) / error."""
    z: dict[str, list[float]] = {name: [] for name in METRICS}
    inside: dict[str, list[bool]] = {name: [] for name in METRICS}
    for seed in range(repetitions):
        rng = np.random.default_rng(seed)
        p, label, user = world(rng, n, users)
        _, whole, _ = counted(p, label, user)
        kept = (label == 1) | (rng.random(n) < share)
        ids = rng.integers(1, 2**63, int(kept.sum())).astype(np.uint64)
        _, values, errors = counted(p[kept], label[kept], user[kept], by_label(ids, 1 / share, label[kept]))
        for name in METRICS:
            value, full, error, df = values[name], whole[name], errors.stderr[name], errors.df_of(name)
            assert value is not None
            assert full is not None
            assert error
            bound = values.get(f"{name}_error") or 0.0
            z[name].append((value - full) / error)
            inside[name].append(abs(value - full) <= student.ppf(0.975, df or math.inf) * error + bound)
    return {name: (float(np.mean(inside[name])), float(np.mean(z[name]))) for name in METRICS}


@pytest.mark.slow
def test_a_log_of_one_in_100_non_clicks_gives_the_whole_logs_metrics_within_their_stated_errors() -> None:
    """200 repetitions put 97% at 95% +- 3%; the whole log's values lie nearer than new ones would, so more may be inside."""
    found = coverage(200, 200_000, 2_000, 0.01)
    assert all(inside >= 0.92 for inside, _ in found.values()), found
    assert all(abs(mean) < 0.25 for _, mean in found.values()), found


def test_and_in_a_few_repetitions() -> None:
    found = coverage(12, 60_000, 800, 0.02)
    assert all(inside >= 0.7 for inside, _ in found.values()), found
    assert all(abs(mean) < 1.0 for _, mean in found.values()), found


def test_a_sampled_version_beside_a_whole_one_has_the_errors_that_it_has_alone_to_the_bit() -> None:
    rng = np.random.default_rng(6)
    p, label, user = world(rng, 3_000, 200)
    many, ones = np.where(label, 1, 20), np.ones(p.size, np.int64)
    every = [counted(p[:n], label[:n], user[:n], Copies(of[:n], of[:n])) for of in (many, ones) for n in (3_000, 1)]
    assert [view.spread_of_weights is None for view, _, _ in every] == [False, False, True, True]
    together = standard_errors_of([view for view, _, _ in every], [values for _, values, _ in every])
    assert together == [errors for _, _, errors in every]


def test_every_sum_is_that_of_as_many_impressions() -> None:
    rng = np.random.default_rng(5)
    p, label, user = world(rng, 3_000, 200)
    many = rng.integers(1, 6, p.size)
    view, values, _ = counted(p, label, user, Copies(many, many))
    again = np.repeat(np.arange(p.size), many)
    whole, want, _ = counted(p[again], label[again], user[again])
    n = view.layout.histogram
    ignored = set(range(view.layout.blocks, n))  # placements are by what came before, which is another order
    cells = [i for i in range(n) if i not in ignored]
    assert view.vector[cells].tolist() == whole.vector[cells].tolist()
    assert np.array_equal(view.negatives, whole.negatives)
    assert np.array_equal(view.positives, whole.positives)
    assert values["gauc"] == want["gauc"]
    assert values["gauc_impressions"] == want["gauc_impressions"]
    assert values["auc"] == pytest.approx(want["auc"], abs=values["auc_error"] or 0)
    assert values["auc_error"]


def test_copies_of_itself_are_no_evidence() -> None:
    """Every impression weighs 50: nothing is known better than of the log as it is, with few blocks of users as with many."""
    rng = np.random.default_rng(6)
    for users in (9, 2_000):
        p, label, user = world(rng, 20_000, users)
        fifty = np.full(p.size, 50)
        view, values, errors = counted(p, label, user, Copies(fifty, fifty))
        _, plain, known = counted(p, label, user)
        assert view.effective_impressions == pytest.approx(p.size)
        for name in METRICS:
            assert values[name] == pytest.approx(plain[name], rel=1e-3), name
            assert errors.stderr[name] == pytest.approx(known.stderr[name], rel=0.05), (users, name)


def test_what_needs_every_impression_has_the_reason() -> None:
    rng = np.random.default_rng(7)
    p, label, user = world(rng, 3_000, 200)
    ids = rng.integers(1, 2**63, p.size).astype(np.uint64)
    for weight, reason in ((10.0, "weights_not_supported"), (1.0, None)):
        view, _, _ = counted(p, label, user, by_label(ids, weight, label))
        _, reasons = evaluate(view)
        for name in ("gauc_uniform", "gauc_clicks"):
            assert reasons.get(name) == reason
        assert (reasons["gauc_request"] == "weights_not_supported") == (reason is not None)
        assert view.is_sampled == (reason is not None)


def test_a_weight_that_is_no_whole_number_is_rounded_by_the_impression_and_on_average_right() -> None:
    ids = np.random.default_rng(8).integers(1, 2**63, 200_000).astype(np.uint64)
    for weight in (0.3, 1.0, 7.25, 33.3333):
        found = copies_of(ids, np.full(ids.size, weight))
        assert set(found.tolist()) <= {math.floor(weight), math.ceil(weight)}
        error = math.sqrt((weight % 1) * (1 - weight % 1) / ids.size)
        assert abs(found.mean() - weight) <= 4 * error
    half = np.full(ids.size, 0.5)
    assert np.array_equal(copies_of(ids[::-1], half), copies_of(ids, half)[::-1])  # by the id alone
    both = by_label(ids, 4.0, np.array([0, 1] * 100_000, np.int8))
    assert both.now[:4].tolist() == [4, 1, 4, 1]
    assert both.unclicked[:4].tolist() == [4] * 4

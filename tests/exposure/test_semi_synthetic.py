"""The five predictions of Schnabel et al. 2016, section 3.4, in a world of 1 to 5 stars whose ratings are all known.

High ratings are seen more often: P(seen) = k for 4 and 5 stars, and a quarter of it for every star less. 5% are seen. The
kernel counts any label, so the errors here are in stars, over users in the blocks of their hash.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from streameval.loop.options import options_of
from streameval.metrics.errors import standard_errors
from streameval.metrics.registry import evaluate
from streameval.metrics.view import Undefined, View
from streameval.settings.tree import Settings
from streameval.sketches import exposure as sums
from streameval.sketches.blocks import blocks_of
from streameval.sketches.weighted_room import Room, drained

SHARES = np.array([0.526, 0.242, 0.144, 0.062, 0.026])  # of the ratings 1 to 5 (MovieLens 100K, completed)
USERS, ITEMS = 943, 1682
PREDICTIONS = ("rec_ones", "rec_fours", "rotate", "skewed", "coarsened")


@cache
def ratings(seed: int) -> np.ndarray:
    return np.random.default_rng([seed, 5]).choice(np.arange(1, 6), (USERS, ITEMS), p=SHARES)


def predicted(name: str, stars: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    out = stars.astype(np.float64)
    if name in ("rec_ones", "rec_fours"):  # as many of them as there are fives are said to be fives
        of = np.flatnonzero(stars.ravel() == (1 if name == "rec_ones" else 4))
        out.ravel()[rng.choice(of, int((stars == 5).sum()), replace=False)] = 5
    elif name == "rotate":
        out = np.where(stars == 1, 5.0, stars - 1.0)
    elif name == "skewed":
        out = np.clip(rng.normal(stars, (6 - stars) / 2), 0, 6)
    else:
        out = np.where(stars <= 3, 3.0, 4.0)
    return out


def seen(stars: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    relative = 0.25 ** np.maximum(4 - stars, 0)
    propensity = np.minimum(relative * 0.05 / relative.mean(), 1)
    return rng.random(stars.shape) < propensity, propensity


def estimates(
    said: np.ndarray, stars: np.ndarray, shown: np.ndarray, propensity: np.ndarray
) -> tuple[dict[str, float], dict[str, float], float]:
    """(metrics, their standard errors, share of the pairs that were seen)."""
    user, _ = np.nonzero(shown)
    ids = np.random.default_rng(99).integers(1, 2**63, USERS).astype(np.uint64)
    layout = options_of(Settings()).overall
    found = [layout.tally(kind) for kind in ("exposure", "exposure_users")]
    room = Room.of(1, sums.exposure_tallies(sums.DEFAULT_RULE))
    n = user.size
    scores = sums.WeightedScores(
        p=said[shown],
        loss=np.zeros(n),
        row=np.arange(n, dtype=np.int32),
        series=np.zeros(n, np.int32),
        label=stars[shown].astype(np.int8),
        propensity=propensity[shown],
        block=blocks_of(ids[user]),
    )
    sums.add_exposure(room, np.array([[0, n]]), (0, n), scores, sums.DEFAULT_RULE, 1)
    vector = np.zeros(layout.size, np.int64)
    drained(room, layout.size, *(place[1] for place in found if place is not None)).add_to(vector)
    view = View.of(vector, layout, Undefined("none"))
    values, _ = evaluate(view)
    return values, standard_errors(view, values).stderr, n / stars.size


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", PREDICTIONS)
def test_ips_and_snips_are_within_3_of_their_errors_of_the_truth(name: str, seed: int) -> None:
    stars = ratings(seed)
    rng = np.random.default_rng([seed, PREDICTIONS.index(name)])
    said = predicted(name, stars, rng)
    shown, propensity = seen(stars, rng)
    truth = float(np.abs(said - stars).mean())
    values, stderr, share = estimates(said, stars, shown, propensity)
    assert abs(values["mae_snips"] - truth) < 3 * stderr["mae_snips"]
    # IPS is per impression of the log: per pair it is that many times the share of pairs that are in the log
    assert abs(values["mae_ips"] * share - truth) < 3 * stderr["mae_ips"] * share
    assert stderr["mae_snips"] < 0.1 * truth
    naive = float(np.abs(said - stars)[shown].mean())
    if name != "rec_fours":
        assert abs(naive - truth) > 5 * stderr["mae_snips"]


def test_the_naive_mean_calls_rec_ones_better_than_rec_fours_and_snips_does_not() -> None:
    stars, rng = ratings(3), np.random.default_rng(3)
    shown, propensity = seen(stars, rng)
    ones, fours = (predicted(name, stars, rng) for name in ("rec_ones", "rec_fours"))
    naive = [float(np.abs(said - stars)[shown].mean()) for said in (ones, fours)]
    assert naive[0] < naive[1] / 5  # 0.011 and 0.177 expected
    snips = [estimates(said, stars, shown, propensity)[0]["mae_snips"] for said in (ones, fours)]
    assert snips[0] > 2 * snips[1]


def test_the_true_errors_are_those_in_closed_form() -> None:
    stars, rng = ratings(1), np.random.default_rng(1)
    q = np.bincount(stars.ravel(), minlength=6)[1:] / stars.size
    closed = {"rec_ones": 4 * q[4], "rec_fours": q[4], "rotate": 1 + 3 * q[0], "coarsened": 2 * q[0] + q[1] + q[4]}
    for name, value in closed.items():
        assert np.abs(predicted(name, stars, rng) - stars).mean() == pytest.approx(value, rel=1e-12)
    assert np.abs(predicted("skewed", stars, rng) - stars).mean() == pytest.approx(1.306, abs=0.01)


def test_clipped_weights_are_biased_towards_what_is_seen_often() -> None:
    """Side by side they say so: few of the large weights are left, and the estimate lies between the naive mean and SNIPS."""
    stars, rng = ratings(1), np.random.default_rng(1)
    shown, propensity = seen(stars, rng)
    said = predicted("rotate", stars, rng)
    values, _, _ = estimates(said, stars, shown, propensity)
    naive = float(np.abs(said - stars)[shown].mean())
    assert naive < values["mae_snips_clipped"] < values["mae_snips"]
    assert values["exposure_clipped"] > 0.02
    assert values["exposure_ess_clipped"] > 1.3 * values["exposure_ess"]

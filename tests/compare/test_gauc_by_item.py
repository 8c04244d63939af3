"""GAUC of pairs, whose versions are wrong about items for as long as they stay: errors as large as differences vary."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.compare.evidence.paired import gauc_sums, statistics
from streameval.compare.evidence.ratio import Statistic
from streameval.compare.ledger.list_rows import NO_LISTS
from streameval.compare.ledger.user_aucs import MOST_PAIRS, Groups, UserScores
from streameval.events.batch import Shadow
from streameval.join.scores import Others, Served
from streameval.sketches.blocks import BLOCKS, PAIR_CELLS, PAIR_SCALARS, BlockSums, blocks_of, item_blocks_of

pytestmark = pytest.mark.slow

RUNS, N, USERS, HOURS = 100, 60_000, 4_000, 8
FEW, MANY = 60, 2_000  # items
NOISE = 0.4  # in log-odds, of every item
NO_PAIRS = BlockSums(np.zeros((BLOCKS, PAIR_CELLS), np.int64), np.zeros(PAIR_SCALARS, np.int64))


def ids(rng: np.random.Generator, size: int) -> NDArray[np.uint64]:
    return rng.integers(1, 1 << 63, size).astype(np.uint64)


def found(seed: int, items: int, item_noise: float) -> list[Statistic]:
    """The harm in GAUC with errors by users and items, and as if items were not known; the versions are exchangeable."""
    rng = np.random.default_rng([seed, 25])
    active, popular = rng.lognormal(0.0, 1.0, USERS), np.arange(1, items + 1) ** -0.7
    user, item = rng.choice(USERS, N, p=active / active.sum()), rng.choice(items, N, p=popular / popular.sum())
    odds = -2.7 + rng.normal(0.0, 0.7, USERS)[user] + rng.normal(0.0, 0.6, items)[item] + rng.normal(0.0, 0.4, N)
    label = (rng.random(N) < 1.0 / (1.0 + np.exp(-odds))).astype(np.int8)
    old, new = (
        1.0 / (1.0 + np.exp(-odds - rng.normal(0.0, item_noise, items)[item] - rng.normal(0.0, 0.1, N)))
        for _ in range(2)
    )
    groups, of = np.unique(rng.integers(0, HOURS, N) * USERS + user, return_inverse=True)
    blocks, at = blocks_of(ids(rng, USERS)), np.arange(N)
    by = Groups(
        np.zeros(groups.size, np.int32), blocks[groups % USERS], of.astype(np.int32), label,
        item=item_blocks_of(ids(rng, items))[item],
    )  # fmt: skip
    scores, sums = UserScores(), np.zeros((1, MOST_PAIRS, NO_LISTS.width), np.int64)
    shadow = Shadow(np.arange(N + 1), np.ones(N, np.int32), new)
    scores.add(by, Served(np.zeros(N, np.int32), old, at), [Others(shadow, at, 0, 0)])
    scores.add_up(by, sums)
    known = gauc_sums(sums[0, 0])
    return [statistics(NO_PAIRS, one)["gauc"] for one in (known, BlockSums(known.blocks, known.scalars))]


@cache
def world(items: int, item_noise: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of every run the difference, and both standard errors."""
    runs = [found(seed, items, item_noise) for seed in range(RUNS)]
    errors = [[float(one.stderr()) for one in run] for run in runs]
    return np.array([float(run[0].theta) for run in runs]), np.array(errors)


def test_differences_by_item_are_within_the_errors() -> None:
    theta, errors = world(FEW, NOISE)
    both, by_user = (theta[:, None] / errors).T
    assert np.sqrt((by_user**2).mean()) > 1.5, "otherwise nothing is tested"
    assert 0.85 < np.sqrt((both**2).mean()) < 1.2
    assert (np.abs(both) > 1.96).sum() <= 10  # P(more | 5%) = 1%
    assert (np.abs(both) > 3.0).sum() <= 2


@pytest.mark.parametrize(("items", "most"), [(FEW, 1.17), (MANY, 1.08)])
def test_where_items_have_no_noise_errors_are_hardly_larger(items: int, most: float) -> None:
    theta, errors = world(items, 0.0)
    assert 0.7 < np.sqrt(((theta / errors[:, 0]) ** 2).mean()) < 1.15
    assert 1.0 <= np.sqrt((errors[:, 0] ** 2).mean() / (errors[:, 1] ** 2).mean()) < most

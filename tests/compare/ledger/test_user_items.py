"""How impressions move the AUC of users, by block of items."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from streameval.compare.evidence.paired import gauc_sums
from streameval.compare.ledger.list_rows import NO_LISTS
from streameval.compare.ledger.user_aucs import MOST_PAIRS, Groups, UserScores, known_items
from streameval.events.batch import Shadow
from streameval.join.scores import Others, Served
from streameval.sketches.blocks import BLOCKS, G_OF_ITEMS, G_W, G_WD, NO_ITEM, SCALE, BlockSums

Reals = NDArray[np.float64]
SERVER, MODEL = 2, 5


class User:
    """A user's impressions, scored by two versions; scores tie."""

    def __init__(self, n: int, clicks: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.label = rng.permutation(np.arange(n) < clicks).astype(np.int8)
        self.old, self.new = (rng.integers(1, 60, n) / 64 for _ in range(2))
        self.item = rng.integers(0, BLOCKS, n).astype(np.int8)
        self.copies = rng.integers(1, 5, n)

    def sums(self, weighed: bool, item: NDArray[np.int8] | None = None) -> BlockSums:
        """The sums of the pair."""
        n = self.label.size
        by = Groups(np.zeros(1, np.int32), np.zeros(1, np.int8), np.zeros(n, np.int32), self.label)
        by = by._replace(item=known_items(self.item if item is None else item))
        if weighed:
            by = by._replace(copies=self.copies)
        at, series = np.arange(n), np.full(n, MODEL, np.int32)
        scores, sums = UserScores(), np.zeros((1, MOST_PAIRS, NO_LISTS.width), np.int64)
        others = Others(Shadow(np.arange(n + 1), series, self.new), at, 0, 0)
        scores.add(by, Served(np.full(n, SERVER, np.int32), self.old, at), [others])
        scores.add_up(by, sums)
        return gauc_sums(sums[0, 0])

    def moved(self, copies: NDArray[np.int64]) -> tuple[Reals, Reals]:
        """The weight of every impression, and what it adds, written out."""
        clicked = self.label == 1
        w, a = np.empty((2, clicked.size))
        for k in range(clicked.size):
            rest = clicked != clicked[k]
            w[k] = copies[k] * copies.sum() / copies[clicked == clicked[k]].sum()
            a[k] = w[k] * (self._place(self.new, k, rest, copies) - self._place(self.old, k, rest, copies))
        return w, a

    def difference(self, copies: NDArray[np.int64]) -> float:
        """The other's AUC less the server's."""
        old, new = (float(roc_auc_score(self.label, p, sample_weight=copies)) for p in (self.old, self.new))
        return new - old

    def _place(self, p: Reals, k: int, rest: NDArray[np.bool_], copies: NDArray[np.int64]) -> float:
        above = np.sign(p[k] - p[rest]) * (1 if self.label[k] else -1)
        return float(((1 + above) / 2 * copies[rest]).sum() / copies[rest].sum())


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize(("n", "clicks"), [(2, 1), (30, 4), (30, 26), (150, 50)])
def test_every_impression_adds_its_place(n: int, clicks: int, weighed: bool) -> None:
    user = User(n, clicks, n + clicks)
    copies = user.copies if weighed else np.ones(n, np.int64)
    found, (w, a) = user.sums(weighed), user.moved(copies)
    assert found.items is not None
    for cell, one in ((G_W, w), (G_WD, a)):
        assert found.items[:, cell] / SCALE == pytest.approx(np.bincount(user.item, one, BLOCKS), abs=1e-6)
    assert found.scalars[-1] == pytest.approx(w @ w, abs=n / 2)
    assert found.scalars[G_OF_ITEMS:-1] / SCALE == pytest.approx([a @ a, a @ w])
    once = copies.sum() * np.array([1.0, user.difference(copies)])
    assert found.items.sum(axis=0) / SCALE == pytest.approx(2 * once, abs=1e-6), "every pair is on both sides"
    assert found.blocks.sum(axis=0) / [1.0, SCALE] == pytest.approx(once, abs=1e-6)


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize(("n", "clicks"), [(30, 4), (150, 50)])
def test_items_change_nothing_in_the_sums_by_user(n: int, clicks: int, weighed: bool) -> None:
    user = User(n, clicks, 1)
    some, none = user.sums(weighed), user.sums(weighed, np.full(n, NO_ITEM, np.int8))
    assert np.array_equal(some.blocks, none.blocks)
    assert np.array_equal(some.scalars[:G_OF_ITEMS], none.scalars[:G_OF_ITEMS])
    assert none.items is not None
    assert not none.items.any()
    assert not none.scalars[G_OF_ITEMS:].any()


def test_impressions_without_an_item_are_left_out() -> None:
    user = User(30, 4, 2)
    item = np.where(np.arange(30) < 10, NO_ITEM, user.item).astype(np.int8)
    found = user.sums(False, item)
    assert found.items is not None
    w, _ = user.moved(np.ones(30, np.int64))
    assert found.items[:, G_W].sum() / SCALE == pytest.approx(w[10:].sum())

"""Rows of lists against others' code: NDCG with ties of scikit-learn, reciprocal ranks by hand; which lists count."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import ndcg_score

from streameval.compare.evidence import paired
from streameval.compare.ledger.list_rows import GAUC_WIDTH, ListMetrics
from streameval.compare.ledger.user_aucs import Groups
from streameval.events.columns import ScoreList
from streameval.sketches import blocks
from streameval.sketches.blocks import BLOCKS, GAUC_CELLS, SCALE, BlockSums

LISTS = ListMetrics(("ndcg_5", "mrr", "ndcg_1"))


class Requests:
    """n lists of 1 to 9 items, scores with ties, some without a click, some not scored whole by the other version."""

    def __init__(self, n: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.size = rng.integers(1, 10, n)
        total = int(self.size.sum())
        self.request = np.repeat(np.arange(1, n + 1).astype(np.uint64), self.size)
        self.group = np.repeat(rng.integers(0, max(n // 3, 1), n).astype(np.int32), self.size)
        self.label = (rng.random(total) < 0.25).astype(np.int8)
        self.p = rng.integers(1, 6, (2, total)) / 10.0
        self.scored = rng.random(total) > 0.02
        self.groups = Groups(
            np.zeros(max(n // 3, 1), np.int32),
            rng.integers(0, BLOCKS, max(n // 3, 1)).astype(np.int8),
            self.group,
            self.label,
        )

    def row(self, order: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """int64[width] of version 0 that served and version 1 that scored, the impressions in some order."""
        at = np.arange(self.label.size) if order is None else order
        groups = self.groups._replace(group=self.group[at], label=self.label[at])
        on = np.flatnonzero(self.scored[at])
        row = np.concatenate([np.arange(at.size), on]).astype(np.int32)
        series = np.repeat(np.array([0, 1], np.int32), [at.size, on.size])
        p = np.concatenate([self.p[0, at], self.p[1, at[on]]])
        pair_of = np.array([[-1, 0], [-1, -1]], np.int32)
        sums = np.zeros((1, 128, LISTS.width), np.int64)
        LISTS.add(groups, self.request[at], ScoreList(row, series, p), at.size, pair_of, sums)
        assert not sums[0, 1:].any()
        assert not sums[0, 0, :GAUC_WIDTH].any()
        return sums[0, 0]

    def lists(self) -> list[NDArray[np.int64]]:
        """The impressions of the lists that count."""
        every = [np.flatnonzero(self.request == r) for r in np.unique(self.request)]
        return [one for one in every if self.label[one].any() and self.scored[one].all()]


def ndcg(label: NDArray[np.int8], p: NDArray[np.float64], k: int) -> float:
    return 1.0 if label.size == 1 else float(ndcg_score([label], [p], k=k))


def reciprocal(label: NDArray[np.int8], p: NDArray[np.float64]) -> float:
    """Over many random orders of ties."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(4_000):
        order = np.lexsort((rng.random(p.size), -p))
        found.append(1.0 / (1 + int(np.argmax(label[order]))))
    return float(np.mean(found))


def test_sums_are_those_of_others_code_list_by_list() -> None:
    some = Requests(400, 1)
    row, lists = some.row(), some.lists()
    assert 100 < len(lists) < 400
    for name, k in (("ndcg_5", 5), ("ndcg_1", 1)):
        old, new = (np.array([ndcg(some.label[one], some.p[side, one], k) for one in lists]) for side in range(2))
        part = LISTS.of(name, row)
        cells = part[: BLOCKS * GAUC_CELLS].reshape(BLOCKS, GAUC_CELLS)
        scalars = part[BLOCKS * GAUC_CELLS :]
        assert cells[:, blocks.G_W].sum() == scalars[blocks.G_ROWS] == len(lists)
        assert cells[:, blocks.G_WD].sum() / SCALE == pytest.approx((new - old).sum(), abs=1e-6)
        assert scalars[blocks.G_W_SERVER] / SCALE == pytest.approx(old.sum(), abs=1e-6)
        assert scalars[blocks.G_WD_SQ] / SCALE == pytest.approx(((new - old) ** 2).sum(), abs=1e-6)
        theta = paired.gauc_statistic(BlockSums(cells, scalars)).theta
        assert theta == pytest.approx(-(new - old).mean(), abs=1e-8)


@pytest.mark.slow
def test_reciprocal_ranks_are_means_over_the_orders_of_ties() -> None:
    some = Requests(60, 2)
    expected = sum(reciprocal(some.label[one], some.p[0, one]) for one in some.lists())
    part = LISTS.of("mrr", some.row())
    assert part[BLOCKS * GAUC_CELLS + blocks.G_W_SERVER] / SCALE == pytest.approx(expected, rel=0.01)


def test_the_order_of_arrival_is_nothing_and_a_constant_model_is_no_better_for_it() -> None:
    some = Requests(200, 3)
    assert np.array_equal(some.row(), some.row(np.random.default_rng(4).permutation(some.label.size)))
    some.p[1] = 0.5
    part = LISTS.of("ndcg_1", some.row())
    d = part[: BLOCKS * GAUC_CELLS].reshape(BLOCKS, GAUC_CELLS)[:, blocks.G_WD].sum()
    own = part[BLOCKS * GAUC_CELLS + blocks.G_W_SERVER]
    chance = sum(some.label[one].mean() for one in some.lists())
    assert (own + d) / SCALE == pytest.approx(chance, abs=1e-6)


def test_rows_of_a_checkpoint_keep_the_metrics_that_are_still_there() -> None:
    row = Requests(50, 5).row()[None]
    fewer = ListMetrics(("mrr",))
    kept = fewer.fitted(row, LISTS.metrics)
    assert np.array_equal(fewer.of("mrr", kept[0]), LISTS.of("mrr", row[0]))
    more = LISTS.fitted(kept, fewer.metrics)
    assert np.array_equal(LISTS.of("mrr", more[0]), LISTS.of("mrr", row[0]))
    assert not LISTS.of("ndcg_5", more[0]).any()
    older = LISTS.fitted(row[:, :GAUC_WIDTH], [])
    assert not older[:, GAUC_WIDTH:].any()

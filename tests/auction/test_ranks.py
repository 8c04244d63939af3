"""The best candidates of requests, against a stable sort."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.auction.ranks import ranked, room_for, squashed


@pytest.mark.parametrize("slots", [1, 7, 16, 20])
def test_the_best_of_any_number_of_candidates_are_those_of_a_stable_sort(slots: int) -> None:
    rng = np.random.default_rng(slots)
    sizes = rng.permutation(np.arange(40).repeat(5))
    indptr = np.append(0, np.cumsum(sizes))
    bid = rng.choice([0.0, 0.5, 1.0, 2.0], indptr[-1])  # many rank scores are equal
    score = rng.choice([0.0, 0.1, 0.2, 0.4], indptr[-1])
    score[rng.random(indptr[-1]) < 0.003] = np.nan
    found = room_for(sizes.size, slots)
    position = np.where(rng.random(indptr[-1]) < 0.5, rng.integers(0, 4, indptr[-1]), np.inf)
    item = rng.integers(0, 4, indptr[-1]).astype(np.uint64)
    ranked(bid, score, position, item, indptr, slots, found)
    missing = 0
    for r in range(sizes.size):
        some = slice(indptr[r], indptr[r + 1])
        if np.isnan(score[some]).any():
            assert found.many[r] == -1
            missing += 1
            continue
        best = np.lexsort((item[some], position[some], -bid[some] * score[some]))[:slots]
        assert found.many[r] == best.size
        assert (found.best[r, : best.size] == indptr[r] + best).all()
        assert (found.rank[r, : best.size] == (bid * score)[indptr[r] + best]).all()
    assert 0 < missing < sizes.size // 2


def test_what_has_no_score_has_none_at_any_squash() -> None:
    for squash in (0.0, 0.5, 1.0):
        assert np.isnan(squashed(np.array([0.25, np.nan]), squash)).tolist() == [False, True]
    assert squashed(np.array([0.25]), 0.5).tolist() == [0.5]

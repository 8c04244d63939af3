"""The terms of one ranked list, against every order of its ties and scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from streameval.sketches.list_terms import (
    AP,
    HIT,
    HITS,
    NDCG,
    RECALL,
    TERMS_A_CUT,
    click_room,
    discounts,
    find_clicks,
    list_terms,
    stand_clicks,
    terms_of,
)
from tests.ranked_lists import Item, Terms, over_orders

KS = (1, 2, 3, 5, 10)


def terms(scores: Sequence[float], gains: Sequence[float], ks: Sequence[int] = KS, clicked: object = None) -> Terms:
    """What the kernel gives, by name."""
    key, gain = np.array(scores, np.float64), np.array(gains, np.float64)
    click = (gain > 0).astype(np.int8) if clicked is None else np.array(clicked, np.int8)
    cuts, discount = np.array(ks), discounts(max(ks))
    room, out = click_room(key.size, len(ks)), np.full(terms_of(len(ks)), np.nan)
    clicks, best = find_clicks(click, gain, 0, key.size, cuts, discount, room)
    stand_clicks(key, 0, key.size, clicks, best, room)
    list_terms(room, clicks, cuts, discount, out)
    found = {"mrr": out[-2], "map": out[-1]}
    for j, k in enumerate(ks):
        for at, name in ((NDCG, "ndcg"), (AP, "map"), (HITS, "hits"), (RECALL, "recall"), (HIT, "hit")):
            found[f"{name}_{k}"] = out[TERMS_A_CUT * j + at]
    assert best == max(gains)
    return found


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.1, 0.2, 0.3]), st.sampled_from([0, 1]), st.sampled_from([0.0, 1.0, 7.5])),
        min_size=1,
        max_size=6,
    ).filter(lambda items: any(click for _, click, _ in items))
)
def test_ties_are_the_mean_over_all_their_orders(items: list[tuple[float, int, float]]) -> None:
    scores, clicked, values = zip(*items, strict=True)
    gains = [click * value for click, value in zip(clicked, values, strict=True)]
    found = terms(scores, gains, clicked=clicked)
    assert found == pytest.approx(over_orders(list(map(Item, scores, clicked, gains)), KS), abs=1e-12)


@settings(deadline=None)
@given(st.integers(2, 200), st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_ndcg_is_that_of_scikit_learn(n: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, gains = rng.integers(0, 12, n) / 12, rng.integers(0, 4, n) * rng.random(n).round(1)
    gains[rng.integers(n)] = 1.0
    expected = ndcg_score(gains[None], scores[None], k=k)
    assert terms(scores, gains, (k,))[f"ndcg_{k}"] == pytest.approx(expected, abs=1e-12)


def test_the_worked_numbers_of_average_precision() -> None:
    """Positives at 1, 2, 4 and 7 of 4, and at 1, 3 and 5 of 5: two stand behind the cut."""
    one = terms(np.arange(12, 0, -1), [1, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0])["map_10"]
    other = terms(np.arange(12, 0, -1), [1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1, 1])["map_10"]
    assert one == pytest.approx(0.830357, abs=5e-7)
    assert other == pytest.approx(0.453333, abs=5e-7)
    assert (one + other) / 2 == pytest.approx(0.641845, abs=5e-7)


def test_the_worked_numbers_of_graded_gains() -> None:
    """The ideal of {2, 1, 1, 0}; clicks of 180 s and 10 s at ranks 1 and 3, in either order."""
    ideal = 2 * discounts(1)[1] + discounts(3)[3] - discounts(1)[1]
    assert ideal == pytest.approx(3.13093, abs=5e-6)
    worst_first = terms([4, 3, 2, 1], [0, 1, 1, 2], (4,))["ndcg_4"]
    assert worst_first == pytest.approx((1 / log2(3) + 1 / 2 + 2 / log2(5)) / 3.13093, abs=1e-6)
    assert terms([4, 3, 2, 1], [180, 0, 10, 0], (4,))["ndcg_4"] == pytest.approx(0.99297, abs=5e-6)
    assert terms([4, 3, 2, 1], [10, 0, 180, 0], (4,))["ndcg_4"] == pytest.approx(0.53674, abs=5e-6)


def test_a_constant_model_is_no_better_than_chance() -> None:
    """scholar#360: one score for every item gave NDCG 1.0, because its ties were sorted with the clicks on top."""
    found = terms([0.5] * 4, [0, 0, 1, 0])
    assert found["ndcg_10"] == pytest.approx(sum(1 / log2(r + 1) for r in range(1, 5)) / 4)
    assert found["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert found["hit_1"] == pytest.approx(1 / 4)


def test_ties_are_not_broken_by_place() -> None:
    """LightGBM#3363, torchmetrics#2022, trec_eval#22, pytrec_eval#56: the order of arrival, or the id, decided."""
    rng = np.random.default_rng(3)
    scores, gains = rng.integers(0, 3, 9) / 3.0, np.where(rng.random(9) < 0.4, rng.random(9) * 100, 0.0)
    expected = terms(scores, gains)
    for _ in range(20):
        order = rng.permutation(9)
        assert terms(scores[order], gains[order]) == expected  # to the bit


def test_scores_differ_by_their_last_bit() -> None:
    """Scores rounded to 32 bits would tie."""
    score = 0.3
    assert terms([np.nextafter(score, 1), score], [0, 1])["mrr"] == 0.5
    assert terms([score, np.nextafter(score, 1)], [0, 1])["mrr"] == 1.0


def test_the_ideal_is_of_the_whole_list() -> None:
    """spiceai#12277: the ideal was made of what stood within K, so a click missed by K cost nothing."""
    assert terms([4, 3, 2, 1], [1, 0, 0, 1], (2,))["ndcg_2"] == pytest.approx(1 / (1 + 1 / log2(3)))


def test_graded_gains_count() -> None:
    """recommenders#1749: gains of any size were taken as 1."""
    assert terms([2, 1], [1, 5], (2,))["ndcg_2"] < terms([2, 1], [1, 1], (2,))["ndcg_2"]


def test_k_beyond_the_list() -> None:
    """implicit#545: a list shorter than K failed, or read beyond its end; MISSRec#15: K = 1 read the second item."""
    found = terms([2, 1], [0, 1])
    assert found["ndcg_10"] == pytest.approx(1 / log2(3))
    assert found["recall_10"] == found["hit_10"] == 1
    assert found["ndcg_1"] == found["hits_1"] == 0
    assert set(terms([0.5], [1]).values()) == {1.0}


def test_average_precision_is_over_all_clicks() -> None:
    """MatchZoo-py#164: only the clicks within K were divided by."""
    assert terms([4, 3, 2, 1], [1, 0, 1, 1], (1,))["map_1"] == pytest.approx(1 / 3)


def test_a_click_that_is_worth_nothing() -> None:
    """It is a click, of which there is no ideal order of gains."""
    found = terms([2, 1], [0, 0], clicked=[0, 1])
    assert found["mrr"] == 0.5
    assert found["ndcg_10"] == 0


def test_gains_of_any_size() -> None:
    assert terms([2, 1, 0], [1e308, 1e308, 1e308])["ndcg_10"] == pytest.approx(1.0)
    assert terms([2, 1], [0, 5e-324])["ndcg_10"] == pytest.approx(1 / log2(3))


def test_clicks_of_a_long_list_stand_where_those_of_a_short_one_do() -> None:
    rng = np.random.default_rng(5)
    n, cuts, discount = 5_000, np.array([10]), discounts(10)
    key, gain = rng.integers(0, 400, n).astype(np.float64), rng.integers(0, 9, n).astype(np.float64)
    clicked = (rng.random(n) < 0.3).astype(np.int8)
    room = click_room(n, 1)
    clicks, best = find_clicks(clicked, gain, 0, n, cuts, discount, room)
    assert np.array_equal(room.which[:clicks], np.flatnonzero(clicked))
    stand_clicks(key, 0, n, clicks, best, room)
    own = np.flatnonzero(clicked)
    above, level = (key[None] > key[own, None]).sum(axis=1), (key[None] == key[own, None]).sum(axis=1)
    order = np.lexsort((gain[own], above))
    assert np.array_equal(room.above[:clicks], above[order])
    assert np.array_equal(room.level[:clicks], level[order])
    assert np.array_equal(room.gained[:clicks], gain[own][order] / best)

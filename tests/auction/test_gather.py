"""Rows of requests in the order in which ties stand: by insertion as by sorting, and no id twice."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.auction.arrange import Arranged, _distinct, arranged, auctions_of
from streameval.auction.grouping import ByRequest, apart_at, grouped, meet
from streameval.events.batch import Impressions, Shadow


@pytest.mark.parametrize("requests", [1, 40, 400])  # 1: too many candidates for insertion
@pytest.mark.parametrize("twice", [False, True])
def test_rows_stand_by_request_position_item_and_id(requests: int, twice: bool) -> None:
    rng = np.random.default_rng(requests)
    n, shown = 1_200, 500
    request = rng.integers(-1, requests, n)  # -1: rows that stand nowhere
    position = np.where(rng.random(n) < 0.2, np.nan, rng.integers(0, 4, n))
    item, ids = (rng.permutation(n).astype(np.uint64) for _ in range(2))
    item[:shown] //= np.uint64(2)  # the same ad, shown twice, is no candidate twice
    item[shown:] += np.uint64(n)
    if twice:
        ids[:2], request[:2] = 7, 0
        for other in (shown, n - 2):
            item[other], request[other] = item[other + 1], request[other + 1]
        item[shown + 9], request[shown + 9] = item[3], request[3]
    order, place, indptr = arranged(request, ids, item, position, shown, requests)
    expected: list[tuple[int, float, int, int, int]] = []
    for row in range(n):
        own, was_shown = int(request[row]), row < shown
        alike = (request == own) & (item == item[row])
        again = (ids[:row] == ids[row])[:shown].any() and row < shown
        if not was_shown:
            again = alike[:shown].any() or bool((ids[shown:][alike[shown:]] < ids[row]).any())
        if own >= 0 and not again:
            at = (-1.0 if np.isnan(position[row]) else float(position[row])) if was_shown else np.inf
            expected.append((own, at, int(item[row]), int(ids[row]), row))
    expected.sort()
    assert order.tolist() == [row for *_, row in expected]
    assert place.tolist() == [at for _, at, *_ in expected]
    assert np.repeat(np.arange(requests), np.diff(indptr)).tolist() == [own for own, *_ in expected]
    assert len(expected) < np.count_nonzero(request >= 0) or not twice


def test_a_hash_that_comes_twice_is_found() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 1 << 63, 5_000).astype(np.uint64)
    values[17] = 0
    assert _distinct(values)
    assert _distinct(values[:0])
    for again in (3, 17):
        assert not _distinct(np.append(values, values[again]))


def test_rows_are_grouped_by_request_with_their_times() -> None:
    rng = np.random.default_rng(1)
    request, ts = rng.integers(1, 300, 4_000).astype(np.uint64), rng.integers(0, 10**6, 4_000)
    (number, size, first, last), table, ids = grouped(request[:3_000], ts[:3_000])
    meet(request[3_000:], ts[3_000:], table, ids, ByRequest(number, size, first, last))
    for one in range(size.size):
        (of,) = np.unique(request[:3_000][number == one])
        rows = request == of
        assert np.array_equal(number == one, rows[:3_000])
        assert (size[one], first[one], last[one]) == (rows.sum(), ts[rows].min(), ts[rows].max())


def test_rows_before_a_time_are_separated_only_if_none_follows_later() -> None:
    ts = np.array([3, 1, 4, 6, 5, 9])
    assert [apart_at(ts, end) for end in (0, 1, 5, 7, 10)] == [0, 0, 3, 5, 6]
    assert [apart_at(ts, end) for end in (2, 4, 6)] == [6, 2, 6]
    assert apart_at(ts[:0], 5) == 0


@pytest.mark.parametrize("likely", [[], [0, 2, 5], [0, 2], [2, 5], [0, 2, 4, 5], [0, 2, 99], [1, 3, 5]])
def test_scores_are_found_whoever_was_thought_to_have_given_them(likely: list[int]) -> None:
    rng = np.random.default_rng(2)
    n, whole = 30, np.zeros(30, np.int64)
    indptr = np.append(0, np.cumsum(rng.integers(0, 2, n)))
    p = np.where(np.arange(n) % 7 == 3, np.nan, rng.random(n))
    rows = Impressions(
        np.arange(n, dtype=np.int32), *(np.arange(n).astype(np.uint64) for _ in range(1)), whole,
        *(np.arange(n).astype(np.uint64) for _ in range(3)), np.where(np.arange(n) < 20, 0, 5).astype(np.int32), p, whole,
        whole.astype(np.int8), shadow=Shadow(indptr, np.full(indptr[-1], 2, np.int32), rng.random(int(indptr[-1]))),
    )  # fmt: skip
    order = rng.permutation(n)[:25]  # the others stand nowhere
    stand = Arranged.of(order, np.array([0, 10, 25]), n)
    auctions, codes, own = auctions_of([rows], stand, np.ones(25), np.zeros(25, np.int32), np.array(likely, np.int64))
    assert codes.tolist() == [0, 2, 5]
    assert own.tolist() == rows.series[order[[0, 10]]].tolist()
    for place, row in enumerate(order.tolist()):
        shadow = rows.shadow.pclick[indptr[row]] if indptr[row] < indptr[row + 1] else np.nan
        expected = [p[row] if row < 20 else np.nan, shadow, np.nan if row < 20 else p[row]]
        assert np.array_equal(auctions.score[:, place], expected, equal_nan=True)

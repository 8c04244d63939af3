"""Rows of requests in the order in which ties stand: by insertion as by sorting, and no id twice."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from streameval.auction.arrange import Arranged, _distinct, arranged, auctions_of, in_order, servers_of
from streameval.auction.gather import all_fit
from streameval.auction.grouping import ByRequest, apart_at, completed, grouped, joined, meet, numbered, plain, stretch
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
    order, place, indptr = in_order(request, ids, item, position, shown, requests)
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
    some, their_place, same = arranged(request, ids, item, position, shown, requests)
    assert np.array_equal(same, indptr)
    assert (some.tolist() == order.tolist()) == (twice or requests < 40)
    for first, end in pairwise(indptr.tolist()):
        if first < end:
            assert (some[first], their_place[first]) == (order[first], place[first])
        assert set(some[first:end].tolist()) == set(order[first:end].tolist())
    assert np.array_equal(their_place[np.argsort(some)], place[np.argsort(order)])


def test_a_candidate_that_is_there_twice_is_found_among_any_others() -> None:
    """However alike their hashes are: whether items may be equal is told from some of their bits."""
    rng = np.random.default_rng(2)
    for _ in range(200):
        n, shown = 30, 12
        item = rng.choice([1, 1 << 60, 1 << 30], n).astype(np.uint64) + np.uint64(64) * rng.permutation(n).astype(
            np.uint64
        )
        position = rng.permutation(n).astype(float)
        if rng.random() < 0.5:
            low, high = sorted(rng.choice(n, 2, replace=False).tolist())
            item[low] = item[high]
        others = set(item[shown:].tolist()) - set(item[:shown].tolist())
        order, _, indptr = arranged(np.zeros(n, np.int64), np.arange(n).astype(np.uint64), item, position, shown, 1)
        assert order.size == indptr[1] == shown + len(others)
        assert position[order[0]] == position[:shown].min()


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


@pytest.mark.parametrize("in_order", [False, True])
def test_requests_that_are_over_are_numbered_by_pane(in_order: bool) -> None:
    rng = np.random.default_rng(in_order)
    number, many, end, most, pane = rng.integers(0, 60, 900), 60, 5_000, 20, 700
    size = np.bincount(number, minlength=many)
    first = rng.integers(-3_000, 5_000, many)  # before 1970, too: a pane's number is rounded down
    first = np.sort(first) if in_order else first
    last = first + rng.integers(0, 1_500, many)
    found = completed(ByRequest(number, size, first, last), end, most, pane)
    over = [one for one in range(many) if last[one] < end and size[one] <= most]
    over.sort(key=lambda one: first[one] // pane)
    place = {one: at for at, one in enumerate(over)}
    assert found.pane.tolist() == [first[one] // pane for one in over]
    assert found.request.tolist() == [place.get(one, -1) for one in number.tolist()]
    assert found.waits.tolist() == [last[one] >= end and size[one] <= most for one in number.tolist()]
    assert found.crowded == np.count_nonzero(size > most) > 0


def test_requests_that_take_all_rows_to_tell_are_found() -> None:
    groups = ByRequest(np.array([0, 0, 1]), np.array([2, 1]), np.array([10, 5]), np.array([40, 5]))
    assert plain(groups, 30, 2)
    assert not plain(groups, 29, 2)
    assert not plain(groups, 30, 1)


def test_ascending_values_are_numbered() -> None:
    distinct, number = numbered(np.array([-3, -3, 0, 7, 7, 7]))
    assert (distinct.tolist(), number.tolist()) == ([-3, 0, 7], [0, 0, 1, 2, 2, 2])
    assert [part.size for part in numbered(np.empty(0, np.int64))] == [0, 0]


def test_columns_are_joined() -> None:
    parts = [np.array(part, np.uint64) for part in ([3, 1], [], [1 << 63])]
    assert joined(parts).tolist() == [3, 1, 1 << 63]
    assert joined(parts).dtype == np.uint64


def test_a_request_is_served_by_the_series_of_its_first_row_if_anything_was_shown() -> None:
    position, indptr = np.array([0.0, np.inf, np.inf, 2.0, 0.0]), np.array([0, 2, 3, 4, 5])
    found = servers_of(np.array([4, 4, 9, 7], np.int32), np.array([4, 9]), position, indptr)
    assert found.tolist() == [0, -1, 1, -1]


def test_a_request_without_rows_does_not_fit() -> None:
    item, bid, position = np.ones(2, np.uint64), np.ones(2), np.zeros(2)
    assert all_fit(np.array([0, 1, 2]), item, bid, position, 3)
    assert not all_fit(np.array([0, 0, 2]), item, bid, position, 3)
    for wrong in ((item * np.uint64(0), bid, position), (item, bid * np.nan, position), (item, bid, position + 3)):
        assert not all_fit(np.array([0, 1, 2]), *wrong, 3)
    assert all_fit(np.array([0, 1, 2]), item, bid, position + np.inf, 3)


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
    auctions, codes, own = auctions_of(
        [rows],
        stand,
        np.ones(25),
        np.zeros(25, np.int32),
        np.ones(25),
        np.ones(25, np.uint64),
        np.array(likely, np.int64),
    )
    assert codes.tolist() == [0, 2, 5]
    assert own.tolist() == rows.series[order[[0, 10]]].tolist()
    for place, row in enumerate(order.tolist()):
        shadow = rows.shadow.pclick[indptr[row]] if indptr[row] < indptr[row + 1] else np.nan
        expected = [p[row] if row < 20 else np.nan, shadow, np.nan if row < 20 else p[row]]
        assert np.array_equal(auctions.score[:, place], expected, equal_nan=True)


def test_a_stretch_is_of_adjacent_rows() -> None:
    for rows, expected in (
        ("", (0, 0)),
        ("000", (0, 0)),
        ("1", (0, 1)),
        ("0110", (1, 3)),
        ("101", (0, -1)),
        ("0010", (2, 3)),
    ):
        assert stretch(np.array([one == "1" for one in rows], np.bool_)) == expected

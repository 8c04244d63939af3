"""Which requests are closed depends on how far the stream has come, and not on when that was looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.counting.requests import MOST_IMPRESSIONS, Requests

CLOSE_AFTER, BUCKET, LIFE = 25_000, 5_000, 60_000


def rows(starts: list[int], lengths: list[int]) -> Any:
    """A table of requests whose impressions are 100 ms apart, in order of time."""
    ts = np.concatenate([start + 100 * np.arange(n) for start, n in zip(starts, lengths, strict=True)])
    request = np.repeat(np.arange(1, len(starts) + 1, dtype=np.uint64), lengths)
    order = np.argsort(ts, kind="stable")
    return SimpleNamespace(ts=ts[order].astype(np.int64), request=request[order], previous=np.zeros(ts.size, np.int32))


def closed(table: Any, watermarks: list[int]) -> list[int]:
    """The requests that are closed when the stream was looked at as often."""
    requests = Requests(CLOSE_AFTER, BUCKET, LIFE)
    linked = 0
    for watermark in watermarks:
        upto = int(np.searchsorted(table.ts, watermark))
        new = np.arange(linked, upto)
        requests.link(table, new, requests.find(table, new, 0), 0)
        linked = max(linked, upto)
        requests.close(watermark)
    entries = requests.closed(np.unique(table.request))
    heads = requests._entries.head[entries]
    return sorted(table.request[heads].tolist())


@settings(deadline=None)
@given(
    requests=st.lists(st.tuples(st.integers(0, 40_000), st.integers(1, 8)), min_size=1, max_size=30),
    watermarks=st.lists(st.integers(0, 80_000), max_size=30),
    end=st.integers(20_000, 80_000),
)
def test_however_often_it_is_looked_at(requests: list[tuple[int, int]], watermarks: list[int], end: int) -> None:
    table = rows(*map(list, zip(*requests, strict=True)))
    seen = sorted(watermark for watermark in watermarks if watermark < end)
    assert closed(table, [*seen, end]) == closed(table, [end])


def test_a_request_over_the_edge_of_a_bucket_closes_with_its_last_impression() -> None:
    """It was closed at 50.3 s by who looked at 50.3 s for the first time, and at 55 s by who had looked at 50.1 s."""
    table = rows([24_900], [4])  # to 25.2 s
    for before in ([], [50_100]):
        assert closed(table, [*before, 50_300]) == []
        assert closed(table, [*before, 54_999]) == []
        assert closed(table, [*before, 55_000]) == [1]


def test_a_request_that_was_closed_early_closes_again_when_its_latest_impression_is_due() -> None:
    """While an input is silent, requests are closed for readers at a watermark to which no label is firm."""
    table = rows([30_000], [2])
    table.ts[1] = 21_000  # comes late, and is of an earlier bucket than the one before it
    requests = Requests(CLOSE_AFTER, BUCKET, LIFE)
    requests.link(table, np.arange(1), requests.find(table, np.arange(1), 0), 0)
    assert requests.close(90_000).tolist() == [0]
    requests.link(table, np.arange(1, 2), requests.find(table, np.arange(1, 2), 0), 0)
    assert requests.close(50_000).tolist() == []  # its last one's time is firm, but not that of the first
    assert requests.close(60_000).tolist() == [0]


def requests_of(ids: list[int], ts: list[int], sizes: list[int], restart: bool = False) -> list[int]:
    """The number of each impression's request, when so many come at a time."""
    requests, n = Requests(CLOSE_AFTER, BUCKET, LIFE), len(ids)
    table = SimpleNamespace(ts=np.array(ts, np.int64), request=np.array(ids, np.uint64), previous=np.zeros(n, np.int32))
    start = 0
    while start < n:
        new = np.arange(start, min(start + sizes[start % len(sizes)], n))
        requests.link(table, new, requests.find(table, new, 0), 0)
        start = int(new[-1]) + 1
        if restart:
            state = requests.state(0, 0)
            state["closing"] = state["closing"]()
            requests = Requests(CLOSE_AFTER, BUCKET, LIFE)
            requests.restore(state)
    names: dict[int, int] = {}
    found = [names.setdefault(key, len(names)) for key in table.request.tolist()]
    for number in set(found):  # they are chained as they are told apart
        rows = [row for row in range(n) if found[row] == number]
        assert [row - table.previous[row] for row in rows[1:]] == rows[:-1]
        assert table.previous[rows[0]] == 0
    return found


@settings(deadline=None)
@given(
    impressions=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 40)), min_size=1, max_size=80),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    restart=st.booleans(),
)
def test_impressions_of_a_request_are_at_most_a_life_apart(
    impressions: list[tuple[int, int]], sizes: list[int], restart: bool
) -> None:
    ids, ts = [one for one, _ in impressions], [10_000 * at for _, at in impressions]
    latest: dict[int, list[int]] = {}  # by id: number, earliest and latest time
    expected = []
    count = 0
    for one, at in zip(ids, ts, strict=True):
        mine = latest.get(one)
        if mine is None or max(at, mine[2]) - min(at, mine[1]) > LIFE:
            mine = latest[one] = [count, at, at]
            count += 1
        mine[1:] = min(at, mine[1]), max(at, mine[2])
        expected.append(mine[0])
    assert requests_of(ids, ts, sizes, restart) == expected


def test_a_request_has_a_limited_number_of_impressions() -> None:
    """A placeholder of all users would be one list, which is counted again with each late click."""
    n = 2 * MOST_IMPRESSIONS + 500
    found = requests_of([7] * n, [3] * n, [4_000])
    assert np.bincount(found).tolist() == [MOST_IMPRESSIONS, MOST_IMPRESSIONS, 500]


def test_an_id_finds_its_latest_request_after_the_rows_of_its_first_are_gone() -> None:
    n = 3_000
    ids = np.arange(1, n + 1, dtype=np.uint64)
    ids[[2_700, 2_900]] = ids[2_000]  # 70 s later, and 20 s after that
    table = SimpleNamespace(ts=np.arange(n) * 100, request=ids, previous=np.zeros(n, np.int32))
    requests = Requests(CLOSE_AFTER, BUCKET, LIFE)
    for start in range(0, 2_900, 100):
        new = np.arange(start, start + 100)
        requests.link(table, new, requests.find(table, new, 0), 0)
    requests.shift(2_500)
    assert len(requests) == 401  # the 400 of these rows, and the first of that id
    rest = SimpleNamespace(ts=table.ts[2_500:], request=ids[2_500:], previous=table.previous[2_500:])
    new = np.arange(400, 500)
    requests.link(rest, new, requests.find(rest, new, 0), 0)
    assert ids[2_900] == ids[2_700] != ids[2_000]
    assert table.previous[2_900] == 200
    requests.shift(250)  # the row 2,700 is gone, too
    assert len(requests) == 251
    requests.shift(200)
    assert len(requests) == 50

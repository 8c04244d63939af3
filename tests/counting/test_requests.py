"""Which requests are closed depends on how far the stream has come, and not on when that was looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.counting.requests import Requests

CLOSE_AFTER, BUCKET = 25_000, 5_000


def rows(starts: list[int], lengths: list[int]) -> Any:
    """A table of requests whose impressions are 100 ms apart, in order of time."""
    ts = np.concatenate([start + 100 * np.arange(n) for start, n in zip(starts, lengths, strict=True)])
    request = np.repeat(np.arange(1, len(starts) + 1, dtype=np.uint64), lengths)
    order = np.argsort(ts, kind="stable")
    return SimpleNamespace(ts=ts[order].astype(np.int64), request=request[order], previous=np.zeros(ts.size, np.int32))


def closed(table: Any, watermarks: list[int]) -> list[int]:
    """The requests that are closed when the stream was looked at as often."""
    requests = Requests(CLOSE_AFTER, BUCKET)
    linked = 0
    for watermark in watermarks:
        upto = int(np.searchsorted(table.ts, watermark))
        requests.link(table, np.arange(linked, upto), 0)
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

"""Rows of requests in the order in which ties stand: by insertion as by sorting, and no id twice."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.auction.gather import _by_request, _distinct
from streameval.auction.live import _grouped


@pytest.mark.parametrize("requests", [1, 7, 400])  # 1: too many candidates for insertion
def test_rows_stand_by_request_position_item_and_id(requests: int) -> None:
    rng = np.random.default_rng(requests)
    n = 2_000
    request = rng.integers(0, requests, n).astype(np.uint64)
    position = np.where(rng.random(n) < 0.5, np.inf, rng.integers(-1, 4, n).astype(float))
    item, ids = rng.integers(0, 5, n).astype(np.uint64), rng.integers(0, 1 << 60, n).astype(np.uint64)
    assert np.array_equal(_by_request(request, position, item, ids), np.lexsort((ids, item, position, request)))


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
    number, size, first, last = _grouped(request, ts)
    for one in range(size.size):
        rows = number == one
        (of,) = np.unique(request[rows])
        assert np.array_equal(rows, request == of)
        assert (size[one], first[one], last[one]) == (rows.sum(), ts[rows].min(), ts[rows].max())

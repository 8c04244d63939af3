"""Keys and bins: monotone, safe at the ends, and as fine as they say."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.sketches import grid


@numba.njit
def _bin(key: int, bits: int) -> int:
    return grid.key_bin(key, bits)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_keys_are_monotone_and_their_scores_are_close(values: list[float]) -> None:
    p = np.sort(np.array(values))
    keys = grid.score_keys(p)
    assert (np.diff(keys.astype(np.int64)) >= 0).all()
    back = grid.key_scores(keys)
    assert (np.abs(back - p) <= 2.0**-25 * np.minimum(p, 1 - p) * 1.000001 + 2.0**-53 + 2.0**-64).all()


@numba.njit
def _part(key: int, bits: int, more: int) -> int:
    return grid.key_part(key, bits, more)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=20), st.integers(0, 4))
def test_parts_of_bins_are_monotone_and_of_their_bin(values: list[float], more: int) -> None:
    keys = [int(key) for key in grid.score_keys(np.sort(np.array([0.0, 0.5, 1.0, *values])))]
    parts = [_part(key, 5, more) for key in keys]
    assert parts == sorted(parts)
    assert [part >> more for part in parts] == [_bin(key, 5) for key in keys]
    assert 0 <= parts[0] <= parts[-1] == (grid.bin_count(5) << more) - 1


@pytest.mark.parametrize("start", [0.03, 0.51, 0.97])
def test_parts_tell_apart_what_is_within_a_bin(start: float) -> None:
    p = np.linspace(start, start + 0.2 * min(start, 1 - start), 10_000)
    keys = [int(key) for key in grid.score_keys(p)]
    bins, parts = len({_bin(key, 5) for key in keys}), len({_part(key, 5, 3) for key in keys})
    assert parts > 6 * bins


@settings(max_examples=100, deadline=None)
@given(st.floats(0, 1), st.sampled_from([4, 7, 10]))
def test_a_score_lies_between_the_edges_of_its_bin(p: float, bits: int) -> None:
    edges = grid.bin_edges(bits)
    b = _bin(int(grid.score_keys(np.array([p]))[0]), bits)
    assert 0 <= b < grid.bin_count(bits) == len(edges) - 1
    assert edges[b] <= p <= edges[b + 1]


def test_p_one_shares_the_last_bin_with_its_neighbours() -> None:
    keys = grid.score_keys(np.array([1.0, 1 - 2**-53, 1 - 1e-9, 0.0, 5e-324, 1e-9]))
    bins = [_bin(int(k), 10) for k in keys]
    assert bins[:3] == [grid.bin_count(10) - 1] * 3
    assert bins[3:] == [0] * 3


@pytest.mark.parametrize("bits", [7, 10])
def test_bins_are_fine_near_zero_and_near_one(bits: int) -> None:
    edges = grid.bin_edges(bits)
    inside = (edges[:-1] > 1e-6) & (edges[1:] < 1 - 1e-6)
    width = np.diff(edges)[inside]
    distance = np.minimum(edges[:-1], 1 - edges[1:])[inside]
    assert (width <= distance * 2.0**-bits * 1.001).all()

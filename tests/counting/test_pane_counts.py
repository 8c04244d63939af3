"""Events counted by pane: as NumPy counts them, in any order, however far apart."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval.counting.pane_counts import pair_counts, pane_counts

TIMES = st.lists(
    st.one_of(st.integers(-500, 500), st.integers(-(1 << 60), 1 << 60), st.integers(10**12, 10**12 + 100)), max_size=200
)


@given(TIMES, st.integers(1, 200), st.integers(1, 10**7))
def test_pairs_are_counted_as_by_one_division_each(times: list[int], length: int, other: int) -> None:
    first = np.array(times, np.int64)
    second = first[::-1].copy()
    found: Counter[tuple[int, int]] = Counter()
    least: dict[tuple[int, int], int] = {}
    for a, b, n, low in pair_counts(first, length, second, other):
        assert n > 0
        found[a, b] += n
        least[a, b] = min(low, least.get((a, b), low))
    pairs = list(zip((first // length).tolist(), (second // other).tolist(), strict=True))
    assert found == Counter(pairs)
    for pair, low in least.items():
        assert low == min(t for t, one in zip(second.tolist(), pairs, strict=True) if one == pair)
    panes: Counter[int] = Counter()
    for pane, n in pane_counts(first, length):
        panes[pane] += n
    assert panes == Counter((first // length).tolist())


@pytest.mark.parametrize("panes", [1, 3, 32])
def test_few_panes_in_any_order_have_an_entry_each(panes: int) -> None:
    ts = np.random.default_rng(1).integers(0, panes * 100, 5_000)
    found = pane_counts(ts, 100)
    assert len(found) == panes
    assert sum(n for _, n in found) == ts.size

"""Entries of a sampled log are sorted with their copies, however many groups there are."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.sketches.sorted_lists import by_entry, entries


@pytest.mark.parametrize("groups", [3, 1 << 22, 1 << 31])
@pytest.mark.parametrize("most", [1, 1_000])
def test_entries_are_in_order_of_entry_then_copies(groups: int, most: int) -> None:
    rng = np.random.default_rng(0)
    n = 2_000
    slot = (groups - 1 - rng.integers(0, 3, n)).astype(np.int32)  # beyond 2**22 groups, both do not fit 64 bits
    key, label = rng.integers(0, 1 << 31, 40).astype(np.uint32)[rng.integers(0, 40, n)], rng.integers(0, 2, n)
    given, copies = entries(slot, key, label.astype(np.int8)), rng.integers(1, most + 1, n).astype(np.uint32)
    found = by_entry(given, copies)
    assert found.copies.dtype == np.uint32
    pairs = [*zip(found.entries.tolist(), found.copies.tolist(), strict=True)]
    assert pairs == sorted(zip(given.tolist(), copies.tolist(), strict=True))


def test_nothing_is_in_order() -> None:
    found = by_entry(np.empty(0, np.uint64), np.empty(0, np.uint32))
    assert found.entries.size == found.copies.size == 0

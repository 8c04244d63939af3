"""The filter knows every id that it was given, and few others."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streameval.events.hashing import hash_strings
from streameval.join.cold.filter import IdFilter

ids = st.lists(st.integers(0, (1 << 64) - 1), max_size=200).map(lambda some: np.array(some, np.uint64))


@given(ids, ids, ids)
def test_every_id_that_was_given_is_known(first: np.ndarray, then: np.ndarray, others: np.ndarray) -> None:
    known = IdFilter.of([np.sort(first)])
    known.add(then)
    assert known.known(np.concatenate((first, then))).tolist() == list(range(first.size + then.size))
    assert set(known.known(np.concatenate((others, then))).tolist()) >= set(range(others.size, others.size + then.size))


def test_full_it_takes_one_in_two_hundred_of_other_ids_for_known_and_twelve_bits_an_id() -> None:
    rng = np.random.default_rng(1)
    some = rng.integers(1, 1 << 64, 600_000, dtype=np.uint64)
    known = IdFilter(400_000)
    known.add(some[:400_000])
    assert known.used == known.capacity
    assert known.nbytes * 8 <= 12.1 * 400_000
    assert 0.001 < known.known(some[400_000:]).size / 200_000 < 0.005


def test_hashes_of_names_that_are_alike_fill_it_evenly() -> None:
    names = hash_strings([f"request-7/{i}" for i in range(60_000)])
    known = IdFilter.of([np.sort(names[:20_000]), np.sort(names[20_000:40_000])])
    assert known.known(names[:40_000]).size == 40_000
    assert known.known(names[40_000:]).size < 200  # of 20,000


def test_one_that_is_made_of_ids_has_room_for_a_third_more() -> None:
    known = IdFilter.of([np.arange(30_000, dtype=np.uint64), np.arange(30_000, dtype=np.uint64)])
    assert (known.used, known.capacity) == (60_000, 80_000)


def test_threads_set_what_one_sets() -> None:
    rng = np.random.default_rng(2)
    parts = [np.sort(rng.integers(0, 1 << 64, size, dtype=np.uint64)) for size in (70_000, 0, 130_001)]
    parts.append(np.array([0, (1 << 64) - 1], np.uint64))
    quick = IdFilter.of(parts)
    slow = IdFilter(quick.capacity)
    for part in parts:
        slow.add(part)
    assert quick.used == slow.used == 200_003
    np.testing.assert_array_equal(quick._words, slow._words)

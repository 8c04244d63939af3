"""The filter knows every id that it was given and what segment it is in, and few others."""

from __future__ import annotations

from pathlib import Path

import numba
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streameval.events.hashing import hash_strings
from streameval.join.cold.filter import IdFilter, Marked, mark_of, some_segments
from streameval.join.cold.ids import SortedIds, in_pages
from streameval.join.cold.segment import RowsFile

ids = st.lists(st.integers(0, (1 << 64) - 1), max_size=200).map(lambda some: np.array(some, np.uint64))
A, B, C = (mark_of(f"rows-0000000001-{number:010}") for number in range(3))


@numba.njit
def _here(words: NDArray[np.uint64], some: NDArray[np.uint64], marks: NDArray[np.uint64]) -> int:
    n = 0
    room = np.empty(marks.size, np.int64)
    for one in some:
        n += some_segments(words, one, marks, room)
    return n


def marked(mark: int, some: NDArray[np.uint64]) -> Marked:
    """Of ids in any order."""
    ordered = np.sort(some)
    pages, fence = in_pages(ordered, np.zeros(some.size, np.uint32))
    return Marked(mark, SortedIds.of_pages(some.size, pages, fence))


def here(known: IdFilter, some: NDArray[np.uint64], mark: int) -> int:
    """How many may be in a segment."""
    return int(_here(known.words, some, np.array([mark], np.uint64)))


@given(ids, ids, ids)
def test_every_id_that_was_given_is_known(first: np.ndarray, then: np.ndarray, others: np.ndarray) -> None:
    known = IdFilter.of([marked(A, first)])
    known.add(B, then)
    assert known.known(np.concatenate((first, then))).tolist() == list(range(first.size + then.size))
    assert set(known.known(np.concatenate((others, then))).tolist()) >= set(range(others.size, others.size + then.size))
    assert here(known, first, A) == first.size
    assert here(known, then, B) == then.size


def test_full_it_takes_few_other_ids_for_known_and_few_segments_for_an_ids() -> None:
    rng = np.random.default_rng(1)
    some = rng.integers(1, 1 << 64, 600_000, dtype=np.uint64)
    there, others = some[:400_000], some[400_000:]
    known = IdFilter(400_000)
    known.add(A, there[:100_000])
    known.add(B, there[100_000:])
    assert known.used == known.capacity
    assert known.nbytes * 8 <= 16.1 * 400_000
    false = others[known.known(others)]
    assert 0.02 < false.size / others.size < 0.075
    # a block that takes an id for known is fuller than others
    for mark, asked in ((A, false), (C, false), (A, there[100_000:]), (B, there[:100_000]), (C, there)):
        assert 0.004 < here(known, asked, mark) / asked.size < 0.025


def test_hashes_of_names_that_are_alike_fill_it_evenly() -> None:
    names = hash_strings([f"request-7/{i}" for i in range(60_000)])
    known = IdFilter.of([marked(A, names[:20_000]), marked(B, names[20_000:40_000])])
    assert known.known(names[:40_000]).size == 40_000
    assert known.known(names[40_000:]).size < 0.035 * 20_000


def test_one_that_is_made_of_ids_has_room_for_a_third_more() -> None:
    known = IdFilter.of(marked(mark, np.arange(30_000, dtype=np.uint64)) for mark in (A, B))
    assert (known.used, known.capacity) == (60_000, 80_000)


def test_threads_set_what_one_sets() -> None:
    rng = np.random.default_rng(2)
    parts = [np.sort(rng.integers(0, 1 << 64, size, dtype=np.uint64)) for size in (70_000, 0, 130_001)]
    parts.append(np.array([0, (1 << 64) - 1], np.uint64))
    marks = [mark_of(str(number)) for number in range(len(parts))]
    some = [marked(mark, part) for mark, part in zip(marks, parts, strict=True)]
    some[2] = Marked(marks[2], SortedIds.apart(parts[2], np.empty(0, np.uint32)))
    quick = IdFilter.of(some)
    slow = IdFilter(quick.capacity)
    for mark, part in zip(marks, parts, strict=True):
        slow.add(mark, part)
    assert quick.used == slow.used == 200_003
    np.testing.assert_array_equal(quick.words, slow.words)


def test_a_files_mark_is_of_its_name_and_stays_when_the_file_is_lost() -> None:
    file = RowsFile(Path("/some/where") / "rows-0000000001-0000000002", 16_384, None)
    assert file.mark == C
    assert len({A, B, C}) == 3
    assert all(mark % 2 for mark in (A, B, C))

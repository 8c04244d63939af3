"""Samples of users: consistent, mergeable, and as large as their limit allows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.sketches.codec import CodecError
from streameval.sketches.sorted_lists import entries as rank_entries
from streameval.store.history.user_samples import UserSample, collect, decode, depth, encode, rank, together

MASK = (1 << 64) - 1


def slow_depth(user: int) -> int:
    """SplitMix64's finaliser with Python's integers, and the zeros that the result begins with."""
    h = ((user ^ (user >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & MASK
    return 64 - (h ^ (h >> 31)).bit_length()


users = st.integers(0, MASK)
pairs = st.lists(st.tuples(st.sampled_from([*range(1, 40), MASK, 1 << 63]), st.integers(0, 9)), max_size=60)


def sample_of(rows: list[tuple[int, int]], k: int = 0) -> UserSample:
    kept = sorted((u, e) for u, e in rows if slow_depth(u) >= k)
    return UserSample(k, np.array([u for u, _ in kept], np.uint64), np.array([e for _, e in kept], np.uint32))


def listed(sample: UserSample) -> tuple[int, list[tuple[int, int]]]:
    return sample.k, list(zip(sample.users.tolist(), sample.entries.tolist(), strict=True))


@settings(deadline=None)
@given(st.lists(users, max_size=50))
def test_a_users_depth_is_the_zeros_its_mixed_hash_begins_with(ids: list[int]) -> None:
    assert depth(np.array(ids, np.uint64)).tolist() == [slow_depth(u) for u in ids]


@settings(deadline=None)
@given(pairs, st.integers(0, 3))
def test_a_sample_comes_back_from_its_bytes(rows: list[tuple[int, int]], k: int) -> None:
    sample = sample_of(rows, k)
    assert listed(decode(encode(sample))) == listed(sample)


@settings(deadline=None)
@given(pairs, st.integers(0, 60))
def test_a_fitted_sample_is_the_largest_one_of_whole_users_that_fits(rows: list[tuple[int, int]], most: int) -> None:
    fitted = sample_of(rows).fitted(most)
    assert listed(fitted) == listed(sample_of(rows, fitted.k))
    assert fitted.users.size <= most
    assert fitted.k == 0 or sample_of(rows, fitted.k - 1).users.size > most


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(pairs, st.integers(0, 3)), max_size=5), st.integers(0, 80))
def test_samples_put_together_in_any_order_and_grouping_are_the_sample_of_everybody(
    parts: list[tuple[list[tuple[int, int]], int]], most: int
) -> None:
    samples = [sample_of(rows, k) for rows, k in parts]
    k = max((k for _, k in parts), default=0)
    everybody = [row for rows, _ in parts for row in rows]
    expected = listed(sample_of(everybody, k).fitted(most))
    assert listed(together(samples, most)) == expected
    assert listed(together(samples[::-1], most)) == expected
    halves = [together(samples[:2], most), together(samples[2:], most)]
    assert listed(together(halves, most)) == expected


@settings(deadline=None)
@given(pairs, st.data())
def test_what_was_retracted_is_not_collected(rows: list[tuple[int, int]], data: st.DataObject) -> None:
    ids = np.unique(np.array([u for u, _ in rows], np.uint64))
    slot = np.searchsorted(ids, np.array([u for u, _ in rows], np.uint64)).astype(np.int32)
    packed = rank_entries(slot, np.array([e for _, e in rows], np.uint32), np.zeros(len(rows), np.int8))
    gone = data.draw(st.sets(st.integers(0, len(rows) - 1)) if rows else st.just(set()))
    out = collect([packed[:7], packed[7:]], [packed[sorted(gone)]], ids, 0, 1000)
    left = Counter((u, e << 1) for i, (u, e) in enumerate(rows) if i not in gone)
    assert Counter(zip(out.users.tolist(), out.entries.tolist(), strict=True)) == left


def test_damaged_or_foreign_bytes_are_refused() -> None:
    data = encode(sample_of([(1, 2), (3, 4)]))
    for bad in (b"", data[:10], data[:-1], b"XXXX" + data[4:], data[:4] + b"\x09" + data[5:], data[:-1] + b"\x00"):
        with pytest.raises(CodecError):
            decode(bad)


def test_a_sample_of_nobody_has_no_gauc() -> None:
    ranked, error = rank(sample_of([], 5), "impressions")
    assert (ranked.weight, ranked.users, ranked.impressions, error) == (0, 0, 0, None)


def test_an_entry_takes_no_more_than_its_hash_and_its_score() -> None:
    rng = np.random.default_rng(0)
    n = 1024  # the worst case: every entry another user, every score another one
    sample = together([UserSample(0, rng.integers(0, MASK, n, np.uint64), rng.integers(0, 1 << 32, n, np.uint32))], n)
    assert len(encode(sample)) <= 12.5 * n

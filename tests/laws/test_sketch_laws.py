"""The laws of idea 2 over a gallery of nasty streams."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.sketches.codec import CodecError, decode, encode
from streameval.sketches.directory import Directory
from streameval.sketches.grid import score_keys
from streameval.sketches.laws import check_sketch
from streameval.sketches.layout import Layout, Moments, read_buckets, read_histogram
from streameval.sketches.ranks import GroupRanks
from streameval.sketches.sorted_lists import ENTRY, NO_COPIES, SLOT, entries
from streameval.sketches.sparse import SparseVector
from streameval.sketches.weightings import worths
from streameval.testing import sketched
from tests.aucs import auc_of

LAYOUT = Layout(4, (0.01, 0.1))
NONE = np.empty(0, np.uint64)
scores = st.one_of(
    st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.5, 1e-300, 5e-324, 1 - 2**-53, 0.01, 0.1]), st.floats(1e-8, 1e-3)
)

streams = st.lists(st.tuples(st.integers(0, 2), scores, st.booleans()), max_size=40)


def sketch(stream: list[tuple[int, float, bool]], sign: int = 1) -> SparseVector:
    series = np.array([s[0] for s in stream], np.int32)
    return sketched(LAYOUT, series, np.array([s[1] for s in stream], float), np.array([s[2] for s in stream]), sign)


@settings(max_examples=60, deadline=None)
@given(streams, streams, streams)
def test_series_vectors_keep_the_laws(a: list, b: list, c: list) -> None:
    check_sketch(SparseVector.empty(), sketch(a), sketch(b), sketch(c), encode, decode)


@settings(max_examples=60, deadline=None)
@given(streams, st.randoms(use_true_random=False), st.integers(0, 40))
def test_any_order_split_and_retraction_gives_the_same_bits(stream: list, random: object, cut: int) -> None:
    whole = sketch(stream)
    shuffled = list(stream)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert sketch(shuffled) == whole
    assert sketch(stream[:cut]) + sketch(stream[cut:]) == whole
    assert whole + sketch(stream[:cut], -1) == sketch(stream[cut:])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(scores, st.booleans()), min_size=1, max_size=60))
def test_the_vector_holds_what_a_slow_twin_counts(stream: list) -> None:
    row = np.zeros(LAYOUT.size, np.int64)
    sketch([(0, p, y) for p, y in stream]).add_to(row)
    p, y = np.array([s[0] for s in stream]), np.array([s[1] for s in stream], int)
    m = Moments.read(row)
    assert (m.impressions, m.clicks) == (len(p), y.sum())
    q = np.clip(p, 1e-7, 1 - 1e-7)
    loss = -(y * np.log(q) + (1 - y) * np.log1p(-q))
    for ours, exact in ((m.pclick, p), (m.log_loss, loss), (m.squared, (p - y) ** 2), (m.absolute, abs(p - y))):
        assert ours == pytest.approx(exact.sum(), rel=1e-9, abs=1e-12 * len(p))
    bucket = np.searchsorted(LAYOUT.edges, p, side="right")
    for b, sums in enumerate(read_buckets(row, LAYOUT)):
        assert (sums.impressions, sums.clicks) == ((bucket == b).sum(), y[bucket == b].sum())
    negatives, positives = read_histogram(row, LAYOUT)
    assert (negatives.sum(), positives.sum()) == (len(p) - y.sum(), y.sum())


def test_bytes_that_are_damaged_cut_or_foreign_are_refused() -> None:
    data = encode(sketch([(0, 0.3, True), (1, 0.7, False)]))
    for bad in (data[:5], b"XXXX" + data[4:], data[:4] + b"\x07" + data[5:], data[:-1] + bytes([data[-1] ^ 1])):
        with pytest.raises(CodecError):
            decode(bad)


def grouped_auc(u: np.ndarray, p: np.ndarray, y: np.ndarray, v: np.ndarray, weighting: str) -> float | None:
    total = weight = 0.0
    for one in np.unique(u):
        on = u == one
        if 0 < y[on].sum() < on.sum():
            w = {"impressions": on.sum(), "clicks": y[on].sum(), "uniform": 1.0, "value": v[on & (y == 1)].sum()}[
                weighting
            ]
            total += w * auc_of(y[on], p[on])
            weight += w
    return total / weight if weight else None


@pytest.mark.parametrize("weighting", ["impressions", "clicks", "uniform", "value"])
@pytest.mark.parametrize("ties", [None, 1])
def test_gauc_of_every_weighting_equals_scikit_learn_per_user(weighting: str, ties: int | None) -> None:
    rng = np.random.default_rng(3)
    n = 4000
    u = np.concatenate((rng.integers(0, 300, n - 300), rng.integers(1000, 3000, 300)))  # some users of one impression
    p = rng.random(n) if ties is None else np.round(rng.random(n), ties)
    p[:20] = rng.integers(0, 2, 20)  # p = 0 and p = 1
    y = (rng.random(n) < p * 0.5).astype(np.int8)
    v = rng.gamma(2.0, 3.0, n)
    e = entries(u.astype(np.int32), score_keys(p), y)
    ranks = GroupRanks(weighting)
    for part in np.array_split(rng.permutation(n), 7):  # a user split over batches is one user
        clicked = part[y[part] == 1]
        values = worths(v[clicked])
        ranks.apply(np.sort(e[part]), NONE, 3000, u[clicked].astype(np.int32), values)
    assert ranks.gauc == pytest.approx(grouped_auc(u, p, y, v, weighting), abs=1e-9)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6), st.booleans()), max_size=80),
    st.lists(st.booleans(), min_size=80, max_size=80),
    st.integers(1, 9),
)
def test_ranks_forget_retracted_entries_bit_by_bit(stream: list, gone: list[bool], parts: int) -> None:
    u = np.array([s[0] for s in stream], np.int32)
    p = np.array([s[1] / 6 for s in stream])
    y = np.array([s[2] for s in stream], np.int8)
    e = entries(u, score_keys(p), y)
    out = np.array(gone[: len(stream)], bool)
    direct, roundabout = GroupRanks(), GroupRanks()
    direct.apply(np.sort(e[~out]), NONE, 6)
    for part in np.array_split(np.arange(len(stream)), parts):
        roundabout.apply(np.sort(e[part]), NONE, 6)
    roundabout.apply(NONE, np.sort(e[out]), 6)
    assert roundabout.terms() == direct.terms()
    assert (roundabout.eligible, roundabout.impressions, roundabout.groups) == (
        direct.eligible, direct.impressions, direct.groups,
    )  # fmt: skip
    for name, column in direct.columns().items():
        assert np.array_equal(roundabout.columns()[name], column), name


@pytest.mark.parametrize("with_copies", [False, True])
def test_lists_that_shrink_and_grow_while_their_arena_is_compacted_are_those_of_what_is_left(with_copies: bool) -> None:
    rng = np.random.default_rng(5)
    ranks = GroupRanks(with_copies=with_copies)
    there = np.empty(0, np.uint64)
    for turn in range(60):
        users = rng.integers(0, 40, 400 if turn % 7 else 4_000).astype(np.int32)
        new = np.sort(
            entries(users, score_keys(rng.random(users.size)), rng.integers(0, 2, users.size).astype(np.int8))
        )
        gone = rng.random(there.size) < (0.9 if turn % 7 == 1 else 0.1)
        old = there[gone]
        copies = (np.ones(new.size, np.uint32), np.ones(old.size, np.uint32)) if with_copies else (NO_COPIES, NO_COPIES)
        ranks.apply(new, old, 40, copies=copies)
        there = np.sort(np.concatenate((there[~gone], new)))
    for user in range(40):
        assert ranks.snapshot(user).tolist() == (there[there >> SLOT == user] & ENTRY).tolist()
    direct = GroupRanks()
    direct.apply(there, NONE, 40)
    assert ranks.terms() == direct.terms()


@pytest.mark.parametrize("together", [True, False], ids=["each user's n-th before any user's next", "in any order"])
def test_a_user_of_20_impressions_takes_at_most_200_bytes_when_no_user_comes_later_to_use_what_its_list_outgrew(
    together: bool,
) -> None:
    rng = np.random.default_rng(6)
    count, each = 20_000, 20
    order = np.concatenate([rng.permutation(count) for _ in range(each)])
    users = (order if together else rng.permutation(order)).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    directory, ranks, most = Directory(), GroupRanks(), 0.0
    for part in np.array_split(users, 400):
        labels = (rng.random(part.size) < 0.1).astype(np.int8)
        ranks.apply(
            np.sort(entries(directory.slots(part), score_keys(rng.random(part.size)), labels)), NONE, len(directory)
        )
        if ranks.impressions > 15 * count:
            most = max(most, (ranks.nbytes + directory.nbytes) / count)
    assert ranks.impressions == count * each
    assert most <= 200


def test_retracting_what_was_never_added_is_an_error_not_a_silent_drift() -> None:
    ranks = GroupRanks()
    ranks.apply(entries(np.array([0]), score_keys(np.array([0.5])), np.array([1])), NONE, 1)
    with pytest.raises(KeyError, match="never added"):
        ranks.apply(NONE, entries(np.array([0]), score_keys(np.array([0.25])), np.array([1])), 1)


def test_keeping_some_groups_is_as_if_the_others_had_never_come() -> None:
    rng = np.random.default_rng(0)
    u, p, y = rng.integers(0, 50, 2000), rng.random(2000), rng.integers(0, 2, 2000).astype(np.int8)
    ranks, fresh = GroupRanks(), GroupRanks()
    ranks.apply(np.sort(entries(u.astype(np.int32), score_keys(p), y)), NONE, 50)
    ranks.keep(np.arange(0, 50, 2))
    on = u % 2 == 0
    fresh.apply(np.sort(entries((u[on] // 2).astype(np.int32), score_keys(p[on]), y[on])), NONE, 25)
    assert ranks.terms() == fresh.terms()
    more = np.sort(entries(np.arange(25, dtype=np.int32), score_keys(rng.random(25)), np.ones(25, np.int8)))
    ranks.apply(more, NONE, 25)
    fresh.apply(more, NONE, 25)
    assert ranks.terms() == fresh.terms()

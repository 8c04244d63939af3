"""Entries of a history: merged lists are those of a dictionary, and what is found by its number stays what was made for it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.auction import entries
from streameval.auction import owed as owed_of_pairs
from streameval.auction.entries import Counts, counted, packed, summed, summed_by_pair, with_pairs
from streameval.auction.owed import Owed, PairRows
from streameval.auction.pairs import PairHistory, pair_of
from streameval.auction.rerun import USER_GROUPS
from streameval.events.durations import HOUR


def by_key(counts: Counts) -> dict[int, tuple[int, int]]:
    out: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for key, n, clicks in zip(*(column.tolist() for column in counts), strict=True):
        out[key] = out[key][0] + n, out[key][1] + clicks
    return dict(out)


@pytest.mark.parametrize("parts", [0, 1, 2, 5])
def test_hours_together_are_what_a_dictionary_counts(parts: int) -> None:
    rng = np.random.default_rng(parts)
    labels = [
        (rng.integers(0, 50, 400).astype(np.uint64), (rng.random(400) < 0.2).astype(np.int8)) for _ in range(parts)
    ]
    expected: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for keys, label in labels:
        for key, one in zip(keys.tolist(), label.tolist(), strict=True):
            expected[key] = expected[key][0] + 1, expected[key][1] + one
    found = summed([packed(counted(*one)).counts() for one in labels])
    assert by_key(found) == dict(expected)
    assert found.keys.tolist() == sorted(expected)


@pytest.mark.parametrize("chunk", [1, 64, 1 << 15])
@pytest.mark.parametrize("parts", [0, 1, 6])
def test_sums_by_pair_are_what_a_dictionary_counts(monkeypatch: pytest.MonkeyPatch, parts: int, chunk: int) -> None:
    """However many pairs are added up at a time; pairs that no hour has are left out."""
    monkeypatch.setattr(entries, "_CHUNK", chunk)
    rng, slots, bits = np.random.default_rng(parts), 5, (10, 4)
    pairs, hours = np.array([3, 1 << 40], np.uint64), []
    by_pair: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    by_group = np.zeros((slots, 16, 2), np.int64)
    for _ in range(parts):
        pair, position, group = (rng.integers(0, most, 300).astype(np.uint64) for most in (40, slots, 16))
        label = (rng.random(300) < 0.3).astype(np.int8)
        for i, k, g, clicked in zip(*(column.tolist() for column in (pair, position, group, label)), strict=True):
            by_pair[i, k][0] += 1
            by_pair[i, k][1] += clicked
            by_group[k, g] += (1, clicked)
        hours.append(packed(counted(pair << np.uint64(14) | position << np.uint64(4) | group, label)))
        pairs = with_pairs(pairs, hours[-1].keys, 14)
        assert pairs.tolist() == sorted({*pairs.tolist()})
    found = summed_by_pair(hours, pairs, slots, bits)
    keys = zip(np.repeat(found.pairs, np.diff(found.indptr)).tolist(), found.position.tolist(), strict=True)
    sums = zip(found.impressions.tolist(), found.clicks.tolist(), strict=True)
    assert [*zip(keys, map(list, sums), strict=True)] == sorted(by_pair.items())
    assert found.pairs.tolist() == sorted({pair for pair, _ in by_pair})
    assert np.array_equal(found.of_groups, by_group)


def test_tables_are_those_of_their_hours_whatever_was_made_before() -> None:
    """Hours come and go, are asked for again, and get further labels after tables of them were made."""
    rng = np.random.default_rng(4)

    def labels(hour: int, n: int) -> tuple[NDArray[np.uint64], NDArray[np.int8], NDArray[np.int64], NDArray[np.int64]]:
        pair, place = rng.integers(1, 60, n).astype(np.uint64) << np.uint64(14), rng.integers(0, 4, n).astype(np.uint64)
        return pair | place, (rng.random(n) < 0.3).astype(np.int8), np.full(n, hour * HOUR), rng.integers(0, 16, n)

    given = [labels(hour, int(rng.integers(1, 40))) for hour in (1, 2, 2, 4, 5, 3, 5)]
    asked = [1, 2, 2, 4, 5, 4, 6]
    history, seen = PairHistory(4, "within_pairs", 3, 1 << 20), []
    for some, hour in zip(given, asked, strict=True):
        history.add(*some)
        seen.append(some)
        history._made.clear()  # or what was made before these labels would stand
        alone = PairHistory(4, "within_pairs", 3, 1 << 20)
        for one in seen:
            alone.add(*one)
        a, b = history.at(hour), alone.at(hour)
        for mine, its in zip((a.pairs, a.of_position, *a.tables), (b.pairs, b.of_position, *b.tables), strict=True):
            assert np.array_equal(mine, its, equal_nan=True)


def test_a_checkpoint_of_more_slots_is_read_as_far_as_there_are_any() -> None:
    many, few = (PairHistory(slots, "observed", 2, 1 << 20) for slots in (900, 2))
    pair = np.arange(1, 5).astype(np.uint64) << np.uint64(14)
    place = np.array([0, 1, 1, 899], np.uint64)
    many.add(pair | place, np.ones(4, np.int8), np.full(4, HOUR), np.zeros(4, np.int64))
    few.restore(many.state())
    assert few.at(1).curves.impressions.tolist() == [1, 2]
    assert few.at(1).pairs.size == 3


def test_an_entry_of_more_than_it_can_hold_is_several() -> None:
    many = Counts(np.array([7, 9], np.uint64), np.array([200_000, 3]), np.array([70_000, 1]))
    hour = packed(many)
    assert hour.keys.tolist() == [7, 7, 7, 7, 9]
    assert by_key(hour.counts()) == by_key(summed([hour.counts()])) == by_key(many)


def test_rows_are_made_once_and_begin_anew_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owed_of_pairs, "_MOST", 100)
    owed, asked = Owed(), []

    def make(new: NDArray[np.uint64]) -> tuple[NDArray[np.bool_], PairRows]:
        asked.append(new.tolist())
        known = new % np.uint64(3) != 0
        rate = new[known].astype(np.float32)
        return known, PairRows(rate, np.repeat(rate[:, None], USER_GROUPS, axis=1) * 2.0)

    def ask(pair: NDArray[np.uint64]) -> None:
        rows, row = owed.of(pair, make)
        known = pair % np.uint64(3) != 0
        assert np.array_equal(rows.rate[row], np.where(known, pair, np.nan), equal_nan=True)
        assert np.array_equal(rows.owed[row, 3], np.where(known, pair * np.uint64(2), 0))

    rng = np.random.default_rng(0)
    for _ in range(30):
        ask(rng.integers(0, 90, 40).astype(np.uint64))
    assert all(some == sorted(set(some)) for some in asked)
    assert sum(map(len, asked)) <= 90, "none twice"
    for first in range(0, 1_000, 40):
        ask(np.arange(first, first + 40, dtype=np.uint64))
    assert owed.nbytes < 200 * 250
    for first in range(0, 3_000, 120):  # nobody knows them: one row of all
        ask(np.arange(first, first + 120, 3, dtype=np.uint64))
    assert owed.nbytes < 200 * 250


def test_pairs_are_found_where_they_stand_whatever_their_order() -> None:
    rng = np.random.default_rng(1)
    query, item = (rng.integers(1, 2**62, n).astype(np.uint64) for n in (20, 30))
    of_query, of_item = rng.integers(0, 20, 500), rng.integers(0, 30, 500)
    pair = pair_of(query[of_query], item[of_item])
    history = PairHistory(1, "observed", 2, 1 << 20)
    known = of_query % 3 > 0
    n = int(known.sum())
    history.add(pair[known] << np.uint64(10), np.zeros(n, np.int8), np.full(n, HOUR), np.zeros(n, np.int64))
    tables = history.at(1)
    number = tables.numbers(pair)
    assert np.array_equal(number < tables.pairs.size, known)
    assert np.array_equal(tables.pairs[number[known]], pair[known] >> np.uint64(4))
    assert tables.numbers(pair[:0]).size == 0
    assert (history.at(0).numbers(pair) == 0).all()

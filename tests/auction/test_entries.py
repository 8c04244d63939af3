"""Entries of a history: merged lists are those of a dictionary, and what is found by its number stays what was made for it."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.auction import owed as owed_of_pairs
from streameval.auction.entries import Counts, Hour, counted, packed, summed
from streameval.auction.owed import Owed, PairRows
from streameval.auction.pair_book import (
    MOST_HOURS,
    NO_BOOK,
    below,
    counts_of,
    entries_by_hour,
    hours_of,
    known_of,
    with_hours,
)
from streameval.auction.pairs import PairHistory, pair_of, placed_keys
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


def hours_given(rng: np.random.Generator, numbers: list[int]) -> list[tuple[int, int, int, int, int]]:
    """(hour, pair, position, group, label) of 300 labels an hour."""
    columns = [rng.integers(0, most, 300 * len(numbers)).tolist() for most in (40, 5, 16)]
    clicked = (rng.random(300 * len(numbers)) < 0.3).astype(int).tolist()
    return [*zip(np.repeat(numbers, 300).tolist(), *columns, clicked, strict=True)]


def hour_of(labels: list[tuple[int, int, int, int, int]]) -> Hour:
    _, pair, position, group, label = np.array(labels).reshape(-1, 5).T.astype(np.uint64)
    return packed(counted(pair << np.uint64(14) | position << np.uint64(4) | group, label.astype(np.int8)))


@pytest.mark.parametrize("together", [1, 2, 7])
def test_a_book_is_what_a_dictionary_counts(together: int) -> None:
    """However many hours are added at a time; those before its beginning are left out, and some get further labels."""
    rng, slots, numbers = np.random.default_rng(together), 5, [-3, -2, 0, 1, 2, 5, 6, 5, 6, 7]
    labels, book = hours_given(rng, numbers), NO_BOOK
    for i in range(0, len(numbers), together):
        some = sorted({*numbers[i : i + together]})
        begin = max(min(numbers), max(numbers[: i + together]) - 5)
        hours = [(h, hour_of([x for x in labels[300 * i : 300 * (i + together)] if x[0] == h])) for h in some]
        book = with_hours(book, hours, begin)
        known = [x for x in labels[: 300 * (i + together)] if x[0] >= begin]
        kept = {h: [x for x in known if x[0] == h] for h in {x[0] for x in known}}
        assert {h: [c.tolist() for c in one] for h, one in hours_of(book).items()} == {
            h: [c.tolist() for c in hour_of(own)] for h, own in kept.items()
        }
        assert entries_by_hour(book) == {h: hour_of(own).keys.size for h, own in kept.items()}
        for low, high in ((begin, begin + 5), (begin + 1, begin + 3), (begin - 9, begin - 1), (0, -1)):
            by_pair: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
            by_group = np.zeros((slots, 16, 2), np.int64)
            for _, pair, k, g, clicked in (x for x in known if low <= x[0] <= high):
                by_pair[pair, k][0] += 1
                by_pair[pair, k][1] += clicked
                by_group[k, g] += (1, clicked)
            counts, of_groups = counts_of(book, low, high, slots)
            keys = zip(np.repeat(book.pairs, np.diff(counts.indptr)).tolist(), counts.position.tolist(), strict=True)
            sums = zip(counts.impressions.tolist(), counts.clicks.tolist(), strict=True)
            assert [*zip(keys, map(list, sums), strict=True)] == sorted(by_pair.items())
            assert np.array_equal(of_groups, by_group)


def test_what_a_book_knows_of_pairs_is_added_up_hour_by_hour() -> None:
    rng = np.random.default_rng(3)
    labels, curve = hours_given(rng, [4, 5, 6, 7]), rng.random(5)
    labels = [x for x in labels if x[1] % 3 and (x[1] != 4 or x[0] == 7)]
    book = with_hours(NO_BOOK, [(h, hour_of([x for x in labels if x[0] == h])) for h in (4, 5, 6, 7)], 4)
    asked = np.sort(rng.permutation(60)[:50]).astype(np.uint64)
    known, n = known_of(asked, book, 5, 6, curve), 0
    for own, pair in zip(known.own.tolist(), asked.tolist(), strict=True):
        mine = [x for x in labels if x[1] == pair and 5 <= x[0] <= 6]
        assert own == bool(mine)
        if mine:
            clicks, chance = np.zeros((2, USER_GROUPS))
            for (_, k, g), of_hour in groupby(sorted((x[0], x[2], x[3]) for x in mine)):
                chance[g] += len([*of_hour]) * curve[k]
            for _, _, _, g, clicked in mine:
                clicks[g] += clicked
            rate = clicks.sum() / chance.sum()
            rest = chance.sum() * np.maximum(1 - chance / chance.sum(), 0.1)
            assert np.array_equal(known.owed[n], (clicks - rate * chance) / rest), "to the bit"
            assert known.rate[n] == pytest.approx(rate, rel=1e-6)
            n += 1
    assert known.rate.size == n > 10


def test_a_book_forgets_the_pairs_beyond_one() -> None:
    labels = hours_given(np.random.default_rng(5), [4, 6])
    whole, few = (
        with_hours(NO_BOOK, [(h, hour_of([x for x in labels if x[0] == h and x[1] < most])) for h in (4, 6)], 4)
        for most in (40, 17)
    )
    assert all(np.array_equal(a, b) for a, b in zip(below(whole, 17), few, strict=True))
    assert whole.nbytes == 12 * 40 + 8 * sum(entries_by_hour(whole).values())


def test_counts_that_an_entry_has_no_room_for_stay_several_in_a_book() -> None:
    many, more = (
        packed(Counts(np.array([7], np.uint64), np.array([n]), np.array([n // 4]))) for n in (100_000, 40_000)
    )
    book = with_hours(with_hours(NO_BOOK, [(1, many)], 1), [(1, more)], 1)
    counts, _ = counts_of(book, 1, 1, 1)
    assert (counts.impressions.tolist(), counts.clicks.tolist()) == ([140_000], [35_000])
    assert by_key(hours_of(book)[1].counts()) == {7: (140_000, 35_000)}


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
        history._owed.clear()
        alone = PairHistory(4, "within_pairs", 3, 1 << 20)
        for one in seen:
            alone.add(*one)
        a, b = history.at(hour), alone.at(hour)
        for mine, its in zip((a.of_position, *a.curves), (b.of_position, *b.curves), strict=True):
            assert np.array_equal(mine, its)
        every = np.arange(60).astype(np.uint64) << np.uint64(4)
        (mine, at), (its, of) = history.rows(a, every), alone.rows(b, every)
        for column, other in zip(mine, its, strict=True):
            assert np.array_equal(column[at], other[of], equal_nan=True)


def test_a_checkpoint_of_more_slots_is_read_as_far_as_there_are_any() -> None:
    many, few = (PairHistory(slots, "observed", 2, 1 << 20) for slots in (900, 2))
    pair = np.arange(1, 5).astype(np.uint64) << np.uint64(14)
    place = np.array([0, 1, 1, 899], np.uint64)
    many.add(pair | place, np.ones(4, np.int8), np.full(4, HOUR), np.zeros(4, np.int64))
    few.restore(many.state())
    assert few.at(1).curves.impressions.tolist() == [1, 2]
    assert (few.rows(few.at(1), pair >> np.uint64(10))[1] > 0).tolist() == [True] * 3 + [False]


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
    label = (rng.random(n) < 0.3).astype(np.int8)
    history.add(pair[known] << np.uint64(10), label, np.full(n, HOUR), np.zeros(n, np.int64))
    rows, at = history.rows(history.at(1), pair)
    assert np.array_equal(at > 0, known)
    clicked = defaultdict(list)
    for one, own in zip(pair[known].tolist(), label.tolist(), strict=True):
        clicked[one].append(own)
    rate = [np.mean(clicked[one]) if one in clicked else np.nan for one in pair.tolist()]
    assert rows.rate[at] == pytest.approx(rate, rel=1e-6, nan_ok=True)
    assert history.rows(history.at(1), pair[:0])[1].size == 0
    assert (history.rows(history.at(0), pair)[1] == 0).all()


def test_queries_that_no_longer_fit_are_taken_out_of_what_is_kept_by_pair() -> None:
    """Whether their hour was put there before or not."""
    rng = np.random.default_rng(6)
    query, place = rng.integers(1, 2**62, 600).astype(np.uint64), rng.integers(0, 4, 600).astype(float)
    pair, label = pair_of(query, query), (rng.random(600) < 0.3).astype(np.int8)
    group = rng.integers(0, 16, 600)
    small, whole = (PairHistory(4, "within_pairs", 3, budget) for budget in (36 * 350, 1 << 20))
    for history in (small, whole):
        for hour, some in ((1, slice(0, 300)), (2, slice(300, 600))):
            on = np.ones(300, np.bool_) if history is small else small.knows(pair[some])
            key = placed_keys(pair[some][on], place[some][on], 4)
            history.add(key, label[some][on], np.full(key.size, hour * HOUR), group[some][on])
            history.at(hour)
    assert (small.level, whole.level) == (1, 0)
    a, b = small.at(2), whole.at(2)
    for mine, its in zip((a.of_position, *a.curves), (b.of_position, *b.curves), strict=True):
        assert np.array_equal(mine, its)
    (mine, at), (its, of) = small.rows(a, pair), whole.rows(b, pair)
    assert np.array_equal(at > 0, small.knows(pair))
    for column, other in zip(mine, its, strict=True):
        assert np.array_equal(column[at], other[of], equal_nan=True)
    again = PairHistory(4, "within_pairs", 3, 36 * 350)
    again.restore(small.state())
    assert np.array_equal(again.at(2).curves.curve, a.curves.curve)
    assert again.nbytes == small.nbytes - small._owed[a.hours].nbytes


def test_a_book_has_its_last_hour_however_far_it_is_from_the_first() -> None:
    labels = hours_given(np.random.default_rng(7), [0])
    hour = hour_of(labels)
    book = with_hours(NO_BOOK, [(5, hour), (5 + MOST_HOURS, hour)], 5)
    assert [*hours_of(book)] == [*entries_by_hour(book)] == [5, 5 + MOST_HOURS]
    assert all(np.array_equal(a, b) for a, b in zip(hours_of(book)[5 + MOST_HOURS], hour, strict=True))
    history = PairHistory(4, "within_pairs", 1 << 20, 1 << 20)
    key, label = np.arange(1, 5).astype(np.uint64) << np.uint64(14), np.ones(4, np.int8)
    for far in (1, 3, 2 + MOST_HOURS):
        history.add(key, label, np.full(4, far * HOUR), np.zeros(4, np.int64))
    assert history.at(2 + MOST_HOURS).curves.impressions.sum() == 8, (
        "what is too old to be told from what is new is left out"
    )

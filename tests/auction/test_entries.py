"""Entries of a history: merged lists are those of a dictionary, and what is found by its number stays what was made for it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.auction import owed as owed_of_pairs
from streameval.auction.entries import NO_HOUR, Counts, Hour, counted, moved_on, packed, together
from streameval.auction.known import counts_of, known_of
from streameval.auction.owed import Owed
from streameval.auction.pairs import HourTables, PairHistory, pair_of, placed_keys
from streameval.auction.rerun import USER_GROUPS
from streameval.events.durations import HOUR


def by_key(counts: Counts) -> dict[int, tuple[int, int]]:
    out: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for key, n, clicks in zip(*(column.tolist() for column in counts), strict=True):
        out[key] = out[key][0] + n, out[key][1] + clicks
    return dict(out)


@pytest.mark.parametrize("parts", [0, 1, 2, 5])
def test_summed_hours_equal_counts_in_a_dictionary(parts: int) -> None:
    rng = np.random.default_rng(parts)
    labels = [
        (rng.integers(0, 50, 400).astype(np.uint64), (rng.random(400) < 0.2).astype(np.int8)) for _ in range(parts)
    ]
    expected: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for keys, label in labels:
        for key, one in zip(keys.tolist(), label.tolist(), strict=True):
            expected[key] = expected[key][0] + 1, expected[key][1] + one
    found = together([packed(counted(*one)) for one in labels]).counts()
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


def same(a: Hour, b: Hour) -> bool:
    return all(np.array_equal(mine, its) for mine, its in zip(a, b, strict=True))


@pytest.mark.parametrize("length", [1, 3, 9])
def test_moved_hours_equal_counts_in_a_dictionary(length: int) -> None:
    """To the bit what those hours are when they are put together anew, and as a dictionary counts them."""
    rng, slots, numbers = np.random.default_rng(length), 5, list(range(12))
    labels = hours_given(rng, numbers)
    hours = [hour_of([x for x in labels if x[0] == h]) for h in numbers]
    entries, never_clicked = NO_HOUR, 0
    for h in numbers:
        entries = moved_on(entries, hours[h], hours[h - length] if h >= length else NO_HOUR)
        known = [x for x in labels if h - length < x[0] <= h]
        assert same(entries, together(hours[max(0, h - length + 1) : h + 1]))
        assert same(entries, hour_of(known))
        by_pair: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
        by_group = np.zeros((slots, 16, 2), np.int64)
        for _, pair, k, g, clicked in known:
            by_pair[pair, k][0] += 1
            by_pair[pair, k][1] += clicked
            by_group[k, g] += (1, clicked)
        counts, of_groups = counts_of(entries, slots)
        of: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for (pair, k), (n, clicks) in sorted(by_pair.items()):
            of[pair].append((k, n, clicks))
        telling = [one for one in of.values() if len(one) > 1 and sum(clicks for *_, clicks in one)]
        never_clicked += len(of) - len(telling)
        columns = zip(counts.position.tolist(), counts.impressions.tolist(), counts.clicks.tolist(), strict=True)
        assert [*columns] == [row for one in telling for row in one]
        assert np.diff(counts.indptr).tolist() == [*map(len, telling)]
        assert np.array_equal(of_groups, by_group)
    assert never_clicked > 0
    assert same(moved_on(entries, NO_HOUR, entries), NO_HOUR)
    assert same(together([]), NO_HOUR)
    assert counts_of(NO_HOUR, slots)[0].indptr.tolist() == [0]


def test_what_is_known_about_pairs_covers_all_hours() -> None:
    rng = np.random.default_rng(3)
    labels, curve = hours_given(rng, [4, 5, 6, 7]), rng.random(5)
    labels = [x for x in labels if x[1] % 3]
    asked = np.sort(rng.permutation(60)[:50]).astype(np.uint64)
    row, rate, owed = np.empty(50, np.int32), np.zeros(60, np.float32), np.zeros((60, USER_GROUPS), np.float32)
    end, n = known_of(asked, hour_of(labels), curve, row, rate, owed, 3), 3
    for own, pair in zip(row.tolist(), asked.tolist(), strict=True):
        mine = [x for x in labels if x[1] == pair]
        assert own == (n if mine else 0)
        if mine:
            clicks, chance = np.zeros((2, USER_GROUPS))
            for _, _, k, g, clicked in mine:
                clicks[g] += clicked
                chance[g] += curve[k]
            known = clicks.sum() / chance.sum()
            rest = chance.sum() * np.maximum(1 - chance / chance.sum(), 0.1)
            assert owed[n] == pytest.approx((clicks - known * chance) / rest, rel=1e-5, abs=1e-6)
            assert rate[n] == pytest.approx(known, rel=1e-6)
            n += 1
    assert end == n > 13


def test_counts_that_an_entry_has_no_room_for_stay_several_when_hours_move_on() -> None:
    many, more, few = (
        packed(Counts(np.array([7, 9], np.uint64), np.array([n, 1]), np.array([n // 4, 1])))
        for n in (100_000, 40_000, 5)
    )
    both = moved_on(moved_on(many, few, NO_HOUR), more, few)
    assert same(both, packed(Counts(np.array([7, 9], np.uint64), np.array([140_000, 2]), np.array([35_000, 2]))))
    assert both.keys.tolist() == [7, 7, 7, 9]
    assert same(moved_on(both, few, many), moved_on(more, few, NO_HOUR)), "what entered first leaves again"


def known(tables: HourTables, pair: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether pairs have a history."""
    found, _, at = tables.rows(pair)
    return ~np.isnan(found.rate[at])


def same_rows(a: HourTables, b: HourTables, pair: NDArray[np.uint64]) -> bool:
    """Rates and residuals of pairs, and those of positions, to the bit."""
    (mine, owed, at), (its, of_its, of) = a.rows(pair), b.rows(pair)
    slots = mine.curve.size
    return (
        np.array_equal(mine.rate[at], its.rate[of], equal_nan=True)
        and np.array_equal(owed[at], of_its[of])
        and np.array_equal(owed[:slots], of_its[:slots])
    )


def test_tables_do_not_depend_on_earlier_tables() -> None:
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
        assert same(a.entries, b.entries)
        assert all(np.array_equal(mine, its) for mine, its in zip(a.curves, b.curves, strict=True))
        every = np.arange(60).astype(np.uint64) << np.uint64(4)
        assert same_rows(a, b, every)


def test_a_checkpoint_of_more_slots_is_read_as_far_as_there_are_any() -> None:
    many, few = (PairHistory(slots, "observed", 2, 1 << 20) for slots in (900, 2))
    pair = np.arange(1, 5).astype(np.uint64) << np.uint64(14)
    place = np.array([0, 1, 1, 899], np.uint64)
    many.add(pair | place, np.ones(4, np.int8), np.full(4, HOUR), np.zeros(4, np.int64))
    few.restore(many.state())
    assert few.at(1).curves.impressions.tolist() == [1, 2]
    assert known(few.at(1), pair >> np.uint64(10)).tolist() == [True] * 3 + [False]


def test_an_entry_of_more_than_it_can_hold_is_several() -> None:
    many = Counts(np.array([7, 9], np.uint64), np.array([200_000, 3]), np.array([70_000, 1]))
    hour = packed(many)
    assert hour.keys.tolist() == [7, 7, 7, 7, 9]
    assert by_key(hour.counts()) == by_key(many)


def test_rows_are_computed_once_and_the_cache_starts_over_when_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owed_of_pairs, "_MOST", 100)
    of_position, asked = np.arange(2.0)[:, None] * np.ones(USER_GROUPS), []
    owed = Owed(of_position)

    def make(
        new: NDArray[np.uint64],
        row: NDArray[np.int32],
        rate: NDArray[np.float32],
        to: NDArray[np.float32],
        first: int,
    ) -> int:
        asked.append(new.tolist())
        known = new % np.uint64(3) != 0
        end = first + int(known.sum())
        row[:], row[known] = 0, np.arange(first, end)
        rate[first:end], to[first:end] = new[known], new[known][:, None] * 2.0
        return end

    def ask(pair: NDArray[np.uint64]) -> None:
        rows, row = owed.of(pair, make)
        known = pair % np.uint64(3) != 0
        assert np.array_equal(rows.rate[row], np.where(known, pair, np.nan), equal_nan=True)
        assert np.array_equal(rows.owed[row, 3], np.where(known, pair * np.uint64(2), 0))
        assert np.array_equal(rows.owed[:2], of_position)
        assert rows.owed.ctypes.data % 64 == 0

    rng = np.random.default_rng(0)
    for _ in range(30):
        ask(rng.integers(0, 90, 40).astype(np.uint64))
    assert all(some == sorted(set(some)) for some in asked)
    assert sum(map(len, asked)) <= 90, "none twice"
    for first in range(0, 1_000, 40):
        ask(np.arange(first, first + 40, dtype=np.uint64))
    assert owed.nbytes < 250 * 250
    for first in range(0, 3_000, 120):  # nobody knows them: one row of all
        ask(np.arange(first, first + 120, 3, dtype=np.uint64))
    assert owed.nbytes < 250 * 250
    owed = Owed(of_position, owed)  # with room from the beginning
    ask(np.arange(500, dtype=np.uint64))


def test_pairs_are_found_where_they_stand_whatever_their_order() -> None:
    rng = np.random.default_rng(1)
    query, item = (rng.integers(1, 2**62, n).astype(np.uint64) for n in (20, 30))
    of_query, of_item = rng.integers(0, 20, 500), rng.integers(0, 30, 500)
    pair = pair_of(query[of_query], item[of_item])
    history = PairHistory(1, "observed", 2, 1 << 20)
    known_pairs = of_query % 3 > 0
    n = int(known_pairs.sum())
    label = (rng.random(n) < 0.3).astype(np.int8)
    history.add(pair[known_pairs] << np.uint64(10), label, np.full(n, HOUR), np.zeros(n, np.int64))
    tables, _, at = history.at(1).rows(pair)
    assert np.array_equal(~np.isnan(tables.rate[at]), known_pairs)
    clicked = defaultdict(list)
    for one, own in zip(pair[known_pairs].tolist(), label.tolist(), strict=True):
        clicked[one].append(own)
    rate = [np.mean(clicked[one]) if one in clicked else np.nan for one in pair.tolist()]
    assert tables.rate[at] == pytest.approx(rate, rel=1e-6, nan_ok=True)
    assert history.at(1).rows(pair[:0])[2].size == 0
    assert not known(history.at(0), pair).any()


def test_queries_that_no_longer_fit_are_removed_from_the_tables() -> None:
    """Whether their hour was put there before or not."""
    rng = np.random.default_rng(6)
    query, place = rng.integers(1, 2**62, 600).astype(np.uint64), rng.integers(0, 4, 600).astype(float)
    pair, label = pair_of(query, query), (rng.random(600) < 0.3).astype(np.int8)
    group = rng.integers(0, 16, 600)
    small, whole = (PairHistory(4, "within_pairs", 3, budget) for budget in (36 * 350, 1 << 20))
    for history in (small, whole):
        for hour, some in ((1, slice(0, 300)), (2, slice(300, 600))):
            on = np.ones(300, np.bool_) if history is small else small.knows(pair[some])
            key = placed_keys(query[some][on], query[some][on], place[some][on], 4)
            history.add(key, label[some][on], np.full(key.size, hour * HOUR), group[some][on])
            history.at(hour)
    assert (small.level, whole.level) == (1, 0)
    a, b = small.at(2), whole.at(2)
    assert all(np.array_equal(mine, its) for mine, its in zip(a.curves, b.curves, strict=True))
    assert same_rows(a, b, pair[small.knows(pair)])
    assert np.array_equal(known(a, pair), small.knows(pair))
    again = PairHistory(4, "within_pairs", 3, 36 * 350)
    again.restore(small.state())
    assert np.array_equal(again.at(2).curves.curve, a.curves.curve)
    assert same_rows(again.at(2), a, pair)


def test_the_latest_hour_enters_also_when_hours_were_skipped_or_forgotten() -> None:
    labels = hours_given(np.random.default_rng(7), [0])
    history, alone = (PairHistory(5, "within_pairs", 3, 1 << 20) for _ in range(2))
    for hour, asked in ((1, 1), (2, 2), (3, 3), (9, 9), (10, 11), (12, 12)):
        some = labels[20 * hour : 20 * hour + 60]
        _, pair, place, group, label = np.array(some).T
        key = (pair.astype(np.uint64) << np.uint64(14)) | place.astype(np.uint64)
        for one in (history, alone):
            one.add(key, label.astype(np.int8), np.full(60, hour * HOUR), group)
        found = history.at(asked)
        history.forget_before(asked)
        history.forget_tables_before(asked)
        again = PairHistory(5, "within_pairs", 3, 1 << 20)
        again.restore(alone.state())
        assert same(found.entries, again.at(asked).entries)
        assert same_rows(found, again.at(asked), np.arange(40).astype(np.uint64) << np.uint64(4))

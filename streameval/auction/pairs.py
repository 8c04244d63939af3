"""The history of clicks by (query, ad) and position of a running stream, by the hour in which labels became final.

An entry is for a pair, a position, a group of users and an hour, with at most 65,535 impressions: it takes 12 bytes
until an hour's tables need it, then 8 beside the other entries of its pair, which has 12. When they exceed the memory
limit, only a share of the queries is kept: those with the lowest hashes, half as many each time, so that a kept query
has its whole history. Memory is computed as in earlier versions, in which each hour had its own entries and tables, so
that the kept share does not change with an upgrade.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.auction.entries import NO_HOUR, Hour, counted, packed, summed
from streameval.auction.history import ClickCurves, curves_of, nearest_shown
from streameval.auction.owed import Owed, PairRows
from streameval.auction.pair_book import (
    GROUP_BITS,
    MOST_HOURS,
    NO_BOOK,
    PAIR_BYTES,
    PLACE_BITS,
    POSITION_BITS,
    below,
    counts_of,
    entries_by_hour,
    hours_of,
    known_of,
    with_hours,
)
from streameval.auction.rerun import ClickTables
from streameval.events.durations import HOUR
from streameval.sketches.directory import mix

# of a key, above the pair: so the entries of a query stand together, and those of the lowest hashes come first
_QUERY_BITS = 20
_PAIR_MASK = (1 << (64 - POSITION_BITS - _QUERY_BITS)) - 1
_ENTRY = 12  # bytes
_DROPPED = GROUP_BITS  # bits of a pair, that entries have not: the lowest ones of its ad
_FORMAT = 2
_WAITING = 1 << 16  # labels that are put into their hour in one go


@numba.njit(cache=True, nogil=True)
def pair_of(query: NDArray[np.uint64], item: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The pairs of n (query, ad): 54 bits."""
    out = np.empty(query.size, np.uint64)
    low = np.uint64(64 - POSITION_BITS - _QUERY_BITS)
    for i in range(query.size):
        of_query = mix(query[i])
        out[i] = (of_query >> np.uint64(64 - _QUERY_BITS) << low) | (mix(of_query ^ item[i]) & np.uint64(_PAIR_MASK))
    return out


@numba.njit(cache=True, nogil=True)
def placed_keys(pair: NDArray[np.uint64], position: NDArray[np.float64], slots: int) -> NDArray[np.uint64]:
    """Keys of n impressions that were shown, uint64[n]; 0: the position is not known, or not one of the slots."""
    out = np.zeros(pair.size, np.uint64)
    for i in range(pair.size):
        if position[i] >= 0.0 and position[i] < slots:
            out[i] = (pair[i] << np.uint64(POSITION_BITS)) | np.uint64(np.int64(position[i]))
    return out


@numba.njit(inline="always")
def _entry(key: np.uint64, group: np.uint64) -> np.uint64:
    """The key of an entry, of one of `placed_keys` and a group of users: pair, position, group."""
    place = key & np.uint64((1 << POSITION_BITS) - 1)
    pair = key >> np.uint64(POSITION_BITS + _DROPPED)
    return (pair << np.uint64(PLACE_BITS)) | (place << np.uint64(GROUP_BITS)) | group


@numba.njit(cache=True, nogil=True)
def _of_first_group(key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The keys of n entries, of `placed_keys`."""
    out = np.empty(key.size, np.uint64)
    for i in range(key.size):
        out[i] = _entry(key[i], np.uint64(0))
    return out


class HourTables(NamedTuple):
    """What is known at the start of an hour."""

    curves: ClickCurves
    hours: tuple[int, ...]  # that it is of
    of_position: NDArray[np.float64]  # [slots, USER_GROUPS], see `rerun.Residuals`

    def of_pairs(self, rate: NDArray[np.float32]) -> ClickTables:
        """As auctions read them, with the rates of the pairs that there are."""
        return ClickTables(rate, self.curves.curve, self.curves.reference, self.curves.shown)


class PairHistory:
    """The labels of the last `hours`, and the tables made of them."""

    def __init__(self, slots: int, curve: Literal["within_pairs", "observed"], hours: int, budget: int) -> None:
        """`budget`: bytes."""
        self._slots = slots
        self._curve: Literal["within_pairs", "observed"] = curve
        self._length = min(hours, MOST_HOURS)
        self.budget = budget
        self.level = 0  # the queries of the lowest 2 ** -level hashes are kept
        self._book = NO_BOOK
        self._in_book: dict[int, int] = {}  # entries of its hours that are not forgotten
        self._hours: dict[int, Hour] = {}  # labels that are not in the book
        self._waiting: dict[int, list[tuple[NDArray[np.uint64], NDArray[np.int8]]]] = {}
        self._new = 0  # labels that wait
        self._made: dict[int, HourTables] = {}
        self._owed: dict[tuple[int, ...], Owed] = {}  # by the hours of tables

    def add(
        self, key: NDArray[np.uint64], label: NDArray[np.int8], final: NDArray[np.int64], group: NDArray[np.int64]
    ) -> None:
        """Labels, when they became final, ms, and their groups of users, of USER_GROUPS; keys of 0 are left out."""
        hours, entries, labels = _entries(key, label, final, group)
        alike = hours.size > 0 and bool((hours == hours[0]).all())
        for one in hours[:1].tolist() if alike else np.unique(hours).tolist():
            on: Any = slice(None) if alike else hours == one
            self._waiting.setdefault(one, []).append((entries[on], labels[on]))
        self._new += hours.size
        if self._new >= _WAITING:
            self._settle()

    def at(self, hour: int) -> HourTables:
        """The tables of labels that were final by the start of an hour."""
        found = self._made.get(hour)
        if found is None:
            self._settle()
            known = sorted({*self._in_book, *self._hours})
            found = self._make(tuple(h for h in known if hour - self._length < h <= hour))
            self._made[hour] = found
            for old in sorted(self._made)[:-2]:  # a request may have begun in the hour before
                del self._made[old]
        return found

    def rows(self, known: HourTables, pair: NDArray[np.uint64]) -> tuple[PairRows, NDArray[np.int32]]:
        """(what tables know of pairs, which of these rows) of n pairs; of those of no history the rate is NaN."""
        owed = self._owed.get(known.hours)
        if owed is None:
            owed = self._owed[known.hours] = Owed()
            for old in list(self._owed)[:-2]:  # as many as tables
                del self._owed[old]
        return owed.of(pair >> np.uint64(_DROPPED), lambda new: self._rows_of(known, new))

    def _rows_of(self, known: HourTables, pair: NDArray[np.uint64]) -> tuple[NDArray[np.bool_], PairRows]:
        """`pair`: as in entries, ascending."""
        own, rate, owed = known_of(pair, self._book, *_span(known.hours), known.curves.curve)
        return own, PairRows(rate, owed)

    def knows(self, pair: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether the queries of pairs are kept."""
        return pair >> np.uint64(64 - POSITION_BITS - self.level) == 0 if self.level else np.ones(pair.size, np.bool_)

    def forget_before(self, hour: int) -> None:
        """Hours that the tables of `hour` and later ones do not have."""
        for hours in (self._hours, self._in_book):
            for old in [h for h in hours if h <= hour - self._length]:
                del hours[old]
        if not self._in_book:
            self._book = NO_BOOK

    def forget_tables_before(self, hour: int) -> None:
        """Tables of hours that are over; who asks for them nevertheless has them made again."""
        for old in [h for h in self._made if h < hour]:
            del self._made[old]
        in_use = {made.hours for made in self._made.values()}
        self._owed = {hours: owed for hours, owed in self._owed.items() if hours in in_use}

    @property
    def nbytes(self) -> int:
        """Bytes of the entries, those that wait, and what was looked up."""
        entries = sum(hour.keys.size for hour in self._hours.values()) * _ENTRY
        return entries + self._new * 9 + self._book.nbytes + sum(kept.nbytes for kept in self._owed.values())

    def state(self) -> dict[str, Any]:
        """Everything, for `restore`."""
        self._settle()
        hours = {hour: columns for hour, columns in hours_of(self._book).items() if hour in self._in_book}
        for hour, columns in self._hours.items():
            hours[hour] = packed(summed([hours.get(hour, NO_HOUR).counts(), columns.counts()]))
        return {
            "format": _FORMAT,
            "level": self.level,
            "hours": [[hour, *columns] for hour, columns in sorted(hours.items())],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` gave. Labels of an older one are all of the first group: what they add to errors is not known."""
        self.level = state["level"]
        for hour, keys, impressions, clicks in state["hours"]:
            entry = keys if state.get("format", 1) == _FORMAT else _of_first_group(keys)
            position = (entry >> np.uint64(GROUP_BITS)) & np.uint64((1 << POSITION_BITS) - 1)
            on = position < self._slots  # there may have been more then
            self._hours[hour] = packed(summed([Hour(entry[on], impressions[on], clicks[on]).counts()]))

    # -- inside --------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        for hour, parts in self._waiting.items():
            new = counted(np.concatenate([key for key, _ in parts]), np.concatenate([label for _, label in parts]))
            self._hours[hour] = self._within(packed(summed([self._hours.get(hour, NO_HOUR).counts(), new])))
        self._waiting, self._new = {}, 0
        while self._entries() * (_ENTRY + 2 * PAIR_BYTES) > self.budget and self.level < _QUERY_BITS:
            self.level += 1
            self._hours = {hour: self._within(columns) for hour, columns in self._hours.items()}
            self._book = below(self._book, 1 << (64 - PLACE_BITS - self.level))
            sizes = entries_by_hour(self._book)
            self._in_book = {hour: sizes.get(hour, 0) for hour in self._in_book}
            self._made, self._owed = {}, {}

    def _entries(self) -> int:
        return sum(hour.keys.size for hour in self._hours.values()) + sum(self._in_book.values())

    def _within(self, hour: Hour) -> Hour:
        """Of the queries that are kept."""
        if not self.level:
            return hour
        end = int(np.searchsorted(hour.keys, np.uint64(1 << (64 - self.level))))
        return Hour(hour.keys[:end].copy(), hour.impressions[:end].copy(), hour.clicks[:end].copy())

    def _make(self, hours: tuple[int, ...]) -> HourTables:
        self._write(hours)
        counts, of_groups = counts_of(self._book, *_span(hours), self._slots)
        curves = curves_of(counts, self._slots, self._curve)
        return HourTables(curves, hours, _of_position(of_groups, curves))

    def _write(self, hours: tuple[int, ...]) -> None:
        """Has these hours in the book."""
        new = sorted((hour, self._hours.pop(hour)) for hour in hours if hour in self._hours)
        for hour, columns in new:
            self._in_book[hour] = self._in_book.get(hour, 0) + columns.keys.size
        if not self._in_book:
            return
        begin = max(min(self._in_book), max(self._in_book) - MOST_HOURS)
        if new or begin > self._book.begin:
            self._book = with_hours(self._book, new, begin)


def _span(hours: tuple[int, ...]) -> tuple[int, int]:
    """(the first, the last) of hours."""
    return (hours[0], hours[-1]) if hours else (0, -1)


def _of_position(of_groups: NDArray[np.int64], curves: ClickCurves) -> NDArray[np.float64]:
    """`rerun.Residuals.of_position`, of impressions and clicks [slots, USER_GROUPS, 2]."""
    impressions, clicks = of_groups[:, :, 0], of_groups[:, :, 1]
    if not curves.shown.any():
        return np.zeros(impressions.shape)
    rest = clicks - (clicks.sum(axis=1) / np.maximum(impressions.sum(axis=1), 1))[:, None] * impressions
    out: NDArray[np.float64] = (rest / np.maximum(impressions.sum(axis=1), 1)[:, None])[nearest_shown(curves.shown)]
    return out


@numba.njit(cache=True, nogil=True)
def _entries(
    key: NDArray[np.uint64], label: NDArray[np.int8], final: NDArray[np.int64], group: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int8]]:
    """(hours that know them, keys of entries, labels) of those labels that have a key."""
    room, n = np.count_nonzero(key), 0
    hours, entries, labels = np.empty(room, np.int64), np.empty(room, np.uint64), np.empty(room, np.int8)
    for i in range(key.size):
        if key[i] != 0:
            hours[n], labels[n] = -(-final[i] // HOUR), label[i]
            entries[n] = _entry(key[i], np.uint64(group[i]))
            n += 1
    return hours, entries, labels

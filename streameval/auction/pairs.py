"""What a running stream remembers of clicks by (query, ad) and position: by the hour in which labels became final.

An entry is 12 bytes for a pair, a position, a group of users and an hour, 65,535 impressions of them at most; the tables of one hour
have 12 bytes a pair, whose rate is a number of 32 bits. When they would not fit the memory, only a share of the queries is kept: those
with the lowest hashes, half as many each time, so that a query that is kept has its whole history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.auction.entries import NO_HOUR, Hour, counted, packed, summed, summed_by_pair, with_pairs
from streameval.auction.history import ClickCurves, PairCounts, curves_of, nearest_shown, tables_of
from streameval.auction.owed import Owed, PairRows
from streameval.auction.rerun import USER_GROUPS, ClickTables
from streameval.events.durations import HOUR
from streameval.sketches.directory import mix

POSITION_BITS = 10  # of a key, below the pair
_QUERY_BITS = 20  # above it: so the entries of a query stand together, and those of the lowest hashes come first
_PAIR_MASK = (1 << (64 - POSITION_BITS - _QUERY_BITS)) - 1
_ENTRY, _PAIR = 12, 12  # bytes
_GROUP_BITS = USER_GROUPS.bit_length() - 1
_DROPPED = _GROUP_BITS  # bits of a pair, that entries have not: the lowest ones of its ad
_PLACE_BITS = POSITION_BITS + _GROUP_BITS  # of an entry's key, below the pair
_FORMAT = 2
_LEAST_REST = 0.1  # of a pair's history that leaving out a group of users leaves; less counts as that
_NO_PAIRS = np.empty(0, np.uint64)
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
    return (pair << np.uint64(_PLACE_BITS)) | (place << np.uint64(_GROUP_BITS)) | group


@numba.njit(cache=True, nogil=True)
def _of_first_group(key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The keys of n entries, of `placed_keys`."""
    out = np.empty(key.size, np.uint64)
    for i in range(key.size):
        out[i] = _entry(key[i], np.uint64(0))
    return out


class HourTables(NamedTuple):
    """What is known at the start of an hour."""

    pairs: NDArray[np.uint64]  # ascending, as in entries; the last rate of `tables` is that of all others
    tables: ClickTables
    curves: ClickCurves
    hours: tuple[int, ...]  # that it is of
    of_position: NDArray[np.float64]  # [slots, USER_GROUPS], see `rerun.Residuals`

    def numbers(self, pair: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Where pairs stand in the tables."""
        return _numbers(pair >> np.uint64(_DROPPED), self.pairs)


class PairHistory:
    """The labels of the last `hours`, and the tables made of them."""

    def __init__(self, slots: int, curve: Literal["within_pairs", "observed"], hours: int, budget: int) -> None:
        """`budget`: bytes."""
        self._slots = slots
        self._curve: Literal["within_pairs", "observed"] = curve
        self._length = hours
        self.budget = budget
        self.level = 0  # the queries of the lowest 2 ** -level hashes are kept
        self._hours: dict[int, Hour] = {}
        self._waiting: dict[int, list[tuple[NDArray[np.uint64], NDArray[np.int8]]]] = {}
        self._new = 0  # labels that wait
        self._made: dict[int, HourTables] = {}
        self._pairs, self._of = _NO_PAIRS, set[int]()  # of the tables made last; hours whose pairs are all among them
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
            found = self._make(tuple(h for h in sorted(self._hours) if hour - self._length < h <= hour))
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
        number = _numbers(pair, known.pairs)
        own = number < known.pairs.size
        pair, number = pair[own], number[own]
        clicks, chance = np.zeros((2, pair.size, USER_GROUPS))
        for hour in known.hours:
            _add_groups(pair, *self._hours.get(hour, NO_HOUR), known.tables.curve, clicks, chance)
        _owe(clicks, chance, clicks.sum(axis=1), chance.sum(axis=1))
        return own, PairRows(known.tables.rate[number], clicks)

    def knows(self, pair: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether the queries of pairs are kept."""
        return pair >> np.uint64(64 - POSITION_BITS - self.level) == 0 if self.level else np.ones(pair.size, np.bool_)

    def forget_before(self, hour: int) -> None:
        """Hours that the tables of `hour` and later ones do not have."""
        for old in [h for h in self._hours if h <= hour - self._length]:
            del self._hours[old]

    def forget_tables_before(self, hour: int) -> None:
        """Tables of hours that are over; who asks for them nevertheless has them made again."""
        for old in [h for h in self._made if h < hour]:
            del self._made[old]
        in_use = {made.hours for made in self._made.values()}
        self._owed = {hours: owed for hours, owed in self._owed.items() if hours in in_use}
        if not self._made:
            self._pairs, self._of = _NO_PAIRS, set()

    @property
    def nbytes(self) -> int:
        """Bytes of the entries, those that wait, and the tables."""
        entries = sum(hour.keys.size for hour in self._hours.values()) * _ENTRY
        owed = sum(kept.nbytes for kept in self._owed.values())
        return entries + self._new * 9 + sum(made.pairs.size for made in self._made.values()) * _PAIR + owed

    def state(self) -> dict[str, Any]:
        """Everything, for `restore`."""
        self._settle()
        return {
            "format": _FORMAT,
            "level": self.level,
            "hours": [[hour, *columns] for hour, columns in sorted(self._hours.items())],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` gave. Labels of an older one are all of the first group: what they add to errors is not known."""
        self.level = state["level"]
        for hour, keys, impressions, clicks in state["hours"]:
            entry = keys if state.get("format", 1) == _FORMAT else _of_first_group(keys)
            position = (entry >> np.uint64(_GROUP_BITS)) & np.uint64((1 << POSITION_BITS) - 1)
            on = position < self._slots  # there may have been more then
            self._hours[hour] = packed(summed([Hour(entry[on], impressions[on], clicks[on]).counts()]))

    # -- inside --------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        self._of.difference_update(self._waiting)
        for hour, parts in self._waiting.items():
            new = counted(np.concatenate([key for key, _ in parts]), np.concatenate([label for _, label in parts]))
            self._hours[hour] = self._within(packed(summed([self._hours.get(hour, NO_HOUR).counts(), new])))
        self._waiting, self._new = {}, 0
        while (
            sum(hour.keys.size for hour in self._hours.values()) * (_ENTRY + 2 * _PAIR) > self.budget
            and self.level < _QUERY_BITS
        ):
            self.level += 1
            self._hours = {hour: self._within(columns) for hour, columns in self._hours.items()}
            self._made, self._owed, self._pairs, self._of = {}, {}, _NO_PAIRS, set()

    def _within(self, hour: Hour) -> Hour:
        """Of the queries that are kept."""
        if not self.level:
            return hour
        end = int(np.searchsorted(hour.keys, np.uint64(1 << (64 - self.level))))
        return Hour(hour.keys[:end].copy(), hour.impressions[:end].copy(), hour.clicks[:end].copy())

    def _make(self, hours: tuple[int, ...]) -> HourTables:
        pairs = self._pairs
        for hour in hours:
            if hour not in self._of:
                pairs = with_pairs(pairs, self._hours[hour].keys, _PLACE_BITS)
        sums = summed_by_pair(
            [self._hours[hour] for hour in hours], pairs, self._slots, bits=(POSITION_BITS, _GROUP_BITS)
        )
        self._pairs, self._of = sums.pairs, set(hours)
        counts = PairCounts(sums.indptr, sums.position, sums.impressions, sums.clicks)
        curves = curves_of(counts, self._slots, self._curve)
        tables = tables_of(counts, curves)
        tables = tables._replace(rate=np.append(tables.rate, np.nan).astype(np.float32))
        return HourTables(sums.pairs, tables, curves, hours, _of_position(sums.of_groups, curves))


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


@numba.njit(cache=True, nogil=True)
def _numbers(pair: NDArray[np.uint64], pairs: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Where pairs, as in entries, stand in `pairs`, which are ascending; their number: nowhere.

    Those of one query stand together there: if they come one after the other, it is looked up once.
    """
    out = np.empty(pair.size, np.int32)
    of_query = np.uint64(64 - POSITION_BITS - _QUERY_BITS - _DROPPED)
    query, low, high = np.uint64(0), 0, -1
    for i in range(pair.size):
        own = pair[i]
        if high < 0 or own >> of_query != query:
            query = own >> of_query
            low = np.searchsorted(pairs, query << of_query)
            high = low + np.searchsorted(pairs[low:], (query + np.uint64(1)) << of_query)
        at = low + np.searchsorted(pairs[low:high], own)
        out[i] = at if at < high and pairs[at] == own else pairs.size
    return out


@numba.njit(cache=True, nogil=True)
def _owe(
    clicks: NDArray[np.float64],
    chance: NDArray[np.float64],
    every_click: NDArray[np.float64],
    every_chance: NDArray[np.float64],
) -> None:
    """Makes `rerun.Residuals.of_pair` of n pairs, [n, USER_GROUPS], of their clicks, given impressions by the curve."""
    for i in range(every_chance.size):
        every = every_chance[i]
        if not every > 0.0:
            clicks[i] = 0.0
            continue
        rate = every_click[i] / every
        for g in range(USER_GROUPS):
            rest = every * max(1.0 - chance[i, g] / every, _LEAST_REST)
            clicks[i, g] = (clicks[i, g] - rate * chance[i, g]) / rest


@numba.njit(cache=True, nogil=True)
def _add_groups(
    pairs: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    impressions: NDArray[np.uint16],
    clicks: NDArray[np.uint16],
    curve: NDArray[np.float64],
    clicked: NDArray[np.float64],
    chance: NDArray[np.float64],
) -> None:
    """Adds the entries of n pairs, ascending, to [n, USER_GROUPS]: clicks, and impressions by the curve."""
    bits, group_bits = np.uint64(_PLACE_BITS), np.uint64(_GROUP_BITS)
    positions, groups = np.uint64((1 << POSITION_BITS) - 1), np.uint64(USER_GROUPS - 1)
    at = 0
    for i in range(pairs.size):
        first, step = pairs[i] << bits, 8
        while at + step < keys.size and keys[at + step] < first:  # the next one is near
            at += step
            step *= 2
        at += np.searchsorted(keys[at : at + step + 1], first)
        while at < keys.size and keys[at] >> bits == pairs[i]:
            place, group = np.int64((keys[at] >> group_bits) & positions), np.int64(keys[at] & groups)
            clicked[i, group] += clicks[at]
            chance[i, group] += impressions[at] * curve[place]
            at += 1

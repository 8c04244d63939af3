"""The history of clicks by (query, ad) and position of a running stream, by the hour in which labels became final.

An entry is for a pair, a position, a group of users and an hour, with at most 65,535 impressions: it takes 12 bytes. So
does an entry of all hours together, from which tables are computed: with each hour one is added and one subtracted.
When they exceed the memory limit, only a share of the queries is kept: those with the lowest hashes, half as many each
time, so that a kept query has its complete history. Memory is computed as in earlier versions, in which each hour had
its own entries and tables, so that the kept share does not change with an upgrade.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.auction.entries import NO_HOUR, Hour, counted, moved_on, packed, together
from streameval.auction.history import ClickCurves, curves_from, nearest_shown
from streameval.auction.known import GROUP_BITS, PLACE_BITS, POSITION_BITS, counts_of, known_of
from streameval.auction.owed import Owed
from streameval.auction.rerun import ClickTables
from streameval.events.durations import HOUR
from streameval.sketches.blocks import block_of
from streameval.sketches.directory import mix
from streameval.sketches.list_cells import GROUP_SHIFT

# of a key, above the pair: so the entries of a query are adjacent, and those of the lowest hashes come first
_QUERY_BITS = 20
_PAIR_MASK = (1 << (64 - POSITION_BITS - _QUERY_BITS)) - 1
_ENTRY = 12  # bytes
_COUNTED_ENTRY = 36  # bytes per entry for the memory budget
_DROPPED = GROUP_BITS  # bits of a pair missing in entries: the lowest ones of its ad
_FORMAT = 2
_WAITING = 1 << 16  # labels that are merged into their hours at a time


@numba.njit(cache=True)
def pair_of(query: NDArray[np.uint64], item: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns the pairs of n (query, ad): 54 bits."""
    out = np.empty(query.size, np.uint64)
    for i in range(query.size):
        out[i] = _pair(query[i], item[i])
    return out


@numba.njit(cache=True)
def put_pairs(
    query: NDArray[np.uint64],
    item: NDArray[np.uint64],
    bid: NDArray[np.float64],
    to: NDArray[np.int64],
    out: tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.float64]],
) -> None:
    """Writes items, pairs and bids of rows to their places; -1: nowhere."""
    items, pairs, bids = out
    for i in range(np.uint64(to.size)):
        if to[i] >= 0:
            at = np.uint64(to[i])
            items[at], pairs[at], bids[at] = item[i], _pair(query[i], item[i]), bid[i]


@numba.njit(inline="always")
def _pair(query: np.uint64, item: np.uint64) -> np.uint64:
    of_query, low = mix(query), np.uint64(64 - POSITION_BITS - _QUERY_BITS)
    return (of_query >> np.uint64(64 - _QUERY_BITS) << low) | (mix(of_query ^ item) & np.uint64(_PAIR_MASK))


@numba.njit(cache=True)
def placed_keys(
    query: NDArray[np.uint64], item: NDArray[np.uint64], position: NDArray[np.float64], slots: int
) -> NDArray[np.uint64]:
    """Returns keys of n impressions that were shown, uint64[n]; 0: there is no item, or the position is not known, or
    not one of the slots.
    """
    out = np.zeros(item.size, np.uint64)
    for i in range(item.size):
        if item[i] != 0 and position[i] >= 0.0 and position[i] < slots:
            out[i] = (_pair(query[i], item[i]) << np.uint64(POSITION_BITS)) | np.uint64(np.int64(position[i]))
    return out


@numba.njit(cache=True)
def groups_of(user: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Returns the groups of n users, of USER_GROUPS."""
    out = np.empty(user.size, np.int64)
    for i in range(user.size):
        out[i] = block_of(user[i]) >> GROUP_SHIFT
    return out


@numba.njit(inline="always")
def _entry(key: np.uint64, group: np.uint64) -> np.uint64:
    """Returns the key of an entry, from one of `placed_keys` and a group of users: pair, position, group."""
    place = key & np.uint64((1 << POSITION_BITS) - 1)
    pair = key >> np.uint64(POSITION_BITS + _DROPPED)
    return (pair << np.uint64(PLACE_BITS)) | (place << np.uint64(GROUP_BITS)) | group


@numba.njit(cache=True)
def _of_first_group(key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns the keys of n entries, from `placed_keys`."""
    out = np.empty(key.size, np.uint64)
    for i in range(key.size):
        out[i] = _entry(key[i], np.uint64(0))
    return out


class HourTables:
    """What is known at the start of an hour."""

    def __init__(self, hours: tuple[int, ...], entries: Hour, curves: ClickCurves, owed: Owed) -> None:
        """`hours`: those included; `entries`: their sum."""
        self.hours, self.entries, self.curves, self._owed = hours, entries, curves, owed

    def rows(self, pair: NDArray[np.uint64]) -> tuple[ClickTables, NDArray[np.float32], NDArray[np.int32]]:
        """Returns (tables, residuals of `rerun.run_through`, the row of each of n pairs); the rate is NaN without a
        history.
        """
        (rate, owed), at = self._owed.of(pair >> np.uint64(_DROPPED), self._write)
        return ClickTables(rate, self.curves.curve, self.curves.reference, self.curves.shown), owed, at

    @property
    def looked_up(self) -> Owed:
        """The cache of pairs looked up."""
        return self._owed

    def _write(self, pair: NDArray[np.uint64], row: NDArray[np.int32], *to: Any) -> int:
        return known_of(pair, self.entries, self.curves.curve, row, *to)


class PairHistory:
    """The labels of the last `hours`, and the tables computed from them."""

    def __init__(self, slots: int, curve: Literal["within_pairs", "observed"], hours: int, budget: int) -> None:
        """`budget`: bytes."""
        self._slots = slots
        self._curve: Literal["within_pairs", "observed"] = curve
        self._length = hours
        self.budget = budget
        self.level = 0  # the queries with the lowest 2 ** -level of hashes are kept
        self._hours: dict[int, Hour] = {}
        self._waiting: dict[int, list[tuple[NDArray[np.uint64], NDArray[np.int8]]]] = {}
        self._new = 0  # waiting labels
        self._made: dict[int, HourTables] = {}
        self._latest: HourTables | None = None  # tables whose hours have had no new labels since

    def add(
        self, key: NDArray[np.uint64], label: NDArray[np.int8], final: NDArray[np.int64], group: NDArray[np.int64]
    ) -> None:
        """Adds labels, with the time when they became final, ms, and their groups of users, of USER_GROUPS; keys of 0
        are left out.
        """
        hours, entries, labels, alike = _entries(key, label, final, group)
        for one in hours[:1].tolist() if alike else np.unique(hours).tolist():
            on: Any = slice(None) if alike else hours == one
            self._waiting.setdefault(one, []).append((entries[on], labels[on]))
        self._new += hours.size
        if self._new >= _WAITING:
            self._settle()

    def at(self, hour: int) -> HourTables:
        """Returns the tables of labels that were final by the start of an hour."""
        found = self._made.get(hour)
        if found is None:
            self._settle()
            found = self._made[hour] = self._make(
                tuple(h for h in sorted(self._hours) if hour - self._length < h <= hour)
            )
            self._latest = found
            for old in sorted(self._made)[:-2]:  # a request may have begun in the previous hour
                del self._made[old]
        return found

    def knows(self, pair: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether the queries of pairs are kept."""
        return pair >> np.uint64(64 - POSITION_BITS - self.level) == 0 if self.level else np.ones(pair.size, np.bool_)

    def forget_before(self, hour: int) -> None:
        """Drops hours that the tables of `hour` and later ones do not include."""
        for old in [h for h in self._hours if h <= hour - self._length]:
            del self._hours[old]

    def forget_tables_before(self, hour: int) -> None:
        """Drops tables of hours that are over; if needed again, they are recomputed."""
        for old in [h for h in self._made if h < hour]:
            del self._made[old]

    @property
    def nbytes(self) -> int:
        """Size in bytes of the entries, waiting labels and looked-up pairs."""
        made = {id(one): one for one in (*self._made.values(), self._latest) if one is not None}.values()
        entries = sum(one.keys.size for one in (*self._hours.values(), *(one.entries for one in made)))
        return entries * _ENTRY + self._new * 9 + sum(one.looked_up.nbytes for one in made)

    def state(self) -> dict[str, Any]:
        """Returns everything, for `restore`."""
        self._settle()
        hours = [[hour, *columns] for hour, columns in sorted(self._hours.items())]
        return {"format": _FORMAT, "level": self.level, "hours": hours}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned. Labels of an older format all go to the first group: their effect on errors
        is not known.
        """
        self.level = state["level"]
        for hour, keys, impressions, clicks in state["hours"]:
            entry = keys if state.get("format", 1) == _FORMAT else _of_first_group(keys)
            position = (entry >> np.uint64(GROUP_BITS)) & np.uint64((1 << POSITION_BITS) - 1)
            on = position < self._slots  # there may have been more slots then
            self._hours[hour] = packed(Hour(entry[on], impressions[on], clicks[on]).counts())

    # -- inside --------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        for hour, parts in self._waiting.items():
            new = counted(np.concatenate([key for key, _ in parts]), np.concatenate([label for _, label in parts]))
            self._hours[hour] = self._within(moved_on(self._hours.get(hour, NO_HOUR), packed(new), NO_HOUR))
            if self._latest is not None and hour in self._latest.hours:
                self._latest = None
        self._waiting, self._new = {}, 0
        while self._entries() * _COUNTED_ENTRY > self.budget and self.level < _QUERY_BITS:
            self.level += 1
            self._hours = {hour: self._within(columns) for hour, columns in self._hours.items()}
            self._made, self._latest = {}, None

    def _entries(self) -> int:
        return sum(hour.keys.size for hour in self._hours.values())

    def _within(self, hour: Hour) -> Hour:
        """Returns the entries of the queries that are kept, in memory of their own."""
        end = int(np.searchsorted(hour.keys, np.uint64(1 << (64 - self.level)))) if self.level else hour.keys.size
        return Hour(hour.keys[:end].copy(), hour.impressions[:end].copy(), hour.clicks[:end].copy())

    def _make(self, hours: tuple[int, ...]) -> HourTables:
        latest = self._latest
        if latest is not None and latest.hours == hours:
            return latest
        if latest is None or not self._hours.keys() >= set(latest.hours) - set(hours):
            entries = together([self._hours[hour] for hour in hours])
        else:  # from one hour to the next most hours stay
            enters, leaves = (
                together([self._hours[hour] for hour in some if hour not in others])
                for some, others in ((hours, latest.hours), (latest.hours, hours))
            )
            entries = moved_on(latest.entries, enters, leaves)
        counts, of_groups = counts_of(entries, self._slots)
        by_position = of_groups.sum(axis=1)
        curves = curves_from(counts, by_position[:, 0], by_position[:, 1], self._curve)
        like = None if latest is None else latest.looked_up
        return HourTables(hours, entries, curves, Owed(_of_position(of_groups, curves), like))


def _of_position(of_groups: NDArray[np.int64], curves: ClickCurves) -> NDArray[np.float64]:
    """Returns the residuals of positions for `rerun.run_through`, from impressions and clicks [slots,
    USER_GROUPS, 2].
    """
    impressions, clicks = of_groups[:, :, 0], of_groups[:, :, 1]
    if not curves.shown.any():
        return np.zeros(impressions.shape)
    rest = clicks - (clicks.sum(axis=1) / np.maximum(impressions.sum(axis=1), 1))[:, None] * impressions
    out: NDArray[np.float64] = (rest / np.maximum(impressions.sum(axis=1), 1)[:, None])[nearest_shown(curves.shown)]
    return out


@numba.njit(cache=True)
def _entries(
    key: NDArray[np.uint64], label: NDArray[np.int8], final: NDArray[np.int64], group: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int8], bool]:
    """Returns (first hours whose tables include them, keys of entries, labels, whether the hours are all the same) for
    the labels that have a key.
    """
    room, n, alike, hour = np.count_nonzero(key), 0, True, np.int64(0)
    hours, entries, labels = np.empty(room, np.int64), np.empty(room, np.uint64), np.empty(room, np.int8)
    for i in range(key.size):
        if key[i] != 0:
            if (
                not (hour - 1) * HOUR < final[i] <= hour * HOUR
            ):  # labels of one hour are adjacent, and a division is slow
                hour, alike = -(-final[i] // HOUR), n == 0
            hours[n], labels[n] = hour, label[i]
            entries[n] = _entry(key[i], np.uint64(group[i]))
            n += 1
    return hours, entries, labels, alike

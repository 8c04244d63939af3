"""A sorted list of entries for every group, all in one arena of 4-byte cells; `ranks` counts pairs in them.

An entry is key << 1 | label; with its group's slot in the upper half, slot << 32 | key << 1 | label, it can be sorted together
with those of other groups, and added and retracted in bulk. If impressions have copies (see `copies`), a second arena has their
number, cell by cell, and entries are in order of (entry, copies).
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

SLOT = np.uint64(32)  # an entry's slot is in the bits from this one on
ENTRY = np.uint64(0xFFFFFFFF)  # mask of the other bits
NONE = np.int64(0xFFFFFFFF)  # end of a free list


class Lists(NamedTuple):
    """By slot: cells [offset, offset + length) of the arena are the list, and `capacity` cells from `offset` its block.

    `free`: by size class the first free block, whose first cell holds the offset of the next one, up to `NONE`.
    """

    offset: NDArray[np.uint32]
    length: NDArray[np.int32]
    capacity: NDArray[np.int32]
    free: NDArray[np.int64]
    arena: NDArray[np.uint32]
    copies: NDArray[np.uint32]  # of each cell; empty: 1 each


class Sorted(NamedTuple):
    """Entries in order, and the copies of each, in order where entries are equal; empty: 1 each."""

    entries: NDArray[np.uint64]
    copies: NDArray[np.uint32]


NO_COPIES = np.empty(0, np.uint32)


def by_entry(entries: NDArray[np.uint64], copies: NDArray[np.uint32]) -> Sorted:
    """Sorts n entries with their copies."""
    bits = np.uint64(int(copies.max(initial=0)).bit_length())
    if int(entries.max(initial=0)).bit_length() + int(bits) <= 64:  # copies in the low bits: a third of the time
        both = np.sort((entries << bits) | copies)
        return Sorted(both >> bits, (both & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.uint32))
    order = np.argsort(entries)
    some, many = entries[order], copies[order]
    _sort_ties(some, many)
    return Sorted(some, many)


@numba.njit(cache=True, nogil=True)
def _sort_ties(entries: NDArray[np.uint64], copies: NDArray[np.uint32]) -> None:
    i = 0
    while i < entries.size:
        j = i + 1
        same = True
        while j < entries.size and entries[j] == entries[i]:
            same &= copies[j] == copies[i]
            j += 1
        if not same:
            copies[i:j].sort()
        i = j


def entries(slot: NDArray[np.int32], key: NDArray[np.uint32], label: NDArray[np.int8]) -> NDArray[np.uint64]:
    """Entries of n scored impressions, not sorted."""
    group, score = slot.astype(np.uint64), key.astype(np.uint64)
    return np.bitwise_or(np.bitwise_or(group << SLOT, score << np.uint64(1)), label.astype(np.uint64))


def group_end(sorted_entries: NDArray[np.uint64], at: int) -> int:
    """The first index from `at` on at which a new group begins."""
    if at >= sorted_entries.size:
        return sorted_entries.size
    slot = sorted_entries[at - 1] >> SLOT
    return int(np.searchsorted(sorted_entries, (slot + np.uint64(1)) << SLOT))


@numba.njit(inline="always")
def room(size_class: int) -> int:
    """Cells of a block: 2, 3, 4, 6, 8, 12, 16, 24, ... so that at most a third is unused."""
    return (2 + (size_class & 1)) << (size_class >> 1)


@numba.njit(inline="always")
def size_class(size: int) -> int:
    """The smallest class whose blocks can hold `size` entries."""
    c = 0
    while room(c) < size:
        c += 1
    return c


@numba.njit(cache=True, nogil=True)
def measure(lists: Lists, add: NDArray[np.uint64]) -> tuple[int, int]:
    """(arena cells that adding sorted entries will need, longest list after it)."""
    need = np.int64(0)
    longest = np.int64(0)
    i = 0
    while i < add.size:
        slot = add[i] >> SLOT
        j = i
        while j < add.size and add[j] >> SLOT == slot:
            j += 1
        size = np.int64(lists.length[slot]) + (j - i)
        longest = max(longest, size)
        if size > lists.capacity[slot]:
            need += room(size_class(size))
        i = j
    return int(need), int(longest)


class Changes(NamedTuple):
    """Sorted entries to add to lists, and those to retract; see `Sorted`."""

    add: NDArray[np.uint64]
    sub: NDArray[np.uint64]
    add_copies: NDArray[np.uint32]
    sub_copies: NDArray[np.uint32]


@numba.njit(inline="always")
def merge(
    lists: Lists,
    slot: int,
    changes: Changes,
    a: int,
    s: int,
    merged: NDArray[np.uint32],
    many: NDArray[np.uint32],
) -> tuple[int, int, int, int]:
    """Writes a slot's list, with additions from `a` on and without retractions from `s` on, to `merged`, and its copies to `many`.

    Returns (entries in `merged`, first addition and first retraction of another slot, retractions that were not found).
    """
    add, sub, add_copies, sub_copies = changes
    with_copies = lists.copies.size > 0
    n = 0
    missing = np.int64(0)
    old = lists.offset[slot]
    end = old + lists.length[slot]
    copies = np.uint32(1)
    while True:
        more = a < add.size and np.int64(add[a] >> SLOT) == slot
        first = old < end and (not more or lists.arena[old] <= np.uint32(add[a] & ENTRY))
        if with_copies and first and more and lists.arena[old] == np.uint32(add[a] & ENTRY):
            first = lists.copies[old] <= add_copies[a]
        if first:
            entry = lists.arena[old]
            if with_copies:
                copies = lists.copies[old]
            old += 1
        elif more:
            entry = np.uint32(add[a] & ENTRY)
            if with_copies:
                copies = add_copies[a]
            a += 1
        else:
            break
        while s < sub.size and np.int64(sub[s] >> SLOT) == slot and np.uint32(sub[s] & ENTRY) < entry:
            missing += 1
            s += 1
        if with_copies:
            while (
                s < sub.size
                and np.int64(sub[s] >> SLOT) == slot
                and np.uint32(sub[s] & ENTRY) == entry
                and sub_copies[s] < copies
            ):
                missing += 1
                s += 1
        found = s < sub.size and np.int64(sub[s] >> SLOT) == slot and np.uint32(sub[s] & ENTRY) == entry
        if found and (not with_copies or sub_copies[s] == copies):
            s += 1
            continue
        merged[n] = entry
        if with_copies:
            many[n] = copies
        n += 1
    while s < sub.size and np.int64(sub[s] >> SLOT) == slot:
        missing += 1
        s += 1
    return n, a, s, int(missing)


@numba.njit(inline="always")
def _take_block(lists: Lists, slot: int, n: int, used: int) -> tuple[int, int]:
    """(offset of a block for n entries: the slot's own if they fit, arena cells in use)."""
    if n <= lists.capacity[slot]:
        return lists.offset[slot], used
    c = size_class(n)
    at = lists.free[c]
    if at == NONE:
        return used, used + room(c)
    lists.free[c] = np.int64(lists.arena[at])
    return at, used


@numba.njit(inline="always")
def _move_to(lists: Lists, slot: int, at: int, n: int) -> None:
    """Makes the n entries of the block `at` the slot's list; its own block becomes free if that is another one."""
    if n > lists.capacity[slot]:
        if lists.capacity[slot]:
            c = size_class(lists.capacity[slot])
            lists.arena[lists.offset[slot]] = np.uint32(lists.free[c])
            lists.free[c] = lists.offset[slot]
        lists.capacity[slot] = room(size_class(n))
        lists.offset[slot] = at
    lists.length[slot] = n


@numba.njit(inline="always")
def store(lists: Lists, slot: int, merged: NDArray[np.uint32], many: NDArray[np.uint32], n: int, used: int) -> int:
    """Stores the first n of `merged` as a slot's list, and those of `many` as its copies; returns the arena cells in use."""
    at, used = _take_block(lists, slot, n, used)
    _move_to(lists, slot, at, n)
    for i in range(n):
        lists.arena[at + i] = merged[i]
    if lists.copies.size > 0:
        for i in range(n):
            lists.copies[at + i] = many[i]
    return used


@numba.njit(inline="always")
def extend(
    lists: Lists, slot: int, clicks: int, add: NDArray[np.uint64], begin: int, end: int, used: int
) -> tuple[int, int, int]:
    """Adds the sorted entries begin .. end - 1, all of this slot, to its list without copies, which has this many clicks.

    Returns (arena cells in use, twice the concordant pairs that the entries make, with the list and each other, their clicks).
    From the highest key on: the list's entries above the least new one are moved once, and those below it are not read.
    Places are unsigned, which saves the checks for wrap-around: a quarter of the time.
    """
    arena, old = lists.arena, lists.offset[slot]
    i, one = old + lists.length[slot], np.uint32(1)
    n = i - old + (end - begin)
    at, used = _take_block(lists, slot, n, used)
    j = at + n
    pairs, passed, added = np.int64(0), np.int64(0), np.int64(0)  # clicks of the list from i on, new ones from `end` on
    while end > begin:
        click = np.uint32(add[np.uint64(end - 1)]) | one  # a click of this key; its non-clicks come before
        other = click - one
        while i > old:
            entry = arena[np.uint64(i - 1)]
            if entry <= click:
                break
            i, j = i - 1, j - 1
            arena[np.uint64(j)] = entry
            passed += np.int64(entry & one)
        above = passed + added
        while i > old and arena[np.uint64(i - 1)] == click:
            i, j = i - 1, j - 1
            arena[np.uint64(j)] = click
            passed += 1
        new_clicks = end
        while end > begin and np.uint32(add[np.uint64(end - 1)]) == click:
            end, j = end - 1, j - 1
            arena[np.uint64(j)] = click
        new_clicks -= end
        added += new_clicks
        tied = i
        while i > old and arena[np.uint64(i - 1)] == other:
            i, j = i - 1, j - 1
            arena[np.uint64(j)] = other
        tied -= i
        new_others = end
        while end > begin and np.uint32(add[np.uint64(end - 1)]) == other:
            end, j = end - 1, j - 1
            arena[np.uint64(j)] = other
        new_others -= end
        below = (i - old) - (clicks - passed)  # non-clicks
        pairs += new_others * (above + passed + added) + new_clicks * (2 * below + tied)
    if at != old:
        for k in range(i - old):
            arena[at + k] = arena[old + k]
    _move_to(lists, slot, at, n)
    return used, int(pairs), int(added)


@numba.njit(cache=True, nogil=True)
def fit(lists: Lists) -> None:
    """Lets every list have the smallest block that holds it; to be followed by `compact`, for the rest of its block is lost."""
    for slot in range(lists.length.size):
        n = lists.length[slot]
        lists.capacity[slot] = room(size_class(n)) if n else 0


@numba.njit(cache=True, nogil=True)
def compact(lists: Lists, out: NDArray[np.uint32], many: NDArray[np.uint32]) -> int:
    """Moves all blocks to `out`, and their copies to `many`, one behind the other; returns the cells used. No block is free."""
    used = 0
    for slot in range(lists.offset.size):
        old = lists.offset[slot]
        for i in range(lists.length[slot]):
            out[used + i] = lists.arena[old + i]
        if lists.copies.size > 0:
            for i in range(lists.length[slot]):
                many[used + i] = lists.copies[old + i]
        lists.offset[slot] = used
        used += lists.capacity[slot]
    lists.free[:] = NONE
    return used


@numba.njit(cache=True, nogil=True)
def gather(lists: Lists, of: NDArray[np.uint32], out: NDArray[np.uint32]) -> None:
    """Copies every list's cells of a column to `out`, without gaps, in slot order."""
    k = 0
    for slot in range(lists.offset.size):
        for i in range(lists.offset[slot], lists.offset[slot] + lists.length[slot]):
            out[k] = of[i]
            k += 1

"""Which ids a file probably has: a ribbon filter, 8.8 bits an id, that takes one other id in 250 for one of them.

Dillinger, Walzer, "Ribbon filter: practically smaller than Bloom and Xor" (2021), the homogeneous kind. An id has a first slot,
and a hash that says which of 64 slots from there on belong to it; eight bits a slot are such that those of an id's slots add up to 0,
modulo 2, in each of the eight columns. They are the solution of as many linear equations as there are ids, which always have one. Slots go by the
ids' size, and equations are solved 16,384 at a time, so ids in order need little memory, and an id is looked for in one or two lines of the cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from streameval.events.words64 import load64
from streameval.sketches.bits import zeros_below
from streameval.sketches.directory import mix

FORM = 2  # of the bits in a file: to be raised when they mean something else; 1 was a Bloom filter
_SHARD = 1 << 14  # ids whose equations are solved together
_ROOM = 1.1  # slots an id: at 1.05 five times as many others are taken for known
_COLUMNS = 8  # bits of a slot: each halves how many others are taken for known
_WINDOW = 64  # slots of an id
_SALT = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)


class Ribbon(NamedTuple):
    """The filter of some ids."""

    words: NDArray[np.uint64]  # of each 64 slots the first column, the second one, ...
    shards: int
    slots: int  # of a shard, a multiple of 64


def shape_of(ids: int) -> tuple[int, int, int]:
    """(words, shards, slots of a shard) of the filter of so many ids."""
    shards = max(1, -(-ids // _SHARD))
    slots = (int(ids / shards * _ROOM) // _WINDOW + 2) * _WINDOW
    return (shards * slots // _WINDOW + 1) * _COLUMNS, shards, slots  # a window may end where nothing is


class RibbonMaker:
    """Makes the filter of ids that come in order."""

    def __init__(self, ids: int) -> None:
        """`ids`: how many there will be."""
        words, shards, slots = shape_of(ids)
        self._made = Ribbon(np.zeros(words, np.uint64), shards, slots)
        self._equations = np.zeros(slots, np.uint64)  # of one shard: by their first slot
        self._shard = 0

    def add(self, ids: NDArray[np.uint64]) -> None:
        """The next ids; none is less than one of those before."""
        self._shard = _add(ids, self._shard, 0, self._equations, *self._made)

    def finish(self) -> Ribbon:
        """When all have come."""
        self._shard = _add(np.empty(0, np.uint64), self._shard, self._made.shards, self._equations, *self._made)
        return self._made


@intrinsic
def _odd(typing_context: Any, word: Any) -> Any:
    """1 when an odd number of bits is set, else 0."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.and_(builder.ctpop(args[0]), ir.Constant(ir.IntType(64), 1))

    return types.uint64(types.uint64), code


@numba.njit(inline="always")
def _hash_of(one: np.uint64) -> np.uint64:
    """Which slots from its first one on an id has; that one always."""
    return mix(one ^ _SALT) | _ONE


@numba.njit(inline="always")
def _part_of(one: np.uint64, shards: np.uint64) -> np.uint64:
    """The shard of an id in the upper half, and how far into it the id is in the lower one."""
    return (one >> np.uint64(32)) * shards + (((one & _HALF) * shards) >> np.uint64(32))


@numba.njit(inline="always")
def _first_slot(part: np.uint64, slots: np.uint64) -> np.uint64:
    """Of a shard's slots."""
    return ((part & _HALF) * (slots - np.uint64(_WINDOW - 1))) >> np.uint64(32)


@numba.njit(inline="always")
def may_have(words: int, shards: int, slots: int, one: np.uint64) -> bool:
    """Whether an id may be one of those of the filter whose words are at an address."""
    hashed = _hash_of(one)
    part = _part_of(one, np.uint64(shards))
    slot = (part >> np.uint64(32)) * np.uint64(slots) + _first_slot(part, np.uint64(slots))
    at, behind = words + int(slot // np.uint64(_WINDOW)) * 8 * _COLUMNS, slot % np.uint64(_WINDOW)
    here, next_one = hashed << behind, (hashed >> _ONE) >> (np.uint64(_WINDOW - 1) - behind)
    odd = np.uint64(0)
    for column in range(_COLUMNS // 2):  # most others are told by these
        odd |= _odd((load64(at + 8 * column) & here) ^ (load64(at + 8 * (_COLUMNS + column)) & next_one))
    if odd:
        return False
    for column in range(_COLUMNS // 2, _COLUMNS):
        odd |= _odd((load64(at + 8 * column) & here) ^ (load64(at + 8 * (_COLUMNS + column)) & next_one))
    return odd == 0


@numba.njit(cache=True, nogil=True)
def _add(
    ids: NDArray[np.uint64],
    shard: int,
    upto: int,
    equations: NDArray[np.uint64],
    words: NDArray[np.uint64],
    shards: int,
    slots: int,
) -> int:
    """Adds the ids' equations to those of the shard that is under way, solves whole ones, then those before `upto`; returns which
    is under way then."""
    for i in range(ids.size):
        part = _part_of(ids[i], np.uint64(shards))
        while shard < int(part >> np.uint64(32)):
            _solve(shard, equations, words)
            shard += 1
        slot, hashed = _first_slot(part, np.uint64(slots)), _hash_of(ids[i])
        while equations[slot]:  # is another one's: the difference begins later
            hashed ^= equations[slot]
            if not hashed:  # it follows from those that are there
                break
            zeros = zeros_below(hashed)
            hashed >>= zeros
            slot += zeros
        else:
            equations[slot] = hashed
    while shard < upto:
        _solve(shard, equations, words)
        shard += 1
    return shard


@numba.njit
def _solve(shard: int, equations: NDArray[np.uint64], words: NDArray[np.uint64]) -> None:
    """Sets the bits of a shard's slots, from the last one on, and leaves no equations."""
    after = np.zeros(_COLUMNS, np.uint64)  # bits of the slots behind
    first = shard * (equations.size // _WINDOW) * _COLUMNS
    for slot in range(equations.size - 1, -1, -1):
        equation = equations[slot]
        equations[slot] = 0
        free = mix(
            np.uint64(shard * equations.size + slot) ^ _SALT
        )  # were they 0, most others would be taken for known
        at = first + slot // _WINDOW * _COLUMNS
        for column in range(_COLUMNS):
            bits = after[column] << _ONE
            bit = _odd(bits & equation) if equation else (free >> np.uint64(column)) & _ONE
            after[column] = bits | bit
            words[at + column] |= bit << np.uint64(slot % _WINDOW)

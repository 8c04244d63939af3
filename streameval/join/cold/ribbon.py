"""Whether a file may have an id: a ribbon filter with 8.8 bits per id and one false positive in 250.

Dillinger, Walzer, "Ribbon filter: practically smaller than Bloom and Xor" (2021), homogeneous variant. An id has a first
slot, and a hash that selects some of the 64 slots from there on. Every slot has eight bits, one per column, chosen such
that over the slots of an id they sum to 0 modulo 2 in each column: a system of one linear equation per id, which always
has a solution. Slots are assigned in the order of ids, and equations are solved 16,384 at a time, so sorted ids need little
memory, and a query touches one or two cache lines.
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

FORM = 2  # of the bits in a file, raised when their meaning changes; 1 was a Bloom filter
_SHARD = 1 << 14  # ids solved together
_ROOM = 1.1  # slots per id: at 1.05 there are five times as many false positives
_COLUMNS = 8  # bits per slot: each halves the rate of false positives
_WINDOW = 64  # slots that an id may use
_SALT = np.uint64(0x9E3779B97F4A7C15)
_HALF, _HALF_BITS = np.uint64(0xFFFFFFFF), np.uint64(32)
_WORD_BYTES = _WINDOW // 8
_ONE = np.uint64(1)


class Ribbon(NamedTuple):
    """The filter of some ids."""

    words: NDArray[np.uint64]  # for every 64 slots, a word per column
    shards: int
    slots: int  # per shard, a multiple of 64


def shape_of(ids: int) -> tuple[int, int, int]:
    """(words, shards, slots per shard) of a filter of so many ids."""
    shards = max(1, -(-ids // _SHARD))
    slots = (int(ids / shards * _ROOM) // _WINDOW + 2) * _WINDOW
    return (shards * slots // _WINDOW + 1) * _COLUMNS, shards, slots  # the last window may reach beyond the slots


class RibbonMaker:
    """Builds a filter from sorted ids."""

    def __init__(self, ids: int) -> None:
        """`ids`: how many there will be."""
        words, shards, slots = shape_of(ids)
        self._made = Ribbon(np.zeros(words, np.uint64), shards, slots)
        self._equations = np.zeros(slots, np.uint64)  # of the current shard, by first slot
        self._shard = 0

    def add(self, ids: NDArray[np.uint64]) -> None:
        """Adds the next ids, in order."""
        self._shard = _add(ids, self._shard, 0, self._equations, *self._made)

    def finish(self) -> Ribbon:
        """The filter, when all ids have been added."""
        self._shard = _add(np.empty(0, np.uint64), self._shard, self._made.shards, self._equations, *self._made)
        return self._made


@intrinsic
def _odd(typing_context: Any, word: Any) -> Any:
    """1 if an odd number of bits is set, else 0."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.and_(builder.ctpop(args[0]), ir.Constant(ir.IntType(64), 1))

    return types.uint64(types.uint64), code


@numba.njit(inline="always")
def _hash_of(one: np.uint64) -> np.uint64:
    """The slots that an id uses, relative to its first one, which it always uses."""
    return mix(one ^ _SALT) | _ONE


@numba.njit(inline="always")
def _part_of(one: np.uint64, shards: np.uint64) -> np.uint64:
    """The shard of an id in the upper half, and its position within the shard in the lower half."""
    return (one >> _HALF_BITS) * shards + (((one & _HALF) * shards) >> _HALF_BITS)


@numba.njit(inline="always")
def _first_slot(part: np.uint64, slots: np.uint64) -> np.uint64:
    """The first slot of an id, within its shard."""
    return ((part & _HALF) * (slots - np.uint64(_WINDOW - 1))) >> _HALF_BITS


@numba.njit(inline="always")
def may_have(words: int, shards: int, slots: int, one: np.uint64) -> bool:
    """False: the filter does not have the id; `words`: an address."""
    hashed = _hash_of(one)
    part = _part_of(one, np.uint64(shards))
    slot = (part >> _HALF_BITS) * np.uint64(slots) + _first_slot(part, np.uint64(slots))
    at, behind = words + int(slot // np.uint64(_WINDOW)) * _WORD_BYTES * _COLUMNS, slot % np.uint64(_WINDOW)
    here, next_one = hashed << behind, (hashed >> _ONE) >> (np.uint64(_WINDOW - 1) - behind)
    odd = np.uint64(0)
    for column in range(_COLUMNS // 2):  # rule out most other ids
        odd |= _odd(
            (load64(at + _WORD_BYTES * column) & here) ^ (load64(at + _WORD_BYTES * (_COLUMNS + column)) & next_one)
        )
    if odd:
        return False
    for column in range(_COLUMNS // 2, _COLUMNS):
        odd |= _odd(
            (load64(at + _WORD_BYTES * column) & here) ^ (load64(at + _WORD_BYTES * (_COLUMNS + column)) & next_one)
        )
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
    """Adds the ids' equations to those of the current shard, and solves every shard that is complete, and all before `upto`.

    Returns the current shard.
    """
    for i in range(ids.size):
        part = _part_of(ids[i], np.uint64(shards))
        while shard < int(part >> _HALF_BITS):
            _solve(shard, equations, words)
            shard += 1
        slot, hashed = _first_slot(part, np.uint64(slots)), _hash_of(ids[i])
        while equations[slot]:  # taken by another equation: their sum begins at a later slot
            hashed ^= equations[slot]
            if not hashed:  # it follows from the others
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
    """Sets the bits of a shard's slots, from the last to the first, and clears the equations."""
    after = np.zeros(_COLUMNS, np.uint64)  # bits of the following slots
    first = shard * (equations.size // _WINDOW) * _COLUMNS
    for slot in range(equations.size - 1, -1, -1):
        equation = equations[slot]
        equations[slot] = 0
        # with zeros, most other ids would be false positives
        free = mix(np.uint64(shard * equations.size + slot) ^ _SALT)
        at = first + slot // _WINDOW * _COLUMNS
        for column in range(_COLUMNS):
            bits = after[column] << _ONE
            bit = _odd(bits & equation) if equation else (free >> np.uint64(column)) & _ONE
            after[column] = bits | bit
            words[at + column] |= bit << np.uint64(slot % _WINDOW)

"""Bytes read and written by their address, one or eight at a time, for kernels that go over text.

When an array is passed from function to function its references are counted at each call, which costs more than reading
eight of its bytes; an address is a number. Bounds are not checked: `PADDING` after a text makes it safe to read eight
bytes from its last one. In a word the first byte is the lowest one, as on every machine that Numba runs on.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

PADDING = b"\0" * 8
_LOWEST = np.uint64(0x0101010101010101)
_HIGHEST = np.uint64(0x8080808080808080)


@intrinsic
def load8(typing_context: Any, place: Any) -> Any:
    """The byte at an address, as an int64."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = builder.load(builder.inttoptr(args[0], ir.IntType(8).as_pointer()))
        return builder.zext(byte, ir.IntType(64))

    return types.int64(types.int64), code


@intrinsic
def load32(typing_context: Any, place: Any) -> Any:
    """The four bytes from an address on, as an int64."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = builder.load(builder.inttoptr(args[0], ir.IntType(32).as_pointer()), align=1)
        return builder.zext(number, ir.IntType(64))

    return types.int64(types.int64), code


@intrinsic
def load64(typing_context: Any, place: Any) -> Any:
    """The eight bytes from an address on, as a uint64."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()), align=1)

    return types.uint64(types.int64), code


@intrinsic
def load_double(typing_context: Any, place: Any) -> Any:
    """The eight bytes from an address on, as a float64."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.DoubleType().as_pointer()), align=1)

    return types.float64(types.int64), code


@intrinsic
def load_float(typing_context: Any, place: Any) -> Any:
    """The four bytes from an address on, which are a float32, as a float64."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        single = builder.load(builder.inttoptr(args[0], ir.FloatType().as_pointer()), align=1)
        return builder.fpext(single, ir.DoubleType())

    return types.float64(types.int64), code


@intrinsic
def store64(typing_context: Any, place: Any, word: Any) -> Any:
    """Writes a uint64 to the eight bytes from an address on."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), code


@intrinsic
def store_double(typing_context: Any, place: Any, number: Any) -> Any:
    """Writes a float64 to the eight bytes from an address on."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], ir.DoubleType().as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.float64), code


@intrinsic
def store8(typing_context: Any, place: Any, byte: Any) -> Any:
    """Writes the lowest byte of an int64 to an address."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(builder.trunc(args[1], ir.IntType(8)), builder.inttoptr(args[0], ir.IntType(8).as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


@intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """How many of the lowest bits of a uint64 are 0; 64 of 0."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], cgutils.false_bit)

    return types.int64(types.uint64), code


@intrinsic
def leading_zeros(typing_context: Any, word: Any) -> Any:
    """How many of the highest bits of a uint64 are 0; 64 of 0."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], cgutils.false_bit)

    return types.int64(types.uint64), code


@numba.njit(inline="always")
def address_of(data: NDArray[np.uint8]) -> int:
    """Of the first byte of a contiguous array. It keeps nothing alive: the array has to be the caller's, or used again later."""
    return np.int64(data.ctypes.data)  # type: ignore[return-value]  # an int to Numba


@numba.njit(cache=True, nogil=True)
def is_same(one: int, other: int, size: int) -> bool:
    """Whether the `size` bytes from two addresses on are equal; both have `PADDING` behind them."""
    k = 0
    while k + 8 <= size:
        if load64(one + k) != load64(other + k):
            return False
        k += 8
    if k == size:
        return True
    unlike = load64(one + k) ^ load64(other + k)
    return unlike << np.uint64(64 - 8 * (size - k)) == np.uint64(0)


@numba.njit(cache=True, nogil=True)
def equal_bytes(word: np.uint64, byte: int) -> np.uint64:
    """The highest bit of every byte that equals `byte`; bytes above the first one that does may be marked for nothing."""
    unlike = word ^ (_LOWEST * np.uint64(byte))
    return (unlike - _LOWEST) & ~unlike & _HIGHEST


@numba.njit(cache=True, nogil=True)
def bytes_below(word: np.uint64, byte: int) -> np.uint64:
    """The same of bytes below `byte`, which is at most 128."""
    return (word - _LOWEST * np.uint64(byte)) & ~word & _HIGHEST


@numba.njit(cache=True, nogil=True)
def bytes_beyond_ascii(word: np.uint64) -> np.uint64:
    """The highest bit of every byte that is above 127."""
    return word & _HIGHEST


@numba.njit(inline="always")
def copy_bytes(start: int, end: int, to: int) -> int:
    """Copies the bytes between two addresses to a third, and up to seven more after them; returns the end of the copy."""
    k = 0
    while start + k < end:
        store64(to + k, load64(start + k))
        k += 8
    return to + end - start

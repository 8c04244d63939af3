"""Protobuf's encoding, for kernels: tags, values, and whether a message that is not read is well encoded."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.words64 import load8
from streameval.sources.formats.avro_kernel import is_text
from streameval.sources.formats.protobuf_plan import (
    ENCODING,
    INNER_TYPE,
    IS_REPEATED,
    OF_FIXED32,
    OF_FIXED64,
    OF_MESSAGE,
    OF_NOTHING,
    OF_TEXT,
    OF_VARINT,
)

WIRE_VARINT, WIRE_FIXED64, WIRE_BYTES, WIRE_FIXED32 = 0, 1, 2, 5  # wire types


@numba.njit(cache=True, nogil=True)
def _long_varint(i: int, end: int) -> tuple[np.uint64, int]:
    bits, shift = np.uint64(0), np.uint64(0)
    while i < end and shift < 70:
        byte = np.uint64(load8(i))
        i += 1
        if shift == 63 and byte > 1:
            break
        bits |= (byte & np.uint64(127)) << shift
        if byte < 128:
            return bits, i
        shift += np.uint64(7)
    return np.uint64(0), -1


@numba.njit(inline="always")
def number_at(i: int, end: int) -> tuple[np.uint64, int]:
    """Returns (the number at an address, where it ends; -1: there is none)."""
    if i < end and load8(i) < 128:
        return np.uint64(load8(i)), i + 1
    return _long_varint(i, end)


@numba.njit(inline="always")
def tag_at(i: int, end: int) -> tuple[int, int, int]:
    """Returns (number of a field, its wire type, where its value begins; -1: not plain)."""
    bits, i = number_at(i, end)
    number = int(np.int64(bits >> np.uint64(3)))
    if i < 0 or number == 0 or bits > np.uint64(0xFFFFFFFF):
        return 0, 0, -1
    return number, int(np.int64(bits & np.uint64(7))), i


@numba.njit(inline="always")
def value_at(i: int, end: int, wire: int) -> tuple[int, int]:
    """Returns (start, end) of a value; -1: not plain."""
    if wire == WIRE_VARINT:
        return i, number_at(i, end)[1]
    size = 0
    if wire == WIRE_BYTES:
        bits, i = number_at(i, end)
        if i < 0 or bits > np.uint64(end - i):
            return -1, -1
        size = int(np.int64(bits))
    elif wire == WIRE_FIXED64:
        size = 8
    elif wire == WIRE_FIXED32:
        size = 4
    else:
        return -1, -1
    return (i, i + size) if size <= end - i else (-1, -1)


@numba.njit(inline="always")
def is_encoded_as(wire: int, encoded: int) -> bool:
    """Whether a wire type is that of an encoding."""
    if encoded == OF_VARINT:
        return wire == WIRE_VARINT
    if encoded == OF_FIXED64:
        return wire == WIRE_FIXED64
    if encoded == OF_FIXED32:
        return wire == WIRE_FIXED32
    return wire == WIRE_BYTES


@numba.njit(cache=True, nogil=True)
def is_packed(i: int, end: int, encoded: int) -> bool:
    """Whether repeated numbers are well encoded in one value."""
    if encoded != OF_VARINT:
        return (end - i) % (8 if encoded == OF_FIXED64 else 4) == 0
    while 0 <= i < end:
        _, i = number_at(i, end)
    return i == end


@numba.njit(cache=True, nogil=True)
def is_well_encoded(
    i: int, end: int, kind: int, fields: NDArray[np.int64], first: NDArray[np.int64], within: NDArray[np.int64]
) -> bool:
    """Whether a message of a type, which is not read, is well encoded. `within`: room for the messages around another, each
    with its end and type. (A kernel that calls itself crashes when it comes from Numba's cache.)
    """
    depth = 0
    while True:
        while i == end:
            if depth == 0:
                return True
            depth -= 1
            end, kind = within[depth, 0], within[depth, 1]
        number, wire, i = tag_at(i, end)
        if i < 0:
            return False
        begin, i = value_at(i, end, wire)
        if i < 0:
            return False
        row = first[kind] + number
        encoded = fields[row, ENCODING] if row < first[kind + 1] else OF_NOTHING
        if encoded == OF_NOTHING:
            continue
        if not is_encoded_as(wire, encoded):
            if wire != WIRE_BYTES or not fields[row, IS_REPEATED] or not is_packed(begin, i, encoded):
                return False
        elif encoded == OF_TEXT:
            if not is_text(begin, i):
                return False
        elif encoded == OF_MESSAGE:
            if depth == len(within):
                return False
            within[depth, 0], within[depth, 1] = end, kind
            depth += 1
            i, end, kind = begin, i, fields[row, INNER_TYPE]

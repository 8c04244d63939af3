"""Avro's binary encoding to columns: a single kernel that runs a schema's program (`avro_program`) over joined
messages.

Nothing in a message is trusted: every read is bounded by the message's end, and lists may not have more items than
their message has bytes, which is the capacity of columns. About 15 ns per operation.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.words64 import address_of, bytes_beyond_ascii, load8, load64

# operations: (op, a, b, c, level), see `avro_program`
# those up to LOOP may fill a column
(
    BOOLEAN,
    INT,
    LONG,
    FLOAT,
    DOUBLE,
    BYTES,
    FIXED_BYTES,
    ENUM,
    UNION,
    LOOP,
    JUMP,
    LIST_BLOCK,
    NEXT,
    CALL,
    RETURN,
    END,
    NULL_VALUE,
) = range(17)
# reasons why a message cannot be read
READABLE, SHORT, VARINT, LENGTH, BRANCH, SYMBOL, LONGER, TOO_MANY_ITEMS, DEPTH, NOT_BOOLEAN, NOT_UTF8, NOT_INT = range(
    12
)
WORDS: Final = {
    SHORT: "the message ends too early",
    VARINT: "a number of more than 64 bits",
    LENGTH: "a negative length",
    BRANCH: "a branch that is not in its union",
    SYMBOL: "a symbol that is not in its enum",
    LONGER: "bytes after the end of the event",
    TOO_MANY_ITEMS: "more items than the message has bytes",
    DEPTH: "nested too deep",
    NOT_BOOLEAN: "a boolean that is neither 0 nor 1",
    NOT_UTF8: "a string that is not UTF-8",
    NOT_INT: "an int of more than 32 bits",
}
_DEPTH = 128


class Slots(NamedTuple):
    """Cells of all columns, one column after the other; column c begins at base[c]."""

    base: NDArray[np.int64]
    value: NDArray[np.int64]  # the number, the bits of a double, the start of a text, the first item of a list
    length: NDArray[np.int64]  # of texts and lists
    there: NDArray[np.uint8]


@numba.njit(cache=True, nogil=True)
def _is_utf8(i: int, end: int) -> bool:
    """Whether valid UTF-8 is between two addresses: no overlong forms, no surrogates, nothing beyond U+10FFFF."""
    while i < end:
        c = load8(i)
        if c < 0x80:
            i += 1
            continue
        if 0xC2 <= c <= 0xDF:
            more, low, high = 1, 0x80, 0xBF
        elif 0xE0 <= c <= 0xEF:
            more, low, high = 2, 0xA0 if c == 0xE0 else 0x80, 0x9F if c == 0xED else 0xBF
        elif 0xF0 <= c <= 0xF4:
            more, low, high = 3, 0x90 if c == 0xF0 else 0x80, 0x8F if c == 0xF4 else 0xBF
        else:
            return False
        if i + more >= end or not low <= load8(i + 1) <= high:
            return False
        for k in range(2, more + 1):
            if load8(i + k) & 0xC0 != 0x80:
                return False
        i += more + 1
    return True


@numba.njit(inline="always")
def is_text(i: int, end: int) -> bool:
    """The same as `_is_utf8`; most texts are ASCII, which is checked eight bytes at a time."""
    k = i
    while k + 8 <= end and not bytes_beyond_ascii(load64(k)):
        k += 8
    if k < end and k + 8 > end and not bytes_beyond_ascii(load64(k) << np.uint64(64 - 8 * (end - k))):
        k = end
    return k >= end or _is_utf8(k, end)


@numba.njit(inline="always")
def varint(i: int, end: int) -> tuple[int, int]:
    """The same as `_long_varint`; most numbers here are lengths and branches, of one byte."""
    if i < end and load8(i) < 0x80:
        byte = load8(i)
        return (byte >> 1) ^ -(byte & 1), i + 1
    return _long_varint(i, end)


@numba.njit(cache=True, nogil=True)
def _long_varint(i: int, end: int) -> tuple[int, int]:
    """Returns (zigzag number, its end) at an address; the end is -SHORT or -VARINT if it cannot be read."""
    raw = np.uint64(0)
    shift = 0
    while i < end:
        byte = np.uint64(load8(i))
        i += 1
        if shift == 63 and byte > 1:
            return 0, -VARINT
        raw |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        if byte < 0x80:
            return int(np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1))), i
        shift += 7
        if shift > 63:
            return 0, -VARINT
    return 0, -SHORT


@numba.njit(cache=True, nogil=True)
def _little(i: int, size: int) -> np.int64:
    bits = np.uint64(0)
    for k in range(size):
        bits |= np.uint64(load8(i + k)) << np.uint64(8 * k)
    return np.int64(bits)


@numba.njit(cache=True, nogil=True)
def read_message(
    text: int,
    i: int,
    end: int,
    pc: int,
    ops: NDArray[np.int64],
    jumps: NDArray[np.int64],
    count: NDArray[np.int64],
    stack: NDArray[np.int64],
    slots: Slots,
) -> tuple[int, int, int]:
    """Reads a message at address i by the program from `pc` on. Returns (why it cannot be read, at which operation,
    where it ends).

    `text`: the address that positions of texts are relative to; `count`: cells used so far on every level, updated.
    """
    base, value, length, there = slots
    items = end - i
    top = 0
    while True:
        op, a, b, c, level = ops[pc, 0], ops[pc, 1], ops[pc, 2], ops[pc, 3], ops[pc, 4]
        at = np.int64(-1)
        if a >= 0 and op <= LOOP:
            at = base[a] + count[level]
            there[at] = 1
        if op == LONG or op == INT:  # noqa: PLR1714, SIM109  (a kernel is plain)
            number, i = varint(i, end)
            if i < 0:
                return -i, pc, i
            if op == INT and not -2147483648 <= number <= 2147483647:
                return NOT_INT, pc, i
            if at >= 0:
                value[at] = number
        elif op == BYTES:
            size, i = varint(i, end)
            if i < 0:
                return -i, pc, i
            if size < 0:
                return LENGTH, pc, i
            if size > end - i:
                return SHORT, pc, i
            if b and not is_text(i, i + size):
                return NOT_UTF8, pc, i
            if at >= 0:
                value[at], length[at] = i - text, size
            i += size
        elif op == UNION:
            branch, i = varint(i, end)
            if i < 0:
                return -i, pc, i
            if not 0 <= branch < c:
                return BRANCH, pc, i
            if at >= 0:
                value[at] = branch
            pc = jumps[b + branch]
            continue
        elif op == DOUBLE or op == FLOAT:  # noqa: PLR1714, SIM109
            size = 8 if op == DOUBLE else 4
            if size > end - i:
                return SHORT, pc, i
            if at >= 0:
                value[at] = _little(i, size)
            i += size
        elif op == BOOLEAN:
            if i >= end:
                return SHORT, pc, i
            if load8(i) > 1:
                return NOT_BOOLEAN, pc, i
            if at >= 0:
                value[at] = load8(i)
            i += 1
        elif op == FIXED_BYTES:
            if b > end - i:
                return SHORT, pc, i
            if at >= 0:
                value[at], length[at] = i - text, b
            i += b
        elif op == ENUM:
            number, i = varint(i, end)
            if i < 0:
                return -i, pc, i
            if not 0 <= number < b:
                return SYMBOL, pc, i
            if at >= 0:
                value[at] = number
        elif op == JUMP:
            pc = a
            continue
        elif op == LOOP:  # a: the column of the list; its items are on level b
            if top + 2 > _DEPTH:
                return DEPTH, pc, i
            stack[top], stack[top + 1] = 0, at
            top += 2
            if at >= 0:
                value[at] = count[b]
        elif op == LIST_BLOCK:  # b: where to continue after the last one; level: that of the items
            left, i = varint(i, end)
            if i < 0:
                return -i, pc, i
            if left < 0:
                if left == -9223372036854775808:
                    return LENGTH, pc, i
                left = -left
                size, i = varint(i, end)
                if i < 0:
                    return -i, pc, i
            if left > items:
                return TOO_MANY_ITEMS, pc, i
            items -= left
            if left == 0:
                top -= 2
                if stack[top + 1] >= 0:
                    length[stack[top + 1]] = count[level] - value[stack[top + 1]]
                pc = b
                continue
            stack[top - 2] = left
        elif op == NEXT:  # a: the LIST_BLOCK that ends here
            if level > 0:
                count[level] += 1
            stack[top - 2] -= 1
            pc = a if stack[top - 2] == 0 else a + 1
            continue
        elif op == CALL:
            if top + 1 > _DEPTH:
                return DEPTH, pc, i
            stack[top] = pc + 1
            top += 1
            pc = b
            continue
        elif op == RETURN:
            top -= 1
            pc = stack[top]
            continue
        elif op == END:
            return READABLE, pc, i
        pc += 1


@numba.njit(inline="always")
def room_for_calls() -> NDArray[np.int64]:
    """Returns the `stack` of `read_message`."""
    return np.zeros(_DEPTH + 2, np.int64)


@numba.njit(cache=True, nogil=True)
def run(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    ops: NDArray[np.int64],
    jumps: NDArray[np.int64],
    levels: NDArray[np.int64],
    count: NDArray[np.int64],
    slots: Slots,
    why: NDArray[np.int64],
    where: NDArray[np.int64],
) -> None:
    """Reads the messages data[starts[k]:ends[k]], followed by `words64.PADDING`, into the slots.

    why[k], where[k]: as in `read_message`. `count`: int64 by level, the cells used; the first one is the number of
    rows, which are the readable messages.
    """
    stack, text = room_for_calls(), address_of(data)
    before = count.copy()
    for k in range(starts.size):
        end = text + ends[k]
        why[k], where[k], at = read_message(
            text, text + starts[k], end, pc=0, ops=ops, jumps=jumps, count=count, stack=stack, slots=slots
        )
        if why[k] == READABLE and at != end:
            why[k] = LONGER
        if why[k] == READABLE:
            count[0] += 1
            before[:] = count
            continue
        for column in range(levels.size):  # removes all traces of it
            level = levels[column]
            last = min(slots.base[column + 1], slots.base[column] + count[level] + 1)
            slots.there[slots.base[column] + before[level] : last] = 0
            slots.length[slots.base[column] + before[level] : last] = 0
        count[:] = before


@numba.njit(cache=True, nogil=True)
def gather(
    data: NDArray[np.uint8], start: NDArray[np.int64], offsets: NDArray[np.int32], out: NDArray[np.uint8]
) -> None:
    """Copies the texts data[start[k]:][:offsets[k + 1] - offsets[k]] one after the other."""
    for k in range(start.size):
        at = start[k]
        for j in range(offsets[k], offsets[k + 1]):
            out[j] = data[at]
            at += 1

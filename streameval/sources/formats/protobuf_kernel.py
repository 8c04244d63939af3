"""Writes plain Protobuf messages as Avro, by a `protobuf_plan`: a union of null and its type for every field that is read.

A message with anything unusual is left out: a field twice, a group, a number of the wrong encoding, bytes that are no
UTF-8, an unknown symbol. Google's library reads it, and says what is wrong, if anything is.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.words64 import PADDING, address_of, copy_bytes, load8, load32, load64, store8, store64
from streameval.sources.formats.avro_kernel import is_text
from streameval.sources.formats.protobuf_plan import (
    AS_BOOLEAN,
    AS_DOUBLE,
    AS_ENUM,
    AS_FIXED32,
    AS_FIXED64,
    AS_FLOAT,
    AS_INT,
    AS_MAP,
    AS_SFIXED32,
    AS_SFIXED64,
    AS_STAMP,
    AS_TEXT,
    AS_UINT,
    AS_ULONG,
    AS_ZIGZAG,
    ENCODING,
    EVEN_ABSENT,
    FIRST_SYMBOL,
    IN_WRAPPER,
    INNER_TYPE,
    IS_REPEATED,
    OF_FIXED32,
    OF_FIXED64,
    OF_MESSAGE,
    OF_NOTHING,
    OF_TEXT,
    OF_VARINT,
    READ_AS,
    SYMBOLS,
    WRITTEN_AS,
    WritingPlan,
)
from streameval.sources.formats.protobuf_wire import (
    WIRE_BYTES,
    WIRE_VARINT,
    is_encoded_as,
    is_packed,
    is_well_encoded,
    number_at,
    tag_at,
    value_at,
)
from streameval.sources.formats.rooms import room

_DEPTH = 50  # of messages within an event
_MOST_ENTRIES = 1_024  # of all maps of a message
_MOST_SECONDS = 1 << 40
_SYMBOL_BYTES = 24  # of a row of symbols
_NULL, _VALUE, _ONE = 0, 2, 2  # zigzag: the branches of a union, a block of one entry


def written(data: bytes, bounds: NDArray[np.int64], head: bytes, plan: WritingPlan) -> tuple[bytes, NDArray[np.int64]]:
    """Returns (the messages data[bounds[k, 0]:bounds[k, 1]] as Avro, followed by `PADDING`; start and end of each [n, 2]).

    Those that are left out are empty. `head`: the indexes that messages of the plan's type begin with; the data must end
    with `PADDING`.
    """
    sizes = bounds[:, 1] - bounds[:, 0]
    longest = int((plan.symbols[:, 2] - plan.symbols[:, 1]).max(initial=0))
    # an entry of two bytes becomes ten; a number gets a byte longer, and may be written though it is not there
    most = 5 * int(sizes.sum()) + len(bounds) * (len(plan.steps) * (16 + longest) + 8) + len(PADDING)
    out, ends = room("avro", most, np.uint8), np.zeros(len(bounds), np.int64)
    first = np.frombuffer(head + PADDING, np.uint8)
    text = np.frombuffer(data, np.uint8)
    symbols = (plan.first, plan.symbols, plan.text)
    used = _write(text, bounds, first, len(head), plan.steps, plan.fields, plan=symbols, out=out, ends=ends)
    return out[:used].tobytes() + PADDING, np.column_stack((np.concatenate((np.zeros(1, np.int64), ends[:-1])), ends))


# -- the kernel ------------------------------------------------------------------------------------------------------


@numba.njit(inline="always")
def _put_long(n: int, to: int) -> int:
    bits = np.uint64(n << 1) ^ np.uint64(n >> 63)
    while bits > np.uint64(127):
        store8(to, np.int64(bits & np.uint64(127)) | 128)
        bits >>= np.uint64(7)
        to += 1
    store8(to, np.int64(bits))
    return to + 1


@numba.njit(inline="always")
def _signed32(bits: np.uint64) -> int:
    low = int(np.int64(bits & np.uint64(0xFFFFFFFF)))
    return low - 0x100000000 if low >= 0x80000000 else low


@numba.njit(cache=True, nogil=True)
def _put(
    begin: int,
    end: int,
    how: int,
    to: int,
    symbols: tuple[int, int, int, int],
) -> int:
    """Writes a value (of no bytes: the default); returns where it ends, or -1: not plain. `symbols`: the first, their number,
    and the addresses of all symbols, and of their text.
    """
    if how == AS_TEXT:
        return copy_bytes(begin, end, _put_long(end - begin, to)) if is_text(begin, end) else -1
    if how in (AS_DOUBLE, AS_FLOAT):
        store64(to, load64(begin) if end > begin else np.uint64(0))
        return to + (8 if how == AS_DOUBLE else 4)
    bits = np.uint64(0)
    if end > begin:
        if how in (AS_FIXED64, AS_SFIXED64):
            bits = load64(begin)
        elif how in (AS_FIXED32, AS_SFIXED32):
            bits = np.uint64(load32(begin))
        else:
            bits, _ = number_at(begin, end)
    if how == AS_BOOLEAN:
        store8(to, 1 if bits else 0)
        return to + 1
    n = np.int64(bits)
    if n < 0 and how in (AS_ULONG, AS_FIXED64):
        return -1
    if how in (AS_INT, AS_SFIXED32, AS_ENUM):
        n = _signed32(bits)
    elif how == AS_UINT:
        n = np.int64(bits & np.uint64(0xFFFFFFFF))
    elif how == AS_ZIGZAG:
        n = np.int64(bits >> np.uint64(1)) ^ -np.int64(bits & np.uint64(1))
    if how == AS_ENUM:
        first, count, every, text = symbols
        for k in range(first, first + count):
            symbol = every + _SYMBOL_BYTES * k
            if np.int64(load64(symbol)) == n:
                start, stop = np.int64(load64(symbol + 8)), np.int64(load64(symbol + 16))
                return copy_bytes(text + start, text + stop, _put_long(stop - start, to))
        return -1
    return _put_long(n, to)


@numba.njit(cache=True, nogil=True)
def _put_stamp(i: int, end: int, to: int) -> int:
    """Writes a Timestamp as ms; -1: not plain."""
    parts = (np.int64(0), np.int64(0))
    while i < end:
        number, wire, i = tag_at(i, end)
        if i < 0 or wire != WIRE_VARINT or not 1 <= number <= 2:
            return -1
        bits, i = number_at(i, end)
        if i < 0 or bits > np.uint64(_MOST_SECONDS):
            return -1
        parts = (np.int64(bits), parts[1]) if number == 1 else (parts[0], np.int64(bits))
    if parts[1] > 999_999_999:
        return -1
    return _put_long(parts[0] * 1000 + parts[1] // 1_000_000, to)


@numba.njit(cache=True, nogil=True)
def _member(i: int, end: int, number: int, encoded: int) -> tuple[int, int, bool]:
    """Returns (start, end, whether it is plain) of the one field of a small message (a wrapper, or one side of an entry);
    start and end are equal if it is not there. The other side of an entry is not checked.
    """
    begin = stop = i
    times = 0
    while i < end:
        this, wire, i = tag_at(i, end)
        if i < 0:
            return 0, 0, False
        at, i = value_at(i, end, wire)
        if i < 0 or this > 2:
            return 0, 0, False
        if this == number:
            times += 1
            begin, stop = at, i
            if times > 1 or not is_encoded_as(wire, encoded):
                return 0, 0, False
    return begin, stop, True


@numba.njit(inline="always")
def _encoded_as(how: int) -> int:
    """The encoding of a value that is written so."""
    if how == AS_TEXT:
        return OF_TEXT
    if how in (AS_DOUBLE, AS_FIXED64, AS_SFIXED64):
        return OF_FIXED64
    if how in (AS_FLOAT, AS_FIXED32, AS_SFIXED32):
        return OF_FIXED32
    return OF_VARINT


@numba.njit(cache=True, nogil=True)
def _write(
    data: NDArray[np.uint8],
    bounds: NDArray[np.int64],
    head: NDArray[np.uint8],
    head_size: int,
    steps: NDArray[np.int64],
    fields: NDArray[np.int64],
    plan: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]],
    out: NDArray[np.uint8],
    ends: NDArray[np.int64],
) -> int:
    """Writes messages one after the other; returns where the last one ends. `plan`: first, symbols and text of the
    `WritingPlan`.
    """
    first, symbols, names = plan
    start, to, head_at = address_of(data), address_of(out), address_of(head)
    symbols_at, names_at = address_of(symbols), address_of(names)
    begin_of_all = to
    found = np.zeros((len(steps), 2), np.int64)
    entries = np.zeros((_MOST_ENTRIES, 3), np.int64)  # step, start and end
    within = np.zeros((_DEPTH, 2), np.int64)
    for row in range(len(bounds)):
        i, end, begin_of_row = start + bounds[row, 0], start + bounds[row, 1], to
        good = end - i >= head_size
        for k in range(head_size):
            good = good and load8(i + k) == load8(head_at + k)
        i += head_size
        found[:] = 0
        n = 0
        while good and i < end:
            number, wire, i = tag_at(i, end)
            if i < 0:
                break
            begin, i = value_at(i, end, wire)
            if i < 0:
                break
            encoded = fields[number, ENCODING] if number < first[1] else OF_NOTHING
            if encoded == OF_NOTHING:
                continue
            if not is_encoded_as(wire, encoded):
                good = wire == WIRE_BYTES and fields[number, IS_REPEATED] != 0 and is_packed(begin, i, encoded)
                continue
            step = fields[number, READ_AS]
            if step < 0:
                if encoded == OF_TEXT:
                    good = is_text(begin, i)
                elif encoded == OF_MESSAGE:
                    good = is_well_encoded(begin, i, fields[number, INNER_TYPE], fields, first, within)
            elif steps[step, WRITTEN_AS] == AS_MAP:
                good = n < _MOST_ENTRIES
                if good:
                    entries[n, 0], entries[n, 1], entries[n, 2] = step, begin, i
                    n += 1
                    found[step, 0] += 1
            else:
                good = found[step, 0] == 0
                found[step, 0], found[step, 1] = begin, i
        good = good and i == end
        for step in range(len(steps)):
            if not good:
                break
            how, begin, stop = steps[step, WRITTEN_AS], found[step, 0], found[step, 1]
            if how == AS_MAP:
                store8(to, _VALUE if begin else _NULL)
                to += 1
                if begin == 0:
                    continue
                of_value = _encoded_as(steps[step, FIRST_SYMBOL])
                for k in range(n):
                    if entries[k, 0] != step or not good:
                        continue
                    key, key_end, plain = _member(entries[k, 1], entries[k, 2], 1, OF_TEXT)
                    value, value_end, also = _member(entries[k, 1], entries[k, 2], 2, of_value)
                    good = plain and also and is_text(key, key_end)
                    if good:
                        store8(to, _ONE)
                        to = copy_bytes(key, key_end, _put_long(key_end - key, to + 1))
                        to = _put(value, value_end, steps[step, FIRST_SYMBOL], to, (0, 0, symbols_at, names_at))
                        good = to >= 0
                if good:
                    store8(to, 0)
                    to += 1
                continue
            there = begin != 0
            if there and steps[step, IN_WRAPPER]:
                begin, stop, good = _member(begin, stop, 1, _encoded_as(how))
                if not good:
                    break
            elif there and how == AS_TEXT and begin == stop and steps[step, SYMBOLS]:
                there = False
            if not (there or steps[step, EVEN_ABSENT]):
                store8(to, _NULL)
                to += 1
                continue
            store8(to, _VALUE)
            to += 1
            if how == AS_STAMP:
                to = _put_stamp(begin, stop, to)
            else:
                to = _put(begin, stop, how, to, (steps[step, FIRST_SYMBOL], steps[step, SYMBOLS], symbols_at, names_at))
            good = to >= 0
        if not good:
            to = begin_of_row
        ends[row] = to - begin_of_all
    return to - begin_of_all

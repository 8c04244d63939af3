"""Hashed features straight from the bytes of JSON objects, without a Python object per feature.

The kernel reads the plain case: an object of strings without escapes, numbers, booleans, nulls and lists of such
strings. If it meets anything else (an escape, nesting, a repeated name, a number of more than 19 digits, text that is
not UTF-8), it leaves that row as a whole to `features.from_objects`, so the two can differ only in speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Features
from streameval.events.hashing import hash_at
from streameval.events.words64 import PADDING, address_of, is_same, load8, load64, store64
from streameval.sources.formats.decimals import HARD, READ, number
from streameval.sources.formats.features import from_objects
from streameval.sources.formats.json_text import (
    CLOSE,
    CLOSE_LIST,
    COLON,
    COMMA,
    FALSE,
    MINUS,
    NINE,
    NULL,
    OPEN,
    OPEN_LIST,
    QUOTE,
    SMALL_T,
    TRUE,
    ZERO,
    after_space,
    is_word,
    named_value,
    string_end,
)

_ABSENT = 0
MAX_NAMES = 256  # every name is compared with those before it; longer objects are read in the slow way
_EQUALS = 61
_FNV_BASIS, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # of FNV-1a, 64 bits

Wrong = tuple[str, str]  # reason, message


class FeatureColumns(NamedTuple):
    """The kernel's output of entries, and the names that it remembers."""

    entry: NDArray[np.uint64]  # their hashed names
    value: NDArray[np.float64]  # by entry
    # start and end of the names of the previous row; after the last one: an end before its start
    names: NDArray[np.int64]
    mixed: NDArray[np.uint64]  # [MAX_NAMES]: hashes of a row's names
    scratch: NDArray[np.uint8]  # buffer for a name and a text

    @staticmethod
    def of(size: int, shortest: int) -> FeatureColumns:
        """Returns columns for the entries in `size` bytes of objects, each of at least `shortest`; pages never written
        to take no memory.
        """
        room = size // shortest + 1
        names = np.full((MAX_NAMES + 1, 2), (0, -1))  # none
        return FeatureColumns(
            np.empty(room, np.uint64),
            np.empty(room),
            names,
            np.empty(MAX_NAMES, np.uint64),
            np.empty(size + 3 * len(PADDING), np.uint8),
        )


def from_bytes(texts: Sequence[bytes | msgspec.Raw]) -> tuple[Features, NDArray[np.bool_], dict[int, Wrong]]:
    """Returns (features of n rows, which rows have an object, problems by bad row); b"" and null are absent."""
    n = len(texts)
    joined = b"".join(texts)
    data = np.frombuffer(joined + PADDING, np.uint8)
    ends = np.cumsum(np.fromiter([len(memoryview(text)) for text in texts], np.int64, n))
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1])) if n else ends
    out = FeatureColumns.of(data.size, 3)  # the shortest entry is `"",` in a list
    lengths, state = np.empty(n, np.int64), np.empty(n, np.int8)
    used = _scan(data, starts, ends, not is_utf8(joined), out, lengths, state)
    index, value = out.entry[:used], out.value[:used]
    hard = np.flatnonzero(state == HARD)
    if hard.size:
        return _with_hard(texts, hard, lengths, index, value, state)
    return Features(_indptr(lengths), index.copy(), value.copy()), state != _ABSENT, {}


def is_utf8(text: bytes) -> bool:
    """Whether the bytes are valid UTF-8."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _with_hard(
    texts: Sequence[bytes | msgspec.Raw],
    hard: NDArray[np.int64],
    lengths: NDArray[np.int64],
    index: NDArray[np.uint64],
    value: NDArray[np.float64],
    state: NDArray[np.int8],
) -> tuple[Features, NDArray[np.bool_], dict[int, Wrong]]:
    """Returns the rows that the kernel left, read by msgspec, merged with the others."""
    wrong: dict[int, Wrong] = {}
    objects = []
    for row in hard.tolist():
        found, problem = _one(bytes(texts[row]))
        objects.append(found)
        if problem is not None:
            wrong[row] = problem
    slow, problems = from_objects(objects, False)
    for place, message in problems.items():
        wrong.setdefault(int(hard[place]), ("wrong_type", message))
    easy = np.ones(len(texts), bool)
    easy[hard] = False
    owner = np.repeat(np.arange(len(texts)), lengths)
    kept = easy[owner]
    slow_lengths = np.diff(slow.indptr)
    row = np.concatenate((owner[kept], np.repeat(hard, slow_lengths)))
    order = np.argsort(row, kind="stable")
    lengths[hard] = slow_lengths
    out = Features(
        _indptr(lengths),
        np.concatenate((index[kept], slow.index))[order],
        np.concatenate((value[kept], slow.value))[order],
    )
    return out, state != _ABSENT, wrong


def _one(text: bytes) -> tuple[dict[str, object] | None, Wrong | None]:
    try:
        found = msgspec.json.decode(text)
    except msgspec.ValidationError as error:
        return None, ("out_of_range", f"features: {error}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return None, ("malformed", f"not JSON: features: {str(error)[:200]}")
    if not isinstance(found, dict):
        return None, ("wrong_type", f"features is {type(found).__name__}: must be an object")
    return found, None


def _indptr(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))


@numba.njit(inline="always")
def _copy(start: int, end: int, to: int) -> int:
    """Copies the bytes between two addresses to a third, and some more after them; returns the end of the copy."""
    k = 0
    while start + k < end:
        store64(to + k, load64(start + k))
        k += 8
    return to + end - start


@numba.njit(cache=True, nogil=True)
def one_hot(name: int, name_end: int, text: int, text_end: int, scratch: int) -> np.uint64:
    """Returns the hash of `name=text`; `scratch`: a buffer for them."""
    at = _copy(name, name_end, scratch)
    store64(at, np.uint64(_EQUALS))
    return hash_at(scratch, _copy(text, text_end, at + 1))


@numba.njit(inline="always")
def _known_size(i: int, end: int, names: NDArray[np.int64], k: int) -> int:
    """Returns the length of the k-th name of the previous row if `"name":` is at i, too; -1: it is not."""
    before = names[k, 0]
    size = names[k, 1] - before
    if size < 0 or i + size + 3 > end or not is_same(i, before - 1, size + 3):
        return -1
    return size if load8(i + size + 2) == COLON else -1


@numba.njit(inline="always")
def _mix(start: int, end: int) -> np.uint64:
    mixed = _FNV_BASIS
    for k in range(start, end):
        mixed = (mixed ^ np.uint64(load8(k))) * _FNV_PRIME
    return mixed


@numba.njit(cache=True, nogil=True)
def is_there_twice(names: NDArray[np.int64], mixed: NDArray[np.uint64], n: int) -> bool:
    """Whether two of a row's first n names are equal (or have equal hashes, which is as rare)."""
    for k in range(n):
        mixed[k] = _mix(names[k, 0], names[k, 1])
        for j in range(k):
            if mixed[j] == mixed[k]:
                return True
    return False


@numba.njit(cache=True, nogil=True)
def scan_object(
    i: int,
    end: int,
    ascii_only: bool,
    entry: NDArray[np.uint64],
    value: NDArray[np.float64],
    names: NDArray[np.int64],
    mixed: NDArray[np.uint64],
    scratch: int,
    used: int,
) -> tuple[int, int]:
    """Returns (end of the object that begins at i, entries in use after it); -1: not plain, or not an object.

    The arrays, and the address `scratch`, are those of `FeatureColumns`.
    """
    if load8(i) != OPEN:
        return -1, used
    i = after_space(i + 1, end)
    if i < end and load8(i) == CLOSE:
        names[0, 0], names[0, 1] = 0, -1
        return i + 1, used
    as_before = True  # the names equal those of the previous row, so none is repeated
    n = 0
    while True:
        if n == MAX_NAMES:
            return -1, used
        name = i + 1
        size = _known_size(i, end, names, n) if as_before else -1
        if size >= 0:
            name_end = name + size
            i = after_space(name_end + 2, end)
        else:
            as_before = False
            i, name_end = named_value(i, end, ascii_only)
        if i < 0 or i >= end:
            return -1, used
        names[n, 0], names[n, 1] = name, name_end
        n += 1
        c = load8(i)
        if c == QUOTE:
            text_end = string_end(i + 1, end, ascii_only)
            if text_end < 0:
                return -1, used
            entry[used] = one_hot(name, name_end, i + 1, text_end, scratch)
            value[used] = 1.0
            used += 1
            i = text_end + 1
        elif c == MINUS or ZERO <= c <= NINE:
            outcome, i, x = number(i, end)
            if outcome == HARD:
                return -1, used
            entry[used] = hash_at(name, name_end)
            value[used] = x
            used += 1
        elif is_word(i, end, TRUE) or is_word(i, end, FALSE):
            entry[used] = hash_at(name, name_end)
            value[used] = 1.0 if c == SMALL_T else 0.0
            used += 1
            i += 4 if c == SMALL_T else 5
        elif is_word(i, end, NULL):
            i += 4
        elif c == OPEN_LIST:
            i = after_space(i + 1, end)
            more = not (i < end and load8(i) == CLOSE_LIST)
            while more:
                if i >= end or load8(i) != QUOTE:
                    return -1, used
                text_end = string_end(i + 1, end, ascii_only)
                if text_end < 0:
                    return -1, used
                entry[used] = one_hot(name, name_end, i + 1, text_end, scratch)
                value[used] = 1.0
                used += 1
                i = after_space(text_end + 1, end)
                more = i < end and load8(i) == COMMA
                if more:
                    i = after_space(i + 1, end)
            if i >= end or load8(i) != CLOSE_LIST:
                return -1, used
            i += 1
        else:
            return -1, used
        i = after_space(i, end)
        if i >= end:
            return -1, used
        if load8(i) == CLOSE:
            break
        if load8(i) != COMMA:
            return -1, used
        i = after_space(i + 1, end)
    names[n, 0], names[n, 1] = 0, -1
    if not as_before and is_there_twice(names, mixed, n):
        return -1, used
    return i + 1, used


@numba.njit(cache=True, nogil=True)
def _scan(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    ascii_only: bool,
    out: FeatureColumns,
    lengths: NDArray[np.int64],
    state: NDArray[np.int8],
) -> int:
    """Fills the columns; returns the number of entries. A row that turns out to be hard is cleared."""
    entry, value, names, mixed, scratch = out
    text, scratch_at = address_of(data), address_of(scratch)
    used = 0
    for row in range(starts.size):
        before, end = used, text + ends[row]
        i = after_space(text + starts[row], end)
        if i == end or (is_word(i, end, NULL) and after_space(i + 4, end) == end):
            state[row] = _ABSENT
        else:
            i, used = scan_object(
                i, end, ascii_only, entry=entry, value=value, names=names, mixed=mixed, scratch=scratch_at, used=used
            )
            if i >= 0 and after_space(i, end) == end:
                state[row] = READ
            else:
                state[row] = HARD
                used = before
                names[0, 0], names[0, 1] = 0, -1  # one may be repeated
        lengths[row] = used - before
    return used

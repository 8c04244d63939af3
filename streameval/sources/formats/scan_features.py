"""Hashed features straight from the bytes of JSON objects, without a Python object per feature.

The kernel reads the plain case: an object of strings without escapes, numbers, booleans, nulls and lists of such
strings. If it meets anything else (an escape, nesting, a repeated name, a number of more than 19 digits, text that is
not UTF-8), it leaves that row as a whole to `features.from_objects`, so the two can differ only in speed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Features
from streameval.events.hashing import hash_at
from streameval.events.words64 import PADDING, address_of, is_same, load8
from streameval.sources.formats.decimals import HARD, READ, number
from streameval.sources.formats.feature_columns import (
    MAX_NAMES,
    FeatureColumns,
    FeaturePlaces,
    feature_places,
    forget_names,
    is_there_twice,
    keep_entry,
    keep_name,
    name_before,
    one_hot,
)
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

_ABSENT, _SPACE = 0, b" \t\r\n"
Wrong = tuple[str, str]  # reason, message


def from_bytes(
    texts: Sequence[bytes | msgspec.Raw], kernel: bool = True
) -> tuple[Features, NDArray[np.bool_], dict[int, Wrong]]:
    """Returns (features of n rows, which rows have an object, problems by bad row); b"" and null are absent. `kernel`
    False: without the kernel, which takes the longest to compile of all that a first batch needs.
    """
    n = len(texts)
    if not kernel:
        there = np.fromiter([bytes(text).strip(_SPACE) not in (b"", b"null") for text in texts], np.bool_, n)
        state = np.where(there, HARD, _ABSENT).astype(np.int8)
        none = np.zeros(n, np.int64), np.empty(0, np.uint64), np.empty(0, np.float64)
        return _with_hard(texts, np.flatnonzero(there), *none, state)
    joined = b"".join(texts)
    data = np.frombuffer(joined + PADDING, np.uint8)
    ends = np.cumsum(np.fromiter([len(memoryview(text)) for text in texts], np.int64, n))
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1])) if n else ends
    out = FeatureColumns.of(data.size, 3)  # the shortest entry is `"",` in a list
    lengths, state = np.empty(n, np.int64), np.empty(n, np.int8)
    used = _scan(data, starts, ends, not is_utf8(joined), out, lengths, state)
    hard = np.flatnonzero(state == HARD)
    if hard.size:
        return _with_hard(texts, hard, lengths, out.entry[:used], out.value[:used], state)
    return out.features(_indptr(lengths)), state != _ABSENT, {}


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
def _known_size(i: int, end: int, places: FeaturePlaces, k: int) -> int:
    """Returns the length of the k-th name of the previous row if `"name":` is at i, too; -1: it is not."""
    before, before_end = name_before(places, k)
    size = before_end - before
    if size < 0 or i + size + 3 > end or not is_same(i, before - 1, size + 3):
        return -1
    return size if load8(i + size + 2) == COLON else -1


@numba.njit(cache=True, nogil=True)
def scan_object(
    i: int,
    end: int,
    ascii_only: bool,
    places: FeaturePlaces,
    used: int,
) -> tuple[int, int]:
    """Returns (end of the object that begins at i, entries in use after it); -1: not plain, or not an object."""
    if load8(i) != OPEN:
        return -1, used
    i = after_space(i + 1, end)
    if i < end and load8(i) == CLOSE:
        forget_names(places, 0)
        return i + 1, used
    as_before = True  # the names equal those of the previous row, so none is repeated
    n = 0
    while True:
        if n == MAX_NAMES:
            return -1, used
        name = i + 1
        size = _known_size(i, end, places, n) if as_before else -1
        if size >= 0:
            name_end = name + size
            i = after_space(name_end + 2, end)
        else:
            as_before = False
            i, name_end = named_value(i, end, ascii_only)
        if i < 0 or i >= end:
            return -1, used
        keep_name(places, n, name, name_end)
        n += 1
        c = load8(i)
        if c == QUOTE:
            text_end = string_end(i + 1, end, ascii_only)
            if text_end < 0:
                return -1, used
            keep_entry(places, used, one_hot(name, name_end, i + 1, text_end, places[4]), 1.0)
            used += 1
            i = text_end + 1
        elif c == MINUS or ZERO <= c <= NINE:
            outcome, i, x = number(i, end)
            if outcome == HARD:
                return -1, used
            keep_entry(places, used, hash_at(name, name_end), x)
            used += 1
        elif is_word(i, end, TRUE) or is_word(i, end, FALSE):
            keep_entry(places, used, hash_at(name, name_end), 1.0 if c == SMALL_T else 0.0)
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
                keep_entry(places, used, one_hot(name, name_end, i + 1, text_end, places[4]), 1.0)
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
    forget_names(places, n)
    if not as_before and is_there_twice(places, n):
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
    places = feature_places(entry, value, names, mixed, scratch)
    text = address_of(data)
    used = 0
    for row in range(starts.size):
        before, end = used, text + ends[row]
        i = after_space(text + starts[row], end)
        if i == end or (is_word(i, end, NULL) and after_space(i + 4, end) == end):
            state[row] = _ABSENT
        else:
            i, used = scan_object(i, end, ascii_only, places, used)
            if i >= 0 and after_space(i, end) == end:
                state[row] = READ
            else:
                state[row] = HARD
                used = before
                forget_names(places, 0)  # one may be repeated
        lengths[row] = used - before
    return used

"""Hashed features straight from the bytes of JSON objects, without a Python object per feature.

The kernel reads the plain case: an object of strings without escapes, numbers, booleans, nulls and lists of such strings.
Whatever else it meets (an escape, nesting, a name twice, a number it cannot round exactly, text that is not UTF-8) makes
it hand that row, whole, to `features.from_objects`, so the two can differ in speed only. About 0.4 us for 8 features.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events import Features
from streameval.hashing import hash_span
from streameval.sources.features import from_objects

ABSENT, READ, HARD = 0, 1, 2
_MAX_NAMES = 256  # every name is compared with those before it; longer objects go the slow way
_MAX_EXACT = 1 << 53  # integers up to here, times or over a power of ten up to 1e22, round once (Clinger 1990)
_POWERS = np.array([float(f"1e{k}") for k in range(23)])

_TAB, _LF, _CR, _SPACE = 9, 10, 13, 32
_QUOTE, _COMMA, _MINUS, _DOT, _ZERO, _NINE, _COLON, _EQUALS = 34, 44, 45, 46, 48, 57, 58, 61
_OPEN_LIST, _ESCAPE, _CLOSE_LIST, _OPEN, _CLOSE = 91, 92, 93, 123, 125

Wrong = tuple[str, str]  # reason, message


def from_bytes(texts: Sequence[bytes | msgspec.Raw]) -> tuple[Features, NDArray[np.bool_], dict[int, Wrong]]:
    """(features of n rows, where there is an object, what is wrong by bad row); b"" and null are absent."""
    n = len(texts)
    joined = b"".join(texts)
    data = np.frombuffer(joined, np.uint8)
    ends = np.cumsum(np.fromiter([len(memoryview(text)) for text in texts], np.int64, n))
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1])) if n else ends
    try:
        joined.decode()
        ascii_only = False
    except UnicodeDecodeError:
        ascii_only = True
    room = data.size // 3 + 1  # the shortest entry is `"",` in a list
    index, value = np.empty(room, np.uint64), np.empty(room, np.float64)
    late = np.empty((data.size // 7 + 1, 2), np.int64)  # numbers left to Python; the shortest is in `"":1e1,`
    late_at = np.empty(room, np.int64)
    lengths, state = np.empty(n, np.int64), np.empty(n, np.int8)
    used, waiting = _scan(data, starts, ends, ascii_only, index, value, late, late_at, lengths, state)
    index, value = index[:used], value[:used]
    if waiting:
        spans = late[:waiting].tolist()
        value[late_at[:waiting]] = [float(joined[a:b]) for a, b in spans]
        infinite = np.flatnonzero(~np.isfinite(value))
        if infinite.size:
            state[np.searchsorted(np.cumsum(lengths), infinite, side="right")] = HARD
    hard = np.flatnonzero(state == HARD)
    if hard.size:
        return _with_hard(texts, hard, lengths, index, value, state)
    return Features(_indptr(lengths), index.copy(), value.copy()), state != ABSENT, {}


def _with_hard(
    texts: Sequence[bytes | msgspec.Raw],
    hard: NDArray[np.int64],
    lengths: NDArray[np.int64],
    index: NDArray[np.uint64],
    value: NDArray[np.float64],
    state: NDArray[np.int8],
) -> tuple[Features, NDArray[np.bool_], dict[int, Wrong]]:
    """The rows that the kernel left, read by msgspec and put between the others."""
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
    return out, state != ABSENT, wrong


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
def _after_space(data: NDArray[np.uint8], i: int, end: int) -> int:
    while i < end and (data[i] == _SPACE or data[i] == _LF or data[i] == _TAB or data[i] == _CR):
        i += 1
    return i


@numba.njit(cache=True, nogil=True)
def _string_end(data: NDArray[np.uint8], i: int, end: int, ascii_only: bool) -> int:
    """Where the closing quote of the string is whose first character is at i; -1: not a plain string."""
    while i < end:
        c = data[i]
        if c == _QUOTE:
            return i
        if c == _ESCAPE or c < _SPACE or (ascii_only and c >= 128):
            return -1
        i += 1
    return -1


@numba.njit(cache=True, nogil=True)
def _is_word(data: NDArray[np.uint8], i: int, end: int, word: NDArray[np.uint8]) -> bool:
    if i + word.size > end:
        return False
    for k in range(word.size):  # noqa: SIM110  (a kernel is a plain loop)
        if data[i + k] != word[k]:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def _one_hot(
    data: NDArray[np.uint8], name: int, name_end: int, text: int, text_end: int, scratch: NDArray[np.uint8]
) -> np.uint64:
    """The hash of `name=text`."""
    n = name_end - name
    size = n + 1 + text_end - text
    joined = scratch if size <= scratch.size else np.empty(size, np.uint8)
    for k in range(n):
        joined[k] = data[name + k]
    joined[n] = _EQUALS
    for k in range(text_end - text):
        joined[n + 1 + k] = data[text + k]
    return hash_span(joined, 0, size)


@numba.njit(cache=True, nogil=True)
def _number(data: NDArray[np.uint8], i: int, end: int) -> tuple[int, int, float]:
    """(READ, end, value) of the number at i, (ABSENT, end, 0) of one left to Python's float, (HARD, i, 0) of none."""
    negative = data[i] == _MINUS
    if negative:
        i += 1
    first = i
    whole = np.int64(0)
    digits = 0
    while i < end and _ZERO <= data[i] <= _NINE:
        if digits < 18:
            whole = whole * 10 + np.int64(data[i] - _ZERO)
        digits += 1
        i += 1
    if i == first or (data[first] == _ZERO and i > first + 1):
        return HARD, i, 0.0
    places = 0
    if i < end and data[i] == _DOT:
        i += 1
        while i < end and _ZERO <= data[i] <= _NINE:
            if digits < 18:
                whole = whole * 10 + np.int64(data[i] - _ZERO)
            digits += 1
            places += 1
            i += 1
        if places == 0:
            return HARD, i, 0.0
    exponent = i < end and (data[i] == 69 or data[i] == 101)  # E, e
    if exponent:
        i += 1
        if i < end and (data[i] == 43 or data[i] == _MINUS):
            i += 1
        first = i
        while i < end and _ZERO <= data[i] <= _NINE:
            i += 1
        if i == first:
            return HARD, i, 0.0
    if exponent or digits > 18 or whole > _MAX_EXACT:
        return ABSENT, i, 0.0
    value = np.float64(whole) / _POWERS[places]
    return READ, i, -value if negative else value


_TRUE, _FALSE, _NULL = (np.frombuffer(word, np.uint8) for word in (b"true", b"false", b"null"))


@numba.njit(cache=True, nogil=True)
def _scan(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], ascii_only: bool,
    index: NDArray[np.uint64], value: NDArray[np.float64], late: NDArray[np.int64], late_at: NDArray[np.int64],
    lengths: NDArray[np.int64], state: NDArray[np.int8],
) -> tuple[int, int]:  # fmt: skip
    """Fills the columns; (entries, late numbers). A row that turns out hard gives back what it had written."""
    names = np.empty(_MAX_NAMES, np.uint64)
    scratch = np.empty(512, np.uint8)
    used = 0
    waiting = 0
    for row in range(starts.size):
        used_before, waiting_before = used, waiting
        end = ends[row]
        i = _after_space(data, starts[row], end)
        if i == end or (_is_word(data, i, end, _NULL) and _after_space(data, i + 4, end) == end):
            state[row] = ABSENT
            lengths[row] = 0
            continue
        plain = data[i] == _OPEN
        i = _after_space(data, i + 1, end)
        n_names = 0
        more = plain and not (i < end and data[i] == _CLOSE)
        while more:
            more = plain = False  # until this member is read to its end
            if i >= end or data[i] != _QUOTE or n_names == _MAX_NAMES:
                break
            name = i + 1
            name_end = _string_end(data, name, end, ascii_only)
            if name_end < 0:
                break
            mixed = np.uint64(0xCBF29CE484222325)
            for k in range(name, name_end):
                mixed = (mixed ^ np.uint64(data[k])) * np.uint64(0x100000001B3)
            again = False
            for k in range(n_names):
                again |= names[k] == mixed
            if again:  # the last one would win: rare, and not the kernel's business
                break
            names[n_names] = mixed
            n_names += 1
            i = _after_space(data, name_end + 1, end)
            if i >= end or data[i] != _COLON:
                break
            i = _after_space(data, i + 1, end)
            if i >= end:
                break
            c = data[i]
            if c == _QUOTE:
                text_end = _string_end(data, i + 1, end, ascii_only)
                if text_end < 0:
                    break
                index[used] = _one_hot(data, name, name_end, i + 1, text_end, scratch)
                value[used] = 1.0
                used += 1
                i = text_end + 1
            elif c == _MINUS or _ZERO <= c <= _NINE:
                begin = i
                outcome, i, number = _number(data, i, end)
                if outcome == HARD:
                    break
                if outcome == ABSENT:
                    late[waiting, 0], late[waiting, 1], late_at[waiting] = begin, i, used
                    waiting += 1
                index[used] = hash_span(data, name, name_end)
                value[used] = number
                used += 1
            elif _is_word(data, i, end, _TRUE) or _is_word(data, i, end, _FALSE):
                index[used] = hash_span(data, name, name_end)
                value[used] = 1.0 if c == _TRUE[0] else 0.0
                used += 1
                i += 4 if c == _TRUE[0] else 5
            elif _is_word(data, i, end, _NULL):
                i += 4
            elif c == _OPEN_LIST:
                i = _after_space(data, i + 1, end)
                open_list = not (i < end and data[i] == _CLOSE_LIST)
                while open_list:
                    if i >= end or data[i] != _QUOTE:
                        break
                    text_end = _string_end(data, i + 1, end, ascii_only)
                    if text_end < 0:
                        break
                    index[used] = _one_hot(data, name, name_end, i + 1, text_end, scratch)
                    value[used] = 1.0
                    used += 1
                    i = _after_space(data, text_end + 1, end)
                    if i < end and data[i] == _COMMA:
                        i = _after_space(data, i + 1, end)
                    else:
                        open_list = False
                if open_list or i >= end or data[i] != _CLOSE_LIST:
                    break
                i += 1
            else:
                break
            i = _after_space(data, i, end)
            if i >= end:
                break
            if data[i] == _COMMA:
                i = _after_space(data, i + 1, end)
                more = plain = True
            else:
                plain = data[i] == _CLOSE
        if plain and i < end and _after_space(data, i + 1, end) == end:
            state[row] = READ
        else:
            state[row] = HARD
            used, waiting = used_before, waiting_before
        lengths[row] = used - used_before
    return used, waiting

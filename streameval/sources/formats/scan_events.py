"""Events straight from the bytes of JSON objects to columns, without a Python object each: in a single pass, without
the interpreter's lock.

The kernel reads the plain case of every field of the table (`events.fields`). If it meets anything else (an escape, a
repeated field, a type that is not the field's, a number out of its range or of more than 19 digits, text that is not
UTF-8, something that is not an object), it leaves that row as a whole to the slow decoder (`json`), which also
describes what is wrong with it. So the two can differ only in speed.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.hashing import hash_at
from streameval.events.words64 import address_of, is_same, load8, load_double
from streameval.sources.formats.decimals import HARD, digits, number
from streameval.sources.formats.event_layout import (
    BEGINS,
    BY_VERSION,
    ENDS,
    FEATURES,
    HAS_FEATURES,
    HAS_TS,
    HASHES,
    ID,
    INTEGER,
    IS_PLAIN,
    KIND,
    LABEL,
    LENGTHS,
    NUMBER,
    OF_SLICES,
    PLACE,
    TIME,
    TS,
    WORD,
    EventLayout,
)
from streameval.sources.formats.feature_columns import FeatureColumns, feature_places, forget_names
from streameval.sources.formats.iso_times import iso_ms
from streameval.sources.formats.json_text import (
    CLOSE,
    COMMA,
    FALSE,
    MINUS,
    NINE,
    OPEN,
    QUOTE,
    SMALL_N,
    SMALL_T,
    TRUE,
    ZERO,
    after_space,
    is_word,
    named_value,
    string_end,
    value_end,
)
from streameval.sources.formats.pool import Pool, intern, pool_places
from streameval.sources.formats.scan_features import scan_object
from streameval.sources.formats.scanned import VERSIONS_AT_MOST, Messages, ScannedColumns, give_back

_MOST_DIGITS = 18
_LIMIT_BYTES = 24  # of a row of limits: the lowest, the highest, and whether the lowest is excluded
_MOST_MEMBERS = 64  # members whose position is remembered


def scan(messages: Messages, layout: EventLayout) -> tuple[ScannedColumns, Pool, FeatureColumns]:
    """Returns the columns of the messages; those that it could not read are marked as `hard`."""
    out = ScannedColumns.of(layout, messages, 5)  # the shortest number of a version is `"":0,`
    words = len(layout.words) + layout.dimensions
    pool = Pool.of(words + len(layout.by_version), len(messages.bounds))
    features = FeatureColumns.of(messages.data.size if messages.features else 0, 3)  # in a list `"",`
    rows = (layout.codes, words, layout.spans if messages.spans else -1)
    _scan(messages, layout.text, layout.names, layout.limits, rows, out, pool, features)
    return out, pool, features


# -- the kernel ------------------------------------------------------------------------------------------------------


@numba.njit(inline="always")
def _is_name(start: int, end: int, names: NDArray[np.int64], text: int, k: int) -> bool:
    first = names[k, BEGINS]
    return names[k, ENDS] - first == end - start and is_same(start, text + first, end - start)


@numba.njit(inline="always")
def _stands_there(i: int, end: int, names: NDArray[np.int64], text: int, k: int) -> bool:
    """Whether `"name":` of the k-th name begins at i."""
    first = names[k, BEGINS] - 1
    size = names[k, ENDS] + 2 - first
    return names[k, IS_PLAIN] and i + size <= end and is_same(i, text + first, size)


@numba.njit(cache=True, nogil=True)
def which_name(
    start: int,
    end: int,
    names: NDArray[np.int64],
    text: int,
    first: int,
    last: int,
) -> int:
    """Returns which of the names from `first` to `last` - 1 is there; -1: none."""
    for k in range(first, last):
        if _is_name(start, end, names, text, k):
            return k
    return -1


@numba.njit(cache=True, nogil=True)
def _number_of(i: int, end: int, kind: int, limits: int) -> tuple[int, float]:
    """Returns (end of the value that begins at i, the number); -1: not valid for a field with limits at that address."""
    if kind == LABEL and (is_word(i, end, TRUE) or is_word(i, end, FALSE)):
        return (i + 4, 1.0) if load8(i) == SMALL_T else (i + 5, 0.0)
    if not (load8(i) == MINUS or ZERO <= load8(i) <= NINE):
        return -1, 0.0
    begin = i
    outcome, i, x = number(i, end)
    if outcome == HARD:
        return -1, 0.0
    if kind in (INTEGER, LABEL):
        for k in range(begin, i):
            if not ZERO <= load8(k) <= NINE:
                return -1, 0.0
    if kind == LABEL:
        return (i, x) if x <= 1.0 else (-1, 0.0)
    lowest = load_double(limits)
    if x < lowest or x > load_double(limits + 8) or (load_double(limits + 16) != 0.0 and x == lowest):
        return -1, 0.0
    return i, x


@numba.njit(cache=True, nogil=True)
def _time_of(i: int, end: int, ascii_only: bool) -> tuple[int, int]:
    """Returns (end of the time that begins at i, ms); -1: not plain."""
    if load8(i) == QUOTE:
        close = string_end(i + 1, end, ascii_only)
        if close < 0:
            return -1, 0
        good, ms = iso_ms(i + 1, close)
        return (close + 1, ms) if good else (-1, 0)
    return integer_of(i, end)


@numba.njit(cache=True, nogil=True)
def integer_of(i: int, end: int) -> tuple[int, int]:
    """Returns (end of the integer that begins at i, its value); -1: there is none. The caller checks what follows its
    digits.
    """
    negative = load8(i) == MINUS
    if negative:
        i += 1
    first = i
    i, w = digits(i, end, np.uint64(0))
    value = int(np.int64(w))
    if i == first or i > first + _MOST_DIGITS or (load8(first) == ZERO and i > first + 1) or (negative and value == 0):
        return -1, 0
    return i, -value if negative else value


@numba.njit(cache=True, nogil=True)
def _scan(
    messages: Messages,
    text: NDArray[np.uint8],
    names: NDArray[np.int64],
    limits: NDArray[np.float64],
    rows: tuple[int, int, int],
    out: ScannedColumns,
    pool: Pool,
    features: FeatureColumns,
) -> None:
    """Reads plain messages. A row that turns out to be hard is cleared.

    `rows`: the first row of codes in `out.whole`, the number of columns of words, and the first row of spans (-1: not
    needed).
    """
    # unpacked here: reading a field in the loop costs twice as much as the rest of it
    data, bounds, hard, ascii_only, want_features, _ = messages
    start_of_all, known_text, limits_at = address_of(data), address_of(text), address_of(limits)
    whole, real, versions, version_numbers, used = out
    cells, words, columns = pool
    places = pool_places(cells, words, columns)
    entry, value, known, mixed, scratch = features
    noted = feature_places(entry, value, known, mixed, scratch)
    codes, word_columns, spans = rows
    fields_ = len(limits)
    guesses = np.full((2, _MOST_MEMBERS), -1)
    used_before = np.zeros_like(used)
    entries = 0
    for row in range(len(bounds)):
        if hard[row]:
            continue
        for k in range(used.size):
            used_before[k] = used[k]
        entries_before = entries
        end = start_of_all + bounds[row, 1]
        i = after_space(start_of_all + bounds[row, 0], end)
        good = i < end and load8(i) == OPEN
        more = good
        inside = -1  # the field whose object, within the event's, is being read
        member = nested = 0
        seen = seen_inside = np.uint64(0)
        if good:
            i = after_space(i + 1, end)
            if i < end and load8(i) == CLOSE:
                more = False
                i += 1
        while more:
            more = good = False  # until this member has been read completely
            # usually the member that was here in the previous message
            guess = -1
            if inside < 0:
                if member < _MOST_MEMBERS:
                    guess = guesses[0, member]
            elif names[inside, KIND] == OF_SLICES and nested < _MOST_MEMBERS:
                guess = guesses[1, nested]
            name = i + 1
            guessed = guess >= 0 and _stands_there(i, end, names, known_text, guess)
            if guessed:
                name_end = name + names[guess, ENDS] - names[guess, BEGINS]
                i = after_space(name_end + 2, end)
            else:
                i, name_end = named_value(i, end, ascii_only)
            if i < 0 or i >= end:
                break
            c = load8(i)
            if inside < 0:  # a member of the event
                field = guess
                if not guessed:
                    field = which_name(name, name_end, names, known_text, 0, fields_)
                    if member < _MOST_MEMBERS:
                        guesses[0, member] = field
                member += 1
                if field < 0 or c == SMALL_N:
                    i = value_end(i, end, ascii_only)
                kind = names[field, KIND] if field >= 0 else -1
                slot = names[field, PLACE] if field >= 0 else -1
                if field >= 0:
                    bit = np.uint64(1) << np.uint64(field)
                    if seen & bit:  # the last one would win: rare, and left to the slow decoder
                        break
                    seen |= bit
                if field < 0 or c == SMALL_N:
                    pass
                elif kind == ID:
                    if c != QUOTE:
                        break
                    begin = i + 1
                    i = string_end(begin, end, ascii_only)
                    if i > begin:
                        whole[HASHES + slot, row] = np.int64(hash_at(begin, i))
                        if spans >= 0:
                            whole[spans + 2 * slot, row], whole[spans + 2 * slot + 1, row] = (
                                begin - start_of_all,
                                i - start_of_all,
                            )
                    i = i + 1 if i >= 0 else -1
                elif kind == WORD:
                    if c != QUOTE:
                        break
                    begin = i + 1
                    i = string_end(begin, end, ascii_only)
                    if i < 0:
                        break
                    code = intern(start_of_all, begin, i, slot, places)
                    whole[codes + slot, row] = code
                    i = i + 1 if code >= 0 else -1
                elif kind == TIME:
                    i, whole[TS, row] = _time_of(i, end, ascii_only)
                    whole[HAS_TS, row] = 1
                elif kind in (OF_SLICES, BY_VERSION):
                    if c != OPEN:
                        break
                    i = after_space(i + 1, end)
                    if i < end and load8(i) == CLOSE:
                        i += 1
                    else:
                        inside, nested, seen_inside = field, 0, np.uint64(0)
                        more = good = True
                        continue
                elif kind == FEATURES:
                    whole[HAS_FEATURES, row] = 1
                    if want_features:
                        i, entries = scan_object(i, end, ascii_only, noted, entries)
                        whole[LENGTHS, row] = entries - entries_before
                    else:
                        i = value_end(i, end, ascii_only)
                else:
                    i, real[slot, row] = _number_of(i, end, kind, limits_at + _LIMIT_BYTES * field)
            elif names[inside, KIND] == OF_SLICES:
                field = guess
                if not guessed:
                    field = which_name(name, name_end, names, known_text, fields_, len(names))
                    if nested < _MOST_MEMBERS:
                        guesses[1, nested] = field
                nested += 1
                if field >= 0:
                    bit = np.uint64(1) << np.uint64(field - fields_)
                    if seen_inside & bit:
                        break
                    seen_inside |= bit
                if field < 0 or c == SMALL_N:
                    i = value_end(i, end, ascii_only)
                else:
                    slot = names[field, PLACE]
                    begin = word_end = i
                    if c == QUOTE:
                        begin = i + 1
                        word_end = string_end(begin, end, ascii_only)
                        i = word_end + 1
                    elif is_word(i, end, TRUE) or is_word(i, end, FALSE):
                        word_end = i = i + (4 if c == SMALL_T else 5)
                    else:
                        i, _ = integer_of(i, end)  # an integer is its own text
                        word_end = i
                    if word_end < 0:
                        break
                    code = intern(start_of_all, begin, word_end, slot, places)
                    if code < 0:
                        break
                    whole[codes + slot, row] = code
            else:  # the number of a version
                slot = names[inside, PLACE]
                i, x = _number_of(i, end, NUMBER, limits_at + _LIMIT_BYTES * inside)
                if i < 0:
                    break
                code = intern(start_of_all, name, name_end, word_columns + slot, places)
                last = used[slot]
                twice = code < 0 or last - used_before[slot] == VERSIONS_AT_MOST
                for k in range(used_before[slot], last):
                    twice |= versions[slot, 1, k] == code
                if twice:
                    break
                versions[slot, 0, last], versions[slot, 1, last], version_numbers[slot, last] = row, code, x
                used[slot] = last + 1
            if i < 0:
                break
            i = after_space(i, end)
            if inside >= 0 and i < end and load8(i) == CLOSE:
                inside = -1
                i = after_space(i + 1, end)
            if i >= end:
                break
            if load8(i) == COMMA:
                i = after_space(i + 1, end)
                more = good = True
            elif load8(i) == CLOSE and inside < 0:
                i += 1
                good = True
        if good and after_space(i, end) == end:
            continue
        hard[row] = True
        entries = entries_before
        for k in range(used.size):
            used[k] = used_before[k]
        give_back(row, codes, codes + word_columns, whole, real)
        forget_names(noted, 0)  # a name of features may be repeated

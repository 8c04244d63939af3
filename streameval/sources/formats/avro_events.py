"""Events straight from the bytes of Avro messages to columns, by the plan of their schema: in a single pass, without
the interpreter's lock.

The kernel reads the plain case. A message that contains anything else (a repeated name in a map, a number out of its
range, text that is not UTF-8 or not a time, too few or too many bytes) is left as a whole to `avro_kernel` and Arrow,
which also describe what is wrong with it. So the two can differ only in speed.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.hashing import hash_at
from streameval.events.words64 import PADDING, address_of, is_same
from streameval.sources.formats.avro_kernel import (
    ENUM,
    NULL_VALUE,
    READABLE,
    Slots,
    is_text,
    read_message,
    room_for_calls,
    varint,
)
from streameval.sources.formats.avro_plan import (
    ARGUMENT,
    BEGINS_AT,
    BRANCHES,
    EXTENT,
    FOREIGN,
    GOES_TO,
    MAP_OF,
    NUMBERED,
    STRING,
    TARGET,
    WIRE,
    ReadingPlan,
)
from streameval.sources.formats.avro_values import block_at, branch_at, hash_of_integer, plain_at, text_at
from streameval.sources.formats.event_layout import (
    FEATURES,
    HAS_FEATURES,
    HAS_TS,
    HASHES,
    ID,
    INTEGER,
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
from streameval.sources.formats.iso_times import iso_ms
from streameval.sources.formats.pool import Pool, intern, pool_places
from streameval.sources.formats.raw import RawEvents
from streameval.sources.formats.scan_events import which_name
from streameval.sources.formats.scanned import VERSIONS_AT_MOST, Messages, ScannedColumns, give_back, raw_events

_SHORTEST = 2  # bytes of an entry of a map: the length of its name, which is empty, and a number


def events(
    data: bytes, bounds: NDArray[np.int64], kind: int, plan: ReadingPlan, layout: EventLayout, hashed: bool
) -> tuple[RawEvents, NDArray[np.bool_]]:
    """Returns (raw columns, which rows the kernel has left) for the messages data[bounds[k, 0]:bounds[k, 1]]; the data
    must end with `words64.PADDING`. `hashed`: features are needed.
    """
    if plan.text:
        data = data + plan.text + PADDING
    messages = Messages(np.frombuffer(data, np.uint8), bounds, np.zeros(len(bounds), np.bool_), False, hashed, False)
    out = ScannedColumns.of(layout, messages, _SHORTEST)
    words = len(layout.words) + layout.dimensions
    pool = Pool.of(words + len(layout.by_version), len(bounds))
    features = FeatureColumns.of(messages.data.size if hashed else 64, _SHORTEST)  # a number is written there, too
    symbols = plan.symbols + (len(data) - len(plan.text) - len(PADDING))
    arrays = (plan.steps, plan.branches, symbols, plan.ops, plan.jumps)
    rows = (layout.codes, words)
    _events(
        messages, arrays, layout.text, layout.names, layout.limits, rows=rows, out=out, pool=pool, features=features
    )
    raw = raw_events(data, np.full(len(bounds), kind, np.int8), layout, out, pool, features, hashed=hashed, names=False)
    return raw, messages.hard


# -- the kernel ------------------------------------------------------------------------------------------------------


@numba.njit(inline="always")
def _is_in_range(x: float, target: int, limits: NDArray[np.float64], field: int) -> bool:
    """Whether a number is in a field's range."""
    if target == LABEL:
        return x in (0.0, 1.0)
    if not math.isfinite(x) or (target == INTEGER and x != math.floor(x)):
        return False
    return limits[field, 0] <= x <= limits[field, 1] and not (limits[field, 2] and x == limits[field, 0])


@numba.njit(cache=True, nogil=True)
def _features(
    i: int,
    end: int,
    first: int,
    count: int,
    branches: NDArray[np.int64],
    want: bool,
    places: FeaturePlaces,
    used: int,
) -> tuple[int, int]:
    """Returns (end of the map that begins at i, entries in use after it), like `scan_features.scan_object`; -1: not
    plain.
    """
    as_before = True  # the names equal those of the previous row, so none is repeated
    n = left = 0
    while True:
        if left == 0:
            left, i = block_at(i, end)
            if i < 0:
                return -1, used
            if left == 0:
                break
        left -= 1
        size, name = varint(i, end)
        if n == MAX_NAMES or name < 0 or not 0 <= size <= end - name:
            return -1, used
        before, before_end = name_before(places, n)
        i = name + size
        if not (as_before and before_end - before == size and is_same(name, before, size)):
            as_before = False
            if not is_text(name, i):
                return -1, used
        keep_name(places, n, name, i)
        n += 1
        name_end = i
        i, branch = branch_at(i, end, first, count)
        if i < 0:
            return -1, used
        wire = branches[branch, WIRE]
        if wire == STRING:
            begin, i = text_at(i, end)
            if i < 0:
                return -1, used
            if want:
                keep_entry(places, used, one_hot(name, name_end, begin, i, places[4]), 1.0)
                used += 1
            continue
        i, _, x = plain_at(i, end, wire)
        if i < 0 or not math.isfinite(x):
            return -1, used
        if want and wire != NULL_VALUE:
            keep_entry(places, used, hash_at(name, name_end), x)
            used += 1
    forget_names(places, n)
    if not as_before and is_there_twice(places, n):
        return -1, used
    return i, used


@numba.njit(cache=True, nogil=True)
def _events(
    messages: Messages,
    plan: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    text: NDArray[np.uint8],
    names: NDArray[np.int64],
    limits: NDArray[np.float64],
    rows: tuple[int, int],
    out: ScannedColumns,
    pool: Pool,
    features: FeatureColumns,
) -> None:
    """Reads plain messages. A row that turns out not to be plain is cleared.

    `plan`: the arrays of a `ReadingPlan`, in order. `rows`: the first row of codes in `out.whole`, and the number of
    columns of words.
    """
    # unpacked here: reading a field in the loop costs twice as much as the rest of it
    data, bounds, hard, _, want_features, _ = messages
    steps, branches, symbols, ops, jumps = plan
    start, known_text = address_of(data), address_of(text)
    whole, real, versions, version_numbers, used = out
    cells, words, columns = pool
    places = pool_places(cells, words, columns)
    entry, value, known, mixed, scratch = features
    noted = feature_places(entry, value, known, mixed, scratch)
    scratch_at = address_of(scratch)
    codes, word_columns = rows
    fields_ = len(limits)
    used_before = np.zeros_like(used)
    entries = 0
    no_columns, no_cells, stack = np.zeros(1, np.int64), np.zeros(1, np.uint8), room_for_calls()
    nowhere = Slots(no_columns, no_columns, no_columns, no_cells)
    for row in range(len(bounds)):
        for k in range(used.size):
            used_before[k] = used[k]
        entries_before = entries
        i, end = start + bounds[row, 0], start + bounds[row, 1]
        for s in range(len(steps)):
            target, slot, field = steps[s, TARGET], steps[s, GOES_TO], steps[s, NUMBERED]
            i, branch = branch_at(i, end, steps[s, BEGINS_AT], steps[s, BRANCHES])
            if i < 0:
                break
            wire, a, b = branches[branch, WIRE], branches[branch, ARGUMENT], branches[branch, EXTENT]
            if wire == NULL_VALUE:
                continue
            if wire == FOREIGN:
                why, _, i = read_message(
                    start, i, end, pc=a, ops=ops, jumps=jumps, count=no_columns, stack=stack, slots=nowhere
                )
                if why != READABLE:
                    i = -1
                    break
                continue
            if target == FEATURES:
                whole[HAS_FEATURES, row] = 1
                i, entries = _features(
                    i,
                    end,
                    a,
                    b,
                    branches=branches,
                    want=want_features,
                    places=noted,
                    used=entries,
                )
                if i < 0:
                    break
                whole[LENGTHS, row] = entries - entries_before
                continue
            if wire == MAP_OF:
                left, seen = 0, np.uint64(0)
                while True:
                    if left == 0:
                        left, i = block_at(i, end)
                        if i < 0 or left == 0:
                            break
                    left -= 1
                    name, name_end = text_at(i, end)
                    if name < 0:
                        i = -1
                        break
                    i, branch = branch_at(name_end, end, a, b)
                    if i < 0:
                        break
                    inner = branches[branch, WIRE]
                    x = math.nan
                    if inner == STRING:
                        begin, i = text_at(i, end)
                    else:
                        begin = i
                        i, _, x = plain_at(i, end, inner)
                    if i < 0:
                        break
                    if target == OF_SLICES:
                        k = which_name(name, name_end, names, known_text, fields_, len(names))
                        if k < 0:
                            continue
                        bit = np.uint64(1) << np.uint64(k - fields_)
                        twice = seen & bit != 0
                        seen |= bit
                        code = -1
                        if inner == STRING and not twice:
                            code = intern(start, begin, i, names[k, PLACE], places)
                        if twice or (code < 0 and inner != NULL_VALUE):
                            i = -1
                            break
                        whole[codes + names[k, PLACE], row] = code
                        continue
                    if inner == NULL_VALUE or not _is_in_range(x, NUMBER, limits, field):
                        i = -1
                        break
                    code = intern(start, name, name_end, word_columns + slot, places)
                    last = used[slot]
                    twice = code < 0 or last - used_before[slot] == VERSIONS_AT_MOST
                    for k in range(used_before[slot], last):
                        twice |= versions[slot, 1, k] == code
                    if twice:
                        i = -1
                        break
                    versions[slot, 0, last], versions[slot, 1, last], version_numbers[slot, last] = row, code, x
                    used[slot] = last + 1
                if i < 0:
                    break
                continue
            n, x, begin = 0, math.nan, i
            if wire == STRING:
                begin, i = text_at(i, end)
            else:
                i, n, x = plain_at(i, end, wire)
            if i < 0 or (wire == ENUM and not 0 <= n < b):
                i = -1
                break
            stop = i
            if wire == ENUM:
                begin, stop = start + symbols[a + n, 0], start + symbols[a + n, 1]
            good = True
            if target == ID:
                if wire in (STRING, ENUM):
                    if stop > begin:
                        whole[HASHES + slot, row] = np.int64(hash_at(begin, stop))
                elif 0 <= n < 1_000_000_000_000_000_000:
                    whole[HASHES + slot, row] = np.int64(hash_of_integer(n, scratch_at))
                else:
                    good = False
            elif target == WORD:
                code = intern(start, begin, stop, slot, places)
                whole[codes + slot, row] = code
                good = code >= 0
            elif target == TIME:
                if wire == STRING:
                    good, n = iso_ms(begin, stop)
                else:
                    good, n = n >= 0, n // a
                whole[TS, row], whole[HAS_TS, row] = n, 1
            elif target >= 0:
                good = _is_in_range(x, target, limits, field)
                real[slot, row] = x
            if not good:
                i = -1
                break
        if i == end:
            continue
        hard[row] = True
        entries = entries_before
        for k in range(used.size):
            used[k] = used_before[k]
        give_back(row, codes, codes + word_columns, whole, real)
        forget_names(noted, 0)  # a name of features may be repeated

"""Arrow's map columns, from text to plain values, unpacked a column at a time.

Anything unusual (a repeated name in a row, a null among numbers, lists, a number that is not finite) is left to the
row-by-row form of `arrow`, so the two can differ only in speed. About 0.1 us per entry.
"""

from __future__ import annotations

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streameval.events.batch import Features
from streameval.events.hashing import hash_span, hash_strings, string_buffers
from streameval.sources.formats.raw import ByVersion

_NONE, _TEXT, _NUMBER = 0, 1, 2
_EQUALS = 61


class _Entries:
    """The entries of a map column with text keys, one after the other."""

    def __init__(self, column: pa.Array) -> None:
        self.n = len(column)
        offsets = np.asarray(column.offsets).astype(np.int64)
        lengths = np.diff(offsets)
        if column.null_count:
            lengths[column.is_null().to_numpy(zero_copy_only=False)] = 0
        self.row = np.repeat(np.arange(self.n), lengths)
        first, end = (int(offsets[0]), int(offsets[-1])) if self.n else (0, 0)
        self.plain = int(lengths.sum()) == end - first  # no entries are hidden by a null
        self.key = column.keys.slice(first, end - first) if len(column.keys) >= end else column.keys
        self.item = column.items.slice(first, end - first) if len(column.items) >= end else column.items
        self.indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))

    def distinct(self) -> bool:
        """Whether no row has a repeated key."""
        codes = self.key.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return bool(_distinct(self.indptr, codes))


def is_plain_map(column: pa.Array) -> bool:
    """Whether this module can read the column."""
    kind = column.type
    return pa.types.is_map(kind) and (pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type))


def unread(column: pa.Array) -> Features | None:
    """Returns empty features for a map column that nobody reads; None if the row-by-row form would reject a row."""
    for at, item in _branches(_Entries(column).item):
        kind = item.type
        if pa.types.is_floating(kind):
            if not np.isfinite(item.to_numpy(zero_copy_only=False)[at]).all():
                return None
        elif at.size and not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            return None
    return Features(np.zeros(len(column) + 1, np.int64), np.empty(0, np.uint64), np.empty(0))


def features(column: pa.Array) -> Features | None:
    """Returns hashed features from a map column; None: not plain."""
    entries = _Entries(column)
    if not entries.plain or not entries.distinct():
        return None
    size = len(entries.key)
    index, value = np.zeros(size, np.uint64), np.ones(size)
    what = np.zeros(size, np.int8)
    for at, item in _branches(entries.item):
        kind = item.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            _hash_pairs(*string_buffers(entries.key.cast(pa.large_string())), *string_buffers(item), at, index)
            what[at] = _TEXT
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
            numbers = item.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)[at]
            if not np.isfinite(numbers).all():
                return None
            value[at], what[at] = numbers, _NUMBER
            index[at] = hash_strings(entries.key.take(pa.array(at)))
        elif at.size:
            return None
    kept = what != _NONE
    lengths = np.bincount(entries.row[kept], minlength=entries.n)
    return Features(np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))), index[kept], value[kept])


def by_version(column: pa.Array) -> ByVersion | None:
    """Returns the numbers in a map column; None: not plain."""
    entries = _Entries(column)
    kind = entries.item.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)) or entries.item.null_count:
        return None
    if not entries.plain or not entries.distinct():
        return None
    numbers = entries.item.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return ByVersion(entries.row, entries.key.cast(pa.string()), np.array(numbers, np.float64))


def values(column: pa.Array, name: str) -> pa.Array | None:
    """Returns the texts that a map column of texts has under one key; None: not plain."""
    entries = _Entries(column)
    if not entries.plain or not pa.types.is_string(entries.item.type):
        return None
    at = np.flatnonzero(pc.equal(entries.key, name).to_numpy(zero_copy_only=False))
    place = np.full(entries.n, -1, np.int64)
    place[entries.row[at]] = at  # the last one of a repeated name counts
    return entries.item.take(pa.array(place, mask=place < 0))


def _branches(item: pa.Array) -> list[tuple[NDArray[np.int64], pa.Array]]:
    """Returns (where it is not null, the array) for every type of the values."""
    if not pa.types.is_union(item.type):
        return [(_there(item), item)]
    codes = item.type_codes.to_numpy()
    out = []
    for k in range(item.type.num_fields):
        child = item.field(k)
        mine = _there(child)
        out.append((mine[codes[mine] == k], child))
    return out


def _there(column: pa.Array) -> NDArray[np.int64]:
    return np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))


@numba.njit(cache=True, nogil=True)
def _distinct(indptr: NDArray[np.int64], codes: NDArray[np.int64]) -> bool:
    for i in range(indptr.size - 1):
        for j in range(indptr[i] + 1, indptr[i + 1]):
            if j - indptr[i] > 256:  # quadratic: longer rows are read in the other way
                return False
            for k in range(indptr[i], j):
                if codes[k] == codes[j]:
                    return False
    return True


@numba.njit(cache=True, nogil=True)
def _hash_pairs(
    keys: NDArray[np.uint8],
    key_at: NDArray[np.int64],
    texts: NDArray[np.uint8],
    text_at: NDArray[np.int64],
    entries: NDArray[np.int64],
    out: NDArray[np.uint64],
) -> None:
    """Fills in out[e], the hash of `key=text`, for the given entries."""
    joined = np.empty(512, np.uint8)
    for e in entries:
        n = key_at[e + 1] - key_at[e]
        size = n + 1 + text_at[e + 1] - text_at[e]
        if size > joined.size:
            joined = np.empty(2 * size, np.uint8)
        for k in range(n):
            joined[k] = keys[key_at[e] + k]
        joined[n] = _EQUALS
        for k in range(size - n - 1):
            joined[n + 1 + k] = texts[text_at[e] + k]
        out[e] = hash_span(joined, 0, size)

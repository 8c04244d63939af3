"""Ids as 64-bit integers: xxHash64 (seed 0) of the UTF-8 bytes, the same on every machine, run and version.

Written from the published specification (xxHash fast digest algorithm, XXH64); 0 is kept for "absent", so the one
input in 2**64 whose hash is 0 becomes 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.events.words64 import address_of, load8, load32, load64

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_LOW = np.uint64(0xFFFFFFFF)


@numba.njit(inline="always")
def _rotate(x: np.uint64, r: int) -> np.uint64:
    return (x << np.uint64(r)) | (x >> np.uint64(64 - r))


@numba.njit(inline="always")
def _round(acc: np.uint64, lane: np.uint64) -> np.uint64:
    return _rotate(acc + lane * _P2, 31) * _P1


@numba.njit(inline="always")
def _merge(acc: np.uint64, value: np.uint64) -> np.uint64:
    return (acc ^ _round(np.uint64(0), value)) * _P1 + _P4


@numba.njit(inline="always")
def _with_eight(h: np.uint64, word: np.uint64) -> np.uint64:
    return _rotate(h ^ _round(np.uint64(0), word), 27) * _P1 + _P4


@numba.njit(inline="always")
def _with_four(h: np.uint64, lane: np.uint64) -> np.uint64:
    return _rotate(h ^ (lane * _P1), 23) * _P2 + _P3


@numba.njit(inline="always")
def _with_one(h: np.uint64, byte: np.uint64) -> np.uint64:
    return _rotate(h ^ (byte * _P5), 11) * _P1


@numba.njit(inline="always")
def _mixed(h: np.uint64) -> np.uint64:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    h ^= h >> np.uint64(32)
    return h if h != 0 else np.uint64(1)


@numba.njit(cache=True, nogil=True)
def hash_at(start: int, end: int) -> np.uint64:
    """The hash of the bytes between two addresses: the kernel that everything else here calls, for use in other kernels."""
    n = end - start
    i = start
    if n >= 32:
        a, b = _P1 + _P2, _P2
        c, d = np.uint64(0), np.uint64(0) - _P1
        while i + 32 <= end:
            a = _round(a, load64(i))
            b = _round(b, load64(i + 8))
            c = _round(c, load64(i + 16))
            d = _round(d, load64(i + 24))
            i += 32
        h = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
        h = _merge(_merge(_merge(_merge(h, a), b), c), d)
    else:
        h = _P5
    h += np.uint64(n)
    while i + 8 <= end:
        h = _with_eight(h, load64(i))
        i += 8
    if i + 4 <= end:
        h = _with_four(h, np.uint64(load32(i)))
        i += 4
    while i < end:
        h = _with_one(h, np.uint64(load8(i)))
        i += 1
    return _mixed(h)


@numba.njit(inline="always")
def _eight_of_two(one: int, size: int, between: np.uint64, other: int, k: int) -> np.uint64:
    """The bytes from the k-th one on of: `size` bytes at `one`, the byte `between`, those at `other`."""
    if k + 8 <= size:
        return load64(one + k)
    if k > size:
        return load64(other + k - size - 1)
    bits = np.uint64(8 * (size - k))
    word = (load64(one + k) & ((np.uint64(1) << bits) - np.uint64(1))) | between << bits
    return word | load64(other) << bits << np.uint64(8)


@numba.njit(cache=True, nogil=True)
def hash_two(one: int, one_end: int, between: np.uint64, other: int, other_end: int) -> np.uint64:
    """The hash of two texts with the byte `between` in between, less than 32 bytes in all, without copying them.

    Both must end with `words64.PADDING`.
    """
    size = one_end - one
    n = size + 1 + other_end - other
    h = _P5 + np.uint64(n)
    k = 0
    while k + 8 <= n:
        h = _with_eight(h, _eight_of_two(one, size, between, other, k))
        k += 8
    word = _eight_of_two(one, size, between, other, k)
    if n & 4:
        h = _with_four(h, word & _LOW)
        word >>= np.uint64(32)
    for _ in range(n & 3):
        h = _with_one(h, word & np.uint64(0xFF))
        word >>= np.uint64(8)
    return _mixed(h)


@numba.njit(inline="always")
def hash_span(data: NDArray[np.uint8], start: int, end: int) -> np.uint64:
    """The hash of data[start:end]."""
    return hash_at(address_of(data) + start, address_of(data) + end)


@numba.njit(cache=True, nogil=True)
def _hash_all(data: NDArray[np.uint8], offsets: NDArray[np.int64], out: NDArray[np.uint64]) -> None:
    for i in range(out.size):
        out[i] = hash_span(data, offsets[i], offsets[i + 1])


@numba.njit(cache=True, nogil=True)
def _hash_prefixed(
    prefix: NDArray[np.uint8], data: NDArray[np.uint8], offsets: NDArray[np.int64], out: NDArray[np.uint64]
) -> None:
    longest = 0
    for i in range(out.size):
        longest = max(longest, offsets[i + 1] - offsets[i])
    joined = np.empty(prefix.size + longest, np.uint8)
    joined[: prefix.size] = prefix
    for i in range(out.size):
        end = prefix.size
        for k in range(offsets[i], offsets[i + 1]):
            joined[end] = data[k]
            end += 1
        out[i] = hash_span(joined, 0, end)


def hash_one(text: str) -> int:
    """The hash of one id."""
    return int(hash_strings([text])[0])


def hash_strings(texts: Sequence[str | None] | pa.Array, prefix: str = "") -> NDArray[np.uint64]:
    """Hashes of n strings (uint64[n]), each with `prefix` in front; 0 where one is None or null.

    Lone surrogates, which Python strings can hold and UTF-8 cannot, are hashed as their three-byte form.
    """
    if not isinstance(texts, pa.Array):
        try:
            texts = pa.array(texts, pa.large_string())
        except UnicodeEncodeError:
            encoded = [None if text is None else text.encode("utf-8", "surrogatepass") for text in texts]
            texts = pa.array(encoded, pa.large_binary())
    if pa.types.is_dictionary(texts.type):
        codes = texts.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        hashes = hash_strings(texts.dictionary, prefix)
        out = hashes[codes] if hashes.size else np.zeros(len(texts), np.uint64)
    else:
        data, offsets = string_buffers(texts)
        out = np.empty(len(texts), np.uint64)
        if prefix:
            _hash_prefixed(np.frombuffer(prefix.encode("utf-8", "surrogatepass"), np.uint8), data, offsets, out)
        else:
            _hash_all(data, offsets, out)
    if texts.null_count:
        out[texts.is_null().to_numpy(zero_copy_only=False)] = 0
    return out


def string_buffers(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """(data, offsets[n + 1]) of an Arrow string or binary array: row i is data[offsets[i]:offsets[i + 1]]."""
    if not len(texts):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    texts = texts.cast(pa.large_binary())
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8), bounds

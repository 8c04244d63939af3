"""The grid of scores: pClick -> 31-bit key -> histogram bin. Monotone, exact, the same on every machine.

A key consists of bits of the float64 itself (no logarithm): for p <= 1/2 its exponent and the first 24 bits of its
mantissa, for p > 1/2 the mirror image of 1 - p (which is exact, Sterbenz). So keys are log-spaced near 0 *and* near 1
with a relative step of 2**-24 (6e-8), as equal steps of the logit would be, and two scores with equal keys differ by
less than that. All scores within 2**-64 of either end share a key, so 0 and 1 themselves are valid.

A histogram of resolution `bits` divides every octave into 2**bits bins, with one bin for everything within 2**-24 of 0, and
one at 1; it has 46 * 2**bits + 1 bins, the middle one for p = 1/2 alone. p = 1 falls in the last bin, p = 0 in the first.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

MANTISSA = 24  # bits of mantissa in a key
PART_BITS = 3  # a bin of placement curves has 2**PART_BITS parts, the resolution of placements in comparisons
HALF = 63 << MANTISSA  # key of 1/2
TOP = 126 << MANTISSA  # key of 1; TOP * 2 + 1 fits 32 bits, so the low bit can hold a label
_TINY = 2.0**-64
_FLOAT_MANTISSA, _FLOAT_BIAS = 52, 1023  # of a float64
_SHIFT = _FLOAT_MANTISSA - MANTISSA
_ORIGIN = (_FLOAT_BIAS - 64) << MANTISSA  # key bits of 2**-64
_OCTAVES = 2 * 23  # of a histogram: from 2**-24 to 1/2, and their mirror images
_LUMP = 40 << MANTISSA  # half-key of 2**-24: the histogram's first edge


@numba.njit(inline="always")
def half_key(q: float) -> int:
    """Key of a score in [0, 1/2]."""
    if q < _TINY:
        return 0
    return int(np.float64(q).view(np.int64) >> _SHIFT) - _ORIGIN


@numba.njit(inline="always")
def score_key(p: float) -> int:
    """31-bit key of a score in [0, 1]; p <= q implies score_key(p) <= score_key(q)."""
    if p <= 0.5:
        return half_key(p)
    return TOP - half_key(1.0 - p)


@numba.njit(inline="always")
def key_bin(key: int, bits: int) -> int:
    """Histogram bin of a key, 0 .. 46 * 2**bits."""
    shift = MANTISSA - bits
    lump = _LUMP >> shift
    if key <= HALF:
        return max((key >> shift) - lump, 0)
    return (_OCTAVES << bits) - max(((TOP - key) >> shift) - lump, 0)


@numba.njit(inline="always")
def key_part(key: int, bits: int, more: int) -> int:
    """Histogram bin of a key, split into 2**more parts of equal width (that of p = 1/2 has one): 0 .. bin_count(bits) * 2**more - 1.

    `>> more` is the bin.
    """
    if key <= HALF:
        return key_bin(key, bits + more)
    from_one = (_OCTAVES << (bits + more)) - key_bin(key, bits + more)
    parts = 1 << more
    return (((_OCTAVES << bits) - (from_one >> more)) << more) + parts - 1 - (from_one & (parts - 1))


@numba.njit(inline="always")
def key_score(key: int) -> float:
    """The middle of a key's scores: within 2**-25 (relative to p, or to 1 - p) of every score with this key."""
    half = key if key <= HALF else TOP - key
    bits = ((half + _ORIGIN) << 1) + (half != HALF)  # one bit more: the middle of the key
    q = 0.0 if half == 0 else np.int64(bits << (_SHIFT - 1)).view(np.float64)
    return q if key <= HALF else 1.0 - q


@numba.njit(cache=True, nogil=True)
def _keys(p: NDArray[np.float64], out: NDArray[np.uint32]) -> None:
    for i in range(p.size):
        out[i] = score_key(p[i])


@numba.njit(cache=True, nogil=True)
def _scores(key: NDArray[np.uint32], out: NDArray[np.float64]) -> None:
    for i in range(key.size):
        out[i] = key_score(np.int64(key[i]))


def score_keys(p: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Keys of n scores in [0, 1] (uint32)."""
    out = np.empty(p.size, np.uint32)
    _keys(np.ascontiguousarray(p, np.float64), out)
    return out


def key_scores(keys: NDArray[np.uint32]) -> NDArray[np.float64]:
    """The middle score of each key."""
    out = np.empty(keys.size, np.float64)
    _scores(keys, out)
    return out


def bin_count(bits: int) -> int:
    """Number of bins at a resolution."""
    return (_OCTAVES << bits) + 1


def bin_edges(bits: int) -> NDArray[np.float64]:
    """The bin_count(bits) + 1 edges: bin i covers [edges[i], edges[i + 1]] (which side is closed is mirrored at 1/2)."""
    shift = MANTISSA - bits
    half = (np.arange(1, (_OCTAVES // 2 << bits) + 1, dtype=np.int64) << shift) + _LUMP
    low = ((half + _ORIGIN) << _SHIFT).view(np.float64)  # upper edges of the bins below 1/2, the last one 1/2
    return np.concatenate(([0.0], low, 1.0 - low[::-1], [1.0]))


@numba.njit(inline="always")
def score_bits(p: float, label: int) -> np.uint64:
    """A score in [0, 1] and its label as uint64: the float's own bits, then the label. Sorts by score, exactly."""
    return (np.float64(p).view(np.uint64) << np.uint64(1)) | np.uint64(label)  # -0.0 loses its sign, and is 0.0


@numba.njit(cache=True)
def scores_bits(p: NDArray[np.float64], label: NDArray[np.bool_] | NDArray[np.int8]) -> NDArray[np.uint64]:
    """`score_bits` of n scores."""
    out = np.empty(p.size, np.uint64)
    for i in range(p.size):
        out[i] = score_bits(p[i], np.int64(label[i]))
    return out

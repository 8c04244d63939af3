"""Sparse vectors as bytes: magic, format version, length, delta-coded cells and values (zlib), checksum.

Format 1, little-endian: b"SEVS", u8 version, u64 cells, u32 crc32 of the rest, then the zlib stream of the first
differences of the cells (int64[n]) followed by the values (int64[n]).
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from streameval.sketches.sparse import SparseVector

_MAGIC = b"SEVS"
VERSION = 1
_HEAD = struct.Struct("<4sBQI")


class CodecError(ValueError):
    """The bytes are not a valid sketch; the message says what is wrong."""


def encode(vector: SparseVector) -> bytes:
    """The vector's bytes."""
    steps = np.diff(vector.cells, prepend=0).astype("<i8")
    body = zlib.compress(steps.tobytes() + vector.values.astype("<i8").tobytes(), 1)
    return _HEAD.pack(_MAGIC, VERSION, vector.cells.size, zlib.crc32(body)) + body


def decode(data: bytes) -> SparseVector:
    """The vector. Raises CodecError if the bytes are truncated, damaged, of another kind or another version."""
    if len(data) < _HEAD.size:
        raise CodecError(f"{len(data)} bytes: shorter than a sketch's head of {_HEAD.size}")
    magic, version, n, crc = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise CodecError(f"starts with {magic!r}: not a sketch")
    if version != VERSION:
        raise CodecError(f"format {version}: this program reads format {VERSION}")
    body = data[_HEAD.size :]
    if zlib.crc32(body) != crc:
        raise CodecError("the checksum does not match: the bytes are damaged")
    numbers = np.frombuffer(zlib.decompress(body), "<i8")
    if numbers.size != 2 * n:
        raise CodecError(f"{numbers.size} numbers where {2 * n} were announced")
    return SparseVector(np.cumsum(numbers[:n]).astype(np.int64), numbers[n:].astype(np.int64))

"""How large an Arrow IPC stream becomes when it is read, determined from its metadata before anything is unpacked.

A few kilobytes can expand to gigabytes: compressed buffers (zstd packs zeros 30,000 to 1), buffers that overlap in the
message, columns without any buffer. Arrow's reader would use the memory; this walks the stream's messages (flatbuffers,
read here field by field, because Arrow's Python has no function for it) and adds up the sizes they claim. About 15 us
per message.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pyarrow.ipc

_RECORD_BATCH, _DICTIONARY = "record batch", "dictionary"


def unpacked_size(value: bytes) -> int:
    """Returns the size of all buffers in bytes, unpacked, plus one for every cell of every column, including nested
    ones.

    Raises pa.ArrowInvalid or OSError for data that is not an Arrow IPC stream.
    """
    total = 0
    messages = pyarrow.ipc.MessageReader.open_stream(pa.BufferReader(value))
    while True:
        try:
            message = messages.read_next_message()
        except StopIteration:
            return total
        if message.type not in (_RECORD_BATCH, _DICTIONARY):
            continue
        try:
            total += _batch(message.metadata.to_pybytes(), message.body, message.type == _DICTIONARY)
        except (struct.error, ValueError, IndexError) as error:
            raise pa.ArrowInvalid(f"damaged metadata: {error}") from None


def _batch(metadata: bytes, body: pa.Buffer | None, dictionary: bool) -> int:
    """Returns the size that one record batch claims (for a dictionary: the one inside)."""
    header = _follow(metadata, _field(metadata, _follow(metadata, 0), 2))
    if dictionary:
        header = _follow(metadata, _field(metadata, header, 1))
    cells = _vector(metadata, _field(metadata, header, 1))[:, 0]
    where, size = _vector(metadata, _field(metadata, header, 2)).T
    if (cells < 0).any() or (size < 0).any() or (where < 0).any():
        raise ValueError("a negative length")
    claimed = sum(cells.tolist())
    if not _field(metadata, header, 3):
        return claimed + sum(size.tolist())
    for at, length in zip(where.tolist(), size.tolist(), strict=True):
        if length >= 8:  # a compressed buffer begins with its unpacked length; -1: it is stored uncompressed
            (unpacked,) = struct.unpack_from("<q", body or b"", at)
            claimed += length if unpacked == -1 else max(unpacked, 0)
    return claimed


def _follow(data: bytes, at: int) -> int:
    """Returns where the offset at `at` points."""
    if at < 0:
        raise ValueError("an offset before the beginning")
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Returns where a field of a flatbuffers table is; 0: it is absent."""
    vtable = table - int(struct.unpack_from("<i", data, table)[0])
    if vtable < 0:
        raise ValueError("a table before the beginning")
    (size,) = struct.unpack_from("<H", data, vtable)
    place = 4 + 2 * number
    if place + 2 > size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + place)
    return table + int(offset) if offset else 0


def _vector(data: bytes, field: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Returns a vector of structs of two int64: (n, 2)."""
    if not field:
        return np.empty((0, 2), np.int64)
    at = _follow(data, field)
    (n,) = struct.unpack_from("<I", data, at)
    return np.frombuffer(data, "<i8", 2 * n, at + 4).reshape(n, 2)

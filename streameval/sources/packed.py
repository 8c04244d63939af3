"""Compressed files as plain bytes, and how much of them has been read, as stored."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from streameval.sources import object_store
from streameval.sources.protocol import SourceError

PACKED = (".gz", ".zst")
_BEGINNINGS = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}
_NO_TEXT = {
    b"PAR1\x15": 'a Parquet file: name it .parquet, or set files.format = "parquet"',
    b"ARROW1\x00": 'an Arrow file: name it .arrow, or set files.format = "arrow"',
    b"PK\x03\x04": "a zip archive: unpack it",
    b"\xfd7zXZ\x00": "compressed by xz: unpack it",
}


class CountedFile(io.RawIOBase):
    """A binary file that counts the bytes read through it, for progress."""

    def __init__(self, file: BinaryIO, most: int | None = None) -> None:
        """`most`: the number of bytes after which it ends, if it is read from its start to its end."""
        self._file = cast(io.RawIOBase, file)  # BinaryIO does not declare `readinto`; every file opened here has it
        self._most = most
        self.count = 0

    def has_grown(self) -> bool:
        """Whether the file has more bytes than may be read."""
        return self._most is not None and os.fstat(self._file.fileno()).st_size > self._most

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any writable buffer, which is a memoryview here
        if self._most is not None:
            buffer = memoryview(buffer)[: self._most - self.count]
        size = self._file.readinto(buffer) or 0
        self.count += size
        return size


def unpacked(path: Path, file: BinaryIO) -> io.BufferedIOBase:
    """Returns a stream of a text file's uncompressed bytes, by the suffix of its name, or by its first bytes: no text begins so.

    Raises SourceError for a file that begins as a table does, or as another archive.
    """
    stored = io.BufferedReader(cast(io.RawIOBase, file), 1 << 20)
    suffix = object_store.named(path).suffix
    if suffix not in PACKED:
        suffix = _begun(stored.peek(8))
    if suffix == ".gz":
        return cast(io.BufferedIOBase, gzip.GzipFile(fileobj=stored))
    if suffix == ".zst":  # Arrow's reader, because zstandard's mistakes a truncated file for a complete one
        unpacked = pa.CompressedInputStream(pa.PythonFile(stored, mode="r"), "zstd")
        return io.BufferedReader(unpacked, 1 << 16)
    return stored


def _begun(head: bytes) -> str:
    """The suffix that belongs to what a file begins with; "" for text."""
    for beginning, what in _NO_TEXT.items():
        if head.startswith(beginning):
            raise SourceError(f"is no text but {what}")
    return next((suffix for beginning, suffix in _BEGINNINGS.items() if head.startswith(beginning)), "")

"""A tree of arrays and plain values as one file, whole or not at all.

Little-endian: b"SEVC", u32 format, u64 bytes of the header, u32 crc32 of the header, the header (JSON), then
the arrays, each at a multiple of 64 bytes. The header holds the file's size, the tree with {"": i} where array i
belongs, and every array's dtype, shape, place and crc32. So a file that was cut short, or of which a bit has changed,
is told from a good one.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streameval.store.errors import DamagedError, StoreError

_MAGIC = b"SEVC"
CHECKPOINT_FORMAT = 6
_READ = (5, CHECKPOINT_FORMAT)  # 5: without the fields of events by name, see `join.rows.split_fields`
_HEAD = struct.Struct("<4sIQI")
_ALIGN = 64
_ARRAY = ""  # the key that stands for an array in the header's tree


def write(path: Path, tree: Mapping[str, Any]) -> int:
    """Writes dicts with str keys, lists, arrays, bytes and JSON's plain values; returns the bytes of the file.

    A callable in the tree is called, once, and what it returns is written in its place. The file appears under its
    name only when everything is on the disk. Raises OSError, and leaves nothing behind then.
    """
    arrays: list[NDArray[np.generic]] = []
    plain = _flatten(tree, arrays)
    entries: list[dict[str, Any]] = []
    at = 0
    for array in arrays:
        at = -(-at // _ALIGN) * _ALIGN
        crc = zlib.crc32(_bytes(array))
        entries.append({"dtype": array.dtype.str, "shape": list(array.shape), "at": at, "crc": crc})
        at += array.nbytes
    header = msgspec.json.encode({"bytes": at, "arrays": entries, "tree": plain})
    start = _first_array(len(header))
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb", buffering=0) as file:
            _write_all(file.fileno(), _HEAD.pack(_MAGIC, CHECKPOINT_FORMAT, len(header), zlib.crc32(header)) + header)
            for entry, array in zip(entries, arrays, strict=True):
                os.lseek(file.fileno(), start + entry["at"], os.SEEK_SET)
                _write_all(file.fileno(), _bytes(array))
            os.ftruncate(file.fileno(), start + at)
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return start + at


def read(path: Path) -> dict[str, Any]:
    """The tree; bytes come back as arrays of uint8. Raises DamagedError, or OSError when it cannot be read."""
    with open(path, "rb") as file:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise DamagedError(f"{path}: {len(head)} bytes: cut short")
        magic, version, length, crc = _HEAD.unpack(head)
        if magic != _MAGIC:
            raise DamagedError(f"{path}: begins with {magic!r}: not a checkpoint")
        if version not in _READ:
            raise FormatError(path, version)
        size = os.fstat(file.fileno()).st_size
        header = file.read(min(length, size))
        if len(header) < length or zlib.crc32(header) != crc:
            raise DamagedError(f"{path}: the header is cut short or damaged")
        parsed = msgspec.json.decode(header)
        start = _first_array(length)
        if size != start + parsed["bytes"]:
            raise DamagedError(f"{path}: {size} bytes where {start + parsed['bytes']} were written: cut short")
        arrays = []
        for number, entry in enumerate(parsed["arrays"]):
            file.seek(start + entry["at"])
            array = np.empty(entry["shape"], np.dtype(entry["dtype"]))
            file.readinto(_bytes(array))
            if zlib.crc32(_bytes(array)) != entry["crc"]:
                raise DamagedError(f"{path}: the checksum of array {number} does not match: damaged")
            arrays.append(array)
    tree: dict[str, Any] = _build(parsed["tree"], arrays)
    return tree


class FormatError(StoreError):
    """A file of another version of this program."""

    def __init__(self, path: Path, version: int) -> None:
        super().__init__(
            f"{path}: checkpoint format {version}, but this program reads format {CHECKPOINT_FORMAT}: run the version of "
            "streameval that wrote it, or move the folder away to start over with empty counts"
        )


def sync_folder(folder: Path) -> None:
    """Makes sure that names that were given or taken away in a folder survive a power cut."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _first_array(header: int) -> int:
    return -(-(_HEAD.size + header) // _ALIGN) * _ALIGN


def _bytes(array: NDArray[np.generic]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _write_all(number: int, data: bytes | memoryview) -> None:
    left = memoryview(data)
    while left.nbytes:
        left = left[os.write(number, left) :]


# nearly all that a tree holds, in lists of thousands: told at once, where to ask what else it may be takes ten times as long
_PLAIN = frozenset({str, int, float, bool, type(None)})


def _flatten(node: Any, arrays: list[NDArray[np.generic]]) -> Any:
    if type(node) in _PLAIN:
        return node
    if callable(node):
        node = node()
    if isinstance(node, Mapping):
        return {name: _flatten(part, arrays) for name, part in node.items()}
    if isinstance(node, (list, tuple)):
        return [part if type(part) in _PLAIN else _flatten(part, arrays) for part in node]
    if isinstance(node, bytes):
        node = np.frombuffer(node, np.uint8)
    if isinstance(node, np.ndarray):
        arrays.append(np.ascontiguousarray(node))
        return {_ARRAY: len(arrays) - 1}
    return node


def _build(node: Any, arrays: list[NDArray[np.generic]]) -> Any:
    if isinstance(node, dict):
        if _ARRAY in node:
            return arrays[node[_ARRAY]]
        return {name: _build(part, arrays) for name, part in node.items()}
    if isinstance(node, list):
        return [part if type(part) in _PLAIN else _build(part, arrays) for part in node]
    return node

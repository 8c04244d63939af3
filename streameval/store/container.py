"""A tree of arrays and plain values as one file, whole or not at all.

Little-endian: b"SEVC", u32 format, u64 bytes of the header, u32 crc32 of the header, the header (JSON), then
the arrays, each at a multiple of 64 bytes, or of a page. The header holds the file's size, the tree with {"": i} where
array i belongs, and every array's dtype, shape, place and crc32. So a file that was cut short, or of which a bit has changed,
is told from a good one.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Collection, Mapping, Sequence
from io import BufferedReader
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from streameval.events.pieces import Pieces
from streameval.store.errors import DamagedError, StoreError

_MAGIC = b"SEVC"
CHECKPOINT_FORMAT = 13
# 5: without the fields of events by name, see `join.rows.split_fields`; 6: without rows in files of their own;
# 7: panes whole, see `counting.windows._unpack`, and all rows that wait, see `join.cold.written`;
# 8: files of rows with ids and their rows apart, see `join.cold.ids`; 9: ids in the files of rows, see `join.cold.index`;
# 10: waiting sums of comparisons with their zeros, see `compare.ledger.packed`; 11: online models by number, see
# `loop.checkpoint`; 12: rules of comparisons without their horizon and the pieces of their further metrics
_READ = (5, 6, 7, 8, 9, 10, 11, 12, CHECKPOINT_FORMAT)
_HEAD = struct.Struct("<4sIQI")
TIGHT = 64  # bytes
_READ_AT_ONCE = 1 << 20  # bytes
PAGE = 16_384  # bytes: arrays at multiples of it can be mapped
_LONGEST = (1 << 32) - 1  # of checksums, in digits
_ARRAY = ""  # the key that stands for an array in the header's tree


ArrayPlace = tuple[str, tuple[int, ...], int]  # of an array in a file: dtype, shape, offset in bytes


def write(path: Path, tree: Mapping[str, Any], align: int = TIGHT) -> int:
    """Writes dicts with str keys, lists, arrays, `Pieces`, bytes and JSON's plain values; returns the bytes of the file.

    A callable in the tree is called, once, and what it returns is written in its place. Arrays lie at multiples of
    `align` bytes. The file appears under its
    name only when everything is on the disk. Raises OSError, and leaves nothing behind then.
    """
    arrays: list[Pieces] = []
    plain = _flatten(tree, arrays)
    entries: list[dict[str, Any]] = []
    at = 0
    for array in arrays:
        at = -(-at // align) * align
        dtype = np.dtype(array.dtype)
        entries.append({"dtype": dtype.str, "shape": list(array.shape), "at": at, "crc": _LONGEST})
        at += prod(array.shape) * dtype.itemsize
    content = {"bytes": at, "align": align, "arrays": entries, "tree": plain}
    room = len(msgspec.json.encode(content))  # checksums are known when the arrays are written
    start = _first_array(room, align)
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb", buffering=0) as file:
            for entry, array in zip(entries, arrays, strict=True):
                os.lseek(file.fileno(), start + entry["at"], os.SEEK_SET)
                entry["crc"] = _write_pieces(file.fileno(), array)
            header = msgspec.json.encode(content).ljust(room)
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            _write_all(file.fileno(), _HEAD.pack(_MAGIC, CHECKPOINT_FORMAT, room, zlib.crc32(header)) + header)
            os.ftruncate(file.fileno(), start + at)
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return start + at


def _write_pieces(number: int, array: Pieces) -> int:
    """The checksum."""
    crc = size = 0
    for piece in array.make():
        data = _bytes(piece)
        crc = zlib.crc32(data, crc)
        _write_all(number, data)
        size += data.nbytes
    if size != prod(array.shape) * np.dtype(array.dtype).itemsize:
        raise ValueError(f"{size} bytes in pieces of an array of {array.shape} {array.dtype}")
    return crc


def read(path: Path) -> dict[str, Any]:
    """The tree; bytes come back as arrays of uint8. Raises DamagedError, or OSError when it cannot be read."""
    with open(path, "rb") as file:
        header, start = _header(path, file)
        arrays = [_read_array(path, file, start, header, number) for number in range(len(header["arrays"]))]
    tree: dict[str, Any] = _build(header["tree"], arrays)
    return tree


def read_some(path: Path, names: Collection[str]) -> tuple[dict[str, Any], int]:
    """As `layout`, but for the arrays that have one of these names at the top of the tree, which are read. Raises as `read`."""
    with open(path, "rb") as file:
        header, start = _header(path, file)
        some: list[Any] = _places(header, start)
        for name, node in header["tree"].items():
            if name in names:
                some[node[_ARRAY]] = _read_array(path, file, start, header, node[_ARRAY])
    tree: dict[str, Any] = _build(header["tree"], some)
    return tree, start + header["bytes"]


def layout(path: Path) -> tuple[dict[str, Any], int]:
    """(the tree, with a `ArrayPlace` where an array belongs; bytes of the file), the arrays not looked at. Raises as `read`."""
    with open(path, "rb") as file:
        header, start = _header(path, file)
    tree: dict[str, Any] = _build(header["tree"], _places(header, start))
    return tree, start + header["bytes"]


def check(path: Path) -> tuple[dict[str, Any], int]:
    """As `layout`, after every byte has been compared, a little at a time. Raises as `read`."""
    with open(path, "rb") as file:
        header, start = _header(path, file)
        for number, entry in enumerate(header["arrays"]):
            file.seek(start + entry["at"])
            left, crc = int(np.prod(entry["shape"], dtype=np.int64)) * np.dtype(entry["dtype"]).itemsize, 0
            while left:
                part = file.read(min(left, _READ_AT_ONCE))
                if not part:
                    break
                left, crc = left - len(part), zlib.crc32(part, crc)
            _compare(path, number, entry, crc)
    tree: dict[str, Any] = _build(header["tree"], _places(header, start))
    return tree, start + header["bytes"]


def _places(header: Mapping[str, Any], start: int) -> list[ArrayPlace]:
    return [(one["dtype"], tuple(one["shape"]), start + one["at"]) for one in header["arrays"]]


def _read_array(path: Path, file: BufferedReader, start: int, header: Mapping[str, Any], number: int) -> NDArray[Any]:
    entry = header["arrays"][number]
    file.seek(start + entry["at"])
    array = np.empty(entry["shape"], np.dtype(entry["dtype"]))
    file.readinto(_bytes(array))
    _compare(path, number, entry, zlib.crc32(_bytes(array)))
    return array


def _header(path: Path, file: BinaryIO) -> tuple[dict[str, Any], int]:
    """(the header of an open file, where its first array begins). Raises as `read`."""
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
    start = _first_array(length, parsed.get("align", TIGHT))
    if size != start + parsed["bytes"]:
        raise DamagedError(f"{path}: {size} bytes where {start + parsed['bytes']} were written: cut short")
    return parsed, start


def _compare(path: Path, number: int, entry: Mapping[str, Any], crc: int) -> None:
    if crc != entry["crc"]:
        raise DamagedError(f"{path}: the checksum of array {number} does not match: damaged")


class FormatError(StoreError):
    """A file of another version of this program."""

    def __init__(self, path: Path, version: int) -> None:
        super().__init__(
            f"{path}: checkpoint format {version}, but this program reads format {CHECKPOINT_FORMAT}: run the version of "
            "streameval that wrote it, or move the folder away to start over with empty counts"
        )


def sync_folder(folder: Path) -> None:
    """Makes sure that names that were given or removed in a folder survive a power cut."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _first_array(header: int, align: int) -> int:
    return -(-(_HEAD.size + header) // align) * align


def _bytes(array: NDArray[np.generic]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _write_all(number: int, data: bytes | memoryview) -> None:
    left = memoryview(data)
    while left.nbytes:
        left = left[os.write(number, left) :]


# nearly all that a tree holds, in lists of thousands: told at once, where to ask what else it may be takes ten times as long
_PLAIN = frozenset({str, int, float, bool, type(None)})


def _flatten(node: Any, arrays: list[Pieces]) -> Any:
    if type(node) in _PLAIN:
        return node
    if callable(node):
        node = node()
    if isinstance(node, Pieces):
        arrays.append(node)
        return {_ARRAY: len(arrays) - 1}
    if isinstance(node, Mapping):
        return {name: _flatten(part, arrays) for name, part in node.items()}
    if isinstance(node, (list, tuple)):
        return [part if type(part) in _PLAIN else _flatten(part, arrays) for part in node]
    if isinstance(node, bytes):
        node = np.frombuffer(node, np.uint8)
    if isinstance(node, np.ndarray):
        whole = np.ascontiguousarray(node)
        arrays.append(Pieces(whole.dtype, whole.shape, lambda: (whole,)))
        return {_ARRAY: len(arrays) - 1}
    return node


def _build(node: Any, arrays: Sequence[Any]) -> Any:
    if isinstance(node, dict):
        if _ARRAY in node:
            return arrays[node[_ARRAY]]
        return {name: _build(part, arrays) for name, part in node.items()}
    if isinstance(node, list):
        return [part if type(part) in _PLAIN else _build(part, arrays) for part in node]
    return node

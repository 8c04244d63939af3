"""Columns with address ranges of their own, over which files can be mapped later.

Files are mapped privately: a write goes to a copy of the page in memory, never to the file.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Mapping
from functools import cache
from math import prod
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

ALIGN = 16_384  # rows: at multiples of it a page begins in every column, even with one byte per row and 16 kB pages
_FIXED = 0x10  # MAP_FIXED, Linux and macOS alike
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if os.uname().sysname == "Linux" else 0)
_OWN = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
_BOTH = mmap.PROT_READ | mmap.PROT_WRITE

_LARGE = 1 << 22  # bytes
_MANY_ROWS = 1 << 16  # with more, plain read-ahead is as fast
_NOTHING = 1 << 20  # rows of 8 MB

Extent = tuple[str, tuple[int, ...], int]  # of an array in a file: dtype, shape, offset in bytes


def empty(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Zeros that take no memory until written to; files can be mapped over them."""
    count = prod(shape) if isinstance(shape, tuple) else shape
    size = count * np.dtype(dtype).itemsize
    room = mmap.mmap(-1, max(size, mmap.PAGESIZE), flags=_OWN, prot=_BOTH)
    if size >= _LARGE and hasattr(mmap, "MADV_HUGEPAGE"):  # as NumPy does
        room.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(room, dtype, count).reshape(shape)


def map_over(column: NDArray[Any], first: int, file: int, place: Extent) -> None:
    """Maps an array of an open file over `column[first : first + its length]`. Raises OSError, and changes nothing then.

    The column was made by `empty`, and no other thread may be writing to these rows.
    """
    dtype, (rows,), offset = place
    if column.dtype != np.dtype(dtype):
        raise ValueError(f"a column of {column.dtype} cannot hold the file's {dtype}")
    _map(_pages(column, first, first + rows), mmap.MAP_PRIVATE, file, offset)


def map_file(
    path: Path, places: Mapping[str, Extent], columns: Mapping[str, NDArray[Any]], first: int, skipped: int = 0
) -> None:
    """The same for all columns that a file has arrays for, without the first rows of the file. Raises OSError."""
    with open(path, "rb") as file:
        for name in columns.keys() & places.keys():
            dtype, (rows,), offset = places[name]
            place = dtype, (rows - skipped,), offset + skipped * np.dtype(dtype).itemsize
            map_over(columns[name], first, file.fileno(), place)


def map_nothing(column: NDArray[np.float64], first: int, end: int) -> None:
    """Makes rows [first, end) NaN, which take no memory until written to: the same pages again and again. Raises OSError."""
    if column.dtype != np.float64:
        raise ValueError(f"a column of {column.dtype} has no NaN")
    for begin in range(first, end, _NOTHING):
        _map(_pages(column, begin, min(begin + _NOTHING, end)), mmap.MAP_PRIVATE, _nothing(), 0)


@cache
def _nothing() -> int:
    """An open file of NaN, without a name; on Linux in memory, because there may be no folder to write to."""
    with open(os.memfd_create("nan"), "wb") if hasattr(os, "memfd_create") else TemporaryFile() as file:
        file.write(np.full(_NOTHING, np.nan).tobytes())
        file.flush()
        return os.dup(file.fileno())


def give_back(column: NDArray[Any], first: int, end: int) -> None:
    """Makes rows [first, end) zeros again, which take no memory, and unmaps files."""
    _map(_pages(column, first, end), _OWN, -1, 0)


def mapped(file: int, place: Extent) -> NDArray[Any]:
    """An array of an open file, mapped; the file may be closed afterwards. Raises OSError."""
    dtype, shape, offset = place
    out = empty(shape, dtype)
    if out.nbytes:
        _map((out.ctypes.data, out.nbytes), mmap.MAP_PRIVATE, file, offset)
    return out


def ask_for(addresses: NDArray[np.int64]) -> None:
    """Requests the pages at some addresses from the disk, if they are not in memory, without waiting for them.

    Touching such a page instead would make the thread wait, and the system read megabytes around it.
    """
    for page in sorted(set((addresses // mmap.PAGESIZE).tolist())):
        _madvise(page * mmap.PAGESIZE, mmap.PAGESIZE, mmap.MADV_WILLNEED)


def ask_for_rows(columns: Iterable[NDArray[Any]], rows: NDArray[np.int64]) -> None:
    """The same for the pages of some rows, unless they are very many."""
    if rows.size <= _MANY_ROWS:
        ask_for(np.concatenate([rows[:0], *(column.ctypes.data + rows * column.itemsize for column in columns)]))


def _pages(column: NDArray[Any], first: int, end: int) -> tuple[int, int]:
    """(address, bytes) of rows, which must be whole pages."""
    begin, length = column.ctypes.data + first * column.itemsize, (end - first) * column.itemsize
    if begin % mmap.PAGESIZE or length % mmap.PAGESIZE or not 0 <= first < end <= column.size:
        raise ValueError(f"rows {first} to {end} of {column.size} are not whole pages of the column")
    return begin, length


def _map(where: tuple[int, int], flags: int, file: int, offset: int) -> None:
    begin, length = where
    if _mmap(begin, length, _BOTH, flags | _FIXED, file, offset) != begin:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


_library = ctypes.CDLL(None, use_errno=True)
_madvise = _library.madvise  # what it answers does not matter
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_mmap = _library.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)

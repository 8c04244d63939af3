"""An index: the ids of consecutive rows in segments, sorted, in pages of a file of their own, with a filter.

Every segment is written with one. Sixteen neighbours of similar size are merged, and so on, which bounds the number of
filters that a lookup asks, and of pages read in vain. A lost index can be rebuilt: the files of rows contain the ids, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.events.pieces import Pieces
from streameval.join.cold.ground import Extent, mapped
from streameval.join.cold.ids import ID_BYTES, PAGE_BYTES, PAGE_IDS, PER_PAGE, IdPart, SortedIds, in_pages, merged
from streameval.join.cold.ribbon import FORM, Ribbon, RibbonMaker, shape_of

IN_MEMORY = ("fence", "words")  # arrays of the file that are read into memory
FENCE, FENCE_SIZE, FILTER, SHARDS, SLOTS = range(PER_PAGE + 1, PER_PAGE + 6)  # further columns of `Index.places`
_TOGETHER = 16  # are merged
_ALWAYS = 1 << 24  # rows that an index may always have; more only up to a quarter of all rows
_MOST = 1 << 31  # rows of an index: their numbers have 32 bits


@dataclass(slots=True, eq=False)
class Index:
    """The ids of rows [first, end) of the table; the first ones may be forgotten."""

    path: Path
    size: int  # of the file, bytes
    first: int
    end: int
    ids: SortedIds  # their rows count from `first`
    ribbon: Ribbon
    damaged: bool = False  # to be rebuilt from the rows
    mended: bool = False  # meanwhile its ids are in memory, see `mend`

    def mend(self, parts: Sequence[IdPart]) -> None:
        """Puts these ids into memory, in place of those of the damaged file, until there is another."""
        ids = sum(part.ids.size for part in parts)
        tree = content(lambda: parts, ids)
        pages, fence, words = (_whole(tree[name]) for name in ("pages", "fence", "words"))  # made in this order
        self.ids, self.ribbon = SortedIds.of_pages(ids, pages, fence), Ribbon(words, tree["shards"], tree["slots"])
        self.mended = True

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.ids.fence.nbytes + self.ribbon.words.nbytes

    @property
    def places(self) -> list[int]:
        """For kernels: `SortedIds.places`, then the address and size of the fence, and the filter (`FENCE` to `SLOTS`)."""
        fence, ribbon = self.ids.fence, self.ribbon
        of_ribbon = [ribbon.words.ctypes.data, ribbon.shards, ribbon.slots]
        return [*self.ids.places, fence.ctypes.data, fence.size, *of_ribbon]


def index_of(path: Path, layout: dict[str, Any], size: int, first: int, end: int) -> Index | None:
    """From a file's layout (with `IN_MEMORY` read), for these rows; None: it has another form. Raises OSError."""
    if layout.get("form") != FORM:
        return None
    place: Extent = layout["pages"]
    with open(path, "rb") as file:
        pages = mapped(file.fileno(), place)
    ids = SortedIds.of_pages(layout["ids"], pages, layout["fence"])
    return Index(path, size, first, end, ids, Ribbon(layout["words"], layout["shards"], layout["slots"]))


def content(
    make: Callable[[], Sequence[IdPart]], ids: int, goes_on: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """The content of a file of so many ids; `make` is called when it is written. `goes_on` is called regularly, and may raise."""
    pages, (words, shards, slots) = -(-ids // PAGE_IDS), shape_of(ids)
    fence: list[NDArray[np.uint64]] = []
    ribbon = RibbonMaker(ids)

    def in_order() -> Iterator[NDArray[np.uint64]]:
        for some, rows in merged(make()):
            goes_on()
            ribbon.add(some)
            whole, first = in_pages(some, rows)
            fence.append(first)
            yield whole

    return {
        "form": FORM,
        "ids": ids,
        "shards": shards,
        "slots": slots,
        "pages": Pieces(np.uint64, (pages, PAGE_BYTES // ID_BYTES), in_order),
        "fence": Pieces(np.uint64, (pages,), lambda: fence),
        "words": Pieces(np.uint64, (words,), lambda: (ribbon.finish().words,)),
    }


def _whole(array: Pieces) -> NDArray[Any]:
    out, at = np.empty(array.shape, array.dtype), 0
    for piece in array.make():
        out[at : at + len(piece)] = piece
        at += len(piece)
    return out


def in_order(ids: NDArray[np.uint64], first: int = 0) -> IdPart:
    """The ids of a segment whose first row is `first`."""
    order = np.argsort(ids, kind="stable")
    return IdPart(SortedIds.apart(ids[order], order.astype(np.uint32)), first)


def to_merge(rows: Sequence[int]) -> slice | None:
    """Which indexes to merge, given their numbers of rows, oldest first; None: none yet."""
    most = min(max(sum(rows) // 4, _ALWAYS), _MOST)
    # sizes by powers of 16; a small one before larger ones counts as one of them
    kinds = list(accumulate(((size.bit_length() + 1) // 4 for size in reversed(rows)), max))[::-1]
    for first in range(len(rows) - _TOGETHER + 1):
        some = slice(first, first + _TOGETHER)
        if kinds[first] == kinds[some.stop - 1] and sum(rows[some]) <= most:
            return some
    return None

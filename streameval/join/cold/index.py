"""The ids of consecutive rows on disk, in a file of their own: in order, in pages, with a filter of them.

A segment is written with one. Later sixteen neighbours of alike size become one, and so on: an id is looked for in all of them, and
each may have it without need. The ids are in the files of rows, too, so one that is lost is made anew.
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
from streameval.join.cold.ids import PAGE_BYTES, PAGE_IDS, IdPart, SortedIds, in_pages, merged
from streameval.join.cold.ribbon import FORM, Ribbon, RibbonMaker, shape_of

IN_MEMORY = ("fence", "words")  # of the file: what is in memory
_TOGETHER = 16  # that become one
_ALWAYS = 1 << 24  # rows that one may have; more only if they are no more than a quarter of all
_MOST = 1 << 31  # rows of one: they are numbered by 32 bits


@dataclass(slots=True, eq=False)
class Index:
    """The ids of rows [first, end) of the table; some of the first may be forgotten."""

    path: Path
    size: int  # of the file, bytes
    first: int
    end: int
    ids: SortedIds  # rows count from `first`
    ribbon: Ribbon
    damaged: bool = False  # to be made anew of the rows

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.ids.fence.nbytes + self.ribbon.words.nbytes

    @property
    def places(self) -> list[int]:
        """For kernels: `SortedIds.places`, the same of the fence (its address and size), and of the filter."""
        fence, ribbon = self.ids.fence, self.ribbon
        of_ribbon = [ribbon.words.ctypes.data, ribbon.shards, ribbon.slots]
        return [*self.ids.places, fence.ctypes.data, fence.size, *of_ribbon]


def index_of(path: Path, layout: dict[str, Any], size: int, first: int, end: int) -> Index | None:
    """What the file says (`IN_MEMORY` of it is read), for these rows; None: it is of another form. Raises OSError."""
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
    """What the file holds of so many ids; parts are made when it is written. `goes_on` is called now and then, and may raise."""
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
        "pages": Pieces(np.uint64, (pages, PAGE_BYTES // 8), in_order),
        "fence": Pieces(np.uint64, (pages,), lambda: fence),
        "words": Pieces(np.uint64, (words,), lambda: (ribbon.finish().words,)),
    }


def in_order(ids: NDArray[np.uint64], first: int = 0) -> IdPart:
    """The ids of a segment, whose rows are from `first` on."""
    order = np.argsort(ids, kind="stable")
    return IdPart(SortedIds.apart(ids[order], order.astype(np.uint32)), first)


def to_put_together(rows: Sequence[int]) -> slice | None:
    """Which of indexes of so many rows, the oldest first, are to become one; None: none yet."""
    most = min(max(sum(rows) // 4, _ALWAYS), _MOST)
    # sizes by powers of 16; a small one before larger ones goes with them
    kinds = list(accumulate(((size.bit_length() + 1) // 4 for size in reversed(rows)), max))[::-1]
    for first in range(len(rows) - _TOGETHER + 1):
        some = slice(first, first + _TOGETHER)
        if kinds[first] == kinds[some.stop - 1] and sum(rows[some]) <= most:
            return some
    return None

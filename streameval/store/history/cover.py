"""Which parts answer a query about a past range, and how much of the range they cover.

Partitions fold at their own pace: one may have an hour where another still has its minutes. A range that would cut a
part of any partition is widened, for all of them alike, so that no partition weighs more than its traffic.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from dataclasses import dataclass

RANGE = "level IN (0, 1, 2) AND start >= ? AND start < ?"  # the parts of a widened range are in it whole

Slot = tuple[int, int]  # level, start: a part of any partition


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a range really is: [start, end) ms, widened to whole parts, and how much of it is there."""

    start: int
    end: int
    first: int | None  # where its first stored part begins; None: there is none
    last: int | None  # where its last stored part ends
    panes: int  # panes in which any partition counted something
    expected: int  # panes that the range has


@dataclass(frozen=True, slots=True)
class _Part:
    """One part's place, and how far its labels are (see `PaneCounts`); `panes` were folded into it."""

    level: int
    start: int
    partition: int
    panes: int
    seen: int
    matured: int
    newest: int | None


def cover(
    db: sqlite3.Connection, lengths: tuple[int, int, int], start: int | None, end: int | None
) -> tuple[Coverage, list[_Part]]:
    """The range [start, end) widened until it cuts no part, and the parts in it; None: as far as there are any."""
    pane = lengths[0]
    low, high = _stored(db, lengths)
    if end is not None:
        high = -(-end // pane) * pane
        low = min(low, high)  # a range that ends before all that is stored is empty, and there
    if start is not None:
        low = start // pane * pane
        high = high if end is not None else max(low, high)
    widened = True
    while widened:
        widened = False
        for level, length in enumerate(lengths):
            query = "SELECT min(start), max(start) FROM parts WHERE level = ? AND start > ? AND start < ?"
            first, last = db.execute(query, (level, low - length, high)).fetchone()
            if first is not None and (first < low or last + length > high):
                low, high, widened = min(low, first), max(high, last + length), True
    columns = "level, start, partition, panes, seen, matured, newest"
    parts = [_Part(*row) for row in db.execute(f"SELECT {columns} FROM parts WHERE {RANGE}", (low, high))]
    coverage = Coverage(
        start=low,
        end=max(low, high),
        first=min((part.start for part in parts), default=None),
        last=max((part.start + lengths[part.level] for part in parts), default=None),
        panes=_present(parts, lengths),
        expected=max(0, high - low) // pane,
    )
    return coverage, parts


def slots(parts: list[_Part], lengths: tuple[int, int, int]) -> dict[Slot, Slot]:
    """By (level, start) of a part: the coarsest part of any partition that it is in."""
    there = {(part.level, part.start) for part in parts}
    out = {}
    for level, start in there:
        around = ((coarse, start - start % lengths[coarse]) for coarse in (2, 1))
        out[level, start] = next((slot for slot in around if slot in there), (level, start))
    return out


def _stored(db: sqlite3.Connection, lengths: tuple[int, int, int]) -> tuple[int, int]:
    """Where the first part begins and the last one ends; (0, 0) when there is none."""
    query = "SELECT min(start), max(start) FROM parts WHERE level = ?"
    found = [(*db.execute(query, (level,)).fetchone(), length) for level, length in enumerate(lengths)]
    ends = [(first, last + length) for first, last, length in found if first is not None]
    return min((first for first, _ in ends), default=0), max((last for _, last in ends), default=0)


def _present(parts: list[_Part], lengths: tuple[int, int, int]) -> int:
    """Panes with anything in them. Which ones an hour or a day had is not kept: there, those of the fullest partition."""
    within = slots(parts, lengths)
    panes: defaultdict[Slot, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for part in parts:
        panes[within[part.level, part.start]][part.partition] += part.panes
    return sum(max(of_partition.values()) for of_partition in panes.values())

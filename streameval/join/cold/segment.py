"""A segment: consecutive rows with mature labels, in one immutable file.

The file holds the table's columns of these rows, and what is still kept by run (scores of versions that did not serve,
policies); sorted ids are in a separate file (`index`). Labels may change later; the file does not: checkpoints list the
changed rows with their new state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Shadow
from streameval.events.codes import Codes
from streameval.events.columns import concat_shadows
from streameval.join.cold.ground import Extent, map_file, map_nothing, mapped
from streameval.join.cold.ids import IdPart, SortedIds
from streameval.join.cold.index import in_order
from streameval.join.policy import MATURED, NEVER
from streameval.join.rows import SCORE_OF, Run, Table, by_model, cut, trim
from streameval.join.times import block_times

_GONE = np.int32((1 << 31) - 1)  # rows back to a request's previous impression: one that is no longer known


class RowsFile:
    """The layout of a file of rows."""

    def __init__(
        self, path: Path, rows: int, layout: Mapping[str, Any] | None, size: int = 0, models: tuple[str, ...] = ()
    ) -> None:
        """`layout`: what `content` returned, with extents instead of arrays; None: the file is lost. `size` in bytes. `models`:
        names of the online models whose columns have numbers in an older file.
        """
        self.path, self.models = path, models
        self.rows = rows
        self.lost = layout is None
        self.size = size
        self._layout = layout or {"series": [], "columns": {}, "shadow": None, "policies": None}
        self.series: frozenset[int] = frozenset(self._layout["series"])
        self.columns: Mapping[str, Extent] = by_model(self._layout["columns"], models)

    def part(self, first: int) -> IdPart:
        """The sorted ids; the file's first row is row `first`. Raises OSError."""
        if self.lost:
            return in_order(np.empty(0, np.uint64))
        places = self._layout.get("index")
        if places is None:
            return in_order(self._small(self.columns, "id"), first)
        if "pages" in places:  # until format 9
            (pages,) = self._arrays(places, ("pages",))
            return IdPart(SortedIds.of_pages(self.rows, pages, pages[:0, 0]), first)
        ids, rows = self._arrays(places, ("ids", "at"))  # format 8
        return IdPart(SortedIds.apart(ids, rows), first)

    def times(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The earliest and the latest time of every block of rows. Raises OSError."""
        if self.lost:
            return block_times(np.full(self.rows, NEVER))
        return self._small(self._layout, "least"), self._small(self._layout, "greatest")

    def kept(self, name: str) -> Shadow | None:
        """What is kept by run under a name (`shadow`, `policies`). Raises OSError."""
        places = self._layout[name]
        return None if places is None else Shadow(*self._arrays(places, Shadow._fields))

    def map_over(self, columns: Mapping[str, NDArray[Any]], first: int) -> None:
        """Maps the file's columns over rows from `first` on, nothing for scores of models that it does not have. Raises OSError."""
        map_file(self.path, self.columns, columns, first)
        for name in columns.keys() - self.columns.keys():
            if name.startswith(SCORE_OF):
                map_nothing(columns[name], first, first + self.rows)

    def _small(self, places: Mapping[str, Extent], name: str) -> NDArray[Any]:
        """Reads an array: touching it while mapped would have the system read megabytes around it."""
        dtype, (count,), offset = places[name]
        return np.fromfile(self.path, dtype, count, offset=offset)

    def _arrays(self, places: Mapping[str, Extent], names: Iterable[str]) -> Iterator[NDArray[Any]]:
        with open(self.path, "rb") as file:
            yield from [mapped(file.fileno(), places[name]) for name in names]


@dataclass(slots=True)
class Segment:
    """Rows [first, end) of the table."""

    file: RowsFile
    first: int
    end: int
    codes: Codes | None = None  # what the file's codes mean here; None: the same

    @staticmethod
    def of(file: RowsFile, first: int, codes: Codes | None = None) -> Segment:
        """Of a file."""
        return Segment(file, first, first + file.rows, codes)

    @property
    def series(self) -> set[int]:
        """The series that occur, by their codes here."""
        if self.codes is None:
            return set(self.file.series)
        return {int(self.codes.series[code]) for code in self.file.series}

    def map_over(self, table: Table) -> None:
        """Maps the file over its rows; fields that it has no column for are absent. Raises OSError."""
        file, part = self.file, slice(self.first, self.end)
        if file.lost:
            table.ts[part], table.state[part], table.previous[part] = NEVER, MATURED, _GONE
            return
        columns = table.columns()
        file.map_over(columns, self.first)
        if self.codes is not None:  # translated, in memory until the rows are forgotten
            table.series[part] = self.codes.series_of(table.series[part])
            table.slices[part] = self.codes.slices(table.slices[part].astype(np.int64))
        for one in table.kept:
            if (name := f"field.{one.name}") in columns.keys() - file.columns.keys():
                columns[name][part] = one.absent

    def run(self) -> Run:
        """What is kept by run, as one run."""
        shadow, policies = self.file.kept("shadow"), self.file.kept("policies")
        if self.codes is not None:
            for kept in (shadow, policies):
                if kept is not None:
                    kept.series[:] = self.codes.series_of(kept.series)
        return Run(self.first, self.end, None, None, shadow, None, self.file.rows, policies)


def content(table: Table, runs: Sequence[Run], first: int, end: int) -> dict[str, Any]:
    """The content of the file of rows [first, end): copies of what may change; functions may be called on another thread."""
    columns = {name: column[first:end] for name, column in table.columns().items()}
    columns |= {name: column.copy() for name, column in columns.items() if name == "state" or name.startswith("field.")}
    some = [replace(run) for run in runs if run.start < end and run.end > first]
    kept = (kept for run in some for kept in (run.shadow, run.policies) if kept is not None)
    series = set[int]().union(*map(distinct, (table.series[first:end], *(one.series for one in kept))))
    least, greatest = block_times(table.ts[first:end])
    return {
        "series": sorted(series),
        "columns": columns,
        "least": least,
        "greatest": greatest,
        "shadow": partial(_joined, some, "shadow", first, end),
        "policies": partial(_joined, some, "policies", first, end),
    }


def distinct(codes: NDArray[np.int32]) -> list[int]:
    """The codes that occur."""
    return np.flatnonzero(np.bincount(codes)).tolist()


def means_the_same(codes: Codes, series: Iterable[int]) -> bool:
    """Whether rows of these series need no translation of their codes."""
    used = np.array(sorted(series), np.int64)
    values = all(bool((known == np.arange(known.size)).all()) for known in codes.values)
    return values and codes.here in (0, codes.radix) and bool((codes.series[used] == used).all())


def _joined(runs: Sequence[Run], name: str, first: int, end: int) -> dict[str, NDArray[Any]] | None:
    """What runs keep of rows [first, end), merged; None: nothing."""
    parts: list[Shadow | None] = []
    rows: list[int] = []
    at = first
    for run in (replace(run) for run in runs):
        if run.start < first:
            trim(run, first)
        if run.start > at:  # runs that keep nothing are dropped
            parts.append(None)
            rows.append(run.start - at)
        if run.end > end:
            cut(run, end)
        parts.append(getattr(run, name))
        at = run.end
        rows.append(at - run.start)
    parts.append(None)
    rows.append(end - at)
    whole = concat_shadows(parts, rows)
    return None if whole is None else whole._asdict()

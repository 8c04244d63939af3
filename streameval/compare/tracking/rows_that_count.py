"""Adds the rows of the ledgers to the comparisons they count for: a comparison counts those of its time, except in hours
set aside.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from streameval.compare.evidence.ratio import Ints
from streameval.compare.tracking.aside import AsideHours
from streameval.compare.tracking.limits import BoardLimits
from streameval.compare.tracking.sums import RowName
from streameval.compare.tracking.tracked import Tracked
from streameval.events.batch import Series

RowsByName = Mapping[RowName, Ints]
LookGains = Sequence[tuple[int, RowsByName]]  # (segment, rows) that a look adds, oldest first
Past = Callable[[], Iterator[tuple[int, RowsByName]]]  # the same for everything evaluated so far
Placing = Callable[[Collection[RowName]], Mapping[tuple[int, RowName], Ints]]  # sums of open strata so far, by segment


class RowsThatCount:
    """For all comparisons of a process."""

    def __init__(self, limits: BoardLimits, pane: int, aside: AsideHours) -> None:
        """`pane` in ms."""
        self._limits, self._pane, self._aside = limits, pane, aside

    def add(self, tracked: Tracked, segment: int, rows: RowsByName) -> None:
        """Adds rows of a segment. Those before the comparison's own first segment are for itself to leave out."""
        if segment * self._pane <= tracked.until and not self._aside.overlap(segment):
            for key in tracked.concerned(rows):
                tracked.add(segment, key, rows[key])

    def add_gauc(self, tracked: Tracked, segment: int, rows: RowsByName) -> None:
        """Adds rows of a window of GAUC if it begins, at a segment, within the comparison."""
        start = segment * self._pane
        within = tracked.start <= start <= tracked.until
        if within and not self._aside.overlap(segment, self._limits.gauc_window):
            for key in tracked.concerned(rows):
                tracked.gain_gauc(segment, key, rows[key])

    def hold(self, tracked: Tracked, placing: Placing, at: int) -> None:
        """Adds provisional placements to a comparison that runs at `at` (ms); later scores do not belong to one that has
        ended.
        """
        if tracked.keys and at <= tracked.until + self._pane:
            tracked.hold({of: row for of, row in placing(tracked.keys).items() if not self._aside.overlap(of[0])})


def named(series: Sequence[Series], rows: Iterable[tuple[tuple[int, int], Ints]]) -> dict[RowName, Ints]:
    """Returns rows of a ledger by names instead of codes."""
    return {(series[a], None if b < 0 else series[b]): row for (a, b), row in rows}

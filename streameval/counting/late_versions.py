"""Which version's clicks come after their labels were due, where those of the others do not.

A client that sends its clicks later than others (in batches, say) is most often one that came with a version. Among all
clicks those of a canary are few (see `late_labels`), but its labels are due without them, and beside those of the other
versions look like those of a model that predicts too much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.counting.join_panes import MIN_CLICKS
from streameval.counting.late_labels import NONE_LATE, UNUSUAL, LateCount, LateLabels
from streameval.events.batch import RETIRED, Series
from streameval.join.fates import Fates

_FEWEST = 10  # late clicks of a version: with fewer it is not known to lag


class LateVersions:
    """Of one partition: the labels of every version that served, in hours that may still be corrected."""

    def __init__(self, pane: int) -> None:
        """`pane` in ms."""
        self._pane = pane
        self._of: dict[int, LateLabels] = {}  # by code of the series

    def add(self, fates: Fates) -> None:
        """A batch."""
        both = fates.found_series, fates.corrected_series
        for code in np.unique(both[0]).tolist():
            (ts, key), (fixed_ts, fixed_key) = fates.found, fates.corrected
            found, fixed = both[0] == code, both[1] == code
            self._labels(code).count((ts[found], key[found]), (fixed_ts[fixed], fixed_key[fixed]))

    def advance(self, until: int, settled: int) -> None:
        """Moves on to what came before the pane `until`; forgets hours before `settled`, whose labels cannot change any more."""
        for labels in self._of.values():
            labels.advance(until)
            labels.forget_before(settled)

    def clear(self, code: int) -> None:
        """Forgets a series, so that its code can be reused."""
        self._of.pop(code, None)

    def by_hour(self) -> Iterator[tuple[int, Mapping[int, LateCount]]]:
        """(series, its counts by hour) of every series."""
        return ((code, labels.hours) for code, labels in self._of.items())

    def state(self) -> list[Any]:
        """Everything, for `restore`."""
        return [[code, labels.state()] for code, labels in sorted(self._of.items())]

    def restore(self, state: Iterable[Sequence[Any]], codes: NDArray[np.int32]) -> None:
        """Restores what `state` returned; `codes[c]`: this process's code of series c."""
        for code, saved in state:
            self._labels(int(codes[code])).restore(saved)

    def _labels(self, code: int) -> LateLabels:
        return self._of.setdefault(code, LateLabels(self._pane))


class Lagging(NamedTuple):
    """A version of whose clicks many more come late than of those of the others."""

    series: Series
    clicks: LateCount
    hours: frozenset[int]  # in which labels were due without their click

    @property
    def why(self) -> str:
        """Why nothing may be decided by labels that are due now."""
        share = f"{self.clicks.corrected / self.clicks.clicks:.0%} of the last {self.clicks.clicks} clicks"
        return f"{share} of {self.series.model} {self.series.version} came after the label of their impression was due"


def lagging_versions(parts: Sequence[LateVersions], series: Sequence[Series]) -> list[Lagging]:
    """Those of all partitions together, by name; `series`: by code."""
    hours: dict[Series, dict[int, LateCount]] = {}
    for part in parts:
        for code, counts in part.by_hour():
            if series[code] != RETIRED:
                mine = hours.setdefault(series[code], {})
                for hour, count in counts.items():
                    mine[hour] = mine.get(hour, NONE_LATE).plus(count)
    totals = {name: reduce(LateCount.plus, mine.values(), NONE_LATE) for name, mine in hours.items()}
    clicks, late = (sum(total[column] for total in totals.values()) for column in (0, 1))
    found = []
    for name, total in sorted(totals.items()):
        others = clicks - total.clicks
        usual = (late - total.corrected) / others if others >= MIN_CLICKS else 1.0
        if total.corrected >= _FEWEST and total.corrected > (UNUSUAL + usual) * total.clicks:
            found.append(Lagging(name, total, frozenset(hour for hour, one in hours[name].items() if one.corrected)))
    return found

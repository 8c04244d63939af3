"""When every version was last seen, and which ones make room for new ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from streameval.events.batch import Catalog, Series
from streameval.results.evaluate import ALL
from streameval.results.result import Result

RETIRE_FROM = 3  # quarters of the versions that can be distinguished; from there on unused ones are retired
RETIRE_SECONDS = 30.0


class Retirement:
    """Versions that no pane and no impression in memory is about are retired when there are many; the history keeps them.

    Until there are many, the run's results go back to its beginning.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._last_count: dict[Series, int] = {}
        self._due = 0.0  # monotonic seconds
        self.last_seen: dict[Series, float] = {}  # wall clock, seconds

    def see(self, results: Iterable[Result], now: float) -> None:
        """A series was seen when its impressions over the run have grown."""
        for result in results:
            if result.window == ALL and result.slice is None:
                n = result.totals.impressions
                before = self._last_count.get(result.series)
                self._last_count[result.series] = n
                if before not in (None, n) or result.series not in self.last_seen:
                    self.last_seen[result.series] = now

    def adopt(self, last_seen: Mapping[Series, float]) -> None:
        """What a partition that comes along knows; what it has counted was not seen just now."""
        for series, seen in last_seen.items():
            self.last_seen[series] = max(seen, self.last_seen.get(series, 0.0))
        self._last_count.clear()

    def partition_left(self) -> None:
        """Counts over the run have shrunk."""
        self._last_count.clear()

    def due(self, in_use: Callable[[], set[int]]) -> list[int]:
        """The codes to retire now, the longest unseen first. `in_use`: codes that something in memory is about.

        A series goes with those of its objectives, which hold nothing that it does not hold.
        """
        surplus = len(self._catalog.codes) - RETIRE_FROM * self._catalog.max_series // 4
        if surplus <= 0 or time.monotonic() < self._due:
            return []
        self._due = time.monotonic() + RETIRE_SECONDS
        used = in_use()
        unused = [code for code in self._catalog.codes if code not in used]
        unused.sort(key=lambda code: self.last_seen.get(self._catalog.series[code], 0.0))
        return [one for code in unused[:surplus] for one in (*self._catalog.objectives_of(code), code)]

    def retire(self, code: int) -> None:
        """Its code may be given to another series."""
        self.last_seen.pop(self._catalog.series[code], None)
        self._last_count.pop(self._catalog.series[code], None)
        self._catalog.retire(code)

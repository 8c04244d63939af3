"""When every version was last seen, and which versions are retired to make room for new ones."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from streameval.events.batch import Catalog, Series
from streameval.events.names import MAX_NAME, OTHER
from streameval.results.evaluate import ALL
from streameval.results.result import Result

log = logging.getLogger(__name__)
RETIRE_FROM = 3  # quarters of the largest number of versions, at which unused ones are retired
RETIRE_SECONDS = 30.0  # between two checks while no version comes


class Retirement:
    """Retires versions to which no pane and no impression in memory refers, when there are many; the history keeps them.

    Until there are many, the run's results go back to its beginning.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._last_count: dict[Series, int] = {}
        self._due = 0.0  # monotonic seconds
        self._checked = -1  # `Catalog.changes` at the last check
        self._said = False
        self.last_seen: dict[Series, float] = {}  # wall clock, seconds

    def see(self, results: Iterable[Result], now: float) -> None:
        """Records the series whose impressions over the run have grown as seen. `results`: the overall ones."""
        for result in results:
            if result.window == ALL:
                n = result.totals.impressions
                before = self._last_count.get(result.series)
                self._last_count[result.series] = n
                if before not in (None, n) or result.series not in self.last_seen:
                    self.last_seen[result.series] = now
                if result.series.version == OTHER and not self._said:
                    self._said = True
                    log.warning(
                        "more than %d versions at once (or names of more than %d characters): the further ones are counted "
                        "together as %s, and compared with nothing",
                        self._catalog.max_series,
                        MAX_NAME,
                        OTHER,
                    )

    def adopt(self, last_seen: Mapping[Series, float]) -> None:
        """Adds what a restored partition recorded; impressions that it has counted were not seen just now."""
        for series, seen in last_seen.items():
            self.last_seen[series] = max(seen, self.last_seen.get(series, 0.0))
        self._last_count.clear()

    def partition_left(self) -> None:
        """A partition was dropped, so counts over the run have shrunk."""
        self._last_count.clear()

    def due(self, in_use: Callable[[], set[int]]) -> list[int]:
        """The codes to retire now, the longest unseen first. `in_use`: codes to which something in memory refers.

        A series is retired together with those of its objectives, which have no data without it.
        """
        surplus = len(self._catalog.codes) - RETIRE_FROM * self._catalog.max_series // 4
        if surplus <= 0 or (time.monotonic() < self._due and self._catalog.changes == self._checked):
            return []
        self._due, self._checked = time.monotonic() + RETIRE_SECONDS, self._catalog.changes
        used = in_use()
        unused = [code for code in self._catalog.codes if code not in used]
        unused.sort(key=lambda code: self.last_seen.get(self._catalog.series[code], 0.0))
        return [one for code in unused[:surplus] for one in (*self._catalog.objectives_of(code), code)]

    def retire(self, code: int) -> None:
        """Drops a series, whose code may then be assigned to another one."""
        self.last_seen.pop(self._catalog.series[code], None)
        self._last_count.pop(self._catalog.series[code], None)
        self._catalog.retire(code)

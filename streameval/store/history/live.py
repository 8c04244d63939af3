"""A history that continues in memory: the panes of a running monitor in front of those it has written."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from streameval.events.batch import Series
from streameval.results.lines import Line, Slice
from streameval.results.pane_memory import PaneMemory
from streameval.store.history.reader import HistoryReader


class LiveHistory:
    """Panes in memory come from there; all others, steps and slices from the history."""

    def __init__(self, memory: PaneMemory, history: HistoryReader, counted: Mapping[str, Collection[str]]) -> None:
        """`counted`: the values of slices that are known in memory, by dimension."""
        self._memory = memory
        self._counted = counted
        self._history = history
        self.pane = history.pane

    def series_names(self) -> list[Series]:
        """Every series with panes in either."""
        return list(dict.fromkeys([*self._memory.series_names(), *self._history.series_names()]))

    def slice_names(self) -> Mapping[str, set[str]]:
        """The values of every dimension with panes in either; those of memory are written to the history soon."""
        written = self._history.slice_names()
        return {name: {*written.get(name, ()), *self._counted.get(name, ())} for name in {**written, **self._counted}}

    def series(
        self, metric: str, series: Sequence[Series], start: int | None, end: int | None, limit: int
    ) -> dict[Series, Line]:
        """See `PaneSource.series`. Where the history has an hour or a day, that is the point, and not its panes in memory."""
        held = set(self._memory.series_names())
        now = self._memory.series(metric, [one for one in series if one in held], start, end, limit + 1)
        skip = {one: set(self._memory.starts(one)) for one in now}
        past = self._history.series(metric, series, start, end, limit, skip)
        out = {}
        for one in series:
            line, here = past.get(one, Line((), False)), skip.get(one, set())
            # an hour is a pane where panes are hours
            written = [p for p in line.points if p.length > self._memory.pane or p.start not in here]
            live = now[one].points if one in now else ()
            since = live[0].start if live else 0
            coarse = [p for p in written if p.length > self._memory.pane and p.start + p.length > since]
            live = tuple(p for p in live if not any(c.start <= p.start < c.start + c.length for c in coarse))
            points = sorted([*written, *live], key=lambda p: p.start)
            if points or one in now:
                out[one] = Line(tuple(points[-limit:]), len(points) > limit or line.truncated)
        return out

    def steps(
        self,
        metric: str,
        series: Sequence[Series],
        start: int | None,
        end: int | None,
        step: int | None,
        where: Slice,
        limit: int,
    ) -> dict[Series, Line]:
        """Those of the history."""
        return self._history.steps(metric, series, start, end, step, where, limit)

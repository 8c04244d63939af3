"""Hours of event time that comparisons leave out for now: their labels were due without clicks that came later.

They return once nothing can correct them any more; but not into the sums under the cap of impressions by user, which keep
labels as they were when they were due.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from streameval.events.durations import HOUR


class AsideHours:
    """Of all comparisons of a process. An hour is its number since 1970."""

    def __init__(self, pane: int) -> None:
        """`pane` in ms."""
        self._pane = pane
        self.now: frozenset[int] = frozenset()
        self.returned: frozenset[int] = frozenset()

    def overlap(self, first: int, length: int = 1) -> bool:
        """Whether some of a stretch is left out: so is all of it. `first`: its first pane; `length` in ms, a pane at least."""
        start = first * self._pane
        end = start + max(length, self._pane)
        return any(hour * HOUR < end and start < (hour + 1) * HOUR for hour in self.now)

    def without(self, segments: range) -> Container[int]:
        """Those segments that are not left out."""
        return _Others(self, segments) if self.now else segments

    def change(self, hours: frozenset[int], oldest: int) -> None:
        """Leaves these hours out from now on, and others no more; returned hours before `oldest` are forgotten."""
        self.returned = frozenset(hour for hour in self.returned | self.now if hour >= oldest) - hours
        self.now = hours

    def state(self) -> dict[str, Any]:
        """Everything, for `restore`."""
        return {"now": sorted(self.now), "returned": sorted(self.returned)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned; of older checkpoints, nothing."""
        self.now, self.returned = frozenset(state.get("now", [])), frozenset(state.get("returned", []))


class _Others(Container[int]):
    def __init__(self, hours: AsideHours, segments: range) -> None:
        self._hours, self._segments = hours, segments

    def __contains__(self, segment: object) -> bool:
        return isinstance(segment, int) and segment in self._segments and not self._hours.overlap(segment)

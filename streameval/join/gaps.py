"""Stretches of event time in which events are missing for good: deleted before they were read, or skipped.

A stretch begins at the partition's watermark when it reached the gap, and ends at the first events of the same topic after it.
Results of windows that contain such a stretch are marked as unreliable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass

from streameval.join.policy import FOREVER, NEVER

_MOST = 64  # of a partition; beyond, the two oldest are merged


@dataclass(slots=True)
class _Gap:
    topic: str
    start: int  # ms
    end: int  # ms; FOREVER until an event of the topic arrives
    why: str


class Gaps:
    """The gaps of one partition."""

    def __init__(self, state: Iterable[tuple[str, int, int, str]] = ()) -> None:
        """`state`: as returned by the method `state`."""
        self._known = [_Gap(*one) for one in state]

    def open(self, words: Mapping[tuple[str, int], str], since: int) -> None:
        """Adds gaps from event time `since` (ms) on, with the reason (`words`) by topic; NEVER: from the first event on."""
        for (topic, _), why in words.items():
            if len(self._known) >= _MOST:
                first, second = self._known[:2]
                self._known[:2] = [_Gap(second.topic, first.start, max(first.end, second.end), second.why)]
            self._known.append(_Gap(topic, since, FOREVER, why))

    def close(self, topics: Iterable[str], now: int) -> None:
        """Ends the gaps of these topics, whose events have arrived, at event time `now` (ms)."""
        for gap in self._known:
            if gap.end == FOREVER and gap.topic in topics:
                gap.end = max(now, gap.start)

    def panes(self, pane: int, window: int) -> list[tuple[int, int, str]]:
        """[first pane, end pane) and the reason. `window`: ms before a gap in which labels may lack clicks from the gap."""
        return [
            (max(gap.start - window, NEVER) // pane, FOREVER if gap.end == FOREVER else gap.end // pane + 1, gap.why)
            for gap in self._known
        ]

    def state(self) -> list[list[object]]:
        """Everything, for a checkpoint."""
        return [list(astuple(gap)) for gap in self._known]

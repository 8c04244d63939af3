"""Stretches of event time in which events are missing that will never come: deleted unread, or passed over.

A stretch begins where the partition was when it met the gap, and ends at the first events of the same topic after it.
Results of windows that contain such a stretch say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass

from streameval.join.policy import FOREVER, NEVER

_MOST = 64  # of a partition; beyond, the oldest two become one


@dataclass(slots=True)
class _Gap:
    topic: str
    start: int  # ms
    end: int  # ms; FOREVER while nothing of the topic has come since
    why: str


class Gaps:
    """Of one partition."""

    def __init__(self, state: Iterable[tuple[str, int, int, str]] = ()) -> None:
        """`state`: as `state` gave it."""
        self._known = [_Gap(*one) for one in state]

    def open(self, words: Mapping[tuple[str, int], str], since: int) -> None:
        """Something is missing, as the words say by topic, from event time `since` (ms) on; NEVER: from the first."""
        for (topic, _), why in words.items():
            if len(self._known) >= _MOST:
                first, second = self._known[:2]
                self._known[:2] = [_Gap(second.topic, first.start, max(first.end, second.end), second.why)]
            self._known.append(_Gap(topic, since, FOREVER, why))

    def close(self, topics: Iterable[str], now: int) -> None:
        """Events of these topics have come, up to event time `now` (ms)."""
        for gap in self._known:
            if gap.end == FOREVER and gap.topic in topics:
                gap.end = max(now, gap.start)

    def panes(self, pane: int, window: int) -> list[tuple[int, int, str]]:
        """[first pane, end pane) and why. `window`: ms before a gap whose labels may lack clicks that are in it."""
        return [
            (max(gap.start - window, NEVER) // pane, FOREVER if gap.end == FOREVER else gap.end // pane + 1, gap.why)
            for gap in self._known
        ]

    def state(self) -> list[list[object]]:
        """For a checkpoint."""
        return [list(astuple(gap)) for gap in self._known]

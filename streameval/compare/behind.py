"""The versions that nothing may be decided about for now, as many of their clicks or impressions come late, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from streameval.compare.counted import Counted
from streameval.compare.reading.words import late_clicks_words, late_impressions_words
from streameval.counting.lagging import lagging_by_clicks, lagging_by_impressions
from streameval.counting.late_by_version import LateOfAll
from streameval.events.batch import Series


class Behind(NamedTuple):
    """Why, and since when labels were due, or comparisons looked, without what came late: ms, the time of an impression."""

    why: str
    since: int


class VersionsBehind:
    """Judged at every look."""

    def __init__(self, pane: int, window: int) -> None:
        """A pane and the attribution window, in ms."""
        self._pane, self._window = pane, window
        self._clicks, self._impressions = LateOfAll(), LateOfAll()

    def judge(
        self, partitions: Sequence[Counted], series: Sequence[Series], until: int, settled: int
    ) -> dict[Series, Behind]:
        """Moves on to what came before the pane `until`, and judges by it. `series`: by code; the hours before `settled`
        cannot be corrected any more.
        """
        clicks = self._clicks.advance([part.late_clicks for part in partitions], series, until, settled)
        shown = self._impressions.advance([part.late_impressions for part in partitions], series, until, settled)
        now = until * self._pane
        found = {
            one: Behind(late_impressions_words(one.version, *share[:2]), share.first_late)
            for one, share in lagging_by_impressions(shown, now).items()
        }
        for one, share in lagging_by_clicks(clicks, shown, now, self._window).items():
            since = min(share.first_late, found[one].since) if one in found else share.first_late
            found[one] = Behind(late_clicks_words(one.version, *share[:2]), since)
        return found

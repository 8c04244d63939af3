"""The versions that nothing may be decided about for now, as many of their clicks or impressions come late, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from streameval.compare.counted import Counted
from streameval.compare.reading.words import late_clicks_words, late_impressions_words
from streameval.counting.lagging import lagging_by_clicks, lagging_by_impressions
from streameval.counting.late_by_version import by_version
from streameval.events.batch import Series


class Behind(NamedTuple):
    """Why, and since when labels were due, or comparisons looked, without what came late: ms, the time of an impression."""

    why: str
    since: int


def versions_behind(
    partitions: Sequence[Counted], series: Sequence[Series], pane: int, window: int, until: int, settled: int
) -> dict[Series, Behind]:
    """Moves on to what came before the pane `until`, and judges by it. `series`: by code; a pane and the attribution window in
    ms; the hours before `settled` cannot be corrected any more.
    """
    for part in partitions:
        part.late_clicks.advance(until, settled)
        part.late_impressions.advance(until, settled)
    now = until * pane
    impressions = by_version([part.late_impressions for part in partitions], series)
    clicks = by_version([part.late_clicks for part in partitions], series)
    found = {
        one: Behind(late_impressions_words(one.version, *share[:2]), share.first_late)
        for one, share in lagging_by_impressions(impressions, now).items()
    }
    for one, share in lagging_by_clicks(clicks, impressions, now, window).items():
        since = min(share.first_late, found[one].since) if one in found else share.first_late
        found[one] = Behind(late_clicks_words(one.version, *share[:2]), since)
    return found

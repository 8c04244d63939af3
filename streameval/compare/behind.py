"""The versions that nothing may be decided about for now, as many of their clicks or impressions come late, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streameval.compare.counted import Counted
from streameval.compare.reading.words import late_clicks_words, late_words
from streameval.counting.late_impressions import mostly_late
from streameval.counting.late_versions import lagging_versions
from streameval.events.batch import Series
from streameval.events.durations import HOUR


class Behind(NamedTuple):
    """Why, by version; and the hours in which labels of those whose clicks lag were due without them."""

    why: Mapping[Series, str]
    hours: frozenset[int]


NONE_BEHIND = Behind({}, frozenset())


def versions_behind(
    partitions: Sequence[Counted], series: Sequence[Series], pane: int, until: int, settled: int
) -> Behind:
    """As of what came before `until` (ms). `series`: by code; `pane` in ms; hours before `settled` cannot change any more."""
    last = (until - 1) // HOUR
    for one in partitions:
        one.late_by_version.advance(until // pane, settled)
        one.late_impressions.advance(until // pane, settled)
    clicks = lagging_versions([one.late_by_version for one in partitions], series)
    why = {one.series: late_clicks_words(one.series.version, *one.clicks[:2]) for one in clicks}
    impressions = mostly_late([one.late_impressions for one in partitions], last, series)
    why |= {one: late_words(one.version, *count) for one, count in impressions.items()}
    return Behind(why, frozenset().union(*(one.hours for one in clicks)))

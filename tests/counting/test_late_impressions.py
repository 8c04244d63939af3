"""Impressions that come late, by version, against a count one by one."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from streameval.counting.late_impressions import LateImpressions, mostly_late
from streameval.counting.version_count import VersionCount
from streameval.events.batch import RETIRED, Catalog, Series
from streameval.events.durations import HOUR
from streameval.join.joiner import Joiner
from streameval.join.policy import JoinPolicy
from streameval.testing import Shown, make_batch

PANE, LATENESS = 60_000, 30_000
BASE = 1_700_000_040_000 // HOUR * HOUR
V1, V2 = Series("default", "v1", "logged"), Series("default", "v2", "logged")


def stream(share: float, n: int, start: int = 0, span: int = HOUR) -> list[tuple[int, Shown]]:
    """(when it came, impression) of v1, in time, and of v2, a share of it late."""
    luck, out = Random(n), []
    for i in range(n):
        ts, new = BASE + start + i * span // n, i % 3 == 0
        late = luck.randrange(2 * PANE, 40 * PANE) if new and luck.random() < share else 0
        out.append((ts + late, Shown(f"{start}-{i}", ts, version="v2" if new else "v1")))
    return sorted(out, key=lambda one: one[0])


def counted(given: list[tuple[int, Shown]], size: int = 100_000) -> tuple[LateImpressions, Catalog]:
    joiner, catalog = Joiner(JoinPolicy(10 * PANE, LATENESS, 24 * HOUR)), Catalog()
    late = LateImpressions(PANE)
    for at in range(0, len(given), size):
        rows, _ = joiner.add(make_batch([event for _, event in given[at : at + size]], catalog))
        late.add(joiner.table, rows)
    return late, catalog


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_counts_are_of_what_came_before_a_pane_however_it_is_cut(size: int) -> None:
    given = stream(0.4, 900, span=3 * HOUR)
    late, catalog = counted(given, size)
    first = BASE // PANE
    for minutes in (30, 61, 110, 300):
        late.advance(first + minutes, BASE // HOUR)
        newest, truth = 0, dict[tuple[int, str], VersionCount]()
        for _, event in given:
            newest = max(newest, event.ts)
            if newest < BASE + minutes * PANE:
                key = newest // HOUR, event.version
                truth[key] = truth.get(key, VersionCount()).plus(VersionCount(1, event.ts < newest - LATENESS))
        found = {(h, catalog.series[c].version): n for h, row in late.hours.items() for c, n in row.items()}
        assert found == truth
        late, before = LateImpressions(PANE), late
        late.restore(before.state(), np.arange(8, dtype=np.int32))
        assert late.state() == before.state()
    late.advance(first + 300, BASE // HOUR + 1)
    assert min(late.hours) == BASE // HOUR + 1


@pytest.mark.parametrize(("share", "found"), [(0.0, set()), (0.1, set()), (0.4, {V2}), (1.0, {V2})])
def test_a_version_with_many_late_impressions_is_found_for_as_long_as_they_are_missing(
    share: float, found: set[Series]
) -> None:
    late, catalog = counted(stream(share, 900) + stream(0.0, 4_500, 2 * HOUR, 5 * HOUR))
    hour = BASE // HOUR
    for hours, expected in ((1, found), (4, found if share == 1.0 else set()), (7, set())):
        late.advance((hour + hours) * 60, hour)
        assert set(mostly_late([late], hour + hours - 1, catalog.series)) == expected
    late.advance((hour + 7) * 60, hour + 2)
    assert not mostly_late([late], hour + 6, catalog.series)


def test_a_few_late_ones_say_nothing_and_a_code_that_is_reused_begins_anew() -> None:
    few, catalog = counted(stream(1.0, 24))
    many, _ = counted(stream(1.0, 90))
    for part in (few, many):
        part.advance(1 << 40, 0)
    hour = BASE // HOUR + 2
    assert not mostly_late([few], hour, catalog.series)
    assert set(mostly_late([few, many], hour, catalog.series)) == {V2}
    assert not mostly_late([few, many], hour, [RETIRED] * 8)
    many.clear(catalog.series.index(V2))
    assert not mostly_late([few, many], hour, catalog.series)

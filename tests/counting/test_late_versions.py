"""Versions of whose clicks many more come late than of those of the others, against a count one by one."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from streameval.counting.late_versions import Lagging, LateVersions, lagging_versions
from streameval.events.batch import RETIRED, Series
from streameval.events.durations import HOUR
from streameval.join.fates import Fates

PANE = 60_000
NONE = np.empty(0, np.int64), np.empty(0, np.int64)
SERIES = [Series("ctr", "v1", "logged"), Series("ctr", "v2", "logged"), Series("cvr", "v1", "logged")]
Click = tuple[int, int, bool, int]  # when, when it came, whether after the label was due, series


def clicks(seed: int, shares: dict[int, float], n: int) -> list[Click]:
    """Of twenty one each is of the second and the third series; of each series this share comes three hours late."""
    luck = Random(seed)
    out = []
    for i in range(n):
        code = 1 if i % 20 == 0 else 2 if i % 20 == 1 else 0
        ts, late = luck.randrange(8 * HOUR), luck.random() < shares.get(code, 0.0)
        out.append((ts, ts + 3 * HOUR if late else ts, late, code))
    return sorted(out, key=lambda click: click[1])


def fates(some: list[Click]) -> Fates:
    def columns(rows: list[Click]) -> tuple[np.ndarray, np.ndarray]:
        return np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.int64)

    fixed = [row for row in some if row[2]]
    codes = [np.array([row[3] for row in rows], np.int32) for rows in (some, fixed)]
    return Fates(NONE, columns(some), NONE, columns(fixed), *codes)


def parts_of(given: list[Click], size: int, partitions: int) -> list[LateVersions]:
    parts = [LateVersions(PANE) for _ in range(partitions)]
    for start in range(0, len(given), size):
        for p, part in enumerate(parts):
            part.add(fates(given[start : start + size][p::partitions]))
    return parts


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("size", [1, 40, 100_000])
def test_they_are_found_however_the_log_is_cut(size: int, partitions: int) -> None:
    given = clicks(1, {0: 0.02, 1: 0.6, 2: 0.1}, 4_000)
    until = 7 * 60
    parts = parts_of(given, size, partitions)
    for part in parts:
        part.advance(until, 0)
    came = [click for click in given if click[1] < until * PANE and click[3] == 1]
    (found,) = lagging_versions(parts, SERIES)
    assert found.series == SERIES[1]
    assert found.clicks[:2] == (len(came), sum(late for _, _, late, _ in came))
    assert found.hours == {ts // HOUR for ts, _, late, _ in came if late}
    assert "of ctr v2 came after the label of their impression was due" in found.why
    again = [LateVersions(PANE) for _ in parts]
    for part, saved in zip(again, parts, strict=True):
        part.restore(saved.state(), np.array([2, 0, 1], np.int32))
    assert lagging_versions(again, [SERIES[1], SERIES[2], SERIES[0]]) == [found]
    for part in again:
        part.clear(0)
    assert lagging_versions(again, [RETIRED, SERIES[2], SERIES[0]]) == []
    for part in parts:
        part.advance(10_000, 100)
    assert lagging_versions(parts, SERIES) == [], "they came long ago"


@pytest.mark.parametrize("shares", [{}, {0: 0.02, 1: 0.15}, {0: 0.5, 1: 0.6, 2: 0.5}, {0: 1.0, 1: 1.0, 2: 1.0}])
def test_what_comes_as_late_as_the_clicks_of_the_others_is_usual(shares: dict[int, float]) -> None:
    parts = parts_of(clicks(2, shares, 4_000), 500, 2)
    for part in parts:
        part.advance(10_000, 0)
    assert lagging_versions(parts, SERIES) == []


def test_a_version_alone_is_beside_no_other() -> None:
    part = LateVersions(PANE)
    part.add(fates([(i, i + 3 * HOUR, True, 0) for i in range(500)]))
    part.advance(10_000, 0)
    found: list[Lagging] = lagging_versions([part], SERIES)
    assert found == []

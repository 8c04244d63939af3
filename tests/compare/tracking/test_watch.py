"""Deploys are noticed from traffic soon enough, and from nothing else."""

from __future__ import annotations

from random import Random

import pytest

from streameval.compare.reading.reading import Deploy
from streameval.compare.tracking.watch import Watch

MINUTE = 60_000
V1, V2 = ("m", "v1"), ("m", "v2")


def noticed(hourly: dict[str, float], minutes: int, seed: int) -> list[Deploy]:
    """v1 from the start, the others after an hour, with so many impressions an hour."""
    luck, watch, out = Random(seed), Watch(0.01, 1_000), []
    for minute in range(minutes):
        served = {}
        for version, rate in hourly.items():
            n = sum(luck.random() < rate / 3_600 for _ in range(60)) if version == "v1" or minute >= 60 else 0
            if n:
                served["m", version] = n
        out += watch.pane(minute * MINUTE, (minute + 1) * MINUTE, served)
    return out


@pytest.mark.parametrize("canary", [100.0, 25.0])
def test_a_canary_with_little_traffic_is_noticed_by_its_share(canary: float) -> None:
    for seed in range(5):
        _, found = noticed({"v1": 2_000.0, "v2": canary}, 60 + int(60 * 60 / canary), seed)
        assert (found.version, found.replaces) == ("v2", "v1")
        assert found.at < 70 * MINUTE


def test_strays_are_no_deploy() -> None:
    for seed in range(5):
        assert len(noticed({"v1": 3_000.0, "v2": 10.0}, 24 * 60, seed)) == 1


def test_late_impressions_count_where_nothing_newer_is_known() -> None:
    watch = Watch(0.01, 1_000)

    def pane(minute: int, served: int, late: dict[int, int], of: tuple[str, str] = V2) -> list[str]:
        shown = {of: {then * MINUTE: n for then, n in late.items()}}
        counts = {V1: served} if served else {}
        return [d.version for d in watch.pane(minute * MINUTE, (minute + 1) * MINUTE, counts, shown)]

    assert pane(0, 500, {}) == ["v1"]
    assert pane(9, 500, {4: 10, 5: 10}) == []
    assert pane(10, 500, {5: 10, 6: 10}) == ["v2"], "partitions are not all at the same minute"
    assert watch.share(*V2) == 40 / 1_540
    assert pane(11, 500, {11: 1_000}, of=V1) == [], "what comes in time tells as much"
    assert watch.share(*V2) == 40 / 2_040
    for minute in range(12, 20):
        assert pane(minute, 500, {}) == []
    assert not watch.is_live(*V2)
    assert pane(30, 500, {6: 400, 7: 400}) == [], "v2 is gone, and this is from before"
    assert pane(31, 500, {26: 400}) == ["v2"], "and now it is back"


@pytest.mark.parametrize("again", [False, True])
def test_a_version_whose_log_was_stuck_was_never_gone(again: bool) -> None:
    """v2 stops at minute 10, or its log is stuck until minute 40; in minute 60 it is there again."""
    watch, kinds = Watch(0.01, 1_000), []
    for minute in range(70):
        served = {V1: 900, V2: 100} if minute < 10 or (minute >= 40 and not again) or minute >= 60 else {V1: 900}
        stuck = (
            {then * MINUTE: 100 for then in range(10, 40)} if not again else {then * MINUTE: 5 for then in range(10)}
        )
        late = {V2: stuck} if minute == 40 else {}
        kinds += [
            (d.version, d.kind, d.at // MINUTE)
            for d in watch.pane(minute * MINUTE, (minute + 1) * MINUTE, served, late)
        ]
        assert watch.is_live(*V2) == (minute < 12 or minute >= (60 if again else 40))
    assert kinds == [("v1", "deploy", 0), ("v2", "deploy", 0), *([("v2", "rollback", 60)] if again else [])]


def test_an_announced_version_that_served_before_and_does_not_serve_most_now_is_rolled_back_to() -> None:
    watch = Watch(0.01, 1_000)
    for minute in range(30):
        watch.pane(minute * MINUTE, (minute + 1) * MINUTE, {V1: 900} if minute < 10 else {V1: 300, V2: 600})
    kinds = [watch.announced("m", version, 30 * MINUTE, "", "").kind for version in ("v1", "v2", "v3")]
    assert kinds == ["rollback", "deploy", "deploy"]

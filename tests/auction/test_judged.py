"""`streameval auction` on a log of 40,000 candidates, against sorting every request's candidates in plain Python."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from streameval.events.hashing import hash_one
from tests.auction.test_command import Event, cell, events, run
from tests.auction.world import MAINLINE, SLOTS, VERSIONS, make_world

REQUESTS, QUERIES = 2_700, 40
POINTS = {"now": (0.25, 0.02), "open": (0.0, 0.0), "strict": (0.6, 0.1), "closed": (1e9, 1e9)}
SQUASH = 0.8
CONFIG = f"[auction]\nslots = {SLOTS}\nmainline = {MAINLINE}\nsquash = {SQUASH}\n" + "".join(
    f'[[auction.points]]\nname = "{name}"\nmainline_reserve = {high}\nsidebar_reserve = {low}\n'
    for name, (high, low) in POINTS.items()
)


def nasty() -> list[Event]:
    """With tied scores, zeros, requests of one candidate, some without a click, and some that v2 scored in part."""
    luck, out = random.Random(3), []
    single = {f"r{r}" for r in range(0, REQUESTS, 37)}
    for event in events(make_world(21, REQUESTS, QUERIES)):
        if event["type"] == "click":
            out.append(event)
            continue
        if event["request_id"] in single and event.get("position") != 0:
            continue
        event["pclick"], event["bid"] = round(event["pclick"], 2), round(event["bid"], 1)
        event["predictions"] = {version: round(p, 2) for version, p in event["predictions"].items()}
        if luck.random() < 0.003:
            del event["predictions"]["v2"]
        out.append(event)
    there = {event["impression_id"] for event in out if event["type"] == "impression"}
    return [event for event in out if event["impression_id"] in there]


def yields(log: list[Event], positions: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, float]]:
    """By version and point, from the curve and the reference rates by position that the report states."""
    curve, reference = ([row[name] for row in positions] for name in ("curve", "reference_ctr"))
    clicked = {event["impression_id"] for event in log if event["type"] == "click"}
    requests: defaultdict[str, list[Event]] = defaultdict(list)
    seen: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in log:
        if event["type"] == "impression":
            requests[event["request_id"]].append(event)
            if "position" in event:
                pair = seen[event["query_id"], event["item_id"]]
                pair[0] += event["impression_id"] in clicked
                pair[1] += curve[event["position"]]
    sums: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * 5)
    for some in requests.values():
        some.sort(key=lambda event: (event.get("position", math.inf), hash_one(event["item_id"])))
        for version in VERSIONS:
            scores = [event["pclick"] if version == "v1" else event["predictions"].get(version) for event in some]
            if None in scores:
                continue
            ranked = sorted(
                ((event["bid"] * p**SQUASH, event) for p, event in zip(scores, some, strict=True)),
                key=lambda pair: -pair[0],
            )
            for point, (high, low) in POINTS.items():
                above = [event for rank, event in ranked if rank >= high][:MAINLINE]
                aside = [event for rank, event in ranked if rank >= low and event not in above][: SLOTS - MAINLINE]
                expected = [
                    seen[pair][0] / seen[pair][1] * curve[k] if seen.get(pair := (e["query_id"], e["item_id"])) else reference[k]
                    for e, k in [*zip(above, range(MAINLINE), strict=False), *zip(aside, range(MAINLINE, SLOTS), strict=False)]
                ]  # fmt: skip
                for at, term in enumerate(
                    (1, sum(expected), sum(expected[: len(above)]), len(above), len(above) + len(aside))
                ):
                    sums[version, point][at] += term
    names = ("click_yield", "mainline_click_yield", "mainline_ads", "ads")
    return {
        key: {"requests": n, **{name: term / n for name, term in zip(names, terms, strict=True)}}
        for key, (n, *terms) in sums.items()
    }


@pytest.mark.slow
def test_every_number_is_that_of_sorting_candidates(tmp_path: Path) -> None:
    log = nasty()
    assert len(log) > 38_000
    report, _ = run(tmp_path, log, CONFIG)
    assert not any(report["skipped"].values())
    judged = yields(log, report["positions"])
    assert len(judged) == len(VERSIONS) * len(POINTS)
    for (version, point), expected in judged.items():
        found = cell(report, version, point)
        assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-9), (version, point)
    by_requests = {version: judged[version, "now"]["requests"] for version in VERSIONS}
    assert 0.9 * REQUESTS < by_requests["v2"] < by_requests["v1"] == report["requests"]
    assert judged["v1", "closed"]["click_yield"] == 0.0, "a request with nothing shown counts"
    assert 0 < cell(report, "v3", "strict")["replayed_share"] <= 1

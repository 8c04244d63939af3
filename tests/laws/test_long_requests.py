"""An id of requests that comes back for hours is one request after another, and which impressions each has depends on
their log alone: not on batches, kills, or on what the joiner happened to have forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pytest

from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.testing import ManualClock, Shown, Tap, make_batch, readers_see
from tests.laws.streams import differences, few_panes, through_disk

BASE = 1_760_000_000_000
LIFE = 30_000  # ms
CONFIG = {
    "join": {
        "attribution_window": "20s", "allowed_lateness": "5s", "correction_horizon": "60s", "request_gap": "5s",
    },
    "windows": {"pane": "10s"},
    "ranking": {"k": [3], "by_user": ["ndcg_3"]},
    "compare": {"more": ["ndcg_3", "click_yield"], "gauc_window": "30s", "min_duration": "1m", "min_clicks": 20, "min_blocks": 10},
}  # fmt: skip
SESSIONS = ["one id for all", "a session of each user", "an id of another stretch", "their own"]
Event = Shown | Tap


@cache
def stream(kind: str) -> list[Event]:
    """18 minutes, with impressions and clicks that come late on the wire, some of them later than can be corrected."""
    luck, out = Random(kind), []
    for i in range(1800):
        ts, user = BASE + 600 * i, luck.randrange(40)
        name = {
            SESSIONS[0]: "-" if luck.random() < 0.3 else f"r{i // 5}",
            SESSIONS[1]: f"of {user}",
            SESSIONS[2]: f"of {i // 7 % 11}",
            SESSIONS[3]: f"r{i // 5}",
        }[kind]
        version = "v2" if i // 5 % 3 == 0 else "v1"
        event = Shown(f"i{i}", ts, user=f"u{user}", request=name, pclick=luck.random() * 0.5, version=version)
        out.append((ts + luck.choice([0, 0, 0, 3_000, 20_000, 58_000]), i, event))
        if luck.random() < 0.3:
            clicked = ts + luck.randrange(100, 19_000)
            out.append((clicked + luck.choice([0, 0, 30_000, 55_000, 90_000]), i, Tap(f"i{i}", clicked)))
    return [event for _, _, event in sorted(out, key=lambda one: one[:2])]


def renamed(events: Sequence[Event]) -> list[Event]:
    """The same events, in which each request has an id of its own: in plain Python, what is to be found."""
    of: dict[str, list[int]] = {}  # by id, of its latest request: number, earliest and latest time
    by_start: dict[tuple[str, int], list[int]] = {}
    out: list[Event] = []
    newest = 0
    for number, event in enumerate(events):
        newest = max(newest, event.ts)
        if isinstance(event, Tap) or newest - 5_000 >= event.ts + 60_000:  # or it is too late
            out.append(event)
            continue
        mine = of.get(event.request)
        if mine is None or max(mine[2], event.ts) - min(mine[1], event.ts) > LIFE:
            mine = by_start.setdefault((event.request, event.ts), [number, event.ts, event.ts])
            of[event.request] = mine
        mine[1:] = min(mine[1], event.ts), max(mine[2], event.ts)
        out.append(replace(event, request=f"{event.request} {mine[0]}"))
    return out


def counted(events: Sequence[Event], size: int, cuts: Sequence[int] = (), folder: Path | None = None) -> dict:
    """The report when so many come at a time; `cuts`: places in the log at which the monitor is killed and started again."""
    settings = Settings.model_validate(CONFIG)
    pipeline = Pipeline(settings, ManualClock())
    for start in range(0, len(events), size):
        pipeline.take(make_batch(events[start : start + size], pipeline.catalog))
        if any(start <= cut < start + size for cut in cuts):
            assert folder is not None
            readers_see(pipeline)
            again = Pipeline(settings, ManualClock())
            again.restore_partition(0, through_disk(_Process(pipeline), 0, folder / "checkpoint"))
            pipeline = again
    pipeline.finish()
    with few_panes:
        return readers_see(pipeline).report()


class _Process:
    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline


@pytest.mark.parametrize("kind", SESSIONS)
def test_each_life_of_an_id_is_a_request_of_its_own(kind: str) -> None:
    found = counted(stream(kind), 500)
    assert not differences(found, counted(renamed(stream(kind)), 500))
    whole = found["results"][0]
    assert whole["window"] == "all"
    assert whole["requests"] > 50
    assert whole["gauc_request"] is not None


@pytest.mark.parametrize("size", [1, 77, 5000])
@pytest.mark.parametrize("kind", SESSIONS[:3])
def test_batches_change_no_bit(kind: str, size: int) -> None:
    assert not differences(counted(stream(kind), size), counted(stream(kind), 500))


@pytest.mark.parametrize("kind", SESSIONS[:3])
def test_of_two_logs_it_does_not_matter_how_far_one_is_read_ahead(kind: str) -> None:
    shown = [event for event in stream(kind) if isinstance(event, Shown)]
    clicks = [event for event in stream(kind) if isinstance(event, Tap)]
    found = []
    for steps in ((500, 150), (40, 400), (900, 7)):
        pipeline = Pipeline(Settings.model_validate(CONFIG), ManualClock())
        left = [list(shown), list(clicks)]
        while any(left):
            some: list[Event] = []
            for log, step in zip(left, steps, strict=True):
                some += log[:step]
                del log[:step]
            pipeline.take(make_batch(some, pipeline.catalog, shared=False))
        pipeline.finish()
        with few_panes:
            found.append(readers_see(pipeline).report())
    assert not differences(found[1], found[0])
    assert not differences(found[2], found[0])


@pytest.mark.parametrize("kind", SESSIONS[:3])
def test_kills_and_restarts_change_no_bit(kind: str, tmp_path: Path) -> None:
    cuts = [Random(kind).randrange(len(stream(kind))) for _ in range(6)]
    assert not differences(counted(stream(kind), 50, cuts, tmp_path), counted(stream(kind), 500))

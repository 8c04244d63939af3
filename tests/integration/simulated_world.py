"""A world of the simulator: seven and a half minutes in which a worse version is deployed, with what is late or wrong of every kind."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from streameval.join.leaps import ENOUGH
from streameval.simulate.encode import MALFORMED, events
from streameval.simulate.scenario import Scenario, Version
from streameval.simulate.traffic import Traffic
from tests.integration.readings import Message, World

PIECE = 300  # messages that a live producer sends at once
IDLE_S = 0.2
START_MS = 1_760_000_000_000  # 400 s before a full hour: a stratum of the placements ends within the stream
SCENARIO = Scenario(
    start_ms=START_MS,
    duration_s=450.0,
    rate=15.0,  # as much as the embedded broker holds
    users=600,
    ctr=0.1,
    late_share=0.03,
    window_s=60.0,
    versions=(Version("v1"), Version("v2", noise=2.5, bias=1.0, start_s=100.0, share=0.4)),
    shadow=True,
    duplicate=0.02,
    unmatched=0.02,
    malformed=0.02,
    shuffle_s=10.0,
)
JOIN = {
    "attribution_window": "60s", "allowed_lateness": "15s", "correction_horizon": "2m", "request_gap": "20s",
    "idle_timeout": f"{IDLE_S}s",
}  # fmt: skip
# seconds that some come late: labels are corrected, and what is later than the correction horizon is not counted
LATE = {"impression": (0.02, (40.0,)), "click": (0.1, (30.0, 90.0, 200.0))}
SETTINGS: dict[str, Any] = {
    "join": JOIN,
    "windows": {"pane": "10s", "sliding": ["1m", "5m"]},
    "compare": {"min_duration": "1m", "min_clicks": 20, "min_blocks": 10, "gauc_window": "20s"},
    "slices": {"dimensions": ["country"]},
}


@cache
def stream() -> tuple[Message, ...]:
    """In order of arrival; its end makes all before it final."""
    luck = random.Random(5)
    arriving = []
    for number, event in enumerate(events(Traffic(SCENARIO))):
        share, seconds = LATE[event.kind]
        late = 1000 * luck.choice(seconds) if luck.random() < share else 0.0
        value = event.json(with_type=True)
        if event.raw is not None:  # of the kinds that are refused alike whether a topic or a field says what they are
            value = luck.choice([MALFORMED[0], MALFORMED[2]])
        arriving.append((event.arrives + late, number, Message(event.kind == "click", event.key, value)))
    out = [message for *_, message in sorted(arriving, key=lambda one: one[:2])]
    end = START_MS + int(SCENARIO.duration_s * 1000) + 3_600_000
    for number in range(4 * ENOUGH):  # as many for each of four partitions as a leap of the clock needs
        key = bytes([number % 4])
        shown = b'{"type":"impression","impression_id":"end-%d","ts":%d,"user_id":"end","pclick":0.5}' % (number, end)
        tapped = b'{"type":"click","impression_id":"end-%d","ts":%d}' % (number, end)
        out += [Message(False, key, shown), Message(True, key, tapped)]
    ahead = b'{"type":"impression","impression_id":"ahead","ts":%d,"user_id":"u","pclick":0.5}' % (START_MS + 10**9)
    out.insert(len(out) // 3, Message(False, b"user-0", ahead))
    return tuple(out)


def partition_of(message: Message, partitions: int) -> int:
    """Where a message is, in either topic."""
    return sum(message.key) % partitions


def live(shared: bool) -> Iterator[tuple[Sequence[Message], float]]:
    """Half-way the clicks (with one topic, everything) fall silent for longer than the idle timeout."""
    pieces = [stream()[start : start + PIECE] for start in range(0, len(stream()), PIECE)]
    for number, piece in enumerate(pieces):
        if number != len(pieces) // 2:
            yield piece, 0.01
            continue
        shown = [] if shared else [m for m in piece if not m.click]
        yield shown, 2 * IDLE_S
        yield [m for m in piece if shared or m.click], 0.01


SIMULATED = World(stream, SETTINGS, partition_of, live, interval_s=0.0)

"""Events as JSON objects, in the order in which they arrive, with malformed ones in between when asked."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from streameval.simulate.scenario import Scenario
from streameval.simulate.traffic import COUNTRIES, DEVICES, Block, Traffic

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Message:
    """One message: when it arrives (ms), its kind, its key (the user id), its fields; `raw` when it is malformed."""

    arrives: float
    kind: str  # "impression" | "click"
    key: bytes
    fields: dict[str, Any]
    raw: bytes | None = None

    def json(self, with_type: bool = False) -> bytes:
        """The message's bytes."""
        if self.raw is not None:
            return self.raw
        return _encode({"type": self.kind, **self.fields} if with_type else self.fields)


MALFORMED = (
    b'{"impression_id": "cut off", "ts": 17',
    b"",
    b"\xff\xfe\x00not text",
    b'{"impression_id": "x", "ts": 1760000000000, "user_id": "u", "pclick": 1.5}',
    b'{"impression_id": "x", "ts": -5, "user_id": "u", "pclick": 0.5}',
    b'{"impression_id": "x", "ts": 1760000000000, "user_id": 7, "pclick": 0.5}',
    b'{"impression_id": "x", "ts": "yesterday", "user_id": "u", "pclick": 0.5}',
    b'{"ts": 1760000000000, "user_id": "u", "pclick": 0.5}',
    b'{"impression_id": "x", "ts": 1760000000000, "user_id": "u", "pclick": NaN}',
    b'{"impression_id": "x", "ts": 99999999999999, "user_id": "u", "pclick": 0.5}',
    b'{"impression_id": "x", "ts": 1760000000000, "user_id": "u", "pclick": true}',
    b"[" * 2000,
)


def events(traffic: Traffic) -> Iterator[Message]:
    """Every event of the scenario, in order of arrival."""
    s = traffic.scenario
    waiting: list[tuple[float, int, Message]] = []
    count = 0
    for number, block in enumerate(traffic.blocks()):
        begin = s.start_ms + number * 10_000.0
        while waiting and waiting[0][0] < begin:  # nothing that is still to come can arrive before this block begins
            yield heapq.heappop(waiting)[2]
        for event in _block_events(block, traffic, number):
            heapq.heappush(waiting, (event.arrives, count, event))
            count += 1
    while waiting:
        yield heapq.heappop(waiting)[2]


def _block_events(block: Block, traffic: Traffic, number: int) -> Iterator[Message]:
    s = traffic.scenario
    rng = np.random.default_rng((s.seed, 2, number))
    n, m = block.ts.size, block.click_of.size
    jitter = rng.uniform(0, s.shuffle_s * 1000, n + m) if s.shuffle_s else np.zeros(n + m)
    twice = rng.random(n + m) < s.duplicate
    broken = rng.random(n) < s.malformed
    which = rng.integers(0, len(MALFORMED), n)
    for i in range(n):
        event = Message(
            block.ts[i] + jitter[i], "impression", b"user-%d" % block.user[i], _impression(block, i, traffic)
        )
        yield event
        if twice[i]:
            yield event
        if broken[i]:
            yield Message(event.arrives, "impression", event.key, {}, MALFORMED[which[i]])
    for j in range(m):
        i = int(block.click_of[j])
        known = f"imp-{block.number[i]}" if block.click_known[j] else f"lost-{block.number[i]}"
        fields = {"impression_id": known, "ts": int(block.click_ts[j]), "user_id": f"user-{block.user[i]}"}
        event = Message(block.click_ts[j] + jitter[n + j], "click", b"user-%d" % block.user[i], fields)
        yield event
        if twice[n + j]:
            yield event


def _impression(block: Block, i: int, traffic: Traffic) -> dict[str, Any]:
    s: Scenario = traffic.scenario
    world = traffic.world
    user, item, served = int(block.user[i]), int(block.item[i]), int(block.version[i])
    country = COUNTRIES[block.country[i]]
    fields: dict[str, Any] = {
        "impression_id": f"imp-{block.number[i]}",
        "ts": int(block.ts[i]),
        "user_id": f"user-{user}",
        "model": "ctr",
        "model_version": s.versions[served].name,
        "pclick": float(block.pclick[i, served]),
        "request_id": f"req-{block.request[i]}",
        "item_id": f"item-{item}",
        "position": int(block.position[i]),
        "slices": {"country": country},
        "features": {
            "bias": 1,
            "user": f"user-{user}",
            "item": f"item-{item}",
            "category": f"cat-{world.category[item]}",
            "country": country,
            "device": DEVICES[block.device[i]],
            "position": str(block.position[i]),
            "age": round(float(world.age[user]) / 100, 2),
        },
    }
    if s.shadow and len(s.versions) > 1:
        since = (int(block.ts[i]) - s.start_ms) / 1000
        others = [(k, v) for k, v in enumerate(s.versions) if k != served and v.start_s <= since]
        if others:
            fields["predictions"] = {v.name: float(block.pclick[i, k]) for k, v in others}
    return fields

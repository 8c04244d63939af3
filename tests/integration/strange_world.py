"""A world that the program was not tuned to: five hours in which everything goes wrong that a log can get wrong.

v1 serves alone; v2 is deployed to half of the users; v3 is ramped up by the clock and rolled back. Users are few that come
often and many that come once, items last for an hour. All clicks pause for longer than an hour, those of one partition for longer
than the correction horizon, and from some time on nobody clicks any more. Midnight (UTC) is in the middle.

STRANGE_RATE (impressions a minute) makes a larger one, STRANGE_SEED another.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any

from streameval.simulate.encode import MALFORMED
from tests.integration.readings import Message, World

RATE = float(os.environ.get("STRANGE_RATE", "20"))
SEED = int(os.environ.get("STRANGE_SEED", "20251031"))
MIN = 60_000
START_MS = 1_761_940_800_000 + 433_000  # 20:07:13; strata of an hour and days end within the stream
END = 315  # minutes after the start, as all that follow
V2_FROM, V3_FROM, V3_UNTIL = 30, 75, 165
NO_CLICKS = (50.0, 112.0)  # shorter than the horizon
NO_CLICKS_OF_FEW = (114.0, 190.0)  # longer than the horizon, of the users of one partition
LAST_CLICK = 240.0  # that arrives: for longer than the horizon before the end
AHEAD_ALONE = 170.0  # some impressions two days ahead, too few to be believed
AHEAD_TOGETHER = (200.0, 204.0)  # enough of them to be believed, where only users of one partition are looked at
PIECE = 200  # messages that a live producer sends at once
IDLE_S = 2.5  # nobody is silent for as long but on purpose: a process that was frozen counts two seconds at most
TWO_DAYS = 2 * 24 * 60
MANY, SOME, FEW, LONE = 0, 1, 2, 3  # partitions, when there are four
LONE_USER = "user-3"
VERSIONS = {"v1": (0.3, 0.0), "v2": (2.5, 1.3), "v3": (0.1, -0.1)}  # noise and bias of the log-odds

SETTINGS: dict[str, Any] = {  # times as by default, divided by twenty
    "join": {
        "attribution_window": "90s", "allowed_lateness": "3s", "correction_horizon": "72m", "request_gap": "30s",
        "idle_timeout": f"{IDLE_S}s",
    },
    "windows": {"pane": "10m", "sliding": ["10m", "70m"]},
    "slices": {"dimensions": ["country"]},
    "metrics": {"value": True},
    "ranking": {"k": [1, 3]},
    "strata": {"count": 3},
    "objectives": [{"name": "dear", "value_at_least": 2.0, "versions": ["v2"]}],
    "compare": {
        "more": ["ctr", "value", "click_yield", "log_loss_snips", "policy_value", "ndcg_3", "mrr", "pauc"],
        "count": 100, "min_duration": "10m", "min_clicks": 20, "gauc_window": "10m",
    },
    "store": {"minutes": "30d"},  # a clock two days ahead makes all else old: when minutes become hours depends on the wall clock
}  # fmt: skip


def partition_of(message: Message, partitions: int) -> int:
    """Of four: many users are in one, some and few in two others, and one by himself in the last."""
    return _group(message.key.decode()) if partitions > 1 else 0


@cache
def _group(user: str) -> int:
    if user == LONE_USER:
        return LONE
    rank = int(user.removeprefix("user-"))
    return MANY if rank == 0 else (MANY, SOME, MANY, FEW, SOME, MANY, MANY, FEW, SOME, MANY)[rank % 10]


@dataclass(slots=True)
class Sent:
    """An event on its way; times are minutes after the start."""

    at: float  # it says
    arrives: float
    click: bool
    user: str
    fields: dict[str, Any] = field(default_factory=dict)
    raw: bytes | None = None  # instead of all this

    def message(self) -> Message:
        """As it is sent."""
        kind = "click" if self.click else "impression"
        event = {"type": kind, "ts": START_MS + round(self.at * MIN), "user_id": self.user, **self.fields}
        return Message(self.click, self.user.encode(), self.raw or json.dumps(event).encode())


@cache
def stream() -> tuple[Message, ...]:
    """In order of arrival. It has no end that makes all before it final."""
    luck = Random(SEED)
    events: list[Sent] = []
    for shown in _impressions(luck):
        events.append(shown)
        events += _clicks(shown, luck)
    spoilt = [one for event in events for one in _spoilt(event, luck)]
    spoilt += _ahead(luck)
    heard = [event for event in spoilt if not event.click or not _paused(event)]
    return tuple(event.message() for event in sorted(heard, key=lambda event: event.arrives))


def _impressions(luck: Random) -> Iterator[Sent]:
    """Requests of one to eight impressions, of users by Zipf's law."""
    users = range(900)
    often = [1 / (rank + 1) ** 1.2 for rank in users]
    at, number = 0.0, 0
    while (at := at + luck.expovariate(RATE / 3.5)) < END:
        rank = luck.choices(users, often)[0]
        user, number = f"user-{rank}", number + 1
        request = "-" if luck.random() < 0.05 else f"session-{rank}" if rank % 9 == 2 else f"request-{number}"
        version = _served(rank, at)
        for position in range(luck.choice([1, 2, 3, 3, 3, 4, 4, 8])):
            item = int(at / 5) * 5 + luck.randrange(60)  # five come and five go every five minutes
            fields = _fields(f"{number}-{position}", rank, item, position, version, at, luck)
            yield Sent(at, at + luck.random() / 20, False, user, {**fields, "request_id": request})
            at += luck.random() / 60


def _served(rank: int, at: float) -> str:
    ramp = max(0.0, (at - V3_FROM) / 150) if at < V3_UNTIL else 0.0  # by the clock, from nobody to 60 %
    if rank * 0.618 % 1.0 < ramp:
        return "v3"
    return "v2" if at >= V2_FROM and rank * 0.382 % 1.0 < 0.5 else "v1"


def _fields(number: str, rank: int, item: int, position: int, version: str, at: float, luck: Random) -> dict[str, Any]:
    scores = {name: 1 / (1 + math.exp(-_logit(rank, item, position, name))) for name in VERSIONS}
    fields: dict[str, Any] = {
        "impression_id": number, "item_id": f"item-{item}", "model": "ads", "model_version": version,
        "pclick": scores[version], "position": position,
    }  # fmt: skip
    there = [name for name, since in (("v1", 0), ("v2", V2_FROM), ("v3", V3_FROM)) if name != version and at >= since]
    if rank % 5 < 3:  # nobody scores in shadow for the others
        fields["predictions"] = {name: scores[name] for name in there}
    if luck.random() < 0.8:
        fields["propensity"] = 10 ** luck.uniform(-5, 0)
        fields["policies"] = {name: luck.random() for name in [version, *there]}
    country = ("de", "fr", "__missing__", "__other__", "", None)[rank % 6]
    fields["slices"] = {} if country is None else {"country": country}
    return fields


@cache
def _logit(rank: int, item: int, position: int, version: str = "") -> float:
    """Of the truth, or what a version takes for it."""
    taste, quality = Random(f"user-{rank}").gauss(0, 0.8), Random(f"item-{item}").gauss(0, 0.8)
    truth = -1.2 + taste + quality - 0.15 * position
    noise, bias = VERSIONS.get(version, (0.0, 0.0))
    return truth + bias + (Random(f"{version}-{rank}-{item}").gauss(0, noise) if noise else 0.0)


def _clicks(shown: Sent, luck: Random) -> Iterator[Sent]:
    """Of an impression: none, one, or a second that is worth more; late on the way, also beyond the correction horizon."""
    rank, item = int(shown.user.removeprefix("user-")), int(shown.fields["item_id"].removeprefix("item-"))
    if luck.random() >= 1 / (1 + math.exp(-_logit(rank, item, shown.fields["position"]))):
        return
    at = shown.at + luck.expovariate(2.0)  # some after the attribution window
    for worth in [1.0] if luck.random() < 0.8 else [1.0, 3.0]:
        way = luck.choice([0.2, 4.0, 30.0, 75.0]) if luck.random() < 0.1 else luck.random() / 20
        fields = {"impression_id": shown.fields["impression_id"], "value": worth * luck.choice([0.5, 1.0, 2.0])}
        yield Sent(at, at + way, True, shown.user, fields)
        at += luck.random() / 2


def _spoilt(event: Sent, luck: Random) -> Iterator[Sent]:
    """An event, with what goes wrong with it or beside it."""
    wrong = luck.random()
    if wrong < 0.01:  # on its way for longer than is allowed
        event = replace(event, arrives=event.arrives + luck.choice([0.3, 8.0]))
    elif wrong < 0.015:  # a clock that is behind, also by more than can be corrected
        event = replace(event, at=event.at - luck.choice([0.5, 30.0, 75.0]))
    elif wrong < 0.016:  # a clock that is ahead
        event = replace(event, at=event.at + TWO_DAYS + luck.random())
    yield event
    again = luck.random()
    if again < 0.02:
        yield replace(event, arrives=event.arrives + luck.choice([0.01, 2.0, 10.0]))
    elif again < 0.025 and not event.click:  # its id, of another version
        yield replace(event, arrives=event.arrives + 1.0, fields={**event.fields, "model_version": "v9"})
    elif again < 0.028:  # its id once more, long after it is forgotten
        yield replace(event, at=event.at + 80.0, arrives=event.arrives + 80.0)
    elif again < 0.034 and event.click:  # a click on nothing
        yield replace(event, fields={**event.fields, "impression_id": f"lost-{event.fields['impression_id']}"})
    elif again < 0.054:
        yield replace(event, raw=_malformed(event, luck))


def _malformed(event: Sent, luck: Random) -> bytes:
    """What is refused alike from a topic and from a file, for the same reason."""
    unit = luck.choice([b"", b"000", b"s"])
    if unit:  # seconds or microseconds
        ts = b"%d" % (START_MS + round(event.at * MIN))
        return event.message().value.replace(ts, ts[:-3] if unit == b"s" else ts + unit)
    return luck.choice([MALFORMED[0], MALFORMED[2]])


def _ahead(luck: Random) -> Iterator[Sent]:
    """Impressions of clocks that are two days ahead, of users of two partitions; and a few clicks."""
    shown = {"pclick": 0.5, "model": "ads", "model_version": "v1"}
    for number in range(14):
        at = AHEAD_ALONE + number / 1e6
        yield Sent(at + TWO_DAYS, at, False, "user-0", {**shown, "impression_id": f"ahead-{number}"})
    for number in range(round(2.25 * RATE)):
        at = luck.uniform(*AHEAD_TOGETHER)
        user = f"user-{10 * (number % 60) + 1}"
        yield Sent(at + TWO_DAYS, at, False, user, {**shown, "impression_id": f"believed-{number}"})
    for at in (20.0, 40.0, 175.0):
        yield Sent(at + TWO_DAYS, at, True, "user-0", {"impression_id": f"clicked-{at}"})


def _paused(click: Sent) -> bool:
    """Whether no click arrives then, or it would have been under way for all of the long pause."""
    if NO_CLICKS[0] <= click.arrives < NO_CLICKS[1] or click.arrives >= LAST_CLICK:
        return True
    begin, end = NO_CLICKS_OF_FEW
    return _group(click.user) == FEW and click.arrives >= begin and click.at < end


def live(shared: bool) -> Iterator[tuple[Sequence[Message], float]]:
    """In small steps; while all clicks pause, a topic of their own is found idle."""
    slow = 0 if shared else 3  # steps to come
    for start in range(0, len(stream()), PIECE):
        piece = stream()[start : start + PIECE]
        waits = slow > 0 and not any(message.click for message in piece)
        slow -= waits
        yield piece, IDLE_S / 2 if waits else 0.02


STRANGE = World(stream, SETTINGS, partition_of, live, interval_s=0.5)

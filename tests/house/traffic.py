"""An hour of traffic with everything in it that can be wrong with traffic, the same bytes on every machine.

Two logs, impressions and clicks, in order of arrival. Only `random.Random.random` is drawn from, whose numbers Python
promises never to change, and nothing depends on the order of a set: the record in `golden/` holds for these bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

START_MS = 1_759_999_200_000  # 2025-10-09 08:40 UTC: a full hour begins within the stream
HOUR_S = 3_600.0
WINDOW_S, HORIZON_S = 120.0, 360.0  # attribution window and correction horizon of `settings.toml`
PARTITIONS = 4  # of the embedded broker, fixed
# shares of the stream
DEPLOY, FEED = 0.33, 0.16  # v2 begins; the second model begins
PAUSE = (0.55, 0.67)  # nobody comes; in an hour for longer than the correction horizon: time leaps
ASTRAY = (0.72, 0.745)  # most clicks are for impressions that nobody has heard of
NO_CLICKS = (0.8, 0.845)  # impressions, and no click of them

USERS = (
    [f"user-{n}" for n in range(240)]
    + ["żółw/ogród", "пользователь-1", "用户🙂", "~0123456789abcdef", " padded ", "a:b", "__other__", "x" * 300]
)  # fmt: skip
HEAVY = ("bot-1", "crawler/Ω")  # an eighth of all traffic
COUNTRIES = ("de", "us", "fr", "São Tomé", "__other__", "__missing__", "")
PLACEMENTS = tuple(f"slot {n}" for n in range(12))


@dataclass(frozen=True, slots=True)
class Message:
    """One event on its way."""

    click: bool
    partition: int
    key: bytes
    value: bytes


@dataclass(slots=True)
class _Person:
    name: str
    taste: float  # log-odds


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def sigmoid(x: float) -> float:
    return round(1 / (1 + math.exp(-x)), 9)  # rounded: the last bit of exp is the machine's


class _Luck:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random

    def share(self, probability: float) -> bool:
        return self._random() < probability

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self._random()

    def one(self, of: tuple[T, ...] | list[T]) -> T:
        return of[int(self._random() * len(of))]

    def below(self, n: int) -> int:
        return int(self._random() * n)

    def spread(self) -> float:
        """About normal."""
        return sum(self._random() for _ in range(12)) - 6.0


def partition_of(user: str) -> int:
    return sum(user.encode()) % PARTITIONS


def encoded(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


@cache
def stream(length_s: float = HOUR_S, rate: float = 3.4, seed: int = 14) -> tuple[Message, ...]:
    """In order of arrival; its last events say that all others are final."""
    return tuple(message for *_, message in sorted(_Hour(length_s, rate, seed).arriving(), key=lambda one: one[:2]))


def digest(messages: Iterable[Message]) -> str:
    """What a record says it was made of."""
    sha = hashlib.sha256()
    for m in messages:
        sha.update(b"%d %d %d %d\n" % (m.click, m.partition, len(m.key), len(m.value)) + m.key + m.value)
    return sha.hexdigest()


class _Hour:
    def __init__(self, length_s: float, rate: float, seed: int) -> None:
        self._length, self._rate = length_s, rate
        self._luck = _Luck(seed)
        self._people = [_Person(name, 0.7 * self._luck.spread()) for name in USERS]
        self._bots = [_Person(name, -1.0) for name in HEAVY]
        self._numbers = 0
        self._out: list[tuple[float, int, Message]] = []

    def arriving(self) -> list[tuple[float, int, Message]]:
        at = 0.0
        while at < self._length:
            if not self._within(PAUSE, at):
                self._request(at)
            at += self._luck.between(0.0, 2 * 2.5 / self._rate)
        self._wrong_clocks()
        self._bad_events()
        self._end()
        return self._out

    def _send(self, arrives: float, click: bool, user: str, value: bytes) -> None:
        self._numbers += 1
        self._out.append((arrives, self._numbers, Message(click, partition_of(user), user.encode(), value)))

    def _within(self, shares: tuple[float, float], at: float) -> bool:
        return shares[0] * self._length <= at < shares[1] * self._length

    # -- what people do --------------------------------------------------------------------------------------------

    def _request(self, at: float) -> None:
        luck = self._luck
        person = (
            luck.one(self._bots)
            if luck.share(0.125)
            else self._people[int(len(self._people) * luck.between(0, 1) ** 2)]
        )
        feed = at >= FEED * self._length and luck.share(0.2)
        served = (
            "größe/ü 1" if feed else "v2" if at >= DEPLOY * self._length and sum(person.name.encode()) % 5 < 3 else "v1"
        )
        request = f"req-{luck.below(1 << 40)}" if luck.share(0.8) else None
        country = COUNTRIES[sum(person.name.encode()) % len(COUNTRIES)]
        for position in range(1 + luck.below(4)):
            late = luck.between(100.0, 700.0) if luck.share(0.02) else 0.0
            scroll = position * luck.between(0.5, 20.0)  # a request's impressions trickle in
            self._impression(at + scroll, late, person, feed, served, request, country, position)

    def _impression(
        self,
        at: float,
        late: float,
        person: _Person,
        feed: bool,
        served: str,
        request: str | None,
        country: str,
        position: int,
    ) -> None:
        luck = self._luck
        item = luck.below(60)
        appeal = -1.2 + person.taste + 0.5 * math.sin(item) - 0.25 * position
        clicked = luck.share(sigmoid(appeal))
        scores = {
            "v1": sigmoid(appeal + 0.3 * luck.spread()),
            "v2": sigmoid(appeal + 0.8 + 1.6 * luck.spread()),  # noisy, and too sure of itself
            "v3-shadow": round(sigmoid(appeal), 1),  # ties, 0 and 1
        }
        number = len(self._out)
        identity = f"imp-{number}" if number % 7 else f"показ {number}/✓"
        ts = START_MS + int(1000 * at)
        fields: dict[str, Any] = {
            "impression_id": identity,
            "ts": ts if number % 11 else _iso(ts),
            "user_id": person.name,
            "model": "feed" if feed else "ctr",
            "model_version": served,
            "pclick": sigmoid(appeal - 0.2) if feed else scores[served],
        }
        if not feed:
            others = {k: v for k, v in scores.items() if k != served and (k != "v2" or at >= DEPLOY * self._length)}
            fields["predictions"] = others
        if request is not None:
            fields["request_id"] = request
        if luck.share(0.9):
            fields |= {"item_id": f"item {item}", "position": position}
        if luck.share(0.5):
            fields["propensity"] = (0.05, 0.25, 1.0)[position % 3]
        if luck.share(0.95):
            fields["slices"] = {"country": country, "placement": luck.one(PLACEMENTS), "unasked": "x"}
        if luck.share(0.97):
            fields["features"] = {
                "item": f"item {item}", "country": country, "age": round(person.taste, 3), "top": position == 0,
                "tags": [f"t{item % 5}", f"t{item % 3}"], "bias": 1,
            }  # fmt: skip
        inline = luck.share(0.01)
        if inline:
            fields["clicked"] = clicked
        arrives = at + late + luck.between(0.0, 8.0)
        self._send(arrives, False, person.name, encoded(fields))
        if luck.share(0.02):
            self._send(arrives + luck.between(0.0, 400.0), False, person.name, encoded(fields))
        if luck.share(0.004):  # another version's impression under the same id
            self._send(arrives + 1.0, False, person.name, encoded({**fields, "model_version": "v0", "pclick": 0.5}))
        if clicked and not inline and not self._within(NO_CLICKS, at):
            self._click(at, arrives, person, identity)

    def _click(self, at: float, shown: float, person: _Person, identity: str) -> None:
        luck = self._luck
        happens = at + luck.between(0.5, 60.0)
        if luck.share(0.05):
            happens = at + WINDOW_S + luck.between(0.0, 200.0)  # later than the attribution window
        if self._within(ASTRAY, at) and luck.share(0.8):
            identity = f"astray-{identity}"
        fields: dict[str, Any] = {
            "impression_id": identity,
            "ts": START_MS + int(1000 * happens),
            "user_id": person.name,
        }
        if luck.share(0.6):
            fields["value"] = round(luck.between(0.0, 90.0), 2)
        arrives = happens + luck.between(0.0, 8.0)
        if luck.share(0.1):
            # corrections, and some beyond the horizon
            arrives = happens + luck.one((30.0, 160.0, 250.0, HORIZON_S + 500.0))
        elif luck.share(0.05):
            arrives = shown - luck.between(0.0, 20.0)  # before its impression
        self._send(arrives, True, person.name, encoded(fields))
        if luck.share(0.05):
            again = {**fields, "value": round(luck.between(0.0, 90.0), 2), "ts": fields["ts"] + luck.below(9) * 1000}
            self._send(arrives + luck.between(0.0, 200.0), True, person.name, encoded(again))
        if luck.share(0.015):
            orphan = {**fields, "impression_id": f"never-{identity}"}
            self._send(arrives, True, person.name, encoded(orphan))

    # -- what machines do ------------------------------------------------------------------------------------------

    def _wrong_clocks(self) -> None:
        """Single events far ahead and far behind; and once a handful that agree, and are wrong all the same."""
        for number, (share, off_s) in enumerate(
            ((0.1, 1e6), (0.3, 2e6), (0.5, 7_200.0), (0.7, -5_000.0), (0.85, -90_000.0))
        ):
            at = share * self._length
            ts = START_MS + int(1000 * (at + off_s))
            for copy in range(3):
                user = USERS[(17 * number + copy) % len(USERS)]
                fields = {"impression_id": f"clock-{number}-{copy}", "ts": ts + copy, "user_id": user, "model": "ctr"}
                self._send(at + copy, False, user, encoded({**fields, "model_version": "v1", "pclick": 0.25}))
                self._send(at + copy, True, user, encoded({"impression_id": f"clock-{number}-{copy}", "ts": ts + copy}))

    def _bad_events(self) -> None:
        """Of every reason for a dead letter, in both logs."""
        good = {"impression_id": "bad", "ts": START_MS + 1000, "user_id": "u", "pclick": 0.5}
        impressions = [
            b"", b'{"impression_id": "cut off", "ts": 17', b"\xff\xfe\x00not text", b"[" * 2000, b"17", b"null",
            *(encoded({k: v for k, v in good.items() if k != name}) for name in good),
            *(encoded({**good, name: None}) for name in good),
            *(encoded({**good, **wrong}) for wrong in (
                {"pclick": 1.5}, {"pclick": True}, {"pclick": "0.5"}, {"ts": -5}, {"ts": "yesterday"}, {"ts": 17.5},
                {"ts": 1_760_000_400}, {"ts": 99_999_999_999_999}, {"user_id": 7}, {"position": -1}, {"position": "top"},
                {"propensity": 0}, {"propensity": 2.0}, {"predictions": {"v2": 2}}, {"predictions": [1]}, {"slices": ["de"]},
                {"slices": {"country": {}}}, {"features": {"x": None}}, {"features": {"x": {}}}, {"clicked": 2}, {"model": 3},
                {"impression_id": ""}, {"impression_id": 3}, {"request_id": []},
            )),
            b'{"impression_id":"x","ts":1760000400000,"user_id":"u","pclick":NaN}',
            encoded({**good, "note": "x" * 70_000}),
            b"[" + encoded({**good, "impression_id": "of an array"}) + b"," + encoded({**good, "pclick": 7}) + b"]",
        ]  # fmt: skip
        clicks = [
            b"", b"{", b'"text"', encoded({"ts": START_MS}), encoded({"impression_id": "imp-1"}),
            encoded({"impression_id": "imp-1", "ts": "soon"}), encoded({"impression_id": "imp-1", "ts": START_MS, "value": "much"}),
            encoded({"impression_id": "imp-1", "ts": START_MS, "value": -1.0}), encoded({"impression_id": 1, "ts": START_MS}),
        ]  # fmt: skip
        for of_clicks, kinds in ((False, impressions), (True, clicks)):
            for number, value in enumerate(kinds):
                user = USERS[number % len(USERS)]
                at = self._length * (0.05 + 0.9 * number / len(kinds))
                for copy in range(1 + number % 3):
                    self._send(at + copy, of_clicks, user, value)

    def _end(self) -> None:
        """One event of every log and partition, so much later that the labels of all others are complete."""
        at = max(arrives for arrives, *_ in self._out) + 1.0
        ts = START_MS + int(1000 * (self._length + WINDOW_S + 120.0))
        for partition in range(PARTITIONS):
            user = next(u for u in USERS if partition_of(u) == partition)
            for number in range(3):
                of = f"end-{partition}-{number}"
                shown = {"impression_id": of, "ts": ts + number, "user_id": user, "model": "ctr", "model_version": "v2"}
                self._send(at + number, False, user, encoded({**shown, "pclick": 0.5}))
                self._send(
                    at + number, True, user, encoded({"impression_id": of, "ts": ts + number + 1, "user_id": user})
                )


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ms % 1000:03}Z"

"""Turns, kept answers and the budget of processor time, by a clock that the test moves."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from streameval.results.publish import Publisher
from streameval.server import create_app
from streameval.server.http import turns
from streameval.server.http.problems import Problem
from streameval.server.http.turns import DEBT, MAX_WAITING, PATIENCE, SAVED, SHARES, SPARE, InTurn, Turns, kind_of
from streameval.settings.server import Server


class Time:
    """Wall clock, processor time, and what is to be called later."""

    def __init__(self) -> None:
        self.now = self.cpu = 0.0
        self._calls: list[tuple[float, Callable[[], None]]] = []

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self._calls.append((self.now + seconds, call))

    async def advance(self, seconds: float) -> None:
        await settle()
        end = self.now + seconds
        while due := [one for one in self._calls if one[0] <= end]:
            one = min(due, key=lambda one: one[0])
            self._calls.remove(one)
            self.now = max(self.now, one[0])
            one[1]()
            await settle()
        self.now = end
        await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class App:
    """Answers with a number that rises, once it is let; knows how many it works on at a time."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.cost = 0.0
        self.asked = 0
        self.now = self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        answer = str(self.asked).encode()
        self.now += 1
        self.most = max(self.most, self.now)
        await self.gate.wait()
        self.time.cpu += self.cost
        self.now -= 1
        await send({"type": "http.response.start", "status": scope.get("status", 200), "headers": []})
        await send({"type": "http.response.body", "body": answer})


class World:
    def __init__(self, build: Any, paced: bool = True, **ready: bool) -> None:
        self.build, self.ready = build, ready
        self.publisher = Publisher(build.snapshot(number=1, ready=ready))
        self.time = Time()
        self.app = App(self.time)
        self.turns = Turns(
            self.publisher, paced=paced, clock=lambda: self.time.now, cpu=lambda: self.time.cpu, later=self.time.later
        )
        self.door = InTurn(self.app, self.turns)
        self.turns.charge("live")  # from here on

    def publish(self) -> None:
        number = self.publisher.latest().number + 1
        self.publisher.publish(self.build.snapshot(number=number, ready=self.ready))

    def ask(self, url: str, method: str = "GET", **more: Any) -> asyncio.Task[tuple[int, bytes, dict[str, str]]]:
        path, _, query = url.partition("?")
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "headers": [(k.encode(), v.encode()) for k, v in more.pop("headers", {}).items()], **more,
        }  # fmt: skip

        async def answered() -> tuple[int, bytes, dict[str, str]]:
            sent: list[Any] = []

            async def send(message: Any) -> None:
                sent.append(message)

            await self.door(scope, None, send)
            headers = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
            return sent[0]["status"], b"".join(m.get("body", b"") for m in sent[1:]), headers

        return asyncio.create_task(answered())


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


def test_every_route_has_a_kind() -> None:
    kinds = {
        "/livez": "health", "/readyz": "health", "/metrics": "metrics", "/api/v1/results": "live",
        "/api/v1/results?from=2024-05-01T00:00:00Z": "past", "/api/v1/series": "past", "/api/v1/roc?to=1": "past",
        "/api/v1/users": "users", "/api/v1/users/u": "users", "/api/v1/user-distribution": "users", "/": "live",
    }  # fmt: skip
    for url, kind in kinds.items():
        path, _, query = url.partition("?")
        assert kind_of(path, query.encode()) == kind
    assert set(kinds.values()) == set(SHARES) - {"door"}


def test_the_same_question_about_the_same_snapshot_is_answered_once_with_the_same_bytes(build) -> None:
    async def story() -> None:
        world = World(build)
        first = await world.ask("/api/v1/results?model=m")
        assert await world.ask("/api/v1/results?model=m") == first
        assert (await world.ask("/api/v1/results?model=other"))[1] != first[1]
        assert (await world.ask("/api/v1/results?model=m", headers={"authorization": "Bearer x"}))[1] != first[1]
        assert (await world.ask("/api/v1/results?model=m", headers={"if-none-match": "*"}))[1] != first[1]
        assert world.app.asked == 4
        world.publish()
        assert (await world.ask("/api/v1/results?model=m"))[1] == b"5"
        await world.ask("/api/v1/deploys", method="POST")
        assert (await world.ask("/api/v1/results?model=m"))[1] == b"7"  # a write may have changed it

    run(story())


def test_what_goes_on_between_snapshots_and_failures_are_not_kept(build) -> None:
    async def story() -> None:
        world = World(build)
        for url, more in (("/api/v1/dead-letters", {}), ("/", {}), ("/api/v1/results", {"status": 404})):
            assert (await world.ask(url, **more))[1] != (await world.ask(url, **more))[1]

    run(story())


def test_an_answer_that_a_newer_snapshot_overtook_is_not_kept_for_it(build) -> None:
    async def story() -> None:
        world = World(build)
        world.app.gate.clear()
        slow = world.ask("/api/v1/results")
        await settle()
        world.publish()
        world.app.gate.set()
        assert (await slow)[1] == b"1"
        assert (await world.ask("/api/v1/results"))[1] == b"2"

    run(story())


def test_one_question_of_a_kind_is_worked_on_at_a_time_and_each_kind_has_its_own_turn(build) -> None:
    async def story() -> None:
        world = World(build)
        world.app.gate.clear()
        asked = [world.ask(f"/api/v1/results?limit={i}") for i in range(10)]
        await settle()
        assert world.app.now == 1
        others = [world.ask(url) for url in ("/livez", "/metrics", "/api/v1/users", "/api/v1/series")]
        await settle()
        assert world.app.now == 5
        world.app.gate.set()
        answers = await asyncio.gather(*asked, *others)
        assert [status for status, _, _ in answers] == [200] * 14
        assert [body for _, body, _ in answers[:10]] == sorted((b for _, b, _ in answers[:10]), key=int)  # by arrival
        assert world.app.most == 5

    run(story())


def test_forty_who_ask_the_same_at_once_cost_one_answer(build) -> None:
    async def story() -> None:
        world = World(build)
        world.app.gate.clear()
        asked = [world.ask("/api/v1/roc") for _ in range(40)]
        await settle()
        world.app.gate.set()
        assert {(await one)[1] for one in asked} == {b"1"}
        assert world.app.asked == 1

    run(story())


def test_a_question_that_waits_too_long_or_behind_too_many_is_told_when_to_come_back(build) -> None:
    async def story() -> None:
        world = World(build)
        world.app.gate.clear()
        asked = [world.ask(f"/api/v1/results?limit={i}") for i in range(MAX_WAITING + 3)]
        await settle()
        assert sum(one.done() for one in asked) == 2  # one is worked on, MAX_WAITING wait
        await world.time.advance(PATIENCE + 0.1)
        assert sum(one.done() for one in asked) == MAX_WAITING + 2
        status, body, headers = await asked[-1]
        assert status == 503
        assert headers["content-type"] == "application/problem+json"
        assert int(headers["retry-after"]) >= 1
        assert b"processor time" in body
        world.app.gate.set()
        assert (await asked[0])[0] == 200
        assert (await world.ask("/api/v1/results?limit=999"))[0] == 200

    run(story())


@pytest.mark.parametrize(("ready", "times"), [({"caught_up": False}, 1), ({}, 1), ({"caught_up": True}, SPARE)])
def test_a_kind_gets_its_share_of_the_processor_and_no_more(build, ready: dict[str, bool], times: int) -> None:
    async def story() -> None:
        world = World(build, **ready)
        world.app.cost = 0.1
        done = [0]

        async def reader(number: int) -> None:
            for i in range(10_000):
                status, _, _ = await world.ask(f"/api/v1/results?limit={number}-{i}")
                done[0] += status == 200

        readers = [asyncio.create_task(reader(number)) for number in range(8)]
        for _ in range(400):
            await world.time.advance(0.25)
        for one in readers:
            one.cancel()
        budget = SAVED + 100 * SHARES["live"] * times
        assert budget - 2 * 0.1 <= world.time.cpu <= budget + 2 * 0.1
        assert done[0] == pytest.approx(world.time.cpu / 0.1, abs=1)

    run(story())


def test_others_are_not_held_up_by_a_kind_that_owes(build) -> None:
    async def story() -> None:
        world = World(build)
        world.app.cost = 30.0
        await world.ask("/api/v1/results?from=1")
        assert world.turns.level("past") == -DEBT
        world.app.cost = 0.01
        for url in ("/livez", "/readyz", "/metrics", "/api/v1/results", "/api/v1/users"):
            assert (await world.ask(url))[0] == 200
        late = world.ask("/api/v1/results?from=2")
        await settle()
        assert not late.done()
        await world.time.advance(PATIENCE + 0.1)
        status, _, headers = await late
        assert status == 503
        retry = int(headers["retry-after"])
        assert retry == pytest.approx(DEBT / SHARES["past"] - PATIENCE, abs=1)
        await world.time.advance(retry)
        assert (await world.ask("/api/v1/results?from=2"))[0] == 200

    run(story())


def test_health_and_metrics_are_never_refused(build) -> None:
    async def story() -> None:
        world = World(build)
        world.app.cost = 0.01
        asked = [world.ask(url, headers={"accept": str(i)}) for i in range(200) for url in ("/readyz", "/metrics")]
        await world.time.advance(300.0)
        assert {(await one)[0] for one in asked} == {200}

    run(story())


def test_who_is_refused_at_the_door_has_a_budget_too(build) -> None:
    async def story() -> None:
        world = World(build)
        seen = []

        async def send(message: Any) -> None:
            world.time.cpu += 0.05  # each answer has two messages
            seen.append(message)

        async def knock() -> None:
            scope = {"type": "http", "method": "GET", "path": "/api/v1/users", "query_string": b"", "headers": []}
            while True:
                await world.turns.refuse(scope, None, send, Problem(401, "a token is needed"))

        knocking = [asyncio.create_task(knock()) for _ in range(8)]
        for _ in range(400):
            await world.time.advance(0.25)
        for one in knocking:
            one.cancel()
        # 503 costs too, and comes at most once in PATIENCE to each of the eight
        assert world.time.cpu <= SAVED + 100 * SHARES["door"] + 0.1 * 8 * (1 + 100 / PATIENCE) + 0.8
        assert {m["status"] for m in seen if "status" in m} == {401, 503}
        assert (await world.ask("/api/v1/results"))[0] == 200

    run(story())


def test_a_kept_answer_waits_too_when_its_kind_owes(build) -> None:
    async def story() -> None:
        world = World(build)
        world.app.cost = SAVED + 0.05
        first = await world.ask("/api/v1/status")
        again = world.ask("/api/v1/status")
        await settle()
        assert not again.done()
        await world.time.advance(0.05 / SHARES["live"] + 0.01)
        assert await again == first
        assert world.app.asked == 1

    run(story())


def test_a_reader_who_leaves_while_waiting_takes_no_turn_along(build) -> None:
    async def story() -> None:
        world = World(build)
        world.app.gate.clear()
        first, second, third = (world.ask(f"/api/v1/results?limit={i}") for i in range(3))
        await settle()
        second.cancel()
        await settle()
        world.app.gate.set()
        assert (await first)[0] == (await third)[0] == 200
        assert (await world.ask("/api/v1/results"))[0] == 200

    run(story())


@pytest.mark.parametrize("path", ["/api/v1/stream", "/api/v1/stream\n"])
def test_a_stream_of_events_keeps_no_turn_and_is_not_collected(build, path: str) -> None:
    async def story() -> None:
        world = World(build)
        goes_on, sent = asyncio.Event(), []

        async def stream(scope: Any, receive: Any, send: Any) -> None:
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            )
            await send({"type": "http.response.body", "body": b"data: 1", "more_body": True})
            await goes_on.wait()

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}
        task = asyncio.create_task(InTurn(stream, world.turns)(scope, None, send))
        await settle()
        assert [m.get("body") for m in sent] == [None, b"data: 1"]
        assert (await world.ask("/api/v1/results"))[0] == 200
        goes_on.set()
        await task
        assert (await world.ask("/api/v1/results?limit=1"))[0] == 200

    run(story())


def test_a_crash_gives_the_turn_back(build) -> None:
    async def story() -> None:
        world = World(build)

        async def crash(*_: Any) -> None:
            raise RuntimeError

        door = InTurn(crash, world.turns)
        world.door, good = door, world.door
        with pytest.raises(RuntimeError):
            await world.ask("/api/v1/results")
        world.door = good
        assert (await world.ask("/api/v1/results"))[0] == 200

    run(story())


def test_what_a_thread_of_the_pool_works_is_charged_to_the_kind_of_its_question(build, client_of, monkeypatch) -> None:
    made: list[Turns] = []
    charged: list[tuple[str, int]] = []

    class Watched(Turns):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)

        def _pay(self, kind: str, seconds: float) -> None:
            charged.append((kind, threading.get_ident()))
            super()._pay(kind, seconds)

        def measured(self, call: Any) -> Any:
            inner = super().measured(call)

            @functools.wraps(call)
            def noted(*args: Any, **kwargs: Any) -> Any:
                try:
                    return inner(*args, **kwargs)
                finally:
                    charged.append((self._spent[-1][0], threading.get_ident()))

            return noted

    monkeypatch.setattr("streameval.server.http.app.Turns", Watched)
    client = client_of(create_app(Publisher(build.snapshot()), Server(), version="1", paced=True))
    for url, kind in {
        "/api/v1/results": "live",
        "/api/v1/users?model=default&version=v1": "users",
        "/metrics": "metrics",
    }.items():
        charged.clear()
        assert client.get(url).status_code == 200
        here = threading.get_ident()
        assert kind in {k for k, thread in charged if thread != here}, url  # worked on by another thread
        assert made[0]._paced
        assert kind in {k for k, thread in charged if thread == here}, url  # and paid for by the server's
    assert turns.SHARES.keys() == made[0]._lines.keys()

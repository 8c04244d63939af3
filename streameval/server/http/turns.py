"""What queries may cost the ingest: turns, cached answers, and a budget of processor time.

Readers and the ingest loop share the interpreter, so every millisecond that goes into answers is missing from the loop
as soon as it has no time to spare. Queries are of five kinds, each with its own queue, and a sixth queue is for those
that access or the limits refuse:

- one query of a kind is processed at a time; others wait, at most `PATIENCE` seconds, and then get a 503;
- an answer is kept until the next snapshot: the same query gets the same bytes, at almost no cost;
- a kind that has used up its share of the processor waits until it has it again. While the monitor is behind, the
  shares come to 20% of one processor; once it has caught up there is time to spare, and they are `SPARE` times that.

Health and metrics have shares of their own that nobody else can use up, and are never refused.
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streameval.results.publish import Publisher
from streameval.server.http.access import HEALTH
from streameval.server.http.problems import Problem, problem_response

# kind -> share of one processor while the monitor is behind
SHARES = {"health": 0.03, "metrics": 0.03, "live": 0.05, "users": 0.02, "past": 0.05, "door": 0.02}
SPARE = 5  # times that, while it has caught up
SAVED = 0.5  # seconds of processor time that a kind can have saved up: a single query is never delayed
DEBT = 1.0  # seconds that it can owe: the rest of an expensive query is not charged to those after it
PATIENCE = 2.0  # seconds that a query waits for its turn
MAX_WAITING = 64  # queries of a kind
KEPT_BYTES = 64_000_000  # of answers, all together
_NEVER_REFUSED = ("health", "metrics")
_GOES_ON = "/api/v1/dead-letters"  # changes between two snapshots

_P = ParamSpec("_P")
_T = TypeVar("_T")
_KIND: ContextVar[str] = ContextVar("kind of the request that is being processed", default="live")
Later = Callable[[float, Callable[[], None]], object]


def kind_of(path: str, query: bytes) -> str:
    """The queue of a query."""
    if path in HEALTH:
        return "health"
    if path == "/metrics":
        return "metrics"
    if path.startswith("/api/v1/user"):
        return "users"
    if path == "/api/v1/series" or b"from=" in query or b"to=" in query:
        return "past"
    return "live"


@dataclass(slots=True)
class Queue:
    """The queries of one kind: one has its turn, the others wait in order of arrival."""

    kind: str
    level: float = SAVED  # seconds of processor time that may be used; below 0: owed
    at: float | None = None  # when the level was that
    busy: bool = False
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    woken: bool = False  # another check is scheduled


class Turns:
    """The lines, and the answers kept of the latest snapshot. Lines are used by the server's thread alone."""

    def __init__(
        self,
        publisher: Publisher,
        *,
        paced: bool,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
        later: Later | None = None,
    ) -> None:
        """`paced` False: no budget. `clock`, `cpu` (of the calling thread) and `later` read and spend time."""
        self._publisher = publisher
        self._paced = paced
        self._clock = clock
        self._cpu = cpu
        self._later: Later = later or (lambda seconds, call: asyncio.get_running_loop().call_later(seconds, call))
        self._lines = {kind: Queue(kind) for kind in SHARES}
        self._marked: float | None = None  # processor time of the server's thread charged so far
        self._spent: deque[tuple[str, float]] = deque()  # by other threads, not yet charged
        self._kept: OrderedDict[tuple[object, ...], list[Message]] = OrderedDict()
        self._kept_of = -1
        self._kept_bytes = 0

    # -- turns ---------------------------------------------------------------------------------------------------

    async def take(self, kind: str) -> None:
        """Waits for a turn of this kind, to be given back by `done`. Raises Problem (503) when it takes too long."""
        line = self._lines[kind]
        self._wake(line)
        if not line.busy and not line.waiting and self.level(kind) > 0:
            line.busy = True
            return
        refusable = kind not in _NEVER_REFUSED
        if refusable and sum(not one.done() for one in line.waiting) >= MAX_WAITING:
            raise self._refusal(line)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.waiting.append(mine)
        if refusable:
            self._later(PATIENCE, lambda: None if mine.done() else mine.set_exception(self._refusal(line)))
        self._wake(line)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # its turn had come
                self.done(kind)
            raise

    def done(self, kind: str) -> None:
        """The turn is over; the next one has it."""
        line = self._lines[kind]
        line.busy = False
        self._wake(line)

    async def refuse(self, scope: Scope, receive: Receive, send: Send, problem: Problem) -> None:
        """Answers with a problem, in turn: refused requests must not cost more than others."""
        self.charge("door")
        try:
            await self.take("door")
        except Problem as too_many:
            await problem_response(Request(scope), too_many)(scope, receive, send)
        else:
            self.done("door")
            await problem_response(Request(scope), problem)(scope, receive, send)
        self.charge("door")

    def _wake(self, line: Queue) -> None:
        while line.waiting and line.waiting[0].done():  # refused, or gone
            line.waiting.popleft()
        if line.busy or line.woken or not line.waiting:
            return
        level = self.level(line.kind)
        if level <= 0:
            line.woken = True
            self._later(max(-level / self._share(line.kind), 0.001), functools.partial(self._look_again, line))
            return
        line.busy = True
        line.waiting.popleft().set_result(None)

    def _look_again(self, line: Queue) -> None:
        line.woken = False
        self._wake(line)

    def _refusal(self, line: Queue) -> Problem:
        wait = max(1, math.ceil(max(0.0, -self.level(line.kind)) / self._share(line.kind))) if self._paced else 1
        return Problem(
            503,
            "too many requests of this kind are queued, and they must not take processor time from ingest; send fewer or smaller requests, or try again later",
            headers={"Retry-After": str(wait)},
        )

    # -- processor time ------------------------------------------------------------------------------------------

    def level(self, kind: str) -> float:
        """Seconds of processor time that a kind may use now."""
        if not self._paced:
            return math.inf
        line, now = self._lines[kind], self._clock()
        if line.at is not None:
            line.level = min(SAVED, line.level + (now - line.at) * self._share(kind))
        line.at = now
        return line.level

    def charge(self, kind: str) -> None:
        """What the server's thread has used since the last charge, and other threads for any kind."""
        spent = self._cpu()
        before, self._marked = self._marked, spent
        if before is not None:
            self._pay(kind, spent - before)
        while self._spent:
            self._pay(*self._spent.popleft())

    def measured(self, call: Callable[_P, _T]) -> Callable[_P, _T]:
        """A call that runs in another thread, charged to the query that is being answered."""

        @functools.wraps(call)
        def measured(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            begin = self._cpu()
            try:
                return call(*args, **kwargs)
            finally:
                self._spent.append((_KIND.get(), self._cpu() - begin))

        return measured

    def _pay(self, kind: str, seconds: float) -> None:
        self.level(kind)
        line = self._lines[kind]
        line.level = max(-DEBT, line.level - seconds)

    def _share(self, kind: str) -> float:
        spare = self._publisher.latest().ready.get("caught_up", False)
        return SHARES[kind] * (SPARE if spare else 1)

    # -- answers that are kept -----------------------------------------------------------------------------------

    def kept(self, question: tuple[object, ...]) -> list[Message] | None:
        """The answer to this query from the latest snapshot."""
        if self._kept_of != self.number:
            self.forget()
        return self._kept.get(question)

    def keep(self, question: tuple[object, ...], number: int, messages: list[Message]) -> None:
        """Keeps an answer; `number`: of the latest snapshot when it was asked for."""
        size = sum(len(message.get("body", b"")) for message in messages)
        if not messages or messages[0]["status"] not in (200, 304) or number != self._kept_of or size > KEPT_BYTES // 4:
            return
        self._kept[question] = messages
        self._kept_bytes += size
        while self._kept_bytes > KEPT_BYTES or len(self._kept) > 1000:
            _, old = self._kept.popitem(last=False)
            self._kept_bytes -= sum(len(message.get("body", b"")) for message in old)

    @property
    def number(self) -> int:
        """Of the latest snapshot."""
        return self._publisher.latest().number

    def forget(self) -> None:
        """Drops all answers."""
        self._kept.clear()
        self._kept_bytes = 0
        self._kept_of = self.number


class InTurn:
    """ASGI middleware: every query takes its turn, unless its answer is kept."""

    def __init__(self, app: ASGIApp, turns: Turns) -> None:
        self._app = app
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An answer is complete before any of it is sent: slow readers do not hold a turn."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        turns, kind = self._turns, kind_of(scope["path"], scope["query_string"])
        question = _question(scope)
        turns.charge(kind)
        messages = turns.kept(question) if question is not None and turns.level(kind) > 0 else None
        if messages is None:
            try:
                await turns.take(kind)
            except Problem as problem:
                await problem_response(Request(scope), problem)(scope, receive, send)
                turns.charge(kind)
                return
            messages = await self._in_turn(scope, receive, send, kind, question)
        for message in messages:
            await send({**message, "headers": list(message["headers"])} if "headers" in message else message)
        turns.charge(kind)

    async def _in_turn(
        self, scope: Scope, receive: Receive, send: Send, kind: str, question: tuple[object, ...] | None
    ) -> list[Message]:
        """The answer, to be sent; a stream of events gives its turn back as soon as it begins."""
        turns, number = self._turns, self._turns.number
        messages: list[Message] = []
        streaming = False

        async def collect(message: Message) -> None:
            nonlocal streaming
            if message["type"] == "http.response.start" and _is_stream(message):
                streaming = True
                self._end(kind)
            if streaming:
                await send(message)
            else:
                messages.append(message)

        token = _KIND.set(kind)
        try:
            kept = turns.kept(question) if question is not None else None
            if kept is not None:  # somebody asked the same while this one waited
                return kept
            await self._app(scope, receive, collect)
        finally:
            _KIND.reset(token)
            if not streaming:
                self._end(kind)
        if scope["method"] not in ("GET", "HEAD"):
            turns.forget()
        elif question is not None:
            turns.keep(question, number, messages)
        return messages

    def _end(self, kind: str) -> None:
        self._turns.charge(kind)
        self._turns.done(kind)


def _is_stream(start: Message) -> bool:
    # by what it is, not by its path: routers take "/api/v1/stream%0a" for it too
    return any(k == b"content-type" and v.startswith(b"text/event-stream") for k, v in start["headers"])


def _question(scope: Scope) -> tuple[object, ...] | None:
    """What an answer depends on, beside the snapshot; None for what is not kept."""
    path = scope["path"]
    if scope["method"] not in ("GET", "HEAD") or path == _GOES_ON:
        return None
    if path != "/metrics" and not path.startswith("/api/v1/"):
        return None
    headers = tuple((k, v) for k, v in scope["headers"] if k in (b"accept", b"authorization", b"if-none-match"))
    return scope["method"], scope.get("raw_path") or path, scope["query_string"], headers

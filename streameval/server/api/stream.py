"""Live snapshots as server-sent events.

A client gets the newest overview at once, then one whenever there is a newer one; a slow client misses those in
between. Every overview is encoded once, however many clients read it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Header
from fastapi.sse import EventSourceResponse, ServerSentEvent

from streameval.results.publish import Publisher
from streameval.results.snapshot import Snapshot
from streameval.server.api.answers import encode, stamped
from streameval.server.api.overview import overview
from streameval.server.http.problems import Problem, problem_responses

MAX_CLIENTS = 64  # each costs one connection and about an overview per second; a proxy can fan out to more
RETRY_MS = 2000


class Streams:
    """The open streams: counts them, feeds them, and ends them all when the server stops."""

    def __init__(self, publisher: Publisher, max_clients: int = MAX_CLIENTS) -> None:
        self._publisher = publisher
        self._max_clients = max_clients
        self._closed = False
        self._wakers: set[Callable[[], None]] = set()
        self._encoded: tuple[Snapshot, str] | None = None
        self.clients = 0

    async def place(self) -> AsyncIterator[None]:
        """A FastAPI dependency that holds a place for as long as the response lasts; 503 when all are taken."""
        if self.clients >= self._max_clients or self._closed:
            detail = f"all {self._max_clients} streams are in use; close one, or read /api/v1/results instead"
            raise Problem(503, "the server is stopping" if self._closed else detail, headers={"Retry-After": "10"})
        self.clients += 1
        try:
            yield
        finally:
            self.clients -= 1

    async def events(self, last_seen: int | None) -> AsyncIterator[ServerSentEvent]:
        """An event per snapshot from now on, but not for the one that the client has seen last."""
        loop, wake = asyncio.get_running_loop(), asyncio.Event()

        def waker() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has closed: there is nothing to wake
                loop.call_soon_threadsafe(wake.set)

        unsubscribe = self._publisher.subscribe(waker)
        self._wakers.add(waker)
        try:
            while not self._closed:
                snapshot = self._publisher.latest()
                if snapshot.number != last_seen:
                    last_seen = snapshot.number
                    yield self._event(snapshot)
                await wake.wait()
                wake.clear()
        finally:
            self._wakers.discard(waker)
            unsubscribe()

    def close(self) -> None:
        """Ends every stream and takes no new one. May be called from any thread, and twice."""
        self._closed = True
        for waker in tuple(self._wakers):
            waker()

    def _event(self, snapshot: Snapshot) -> ServerSentEvent:
        if self._encoded is None or self._encoded[0] is not snapshot:
            self._encoded = (snapshot, encode(stamped(snapshot, overview(snapshot))).decode())
        return ServerSentEvent(raw_data=self._encoded[1], event="snapshot", id=str(snapshot.number), retry=RETRY_MS)


def router(streams: Streams) -> APIRouter:
    """/api/v1/stream."""
    routes = APIRouter(prefix="/api/v1", tags=["stream"])
    place: Callable[[], AsyncIterator[None] | Awaitable[None]] = streams.place

    @routes.get(
        "/stream",
        response_class=EventSourceResponse,
        dependencies=[Depends(place)],
        responses=problem_responses(422, 503),
    )
    async def get_stream(
        last_event_id: Annotated[str | None, Header(max_length=64)] = None,
    ) -> AsyncIterator[ServerSentEvent]:
        """Server-sent events: `event: snapshot`, `id` the snapshot's number, `data` the Overview as JSON."""
        seen = int(last_event_id) if last_event_id and re.fullmatch(r"[0-9]{1,18}", last_event_id) else None
        async for event in streams.events(seen):
            yield event

    return routes

"""Connections: how many, and how long one may stay silent or not read its answer.

uvicorn itself bounds none of this before a request is complete. Rejections from here never reach the app, so they bring
the security headers themselves.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import sys
import weakref
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from streameval.server.http.access import HEALTH
from streameval.server.http.limits import MAX_ADDRESS, MAX_HEADERS
from streameval.server.http.problems import MEDIA_TYPE, Problem, problem_json, problem_response
from streameval.server.http.security import SecurityHeaders

MAX_CONNECTIONS = 256  # that are served: readers, scrapers, proxies and at most 64 streams
# beyond those, for probes: other requests are refused with 503; further ones are closed at once: files and sockets are scarce
MAX_SPARE = 64
_OTHER_FILES = 100  # of those that a process may open: for brokers, the store and modules; a monitor has about 50 open
_LEAST = 8  # connections, however few files it may open
MAX_HEAD = MAX_ADDRESS + MAX_HEADERS + 1024  # bytes of a request that is not complete; the rest is its first line's
WATCH_SECONDS = 1.0  # between two checks of a connection
# how long a connection may stay the same; none for "answering": that is up to us, and a stream lasts
STATE_SECONDS = {
    "idle": 30.0,  # between requests, or before the first
    "asking": 10.0,  # a request has begun and is not complete
    "reading": 30.0,  # an answer waits in our memory for the client to take it
    "closing": 5.0,
}
SPARE_SECONDS = 2.0  # the same of a spare connection, so that silent ones do not keep probes out


class Listener(socket.socket):
    """A listening socket that hangs up at once while too many of its connections are open.

    Without a file left, the process ends: so there are fewer where `ulimit -n` is low.
    """

    most = MAX_CONNECTIONS + MAX_SPARE

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.room = sys.maxsize if files == resource.RLIM_INFINITY else max(_LEAST, files - _OTHER_FILES)
        self._accepted: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection. Raises ConnectionAbortedError, which asyncio passes over, for one too many."""
        connection, address = super().accept()
        if sum(known.fileno() != -1 for known in self._accepted) >= min(self.most, self.room):
            connection.close()
            raise ConnectionAbortedError
        self._accepted.add(connection)
        return connection, address


class Connection(H11Protocol):
    """uvicorn's HTTP connection, watched."""

    headers_of_all: Mapping[str, str] = {}  # the security headers; see `connection_class`

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Begins to watch."""
        super().connection_made(transport)
        self._spare = len(self.connections) > MAX_CONNECTIONS
        if self._spare:
            self.app = _Full(self.app, self.headers_of_all)
        self._seen: tuple[str, object] = ("", None)
        self._since = 0.0
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the watch."""
        self._watcher.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """A problem instead of uvicorn's plain text. Called where the parser's error is handled."""
        status = getattr(sys.exc_info()[1], "error_status_hint", 400)
        if status == 431:
            msg = f"first line and headers are longer than {MAX_HEAD} bytes; shorten them"
        self._refuse(status, msg)

    def _watch(self) -> None:
        now = self.loop.time()
        seen = (self._state(), self.cycle)
        if seen != self._seen:
            self._seen, self._since = seen, now
        elif now - self._since > (patience := self._patience(seen[0])):
            if seen[0] == "asking":
                self._refuse(408, f"the request was not complete within {patience:g} s; send it faster")
            else:
                self.transport.abort()
        self._watcher = self.loop.call_later(WATCH_SECONDS, self._watch)

    def _patience(self, state: str) -> float:
        patience = STATE_SECONDS.get(state, float("inf"))
        return min(patience, SPARE_SECONDS) if self._spare and state in STATE_SECONDS else patience

    def _state(self) -> str:
        if self.transport.is_closing():
            return "closing"
        if self.flow.write_paused:
            return "reading"
        if self.cycle is not None and not self.cycle.response_complete:
            return "answering"
        return "asking" if self.conn.trailing_data[0] else "idle"

    def _refuse(self, status: int, detail: str) -> None:
        """Answers by hand and hangs up; in the middle of an answer it only hangs up."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = json.dumps(problem_json(Problem(status, detail), "")).encode()
            fields = {
                **self.headers_of_all,
                "Content-Type": MEDIA_TYPE,
                "Content-Length": str(len(body)),
                "Cache-Control": "no-store",
                "Connection": "close",
            }
            head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{k}: {v}" for k, v in fields.items()), "", ""]
            self.transport.write("\r\n".join(head).encode("latin-1") + body)
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()


def connection_class(headers: Mapping[str, str]) -> type[Connection]:
    """For uvicorn, which makes connections itself: a class whose refusals carry these headers."""
    return type("Connection", (Connection,), {"headers_of_all": dict(headers)})


class _Full:
    """The app for a spare connection: it answers probes only, or a crowd of readers would have the process restarted."""

    def __init__(self, app: ASGIApp, headers: Mapping[str, str]) -> None:
        self._app = app
        self._refused = SecurityHeaders(_refuse, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._app if scope["path"] in HEALTH else self._refused)(scope, receive, send)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    detail = f"{MAX_CONNECTIONS} connections are already open; close some, or try again later"
    problem = Problem(503, detail, headers={"Retry-After": "5", "Connection": "close"})
    await problem_response(Request(scope), problem)(scope, receive, send)

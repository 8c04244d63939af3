"""The address of the HTTP side, open from a process's first moment, and an answer to those who call before it is loaded.

Importing the program takes a second or two. Meanwhile nobody is refused: `/livez` is alive, everything else is a 503 that says
why, and a browser's page reloads itself. Then the server takes over the socket, with those who wait in its queue.

So nothing is imported here that is not there already when the settings have been read.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import math
import selectors
import socket
import threading
import time
from contextlib import suppress
from types import TracebackType

_BACKLOG = 128
_MOST = 64  # callers at once; further ones wait
_HEAD = 8192  # bytes of a request; the path is at its beginning
_LAST_WORDS = 0.1  # seconds in which those who have been let in may still ask
_SHOWN = 200  # characters of the path that the answer repeats

_WHY = "the monitor is starting: its program is being loaded, which takes a second or two"
_RELOAD = "setTimeout(() => location.reload(), 1000)"  # `meta refresh` stays where it is at an address with a fragment
_PAGE = f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>streameval is starting</title>
<p>{_WHY[0].upper()}{_WHY[1:]}. This page reloads by itself.</p>
<script>{_RELOAD}</script>
"""
_RELOAD_HASH = base64.b64encode(hashlib.sha256(_RELOAD.encode()).digest()).decode()
_POLICY = f"default-src 'none'; script-src 'sha256-{_RELOAD_HASH}'; frame-ancestors 'none'"
_ALIVE = json.dumps({"status": "alive", "checks": {}})
_PROBLEM = {"type": "about:blank", "title": "Service Unavailable", "status": 503, "detail": _WHY}


class ServeError(RuntimeError):
    """The server cannot start; the message names the address and the fix."""


class Opening:
    """A listening socket, and a thread that answers its callers until `take`. A context manager, which closes it."""

    def __init__(self, host: str, port: int, *, answers: bool = True) -> None:
        """Port 0 takes a free one. `answers` False: callers wait for the server, as with TLS. Raises ServeError."""
        self._listener: socket.socket | None = _listen(host, port)
        self.port = int(self._listener.getsockname()[1])
        self._end, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._answer, args=(self._listener,), name="opening", daemon=True)
        if answers:
            self._thread.start()

    def __enter__(self) -> Opening:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the socket, unless it has been taken."""
        if self._listener is not None:
            self.take().close()

    def take(self) -> socket.socket:
        """The listening socket, which is the caller's from now on: once."""
        taken, self._listener = self._listener, None
        assert taken is not None
        self._wake.close()
        if self._thread.ident is not None:
            self._thread.join()
        self._end.close()
        return taken

    def _answer(self, listener: socket.socket) -> None:
        asked: dict[socket.socket, bytes] = {}  # by caller, oldest first: what of its request has come
        with selectors.DefaultSelector() as ready:
            for one in (listener, self._end):
                ready.register(one, selectors.EVENT_READ)
            until = math.inf
            while time.monotonic() < until and (asked or until == math.inf):
                for key, _ in ready.select(None if until == math.inf else _LAST_WORDS):
                    if key.fileobj is self._end:  # who comes now waits for the server
                        until = time.monotonic() + _LAST_WORDS
                        ready.unregister(self._end)
                        ready.unregister(listener)
                    elif key.fileobj in asked:
                        _hear(key.fileobj, ready, asked)
                    elif until == math.inf:
                        _let_in(listener, ready, asked)
            for caller in list(asked):
                _hang_up(caller, ready, asked)


def _let_in(listener: socket.socket, ready: selectors.BaseSelector, asked: dict[socket.socket, bytes]) -> None:
    try:
        caller, _ = listener.accept()
    except OSError:  # it has hung up, or there are no more files
        return
    caller.setblocking(False)
    if len(asked) == _MOST:
        _hang_up(next(iter(asked)), ready, asked)
    asked[caller] = b""
    ready.register(caller, selectors.EVENT_READ)


def _hear(caller: socket.socket, ready: selectors.BaseSelector, asked: dict[socket.socket, bytes]) -> None:
    try:
        heard = caller.recv(_HEAD)
    except OSError:
        heard = b""
    asked[caller] += heard
    whole = b"\r\n\r\n" in asked[caller] or len(asked[caller]) >= _HEAD
    if whole:
        with suppress(OSError):
            caller.send(_response(asked[caller]))
    if whole or not heard:
        _hang_up(caller, ready, asked)


def _hang_up(caller: socket.socket, ready: selectors.BaseSelector, asked: dict[socket.socket, bytes]) -> None:
    del asked[caller]
    ready.unregister(caller)
    caller.close()


def _response(request: bytes) -> bytes:
    method, _, rest = request.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    status, media, body = "503 Service Unavailable", "application/problem+json", ""
    if path == b"/livez":
        status, media, body = "200 OK", "application/json", _ALIVE
    elif path == b"/":
        media, body = "text/html; charset=utf-8", _PAGE
    else:
        body = json.dumps({**_PROBLEM, "instance": path[:_SHOWN].decode("ascii", "backslashreplace")})
    content = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {len(content)}\r\nRetry-After: 1\r\n"
        f"Cache-Control: no-store\r\nContent-Security-Policy: {_POLICY}\r\n"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == b"HEAD" else content)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise ServeError(
            f'server.host = "{host}": cannot be resolved ({error}); use an address such as "127.0.0.1"'
        ) from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ServeError(_explain(host, port, error)) from None
    listener.setblocking(False)
    return listener


def _explain(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"server.port = {port}: already in use on {host}; stop the other program, or choose another port "
            "(0 picks a free one)"
        )
    if error.errno == errno.EACCES:
        return f"server.port = {port}: not permitted on {host}; choose a port from 1024 on (0 picks a free one)"
    if error.errno == errno.EADDRNOTAVAIL:
        return f'server.host = "{host}": not an address of this machine; use "127.0.0.1", or "0.0.0.0" for all'
    return f"server.host = {host!r}, server.port = {port}: cannot listen: {error}"

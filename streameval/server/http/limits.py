"""What a request may cost: sizes of its address, its headers and its body. Each limit has its own problem.

A body is read here, whole, before the app sees the request: so no route, present or future, can read an endless one,
or wait for a slow one. `connections` holds the limits that come before a request.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streameval.server.http.problems import Problem, Refuse

MAX_ADDRESS = 16_384  # bytes of path and query: a user id of 1,024 characters of four bytes, each escaped, fits
MAX_HEADERS = 16_384  # bytes of all headers together: more than browsers and proxies send
MAX_BODY = 65_536  # bytes; what is written here are a few names and numbers
BODY_SECONDS = 10.0  # for a whole body


class Limits:
    """ASGI middleware: 414, 431, 413 and 408 for what is too long or too slow."""

    def __init__(self, app: ASGIApp, refuse: Refuse) -> None:
        self._app = app
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on with its body, if it has one, already read."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            _check_head(scope)
            if "content-length" in request.headers or "transfer-encoding" in request.headers:
                receive = _read_already(await _body(request, receive), receive)
        except Problem as problem:
            await self._refuse(scope, receive, send, problem)
            return
        await self._app(scope, receive, send)


def _check_head(scope: Scope) -> None:
    address = len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"])
    if address > MAX_ADDRESS:
        raise Problem(414, f"path and query have {address} bytes; at most {MAX_ADDRESS} are read")
    headers = sum(len(name) + len(value) for name, value in scope["headers"])
    if headers > MAX_HEADERS:
        raise Problem(431, f"the headers have {headers} bytes; at most {MAX_HEADERS} are read")


async def _body(request: Request, receive: Receive) -> bytes:
    announced = request.headers.get("content-length", "0")
    if not announced.isascii() or not announced.isdigit():
        raise Problem(400, "Content-Length: must be a number of bytes")
    too_large = Problem(413, f"the body is too long; at most {MAX_BODY} bytes are read")
    if int(announced[:20]) > MAX_BODY:
        raise too_large
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            more = True
            while more:
                message = await receive()
                if message["type"] != "http.request":  # the client has left
                    break
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > MAX_BODY:
                    raise too_large
    except TimeoutError:
        raise Problem(408, f"the body did not arrive within {BODY_SECONDS:g} s; send it faster") from None
    return body


def _read_already(body: bytes, receive: Receive) -> Receive:
    """The body once, then whatever else comes (that the client has left)."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def read() -> Message:
        return messages.pop() if messages else await receive()

    return read

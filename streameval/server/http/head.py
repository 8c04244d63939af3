"""HEAD wherever GET is: RFC 9110 wants the same status and headers, and no body."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """ASGI middleware: answers HEAD as GET would be answered, without the body. The outermost, so errors are alike too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything else on as it is."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        endless = asyncio.Event()

        async def without_body(message: Message) -> None:
            if message["type"] != "http.response.start":
                return
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            if "content-length" not in Headers(scope=message):
                endless.set()

        get = asyncio.create_task(self._run({**scope, "method": "GET"}, receive, without_body))
        ended = asyncio.create_task(endless.wait())
        try:
            await asyncio.wait((get, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:  # a stream has no end, and what comes of it is not sent
            ended.cancel()
            if not get.done():
                get.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await get

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

"""Who may ask, and what browsers may do with the answers."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streameval.config import ConfigError
from streameval.server.problems import Problem

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_bearer = HTTPBearer(auto_error=False, scheme_name="token", description="the content of server.token_file")


def read_token(token_file: str) -> str | None:
    """The token in the file; None when no file is configured. Raises ConfigError when there is no usable token."""
    if not token_file:
        return None
    try:
        token = Path(token_file).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise ConfigError(f'server.token_file = "{token_file}": no such file; write a token into it') from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f'server.token_file = "{token_file}": cannot be read: {error}') from None
    if not token:
        raise ConfigError(f'server.token_file = "{token_file}": is empty; write a token into it')
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f'server.token_file = "{token_file}": must hold one token of printable ASCII, without spaces')
    return token


def token_guard(token: str | None) -> Callable[..., Awaitable[None]]:
    """A dependency that lets a request through only with the token; with no token configured, always."""

    async def guard(given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> None:
        if token is None:
            return
        if given is not None and hmac.compare_digest(given.credentials.encode(), token.encode()):
            return
        challenge = 'Bearer realm="streameval"' + ("" if given is None else ', error="invalid_token"')
        detail = "the token is wrong" if given is not None else "a token is needed"
        raise Problem(
            401,
            f'{detail}; send "Authorization: Bearer <token>" with the content of server.token_file',
            headers={"WWW-Authenticate": challenge},
        )

    return guard


class SecurityHeaders:
    """ASGI middleware: the headers above on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything on, adding headers to the start of each response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers)

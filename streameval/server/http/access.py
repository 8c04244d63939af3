"""Access: which requests need the bearer token, decided in one place for every route, before any routing.

Whatever is not a plain read needs the token; so does a single user; with `server.token_scope = "all"` so does
everything but the health routes. A path that fits no rule exactly is rejected: a trick can only turn an
open answer into a 401.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from streameval.server.http.problems import Problem, Refuse
from streameval.settings.server import Server
from streameval.settings.tree import ConfigError

TOKEN_VARIABLE = "STREAMEVAL_TOKEN"  # noqa: S105  (its name, not its value)
HEALTH = frozenset({"/livez", "/readyz", "/healthz"})  # a prober has no token
_READS = frozenset({"GET", "HEAD", "OPTIONS"})  # methods are case-sensitive: "get" is not among them
_USERS = "/api/v1/users"
_HOW = f"server.token_file or the environment variable {TOKEN_VARIABLE}"


def read_token(token_file: str, environ: Mapping[str, str]) -> str | None:
    """The token from the file or from the environment; None when neither is given.

    Raises ConfigError when both are given, or when what is given holds no usable token.
    """
    given = environ.get(TOKEN_VARIABLE)
    if not token_file:
        return None if given is None else _usable(given, TOKEN_VARIABLE, "set it to a token, or unset it")
    name = f'server.token_file = "{token_file}"'
    if given is not None:
        raise ConfigError(f"{name}: {TOKEN_VARIABLE} is set too; keep one of them")
    try:
        text = Path(token_file).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{name}: no such file; write a token into it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: cannot be read: {error}") from None
    return _usable(text, name, "write a token into it")


def _usable(text: str, name: str, fix: str) -> str:
    token = text.strip()
    if not token:
        raise ConfigError(f"{name}: is empty; {fix}")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{name}: must hold one token of printable ASCII, without spaces")
    return token


def exposure(settings: Server, token: str | None) -> str | None:
    """What is open to the network under these settings, for the log; None when nothing is missing."""
    if _is_loopback(settings.host):
        return None
    missing = []
    if token is None:
        missing.append(f"no token is set, so anyone who can reach it can read everything (set {_HOW})")
    if not settings.tls_certificate:
        missing.append("no TLS, so traffic can be read in transit (set server.tls_certificate and server.tls_key)")
    if not missing:
        return None
    return f'server.host = "{settings.host}" is not loopback: ' + "; ".join(missing)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Access:
    """Decides which requests are allowed. Keeps only a digest of the token.

    Raises ConfigError when every route should need a token and there is none.
    """

    def __init__(self, token: str | None, scope: Literal["private", "all"]) -> None:
        if scope == "all" and token is None:
            raise ConfigError(f'server.token_scope = "all": there is no token; set {_HOW}')
        self._digest = None if token is None else _digest(token.encode())
        self._everything = scope == "all"

    def needs_token(self, method: str, path: str) -> bool:
        """Whether a request needs the token; `path` with its percent-escapes decoded."""
        if method not in _READS:
            return True
        if path in HEALTH:
            return False
        return self._everything or path == _USERS or path.startswith(_USERS + "/")

    def may_see_users(self, authorization: list[str]) -> bool:
        """Whether a request with these Authorization headers could ask for single users."""
        try:
            self.check_users(authorization)
        except Problem:
            return False
        return True

    def check_users(self, authorization: list[str]) -> None:
        """Raises Problem unless a request with these Authorization headers could ask for single users."""
        self.check("GET", _USERS, authorization)

    def check(self, method: str, path: str, authorization: list[str]) -> None:
        """Raises Problem unless a request with these Authorization headers may continue."""
        if not self.needs_token(method, path):
            return
        if self._digest is None:
            if method not in _READS:
                raise Problem(403, f"{method}: writing needs a token, and this server has none; set {_HOW}")
            return
        if len(authorization) == 1:
            scheme, _, credentials = authorization[0].partition(" ")
            # digests, for then the comparison's time does not even depend on the token's length
            given = _digest(credentials.strip().encode("latin-1"))
            if scheme.lower() == "bearer" and hmac.compare_digest(given, self._digest):
                return
        challenge = 'Bearer realm="streameval"' + (', error="invalid_token"' if authorization else "")
        detail = "the token is wrong" if authorization else "a token is needed"
        raise Problem(
            401,
            f'{detail}; send "Authorization: Bearer <token>" once, with the token of {_HOW}',
            headers={"WWW-Authenticate": challenge},
        )


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


class AccessMiddleware:
    """ASGI middleware: lets a request in, or answers 401 or 403. Only HTTP comes here: WebSockets are switched off."""

    def __init__(self, app: ASGIApp, access: Access, refuse: Refuse) -> None:
        self._app = app
        self._access = access
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses before anything of the request is looked at."""
        if scope["type"] == "http":
            request = Request(scope)
            try:
                self._access.check(scope["method"], scope["path"], request.headers.getlist("authorization"))
            except Problem as problem:
                await self._refuse(scope, receive, send, problem)
                return
        await self._app(scope, receive, send)

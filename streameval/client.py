"""A client of a running monitor's HTTP API, for the commands: what they ask, and what can go wrong, in plain words."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

MAX_ANSWER = 32_000_000  # bytes that are read
PATIENCE = 10.0  # seconds for one answer
_LATER = frozenset({404, 408, 425, 429})  # refusals that time may cure: a model is unknown until its first impression


class MonitorError(RuntimeError):
    """The monitor cannot be reached, refuses, or is none. `passing`: the same question may be answered later."""

    def __init__(self, message: str, *, passing: bool) -> None:
        super().__init__(message)
        self.passing = passing


class Monitor:
    """A monitor at an address such as http://127.0.0.1:8080. Raises MonitorError when the address cannot be one."""

    def __init__(self, url: str, token: str | None = None, patience: float = PATIENCE) -> None:
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable or parts.query or parts.fragment:
            raise MonitorError(f'"{url}": must be an address such as "http://127.0.0.1:8080"', passing=False)
        if parts.username is not None:
            raise MonitorError("the address must not hold a password; give the token as a file", passing=False)
        self._url = url.rstrip("/")
        self._token = token
        self._patience = patience
        # a redirect would take the token along to wherever it leads
        self._opener = urllib.request.build_opener(_NoRedirects)

    def announce(self, model: str, version: str, at: str | None, note: str, link: str) -> dict[str, Any]:
        """Announces a deploy: the record."""
        body: dict[str, Any] = {"model": model, "version": version, "note": note, "link": link}
        if at is not None:
            body["at"] = at
        answer = self._ask("POST", "/api/v1/deploys", body)
        return _member(answer, "deploy", dict)

    def verdict(self, model: str, candidate: str) -> dict[str, Any]:
        """The verdict on the newest deploy of a version."""
        path = f"/api/v1/models/{quote(model, safe='', errors='replace')}/verdict?{_query(candidate=candidate)}"
        answer = self._ask("GET", path)
        for name in ("worse", "not_worse", "reliable"):
            _member(answer, name, bool)
        _member(answer, "words", str)
        return answer

    def comparisons(self, model: str | None, candidate: str | None) -> list[dict[str, Any]]:
        """The comparisons of a model and version (None: of all), newest first."""
        path = f"/api/v1/comparisons?{_query(model=model, candidate=candidate)}"
        found = _member(self._ask("GET", path), "comparisons", list)
        return [c for c in found if isinstance(c, dict)]

    def only_model(self) -> str:
        """The one model that serves. Raises MonitorError when there are several, or none yet."""
        series = _member(self._ask("GET", "/api/v1/status"), "series", list)
        names = sorted({str(s.get("model")) for s in series if isinstance(s, dict) and s.get("source") == "logged"})
        if not names:
            raise MonitorError("there is no model yet; one appears with its first impression", passing=True)
        if len(names) > 1:
            raise MonitorError(f"there are several models; say which with --model: {', '.join(names)}", passing=False)
        return names[0]

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Accept": "application/json", "User-Agent": "streameval"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        data = None if body is None else json.dumps(body).encode()
        where = self._url + path
        request = urllib.request.Request(where, data, headers, method=method)  # noqa: S310  (http or https, see above)
        try:
            with self._opener.open(request, timeout=self._patience) as answer:
                text = answer.read(MAX_ANSWER + 1)
        except urllib.error.HTTPError as error:
            raise _refusal(error, self._url) from None
        except urllib.error.URLError as error:
            raise MonitorError(f"{self._url}: cannot be reached: {error.reason}", passing=True) from None
        except (OSError, http.client.HTTPException, UnicodeError) as error:  # the last: of a name that no host has
            said = str(error) or type(error).__name__
            raise MonitorError(f"{self._url}: cannot be reached: {said}", passing=True) from None
        return _read(text, self._url)


def _query(**parameters: str | None) -> str:
    return urlencode({name: value for name, value in parameters.items() if value}, errors="replace")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **options: Any) -> None:
        """None: the redirect becomes an error."""


def read_token(path: Path | None, environ: Mapping[str, str]) -> str | None:
    """The token of a file, else of STREAMEVAL_TOKEN. Raises MonitorError when it cannot be one."""
    if path is None:
        text, name = environ.get("STREAMEVAL_TOKEN"), "STREAMEVAL_TOKEN"
    else:
        name = str(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MonitorError(f"{name}: cannot be read: {error}", passing=False) from None
    if text is None:
        return None
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise MonitorError(f"{name}: must hold one token of printable ASCII, without spaces", passing=False)
    return token


def _refusal(error: urllib.error.HTTPError, url: str) -> MonitorError:
    with error:
        try:
            said = _read(error.read(MAX_ANSWER + 1), url).get("detail")
        except (MonitorError, OSError, http.client.HTTPException):
            said = None
    if 300 <= error.code < 400:
        said = "it redirects, which is not followed; give the address where the monitor is"
    passing = error.code in _LATER or error.code >= 500
    return MonitorError(f"{url}: {error.code} {said or error.reason}", passing=passing)


def _read(text: bytes, url: str) -> dict[str, Any]:
    try:
        body = json.loads(text) if len(text) <= MAX_ANSWER else None
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise MonitorError(f"{url}: does not answer as a monitor does; is it streameval's address?", passing=True)
    return body


def _member(answer: Mapping[str, Any], name: str, kind: type) -> Any:
    if not isinstance(answer.get(name), kind):
        raise MonitorError(f'the answer has no usable "{name}"; is the monitor of another version?', passing=True)
    return answer[name]

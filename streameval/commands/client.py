"""A client for a running monitor's HTTP API, for the commands, with readable errors."""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

_MAX_ANSWER = 32_000_000  # bytes of a response that are read
_PATIENCE = 10.0  # seconds for one answer
_LATER = frozenset({404, 408, 425, 429})  # may pass: a model is unknown until its first impression


class MonitorError(RuntimeError):
    """The monitor is unreachable, refuses the request, or is not a monitor. `passing`: a retry may succeed."""

    def __init__(self, message: str, *, passing: bool) -> None:
        super().__init__(message)
        self.passing = passing


class MonitorClient:
    """A monitor at an address such as http://127.0.0.1:8080. Raises MonitorError for an invalid address."""

    def __init__(self, url: str, token: str | None = None, patience: float = _PATIENCE) -> None:
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable or parts.query or parts.fragment:
            raise MonitorError(f'"{url}": must be an address such as "http://127.0.0.1:8080"', passing=False)
        if parts.username is not None:
            raise MonitorError("the address must not contain a password; pass the token in a file", passing=False)
        self._url = url.rstrip("/")
        self._token = token
        self._patience = patience
        self.date: float | None = None  # time of the last answer, by the monitor's clock
        # a redirect would send the token to wherever it leads
        self._opener = urllib.request.build_opener(_NoRedirects)

    def announce(
        self, model: str, version: str, at: str | None, note: str, link: str
    ) -> tuple[dict[str, Any], str | None]:
        """Announces a deploy: the record, and the monitor's warning if it has one."""
        body: dict[str, Any] = {"model": model, "version": version, "note": note, "link": link}
        if at is not None:
            body["at"] = at
        answer = self._ask("POST", "/api/v1/deploys", body)
        warning = answer.get("warning")  # a monitor of an older version has none
        return _member(answer, "deploy", dict), warning if isinstance(warning, str) else None

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

    def status(self) -> dict[str, Any]:
        """The state of the monitor, and the time: `now`, seconds since the epoch by its own clock."""
        answer = self._ask("GET", "/api/v1/status")
        for name, kind in (("series", list), ("join", dict), ("ready", dict), ("partitions", list), ("events", dict)):
            _member(answer, name, kind)
        return {**answer, "now": self.date or time.time()}

    def awaited(self) -> str:
        """What counting waits for at this moment, in words; empty: nothing known (nor by monitors of an older version)."""
        try:
            return str(self._ask("GET", "/livez").get("awaited", ""))
        except MonitorError:  # a proxy may pass on the API alone
            return ""

    def results(self, window: str) -> list[dict[str, Any]]:
        """The results of every version over a window, of all its traffic."""
        found = _member(self._ask("GET", f"/api/v1/results?{_query(window=window, slice='none')}"), "results", list)
        return [r for r in found if isinstance(r, dict)]

    def versions(self, model: str) -> list[str]:
        """The versions of a model that have been seen, in their natural order."""
        series = _member(self._ask("GET", "/api/v1/status"), "series", list)
        found = {str(s.get("version")) for s in series if isinstance(s, dict) and s.get("model") == model}
        return sorted(found, key=natural)

    def only_model(self) -> str:
        """The one model that serves. Raises MonitorError when there are several, or none yet."""
        series = _member(self._ask("GET", "/api/v1/status"), "series", list)
        names = sorted({str(s.get("model")) for s in series if isinstance(s, dict) and s.get("source") == "logged"})
        if not names:
            raise MonitorError("there is no model yet; one appears with its first impression", passing=True)
        if len(names) > 1:
            raise MonitorError(f"there are several models; choose one with --model: {', '.join(names)}", passing=False)
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
                text = answer.read(_MAX_ANSWER + 1)
                self.date = _date(answer.headers.get("Date"))
        except urllib.error.HTTPError as error:
            raise _refusal(error, self._url) from None
        except urllib.error.URLError as error:
            raise MonitorError(f"{self._url}: cannot be reached: {error.reason}", passing=True) from None
        except (OSError, http.client.HTTPException, UnicodeError) as error:  # the last: of a name that no host has
            said = str(error) or type(error).__name__
            raise MonitorError(f"{self._url}: cannot be reached: {said}", passing=True) from None
        return _read(text, self._url)


def natural(name: str) -> list[tuple[int, str]]:
    """A key by which v2 comes before v10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def _date(text: str | None) -> float | None:
    try:
        return None if text is None else parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None


def _query(**parameters: str | None) -> str:
    return urlencode({name: value for name, value in parameters.items() if value}, errors="replace")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **options: Any) -> None:
        """None: the redirect becomes an error."""


def read_token(path: Path | None, environ: Mapping[str, str]) -> str | None:
    """The token from a file, else from STREAMEVAL_TOKEN. Raises MonitorError for an invalid one."""
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
            said = _read(error.read(_MAX_ANSWER + 1), url).get("detail")
        except (MonitorError, OSError, http.client.HTTPException):
            said = None
    if 300 <= error.code < 400:
        said = "redirects are not followed; use the monitor's own address"
    passing = error.code in _LATER or error.code >= 500
    return MonitorError(f"{url}: {error.code} {said or error.reason}", passing=passing)


def _read(text: bytes, url: str) -> dict[str, Any]:
    try:
        body = json.loads(text) if len(text) <= _MAX_ANSWER else None
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise MonitorError(f"{url}: does not respond like a streameval monitor; is the address right?", passing=True)
    return body


def _member(answer: Mapping[str, Any], name: str, kind: type) -> Any:
    if not isinstance(answer.get(name), kind):
        raise MonitorError(f'the answer has no usable "{name}"; is the monitor a different version?', passing=True)
    return answer[name]

"""How answers are written: JSON with an ETag per snapshot, and times as RFC 3339 in UTC."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
from fastapi import Request
from starlette.responses import Response

from streameval.events.batch import Series
from streameval.results.result import Result
from streameval.results.snapshot import Snapshot
from streameval.server.api.tables import TabularBody, as_csv
from streameval.server.http.problems import Problem

MAX_ANSWER = 32_000_000  # bytes; an answer waits in memory until its reader has taken it
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_MS = -62_135_596_800_000  # year 1
LAST_MS = 253_402_300_799_999  # the end of year 9999; a finished replay has its watermark beyond


def rfc3339(ms: int | None) -> str | None:
    """Milliseconds since the epoch as "2024-05-01T12:00:00.000Z"; None for None and for times without a date."""
    if ms is None or not FIRST_MS <= ms <= LAST_MS:
        return None
    return (_EPOCH + timedelta(milliseconds=int(ms))).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> int:
    """Milliseconds since the epoch of an RFC 3339 time or of unix seconds. Raises ValueError saying what is right."""
    right = 'must be an RFC 3339 time such as "2024-05-01T12:00:00Z" or unix seconds such as 1714564800'
    if re.fullmatch(r"-?\d{1,12}(\.\d{1,9})?", text):
        if re.fullmatch(r"(19|20)\d\d(\d{4})?", text):  # as unix seconds these would be older than any event
            raise ValueError(f"{right}; {text} reads like a year or a day, and would be a second of 1970")
        ms = round(float(text) * 1000)
    else:
        # a "+" of an offset that was not percent-encoded arrives as a space
        repaired = re.sub(r" (\d\d:\d\d)$", r"+\1", text)
        if not re.match(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d", repaired):
            raise ValueError(right)
        try:
            when = datetime.fromisoformat(repaired)
        except ValueError:
            raise ValueError(right) from None
        if when.tzinfo is None:
            raise ValueError('must say its offset, for example "2024-05-01T12:00:00Z"')
        ms = (when - _EPOCH) // timedelta(milliseconds=1)
    if not FIRST_MS <= ms <= LAST_MS:
        raise ValueError(right)
    return ms


def result_json(result: Result, *, buckets: bool = True) -> dict[str, Any]:
    """A result as in the report, with its times as RFC 3339; with `buckets` and the other tables, or without."""
    out = result.as_json()
    for name in ("window_start", "window_end", "newest_label"):
        out[name] = rfc3339(out[name])
    if not buckets:
        for name in ("buckets", "strata", "stratified"):
            out.pop(name, None)
    return out


def series_json(series: Series) -> dict[str, str | None]:
    """Who gave the scores, and by which objective's labels they are counted; null: by clicks."""
    return {
        "model": series.model,
        "version": series.version,
        "source": series.source,
        "objective": series.objective or None,
    }


def stamped(snapshot: Snapshot, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body with the snapshot it was read from."""
    return {"snapshot": snapshot.number, "as_of": rfc3339(round(snapshot.taken_at * 1000)), **body}


def counted(matched: int, limit: int) -> dict[str, Any]:
    """How many there are of what an answer lists, and whether it has fewer."""
    return {"matched": matched, "truncated": matched > limit}


def encode(body: object) -> bytes:
    """JSON in UTF-8; a number that is not finite becomes null, a NumPy scalar a number."""
    try:
        return msgspec.json.encode(body, enc_hook=_plain)
    except UnicodeEncodeError:  # a name with half a surrogate pair, which UTF-8 cannot carry
        return msgspec.json.encode(_repaired(body), enc_hook=_plain)


def answer(
    request: Request,
    snapshot: Snapshot,
    build: Callable[[], Mapping[str, Any]],
    *,
    private: bool = False,
    table: TabularBody | None = None,
) -> Response:
    """200 with `build()` stamped and an ETag, or 304 when the client has this snapshot's answer already.

    `table`: the rows of it that are sent, as CSV, in place of JSON.
    """
    etag = f'"{round(snapshot.started_at * 1000):x}-{snapshot.number}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache" if private else "no-cache"}
    if private:
        headers["Vary"] = "Authorization"
    if _matches(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    return _response(snapshot, build(), headers, table=table)


def answer_of_past(snapshot: Snapshot, body: Mapping[str, Any], table: TabularBody | None = None) -> Response:
    """200 with the body stamped; no ETag, because the history may change between two snapshots."""
    return _response(snapshot, body, {"Cache-Control": "no-cache"}, table=table)


def answer_in_private(snapshot: Snapshot, body: Mapping[str, Any], table: TabularBody | None = None) -> Response:
    """200 with the body stamped, not cached; no ETag, because it changes between two snapshots."""
    headers = {"Cache-Control": "private, no-store", "Vary": "Authorization"}
    return _response(snapshot, body, headers, table=table)


def answer_of_write(snapshot: Snapshot, body: Mapping[str, Any], status: int) -> Response:
    """What has been written, stamped."""
    return _response(snapshot, body, {"Cache-Control": "no-store"}, status)


def _response(
    snapshot: Snapshot,
    fields: Mapping[str, Any],
    headers: Mapping[str, str],
    status: int = 200,
    table: TabularBody | None = None,
) -> Response:
    body = encode(stamped(snapshot, fields)) if table is None else _text(as_csv(table(fields)))
    if len(body) > MAX_ANSWER:
        raise Problem(
            422,
            f"the answer would have {len(body)} bytes; at most {MAX_ANSWER} are sent: name a model, a version or a "
            "window, or lower the limit",
        )
    return Response(body, status, headers=headers, media_type="application/json" if table is None else "text/csv")


def _text(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")  # a name may have half a surrogate pair


def _matches(header: str | None, etag: str) -> bool:
    if header is None:
        return False
    given = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return "*" in given or etag in given


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def _repaired(body: object) -> object:
    if isinstance(body, str):
        return body.encode("utf-8", "backslashreplace").decode()
    if isinstance(body, Mapping):
        return {_repaired(key): _repaired(value) for key, value in body.items()}
    return [_repaired(item) for item in body] if isinstance(body, (list, tuple)) else body

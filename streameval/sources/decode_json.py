"""JSON messages and lines to raw columns: one typed msgspec decoder, reused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.sources import features as feature_columns
from streameval.sources.raw import Problem, RawEvents

_Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]
_MAX_INT = (1 << 63) - 1


class _Event(msgspec.Struct, gc=False):
    """Either event; what is required is checked on the columns."""

    type: str | None = None
    impression_id: str | None = None
    ts: int | str | None = None
    user_id: str | None = None
    model: str | None = None
    model_version: str | None = None
    pclick: _Probability | None = None
    predictions: dict[str, _Probability] | None = None
    request_id: str | None = None
    item_id: str | None = None
    position: Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)] | None = None
    propensity: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    slices: dict[str, Any] | None = None
    features: dict[str, Any] | None = None
    clicked: bool | int | None = None
    value: float | None = None


class _EventWithoutFeatures(_Event, gc=False):
    """When no model learns, features are only skipped over."""

    features: msgspec.Raw = msgspec.Raw()  # type: ignore[assignment]


_BLANK = _Event()
_decode_full = msgspec.json.Decoder(_Event).decode
_decode_skip = msgspec.json.Decoder(_EventWithoutFeatures).decode
_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


class JsonRows:
    """Decoded rows, with where each came from."""

    def __init__(self) -> None:
        self.events: list[_Event] = []
        self.message: list[int] = []  # number of the message that held the row
        self.element: dict[int, bytes] = {}  # rows out of an array: their own bytes
        self.problems: dict[int, Problem] = {}


def decode(values: Sequence[bytes | None], with_features: bool, max_message: int) -> JsonRows:
    """One row per object; a message that is an array gives one row per element."""
    rows = JsonRows()
    read = _decode_full if with_features else _decode_skip
    add, origin = rows.events.append, rows.message.append
    for number, value in enumerate(values):
        if value and len(value) <= max_message:
            try:
                event = read(value)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                head = value.lstrip(b" \t\r\n")
                if head[:1] == b"[":
                    _decode_elements(value, number, read, rows)
                    continue
                event = _BLANK
                rows.problems[len(rows.events)] = _problem(error) if head else _EMPTY
        else:
            event = _BLANK
            rows.problems[len(rows.events)] = _EMPTY if not value else (
                "too_large", "", f"{len(value)} bytes: longer than kafka.max_message = {max_message}"
            )  # fmt: skip
        add(event)
        origin(number)
    return rows


_EMPTY: Problem = ("empty", "", "no bytes; an event is a JSON object")


def _decode_elements(value: bytes, number: int, read: Any, rows: JsonRows) -> None:
    try:
        elements = _decode_array(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        rows.problems[len(rows.events)] = _problem(error)
        rows.events.append(_BLANK)
        rows.message.append(number)
        return
    for place, element in enumerate(elements):
        raw = bytes(element)
        row = len(rows.events)
        rows.element[row] = raw
        try:
            rows.events.append(read(raw))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            reason, field, message = _problem(error)
            rows.problems[row] = (reason, field, f"element {place} of the array: {message}")
            rows.events.append(_BLANK)
        rows.message.append(number)


def _problem(error: Exception) -> Problem:
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return "malformed", "", f"not JSON: {text[:200]}"
    found = re.search(r"`\$\.?([A-Za-z_]*)", text)
    field = found[1] if found else ""
    if re.search(r"Expected `(int|float)` (<|>|<=|>=) ?", text) or "out of range" in text:
        return "out_of_range", field, f"{field}: {text[:200]}"
    if not field:
        return "wrong_type", "", f"an event must be a JSON object: {text[:200]}"
    return "wrong_type", field, f"{field}: {text[:200]}"


def to_raw(rows: JsonRows, kinds: NDArray[np.int8], dimensions: Sequence[str], hashed: bool, dicts: bool) -> RawEvents:
    """Raw columns of decoded rows; `kinds` by row."""
    events, problems = rows.events, rows.problems
    n = len(events)
    nan = float("nan")

    def strings(values: list[str | None]) -> pa.Array:
        try:
            return pa.array(values, pa.string())
        except UnicodeEncodeError:  # a lone surrogate: legal JSON, but no text
            clean = [None if v is None else v.encode("utf-8", "replace").decode() for v in values]
            for row, (before, after) in enumerate(zip(values, clean, strict=True)):
                if before != after:
                    problems.setdefault(row, ("malformed", "", "a string holds a lone surrogate, which is not text"))
            return pa.array(clean, pa.string())

    ts, has_ts = _times([e.ts for e in events], problems)
    clicked = _labels([e.clicked for e in events], problems)
    prediction_row, version, prediction = _predictions(events)
    given: list[Any] = [e.features for e in events]
    has_features = np.fromiter((_is_given(f) for f in given), np.bool_, n)
    features = None
    if hashed or dicts:
        features, wrong = feature_columns.from_objects(given, dicts)
        for row, message in wrong.items():
            problems.setdefault(row, ("wrong_type", "features", message))
    return RawEvents(
        kind=kinds,
        type=strings([e.type for e in events]),
        impression_id=strings([e.impression_id for e in events]),
        user_id=strings([e.user_id for e in events]),
        request_id=strings([e.request_id for e in events]),
        item_id=strings([e.item_id for e in events]),
        model=strings([e.model for e in events]),
        model_version=strings([e.model_version for e in events]),
        ts=ts,
        has_ts=has_ts,
        pclick=np.array([nan if (p := e.pclick) is None else p for e in events], np.float64),
        clicked=clicked,
        position=np.array([-1 if (p := e.position) is None else p for e in events], np.int64),
        propensity=np.array([nan if (p := e.propensity) is None else p for e in events], np.float64),
        value=np.array([nan if (v := e.value) is None else v for e in events], np.float64),
        prediction_row=np.array(prediction_row, np.int64),
        prediction_version=pa.array(version, pa.string()),
        prediction=np.array(prediction, np.float64),
        slices=[strings(_slice([e.slices for e in events], name, problems)) for name in dimensions],
        has_features=has_features,
        features=features,
        problems=problems,
    )


def _is_given(features: Any) -> bool:
    return bytes(features) not in (b"", b"null") if isinstance(features, msgspec.Raw) else features is not None


def _times(values: list[int | str | None], problems: dict[int, Problem]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    try:
        return np.fromiter(values, np.int64, len(values)), np.ones(len(values), bool)
    except (TypeError, ValueError, OverflowError):
        pass
    out = np.zeros(len(values), np.int64)
    has = np.zeros(len(values), bool)
    for row, value in enumerate(values):
        if value is None:
            continue
        has[row] = True
        if isinstance(value, int):
            if abs(value) > _MAX_INT:
                problems.setdefault(row, ("out_of_range", "ts", f"ts = {value}: must be ms since the epoch"))
            else:
                out[row] = value
            continue
        ms = parse_time(value)
        if ms is None:
            problems.setdefault(row, ("wrong_type", "ts", f'ts = "{value[:50]}": must be integer ms or ISO 8601'))
        else:
            out[row] = ms
    return out, has


def parse_time(text: str) -> int | None:
    """ms since the epoch of an ISO 8601 time (UTC when it names no offset); None when it is not one."""
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _labels(values: list[bool | int | None], problems: dict[int, Problem]) -> NDArray[np.int8]:
    out = np.full(len(values), -1, np.int8)
    for row, value in enumerate(values):
        if value is not None:
            if value in (0, 1):
                out[row] = value
            else:
                problems.setdefault(row, ("out_of_range", "clicked", f"clicked = {value}: must be 0 or 1"))
    return out


def _predictions(events: list[_Event]) -> tuple[list[int], list[str], list[float]]:
    rows: list[int] = []
    versions: list[str] = []
    scores: list[float] = []
    for row, event in enumerate(events):
        if event.predictions:
            for version, p in event.predictions.items():
                rows.append(row)
                versions.append(version)
                scores.append(p)
    return rows, versions, scores


def _slice(all_slices: list[dict[str, Any] | None], name: str, problems: dict[int, Problem]) -> list[str | None]:
    out: list[str | None] = []
    for row, slices in enumerate(all_slices):
        value = slices.get(name) if slices else None
        if type(value) is str or value is None:
            out.append(value)
        elif isinstance(value, (bool, int, float)):
            out.append(msgspec.json.encode(value).decode())
        else:
            out.append(None)
            problems.setdefault(row, ("wrong_type", "slices", f'slices["{name}"]: must be a string, number or boolean'))
    return out

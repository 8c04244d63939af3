"""JSON messages and lines to raw columns: one typed msgspec decoder, reused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from math import isfinite
from operator import attrgetter
from typing import Annotated, Any, cast

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.events.batch import Features
from streameval.events.fields import FIELDS, Field, by_version, scalars
from streameval.sources.formats import features as feature_columns
from streameval.sources.formats import refusal, scan_features
from streameval.sources.formats.raw import ByVersion, RawEvents, Rejection, most_events, too_large
from streameval.sources.formats.times import parse_time

_MAX_INT = (1 << 63) - 1
_NO_FEATURES = msgspec.Raw()
_Event = Any  # a struct with the fields of the table
_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


@cache
def _reader(table: tuple[Field, ...], as_objects: bool) -> tuple[Callable[[bytes], _Event], _Event]:
    """Returns (decode, an empty event) for either kind of event; required fields are checked on the columns.

    `as_objects`: features as dicts. Otherwise they stay bytes: for the hashing kernel, or to be skipped if no model
    learns.
    """
    members: dict[str, tuple[Any, Any]] = {field.name: (_type(field) | None, None) for field in table}
    if not as_objects:
        members["features"] = (msgspec.Raw, _NO_FEATURES)
    event = msgspec.defstruct("Event", [(name, *member) for name, member in members.items()], gc=False)
    return msgspec.json.Decoder(event).decode, event()


def _type(field: Field) -> Any:
    """Returns the type that msgspec must accept; features as objects."""
    plain: dict[str, Any] = {"text": str, "time": int | str, "label": bool | int, "values": dict[str, Any]}
    if field.type not in ("number", "integer", "numbers"):
        return plain.get(field.type, dict[str, Any])
    number = int if field.type == "integer" else float
    bounds = {"gt" if field.above else "ge": field.low, "le": field.high}
    limits = {name: number(bound) for name, bound in bounds.items() if isfinite(bound)}
    bounded = Annotated[number, msgspec.Meta(**limits)]  # type: ignore[valid-type]  # a type that is made here
    return dict[str, bounded | None] if field.type == "numbers" else bounded


class JsonRows:
    """Decoded rows, with the origin of each."""

    def __init__(self, blank: _Event) -> None:
        self.blank = blank  # an event without any field, for what cannot be read
        self.events: list[_Event] = []
        self.message: list[int] = []  # number of the message that contained the row
        self.element: dict[int, bytes] = {}  # rows from an array: their own bytes
        self.problems: dict[int, Rejection] = {}


def decode(values: Sequence[bytes | None], as_objects: bool, max_message: int) -> JsonRows:
    """Returns one row per object; a message that is an array gives one row per element. `as_objects`: features as
    dicts.
    """
    read, blank = _reader(tuple(FIELDS.values()), as_objects)
    rows = JsonRows(blank)
    for start in range(0, len(values), _RUN):
        run = values[start : start + _RUN]
        try:
            if max(map(len, cast(Sequence[bytes], run))) <= max_message:  # None: TypeError
                rows.events += list(map(read, cast(Sequence[bytes], run)))
                rows.message += range(start, start + len(run))
                continue
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):
            pass  # one of them is bad: read each separately
        _decode_each(run, start, read, max_message, rows)
    return rows


_RUN = 256  # messages read at a time; a bad one means reading this many again


def _decode_each(
    values: Sequence[bytes | None], first: int, read: Callable[[bytes], _Event], max_message: int, rows: JsonRows
) -> None:
    add, origin, blank = rows.events.append, rows.message.append, rows.blank
    for number, value in enumerate(values, first):
        if value and len(value) <= max_message:
            try:
                event = read(value)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                head = value.lstrip(b" \t\r\n")
                if head[:1] == b"[":
                    _decode_elements(value, number, read, max_message, rows)
                    continue
                event = blank
                rows.problems[len(rows.events)] = refusal.of_json(error, value) if head else _EMPTY
        else:
            event = blank
            rows.problems[len(rows.events)] = too_large(len(value), max_message) if value else _EMPTY
        add(event)
        origin(number)


_EMPTY: Rejection = ("empty", "", "no bytes; an event is a JSON object")


def _decode_elements(value: bytes, number: int, read: Any, max_message: int, rows: JsonRows) -> None:
    whole: Rejection | None = None
    elements: list[msgspec.Raw] = []
    most = most_events(max_message)
    try:
        elements = _decode_array(value)
        if len(elements) > most:
            what = f"{len(elements)} elements: more than {most}, one for every 16 bytes of kafka.max_message"
            whole = ("too_large", "", what)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        whole = refusal.of_json(error, value)
    if whole is not None:
        rows.problems[len(rows.events)] = whole
        rows.events.append(rows.blank)
        rows.message.append(number)
        return
    for place, element in enumerate(elements):
        raw = bytes(element)
        row = len(rows.events)
        rows.element[row] = raw
        try:
            rows.events.append(read(raw))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            reason, field, message = refusal.of_json(error, raw)
            rows.problems[row] = (reason, field, f"element {place} of the array: {message}")
            rows.events.append(rows.blank)
        rows.message.append(number)


def to_raw(
    rows: JsonRows, kinds: NDArray[np.int8], dimensions: Sequence[str], hashed: bool, dicts: bool, kernel: bool
) -> RawEvents:
    """Returns raw columns of decoded rows; `kinds` by row. `kernel`: it reads the features that are hashed."""
    problems = rows.problems
    n = len(rows.events)

    def column(name: str) -> list[Any]:
        """Returns the values of a field; [] if no row has it, which keeps most optional fields cheap."""
        values = list(map(attrgetter(name), rows.events))
        return values if values.count(None) < n else []

    def numbers(name: str) -> NDArray[np.float64]:
        values = column(name)
        return np.array(values, np.float64) if values else np.full(n, np.nan)  # NumPy makes None NaN

    def strings(values: Sequence[str | None]) -> pa.Array:
        if not values:
            return pa.nulls(n, pa.string())
        try:
            return pa.array(values, pa.string())
        except UnicodeEncodeError:  # a lone surrogate: legal JSON, but not text
            clean = [None if v is None else v.encode("utf-8", "replace").decode() for v in values]
            for row, (before, after) in enumerate(zip(values, clean, strict=True)):
                if before != after:
                    problems.setdefault(row, ("malformed", "", "a string holds a lone surrogate, which is not text"))
            return pa.array(clean, pa.string())

    ts, has_ts = _times(list(map(attrgetter("ts"), rows.events)), problems)
    given, slices = list(map(attrgetter("features"), rows.events)), column("slices")
    has_features, features = _features(given, hashed, dicts, kernel, problems)
    columns: dict[str, Any] = {}
    for field in scalars():
        if field.type == "text":
            columns[field.name] = strings(column(field.name))
        elif field.type == "label":
            columns[field.name] = _labels(field.name, column(field.name), n, problems)
        elif field.type != "time":
            columns[field.name] = numbers(field.name)
    return RawEvents(
        kind=kinds,
        ts=ts,
        has_ts=has_ts,
        columns=columns,
        by_version={field.name: _by_version(column(field.name), problems) for field in by_version()},
        slices=[strings(_slice(slices, name, problems)) for name in dimensions],
        has_features=has_features,
        features=features,
        problems=problems,
    )


def _features(
    given: Sequence[Any], hashed: bool, dicts: bool, kernel: bool, problems: dict[int, Rejection]
) -> tuple[NDArray[np.bool_], Features | None]:
    """Returns (whether each row has features, the features): objects if `dicts`, else bytes."""
    if dicts:
        features, wrong = feature_columns.from_objects(given, True)
        for row, message in wrong.items():
            problems.setdefault(row, ("wrong_type", "features", message))
        return np.fromiter([f is not None for f in given], np.bool_, len(given)), features
    texts = [b"" if f is None else f for f in given]  # None: a row that could not be read
    if not hashed:
        return np.fromiter(
            [f is not _NO_FEATURES and bytes(f) not in (b"", b"null") for f in texts], np.bool_, len(given)
        ), None
    features, has, faults = scan_features.from_bytes(texts, kernel)
    for row, (reason, message) in faults.items():
        problems.setdefault(row, (reason, "" if reason == "malformed" else "features", message))
    return has, features


def _times(
    values: Sequence[int | str | None], problems: dict[int, Rejection]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    if set(map(type, values)) == {int}:  # NumPy would accept text of digits, too
        try:
            return np.fromiter(cast(Sequence[int], values), np.int64, len(values)), np.ones(len(values), bool)
        except OverflowError:
            pass
    out = np.zeros(len(values), np.int64)
    has = np.zeros(len(values), bool)
    for row, value in enumerate(values):
        if value is None:
            continue
        has[row] = True
        if isinstance(value, int):
            if not -_MAX_INT - 1 <= value <= _MAX_INT:
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


def has_surrogate(text: str | bytes, value: Any) -> bool:
    """Whether the `value` read from the JSON `text` contains a lone surrogate, which is legal JSON but not text."""
    if not (b"\\u" in text if isinstance(text, bytes) else "\\u" in text):
        return False
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _labels(name: str, values: Sequence[bool | int | None], n: int, problems: dict[int, Rejection]) -> NDArray[np.int8]:
    out = np.full(n, -1, np.int8)
    for row, value in enumerate(values):
        if value is not None:
            if value in (0, 1):
                out[row] = value
            else:
                problems.setdefault(row, ("out_of_range", name, f"{name} = {value}: must be true, false, 0 or 1"))
    return out


def _by_version(given: Sequence[dict[str, float | None] | None], problems: dict[int, Rejection]) -> ByVersion:
    rows: list[int] = []
    versions: list[str] = []
    numbers: list[float] = []
    for row, of in enumerate(given):
        if of:
            for version, number in of.items():
                if number is not None:
                    rows.append(row)
                    versions.append(version)
                    numbers.append(number)
    return ByVersion(np.array(rows, np.int64), _versions(versions, rows, problems), np.array(numbers, np.float64))


def _versions(versions: list[str], rows: list[int], problems: dict[int, Rejection]) -> pa.Array:
    try:
        return pa.array(versions, pa.string())
    except UnicodeEncodeError:
        clean = [version.encode("utf-8", "replace").decode() for version in versions]
        for row, before, after in zip(rows, versions, clean, strict=True):
            if before != after:
                problems.setdefault(row, ("malformed", "", "a string holds a lone surrogate, which is not text"))
        return pa.array(clean, pa.string())


def _slice(all_slices: Sequence[dict[str, Any] | None], name: str, problems: dict[int, Rejection]) -> list[str | None]:
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

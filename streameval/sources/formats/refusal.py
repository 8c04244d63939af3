"""What is wrong with a JSON event, in words: the field, its value, and what is allowed."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from streameval.events.fields import FIELDS, Field
from streameval.sources.formats.raw import Rejection

_SHOWN = 50  # characters of a value
_MUST_BE = {
    "text": "a string",
    "time": "ms since the epoch or an ISO 8601 time",
    "number": "a number",
    "integer": "an integer",
    "label": "true, false, 0 or 1",
    "numbers": "a JSON object of numbers",
}


def of_json(error: Exception, event: bytes) -> Rejection:
    """Returns why msgspec rejected these bytes with that error."""
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return "malformed", "", f"not JSON: {text[:200]}"
    found = re.search(r"`\$\.?([A-Za-z_]*)", text)
    field = FIELDS.get(found[1]) if found else None
    outside = re.search(r"Expected `(int|float)` (<|>|<=|>=) ?", text) or "out of range" in text
    reason = "out_of_range" if outside else "wrong_type"
    if field is None:
        what = "an event must be a JSON object"
    else:
        what = (field.range or "a finite number") if outside else _MUST_BE.get(field.type, "a JSON object")
    try:
        value = msgspec.json.decode(event)
        if field is None:
            return reason, "", f"{_json(value)}: {what}"
        return reason, field.name, _words(field, value[field.name], what)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):  # no value to show: say, a number beyond all floats
        return (reason, "", what) if field is None else (reason, field.name, f"{field.name}: must be {what}")


def _words(field: Field, value: Any, what: str) -> str:
    if field.type == "numbers" and isinstance(value, dict):
        what = field.range or what
        for version, number in value.items():
            if number is None:
                continue
            if isinstance(number, bool) or not isinstance(number, int | float):
                return f"{field.name}[{_json(version)}] = {_json(number)}: must be a number"
            if not field.low <= number <= field.high:
                return f"{field.name}[{_json(version)}] = {_json(number)}: must be {what}"
    return f"{field.name} = {_json(value)}: must be {what}"


def _json(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

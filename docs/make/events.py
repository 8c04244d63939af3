"""The reference of events, from the table of their fields."""

from __future__ import annotations

from docs.make.markdown import code, table, whole
from streameval.events.fields import ANYTHING, CLICK, FIELDS, IMPRESSION, Field, Kind, Need

_INTRODUCTION = """\
What an impression and a click may hold. A message or a line is one JSON object (or an array
of them); an Arrow message, a Parquet or a CSV file has the same fields as columns, maps as dotted ones (`slices.country`).
Columns of other names are mapped by `[files.columns]` ([configuration.md](../configuration.md)). An event that breaks a
rule goes to the dead letters unchanged, with the reason and the field.
"""
_SEVERAL = """\
## Several clicks on one impression

The first within `join.attribution_window` makes it positive. Of their numbers, in the order of the log (a click that is
delivered twice counts twice):

"""
_TYPES = {
    "text": "string",
    "time": "integer ms since the epoch, or ISO 8601",
    "number": "finite number",
    "integer": "integer",
    "label": "0, 1 or boolean",
    "values": "{dimension: string, number or boolean}",
    "numbers": "{version: finite number}",
    "features": "{name: string, number, boolean or list of strings}",
}
_JOINS = {"FIRST": "the first", "LAST": "the last", "LARGEST": "the largest", "SUM": "their sum"}


def page() -> str:
    """The Markdown of every field."""
    joined = [field for field in FIELDS.values() if field.join is not None]
    return whole(
        "Events: every field",
        _INTRODUCTION,
        [
            f"## Impressions\n\n{_fields(IMPRESSION)}",
            f"## Clicks\n\n{_fields(CLICK)}",
            _SEVERAL,
            table(("field", "what counts", "without a click", "kept"), map(_joined, joined)),
        ],
    )


def _fields(kind: Kind) -> str:
    rows = [field for field in FIELDS.values() if kind in field.of]
    return table(("field", "type", "", "meaning"), ((code(f.name), _type(f), _must(f, kind), f.meaning) for f in rows))


def _type(field: Field) -> str:
    return f"{_TYPES[field.type]} {field.range}".rstrip()


def _must(field: Field, kind: Kind) -> str:
    if kind in field.required:
        return "required"
    given = "" if field.default is None or field.join is not None else f", default {code(field.default)}"
    return f"optional{given}"


def _joined(field: Field) -> tuple[str, str, str, str]:
    assert field.join is not None
    asked = [_asked(need) for need in field.needs if need.setting]
    always = len(asked) < len(field.needs)
    return code(field.name), _JOINS[field.join.name], code(field.default), "always" if always else " or ".join(asked)


def _asked(need: Need) -> str:
    return f"with `{need.setting}`" if need.value is ANYTHING else f'with `{need.setting} = "{need.value}"`'

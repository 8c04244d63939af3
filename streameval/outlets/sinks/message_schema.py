"""The JSON schema of the messages of a Kafka sink, from the registry of metrics; docs/reference/sink-messages.schema.json."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

from streameval.compare.reading.reading import SETUPS, VERDICTS, VerdictChange
from streameval.metrics.registry import BY_K, names, with_stderr
from streameval.outlets.sinks.rows import RESULT_KEYS, VERDICT_KEYS, meaning

_TIME = {"type": "string", "format": "date-time"}
_COUNT = {"type": "integer", "minimum": 0}
_NUMBER = {"type": ["number", "null"]}
_TEXT = {"type": "string"}


def message_schema() -> dict[str, Any]:
    """A message is a result of a pane and series, or a change of a verdict."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Messages of a streameval sink",
        "oneOf": [_result(), _verdict()],
    }


def _result() -> dict[str, Any]:
    keys: dict[str, Any] = dict.fromkeys(RESULT_KEYS, _TEXT)
    keys |= {"pane_start": _TIME, "pane_end": _TIME, "impressions": _COUNT, "clicks": _COUNT, "corrected": _COUNT}
    keys["objective"] = {"type": "string", "description": "The objective whose labels count; empty: clicks."}
    numbers = [*names(), *(f"{name}_stderr" for name in with_stderr())]
    metrics = {name: {**_NUMBER, "description": meaning(name)} for name in numbers}
    families = "|".join(family.name.replace("{k}", "[1-9][0-9]*") for family in BY_K)
    return {
        "title": "result",
        "description": "One series in one pane. The newest message of a key counts: late clicks correct panes.",
        "type": "object",
        "properties": {"schema": {"const": 1}, "about": {"const": "result"}, **metrics, **keys},
        "patternProperties": {f"^({families}|mrr|map)(_by_user)?(_stderr)?$": _NUMBER},
        "required": ["schema", "about", *RESULT_KEYS],
    }


def _verdict() -> dict[str, Any]:
    kinds = list(get_args(get_type_hints(VerdictChange)["kind"]))
    keys: dict[str, Any] = dict.fromkeys(VERDICT_KEYS, _TEXT)
    keys |= {"at": {"type": ["string", "null"], "format": "date-time"}, "start": _TIME}
    keys |= {"kind": {"enum": kinds}, "verdict": {"enum": list(VERDICTS)}, "setup": {"enum": list(SETUPS)}}
    keys |= {"log_e_worse": _NUMBER, "log_e_not_worse": _NUMBER}
    return {
        "title": "verdict",
        "description": "A change of the verdict of a comparison.",
        "type": "object",
        "properties": {"schema": {"const": 1}, "about": {"const": "verdict"}, **keys},
        "required": ["schema", "about", *VERDICT_KEYS],
        "additionalProperties": False,
    }

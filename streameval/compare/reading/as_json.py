"""Deploys and comparisons as JSON, in one form for the report and for the API, which differ only in how they write
times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

from streameval.compare.reading.reading import Comparison, Looks, Role, Time
from streameval.compare.reading.words import headline
from streameval.events.batch import Series

When = Callable[[int | None], Any]


def as_it_is(ms: int | None) -> int | None:
    """Returns a time as the report writes it: milliseconds."""
    return ms


def finite(value: float | None) -> float | None:
    """Returns the number, or None if JSON cannot represent it."""
    return None if value is None or not math.isfinite(value) else float(value)


@cache
def members(answer: type) -> dict[str, Any]:
    """Returns the members of an answer and their types, in order."""
    hints = get_type_hints(answer, include_extras=True)
    return {one.name: hints[one.name] for one in fields(answer) if not one.metadata}


def as_json(answer: Any, when: When = as_it_is, made: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns any answer of `reading` as JSON; `made`: members that are not simply fields of the same name."""
    made = made or {}
    return {
        name: made[name] if name in made else _value(getattr(answer, name), hint, when)
        for name, hint in members(answer.__class__).items()
    }


def comparison_json(comparison: Comparison, when: When = as_it_is, now: int | None = None) -> dict[str, Any]:
    """Returns one comparison without its looks; `now`: as in `headline`, whose words are among it."""
    c, on = comparison, comparison.decided_on
    made = {
        "model": c.candidate.model,
        "baseline": {**_names(c.baseline), **role_json(c.roles[0])},
        "candidate": {**_names(c.candidate), **role_json(c.roles[1])},
        "decided_on": on and {"metric": on.metric, **as_json(on.then), **as_json(on, when)},
        "words": headline(c, now),
    }
    return as_json(c, when, made)


def _names(series: Series) -> dict[str, str]:
    return {"model": series.model, "version": series.version, "source": series.source}


def role_json(role: Role | None) -> dict[str, Any]:
    """Returns the role and traffic share of a series; null if not known."""
    return {
        "role": None if role is None else role.name,
        "traffic_share": None if role is None else finite(role.traffic_share),
    }


def looks_json(looks: Looks | None, when: When = as_it_is) -> list[dict[str, Any]]:
    """Returns the e-process and the intervals over time, oldest first."""
    if looks is None:
        return []
    metrics = {name: {key: c.tolist() for key, c in columns.items()} for name, columns in looks.metrics.items()}
    clicks = [None] * len(looks.at) if looks.clicks is None else looks.clicks.tolist()
    rows = zip(looks.at.tolist(), looks.impressions.tolist(), clicks, looks.log_e.tolist(), strict=True)
    return [
        {
            "at": when(at),
            "impressions": impressions,
            "clicks": clicked,
            "log_e": finite(log_e),
            "metrics": {
                name: {key: finite(column[i]) for key, column in columns.items()} for name, columns in metrics.items()
            },
        }
        for i, (at, impressions, clicked, log_e) in enumerate(rows)
    ]


def _value(value: Any, hint: Any, when: When) -> Any:
    if Time in (hint, *get_args(hint)):
        return when(value)
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, tuple):
        return [as_json(one, when) for one in value]
    if isinstance(value, Mapping):
        return {name: _value(one, None, when) for name, one in value.items()}
    return as_json(value, when) if is_dataclass(value) else value

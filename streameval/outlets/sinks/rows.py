"""The rows written to sinks: a pane's results, one per series, and the changes of verdicts. Their keys depend on the
events alone.

A row is a flat object with the names of the API; numbers that are not defined are None. Times are milliseconds here; each sink
writes them as its readers expect.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.compare.reading.as_json import finite
from streameval.compare.reading.handling import comparison_key
from streameval.events.batch import Series
from streameval.metrics.registry import by_name
from streameval.results.snapshot import PaneColumns, Snapshot

RESULT_TIMES, VERDICT_TIMES = ("pane_start", "pane_end"), ("at", "start")
RESULT_KEYS = (
    "pane_start",
    "pane_end",
    "model",
    "version",
    "source",
    "objective",
    "impressions",
    "clicks",
    "corrected",
)
VERDICT_KEYS = (
    "at", "kind", "verdict", "text", "log_e_worse", "log_e_not_worse", "comparison", "model", "candidate",
    "candidate_source", "baseline", "setup", "start",
)  # fmt: skip
_EMPTY = np.uint64(0x7FF8000000000000)  # one NaN for all of them


@dataclass(frozen=True, slots=True)
class SinkPane:
    """Everything of one pane: a row per series."""

    start: int  # ms
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class SinkVerdict:
    """One change of a verdict."""

    key: str
    row: Mapping[str, Any]


def row_key(*names: object) -> str:
    """32 hex digits for what a row is about."""
    return hashlib.blake2b(json.dumps(names).encode(), digest_size=16).hexdigest()


def pane_digests(panes: Mapping[Series, PaneColumns]) -> dict[int, int]:
    """64 bits for each pane's rows, by its start: the same rows have the same, whatever process made them.

    A weighted sum of the bits of all numbers, with odd weights that names choose: any change of one number changes it.
    """
    starts: list[NDArray[np.int64]] = []
    digests: list[NDArray[np.uint64]] = []
    for series, columns in panes.items():
        total = np.zeros(columns.start.size, np.uint64)
        for name, column in _columns(columns).items():
            with np.errstate(over="ignore"):
                total += _bits(column) * _weight(series, name)
        starts.append(columns.start)
        digests.append(total)
    if not starts:
        return {}
    found, place = np.unique(np.concatenate(starts), return_inverse=True)
    out = np.zeros(found.size, np.uint64)
    np.add.at(out, place, np.concatenate(digests))
    return dict(zip(found.tolist(), out.tolist(), strict=True))


def panes_of(snapshot: Snapshot, starts: Iterator[int] | list[int]) -> list[SinkPane]:
    """The rows of these panes."""
    rows: dict[int, list[dict[str, Any]]] = {start: [] for start in starts}
    for series, columns in snapshot.panes.items():
        named = _columns(columns)
        where = np.searchsorted(columns.start, list(rows))
        for start, i in zip(rows, where.tolist(), strict=True):
            if i < columns.start.size and columns.start[i] == start:
                head = {
                    "pane_start": start,
                    "pane_end": start + snapshot.pane,
                    "model": series.model,
                    "version": series.version,
                    "source": series.source,
                    "objective": series.objective,
                }
                rows[start].append({**head, **{name: _number(name, column[i]) for name, column in named.items()}})
    return [SinkPane(start, tuple(some)) for start, some in rows.items() if some]


def verdicts_of(snapshot: Snapshot) -> Iterator[SinkVerdict]:
    """Every change of the comparisons on record."""
    for c in snapshot.comparisons:
        key = comparison_key(c)
        for change in c.changes:
            row = {
                "at": change.at,
                "kind": change.kind,
                "verdict": change.verdict,
                "text": change.text,
                **{name: finite(change.evidence.get(name)) for name in ("log_e_worse", "log_e_not_worse")},
                "comparison": key,
                "model": c.candidate.model,
                "candidate": c.candidate.version,
                "candidate_source": c.candidate.source,
                "baseline": c.baseline.version,
                "setup": c.setup,
                "start": c.start,
            }
            yield SinkVerdict(row_key(key, change.at, change.kind, change.verdict), row)


def _columns(columns: PaneColumns) -> dict[str, NDArray[Any]]:
    out: dict[str, NDArray[Any]] = {
        "impressions": columns.impressions,
        "clicks": columns.clicks,
        "corrected": columns.corrected,
    }
    for name, column in columns.metrics.items():
        out[name] = column
        if name in columns.stderrs:
            out[f"{name}_stderr"] = columns.stderrs[name]
    return out


def _number(name: str, value: Any) -> float | int | None:
    if name in ("impressions", "clicks", "corrected"):
        return int(value)
    return finite(float(value))


def _bits(column: NDArray[Any]) -> NDArray[np.uint64]:
    values = np.ascontiguousarray(column, np.float64)
    bits = values.view(np.uint64)
    return np.where(np.isnan(values), _EMPTY, bits)


def _weight(series: Series, name: str) -> np.uint64:
    named = json.dumps([series.model, series.version, series.source, series.objective, name]).encode()
    return np.uint64(int.from_bytes(hashlib.blake2b(named, digest_size=8).digest()) | 1)


def meaning(name: str) -> str:
    """What a column is, for schemas."""
    plain = name.removesuffix("_stderr")
    return f"Standard error of {plain}." if plain != name else by_name(plain).explanation

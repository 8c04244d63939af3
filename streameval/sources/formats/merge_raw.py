"""Raw columns of several tables combined, with each row in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.events.batch import Features
from streameval.events.columns import concat_features, take_features
from streameval.events.fields import by_version, scalars
from streameval.sources.formats.raw import ByVersion, RawEvents, Rejection, Wants
from streameval.sources.formats.texts import Ids, Words

PlacedRows = tuple[RawEvents, NDArray[np.int64]]  # rows, and the index of each; -1: it is left out


def blank(n: int, dimensions: Sequence[str], hashed: bool, dicts: bool) -> RawEvents:
    """Returns n rows without any field, for what cannot be read."""
    columns: dict[str, Any] = {}
    for one in scalars():
        if one.type == "text":
            columns[one.name] = pa.nulls(n, pa.string())
        elif one.type == "label":
            columns[one.name] = np.full(n, -1, np.int8)
        elif one.type != "time":
            columns[one.name] = np.full(n, np.nan)
    features = None
    if hashed or dicts:
        none: tuple[dict[str, float], ...] | None = tuple({} for _ in range(n)) if dicts else None
        features = Features(np.zeros(n + 1, np.int64), np.empty(0, np.uint64), np.empty(0), none)
    return RawEvents(
        kind=np.zeros(n, np.int8),
        ts=np.zeros(n, np.int64),
        has_ts=np.zeros(n, bool),
        columns=columns,
        by_version={
            one.name: ByVersion(np.empty(0, np.int64), pa.array([], pa.string()), np.empty(0)) for one in by_version()
        },
        slices=[pa.nulls(n, pa.string()) for _ in dimensions],
        has_features=np.zeros(n, bool),
        features=features,
    )


def by_message(
    parts: Sequence[PlacedRows],
    problems: Mapping[int, Rejection],
    kinds: NDArray[np.int8],
    dimensions: Sequence[str],
    wants: Wants,
) -> RawEvents:
    """Returns one row per message, whose `kinds` these are: those of the parts, and blank ones for problems."""
    bad = np.array(sorted(problems), np.int64)
    features = (wants.hashed, wants.dicts)
    out = merged(
        [*parts, (blank(bad.size, dimensions, *features), bad)] if bad.size else parts,
        kinds.size,
        dimensions,
        *features,
    )
    out.kind = kinds
    for row, problem in problems.items():
        out.problems.setdefault(row, problem)
    return out


def merged(parts: Sequence[PlacedRows], n: int, dimensions: Sequence[str], hashed: bool, dicts: bool) -> RawEvents:
    """Returns the n rows of all parts, every index once."""
    if not parts:
        return blank(n, dimensions, hashed, dicts)
    if len(parts) == 1 and np.array_equal(parts[0][1], np.arange(n)):
        return parts[0][0]
    raws = [raw.encoded() for raw, _ in parts]
    places = np.concatenate([at for _, at in parts])
    kept = np.flatnonzero(places >= 0)
    order = np.empty(n, np.int64)
    order[places[kept]] = kept  # for index k, the row among all parts in order

    def column(of: Sequence[Any]) -> Any:
        if isinstance(of[0], Ids):
            return Ids.concat(of).take(order)
        if isinstance(of[0], Words):
            whole = Words.concat(of)
            return Words(whole.codes[order], whole.values)
        return np.concatenate(of)[order]

    def each(name: str) -> Any:
        return column([getattr(raw, name) for raw in raws])

    features = [raw.features for raw in raws if raw.features is not None]
    return RawEvents(
        kind=each("kind"),
        ts=each("ts"),
        has_ts=each("has_ts"),
        columns={name: column([raw.columns[name] for raw in raws]) for name in raws[0].columns},
        by_version={one.name: _by_version([raw.by_version[one.name] for raw in raws], parts) for one in by_version()},
        slices=[column([raw.slices[d] for raw in raws]) for d in range(len(dimensions))],
        has_features=each("has_features"),
        features=take_features(concat_features(features), order) if hashed or dicts else None,
        problems={int(at[row]): why for raw, at in parts for row, why in raw.problems.items() if at[row] >= 0},
    )


def _by_version(given: Sequence[Any], parts: Sequence[PlacedRows]) -> ByVersion:
    row = np.concatenate([at[one.row] for one, (_, at) in zip(given, parts, strict=True)])
    order = np.argsort(row, kind="stable")
    order = order[row[order] >= 0]
    words = Words.concat([one.version for one in given])
    number = np.concatenate([one.number for one in given])
    return ByVersion(row[order], Words(words.codes[order], words.values), number[order])

"""Small operations on the columns of `events`: taking rows, putting batches together, and the flat form of scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Clicks, Features, Impressions, Names, Shadow


@dataclass(frozen=True, slots=True)
class Scored:
    """k scores of some rows: score j was given to row `row[j]` by series `series[j]`.

    Who gave them follows one after another: scores bounds[i] to bounds[i + 1] - 1 are one giver's, by ascending row.
    """

    bounds: tuple[int, ...]
    row: NDArray[np.int32]  # position in the rows that were asked for
    series: NDArray[np.int32]
    p: NDArray[np.float64]
    violation: NDArray[np.bool_]  # the score may have known its label


@dataclass(frozen=True, slots=True)
class Settled:
    """Rows that have just matured, with every score: what `replay --predictions` writes."""

    id: NDArray[np.uint64]
    ts: NDArray[np.int64]
    label: NDArray[np.int8]
    names: Names | None
    scored: Scored


def take_scored(parts: Sequence[Scored], rows: NDArray[np.int64]) -> Scored:
    """The scores of the given rows, in that order, of parts one behind the other; every giver scored every row of them."""
    givers = len(parts[0].bounds) - 1
    series, p, violation = (
        np.concatenate([getattr(part, name).reshape(givers, -1) for part in parts], axis=1)[:, rows].ravel()
        for name in ("series", "p", "violation")
    )
    row = np.tile(np.arange(rows.size, dtype=np.int32), givers)
    return Scored(tuple(rows.size * i for i in range(givers + 1)), row, series, p, violation)


@numba.njit(cache=True, nogil=True)
def _flat(
    indptr: NDArray[np.int64], rows: NDArray[np.int64], lengths: NDArray[np.int64], flat: NDArray[np.int64]
) -> None:
    k = 0
    for i in range(rows.size):
        for j in range(lengths[i]):
            flat[k] = indptr[rows[i]] + j
            k += 1


def csr_lengths(indptr: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(how many entries each row has, where they all are) of rows of a ragged column."""
    lengths = indptr[rows + 1] - indptr[rows]
    flat = np.empty(int(lengths.sum()), np.int64)
    _flat(indptr, rows, lengths, flat)
    return lengths, flat


@numba.njit(cache=True, nogil=True)
def entries(indptr: NDArray[np.int64], rows: NDArray[np.int64]) -> int:
    """How many entries some rows of a ragged column have."""
    k = 0
    for i in range(rows.size):
        k += indptr[rows[i] + 1] - indptr[rows[i]]
    return int(k)


class ScoreList(NamedTuple):
    """Scores one behind the other, or room for them."""

    row: NDArray[np.int32]
    series: NDArray[np.int32]
    p: NDArray[np.float64]


@numba.njit(cache=True, nogil=True)
def take_scores(shadow: Shadow, rows: NDArray[np.int64], names: NDArray[np.int64], out: ScoreList, k: int) -> int:
    """Writes all scores of some rows from place k on; row `rows[i]` goes by `names[i]`. Returns where it ended."""
    indptr, series, pclick = shadow
    row, of, p = out
    for i in range(rows.size):
        for j in range(indptr[rows[i]], indptr[rows[i] + 1]):
            row[k], of[k], p[k] = names[i], series[j], pclick[j]
            k += 1
    return int(k)


def take_shadow(shadow: Shadow, rows: NDArray[np.int64]) -> Shadow:
    """The shadow scores of the given rows, in that order."""
    lengths, flat = csr_lengths(shadow.indptr, rows)
    indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    return Shadow(indptr, shadow.series[flat], shadow.pclick[flat])


def take_names(names: Names, rows: NDArray[np.int64]) -> Names:
    """The names of the given rows, in that order."""
    return Names(names.impression_id[rows], names.user_id[rows], names.request_id[rows])


def span(rows: NDArray[np.int64]) -> slice | None:
    """The slice that some rows are, if they are all of one, in order."""
    if not rows.size or rows[-1] - rows[0] != rows.size - 1 or not bool((rows[1:] > rows[:-1]).all()):
        return None
    return slice(int(rows[0]), int(rows[-1]) + 1)


def index_of(rows: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """What gives the same of a column as some rows, but as a view if they are all of a slice, in order."""
    whole = span(rows)
    return rows if whole is None else whole


def take_features(features: Features, rows: NDArray[np.int64]) -> Features:
    """The features of the given rows, in that order."""
    whole = span(rows)
    if whole is not None:
        return _cut_features(features, whole)
    lengths, flat = csr_lengths(features.indptr, rows)
    indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    dicts = features.dicts
    return Features(
        indptr,
        features.index[flat],
        features.value[flat],
        None if dicts is None else tuple(dicts[i] for i in rows.tolist()),
        None if features.offset is None else features.offset[rows],
    )


def concat_features(parts: Sequence[Features]) -> Features:
    """Features of several batches, one behind the other; as dicts, and with offsets, where every part has them."""
    dicts = [f.dicts for f in parts if f.dicts is not None]
    offsets = [f.offset for f in parts if f.offset is not None]
    return Features(
        _join_indptr([f.indptr for f in parts]),
        np.concatenate([f.index for f in parts]),
        np.concatenate([f.value for f in parts]),
        tuple(row for part in dicts for row in part) if len(dicts) == len(parts) else None,
        np.concatenate(offsets) if len(offsets) == len(parts) else None,
    )


def concat_names(parts: Sequence[Names]) -> Names:
    """Names of several batches, one behind the other."""
    return Names(*(np.concatenate([getattr(part, name) for part in parts]) for name in Names.__slots__))


PLAIN = ("id", "ts", "user", "request", "item", "series", "pclick", "slices", "label")  # of impressions, beside `order`


def take_impressions(impressions: Impressions, rows: NDArray[np.int64], order: NDArray[np.int32]) -> Impressions:
    """The given rows, in that order; `order`: their places in the batch that they go to."""
    return Impressions(
        order=order,
        **{name: getattr(impressions, name)[rows] for name in PLAIN},
        fields={name: column[rows] for name, column in impressions.fields.items()},
        shadow=None if impressions.shadow is None else take_shadow(impressions.shadow, rows),
        features=None if impressions.features is None else take_features(impressions.features, rows),
        names=None if impressions.names is None else take_names(impressions.names, rows),
        query=None if impressions.query is None else impressions.query[rows],
        policies=None if impressions.policies is None else take_shadow(impressions.policies, rows),
    )


def cut_impressions(impressions: Impressions, rows: slice) -> Impressions:
    """The rows of a slice, without a copy."""
    first, end = rows.start, rows.stop
    names = impressions.names
    return Impressions(
        order=impressions.order[rows],
        **{name: getattr(impressions, name)[rows] for name in PLAIN},
        fields={name: column[rows] for name, column in impressions.fields.items()},
        shadow=None if impressions.shadow is None else _cut_shadow(impressions.shadow, first, end),
        features=None if impressions.features is None else _cut_features(impressions.features, rows),
        names=None if names is None else Names(*(getattr(names, name)[rows] for name in Names.__slots__)),
        query=None if impressions.query is None else impressions.query[rows],
        policies=None if impressions.policies is None else _cut_shadow(impressions.policies, first, end),
    )


def _cut_shadow(shadow: Shadow, first: int, end: int) -> Shadow:
    a, b = int(shadow.indptr[first]), int(shadow.indptr[end])
    indptr = shadow.indptr[first : end + 1]
    return Shadow(indptr - a if a else indptr, shadow.series[a:b], shadow.pclick[a:b])


def _cut_features(features: Features, rows: slice) -> Features:
    first, end = rows.start, rows.stop
    a, b = int(features.indptr[first]), int(features.indptr[end])
    dicts = None if features.dicts is None else features.dicts[rows]
    offset = None if features.offset is None else features.offset[rows]
    return Features(features.indptr[first : end + 1] - a, features.index[a:b], features.value[a:b], dicts, offset)


def cut_clicks(clicks: Clicks, rows: slice) -> Clicks:
    """The rows of a slice, without a copy."""
    fields = {name: column[rows] for name, column in clicks.fields.items()}
    return Clicks(clicks.order[rows], clicks.id[rows], clicks.ts[rows], fields)


def take_clicks(clicks: Clicks, rows: NDArray[np.int64], order: NDArray[np.int32]) -> Clicks:
    """The given rows, in that order; `order`: their places in the batch that they go to."""
    fields = {name: column[rows] for name, column in clicks.fields.items()}
    return Clicks(order, clicks.id[rows], clicks.ts[rows], fields)


def concat_impressions(parts: Sequence[Impressions]) -> Impressions:
    """Several batches' impressions as one."""
    if len(parts) == 1:
        return parts[0]
    plain = {name: np.concatenate([getattr(p, name) for p in parts]) for name in ("order", *PLAIN)}
    query = None
    if any(p.query is not None for p in parts):
        query = np.concatenate([np.zeros(len(p), np.uint64) if p.query is None else p.query for p in parts])
    features = [p.features for p in parts if p.features is not None]
    names = [p.names for p in parts if p.names is not None]
    lengths = [len(p) for p in parts]
    return Impressions(
        **plain,
        fields=_concat_fields(parts),
        shadow=concat_shadows([p.shadow for p in parts], lengths),
        features=concat_features(features) if len(features) == len(parts) else None,
        names=concat_names(names) if len(names) == len(parts) else None,
        query=query,
        policies=concat_shadows([p.policies for p in parts], lengths),
    )


def concat_shadows(parts: Sequence[Shadow | None], rows: Sequence[int]) -> Shadow | None:
    """Shadows one behind the other, None of so many `rows` that have nothing; None: of nobody."""
    if all(part is None for part in parts):
        return None
    filled = [
        part or Shadow(np.zeros(n + 1, np.int64), np.empty(0, np.int32), np.empty(0))
        for part, n in zip(parts, rows, strict=True)
    ]
    return Shadow(
        _join_indptr([s.indptr for s in filled]),
        np.concatenate([s.series for s in filled]),
        np.concatenate([s.pclick for s in filled]),
    )


def concat_clicks(parts: Sequence[Clicks]) -> Clicks:
    """Several batches' clicks as one."""
    if len(parts) == 1:
        return parts[0]
    plain = {name: np.concatenate([getattr(p, name) for p in parts]) for name in ("order", "id", "ts")}
    return Clicks(**plain, fields=_concat_fields(parts))


def field_of(events: Impressions | Clicks, name: str) -> NDArray[np.float64]:
    """A carried field, NaN where absent; batches made by hand need not have the column."""
    column = events.fields.get(name)
    return np.full(len(events), np.nan) if column is None else column


def _concat_fields(parts: Sequence[Impressions | Clicks]) -> dict[str, NDArray[np.float64]]:
    names = dict.fromkeys(name for part in parts for name in part.fields)
    return {name: np.concatenate([field_of(part, name) for part in parts]) for name in names}


def _join_indptr(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    lengths = np.concatenate([np.diff(p) for p in parts])
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))

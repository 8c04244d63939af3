"""Small operations on the columns of `events`: taking rows, putting batches together, and the flat form of scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events import Clicks, Features, Impressions, Names, Shadow


@dataclass(frozen=True, slots=True)
class Scored:
    """k scores of some rows: score j was given to row `row[j]` by series `series[j]`.

    Who gave them follows one after the other: scores bounds[i] to bounds[i + 1] - 1 are one giver's, by ascending row.
    """

    bounds: tuple[int, ...]
    row: NDArray[np.int32]  # position in the rows that were asked for
    series: NDArray[np.int32]
    p: NDArray[np.float64]
    violation: NDArray[np.bool_]  # the score may have known its label


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


@numba.njit(cache=True, nogil=True)
def take_scores(
    indptr: NDArray[np.int64],
    series: NDArray[np.int32],
    pclick: NDArray[np.float64],
    rows: NDArray[np.int64],
    names: NDArray[np.int64],
    k: int,
    row: NDArray[np.int32],
    of: NDArray[np.int32],
    p: NDArray[np.float64],
) -> int:
    """Writes all scores of some rows of a ragged column from place k on; row `rows[i]` goes by `names[i]`. Returns where it ended."""
    for i in range(rows.size):
        for j in range(indptr[rows[i]], indptr[rows[i] + 1]):
            row[k], of[k], p[k] = names[i], series[j], pclick[j]
            k += 1
    return int(k)


def span(rows: NDArray[np.int64]) -> slice | None:
    """The slice that some rows are, if they are all of one, in order."""
    if not rows.size or rows[-1] - rows[0] != rows.size - 1 or not bool((rows[1:] > rows[:-1]).all()):
        return None
    return slice(int(rows[0]), int(rows[-1]) + 1)


def take_features(features: Features, rows: NDArray[np.int64]) -> Features:
    """The features of the given rows, in that order."""
    whole = span(rows)
    if whole is not None:  # without a copy
        first, end = whole.start, whole.stop
        a, b = int(features.indptr[first]), int(features.indptr[end])
        dicts = None if features.dicts is None else features.dicts[first:end]
        offset = None if features.offset is None else features.offset[first:end]
        return Features(features.indptr[first : end + 1] - a, features.index[a:b], features.value[a:b], dicts, offset)
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


_PLAIN = ("id", "ts", "user", "request", "item", "series", "pclick", "slices", "label", "position", "propensity")


def take_impressions(impressions: Impressions, rows: NDArray[np.int64], order: NDArray[np.int32]) -> Impressions:
    """The given rows, in that order; `order`: their places in the batch that they go to."""
    shadow, names = impressions.shadow, impressions.names
    if shadow is not None:
        lengths, flat = csr_lengths(shadow.indptr, rows)
        indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        shadow = Shadow(indptr, shadow.series[flat], shadow.pclick[flat])
    if names is not None:
        names = Names(names.impression_id[rows], names.user_id[rows], names.request_id[rows])
    return Impressions(
        order=order,
        **{name: getattr(impressions, name)[rows] for name in _PLAIN},
        shadow=shadow,
        features=None if impressions.features is None else take_features(impressions.features, rows),
        names=names,
    )


def take_clicks(clicks: Clicks, rows: NDArray[np.int64], order: NDArray[np.int32]) -> Clicks:
    """The given rows, in that order; `order`: their places in the batch that they go to."""
    return Clicks(order, clicks.id[rows], clicks.ts[rows], clicks.value[rows])


def concat_impressions(parts: Sequence[Impressions]) -> Impressions:
    """Several batches' impressions as one."""
    if len(parts) == 1:
        return parts[0]
    plain = {name: np.concatenate([getattr(p, name) for p in parts]) for name in ("order", *_PLAIN)}
    shadow = None
    if any(p.shadow is not None for p in parts):
        filled = [p.shadow or Shadow(np.zeros(len(p) + 1, np.int64), np.empty(0, np.int32), np.empty(0)) for p in parts]
        shadow = Shadow(
            _join_indptr([s.indptr for s in filled]),
            np.concatenate([s.series for s in filled]),
            np.concatenate([s.pclick for s in filled]),
        )
    features = None
    given = [p.features for p in parts if p.features is not None]
    if len(given) == len(parts):
        dicts = None if given[0].dicts is None else tuple(d for f in given for d in f.dicts or ())
        features = Features(
            _join_indptr([f.indptr for f in given]),
            np.concatenate([f.index for f in given]),
            np.concatenate([f.value for f in given]),
            dicts,
            None if any(f.offset is None for f in given) else np.concatenate([f.offset for f in given]),
        )
    names = None
    texts = [p.names for p in parts if p.names is not None]
    if len(texts) == len(parts):
        names = Names(*(np.concatenate([getattr(t, f) for t in texts]) for f in Names.__slots__))
    return Impressions(**plain, shadow=shadow, features=features, names=names)


def concat_clicks(parts: Sequence[Clicks]) -> Clicks:
    """Several batches' clicks as one."""
    if len(parts) == 1:
        return parts[0]
    return Clicks(*(np.concatenate([getattr(p, name) for p in parts]) for name in Clicks.__slots__))


def _join_indptr(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    lengths = np.concatenate([np.diff(p) for p in parts])
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))

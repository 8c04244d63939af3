"""Counts a table with known labels: the engine's own counting, without a join."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.compare.at_once import AtOnce
from streameval.counting.scoreboard import Labelled
from streameval.events.columns import Scored, take_scored
from streameval.events.hashing import hash_strings
from streameval.face.columns import Columns, Piece, TableRows, as_text
from streameval.face.result import Evaluation
from streameval.loop.make import recalibration_of
from streameval.loop.pipeline import Pipeline
from streameval.results.result import Result
from streameval.results.results import Results
from streameval.settings.tree import Settings

_REQUESTS_AT_ONCE = 1 << 19  # rows whose requests are counted in one go
_GAUCS = ("gauc", "gauc_clicks", "gauc_uniform", "gauc_value")
_OF_USERS = {**dict.fromkeys(_GAUCS), "gauc_users": 0, "gauc_impressions": 0}


def evaluate_labelled(table: pa.Table, columns: Columns, settings: Settings, baseline: str | None) -> Evaluation:
    """Raises ValueError for columns that are missing or hold what they must not, and for a baseline that is not there."""
    pipeline = Pipeline(settings, time.time)
    partition = pipeline.at_once()
    at_once = AtOnce(
        settings.compare,
        pipeline.catalog,
        settings.windows.pane,
        settings.buckets.edges,
        columns.user is not None,
        min_propensity=settings.exposure.min_propensity,
        operating_range=settings.metrics.operating_range,
        weighed=settings.sampling.by,
    )
    recalibrate = recalibration_of(settings, pipeline.catalog)
    several = columns.version is not None or len(columns.scores) > 1
    requests: list[Piece] = []
    for piece in TableRows(table, columns, pipeline.catalog, settings.sampling.negatives).pieces():
        if recalibrate is not None:
            recalibrate(piece.scored)
        partition.count(piece.labelled, piece.scored)
        if several:
            at_once.observe(piece.labelled, piece.scored)
        if piece.request is not None and not settings.sampling.is_sample:  # a sample holds no whole requests
            requests.append(piece)
    for labelled, scored, request in _by_request(requests):
        partition.count_requests(labelled, scored, request)
    pipeline.finish()
    pipeline.advance(with_history=False)
    snapshot = pipeline.snapshot()
    if several or baseline is not None:
        snapshot = replace(snapshot, comparisons=tuple(at_once.comparisons(baseline)))
    if columns.user is None:
        return Evaluation(replace(snapshot, results=Results.of(map(_without_users, snapshot.results))))
    return Evaluation(replace(snapshot, users=pipeline.users()), partial(_names, columns.user, table[columns.user]))


def _names(name: str, user: pa.ChunkedArray) -> Mapping[int, str]:
    """What users are called, by hash."""
    texts = as_text("user", name, pa.array(user.unique()))
    return dict(zip(hash_strings(texts).tolist(), texts.to_pylist(), strict=True))


def _by_request(pieces: Sequence[Piece]) -> Iterator[tuple[Labelled, Scored, NDArray[np.int32]]]:
    """Whole requests, some at a time, numbered from 0."""
    if not pieces:
        return
    request = np.concatenate([piece.request for piece in pieces if piece.request is not None])
    order = np.argsort(request, kind="stable")
    order = order[request[order] != 0]
    begins = np.flatnonzero(np.diff(request[order], prepend=np.uint64(0)))
    wanted = np.searchsorted(begins, np.arange(0, order.size, _REQUESTS_AT_ONCE))
    cuts = begins[np.unique(wanted[wanted < begins.size])]
    whole = {
        name: np.concatenate([getattr(piece.labelled, name) for piece in pieces])
        for name in Labelled.__slots__
        if isinstance(getattr(pieces[0].labelled, name), np.ndarray)
    }
    kept = pieces[0].labelled.fields
    fields = {name: np.concatenate([piece.labelled.fields[name] for piece in pieces]) for name in kept}
    scored = [piece.scored for piece in pieces]
    for start, end in zip(cuts, [*cuts[1:], order.size], strict=True):
        rows = order[start:end]
        some: dict[str, Any] = {name: column[rows] for name, column in whole.items()}
        some["fields"] = {name: column[rows] for name, column in fields.items()}
        number = np.cumsum(np.diff(request[rows], prepend=request[rows[:1]]) != 0).astype(np.int32)
        yield Labelled(**some), take_scored(scored, rows), number


def _without_users(result: Result) -> Result:
    """Nobody knows which rows are of one user."""
    why = result.reasons.get("gauc", "no_eligible_user")
    return replace(
        result,
        metrics={**result.metrics, **({} if result.slice else _OF_USERS)},
        reasons={**result.reasons, **dict.fromkeys(_GAUCS, why)},
        stderrs={name: value for name, value in result.stderrs.items() if name not in _OF_USERS},
        gauc_stderr_df=None,
        user_dfs={},
    )

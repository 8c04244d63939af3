"""Results: metrics, bucket tables and ROC curves of the windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from streameval.compare.reading.as_json import role_json
from streameval.results.publish import Publisher
from streameval.results.result import Result, bucket_json
from streameval.results.snapshot import Snapshot
from streameval.server.api import tables
from streameval.server.api.answers import answer, answer_of_past, counted, result_json, series_json
from streameval.server.api.past import covered, past_result, past_results
from streameval.server.api.queries import BucketsQuery, OneResultQuery, ResultsQuery, RocQuery, ScoresQuery
from streameval.server.api.roc import roc_curve
from streameval.server.api.schemas import results as schemas
from streameval.server.api.score_bins import score_bins
from streameval.server.api.selection import matching_results, one_series, one_slice, slice_values, windows
from streameval.server.api.tables import CSV
from streameval.server.http.problems import Problem, problem_responses, unknown
from streameval.store.history.reader import HistoryReader


def router(publisher: Publisher, history: HistoryReader | None) -> APIRouter:
    """/api/v1/results, /api/v1/buckets, /api/v1/roc and /api/v1/scores."""
    routes = APIRouter(prefix="/api/v1", tags=["results"], responses=problem_responses(404, 409, 422, 503))

    @routes.get("/results", response_model=schemas.Results, responses=CSV)
    def get_results(request: Request, query: Annotated[ResultsQuery, Query()]) -> Response:
        """Every metric of the matching series, windows and slices; with `from` or `to`, of a past range."""
        snapshot = publisher.latest()
        if query.past:
            past = past_results(history, query, snapshot)
            rows = [_row(snapshot, r) for r in past.results]
            body = {**covered(past), **counted(past.matched, query.limit), "results": rows}
            return answer_of_past(snapshot, body, query.table(tables.results))
        found = matching_results(snapshot, query)
        return answer(
            request,
            snapshot,
            lambda: {**counted(found.matched, query.limit), "results": [_row(snapshot, r) for r in found.first]},
            table=query.table(tables.results),
        )

    @routes.get("/buckets", response_model=schemas.Buckets, responses=CSV)
    def get_buckets(request: Request, query: Annotated[BucketsQuery, Query()]) -> Response:
        """pClick bucket tables: predicted against observed; with `from` or `to`, of a past range."""
        snapshot = publisher.latest()
        if query.past:
            past = past_results(history, query, snapshot)
            body = {**covered(past), **_tables(past.results, query, past.matched)}
            return answer_of_past(snapshot, body, query.table(tables.buckets))
        found = matching_results(snapshot, query)
        return answer(
            request,
            snapshot,
            lambda: _tables(found.first, query, found.matched),
            table=query.table(tables.buckets),
        )

    @routes.get("/roc", response_model=schemas.Roc, responses=CSV)
    def get_roc(request: Request, query: Annotated[RocQuery, Query()]) -> Response:
        """The ROC curve of one series in one window, or in a past range, from its score histogram."""
        snapshot = publisher.latest()
        if query.past:
            past = past_result(history, query, snapshot)
            body = {**covered(past), **_roc(snapshot, past.results[0], query.max_points)}
            return answer_of_past(snapshot, body, query.table(tables.roc))
        one = _one_result(snapshot, query)
        return answer(request, snapshot, lambda: _roc(snapshot, one, query.max_points), table=query.table(tables.roc))

    @routes.get("/scores", response_model=schemas.Scores, responses=CSV)
    def get_scores(request: Request, query: Annotated[ScoresQuery, Query()]) -> Response:
        """The scores of one series by label, in bins log-spaced in odds; counts are exact."""
        snapshot = publisher.latest()
        if query.past:
            past = past_result(history, query, snapshot)
            body = {**covered(past), **_scores(past.results[0], query.bins)}
            return answer_of_past(snapshot, body, query.table(tables.scores))
        result = _one_result(snapshot, query)
        return answer(request, snapshot, lambda: _scores(result, query.bins), table=query.table(tables.scores))

    return routes


def _tables(found: Sequence[Result], query: BucketsQuery, matched: int) -> dict[str, Any]:
    tables_of = [_table(r, query.kind) for r in found]
    return {"kind": query.kind, **counted(matched, query.limit), "tables": tables_of}


def _row(snapshot: Snapshot, result: Result) -> dict[str, Any]:
    return {**result_json(result), **role_json(snapshot.roles.get(result.series.plain))}


def _where(result: Result) -> dict[str, Any]:
    return {
        **series_json(result.series),
        "window": result.window,
        "slice": None if result.slice is None else {"dimension": result.slice[0], "value": result.slice[1]},
        "impressions": result.totals.impressions,
        "clicks": result.totals.clicks,
    }


def _scores(result: Result, bins: int) -> dict[str, Any]:
    found = score_bins(result.scores, bins)
    where = _where(result)
    return {
        **where,
        "edges": found.edges.tolist(),
        "impressions": found.impressions.tolist(),
        "clicks": found.clicks.tolist(),
        "impressions_total": where["impressions"],
        "clicks_total": where["clicks"],
    }


def _table(result: Result, kind: str) -> dict[str, Any]:
    buckets = result.buckets if kind == "fixed" else result.quantiles
    return {**_where(result), "buckets": [bucket_json(bucket) for bucket in buckets]}


def _one_result(snapshot: Snapshot, query: OneResultQuery) -> Result:
    results = snapshot.results
    series = one_series(dict.fromkeys(r.series for r in results.overall), query)
    mine = [r for r in results.overall if r.series == series]
    window = query.window or "all"
    if window not in windows(snapshot):
        raise unknown("window", window, windows(snapshot))
    where = one_slice(slice_values(snapshot), query.slice)
    if where is None:
        found = [r for r in mine if r.window == window]
    else:
        found = [row.result() for row in results.slices([series], window, *where)]
    if found:
        return found[0]
    there = "" if where is None else f'slice = "{query.slice}": '
    raise Problem(404, f"{there}this series has no data in window {window} now")


def _roc(snapshot: Snapshot, result: Result, max_points: int) -> dict[str, Any]:
    curve = roc_curve(result.scores, max_points)
    points: list[dict[str, Any]] = []
    if curve is not None:
        rates = (curve.threshold, curve.false_positive_rate, curve.true_positive_rate)
        columns = (*rates, curve.false_positives, curve.true_positives)
        points = [
            {
                "threshold": None if math.isnan(threshold) else threshold,
                "fpr": fpr,
                "tpr": tpr,
                "non_clicks": fp,
                "clicks": tp,
            }
            for threshold, fpr, tpr, fp, tp in zip(*(column.tolist() for column in columns), strict=True)
        ]
    return {
        **_where(result),
        "auc": result.metrics.get("auc"),
        "auc_error": result.metrics.get("auc_error"),
        "operating_range": list(snapshot.options.operating_range),
        "pauc": result.metrics.get("pauc"),
        "pauc_error": result.metrics.get("pauc_error"),
        "reason": None if points else result.reasons.get("auc", "one_class"),
        "points_total": 0 if curve is None else curve.points,
        "points": points,
    }

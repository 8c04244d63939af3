"""Strata of propensity of the windows, and of past ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from streameval.results.publish import Publisher
from streameval.results.result import Result, strata_json
from streameval.server.api import tables
from streameval.server.api.answers import answer, answer_of_past, counted, series_json
from streameval.server.api.past import covered, past_results
from streameval.server.api.queries import StrataQuery
from streameval.server.api.schemas import strata as schemas
from streameval.server.api.selection import matching_results
from streameval.server.api.tables import CSV
from streameval.server.http.problems import problem_responses
from streameval.store.history.reader import HistoryReader


def router(publisher: Publisher, history: HistoryReader | None) -> APIRouter:
    """/api/v1/strata."""
    routes = APIRouter(prefix="/api/v1", tags=["results"], responses=problem_responses(404, 409, 422, 503))

    @routes.get("/strata", response_model=schemas.Strata, responses=CSV)
    def get_strata(request: Request, query: Annotated[StrataQuery, Query()]) -> Response:
        """Results by stratum of propensity, and combined in three ways; with `from` or `to`, of a past range."""
        snapshot = publisher.latest()
        rows = query.table(tables.STRATA[query.rows])
        if query.past:
            past = past_results(history, query.of_results, snapshot)
            body = {**covered(past), **_answer(past.results, past.matched)}
            return answer_of_past(snapshot, body, rows)
        found = matching_results(snapshot, query.of_results)
        return answer(request, snapshot, lambda: _answer(found.first, found.matched), table=rows)

    return routes


def _answer(results: Sequence[Result], matched: int) -> dict[str, Any]:
    return {**counted(matched, len(results)), "tables": [_table(result) for result in results]}


def _table(result: Result) -> dict[str, Any]:
    found = strata_json(result)
    reason = None
    if not found:
        reason = "not_configured"
    elif all(row["inverse_mass"] is None for row in found["strata"]):
        reason = "no_propensities"
    return {
        **series_json(result.series),
        "window": result.window,
        "impressions": result.totals.impressions,
        "clicks": result.totals.clicks,
        "reason": reason,
        "strata": found.get("strata", []),
        "stratified": found.get("stratified", {}),
    }

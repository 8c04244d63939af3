"""One metric over panes."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from streameval.publish import Publisher
from streameval.report import PaneColumns, Snapshot
from streameval.server import schemas
from streameval.server.answers import answer, parse_time, rfc3339, series_json
from streameval.server.problems import bad_parameter, problem_responses, unknown
from streameval.server.queries import SeriesQuery
from streameval.server.selection import matching_series


def router(publisher: Publisher) -> APIRouter:
    """/api/v1/series."""
    routes = APIRouter(prefix="/api/v1", tags=["results"], responses=problem_responses(404, 422))

    @routes.get("/series", response_model=schemas.SeriesAnswer)
    def get_series(request: Request, query: Annotated[SeriesQuery, Query()]) -> Response:
        """A metric of every matching series over its panes, oldest first."""
        snapshot = publisher.latest()
        matching_series(snapshot.panes, query)
        kept = sorted({name for columns in snapshot.panes.values() for name in columns.metrics})
        if snapshot.panes and query.metric not in kept:
            raise unknown("metric over panes", query.metric, kept)
        if query.start is not None and query.end is not None and parse_time(query.start) > parse_time(query.end):
            raise bad_parameter("from", query.start, f'must not be after to = "{query.end}"')
        return answer(request, snapshot, lambda: _lines(snapshot, query))

    return routes


def _lines(snapshot: Snapshot, query: SeriesQuery) -> dict[str, Any]:
    lines = []
    for series in matching_series(snapshot.panes, query):
        columns = snapshot.panes[series]
        first = 0 if query.start is None else int(np.searchsorted(columns.start, parse_time(query.start), "left"))
        last = len(columns.start)
        if query.end is not None:
            last = int(np.searchsorted(columns.start, parse_time(query.end), "right"))
        newest = max(first, last - query.limit)
        lines.append(
            {
                **series_json(series.model, series.version, series.source),
                "truncated": newest > first,
                "points": _points(columns, str(query.metric), slice(newest, last)),
            }
        )
    return {"metric": query.metric, "series": lines}


def _points(columns: PaneColumns, metric: str, rows: slice) -> list[dict[str, Any]]:
    if metric not in columns.metrics:
        return []
    picked = (columns.start, columns.metrics[metric], columns.impressions, columns.clicks, columns.corrected)
    points = []
    for start, value, impressions, clicks, corrected in zip(*(column[rows].tolist() for column in picked), strict=True):
        defined = math.isfinite(value)
        points.append(
            {
                "start": rfc3339(start),
                "value": value if defined else None,
                "reason": None if defined else _reason(impressions, clicks),
                "impressions": impressions,
                "clicks": clicks,
                "corrected": corrected,
            }
        )
    return points


def _reason(impressions: int, clicks: int) -> str:
    if impressions == 0:
        return "no_impressions"
    if clicks == 0:
        return "no_clicks"
    return "no_non_clicks" if clicks == impressions else "no_eligible_group"

"""One metric over panes: those in memory, and before them those of the history."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from streameval.compare.choice import newest_first
from streameval.events import Series
from streameval.publish import Publisher
from streameval.report import PaneColumns, Snapshot
from streameval.server import schemas
from streameval.server.answers import answer, answer_of_past, parse_time, rfc3339, series_json
from streameval.server.past import refusals
from streameval.server.problems import Problem, bad_parameter, problem_responses, unknown
from streameval.server.queries import SeriesQuery
from streameval.server.selection import matching_series, one_slice
from streameval.store.history_reader import HistoryReader
from streameval.store.history_steps import Line, Point
from streameval.store.pane_memory import PaneMemory
from streameval.units import format_duration, parse_duration

MOST_DEPLOYS = 1000  # in one answer


def router(publisher: Publisher, history: HistoryReader | None) -> APIRouter:
    """/api/v1/series."""
    memory = PaneMemory()
    routes = APIRouter(prefix="/api/v1", tags=["results"], responses=problem_responses(404, 409, 422, 503))

    @routes.get("/series", response_model=schemas.SeriesAnswer)
    def get_series(request: Request, query: Annotated[SeriesQuery, Query()]) -> Response:
        """A metric of every matching series over its panes, oldest first."""
        snapshot = publisher.latest()
        if query.start is not None and query.end is not None and parse_time(query.start) > parse_time(query.end):
            raise bad_parameter("from", query.start, f'must not be after to = "{query.end}"')
        if query.step is not None or query.slice != "none":
            with refusals():
                lines = _merged(snapshot, history, memory, query)
            return answer_of_past(snapshot, _body(snapshot, query, lines))
        if history is not None:
            with refusals():
                lines = _with_history(snapshot, history, query)
            return answer_of_past(snapshot, _body(snapshot, query, lines))
        series = matching_series(snapshot.panes, query)
        kept = sorted({name for columns in snapshot.panes.values() for name in columns.metrics})
        if snapshot.panes and query.metric not in kept:
            raise unknown("metric over panes", query.metric, kept)
        return answer(
            request,
            snapshot,
            lambda: _body(snapshot, query, {one: _newest(_in_memory(snapshot, one, query), query) for one in series}),
        )

    return routes


def _with_history(snapshot: Snapshot, history: HistoryReader, query: SeriesQuery) -> dict[Series, Line]:
    """Panes that memory holds are taken from there, all else from the history.

    Where the history has an hour or a day already, that is the point, and not the panes of it in memory.
    """
    stored = history.series_names()
    series = matching_series(dict.fromkeys([*snapshot.panes, *stored]), query)
    start, end = _ends(query)
    skip = {one: set(snapshot.panes[one].start.tolist()) for one in series if one in snapshot.panes}
    past = history.series(str(query.metric), series, start, end, query.limit, skip)
    out = {}
    for one in series:
        line = past.get(one, Line((), False))
        live = _in_memory(snapshot, one, query) if one in snapshot.panes else []
        since = live[0].start if live else 0
        coarse = [p for p in line.points if p.length > snapshot.pane and p.start + p.length > since]
        live = [p for p in live if not any(c.start <= p.start < c.start + c.length for c in coarse)]
        newest = _newest(sorted([*line.points, *live], key=lambda p: p.start), query)
        if newest.points or one in snapshot.panes:
            out[one] = Line(newest.points, newest.truncated or line.truncated)
    return out


def _merged(
    snapshot: Snapshot, history: HistoryReader | None, memory: PaneMemory, query: SeriesQuery
) -> dict[Series, Line]:
    """Steps, or panes of a slice: of what the history holds, without one of the panes in memory."""
    sketches = snapshot.sketches
    if history is None and sketches is None:
        raise Problem(409, "step, slice: no panes are kept to merge; set store.path and start again")
    pane = snapshot.pane if history is None else history.pane
    step = None if query.step is None else parse_duration(query.step)
    if step is not None and step % pane:
        raise bad_parameter("step", str(query.step), f"must be a multiple of windows.pane = {format_duration(pane)}")
    start, end = _ends(query)
    if history is not None:
        series = matching_series(history.series_names(), query)
        where = one_slice(history.slice_names(), query.slice)
        return history.steps(str(query.metric), series, start, end, step, where, query.limit)
    assert sketches is not None
    series = matching_series(snapshot.panes, query)
    values: defaultdict[str, set[str]] = defaultdict(set)
    for _, dimension, value in sketches.slice_rows:
        values[dimension].add(value)
    where = one_slice(values, query.slice)
    return memory.steps(sketches, str(query.metric), series, start, end, step, where, query.limit)


def _newest(points: list[Point], query: SeriesQuery) -> Line:
    return Line(tuple(points[-query.limit :]), len(points) > query.limit)


def _ends(query: SeriesQuery) -> tuple[int | None, int | None]:
    return (
        None if query.start is None else parse_time(query.start),
        None if query.end is None else parse_time(query.end),
    )


def _in_memory(snapshot: Snapshot, series: Series, query: SeriesQuery) -> list[Point]:
    columns = snapshot.panes[series]
    start, end = _ends(query)
    first = 0 if start is None else int(np.searchsorted(columns.start, start, "left"))
    last = len(columns.start) if end is None else int(np.searchsorted(columns.start, end, "right"))
    rows = slice(max(first, last - query.limit - 1), last)  # one more than wanted says that there are more
    return _points(columns, str(query.metric), rows, snapshot.pane)


def _points(columns: PaneColumns, metric: str, rows: slice, length: int) -> list[Point]:
    if metric not in columns.metrics:
        return []
    nothing = np.full(len(columns.start), math.nan)
    errors = {"auc": columns.metrics.get("auc_error", nothing), "gauc": np.zeros(len(columns.start))}
    df_of = columns.gauc_df if metric == "gauc" else columns.df
    picked = (
        columns.start, columns.metrics[metric], columns.impressions, columns.clicks, columns.corrected,
        errors.get(metric, nothing), columns.stderrs.get(metric, nothing), nothing if df_of is None else df_of,
    )  # fmt: skip
    points = []
    for start, value, n, clicks, corrected, error, stderr, df in zip(
        *(column[rows].tolist() for column in picked), strict=True
    ):
        defined = math.isfinite(value)
        known = defined and math.isfinite(stderr)
        points.append(
            Point(
                start=start,
                length=length,
                value=value if defined else None,
                reason=None if defined else _reason(n, clicks),
                impressions=n,
                clicks=clicks,
                corrected=corrected,
                error=error if defined and math.isfinite(error) else None,
                stderr=stderr if known else None,
                stderr_df=df if known and math.isfinite(df) else None,
            )
        )
    return points


def _reason(impressions: int, clicks: int) -> str:
    if impressions == 0:
        return "no_impressions"
    if clicks == 0:
        return "no_clicks"
    return "no_non_clicks" if clicks == impressions else "no_eligible_group"


def _body(snapshot: Snapshot, query: SeriesQuery, lines: dict[Series, Line]) -> dict[str, Any]:
    return {
        "metric": query.metric,
        "slice": query.slice,
        "step": query.step,
        "series": [
            {
                **series_json(series.model, series.version, series.source),
                "truncated": line.truncated,
                **({"columns": _columns(line)} if query.shape == "columns" else {"points": _list(line)}),
            }
            for series, line in lines.items()
        ],
        "deploys": _deploys(snapshot, query, lines),
    }


def _deploys(snapshot: Snapshot, query: SeriesQuery, lines: dict[Series, Line]) -> list[dict[str, Any]]:
    """The newest deploys of these models in the range, oldest first; without `from`, since the first point shown."""
    start, end = _ends(query)
    if start is None:
        start = min((line.points[0].start for line in lines.values() if line.points), default=0)
    models = {series.model for series in lines}
    found = [d for d in snapshot.deploys if d.model in models and start <= d.at and (end is None or d.at <= end)]
    return [
        {"model": d.model, "version": d.version, "kind": d.kind, "at": rfc3339(d.at)}
        for d in reversed(newest_first(found)[:MOST_DEPLOYS])
    ]


def _list(line: Line) -> list[dict[str, Any]]:
    return [
        {
            "start": rfc3339(point.start),
            "seconds": point.length / 1000,
            "value": point.value,
            "stderr": point.stderr,
            "stderr_df": point.stderr_df,
            "reason": point.reason,
            "error": point.error,
            "impressions": point.impressions,
            "clicks": point.clicks,
            "corrected": point.corrected,
        }
        for point in line.points
    ]


def _columns(line: Line) -> dict[str, list[Any]]:
    points = line.points
    return {
        "start": [point.start / 1000 for point in points],
        "seconds": [point.length / 1000 for point in points],
        "value": [point.value for point in points],
        "stderr": [point.stderr for point in points],
        "stderr_df": [point.stderr_df for point in points],
        "error": [point.error for point in points],
        "impressions": [point.impressions for point in points],
        "clicks": [point.clicks for point in points],
    }

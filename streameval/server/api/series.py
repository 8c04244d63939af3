"""One metric over panes: those in memory, and before them those of the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from streameval.compare.reading.choice import newest_first
from streameval.events.batch import Series
from streameval.results.lines import Line, PaneSource, QuestionSlots
from streameval.results.pane_memory import PaneMemory
from streameval.results.publish import Publisher
from streameval.results.snapshot import Snapshot
from streameval.server.api import tables
from streameval.server.api.answers import answer, answer_of_past, parse_time, rfc3339, series_json
from streameval.server.api.past import refusals
from streameval.server.api.queries import SeriesQuery
from streameval.server.api.schemas import results as schemas
from streameval.server.api.selection import matching_series, one_slice, slice_values
from streameval.server.api.tables import CSV
from streameval.server.http.problems import bad_parameter, problem_responses
from streameval.settings.units import format_duration, parse_duration
from streameval.store.history.live import LiveHistory
from streameval.store.history.reader import HistoryReader

_MOST_DEPLOYS = 1000  # in one answer


def router(publisher: Publisher, history: HistoryReader | None) -> APIRouter:
    """/api/v1/series."""
    turns = QuestionSlots()
    routes = APIRouter(prefix="/api/v1", tags=["results"], responses=problem_responses(404, 409, 422, 503))

    @routes.get("/series", response_model=schemas.SeriesAnswer, responses=CSV)
    def get_series(request: Request, query: Annotated[SeriesQuery, Query()]) -> Response:
        """A metric of every matching series over its panes, oldest first."""
        snapshot = publisher.latest()
        if query.start is not None and query.end is not None and parse_time(query.start) > parse_time(query.end):
            raise bad_parameter("from", query.start, f'must not be after to = "{query.end}"')
        memory = PaneMemory(snapshot, turns)
        with refusals():
            lines = _asked(memory if history is None else LiveHistory(memory, history, slice_values(snapshot)), query)
            if history is not None:
                return answer_of_past(snapshot, _body(snapshot, query, lines()), query.table(tables.series))
            return answer(request, snapshot, lambda: _body(snapshot, query, lines()), table=query.table(tables.series))

    return routes


def _asked(source: PaneSource, query: SeriesQuery) -> Callable[[], dict[Series, Line]]:
    """The function that answers the query, once everything that it names has been found."""
    metric, (start, end) = str(query.metric), _ends(query)
    if query.step is None and query.slice == "none":
        series = matching_series(source.series_names(), query)
        return lambda: source.series(metric, series, start, end, query.limit)
    values = source.slice_names()
    step = None if query.step is None else parse_duration(query.step)
    if step is not None and step % source.pane:
        multiple = format_duration(source.pane)
        raise bad_parameter("step", str(query.step), f"must be a multiple of windows.pane = {multiple}")
    series = matching_series(source.series_names(), query)
    where = one_slice(values, query.slice)
    return lambda: source.steps(metric, series, start, end, step, where, query.limit)


def _ends(query: SeriesQuery) -> tuple[int | None, int | None]:
    return (
        None if query.start is None else parse_time(query.start),
        None if query.end is None else parse_time(query.end),
    )


def _body(snapshot: Snapshot, query: SeriesQuery, lines: Mapping[Series, Line]) -> dict[str, Any]:
    return {
        "metric": query.metric,
        "slice": query.slice,
        "step": query.step,
        "series": [
            {
                **series_json(series),
                "truncated": line.truncated,
                **(
                    {"columns": _columns(line)}
                    if query.shape == "columns" and query.format == "json"
                    else {"points": _list(line)}
                ),
            }
            for series, line in lines.items()
        ],
        "deploys": _deploys(snapshot, query, lines),
    }


def _deploys(snapshot: Snapshot, query: SeriesQuery, lines: Mapping[Series, Line]) -> list[dict[str, Any]]:
    """The newest deploys of these models in the range, oldest first; without `from`, since the first point shown."""
    start, end = _ends(query)
    if start is None:
        start = min((line.points[0].start for line in lines.values() if line.points), default=0)
    models = {series.model for series in lines}
    found = [d for d in snapshot.deploys if d.model in models and start <= d.at and (end is None or d.at <= end)]
    return [
        {"model": d.model, "version": d.version, "kind": d.kind, "at": rfc3339(d.at)}
        for d in reversed(newest_first(found)[:_MOST_DEPLOYS])
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

"""Queries about the past (`from`, `to`), answered by the history, and its refusals as problems."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from streameval.results.lines import Busy, NotKept, TooMuch
from streameval.results.snapshot import Snapshot
from streameval.server.api.answers import parse_time, rfc3339
from streameval.server.api.queries import OneResultQuery, PastQuery, ResultsQuery
from streameval.server.api.selection import matching_series, one_series, one_slice, parse_slice
from streameval.server.http.problems import Problem, bad_parameter
from streameval.store.errors import StoreError
from streameval.store.history.reader import HistoryReader, RangeResults

log = logging.getLogger(__name__)


@contextmanager
def refusals() -> Iterator[None]:
    """Refusals of pane sources, as problems."""
    try:
        yield
    except TooMuch as error:
        raise Problem(422, f"from, to: {error}") from error
    except NotKept as error:
        raise Problem(409, str(error)) from error
    except Busy as error:
        raise Problem(503, str(error), headers={"Retry-After": "1"}) from error
    except StoreError as error:
        log.error("%s", error)  # paths are for the log only
        raise Problem(503, "the history cannot be read now; the server's log says why") from error


def past_results(history: HistoryReader | None, query: ResultsQuery, snapshot: Snapshot) -> RangeResults:
    """The results of a past range that the query asks for, its limit applied; `snapshot`: see `_marked`."""
    there = _asked(history, query, query.window)
    start, end = _ends(query)
    with refusals():
        series = matching_series(there.series_names(), query)
        values = there.slice_names()
        dimension, value = parse_slice(values, query.slice)
        slices: list[tuple[str, str] | None] | None = None
        if dimension is not None:
            slices = [(dimension, name) for name in values[dimension] if value in (None, name)]
        elif query.slice is not None:
            slices = [None]
        return _marked(there.range(series, start, end, slices, query.limit, scores=False), snapshot)


def past_result(history: HistoryReader | None, query: OneResultQuery, snapshot: Snapshot) -> RangeResults:
    """The one result of a past range; 404 when there is nothing in it."""
    there = _asked(history, query, query.window)
    start, end = _ends(query)
    with refusals():
        series = one_series(there.series_names(), query)
        found = there.range([series], start, end, [one_slice(there.slice_names(), query.slice)])
    if not found.results:
        held = there.range([series], None, None, [None], limit=0).coverage
        raise Problem(
            404,
            f"from, to: this series has no data there; the history reaches from {rfc3339(held.first)} "
            f"to {rfc3339(held.last)}",
        )
    return _marked(found, snapshot)


def covered(past: RangeResults) -> dict[str, Any]:
    """The member `range` of an answer."""
    c = past.coverage
    return {
        "range": {
            "from": rfc3339(c.start),
            "to": rfc3339(c.end),
            "first": rfc3339(c.first),
            "last": rfc3339(c.last),
            "panes": c.panes,
            "panes_expected": c.expected,
            "share": c.panes / c.expected if c.expected else None,
            "complete": c.expected > 0 and c.panes == c.expected,
        }
    }


def _marked(found: RangeResults, snapshot: Snapshot) -> RangeResults:
    """With the reason of the latest stretch in the range whose labels are known to be wrong."""
    start, end = found.coverage.start, found.coverage.end
    why = next((why for first, last, why in reversed(snapshot.doubtful) if first < end and last > start), None)
    if why is None:
        return found
    results = (replace(r, reliable=False, reliable_reason=r.reliable_reason or why) for r in found.results)
    return replace(found, results=tuple(results))


def _asked(history: HistoryReader | None, query: PastQuery, window: str | None) -> HistoryReader:
    if history is None:
        raise Problem(409, "from, to: no history is kept; set store.path and restart")
    if window is not None:
        raise bad_parameter("window", window, "ends now; leave it out, or leave out from and to")
    return history


def _ends(query: PastQuery) -> tuple[int | None, int | None]:
    start = None if query.start is None else parse_time(query.start)
    end = None if query.end is None else parse_time(query.end)
    if start is not None and end is not None and start >= end:
        raise bad_parameter("from", str(query.start), f'must be before to = "{query.end}"')
    return start, end

"""Finds what a query names in a snapshot; an unknown name is a 404 that says which there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from streameval.compare.reading.reading import Comparison
from streameval.events.batch import Series
from streameval.results.result import Result
from streameval.results.snapshot import Snapshot
from streameval.results.window_slices import SliceRow
from streameval.server.api.queries import ResultsQuery, SeriesFilter
from streameval.server.http.problems import Problem, bad_parameter, listed, quoted, unknown


def matching_series(known: Iterable[Series], which: SeriesFilter) -> list[Series]:
    """The known series that the query asks for, in their order; an empty list only if the query names none."""
    left = list(known)
    if which.objective is None:
        left = [series for series in left if not series.objective]
    elif which.objective != "*":
        there = sorted({series.objective for series in left} - {""})
        left = [series for series in left if series.objective == which.objective]
        if not left:
            raise unknown("objective", which.objective, there)
    for kind in ("model", "version", "source"):
        value = getattr(which, kind)
        if value is not None:
            there = sorted({getattr(series, kind) for series in left})
            left = [series for series in left if getattr(series, kind) == value]
            if not left:
                raise unknown(kind, value, there)
    return left


def one_series(known: Iterable[Series], which: SeriesFilter) -> Series:
    """The one series that the query asks for; 422 when several fit, 404 when there is none."""
    left = matching_series(known, which)
    if not left:
        raise Problem(404, "there is no model yet; one appears with its first impression")
    if len(left) > 1:
        fits = [f"model={s.model}&version={s.version}&source={s.source}{_and_objective(s)}" for s in left[:20]]
        raise bad_parameter("model", which.model or "", f"{len(left)} series fit; name one of: {'; '.join(fits)}")
    return left[0]


def _and_objective(series: Series) -> str:
    return f"&objective={series.objective}" if series.objective else ""


class Matching(NamedTuple):
    """The first results that a query asks for, up to its limit, and how many there are."""

    first: list[Result]
    matched: int


def matching_results(snapshot: Snapshot, query: ResultsQuery) -> Matching:
    """The results that the query asks for, in the snapshot's order."""
    results = snapshot.results
    series = set(matching_series(dict.fromkeys(r.series for r in results.overall), query))
    if query.window is not None:
        known = windows(snapshot)
        if known and query.window not in known:
            raise unknown("window", query.window, known)
    dimension, value = parse_slice(slice_values(snapshot), query.slice)
    overall: list[Result] = []
    rows: list[SliceRow] = []
    if dimension is None:
        overall = [r for r in results.overall if r.series in series and query.window in (None, r.window)]
    if query.slice is None or dimension is not None:
        rows = results.slices(series, query.window, dimension, value)
    first = [*overall[: query.limit], *(row.result() for row in rows[: max(0, query.limit - len(overall))])]
    return Matching(first, len(overall) + len(rows))


def windows(snapshot: Snapshot) -> list[str]:
    """The names of all windows; none before the first snapshot."""
    return list(dict.fromkeys((*snapshot.windows, *(r.window for r in snapshot.results.overall))))


def models(snapshot: Snapshot) -> list[str]:
    """The names of every model that has results, deploys or comparisons."""
    names = {r.series.model for r in snapshot.results.overall} | {d.model for d in snapshot.deploys}
    return sorted(names | {c.candidate.model for c in snapshot.comparisons})


def warning_of_unseen(snapshot: Snapshot, model: str) -> str | None:
    """A model without any traffic, while others have some, may be misspelt: says which have; else None.

    A new model is announced before its first impression, so that is no error.
    """
    deployed = {d.model for d in snapshot.deploys if d.noticed is not None}
    seen = sorted(deployed | {r.series.model for r in snapshot.results.overall})
    if not seen or model in seen:
        return None
    return f"model {quoted(model)} has no impression in any window, and no deploy on record; those that have are: {listed(seen)}"


def check_model(snapshot: Snapshot, model: str | None) -> None:
    """An unknown model is a 404, and a 503 before anything is known; None is none in particular."""
    known = models(snapshot)
    if model is not None and not known and not snapshot.ready.get("assigned", True):
        raise Problem(503, "no partition is assigned yet: nothing is known of any model", headers={"Retry-After": "5"})
    if model is not None and model not in known:
        raise unknown("model", model, known)


def one_comparison(snapshot: Snapshot, id: str) -> Comparison:
    """The comparison with this id; 404 when there is none."""
    for comparison in snapshot.comparisons:
        if comparison.id == id:
            return comparison
    raise unknown("comparison", id, [comparison.id for comparison in snapshot.comparisons])


def slice_values(snapshot: Snapshot) -> dict[str, list[str]]:
    """The values of every dimension that has results, in the snapshot's order."""
    values: dict[str, list[str]] = {}
    for dimension, value in snapshot.results.names():
        values.setdefault(dimension, []).append(value)
    return values


def parse_slice(values: Mapping[str, Collection[str]], text: str | None) -> tuple[str | None, str | None]:
    """(dimension, value) of `dimension` or `dimension:value`; (None, None) for `none` and for no slice at all.

    Either side may hold colons: the dimension is one that is known. `values`: by dimension.
    """
    if text is None or text == "none":
        return None, None
    if text in values:
        return text, None
    for dimension in sorted(values, key=len, reverse=True):
        if text.startswith(dimension + ":"):
            value = text[len(dimension) + 1 :]
            if value not in values[dimension]:
                raise unknown(f"slice {dimension}", value, sorted(values[dimension]))
            return dimension, value
    raise unknown("slice", text, ["none", *sorted(values)])


def one_slice(values: Mapping[str, Collection[str]], text: str) -> tuple[str, str] | None:
    """The one slice that a text names, None for `none`; 422 when it names a whole dimension, 404 when there is none."""
    dimension, value = parse_slice(values, text)
    if dimension is not None and value is None:
        raise bad_parameter("slice", text, f"names a dimension; one curve needs one value, {dimension}:<value>")
    return None if dimension is None or value is None else (dimension, value)

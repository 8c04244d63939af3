"""`format=csv`: the rows of an answer as a table, made of the JSON body, so that both have the same numbers.

A header and one line per row. Nested objects become columns joined by `_`; lists and reasons stay in the JSON. Undefined is empty.
Names that a spreadsheet would take for a formula get an apostrophe before them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Body = Mapping[str, Any]
TabularBody = Callable[[Body], Iterable[Mapping[str, Any]]]

CSV: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}  # for OpenAPI
_NAMES = ("model", "version", "source", "objective", "window")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """The text; the columns are those of all rows, in the order in which they come."""
    flat = [dict(_flat(row)) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    out = io.StringIO()
    # Python quotes a line's end, and until 3.13 not a lone carriage return, which readers take for one
    returns = any("\r" in cell for row in flat for cell in row.values() if isinstance(cell, str))
    writer = csv.DictWriter(
        out,
        names,
        restval="",
        lineterminator="\n",
        quoting=csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL,
    )
    if names:
        writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def _flat(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            if name != "reasons":
                yield from _flat(value, f"{before}{name}_")
        elif not isinstance(value, (list, tuple)):
            yield before + name, _cell(value)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _of(body: Body, *more: str) -> dict[str, Any]:
    return {name: body[name] for name in (*_NAMES, *more) if name in body}


def _placed(row: Body) -> dict[str, Any]:
    """Adds columns for the slice, also where there is none."""
    return {**row, "slice": row["slice"] or {"dimension": None, "value": None}}


def _bins(body: Body, *counts: str) -> Iterator[Body]:
    """The bins between edges, one more than there are counts."""
    for lower, upper, *bin in zip(body["edges"], body["edges"][1:], *(body[name] for name in counts), strict=False):
        yield {"lower": lower, "upper": upper, **dict(zip(counts, bin, strict=True))}


def results(body: Body) -> Iterator[Body]:
    """A row per result."""
    for row in body["results"]:
        yield {name: value for name, value in _placed(row).items() if name not in ("strata", "stratified")}


def buckets(body: Body) -> Iterator[Body]:
    """A row per pClick bucket."""
    for table in body["tables"]:
        for bucket in table["buckets"]:
            yield {**_of(_placed(table), "slice"), **bucket}


def roc(body: Body) -> Iterator[Body]:
    """A row per point of the curve."""
    for point in body["points"]:
        yield {**_of(_placed(body), "slice"), **point}


def scores(body: Body) -> Iterator[Body]:
    """A row per bin of scores."""
    for one in _bins(body, "impressions", "clicks"):
        yield {**_of(_placed(body), "slice"), **one}


def series(body: Body) -> Iterator[Body]:
    """A row per series and pane."""
    for line in body["series"]:
        for point in line["points"]:
            yield {**_of(line), "metric": body["metric"], **point}


def users(body: Body) -> Iterator[Body]:
    """A row per user."""
    for user in body["users"]:
        yield {**_of(body), **user}


def one_user(body: Body) -> Iterator[Body]:
    """A row per series."""
    for row in body["series"]:
        yield {"user": body["user"], **row}


def distribution(body: Body) -> Iterator[Body]:
    """A row per bin."""
    for one in _bins(body, "users", "impressions"):
        yield {**_of(body), "metric": body["metric"], **one}


def _strata(body: Body) -> Iterator[Body]:
    """A row per stratum."""
    for table in body["tables"]:
        for stratum in table["strata"]:
            yield {**_of(table), **stratum}


def _stratified(body: Body) -> Iterator[Body]:
    """A row per metric that is combined from strata, a column by weighting."""
    for table in body["tables"]:
        for metric, weightings in table["stratified"].items():
            yield {**_of(table), "metric": metric, **weightings}


STRATA: Mapping[str, TabularBody] = {"strata": _strata, "stratified": _stratified}


def comparisons(body: Body) -> Iterator[Body]:
    """A row per comparison and metric; columns of the whole comparison begin with `comparison_`, except its names."""
    for one in body["comparisons"]:
        yield from metrics(one)


def metrics(one: Body) -> Iterator[Body]:
    """A row per metric of a comparison."""
    whole = ("verdict", "decided_at", "supported_now", "withheld", "looked", "impressions", "clicks", "alpha")
    named = {
        "id": one["id"],
        "model": one["model"],
        "baseline": one["baseline"]["version"],
        "candidate": one["candidate"]["version"],
    }
    for metric in one["metrics"]:
        values = {
            f"{name}_value" if name in ("baseline", "candidate") else name: value for name, value in metric.items()
        }
        yield {**named, "setup": one["setup"], **{f"comparison_{name}": one[name] for name in whole}, **values}


def changes(one: Body) -> Iterator[Body]:
    """A row per change of the verdict of a comparison, with the names of the receivers notified."""
    for change in one["changes"]:
        names = (t["receiver"] + (" (muted)" if t["state"] == "muted" else "") for t in change["told"])
        yield {"id": one["id"], **change, "told": ", ".join(names)}


def part(name: str) -> TabularBody:
    """The rows of a list of one comparison: `metrics`, `looks`, or one of its other lists."""
    if name in ("metrics", "changes"):
        return metrics if name == "metrics" else changes
    return lambda body: ({"id": body["id"], **row} for row in body[name])


def deploys(body: Body) -> Iterable[Body]:
    """A row per deploy."""
    found: list[Body] = body["deploys"]
    return found


def dead_letters(body: Body) -> Iterable[Body]:
    """A row per sample."""
    found: list[Body] = body["samples"]
    return found


def auctions(body: Body) -> Iterable[Body]:
    """A row per window, version and operating point."""
    found: list[Body] = body["auctions"]
    return found


def _partitions(body: Body) -> Iterator[Body]:
    """A row per partition; what is kept by topic has a column for each, the lag also one for their sum."""
    for row in body["partitions"]:
        lag, offsets = (_by_topic(row[name]) for name in ("lag", "offsets"))
        yield {**row, "consumer_lag": sum(lag.values()), "lag": lag, "offsets": offsets}


def _by_topic(places: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in places:
        found[one["topic"]] = found.get(one["topic"], 0) + one["value"]
    return found


def _outcomes(body: Body) -> Iterator[Body]:
    """A row per outcome of events, and per reason where there are several."""
    for name, value in body["events"].items():
        if isinstance(value, Mapping):
            yield from ({"outcome": name, "reason": reason, "events": n} for reason, n in value.items())
        else:
            yield {"outcome": name, "reason": None, "events": value}


def _stages(body: Body) -> Iterator[Body]:
    """A row per stage."""
    uptime = body["uptime_seconds"]
    return ({"stage": name, "seconds": n, "uptime_seconds": uptime} for name, n in body["stage_seconds"].items())


def _memory(body: Body) -> Iterator[Body]:
    """A row per table or limit."""
    sizes, used = body["table_bytes"], body["budget_used"]
    for name in dict.fromkeys((*sizes, *used)):
        yield {"name": name, "bytes": sizes.get(name), "budget_used": used.get(name)}


STATUS: Mapping[str, TabularBody] = {
    "partitions": _partitions,
    "events": _outcomes,
    "stages": _stages,
    "memory": _memory,
}

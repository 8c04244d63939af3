"""What answering a query would read, before it is read: rows and bytes, by series and slice, slot or step."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence

from streameval.events.batch import Series
from streameval.metrics.registry import by_name
from streameval.results.lines import Interval, Slice, Steps
from streameval.store.history.cover import RANGE, Coverage, Slot
from streameval.store.history.format import NO_SLICE
from streameval.store.history.names import name_order, series_by_id, slices_by_id


def pair_costs(
    db: sqlite3.Connection, coverage: Coverage, series: Sequence[Series], slices: Sequence[Slice] | None
) -> dict[tuple[int, int], tuple[int, int]]:
    """(rows, bytes) of every (series, slice) id with impressions in the range, in the order of their names."""
    series_ids, slice_ids = series_by_id(db), slices_by_id(db)
    some = None if slices is None else set(slices)
    only = " AND slice = 0" if some == {None} else ""
    within = (coverage.start, coverage.end)
    samples = dict(
        db.execute(f"SELECT series, sum(length(entries)) FROM samples WHERE {RANGE} GROUP BY series", within)
    )
    names = {}
    for one, where, impressions, rows, size in db.execute(
        "SELECT series, slice, sum(impressions), count(*), sum(bytes) FROM vectors INDEXED BY vectors_by_time "
        f"WHERE {RANGE}{only} GROUP BY series, slice",
        within,
    ):
        if impressions and series_ids[one] in series and (some is None or slice_ids[where] in some):
            more = samples.get(one, 0) if where == NO_SLICE else 0
            names[one, where] = (rows, size + more)
    return dict(
        sorted(
            names.items(),
            key=lambda item: (item[0][1] != NO_SLICE, name_order(series_ids[item[0][0]]), slice_ids[item[0][1]] or ()),
        )
    )


def slot_costs(
    db: sqlite3.Connection,
    series: int,
    metric: str,
    lengths: Sequence[int],
    within: dict[Slot, Slot],
    wanted: set[Slot],
) -> dict[Slot, tuple[int, int, int]]:
    """(rows, bytes, bytes without the scores) of one series, by those of the wanted slots in which it has any."""
    if not wanted:
        return {}
    # what is in a slot begins in it
    ends = (start + lengths[level] for level, start in wanted)
    mine = (series, min(start for _, start in wanted), max(ends))
    out: defaultdict[Slot, list[int]] = defaultdict(lambda: [0, 0, 0])
    query = f"SELECT level, start, bytes, length(sums) FROM vectors WHERE series = ? AND slice = {NO_SLICE} AND {RANGE}"
    for level, start, cost, of_sums in db.execute(query, mine):
        slot = within[level, start]
        if slot in wanted:
            for k, added in enumerate((1, cost, of_sums)):
                out[slot][k] += added
    if by_name(metric).needs == "users":
        query = f"SELECT level, start, length(entries) FROM samples WHERE series = ? AND {RANGE}"
        for level, start, cost in db.execute(query, mine):
            if within[level, start] in out:
                out[within[level, start]][1] += cost
                out[within[level, start]][2] += cost
    return {slot: (rows, cost, of_sums) for slot, (rows, cost, of_sums) in out.items()}


def step_costs(
    db: sqlite3.Connection, coverage: Coverage, series: int, where: int, metric: str, steps: Steps
) -> dict[Interval, tuple[int, int, int]]:
    """(rows, bytes, bytes without the scores) of one series in a slice, by the steps in which it has any."""
    out: defaultdict[Interval, list[int]] = defaultdict(lambda: [0, 0, 0])
    within = (coverage.start, coverage.end)
    query = f"SELECT start, impressions, bytes, length(sums) FROM vectors WHERE series = ? AND slice = ? AND {RANGE}"
    counted = set()
    for one in dict.fromkeys((where, NO_SLICE)):  # of a slice, also the whole, for its design effect
        for start, impressions, size, sums in db.execute(query, (series, one, *within)):
            at = steps.of(start)
            if one == where or at in counted:
                cost = out[at]
                cost[0] += 1
                cost[1] += size
                cost[2] += sums if one == where else 0
            if one == where and impressions:
                counted.add(at)
    if by_name(metric).needs == "users" and where == NO_SLICE:
        query = f"SELECT start, length(entries) FROM samples WHERE series = ? AND {RANGE}"
        for start, size in db.execute(query, (series, *within)):
            out[steps.of(start)][1] += size
            out[steps.of(start)][2] += size
    return {at: (cost[0], cost[1], cost[2]) for at, cost in out.items() if at in counted}

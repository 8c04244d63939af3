"""Auctions of a running stream: every request is run again once it is complete, by what was known at the start of its hour.

Candidates, shown or not, wait here until the watermark is `request_gap` past their request's last one. Its sums go to the pane
of its first one. Labels count from the hour after the one in which they became final, so no click pays for its own
replay. Everything follows from a partition's own events, in any order within the lateness; what comes later is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.auction.gather import arranged, auctions_of, left_out, query_of, unfit
from streameval.auction.pairs import PairHistory, pair_of, placed_keys
from streameval.auction.points import operating_points, tally_names, through_name
from streameval.auction.rerun import AUCTIONS_RUN, AUCTIONS_SERVED, Residuals, run_through
from streameval.events.batch import NO_IMPRESSIONS, Codes, Impressions, Shadow
from streameval.events.columns import (
    PLAIN,
    concat_impressions,
    cut_impressions,
    field_of,
    span,
    take_impressions,
)
from streameval.events.durations import HOUR
from streameval.settings.measures import Auction
from streameval.sketches.blocks import BLOCKS, blocks_of
from streameval.sketches.directory import mix
from streameval.sketches.list_cells import GROUP_SHIFT

_MOST_CANDIDATES = 10_000  # of a request; one that has more is left out
_MOST_WAITING = 1 << 21  # candidates; about 150 bytes each
_FEW = 1 << 12  # candidates; a part of fewer is put together with those beside it
_NEVER = -(1 << 62)


class PointRows(NamedTuple):
    """Sums of one pane at one operating point: row i for series[i] and block[i] of users, int64[n, cells of the tally]."""

    pane: int
    tally: str
    series: NDArray[np.int32]
    block: NDArray[np.int64]
    cells: NDArray[np.int64]


def keys_of(impressions: Impressions, slots: int) -> NDArray[np.uint64]:
    """What `LiveAuctions.label` is told of impressions that were shown: 0 of those that are no part of a history."""
    pair = pair_of(query_of(impressions), impressions.item)
    keys = placed_keys(pair, field_of(impressions, "position"), slots)
    return np.where(impressions.item == 0, np.uint64(0), keys)


class LiveAuctions:
    """The auctions of one partition."""

    def __init__(self, settings: Auction, pane: int, gap: int, ahead: int) -> None:
        """`pane`, `gap` (how far apart candidates of one request may be) and `ahead` (of the watermark) in ms."""
        self._settings = settings
        self._points, self._names = operating_points(settings), tally_names(settings)
        self._pane, self._gap, self._ahead = pane, gap, ahead
        self.history = PairHistory(settings.slots, settings.curve, max(1, settings.history // HOUR), settings.memory)
        self._shown: list[Impressions] = []
        self._others: list[Impressions] = []
        self._done = _NEVER  # ms, on a pane's boundary: requests that ended before it have been run
        self.skipped: Counter[str] = Counter()

    def shown(self, impressions: Impressions) -> None:
        """New impressions that are not late."""
        self._wait(self._shown, impressions)

    def candidates(self, impressions: Impressions, watermark: int) -> None:
        """Candidates that were not shown."""
        late, runaway = impressions.ts < self._done, impressions.ts > max(watermark, self._done) + self._ahead
        bad = late | (runaway if watermark != _NEVER else np.zeros(len(impressions), np.bool_))
        self.skipped["late_candidates"] += int(np.count_nonzero(late))
        self.skipped["runaway_candidates"] += int(np.count_nonzero(bad & ~late))
        on = np.flatnonzero(~bad)
        self._wait(self._others, impressions if on.size == bad.size else _taken(impressions, on))

    def label(
        self, key: NDArray[np.uint64], label: NDArray[np.int8], final: NDArray[np.int64], user: NDArray[np.uint64]
    ) -> None:
        """Labels, when they became final (ms), and whose they are."""
        self.history.add(key, label, final, blocks_of(user).astype(np.int64) >> GROUP_SHIFT)

    def run_due(self, watermark: int) -> list[PointRows]:
        """Runs the requests that are complete, oldest hour first."""
        done = (watermark - self._gap) // self._pane * self._pane
        if watermark == _NEVER or done <= self._done:
            return []
        self._done = done
        out = self._run_waiting() if len(self) else []
        self.history.forget_before(done // HOUR - 1)
        self.history.forget_tables_before((done - self._gap) // HOUR)
        return out

    def series_in_use(self) -> set[int]:
        """The series that candidates which wait were scored by."""
        parts = [*self._shown, *self._others]
        columns = [part.series for part in parts] + [part.shadow.series for part in parts if part.shadow is not None]
        return set(np.unique(np.concatenate([np.empty(0, np.int32), *columns])).tolist())

    def __len__(self) -> int:
        return sum(map(len, (*self._shown, *self._others)))

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything, for `restore`: columns that nobody changes."""
        waiting = (concat_impressions(parts or [NO_IMPRESSIONS]) for parts in (self._shown, self._others))
        return {
            "done": self._done,
            "skipped": dict(self.skipped),
            "history": self.history.state(),
            "waiting": [_packed(part) for part in waiting],
        }

    def restore(self, state: Mapping[str, Any], codes: Codes) -> None:
        """Takes over what `state` gave."""
        self._done, self.skipped = state["done"], Counter(state["skipped"])
        self.history.restore(state["history"])
        self._shown, self._others = ([_unpacked(one, codes)] if len(one["id"]) else [] for one in state["waiting"])

    # -- inside --------------------------------------------------------------------------------------------------

    def _wait(self, parts: list[Impressions], impressions: Impressions) -> None:
        on = np.flatnonzero(impressions.request != 0)
        self.skipped["no_request"] += len(impressions) - on.size
        if len(self) + on.size > _MOST_WAITING:  # of a stream whose watermark stands still
            self.skipped["no_room"] += on.size
            return
        if on.size:
            parts.append(_plain(impressions) if on.size == len(impressions) else _taken(impressions, on))

    def _run_waiting(self) -> list[PointRows]:
        """Runs the requests that ended before `_done`; the others go on waiting."""
        on, off = _fewer(self._shown), _fewer(self._others)
        request, ts = (np.concatenate([getattr(part, name) for part in (*on, *off)]) for name in ("request", "ts"))
        number, begin, due, waits = self._complete(request, ts)
        shown = sum(map(len, on))
        self._shown, self._others = _those(on, waits[:shown]), _those(off, waits[shown:])
        complete = np.flatnonzero(due)
        if not complete.size:
            return []
        pane = begin // self._pane
        rank = np.empty(pane.size, np.int64)  # requests by pane, so that those of one pane stand together
        rank[np.argsort(pane, kind="stable")] = np.arange(pane.size)
        rows = concat_impressions([*_those(on, due[:shown]), *_those(off, due[shown:])])
        rows = replace(rows, request=rank[number[complete]].astype(np.uint64) + np.uint64(1))
        return self._run(rows, *arranged(rows, complete < shown), np.sort(pane))

    def _complete(
        self, request: NDArray[np.uint64], ts: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
        """(number of the request of each row, when each request began; whether a row's is complete, whether it waits).

        Neither: it has too many.
        """
        number, size, first, last = _grouped(request, ts)
        if not (last - first <= self._gap).all():
            order = np.lexsort((ts, request))
            begins = np.ones(order.size, np.bool_)  # an id that comes again after the gap is another request
            begins[1:] = (np.diff(request[order]) != 0) | (np.diff(ts[order]) > self._gap)
            number[order] = np.cumsum(begins) - 1
            ends = np.append(np.flatnonzero(begins)[1:], order.size) - 1
            size, first, last = np.diff(ends, prepend=-1), ts[order[begins]], ts[order[ends]]
        crowded, over = size > _MOST_CANDIDATES, last < self._done
        self.skipped["too_many_candidates"] += int(np.count_nonzero(crowded))
        return number, first, (over & ~crowded)[number], (~over & ~crowded)[number]

    def _run(
        self, rows: Impressions, on: NDArray[np.int64], position: NDArray[np.float64], panes: NDArray[np.int64]
    ) -> list[PointRows]:
        """The rows `on`, as they are arranged, with their positions; request r is of panes[r - 1]."""
        number = rows.request[on].astype(np.int64) - 1
        pair = pair_of(query_of(rows)[on], rows.item[on])
        hours = panes * self._pane // HOUR  # ascending, as the numbers are
        asked = [int(hours[number[low]]) for low, _ in _runs(hours[number])]
        unknown = [hour for hour in asked if not self.history.at(hour).tables.shown.any()]
        wrong = {
            **unfit(rows, on, position, self._settings.slots),
            "not_sampled": ~self.history.knows(pair),
            "no_history": np.isin(hours, unknown)[number],
        }
        gone, counts = left_out(number, wrong)
        self.skipped.update(counts)
        if gone.any():
            stay = np.flatnonzero(~gone[number])
            if not stay.size:
                return []
            on, position, pair, number = on[stay], position[stay], pair[stay], number[stay]
        auctions, versions = auctions_of(rows, on, np.empty(pair.size, np.int32))
        first = auctions.indptr[:-1]
        codes = np.array([*versions, -1], np.int64)
        own = rows.series[on[first]]
        server = np.searchsorted(codes[:-1], own)
        server = np.where(np.isfinite(position[first]) & (codes[server] == own), server, len(versions))
        panes, series = panes[number[first]], np.array(versions, np.int32)
        out = []
        for low, high in _runs(panes * self._pane // HOUR):
            known = self.history.at(int(panes[low]) * self._pane // HOUR)
            some = slice(int(auctions.indptr[low]), int(auctions.indptr[high]))
            pairs, auctions.pair[some] = self.history.rows(known, pair[some])
            tables, rest = known.tables._replace(rate=pairs.rate), Residuals(pairs.owed, known.of_position)
            for begin, end in _runs(panes[low:high]):
                inside = slice(low + begin, low + end)
                indptr = auctions.indptr[inside.start : inside.stop + 1]
                mine = auctions._replace(indptr=indptr, block=auctions.block[inside])
                sums, through = run_through(mine, tables, self._points, rest)
                served = np.bincount(server[inside] * BLOCKS + mine.block, minlength=(series.size + 1) * BLOCKS)
                sums[..., AUCTIONS_SERVED] += served.reshape(-1, 1, BLOCKS)[: series.size]
                out += self._rows(int(panes[inside.start]), sums, through, series)
        return out

    def _rows(
        self, pane: int, sums: NDArray[np.int64], through: NDArray[np.int64], series: NDArray[np.int32]
    ) -> list[PointRows]:
        """What `run_through` gave, as rows; `series`: of its versions."""
        # a request is run at every operating point or at none
        v, block = np.nonzero(sums[:, 0, :, [AUCTIONS_RUN, AUCTIONS_SERVED]].any(axis=0))
        of_blocks, through = sums[v, :, block], through.reshape(*through.shape[:2], -1)
        some = np.flatnonzero(through.any(axis=(1, 2)))
        out = []
        for point, name in enumerate(self._names):
            out.append(PointRows(pane, name, series[v], block, of_blocks[:, point]))
            out.append(PointRows(pane, through_name(name), series[some], np.zeros_like(some), through[some, point]))
        return out


def _runs(values: NDArray[np.int64]) -> list[tuple[int, int]]:
    """(first, one beyond the last) of equal values that stand together."""
    ends = [*(np.flatnonzero(np.diff(values)) + 1).tolist(), values.size]
    return [*zip([0, *ends[:-1]], ends, strict=True)]


def _fewer(parts: list[Impressions]) -> list[Impressions]:
    """The same rows in parts of which no two in a row have few."""
    out: list[Impressions] = []
    for few, some in groupby(parts, lambda part: len(part) < _FEW):
        together = [*some]
        out += [concat_impressions(together)] if few else together
    return out


def _those(parts: Sequence[Impressions], wanted: NDArray[np.bool_]) -> list[Impressions]:
    """Some rows of parts; those that stand together are not copied."""
    out, start = [], 0
    for part in parts:
        on = np.flatnonzero(wanted[start : start + len(part)])
        start += len(part)
        if on.size == len(part):
            out.append(part)
        elif on.size:
            whole = span(on)
            out.append(_taken(part, on) if whole is None else cut_impressions(part, whole))
    return out


@numba.njit(cache=True, nogil=True)
def _grouped(
    request: NDArray[np.uint64], ts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(number of the request of each row, in order of appearance; rows, first and last time of each request); no id is 0."""
    n, found, slots = request.size, 0, 16
    while slots < 2 * n:
        slots *= 2
    table, mask = np.full(slots, -1, np.int64), np.uint64(slots - 1)
    number, ids = np.empty(n, np.int64), np.empty(n, np.uint64)
    size, first, last = np.zeros(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        if i == 0 or request[i] != request[i - 1]:  # else it is of the same request: most are
            at = mix(request[i]) & mask
            while table[at] >= 0 and ids[table[at]] != request[i]:
                at = (at + np.uint64(1)) & mask
            if table[at] < 0:
                table[at] = found
                ids[found], first[found], last[found] = request[i], ts[i], ts[i]
                found += 1
            one = table[at]
        number[i] = one
        size[one] += 1
        first[one], last[one] = min(first[one], ts[i]), max(last[one], ts[i])
    return number, size[:found], first[:found], last[:found]


def _plain(rows: Impressions) -> Impressions:
    """Without what auctions do not read."""
    return replace(rows, features=None, names=None, policies=None)


def _taken(rows: Impressions, on: NDArray[np.int64]) -> Impressions:
    return take_impressions(_plain(rows), on, on.astype(np.int32))


def _packed(rows: Impressions) -> dict[str, Any]:
    return {
        **{name: getattr(rows, name) for name in ("order", *PLAIN)},
        "fields": dict(rows.fields),
        "query": query_of(rows),
        "shadow": None if rows.shadow is None else rows.shadow._asdict(),
    }


def _unpacked(state: Mapping[str, Any], codes: Codes) -> Impressions:
    columns = {name: state[name] for name in ("order", *PLAIN)}
    columns["series"], columns["slices"] = codes.series[columns["series"]], np.zeros_like(columns["slices"])
    shadow = state["shadow"]
    if shadow is not None:
        shadow = Shadow(**{**shadow, "series": codes.series[shadow["series"]]})
    return Impressions(**columns, fields=state["fields"], query=state["query"], shadow=shadow)

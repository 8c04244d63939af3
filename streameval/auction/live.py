"""Auctions of a running stream: every request is replayed once it is complete, using what was known at the start of its
hour.

Candidates, shown or not, wait here until the watermark is `request_gap` past the last one of their request. The sums go
to the pane of the first one. Labels count from the hour after the one in which they became final, so no click
contributes to its own replay. The results depend only on the partition's own events, in any order within the lateness;
later events are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.auction.arrange import Arranged, arranged, auctions_of
from streameval.auction.gather import all_fit, left_out, query_of, unfit
from streameval.auction.grouping import ByRequest, apart_at, grouped, meet, regrouped, renumbered, told_apart
from streameval.auction.pairs import PairHistory, pair_of, placed_keys
from streameval.auction.points import operating_points, tally_names, through_name
from streameval.auction.rerun import run_through
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
from streameval.sketches.blocks import blocks_of
from streameval.sketches.list_cells import GROUP_SHIFT
from streameval.sketches.tally import PaneSums

_MOST_CANDIDATES = 10_000  # per request; larger requests are left out
_MOST_WAITING = 1 << 21  # candidates; about 150 bytes each
_FEW = 1 << 12  # candidates; smaller parts are combined with their neighbours
_NEVER, _EVER = -(1 << 62), 1 << 62


# rows that may belong to requests that are over, and those that cannot
_Apart = tuple[Impressions | None, Impressions | None]


def keys_of(impressions: Impressions, slots: int) -> NDArray[np.uint64]:
    """Returns the keys for `LiveAuctions.label` of impressions that were shown; 0 for those that do not enter the
    history.
    """
    pair = pair_of(query_of(impressions), impressions.item)
    keys = placed_keys(pair, field_of(impressions, "position"), slots)
    return np.where(impressions.item == 0, np.uint64(0), keys)


class LiveAuctions:
    """The auctions of one partition."""

    def __init__(self, settings: Auction, pane: int, gap: int, ahead: int) -> None:
        """`pane`, `gap` (the largest gap between candidates of one request) and `ahead` (of the watermark) in ms."""
        self._settings = settings
        self._points = operating_points(settings)
        self.tallies = [one for name in tally_names(settings) for one in (name, through_name(name))]
        self._pane, self._gap, self._ahead = pane, gap, ahead
        self.history = PairHistory(settings.slots, settings.curve, max(1, settings.history // HOUR), settings.memory)
        self._shown: list[Impressions] = []
        self._others: list[Impressions] = []
        self._codes = np.empty(0, np.int64)  # of the series that scored the last requests run
        self._done = _NEVER  # ms, on a pane's boundary: requests that ended before it have been run
        self.skipped: Counter[str] = Counter()

    def shown(self, impressions: Impressions) -> None:
        """Adds new impressions that are not late."""
        self._wait(self._shown, impressions)

    def candidates(self, impressions: Impressions, watermark: int) -> None:
        """Adds candidates that were not shown."""
        end = _EVER if watermark == _NEVER else max(watermark, self._done) + self._ahead
        late, runaway = impressions.ts < self._done, impressions.ts > end
        lates, runaways = int(np.count_nonzero(late)), int(np.count_nonzero(runaway))
        self.skipped["late_candidates"] += lates
        self.skipped["runaway_candidates"] += runaways
        if lates or runaways:
            impressions = _taken(impressions, np.flatnonzero(~late & ~runaway))
        self._wait(self._others, impressions)

    def label(
        self, key: NDArray[np.uint64], label: NDArray[np.int8], final: NDArray[np.int64], user: NDArray[np.uint64]
    ) -> None:
        """Adds labels, with the time when they became final (ms) and their users."""
        self.history.add(key, label, final, blocks_of(user).astype(np.int64) >> GROUP_SHIFT)

    def run_due(self, watermark: int) -> list[PaneSums]:
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
        """Returns the series that scored waiting candidates."""
        parts = [*self._shown, *self._others]
        columns = [part.series for part in parts] + [part.shadow.series for part in parts if part.shadow is not None]
        return set(np.unique(np.concatenate([np.empty(0, np.int32), *columns])).tolist())

    def __len__(self) -> int:
        return sum(map(len, (*self._shown, *self._others)))

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Returns everything, for `restore`: columns that no longer change."""
        waiting = (concat_impressions(parts or [NO_IMPRESSIONS]) for parts in (self._shown, self._others))
        return {
            "done": self._done,
            "skipped": dict(self.skipped),
            "history": self.history.state(),
            "waiting": [_packed(part) for part in waiting],
        }

    def restore(self, state: Mapping[str, Any], codes: Codes) -> None:
        """Restores what `state` returned."""
        self._done, self.skipped = state["done"], Counter(state["skipped"])
        self.history.restore(state["history"])
        self._shown, self._others = ([_unpacked(one, codes)] if len(one["id"]) else [] for one in state["waiting"])

    # -- inside --------------------------------------------------------------------------------------------------

    def _wait(self, parts: list[Impressions], impressions: Impressions) -> None:
        many = int(np.count_nonzero(impressions.request))
        self.skipped["no_request"] += len(impressions) - many
        if len(self) + many > _MOST_WAITING:  # if the watermark of a stream stands still
            self.skipped["no_room"] += many
            return
        if many:
            whole = many == len(impressions)
            parts.append(_plain(impressions) if whole else _taken(impressions, np.flatnonzero(impressions.request)))

    def _run_waiting(self) -> list[PaneSums]:
        """Runs the requests that ended before `_done`; the others continue waiting."""
        parts = [_fewer(self._shown), _fewer(self._others)]
        apart: list[list[_Apart]] = [[_by_time(part, self._done) for part in some] for some in parts]
        groups = self._groups(apart)
        if groups is None:
            apart = [[(part, None) for part in some] for some in parts]
            every = [part for some in parts for part in some]
            groups = regrouped(_column(every, "request"), _column(every, "ts"), self._gap)
        on, off = ([near for near, _ in some if near is not None] for some in apart)
        near, shown = [*on, *off], sum(map(len, on))
        number, begin, waits, due = self._complete(*groups)
        self._shown, self._others = _those(apart[0], waits[:shown]), _those(apart[1], waits[shown:])
        if not due:
            return []
        pane = begin // self._pane
        rank = np.empty(pane.size, np.int64)  # requests by pane, so that those of one pane are adjacent
        rank[np.argsort(pane, kind="stable")] = np.arange(pane.size)
        position = np.concatenate([field_of(part, "position") for part in near])
        item, request = _column(near, "item"), renumbered(number, rank)
        order, position, indptr = arranged(request, _column(near, "id"), item, position, shown, rank.size)
        stand = Arranged.of(order, indptr, request.size)
        return self._run(near, stand, item[order], position, np.sort(pane))

    def _groups(self, apart: Sequence[Sequence[_Apart]]) -> ByRequest | None:
        """Groups the near rows by request; None if that takes all rows, because an id recurs after the gap, or has too
        many rows.
        """
        near, far = ([part for some in apart for one in some if (part := one[side]) is not None] for side in (0, 1))
        groups, table, ids = grouped(_column(near, "request"), _column(near, "ts"))
        for part in far:
            meet(part.request, part.ts, table, ids, groups)
        plain = (groups.last - groups.first <= self._gap) & (groups.size <= _MOST_CANDIDATES)
        return groups if bool(plain.all()) else None

    def _complete(
        self,
        number: NDArray[np.int64],
        size: NDArray[np.int64],
        first: NDArray[np.int64],
        last: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_], bool]:
        """Returns (number of each row's request, -1: not complete; when each request began; whether a row waits;
        whether any is complete).
        """
        crowded, over = size > _MOST_CANDIDATES, last < self._done
        self.skipped["too_many_candidates"] += int(np.count_nonzero(crowded))
        waits = told_apart(number, ~over & ~crowded, over & ~crowded)
        return number, first, waits, bool((over & ~crowded).any())

    def _run(
        self,
        parts: Sequence[Impressions],
        stand: Arranged,
        item: NDArray[np.uint64],
        position: NDArray[np.float64],
        panes: NDArray[np.int64],
    ) -> list[PaneSums]:
        """Runs arranged rows, with their items and positions; request r belongs to panes[r]."""
        bid = stand.column([field_of(part, "bid") for part in parts])
        pair = stand.column([pair_of(query_of(part), part.item) for part in parts])
        stays = self._stay(stand, item, bid, position, pair, panes * self._pane // HOUR)
        if stays is not None:
            stand, on = stand.only(stays)
            if not on.size:
                return []
            position, bid, pair, panes = position[on], bid[on], pair[on], panes[stays]
        auctions, codes, own = auctions_of(parts, stand, bid, np.empty(pair.size, np.int32), self._codes)
        self._codes = codes
        codes = np.append(codes, -1)
        server = np.searchsorted(codes[:-1], own)
        server[~np.isfinite(position[stand.indptr[:-1]]) | (codes[server] != own)] = -1
        series, out = codes[:-1].astype(np.int32), []
        for low, high in _runs(panes * self._pane // HOUR):
            known = self.history.at(int(panes[low]) * self._pane // HOUR)
            some = slice(int(stand.indptr[low]), int(stand.indptr[high]))
            tables, residuals, auctions.pair[some] = known.rows(pair[some])
            mine = auctions._replace(indptr=auctions.indptr[low : high + 1], block=auctions.block[low:high])
            begins = np.diff(panes[low:high], prepend=panes[low] - 1) > 0
            numbers, number = panes[low:high][begins], np.cumsum(begins) - 1
            sums = run_through(mine, server[low:high], number, tables, self._points, residuals)
            out.append(PaneSums(numbers, series, sums.reshape(*sums.shape[:2], sums.shape[2] * sums.shape[3])))
        return out

    def _stay(
        self,
        stand: Arranged,
        item: NDArray[np.uint64],
        bid: NDArray[np.float64],
        position: NDArray[np.float64],
        pair: NDArray[np.uint64],
        hours: NDArray[np.int64],
    ) -> NDArray[np.int64] | None:
        """Returns the requests that can be run, None: all; counts the others by reason. `hours`: by request,
        ascending.
        """
        sizes, slots = np.diff(stand.indptr), self._settings.slots
        asked = np.unique(hours[sizes > 0])
        unknown = [hour for hour in asked.tolist() if not self.history.at(hour).curves.shown.any()]
        if self.history.level == 0 and bool(sizes.all()) and all_fit(item, bid, position, slots):
            if not unknown:
                return None
            gone = np.isin(hours, unknown)
            self.skipped["no_history"] += int(np.count_nonzero(gone))
            return np.flatnonzero(~gone)
        wrong = {
            **unfit(np.ones(item.size, np.uint64), item, bid, position, slots),
            "not_sampled": ~self.history.knows(pair),
            "no_history": np.isin(hours, unknown)[stand.request],
        }
        gone, counts = left_out(stand.request, wrong)
        self.skipped.update(counts)
        gone = np.append(gone, np.ones(sizes.size - gone.size, np.bool_)) | (sizes == 0)
        return np.flatnonzero(~gone)


def _column(parts: Sequence[Impressions], name: str) -> NDArray[Any]:
    return np.concatenate([getattr(part, name) for part in parts or [NO_IMPRESSIONS]])


def _runs(values: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Returns (start, end) of every run of equal values."""
    ends = [*(np.flatnonzero(np.diff(values)) + 1).tolist(), values.size]
    return [*zip([0, *ends[:-1]], ends, strict=True)]


def _fewer(parts: list[Impressions]) -> list[Impressions]:
    """Merges parts so that no two small ones are adjacent."""
    out: list[Impressions] = []
    for few, some in groupby(parts, lambda part: len(part) < _FEW):
        together = [*some]
        out += [concat_impressions(together)] if few else together
    return out


def _by_time(part: Impressions, end: int) -> _Apart:
    """Returns (rows before a time, the others; None: none). All rows are in the first part if they are not in order."""
    first = apart_at(part.ts, end)
    if first == len(part):
        return part, None
    if first == 0:
        return None, part
    return cut_impressions(part, slice(0, first)), cut_impressions(part, slice(first, len(part)))


def _those(parts: Sequence[_Apart], wanted: NDArray[np.bool_]) -> list[Impressions]:
    """Returns some of the near rows of parts and all far ones; contiguous ones are not copied."""
    out, start = [], 0
    for near, far in parts:
        if near is not None:
            on = np.flatnonzero(wanted[start : start + len(near)])
            start += len(near)
            if on.size:
                whole = span(on)
                out.append(_taken(near, on) if whole is None else cut_impressions(near, whole))
        if far is not None:
            out.append(far)
    return out


def _plain(rows: Impressions) -> Impressions:
    """Returns the rows without what auctions do not read."""
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

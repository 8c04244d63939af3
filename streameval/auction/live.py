"""Auctions of a running stream: every request is replayed once it is complete, by what was known at the start of its hour.

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

from streameval.auction.arrange import Arranged, arranged, auctions_of, servers_of
from streameval.auction.gather import all_fit, left_out, query_of, unfit
from streameval.auction.grouping import (
    ByRequest,
    apart_at,
    completed,
    given,
    grouped,
    joined,
    meet,
    numbered,
    plain,
    regrouped,
    stretch,
)
from streameval.auction.pairs import PairHistory, groups_of, placed_keys, put_pairs
from streameval.auction.points import operating_points, tally_names, through_name
from streameval.auction.rerun import run_through
from streameval.events.batch import NO_IMPRESSIONS, Impressions, Shadow
from streameval.events.codes import Codes
from streameval.events.columns import (
    PLAIN,
    concat_impressions,
    cut_impressions,
    field_of,
    take_impressions,
)
from streameval.events.durations import HOUR
from streameval.settings.measures import Auction
from streameval.sketches.tally import PaneSums

_MOST_CANDIDATES = 10_000  # of a request; one that has more is left out
_MOST_WAITING = 1 << 21  # candidates; about 150 bytes each
_FEW = 1 << 12  # candidates; a part of fewer is combined with those beside it
_NEVER = -(1 << 62)


# rows that may be of requests which are over, and those that cannot
_Apart = tuple[Impressions | None, Impressions | None]


def keys_of(impressions: Impressions, slots: int) -> NDArray[np.uint64]:
    """What `LiveAuctions.label` is told of impressions that were shown: 0 of those that are no part of a history."""
    return placed_keys(query_of(impressions), impressions.item, field_of(impressions, "position"), slots)


class LiveAuctions:
    """The auctions of one partition."""

    def __init__(self, settings: Auction, pane: int, gap: int) -> None:
        """`pane` and `gap` (how far apart candidates of one request may be) in ms."""
        self._settings = settings
        self._points = operating_points(settings)
        self.tallies = [one for name in tally_names(settings) for one in (name, through_name(name))]
        self._pane, self._gap = pane, gap
        self.history = PairHistory(settings.slots, settings.curve, max(1, settings.history // HOUR), settings.memory)
        self._shown: list[Impressions] = []
        self._others: list[Impressions] = []
        self._codes = np.empty(0, np.int64)  # of the series that scored those that were run last
        self._done = _NEVER  # ms, on a pane's boundary: requests that ended before it have been run
        self.skipped: Counter[str] = Counter()

    def shown(self, impressions: Impressions) -> None:
        """New impressions that are not late."""
        self._wait(self._shown, impressions)

    def candidates(self, impressions: Impressions) -> None:
        """New candidates that were not shown, and that are not late."""
        self._wait(self._others, impressions)

    def label(
        self, key: NDArray[np.uint64], label: NDArray[np.int8], final: NDArray[np.int64], user: NDArray[np.uint64]
    ) -> None:
        """Labels, when they became final (ms), and whose they are."""
        self.history.add(key, label, final, groups_of(user))

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
        many = given(impressions.request)
        self.skipped["no_request"] += len(impressions) - many
        if len(self) + many > _MOST_WAITING:  # of a stream whose watermark stands still
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
        request, waits, panes, crowded = completed(groups, self._done, _MOST_CANDIDATES, self._pane)
        self.skipped["too_many_candidates"] += crowded
        self._shown, self._others = _those(apart[0], waits[:shown]), _those(apart[1], waits[shown:])
        if not panes.size:
            return []
        position = joined([field_of(part, "position") for part in near])
        item = _column(near, "item")
        order, position, indptr = arranged(request, _column(near, "id"), item, position, shown, panes.size)
        stand = Arranged.of(order, indptr, request.size)
        return self._run(near, stand, position, panes)

    def _groups(self, apart: Sequence[Sequence[_Apart]]) -> ByRequest | None:
        """Of the near rows; None: it takes all rows to tell, for an id comes again after the gap, or has too many, which all go."""
        near, far = ([part for some in apart for one in some if (part := one[side]) is not None] for side in (0, 1))
        groups, table, ids = grouped(_column(near, "request"), _column(near, "ts"))
        for part in far:
            meet(part.request, part.ts, table, ids, groups)
        return groups if plain(groups, self._gap, _MOST_CANDIDATES) else None

    def _run(
        self, parts: Sequence[Impressions], stand: Arranged, position: NDArray[np.float64], panes: NDArray[np.int64]
    ) -> list[PaneSums]:
        """Rows as they are arranged, with their positions; request r is of panes[r]."""
        places = position.size
        item, pair, bid = np.empty(places, np.uint64), np.empty(places, np.uint64), np.empty(places)
        for part, to in zip(parts, stand.places(parts), strict=True):
            put_pairs(query_of(part), part.item, field_of(part, "bid"), to, (item, pair, bid))
        numbers, number = numbered(panes)
        stays = self._stay(stand, item, bid, position, pair, numbers * self._pane // HOUR, number)
        if stays is not None:
            stand, on = stand.only(stays)
            if not on.size:
                return []
            position, bid, pair, item = position[on], bid[on], pair[on], item[on]
            numbers, number = numbered(panes[stays])
        auctions, codes, own = auctions_of(
            parts, stand, bid, np.empty(pair.size, np.int32), position, item, self._codes
        )
        self._codes = codes
        server, series, out = servers_of(own, codes, position, stand.indptr), codes.astype(np.int32), []
        for low, high in _runs(numbers * self._pane // HOUR):
            known = self.history.at(int(numbers[low]) * self._pane // HOUR)
            first, end = np.searchsorted(number, (low, high)).tolist()
            some = slice(int(stand.indptr[first]), int(stand.indptr[end]))
            tables, residuals, auctions.pair[some] = known.rows(pair[some])
            mine = auctions._replace(indptr=auctions.indptr[first : end + 1], block=auctions.block[first:end])
            sums = run_through(mine, server[first:end], number[first:end] - low, tables, self._points, residuals)
            cells = sums.reshape(*sums.shape[:2], sums.shape[2] * sums.shape[3])
            out.append(PaneSums(numbers[low:high], series, cells))
        return out

    def _stay(
        self,
        stand: Arranged,
        item: NDArray[np.uint64],
        bid: NDArray[np.float64],
        position: NDArray[np.float64],
        pair: NDArray[np.uint64],
        hours: NDArray[np.int64],
        number: NDArray[np.int64],
    ) -> NDArray[np.int64] | None:
        """The requests that can be run, None: all; the others are counted by reason. Request r is of hours[number[r]]."""
        unknown = [hour for hour in sorted({*hours.tolist()}) if not self.history.at(hour).curves.shown.any()]
        if self.history.level == 0 and all_fit(stand.indptr, item, bid, position, self._settings.slots):
            if not unknown:
                return None
            gone = np.isin(hours, unknown)[number]
            self.skipped["no_history"] += int(np.count_nonzero(gone))
            return np.flatnonzero(~gone)
        wrong = {
            **unfit(np.ones(item.size, np.uint64), item, bid, position, self._settings.slots),
            "not_sampled": ~self.history.knows(pair),
            "no_history": np.isin(hours, unknown)[number][stand.request],
        }
        gone, counts = left_out(stand.request, wrong)
        self.skipped.update(counts)
        sizes = np.diff(stand.indptr)
        gone = np.append(gone, np.ones(sizes.size - gone.size, np.bool_)) | (sizes == 0)
        return np.flatnonzero(~gone)


def _column(parts: Sequence[Impressions], name: str) -> NDArray[Any]:
    return joined([getattr(part, name) for part in parts or [NO_IMPRESSIONS]])


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


def _by_time(part: Impressions, end: int) -> _Apart:
    """(rows before a time, those that follow; None: none). Out of order they are all near."""
    first = apart_at(part.ts, end)
    if first == len(part):
        return part, None
    if first == 0:
        return None, part
    return cut_impressions(part, slice(0, first)), cut_impressions(part, slice(first, len(part)))


def _those(parts: Sequence[_Apart], wanted: NDArray[np.bool_]) -> list[Impressions]:
    """Some of the near rows of parts and all far ones; those that stand together are not copied."""
    out, start = [], 0
    for near, far in parts:
        if near is not None:
            mine = wanted[start : start + len(near)]
            start += len(near)
            first, end = stretch(mine)
            if end > first:
                out.append(cut_impressions(near, slice(first, end)))
            elif first > end:
                out.append(_taken(near, np.flatnonzero(mine)))
        if far is not None:
            out.append(far)
    return out


def _plain(rows: Impressions) -> Impressions:
    """Without what auctions do not read."""
    if rows.features is None and rows.names is None and rows.policies is None:
        return rows
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

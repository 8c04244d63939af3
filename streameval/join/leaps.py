"""Quarantines events whose time leaps ahead of their stream, until the stream catches up. Runs before the joiner.

One impression dated two days ahead would advance the watermark by two days, and everything that arrives during these days
would be expired. So an event that is ahead of the newest one before it by more than the correction horizon waits until

- the stream has reached its time; or
- `ENOUGH` others are as far ahead (or as many as the stream has had events at all, if fewer): then it was not an error but
  a gap, and all waiting events continue. Every event that is not ahead takes one off their number, so that a few wrong
  clocks never get a majority.

A stream begins with two events that agree, or the second of which is later: the first one alone may be wrong. At the end of
the log, waiting events are rejected, unless the log ends with two or more of them: these count as a gap, too.

Every input of a partition has its own `Leaps`, and which events pass is a function of that input's events in their order,
however they are divided into batches. For a batch without a leap, only its newest time is computed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Clicks, Features, Impressions, Shadow, empty_clicks, empty_impressions
from streameval.events.codes import Codes
from streameval.events.columns import PLAIN, concat_clicks, concat_impressions, take_clicks, take_impressions
from streameval.join.policy import FOREVER, NEVER
from streameval.join.rows import Run, split_fields
from streameval.join.saved_runs import pack_runs, unpack_runs

log = logging.getLogger(__name__)

ENOUGH = 20  # this many events at about the same time are not an error
MOST = 1_000  # waiting events of an input; beyond, the oldest are refused
_NONE = np.empty(0, np.int64)
_Events = tuple[Impressions, Clicks]

# the state: newest time; leaps minus others; events that passed, up to ENOUGH; waiting events since the last other one
_NEWEST, _VOTES, _SEEN, _LAST = 0, 1, 2, 3


@numba.njit(cache=True, nogil=True)
def _median(values: NDArray[np.int64]) -> int:
    """The median of at most `ENOUGH` values; `np.sort` would take a second to compile."""
    ordered = values.copy()
    for k in range(1, ordered.size):
        value, at = ordered[k], k
        while at > 0 and ordered[at - 1] > value:
            ordered[at] = ordered[at - 1]
            at -= 1
        ordered[at] = value
    return ordered[ordered.size // 2]


@numba.njit(cache=True, nogil=True)
def _let_go(
    ts: NDArray[np.int64],
    upto: int,
    by: int,
    waiting: NDArray[np.int64],
    n: int,
    out: NDArray[np.int64],
    freed: NDArray[np.int64],
    end: int,
) -> tuple[int, int]:
    """Releases waiting events with a time of at most `upto`, in order; returns (how many still wait, end of `out`)."""
    kept = 0
    for k in range(n):
        if ts[waiting[k]] <= upto:
            out[end], freed[end] = waiting[k], by
            end += 1
        else:
            waiting[kept] = waiting[k]
            kept += 1
    return kept, end


class Screened(NamedTuple):
    """The output of `_screen`: events, by their numbers."""

    out: NDArray[np.int64]  # those that continue
    freed: NDArray[np.int64]  # the event that released each of them, usually itself
    gone: NDArray[np.int64]  # those refused
    ahead: NDArray[np.int64]  # the newest time before each event that is ahead of it


@numba.njit(cache=True, nogil=True)
def _screen(
    ts: NDArray[np.int64],
    ids: NDArray[np.uint64],
    n: int,
    limit: int,
    state: NDArray[np.int64],
    waiting: NDArray[np.int64],
    screened: Screened,
) -> tuple[int, int, int, int]:
    """Processes events [n, ts.size) one by one; [0, n) wait, listed in `waiting`.

    Returns how many wait, continue, are refused, and are ahead.
    """
    out, freed, gone, ahead = screened
    end = refused = leapt = 0
    for e in range(n, ts.size):
        newest = state[_NEWEST]
        if newest != NEVER and ts[e] <= newest + limit:
            out[end] = freed[end] = e
            end += 1
            state[_SEEN] = min(state[_SEEN] + 1, ENOUGH)
            state[_VOTES], state[_LAST] = max(state[_VOTES] - 1, 0), 0
            if ts[e] > newest:
                state[_NEWEST] = ts[e]
                n, end = _let_go(ts, ts[e], e, waiting, n, out, freed, end)
            continue
        if newest != NEVER:
            ahead[leapt] = newest
            leapt += 1
        again = False  # a duplicate does not count as another event
        for k in range(max(n - ENOUGH, 0), n):
            again |= ids[waiting[k]] == ids[e] and ts[waiting[k]] == ts[e]
        if n == MOST:
            gone[refused] = waiting[0]
            refused += 1
            n -= 1
            for k in range(n):  # a slice assignment would take two seconds to compile
                waiting[k] = waiting[k + 1]
        waiting[n] = e
        n += 1
        state[_LAST] += 1
        upto, beyond = NEVER, 0  # the time up to which all continue; how many of the voters do not
        if newest == NEVER:
            for k in range(n - 1):
                if not again and abs(ts[waiting[k]] - ts[e]) <= limit:
                    upto = max(upto, ts[waiting[k]], ts[e])
                elif ts[waiting[k]] < ts[e]:
                    upto = max(upto, ts[waiting[k]])
            beyond = 1 if ts[e] > upto else 0
        elif not again:
            state[_VOTES] += 1
            if state[_VOTES] >= state[_SEEN]:
                last = ts[waiting[max(n - state[_SEEN], 0) : n]]
                most = _median(last) + limit
                for t in last:
                    if t <= most:
                        upto = max(upto, t)
                    else:
                        beyond += 1
        if upto != NEVER:
            state[_NEWEST], state[_VOTES] = upto, beyond
            before = end
            n, end = _let_go(ts, upto, e, waiting, n, out, freed, end)
            state[_SEEN] = min(state[_SEEN] + end - before, ENOUGH)
            state[_LAST] = 0  # what waited before an event that continues does not end the log
            for k in range(n):
                state[_LAST] += 1 if waiting[k] > out[end - 1] else 0
    return n, end, refused, leapt


@dataclass(frozen=True, slots=True)
class Passed:
    """Events that may continue: `before` are from earlier batches, `now` from this one or released by its events."""

    now: _Events
    before: _Events | None = None
    # the places in the batch (`order`) of the impressions of `now`, negative for those of earlier batches; None: unchanged
    places: NDArray[np.int32] | None = None


class Leaps:
    """The waiting events of one input, and the state for detecting others."""

    def __init__(self, horizon: int, shared: bool) -> None:
        """`horizon`: ms that an event may be ahead of the newest one before it; `shared`: the input has both kinds."""
        self._shared = shared
        self._horizon = horizon
        self._state = np.array([NEVER, 0, 0, 0], np.int64)
        self._waiting: _Events = empty_impressions(), empty_clicks()
        self._first = FOREVER  # the earliest waiting time
        self._ahead = _NONE  # see take_ahead
        self.counts: Counter[str] = Counter()  # refused events

    def __len__(self) -> int:
        """The number of waiting events."""
        return sum(len(part) for part in self._waiting)

    def screen(self, impressions: Impressions, clicks: Clicks) -> Passed:
        """The events that may now continue to the joiner: new ones, and released ones."""
        columns = [ts for ts in (impressions.ts, clicks.ts) if ts.size]
        if not columns:
            return Passed((impressions, clicks))
        newest, latest = int(self._state[_NEWEST]), max(int(ts.max()) for ts in columns)
        if newest != NEVER and latest <= newest + self._horizon and max(newest, latest) < self._first:
            n = sum(ts.size for ts in columns)
            votes, seen = int(self._state[_VOTES]), int(self._state[_SEEN])
            self._state[:] = max(newest, latest), max(votes - n, 0), min(seen + n, ENOUGH), 0
            return Passed((impressions, clicks))
        return self._one_by_one(impressions, clicks)

    def take_ahead(self) -> NDArray[np.int64]:
        """The newest time (ms) before each event that leapt ahead of it, since the last call."""
        ahead, self._ahead = self._ahead, _NONE
        return ahead

    def finish(self) -> _Events:
        """The log has ended; returns the waiting events that continue: the last of the log, or all of a log too short to begin."""
        left, n = self._waiting, len(self)
        last = int(self._state[_LAST])
        kept = n if self._state[_NEWEST] == NEVER else last if last > 1 else 0
        self._hold(empty_impressions(), empty_clicks())
        arrival = np.argsort(np.concatenate([part.order for part in left]), kind="stable")
        refused = arrival[: n - kept]
        of_impressions = int(np.count_nonzero(refused < len(left[0])))
        self._refuse(of_impressions, refused.size - of_impressions)
        return _picked(left, arrival[n - kept :])

    def series_in_use(self) -> set[int]:
        """The series of the waiting impressions, logged or shadow."""
        impressions = self._waiting[0]
        columns = [impressions.series, *(s.series for s in (impressions.shadow, impressions.policies) if s is not None)]
        return set(np.unique(np.concatenate(columns)).tolist())

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything, for `restore`; waiting events are immutable."""
        impressions, clicks = self._waiting
        run = Run(0, len(impressions), None, impressions.features, impressions.shadow, None)
        return {
            "state": self._state.copy(),
            "counts": dict(self.counts),
            "impressions": {name: getattr(impressions, name) for name in ("order", *PLAIN, "fields")},
            "query": impressions.query,
            "policies": None if impressions.policies is None else impressions.policies._asdict(),
            "runs": pack_runs([run], 0, 0),
            "clicks": {name: getattr(clicks, name) for name in Clicks.__slots__},
        }

    def restore(self, state: Mapping[str, Any], codes: Codes) -> None:
        """Restores what `state` returned."""
        self._state[:] = state["state"]
        self.counts = Counter(state["counts"])
        (run,) = unpack_runs(state["runs"], codes)
        saved, fields = split_fields(state["impressions"])
        columns = {name: saved[name] for name in ("order", *PLAIN)}  # format 5 has more
        columns["series"], columns["slices"] = codes.series[columns["series"]], codes.slices(columns["slices"])
        policies = state.get("policies")  # missing from older checkpoints
        if policies is not None:
            policies = Shadow(**{**policies, "series": codes.series[policies["series"]]})
        impressions = Impressions(
            **columns,
            fields=fields,
            shadow=run.shadow,
            features=run.features,
            query=state.get("query"),
            policies=policies,
        )
        clicks, fields = split_fields(state["clicks"])
        self._hold(impressions, Clicks(**clicks, fields=fields))

    def begin_at(self, newest: int) -> None:
        """Continues a stream whose newest time, ms, is known."""
        if newest != NEVER:
            self._state[:] = newest, 0, ENOUGH, 0

    # -- internal ------------------------------------------------------------------------------------------------

    def _one_by_one(self, impressions: Impressions, clicks: Clicks) -> Passed:
        held = len(self)
        places = [
            np.concatenate((old.order, new.order + np.int32(held))) for old, new in self._beside(impressions, clicks)
        ]
        pool = (
            concat_impressions([part for part in (self._waiting[0], impressions) if len(part)] or [impressions]),
            concat_clicks([part for part in (self._waiting[1], clicks) if len(part)] or [clicks]),
        )
        arrival = np.argsort(np.concatenate(places), kind="stable")
        ts, ids = (np.concatenate([getattr(part, name) for part in pool])[arrival] for name in ("ts", "id"))
        waiting = np.zeros(MOST, np.int64)
        waiting[:held] = np.arange(held)
        out, freed, gone, ahead = screened = Screened(*(np.empty(ts.size, np.int64) for _ in range(4)))
        n, end, refused, leapt = _screen(ts, ids, held, self._horizon, self._state, waiting, screened)
        self._ahead = np.concatenate((self._ahead, ahead[:leapt]))
        self._tell(held, n, end - (ts.size - held))
        apart = arrival[gone[:refused]]
        of_impressions = int(np.count_nonzero(apart < len(pool[0])))
        self._refuse(of_impressions, refused - of_impressions)
        self._hold(*_picked(pool, arrival[waiting[:n]]))
        flat, place = arrival[out[:end]], np.concatenate(places) - held
        new = np.flatnonzero(place[flat] >= 0)
        lead = int(new[0]) if new.size else end  # these are from earlier batches, and go first
        before, now = _picked(pool, flat[:lead]), _picked(pool, flat[lead:])
        own = place[flat[lead:]][flat[lead:] < len(pool[0])]
        # the other input keeps its places, so a released event takes that of the event that released it
        if not self._shared:
            where = place[arrival[freed[lead:end]]].astype(np.int32)
            now = replace(now[0], order=where[: len(now[0])]), replace(now[1], order=where[: len(now[1])])
        return Passed(now, before, own)

    def _beside(self, impressions: Impressions, clicks: Clicks) -> tuple[tuple[Any, Any], ...]:
        return (self._waiting[0], impressions), (self._waiting[1], clicks)

    def _hold(self, impressions: Impressions, clicks: Clicks) -> None:
        features = impressions.features
        if features is not None:  # copied, since views would keep the features of a whole batch in memory
            own = Features(
                features.indptr.copy(),
                features.index.copy(),
                features.value.copy(),
                features.dicts,
                None if features.offset is None else features.offset.copy(),
            )
            impressions = replace(impressions, features=own)
        self._waiting = impressions, clicks
        self._first = min([FOREVER, *(int(part.ts.min()) for part in self._waiting if len(part))])

    def _refuse(self, impressions: int, clicks: int) -> None:
        self.counts["runaway_impressions"] += impressions
        self.counts["runaway_clicks"] += clicks
        if impressions or clicks:
            log.warning(
                "%d events were dated ahead of their stream, which never caught up: rejected", impressions + clicks
            )

    def _tell(self, before: int, after: int, more: int) -> None:
        """Logs changes. `more`: how many more events continued than arrived."""
        if after > before == 0 and self._state[_NEWEST] != NEVER:
            log.warning("an event is dated ahead of its stream by more than join.correction_horizon: quarantined")
        elif more > 0:
            log.info("%d events released: they were dated ahead of their stream, which has caught up", more)


def _picked(pool: _Events, flat: NDArray[np.int64]) -> _Events:
    """Events of the pool (its impressions first) in the given order, as columns of a batch."""
    shown = flat < len(pool[0])
    order = np.arange(flat.size, dtype=np.int32)
    return (
        take_impressions(pool[0], flat[shown], order[shown]),
        take_clicks(pool[1], flat[~shown] - len(pool[0]), order[~shown]),
    )

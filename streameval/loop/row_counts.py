"""Counts the joiner's rows, for readers and comparisons, as they are shown, mature and change.

Columns of the rows are copied in the loop; the counting itself happens in the background, in the order of the calls.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ParamSpec

import numpy as np
from numpy.typing import NDArray

from streameval.auction.live import LiveAuctions
from streameval.compare.counted import Counted
from streameval.counting.exposed_lists import ExposedLists
from streameval.counting.objectives import Objectives
from streameval.counting.panestats import PaneStats
from streameval.counting.request_auc import observe_requests
from streameval.counting.request_lists import RankedLists, lists_of
from streameval.counting.request_ranking import RankingSums
from streameval.counting.request_yields import observe_yields
from streameval.counting.requests import Requests
from streameval.counting.scoreboard import Labelled, Scoreboard
from streameval.events.batch import Batch, Impressions
from streameval.events.codes import Codes
from streameval.events.columns import Scored, Settled, span, take_impressions
from streameval.events.fields import FIELDS
from streameval.join.fates import Flips
from streameval.join.joiner import Joiner
from streameval.join.policy import CLICKED, CORRECTED, LATE, SHOWN, JoinPolicy
from streameval.join.sampled import copies, tell_unread
from streameval.loop.auction_rows import any_late, labels_due
from streameval.loop.candidates import candidates_of
from streameval.loop.estimates import RowPropensities
from streameval.process.background import Background

_P = ParamSpec("_P")
_OF_REQUESTS = ("value", "value_in_time", "position")  # fields that metrics of requests read
_FEW = 64  # rows that are counted at once
_PIECE = 1 << 15  # rows counted at a time, however many mature at once


@dataclass(slots=True)
class LabelListener:
    """Is notified of labels: `settled` when they mature, `corrected` (ids, labels) when they change later."""

    settled: Callable[[Settled], None]
    corrected: Callable[[NDArray[np.uint64], NDArray[np.int8]], None]


@contextmanager
def timed(seconds: defaultdict[str, float], stage: str) -> Iterator[None]:
    """Adds the wall-clock time of the block to a stage."""
    begin = time.perf_counter()
    try:
        yield
    finally:
        seconds[stage] += time.perf_counter() - begin


@dataclass(slots=True)
class RowCounts:
    """Counts rows of one partition's joiner."""

    policy: JoinPolicy
    joiner: Joiner
    requests: Requests
    scoreboard: Scoreboard
    panes: PaneStats
    counted: Counted  # for comparisons
    grace: int  # ms in which online models may have learned (see `Joiner.scored`)
    background: Background
    seconds: defaultdict[str, float]
    listener: LabelListener | None
    auctions: LiveAuctions | None = None
    objectives: Objectives | None = None
    estimates: RowPropensities | None = None
    ranking: RankingSums = field(init=False)
    exposed: ExposedLists = field(init=False)

    def __post_init__(self) -> None:
        self.ranking = RankingSums(self.scoreboard.overall_layout)
        self.exposed = ExposedLists(self.scoreboard.overall_layout, self.scoreboard.weights)

    def considered(self, batch: Batch) -> None:
        """Processes the candidates of a batch, which were not shown, before its other events."""
        if not len(batch.candidates) or (self.auctions is None and self.estimates is None):
            return
        newest, policy = int(self.joiner.progress.newest[0]), self.policy
        found = candidates_of(batch, newest, policy.allowed_lateness, policy.correction_horizon)
        if self.auctions is not None:
            self.auctions.candidates(found.on_time)
            self.auctions.skipped.update(late_candidates=found.late, runaway_candidates=found.runaway)
        if self.estimates is not None:
            self.estimates.considered(found.on_time)

    def arrived(self, impressions: Impressions, rows: NDArray[np.int64]) -> None:
        """Processes impressions that the joiner has just added as `rows`; late ones are in no auction."""
        tell_unread(impressions, self.policy)
        if self.auctions is not None and rows.size:
            if rows.size < len(impressions) or any_late(self.joiner.table.state, rows):
                on_time = (self.joiner.table.state[rows] & LATE) == 0
                new = self.joiner.accepted[on_time].astype(np.int64)
                impressions = take_impressions(replace(impressions, features=None), new, new.astype(np.int32))
            self.auctions.shown(impressions)

    def run_auctions(self, watermark: int) -> None:
        """Runs the auctions that are complete, and adds their sums to panes."""
        if self.auctions is not None:
            with timed(self.seconds, "auctions"):
                sums = self.auctions.run_due(watermark)
                if sums:
                    self.background.call(self.scoreboard.add_whole, self.auctions.tallies, sums)

    @property
    def auctions_nbytes(self) -> int:
        """Bytes of the auctions' history of pairs."""
        return 0 if self.auctions is None else self.auctions.history.nbytes

    def in_auctions(self) -> set[int]:
        """The series of candidates whose request is not complete yet."""
        return set() if self.auctions is None else self.auctions.series_in_use()

    def state(self) -> dict[str, Any]:
        """The state of objectives, auctions and estimates, for `restore`; None: there are none."""
        return {
            "objectives": [] if self.objectives is None else self.objectives.state(),
            "auctions": None if self.auctions is None else self.auctions.state(),
            "estimates": None if self.estimates is None else self.estimates.state(),
        }

    def restore(self, state: Mapping[str, Any], codes: Codes) -> None:
        """Restores what `state` returned, as far as the settings still need it; the joiner's state comes first."""
        if self.objectives is not None:
            self.objectives.restore(state.get("objectives"), self.joiner.progress.newest_event, codes)
        if self.auctions is not None and state.get("auctions") is not None:
            self.auctions.restore(state["auctions"], codes)
        if self.estimates is not None:  # older checkpoints have a single estimator, in the scoreboard's state
            self.estimates.restore(state.get("estimates") or {"naive_bayes": state["scoreboard"].get("outcomes")})

    def count(self, rows: NDArray[np.int64]) -> None:
        """Counts rows that have just matured, and notifies the listener."""
        if self.estimates is not None:
            closed = self.requests.closed(self.joiner.table.request[rows])  # they closed while an input was silent
            self.requests_changed(closed, -1)
            self.estimates.mature(self.joiner, rows)
            self.requests_changed(closed, +1)
        labelled = self._labelled(rows, fresh=True)
        scored = self._scored(rows)
        self._count_rows(labelled.ts.size, self._observe, labelled, scored, +1, self._codes())
        self.panes.matured(labelled.ts, labelled.label, labelled.corrected)
        if self.auctions is not None:
            table, window = self.joiner.table, self.policy.attribution_window
            keys, due, final = labels_due(
                table.mark, rows, labelled.label, labelled.corrected, labelled.fresh, labelled.ts, window
            )
            self.auctions.label(keys, due, final, labelled.user)
        self.counted.gauc.mark(labelled.ts[labelled.fresh], late=0)
        self.counted.gauc.mark(labelled.ts[labelled.corrected | ~labelled.fresh], late=1)
        if self.listener is not None:
            names = self.joiner.runs.names(rows)
            self.listener.settled(Settled(self.joiner.table.id[rows], labelled.ts, labelled.label, names, scored))

    def count_shown(self, rows: NDArray[np.int64], sign: int) -> None:
        """Counts rows that are shown before they mature, or retracts them."""
        labelled = self._labelled(rows)
        self._count_rows(rows.size, self._observe, labelled, self._scored(rows), sign, self._codes(), shown=True)
        self.panes.matured(labelled.ts, labelled.label, labelled.corrected, sign)

    def hide(self, rows: NDArray[np.int64]) -> None:
        """Retracts rows that were counted for readers before they matured."""
        for piece in self.pieces(rows):
            self.count_shown(piece, -1)
        self.joiner.hide(rows)

    def correct(self, flips: Flips) -> None:
        """Recounts labels that changed after maturity, or after they were shown."""
        shown = (self.joiner.table.state[flips.rows] & SHOWN) != 0
        if not shown.any():
            self._recount(flips, shown=False)
            return
        for on in (shown, ~shown):
            some = Flips(flips.rows[on], flips.was_clicked[on], flips.was_fields[:, on], flips.was_corrected[on])
            self._recount(some, shown=on is shown)

    def _recount(self, flips: Flips, shown: bool) -> None:
        """Retracts what was counted of the rows, and counts their current labels."""
        rows = flips.rows
        if not rows.size:
            return
        rows, first = np.unique(rows, return_index=True)  # an impression's first flip has the label that was counted
        with timed(self.seconds, "correct"):
            table = self.joiner.table
            by_time = np.argsort(table.ts[rows], kind="stable")
            rows, first = rows[by_time], first[by_time]
            after = self._labelled(rows)
            of_clicks = self.policy.keep[: len(flips.was_fields)]
            before = replace(
                after,
                label=flips.was_clicked[first].astype(np.int8),
                corrected=flips.was_corrected[first],
                fields={**after.fields, **{f.name: flips.was_fields[i, first] for i, f in enumerate(of_clicks)}},
                copies=copies(table, self.policy, rows, flips.was_clicked[first].astype(np.int8)),
            )
            if self.estimates is not None:
                after = replace(after, fields={**after.fields, **self.estimates.relabelled(after)})
            closed = self.requests.closed(table.request[rows])
            self._write_labels(rows, before)
            self.requests_changed(closed, -1)
            self._write_labels(rows, after)
            self.requests_changed(closed, +1)
            scored = self._scored(rows)
            self._count_rows(rows.size, self._observe_again, before, after, scored, self._codes(), shown)
            self.panes.changed(after.ts, after.label - before.label, after.corrected & ~before.corrected)
            if shown:
                return
            self.counted.gauc.mark(after.ts, late=1)
            if self.listener is not None:
                self.listener.corrected(table.id[rows], after.label)

    def requests_changed(self, entries: NDArray[np.int32], sign: int) -> None:
        """Counts the terms of closed requests, or retracts them."""
        if entries.size:
            self.joiner.check_requests(self.requests.newest(entries))
            rows, group = self.requests.members(entries, self.joiner.table, self.joiner.front)
            if rows.size:
                self.count_requests(self._listed(rows), self._scored(rows), group, sign)

    def count_labelled(self, labelled: Labelled, scored: Scored) -> None:
        """Counts impressions that were never joined, in order of time."""
        self.panes.seen(labelled.ts)
        self.panes.matured(labelled.ts, labelled.label, labelled.corrected)
        if self.estimates is not None:
            labelled = replace(labelled, fields={**labelled.fields, **self.estimates.alone(labelled)})
        self._count_rows(labelled.ts.size, self._observe_alone, labelled, scored, self._codes())

    def count_requests(self, labelled: Labelled, scored: Scored, request: NDArray[np.int32], sign: int = 1) -> None:
        """Counts whole requests, or retracts them; `request`, ascending, numbers them from 0."""
        self._count_rows(request.size, self._observe_requests, labelled, request, scored, sign, self._codes())

    def compute_gauc(self) -> None:
        """Computes windows whose labels are complete, or have changed since, before the joiner drops their rows."""
        for late, due in self.counted.gauc.due(self.joiner.progress.firm):
            with timed(self.seconds, "gauc"):
                some = self.counted.gauc.gather(late, due, self.joiner, list(self.counted.online), self.grace)
                self.background.call(self.counted.gauc.compute, some)

    def pieces(self, rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Rows in order of time, in pieces short enough that the curves of the first pane are not dropped before the last."""
        ts = self.joiner.table.ts[rows]
        start = 0
        while start < rows.size:
            last = int(np.searchsorted(ts, ts[start] + self.policy.correction_horizon))
            end = min(start + _PIECE, max(last, start + 1))
            yield rows[start:end]
            start = end

    def _count_rows(self, rows: int, function: Callable[_P, None], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Counts so many rows in the background; a few at once, for that is sooner done."""
        if rows <= _FEW:
            self.background.call_little(function, *args, **kwargs)
        else:
            self.background.call(self._timed, partial(function, *args, **kwargs))

    def _timed(self, count: Callable[[], None]) -> None:
        with timed(self.seconds, "observe"):
            count()

    def _codes(self) -> list[NDArray[np.int32]]:
        return [] if self.objectives is None else self.objectives.codes()

    def _further(
        self, labelled: Labelled, scored: Scored, codes: list[NDArray[np.int32]]
    ) -> list[tuple[Labelled, Scored]]:
        """The same scores by the labels of further objectives."""
        return [] if self.objectives is None else self.objectives.of(labelled, scored, codes)

    def _observe(
        self, labelled: Labelled, scored: Scored, sign: int, codes: list[NDArray[np.int32]], shown: bool = False
    ) -> None:
        measured = self.scoreboard.measured(labelled, scored)
        further = self._further(labelled, scored, codes)
        self.scoreboard.observe(labelled, scored, sign, measured, placed=not shown, further=further)
        if not shown:
            self.counted.ledger.observe(labelled, scored, sign, measured)

    def _observe_again(
        self, before: Labelled, after: Labelled, scored: Scored, codes: list[NDArray[np.int32]], shown: bool
    ) -> None:
        self._observe(before, scored, -1, codes, shown)
        self._observe(after, scored, +1, codes, shown)

    def _observe_alone(self, labelled: Labelled, scored: Scored, codes: list[NDArray[np.int32]]) -> None:
        self.scoreboard.observe(labelled, scored, further=self._further(labelled, scored, codes))

    def _observe_requests(
        self,
        labelled: Labelled,
        request: NDArray[np.int32],
        scored: Scored,
        sign: int,
        codes: list[NDArray[np.int32]],
    ) -> None:
        lists = lists_of(labelled.ts, labelled.user, request, self.scoreboard.pane)
        for one, its in ((labelled, scored), *self._further(labelled, scored, codes)):
            if not its.series.size:
                continue
            observe_requests(self.scoreboard, one, request, its, sign)
            observe_yields(self.scoreboard, one, request, its, sign)
            if self.ranking.kept:
                ranked = RankedLists.of(lists, one.label, its)
                self.ranking.observe(self.scoreboard, one, ranked, sign)
                self.exposed.observe(self.scoreboard, one, ranked, sign)

    def _labelled(self, rows: NDArray[np.int64], fresh: bool = False) -> Labelled:
        """The rows' labels; `fresh`: they mature now."""
        table, whole = self.joiner.table, span(rows)

        def column(of: NDArray[Any]) -> NDArray[Any]:
            return of[rows] if whole is None else of[whole].copy()  # copying a slice takes a third of the time

        state = column(table.state)
        label = (state & CLICKED).astype(np.int8)
        return Labelled(
            ts=column(table.ts),
            user=column(table.user),
            slices=column(table.slices).astype(np.int64, copy=False),
            label=label,
            corrected=(state & CORRECTED) != 0,
            fields={
                f.name: table.kept_field(i, rows if whole is None else whole) for i, f in enumerate(self.policy.keep)
            },
            fresh=fresh & ((state & LATE) == 0),
            item=column(table.item),
            policies=self.joiner.runs.policies(rows) if self.joiner.runs.has_policies else None,
            copies=copies(table, self.policy, rows, label),
        )

    def _listed(self, rows: NDArray[np.int64]) -> Labelled:
        """The columns of the rows that metrics of requests read."""
        table, nothing = self.joiner.table, np.empty(0, np.bool_)
        by_propensity = {self.scoreboard.weigh_by, self.scoreboard.strata_by}
        kept = [
            (i, f.name)
            for i, f in enumerate(self.policy.keep)
            if f.name in _OF_REQUESTS or (f.name in by_propensity and table.given[i])
        ]
        return Labelled(
            ts=table.ts[rows],
            user=table.user[rows],
            slices=np.empty(0, np.int64),
            label=(table.state[rows] & CLICKED).astype(np.int8),
            corrected=nothing,
            fields={name: table.kept_field(i, rows) for i, name in kept},
            fresh=nothing,
        )

    def _write_labels(self, rows: NDArray[np.int64], labelled: Labelled) -> None:
        table = self.joiner.table
        table.state[rows] = (table.state[rows] & ~np.uint8(CLICKED)) | labelled.label.astype(np.uint8)
        for i, f in enumerate(self.policy.keep):
            # the other fields are the impression's own, which labels do not change
            if table.given[i] and (f.join is not None or f.name not in FIELDS):
                table.fields[i, rows] = labelled.fields[f.name]

    def _scored(self, rows: NDArray[np.int64]) -> Scored:
        return self.joiner.scored(rows, list(self.counted.online), self.grace)

"""The progressive-validation loop of one partition: join -> score -> observe -> learn.

The rule, kept here and nowhere else: no model ever scores an event whose label it has learned from. A batch goes
through in one fixed order (`step`): labels mature up to the batch's earliest time and are learned; its impressions
are scored; labels mature up to its latest time. So no score knows a label younger than its impression, at any batch
size, and at batch size 1 without lateness the loop is River's `simulate_qa`.

The rule is also checked: a score is stored with the model's training watermark (the latest moment at which any label
it has learned became known), and a score whose watermark lies after its impression counts as a violation. An
impression that arrives behind the watermark is therefore not scored online at all.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from streameval.background import Background
from streameval.columns import Scored, span
from streameval.counting.arrivals import Arrivals
from streameval.counting.gauc_rows import GaucRows
from streameval.counting.join_panes import JoinPanes
from streameval.counting.ledger import Ledger
from streameval.counting.panestats import PaneStats
from streameval.counting.request_auc import observe_requests
from streameval.counting.requests import Requests
from streameval.counting.scoreboard import Labelled, Scoreboard
from streameval.events import Batch, Codes, Features, Names, empty_clicks, empty_impressions
from streameval.join.joiner import Flips, Joiner
from streameval.join.leaps import Leaps
from streameval.join.policy import CLICKED, CORRECTED, FOREVER, LATE, NEVER, SHOWN, JoinPolicy
from streameval.learner import Learner

_PIECE = 1 << 15  # rows that are counted at a time, however many mature at once


@dataclass(frozen=True, slots=True)
class Settled:
    """Rows that have just matured, with every score: what `replay --predictions` writes."""

    id: NDArray[np.uint64]
    ts: NDArray[np.int64]
    label: NDArray[np.int8]
    names: Names | None
    scored: Scored


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Impressions that were refused: their id is another model's or version's.

    `places`: in the arrival order of their batch; of those that came with an earlier batch only the number is known.
    """

    count: int
    places: NDArray[np.int32]
    batch: Batch


@dataclass(slots=True)
class Listener:
    """Who wants to hear of labels: `settled` when they mature, `corrected` (ids, labels) when they change later."""

    settled: Callable[[Settled], None]
    corrected: Callable[[NDArray[np.uint64], NDArray[np.int8]], None]


@dataclass(slots=True)
class Monitor:
    """One partition's state, and the loop over its batches."""

    policy: JoinPolicy
    scoreboard: Scoreboard
    ledger: Ledger
    gauc: GaucRows
    learners: list[Learner]
    request_gap: int
    score_at: Literal["impression", "label"] = "impression"
    shared: bool = True
    listener: Listener | None = None
    background: Background = field(default_factory=Background)  # counts; `wait` before reading the scoreboard
    leaps: list[Leaps] = field(init=False)  # by input: events far ahead of the others, before the joiner
    joiner: Joiner = field(init=False)
    requests: Requests = field(init=False)
    panes: PaneStats = field(init=False)
    arrivals: Arrivals = field(init=False)
    joins: JoinPanes = field(init=False)
    conflicts: Conflicts | None = None  # what the last step refused
    counts: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # wall clock spent, by stage

    def __post_init__(self) -> None:
        self.requests = Requests(self.policy.attribution_window + self.request_gap, self.scoreboard.pane)
        self.joiner = Joiner(self.policy, len(self.learners), self.shared, self.requests.shift)
        self.leaps = [Leaps(self.policy.correction_horizon, self.shared) for _ in range(self.joiner.progress.inputs)]
        self.panes = PaneStats(self.scoreboard.pane)
        self.arrivals = Arrivals(self.scoreboard.pane)
        self.joins = JoinPanes(self.scoreboard.pane, self.policy.attribution_window, self.policy.allowed_lateness)

    def step(self, batch: Batch) -> None:
        """Takes one batch through the loop: all of it but what `leaps` holds back."""
        if self.joiner.progress.inputs == 1:
            shown = clicked = self.leaps[0].screen(batch.impressions, batch.clicks)
        else:
            shown = self.leaps[0].screen(batch.impressions, empty_clicks())
            clicked = self.leaps[1].screen(empty_impressions(), batch.clicks)
        for leaps in self.leaps:
            self.joins.ahead(leaps.take_ahead())
        count = 0
        if shown.before is not None or clicked.before is not None:
            nothing = empty_impressions(), empty_clicks()
            count = self._step(
                replace(batch, impressions=(shown.before or nothing)[0], clicks=(clicked.before or nothing)[1])
            ).size
        refused = self._step(replace(batch, impressions=shown.now[0], clicks=clicked.now[1]))
        if count + refused.size:
            places = (shown.now[0].order if shown.places is None else shown.places)[refused]
            self.conflicts = Conflicts(count + refused.size, places[places >= 0], batch)

    def _step(self, batch: Batch) -> NDArray[np.int32]:
        """Impressions that were refused, by number."""
        if not len(batch):
            return np.empty(0, np.int32)
        self._settle(self.joiner.mature(self.joiner.progress.look_ahead(batch.impressions.ts, batch.clicks.ts)))
        with self._timed("join"):
            rows, flips = self.joiner.add(batch)
            self.panes.seen(self.joiner.table.ts[rows])
            on_time = rows[(self.joiner.table.state[rows] & LATE) == 0]
            self.arrivals.seen(self.joiner.table.ts[on_time], self.joiner.table.series[on_time])
            self.joins.add(self.joiner.table, rows, self.joiner.fates)
        self._correct(flips)
        with self._timed("requests"):  # closed requests that get another impression close again later
            self._observe_requests(self.requests.closed(self.joiner.table.request[rows]), -1)
            self.requests.link(self.joiner.table, rows, self.joiner.front)
        if self.score_at == "impression":
            self._score(rows)
        self._advance()
        return self.joiner.take_conflicts()

    def set_idle(self, input_number: int, idle: bool) -> None:
        """An input has been silent for long, or speaks again."""
        self.joiner.progress.set_idle(input_number, idle)
        self._advance()

    def show(self) -> None:
        """While an input is silent: counts what the watermark has passed, for readers, until it matures.

        Nothing is learned of it, and no comparison nor curve is made of it: what the silent input holds back may come yet.
        """
        rows = self.joiner.show()
        for piece in self._pieces(rows):
            self._count_shown(piece, +1)
        if rows.size:
            with self._timed("requests"):
                self._observe_requests(self.requests.close(self.joiner.progress.watermark), +1)

    def finish(self) -> None:
        """The stream has ended: everything matures, every request closes."""
        for leaps in self.leaps:
            self._step(Batch(0, *leaps.finish(), self.shared))
        self.joiner.finish()
        self._advance()

    def complete_until(self) -> int | None:
        """Every impression before this time (ms) has its final label; None before the first event."""
        watermark = self.joiner.progress.watermark
        if watermark == NEVER:
            return None
        return FOREVER if watermark >= FOREVER else watermark - self.policy.attribution_window

    @property
    def quarantined(self) -> int:
        """Events that wait because their time is far ahead of their input's others."""
        return sum(map(len, self.leaps))

    @property
    def runaways(self) -> Counter[str]:
        """Events that waited in vain, by the names of the report."""
        return sum((leaps.counts for leaps in self.leaps), Counter[str]())

    # -- the steps -----------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Labels mature as far as is firm; requests close; what is too old is let go."""
        joiner = self.joiner
        self._settle(joiner.mature(max(joiner.progress.firm, joiner.pressure_watermark())))
        with self._timed("requests"):
            self._observe_requests(self.requests.close(joiner.progress.firm), +1)
        self._compute_gauc()
        with self._timed("join"):
            joiner.drop_features()
            joiner.forget()
            self.panes.judged(*joiner.take_judged())

    def _score(self, rows: NDArray[np.int64]) -> None:
        """Online models score rows that are not late; the score keeps how far the model had learned."""
        if not self.learners or not rows.size:
            return
        with self._timed("score"):
            table = self.joiner.table
            late = (table.state[rows] & LATE) != 0
            if late.any():
                self.counts["late_unscored"] += int(late.sum())
                rows = rows[~late]
            if not rows.size:
                return
            for part, features in self._features(rows):
                for number, learner in enumerate(self.learners):
                    table.score[number][rows[part]] = learner.score(features)
                    table.trained[number][rows[part]] = learner.trained

    def _settle(self, rows: NDArray[np.int64]) -> None:
        """Mature labels: (score,) learn, then observe what was scored before; in this order."""
        if not rows.size:
            return
        shown = rows[(self.joiner.table.state[rows] & SHOWN) != 0]
        for piece in self._pieces(shown):
            self._count_shown(piece, -1)
        self.joiner.table.state[shown] &= ~np.uint8(SHOWN)
        if self.score_at == "label":
            self._score(rows)
        if self.learners:
            with self._timed("learn"):
                self._learn(rows)
        with self._timed("settle"):
            for piece in self._pieces(rows):
                self._count(piece)

    def _learn(self, rows: NDArray[np.int64]) -> None:
        table = self.joiner.table
        known = int(table.ts[rows[-1]]) + self.policy.attribution_window
        asked = [learner for learner in self.learners if learner.suspended is None]
        for part, features in self._features(rows):
            label = (table.state[rows[part]] & CLICKED).astype(np.int8)
            for number, learner in enumerate(self.learners):
                if learner.suspended is None:
                    done = learner.learn(features, label)
                    if learner.suspended is not None:
                        self._withdraw(number, rows, part.start + done - 1)
        for learner in asked:
            learner.trained = max(learner.trained, known)

    def _withdraw(self, number: int, rows: NDArray[np.int64], last: int) -> None:
        """Takes the scores back that a model, suspended at label `last` of these rows, had no right to give any more.

        Those of impressions from the moment on at which that label was known; a larger batch scores them before it.
        """
        table = self.joiner.table
        if self.score_at == "label":
            after = rows[last + 1 :]
        else:
            live = np.arange(self.joiner.front, self.joiner.front + self.joiner.known)
            after = live[table.ts[live] >= table.ts[rows[last]] + self.policy.attribution_window]
        self._hide(after[(table.state[after] & SHOWN) != 0])
        score = table.score[number].copy()  # a checkpoint that is being written reads the old one
        score[after] = np.nan
        table.score[number] = score

    def _hide(self, rows: NDArray[np.int64]) -> None:
        """Takes out what was counted of rows for readers before they mature."""
        for piece in self._pieces(rows):
            self._count_shown(piece, -1)
        self.joiner.hide(rows)

    def _correct(self, flips: Flips) -> None:
        """Labels that changed after maturity, or after they were shown."""
        shown = (self.joiner.table.state[flips.rows] & SHOWN) != 0
        if not shown.any():
            self._recount(flips, shown=False)
            return
        for on in (shown, ~shown):
            some = Flips(flips.rows[on], flips.was_clicked[on], flips.was_value[on], flips.was_corrected[on])
            self._recount(some, shown=on is shown)

    def _recount(self, flips: Flips, shown: bool) -> None:
        """What was counted is taken out, and counted again as it is now."""
        rows = flips.rows
        if not rows.size:
            return
        rows, first = np.unique(rows, return_index=True)  # an impression's first change holds what was counted
        with self._timed("correct"):
            table = self.joiner.table
            by_time = np.argsort(table.ts[rows], kind="stable")
            rows, first = rows[by_time], first[by_time]
            after = self._labelled(rows)
            before = Labelled(
                after.ts, after.user, after.slices, flips.was_clicked[first].astype(np.int8),
                flips.was_corrected[first], None if after.value is None else flips.was_value[first], after.fresh, after.item,
            )  # fmt: skip
            closed = self.requests.closed(table.request[rows])
            state, value = table.state[rows], table.value[rows] if table.value.size else None
            self._write_labels(rows, before)
            self._observe_requests(closed, -1)
            table.state[rows] = state
            if value is not None:
                table.value[rows] = value
            self._observe_requests(closed, +1)
            scored = self._scored(rows)
            self.background.call(self._observe, before, scored, -1, shown)
            self.background.call(self._observe, after, scored, +1, shown)
            self.panes.changed(after.ts, after.label - before.label, after.corrected & ~before.corrected)
            if shown:
                return
            self.gauc.mark(after.ts, late=1)
            if self.listener is not None:
                self.listener.corrected(table.id[rows], after.label)

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything between two batches, for `restore`: arrays, plain values, and calls that give more of them.

        What changes is copied now, or by the counting thread in its turn; calls are for the thread that writes.
        """
        return {
            "shared": self.shared,
            "leaps": [leaps.state() for leaps in self.leaps],
            "joiner": self.joiner.state(scores_change=self.score_at == "label"),
            "requests": self.requests.state(self.joiner.front),
            "panes": self.panes.state(),
            "arrivals": self.arrivals.state(),
            "joins": self.joins.state(),
            "counts": dict(self.counts),
            "learners": [one.state() for one in self.learners],
            "scoreboard": self.background.call(self.scoreboard.state).result,
            "ledger": self.background.call(self.ledger.state).result,
            "gauc_marks": self.gauc.marks(),
            "gauc": self.background.call(self.gauc.state).result,
        }

    def restore(self, state: Mapping[str, Any], codes: Codes, slice_rows: NDArray[np.int64]) -> None:
        """Takes over what `state` gave, into a monitor that has seen nothing (see `Scoreboard.restore`)."""
        self.joiner.restore(state["joiner"], codes)
        for number, leaps in enumerate(self.leaps):
            if "leaps" in state:
                leaps.restore(state["leaps"][number], codes)
            else:  # written before there were any
                leaps.begin_at(int(state["joiner"]["newest"][number]))
        self.requests.restore(state["requests"])
        self.panes.restore(state["panes"])
        self.arrivals.restore(state["arrivals"], codes.series)
        self.joins.restore(state.get("joins", []))  # none: written before there were any
        self.counts = Counter(state["counts"])
        for one, saved in zip(self.learners, state["learners"], strict=True):
            one.restore(saved)
        self.scoreboard.restore(state["scoreboard"], codes, slice_rows)
        self.ledger.restore(state["ledger"], codes)
        self.gauc.restore(state["gauc_marks"], state["gauc"], codes)

    # -- inside --------------------------------------------------------------------------------------------------

    def _pieces(self, rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Rows in order of time, a piece at a time: none so long that its first pane's curves are let go before its last."""
        ts = self.joiner.table.ts[rows]
        start = 0
        while start < rows.size:
            last = int(np.searchsorted(ts, ts[start] + self.policy.correction_horizon))
            end = min(start + _PIECE, max(last, start + 1))
            yield rows[start:end]
            start = end

    def _count(self, rows: NDArray[np.int64]) -> None:
        """Counts rows that have just matured, and tells the listener."""
        labelled = self._labelled(rows, fresh=True)
        scored = self._scored(rows)
        self.background.call(self._observe, labelled, scored, +1)
        self.panes.matured(labelled.ts, labelled.label, labelled.corrected)
        self.gauc.mark(labelled.ts[labelled.fresh], late=0)
        self.gauc.mark(labelled.ts[labelled.corrected | ~labelled.fresh], late=1)
        if self.listener is not None:
            names = self.joiner.names(rows)
            self.listener.settled(Settled(self.joiner.table.id[rows], labelled.ts, labelled.label, names, scored))

    def _count_shown(self, rows: NDArray[np.int64], sign: int) -> None:
        """Counts rows that are shown before they mature, or takes them out again."""
        labelled = self._labelled(rows)
        self.background.call(self._observe, labelled, self._scored(rows), sign, shown=True)
        self.panes.matured(labelled.ts, labelled.label, labelled.corrected, sign)

    def _observe(self, labelled: Labelled, scored: Scored, sign: int, shown: bool = False) -> None:
        with self._timed("observe"):
            measured = self.scoreboard.measured(labelled, scored)
            self.scoreboard.observe(labelled, scored, sign, measured, placed=not shown)
            if not shown:
                self.ledger.observe(labelled, scored, sign, measured)

    def _compute_gauc(self) -> None:
        """Windows whose labels are complete, or have changed since; before the joiner forgets their rows."""
        for late, due in self.gauc.due(self.joiner.progress.firm):
            with self._timed("gauc"):
                some = self.gauc.gather(late, due, self.joiner, *self._scorers())
                self.background.call(self.gauc.compute, some)

    def _labelled(self, rows: NDArray[np.int64], fresh: bool = False) -> Labelled:
        """The rows' labels; `fresh`: they mature now."""
        table, whole = self.joiner.table, span(rows)

        def column(of: NDArray[Any]) -> NDArray[Any]:
            return of[rows] if whole is None else of[whole].copy()  # a third of the time

        state = column(table.state)
        return Labelled(
            ts=column(table.ts),
            user=column(table.user),
            slices=column(table.slices).astype(np.int64, copy=False),
            label=(state & CLICKED).astype(np.int8),
            corrected=(state & CORRECTED) != 0,
            value=column(table.value) if table.value.size else None,
            fresh=fresh & ((state & LATE) == 0),
            item=column(table.item),
        )

    def _write_labels(self, rows: NDArray[np.int64], labelled: Labelled) -> None:
        table = self.joiner.table
        table.state[rows] = (table.state[rows] & ~np.uint8(CLICKED)) | labelled.label.astype(np.uint8)
        if labelled.value is not None:
            table.value[rows] = labelled.value

    def _scored(self, rows: NDArray[np.int64]) -> Scored:
        return self.joiner.scored(rows, *self._scorers())

    def _scorers(self) -> tuple[list[int], int]:
        """The online models' series, and the grace in which they may have learned (see `Joiner.scored`)."""
        grace = self.policy.attribution_window if self.score_at == "label" else 0
        return [learner.series for learner in self.learners], grace

    def _features(self, rows: NDArray[np.int64]) -> list[tuple[slice, Features]]:
        pieces = self.joiner.features(rows)
        if not pieces:  # events without any features: every row is empty
            nothing = np.empty(0, np.uint64), np.empty(0)
            empty = Features(np.zeros(rows.size + 1, np.int64), *nothing, tuple({} for _ in range(rows.size)))
            return [(slice(0, rows.size), empty)]
        return pieces

    def _observe_requests(self, entries: NDArray[np.int32], sign: int) -> None:
        if entries.size:
            rows, group = self.requests.members(entries, self.joiner.table, self.joiner.front)
            if rows.size:
                self.background.call(
                    observe_requests, self.scoreboard, self._labelled(rows), group, self._scored(rows), sign
                )

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] += time.perf_counter() - begin

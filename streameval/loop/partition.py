"""The progressive-validation loop of one partition: join -> score -> observe -> learn.

The rule, enforced here and nowhere else: no model ever scores an event whose label it has learned from. A batch goes
through in one fixed order (`step`): labels mature up to the batch's earliest time and are learned; its impressions are
scored; labels mature up to its latest time. So no score depends on a label newer than its impression, at any batch size,
and at batch size 1 without lateness the loop is River's `simulate_qa`.

The rule is also checked: a score is stored with the model's training watermark (the latest time at which any label
that it has learned became known), and a score whose training watermark is after its impression counts as a violation.
Therefore an impression that arrives behind the watermark is not scored online at all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streameval.auction.live import LiveAuctions
from streameval.compare.counted import Counted
from streameval.counting.objectives import Objectives
from streameval.counting.panestats import PaneStats
from streameval.counting.requests import Requests
from streameval.counting.scoreboard import Labelled, Scoreboard
from streameval.events.batch import Batch
from streameval.events.columns import Scored
from streameval.join.joiner import Joiner
from streameval.join.policy import FOREVER, NEVER, SHOWN, JoinPolicy
from streameval.join.quarantine import Quarantine
from streameval.join.to_disk import RowsToDisk
from streameval.loop.estimates import RowPropensities
from streameval.loop.online import OnlineModels
from streameval.loop.reading import Conflicts
from streameval.loop.row_counts import LabelListener, RowCounts, timed
from streameval.loop.short_batches import short_batches
from streameval.models.learner import Learner
from streameval.process.background import Background

UNWRITTEN_PANES = 4_096  # kept in memory for each partition while the history cannot be written; otherwise all are


@dataclass(slots=True)
class Partition:
    """One partition's state, and the loop over its batches."""

    policy: JoinPolicy
    scoreboard: Scoreboard
    counted: Counted  # for comparisons
    learners: list[Learner]
    request_gap: int
    score_at: Literal["impression", "label"] = "impression"
    shared: bool = True
    listener: LabelListener | None = None
    auctions: LiveAuctions | None = None
    objectives: Objectives | None = None
    estimates: RowPropensities | None = None
    background: Background = field(default_factory=Background)  # counts; `wait` before reading the scoreboard
    quarantine: Quarantine = field(init=False)  # in front of the joiner
    joiner: Joiner = field(init=False)
    to_disk: RowsToDisk = field(init=False)
    requests: Requests = field(init=False)
    panes: PaneStats = field(init=False)
    rows: RowCounts = field(init=False)
    models: OnlineModels = field(init=False)
    conflicts: Conflicts | None = None  # refused by the last step
    counts: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # wall clock spent, by stage

    def __post_init__(self) -> None:
        close_after = self.policy.attribution_window + self.request_gap
        self.requests = Requests(close_after, self.scoreboard.pane, self.policy.request_life)
        self.joiner = Joiner(self.policy, tuple(one.name for one in self.learners), self.shared, self.requests.shift)
        self.to_disk = RowsToDisk(self.joiner)
        self.quarantine = Quarantine(self.policy.correction_horizon, self.inputs, self.shared)
        self.panes = PaneStats(self.scoreboard.pane)
        self.counted.begin(self.joiner, [learner.series for learner in self.learners])
        self.rows = RowCounts(
            policy=self.policy,
            joiner=self.joiner,
            requests=self.requests,
            scoreboard=self.scoreboard,
            panes=self.panes,
            counted=self.counted,
            grace=self.policy.attribution_window if self.score_at == "label" else 0,
            background=self.background,
            seconds=self.seconds,
            listener=self.listener,
            auctions=self.auctions,
            objectives=self.objectives,
            estimates=self.estimates,
        )
        window, at_label = self.policy.attribution_window, self.score_at == "label"
        self.models = OnlineModels(self.learners, self.joiner, self.rows, window, at_label, self.counts)

    def step(self, batch: Batch) -> None:
        """Takes one batch through the loop, except for events that are quarantined."""
        self.rows.considered(batch)
        released = self.quarantine.screen(batch)
        for ahead in self.quarantine.take_ahead():
            self.counted.joins.ahead(ahead)
        count = 0 if released.before is None else self._in_pieces(released.before).size
        refused = self._in_pieces(released.now)
        if count + refused.size:
            places = released.places[refused]
            self.conflicts = Conflicts(count + refused.size, places[places >= 0], batch)

    def _in_pieces(self, batch: Batch) -> NDArray[np.int32]:
        """Steps through a batch, for online models in short pieces. Returns the numbers of refused impressions."""
        if not self.learners:
            return self._step(batch)
        pieces = short_batches(batch, self.policy.attribution_window, self.joiner.counts["impressions"])
        return np.concatenate([self._step(piece) + np.int32(first) for piece, first in pieces])

    def _step(self, batch: Batch) -> NDArray[np.int32]:
        """Joins, scores and counts; returns the numbers of refused impressions."""
        if not len(batch):
            return np.empty(0, np.int32)
        self._settle(self.joiner.mature(self.joiner.progress.look_ahead(batch.impressions.ts, batch.clicks.ts)))
        with timed(self.seconds, "join"):
            rows, flips = self.joiner.add(batch)
            table, new = self.joiner.table, slice(int(rows[0]), int(rows[-1]) + 1) if rows.size else slice(0)
            self.panes.seen(table.ts[new])
            self.counted.came(table, rows, self.joiner.fates)
            self.rows.arrived(batch.impressions, rows)
        self.rows.correct(flips)
        with timed(self.seconds, "requests"):  # a closed request that gets another impression closes again later
            found = self.requests.find(self.joiner.table, rows, self.joiner.front)
            self.rows.requests_changed(self.requests.closed_of(found), -1)
            self.requests.link(self.joiner.table, rows, found, self.joiner.front)
        if self.score_at == "impression":
            self._score(rows)
        self._advance()
        return self.joiner.take_conflicts()

    def set_idle(self, input_number: int, idle: bool) -> None:
        """Marks an input as idle or not; labels that become due because it is idle mature now, not at the next step."""
        self.joiner.progress.set_idle(input_number, idle)
        if idle:
            self._advance()

    def must_be_asked(self, input_number: int) -> bool:
        """Whether it matters if a silent input has been read to its end; see `Progress.must_be_asked`."""
        return self.joiner.progress.must_be_asked(input_number)

    def show(self) -> None:
        """While an input is silent: counts, for readers, impressions that the watermark has passed, until they mature.

        Models, comparisons and curves do not use them, because clicks from the silent input may still arrive.
        """
        rows = self.joiner.show()
        for piece in self.rows.pieces(rows):
            self.rows.count_shown(piece, +1)
        if rows.size:
            with timed(self.seconds, "requests"):
                self.rows.requests_changed(self.requests.close(self.joiner.progress.watermark), +1)

    def count(self, labelled: Labelled, scored: Scored) -> None:
        """Counts impressions whose labels are final, in order of time, without a join and without comparisons."""
        self.counts["impressions"] += labelled.ts.size
        self.counts["matured"] += labelled.ts.size
        self.rows.count_labelled(labelled, scored)

    def count_requests(self, labelled: Labelled, scored: Scored, request: NDArray[np.int32]) -> None:
        """Counts whole requests of impressions that were counted by `count`; `request` numbers them from 0."""
        self.rows.count_requests(labelled, scored, request)

    def finish(self) -> None:
        """The stream has ended: everything matures, every request closes."""
        for events in self.quarantine.finish():
            self._in_pieces(Batch(0, *events, self.shared))
        self.joiner.finish()
        self._advance()
        self.models.tell_blind()

    def follow(self, firm: int) -> None:
        """Nothing comes any more: labels mature as those of other partitions do, which are firm up to `firm`."""
        self.joiner.progress.follow(firm)
        self._advance()

    def complete_until(self) -> int | None:
        """Every impression before this time (ms) has its final label; None before the first event."""
        watermark = self.joiner.progress.watermark
        if watermark == NEVER:
            return None
        return FOREVER if watermark >= FOREVER else watermark - self.policy.attribution_window

    @property
    def inputs(self) -> int:
        """1: impressions and clicks come in one log; 2: in two."""
        return self.joiner.progress.inputs

    @property
    def idle(self) -> bool:
        """Whether all its inputs are idle, so that others need not wait for it."""
        return self.joiner.progress.idle

    @property
    def next_due(self) -> int | None:
        """When the next label is due, ms; None: no label is pending."""
        return self.joiner.runs.next_due

    def keep_every_score(self) -> None:
        """Keeps every score, so that the AUC over all users is exact, however many there are."""
        self.scoreboard.users.exact_limit = 1 << 40

    def limit_users(self, nbytes: int) -> None:
        """Sets the memory that users may take from now on."""
        self.scoreboard.users.budget = nbytes

    def every_pane_changed(self) -> None:
        """Marks all panes in memory as changed, for sinks that track which panes they have."""
        self.scoreboard.overall.all_changed()

    @property
    def firm(self) -> int:
        """Labels of impressions before this time (ms) minus the attribution window are final; NEVER before the first event."""
        return self.joiner.progress.firm

    @property
    def settled(self) -> int | None:
        """The time (ms) before which nothing that was counted can change; None if unknown."""
        return None if self.firm in (NEVER, FOREVER) else self.firm - self.policy.correction_horizon

    @property
    def watermark(self) -> int:
        """The watermark of what readers see (ms); NEVER before the first event."""
        return self.joiner.progress.watermark

    @property
    def newest_event(self) -> int:
        """The time of the newest event, ms; NEVER before the first event."""
        return self.joiner.progress.newest_event

    def fates(self) -> Counter[str]:
        """The outcomes of the events, by the names of the report."""
        counts = self.joiner.counts + self.counts + self.quarantine.counts
        counts.update(quarantined=len(self.quarantine), pending=self.joiner.pending)
        return counts

    def series_in_use(self) -> set[int]:
        """Codes of the series that a pane, an impression in memory or a model refers to."""
        held = self.joiner.series_in_use().union(self.rows.in_auctions(), self.quarantine.series_in_use())
        return held | self.scoreboard.overall.rows() | {learner.series for learner in self.learners}

    def retire(self, code: int) -> None:
        """Drops a series, so that its code can be reused."""
        self.scoreboard.retire(code)
        self.counted.clear(code)

    @property
    def unwritten(self) -> int:
        """Panes that are not in the history yet."""
        return self.scoreboard.overall.unwritten

    @property
    def never_written(self) -> int:
        """Panes that left memory before they could be written to the history."""
        return self.scoreboard.overall.never_written

    @property
    def panes_due(self) -> int:
        """Those of them that can be written now, or are being written."""
        return self.scoreboard.overall.due(self._writable_before())

    def written(self, done: bool) -> None:
        """Whether the panes of the last `take_unwritten` were written (`done`), or writing failed."""
        self.scoreboard.overall.written(done)

    def take_unwritten(self) -> list[int]:
        """Complete panes that changed since they were written."""
        return self.scoreboard.overall.take_unwritten(self._writable_before())

    def _writable_before(self) -> int:
        """The pane before which all are complete, and their requests closed, since each of these changes its pane."""
        complete = self.complete_until()
        return 0 if complete is None else (complete - self.request_gap) // self.scoreboard.pane

    def forget_before(self, pane: int, unwritten: int | None) -> None:
        """Drops panes before `pane` that no correction can change, except for the newest `unwritten` (None: all) that are
        not in the history yet."""
        # by its own watermark: a partition that was silent for long keeps the panes that can still change
        changeable = self.firm - self.policy.correction_horizon
        first = self.scoreboard.overall.needed_from(min(pane, changeable // self.scoreboard.pane), unwritten)
        self.scoreboard.forget_before(first)
        self.panes.forget_before(first)

    # -- the steps -----------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Matures labels up to `firm`, closes requests and drops what is too old."""
        joiner = self.joiner
        upto = max(joiner.progress.firm, joiner.pressure_watermark())
        self._settle(joiner.mature(upto))
        with timed(self.seconds, "requests"):
            self.rows.requests_changed(self.requests.close(joiner.progress.firm), +1)
        self.rows.run_auctions(upto)
        self.rows.compute_gauc()
        with timed(self.seconds, "join"):
            joiner.runs.drop_features()
            joiner.forget()
            self.panes.judged(*joiner.judged.take())

    def _score(self, rows: NDArray[np.int64]) -> None:
        if self.learners and rows.size:
            with timed(self.seconds, "score"):
                self.models.score(rows)

    def _settle(self, rows: NDArray[np.int64]) -> None:
        """Rows whose labels mature: (score,) learn, then observe the scores; in this order."""
        if not rows.size:
            return
        shown = rows[(self.joiner.table.state[rows] & SHOWN) != 0]
        for piece in self.rows.pieces(shown):
            self.rows.count_shown(piece, -1)
        self.joiner.table.state[shown] &= ~np.uint8(SHOWN)
        at_label = self.score_at == "label"
        if at_label:  # a model that is suspended while it learns withdraws scores of rows after that one
            self._score(rows)
            self._learn(rows)
        for piece in self.rows.pieces(rows):  # one is counted in the background while the next one is learned
            if not at_label:
                self._learn(piece)
            with timed(self.seconds, "settle"):
                self.rows.count(piece)

    def _learn(self, rows: NDArray[np.int64]) -> None:
        if self.learners:
            with timed(self.seconds, "learn"):
                self.models.learn(rows)

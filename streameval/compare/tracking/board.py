"""All deploys and comparisons of a process, driven by event time: deploys are noticed from arrivals, comparisons
decided at looks.

Panes are processed in order: first the arrivals of a pane, then the panes whose labels are complete by that time. So
the same events lead to the same looks, whatever the batches, the speed and the restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import asdict
from typing import Any

from streameval.compare.evidence.evidence import Rule
from streameval.compare.ledger.row_shape import PLAIN_ROWS, RowShape
from streameval.compare.reading.reading import SETUPS, Comparison, Deploy, Role, Setup
from streameval.compare.tracking.aside import AsideHours
from streameval.compare.tracking.before_after_tracked import BeforeAfterTracked
from streameval.compare.tracking.deploys import Deploys
from streameval.compare.tracking.learning import LearningModels
from streameval.compare.tracking.limits import BoardLimits
from streameval.compare.tracking.roles import Roles, seen_in
from streameval.compare.tracking.rows_that_count import LookGains, Past, Placing, RowsThatCount
from streameval.compare.tracking.sequential import SequentialTracked
from streameval.compare.tracking.tracked import Tracked
from streameval.compare.tracking.watch import NONE_LATE, Watch
from streameval.counting.look_panes import LookPanes
from streameval.events.batch import Series
from streameval.events.durations import HOUR
from streameval.events.names import OTHER

CHANGED_RULE = "the settings in [compare], or of its metrics, have changed"


class Board:
    """Deploys, and the comparisons that they lead to."""

    def __init__(
        self,
        rule: Rule,
        limits: BoardLimits,
        pane: int,
        shape: RowShape = PLAIN_ROWS,
        revisions: Mapping[str, int] | None = None,
    ) -> None:
        """`pane` in ms; `shape`: the layout of the ledgers' rows; `revisions`: of the online models, by name."""
        self._rule, self._limits, self._pane, self._shape = rule, limits, pane, shape
        self._look = LookPanes(pane).length
        self._watch = Watch(limits.share, limits.count)
        self.deploys = Deploys(self._watch)
        self._roles = Roles(limits.share)
        self._learning = LearningModels(limits.learning)
        self._revisions = dict(revisions or {})
        self.tracked: list[Tracked] = []
        self.arrived = 0  # the first pane that may still get arrivals
        self.looked = 0  # the first pane that has not been evaluated
        self.aside = AsideHours(pane)
        self._rows = RowsThatCount(limits, pane, self.aside)

    # -- events --------------------------------------------------------------------------------------------------

    def arrivals(
        self, pane: int, served: Mapping[Series, int], late: Mapping[Series, Mapping[int, int]] = NONE_LATE
    ) -> list[Deploy]:
        """Adds impressions by the series that served them, of the panes looked at with a pane, the last of them; returns
        the deploys noticed from them. `late`: by the pane, of those looked at together the last, in which they were shown.
        """
        end = (pane + 1) * self._pane
        counts = {(series.model, series.version): n for series, n in served.items()}
        shown = {
            (series.model, series.version): {(one + 1) * self._pane - self._look: n for one, n in row.items()}
            for series, row in late.items()
        }
        noticed = self.deploys.arrivals(end - self._look, end, counts, shown)
        for deploy in noticed:
            self._compare(deploy)
        self.arrived = max(self.arrived, pane + 1)
        return noticed

    def look(
        self,
        pane: int,
        gains: LookGains,
        past: Past,
        withheld: str | None,
        gauc: LookGains = (),
        placing: Placing = lambda keys: {},
        partitions: int = 1,
        behind: Mapping[Series, str] = NONE_LATE,
    ) -> list[Tracked]:
        """Evaluates the panes looked at with a pane, the last of them, whose labels are complete.

        `gains`: the rows added by these panes, and by corrections of older ones. `past`: all rows evaluated so far,
        including these panes'. `gauc`: the rows added by the windows of GAUC that end by then, and by corrections of
        older ones. `placing`: see `Placing`. `partitions`: how many of them learn separately. `behind`: the versions that
        nothing may be decided about, and why. Returns the comparisons that start over with the next pane, and so need new
        cuts.
        """
        at = (pane + 1) * self._pane
        known = {(tracked.baseline, tracked.candidate) for tracked in self.tracked}
        for segment, rows in gains:
            for served, other in rows:
                # the reverse pair: the replaced version is scored in shadow, which the deploy's own comparison covers
                if other is not None and not {(served, other), (other, served)} & known:
                    known.add((served, other))
                    self._notice_shadow(served, other, segment, at)
        for tracked in self.tracked:
            runs = tracked.start < at <= tracked.until + self._pane
            tracked.release()
            if runs:
                self._begin_windows(tracked, pane)
            # corrections are added even after its end. A pair is not compared before its server is the champion, but
            # its rows from earlier in the segment count too, because its scores are placed with the segment
            for segment, rows in gains if tracked.has_past else past():
                self._rows.add(tracked, segment, rows)
            tracked.has_past = True
            for segment, rows in gauc:
                self._rows.add_gauc(tracked, segment, rows)
            why = withheld or behind.get(tracked.baseline) or behind.get(tracked.candidate)
            if runs and why is None and tracked.is_due(at):
                self._rows.hold(tracked, placing, self.looked * self._pane)
            if runs:
                tracked.look(at, why)
        self.looked = max(self.looked, pane + 1)
        restarted = self._learn(at, gains, withheld, partitions) + self._judge_again(at)
        self._freeze_expired()
        return restarted

    def retract(self, since: int, at: int, of: Series | None = None) -> None:
        """Retracts verdicts reached at looks from `since` on (ms), as became known at `at` (ms); `of`: those about it only."""
        for tracked in self.tracked:
            if of is None or of in (tracked.baseline, tracked.candidate):
                tracked.retract(since, at)

    def set_aside(self, hours: frozenset[int]) -> None:
        """Which hours of event time are left out from now on; the sums are then to be made again."""
        self.aside.change(hours, (self.looked * self._pane - self._limits.history) // HOUR)

    def withhold(self, at: int, why: str) -> None:
        """Withholds verdicts from `at` (ms) on, until the next look."""
        for tracked in self.tracked:
            if tracked.runs(at):
                tracked.withhold(at, why)

    def place(self, placing: Placing) -> None:
        """Adds provisional placements of open strata to running comparisons, for their readers."""
        for tracked in self.tracked:
            if not tracked.holds:
                self._rows.hold(tracked, placing, self.looked * self._pane)

    def cuts(self) -> list[int]:
        """Returns the panes at which the sums of comparisons begin, and the first ones after they end."""
        ends = {tracked.until // self._pane + 1 for tracked in self.tracked}
        return sorted(ends | {tracked.segment for tracked in self.tracked})

    # -- readers -------------------------------------------------------------------------------------------------

    def role(self, series: Series) -> Role:
        """Returns the current role of a series."""
        return self._roles.of(series, self._watch, self._learning.is_over(series))

    def has_served(self, series: Series) -> bool:
        return self._watch.knows(series.model, series.version)

    def readings(self, finish: Callable[[Tracked, Comparison], Comparison]) -> tuple[Comparison, ...]:
        """Returns the comparisons that have anything to show, oldest first; `finish` adds what cannot be read from the
        sums.
        """
        every = [finish(tracked, tracked.reading()) for tracked in self.tracked]
        return tuple(
            c
            for c in every
            if c.impressions
            or (c.withheld and c.setup == "split")  # its impressions may all come late
            or any(change.kind == "anew" for change in c.changes)
            or any(e.baseline is not None and e.candidate is not None for e in c.early)
        )

    # -- checkpoints, partitions ---------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Returns everything but the sums, as plain values."""
        return {
            "arrived": self.arrived,
            "looked": self.looked,
            "aside": self.aside.state(),
            "watch": self._watch.state(),
            "deploys": self.deploys.state(),
            "tracked": [{"rule": asdict(tracked.rule), **tracked.state()} for tracked in self.tracked],
            "roles": self._roles.state(),
            "learning": self._learning.state(),
            "revisions": self._revisions,
        }

    def restore(self, state: Mapping[str, Any]) -> list[str]:
        """Restores what `state` returned if it is ahead of this board; the sums must then be rebuilt.

        A running comparison whose rule differs from the board's starts over, from the first pane that has not been
        evaluated; returns the ids of those. One that has ended keeps its results, and its own rule.
        """
        restarted: list[str] = []
        if (state["looked"], state["arrived"]) <= (self.looked, self.arrived):
            return restarted
        self.arrived, self.looked = state["arrived"], state["looked"]
        self.aside.restore(state.get("aside", {}))
        self._watch.restore(state["watch"])
        self.deploys.restore(state["deploys"])
        by_id = {deploy.id: deploy for deploy in self.deploys.on_record}
        self._roles.restore(state.get("roles", []))
        self._learning.restore(state.get("learning", []))
        if "learning" not in state:  # an older checkpoint: what was being judged then continues to be judged
            online = [one for one in state["tracked"] if Series(*one["candidate"]).source == "online"]
            for one in online:
                self._learning.of(Series(*one["candidate"]), one["start"]).over = True
        self.tracked = []
        for one in state["tracked"]:
            if one["deploy"] not in by_id:
                continue
            deploy, rule = by_id[one["deploy"]], Rule.of(one["rule"], self._rule)
            sides = Series(*one["baseline"]), Series(*one["candidate"])
            if rule == self._rule or self.looked * self._pane > one["start"] + rule.horizon:
                tracked = self._new(deploy, one["setup"], *sides, one["start"], one["segment"], rule)
                tracked.restore(one)
                self.tracked.append(tracked)
            else:
                at = self.looked * self._pane
                self._track(deploy, one["setup"], *sides, at, self.looked)
                self.tracked[-1].begins_anew(at, CHANGED_RULE)
                restarted.append(self.tracked[-1].id)
        before = state.get("revisions", self._revisions)
        self._from_scratch({name for name, one in self._revisions.items() if one != before.get(name)})
        return restarted

    def _from_scratch(self, models: Set[str]) -> None:
        """These online models have forgotten what they had learned: they are learning again."""

        def is_one(series: Series) -> bool:
            return series.source == "online" and series.model in models

        self._learning.forget(is_one)
        at = self.looked * self._pane
        self._restart(at, "its model starts from scratch", lambda t: is_one(t.candidate))
        for tracked in self.tracked:
            tracked.learning |= is_one(tracked.candidate) and at <= tracked.until

    def add_past(self, segments: Past) -> None:
        """Adds the rows evaluated earlier to new comparisons that need them."""
        new = [tracked for tracked in self.tracked if not tracked.has_past]
        if new:
            for segment, rows in segments():
                for tracked in new:
                    self._rows.add(tracked, segment, rows)
        for tracked in new:
            tracked.has_past = True

    def rebuild(self, segments: Past, gauc: Past = lambda: iter(())) -> None:
        """Recomputes the sums from the evaluated segments of all partitions."""
        for tracked in self.tracked:
            tracked.forget_sums()
            for segment, rows in segments():
                self._rows.add(tracked, segment, rows)
            for segment, rows in gauc():
                self._rows.add_gauc(tracked, segment, rows)
            tracked.has_past = True
        self._freeze_expired()

    # -- inside --------------------------------------------------------------------------------------------------

    def _new(
        self, deploy: Deploy, setup: Setup, baseline: Series, candidate: Series, start: int, segment: int, rule: Rule
    ) -> Tracked:
        if setup == "before_after":
            history = self._limits.history
            return BeforeAfterTracked(deploy, baseline, candidate, start, segment, rule, self._pane, history)
        return SequentialTracked(deploy, setup, baseline, candidate, start, segment, rule, shape=self._shape)

    def _freeze_expired(self) -> None:
        """Freezes comparisons that the ledgers no longer cover, so that they look the same after a restart."""
        for tracked in self.tracked:
            if self.looked * self._pane > tracked.start + self._limits.history:
                tracked.freeze()

    def _learn(self, at: int, gains: LookGains, withheld: str | None, partitions: int) -> list[Tracked]:
        """Updates roles, and online models that are learning; returns the comparisons of those that have finished
        learning.
        """
        self._roles.look(*seen_in(gains))
        if withheld is None:
            self._learning.add(gains, at - self._look, bool(self._rule.weighed))
        learned = self._learning.look(at, partitions)
        return self._restart(at, "learned enough to be evaluated", lambda t: t.learning and t.candidate in learned)

    def _judge_again(self, at: int) -> list[Tracked]:
        least = self._limits.learning
        return self._restart(at, "it does not serve, and is evaluated again", lambda t: t.lapsed(at, least))

    def _restart(self, at: int, why: str, which: Callable[[Tracked], bool]) -> list[Tracked]:
        """Restarts the running comparisons that `which` selects, with the pane that begins at `at`."""
        out = [t for t in self.tracked if t.runs(at) and which(t)]
        for tracked in out:
            tracked.start_over(at, at // self._pane, why)
        return out

    def _begin_windows(self, tracked: Tracked, pane: int) -> None:
        """Starts a new window at a full hour, at least the rule's `restart` after the one before."""
        hour = pane * self._pane // HOUR * HOUR
        if hour >= tracked.start + tracked.rule.restart * tracked.windows:
            segment = -(-hour // self._pane)
            tracked.begin(segment, segment * self._pane)

    def _notice_shadow(self, served: Series, other: Series, segment: int, noticed: int) -> None:
        """Starts comparing a version, or an online model, that only scores what another one serves; rows before
        `segment` do not count. `__other__` is several versions, so it is compared with nothing.
        """
        if OTHER in other or (other.source == "logged" and self._watch.is_live(other.model, other.version)):
            return
        if self._watch.champion(served.model) != served.version:
            return
        name = other.version if other.source == "logged" else other.model
        deploy = self.deploys.shadow(served.model, name, noticed - self._look, noticed)
        self._track(deploy, "paired", served, other, noticed - self._look, segment)
        self.tracked[-1].has_past = False

    def _compare(self, deploy: Deploy) -> None:
        """Tracks a deploy in every setup; sums count from the version's first pane, or the first that has not been
        evaluated.
        """
        if deploy.replaces is None:
            return
        candidate = Series(deploy.model, deploy.version, "logged")
        baseline = candidate._replace(version=deploy.replaces)
        first = max(deploy.at // self._pane, self.looked)
        for setup in SETUPS:
            self._track(deploy, setup, baseline, candidate, first * self._pane, first)

    def _track(
        self, deploy: Deploy, setup: Setup, baseline: Series, candidate: Series, start: int, segment: int
    ) -> None:
        tracked = self._new(deploy, setup, baseline, candidate, start, segment, self._rule)
        tracked.learning = candidate.source == "online" and not self._learning.is_over(candidate)
        self.tracked.append(tracked)
        del self.tracked[: -self._limits.keep]

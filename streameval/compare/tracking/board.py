"""All deploys and comparisons of a process, driven by event time: arrivals notice deploys, looks decide comparisons.

Panes are processed in order: first the arrivals of a pane, then the panes whose labels are complete by that time. So
the same events lead to the same looks, whatever the batches, the speed and the restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from streameval.compare.announce import Announcement, announced_deploy, with_announcement
from streameval.compare.evidence.evidence import Rule
from streameval.compare.evidence.ratio import Ints
from streameval.compare.ledger.row_shape import PLAIN_ROWS, RowShape
from streameval.compare.reading.reading import SETUPS, Comparison, Deploy, Role, Setup
from streameval.compare.tracking.aside import AsideHours
from streameval.compare.tracking.before_after_tracked import BeforeAfterTracked
from streameval.compare.tracking.learning import LearningModels, labels_of
from streameval.compare.tracking.roles import Roles
from streameval.compare.tracking.sequential import SequentialTracked
from streameval.compare.tracking.sums import RowName
from streameval.compare.tracking.tracked import Tracked
from streameval.compare.tracking.watch import Watch
from streameval.events.batch import Series
from streameval.events.durations import HOUR
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BLOCKS, PAIR_CELLS, SERIES_CELLS

_MOST_DEPLOYS = 1_000  # on record

Placing = Callable[[Collection[RowName]], Mapping[tuple[int, RowName], Ints]]  # what open strata come to, by segment
_Gains = Sequence[tuple[int, Mapping[RowName, Ints]]]  # (segment, rows) that a look adds, oldest first
_Past = Callable[[], Iterator[tuple[int, Mapping[RowName, Ints]]]]  # those of everything that was looked at


@dataclass(frozen=True, slots=True)
class BoardLimits:
    """What is noticed, and how long it is compared. Times in ms."""

    share: float  # of its model's traffic, from which a version is noticed
    count: int  # or impressions
    horizon: int  # for which a comparison runs
    restart: int  # after which a window starts over
    keep: int  # comparisons on record
    history: int = 15 * 86_400_000  # for which the ledgers keep sums
    learning: int = 6 * HOUR  # the window over which an online model must be no better than before, to be judged


class Board:
    """Deploys, and the comparisons that they lead to."""

    def __init__(self, rule: Rule, limits: BoardLimits, pane: int, shape: RowShape = PLAIN_ROWS) -> None:
        """`pane` in ms; `shape`: of the rows of the ledgers."""
        self._rule, self._limits, self._pane, self._shape = rule, limits, pane, shape
        self._watch = Watch(limits.share, limits.count)
        self._roles = Roles(limits.share)
        self._learning = LearningModels(limits.learning)
        self.deploys: list[Deploy] = []
        self.tracked: list[Tracked] = []
        self.arrived = 0  # the first pane of which arrivals may still come
        self.looked = 0  # the first pane that has not been looked at
        self.aside = AsideHours(pane)

    # -- events --------------------------------------------------------------------------------------------------

    def announce(self, announcement: Announcement) -> Deploy:
        """Records an announcement of CI/CD."""
        a = announcement
        known = announced_deploy(self.deploys, a)
        if known is not None:
            deploy = with_announcement(known, a)
            self._replace(deploy)
            return deploy
        deploy = self._watch.announced(a.model, a.version, a.at, a.note, a.link)
        self._add(deploy)
        return deploy

    def arrivals(self, pane: int, served: Mapping[Series, int]) -> list[Deploy]:
        """A pane's impressions by who served them; returns the deploys that it has made known."""
        start = pane * self._pane
        counts = {(series.model, series.version): n for series, n in served.items()}
        out = []
        for deploy in self._watch.pane(start, start + self._pane, counts):
            waiting = [
                d
                for d in self.deploys
                if (d.model, d.version) == (deploy.model, deploy.version) and d.noticed is None and d.kind != "shadow"
            ]
            if waiting:  # it was announced
                known = waiting[-1]
                deploy = replace(  # noqa: PLW2901  (it takes the noticed one's place)
                    known, kind=deploy.kind, noticed=deploy.noticed, replaces=deploy.replaces, at=deploy.at
                )
                self._replace(deploy)
            else:
                self._add(deploy)
            out.append(deploy)
            self._compare(deploy, Series(deploy.model, deploy.version, "logged"))
        self.arrived = max(self.arrived, pane + 1)
        return out

    def look(
        self,
        pane: int,
        gains: _Gains,
        past: _Past,
        withheld: str | None,
        gauc: _Gains = (),
        placing: Placing = lambda keys: {},
        partitions: int = 1,
    ) -> list[Tracked]:
        """Looks at a pane whose labels are complete. `gains`: what it, and corrections of older ones, add. `past`: all that
        was looked at, this pane too.

        `gauc`: what windows of GAUC that end by then add, and corrections of older ones. `placing`: see `Placing`. `partitions`:
        that learn apart. Returns the comparisons that start over with the next pane, so with new cuts.
        """
        at = (pane + 1) * self._pane
        known = {(tracked.baseline, tracked.candidate) for tracked in self.tracked}
        for segment, rows in gains:
            for served, other in rows:
                # the other way round: the one that was replaced is scored in shadow, which is the deploy's own comparison
                if other is not None and not {(served, other), (other, served)} & known:
                    known.add((served, other))
                    self._notice_shadow(served, other, segment, at)
        for tracked in self.tracked:
            runs = tracked.start < at <= tracked.start + self._limits.horizon + self._pane
            tracked.release()
            if runs:
                self._begin_windows(tracked, pane)
            # corrections also when it is over. A pair is not compared before who served is the champion: what the segment
            # had of it by then counts too, for its scores are placed with the segment
            for segment, rows in gains if tracked.has_past else past():
                self._gain(tracked, segment, rows)
            tracked.has_past = True
            for segment, rows in gauc:
                self._gain_gauc(tracked, segment, rows)
            if runs and withheld is None and tracked.is_due():
                self._hold(tracked, placing)
            if runs:
                tracked.look(at, withheld)
        self.looked = max(self.looked, pane + 1)
        anew = self._learn(at, gains, withheld, partitions) + self._judge_again(at)
        self._freeze_expired()
        return anew

    def retract(self, since: int, at: int) -> None:
        """Takes back what looks from `since` on (ms) have found, as is known at `at`."""
        for tracked in self.tracked:
            tracked.retract(since, at)

    def set_aside(self, hours: frozenset[int]) -> None:
        """Which hours of event time are left out from now on; the sums are then to be made again."""
        self.aside.change(hours, (self.looked * self._pane - self._limits.history) // HOUR)

    def withhold(self, at: int, why: str) -> None:
        """Withholds verdicts from `at` (ms) on, until the next look."""
        for tracked in self.tracked:
            if tracked.start < at <= tracked.start + self._limits.horizon:
                tracked.withhold(at, why)

    def place(self, placing: Placing) -> None:
        """Gives running comparisons what is not placed for good yet, for their readers."""
        for tracked in self.tracked:
            if not tracked.holds:
                self._hold(tracked, placing)

    def cuts(self) -> list[int]:
        """The panes at which the sums of comparisons begin, and those behind their ends."""
        ends = {(tracked.start + self._limits.horizon) // self._pane + 1 for tracked in self.tracked}
        return sorted(ends | {tracked.segment for tracked in self.tracked})

    # -- readers -------------------------------------------------------------------------------------------------

    def role(self, series: Series) -> Role:
        """What a series is there for."""
        return self._roles.of(series, self._watch, self._learning.is_over(series))

    def readings(self, finish: Callable[[Tracked, Comparison], Comparison]) -> tuple[Comparison, ...]:
        """The comparisons that something is known of, oldest first; `finish` adds what the sums do not contain."""
        every = [finish(tracked, tracked.reading()) for tracked in self.tracked]
        return tuple(
            c
            for c in every
            if c.impressions
            or any(change.kind == "anew" for change in c.changes)
            or any(e.baseline is not None and e.candidate is not None for e in c.early)
        )

    # -- checkpoints, partitions ---------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything but the sums, as plain values."""
        return {
            "arrived": self.arrived,
            "looked": self.looked,
            "aside": self.aside.state(),
            "watch": self._watch.state(),
            "deploys": [asdict(deploy) for deploy in self.deploys],
            "tracked": [{"rule": asdict(tracked.rule), **tracked.state()} for tracked in self.tracked],
            "roles": self._roles.state(),
            "learning": self._learning.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> list[str]:
        """Restores what `state` returned if it has seen more than this board; the sums are then to be made again.

        A comparison that runs under another rule than the board's starts over, from the first pane that nobody has looked at;
        their ids are returned. One that is over stays as it was, under its own.
        """
        anew: list[str] = []
        if (state["looked"], state["arrived"]) <= (self.looked, self.arrived):
            return anew
        self.arrived, self.looked = state["arrived"], state["looked"]
        self.aside.restore(state.get("aside", {}))
        self._watch.restore(state["watch"])
        self.deploys = [Deploy(**deploy) for deploy in state["deploys"]]
        by_id = {deploy.id: deploy for deploy in self.deploys}
        self._roles.restore(state.get("roles", []))
        self._learning.restore(state.get("learning", []))
        if "learning" not in state:  # an older checkpoint: what was judged then is judged on
            online = [one for one in state["tracked"] if Series(*one["candidate"]).source == "online"]
            for one in online:
                self._learning.of(Series(*one["candidate"]), one["start"]).over = True
        self.tracked = []
        for one in state["tracked"]:
            if one["deploy"] not in by_id:
                continue
            deploy, rule = by_id[one["deploy"]], Rule.of(one["rule"])
            sides = Series(*one["baseline"]), Series(*one["candidate"])
            if rule == self._rule or self.looked * self._pane > one["start"] + self._limits.horizon:
                tracked = self._new(deploy, one["setup"], *sides, one["start"], one["segment"], rule)
                tracked.restore(one)
                self.tracked.append(tracked)
            else:
                self._track(deploy, one["setup"], *sides, self.looked * self._pane, self.looked)
                anew.append(self.tracked[-1].id)
        return anew

    def add_past(self, segments: _Past) -> None:
        """Adds what was looked at earlier to new comparisons that need it."""
        new = [tracked for tracked in self.tracked if not tracked.has_past]
        if new:
            for segment, rows in segments():
                for tracked in new:
                    self._gain(tracked, segment, rows)
        for tracked in new:
            tracked.has_past = True

    def rebuild(
        self,
        segments: _Past,
        gauc: _Past = lambda: iter(()),
    ) -> None:
        """Makes the sums again, of every partition's segments that have been looked at."""
        for tracked in self.tracked:
            tracked.forget_sums()
            for segment, rows in segments():
                self._gain(tracked, segment, rows)
            for segment, rows in gauc():
                self._gain_gauc(tracked, segment, rows)
            tracked.has_past = True
        self._freeze_expired()

    # -- inside --------------------------------------------------------------------------------------------------

    def _new(
        self, deploy: Deploy, setup: Setup, baseline: Series, candidate: Series, start: int, segment: int, rule: Rule
    ) -> Tracked:
        if setup == "before_after":
            return BeforeAfterTracked(
                deploy,
                baseline,
                candidate,
                start,
                segment,
                rule,
                pane=self._pane,
                horizon=self._limits.horizon,
                history=self._limits.history,
            )
        return SequentialTracked(deploy, setup, baseline, candidate, start, segment, rule, shape=self._shape)

    def _gain(self, tracked: Tracked, segment: int, rows: Mapping[RowName, Ints]) -> None:
        if segment * self._pane > tracked.start + self._limits.horizon or segment in self.aside:
            return
        for key in tracked.concerned(rows):
            tracked.gain(segment, key, rows[key])

    def _gain_gauc(self, tracked: Tracked, segment: int, rows: Mapping[RowName, Ints]) -> None:
        """Of windows that begin within the comparison."""
        start = segment * self._pane
        if tracked.start <= start <= tracked.start + self._limits.horizon and segment not in self.aside:
            for key in tracked.concerned(rows):
                tracked.gain_gauc(segment, key, rows[key])

    def _hold(self, tracked: Tracked, placing: Placing) -> None:
        """Only of a comparison that runs: what came after its end is not of it."""
        if tracked.keys and self.looked * self._pane <= tracked.start + self._limits.horizon + self._pane:
            tracked.hold({at: row for at, row in placing(tracked.keys).items() if at[0] not in self.aside})

    def _freeze_expired(self) -> None:
        """Of what the ledgers forget, here and after a restart alike."""
        for tracked in self.tracked:
            if self.looked * self._pane > tracked.start + self._limits.history:
                tracked.freeze()

    def _learn(self, at: int, gains: _Gains, withheld: str | None, partitions: int) -> list[Tracked]:
        """What a look tells of roles and of online models that learn; returns the comparisons of those that have learned."""
        served_by: dict[str, int] = {}
        scored: dict[Series, str] = {}
        for _, rows in gains:
            for (served, other), row in rows.items():
                if other is None:
                    n = int(row[: BLOCKS * SERIES_CELLS].reshape(BLOCKS, SERIES_CELLS)[:, cells.N].sum())
                    served_by[served.model] = served_by.get(served.model, 0) + n
                    continue
                sums = row[: BLOCKS * PAIR_CELLS].reshape(BLOCKS, PAIR_CELLS).sum(axis=0)
                if sums[cells.PAIR_N]:
                    scored[other] = served.model
                if other.source == "online" and withheld is None:
                    self._learning.of(other, at - self._pane).gain(
                        served, *labels_of(row, sums, bool(self._rule.weighed))
                    )
        self._roles.look(scored, served_by)
        learned = self._learning.look(at, partitions)
        return self._anew(at, "learned enough to be evaluated", lambda t: t.learning and t.candidate in learned)

    def _judge_again(self, at: int) -> list[Tracked]:
        least = self._limits.learning
        return self._anew(at, "it does not serve, and is evaluated again", lambda t: t.lapsed(at, least))

    def _anew(self, at: int, why: str, which: Callable[[Tracked], bool]) -> list[Tracked]:
        """Those that run start over with the pane that begins at `at`."""
        out = [t for t in self.tracked if t.start < at <= t.start + self._limits.horizon and which(t)]
        for tracked in out:
            tracked.start_over(at, at // self._pane, why)
        return out

    def _begin_windows(self, tracked: Tracked, pane: int) -> None:
        """Windows begin with an hour, at least `restart` after the one before."""
        hour = pane * self._pane // HOUR * HOUR
        if hour >= tracked.start + self._limits.restart * tracked.windows:
            segment = -(-hour // self._pane)
            tracked.begin(segment, segment * self._pane)

    def _notice_shadow(self, served: Series, other: Series, segment: int, noticed: int) -> None:
        """A version, or an online model, that only scores what another one serves; what was before `segment` is left out."""
        if other.source == "logged" and self._watch.is_live(other.model, other.version):
            return
        if self._watch.champion(served.model) != served.version:
            return
        name = other.version if other.source == "logged" else other.model
        deploy = self._watch.shadow(served.model, name, noticed - self._pane, noticed)
        self._add(deploy)
        self._track(deploy, "paired", served, other, noticed - self._pane, segment)
        self.tracked[-1].has_past = False

    def _compare(self, deploy: Deploy, candidate: Series) -> None:
        """Sums count from the version's first pane, or from the first that nobody has looked at."""
        if deploy.replaces is None:
            return
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

    def _add(self, deploy: Deploy) -> None:
        self.deploys.append(deploy)
        del self.deploys[:-_MOST_DEPLOYS]

    def _replace(self, deploy: Deploy) -> None:
        self.deploys = [deploy if d.id == deploy.id else d for d in self.deploys]
        for tracked in self.tracked:
            if tracked.deploy.id == deploy.id:
                tracked.deploy = deploy


def named(series: Sequence[Series], rows: Iterable[tuple[tuple[int, int], Ints]]) -> dict[RowName, Ints]:
    """Rows of a ledger by names instead of codes."""
    return {(series[a], None if b < 0 else series[b]): row for (a, b), row in rows}

"""All partitions of this process: a monitor each, and the snapshot over them. Knows no source and no reader."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import astuple
from typing import Any

import numpy as np

from streameval.background import Background
from streameval.compare.announce import Announcements
from streameval.comparing import Comparisons
from streameval.config import FtrlModel, RiverModel, Settings
from streameval.counting.gauc_rows import GaucRows
from streameval.counting.ledger import Ledger
from streameval.counting.scoreboard import Scoreboard, SliceRows
from streameval.evaluate import ALL, Evaluator, Frame
from streameval.events import Batch, Catalog, Series
from streameval.gaps import Gaps
from streameval.health import HealthJudge
from streameval.history import PaneHistory
from streameval.join.leaps import MOST
from streameval.join.policy import FOREVER, NEVER, JoinPolicy
from streameval.learner import Learner, Place
from streameval.models import river
from streameval.models.ftrl import Ftrl
from streameval.models.protocol import FAILURES, OnlineModel
from streameval.monitor import Conflicts, Listener, Monitor
from streameval.report import CheckpointState, HistoryState, PartitionState, Result, SliceValues, Snapshot, UserColumns
from streameval.store.history_rows import PaneRows, pane_rows

# Fates of the report, in its order; the joiner counts more (matched_clicks, forgotten_early, ...).
FATES = (
    "impressions", "clicks", "matured", "pending", "duplicate_impressions", "duplicate_clicks", "unmatched_clicks",
    "late_clicks", "late_impressions", "corrected", "matched_clicks", "expired_impressions", "late_unscored",
    "forgotten_early", "matured_early", "early_clicks", "quarantined", "runaway_impressions",
    "runaway_clicks", "conflicting_impressions",
)  # fmt: skip

UNWRITTEN_PANES = 4_096  # of a partition, that wait in memory for a history that cannot be written
RETIRE_FROM = 3  # quarters of the versions that are told apart; from there on unused ones are retired
RETIRE_SECONDS = 30.0
LONGEST_TICK = 2.0  # seconds of silence that one tick can have heard


class Pipeline:
    """Takes batches of any partition; makes snapshots. Used by one thread."""

    def __init__(
        self, settings: Settings, clock: Callable[[], float], announcements: Announcements | None = None
    ) -> None:
        """`clock`: wall-clock seconds; `announcements`: of deploys. Raises ModelError if a configured model cannot be made."""
        self.settings = settings
        self.catalog = Catalog(settings.slices.dimensions, settings.slices.max_values)
        self._clock = clock
        self._started = clock()
        self._pane = settings.windows.pane
        self._windows = [window // self._pane for window in settings.windows.sliding]
        self._slice_rows = SliceRows(self.catalog)
        edges = settings.buckets.edges
        self._evaluator = Evaluator(
            self.catalog, self._slice_rows, edges, settings.buckets.quantiles, self._pane, self._windows
        )
        self._health = HealthJudge(self._pane)
        self._comparisons = Comparisons(
            settings.compare, self.catalog, self._pane, settings.join, edges, announcements or Announcements(),
        )  # fmt: skip
        self._history = PaneHistory(self.catalog, self._slice_rows, edges, self._pane)
        self.topic = settings.kafka.impressions_topic  # where impressions come from; for who has to find one again
        self.listener: Listener | None = None  # who hears of labels; set before the first batch
        self.on_conflicts: Callable[[Conflicts], None] | None = None  # keeps what was refused for its id
        self.has_history = False  # somebody calls `history_rows`: panes wait for it
        self.hears_all = True  # no partition is still to be heard of for the first time: what is complete is known
        self.monitors: dict[int, Monitor] = {}
        self._background = Background()  # one for all partitions: they share the numbering of slices
        self._quiet: dict[tuple[int, int], float] = {}  # (partition, input) -> seconds without an event
        self._ticked = clock()
        self._offsets: dict[int, dict[tuple[str, int], int]] = {}
        self._topic_ids: dict[int, dict[tuple[str, int], str]] = {}  # of the topics that the offsets are of
        self._gaps: dict[int, Gaps] = {}  # by partition
        self._invalid: dict[int, Counter[str]] = {}  # by partition
        self._last_seen: dict[Series, float] = {}
        self._last_count: dict[Series, int] = {}
        self._number = 0
        self._users: Mapping[Series, UserColumns] = {}
        self._users_of: set[Series] = set()  # what there was when they were looked up
        self._retire_due = 0.0  # monotonic seconds
        self._users_due = 0.0  # monotonic seconds
        self.seconds: defaultdict[str, float] = defaultdict(float)  # stages outside the monitors: poll, publish
        for model in settings.models:  # fail at the start, not at the first batch
            make_model(model)

    def take(self, batch: Batch) -> None:
        """One batch through its partition's loop."""
        self._invalid.setdefault(batch.partition, Counter()).update(batch.invalid)
        self._offsets.setdefault(batch.partition, {}).update(batch.offsets)
        self._topic_ids.setdefault(batch.partition, {}).update(batch.topic_ids)
        monitor = self.monitors.get(batch.partition)
        if batch.gaps:
            gaps = self._gaps.setdefault(batch.partition, Gaps())
            gaps.open(batch.gaps, NEVER if monitor is None else monitor.joiner.progress.watermark)
        if not len(batch):
            return
        if batch.partition in self._gaps:
            kafka = self.settings.kafka
            for topic, events in ((kafka.impressions_topic, batch.impressions), (kafka.clicks_topic, batch.clicks)):
                if len(events):
                    self._gaps[batch.partition].close([topic], int(events.ts.max()))
        if monitor is None:
            monitor = self.monitors[batch.partition] = self._make_monitor(batch.partition, batch.shared)
        for number in range(monitor.joiner.progress.inputs):
            spoke = batch.shared or (len(batch.impressions) if number == 0 else len(batch.clicks))
            key = (batch.partition, number)
            if spoke or key not in self._quiet:
                self._quiet[key] = 0.0
            if spoke:
                monitor.joiner.progress.set_idle(number, False)
        monitor.step(batch)
        conflicts, monitor.conflicts = monitor.conflicts, None
        if conflicts is not None:
            self._invalid[batch.partition]["conflicting_id"] += conflicts.count
            if self.on_conflicts is not None:
                self.on_conflicts(conflicts)
        if monitor.ledger.is_full and self.hears_all:  # a fast replay, between two snapshots
            self._background.wait()
            self._comparisons.advance(list(self.monitors.values()))

    def tick(self, caught_up: Callable[[], Collection[tuple[str, int]]]) -> None:
        """Inputs that have been silent for `join.idle_timeout` stop holding their watermark back, and so what is shown.

        One of which messages wait is not silent: `caught_up` says at whose end (topic, partition) the source stands. And
        a step of the clock, or a time in which this process was frozen, is no silence that anybody has listened to.
        """
        now = self._clock()
        heard = min(max(now - self._ticked, 0.0), LONGEST_TICK)
        self._ticked = now
        limit = self.settings.join.idle_timeout / 1000.0
        silent = []
        for (partition, number), quiet in self._quiet.items():
            self._quiet[partition, number] = quiet + heard
            if quiet + heard >= limit and not self.monitors[partition].joiner.progress.is_idle(number):
                silent.append((partition, number))
        if not silent:
            return
        topics = self.settings.kafka.impressions_topic, self.settings.kafka.clicks_topic
        at_end = caught_up()
        for partition, number in silent:
            if (topics[number], partition) in at_end:
                self.monitors[partition].set_idle(number, True)
            else:
                self._quiet[partition, number] = 0.0

    def finish(self) -> None:
        """The stream has ended."""
        for monitor in self.monitors.values():
            monitor.finish()
        self._background.wait()
        self._users_due = 0.0

    def snapshot(
        self,
        lag: Mapping[tuple[str, int], int] | None = None,
        lost: Mapping[tuple[str, int], int] | None = None,
        ready: Mapping[str, bool] | None = None,
        with_history: bool = True,
        checkpoints: CheckpointState | None = None,
        history: HistoryState | None = None,
        complete: bool = True,
        recreated: Mapping[str, int] | None = None,
        unpaired: Mapping[str, int] | None = None,
        empty_offsets: Mapping[tuple[str, int], int] | None = None,
    ) -> Snapshot:
        """Everything that readers may know, as it is now. `with_history`: also panes and users.

        `complete`: every partition of this process has been heard of; until then no comparison takes a look.
        """
        monitors = [self.monitors[p] for p in sorted(self.monitors)]
        for monitor in monitors:
            monitor.show()
        self._background.wait()
        now = self._clock()
        frames = self._evaluator.frames(monitors)
        end = frames[0].end
        health, silent = self._health.judge(
            monitors, end, sum(sum(counts.values()) for counts in self._invalid.values())
        )
        if complete:
            self._comparisons.advance(monitors)
        gaps = self._missing()
        unreliable = {f.name: why for f in frames if (why := _unreliable(f, health.reason, [*gaps, *silent]))}
        results = self._evaluator.results(monitors, unreliable)
        panes, sketches = {}, None
        if with_history:
            longest = max(self._windows, default=0)
            keep = end - max(longest, self.settings.join.correction_horizon // self._pane)
            panes = self._history.update(monitors, end, keep)
            sketches = None if self.has_history else self._history.sketches(monitors)
            begin = time.monotonic()
            counted = {r.series for r in results if r.totals.impressions}
            if begin >= self._users_due or counted - self._users_of:  # a new version has users at once
                self._users, self._users_of = self._user_columns(monitors), counted
                took = time.monotonic() - begin
                self._users_due = begin + max(5.0, 20 * took)
            for monitor in monitors:
                # what its own watermark lets change is kept whole: one that was silent for long goes on where it was
                changeable = monitor.joiner.progress.firm - self.settings.join.correction_horizon
                waiting = UNWRITTEN_PANES if self.has_history else 0
                first = monitor.scoreboard.overall.needed_from(min(keep, changeable // self._pane), waiting)
                monitor.scoreboard.forget_before(first)
                monitor.panes.forget_before(first)
        self._number += 1
        self._see(results, now)
        if with_history:
            self._retire_versions(monitors)
        return Snapshot(
            number=self._number,
            taken_at=now,
            started_at=self._started,
            events=self._events(monitors),
            results=tuple(results),
            partitions=tuple(self._partition(p, lag or {}) for p in sorted(self._offsets)),
            join=health,
            panes=panes,
            pane=self._pane,
            sketches=sketches,
            users=self._users,
            last_seen=dict(self._last_seen),
            stage_seconds=_stages([self.seconds, *(m.seconds for m in monitors)]),
            table_bytes=self._bytes(monitors),
            bucket_edges=(0.0, *self.settings.buckets.edges, 1.0),
            undefined=dict(Counter(f"{name}:{why}" for r in results for name, why in r.reasons.items())),
            online_updates=self._updates(monitors),
            online_failures=self._failures(monitors),
            suspensions=tuple(one.suspended for m in monitors for one in m.learners if one.suspended is not None),
            ready=dict(ready or {}),
            lost=dict(lost or {}),
            recreated=dict(recreated or {}),
            unpaired=dict(unpaired or {}),
            empty_offsets=dict(empty_offsets or {}),
            attribution_window=self.settings.join.attribution_window,
            checkpoints=checkpoints,
            history=history,
            budget_used=self._budgets(monitors),
            slice_values=self._slice_values(),
            deploys=self._comparisons.deploys,
            comparisons=self._comparisons.readings(monitors, self._users),
            roles=self._comparisons.roles(),
        )

    def history_rows(self, partitions: Collection[int]) -> dict[int, list[PaneRows]]:
        """The complete panes of these partitions that changed since they were written; see `Panes.take_unwritten`.

        Not before their requests are closed: every one of them changes its pane, which would be written each time.
        """
        ours = self.monitors.keys() & set(partitions)
        for partition in ours:
            self.monitors[partition].show()
        self._background.wait()
        out = {}
        for partition in ours:
            monitor = self.monitors[partition]
            complete = monitor.complete_until()
            before = 0 if complete is None else (complete - self.settings.join.request_gap) // self._pane
            panes = monitor.scoreboard.overall.take_unwritten(before)
            if panes:
                out[partition] = pane_rows(monitor, self.catalog, self._slice_rows, panes)
        return out

    # -- partitions come and go ----------------------------------------------------------------------------------

    def partition_state(self, partition: int) -> dict[str, Any] | None:
        """All that is known of a partition between two batches (see `Monitor.state`); None: nothing yet."""
        if partition not in self._offsets:
            return None
        monitor = self.monitors.get(partition)
        state = None if monitor is None else monitor.state()
        rows = self._background.call(self._slice_rows.known)  # after the counting that may make new ones
        return {
            "offsets": [[topic, number, offset] for (topic, number), offset in self._offsets[partition].items()],
            "topic_ids": [[*place, known] for place, known in self._topic_ids.get(partition, {}).items()],
            "gaps": self._gaps[partition].state() if partition in self._gaps else [],
            "invalid": dict(self._invalid.get(partition, {})),
            "names": self.catalog.names(),
            "slice_rows": rows.result,
            "last_seen": [[*astuple(series), seen] for series, seen in self._last_seen.items()],
            "monitor": state,
            "comparisons": self._comparisons.state(),
        }

    def restore_partition(self, partition: int, state: Mapping[str, Any]) -> dict[tuple[str, int], int]:
        """Takes over a partition that this process does not have; returns the offsets to go on from."""
        offsets = {(topic, number): offset for topic, number, offset in state["offsets"]}
        saved = state["monitor"]
        if saved is not None:
            codes = self.catalog.adopt(state["names"])
            monitor = self._make_monitor(partition, saved["shared"])
            monitor.restore(saved, codes, self._slice_rows.adopt(state["slice_rows"], codes))
            self.monitors[partition] = monitor
            self._comparisons.restore(state["comparisons"], list(self.monitors.values()))
            self._quiet |= {(partition, number): 0.0 for number in range(monitor.joiner.progress.inputs)}
        self._offsets[partition] = offsets
        self._topic_ids[partition] = {(topic, n): known for topic, n, known in state.get("topic_ids", [])}
        if state.get("gaps"):
            self._gaps[partition] = Gaps(state["gaps"])
        self._invalid[partition] = Counter(state["invalid"])
        for *name, seen in state["last_seen"]:
            series = Series(*name)
            self._last_seen[series] = max(seen, self._last_seen.get(series, 0.0))
        self._last_count.clear()  # what a partition brings along is nothing that was seen now
        return dict(offsets)

    def topic_ids(self, partition: int) -> dict[tuple[str, int], str]:
        """The ids of the topics that the offsets of a partition are of, where known."""
        return dict(self._topic_ids.get(partition, {}))

    def state_written(self, partition: int) -> None:
        """Nobody reads what `partition_state` gave any more."""
        if partition in self.monitors:
            self.monitors[partition].joiner.state_written()

    def forget_partition(self, partition: int) -> None:
        """Another worker has it now."""
        self._background.wait()
        self._offsets.pop(partition, None)
        self._topic_ids.pop(partition, None)
        self._gaps.pop(partition, None)
        self._invalid.pop(partition, None)
        if self.monitors.pop(partition, None) is not None:
            self._comparisons.rebuild(list(self.monitors.values()))
        self._last_count.clear()
        self._quiet = {key: seconds for key, seconds in self._quiet.items() if key[0] != partition}
        self._share_users(len(self.monitors))

    # -- inside --------------------------------------------------------------------------------------------------

    def _missing(self) -> list[tuple[int, int, str]]:
        """Stretches [first pane, end pane) in which events are missing, and why."""
        window = self.settings.join.attribution_window
        return sorted(one for gaps in self._gaps.values() for one in gaps.panes(self._pane, window))

    def _share_users(self, partitions: int) -> int:
        """Divides `users.memory`; returns a partition's share."""
        share = self.settings.users.memory // max(partitions, 1)
        self._background.wait()
        for monitor in self.monitors.values():
            monitor.scoreboard.users.budget = share
        return share

    def _make_monitor(self, partition: int, shared: bool) -> Monitor:
        s = self.settings
        weighting = s.users.weighting
        share = self._share_users(len(self.monitors) + 1)  # partitions come as they are assigned: all shares shrink
        board = Scoreboard(
            self._slice_rows, len(self.catalog.dimensions), s.buckets.edges, self._pane, self._windows, weighting, share,
            s.join.correction_horizon,
        )  # fmt: skip
        learners = [
            Learner(
                make_model(model),
                self.catalog.series_code(model.name, "online", "online"),
                model.name,
                Place(self.topic, partition),
                model.max_failures,
                model.revision,
            )
            for model in s.models
        ]
        # rows are held this much longer: never more than doubled
        gauc_window = min(s.compare.gauc_window, max(s.join.correction_horizon // self._pane, 1) * self._pane)
        policy = JoinPolicy(
            attribution_window=s.join.attribution_window,
            allowed_lateness=s.join.allowed_lateness,
            correction_horizon=s.join.correction_horizon,
            max_pending=s.join.max_pending,
            wide_slices=self.catalog.radix ** len(self.catalog.dimensions) >= 1 << 32,
            hold=gauc_window,
            keep_value=weighting == "value",
        )
        ledger = Ledger(
            self._pane, s.join.correction_horizon, self.catalog.radix, len(self.catalog.dimensions), s.buckets.edges,
            s.compare.user_cap,
        )  # fmt: skip
        monitor = Monitor(
            policy,
            board,
            ledger,
            GaucRows(gauc_window, s.join.attribution_window, s.join.correction_horizon),
            learners,
            s.join.request_gap,
            s.join.score_at,
            shared=shared,
            listener=self.listener,
            background=self._background,
        )
        self._comparisons.begin(monitor)
        return monitor

    def _retire_versions(self, monitors: list[Monitor]) -> None:
        """Versions that no pane and no impression in memory is about make room for new ones; the history keeps them.

        Only when there are many: until then the run's results go back to its beginning.
        """
        surplus = len(self.catalog.codes) - RETIRE_FROM * self.catalog.max_series // 4
        if surplus <= 0 or time.monotonic() < self._retire_due:
            return
        self._retire_due = time.monotonic() + RETIRE_SECONDS
        used = {learner.series for m in monitors for learner in m.learners}
        used = used.union(*(m.scoreboard.overall.rows() | m.joiner.series_in_use() for m in monitors))
        used = used.union(*(leaps.series_in_use() for m in monitors for leaps in m.leaps))
        unused = [code for code in self.catalog.codes if code not in used]
        unused.sort(key=lambda code: self._last_seen.get(self.catalog.series[code], 0.0))
        for code in unused[:surplus]:
            for monitor in monitors:
                monitor.scoreboard.retire(code)
                monitor.ledger.clear(code)
                monitor.gauc.clear(code)
            self._comparisons.clear(code)
            self._last_seen.pop(self.catalog.series[code], None)
            self._last_count.pop(self.catalog.series[code], None)
            self.catalog.retire(code)

    def _see(self, results: list[Result], now: float) -> None:
        """A series was seen when its impressions over the run have grown."""
        for result in results:
            if result.window == ALL and result.slice is None:
                n = result.totals.impressions
                before = self._last_count.get(result.series)
                self._last_count[result.series] = n
                if before not in (None, n) or result.series not in self._last_seen:
                    self._last_seen[result.series] = now

    def _events(self, monitors: list[Monitor]) -> dict[str, object]:
        counts = sum((m.joiner.counts + m.counts + m.runaways for m in monitors), Counter[str]())
        counts["quarantined"] = sum(m.quarantined for m in monitors)
        counts["pending"] = sum(m.joiner.pending for m in monitors)
        events: dict[str, object] = {fate: counts[fate] for fate in FATES}
        events["invalid"] = dict(sorted(sum(self._invalid.values(), Counter[str]()).items()))
        return events

    def _partition(self, partition: int, lag: Mapping[tuple[str, int], int]) -> PartitionState:
        monitor = self.monitors.get(partition)
        watermark = monitor.joiner.progress.watermark if monitor else NEVER
        newest = monitor.joiner.progress.newest_event if monitor else NEVER
        complete = monitor.complete_until() if monitor else None
        return PartitionState(
            partition=partition,
            watermark=None if watermark == NEVER else min(watermark, newest) if watermark >= FOREVER else watermark,
            label_complete=None if complete is None else min(complete, newest),
            newest_event=None if newest == NEVER else newest,
            offsets=dict(self._offsets[partition]),
            lag={where: n for where, n in lag.items() if where[1] == partition},
        )

    def _bytes(self, monitors: list[Monitor]) -> dict[str, int]:
        models = sum(learner.model.nbytes for m in monitors for learner in m.learners)
        return {
            "join": sum(m.joiner.nbytes + m.requests.nbytes for m in monitors),
            "panes": sum(m.scoreboard.nbytes for m in monitors),
            "ledger": sum(m.ledger.nbytes + m.gauc.nbytes + m.scoreboard.references.nbytes for m in monitors),
            "users": sum(m.scoreboard.users.nbytes for m in monitors),
            "models": models,
        }

    def _budgets(self, monitors: list[Monitor]) -> dict[str, float]:
        """How full every bounded table is, the fullest partition's; docs/operations.md says what happens at 1."""
        most = self.settings.join.max_pending
        used = {
            "impressions": max((m.joiner.known / most for m in monitors), default=0.0),
            "held_clicks": max((m.joiner.held / most for m in monitors), default=0.0),
            "quarantine": max((len(leaps) / MOST for m in monitors for leaps in m.leaps), default=0.0),
            "users": max((m.scoreboard.users.nbytes / m.scoreboard.users.budget for m in monitors), default=0.0),
            "versions": len(self.catalog.codes) / self.catalog.max_series,
        }
        for dimension, values in zip(self.catalog.dimensions, self.catalog.values, strict=True):
            used[f"slice:{dimension}"] = min(1.0, (len(values) - 2) / self.catalog.max_values)
        return used

    def _slice_values(self) -> dict[str, SliceValues]:
        names = self.catalog
        return {
            dimension: SliceValues(len(values) - 2, names.most_values, names.max_values, overflowed)
            for dimension, values, overflowed in zip(names.dimensions, names.values, names.overflowed, strict=True)
        }

    def _updates(self, monitors: list[Monitor]) -> dict[str, int]:
        updates = {model.name: 0 for model in self.settings.models}
        for monitor in monitors:
            for model, learner in zip(self.settings.models, monitor.learners, strict=True):
                updates[model.name] += learner.updates
        return updates

    def _failures(self, monitors: list[Monitor]) -> dict[str, dict[str, int]]:
        out = {}
        for number, model in enumerate(self.settings.models):
            found = sum((m.learners[number].failures for m in monitors), Counter[str]())
            out[model.name] = {reason: found[reason] for reason in FAILURES}
        return out

    def _user_columns(self, monitors: list[Monitor]) -> dict[Series, UserColumns]:
        out: dict[Series, UserColumns] = {}
        for code, series in enumerate(self.catalog.series):
            parts = [m.scoreboard.users.columns(code) for m in monitors if code in m.scoreboard.users.series()]
            if not parts:
                continue
            ids = np.concatenate([user for user, _ in parts])
            order = np.argsort(ids)
            columns = {name: np.concatenate([c[name] for _, c in parts])[order] for name in parts[0][1]}
            for column in columns.values():
                column.flags.writeable = False
            out[series] = UserColumns(ids[order], **columns)
        return out


def make_model(model: FtrlModel | RiverModel) -> OnlineModel:
    """The online model that a `[[models]]` entry describes. Raises ModelError."""
    if isinstance(model, FtrlModel):
        return Ftrl(model.alpha, model.beta, model.l1, model.l2, model.bits)
    return river.River(river.make(model.factory, model.parameters, model.name))


def _stages(parts: list[defaultdict[str, float]]) -> dict[str, float]:
    out: defaultdict[str, float] = defaultdict(float)
    for part in parts:
        for stage, seconds in part.items():
            out[stage] += seconds
    return dict(out)


def _unreliable(frame: Frame, reason: str | None, silent: list[tuple[int, int, str]]) -> str | None:
    """Why the labels of a window cannot be believed; None when they can."""
    if reason is not None:
        return reason
    return next((why for first, end, why in reversed(silent) if first < frame.end and end > frame.start), None)

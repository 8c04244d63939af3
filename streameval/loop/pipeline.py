"""All partitions of this process, and the snapshot over them. Independent of sources and readers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from streameval.compare.announce import Announcements
from streameval.compare.counted import Counted
from streameval.compare.reading.reading import Comparison
from streameval.counting.slice_rows import SliceRows
from streameval.events.batch import Batch, Catalog, Series
from streameval.join.cold.segment import RowsFile
from streameval.join.policy import NEVER
from streameval.loop import make, usage
from streameval.loop.idle import IdleInputs
from streameval.loop.options import options_of
from streameval.loop.partition import UNWRITTEN_PANES, Partition
from streameval.loop.partition_state import restore_state, state_of
from streameval.loop.reading import Conflicts, Reading, reported
from streameval.loop.retirement import Retirement
from streameval.loop.row_counts import LabelListener
from streameval.loop.silent_partitions import follow_others, resumes
from streameval.models.learner import ModelPlace
from streameval.models.registry import make_model
from streameval.process.background import Background
from streameval.results.evaluate import Evaluator, PartTotals
from streameval.results.health import HealthJudge, Joined, SourceSeen, unreliable
from streameval.results.panes import PaneHistory
from streameval.results.snapshot import (
    JoinHealth,
    Snapshot,
    Surroundings,
    UserColumns,
    empty_snapshot,
)
from streameval.results.user_columns import UserLookup
from streameval.settings.tree import Settings
from streameval.store.history.rows import PaneRows, pane_rows


class Pipeline:
    """Takes batches of any partition; `advance` updates what readers see, `snapshot` returns it. Used by one thread."""

    def __init__(
        self, settings: Settings, clock: Callable[[], float], announcements: Announcements | None = None
    ) -> None:
        """`clock`: wall-clock seconds; `announcements`: of deploys. Raises ModelError if a configured model cannot be created."""
        self.settings = settings
        self.catalog = Catalog(
            settings.slices.dimensions, settings.slices.max_values, mainline=settings.auction.mainline
        )
        self._clock = clock
        self._pane = settings.windows.pane
        self._windows = [window // self._pane for window in settings.windows.sliding]
        self._slice_rows = SliceRows(self.catalog)
        options = options_of(settings)
        self._evaluator = Evaluator(
            self.catalog, self._slice_rows, options, settings.buckets.quantiles, self._pane, self._windows
        )
        self._health = HealthJudge(self._pane)
        self._comparisons = make.comparisons(settings, self.catalog, announcements or Announcements())
        self.panes = PaneHistory(self.catalog, self._slice_rows, options, self._pane)
        self._users = UserLookup(self.catalog)
        self._retirement = Retirement(self.catalog)
        self._idle = IdleInputs(clock, settings.join.idle_timeout / 1000.0)
        self.inputs: tuple[str, ...] = ("impressions", "clicks")  # the source's; set before the first batch
        self.listener: LabelListener | None = None  # is notified of labels; set before the first batch
        self.on_conflicts: Callable[[Conflicts], None] | None = None  # stores what was refused for its id
        self.has_history = False  # panes are kept until they are written
        self.history_works = True  # or else only UNWRITTEN_PANES
        self.all_heard_from = True  # every partition has been heard from, so it is known which panes are complete
        self.partitions: dict[int, Partition] = {}
        self.gone: set[int] = set()  # those of them that nothing more comes of, see `loop.gone`
        self.seconds: defaultdict[str, float] = defaultdict(float)  # stages outside the partitions: read, publish
        self._background = Background()  # one for all partitions, because they share the numbering of slices
        self._readings: dict[int, Reading] = {}  # by partition
        self._latest = empty_snapshot(clock(), options)
        for model in settings.models:  # fail at the start, not at the first batch
            make_model(model)

    # -- ingest --------------------------------------------------------------------------------------------------

    def take(self, batch: Batch) -> None:
        """Takes one batch through its partition's loop."""
        reading = self._readings.setdefault(batch.partition, Reading())
        part = self.partitions.get(batch.partition)
        reading.take(batch, self.inputs, NEVER if part is None else part.watermark)
        if not len(batch) and not (len(batch.candidates) and make.reads_candidates(self.settings)):
            return
        if part is None:
            part = self.partitions[batch.partition] = self._make_partition(batch.partition, batch.shared)
            self._idle.know(batch.partition, part.inputs)
        for number in range(part.inputs):
            if len(batch) and (batch.shared or len(batch.clicks if number else batch.impressions)):
                self._idle.heard(batch.partition, number)
                part.set_idle(number, False)
        part.step(batch)
        conflicts, part.conflicts = part.conflicts, None
        if conflicts is not None:
            reading.invalid["conflicting_id"] += conflicts.count
            if self.on_conflicts is not None:
                self.on_conflicts(conflicts)
        # in a fast replay, between two calls of `advance`
        if part.counted.is_full and self.all_heard_from and not self.resumes(()):
            follow_others(self.partitions, self.gone)
            self._background.wait()
            self._comparisons.advance(self._counted())

    def at_once(self) -> Partition:
        """The partition for a table with known labels, which counts without a join (`Partition.count`).

        The whole table is in memory anyway, so every score is kept: the AUC is exact, however many there are.
        """
        part = self.partitions[0] = self._make_partition(0, shared=True)
        part.keep_every_score()
        return part

    def users(self) -> Mapping[Series, UserColumns]:
        """The current state of every user that is kept, by series."""
        self._background.wait()
        return self._users.look_up([self.partitions[p].scoreboard.users for p in sorted(self.partitions)])

    def tick(self, caught_up: Callable[[], Collection[tuple[str, int]]]) -> None:
        """Marks inputs as idle that have been silent for `join.idle_timeout`, so that they no longer hold the watermark back.

        An input with unread messages is not silent: `caught_up` returns each (input, partition) that has been read to its end.
        """
        silent = [(p, number) for p, number in self._idle.tick() if self.partitions[p].must_be_asked(number)]
        if not silent:
            return
        at_end = caught_up()
        for partition, number in silent:
            idle = (self.inputs[number], partition) in at_end
            if not idle:
                self._idle.heard(partition, number)
            self.partitions[partition].set_idle(number, idle)

    def resumes(self, at_end: Collection[tuple[str, int]]) -> bool:
        """Whether comparisons have to wait, see `silent_partitions`. `at_end`: each (input, partition) that has been read to its end."""
        read = {partition: part for partition, part in self.partitions.items() if partition not in self.gone}
        return resumes(read, self.inputs, at_end, self._comparisons.waited_for)

    def finish(self) -> None:
        """The stream has ended."""
        for part in self.partitions.values():
            part.finish()
        self._background.wait()
        self._users.expire()

    # -- results -------------------------------------------------------------------------------------------------

    def advance(self, complete: bool = True, with_history: bool = True) -> None:
        """Updates what readers see to what has been counted: windows, looks of comparisons, panes; drops old panes.

        `complete`: every partition of this process has been heard from; until then comparisons are not evaluated.
        `with_history`: also updates panes and users, and retires versions.
        """
        partitions, parts = self._shown()
        now = self._clock()
        boards = [m.scoreboard for m in partitions]
        frames = self._evaluator.frames(parts)
        end = frames[0].end
        health, doubtful = self._judge(parts, end)
        if complete:
            self._comparisons.advance(self._counted())
        reasons = {f.name: w for f in frames if (w := unreliable(f, health.reason, doubtful))}
        results = self._evaluator.results(parts, reasons)
        panes, sketches = {}, None
        if with_history:
            keep = self._kept_from(end)
            panes = self.panes.update(boards, end, keep)
            sketches = None if self.has_history else self.panes.sketches(boards)
            self._users.refresh(
                [board.users for board in boards], {r.series for r in results.overall if r.totals.impressions}
            )
            self._forget_before(self.panes.needed_from(keep))
        self._retirement.see(results.overall, now)
        if with_history:
            self._retire(partitions)
        self._latest = Snapshot(
            number=self._latest.number + 1,
            taken_at=now,
            started_at=self._latest.started_at,
            events=reported(partitions, self._readings.values()),
            results=results,
            partitions=usage.partition_states(self.partitions, self._readings, self.gone),
            join=health,
            panes=panes,
            panes_waiting_from=self.panes.waiting_from,
            panes_gone=self.panes.gone,
            pane=self._pane,
            sketches=sketches,
            users=self._users.columns,
            last_seen=dict(self._retirement.last_seen),
            stage_seconds=usage.sums([self.seconds, *(m.seconds for m in partitions)]),
            table_bytes=usage.table_bytes(partitions, self._evaluator.nbytes),
            options=self._latest.options,
            undefined=results.undefined(),
            online_updates=usage.updates(partitions, self.settings.models),
            online_failures=usage.failures(partitions, self.settings.models),
            suspensions=tuple(one.suspended for m in partitions for one in m.learners if one.suspended is not None),
            attribution_window=self.settings.join.attribution_window,
            windows=self._evaluator.windows,
            budget_used=usage.budgets(partitions, self.catalog),
            slice_values=usage.slice_values(self.catalog),
            deploys=self._comparisons.deploys,
            comparisons=self._comparisons.readings(self._counted(), self._users.columns),
            roles=self._comparisons.roles(self._counted()),
            doubtful=tuple((first * self._pane, last * self._pane, why) for first, last, why in doubtful),
            auctions=self._evaluator.auctions(parts, self.settings.auction),
        )

    def compare(self, complete: bool = True) -> tuple[Comparison, ...]:
        """Evaluates only comparisons, and drops old panes, for callers that need nothing else.

        The readings lack findings, mixes and early readings. Results, panes and users, which take most of the time of
        `advance`, are not computed; `snapshot` still returns what the last `advance` left.
        """
        _, parts = self._shown()
        if complete:
            self._comparisons.advance(self._counted())
        self._forget_before(self._kept_from(self._evaluator.end(parts)))
        return self._comparisons.readings(self._counted(), None)

    def snapshot(self, around: Surroundings | None = None) -> Snapshot:
        """Everything that readers see, as of the last `advance`. `around`: the state of the source and the disk."""
        around = around or Surroundings()
        known = {name: getattr(around, name) for name in Surroundings.__dataclass_fields__}
        lag = known.pop("lag")
        states = (
            replace(state, lag={where: n for where, n in lag.items() if where[1] == state.partition})
            for state in self._latest.partitions
        )
        return replace(self._latest, partitions=tuple(states), **known)

    # -- panes for the history -----------------------------------------------------------------------------------

    def history_rows(self, partitions: Collection[int]) -> dict[int, list[PaneRows]]:
        """The complete panes of these partitions that changed since they were written; see `Partition.take_unwritten`."""
        ours = self.partitions.keys() & set(partitions)
        for partition in ours:
            self.partitions[partition].show()
        self._background.wait()
        out = {}
        for partition in ours:
            part = self.partitions[partition]
            if panes := part.take_unwritten():
                out[partition] = pane_rows(part.scoreboard, part.panes, self.catalog, self._slice_rows, panes)
        return out

    # -- partitions are assigned and revoked ---------------------------------------------------------------------

    def partition_state(self, partition: int) -> dict[str, Any] | None:
        """The whole state of a partition between two batches (see `partition_state`); None: none has been read yet."""
        reading = self._readings.get(partition)
        if reading is None:
            return None
        part = self.partitions.get(partition)
        state = None if part is None else state_of(part)
        rows = self._background.call(self._slice_rows.known)  # after counting, which may add new ones
        return {
            **reading.state(),
            "names": self.catalog.names(),
            "slice_rows": rows.result,
            "last_seen": [[*series, seen] for series, seen in self._retirement.last_seen.items()],
            "monitor": state,
            "comparisons": self._comparisons.state(),
        }

    def restore_partition(
        self, partition: int, state: Mapping[str, Any], files: Sequence[RowsFile] = ()
    ) -> dict[tuple[str, int], int]:
        """Restores a partition that this process does not have; returns the offsets to continue from.

        `files`: of its rows on disk. Raises OSError when one cannot be mapped.
        """
        saved = state["monitor"]
        if saved is not None:
            codes = self.catalog.adopt(state["names"])
            part = self._make_partition(partition, saved["shared"])
            restore_state(part, saved, codes, self._slice_rows.adopt(state["slice_rows"], codes), files)
            if self.settings.sinks:  # they track which panes in memory they have
                part.every_pane_changed()
            self.partitions[partition] = part
            self._comparisons.restore(state["comparisons"], self._counted())
            self._idle.know(partition, part.inputs)
        self._readings[partition] = reading = Reading.of(state)
        self._retirement.adopt({Series(*name): seen for *name, seen in state["last_seen"]})
        return dict(reading.offsets)

    def has_read(self, partition: int) -> bool:
        """Whether it is known from where a partition is read."""
        return partition in self._readings

    def topic_ids(self, partition: int) -> dict[tuple[str, int], str]:
        """The ids of the topics to which the offsets of a partition refer, where known."""
        reading = self._readings.get(partition)
        return {} if reading is None else dict(reading.topic_ids)

    def settled(self, partition: int) -> int | None:
        """The time (ms) before which nothing that the partition has counted can change; None if unknown."""
        part = self.partitions.get(partition)
        return None if part is None else part.settled

    def end_reading(self, partition: int) -> None:
        """Nothing more will come of a partition that was restored."""
        self.gone.add(partition)
        self._idle.forget(partition)
        if (part := self.partitions.get(partition)) is not None:
            self._readings[partition].end(partition, part.watermark, part.newest_event)

    def state_written(self, partition: int) -> None:
        """What `partition_state` returned is no longer read."""
        if partition in self.partitions:
            self.partitions[partition].joiner.state_written()

    def forget_partition(self, partition: int) -> None:
        """Drops a partition that another worker now owns."""
        self._background.wait()
        self._readings.pop(partition, None)
        self.gone.discard(partition)
        if (dropped := self.partitions.pop(partition, None)) is not None:
            for stage, seconds in dropped.seconds.items():  # a counter of the process
                self.seconds[stage] += seconds
            self._comparisons.rebuild(self._counted())
        self._retirement.partition_left()
        self._idle.forget(partition)
        self._share_users(len(self.partitions))

    # -- internal ------------------------------------------------------------------------------------------------

    def _shown(self) -> tuple[list[Partition], list[PartTotals]]:
        """The partitions in order, with everything that they have taken counted, and their totals."""
        follow_others(self.partitions, self.gone)
        partitions = [self.partitions[p] for p in sorted(self.partitions)]
        for part in partitions:
            part.show()
        self._background.wait()
        totals = [PartTotals(m.scoreboard, m.panes, m.complete_until(), m.idle) for m in partitions]
        return partitions, totals

    def _kept_from(self, end: int) -> int:
        """The first pane that readers may still request; `end`: where windows end."""
        return end - max(*self._windows, 0, self.settings.join.correction_horizon // self._pane)

    def _forget_before(self, pane: int) -> None:
        unwritten = (None if self.history_works else UNWRITTEN_PANES) if self.has_history else 0
        for part in self.partitions.values():
            part.forget_before(pane, unwritten)

    def _judge(self, parts: Sequence[PartTotals], end: int) -> tuple[JoinHealth, list[tuple[int, int, str]]]:
        """(health of the join now, stretches [first pane, end pane) whose labels are not right, and why); `end`: pane."""
        readings, window = self._readings.values(), self.settings.join.attribution_window
        refused = sum(sum(reading.invalid.values()) for reading in readings)
        health, silent = self._health.judge(self._joined(parts), end, SourceSeen(self.inputs[-1], refused))
        missing = sorted(one for known in readings for one in known.gaps.panes(self._pane, window))
        return health, [*missing, *silent]

    def _share_users(self, partitions: int) -> int:
        """Divides `users.memory`; returns a partition's share."""
        share = self.settings.users.memory // max(partitions, 1)
        self._background.wait()
        for part in self.partitions.values():
            part.limit_users(share)
        return share

    def _joined(self, totals: Sequence[PartTotals]) -> list[Joined]:
        return [
            Joined(p, m.joiner, m.panes, m.quarantine, self._evaluator.predicted(total), p in self.gone)
            for (p, m), total in zip(sorted(self.partitions.items()), totals, strict=True)
        ]

    def _counted(self) -> list[Counted]:
        return [self.partitions[p].counted for p in sorted(self.partitions)]

    def _make_partition(self, partition: int, shared: bool) -> Partition:
        return make.partition(
            self.settings,
            self.catalog,
            self._comparisons,
            self._slice_rows,
            ModelPlace(self.inputs[0], partition),
            self._share_users(len(self.partitions) + 1),  # a new partition shrinks all shares
            shared=shared,
            listener=self.listener,
            background=self._background,
        )

    def _retire(self, partitions: list[Partition]) -> None:
        def in_use() -> set[int]:
            return set().union(*(part.series_in_use() for part in partitions))

        for code in self._retirement.due(in_use):
            for part in partitions:
                part.retire(code)
            self._comparisons.clear(code)
            self._retirement.retire(code)

"""Partitions that are taken, written, released and dropped; disks that fail; settings that changed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streameval.events.batch import Series
from streameval.loop import keeper as keeper_module
from streameval.loop.binding import binding
from streameval.loop.history_writes import add_to_history
from streameval.loop.keeper import PartitionKeeper
from streameval.loop.options import options_of
from streameval.loop.pipeline import Pipeline
from streameval.results.snapshot import Snapshot
from streameval.settings.tree import Settings
from streameval.sketches.layout import Options
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.protocol import DeadLetter, DeadLetterSink, LettersError, SourceError, Stopped
from streameval.store import container
from streameval.store.errors import StoreError
from streameval.store.history import writer as writer_module
from streameval.store.history.format import HistoryFormat
from streameval.store.history.writer import HistoryWriter, Retention
from streameval.testing import ManualClock, Scores, Shown, Tap, counted_pane, make_batch, readers_see

BASE = 1_760_000_000_000
PATIENCE = 180.0  # seconds, on a slow machine
LATER = ("auction.mainline", "objectives.valued.value_at_least")  # not in older checkpoints


def make(
    path: Path, letters: DeadLetterSink | None = None, **changes: Any
) -> tuple[Pipeline, PartitionKeeper, ManualClock]:
    tree = {
        "join": {"attribution_window": "1m", "allowed_lateness": "0s", "request_gap": "1m", **changes.pop("join", {})},
        "store": {
            "path": str(path),
            "checkpoint_interval": "1ms",
            "drain_timeout": f"{PATIENCE:.0f}s",
            **changes.pop("store", {}),
        },
        **changes,
    }
    clock = ManualClock()
    settings = Settings.model_validate(tree)
    pipeline = Pipeline(settings, clock)
    form = HistoryFormat(settings.windows.pane, options_of(settings), settings.users.weighting)
    history = HistoryWriter(path / "history.sqlite", form, Retention(1 << 40, 1 << 40, 1 << 40, 1 << 30))
    return pipeline, PartitionKeeper(settings, pipeline, clock, history, letters or JsonlDeadLetters("")), clock


def events(start: int, count: int, partition: int) -> list[Shown | Tap]:
    out: list[Shown | Tap] = []
    for i in range(start, start + count):
        out.append(Shown(f"{partition}-{i}", BASE + i * 1000, f"u{partition}-{i % 7}", (i % 9 + 1) / 10))
        if i % 3 == 0:
            out.append(Tap(f"{partition}-{i}", BASE + i * 1000 + 500))
    return out


def feed(pipeline: Pipeline, start: int, count: int, partition: int = 0) -> None:
    batch = make_batch(events(start, count, partition), pipeline.catalog, partition)
    offsets = {("impressions", partition): start + count}
    pipeline.take(type(batch)(partition, batch.impressions, batch.clicks, True, offsets, {"empty": 1}))


def report(pipeline: Pipeline) -> dict[str, Any]:
    pipeline.finish()
    return readers_see(pipeline).report()


def written(keeper: PartitionKeeper, more: int = 1) -> None:
    """Ticks until so many more checkpoints are written or have failed."""
    before = keeper.state()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        keeper.tick()
        now = keeper.state()
        if now.written + now.failures >= before.written + before.failures + more:
            return
        time.sleep(0.002)
    pytest.fail(f"no checkpoint within {PATIENCE:.0f} s")


def begun(keeper: PartitionKeeper) -> None:
    """Ticks until a checkpoint is begun; the history goes first."""
    deadline = time.monotonic() + PATIENCE
    while not keeper.state().pause_seconds:
        assert time.monotonic() < deadline
        keeper.tick()
        time.sleep(0.002)


def test_a_restart_goes_on_where_the_checkpoint_was(tmp_path: Path) -> None:
    truth, _, _ = make(tmp_path / "truth")
    for p in (0, 1):
        feed(truth, 0, 300, p)
        feed(truth, 300, 300, p)

    pipeline, keeper, _ = make(tmp_path / "store")
    assert keeper.take(frozenset({0, 1})) == {}
    for p in (0, 1):
        feed(pipeline, 0, 300, p)
    written(keeper, 4)
    for p in (0, 1):
        feed(pipeline, 300, 300, p)  # counted, but not written: lost with the process

    pipeline, keeper, _ = make(tmp_path / "store")
    assert keeper.take(frozenset({0, 1})) == {("impressions", 0): 300, ("impressions", 1): 300}
    assert keeper.state().restores == 2
    for p in (0, 1):
        feed(pipeline, 300, 300, p)
    assert report(pipeline) == report(truth)
    assert report(truth)["events"]["invalid"] == {"empty": 4}


class SlowLetters(JsonlDeadLetters):
    """Some of what was written is not stored yet."""

    def __init__(self, error: SourceError | None = None) -> None:
        super().__init__("")
        self.late, self.error = True, error or SourceError("2 messages not delivered")

    def flush(self, timeout: float = 0.0) -> None:
        if self.late:
            raise self.error


def test_a_checkpoint_waits_for_the_dead_letters_of_what_it_has_counted(tmp_path: Path, caplog) -> None:
    """A kill lost them: what is in a checkpoint is not read again."""
    letters = SlowLetters()
    pipeline, keeper, _ = make(tmp_path, letters)
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 200)
    deadline = time.monotonic() + PATIENCE
    while "its dead letters wait: 2 messages" not in caplog.text:
        assert time.monotonic() < deadline
        keeper.tick()
        time.sleep(0.002)
    assert (keeper.state().written, keeper.state().failures, keeper.state().failing) == (0, 0, 0)
    _, other, _ = make(tmp_path)
    assert other.take(frozenset({0})) == {}  # everything is read again
    letters.late = False
    pipeline, keeper, _ = make(tmp_path, letters)
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 200)
    written(keeper)
    assert keeper.state().written == 1


def test_a_checkpoint_that_waits_for_somebody_to_act_counts_as_failing(tmp_path: Path) -> None:
    """Nothing said so while all were missing for good, as the dead-letter topic did not exist."""
    letters = SlowLetters(LettersError("create the topic"))
    pipeline, keeper, _ = make(tmp_path, letters)
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 200)
    written(keeper)
    assert (keeper.state().written, keeper.state().failures, keeper.state().failing) == (0, 1, 1)
    letters.late = False
    written(keeper)
    assert (keeper.state().written, keeper.state().failures, keeper.state().failing) == (1, 1, 0)


def test_dead_letters_are_on_disk_when_a_checkpoint_has_counted_them(tmp_path: Path) -> None:
    """They were in a buffer of the process."""
    path = tmp_path / "letters.jsonl"
    letters = JsonlDeadLetters(path)
    pipeline, keeper, _ = make(tmp_path, letters)
    keeper.take(frozenset({0}))
    letters.write([DeadLetter(b"{", "malformed", "", "is not JSON", "log.jsonl", 0, 7)])
    feed(pipeline, 0, 200)
    written(keeper)
    assert '"offset":7' in path.read_text()


class HangingDisk:
    """No fsync returns as long as it hangs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting, self._free, true = threading.Semaphore(0), threading.Event(), os.fsync

        def fsync(number: int) -> None:
            self.waiting.release()
            self._free.wait(PATIENCE)
            true(number)

        monkeypatch.setattr(os, "fsync", fsync)

    def returns(self) -> None:
        self._free.set()


def test_claims_wait_for_a_slow_disk_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, keeper, _ = make(tmp_path)
    disk = HangingDisk(monkeypatch)
    taking = threading.Thread(target=keeper.take, args=(frozenset(range(8)),), daemon=True)
    taking.start()
    try:
        for _ in range(8):
            assert disk.waiting.acquire(timeout=PATIENCE / 6), "one after another"
    finally:
        disk.returns()
    taking.join(PATIENCE)
    assert all(keeper.holds(partition) for partition in range(8))


def test_a_stop_does_not_wait_until_partitions_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    """With 2 s per fsync and 8 partitions it took 16 s, before store.drain_timeout even began."""
    pipeline, keeper, _ = make(tmp_path)
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 30)
    written(keeper, 1)
    stop = threading.Event()
    keeper.stopping = stop.is_set
    disk = HangingDisk(monkeypatch)

    def take() -> None:
        with pytest.raises(Stopped):
            keeper.take(frozenset(range(12)))
        ended.set()

    ended = threading.Event()
    threading.Thread(target=take, daemon=True).start()
    try:
        assert disk.waiting.acquire(timeout=PATIENCE)
        stop.set()
        assert ended.wait(PATIENCE / 6)
    finally:
        disk.returns()
    assert [partition for partition in range(12) if keeper.holds(partition)] == [0]
    assert "stopping: partitions 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 were not taken any more" in caplog.text
    keeper.close()

    _, again, _ = make(tmp_path)
    assert again.take(frozenset(range(12))) == {("impressions", 0): 30}, "nothing is lost, and nothing in the way"
    assert all(again.holds(partition) for partition in range(12))


def test_what_is_released_is_on_disk_for_the_next_owner_and_what_is_dropped_is_forgotten(tmp_path: Path) -> None:
    one, keeper, _ = make(tmp_path, store={"checkpoint_interval": "1h"})
    keeper.take(frozenset({0, 1}))
    for p in (0, 1):
        feed(one, 0, 200, p)
    keeper.release(frozenset({0, 1}))
    keeper.drop(frozenset({1}))
    assert [p.partition for p in readers_see(one).partitions] == [0]
    assert not keeper.holds(1)

    other, second, _ = make(tmp_path)
    assert second.take(frozenset({1})) == {("impressions", 1): 200}
    for pipeline, p in ((one, 0), (other, 1)):
        feed(pipeline, 200, 200, p)
    impressions = [_whole(report(pipeline))["impressions"] for pipeline in (one, other)]
    assert impressions == [400, 400]


@pytest.mark.parametrize("job", ["write_checkpoint", "add_to_history"])
def test_a_write_of_before_a_partition_was_lost_and_came_back_does_not_drop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    """As it is after a freeze: another worker counted on meanwhile, and has died since."""
    started, go_on = threading.Event(), threading.Event()
    real = getattr(keeper_module, job)

    def slow(*given: Any) -> Any:
        started.set()
        assert go_on.wait(PATIENCE)
        return real(*given)

    monkeypatch.setattr(keeper_module, job, slow)
    pipeline, keeper, _ = make(tmp_path)
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 200)
    deadline = time.monotonic() + PATIENCE
    while not started.is_set():
        assert time.monotonic() < deadline
        keeper.tick()
        time.sleep(0.002)
    monkeypatch.setattr(keeper_module, job, real)

    other, second, _ = make(tmp_path)
    second.take(frozenset({0}))
    feed(other, 0, 300)
    second.release(frozenset({0}))

    keeper.drop(frozenset({0}))
    finished = threading.Timer(0.2, go_on.set)
    finished.start()
    assert keeper.take(frozenset({0})) == {("impressions", 0): 300}
    feed(pipeline, 300, 100)
    written(keeper, 2)
    assert keeper.holds(0)
    assert keeper.state().fenced == 0
    assert _whole(report(pipeline))["impressions"] == 400


def test_what_was_released_and_came_back_is_written_again_also_when_no_event_comes(tmp_path: Path) -> None:
    pipeline, keeper, _ = make(tmp_path)
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 100)
    keeper.release(frozenset({0}))
    before = keeper.state().written
    for _ in range(20):  # it is not known whose it is
        keeper.tick()
        time.sleep(0.002)
    assert keeper.state().written == before
    keeper.regain(frozenset({0}))
    written(keeper)


def _whole(report: dict[str, Any]) -> dict[str, Any]:
    return next(r for r in report["results"] if r["window"] == "all")


def test_a_stop_survives_that_its_last_panes_are_somebody_elses(tmp_path: Path) -> None:
    frozen, keeper, _ = make(tmp_path)
    keeper.take(frozenset({0}))
    feed(frozen, 0, 300)
    other = make(tmp_path)[1]
    other.take(frozenset({0}))
    other.close()
    keeper.close()
    assert (keeper.holds(0), keeper.state().fenced) == (False, 1)


def test_a_worker_that_lost_its_partition_cannot_write_it_and_drops_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen, keeper, _ = make(tmp_path)
    keeper.take(frozenset({0}))
    feed(frozen, 0, 100)
    keeper.release(frozenset({0}))
    _, other, _ = make(tmp_path)
    assert other.take(frozenset({0})) == {("impressions", 0): 100}
    feed(frozen, 100, 50)  # it does not know yet
    keeper.release(frozenset({0}))
    assert (keeper.holds(0), keeper.state().fenced, keeper.state().claimed) == (False, 1, 1)
    assert "claimed by another worker" in caplog.text
    assert not frozen.partitions
    keeper.tick()
    monkeypatch.setattr("streameval.loop.keeper.FENCED_SECONDS", -1.0)
    with pytest.raises(StoreError, match=r"not of this consumer group: give every group a store\.path of its own"):
        keeper.tick()
    keeper.drop(frozenset({0}))  # the group says so at last
    keeper.tick()


def test_a_disk_that_fails_makes_no_checkpoint_says_so_and_recovers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, keeper, clock = make(tmp_path)
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 100)
    written(keeper)
    good = keeper.state().oldest
    clock.advance(60)
    real = container.write

    def full(path: Path, tree: dict[str, Any]) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(container, "write", full)
    feed(pipeline, 100, 100)
    while keeper.state().failures < 2:  # one that was begun before may still go well
        written(keeper)
    assert keeper.state().failing == 1
    assert keeper.state().oldest == good  # its age grows: what an alert looks at
    assert "cannot be written: No space left on device; the previous one is kept" in caplog.text
    keeper.release(frozenset({0}))
    assert "partition 0: released without a last checkpoint: a restart reads on from the previous one" in caplog.text
    keeper.regain(frozenset({0}))
    monkeypatch.setattr(container, "write", real)
    written(keeper, 2)
    assert keeper.state().failing == 0
    assert (keeper.state().oldest or 0) >= (good or 0) + 60
    _, other, _ = make(tmp_path)
    assert other.take(frozenset({0})) == {("impressions", 0): 200}


def test_a_disk_that_is_slow_holds_up_neither_ingest_nor_a_stop_for_longer_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline, keeper, _ = make(tmp_path, store={"drain_timeout": "200ms"})
    keeper.take(frozenset({0, 1}))
    feed(pipeline, 0, 100, 0)
    feed(pipeline, 0, 100, 1)
    go_on = threading.Event()
    real, real_wait = container.write, keeper_module.wait
    patience: list[float] = []

    def slow(path: Path, tree: dict[str, Any]) -> int:
        go_on.wait(PATIENCE)
        return real(path, tree)

    def counted(jobs: list[Future[Any]], seconds: float) -> None:
        patience.append(seconds)
        real_wait(jobs, seconds)

    monkeypatch.setattr(container, "write", slow)
    monkeypatch.setattr(keeper_module, "wait", counted)
    begun(keeper)
    for n in range(20):  # one is being written: nothing waits for it, and no other begins
        feed(pipeline, 100 + n, 1)
        keeper.tick()
    assert keeper.state().written == 0
    keeper.close()
    assert "store.drain_timeout exceeded" in caplog.text
    assert keeper.state().failures == 2
    assert sum(patience) <= 0.2  # one drain_timeout for all of it
    go_on.set()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"join": {"attribution_window": "2m"}}, "join.attribution_window = '1m', which is now '2m'"),
        ({"windows": {"sliding": ["5m"]}}, "windows.sliding = ['5m', '1h', '24h'], which is now ['5m']"),
        ({"slices": {"dimensions": ["country"]}}, "slices.dimensions = [], which is now ['country']"),
        ({"compare": {"gauc_window": "30m"}}, "compare.gauc_window = '1h', which is now '30m'"),
        ({"kafka": {"clicks_topic": "taps"}}, "kafka.clicks_topic = 'clicks', which is now 'taps'"),
    ],
)
def test_a_setting_that_changes_what_counts_mean_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    pipeline, keeper, _ = make(tmp_path)
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 100)
    keeper.close()
    _, changed, _ = make(tmp_path, **changes)
    with pytest.raises(StoreError) as failure:
        changed.take(frozenset({0}))
    assert f"was written with {said}" in str(failure.value)
    text = str(failure.value)
    assert "or start over: set another store.path, or stop, move " in text
    assert f"{tmp_path / 'checkpoints'} away and start" in text
    assert f"The panes that {tmp_path / 'history.sqlite'} has, counted with the old value, stay" in text


@pytest.mark.parametrize("readable", [True, False])
def test_after_lost_checkpoints_what_is_counted_again_replaces_what_the_history_has(
    tmp_path: Path, readable: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for life in range(3):
        pipeline, keeper, _ = make(tmp_path)
        keeper.take(frozenset({0}))
        feed(pipeline, 100 * life, 100)
        keeper.close()

    def totals() -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(tmp_path / "history.sqlite")) as db:
            return db.execute("SELECT start, seen, clicks FROM parts ORDER BY start").fetchall()

    before = totals()
    assert len(before) > 2
    shutil.rmtree(tmp_path / "checkpoints")
    pipeline, keeper, _ = make(tmp_path)
    if not readable:
        monkeypatch.setattr(writer_module, "open_to_read", unreadable)
    assert keeper.take(frozenset({0})) == {}
    feed(pipeline, 0, 300)
    keeper.close()
    assert (keeper.holds(0), keeper.state().fenced) == (readable, 0 if readable else 1)
    assert keeper.history_state().written == (len(before) if readable else 0)
    assert ("the history is bad; partition 0 is claimed without it" in caplog.text) != readable
    assert totals() == before


def unreadable(*_: object) -> sqlite3.Connection:
    raise StoreError("the history is bad")


BLOCK = {"slices": {"dimensions": ["block"]}}
VALUED = {"objectives": [{"name": "valued", "value_at_least": 5}]}


@pytest.mark.parametrize(
    ("before", "after", "said", "fix"),
    [
        (
            BLOCK,
            {**BLOCK, "auction": {"mainline": 2}},
            "auction.mainline = 3, which is now 2",
            "Set auction.mainline back",
        ),
        (
            VALUED,
            {"objectives": [{"name": "valued", "value_at_least": 9}]},
            "objectives.valued.value_at_least = 5.0, which is now 9.0",
            "Give the objective another name, set it back",
        ),
    ],
)
def test_a_setting_that_changes_what_some_counts_mean_is_named(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], said: str, fix: str
) -> None:
    pipeline, keeper, _ = make(tmp_path, **before)
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 100)
    keeper.close()
    _, changed, _ = make(tmp_path, **after)
    with pytest.raises(StoreError) as failure:
        changed.take(frozenset({0}))
    assert f"was written with {said}: its counts would mean something else. {fix}" in str(failure.value)


def test_the_mainline_may_change_where_no_slice_depends_on_it(tmp_path: Path) -> None:
    pipeline, keeper, _ = make(tmp_path)
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 100)
    keeper.close()
    _, changed, _ = make(tmp_path, auction={"mainline": 2})
    assert changed.take(frozenset({0})) == {("impressions", 0): 100}


def test_a_checkpoint_that_does_not_know_what_objectives_and_blocks_depend_on_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**BLOCK, **VALUED}
    with monkeypatch.context() as patch:
        patch.setattr(keeper_module, "binding", lambda of: {k: v for k, v in binding(of).items() if k not in LATER})
        pipeline, keeper, _ = make(tmp_path, **settings)
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 100)
    keeper.close()
    _, restarted, _ = make(tmp_path, **settings)
    assert restarted.take(frozenset({0})) == {("impressions", 0): 100}


def valued(pipeline: Pipeline, start: int, count: int, late: Sequence[int] = ()) -> None:
    """Impressions, clicks of some value on every third, and clicks of a large one on `late` impressions."""
    some: list[Shown | Tap] = [e for e in events(start, count, 0) if isinstance(e, Shown)]
    some += [Tap(f"0-{i}", BASE + i * 1000 + 500, {"value": float(i % 50)}) for i in range(start, start + count, 3)]
    some += [Tap(f"0-{i}", BASE + i * 1000 + 700, {"value": 45.0}) for i in late]
    batch = make_batch(some, pipeline.catalog)
    pipeline.take(replace(batch, offsets={("impressions", 0): start + count}))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (VALUED["objectives"], [*VALUED["objectives"], {"name": "new", "value_at_least": 40}]),
        ([{"name": "new", "value_at_least": 40, "versions": ["v2"]}], [{"name": "new", "value_at_least": 40}]),
    ],
    ids=["another objective", "other versions"],
)
def test_a_new_objective_counts_what_comes_after_it_also_when_older_labels_are_corrected(
    tmp_path: Path, before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> None:
    pipeline, keeper, _ = make(tmp_path, objectives=before)
    keeper.take(frozenset({0}))
    valued(pipeline, 0, 600)
    keeper.close()
    for start, late in (
        (600, range(300, 400)),
        (700, range(580, 620)),
    ):  # the second restart finds it in the checkpoint
        pipeline, keeper, _ = make(tmp_path, objectives=after)
        keeper.take(frozenset({0}))
        valued(pipeline, start, 100, late)
        readers_see(pipeline)
        if start == 600:
            keeper.close()
    whole = report(pipeline)["results"]
    (new,) = [r for r in whole if r["objective"] == "new" and r["window"] == "all"]
    assert new["impressions"] == 200
    in_time = {i for i in (*range(600, 700, 3), *range(700, 800, 3)) if i % 50 >= 40}
    assert new["clicks"] == len(in_time | set(range(600, 620)))


@pytest.mark.parametrize("fails", [False, True], ids=["slow", "fails"])
def test_a_history_that_is_slow_or_fails_leaves_checkpoints_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """One that took longer than its interval began again at once; so did one that failed while very many panes waited."""
    began: list[float] = []

    def add(history: Any, rows: Mapping[int, Any], *more: Any) -> dict[int, StoreError]:
        began.append(time.monotonic())
        if fails:
            return {partition: StoreError("the disk is full") for partition in rows}
        time.sleep(0.05)
        return add_to_history(history, rows, *more)

    monkeypatch.setattr(keeper_module, "add_to_history", add)
    monkeypatch.setattr(keeper_module, "HISTORY_SECONDS", 60.0 if fails else 0.02)
    pipeline, keeper, _ = make(tmp_path, windows={"pane": "1s", "sliding": ["1m"]})
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 700)
    written(keeper, 4)
    assert keeper.state().written == 4
    assert len(began) == 1 if fails else len(began) > 1
    keeper.close()


def test_an_objective_that_was_removed_comes_back_with_its_threshold_only(tmp_path: Path) -> None:
    """Its counts of before are still there; with another threshold `all` and past panes would mix the two."""
    new = {"name": "new", "value_at_least": 40}
    for start, objectives in ((0, [new]), (600, []), (700, [])):
        pipeline, keeper, _ = make(tmp_path, objectives=objectives, metrics={"value": True})
        keeper.take(frozenset({0}))
        valued(pipeline, start, 100)
        keeper.close()
    _, changed, _ = make(tmp_path, objectives=[new | {"value_at_least": 9}], metrics={"value": True})
    with pytest.raises(StoreError, match=r"objectives.new.value_at_least = 40.0, which is now 9.0.*another name"):
        changed.take(frozenset({0}))
    for name, at_least in (("new", 40), ("newer", 9)):
        one = {"name": name, "value_at_least": at_least}
        pipeline, keeper, _ = make(tmp_path, objectives=[one], metrics={"value": True})
        assert keeper.take(frozenset({0})) == {("impressions", 0): 800}


def test_settings_that_change_nothing_that_was_counted_may_change(tmp_path: Path) -> None:
    pipeline, keeper, _ = make(tmp_path)
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 100)
    keeper.close()
    _, changed, _ = make(
        tmp_path, users={"memory": "100MB"}, server={"port": 1}, batch={"max_events": 7}, join={"max_pending": 5000}
    )
    assert changed.take(frozenset({0})) == {("impressions", 0): 100}


def test_a_checkpoint_taken_while_ingest_goes_on_is_the_state_between_two_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth, _, _ = make(tmp_path / "truth", join={"correction_horizon": "5m"})
    for n in range(40):
        feed(truth, n * 50, 50)
    expected = report(truth)

    pipeline, keeper, _ = make(tmp_path / "store", join={"correction_horizon": "5m"})
    keeper.take(frozenset({0}))
    for n in range(20):
        feed(pipeline, n * 50, 50)
    go_on = threading.Event()
    real = container.write

    def late(path: Path, tree: dict[str, Any]) -> int:
        assert go_on.wait(PATIENCE)  # the whole rest of the stream comes before anything is packed
        return real(path, tree)

    monkeypatch.setattr(container, "write", late)
    begun(keeper)
    for n in range(20, 40):
        feed(pipeline, n * 50, 50)
    assert report(pipeline) == expected
    go_on.set()
    keeper.close()

    monkeypatch.setattr(container, "write", real)
    folder = tmp_path / "store" / "checkpoints" / "partition-00000"
    sorted(folder.glob("*.checkpoint"))[-1].unlink()  # that of the stop
    again, other, _ = make(tmp_path / "store", join={"correction_horizon": "5m"})
    assert other.take(frozenset({0})) == {("impressions", 0): 1000}
    for n in range(20, 40):
        feed(again, n * 50, 50)
    assert report(again) == expected


def test_readers_see_how_checkpoints_fare(tmp_path: Path) -> None:
    pipeline, keeper, clock = make(tmp_path)
    keeper.take(frozenset({0, 1}))
    feed(pipeline, 0, 10, 0)
    written(keeper)
    assert keeper.state().never_written == 0  # partition 1 has no leader, say: there is nothing to write
    feed(pipeline, 0, 10, 1)
    snapshot: Snapshot = readers_see(pipeline, checkpoints=keeper.state())
    assert snapshot.checkpoints is not None
    assert (snapshot.checkpoints.oldest, snapshot.checkpoints.never_written) == (clock(), 1)
    assert snapshot.checkpoints.bytes > 1000


def test_partitions_whose_panes_could_not_be_written_are_not_folded() -> None:
    class HalfFull:
        folded: dict[int, int]

        def write(self, partition: int, epoch: int, panes: object) -> None:
            if partition == 1:
                raise StoreError("full")

        def fold(self, settled: dict[int, int], now: int) -> int:
            self.folded = settled
            return 0

        def refresh(self) -> None:
            pytest.fail("points of panes that are not there")

    history: Any = HalfFull()
    failed = add_to_history(history, {0: [], 1: []}, {0: 1, 1: 1}, {0: BASE, 1: BASE, 2: BASE}, BASE)
    assert (list(failed), history.folded) == ([1], {0: BASE, 2: BASE})


def test_points_are_worked_out_after_a_write_and_are_no_reason_to_write_again(tmp_path: Path, monkeypatch) -> None:
    form = HistoryFormat(60_000, Options((0.1,)), "impressions")
    history = HistoryWriter(tmp_path / "history.sqlite", form, Retention(1 << 40, 1 << 41, 1 << 42, 1 << 30))
    rng = np.random.default_rng(0)
    scores = Scores(np.zeros(50, np.int32), np.arange(50, dtype=np.uint64), rng.random(50), rng.integers(0, 2, 50).astype(np.int8), np.zeros(50, np.int32))  # fmt: skip
    rows = [counted_pane(BASE // 60_000, (Series("m", "v1", "logged"),), scores, form)]
    assert add_to_history(history, {0: rows, 1: rows}, {0: 1, 1: 1}, None, BASE) == {}
    ((impressions,),) = sqlite3.connect(history.path).execute("SELECT impressions FROM points").fetchall()
    assert impressions == 100

    def fail() -> None:
        raise StoreError("full")

    monkeypatch.setattr(history, "refresh", fail)
    assert add_to_history(history, {0: rows}, {0: 1}, None, BASE) == {}
    assert sqlite3.connect(history.path).execute("SELECT impressions FROM points").fetchall() == []
    history.close()


def test_where_reading_began_is_on_disk_before_anything_came(tmp_path: Path) -> None:
    pipeline, keeper, _ = make(tmp_path, store={"checkpoint_interval": "1h"})
    assert keeper.take(frozenset({0})) == {}
    empty = make_batch([], pipeline.catalog)
    place = ("impressions", 0)
    pipeline.take(replace(empty, offsets={place: 70}, topic_ids={place: "an id"}))
    written(keeper)
    assert keeper.state().never_written == 0

    _, keeper, _ = make(tmp_path)
    assert keeper.take(frozenset({0})) == {place: 70}
    assert keeper.topic_ids(frozenset({0})) == {place: "an id"}


def test_a_checkpoint_without_topic_ids_is_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, keeper, _ = make(tmp_path)
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 300)
    whole = pipeline.partition_state
    monkeypatch.setattr(
        pipeline,
        "partition_state",
        lambda p: {k: v for k, v in (whole(p) or {}).items() if k not in ("topic_ids", "gaps")},
    )
    written(keeper, 2)

    pipeline, keeper, _ = make(tmp_path)
    assert keeper.take(frozenset({0})) == {("impressions", 0): 300}
    assert keeper.topic_ids(frozenset({0})) == {}


def test_a_gap_makes_its_windows_unreliable_until_they_are_past_it_also_after_a_restart(tmp_path: Path) -> None:
    why = "40 messages of impressions [0] were deleted before they were read"
    pipeline, keeper, _ = make(tmp_path, windows={"pane": "1m", "sliding": ["5m"]})
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 600)
    pipeline.take(replace(make_batch([], pipeline.catalog), gaps={("impressions", 0): why}))
    written(keeper, 3)

    pipeline, keeper, _ = make(tmp_path, windows={"pane": "1m", "sliding": ["5m"]})
    keeper.take(frozenset({0}))
    seen = []
    for start in range(900, 2100, 60):
        feed(pipeline, start, 60)
        (result,) = [r for r in readers_see(pipeline).results if r.window == "5m" and r.series.source == "logged"]
        seen.append(result.reliable_reason)
    first, last = seen.index(why), len(seen) - seen[::-1].index(why)
    assert seen[first:last] == [why] * (last - first)
    assert 5 <= last - first < 15
    assert seen[-1] is None
    (whole,) = [r for r in readers_see(pipeline).results if r.window == "all" and r.series.source == "logged"]
    assert whole.reliable_reason == why
    ((start, end, said),) = readers_see(pipeline).doubtful
    assert said == why
    assert start <= 1_760_000_600_000
    assert end >= 1_760_000_900_000, "for what is served from the history"


def test_partitions_that_begin_empty_are_one_line_of_information(tmp_path: Path, caplog: Any) -> None:
    _, keeper, _ = make(tmp_path)
    with caplog.at_level("INFO", "streameval.loop.keeper"):
        keeper.take(frozenset({0, 1, 2, 3}))
    (line,) = [record for record in caplog.records if "starting empty" in record.message]
    assert line.levelname == "INFO"
    assert "for partitions 0, 1, 2, 3" in line.message

"""A backlog that is read faster than its panes can be written: nothing is lost unless the disk fails."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from streameval.app import Loop, new_publisher
from streameval.loop import keeper as keeper_module
from streameval.loop.around import Around
from streameval.loop.history_writes import add_to_history
from streameval.loop.keeper import PartitionKeeper
from streameval.loop.pipeline import Pipeline
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.store.errors import FencedError, StoreError
from streameval.testing import ScriptedSource, make_batch, readers_see
from tests.loop.test_keeper import BASE, PATIENCE, events, feed, make

PANES, BATCH = 6_000, 1_000  # one impression in each pane


def backlog(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Pipeline, PartitionKeeper, ScriptedSource]:
    monkeypatch.setattr("streameval.loop.pipeline.UNWRITTEN_PANES", 700)
    more = {"join": {"correction_horizon": "2m"}, "windows": {"pane": "1s", "sliding": ["1m"]}}
    pipeline, keeper, _ = make(path, store={"checkpoint_interval": "1h"}, **more)
    batches = [make_batch(events(first, BATCH, 0), pipeline.catalog) for first in range(0, PANES, BATCH)]
    return pipeline, keeper, ScriptedSource([*batches, None])


def read(pipeline: Pipeline, keeper: PartitionKeeper, source: ScriptedSource, stop: threading.Event) -> None:
    Loop(source, pipeline, new_publisher(pipeline.settings), 0.0, JsonlDeadLetters(""), keeper).run(stop)


def writing(monkeypatch: pytest.MonkeyPatch, before: Callable[[], object], fails: bool = False) -> None:
    """Calls `before` before every write."""

    def add(history: Any, rows: Mapping[int, Any], *more: Any) -> dict[int, StoreError]:
        before()
        return {p: StoreError("the disk is full") for p in rows} if fails else add_to_history(history, rows, *more)

    monkeypatch.setattr(keeper_module, "add_to_history", add)


def stored(path: Path) -> list[int]:
    """The panes in the history, s after the first impression."""
    with closing(sqlite3.connect(path / "history.sqlite")) as db:
        return [(start - BASE) // 1000 for (start,) in db.execute("SELECT start FROM parts ORDER BY start")]


@pytest.mark.slow
def test_a_backlog_waits_for_a_disk_that_is_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve days of sparse traffic left a hole of days: 17,000 panes were read before the first write ended."""
    pipeline, keeper, source = backlog(tmp_path, monkeypatch)
    writing(monkeypatch, lambda: time.sleep(1.2))
    read(pipeline, keeper, source, threading.Event())
    assert keeper.history_state().lost == 0
    found = stored(tmp_path)
    assert found == list(range(len(found)))
    assert len(found) > PANES - 200  # the last ones have labels that are not known yet


def test_a_backlog_is_read_on_while_the_disk_is_full_and_what_is_lost_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, keeper, source = backlog(tmp_path, monkeypatch)
    monkeypatch.setattr(keeper_module, "HISTORY_SECONDS", 0.0)
    writing(monkeypatch, lambda: None, fails=True)
    keeper.take(frozenset({0}))
    while not source.finished:
        source.deliver(0.0, pipeline.take)
        readers_see(pipeline)
        for _ in range(4):
            keeper.tick()
            time.sleep(0.005)
            readers_see(pipeline)
    state = keeper.history_state()
    assert state.failing
    assert state.lost == PANES - len(pipeline.partitions[0].scoreboard.overall) - 60  # whose labels are not known yet
    assert state.lost > PANES // 2


def test_a_backlog_is_read_on_while_the_disk_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is being written all the while is not lost."""
    pipeline, keeper, source = backlog(tmp_path, monkeypatch)
    returns = threading.Event()
    writing(monkeypatch, lambda: returns.wait(PATIENCE))
    monkeypatch.setattr(keeper_module, "HANGS_SECONDS", 1.5)
    stop = threading.Event()
    loop = threading.Thread(target=read, args=(pipeline, keeper, source, stop), daemon=True)
    loop.start()
    deadline = time.monotonic() + PATIENCE
    while not source.finished:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "has not ended for 2 s" in caplog.text
    returns.set()
    loop.join(PATIENCE)
    assert not loop.is_alive()
    found, lost = stored(tmp_path), keeper.history_state().lost
    assert lost < PANES - BATCH
    assert found[: BATCH - 200] == list(range(BATCH - 200))
    assert len(set(range(found[-1])) - set(found)) == lost


def test_a_stop_does_not_wait_for_the_panes_of_a_backlog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, keeper, source = backlog(tmp_path, monkeypatch)
    returns, begun, stop = threading.Event(), threading.Event(), threading.Event()
    monkeypatch.setattr(keeper, "_drain", 0.2)
    writing(monkeypatch, lambda: (begun.set(), returns.wait(PATIENCE)))
    loop = threading.Thread(target=read, args=(pipeline, keeper, source, stop), daemon=True)
    loop.start()
    assert begun.wait(PATIENCE)
    stop.set()
    loop.join(PATIENCE / 6)
    stopped = not loop.is_alive()
    returns.set()
    assert stopped
    assert not source.finished


def test_a_source_that_rests_is_not_taken_for_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, keeper, source = backlog(tmp_path, monkeypatch)
    monkeypatch.setattr("streameval.loop.silent_places.SILENT_SECONDS", -1.0)
    around = Around(source, keeper)
    assert around.look({0}).unread == (("impressions", 0),)
    keeper.is_behind = True
    monkeypatch.setattr("streameval.loop.silent_places.SILENT_SECONDS", 0.0)
    assert around.look({0}).unread == ()
    keeper.close()


def test_a_partition_that_another_worker_has_claimed_is_not_taken_for_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not read here any more, and the log asked whether it had a leader."""
    pipeline, keeper, _ = make(tmp_path)
    source = ScriptedSource([make_batch(events(0, BATCH, 0), pipeline.catalog), None])
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 100)
    make(tmp_path)[1].take(frozenset({0}))  # as two groups with one store
    monkeypatch.setattr("streameval.loop.silent_places.SILENT_SECONDS", -1.0)
    around = Around(source, keeper)
    assert around.look({0}).unread == (("impressions", 0),)
    keeper.release(frozenset({0}))  # writes, and finds that it is not the owner
    assert list(keeper.fenced) == [0]
    assert around.look({0}).unread == ()
    keeper.close()


def test_panes_that_only_further_events_complete_are_not_waited_for(tmp_path: Path) -> None:
    pipeline, keeper, _ = make(tmp_path, join={"attribution_window": "1h"}, windows={"pane": "1s", "sliding": ["1m"]})
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 2_000)
    readers_see(pipeline)
    keeper.tick()
    assert not keeper.is_behind
    keeper.close()


def test_panes_of_a_partition_that_is_released_are_not_waited_for(tmp_path: Path) -> None:
    """They are its next owner's, who is not known before more is read."""
    pipeline, keeper, _ = make(tmp_path, windows={"pane": "1s", "sliding": ["1m"]})
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 2_000)
    readers_see(pipeline)
    keeper.release(frozenset({0}))
    keeper.tick()
    assert not keeper.is_behind
    keeper.regain(frozenset({0}))
    keeper.tick()
    assert keeper.is_behind
    keeper.close()


def test_a_disk_works_that_refuses_what_is_somebody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, keeper, _ = make(tmp_path)
    monkeypatch.setattr(
        keeper_module, "add_to_history", lambda _, rows, *more: {p: FencedError("another worker has it") for p in rows}
    )
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 600)
    keeper.close()
    assert not keeper.holds(0)
    assert not keeper.history_state().failing

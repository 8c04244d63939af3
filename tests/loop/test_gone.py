"""Topics that were recreated with fewer partitions: what the others had counted stays in the results."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from streameval.app import Loop, new_publisher
from streameval.loop import gone
from streameval.loop.keeper import PartitionKeeper
from streameval.loop.pipeline import Pipeline
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.testing import ScriptedSource, make_batch, readers_see
from tests.loop.test_keeper import PATIENCE, events, feed, make, report

FOUR, TWO = frozenset(range(4)), frozenset(range(2))
WHY = "is gone from the topics"


def fed(pipeline: Pipeline, start: int, count: int, partitions: frozenset[int]) -> None:
    for partition in sorted(partitions):
        feed(pipeline, start, count, partition)


def written_by(path: Path, partitions: frozenset[int] = FOUR, count: int = 300, **changes: Any) -> None:
    """A run that has counted some impressions of every partition, and has ended."""
    pipeline, keeper, _ = make(path, **changes)
    keeper.take(partitions)
    fed(pipeline, 0, count, partitions)
    keeper.close()


def after_recreation(path: Path, count: int | None = 2, **changes: Any) -> tuple[Pipeline, PartitionKeeper]:
    """A run that is assigned the two partitions that are left."""
    pipeline, keeper, _ = make(path, **changes)
    keeper.take(TWO)
    keeper.tick(count)
    return pipeline, keeper


def shown(pipeline: Pipeline) -> list[int]:
    return [one.partition for one in readers_see(pipeline).partitions]


def trusted(found: dict[str, Any]) -> dict[str, Any]:
    """A report without what it says of missing events."""
    for result in found["results"]:
        del result["reliable"], result["reliable_reason"]
    return found


def test_a_restart_loses_nothing_of_partitions_that_are_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Half of the impressions were missing after it."""
    truth, _, _ = make(tmp_path / "truth")
    fed(truth, 0, 300, FOUR)
    fed(truth, 300, 300, TWO)

    written_by(tmp_path / "store")
    with caplog.at_level(logging.WARNING):
        pipeline, _ = after_recreation(tmp_path / "store")
    assert "the topics no longer have partitions 2, 3: what these had counted (600 impressions) stays" in caplog.text
    fed(pipeline, 300, 300, TWO)
    found = report(pipeline)
    assert found["events"]["impressions"] == 1_800
    assert {result["reliable_reason"] for result in found["results"] if result["window"] == "all"} == {
        f"partition 3 {WHY}"
    }
    assert trusted(found) == trusted(report(truth))


def test_their_labels_become_final_with_those_of_the_others_and_nobody_waits_for_them(tmp_path: Path) -> None:
    written_by(tmp_path)
    pipeline, _ = after_recreation(tmp_path)
    before = readers_see(pipeline)
    assert before.events["pending"] == 4 * 60  # of the last minute
    assert {one.waiting_since is None for one in before.partitions} == {False}
    fed(pipeline, 300, 300, TWO)
    after = readers_see(pipeline)
    assert after.events["pending"] == 2 * 60
    assert [one.waiting_since is None for one in after.partitions] == [False, False, True, True]
    ends = {one.label_complete for one in after.partitions}
    assert len(ends) == 1
    (last,) = {result.window_end for result in after.results if result.window == "5m"}
    assert last == min(end or 0 for end in ends) // 60_000 * 60_000


def test_no_comparison_waits_for_them_after_a_restart(tmp_path: Path) -> None:
    """As they bring nothing, they are idle and never read to an end; no look was taken without them yet."""
    written_by(tmp_path)
    pipeline, _ = after_recreation(tmp_path)
    readers_see(pipeline, complete=False)
    assert pipeline.partitions[3].idle
    assert not pipeline.resumes({("impressions", partition) for partition in TWO})
    assert not pipeline.resumes(())


def test_windows_after_they_were_gone_are_reliable(tmp_path: Path) -> None:
    written_by(tmp_path)
    pipeline, _ = after_recreation(tmp_path)
    fed(pipeline, 300, 900, TWO)
    reasons = {result.window: result.reliable_reason for result in readers_see(pipeline).results}
    assert WHY in (reasons["all"] or "")
    assert WHY in (reasons["1h"] or "")
    assert reasons["5m"] is None


def test_a_partition_that_comes_back_goes_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    """Neither twice, nor as if nothing could come any more."""
    truth, _, _ = make(tmp_path / "truth")
    fed(truth, 0, 300, FOUR)
    fed(truth, 300, 300, TWO)
    fed(truth, 300, 300, FOUR - TWO)

    written_by(tmp_path / "store")
    pipeline, keeper = after_recreation(tmp_path / "store")
    fed(pipeline, 300, 300, TWO)
    readers_see(pipeline)
    assert keeper.take(FOUR) == {("impressions", 2): 300, ("impressions", 3): 300}
    keeper.tick(4)
    fed(pipeline, 300, 300, FOUR - TWO)
    assert report(pipeline) == report(truth)


def test_it_does_so_after_another_restart_too(tmp_path: Path) -> None:
    truth, _, _ = make(tmp_path / "truth")
    fed(truth, 0, 300, FOUR)
    fed(truth, 300, 300, FOUR)

    written_by(tmp_path / "store")
    pipeline, keeper = after_recreation(tmp_path / "store")
    fed(pipeline, 300, 300, TWO)
    readers_see(pipeline)
    keeper.close()
    pipeline, keeper, _ = make(tmp_path / "store")
    offsets = keeper.take(FOUR)
    assert offsets == {("impressions", p): 600 if p in TWO else 300 for p in FOUR}
    keeper.tick(4)
    fed(pipeline, 300, 300, FOUR - TWO)
    assert report(pipeline) == report(truth)


def test_they_are_gone_in_the_run_that_had_them_too(tmp_path: Path) -> None:
    """A rebalance drops them."""
    pipeline, keeper, _ = make(tmp_path)
    keeper.take(FOUR)
    fed(pipeline, 0, 300, FOUR)
    keeper.tick(2)
    assert shown(pipeline) == [0, 1, 2, 3]  # still assigned
    keeper.release(FOUR)
    keeper.drop(FOUR - TWO)
    assert shown(pipeline) == [0, 1]
    keeper.regain(TWO)
    keeper.tick(2)
    assert shown(pipeline) == [0, 1, 2, 3]
    assert readers_see(pipeline).events["impressions"] == 1_200


def test_the_loop_asks_its_source_how_many_there_are(tmp_path: Path) -> None:
    written_by(tmp_path)
    pipeline, keeper, _ = make(tmp_path)
    source = ScriptedSource([make_batch(events(300, 10, 0), pipeline.catalog, 0)])
    source.partition_count = lambda: 3  # type: ignore[method-assign]
    loop = Loop(source, pipeline, new_publisher(pipeline.settings), 0.0, JsonlDeadLetters(""), keeper)
    loop.run(threading.Event())
    assert shown(pipeline) == [0, 3]


@pytest.mark.parametrize(("count", "partitions"), [(None, [0, 1]), (0, [0, 1]), (4, [0, 1]), (3, [0, 1, 3])])
def test_other_partitions_are_not_gone(tmp_path: Path, count: int | None, partitions: list[int]) -> None:
    """Those of other workers; all of them while nothing is known of the topics."""
    written_by(tmp_path)
    pipeline, _ = after_recreation(tmp_path, count)
    assert shown(pipeline) == partitions


@pytest.mark.parametrize("count", [None, 0])
def test_while_a_topic_is_away_nothing_changes(tmp_path: Path, count: int | None) -> None:
    written_by(tmp_path)
    pipeline, keeper = after_recreation(tmp_path)
    keeper.tick(count)
    assert shown(pipeline) == [0, 1, 2, 3]
    keeper.tick(4)
    assert shown(pipeline) == [0, 1]


def emptied(keeper: PartitionKeeper, partitions: frozenset[int], count: int | None = 0) -> None:
    """A rebalance that leaves these to nobody, as while a topic is away."""
    keeper.release(partitions)
    keeper.drop(partitions)
    keeper.tick(count)


def test_what_was_counted_stays_while_a_topic_is_away_and_nothing_is_assigned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every result vanished until it was back."""
    truth, _, _ = make(tmp_path / "truth")
    fed(truth, 0, 300, FOUR)
    before = readers_see(truth)
    fed(truth, 300, 300, FOUR)

    pipeline, keeper, _ = make(tmp_path / "store")
    keeper.take(FOUR)
    fed(pipeline, 0, 300, FOUR)
    with caplog.at_level(logging.WARNING):
        emptied(keeper, FOUR)
    assert "a topic is away: what partitions 0, 1, 2, 3 had counted (1200 impressions) stays" in caplog.text
    assert readers_see(pipeline).report() == before.report()
    keeper.tick(4)  # it is back, and not assigned yet
    assert readers_see(pipeline).report() == before.report()
    assert keeper.take(FOUR) == {("impressions", p): 300 for p in FOUR}
    keeper.tick(4)
    fed(pipeline, 300, 300, FOUR)
    assert keeper.state().fenced == 0
    assert report(pipeline) == report(truth)


def test_it_does_so_where_the_brokers_say_late_that_the_topic_is_away(tmp_path: Path) -> None:
    pipeline, keeper, _ = make(tmp_path)
    keeper.take(FOUR)
    fed(pipeline, 0, 300, FOUR)
    emptied(keeper, FOUR, None)
    keeper.tick(4)
    assert shown(pipeline) == []
    keeper.tick(0)
    assert shown(pipeline) == [0, 1, 2, 3]


def test_of_several_workers_each_has_its_own_until_another_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gone, "CLAIMS_EVERY", 0.0)
    one, first, _ = make(tmp_path)
    other, second, _ = make(tmp_path)
    first.take(frozenset({0, 1}))
    fed(one, 0, 300, frozenset({0, 1}))
    second.take(frozenset({2}))
    fed(other, 0, 300, frozenset({2}))
    emptied(first, frozenset({1}), 3)  # to the other, long before
    second.take(frozenset({1}))
    assert readers_see(other).events["impressions"] == 600
    emptied(first, frozenset({0}))
    emptied(second, frozenset({1, 2}))
    assert (shown(one), shown(other)) == ([0], [1, 2])
    for keeper in (first, second):
        keeper.tick(3)
    assert (shown(one), shown(other)) == ([0], [1, 2])
    second.take(frozenset({0}))
    for keeper in (first, second):
        keeper.tick(3)
    assert (shown(one), shown(other)) == ([], [0, 1, 2])
    first.take(frozenset({1, 2}))
    for keeper in (first, second):
        keeper.tick(3)
    assert (shown(one), shown(other)) == ([1, 2], [0])
    assert first.state().fenced == second.state().fenced == 0


def test_a_topic_that_comes_back_with_fewer_partitions_leaves_the_rest_to_the_worker_with_partition_0(
    tmp_path: Path,
) -> None:
    one, first, _ = make(tmp_path)
    other, second, _ = make(tmp_path)
    first.take(frozenset({0, 1}))
    fed(one, 0, 300, frozenset({0, 1}))
    second.take(frozenset({2, 3}))
    fed(other, 0, 300, frozenset({2, 3}))
    emptied(first, frozenset({0, 1}))
    emptied(second, frozenset({2, 3}))
    for keeper in (second, first):
        keeper.tick(3)
    assert (shown(one), shown(other)) == ([0, 1, 3], [2])
    first.take(frozenset({0, 1}))
    second.take(frozenset({2}))
    for keeper in (second, first):
        keeper.tick(3)
    assert (shown(one), shown(other)) == ([0, 1, 3], [2])


def test_gone_partitions_stay_while_the_topic_is_away(tmp_path: Path) -> None:
    written_by(tmp_path)
    pipeline, keeper = after_recreation(tmp_path)
    emptied(keeper, TWO)
    assert shown(pipeline) == [0, 1, 2, 3]
    keeper.tick(2)
    assert shown(pipeline) == [0, 1, 2, 3]
    keeper.take(TWO)
    keeper.tick(2)
    assert shown(pipeline) == [0, 1, 2, 3]
    assert readers_see(pipeline).events["impressions"] == 1_200


def test_of_several_workers_the_one_with_partition_0_has_them(tmp_path: Path) -> None:
    written_by(tmp_path)
    one, first, _ = make(tmp_path)
    other, second, _ = make(tmp_path)
    first.take(frozenset({0}))
    second.take(frozenset({1}))
    for keeper in (first, second):
        keeper.tick(2)
    assert (shown(one), shown(other)) == ([0, 2, 3], [1])
    first.drop(frozenset({0}))
    first.tick(2)
    second.take(frozenset({0}))
    second.tick(2)
    assert (shown(one), shown(other)) == ([], [0, 1, 2, 3])
    assert second.state().fenced == first.state().fenced == 0


def test_what_another_worker_writes_of_one_last_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hear of the rebalance later."""
    written_by(tmp_path)
    other, second, _ = make(tmp_path)
    second.take(frozenset({1, 2}))
    one, first, _ = make(tmp_path)
    first.take(frozenset({0}))
    first.tick(2)
    feed(other, 300, 100, 2)
    second.release(frozenset({2}))
    assert second.state().fenced == 0
    first.tick(2)
    assert readers_see(one).events["impressions"] == 900
    monkeypatch.setattr(gone, "LOOK_EVERY", 0.0)
    first.tick(2)
    assert readers_see(one).events["impressions"] == 1_000


def test_one_that_cannot_be_restored_is_named_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written_by(tmp_path)
    for path in (tmp_path / "checkpoints" / "partition-00003").glob("*.checkpoint"):
        path.write_bytes(b"damaged")
    pipeline, keeper = after_recreation(tmp_path)
    assert shown(pipeline) == [0, 1, 2]
    assert keeper.state().gone_unread == (3,)
    assert "partition 3 is gone from the topics, and what it had counted is missing from the results" in caplog.text
    keeper.drop(frozenset({0}))
    keeper.tick(2)
    assert keeper.state().gone_unread == ()  # another worker says so now


def test_their_last_panes_get_into_the_history_and_whoever_gets_them_back_can_write(tmp_path: Path) -> None:
    written_by(tmp_path)
    pipeline, keeper = after_recreation(tmp_path, store={"checkpoint_interval": "1h"})
    fed(pipeline, 300, 300, TWO)
    readers_see(pipeline)
    keeper.close()

    def seen() -> dict[int, int]:
        with closing(sqlite3.connect(tmp_path / "history.sqlite")) as db:
            return dict(db.execute("SELECT partition, sum(matured) FROM parts GROUP BY partition"))

    found = seen()
    assert found[2] == found[3] == 300
    pipeline, keeper, _ = make(tmp_path)
    keeper.take(FOUR)
    fed(pipeline, 300, 300, FOUR - TWO)
    keeper.close()
    found = seen()
    assert found[2] == found[3] == found[0] > 300
    assert keeper.state().fenced == 0


def test_their_rows_on_disk_are_checked_and_hold_up_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    changes = {"store": {"segment_rows": 16_384, "checkpoint_interval": "1h"}, "join": {"correction_horizon": "8h"}}
    pipeline, keeper, _ = make(tmp_path, **changes)
    keeper.take(frozenset({0, 2}))
    fed(pipeline, 0, 300, frozenset({0}))
    for start in range(0, 18_000, 1_000):  # rows go to disk once those of their batch are mature
        feed(pipeline, start, 1_000, 2)
    deadline = time.monotonic() + PATIENCE / 6
    while not keeper.state().rows:
        assert time.monotonic() < deadline
        keeper.tick()
        time.sleep(0.002)
    keeper.close()
    folder = tmp_path / "checkpoints" / "partition-00002"
    segments = sorted(folder.glob("rows-*"), key=lambda path: path.stat().st_size)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    damaged = bytearray(segments[-1].read_bytes())
    damaged[-1] ^= 1
    segments[-1].write_bytes(damaged)
    pipeline, keeper = after_recreation(tmp_path, **changes)
    fed(pipeline, 300, 300, frozenset({0}))
    assert shown(pipeline) == [0, 2]
    while "impressions are lost" not in caplog.text:
        assert time.monotonic() < deadline
        keeper.tick(2)
        time.sleep(0.002)
    keeper.close()
    assert {path.name for path in folder.iterdir()} == before.keys()

"""What comes after a silence of all partitions is compared as if there had been none, whichever partition is read first."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from unittest.mock import patch

import pytest

from streameval.app import Loop, new_publisher
from streameval.compare.ledger import ledger
from streameval.events.batch import Batch
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.protocol import Place
from streameval.testing import ScriptedSource, readers_see
from tests.laws.streams import PARTITIONS, differences, make_settings
from tests.laws.test_restart_laws import Process, messages

EVERYWHERE = frozenset(("impressions", p) for p in range(PARTITIONS))


class TwoPartitions(ScriptedSource):
    """Says of both, which it has, that they were read to their ends, or that messages wait."""

    at_end: Collection[Place] = frozenset()

    def partitions(self) -> frozenset[int]:
        return frozenset(range(PARTITIONS))

    def caught_up(self) -> frozenset[Place]:
        return frozenset(self.at_end)


def batch(process: Process, partition: int, half: int) -> Batch:
    part = messages()[partition]
    some = part[: len(part) // 2] if half == 0 else part[len(part) // 2 :]
    values, kinds = [value for _, value in some], [0] * len(some)
    made, _ = process.decoder.messages(
        values, kinds, topic=("t",), partition=partition, offsets=range(len(some)), format="json", shared=True
    )
    return made


def report(silent: bool, first: int, snapshots: bool) -> dict[str, Any]:
    """`snapshots`: while the second half of one partition has been read, and that of the other waits."""
    process = Process(make_settings("impressions", "impression", models=False, shared=True), [])
    pipeline, source = process.pipeline, TwoPartitions([])
    pipeline.inputs = source.inputs
    loop = Loop(source, pipeline, new_publisher(process.config), 0.0, JsonlDeadLetters(""))
    for partition in (0, 1):
        pipeline.take(batch(process, partition, 0))
    loop.publish()
    source.at_end = EVERYWHERE if silent else ()
    for _ in range(30):
        pipeline._clock.advance(2.0)  # type: ignore[attr-defined]
        pipeline.tick(source.caught_up)
    assert [part.idle for part in pipeline.partitions.values()] == [silent] * 2
    loop.publish()
    source.at_end = ()
    for partition in (first, 1 - first):
        pipeline.take(batch(process, partition, 1))
        if snapshots:
            loop.publish()
            loop.publish()
    pipeline.finish()
    return readers_see(pipeline, with_history=False).report()


@patch.object(ledger, "MANY_PANES", 4)  # then a look is not left to the next snapshot
@pytest.mark.parametrize("snapshots", [True, False])
@pytest.mark.parametrize("first", [0, 1])
def test_a_silence_of_all_partitions_changes_nothing_whichever_resumes_first(first: int, snapshots: bool) -> None:
    expected = report(False, first, snapshots)
    assert any(c["impressions"] for c in expected["comparisons"])
    assert differences(report(True, first, snapshots), expected) == []


def test_a_partition_that_alone_was_silent_is_left_out_and_not_waited_for_again() -> None:
    process = Process(make_settings("impressions", "impression", models=False, shared=True), [])
    pipeline = process.pipeline
    pipeline.inputs = TwoPartitions.inputs
    for partition in (0, 1):
        pipeline.take(batch(process, partition, 0))
    for _ in range(30):
        pipeline._clock.advance(2.0)  # type: ignore[attr-defined]
        pipeline.tick(lambda: EVERYWHERE)
    assert pipeline.resumes(())
    assert not pipeline.resumes(EVERYWHERE)
    pipeline.take(batch(process, 0, 1))
    assert pipeline.resumes(())
    readers_see(pipeline)
    assert not pipeline.resumes(())

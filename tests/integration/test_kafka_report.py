"""The same events give one report, one history and one set of verdicts, however they are read.

From files or over Kafka, by either client, of one topic or two, with one partition or four, as a backlog in polls of any
size, or live while they are written: to the last bit. With clicks and impressions that are late, clicks later than the
correction horizon, duplicates, junk, a clock that is wrong, and a deploy that is found worse.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from streameval import app
from streameval.settings.tree import Kafka
from streameval.sources.kafka.source import KafkaSource
from tests.integration.readings import Expected, Outcome, configure, read, replays, write
from tests.integration.simulated_world import SIMULATED, stream
from tests.laws.streams import differences


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    return replays(SIMULATED, tmp_path_factory.mktemp("files"))


one_topic_or_two = pytest.mark.parametrize("shared", [True, False], ids=["one-topic", "two-topics"])


@one_topic_or_two
def test_the_stream_tries_everything_and_files_give_what_replay_gives(
    shared: bool, expected: Expected, tmp_path: Path
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(message.value + b"\n" for message in stream()))
    report = app.replay(configure(SIMULATED, shared, tmp_path), [path]).report()
    assert not differences(expected(shared, 1).report, report)
    events = report["events"]
    for fate in (
        "corrected", "late_impressions", "late_clicks", "duplicate_impressions", "duplicate_clicks", "unmatched_clicks",
        "runaway_impressions", "invalid",
    ):  # fmt: skip
        assert events[fate], fate
    assert {(c["setup"], c["verdict"]) for c in report["comparisons"]} == {("paired", "worse"), ("split", "undecided")}

    # how late an event is depends on what else is in its partition
    four = expected(shared, 4).report
    of_a_partition = "auc_stderr", "pauc_stderr", "corrected"
    assert not differences(without(four["results"], of_a_partition), without(report["results"], of_a_partition))
    seen = [[(c["id"], c["verdict"], c["since"], c["looked"]) for c in one["comparisons"]] for one in (four, report)]
    assert seen[0] == seen[1]


def without(results: list[dict[str, Any]], names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{name: value for name, value in result.items() if name not in names} for result in results]


@pytest.mark.kafka
@pytest.mark.parametrize("partitions", [1, 4])
@one_topic_or_two
def test_every_reading_of_kafka_is_the_replay_of_the_files(
    real_lab: Any, partitions: int, shared: bool, expected: Expected, tmp_path: Path
) -> None:
    lab, truth = real_lab, expected(shared, partitions)
    topics = lab.impressions, lab.impressions if shared else lab.clicks
    lab.create(*dict.fromkeys(topics), partitions=partitions)

    def settings() -> Kafka:
        return lab.settings(clicks_topic=topics[1])

    with ThreadPoolExecutor() as pool:  # live

        def begin(source: KafkaSource) -> None:
            pool.submit(write, SIMULATED, lab.address, topics, partitions, lambda: bool(source.partitions()))

        agree(read(SIMULATED, settings(), tmp_path / "live", 500, begin), truth)
    for max_events in (97, 10_000):  # what is now a backlog
        agree(read(SIMULATED, settings(), tmp_path / str(max_events), max_events), truth)


@pytest.mark.parametrize("lab", ["embedded"], indirect=True)
@one_topic_or_two
def test_the_embedded_broker_is_read_alike(lab: Any, shared: bool, expected: Expected, tmp_path: Path) -> None:
    topics = lab.impressions, lab.impressions if shared else lab.clicks
    lab.create(*dict.fromkeys(topics), partitions=4)
    write(SIMULATED, lab.address, topics, 4)
    agree(read(SIMULATED, lab.settings(clicks_topic=topics[1]), tmp_path, 700), expected(shared, 4))


def agree(found: Outcome, truth: Outcome) -> None:
    assert found.differs(truth, published=True) == []

"""A world that nobody tuned to: one report, one history and one set of verdicts, however it is read, to the last bit.

From files in batches of any size; over Kafka by either client, live and as a backlog in batches of any size; and by a monitor
that is killed twice meanwhile. With one topic or two, and one partition or four, each of which is a stream of its own: what is
the same across these is said in the first test.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from streameval.settings.server import Server
from streameval.settings.toml import to_toml
from streameval.settings.tree import Settings
from streameval.sources.kafka.source import KafkaSource
from tests.chaos.fleet import Stream, Worker, until
from tests.integration.readings import Expected, Message, Outcome, configure, read, replay, replays, write
from tests.integration.strange_world import STRANGE, stream

pytestmark = pytest.mark.slow
# each event is one of these, or was refused
EVENTS = (
    "impressions", "duplicate_impressions", "conflicting_impressions", "expired_impressions", "runaway_impressions",
    "clicks", "runaway_clicks",
)  # fmt: skip
BATCHES = (61, 10_000)
LARGER = "STRANGE_RATE" in os.environ  # then everything in every way
REFUSED = ("malformed", "out_of_range")
NEVER = {"pending", "quarantined", "late_unscored", "forgotten_early", "matured_early"}  # in the end, within memory


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    return replays(STRANGE, tmp_path_factory.mktemp("files"))


def test_the_world_is_strange_and_verdicts_do_not_depend_on_topics_and_partitions(expected: Expected) -> None:
    ways = [(shared, partitions) for shared in (True, False) for partitions in (1, 4)]
    reports = {way: expected(*way).report for way in ways}
    for (_, partitions), report in reports.items():
        fates = report["events"]
        assert {fate for fate, n in fates.items() if not n} <= NEVER
        # what becomes of an event depends on its partition, but all are accounted for
        assert sum(fates[name] for name in EVENTS) + sum(fates["invalid"][why] for why in REFUSED) == len(stream())
        assert (fates["expired_impressions"] > 500) == (partitions == 4)  # a clock was believed, and made others old
        assert {r["slice"]["value"] for r in report["results"] if r["slice"]} >= {
            "__missing__",
            "~__missing__",
            "~__other__",
        }
        assert report["deploys"] == reports[True, 1]["deploys"]
        assert [d["version"] for d in report["deploys"]] == ["v1", "v2", "v3"]
        assert verdicts(report) == verdicts(reports[True, 1])
        assert changes(report) == changes(reports[True, partitions])
    assert ("paired", "worse") in {(c["setup"], c["verdict"]) for c in reports[True, 1]["comparisons"]}
    assert {kind for c in changes(reports[True, 1]) for _, kind, _ in c} >= {"verdict", "withheld", "restored"}


def verdicts(report: dict[str, Any]) -> list[tuple[object, ...]]:
    return [(c["id"], c["verdict"]) for c in report["comparisons"]]


def changes(report: dict[str, Any]) -> list[list[tuple[object, ...]]]:
    """With their times: in which pane events come depends on their partition, but hardly on their topic."""
    return [[(one["at"], one["kind"], one["verdict"]) for one in c["changes"]] for c in report["comparisons"]]


def test_batches_of_files_do_not_matter(expected: Expected, tmp_path: Path) -> None:
    for size in BATCHES if LARGER else BATCHES[:1]:
        agree(replay(STRANGE, True, 4, tmp_path / str(size), size), expected(True, 4))


def readings(shared: bool, partitions: int) -> list[tuple[str, int]]:
    """Clients, and the sizes of their batches, 0: live, into topics of their own, which the next ones read as a backlog.

    Each client reads live and in small and in large batches, of one topic and of two, of one partition and of four.
    """
    clients = ("confluent", "kafka-python")
    one, other = clients if shared == (partitions == 1) else reversed(clients)
    if LARGER:
        return [(client, size) for client in (one, other) for size in (0, *BATCHES)]
    return [(one, 0), (one, BATCHES[0]), (other, BATCHES[1])]


@pytest.mark.kafka
@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("shared", [True, False], ids=["one-topic", "two-topics"])
def test_every_reading_of_kafka_is_that_of_the_files(
    real_kafka: str,
    laboratory: Callable[..., Any],
    partitions: int,
    shared: bool,
    expected: Expected,
    tmp_path: Path,
) -> None:
    topics = "", ""
    with ThreadPoolExecutor() as pool:

        def begin(source: KafkaSource) -> None:
            pool.submit(write, STRANGE, real_kafka, topics, partitions, lambda: bool(source.partitions()))

        for client, size in readings(shared, partitions):
            lab = laboratory(real_kafka, client)
            if not size:
                topics = lab.impressions, lab.impressions if shared else lab.clicks
                lab.create(*dict.fromkeys(topics), partitions=partitions)
            kafka = lab.settings(impressions_topic=topics[0], clicks_topic=topics[1])
            on_start = (lambda source: None) if size else begin
            found = read(STRANGE, kafka, tmp_path / f"{client}-{size}", size or 500, on_start)
            agree(found, expected(shared, partitions))


@dataclass
class Killed(Worker):
    """A monitor of its own settings, which is killed while the stream is written."""

    settings: Settings = field(default_factory=Settings)

    def config(self) -> str:
        """These settings."""
        return to_toml(self.settings)

    def lives_through(
        self, pieces: Sequence[tuple[Sequence[Message], float]]
    ) -> Iterator[tuple[Sequence[Message], float]]:
        """The pieces; twice, when a third more has been sent and some of that was read, it is killed and started again."""
        sent, kills = 0, 0
        for piece, _ in pieces:
            yield piece, 0.0
            sent += len(piece)
            if kills < 2 and sent > len(stream()) * (kills + 1) / 3:
                least = sent - len(stream()) / 6
                until("it reads on", lambda: self.read() > least, [self], pause=0.02)  # noqa: B023
                until("it has a checkpoint", lambda: any(self.store.rglob("*.checkpoint")), [self], pause=0.02)
                self.kill()
                self.start()
                kills += 1


@pytest.mark.kafka
def test_a_monitor_that_is_killed_twice_goes_on_to_the_same_end(
    real_kafka: str, laboratory: Callable[..., Any], expected: Expected, tmp_path: Path
) -> None:
    lab = laboratory(real_kafka, "confluent")
    topics = Stream(real_kafka, f"strange-{uuid.uuid4().hex[:8]}", partitions=4, sent=len(stream()))
    topics.create()
    static = {"group.instance.id": topics.name, "session.timeout.ms": 6000}  # gets its partitions back at once
    shown, clicked = topics.topics
    kafka = lab.settings(impressions_topic=shown, clicks_topic=clicked, client_options=static)
    store = tmp_path / "store"
    # nobody is silent on purpose; on a slow machine a partition would be while the others are read or the monitor starts
    patient = replace(
        STRANGE, settings={**STRANGE.settings, "join": {**STRANGE.settings["join"], "idle_timeout": "1h"}}
    )
    settings = configure(patient, False, store, kafka)
    served = settings.model_copy(update={"server": Server(port=0, snapshot_interval="500ms")})
    worker = Killed(topics, tmp_path / "worker", store, settings=served)
    worker.start()
    try:
        world = replace(STRANGE, live=lambda shared: worker.lives_through([*STRANGE.live(shared)]))
        until("its page is there", lambda: worker.ask("/") is not None, [worker])
        write(world, real_kafka, topics.topics, 4, live=lambda: True)
        until("everything is read", lambda: worker.read() >= topics.sent, [worker])
        worker.stop()
    finally:
        worker.kill()
    assert worker.starts == 3
    assert "restored from" in (tmp_path / "worker" / "log-3").read_text()
    agree(Outcome.of(settings, 4, {}), expected(False, 4))


def agree(found: Outcome, truth: Outcome) -> None:
    # while they wait for more, they differ by the clicks that they know not to come
    assert found.differs(truth, published=False) == []

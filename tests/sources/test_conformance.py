"""The sources that are there, under the one suite: files of every format, and Kafka with both clients."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from streameval.settings.tree import Files, Settings
from streameval.sources.files import FileSource
from streameval.sources.formats.decode import Decoder
from streameval.sources.kafka.embedded import EmbeddedBroker
from streameval.sources.kafka.writer import KafkaWriter
from streameval.sources.protocol import DeadLetterSink, Keeper, Source
from streameval.sources.registry import KINDS, Wiring
from tests.sources.conformance import MAX_EVENTS, PATIENCE, Case, SourceConformance
from tests.sources.files import FILES


class FileCase(Case):
    """One file."""

    ends, resumes = True, False

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, events: Sequence[dict[str, Any]]) -> None:
        FILES[self.path.name](events, self.path)

    def open(self, decoder: Decoder, sink: DeadLetterSink, keeper: Keeper) -> Source:
        return FileSource([self.path], decoder, Files(), MAX_EVENTS, sink)

    def place(self, number: int) -> tuple[str, int]:
        return str(self.path), number


class TestFiles(SourceConformance):
    @pytest.fixture(params=list(FILES))
    def case(self, request: pytest.FixtureRequest, tmp_path: Path) -> Case:
        return FileCase(tmp_path / request.param)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as one:
        yield one


class KafkaCase(Case):
    """Two topics of the embedded broker; all is written to partition 1."""

    def __init__(self, broker: EmbeddedBroker, client: str) -> None:
        name = uuid.uuid4().hex[:8]
        self.topics = {"impression": f"i-{name}", "click": f"c-{name}"}
        self.groups = (f"g-{name}-{number}" for number in count())  # the embedded broker is slow to miss a member
        self.settings = Settings.model_validate(
            {
                "batch": {"max_events": MAX_EVENTS},
                "kafka": {
                    "bootstrap_servers": broker.bootstrap_servers, "client": client, "start": "earliest",
                    "client_options": broker.client_options(client),
                    "impressions_topic": self.topics["impression"], "clicks_topic": self.topics["click"],
                },
            }
        )  # fmt: skip
        self.writer = KafkaWriter(broker.bootstrap_servers)
        asking = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        for topic in self.topics.values():  # this broker makes a topic that is asked about
            asking.list_topics(topic, timeout=PATIENCE)

    def write(self, events: Sequence[dict[str, Any]]) -> None:
        for event in events:
            self.writer.write(self.topics[event["type"]], [b""], [json.dumps(event).encode()], 1)
        self.writer.flush()

    def open(self, decoder: Decoder, sink: DeadLetterSink, keeper: Keeper) -> Source:
        kafka = self.settings.kafka.model_copy(update={"group_id": next(self.groups)})
        settings = self.settings.model_copy(update={"kafka": kafka})
        return KINDS["kafka"].open(Wiring(settings, decoder, sink, keeper))

    def place(self, number: int) -> tuple[str, int]:
        return self.topics["impression"], number


@pytest.mark.slow
class TestKafka(SourceConformance):
    @pytest.fixture(params=["confluent", "kafka-python"])
    def case(self, request: pytest.FixtureRequest, broker: EmbeddedBroker) -> Iterator[Case]:
        one = KafkaCase(broker, request.param)
        yield one
        one.writer.close()


def test_every_kind_that_is_registered_here_is_under_the_suite() -> None:
    assert set(KINDS) == {"kafka"}, "give the new kind a class here, as TestKafka"

"""Real brokers for the integration tests, and a laboratory to use them with."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streameval.events.batch import Batch, Catalog
from streameval.settings.tree import Kafka
from streameval.sources.formats.decode import Decoder
from streameval.sources.kafka.dead_letters import KafkaDeadLetters
from streameval.sources.kafka.embedded import EmbeddedBroker
from streameval.sources.kafka.source import KafkaSource
from streameval.sources.protocol import DeadLetter, DeadLetterSink

LAUNCHER = Path(__file__).parents[2] / "deploy" / "kafka" / "kafka.py"
PATIENCE = 180.0  # seconds that anything awaited here may take, on a slow machine
START_MS = 1_700_000_000_000


def pytest_configure(config: pytest.Config) -> None:
    """What kafka-python 3.0 does and we cannot help, whichever test is running then."""
    # at its import
    config.addinivalue_line("filterwarnings", "ignore:(open|read)_text is deprecated:DeprecationWarning")
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")  # after a failed connection


def launch(*arguments: str) -> str:
    """What deploy/kafka/kafka.py prints."""
    done = subprocess.run([sys.executable, str(LAUNCHER), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"kafka.py {' '.join(arguments)}: {done.stderr}")
    return done.stdout.strip()


def need_kafka() -> None:
    """Skip by name, or fail when nothing may be skipped, where no Kafka can be started."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        why = f"a real Apache Kafka needs {' and '.join(missing)}, or STREAMEVAL_TEST_KAFKA=host:port"
        if os.environ.get("STREAMEVAL_REQUIRE_ALL") == "1":
            pytest.fail(why)
        pytest.skip(why)


@pytest.fixture(scope="session", autouse=True)
def leftovers() -> Iterator[None]:
    """Collect kafka-python's unclosed sockets before pytest looks for them, which it does without our filters."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(3):
            gc.collect()


@pytest.fixture(scope="session")
def real_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of an Apache Kafka: STREAMEVAL_TEST_KAFKA, or one started for this session."""
    given = os.environ.get("STREAMEVAL_TEST_KAFKA")
    if given:
        yield given
        return
    need_kafka()
    folder = str(tmp_path_factory.mktemp("kafka"))
    try:
        yield launch("start", folder)
    finally:
        launch("stop", folder)


@pytest.fixture(scope="session")
def embedded_kafka() -> Iterator[EmbeddedBroker]:
    """The embedded broker."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[Path]:
    """A folder for a broker of the test's own, to be started and stopped with `launch`; stopped at the end."""
    need_kafka()
    yield tmp_path / "kafka"
    launch("stop", str(tmp_path / "kafka"))


@pytest.fixture
def launcher() -> Callable[..., str]:
    """deploy/kafka/kafka.py as a function."""
    return launch


class Collected:
    """A dead-letter sink that keeps letters here."""

    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []

    def write(self, letters: Sequence[DeadLetter]) -> None:
        self.letters += letters

    def flush(self, timeout: float) -> None: ...

    def close(self) -> None: ...


class Stored:
    """A keeper that holds nothing but the offsets to begin at."""

    def __init__(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self._offsets = offsets

    def take(self, partitions: frozenset[int]) -> Mapping[tuple[str, int], int]:
        return {place: offset for place, offset in self._offsets.items() if place[1] in partitions}

    def topic_ids(self, partitions: frozenset[int]) -> Mapping[tuple[str, int], str]:
        return {}

    def release(self, partitions: frozenset[int]) -> None: ...

    def regain(self, partitions: frozenset[int]) -> None: ...

    def drop(self, partitions: frozenset[int]) -> None: ...


class Laboratory:
    """A broker and a client under test, with what tests do to them. Topic and group names are its own."""

    def __init__(self, address: str, client: str, embedded: EmbeddedBroker | None) -> None:
        self.address = address
        self.client = client
        self.options = embedded.client_options(client) if embedded else {}
        self.impressions, self.clicks, self.dead = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("i", "c", "d"))
        self._embedded = embedded
        self._producer = Producer(
            {
                "log_level": 0,
                "bootstrap.servers": address,
                "message.max.bytes": 100_000_000,
                "linger.ms": 5,
                "enable.idempotence": True,  # a retry, as after the making of a topic, must not change the order
            }
        )
        self._open: list[Any] = []

    def settings(self, **changes: Any) -> Kafka:
        """Settings for this broker, client and topics, from the earliest message."""
        own: dict[str, Any] = {
            "bootstrap_servers": self.address,
            "client": self.client,
            "group_id": f"g-{uuid.uuid4().hex[:8]}",
            "impressions_topic": self.impressions,
            "clicks_topic": self.clicks,
            "dead_letter_topic": self.dead,
            "start": "earliest",
            "client_options": self.options,
        }
        return Kafka(**{**own, **changes})

    def create(self, *topics: str, partitions: int = 4, **config: str) -> None:
        """Make topics; the embedded broker gives every topic 4 partitions."""
        if self._embedded:
            for topic in topics:
                self._producer.list_topics(topic, timeout=PATIENCE)
            return
        admin = AdminClient({"bootstrap.servers": self.address})
        wanted = [NewTopic(topic, num_partitions=partitions, config=config) for topic in topics]
        for made in admin.create_topics(wanted, operation_timeout=PATIENCE).values():
            made.result(PATIENCE)

    def write(
        self, topic: str, values: Sequence[bytes | None], partition: int = 0, producer: Producer | None = None
    ) -> None:
        """Store messages in a partition, in order."""
        producer = producer or self._producer
        failed: list[str] = []
        for number, value in enumerate(values, 1):
            producer.produce(
                topic, value, partition=partition, on_delivery=lambda error, _: error and failed.append(error.str())
            )
            if number % 50_000 == 0:  # as many as its queue holds
                producer.flush(PATIENCE)
        assert producer.flush(PATIENCE) == 0
        assert not failed, failed

    def source(
        self,
        settings: Kafka | None = None,
        sink: DeadLetterSink | None = None,
        max_events: int = 1_000,
        **more: Any,
    ) -> KafkaSource:
        """A source, closed after the test."""
        decoder = Decoder(Catalog(), clock=lambda: int(time.time() * 1_000), max_future=3_600_000)
        source = KafkaSource(settings or self.settings(), decoder, sink or Collected(), max_events, **more)
        self._open.append(source)
        return source

    def dead_letters(self, settings: Kafka) -> KafkaDeadLetters:
        """A dead-letter sink, closed after the test."""
        sink = KafkaDeadLetters(settings)
        self._open.append(sink)
        return sink

    def read(self, topic: str, count: int) -> list[tuple[bytes | None, dict[str, str], int]]:
        """The first `count` messages of a topic: value, headers, partition; all of them are awaited."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "reader", "enable.auto.commit": False})
        partitions = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        out = []
        deadline = time.monotonic() + PATIENCE
        while len(out) < count and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                headers = {name: value.decode() for name, value in message.headers() or []}
                out.append((message.value(), headers, message.partition()))
        consumer.close()
        assert len(out) == count
        return out

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Have Kafka delete the messages before this offset, as retention does."""
        admin = AdminClient({"bootstrap.servers": self.address})
        for done in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            done.result(PATIENCE)

    def close(self) -> None:
        while self._open:
            self._open.pop().close()


@pytest.fixture(params=["confluent", "kafka-python"])
def client(request: pytest.FixtureRequest) -> str:
    """Either client library, by its name in `kafka.client`."""
    return str(request.param)


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kafka)])
def lab(request: pytest.FixtureRequest, client: str) -> Iterator[Laboratory]:
    """Each client with each broker."""
    embedded = request.getfixturevalue("embedded_kafka") if request.param == "embedded" else None
    address = embedded.bootstrap_servers if embedded else request.getfixturevalue("real_kafka")
    one = Laboratory(address, client, embedded)
    yield one
    one.close()


@pytest.fixture
def real_lab(real_kafka: str, client: str) -> Iterator[Laboratory]:
    """Each client with a real broker."""
    one = Laboratory(real_kafka, client, None)
    yield one
    one.close()


@pytest.fixture
def laboratory() -> Iterator[Callable[..., Laboratory]]:
    """Makes laboratories for brokers of the test's own: (address, client)."""
    made: list[Laboratory] = []

    def make(address: str, client: str) -> Laboratory:
        made.append(Laboratory(address, client, None))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def stored() -> type[Stored]:
    """`stored(offsets)`: a keeper that holds nothing but the offsets to begin at."""
    return Stored


@pytest.fixture
def impressions() -> Callable[..., list[bytes]]:
    """`impressions(first, count, step=1)`: JSON messages, the i-th with ts = START_MS + i * step."""

    def make(first: int, count: int, step: int = 1) -> list[bytes]:
        return [
            json.dumps(
                {"impression_id": f"i{i}", "ts": START_MS + i * step, "user_id": f"u{i % 7}", "pclick": 0.1}
            ).encode()
            for i in range(first, first + count)
        ]

    return make


@pytest.fixture
def clicks() -> Callable[..., list[bytes]]:
    """`clicks(first, count, step=1)`: JSON messages, the i-th with ts = START_MS + i * step."""

    def make(first: int, count: int, step: int = 1) -> list[bytes]:
        return [
            json.dumps({"impression_id": f"i{i}", "ts": START_MS + i * step}).encode()
            for i in range(first, first + count)
        ]

    return make


class Arrived:
    """What batches brought, by partition: the i of every impression and click, in arrival order."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.impressions: dict[int, list[int]] = {}
        self.clicks: dict[int, list[int]] = {}

    def take(self, batches: Sequence[Batch], step: int = 1) -> None:
        for batch in batches:
            self.batches.append(batch)
            if not len(batch) and not batch.invalid:  # says where reading began
                continue
            self.impressions.setdefault(batch.partition, []).extend(
                ((batch.impressions.ts - START_MS) // step).tolist()
            )
            self.clicks.setdefault(batch.partition, []).extend(((batch.clicks.ts - START_MS) // step).tolist())

    def __repr__(self) -> str:
        invalid = [dict(batch.invalid) for batch in self.batches if batch.invalid]
        return f"impressions {self.impressions}, clicks {self.clicks}, invalid {invalid}, offsets {self.offsets()}"

    def count(self) -> int:
        return sum(len(batch) + sum(batch.invalid.values()) for batch in self.batches)

    def offsets(self) -> Mapping[tuple[str, int], int]:
        """The next offsets of all batches so far."""
        return {place: offset for batch in self.batches for place, offset in batch.offsets.items()}


@pytest.fixture
def drain() -> Callable[..., Arrived]:
    """`drain(source, count, more=0)`: polls until `count` events came (bad ones included), then a little longer."""

    def run(source: KafkaSource, count: int, arrived: Arrived | None = None) -> Arrived:
        arrived = arrived or Arrived()
        deadline = time.monotonic() + PATIENCE
        while arrived.count() < count and time.monotonic() < deadline:
            arrived.take(source.poll(0.2))
        arrived.take(source.poll(0.2))  # what must not come would come now
        assert arrived.count() == count, (arrived, source.lag())
        return arrived

    return run

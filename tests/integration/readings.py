"""One stream of events, and what is counted of it: read from files, or from Kafka in any way."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from streameval import app
from streameval.events.batch import Batch
from streameval.join.leaps import ENOUGH
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Kafka, Settings
from streameval.simulate.encode import MALFORMED, events
from streameval.simulate.scenario import Scenario, Version
from streameval.simulate.traffic import Traffic
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.files import FileSource
from streameval.sources.kafka.dead_letters import KafkaDeadLetters
from streameval.sources.kafka.source import KafkaSource
from streameval.sources.kafka.writer import KafkaWriter
from streameval.sources.protocol import Place
from streameval.testing import history_content, readers_see

PATIENCE = 300.0  # seconds, on a slow machine
PIECE = 300  # messages that a live producer sends at once
IDLE_S = 0.2
START_MS = 1_760_000_000_000  # 400 s before a full hour: a stratum of the placements ends within the stream
SCENARIO = Scenario(
    start_ms=START_MS,
    duration_s=450.0,
    rate=15.0,  # as much as the embedded broker holds
    users=600,
    ctr=0.1,
    late_share=0.03,
    window_s=60.0,
    versions=(Version("v1"), Version("v2", noise=2.5, bias=1.0, start_s=100.0, share=0.4)),
    shadow=True,
    duplicate=0.02,
    unmatched=0.02,
    malformed=0.02,
    shuffle_s=10.0,
)
JOIN = {
    "attribution_window": "60s", "allowed_lateness": "15s", "correction_horizon": "2m", "request_gap": "20s",
    "idle_timeout": f"{IDLE_S}s",
}  # fmt: skip
# seconds that some come late: labels are corrected, and what is later than the correction horizon is not counted
LATE = {"impression": (0.02, (40.0,)), "click": (0.1, (30.0, 90.0, 200.0))}


@dataclass(frozen=True, slots=True)
class Message:
    """One event on its way."""

    click: bool
    key: bytes
    value: bytes


@cache
def stream() -> tuple[Message, ...]:
    """In order of arrival; its end makes all before it final."""
    luck = random.Random(5)
    arriving = []
    for number, event in enumerate(events(Traffic(SCENARIO))):
        share, seconds = LATE[event.kind]
        late = 1000 * luck.choice(seconds) if luck.random() < share else 0.0
        value = event.json(with_type=True)
        if event.raw is not None:  # of the kinds that are refused alike whether a topic or a field says what they are
            value = luck.choice([MALFORMED[0], MALFORMED[2]])
        arriving.append((event.arrives + late, number, Message(event.kind == "click", event.key, value)))
    out = [message for *_, message in sorted(arriving, key=lambda one: one[:2])]
    end = START_MS + int(SCENARIO.duration_s * 1000) + 3_600_000
    for number in range(4 * ENOUGH):  # as many for each of four partitions as a leap of the clock needs
        key = bytes([number % 4])
        shown = b'{"type":"impression","impression_id":"end-%d","ts":%d,"user_id":"end","pclick":0.5}' % (number, end)
        tapped = b'{"type":"click","impression_id":"end-%d","ts":%d}' % (number, end)
        out += [Message(False, key, shown), Message(True, key, tapped)]
    ahead = b'{"type":"impression","impression_id":"ahead","ts":%d,"user_id":"u","pclick":0.5}' % (START_MS + 10**9)
    out.insert(len(out) // 3, Message(False, b"user-0", ahead))
    return tuple(out)


def partition_of(message: Message, partitions: int) -> int:
    """Where a message is, in either topic."""
    return sum(message.key) % partitions


def configure(shared: bool, store: Path, kafka: Kafka | None = None) -> Settings:
    """The settings of every reading, of one topic or two."""
    settings = Settings.model_validate(
        {
            "join": JOIN,
            "windows": {"pane": "10s", "sliding": ["1m", "5m"]},
            "compare": {"min_duration": "1m", "min_clicks": 20, "min_blocks": 10, "gauc_window": "20s"},
            "slices": {"dimensions": ["country"]},
            "files": {"dead_letters": ""},
            "kafka": {"impressions_topic": "i", "clicks_topic": "i" if shared else "c"},
            "store": {"path": str(store), "checkpoint_interval": "300ms"},
        }
    )
    return settings if kafka is None else settings.model_copy(update={"kafka": kafka})


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that there is to see in the end."""

    published: dict[str, Any]  # the report of one who goes on to wait for more
    report: dict[str, Any]  # that of one who knows that nothing comes any more
    history: Mapping[str, set[tuple[object, ...]]]

    @classmethod
    def of(cls, published: dict[str, Any], pipeline: Pipeline) -> Outcome:
        """Of a pipeline whose keeper is closed."""
        pipeline.finish()
        report = readers_see(pipeline).report()
        return cls(published, report, history_content(Path(pipeline.settings.store.path) / "history.sqlite"))


def replay(shared: bool, partitions: int, folder: Path) -> Outcome:
    """What `app.replay` does, of a file for every partition."""
    folder.mkdir(parents=True)
    settings = configure(shared, folder / "store")
    pipeline = Pipeline(settings, time.time)
    keeper, _ = app.open_store(settings, pipeline, JsonlDeadLetters(""))
    assert keeper is not None
    keeper.take(frozenset(range(partitions)))
    sources = []
    for partition in range(partitions):
        path = folder / f"{partition}.jsonl"
        path.write_bytes(b"".join(m.value + b"\n" for m in stream() if partition_of(m, partitions) == partition))
        decoder = app.make_decoder(settings, pipeline)
        sources.append(FileSource([path], decoder, settings.files, 500, JsonlDeadLetters("")))
    while not all(source.finished for source in sources):
        for partition, source in enumerate(sources):
            for batch in source.poll(0.0):
                pipeline.take(replace(batch, partition=partition, shared=shared))
                keeper.tick()
    published = readers_see(pipeline).report()
    keeper.close()
    return Outcome.of(published, pipeline)


class ToTheEnd(KafkaSource):
    """Ends when so many messages are behind it."""

    sent = 0
    at: dict[Place, int]

    def deliver(self, timeout: float, take: Callable[[Batch], None]) -> None:
        def noted(batch: Batch) -> None:
            self.at.update(batch.offsets)
            take(batch)

        super().deliver(timeout, noted)

    @property
    def finished(self) -> bool:
        return sum(self.at.values()) >= self.sent


def read(
    kafka: Kafka, store: Path, max_events: int, on_start: Callable[[ToTheEnd], None] = lambda source: None
) -> Outcome:
    """What `app.run` does, until everything is read; `on_start` is given the source."""
    shared = kafka.impressions_topic == kafka.clicks_topic
    settings = configure(shared, store, kafka)
    pipeline = Pipeline(settings, time.time)
    sink = KafkaDeadLetters(kafka)
    keeper, _ = app.open_store(settings, pipeline, sink)
    source = ToTheEnd(kafka, app.make_decoder(settings, pipeline), sink, max_events, keeper=keeper)
    source.sent, source.at = len(stream()), {}
    loop = app.Loop(source, pipeline, app.new_publisher(settings), 0.0, sink, keeper)
    stop = threading.Event()
    alarm = threading.Timer(PATIENCE, stop.set)
    alarm.start()
    try:
        on_start(source)
        loop.run(stop)
        assert source.finished, (source.at, source.lag())
        loop.publish()
    finally:
        alarm.cancel()
        source.close()
        sink.close()
    return Outcome.of(loop.publisher.latest().report(), pipeline)


def write(address: str, topics: tuple[str, str], partitions: int, live: Callable[[], bool] | None = None) -> None:
    """Sends the stream to the topics of impressions and of clicks; `live`: piece by piece, once it holds.

    Half-way the clicks (with one topic, everything) fall silent for longer than the idle timeout.
    """
    writer = KafkaWriter(address)

    def send(messages: Sequence[Message]) -> None:
        for m in messages:
            writer.write(topics[m.click], [m.key], [m.value], partition_of(m, partitions))

    try:
        if live is None:
            send(stream())
            return
        deadline = time.monotonic() + PATIENCE
        while not live():
            assert time.monotonic() < deadline, "nobody reads"
            time.sleep(0.01)
        pieces = [stream()[start : start + PIECE] for start in range(0, len(stream()), PIECE)]
        middle = len(pieces) // 2
        for number, piece in enumerate(pieces):
            if number == middle:
                shown = [m for m in piece if not m.click] if topics[0] != topics[1] else []
                send(shown)
                writer.flush()
                time.sleep(2 * IDLE_S)
                piece = [m for m in piece if m not in shown]  # noqa: PLW2901  (what is left of it)
            send(piece)
            writer.flush()
            time.sleep(0.01)
    finally:
        writer.close()

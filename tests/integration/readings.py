"""One stream of events, and what is counted of it: read from files, or from Kafka in any way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from streameval import app
from streameval.events.batch import Batch
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Kafka, Settings
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.files import FileSource
from streameval.sources.kafka.dead_letters import KafkaDeadLetters
from streameval.sources.kafka.source import KafkaSource
from streameval.sources.kafka.writer import KafkaWriter
from streameval.sources.protocol import Place
from streameval.testing import history_content, readers_see
from tests.laws.streams import differences

PATIENCE = 300.0  # seconds, on a slow machine


@dataclass(frozen=True, slots=True)
class Message:
    """One event on its way."""

    click: bool
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class World:
    """A stream, and how it is read."""

    stream: Callable[[], Sequence[Message]]  # in order of arrival
    settings: Mapping[str, Any]
    partition_of: Callable[[Message, int], int]  # where a message is, in either topic, of so many partitions
    # by whether there is one topic: what a live producer sends at once, and how many seconds it waits then
    live: Callable[[bool], Iterable[tuple[Sequence[Message], float]]]
    interval_s: float  # between snapshots at least, and between checkpoints


def configure(world: World, shared: bool, store: Path, kafka: Kafka | None = None) -> Settings:
    """The settings of every reading, of one topic or two."""
    settings = Settings.model_validate(
        {
            **world.settings,
            "files": {"dead_letters": ""},
            "kafka": {"impressions_topic": "i", "clicks_topic": "i" if shared else "c"},
            "store": {
                **world.settings.get("store", {}),
                "path": str(store),
                "checkpoint_interval": f"{max(world.interval_s, 0.3)}s",
            },
        }
    )
    return settings if kafka is None else settings.model_copy(update={"kafka": kafka})


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that there is to see in the end."""

    published: dict[str, Any]  # the report of one who goes on to wait for more
    report: dict[str, Any]  # that of one who is started again, and knows that nothing comes any more
    history: Mapping[str, set[tuple[object, ...]]]  # that he leaves behind
    past: list[dict[str, Any]]  # the results that a reader makes of it

    @classmethod
    def of(cls, settings: Settings, partitions: int, published: dict[str, Any]) -> Outcome:
        """Of a store whose keeper is closed."""
        pipeline = Pipeline(settings, time.time)
        keeper, reader = app.open_store(settings, pipeline, JsonlDeadLetters(""))
        assert keeper is not None
        assert reader is not None
        keeper.take(frozenset(range(partitions)))
        pipeline.finish()
        report = readers_see(pipeline, with_history=False).report()
        keeper.close()
        past = [result.as_json() for result in reader.range(reader.series_names(), None, None).results]
        return cls(published, report, history_content(Path(settings.store.path) / "history.sqlite"), past)

    def differs(self, truth: Outcome, published: bool) -> list[str]:
        """Where it differs from another; `published`: also while both wait for more."""
        found = differences(self.report, truth.report, "report") + differences(self.past, truth.past, "past")
        found += [f"history: {name}" for name in truth.history if self.history[name] != truth.history[name]]
        return found + (differences(self.published, truth.published, "published") if published else [])


def replay(world: World, shared: bool, partitions: int, folder: Path, max_events: int = 500) -> Outcome:
    """What `app.replay` does, of a file for every partition."""
    folder.mkdir(parents=True)
    settings = configure(world, shared, folder / "store")
    pipeline = Pipeline(settings, time.time)
    keeper, _ = app.open_store(settings, pipeline, JsonlDeadLetters(""))
    assert keeper is not None
    keeper.take(frozenset(range(partitions)))
    sources = []
    for partition in range(partitions):
        path = folder / f"{partition}.jsonl"
        mine = [m.value + b"\n" for m in world.stream() if world.partition_of(m, partitions) == partition]
        path.write_bytes(b"".join(mine))
        decoder = app.make_decoder(settings, pipeline)
        sources.append(FileSource([path], decoder, settings.files, max_events, JsonlDeadLetters("")))
    while not all(source.finished for source in sources):
        for partition, source in enumerate(sources):
            for batch in source.poll(0.0):
                pipeline.take(replace(batch, partition=partition, shared=shared))
                keeper.tick()
    published = readers_see(pipeline).report()
    keeper.close()
    return Outcome.of(settings, partitions, published)


Expected = Callable[[bool, int], Outcome]


def replays(world: World, folder: Path) -> Expected:
    """`expected(shared, partitions)`: the outcome of files, one for each partition; each is computed once."""

    @cache
    def of(shared: bool, partitions: int) -> Outcome:
        return replay(world, shared, partitions, folder / f"{shared}-{partitions}")

    return of


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
    world: World,
    kafka: Kafka,
    store: Path,
    max_events: int,
    on_start: Callable[[ToTheEnd], None] = lambda source: None,
) -> Outcome:
    """What `app.run` does, until everything is read; `on_start` is given the source."""
    shared = kafka.impressions_topic == kafka.clicks_topic
    settings = configure(world, shared, store, kafka)
    pipeline = Pipeline(settings, time.time)
    sink = KafkaDeadLetters(kafka)
    keeper, _ = app.open_store(settings, pipeline, sink)
    source = ToTheEnd(kafka, app.make_decoder(settings, pipeline), sink, max_events, keeper=keeper)
    source.sent, source.at = len(world.stream()), {}
    loop = app.Loop(source, pipeline, app.new_publisher(settings), world.interval_s, sink, keeper)
    stop = threading.Event()
    alarm = threading.Timer(PATIENCE, stop.set)
    alarm.start()
    try:
        on_start(source)
        loop.run(stop)
        assert source.finished, (source.at, source.lag())
        loop.publish()
        partitions = len(source.partitions())
    finally:
        alarm.cancel()
        source.close()
        sink.close()
    return Outcome.of(settings, partitions, loop.publisher.latest().report())


def write(
    world: World, address: str, topics: tuple[str, str], partitions: int, live: Callable[[], bool] | None = None
) -> None:
    """Sends the stream to the topics of impressions and of clicks; `live`: piece by piece, once it holds."""
    writer = KafkaWriter(address)

    def send(messages: Sequence[Message]) -> None:
        for m in messages:
            writer.write(topics[m.click], [m.key], [m.value], world.partition_of(m, partitions))

    try:
        if live is None:
            send(world.stream())
            return
        deadline = time.monotonic() + PATIENCE
        while not live():
            assert time.monotonic() < deadline, "nobody reads"
            time.sleep(0.01)
        for piece, seconds in world.live(topics[0] == topics[1]):
            send(piece)
            writer.flush()
            time.sleep(seconds)
    finally:
        writer.close()

"""The composition root: the one module that sees every room. Commands in `cli.py` are thin over it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from streameval import __version__
from streameval.clock import WallClock
from streameval.compare.announce import Announcements
from streameval.config import Settings
from streameval.keeper import PartitionKeeper
from streameval.memory import give_back
from streameval.models.protocol import ModelError
from streameval.monitor import Conflicts, Listener
from streameval.pipeline import Pipeline, make_model
from streameval.predictions import PredictionsWriter
from streameval.publish import Publisher
from streameval.report import Snapshot, empty_snapshot
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.decode import Decoder
from streameval.sources.files import FileSource
from streameval.sources.protocol import DeadLetter, DeadLetterSink, Source
from streameval.sources.recent_letters import RecentLetters
from streameval.store.history_format import HistoryFormat
from streameval.store.history_reader import HistoryReader
from streameval.store.history_writer import HistoryWriter, Retention
from streameval.warmup import warm_up

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
PUBLISH_SHARE = 20  # a snapshot may take at most 1/20 of the loop's time
COMMIT_SECONDS = 1.0
GIVE_BACK_SECONDS = 30.0  # 2 to 30 ms each time


@dataclass(slots=True)
class Loop:
    """The ingest loop: polls a source, feeds the pipeline, publishes a snapshot now and then."""

    source: Source
    pipeline: Pipeline
    publisher: Publisher
    interval: float  # seconds between snapshots at the least
    keeper: PartitionKeeper | None = None
    clock: Callable[[], float] = time.time

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set or the source has ended. Raises SourceError."""
        publish_due = commit_due = give_back_due = took = 0.0
        counted: dict[tuple[str, int], int] = {}  # offsets of what went through the pipeline, not yet committed
        while not stop.is_set() and not self.source.finished:
            begin = time.perf_counter()
            batches = self.source.poll(POLL_SECONDS)
            if batches:
                self.pipeline.seconds["read"] += time.perf_counter() - begin
            for batch in batches:
                if self.keeper is None or self.keeper.holds(batch.partition):
                    # a partition that comes first, and fast, must not be taken for the whole
                    self.pipeline.hears_all = self.source.partitions() <= self.pipeline.monitors.keys()
                    self.pipeline.take(batch)
                    counted.update(batch.offsets)
            self.pipeline.tick(self.source.caught_up)
            if self.keeper is not None:
                self.keeper.tick()
            now = time.monotonic()
            if counted and now >= commit_due:
                self.source.commit(counted)
                counted = {}
                commit_due = now + COMMIT_SECONDS
            if now >= publish_due:
                self.publish()
                before, took = took, time.monotonic() - now
                publish_due = now + max(self.interval, PUBLISH_SHARE * min(before, took))  # one slow one is forgiven
            if now >= give_back_due:
                give_back()
                give_back_due = now + GIVE_BACK_SECONDS
        self.source.commit(counted)
        if self.keeper is not None:
            self.keeper.close()

    def publish(self) -> None:
        """A snapshot of now, for the readers."""
        begin = time.perf_counter()
        assigned = bool(self.source.partitions())
        lag = self.source.lag()
        ready = {
            "broker": self.source.connected(), "assigned": assigned, "caught_up": assigned and _caught_up(lag),
            "topics": not (unpaired := self.source.unpaired()),
        }  # fmt: skip
        checkpoints = None if self.keeper is None else self.keeper.state()
        history = None if self.keeper is None else self.keeper.history_state()
        at_end = self.source.caught_up()
        topic = self.pipeline.settings.kafka.impressions_topic
        complete = all(
            partition in self.pipeline.monitors or (topic, partition) in at_end
            for partition in self.source.partitions()
        )
        snapshot = self.pipeline.snapshot(
            lag, self.source.lost(), ready, checkpoints=checkpoints, history=history, complete=complete,
            recreated=self.source.recreated(), unpaired=unpaired, empty_offsets=self.source.empty(),
        )  # fmt: skip
        self.publisher.publish(snapshot)
        self.pipeline.seconds["publish"] += time.perf_counter() - begin


MAX_LAG = 100_000  # messages behind, over all partitions, up to which the monitor counts as caught up


def _caught_up(lag: object) -> bool:
    return isinstance(lag, dict) and sum(lag.values()) <= MAX_LAG


def make_decoder(settings: Settings, pipeline: Pipeline, *, names: bool = False) -> Decoder:
    """The decoder that the configured models and slices need."""
    kinds = {model.kind for model in settings.models}
    return Decoder(
        pipeline.catalog,
        clock=WallClock().ms,
        max_future=settings.join.max_future,
        hashed="ftrl" in kinds,
        dicts="river" in kinds,
        names=names,
        max_message=settings.kafka.max_message,
    )


def new_publisher(settings: Settings) -> Publisher:
    """A publisher that holds an empty snapshot: no broker has answered yet, and nothing is assigned."""
    empty = empty_snapshot(time.time(), (0.0, *settings.buckets.edges, 1.0))
    return Publisher(replace(empty, ready={"broker": False, "assigned": False, "first_snapshot": False}))


def replay(
    settings: Settings,
    paths: list[Path],
    predictions: Path | None = None,
    on_progress: Callable[[tuple[int, int] | None, int], None] | None = None,
    stop: threading.Event | None = None,
) -> Snapshot:
    """Runs files through the pipeline as fast as it goes; the snapshot after their end.

    Files stand for the topics of `settings`: with two, impressions and clicks are two logs, whatever file they are in, and
    are counted as `run` counts them.
    `on_progress` is told (bytes done, bytes in all) and the events so far. Raises SourceError, ModelError.
    """
    writer: PredictionsWriter | None = None

    pipeline = Pipeline(settings, time.time)
    pipeline.topic = "files"
    if predictions is not None:
        writer = PredictionsWriter(predictions, pipeline.catalog)
        pipeline.listener = Listener(writer.settled, writer.corrected)
    sink = JsonlDeadLetters(settings.files.dead_letters)
    pipeline.on_conflicts = partial(write_conflicts, sink)
    decoder = make_decoder(settings, pipeline, names=predictions is not None)
    source = FileSource(paths, decoder, settings.files, settings.batch.max_events, sink)
    shared = settings.kafka.impressions_topic == settings.kafka.clicks_topic
    events = 0
    try:
        while not source.finished and not (stop and stop.is_set()):
            for batch in source.poll(POLL_SECONDS):
                pipeline.take(replace(batch, shared=shared))
                events += len(batch)
            if on_progress:
                on_progress(source.progress(), events)
        pipeline.finish()
        snapshot = pipeline.snapshot(with_history=False)
        if writer is not None:
            writer.close()
        return snapshot
    except BaseException:
        if writer is not None:
            writer.abort()
        raise
    finally:
        source.close()
        sink.close()


def run(settings: Settings, stop: threading.Event, on_ready: Callable[[str], None]) -> Snapshot:
    """Reads Kafka until `stop` is set, serving the HTTP side; returns the last snapshot.

    `on_ready` is told the page's address. Raises SourceError, ServeError, ModelError, StoreError, ConfigError.
    """
    from streameval.server.app import create_app
    from streameval.server.serve import serve
    from streameval.sources.kafka.source import KafkaSource

    announcements = Announcements()
    pipeline = Pipeline(settings, time.time, announcements)
    publisher = new_publisher(settings)
    sink = RecentLetters(kafka_dead_letters(settings), time.time)
    pipeline.on_conflicts = partial(write_conflicts, sink)
    keeper, history = open_store(settings, pipeline)
    source = KafkaSource(
        settings.kafka, make_decoder(settings, pipeline), sink, settings.batch.max_events, keeper=keeper
    )
    try:
        server = serve(
            create_app(
                publisher,
                settings.server,
                version=__version__,
                history=history,
                announcements=announcements,
                letters=sink,
                paced=True,
            ),
            settings.server.host,
            settings.server.port,
        )
        try:
            on_ready(server.url)
            if keeper is None:
                log.info("store.path is not set: no checkpoints and no history, a restart forgets everything")
            source.connect(stop)
            _warm_up(settings)
            loop = Loop(source, pipeline, publisher, settings.server.snapshot_interval / 1000, keeper)
            loop.run(stop)
            loop.publish()
            return publisher.latest()
        finally:
            server.stop()
    finally:
        source.close()
        sink.close()


def open_store(settings: Settings, pipeline: Pipeline) -> tuple[PartitionKeeper | None, HistoryReader | None]:
    """Who keeps the partitions, and who answers for past ranges; neither without `store.path`.

    Raises StoreError, and ModelError when a model cannot be kept.
    """
    if not settings.store.path:
        return None, None
    for model in settings.models:
        if model.kind == "river":  # fail at the start, not at the first checkpoint
            try:
                make_model(model).state()
            except ModelError as error:
                raise ModelError(f'models "{model.name}": {error}') from error
    store = settings.store
    path = Path(store.path) / "history.sqlite"
    form = HistoryFormat(settings.windows.pane, settings.buckets.edges, settings.users.weighting)
    writer = HistoryWriter(path, form, Retention(store.minutes, store.hours, store.days, store.max_size))
    keeper = PartitionKeeper(settings, pipeline, time.time, writer)
    return keeper, HistoryReader(path, form, settings.buckets.quantiles)


def write_conflicts(sink: DeadLetterSink, conflicts: Conflicts) -> None:
    """Impressions that have another's id, whole to the dead letters, if their bytes are at hand."""
    batch = conflicts.batch
    if batch.whole is None:
        return
    said = "impression_id: another model's or version's impression has it; every impression needs an id of its own"
    letters = []
    for place in conflicts.places.tolist():
        value, topic, offset = batch.whole(place)
        letters.append(DeadLetter(value, "conflicting_id", "impression_id", said, topic, batch.partition, offset))
    sink.write(letters)


def _warm_up(settings: Settings) -> None:
    """The kernels that these settings need; River's models have none."""
    ours = tuple(model for model in settings.models if model.kind == "ftrl")
    pipeline = Pipeline(settings.model_copy(update={"models": ours}), time.time)
    begin = time.monotonic()
    warm_up(pipeline, make_decoder(settings, pipeline))
    log.info("kernels ready after %.1f s (compiled on the first start, then cached)", time.monotonic() - begin)


def kafka_dead_letters(settings: Settings) -> DeadLetterSink:
    """The dead-letter topic, or nothing when it is switched off."""
    from streameval.sources.kafka.dead_letters import KafkaDeadLetters

    if not settings.kafka.dead_letter_topic:
        return JsonlDeadLetters("")
    return KafkaDeadLetters(settings.kafka)

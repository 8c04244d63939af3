"""The composition root: the one module that sees every room. Commands in `commands/cli.py` are thin over it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from streameval import __version__
from streameval.auction.gather import AuctionLog
from streameval.auction.offline import Replayed, counted, replayed
from streameval.compare.announce import Announcements
from streameval.events.batch import Batch
from streameval.loop.around import Around
from streameval.loop.commits import Commits
from streameval.loop.keeper import PartitionKeeper
from streameval.loop.last_known import LastKnown
from streameval.loop.options import options_of
from streameval.loop.pace import Pace
from streameval.loop.pipeline import Pipeline
from streameval.loop.preparing import helped, ready_to_read
from streameval.loop.reading import Conflicts
from streameval.loop.row_counts import LabelListener
from streameval.loop.warmup import first_batch, warm_up
from streameval.models.protocol import ModelError
from streameval.models.registry import check_features, kind_of_model, make_model, needs_of
from streameval.outlets.outlets import Outlets
from streameval.process.clock import WallClock
from streameval.process.compiling import Interrupted
from streameval.process.memory import give_back
from streameval.process.opening import Opening
from streameval.process.progress import shown
from streameval.results.certificate import CertificateState
from streameval.results.predictions import PredictionsWriter
from streameval.results.publish import Publisher
from streameval.results.snapshot import BEFORE_FIRST, Snapshot, empty_snapshot
from streameval.settings.tree import ConfigError, Settings
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.files import FileSource
from streameval.sources.formats.decode import Decoder
from streameval.sources.formats.raw import EARLIEST
from streameval.sources.protocol import DeadLetter, DeadLetterSink, Source, SourceError, Stopped
from streameval.sources.recent_letters import RecentLetters
from streameval.sources.registry import Wiring, kind_of_source
from streameval.store.history.format import HistoryFormat
from streameval.store.history.reader import HistoryReader
from streameval.store.history.writer import HistoryWriter, Retention

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
GIVE_BACK_SECONDS = 30.0  # 2 to 30 ms each time


@dataclass(slots=True)
class Loop:
    """The ingest loop: polls a source, feeds the pipeline, and publishes snapshots."""

    source: Source
    pipeline: Pipeline
    publisher: Publisher
    interval: float  # seconds between snapshots at least
    letters: DeadLetterSink  # of the source
    keeper: PartitionKeeper | None = None
    outlets: Outlets | None = None
    certificate: Callable[[], CertificateState | None] = lambda: None  # that the server shows
    _pace: Pace = field(init=False)
    _commits: Commits = field(init=False)
    _around: Around = field(init=False)
    _last_known: LastKnown = field(default_factory=LastKnown, init=False)
    _read_since: float = 0.0  # s
    _letters_wait: str = ""  # why, until somebody acts

    def __post_init__(self) -> None:
        self._around = Around(self.source, self.keeper)

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set or the source has ended. Raises SourceError."""
        self.pipeline.inputs = self.source.inputs
        if self.keeper is not None:
            self.keeper.stopping = stop.is_set
        with suppress(Stopped):
            self.source.begin(self.keeper)
        self._commits = Commits(self.source, self.letters)
        give_back_due = 0.0
        pace = self._pace = Pace(self.interval, self.source.lag)
        while not stop.is_set() and not self.source.finished:
            self._read_since = time.perf_counter()
            deliver = self.source.rest if self.keeper is not None and self.keeper.is_behind else self.source.deliver
            with suppress(Stopped):
                deliver(POLL_SECONDS, self._take)
            self.pipeline.tick(self.source.caught_up)
            if self.keeper is not None:
                self.keeper.tick(self.source.partition_count())
            now = time.monotonic()
            self._commits.tick(now)
            self._letters_wait = self._commits.trouble
            if pace.is_due(now):
                self.publish()
                pace.published(now, time.monotonic())
            if now >= give_back_due:
                give_back()
                give_back_due = now + GIVE_BACK_SECONDS
        self._commits.close()
        if self.keeper is not None:
            self.keeper.close()

    def _take(self, batch: Batch) -> None:
        """A batch through the pipeline."""
        self.pipeline.seconds["read"] += time.perf_counter() - self._read_since
        if self.keeper is None or self.keeper.holds(batch.partition):
            # one fast partition that comes first must not be mistaken for all of them
            self.pipeline.all_heard_from = self.source.partitions() <= self.pipeline.partitions.keys()
            self.pipeline.take(batch)
            self._commits.counted(batch.offsets)
            self._around.heard(batch.offsets)
            self._pace.count(len(batch))
        self._read_since = time.perf_counter()

    def publish(self) -> None:
        """A snapshot of now, for the readers."""
        begin = time.perf_counter()
        around = replace(
            self._around.look(self.pipeline.partitions.keys()),
            letters=self._letters_wait,
            certificate=self.certificate(),
        )
        self.pipeline.advance(self._around.complete and not self.pipeline.resumes(self._around.at_end))
        if self.outlets is not None:
            out = self.outlets
            around = replace(around, receivers=out.receivers(), sinks=out.sinks(), external_url=out.external_url)
        snapshot = self.pipeline.snapshot(around)
        if self.outlets is not None:
            snapshot = replace(snapshot, comparisons=self.outlets.annotated(snapshot.comparisons))
        snapshot = self._last_known.shown(self.publisher.latest(), snapshot, is_out=self.source.is_out())
        self.publisher.publish(snapshot)
        self.pipeline.seconds["publish"] += time.perf_counter() - begin


def make_decoder(settings: Settings, pipeline: Pipeline, *, names: bool = False) -> Decoder:
    """The decoder that the configured models and slices need. Raises SourceError."""
    needs, clock = needs_of(settings.models), WallClock()
    if clock.ms() < EARLIEST:
        raise SourceError(
            f"the system's clock says {datetime.fromtimestamp(clock(), UTC):%Y-%m-%d %H:%M} UTC: every event would be rejected "
            "as from the future; set the clock, and start again"
        )
    return Decoder(
        pipeline.catalog,
        clock=clock.ms,
        max_future=settings.join.max_future,
        hashed="hashed" in needs,
        dicts="dicts" in needs,
        names=names,
        max_message=settings.max_message,
        json_kernel=settings.batch.json_kernel,
    )


def new_publisher(settings: Settings) -> Publisher:
    """A publisher with an empty snapshot: no broker has responded yet, and nothing is assigned."""
    empty = empty_snapshot(time.time(), options_of(settings))
    nothing = {"broker": False, "assigned": False, "first_snapshot": False}
    return Publisher(replace(empty, number=BEFORE_FIRST, ready=nothing))


def replay(
    settings: Settings,
    paths: list[Path],
    predictions: Path | None = None,
    on_progress: Callable[[tuple[int, int] | None, int], None] | None = None,
    stop: threading.Event | None = None,
    users: bool = False,
    hear: Callable[[Pipeline], Callable[[Batch], None]] | None = None,
) -> Snapshot:
    """Runs files through the pipeline as fast as possible; returns the snapshot at their end.

    Files stand for the topics of `settings`: with two, impressions and clicks are two logs, whatever file they are in,
    and are counted as `run` counts them. `on_progress` is called with (bytes done, bytes in total) and the events so
    far; `users`: whether the snapshot has them; `hear` gets the pipeline before the first batch, and returns a function
    that is called with every batch. Once `stop` is set, nothing more is read or compiled, and the snapshot is
    meaningless. Raises SourceError, ModelError.
    """
    writer: PredictionsWriter | None = None
    pipeline = Pipeline(settings, time.time)
    decoder = make_decoder(settings, pipeline, names=predictions is not None)
    if predictions is not None:
        writer = PredictionsWriter(predictions, pipeline.catalog)
        pipeline.listener = LabelListener(writer.settled, writer.corrected)
    sink = JsonlDeadLetters(settings.files.dead_letters)
    pipeline.on_conflicts = partial(write_conflicts, sink)
    source = FileSource(paths, decoder, settings.files, settings.batch.max_events, sink, shared=settings.one_log)
    pipeline.inputs = source.inputs
    check_features(settings.models, source.lacks_features())
    heard = hear(pipeline) if hear is not None else None
    events = 0

    def take(batch: Batch) -> None:
        nonlocal events
        if heard is not None:
            heard(batch)
        pipeline.take(batch)
        events += len(batch)

    try:
        with suppress(Interrupted), helped(stop, source.reads_json, source.reads_rows):
            while not source.finished and not (stop and stop.is_set()):
                source.deliver(POLL_SECONDS, take)
                if on_progress:
                    on_progress(source.progress(), events)
            pipeline.finish()
            pipeline.advance(with_history=False)
        snapshot = pipeline.snapshot()
        if users:
            snapshot = replace(snapshot, users=pipeline.users())
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


def auction(
    settings: Settings,
    paths: list[Path],
    on_progress: Callable[[tuple[int, int] | None, int], None] | None = None,
    stop: threading.Event | None = None,
) -> Replayed:
    """Runs the auctions of a log again, with the log as a whole for their history. Raises ConfigError, SourceError, the latter also once `stop` is set."""
    if not settings.auction.points:
        raise ConfigError("auction.points: there are none; add at least one operating point as [[auction.points]]")
    gathered, catalogs = AuctionLog(), []

    def hear(pipeline: Pipeline) -> Callable[[Batch], None]:
        catalogs.append(pipeline.catalog)
        pipeline.listener = LabelListener(lambda some: gathered.label(some.id, some.label), gathered.label)
        return gathered.take

    snapshot = replay(settings, paths, None, on_progress, stop, hear=hear)
    if stop is not None and stop.is_set():
        raise SourceError("stopped early; nothing was written")
    invalid = snapshot.events["invalid"]
    book = gathered.book(settings.auction.slots)
    if not book.auctions.block.size:
        letters = f"dead letters: {counted(invalid)}" if invalid else ""
        why = "; ".join(filter(None, (counted(book.skipped), letters))) or "there are none"
        raise SourceError(f"no request can be replayed ({why}); every candidate needs request_id, item_id and bid")
    return replayed(book, settings.auction, catalogs[0].series, invalid)


def run(
    settings: Settings,
    stop: threading.Event,
    on_ready: Callable[[str], None],
    on_reading: Callable[[], None] | None = None,
    opening: Opening | None = None,
) -> Snapshot:
    """Reads the configured source until `stop` is set or it has ended, serving the HTTP side; returns the last snapshot.

    `opening`: of the server's address, if it is open already. `on_ready` is called with the page's address, `on_reading` when all is ready for the first event. Raises SourceError, ServeError, ModelError, StoreError, ConfigError.
    """
    from streameval.server.http.app import create_app
    from streameval.server.http.serve import serve

    announcements = Announcements()
    pipeline = Pipeline(settings, time.time, announcements)
    publisher = new_publisher(settings)
    kind = kind_of_source(settings)
    sink = RecentLetters(kind.dead_letters(settings), time.time)
    pipeline.on_conflicts = partial(write_conflicts, sink)
    keeper, history = open_store(settings, pipeline, sink)
    outlets = Outlets(settings, publisher)
    pipeline.panes.lacking = outlets.lacking
    decoder = make_decoder(settings, pipeline)
    source = kind.open(Wiring(settings, decoder, sink, keeper))
    try:
        check_features(settings.models, source.lacks_features())
        web = create_app(
            publisher,
            settings.server,
            version=__version__,
            history=history,
            announcements=announcements,
            handlings=outlets,
            letters=sink,
            paced=True,
        )
        server = serve(web, settings.server.host, settings.server.port, opening=opening)
        try:
            on_ready(server.url)
            if keeper is None:
                log.info("store.path is not set: no checkpoints and no history, a restart forgets everything")
            with shown("waiting for a broker", ""):
                source.connect(stop)
            with suppress(Interrupted), ready_to_read(partial(_warm_up, settings), decoder, publisher, stop):
                if on_reading is not None:
                    on_reading()
                interval = settings.server.snapshot_interval / 1000
                loop = Loop(source, pipeline, publisher, interval, sink, keeper, outlets=outlets)
                loop.certificate = web.state.certificate
                outlets.start()
                loop.run(stop)
                loop.publish()
            return publisher.latest()
        finally:
            server.stop()
    finally:
        outlets.close()
        source.close()
        sink.close()


def open_store(
    settings: Settings, pipeline: Pipeline, letters: DeadLetterSink
) -> tuple[PartitionKeeper | None, HistoryReader | None]:
    """The keeper of the partitions, and the reader of the history; neither without `store.path`.

    Raises StoreError, and ModelError when a model cannot be kept.
    """
    if not settings.store.path:
        return None, None
    for model in settings.models:
        try:  # fail at the start, not at the first checkpoint
            make_model(model).state()
        except ModelError as error:
            raise ModelError(f'models "{model.name}": {error}') from error
    store = settings.store
    path = Path(store.path) / "history.sqlite"
    form = HistoryFormat(settings.windows.pane, options_of(settings), settings.users.weighting)
    writer = HistoryWriter(path, form, Retention(store.minutes, store.hours, store.days, store.max_size))
    keeper = PartitionKeeper(settings, pipeline, time.time, writer, letters)
    return keeper, HistoryReader(path, form, settings.buckets.quantiles)


def write_conflicts(sink: DeadLetterSink, conflicts: Conflicts) -> None:
    """Sends impressions with an id that is already taken to the dead letters, unchanged, if their bytes are available."""
    batch = conflicts.batch
    if batch.whole is None:
        return
    said = "impression_id: another model or version has used it; every impression needs a unique id"
    letters = []
    for place in conflicts.places.tolist():
        value, topic, offset = batch.whole(place)
        letters.append(DeadLetter(value, "conflicting_id", "impression_id", said, topic, batch.partition, offset))
    sink.write(letters)


def _warm_up(settings: Settings, first: bool = False) -> None:
    """The kernels that these settings need, or those for the `first` batch; a model that reads dicts has none."""
    ours = tuple(model for model in settings.models if kind_of_model(model).needs != "dicts")
    pipeline = Pipeline(settings.model_copy(update={"models": ours}), time.time)
    begin, decoder = time.monotonic(), make_decoder(settings, pipeline)
    if first:
        decoder.json_kernel = False
        first_batch(pipeline, decoder)
        log.info("kernels for the first batch are ready after %.1f s", time.monotonic() - begin)
    else:
        warm_up(pipeline, decoder)
        log.info("kernels ready after %.1f s (compiled on the first start, then cached)", time.monotonic() - begin)

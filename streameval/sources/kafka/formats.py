"""How messages of `kafka.format` are read, and how to wait for a schema registry that does not answer."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from streameval.settings.tree import Kafka
from streameval.sources.formats import avro, framed, protobuf
from streameval.sources.formats.decode import Decoder
from streameval.sources.formats.live_columns import LiveColumns, MappedJson
from streameval.sources.kafka.reader import MessageRun
from streameval.sources.protocol import SourceError
from streameval.sources.schema_registry import RegistryDownError, SchemaRegistry

log = logging.getLogger(__name__)

RETRY = (0.5, 10.0)  # seconds between two requests to a registry that does not answer: the first pause, and the longest
_SAY = 30.0  # seconds between two log lines about it
# Seconds after which a request would have been repeated if any message still waited: its partition may have been taken away
_STILL = RETRY[1]
_MOST_WORDS = 300  # characters of what went wrong


def open_format(settings: Kafka, decoder: Decoder) -> SchemaGate | None:
    """Configures the decoder by `kafka.format` and `kafka.columns`; returns the gate that fetches schemas, if any are
    needed.

    Raises SourceError, ConfigError.
    """
    decoder.own = None
    maps = _maps_of(settings)
    if settings.format in ("avro", "protobuf"):
        reader = avro.reader if settings.format == "avro" else protobuf.reader
        registry = SchemaRegistry(settings.schema_registry)
        decoder.own = framed.Framed(registry, reader, maps).to_raw
        return SchemaGate(registry)
    if maps:
        for kind in (0, 1, 2):
            maps.setdefault(kind, LiveColumns({}, "kafka.columns"))
        decoder.own = MappedJson(maps, lambda: decoder.reads_cells).to_raw
    return None


def check_format(settings: Kafka) -> None:
    """Raises what `open_format` would raise, without a decoder and without any requests."""
    _maps_of(settings)
    if settings.format in ("avro", "protobuf"):
        SchemaRegistry(settings.schema_registry)


def _maps_of(settings: Kafka) -> dict[int, LiveColumns]:
    """Returns the mappings by the kind of a topic (0: both kinds of events, 1: impressions, 2: clicks). Raises
    ConfigError.
    """
    of_impressions = LiveColumns(settings.columns, "kafka.columns") if settings.columns else None
    of_clicks = LiveColumns(settings.click_columns, "kafka.click_columns") if settings.click_columns else None
    by_kind = {0: of_impressions, 1: of_impressions, 2: of_clicks or of_impressions}
    return {kind: mapped for kind, mapped in by_kind.items() if mapped is not None}


class SchemaGate:
    """Lets messages pass once the registry has returned their schemas."""

    def __init__(self, registry: SchemaRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._clock = clock
        self._pause = 0.0  # before the next request; 0: the last one was answered
        self._next = 0.0
        self._say_at = 0.0
        self._why = ""

    def ready(self, runs: Iterable[MessageRun]) -> bool:
        """Whether these messages can be decoded now. Requests unknown schemas from the registry."""
        wanted = {id for run in runs for id in framed.ids(run.values)}
        try:
            answered = self._registry.resolve(wanted)
        except RegistryDownError as error:
            self._pause = min(max(RETRY[0], 2 * self._pause), RETRY[1])
            now = self._clock()
            self._next = now + self._pause
            self._why = " ".join(str(error).split())[:_MOST_WORDS]
            if now >= self._say_at:
                self._say_at = now + _SAY
                log.warning("schema registry: %s; messages wait until it responds", error)
            return False
        if self._pause:
            log.info("schema registry: responding again")
        self._pause = self._say_at = 0.0
        return answered

    def trouble(self) -> str:
        """Returns why messages wait, in a sentence; "": none does, as far as is known."""
        if not self._pause or self._clock() > self._next + _STILL:
            return ""
        return f"schema registry: {self._why}; messages with schemas not seen before wait until it responds, and all after them"

    def waiting(self) -> float:
        """Seconds until the next request to the registry is allowed; 0: now."""
        return max(0.0, self._next - self._clock()) if self._pause else 0.0

    def connect(self, stop: threading.Event, timeout: float) -> None:
        """Waits until the registry answers. Raises SourceError if it does not within `timeout` s."""
        deadline = self._clock() + timeout
        while not stop.is_set():
            try:
                self._registry.connect()
                return
            except RegistryDownError as error:
                if self._clock() >= deadline:
                    raise SourceError(
                        f"kafka.schema_registry: no answer within {timeout:.0f} s ({error}); check url, and that the "
                        "registry runs there"
                    ) from None
            stop.wait(0.5)

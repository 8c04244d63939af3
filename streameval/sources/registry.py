"""The kinds of sources that `run` can read, one row each, used by settings, process and checkpoints.

Add your own kind with `register(SourceKind(...))`, before the settings are read; see docs/design.md, "Adding a ...".
(`replay` reads files, which are named on its command line.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streameval.settings.section import kind_of
from streameval.settings.sources import SOURCES, KafkaSourceSettings, SourceSettings
from streameval.settings.tree import ConfigError, Settings, renew
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.formats.decode import Decoder
from streameval.sources.protocol import DeadLetterSink, Keeper, Source


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a source is created from. The sink stays open when the source is closed."""

    settings: Settings
    decoder: Decoder
    sink: DeadLetterSink
    keeper: Keeper | None = None  # for a source that overrides `Source.begin`


def _letters_to_file(settings: Settings) -> DeadLetterSink:
    return JsonlDeadLetters(settings.files.dead_letters)


def _nothing(settings: Settings) -> None:
    """For settings that need no checks beyond their types."""


@dataclass(frozen=True, slots=True)
class SourceKind:
    """A kind of source."""

    settings: type[SourceSettings]  # its `[source]` table; the default of `kind` there is its name
    open: Callable[[Wiring], Source]  # raises SourceError, ConfigError
    dead_letters: Callable[[Settings], DeadLetterSink] = _letters_to_file
    # keys of the settings (or entire sections): if their values differ, a checkpoint is for other events
    binding: tuple[str, ...] = ("source",)
    check: Callable[[Settings], None] = _nothing  # raises what `open` would for the settings; no connections

    @property
    def name(self) -> str:
        """The value of `kind` in the settings."""
        return kind_of(self.settings)


def _kafka(w: Wiring) -> Source:
    from streameval.sources.kafka.source import KafkaSource

    return KafkaSource(w.settings.kafka, w.decoder, w.sink, w.settings.batch.max_events, keeper=w.keeper)


def _kafka_dead_letters(settings: Settings) -> DeadLetterSink:
    from streameval.sources.kafka.dead_letters import KafkaDeadLetters

    return KafkaDeadLetters(settings.kafka)


def _check_kafka(settings: Settings) -> None:
    from streameval.sources.kafka.formats import check_format
    from streameval.sources.kafka.oauth import token_source

    check_format(settings.kafka)
    if settings.kafka.oauth:
        token_source(settings.kafka.oauth)


_KAFKA = SourceKind(
    KafkaSourceSettings,
    _kafka,
    _kafka_dead_letters,
    binding=("kafka.impressions_topic", "kafka.clicks_topic"),
    check=_check_kafka,
)
KINDS = {_KAFKA.name: _KAFKA}


def register(kind: SourceKind) -> None:
    """Makes a kind available in `[source]`. Raises ConfigError if its name is taken."""
    if kind.name in KINDS:
        raise ConfigError(f'source: the kind "{kind.name}" exists already; choose another name')
    KINDS[kind.name] = kind
    SOURCES.sections[kind.name] = kind.settings
    renew()


def unregister(name: str) -> None:
    """Undoes `register`, for tests."""
    del KINDS[name], SOURCES.sections[name]
    renew()


def kind_of_source(settings: Settings) -> SourceKind:
    """Returns the row of the configured source."""
    return KINDS[kind_of(type(settings.source))]

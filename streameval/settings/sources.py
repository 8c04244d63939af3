"""The sections of `[source]`, one class a kind."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from streameval.settings.section import Kinds, Section


class SourceSettings(Section):
    """What `run` reads; a kind's class adds its `kind` and its parameters."""


class KafkaSourceSettings(SourceSettings):
    """Kafka: `[kafka]` says which brokers and topics."""

    kind: Literal["kafka"] = Field("kafka", description="kind of source; required")


SOURCES = Kinds(KafkaSourceSettings)
AnySource = Annotated[SourceSettings, SOURCES]

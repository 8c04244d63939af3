"""Which sink a `[[sinks]]` table is."""

from __future__ import annotations

from streameval.outlets.sinks.protocol import Sink
from streameval.settings.outlets import KafkaSink, ParquetSink, SinkSettings, SqlSink
from streameval.settings.tree import ConfigError, Kafka


def make_sink(settings: SinkSettings, kafka: Kafka) -> Sink:
    """The sink of a table; `kafka`: the brokers. Raises ConfigError."""
    if isinstance(settings, ParquetSink):
        from streameval.outlets.sinks.parquet import ParquetFiles

        return ParquetFiles(settings)
    if isinstance(settings, KafkaSink):
        from streameval.outlets.sinks.kafka import KafkaMessages

        return KafkaMessages(settings, kafka)
    if isinstance(settings, SqlSink):
        from streameval.outlets.sinks.sql import SqlTables

        return SqlTables(settings)
    raise ConfigError(f'sinks: "{settings.called}": unknown kind of sink')

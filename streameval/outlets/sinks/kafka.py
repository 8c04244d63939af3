"""Messages on a topic: JSON, keyed by what each is about; schema: docs/reference/sink-messages.schema.json.

At least once: a message is repeated, with the same key and value, when the process is killed between the brokers' answer and
its note of it. The producer is idempotent, so nothing else repeats or reorders it. A compacted topic keeps each once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from streameval.outlets.sinks.protocol import Sink, SinkError, text_of
from streameval.outlets.sinks.rows import RESULT_TIMES, VERDICT_TIMES, SinkPane, SinkVerdict, row_key
from streameval.settings.outlets import KafkaSink
from streameval.settings.tree import Kafka
from streameval.sources.kafka.sender import Sender
from streameval.sources.kafka.writer import open_sender
from streameval.sources.protocol import SourceError

_FLUSH_SECONDS = 30.0


class KafkaMessages(Sink):
    """See the module."""

    def __init__(self, settings: KafkaSink, kafka: Kafka) -> None:
        self._topic, self._kafka = settings.to, kafka
        self._sender: Sender | None = None  # a new one after a failure: what the old one held may be lost

    def write(self, panes: Sequence[SinkPane], verdicts: Sequence[SinkVerdict]) -> None:
        """One message per row, stored by the brokers when it returns."""
        try:
            if self._sender is None:
                k = self._kafka
                self._sender = open_sender(k.client, k.bootstrap_servers, k.client_options, k.oauth)
            for pane in panes:
                for row in pane.rows:
                    self._sender.send(self._topic, encoded_row("result", row, RESULT_TIMES), result_key(row).encode())
            for one in verdicts:
                self._sender.send(self._topic, encoded_row("verdict", one.row, VERDICT_TIMES), one.key.encode())
            self._sender.flush(_FLUSH_SECONDS)
        except SourceError as error:
            self.close()
            raise SinkError(str(error)) from error

    def close(self) -> None:
        """Messages that are not stored are dropped, and written again."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()


def result_key(row: Mapping[str, Any]) -> str:
    """Of a pane's row."""
    return row_key(*(row[name] for name in ("pane_start", "model", "version", "source", "objective")))


def encoded_row(about: str, row: Mapping[str, Any], times: tuple[str, ...]) -> bytes:
    """A message's value."""
    shown = {name: text_of(value) if name in times else value for name, value in row.items()}
    return json.dumps({"schema": 1, "about": about, **shown}, allow_nan=False).encode()

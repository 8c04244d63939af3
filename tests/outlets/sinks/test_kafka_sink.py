"""The Kafka sink's connection."""

from __future__ import annotations

import pytest

from streameval.outlets.sinks.kafka import KafkaMessages
from streameval.outlets.sinks.protocol import SinkError
from streameval.settings.outlets import KafkaSink
from streameval.settings.tree import Kafka


def test_it_asks_the_same_callable_for_tokens_as_the_reader():
    sink = KafkaMessages(KafkaSink(kind="kafka", to="results"), Kafka(oauth="no_such_module:token"))
    with pytest.raises(SinkError, match="no_such_module"):
        sink.write([], [])

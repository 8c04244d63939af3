"""The two client libraries: `kafka.client` names the one that is used, and the other one is not imported."""

from __future__ import annotations

from streameval.settings.tree import Kafka
from streameval.sources.kafka.reader import KafkaReader
from streameval.sources.kafka.topics import Describer


def open_reader(settings: Kafka) -> KafkaReader:
    """Returns the reader that `kafka.client` names. Raises SourceError for options that cannot be used."""
    if settings.client == "confluent":
        from streameval.sources.kafka.confluent_reader import ConfluentReader

        return ConfluentReader(settings)
    from streameval.sources.kafka.python_reader import KafkaPythonReader

    return KafkaPythonReader(settings)


def open_describer(settings: Kafka) -> Describer:
    """Returns a describer of topics, for the client that `kafka.client` names."""
    if settings.client == "confluent":
        from streameval.sources.kafka.confluent_topics import ConfluentDescriber

        return ConfluentDescriber(settings.bootstrap_servers, settings.client_options, settings.oauth)
    from streameval.sources.kafka.python_topics import KafkaPythonDescriber

    return KafkaPythonDescriber(settings.bootstrap_servers, settings.client_options, settings.oauth)

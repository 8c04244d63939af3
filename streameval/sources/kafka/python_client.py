"""Creates kafka-python clients: the options that we set, those that users must not set, and the known names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafka import errors as kafka_errors

from streameval.sources.kafka.oauth import token_source
from streameval.sources.kafka.options import redacted
from streameval.sources.protocol import SourceError

TUNING: dict[str, Any] = {
    "client_id": "streameval",
    "isolation_level": "read_committed",
    "fetch_max_wait_ms": 100,
    # The limit on messages in memory: one response of each broker, unpacked, and the next one. A partition may fill it: where
    # it brings less than the loop takes at a time, each batch waits for a request.
    "fetch_max_bytes": 4_194_304,
    "max_partition_fetch_bytes": 4_194_304,
    "allow_auto_create_topics": False,  # a reader that creates topics would give them the wrong partition count
    "metadata_max_age_ms": 30_000,
    "reconnect_backoff_max_ms": 2_000,
}
_LOOK_AGAIN_MS = 100.0
# of options, by the type of their defaults; those without one are passed on as they are
_TYPES: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int, float), "a number"),
    float: ((int, float), "a number"),
    str: ((str,), "a text"),
}
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
RESERVED = {
    "bootstrap_servers": "set kafka.bootstrap_servers instead",
    "group_id": "set kafka.group_id instead",
    "auto_offset_reset": "set kafka.start instead",
    "enable_auto_commit": "streameval needs false here; remove it",
    "partition_assignment_strategy": "streameval needs the range assignor here; remove it",
    "key_deserializer": "streameval decodes messages itself; remove it",
    "value_deserializer": "streameval decodes messages itself; remove it",
}


def never_create(consumer: Any) -> None:
    """Keeps the client from creating topics: 3.0.12 does not pass `allow_auto_create_topics` to its metadata requests,
    so a reader would recreate a deleted topic, with the brokers' default number of partitions. Private names are used
    only here, in the three functions below, and in `python_batches`.
    """
    config = getattr(getattr(consumer, "_cluster", None), "config", None)
    if isinstance(config, dict):
        config["allow_auto_create_topics"] = False


def find_again(client: Any) -> None:
    """Has a consumer, a producer or an admin client ask the bootstrap servers while it cannot connect to any broker: 3.0.12
    knows only the addresses of the last answer, and looks for a cluster that has moved forever.
    """
    net = getattr(client, "_client", None) or getattr(getattr(client, "_sender", None), "_client", None)
    manager = getattr(net, "_manager", None)
    failing = getattr(manager, "_backoff", None)
    if manager is None or failing is None:
        return
    of_brokers = manager.least_loaded_node

    def node() -> Any:
        known = of_brokers()
        if any(broker.node_id not in failing for broker in manager.cluster.brokers()):
            return known
        bootstrap = (one.node_id for one in manager.cluster.bootstrap_brokers())
        return next((one for one in bootstrap if manager.connection_delay(one) == 0), known)

    manager.least_loaded_node = node


def unhurried(producer: Any) -> None:
    """Keeps a producer's thread from spinning while a message waits for a broker: 3.0.12 takes the seconds until the next
    attempt to connect for milliseconds, and an answer that is awaited for 0.
    """
    client = getattr(getattr(producer, "_sender", None), "_client", None)
    delay = getattr(client, "connection_delay", None)
    if client is not None and delay is not None:
        client.connection_delay = lambda node: max(_LOOK_AGAIN_MS, 1_000 * delay(node))


def drop(producer: Any) -> None:
    """Closes a producer without waiting for what is not delivered: while there is any, its own `close` fails, and leaves its
    thread, its connections and the messages behind.
    """
    sender = getattr(producer, "_sender", None)
    if sender is not None:
        sender.force_close()
    producer.close(timeout=1.0)


def make_client(make: Callable[..., Any], options: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """Returns a client, or raises a SourceError that says what it rejects; connection errors are passed on."""
    try:
        return make(**options)
    except kafka_errors.KafkaTimeoutError:
        raise
    except (kafka_errors.KafkaConfigurationError, ValueError, TypeError, AssertionError, OSError) as error:
        raise SourceError(f"kafka.client_options: {redacted(error, given)}; see kafka-python's KafkaConsumer") from None


def known_options(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options as the client takes them; raises SourceError for one that it does not know, or of another type."""
    for name in options:
        if name not in defaults:
            raise SourceError(
                f"kafka.client_options.{name}: kafka-python has no such option; see its KafkaConsumer for those it has"
            )
    protocol = options.get("security_protocol", _PROTOCOLS[0])
    if protocol not in _PROTOCOLS:  # the client takes what it does not know for PLAINTEXT
        raise SourceError(f"kafka.client_options.security_protocol: {protocol!r} is none of {', '.join(_PROTOCOLS)}")
    for name, value in options.items():
        kinds, words = _TYPES.get(type(defaults[name]), ((type(value),), ""))
        if type(value) not in kinds:  # a boolean is no number
            raise SourceError(f"kafka.client_options.{name} = {value!r}: must be {words}")
    return shared_options(options, defaults)


def shared_options(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that another kind of client takes too; TOML has no tuples, so a version is written [2, 3]."""
    taken = {name: value for name, value in options.items() if name in defaults}
    if isinstance(taken.get("api_version"), list):
        taken["api_version"] = tuple(taken["api_version"])
    return taken


def oauth_options(oauth: str) -> dict[str, Any]:
    """Returns the options of a client that asks `kafka.oauth` for its tokens; empty if there is none. Raises
    SourceError.
    """
    if not oauth:
        return {}
    return {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": _provider(token_source(oauth))}


def _provider(source: Callable[[], tuple[str, float]]) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python is untyped
        """Asked at every connection; a signature is valid until it expires, so one is kept for most of that time."""

        def token(self) -> str:
            return source()[0]

    return Provider()

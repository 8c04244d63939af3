"""The client's own options (`kafka.client_options`): which are reserved, and which are secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from streameval.sources.protocol import SourceError

_SECRET = re.compile(r"password|secret|token|key|pem|jaas|oauth|username", re.IGNORECASE)
SHORTEST = 6  # characters of a value that is searched for in a message


START_TIMEOUT = 20.0  # seconds that the brokers may take to answer for the first time


class NoBrokerError(SourceError):
    """No broker has answered."""


def no_broker(bootstrap_servers: str, timeout: float, why: str) -> NoBrokerError:
    """Returns the error for a start without an answer: the address is wrong more often than the cluster is down."""
    return NoBrokerError(
        f'kafka.bootstrap_servers = "{bootstrap_servers}": no broker answered within {timeout:.0f} s ({why}); check the '
        "address, that Kafka runs there, and the TLS and SASL settings in kafka.client_options"
    )


def check_options(options: Mapping[str, Any], reserved: Mapping[str, str]) -> None:
    """Raises SourceError for a client option that only we may set (`reserved` has the fix by option), and for credentials
    that the client would ignore: without a protocol that uses them, both clients connect without any, and say nothing.
    """
    for name in options:
        if name in reserved:
            raise SourceError(f"kafka.client_options.{name}: {reserved[name]}")
    spelt = {name.replace("_", "."): name for name in options}  # librdkafka's names have dots
    protocol = spelt.get("security.protocol")
    credentials = next((name for plain, name in spelt.items() if plain.startswith("sasl.")), None)
    if credentials and str(options.get(protocol or "", "plaintext")).upper() in ("PLAINTEXT", "SSL"):
        wanted = credentials.replace("sasl", "security", 1)[: len("security.")] + "protocol"
        raise SourceError(
            f'kafka.client_options.{credentials}: is ignored without {wanted} = "SASL_SSL" (or "SASL_PLAINTEXT")'
        )


def redacted(text: object, options: Mapping[str, Any]) -> str:
    """Returns a client's message without the values of options that may be secrets.

    A value of fewer than `SHORTEST` characters stays: a user name of "a" would blank every word.
    """
    clean = str(text)
    for name, value in options.items():
        if _SECRET.search(name) and isinstance(value, str) and len(value) >= SHORTEST:
            clean = clean.replace(value, "***")
    return clean

"""The client's own options (`kafka.client_options`): which are ours to set, and which are nobody's to see."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from streameval.sources.protocol import SourceError

_SECRET = re.compile(r"password|secret|token|key|pem|jaas|oauth|username", re.IGNORECASE)
SHORTEST = 6  # characters of a value that is looked for in a message


def check_options(options: Mapping[str, Any], reserved: Mapping[str, str]) -> None:
    """Raise SourceError for a client option that is ours to set; `reserved` has the fix by option."""
    for name in options:
        if name in reserved:
            raise SourceError(f"kafka.client_options.{name}: {reserved[name]}")


def redacted(text: object, options: Mapping[str, Any]) -> str:
    """A client's message without the values of those options that may be secrets.

    A value of fewer than `SHORTEST` characters stays: a user name of "a" would blank every word.
    """
    clean = str(text)
    for name, value in options.items():
        if _SECRET.search(name) and isinstance(value, str) and len(value) >= SHORTEST:
            clean = clean.replace(value, "***")
    return clean

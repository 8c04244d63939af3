"""Names of others as values of Prometheus labels."""

from __future__ import annotations

import hashlib

Sample = tuple[str, tuple[str, ...], float]  # family, label values, value
_LONGEST = 200


def label(text: str) -> str:
    """The text as a label: UTF-8, and cut with a digest when it is very long, so that different ones stay different."""
    data = text.encode("utf-8", "backslashreplace")
    clean = data.decode()
    if len(clean) <= _LONGEST:
        return clean
    return f"{clean[: _LONGEST - 17]}~{hashlib.blake2b(data, digest_size=8).hexdigest()}"

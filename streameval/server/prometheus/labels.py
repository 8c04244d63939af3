"""Names of others as values of Prometheus labels."""

from __future__ import annotations

import hashlib
import re

Sample = tuple[str, tuple[str, ...], float]  # family, label values, value
_LONGEST = 200
_CUT = re.compile(r"(?s).*~[0-9a-f]{16}")


def label(text: str) -> str:
    """The text as a label: UTF-8, and cut with a digest when it is very long, so that different ones stay different."""
    data = text.encode("utf-8", "backslashreplace")
    clean = data.decode()
    if len(clean) < _LONGEST or (len(clean) == _LONGEST and not _CUT.fullmatch(clean)):
        return clean  # nothing that is not cut may look like it
    return f"{clean[: _LONGEST - 17]}~{hashlib.blake2b(data, digest_size=8).hexdigest()}"

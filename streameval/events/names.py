"""The names that results show: those of events, and placeholders that no event can forge."""

from __future__ import annotations

import re

OTHER = "__other__"  # in place of names that are not distinguished
MISSING = "__missing__"  # in place of a slice value that an event does not have
MAX_NAME = 256  # characters of a model, a version or a slice value that has its own name
_PLACEHOLDER = re.compile(r"~*__(missing|other)__")


def spelled(name: str) -> str:
    """The name under which results show what an event calls `name`: itself, unless it reads like a placeholder.

    `__other__` of an event is shown as `~__other__`, and that as `~~__other__`: different names stay different, and a
    placeholder is always ours.
    """
    return f"~{name}" if name[:1] in ("~", "_") and _PLACEHOLDER.fullmatch(name) else name

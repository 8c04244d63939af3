"""streameval with a leak: `python -m tests.chaos.leaking BYTES run -c ...` keeps so many bytes of every message for good.

What the soak must find; `python -m tests.chaos.soak --leak BYTES` runs it.
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

import confluent_kafka


def leak(size: int) -> None:
    """Takes over the client's reader; before streameval is imported, which keeps what it finds."""
    kept: list[bytes] = []

    class Keeping(confluent_kafka.Consumer):
        def consume(self, *arguments: Any, **more: Any) -> Any:
            messages = super().consume(*arguments, **more)
            kept.append(b"\xff" * (size * len(messages)))  # written to, so that it is resident
            return messages

    confluent_kafka.Consumer = Keeping  # type: ignore[misc]


if __name__ == "__main__":
    leak(int(sys.argv.pop(1)))
    runpy.run_module("streameval", run_name="__main__")

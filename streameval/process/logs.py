"""Log lines on stderr: as text or JSON, rate-limited."""

from __future__ import annotations

import json
import logging
import re
import time
import traceback
from collections.abc import Callable

_NUMBER = re.compile(r"\d+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # what ends a line, or tells a terminal something
_MOST = 1000  # different lines that are remembered


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """ts, level, logger, message, and exception if there is one."""
        out = {
            "ts": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            out["exception"] = self.formatException(record.exc_info)
        elif hasattr(record, "trace"):
            out["exception"] = record.trace
        return json.dumps(out)


class TextLines(logging.Formatter):
    """One line a record, then its trace: a name out of an event cannot begin its own line.

    A trace without messages (see `trace`) is given as `extra={"trace": ...}`.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The line, and below it the trace if there is one."""
        line = super().format(record)
        return f"{line}\n{record.trace}" if hasattr(record, "trace") else line

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's name)
        """The line, with control characters as Python writes them in a string."""
        return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), super().formatMessage(record))


class RateLimit(logging.Filter):
    """Lets a line through once in `seconds`; the next one says how many were suppressed.

    A Kafka client whose broker is gone logs that some 50 times a second, for as long as it is gone, each time with other
    numbers: in lines of a client numbers do not count. Elsewhere they do: there they are partitions, offsets and files.
    """

    def __init__(self, seconds: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._clock = clock
        self._said: dict[
            tuple[str, str], tuple[float, int]
        ] = {}  # line -> (when it may be logged again, suppressed so far)

    def filter(self, record: logging.LogRecord) -> bool:
        """False: suppressed."""
        text = record.getMessage()
        chatter = record.name.startswith("kafka") or (
            record.name.startswith("streameval.sources.kafka")
            and (record.levelno < logging.ERROR or record.name.endswith(".librdkafka"))
        )
        key, now = (record.name, _NUMBER.sub("#", text) if chatter else text), self._clock()
        due, held = self._said.get(key, (now, 0))
        if now < due:
            self._said[key] = due, held + 1
            return False
        if len(self._said) >= _MOST:
            self._said.clear()
        self._said[key] = now + self._seconds, 0
        if held:
            lines = "line" if held == 1 else "lines"
            record.msg, record.args = f"{text} ({held} similar {lines} suppressed)", None
        return True


def trace(error: BaseException) -> str:
    """Where an error came from and of which kinds it is, without their messages: those may quote an event."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    lines = [trace(before), ""] if before is not None else []
    lines += ["".join(traceback.format_tb(error.__traceback__)) + f"{type(error).__module__}.{type(error).__name__}"]
    if isinstance(error, BaseExceptionGroup):
        lines += [trace(inner) for inner in error.exceptions]
    return "\n".join(lines)


def set_up(log_format: str, level: str) -> None:
    """`log_format`: "text" or "json"."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    handler.addFilter(RateLimit())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)

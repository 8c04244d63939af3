"""What a sink does: writes panes and verdicts so that writing one again replaces it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from streameval.outlets.sinks.rows import SinkPane, SinkVerdict

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SinkError(Exception):
    """It could not be written now; what was there is whole. The message holds no secret."""


class Sink(ABC):
    """One `[[sinks]]`. One thread uses it."""

    @abstractmethod
    def write(self, panes: Sequence[SinkPane], verdicts: Sequence[SinkVerdict]) -> None:
        """All of them are stored when it returns; what was there of each is replaced. Raises SinkError."""

    @abstractmethod
    def close(self) -> None:
        """Drops connections."""


def time_of(ms: int) -> datetime:
    """As a time with its zone. Raises OverflowError for one without a date."""
    return _EPOCH + timedelta(milliseconds=ms)


def text_of(ms: int) -> str | None:
    """As the API writes it; None for one without a date."""
    try:
        return time_of(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return None

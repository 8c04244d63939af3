"""Times of events as ms since the epoch, from the forms in all formats: integers, ISO 8601, Arrow's timestamps."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

_FAR = 1 << 62  # ms: beyond any time that is accepted
# the hour 24, which datetime does not know: the end of a day is the start of the next one
_END_OF_DAY = re.compile(r"^([^T ]+[T ])24((?::?00){0,2}(?:[.,]0+)?(?:Z|[+-][\d:]+)?)$", re.IGNORECASE)


def parse_time(text: str) -> int | None:
    """Returns ms since the epoch for an ISO 8601 time (UTC without an offset); None if it is not one."""
    text, midnights = _END_OF_DAY.subn(r"\g<1>00\2", text.strip())
    try:
        when = datetime.fromisoformat(text) + timedelta(days=midnights)
    except (ValueError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def as_ms(text: str) -> int:
    """Returns ms for a number in text, or for an ISO 8601 time. Raises ValueError, OverflowError."""
    try:
        ms = int(text)
    except ValueError:
        found = parse_time(text)
        if found is None:
            raise
        return found
    if abs(ms) >= 1 << 63:
        raise OverflowError
    return ms


def in_ms(column: pa.Array, unit: str) -> pa.Array:
    """Returns integer ms; a time that does not fit into 64 bits stays out of range."""
    if unit == "s":
        most = pa.scalar(_FAR // 1000, pa.int64())
        return pc.multiply(
            pc.max_element_wise(pc.min_element_wise(column, most, skip_nulls=False), pc.negate(most), skip_nulls=False),
            1000,
        )
    return column if unit == "ms" else pc.divide(column, 1000 if unit == "us" else 1_000_000)

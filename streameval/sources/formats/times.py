"""Times of events as ms since the epoch, from what formats have: whole numbers, ISO 8601, Arrow's timestamps."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

_FAR = 1 << 62  # ms: further than any time that is let through
# the hour 24, which datetime does not know: the end of a day is the next one's beginning
_END_OF_DAY = re.compile(r"^([^T ]+[T ])24((?::?00){0,2}(?:[.,]0+)?(?:Z|[+-][\d:]+)?)$", re.IGNORECASE)


def parse_time(text: str) -> int | None:
    """ms since the epoch of an ISO 8601 time (UTC when it names no offset); None when it is not one."""
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
    """ms of a number in text, or of an ISO 8601 time. Raises ValueError, OverflowError."""
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
    """Whole ms; a time that is none in 64 bits stays as far away as can be."""
    if unit == "s":
        most = pa.scalar(_FAR // 1000, pa.int64())
        return pc.multiply(
            pc.max_element_wise(pc.min_element_wise(column, most, skip_nulls=False), pc.negate(most), skip_nulls=False),
            1000,
        )
    return column if unit == "ms" else pc.divide(column, 1000 if unit == "us" else 1_000_000)

"""Durations in milliseconds and sizes in bytes, as people write them: "30s", "5m", "24h", "512MB"."""

from __future__ import annotations

import re
from fractions import Fraction

_DURATION_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE_UNITS = {
    "B": 1,
    "KB": 1_000,
    "MB": 1_000_000,
    "GB": 1_000_000_000,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
}
_LONGEST = 36_500 * _DURATION_UNITS["d"]  # ms: a hundred years, so that time + duration stays far inside int64
_LARGEST = 1 << 53


def parse_duration(value: object) -> int:
    """Milliseconds of "30s", "5m", "24h", "7d", "250ms"; a bare 0 is allowed."""
    if value == 0 and not isinstance(value, bool):
        return 0
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)\s*", value) if isinstance(value, str) else None
    if not match:
        raise ValueError('must be a duration such as "30s", "5m" or "24h"')
    ms = Fraction(match[1]) * _DURATION_UNITS[match[2]]
    if ms > _LONGEST:
        raise ValueError('must be at most "36500d"')
    if 0 < ms < 1:
        raise ValueError('must be a duration of at least "1ms", or 0')
    return round(ms)


def format_duration(ms: int) -> str:
    """The shortest exact way to write a duration: 300000 -> "5m"."""
    for unit in ("d", "h", "m", "s"):
        size = _DURATION_UNITS[unit]
        if ms and ms % size == 0 and not (unit == "d" and ms == size):
            return f"{ms // size}{unit}"
    return f"{ms}ms" if ms else "0s"


def parse_size(value: object) -> int:
    """Bytes of "512MB", "2GiB" or a plain number of bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST:
        return value
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*", value) if isinstance(value, str) else None
    if not match or match[2].upper() not in _SIZE_UNITS:
        raise ValueError('must be a size such as "512MB" or "2GiB"')
    size = round(Fraction(match[1]) * _SIZE_UNITS[match[2].upper()])
    if not 0 < size <= _LARGEST:
        raise ValueError('must be from 1 byte to 2**53, for example "512MB"')
    return size

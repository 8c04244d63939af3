"""Lengths of time, in ms."""

from __future__ import annotations

HOUR = 3_600_000
DAY = 24 * HOUR

"""Which versions are compared."""

from __future__ import annotations

from dataclasses import dataclass

from streameval.events.durations import HOUR


@dataclass(frozen=True, slots=True)
class BoardLimits:
    """Which versions are noticed, and how long what is known of them is kept. Times in ms."""

    share: float  # share of its model's traffic from which a version is noticed
    count: int  # or this many impressions
    keep: int  # comparisons kept on record
    history: int = 15 * 86_400_000  # how long the ledgers keep sums
    learning: int = 6 * HOUR  # an online model is evaluated once it has not improved over a window of this length
    gauc_window: int = HOUR  # of a user's list

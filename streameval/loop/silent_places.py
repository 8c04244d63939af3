"""Which inputs of which partitions have fallen silent before their end.

A lag says this of none of them: it is that of the last answer, and there is none of a partition without a leader.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from streameval.results.silent import why_silent
from streameval.sources.protocol import Place

log = logging.getLogger(__name__)

SILENT_SECONDS = 15.0  # seconds; a leader election takes less
# Seconds between two calls that count: for the rest this process was busy, as with compiling, or stopped.
LONGEST_STEP = 5.0
# Seconds; with those before a silence is named, longer than any transaction with the producers' default timeout, a minute:
# a broker ends it within 10 s after that.
YOUNG_SECONDS = 65.0


class SilentPlaces:
    """When something was last read of each place, or nothing was left to read."""

    def __init__(self) -> None:
        self._good: dict[Place, float] = {}
        self._looked: float | None = None
        self._told: frozenset[Place] = frozenset()

    def heard(self, places: Iterable[Place], now: float) -> None:
        """Something was read of these; `now` in monotonic seconds."""
        self._good.update(dict.fromkeys(places, now))

    def places(self, ours: Collection[Place], at_end: Collection[Place], now: float) -> tuple[Place, ...]:
        """Those of our places that have not been read for `SILENT_SECONDS` seconds, nor known to be at their end (`at_end`: or not asked for)."""
        away = 0.0 if self._looked is None else max(0.0, now - self._looked - LONGEST_STEP)
        known, self._looked = self._good, now
        self._good = {place: now if place in at_end else min(known.get(place, now) + away, now) for place in ours}
        return tuple(sorted(place for place, good in self._good.items() if now - good > SILENT_SECONDS))

    def tell(self, silent: Iterable[Place], in_transaction: Mapping[Place, int]) -> None:
        """Logs which places have fallen silent, and which are read again; to be called while a broker answers.

        `in_transaction`: see `Source.in_transaction`.
        """
        now = frozenset(silent)
        for place in sorted(now - self._told):
            log.warning("%s", why_silent(place, in_transaction))
        for place in sorted(self._told - now):
            log.info("%s [%d] is read again", *place)
        self._told = now


class Transactions:
    """How long the transactions have lasted behind which nothing can be read."""

    def __init__(self) -> None:
        self._seen: dict[
            Place, tuple[int, float]
        ] = {}  # where the last one of each place began, and when it was first seen

    def young(self, in_transaction: Mapping[Place, int], now: float) -> frozenset[Place]:
        """The places whose transaction may well end by itself: one follows another, and none has lasted for long.

        `in_transaction`: see `Source.in_transaction`; `now` in monotonic seconds.
        """
        for place, offset in in_transaction.items():
            if self._seen.get(place, (None,))[0] != offset:
                self._seen[place] = offset, now
        return frozenset(place for place in in_transaction if now - self._seen[place][1] < YOUNG_SECONDS)

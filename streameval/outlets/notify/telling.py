"""Who was notified of what: an in-memory copy of the outbox's record, kept up to date, including messages sent by other
workers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set

from streameval.compare.reading.handling import comparison_key
from streameval.compare.reading.notified import Told, Untold, change_key
from streameval.compare.reading.reading import Comparison
from streameval.outlets.notify.changes import kinds
from streameval.store.errors import StoreError
from streameval.store.outbox import MOST_TOLD, Outbox

log = logging.getLogger(__name__)


class TellingRecord:
    """What it has is replaced, never changed: the loop reads it without a lock. Everything else is one thread's."""

    by_change: Mapping[str, tuple[Told, ...]]  # by the key of a change, those notified last at the end

    def __init__(self, outbox: Outbox, receivers: int) -> None:
        """Reads what is on record. `receivers`: how many are configured. Raises StoreError."""
        self._outbox, self._receivers = outbox, receivers
        self._last = self._last_untold = self._entries = 0
        self.by_change = {}
        self._untold: Mapping[str, Untold] = {}
        self._waiting: Set[str] = frozenset()
        self._read()

    def follow(self) -> None:
        """Reads what is new: most often nothing."""
        try:
            self._read()
        except StoreError as error:
            log.error("notify: it is unknown who was notified: %s", error)

    def of(self, c: Comparison) -> list[tuple[tuple[Told, ...], Untold | None]]:
        """Who was notified of each of its changes; where nobody was: why, if known."""
        key = comparison_key(c)
        out: list[tuple[tuple[Told, ...], Untold | None]] = []
        for change, kind in zip(c.changes, kinds(c), strict=True):
            one = change_key(key, change)
            told = self.by_change.get(one, ())
            out.append((told, None if told else self._why(one, not_told_of=kind is None)))
        return out

    def _why(self, key: str, *, not_told_of: bool) -> Untold | None:
        if key in self._waiting:  # dropped for one receiver, it may still wait for another
            return "waiting"
        if key in self._untold:
            return self._untold[key]
        if not self._receivers:
            return "no_receivers"
        return "not_told_of" if not_told_of else None

    def _read(self) -> None:
        waiting, untold = self._outbox.waiting(), self._outbox.untold(self._last_untold)
        fresh = self._outbox.told(self._last)
        if waiting != self._waiting:
            self._waiting = waiting
        if untold:
            self._last_untold = untold[-1].entry
            known = {**self._untold, **{one.key: one.why for one in untold}}
            self._untold = dict(list(known.items())[-MOST_TOLD:])
        if not fresh:
            return
        by_change = dict(self.by_change)
        for one in fresh:
            by_change[one.key] = (*by_change.pop(one.key, ()), one.told)
        self._last = fresh[-1].entry
        self._entries += len(fresh)
        while self._entries > MOST_TOLD:
            oldest = next(iter(by_change))
            self._entries -= len(by_change.pop(oldest))
        self.by_change = by_change

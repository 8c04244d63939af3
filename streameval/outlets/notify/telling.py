"""Who was told of what, in memory: what the outbox has on record, followed as it grows, also by what other workers send."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from streameval.compare.reading.told import Told
from streameval.store.errors import StoreError
from streameval.store.outbox import MOST_TOLD, Outbox

log = logging.getLogger(__name__)


class TellingRecord:
    """`by_change` is replaced, never changed: the loop reads it without a lock. Everything else is one thread's."""

    by_change: Mapping[str, tuple[Told, ...]]  # by the key of a change, those that were told last at the end

    def __init__(self, outbox: Outbox) -> None:
        """Reads what is on record. Raises StoreError."""
        self._outbox = outbox
        self._last = self._entries = 0
        self.by_change = {}
        self._read()

    def follow(self) -> None:
        """Reads what is new: nothing, most times."""
        try:
            self._read()
        except StoreError as error:
            log.error("notify: who was told is not known: %s", error)

    def _read(self) -> None:
        fresh = self._outbox.told(self._last)
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

"""Commits to the source what has been counted, once its dead letters are stored: so a kill loses none of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, wait

from streameval.sources.protocol import DeadLetterSink, LettersError, Place, Source, SourceError
from streameval.store.thread import WorkThread

log = logging.getLogger(__name__)

COMMIT_SECONDS = 1.0  # between commits at least
STORED_SECONDS = 5.0  # that a commit waits for dead letters, before it is tried again
_MOMENT = 0.01  # seconds; without letters in flight that is more than it takes


class Commits:
    """Used by one thread; waits for the letters on one of its own, which ends with `close`."""

    def __init__(self, source: Source, letters: DeadLetterSink) -> None:
        self._source = source
        self._letters = letters
        self._thread = WorkThread("letters")
        self._counted: dict[Place, int] = {}  # next offsets to read
        self._waiting: dict[Place, int] = {}  # the same, for which `_stored` waits
        self._stored: Future[None] | None = None
        self._due = 0.0  # monotonic seconds
        self.trouble = ""  # why letters wait until somebody acts

    def counted(self, offsets: Mapping[Place, int]) -> None:
        """Notes the next offsets to read (`Batch.offsets`) of what was counted."""
        self._counted.update(offsets)

    def tick(self, now: float) -> None:
        """Commits what can be committed; `now`: monotonic seconds."""
        if self._stored is None and self._counted and now >= self._due:
            self._due = now + COMMIT_SECONDS
            wait([self._begin()], _MOMENT)
        if self._stored is not None and self._stored.done():
            self._end(self._stored)

    def close(self) -> None:
        """Commits the rest, unless its letters cannot be stored now: then these events will be read again."""
        if (self._stored is None or self._awaited(self._stored)) and self._counted:
            self._awaited(self._begin())
        self._thread.close(0.0)

    def _begin(self) -> Future[None]:
        self._waiting, self._counted = self._counted, {}
        self._stored = self._thread.submit(self._letters.flush, STORED_SECONDS)
        return self._stored

    def _awaited(self, stored: Future[None]) -> bool:
        wait([stored])
        return self._end(stored)

    def _end(self, stored: Future[None]) -> bool:
        """Commits what waits, if its letters are stored; returns whether they are."""
        self._stored = None
        try:
            stored.result()
        except SourceError as error:
            log.warning("offsets not committed: %s", error)
            self.trouble = str(error) if isinstance(error, LettersError) else ""
            self._counted = self._waiting | self._counted
            return False
        self.trouble = ""
        self._source.commit(self._waiting)
        return True

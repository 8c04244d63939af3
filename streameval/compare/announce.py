"""Deploys announced by CI/CD: passed from the HTTP side to the ingest loop, without either waiting for the other."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace

from streameval.compare.reading.reading import Deploy

MOST_WAITING = 100  # announcements that may wait for the loop
SAME = 600_000  # ms: two announcements of a version within this are about one deploy


class Full(Exception):  # noqa: N818  like queue.Full
    """Too many announcements wait for the loop."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """A deploy announced by CI/CD; `at` is event time in ms."""

    model: str
    version: str
    at: int
    note: str = ""
    link: str = ""


def announced_deploy(deploys: Iterable[Deploy], announcement: Announcement) -> Deploy | None:
    """Returns the recorded deploy that an announcement refers to, or None.

    It is the deploy of the same version closest in time, at most `SAME` away, with no other version's deploy in
    between.
    """
    mine = [d for d in deploys if d.model == announcement.model and d.kind != "shadow"]
    near = [d for d in mine if d.version == announcement.version and abs(d.at - announcement.at) <= SAME]
    found = min(near, key=lambda d: abs(d.at - announcement.at), default=None)
    if found is None:
        return None
    first, last = sorted((found.at, announcement.at))
    between = any(d.version != announcement.version and first < d.at < last for d in mine)
    return None if between else found


def with_announcement(deploy: Deploy, announcement: Announcement) -> Deploy:
    """Returns the deploy with the announcement's note and link added; its time stays, and an empty note or link changes
    nothing.
    """
    return replace(deploy, announced=True, note=announcement.note or deploy.note, link=announcement.link or deploy.link)


class Announcements:
    """A bounded inbox. Thread-safe; locks are held for a few dictionary look-ups only."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._waiting: dict[tuple[str, str, int], Announcement] = {}
        self._lately: dict[tuple[str, str], Announcement] = {}  # the latest announcement of each version, newest last
        self._lock = threading.Lock()

    def put(self, announcement: Announcement) -> tuple[Announcement, bool]:
        """Queues an announcement for the loop. Returns it as queued, and whether it updates a recent one of the same
        version.

        An update keeps the time of the first announcement. Raises Full when too many are waiting.
        """
        version = (announcement.model, announcement.version)
        with self._lock:
            before = self._lately.get(version)
            again = before is not None and abs(before.at - announcement.at) <= SAME
            if before is not None and again:
                announcement = replace(
                    before, note=announcement.note or before.note, link=announcement.link or before.link
                )
            key = (*version, announcement.at)
            if key not in self._waiting and len(self._waiting) >= self._most:
                raise Full
            self._waiting[key] = announcement
            self._lately.pop(version, None)
            self._lately[version] = announcement
            if len(self._lately) > self._most:
                del self._lately[next(iter(self._lately))]
        return announcement, again

    def take(self) -> tuple[Announcement, ...]:
        """Returns the announcements queued since the last call, oldest first; never blocks for long."""
        if not self._waiting:
            return ()
        with self._lock:
            taken, self._waiting = tuple(self._waiting.values()), {}
        return taken

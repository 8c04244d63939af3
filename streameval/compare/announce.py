"""Deploys announced by CI/CD: passed from the HTTP side to the ingest loop, without either waiting for the other."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace

from streameval.compare.reading.reading import Deploy

MOST_WAITING = 100  # announcements that wait for the loop
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
    """The deploy on record that an announcement is about: the same version, at about that time, none between."""
    mine = [d for d in deploys if d.model == announcement.model and d.kind != "shadow"]
    near = [d for d in mine if d.version == announcement.version and abs(d.at - announcement.at) <= SAME]
    found = min(near, key=lambda d: abs(d.at - announcement.at), default=None)
    if found is None:
        return None
    first, last = sorted((found.at, announcement.at))
    between = any(d.version != announcement.version and first < d.at < last for d in mine)
    return None if between else found


def with_announcement(deploy: Deploy, announcement: Announcement) -> Deploy:
    """The deploy with what was announced of it. When it began stays; an empty note or link changes nothing."""
    return replace(deploy, announced=True, note=announcement.note or deploy.note, link=announcement.link or deploy.link)


class Announcements:
    """A bounded inbox. Thread-safe; locks are held for a few dictionary look-ups only."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._waiting: dict[tuple[str, str, int], Announcement] = {}
        self._lately: dict[tuple[str, str], Announcement] = {}  # the last of each version, the newest last
        self._lock = threading.Lock()

    def put(self, announcement: Announcement) -> tuple[Announcement, bool]:
        """Leaves it for the loop: as it will be taken, and whether it adds to one that was left lately.

        What is added keeps the time of the first. Raises Full when too many wait.
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
        """What was queued since the last call, oldest first; never blocks for long."""
        if not self._waiting:
            return ()
        with self._lock:
            taken, self._waiting = tuple(self._waiting.values()), {}
        return taken

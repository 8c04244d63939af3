"""Offsets are committed once the dead letters of before are stored."""

from __future__ import annotations

import threading
import time

from streameval.loop.commits import Commits
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.protocol import SourceError
from streameval.testing import ScriptedSource

PLACE = ("impressions", 0)


class Letters(JsonlDeadLetters):
    """Stored when it is allowed, or never."""

    def __init__(self, never: bool = False) -> None:
        super().__init__("")
        self.allowed, self.never, self.calls = threading.Event(), never, 0

    def flush(self, timeout: float = 0.0) -> None:
        self.calls += 1
        assert self.allowed.wait(60.0)
        if self.never:
            raise SourceError("1 messages not delivered")


def test_a_commit_waits_for_letters_and_the_loop_does_not() -> None:
    source, letters = ScriptedSource([]), Letters()
    commits = Commits(source, letters)
    commits.counted({PLACE: 3})
    commits.tick(time.monotonic())
    commits.counted({PLACE: 7})
    commits.tick(time.monotonic() + 60.0)
    assert source.committed == {}
    letters.allowed.set()
    commits.close()
    assert source.committed == {PLACE: 7}


def test_a_stop_waits_once_for_letters_that_nobody_takes() -> None:
    source, letters = ScriptedSource([]), Letters(never=True)
    commits = Commits(source, letters)
    commits.counted({PLACE: 3})
    commits.tick(time.monotonic())
    commits.counted({PLACE: 7})
    letters.allowed.set()
    commits.close()
    assert (source.committed, letters.calls) == ({}, 1)

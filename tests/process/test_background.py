"""Calls on the counting thread are made in their order, also those that are little work."""

from __future__ import annotations

import threading

import pytest

from streameval.process.background import Background


def test_a_little_is_done_at_once_unless_something_is_under_way() -> None:
    background, done, go = Background(), [], threading.Event()

    def note(name: str) -> None:
        done.append((name, threading.current_thread() is threading.main_thread()))

    background.call_little(note, "alone")
    assert done == [("alone", True)]

    def slow() -> None:
        go.wait(10)
        note("slow")

    background.call(slow)
    background.call_little(note, "after it")
    assert len(done) == 1
    go.set()
    background.wait()
    background.call_little(note, "alone again")
    assert done[1:] == [("slow", False), ("after it", False), ("alone again", True)]


def test_what_a_call_raised_is_raised_by_the_next_one_that_is_little() -> None:
    background = Background()

    def fail() -> None:
        raise ValueError("said")

    background.call(fail)
    background._calls[0].exception(10)
    with pytest.raises(ValueError, match="said"):
        background.call_little(print)

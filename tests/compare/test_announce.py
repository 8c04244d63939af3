"""Announcements: handed over without waiting, bounded, and two of one deploy are one."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from streameval.compare.announce import (
    MOST_WAITING,
    SAME,
    Announcement,
    Announcements,
    Full,
    announced_deploy,
    with_announcement,
)
from tests.comparisons import NOON, deploy

SAID = Announcement("default", "v2", NOON, "a note", "https://ci.example/1")


def test_announcements_are_taken_once_in_order() -> None:
    inbox = Announcements()
    other = replace(SAID, version="v3")
    assert inbox.put(SAID) == (SAID, False)
    assert inbox.put(other) == (other, False)
    assert inbox.take() == (SAID, other)
    assert inbox.take() == ()


def test_a_repeated_announcement_updates_the_first_even_after_it_was_taken() -> None:
    inbox = Announcements(most=1)
    inbox.put(replace(SAID, link=""))
    both = replace(SAID, note="better")
    assert inbox.put(replace(both, at=NOON + 5000)) == (both, True)  # a retry needs no room of its own
    assert inbox.take() == (both,)
    assert inbox.put(replace(SAID, at=NOON + SAME, note="", link="")) == (both, True)
    assert inbox.take() == (both,)
    later = replace(SAID, at=NOON + SAME + 1)
    assert inbox.put(later) == (later, False)


def test_it_is_bounded() -> None:
    inbox = Announcements()
    for i in range(MOST_WAITING):
        inbox.put(replace(SAID, version=f"v{i}"))
    with pytest.raises(Full):
        inbox.put(replace(SAID, version="one more"))
    assert len(inbox.take()) == MOST_WAITING
    for i in range(10 * MOST_WAITING):
        inbox.put(replace(SAID, version=f"w{i}"))
        inbox.take()
    assert len(inbox._lately) == MOST_WAITING


def test_nothing_is_lost_between_threads() -> None:
    inbox, taken, done = Announcements(), [], threading.Event()

    def loop() -> None:
        while not done.is_set():
            taken.extend(inbox.take())

    reader = threading.Thread(target=loop)
    reader.start()
    left = []
    for i in range(3000):
        try:
            left.append(inbox.put(replace(SAID, version=f"v{i}"))[0])
        except Full:
            continue
    done.set()
    reader.join()
    assert taken + list(inbox.take()) == left


def test_an_announcement_is_about_the_deploy_of_its_version_at_about_its_time() -> None:
    noticed = deploy()
    assert announced_deploy([noticed], replace(SAID, at=NOON - SAME)) is noticed
    assert announced_deploy([noticed], replace(SAID, at=NOON - SAME - 1)) is None
    assert announced_deploy([noticed], replace(SAID, version="v3")) is None
    assert announced_deploy([noticed], replace(SAID, model="other")) is None
    assert announced_deploy([replace(noticed, kind="shadow")], SAID) is None
    rolled_back = deploy(3, "v1", kind="rollback", at=NOON + 1000)
    assert announced_deploy([noticed, rolled_back], replace(SAID, at=NOON + 2000)) is None  # live for the second time
    assert announced_deploy([noticed, rolled_back], replace(SAID, at=NOON + 500)) is noticed


def test_an_announcement_adds_to_a_deploy_and_takes_nothing_away() -> None:
    known = with_announcement(deploy(), SAID)
    assert (known.announced, known.note, known.link, known.at) == (True, "a note", "https://ci.example/1", NOON)
    assert with_announcement(known, replace(SAID, at=NOON + 5, note="", link="")) == known

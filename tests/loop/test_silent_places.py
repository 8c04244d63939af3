"""What is said of places from which nothing comes."""

from __future__ import annotations

import logging

from streameval.loop.silent_places import SilentPlaces


def test_the_log_names_a_place_once_when_it_falls_silent_and_once_when_it_is_read_again(caplog) -> None:
    caplog.set_level(logging.INFO)
    places, ours = SilentPlaces(), [("clicks", 0), ("clicks", 1)]
    for now in (0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 31.0):
        places.tell(places.places(ours, {("clicks", 0)} if now < 31 else set(ours), now))
    assert [record.getMessage() for record in caplog.records] == [
        "nothing comes from clicks [1], and no broker says that this is its end; has it a leader?",
        "clicks [1] is read again",
    ]


def test_a_time_in_which_nobody_read_is_no_silence(caplog) -> None:
    """At the first start of a demo, whose kernels were being compiled, each place was said to have no leader."""
    places, ours = SilentPlaces(), [("clicks", 0), ("clicks", 1)]
    for now in (0.0, 1.0, 22.0, 60.0):
        assert places.places(ours, set(), now) == ()
    places.heard([("clicks", 0)], 64.0)
    assert places.places(ours, set(), 65.0) == (("clicks", 1),)

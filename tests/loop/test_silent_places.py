"""What is said of places from which nothing comes."""

from __future__ import annotations

import logging

from streameval.loop.silent_places import SilentPlaces, Transactions


def test_the_log_names_a_place_once_when_it_falls_silent_and_once_when_it_is_read_again(caplog) -> None:
    caplog.set_level(logging.INFO)
    places, ours = SilentPlaces(), [("clicks", 0), ("clicks", 1)]
    for now in (0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 31.0):
        places.tell(places.places(ours, {("clicks", 0)} if now < 31 else set(ours), now), {})
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


def test_a_transaction_that_does_not_end_is_named_with_what_to_do(caplog) -> None:
    places, ours = SilentPlaces(), [("clicks", 0)]
    for now in (0.0, 5.0, 10.0, 15.0, 20.0):
        places.tell(places.places(ours, (), now), {("clicks", 0): 42})
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("nothing comes from clicks [0]: a transaction was begun at offset 42 and has not ended")
    assert "kafka-transactions.sh abort --topic clicks --partition 0 --start-offset 42" in said
    assert '"read_uncommitted" in kafka.client_options' in said


def test_a_transaction_is_young_for_about_a_minute_after_it_was_first_seen() -> None:
    transactions, clicks = Transactions(), ("clicks", 0)
    for now in range(0, 600, 10):  # one follows another
        assert transactions.young({clicks: now}, float(now)) == {clicks}
    assert transactions.young({}, 640.0) == frozenset()
    assert transactions.young({clicks: 590}, 654.0) == {clicks}
    assert transactions.young({clicks: 590}, 655.0) == frozenset()
    assert transactions.young({clicks: 591}, 656.0) == {clicks}

"""Positions: what a rebalance may and may not repeat."""

from __future__ import annotations

from streameval.sources.kafka.options import redacted
from streameval.sources.kafka.positions import Positions
from streameval.sources.kafka.reader import MessageRun


def run(first: int, count: int) -> MessageRun:
    return MessageRun("t", 0, [str(i).encode() for i in range(first, first + count)], list(range(first, first + count)))


def test_a_run_moves_the_position_past_its_last_offset():
    positions = Positions()
    assert positions.advance(run(10, 5)) == run(10, 5)
    assert positions.next == {("t", 0): 15}


def test_messages_delivered_before_are_cut_off():
    positions = Positions()
    positions.advance(run(0, 10))
    assert positions.advance(run(8, 4)) == run(10, 2)
    assert positions.advance(run(3, 5)) is None
    assert positions.next == {("t", 0): 12}


def test_an_offset_left_out_by_compaction_is_no_repetition():
    positions = Positions()
    positions.advance(MessageRun("t", 0, [b"a", b"b"], [3, 9]))
    assert positions.empty == {("t", 0): 3 + 5}
    assert positions.advance(MessageRun("t", 0, [b"b", b"c"], [9, 20])) == MessageRun("t", 0, [b"c"], [20])
    assert positions.empty == {("t", 0): 3 + 5 + 10}


def test_offsets_without_a_message_at_the_end_are_counted_once():
    """They were not, with confluent, where its log was read to its end: a transaction's last marker."""
    positions = Positions()
    positions.advance(run(0, 10))
    positions.reach(("t", 0), 11)
    positions.reach(("t", 0), 11)
    positions.reach(("t", 0), 9)
    assert (positions.next, positions.empty) == ({("t", 0): 11}, {("t", 0): 1})
    positions.advance(run(12, 1))
    assert (positions.next, positions.empty) == ({("t", 0): 13}, {("t", 0): 2})


def test_a_partition_that_stays_keeps_its_position_and_one_that_leaves_loses_it():
    positions = Positions()
    positions.next = {("t", 0): 5, ("t", 1): 6}
    assert positions.regained(frozenset({("t", 1), ("t", 2)})) == {("t", 1): 6}
    assert positions.regained(frozenset({("t", 0)})) == {}


def test_values_of_secret_options_are_not_repeated():
    options = {"sasl.password": "hunter2", "client.id": "me", "ssl.key.pem": "", "sasl_plain_username": "robert"}
    assert redacted("me, robert and hunter2", options) == "me, *** and ***"


def test_a_short_value_does_not_blank_half_of_a_message():
    options = {"sasl_plain_username": "a", "sasl.password": "kafka", "ssl.key.password": "longer"}
    message = "kafka-1:9092: a certificate was refused: longer"
    assert redacted(message, options) == "kafka-1:9092: a certificate was refused: ***"

"""The dead-letter topic."""

from __future__ import annotations

import pytest

from streameval.sources.protocol import DeadLetter, SourceError


def letter(value: bytes, offset: int = 0) -> DeadLetter:
    return DeadLetter(value, "malformed", "", "not JSON: “x”", "impressions", 1, offset)


def test_the_original_bytes_are_stored_unchanged_and_in_order(lab):
    lab.create(lab.dead)
    sink = lab.dead_letters(lab.settings())
    values = [bytes([i % 256]) * (i % 50) for i in range(2_000)]
    sink.write([letter(value, i) for i, value in enumerate(values)])
    sink.flush()
    stored = sorted((int(headers["offset"]), value or b"") for value, headers, _ in lab.read(lab.dead, 2_000))
    assert [value for _, value in stored] == values
    sink.close()
    sink.close()


@pytest.mark.kafka
def test_a_letter_too_large_for_the_topic_leaves_its_place_and_size(real_lab):
    real_lab.create(real_lab.dead, partitions=1, **{"max.message.bytes": "2000"})
    sink = real_lab.dead_letters(real_lab.settings())
    sink.write([letter(b"x" * 5_000, 7)])
    sink.flush()
    sink.write([letter(b"small", 8)])
    sink.flush()
    large, small = real_lab.read(real_lab.dead, 2)
    assert large[0] in (b"", None)
    assert (large[1]["offset"], large[1]["value_bytes"]) == ("7", "5000")
    assert small[0] == b"small"
    assert "value_bytes" not in small[1]


def test_without_a_topic_letters_are_dropped(lab):
    sink = lab.dead_letters(lab.settings(dead_letter_topic=""))
    sink.write([letter(b"x")])
    sink.flush()


def test_letters_that_cannot_be_delivered_are_an_error(laboratory, client):
    options = {
        "confluent": {"message.timeout.ms": 1_000},
        "kafka-python": {"bootstrap_timeout_ms": 1_000},
    }
    lab = laboratory("127.0.0.1:1", client)
    sink = lab.dead_letters(lab.settings(client_options=options[client]))

    def store():
        sink.write([letter(b"x")])
        sink.flush()

    with pytest.raises(SourceError, match=r"not delivered|no broker answered"):
        store()
    lab.forget(sink)

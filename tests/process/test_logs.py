"""What comes out on stderr."""

from __future__ import annotations

import io
import json
import logging

import pytest

from streameval.process.logs import JsonLines, RateLimit, TextLines, trace
from streameval.testing import ManualClock


def logger(clock: ManualClock, name: str = "of-this-test") -> tuple[logging.Logger, io.StringIO]:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonLines())
    handler.addFilter(RateLimit(10.0, clock))
    made = logging.Logger(name)
    made.addHandler(handler)
    return made, out


def messages(out: io.StringIO) -> list[str]:
    return [json.loads(line)["message"] for line in out.getvalue().splitlines()]


def test_a_line_that_repeats_is_said_once_in_a_while_and_then_with_how_often() -> None:
    clock = ManualClock()
    log, out = logger(clock, "streameval.sources.kafka.confluent_reader")
    for ms in range(500):
        log.warning("kafka-1:9092: connection refused (after %dms)", ms)
        clock.advance(0.01)
    log.warning("100%% of the others are heard")
    clock.advance(10)
    log.warning("kafka-1:9092: connection refused (after %dms)", 7)
    clock.advance(10)
    log.warning("kafka-1:9092: connection refused (after %dms)", 8)
    assert messages(out) == [
        "kafka-1:9092: connection refused (after 0ms)",
        "100%% of the others are heard",
        "kafka-1:9092: connection refused (after 7ms) (499 similar lines suppressed)",
        "kafka-1:9092: connection refused (after 8ms)",
    ]


def test_errors_of_librdkafka_itself_are_told_apart_by_no_number() -> None:
    log, out = logger(ManualClock(), "streameval.sources.kafka.confluent_reader.librdkafka")
    for ms in range(50):
        log.error("FAIL [streameval#consumer-2] kafka-1:9092: Failed to resolve (after %dms in state CONNECT)", ms)
    assert len(messages(out)) == 1


def test_lines_about_different_partitions_and_files_are_all_said() -> None:
    log, out = logger(ManualClock(), "streameval.store.checkpoints")
    kafka, kafka_out = logger(ManualClock(), "streameval.sources.kafka.positions")
    for partition in (0, 1, 1):
        log.error("checkpoint refused: partition-%05d/1-2.checkpoint: cut short", partition)
        kafka.error("clicks [%d]: messages 5 to 7 were deleted before they were read", partition)
    assert len(messages(out)) == len(messages(kafka_out)) == 2
    assert "partition-00001" in messages(out)[1]


def test_what_is_remembered_of_lines_is_bounded() -> None:
    clock = ManualClock()
    log, out = logger(clock)
    for i in range(3000):
        log.info("user %s", "x" * i)
    assert len(messages(out)) == 3000
    assert all(len(f._said) <= 1000 for h in log.handlers for f in h.filters if isinstance(f, RateLimit))


def test_an_exception_is_part_of_its_line() -> None:
    log, out = logger(ManualClock())
    try:
        raise ValueError("what\nhappened")
    except ValueError:
        log.exception("failed")
    line = json.loads(out.getvalue())
    assert (line["message"], line["level"], line["logger"]) == ("failed", "error", "of-this-test")
    assert line["exception"].endswith("ValueError: what\nhappened")


@pytest.mark.parametrize("end", ["\n", "\r", "\x1b[2K", "\x85", "\u2028", "\x00"])
def test_a_name_cannot_begin_a_line_of_its_own_in_the_text_log(end: str) -> None:
    log, out = logger(ManualClock())
    log.handlers[0].setFormatter(TextLines())
    log.warning("new version %s", f"v1{end}2030-01-01 00:00:00,000 ERROR streameval: all is lost \\ é")
    line = out.getvalue().removesuffix("\n")
    assert line.isprintable()
    assert end not in line
    assert line.endswith("ERROR streameval: all is lost \\ é")
    assert len(line.splitlines()) == 1


def test_the_trace_of_an_error_stands_below_its_line() -> None:
    log, out = logger(ManualClock())
    try:
        raise ValueError("a user's id")
    except ValueError as error:
        found = trace(error)
    log.error("GET / failed", extra={"trace": found})
    assert json.loads(out.getvalue())["exception"] == found
    out.truncate(0), out.seek(0)
    log.handlers[0].setFormatter(TextLines())
    log.error("GET /b failed", extra={"trace": found})
    assert out.getvalue().endswith(f"GET /b failed\n{found}\n")

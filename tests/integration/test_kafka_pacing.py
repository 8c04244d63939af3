"""A backlog: both inputs are drained together in event time."""

from __future__ import annotations

import time

import pytest

from streameval.sources.kafka.pacing import Pacing

pytestmark = pytest.mark.kafka
SECOND = 1_000
START_MS = 1_700_000_000_000


def gaps(source, count, busy=0.0):
    """How far the clicks of partition 0 were ahead of its impressions (ms), after every poll that left work for both.

    `busy`: seconds for which the reader is busy with each of the first dozen polls.
    """
    stand = {}
    seen = 0
    out = []
    for number in range(3_000):
        time.sleep(busy if number < 12 else 0.0)
        for batch in source.poll(0.2):
            for kind, events in (("impressions", batch.impressions), ("clicks", batch.clicks)):
                if len(events):
                    stand[kind] = int(events.ts.max())
                    seen += len(events)
        lags = source.lag().values()
        if len(stand) == 2 and sum(lag > 0 for lag in lags) == 2:
            out.append(stand["clicks"] - stand["impressions"])
        if seen == count:
            return out
    raise AssertionError(f"{seen} of {count} events came")


def test_the_faster_input_waits_for_the_slower_one(real_lab, impressions, clicks):
    real_lab.create(real_lab.impressions, real_lab.clicks, partitions=1)
    real_lab.write(real_lab.impressions, impressions(0, 30_000, SECOND))  # over eight hours, one a second
    real_lab.write(real_lab.clicks, clicks(0, 3_000, 10 * SECOND))
    source = real_lab.source(max_events=100, pacing=Pacing(ahead_ms=60 * SECOND))
    ahead = gaps(source, 33_000)
    one_poll = 100 * 10 * SECOND
    assert max(ahead) <= 60 * SECOND + one_poll
    assert min(ahead) >= -(60 * SECOND + one_poll)


def test_the_slower_input_is_waited_for_while_the_reader_is_busy(real_lab, impressions, clicks):
    """A slow model or disk: between two polls more time passes than a silent input is waited for."""
    real_lab.create(real_lab.impressions, real_lab.clicks, partitions=1)
    real_lab.write(real_lab.impressions, impressions(0, 3_000, SECOND))
    real_lab.write(real_lab.clicks, clicks(0, 2_000, 10 * SECOND))
    source = real_lab.source(max_events=100, pacing=Pacing(ahead_ms=60 * SECOND, patience=1.0))
    ahead = gaps(source, 5_000, busy=1.1)
    one_poll = 100 * 10 * SECOND
    assert max(ahead) <= 60 * SECOND + one_poll


def test_an_input_without_messages_holds_nobody_back(real_lab, impressions, drain):
    real_lab.create(real_lab.impressions, real_lab.clicks, partitions=1)
    real_lab.write(real_lab.impressions, impressions(0, 5_000, 60 * SECOND))
    arrived = drain(real_lab.source(max_events=100, pacing=Pacing(ahead_ms=60 * SECOND)), 5_000)
    assert arrived.impressions[0][-1] == 4_999 * 60 * SECOND


def test_an_input_that_ends_early_holds_nobody_back(real_lab, impressions, clicks, drain):
    real_lab.create(real_lab.impressions, real_lab.clicks, partitions=1)
    real_lab.write(real_lab.impressions, impressions(0, 5_000, 60 * SECOND))
    real_lab.write(real_lab.clicks, clicks(0, 300, SECOND))
    arrived = drain(real_lab.source(max_events=100, pacing=Pacing(ahead_ms=60 * SECOND)), 5_300)
    assert arrived.impressions[0] == [i * 60 * SECOND for i in range(5_000)]
    assert arrived.clicks[0] == [i * SECOND for i in range(300)]

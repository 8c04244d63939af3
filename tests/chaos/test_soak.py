"""The soak's own parts: its verdict, and its traffic."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.chaos.soak import PERIOD_MS, flat, traffic


@pytest.mark.parametrize(
    ("samples", "good"),
    [
        (np.full(100, 500.0), True),
        (500 + 30 * (np.arange(100) % 7 == 0), True),  # peaks
        (500 + np.arange(240) % 9, True),  # a sawtooth
        (500 * (1 + 0.0005 * np.arange(100)), False),  # 5 % by the end
        (500 * (1 - 0.0005 * np.arange(100)), False),
        (np.where(np.arange(100) < 60, 500.0, 520.0), False),  # a step
    ],
)
def test_the_verdict_sees_growth_and_not_peaks(samples: np.ndarray, good: bool) -> None:
    assert flat(samples.tolist(), 0.02)[0] is good


def test_the_repeated_traffic_has_new_ids_and_later_times_and_its_clicks_find_their_impressions() -> None:
    messages = traffic(20.0, "soak")
    start = 1_700_000_000_000
    seen: dict[str, int] = {}
    clicks = []
    for cycle in range(3):
        for message in messages:
            if message.cycles > cycle:
                continue
            event = json.loads(message.value(cycle, start))
            if message.topic == "soak-impressions":
                assert event["impression_id"] not in seen
                seen[event["impression_id"]] = event["ts"]
                assert start + cycle * PERIOD_MS <= event["ts"] < start + (cycle + 1) * PERIOD_MS
            else:
                clicks.append(event)
    assert len(clicks) > 50
    assert all(seen[click["impression_id"]] <= click["ts"] for click in clicks)

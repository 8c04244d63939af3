"""How long a poll waits for more messages."""

from __future__ import annotations

import pytest

from streameval.sources.kafka.linger import LEAST_LINGER, MOST_LINGER, after


@pytest.mark.parametrize(
    ("busy", "wait"),
    [(0.0, LEAST_LINGER), (0.001, LEAST_LINGER), (0.03, 0.12), (0.064, MOST_LINGER), (5.0, MOST_LINGER)],
)
def test_it_waits_longer_than_the_batches_took_within_limits(busy: float, wait: float) -> None:
    assert after(busy) == pytest.approx(wait)

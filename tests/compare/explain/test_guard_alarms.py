"""False alarms of the Simpson guard's NDCG, in the short form of `python -m benchmarks.detection.guard`."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.detection.guard import alarms, looks

pytestmark = pytest.mark.slow


def test_half_a_null_is_called_no_more_often_than_alpha() -> None:
    spoke, could = alarms(60)
    assert could == 60, "it is never silent for want of anything"
    assert spoke <= 3


def test_the_weighted_difference_of_half_a_null_is_nothing_and_its_error_is_right() -> None:
    """Else the worlds above would say nothing."""
    last = [list(looks(seed))[-1] for seed in range(60)]
    z = np.array([mix.within / mix.within_stderr for mix in last])
    assert all(mix.total > 0.03 for mix in last)
    assert abs(z.mean()) < 3 / np.sqrt(z.size)
    assert 0.75 < z.std(ddof=1) < 1.3


def test_a_version_worse_elsewhere_is_detected_within_200_000_impressions() -> None:
    spoke, _ = alarms(20, better=0.25)
    assert spoke >= 6

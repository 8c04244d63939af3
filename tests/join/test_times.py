"""Which rows have times in a range: never too few, and few others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streameval.join import times
from streameval.join.times import RowTimes

_STEP = st.tuples(st.sampled_from(["add", "forget", "move"]), st.integers(0, 40), st.integers(-5, 30))


def _rows(spans: NDArray[np.int64]) -> set[int]:
    return {row for start, end in spans.tolist() for row in range(start, end)}


@given(st.lists(_STEP, max_size=30), st.integers(-10, 200), st.integers(0, 60))
def test_every_row_of_the_times_is_there_whatever_came_went_and_moved(
    steps: list[tuple[str, int, int]], low: int, length: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(times, "_BLOCK", 8)
        kept, ts, front = RowTimes(), np.empty(0, np.int64), 0
        for what, size, jitter in steps:
            if what == "add":
                more = ts.size + np.arange(size) - (np.arange(size) * 7 % 5) * jitter
                kept.add(ts.size, more)
                ts = np.concatenate((ts, more))
            elif what == "forget":
                front = min(front + size, ts.size)
                kept.forget_before(front)
            else:
                kept.move(front)
                ts, front = ts[front:], 0
        spans = kept.between(low, low + length, front, ts.size)
    found = _rows(spans)
    assert {row for row in range(front, ts.size) if low <= ts[row] < low + length} <= found
    assert found <= set(range(front, ts.size))
    assert len(found) == int(np.diff(spans).sum())


def test_an_hour_of_a_day_is_found_without_looking_through_the_day() -> None:
    kept, hour = RowTimes(), 3_600_000
    ts = np.arange(24 * 100_000) * 36
    for start in range(0, ts.size, 20_000):
        kept.add(start, ts[start : start + 20_000])
    spans = kept.between(5 * hour, 6 * hour, 0, ts.size)
    assert spans.tolist() == [[30 * 16_384, 37 * 16_384]]

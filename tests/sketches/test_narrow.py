"""Numbers in a few bytes are the numbers again; near 0 one byte is enough."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.sketches.narrow import narrow, widen

LEAST, MOST = -(1 << 63), (1 << 63) - 1


def test_numbers_come_back_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    edges = [sign * (1 << bit) + more for bit in range(62) for sign in (1, -1) for more in (-1, 0, 1)]
    some = rng.integers(LEAST, MOST, 1000, endpoint=True) >> rng.integers(0, 64, 1000)
    numbers = np.concatenate((np.array([0, LEAST, MOST, *edges]), some))
    np.testing.assert_array_equal(widen(narrow(numbers), numbers.size), numbers)


@pytest.mark.parametrize(
    ("number", "length"), [(0, 1), (63, 1), (-64, 1), (64, 2), (-65, 2), (8191, 2), (MOST, 10), (LEAST, 10)]
)
def test_a_small_number_takes_few_bytes(number: int, length: int) -> None:
    assert narrow(np.array([number])).size == length


def test_of_no_numbers_there_are_no_bytes() -> None:
    assert narrow(np.empty(0, np.int64)).size == 0
    assert widen(np.empty(0, np.uint8), 0).size == 0


@pytest.mark.parametrize(("data", "count"), [([1, 2], 1), ([1], 2), ([1, 0x80], 1), ([], 1)])
def test_bytes_of_another_count_are_refused(data: list[int], count: int) -> None:
    with pytest.raises(ValueError, match=f"not those of {count} numbers"):
        widen(np.array(data, np.uint8), count)

"""The logarithm of kernels against NumPy's."""

from __future__ import annotations

import numba
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streameval.sketches.logarithm import natural_log


@numba.njit
def logarithms(x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = natural_log(x[i])
    return out


@given(st.lists(st.floats(2.0**-1022, 2.0**1023), min_size=1, max_size=50))
def test_it_is_that_of_numpy(values: list[float]) -> None:
    x = np.array(values)
    assert np.all(np.abs(logarithms(x) - np.log(x)) <= 4e-16 * np.maximum(1.0, np.abs(np.log(x))))


def test_it_is_exact_at_one_and_keeps_its_digits_beside_it() -> None:
    beside = 1.0 + np.concatenate((np.logspace(-15, -1, 2000), -np.logspace(-15, -1, 2000)))
    assert logarithms(np.array([1.0]))[0] == 0.0
    np.testing.assert_allclose(logarithms(beside), np.log(beside), rtol=4e-16)


def test_powers_of_two_and_the_bounds_of_the_mantissa() -> None:
    edges = np.array([np.sqrt(0.5), np.nextafter(np.sqrt(0.5), 0), np.sqrt(2.0), np.nextafter(np.sqrt(2.0), 2)])
    x = np.concatenate((2.0 ** np.arange(-1000, 1001), edges))
    np.testing.assert_allclose(logarithms(x), np.log(x), rtol=4e-16)

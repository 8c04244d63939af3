"""The filter knows every id that it was made of, and few others."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streameval.events.hashing import hash_strings
from streameval.join.cold.ribbon import Ribbon, RibbonMaker, may_have, shape_of

ids = st.lists(st.integers(0, (1 << 64) - 1), max_size=200).map(lambda some: np.array(some, np.uint64))


@numba.njit
def _known(address: int, shards: int, slots: int, some: NDArray[np.uint64], out: NDArray[np.bool_]) -> None:
    for i in range(some.size):
        out[i] = may_have(address, shards, slots, some[i])


def known(ribbon: Ribbon, some: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which of them the filter takes for one of its own."""
    out = np.zeros(some.size, np.bool_)
    _known(ribbon.words.ctypes.data, ribbon.shards, ribbon.slots, some, out)
    return out


def ribbon_of(some: NDArray[np.uint64], pieces: int = 1) -> Ribbon:
    """Of ids in any order, that come in so many pieces."""
    maker = RibbonMaker(some.size)
    for piece in np.array_split(np.sort(some), pieces):
        maker.add(piece)
    return maker.finish()


@given(ids)
def test_every_id_is_known(some: np.ndarray) -> None:
    assert known(ribbon_of(some), some).all()
    assert known(ribbon_of(np.concatenate((some, some))), some).all()


@pytest.mark.parametrize("size", [1, 100, 16_384, 16_385, 600_000])
def test_few_others_are_taken_for_known(size: int) -> None:
    rng = np.random.default_rng(size)
    some, others = rng.integers(0, 1 << 64, size, dtype=np.uint64), rng.integers(0, 1 << 64, 400_000, dtype=np.uint64)
    ribbon = ribbon_of(some)
    assert known(ribbon, some).all()
    assert 0.003 < known(ribbon, others).mean() < 0.0046


def test_an_id_takes_less_than_nine_bits() -> None:
    for size in (1 << 18, 1 << 22, 1 << 30):
        words, shards, slots = shape_of(size)
        assert 64 * words < 8.9 * size
        assert shards * slots // 8 == words - 8  # a byte a slot


def test_no_ids_are_hardly_ever_known() -> None:
    rng = np.random.default_rng(0)
    assert known(RibbonMaker(0).finish(), rng.integers(0, 1 << 64, 100_000, dtype=np.uint64)).mean() < 0.006


def test_pieces_make_what_the_whole_makes() -> None:
    some = np.random.default_rng(3).integers(0, 1 << 64, 100_000, dtype=np.uint64)
    np.testing.assert_array_equal(ribbon_of(some).words, ribbon_of(some, 37).words)


def test_ids_that_are_no_hashes_are_known() -> None:
    for some in (
        np.arange(100_000, dtype=np.uint64),
        np.uint64((1 << 64) - 1) - np.arange(50_000, dtype=np.uint64),
        np.full(40_000, 7, np.uint64),
    ):
        assert known(ribbon_of(some), some).all()


def test_hashes_of_names_that_are_alike_fill_it_evenly() -> None:
    names = hash_strings([f"request-7/{i}" for i in range(200_000)])
    ribbon = ribbon_of(names[:100_000])
    assert known(ribbon, names[:100_000]).all()
    assert known(ribbon, names[100_000:]).mean() < 0.0046

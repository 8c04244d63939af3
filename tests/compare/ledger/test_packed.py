"""Packed sums against a dict of matrices, changed in place in any order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streameval.compare.ledger.packed import OBJECTS, PackedParts, PackedSums
from streameval.compare.ledger.parts import grown

ROWS, WIDTH = 3, 50
CELLS = st.tuples(st.integers(0, ROWS - 1), st.integers(0, WIDTH - 1), st.integers(-2, 2))
STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["add", "grow", "pop", "set"]), st.lists(CELLS, max_size=90))
)


@given(STEPS)
def test_they_are_those_of_a_dict(steps: list[tuple[int, str, list[tuple[int, int, int]]]]) -> None:
    packed, plain = PackedSums(), dict[int, NDArray[np.int64]]()
    for pane, what, cells in steps:
        for kept in (packed, plain):
            if what == "pop":
                kept.pop(pane, None)
            elif what == "set" or pane not in kept:
                kept[pane] = np.zeros((ROWS, WIDTH), np.int64)
            elif what == "grow":
                kept[pane] = grown(kept[pane], len(kept[pane]) + 1)
            for row, column, value in cells if pane in kept else ():
                kept[pane][row, column] += value
    assert packed.nbytes <= sum(matrix.nbytes for matrix in plain.values())
    assert list(packed) == list(plain)
    for pane, matrix in packed.items():
        np.testing.assert_array_equal(matrix, plain[pane], strict=True)


def test_a_matrix_without_many_zeros_is_kept_as_it_is() -> None:
    packed = PackedSums()
    full, half = np.ones((2, 80), np.int64), np.tile(np.array([0, 1]), (2, 40))
    packed[0], packed[1], packed[2] = full, half, np.zeros((2, 80), np.int64)
    packed[3] = np.zeros((0, 80), np.int64)
    assert packed.nbytes == full.nbytes + half.nbytes + OBJECTS
    assert packed[0] is full


def test_parts_are_packed_kind_by_kind() -> None:
    parts = PackedParts()
    for pane in range(10):
        a, b, c = (np.zeros((n, 90), np.int64) for n in (1, 2, 3))
        parts[pane] = a, b, c
        a[0, pane], b[1, pane], c[2, pane] = pane, -pane, 1
    cells = 8 + 8 + 9  # without the last pane, which is whole, and zeros of pane 0
    assert parts.nbytes == (1 + 2 + 3) * 90 * 8 + cells * 16 + 3 * 9 * OBJECTS
    for pane, (a, b, c) in parts.items():
        assert (a.shape, b.shape, c.shape) == ((1, 90), (2, 90), (3, 90))
        assert (a[0, pane], b[1, pane], c[2, pane], a.sum(), b.sum(), c.sum()) == (pane, -pane, 1, pane, -pane, 1)
    del parts[3]
    assert 3 not in parts
    assert len(parts) == 9

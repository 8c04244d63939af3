"""Sums by row against a plain table of them, whatever comes in which order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streameval.counting.row_sums import RowSums, now, summed
from streameval.sketches.sparse import SparseVector

ROWS = 7
VALUES = st.integers(-(1 << 61), 1 << 61)


def vector_of(cells: Mapping[int, int]) -> SparseVector:
    return SparseVector.of(np.array(sorted(cells), np.int64), np.array([cells[at] for at in sorted(cells)], np.int64))


@st.composite
def stories(draw: st.DrawFn) -> tuple[int, list[tuple[dict[int, int], int | str]]]:
    """Cells of a row, around the size of a block or two; and vectors with their signs, or what is set to 0."""
    row_cells = draw(st.sampled_from([1, 5, 31, 32, 33, 64, 70]))
    cells = st.integers(0, ROWS * row_cells - 1)
    added = st.tuples(st.dictionaries(cells, VALUES, max_size=60), st.sampled_from([1, -1]))
    cleared = st.tuples(st.just({}), st.sampled_from(["all", "row"]))
    return row_cells, draw(st.lists(added | cleared, max_size=12))


def check(sums: RowSums, plain: NDArray[np.int64]) -> None:
    for row in range(ROWS + 1):  # there is no last one
        expected = plain[row].tolist() if row < ROWS else [0] * sums.row_cells
        assert sums.row(row).tolist() == expected
    for cell in range(sums.row_cells):
        assert sums.column(cell).tolist() == plain[: sums.rows, cell].tolist()
    assert not plain[sums.rows :].any()
    assert sums.vector() == SparseVector.of_dense(plain.ravel())


@given(stories())
def test_they_are_those_of_a_plain_table(story: tuple[int, list[tuple[dict[int, int], int | str]]]) -> None:
    row_cells, steps = story
    sums, plain = RowSums(row_cells), np.zeros((ROWS, row_cells), np.int64)
    for cells, what in steps:
        if what == "all":
            sums.clear()
            plain[:] = 0
        elif what == "row":
            sums.clear_row(2)
            plain[2] = 0
        else:
            vector = vector_of(cells)
            sums.add(vector, int(what))
            vector.add_to(plain.ravel(), int(what))
        check(sums, plain)


@given(st.lists(st.dictionaries(st.integers(0, ROWS * 9 - 1), VALUES, max_size=20), max_size=6))
def test_a_row_has_changed_if_one_of_its_cells_was_named_since(parts: list[dict[int, int]]) -> None:
    sums = RowSums(9)
    sums.add(vector_of({ROWS * 9 - 1: 1}))
    since = now()
    for cells in parts:
        sums.add(vector_of(cells))
    named = {at // 9 for cells in parts for at, value in cells.items() if value}
    assert set(np.flatnonzero(sums.last > since).tolist()) == named
    assert not (sums.last > now()).any()
    since = now()
    sums.clear_row(3)
    assert np.flatnonzero(sums.last > since).tolist() == [3]
    sums.clear()
    assert (sums.last > since).all()


@pytest.mark.parametrize("seed", range(3))
def test_those_of_several_partitions_are_added_up(seed: int) -> None:
    luck, size = np.random.default_rng(seed), 40
    parts, plain = [RowSums(size) for _ in range(3)], np.zeros((ROWS, size), np.int64)
    for part, rows in zip(parts, (2, ROWS, 5), strict=True):
        dense = luck.integers(-3, 4, (rows, size)) * (luck.random((rows, size)) < 0.1)
        part.add(SparseVector.of_dense(dense.ravel()))
        plain[:rows] += dense
    for row in range(ROWS):
        assert summed(parts, row).tolist() == plain[row].tolist()
    rows = np.array([4, 6, 1, 1])  # rows of several, as those of one dimension's other values
    begin, end = np.array([0, 3, 3]), np.array([3, 4, 3])
    together = SparseVector.sum([part.gathered(rows, begin, end) for part in parts])
    expected = [plain[4] + plain[6] + plain[1], plain[1], np.zeros(size, np.int64)]
    assert together == SparseVector.of_dense(np.concatenate(expected))


def test_a_row_takes_what_is_in_it() -> None:
    """A version's 100 slices whose scores fill a hundredth of the bins take much less than all of their cells."""
    sums, row_cells = RowSums(12_000), 12_000
    for row in range(100):
        sums.add(vector_of({row * row_cells + at: 1 for at in range(3_000, 3_120)}))
    assert sums.vector().cells.size == 12_000
    assert sums.nbytes < 100 * row_cells * 8 / 20

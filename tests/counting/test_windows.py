"""Panes that came in many parts, and windows that slid over them, against plain sums."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.counting.windows import Panes
from streameval.sketches.sparse import SparseVector

CELLS, LENGTH = 50, 4


@pytest.mark.parametrize("seed", range(5))
def test_a_window_is_the_sum_of_its_panes_in_however_many_parts_they_came(seed: int) -> None:
    rng = np.random.default_rng(seed)
    panes = Panes(CELLS)
    window, plain = panes.window(LENGTH), np.zeros((20, CELLS), np.int64)
    for step in range(400):
        number = int(rng.integers(max(step // 20 - 3, 0), step // 20 + 1))
        dense = rng.integers(-2, 3, CELLS) * (rng.random(CELLS) < rng.choice([0.02, 0.9]))  # short ones, and long ones
        plain[number] += dense
        panes.add(number, SparseVector.of(np.arange(CELLS), dense))
        if rng.random() < 0.1:
            end = int(rng.integers(1, 21))
            found = window.move_to(end).row(0)
            assert found.tolist() == plain[max(end - LENGTH, 0) : end].sum(axis=0).tolist()
        if rng.random() < 0.02:
            panes.get(number)
    assert panes.total.row(0).tolist() == plain.sum(axis=0).tolist()
    for number in panes.numbers():
        assert panes.get(number) == SparseVector.of(np.arange(CELLS), plain[number])


def test_changed_panes_are_taken_once_and_all_can_be_marked_as_changed() -> None:
    panes = Panes(CELLS)
    for number in (3, 5, 8):
        panes.add(number, SparseVector.of(np.array([0]), np.array([1])))
    assert panes.take_changed(8) == {3, 5}
    assert panes.take_changed(8) == set()
    panes.add(5, SparseVector.of(np.array([0]), np.array([1])))
    panes.forget_before(4)
    assert panes.take_changed(9) == {5, 8}
    panes.all_changed()
    assert panes.take_changed(9) == {5, 8}


def test_cells_that_begin_later_leave_out_themselves_alone_and_only_before_they_begin() -> None:
    panes = Panes(5)
    panes.begin(3, range(1, 3))
    ones = SparseVector.of(np.arange(10), np.ones(10, np.int64))  # two rows
    for pane in (2, 3):
        panes.add(pane, ones)
    assert panes.get(2).cells.tolist() == [0, 3, 4, 5, 8, 9]
    assert panes.get(3) == ones
    assert [panes.total.row(row).tolist() for row in (0, 1)] == [[2, 1, 1, 2, 2]] * 2


def test_panes_that_the_history_lacks_count_as_lost_once_and_when_they_are_dropped() -> None:
    """Those being written counted, again at each look, and were written later."""
    panes = Panes(CELLS)

    def give_up(keep: int, most: int | None) -> int:
        panes.forget_before(panes.needed_from(keep, most))
        return panes.never_written

    for number in range(10):
        panes.add(number, SparseVector.of(np.array([0]), np.array([1])))
    assert panes.take_unwritten(6) == [0, 1, 2, 3, 4, 5]
    assert [give_up(8, None), len(panes), panes.due(8)] == [0, 10, 8]
    assert [give_up(8, 4), give_up(8, 4), len(panes)] == [0, 0, 6]  # the oldest are being written
    panes.written(True)
    assert [give_up(8, 4), panes.numbers(), panes.unwritten] == [0, [6, 7, 8, 9], 4]
    assert panes.take_unwritten(8) == [6, 7]
    panes.add(6, SparseVector.of(np.array([0]), np.array([1])))  # what is being written is not its last state
    assert [give_up(8, 0), give_up(8, 0), panes.numbers()] == [1, 1, [8, 9]]
    panes.written(False)
    assert [panes.never_written, panes.unwritten, panes.due(9)] == [2, 2, 1]

"""Panes in a checkpoint: few bytes, and the same panes again, also of a checkpoint that had them whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from streameval.counting.windows import Panes
from streameval.sketches.sparse import SparseVector

CELLS = 4000
PANES = (3, 4, 9, 700)


def panes() -> Panes:
    rng = np.random.default_rng(0)
    out = Panes(CELLS)
    for pane in PANES:
        for part in range(3):
            cells = np.sort(rng.choice(2 * CELLS, 500, replace=False))
            values = rng.integers(1, 40, 500)
            values[:3] = -(1 << 61), 1 << 61, -1  # sums in fixed point, and what was taken out
            out.add(pane, SparseVector(cells, -values if part == 1 else values))
    return out


def saved(some: Panes) -> dict[str, Any]:
    return some.state() | {"panes": some.state()["panes"]()}


def as_format_7(some: Panes) -> dict[str, Any]:
    vectors = [some.get(pane) for pane in PANES]
    whole = {
        "pane": np.array(PANES),
        "length": np.array([vector.cells.size for vector in vectors]),
        "cells": np.concatenate([vector.cells for vector in vectors]),
        "values": np.concatenate([vector.values for vector in vectors]),
    }
    return some.state() | {"panes": whole}


def test_panes_come_back_as_they_were() -> None:
    before = panes()
    for state in (saved(before), as_format_7(before)):
        again = Panes(CELLS)
        again.restore(state, None)
        assert again.numbers() == list(PANES)
        assert all(again.get(pane) == before.get(pane) for pane in PANES)
        assert again.total.vector() == before.total.vector()


def test_no_panes_come_back_as_none() -> None:
    again = Panes(CELLS)
    again.restore(saved(Panes(CELLS)), None)
    assert again.numbers() == []


def test_a_cell_in_use_takes_about_three_bytes() -> None:
    some = panes()
    packed = saved(some)["panes"]
    used = sum(some.get(pane).cells.size for pane in PANES)
    assert packed["steps"].nbytes + packed["narrowed"].nbytes < 3 * used  # 16 when they were written whole

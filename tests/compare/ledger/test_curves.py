"""The table of a stratum's labels against counting them one by one, and its curves against those at every part."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.compare.ledger.curves import LabelTable, curves_of, dense
from streameval.compare.ledger.placements import BINS, OUT, ScoreCodes, code_of, copied, read_code
from streameval.sketches.blocks import SCALE


def codes_of(label: NDArray[np.int64], parts: NDArray[np.int64]) -> ScoreCodes:
    """Of impressions: labels [n], parts of bins [2, n]."""
    some = zip(label.tolist(), *parts.tolist(), strict=True)
    return np.array([code_of(3, 64, i % 64, y, a, b) for i, (y, a, b) in enumerate(some)], np.uint64)


def drawn(seed: int, n: int = 3_000) -> ScoreCodes:
    """With ties, at both ends of the parts too."""
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < 0.2).astype(np.int64)
    parts = (rng.choice([0.0, 0.3, 0.31, 1.0, 2.0], (2, n)) * rng.random((2, n)) * 5_000).astype(np.int64)
    parts[:, :4] = [[0, BINS - 1, 7, 8], [BINS - 1, 0, 8, 7]]
    return codes_of(label, parts)


def one_by_one(codes: ScoreCodes, times: list[int], pair: bool) -> dict[tuple[int, int, int], int]:
    """Labels by side, label and part."""
    found: Counter[tuple[int, int, int]] = Counter()
    for code, many in zip(codes, times, strict=True):
        label, _, _, *parts = read_code(code)
        for side, part in enumerate(parts[: 1 + pair]):
            found[side, int(label), int(part)] += many
    return {cell: n for cell, n in found.items() if n}


@pytest.mark.parametrize("pair", [True, False])
def test_labels_are_those_of_every_score_and_curves_those_at_every_part(pair: bool) -> None:
    table = LabelTable()
    for seed in range(3):  # one after the other in the same table
        codes = drawn(seed)
        some = codes[:500]
        for piece in (codes[:1_000], codes[1_000:], some | OUT, codes[-300:] | copied(5)):
            table.add(piece, pair)
        labels, curve = table.take()
        cells = np.unravel_index(labels.cells, (2, 2, BINS))
        found = dict(zip(zip(*(axis.tolist() for axis in cells), strict=True), labels.values.tolist(), strict=True))
        whole = np.concatenate((codes, some, codes[-300:]))
        assert found == one_by_one(whole, [1] * codes.size + [-1] * 500 + [5] * 300, pair)
        assert (np.diff(labels.cells) > 0).all()
        everywhere = curves_of(labels)
        for code in whole:  # of those that were taken out again, too: they are placed once more
            label, _, _, *parts = read_code(code)
            for side, part in enumerate(parts[: 1 + pair]):
                assert curve[side, label, part] == everywhere[side, label, part]
    assert table.take()[0].cells.size == 0


def test_every_part_may_contain_scores_of_both_labels() -> None:
    parts = np.tile(np.arange(BINS), 2)
    codes, table = codes_of(np.repeat([0, 1], BINS), np.stack((parts, parts[::-1]))), LabelTable()
    for _ in range(2):  # the second time in a table that was full
        table.add(codes, pair=True)
        labels, curve = table.take()
        assert labels.cells.tolist() == list(range(4 * BINS))
        assert (labels.values == 1).all()
        assert (curve == curves_of(labels)).all()


def test_curves_are_shares_below_and_above() -> None:
    label = np.array([0, 0, 0, 1, 1, 0, 1])
    parts = np.array([[5, 9, 9, 9, 20, 21, 22], [5, 5, 5, 5, 5, 5, 5]])
    table = LabelTable()
    table.add(codes_of(label, parts), pair=True)
    curves = curves_of(table.take()[0]) / SCALE
    # a click above none, and half of those it ties with; of 4 non-clicks
    assert curves[0, 1, [0, 5, 9, 20, 22]] == pytest.approx([0.0, 0.125, 0.5, 0.75, 1.0], abs=1e-9)
    auc = (2 + 3 + 4) / 12
    assert curves[0, 0, [5, 9, 21, BINS - 1]] == pytest.approx(
        [1 - auc, (2 + 0.5) / 3 - auc, 1 / 3 - auc, -auc], abs=1e-9
    )
    assert curves[1, 1, 5] == 0.5
    assert curves[1, 0, 5] == 0.0
    assert dense(table.take()[0]).sum() == 0


@pytest.mark.parametrize(("clicked", "of_click", "of_other"), [(1, 0.5, 0.0), (0, 0.5, 0.0)])
def test_labels_of_one_kind_tell_nothing(clicked: int, of_click: float, of_other: float) -> None:
    table = LabelTable()
    table.add(codes_of(np.full(4, clicked), np.array([[1, 2, 2, 3]] * 2)), pair=False)
    curve = table.take()[1] / SCALE
    assert set(curve[0, clicked, [1, 2, 3]].tolist()) <= {of_click, of_other}

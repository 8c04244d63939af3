"""Partial AUC by placements against the area of the histogram, scikit-learn, and what one more impression does to it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from streameval.compare.evidence.partial import PartialAuc
from streameval.compare.ledger.curves import LabelTable, dense
from streameval.compare.ledger.partial import (
    P_ITEMS,
    P_N,
    P_PHI0,
    P_PHI1,
    P_SERVER0,
    P_SERVER1,
    P_USERS,
    P_Y,
    PAUC_CELLS,
    partial_curves,
    pauc_piece,
)
from streameval.compare.ledger.placements import BINS, OUT, code_of
from streameval.metrics.auc import partial_area, standardised
from streameval.sketches.blocks import BLOCKS, NO_ITEM, SCALE

RANGES = ((0.0, 0.1), (0.0, 1.0), (0.05, 0.3), (0.3, 0.31), (0.9, 1.0))


def drawn(seed: int, n: int = 4_000, bins: int = 60) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(bins [2, n] of two versions, with many ties; labels)."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=n)
    label = (rng.random(n) < 1 / (1 + np.exp(2.0 - truth))).astype(np.int64)
    scores = truth + rng.normal(0.0, 0.7, (2, n))
    return (np.clip(scores + 4.0, 0.0, 7.99) * bins / 8.0).astype(np.int64) + 700, label


def labels_of(bins: NDArray[np.int64], label: NDArray[np.int64]) -> NDArray[np.int64]:
    out = np.zeros((2, 2, BINS), np.int64)
    for side in range(2):
        np.add.at(out[side], (label, bins[side]), 1)
    return out


def piece_of(bins: NDArray[np.int64], label: NDArray[np.int64], limits: tuple[float, float]) -> NDArray[np.int64]:
    piece = pauc_piece(*limits)
    rng = np.random.default_rng(1)
    users, items = rng.integers(0, BLOCKS, label.size), rng.integers(0, NO_ITEM + 1, label.size)
    codes = np.array(
        [code_of(0, i, u, y, a, b) for i, u, y, a, b in zip(items, users, label, *bins, strict=True)], np.uint64
    )
    table = LabelTable()
    table.add(codes, pair=True)
    labels = dense(table.take()[0])
    assert np.array_equal(labels, labels_of(bins, label))
    assert piece.curves is not None
    assert piece.place is not None
    out = np.zeros(piece.width, np.int64)
    piece.place(codes, piece.curves(labels), out, 0)
    back = out.copy()
    piece.place(codes | OUT, piece.curves(labels), back, 0)
    assert not back.any()
    return out


@pytest.mark.parametrize("limits", RANGES)
def test_a_stratum_is_its_partial_area_and_the_difference_is_that_of_two(limits: tuple[float, float]) -> None:
    bins, label = drawn(2)
    labels, piece, read = labels_of(bins, label), piece_of(bins, label, limits), PartialAuc(*limits)
    areas = [partial_area(*labels[side], *limits) for side in range(2)]
    expected = [standardised(area[0], *limits) for area in areas if area is not None]
    assert read.levels(piece) == pytest.approx(expected, abs=1e-6)
    assert float(read.statistic(piece).theta) == pytest.approx(expected[0] - expected[1], abs=1e-6)
    turned = read.turned(piece)
    assert read.levels(turned) == pytest.approx(expected[::-1], abs=1e-6)
    assert np.array_equal(read.turned(turned), piece)
    users = piece[P_USERS : BLOCKS * PAUC_CELLS].reshape(BLOCKS, PAUC_CELLS).sum(axis=0)
    assert users[P_N] == label.size
    assert abs(users[P_PHI0]) < label.size  # centred, to the last bit of each
    assert users[P_PHI1]


def test_from_0_on_it_is_that_of_scikit_learn() -> None:
    bins, label = drawn(3)
    read = PartialAuc(0.0, 0.1)
    judged = [roc_auc_score(label, bins[side], max_fpr=0.1) for side in range(2)]
    assert read.levels(piece_of(bins, label, (0.0, 0.1))) == pytest.approx(judged, abs=1e-6)


@pytest.mark.parametrize("limits", RANGES)
def test_equal_scores_differ_by_0_to_the_bit(limits: tuple[float, float]) -> None:
    bins, label = drawn(4, 800)
    bins[1] = bins[0]
    piece = piece_of(bins, label, limits)
    cells = piece[: 2 * BLOCKS * PAUC_CELLS].reshape(-1, PAUC_CELLS)
    assert not cells[:, [P_PHI1, P_PHI0]].any()
    found = PartialAuc(*limits).statistic(piece)
    assert (float(found.theta), float(found.variance())) == (0.0, 0.0)


@pytest.mark.parametrize("limits", RANGES[:3])
def test_an_impression_changes_the_area_by_its_term(limits: tuple[float, float]) -> None:
    """The derivative: what the area gains by one impression more is its worth less the mean, over how many there are."""
    bins, label = drawn(5, 20_000, 400)
    labels = labels_of(bins, label)
    curve = partial_curves(labels, *limits)[0] / SCALE
    whole = partial_area(*labels[0], *limits)
    assert whole is not None
    counts = labels[0].sum(axis=1)
    mean = np.array([(curve[y] * labels[0, y]).sum() / counts[y] for y in range(2)])
    for y in range(2):
        for b in np.unique(bins[0])[::9].tolist():
            more = labels[0].copy()
            more[y, b] += 1
            area = partial_area(*more, *limits)
            assert area is not None
            assert (area[0] - whole[0]) * counts[y] == pytest.approx(curve[y, b] - mean[y], abs=6e-3)


def test_where_a_label_is_missing_nothing_is_told() -> None:
    bins, label = drawn(6, 300)
    for only in (0, 1):
        piece = piece_of(bins, np.full_like(label, only), (0.0, 0.2))
        read = PartialAuc(0.0, 0.2)
        assert read.levels(piece) == (None, None)
        assert read.reason(piece) == "too_few_clicks"


def test_a_level_is_the_mean_of_the_clicks_and_that_of_the_non_clicks() -> None:
    read = PartialAuc(0.0, 1.0)
    piece = np.zeros(P_SERVER0 + 1, np.int64)
    piece[P_USERS + P_N], piece[P_USERS + P_Y] = 10, 4
    piece[P_SERVER1], piece[P_SERVER0] = int(4 * 0.6 * SCALE), int(6 * 0.1 * SCALE)
    piece[P_USERS + P_PHI1], piece[P_USERS + P_PHI0] = int(4 * 0.06 * SCALE), int(6 * 0.04 * SCALE)
    assert read.levels(piece) == pytest.approx((0.7, 0.8), abs=1e-6)


def test_errors_are_clustered_by_item_where_nine_in_ten_impressions_have_one() -> None:
    bins, label = drawn(5)
    read, piece = PartialAuc(0.0, 0.3), piece_of(bins, label, (0.0, 0.3))

    def error(items: int) -> float:
        """With the sums of so many groups of items."""
        some = piece.copy()
        some[P_ITEMS + items * PAUC_CELLS : P_ITEMS + BLOCKS * PAUC_CELLS] = 0
        return float(read.statistic(some).v_clu)

    assert error(BLOCKS) != error(0)
    assert error(BLOCKS * 3 // 4) == error(0)

"""Placements of scores, which are summed many at a time, against adding them one by one in Python."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.compare.ledger.placements import (
    APART,
    BINS,
    ITEMS,
    OUT,
    SCALARS,
    WIDTH,
    ScoreCodes,
    code_of,
    copied,
    place,
)
from streameval.sketches import blocks
from streameval.sketches.blocks import NO_ITEM, PAIR_CELLS, SCALE


def drawn(seed: int, n: int) -> tuple[ScoreCodes, list[int]]:
    """Codes with and without items; some apart, some removed again, some that count more than once; and how often each counts."""
    rng = np.random.default_rng(seed)
    label, user, item = rng.integers(0, 2, n), rng.integers(0, 64, n), rng.integers(0, NO_ITEM + 1, n)
    parts, copies = rng.integers(0, BINS, (2, n)), rng.choice([1, 7], n)
    columns = zip(item.tolist(), user.tolist(), label.tolist(), *parts.tolist(), strict=True)
    codes = np.array([code_of(3, *one) for one in columns], np.uint64)
    codes |= np.array([copied(many) for many in copies.tolist()], np.uint64)
    apart, removed = rng.random((2, n)) < 0.3
    codes[apart] |= APART
    codes[removed] |= OUT
    return codes, np.where(removed, -copies, copies).tolist()


def one_by_one(codes: ScoreCodes, times: list[int], pair: bool, curves: NDArray[np.int32], width: int) -> list[int]:
    out = [0] * width
    for code, many in zip(codes.tolist(), times, strict=True):
        label, user, item = code >> 22 & 1, code >> 23 & 63, code >> 29 & 127
        server_part, other_part = (code >> 11 & 2047) << 3 | code >> 55 & 7, (code & 2047) << 3 | code >> 58 & 7
        server = placement = int(curves[0, label, server_part])
        if pair:
            placement = int(curves[1, label, other_part]) - server
        square = round((placement / SCALE) ** 2 * SCALE)
        for first in (0, WIDTH) if pair and width >= 2 * WIDTH and code >> 62 & 1 else (0,):
            out[first + user * PAIR_CELLS + blocks.PHI0 - label] += many * placement
            if item != NO_ITEM:
                out[first + ITEMS + item * PAIR_CELLS + blocks.PHI0 - label] += many * placement
            out[first + SCALARS + (blocks.PAIR_PHI0_SQ if pair else blocks.PHI0_SQ) - label] += many * square
            if pair:
                out[first + SCALARS + blocks.SERVER_PHI0 - label] += many * server
    return out


@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 1_000])
@pytest.mark.parametrize(("pair", "width"), [(False, WIDTH), (True, WIDTH), (False, 2 * WIDTH), (True, 2 * WIDTH)])
def test_sums_are_those_of_every_score(n: int, pair: bool, width: int) -> None:
    codes, times = drawn(n, n)
    curves = np.random.default_rng(1).integers(-(1 << 30), 1 << 30, (2, 2, BINS)).astype(np.int32)
    row = np.zeros(width, np.int64)
    place(codes, pair, curves, row)
    assert row.tolist() == one_by_one(codes, times, pair, curves, width)

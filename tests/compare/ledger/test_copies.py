"""Impressions that count as several in comparisons: sums as of so many impressions, evidence as of those that there are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.compare.evidence import paired, split
from streameval.compare.ledger.gauc_rows import Gathered, GaucRows
from streameval.compare.ledger.numbering import PAIRS
from streameval.compare.ledger.sums import ITEMS, PART_D_SQ, SCALARS, WIDTH
from streameval.compare.ledger.user_aucs import Groups, UserScores
from streameval.join.scores import split_scored
from streameval.sketches import blocks
from streameval.sketches.blocks import BLOCKS, PAIR_CELLS, BlockSums
from streameval.sketches.copies import Copies
from tests.compare.ledger.test_ledger import Counting, Traffic

N = 3_000
LINEAR = [i for i in range(WIDTH) if i < SCALARS or i >= ITEMS]


def counted(traffic: Traffic, copies: NDArray[np.int64] | None, rows: NDArray[np.int64] | None = None) -> Counting:
    counting = Counting()
    labelled, scored = traffic.part(np.arange(N) if rows is None else rows)
    if copies is not None:
        labelled = replace(labelled, copies=Copies(copies, copies))
    counting.observe(labelled, scored)
    counting.look(1 << 40, over=True)
    return counting


def rows_of(counting: Counting) -> dict[Any, NDArray[np.int64]]:
    out: dict[Any, NDArray[np.int64]] = {}
    for _, by_key in counting.ledger.segments():
        for key, row in by_key.items():
            out[key] = out.get(key, np.zeros_like(row)) + row
    return out


def block_sums(row: NDArray[np.int64]) -> BlockSums:
    return BlockSums(row[:SCALARS].reshape(BLOCKS, PAIR_CELLS), row[SCALARS:ITEMS])


def test_sums_are_those_of_as_many_impressions_placements_too() -> None:
    traffic, many = Traffic(N, 3), np.random.default_rng(1).integers(1, 5, N)
    weighed = rows_of(counted(traffic, many))
    plain = rows_of(counted(traffic, None, np.repeat(np.arange(N), many)))
    assert weighed.keys() == plain.keys()
    assert len(weighed) > 4
    for key, row in weighed.items():
        assert row[LINEAR].tolist() == plain[key][LINEAR].tolist()


def test_squares_are_of_weights() -> None:
    traffic, many = Traffic(N, 4), np.random.default_rng(2).integers(1, 5, N)
    weighed, plain = counted(traffic, many), counted(traffic, None)
    seven = rows_of(counted(traffic, np.full(N, 7)))
    for key, row in rows_of(plain).items():
        scalars, times = row[SCALARS:ITEMS], seven[key][SCALARS:ITEMS]
        if key[1] >= 0:
            assert times[blocks.D_SQ] == 49 * scalars[blocks.D_SQ]
            assert times[blocks.D_PROMISED] == 7 * scalars[blocks.D_PROMISED]
            clicks = int(block_sums(row).blocks[:, blocks.PAIR_Y].sum())
            assert times[blocks.PAIR_CLICKS_EXCESS] == 42 * clicks
        else:
            assert times[blocks.LOSS_SQ] == 49 * scalars[blocks.LOSS_SQ]
            assert times[blocks.LOSS_Y] == 49 * scalars[blocks.LOSS_Y]
            clicks = int(block_sums(row).blocks[:, blocks.Y].sum())
            assert times[blocks.CLICKS_EXCESS] == 42 * clicks
    parts = [{k: v[PART_D_SQ] for k, v in c.ledger.parts.totals(PAIRS, 0).items()} for c in (weighed, plain)]
    assert all(parts[0][k] >= v for k, v in parts[1].items())
    assert parts[0] != parts[1]


@pytest.mark.parametrize("weight", [1, 20, 1_000])
def test_a_weight_that_all_have_makes_nothing_surer(weight: int) -> None:
    traffic = Traffic(N, 5)
    plain, weighed = rows_of(counted(traffic, None)), rows_of(counted(traffic, np.full(N, weight)))
    for key, row in plain.items():
        if key[1] < 0:
            continue
        a, b = block_sums(row), block_sums(weighed[key])
        assert paired.clicks(b, weighed=True) == paired.clicks(a)
        assert paired.clicks(b) == weight * paired.clicks(a)
        before, after = paired.statistics(a), paired.statistics(b, weighed=True)
        for name in ("log_loss", "auc", paired.MID, paired.GAP):
            assert after[name].theta == pytest.approx(before[name].theta, rel=1e-6, abs=1e-9)
            assert after[name].v_clu == pytest.approx(before[name].v_clu, rel=1e-5)
            assert after[name].v_iid >= 0.999 * before[name].v_iid
            assert after[name].df == pytest.approx(before[name].df)
    served = [np.stack([rows[0, -1], rows[1, -1]]) for rows in (plain, weighed)]
    arms = [rows[:, :SCALARS].reshape(2, BLOCKS, PAIR_CELLS) for rows in served]
    spreads = [split.spread(users, rows[:, SCALARS:ITEMS]) for users, rows in zip(arms, served, strict=True)]
    found = [
        split.statistics(split.strata(*users), spread) for users, spread in zip(arms, spreads, strict=True)
    ]  # fmt: skip
    for name in ("log_loss", "auc", paired.MID):
        assert found[1][name].variance() >= 0.999 * found[0][name].variance()
        assert found[1][name].theta == pytest.approx(float(found[0][name].theta), rel=1e-6, abs=1e-9)


def test_a_sampled_log_is_no_more_certain_than_the_full_one() -> None:
    """One non-click in 20 is kept, and counts as 20: no variance is below that of the whole log, and clicks count once."""
    traffic = Traffic(N, 6)
    kept = np.flatnonzero((traffic.label == 1) | (np.random.default_rng(3).random(N) < 0.05))
    weighed = rows_of(counted(traffic, np.where(traffic.label[kept] == 1, 1, 20), kept))
    for key, row in rows_of(counted(traffic, None)).items():
        if key[1] >= 0:
            a, b = block_sums(row), block_sums(weighed[key])
            before, after = paired.statistics(a), paired.statistics(b, weighed=True)
            assert paired.clicks(b, weighed=True) == paired.clicks(a)
            assert after["log_loss"].v_iid > before["log_loss"].v_iid
            assert after["auc"].v_iid > 0.98 * before["auc"].v_iid
            assert b.blocks[:, blocks.PAIR_N].sum() == pytest.approx(a.blocks[:, blocks.PAIR_N].sum(), rel=0.3)


def test_gauc_rows_are_those_of_as_many_impressions() -> None:
    traffic, many = Traffic(N, 7), np.random.default_rng(4).integers(1, 5, N)
    sums = []
    for rows, copies in ((np.arange(N), many), (np.repeat(np.arange(N), many), None)):
        labelled, scored = traffic.part(rows)
        users, of = np.unique(labelled.user, return_inverse=True)
        window, block = np.zeros(users.size, np.int32), (np.arange(users.size) % 64).astype(np.int8)
        groups = Groups(window, block, of.astype(np.int32), labelled.label, *([] if copies is None else [copies]))
        gauc = GaucRows(1 << 60, 0, 0)
        scores = UserScores()
        scores.add(groups, *split_scored(scored, rows.size))
        gauc.compute(Gathered(0, np.zeros(1, np.int64), groups, scores))
        sums.append(dict(gauc.take(1 << 60)[0][1]))
    assert sums[0].keys() == sums[1].keys()
    for key, row in sums[0].items():
        assert np.abs(row - sums[1][key]).max() <= len(np.unique(traffic.user))  # rounded in another order
        assert row[0] > 0

"""Requests that versions served, against a loop over impressions; and their means as two arms' difference."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.compare.ledger import request_rows as rows_of_requests
from streameval.compare.ledger.pieces import PieceScores
from streameval.compare.ledger.request_rows import (
    Y_CLICKS,
    Y_ITEMS,
    Y_REQUESTS,
    Y_SQUARES,
    YIELD_CELLS,
    RequestColumns,
    request_rows,
)
from streameval.compare.ledger.row_shape import shape_of
from streameval.compare.ledger.sums import WIDTH, LedgerLabels, LedgerScores
from streameval.compare.ledger.values import VALUE, value_piece
from streameval.compare.ledger.window_choice import LiveRows, Wanted
from streameval.compare.tracking.further_sums import further_sums
from streameval.join.policy import CLICKED, CORRECTED, LATE, MATURED
from streameval.sketches.blocks import BLOCKS, NO_ITEM, SCALE, blocks_of

WINDOW = 1_000


class Live:
    """n rows of requests of one to nine impressions, some late, corrected, not mature, without a request or nobody's."""

    def __init__(self, n: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.ts = np.sort(rng.integers(0, 6 * WINDOW, n))
        of = rng.integers(1, n // 4, n)
        self.user = (of % 40 + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        self.request = np.where(rng.random(n) < 0.1, 0, of).astype(np.uint64)
        clicked = rng.random(n) < 0.3
        self.state = np.where(rng.random(n) < 0.95, MATURED, 0) | np.where(clicked, CLICKED, 0)
        self.state |= np.where(rng.random(n) < 0.1, LATE, 0) | np.where(clicked & (rng.random(n) < 0.1), CORRECTED, 0)
        self.series = rng.integers(0, 3, n).astype(np.int32)
        self.pclick = np.where(rng.random(n) < 0.1, np.nan, 0.5)
        self.item = rng.integers(0, NO_ITEM + 1, n).astype(np.int8)

    def rows(self, due: list[int], late: int) -> dict[int, dict[tuple[int, int], NDArray[np.int64]]]:
        known = LiveRows(self.ts, self.user, self.state.astype(np.uint8), np.array([[0, self.ts.size]]))
        columns = RequestColumns(self.request, self.series, self.pclick, self.item)
        return request_rows(known, columns, Wanted.of(WINDOW, due, late), due)[0]


@pytest.mark.parametrize("late", [0, 1])
def test_rows_are_those_of_a_loop(late: int) -> None:
    live, due = Live(3_000, 1), [1, 2, 4]
    lists: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for i in range(live.ts.size):
        state, window = live.state[i], int(live.ts[i]) // WINDOW
        counts = state & MATURED and (late or not state & LATE) and live.request[i] and not np.isnan(live.pclick[i])
        if window in due and counts:
            lists[window, int(live.series[i]), int(live.request[i])].append(i)

    def clicked(i: int) -> bool:
        return bool(live.state[i] & CLICKED) and (bool(late) or not live.state[i] & (CORRECTED | LATE))

    found = live.rows(due, late)
    assert sorted(found) == due
    block = blocks_of(live.user)
    without = 0
    for window in due:
        for series in range(3):
            mine = {key: rows for key, rows in lists.items() if key[:2] == (window, series)}
            row = found[window][series, -1]
            users, items = (
                row[:Y_ITEMS].reshape(BLOCKS, YIELD_CELLS),
                row[Y_ITEMS:Y_SQUARES].reshape(BLOCKS, YIELD_CELLS),
            )
            expected, named = np.zeros((BLOCKS, 2)), np.zeros((BLOCKS, 2))
            for some in mine.values():
                clicks = sum(map(clicked, some))
                without += not clicks
                expected[block[some[0]]] += (clicks, 1)
                for i in some:
                    if live.item[i] != NO_ITEM:
                        named[live.item[i]] += (clicked(i), 1 / len(some))
            assert users.tolist() == expected.tolist()
            assert items[:, Y_CLICKS].tolist() == named[:, 0].tolist()
            assert items[:, Y_REQUESTS] / SCALE == pytest.approx(named[:, 1], abs=1e-6)
            assert row[Y_SQUARES] == sum(sum(map(clicked, some)) ** 2 for some in mine.values())
    assert without > 100


def test_beyond_the_most_users_are_sampled_with_all_their_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    live = Live(3_000, 2)
    whole = live.rows([0, 1], 1)
    monkeypatch.setattr(rows_of_requests, "MOST_CHOSEN", 400)
    fewer = live.rows([0, 1], 1)
    some = 0
    for window, by_key in fewer.items():
        for key, row in by_key.items():
            kept = row[:Y_ITEMS].reshape(BLOCKS, YIELD_CELLS)[:, Y_REQUESTS]
            every = whole[window][key][:Y_ITEMS].reshape(BLOCKS, YIELD_CELLS)[:, Y_REQUESTS]
            assert (kept <= every).all()
            some += int(kept.sum() < every.sum())
    assert some


def test_two_arms_differ_by_their_clicks_a_request() -> None:
    live = Live(6_000, 3)
    sums = further_sums("click_yield", shape_of(["click_yield"], 1e-4))
    assert sums.reason() == "no_requests"
    total = np.zeros((2, 2))
    for window, by_key in live.rows([1], 1).items():
        for arm in range(2):
            row = by_key[arm, -1]
            sums.add_window(window, bool(arm), row)
            total[arm] = row[:Y_ITEMS].reshape(BLOCKS, YIELD_CELLS).sum(axis=0)
    old, new = total[:, 0] / total[:, 1]
    assert sums.levels() == pytest.approx((old, new))
    assert float(sums.statistic().theta[0, 0]) == pytest.approx(1.0 - new / old)


def test_a_metric_with_little_evidence_decides_nothing() -> None:
    """200 effective clicks in both arms: one that is worth as much as all others is not a sample."""
    shape = shape_of([VALUE], 1e-4)
    rng = np.random.default_rng(4)
    for heavy in (False, True):
        sums = further_sums(VALUE, shape)
        assert sums.reason() == "too_few_clicks"
        for arm in range(2):
            value = np.exp(rng.normal(0.0, 0.5, 1_000))
            value[0] = value.sum() if heavy else 1.0
            sums.add(0, bool(arm), _served(value, rng))
        assert sums.reason() == ("too_few_effective_samples" if heavy else None)
        found = sums.statistic()
        assert np.isfinite(found.theta[0, 0])
        assert (found.df[0, 0] > 0.0) == (not heavy)


def _served(value: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    n, i, nothing = value.size, np.arange(value.size, dtype=np.int32), np.zeros(value.size)
    scores = LedgerScores(i, np.zeros(n, np.int32), nothing, nothing, np.zeros(n, np.int16), i)
    block = rng.integers(0, BLOCKS, n).astype(np.int8)
    labels = LedgerLabels(
        np.ones(n, np.int8),
        block,
        np.full(n, NO_ITEM, np.int8),
        np.zeros((n, 0), np.int32),
        np.zeros(n, np.bool_),
        np.zeros(n, np.int16),
        np.ones(n, np.int64),
        False,
    )
    piece = value_piece()
    out = np.zeros((1, WIDTH + piece.width), np.int64)
    assert piece.add is not None
    piece.add(PieceScores(0, n, scores, labels, np.array([[0]], np.int32), {"value": value}, 1), out, WIDTH)
    return out[0]

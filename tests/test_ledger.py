"""The ledger of comparisons against a slow, obvious twin; its laws: order, batches, retraction, restart."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from streameval.columns import Scored
from streameval.counting import ledger, references
from streameval.counting.ledger import LEVELS, PAIRS, SERVED, Ledger
from streameval.counting.ledger_sums import (
    LEVEL_N,
    LEVEL_P,
    LEVEL_Y,
    PART_D,
    PART_D_SQ,
    PART_N,
    PART_Y,
    SCALARS,
    SERVED_L,
    SERVED_N,
    SERVED_Y,
)
from streameval.counting.references import References
from streameval.counting.scoreboard import Labelled, Scoreboard, SliceRows
from streameval.events import Catalog
from streameval.sketches import blocks
from streameval.sketches.blocks import BLOCKS, PHI0, PHI1, SCALE, D, N, Y, blocks_of

BASE = 1_700_000_040_000
PANE, HORIZON, EDGES = 60_000, 3_600_000, (0.05, 0.2)
CATALOG = Catalog(("country",), 5)
for name in ("v1", "v2", "v3"):
    CATALOG.series_code("m", name)


class Traffic:
    """n impressions: served by v1 or v2, some with shadow scores of the other versions."""

    def __init__(self, n: int, seed: int, gap: int = 1_000) -> None:
        rng = np.random.default_rng(seed)
        self.ts = BASE + np.sort(rng.integers(0, n * gap, n))
        self.user = rng.integers(1, 2**62, max(n // 3, 1)).astype(np.uint64)[rng.integers(0, max(n // 3, 1), n)]
        self.label = (rng.random(n) < 0.3).astype(np.int8)
        self.country = rng.integers(0, 4, n)
        self.series = rng.integers(0, 2, n).astype(np.int32)
        self.p = rng.uniform(0.01, 0.6, (n, 3))
        self.shadow = rng.random((n, 3)) < 0.7
        self.shadow[np.arange(n), self.series] = True

    def part(
        self, rows: NDArray[np.int64], label: NDArray[np.int8] | None = None, fresh: bool = True
    ) -> tuple[Labelled, Scored]:
        n = rows.size
        labels = self.label[rows] if label is None else label
        labelled = Labelled(
            self.ts[rows],
            self.user[rows],
            self.country[rows],
            labels,
            np.zeros(n, np.bool_),
            None,
            np.full(n, fresh),
        )
        index = np.arange(n, dtype=np.int32)
        parts = [(index, self.series[rows], self.p[rows, self.series[rows]])]
        for other in range(3):
            on = self.shadow[rows, other] & (self.series[rows] != other)
            parts.append((index[on], np.full(int(on.sum()), other, np.int32), self.p[rows[on], other]))
        bounds = tuple(np.cumsum([0, *(row.size for row, _, _ in parts)]).tolist())
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return labelled, Scored(bounds, *columns, np.zeros(columns[0].size, np.bool_))


class Counting:
    """A scoreboard and its ledger, as a monitor has them."""

    def __init__(self) -> None:
        self.board = Scoreboard(SliceRows(CATALOG), 1, EDGES, PANE, [], "impressions", 1 << 30, HORIZON)
        self.ledger = Ledger(self.board.references, PANE, HORIZON, CATALOG.radix, 1, EDGES)

    def observe(self, labelled: Labelled, scored: Scored, sign: int = 1) -> None:
        self.board.observe(labelled, scored, sign)
        self.ledger.observe(labelled, scored, sign)

    def content(self, end: int = 1 << 40) -> dict[str, Any]:
        self.ledger.advance(end)
        segments = {
            (number, key): sums.tolist() for number, by_key in self.ledger.segments() for key, sums in by_key.items()
        }
        parts = {
            (kind, *key): sums.tolist()
            for kind in (PAIRS, SERVED, LEVELS)
            for key, sums in self.ledger.parts(kind, 0).items()
            if sums.any()
        }
        return {"segments": segments, "parts": parts}


def counted(traffic: Traffic, cuts: list[int]) -> Counting:
    counting = Counting()
    for rows in np.split(np.arange(traffic.ts.size), sorted(cuts)):
        if rows.size:
            counting.observe(*traffic.part(rows))
    return counting


@pytest.fixture(autouse=True)
def few_labels_make_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "PROMISED", 20)
    monkeypatch.setattr(references, "ENOUGH", (10, 40))


def with_curves() -> Counting:
    """A counting that has curves from the first impression on, if bad ones."""
    counting = Counting()
    counting.board.references.reserve(3)
    (curves,) = counting.board.references._curves
    curves.ready[:] = True
    return counting


def loss(p: float, label: int) -> float:
    return -math.log(p if label else 1 - p)


def test_sums_are_those_of_a_loop_over_impressions() -> None:
    traffic = Traffic(3_000, 0)
    counting = with_curves()
    for rows in np.split(np.arange(3_000), [500, 501, 1200]):
        counting.observe(*traffic.part(rows))
    content = counting.content()["segments"]
    block = blocks_of(traffic.user).astype(int)
    served = {key[1][0]: np.zeros(SCALARS) for key in content if key[1][1] < 0}
    pairs = {key[1]: np.zeros((BLOCKS, 3)) for key in content if key[1][1] >= 0}
    assert set(served) == {0, 1}
    assert set(pairs) == {(0, 1), (0, 2), (1, 0), (1, 2)}
    for i in range(traffic.ts.size):
        a, label = int(traffic.series[i]), int(traffic.label[i])
        mine = loss(traffic.p[i, a], label)
        at = block[i] * 8
        served[a][at + N] += 1
        served[a][at + Y] += label
        served[a][at + blocks.L] += mine
        served[a][at + blocks.P] += traffic.p[i, a]
        for b in range(3):
            if b != a and traffic.shadow[i, b]:
                pairs[a, b][block[i]] += (1, label, loss(traffic.p[i, b], label) - mine)
    for a, expected in served.items():
        found = sum(np.array(sums) for key, sums in content.items() if key[1] == (a, -1))
        for cell in (N, Y):
            assert np.array_equal(found[cell:SCALARS:8], expected[cell::8])
        for cell in (blocks.L, blocks.P):
            assert found[cell:SCALARS:8] / SCALE == pytest.approx(expected[cell::8], abs=1e-6)
    for key, expected in pairs.items():
        found = sum(np.array(sums) for (_, row), sums in content.items() if row == key)
        assert np.array_equal(found[0:SCALARS:8], expected[:, 0])
        assert np.array_equal(found[1:SCALARS:8], expected[:, 1])
        assert found[D:SCALARS:8] / SCALE == pytest.approx(expected[:, 2], abs=1e-6)


def test_parts_add_up_to_the_whole() -> None:
    counting = counted(Traffic(2_000, 1), [])
    content = counting.content()
    pairs, served, levels = (counting.ledger.parts(kind, 0) for kind in (PAIRS, SERVED, LEVELS))
    for dimension in (0, 1):
        whole = sum(np.array(s) for (_, key), s in content["segments"].items() if key == (0, 1))
        some = [sums for key, sums in pairs.items() if key[:3] == (0, 1, dimension)]
        total = np.sum(some, axis=0)
        assert len(some) >= 3
        assert total[PART_N : PART_N + BLOCKS].tolist() == whole[0:SCALARS:8].tolist()
        assert total[PART_D : PART_D + BLOCKS].tolist() == whole[D:SCALARS:8].tolist()
        assert (total[PART_Y], total[PART_D_SQ]) == (whole[1:SCALARS:8].sum(), whole[SCALARS + blocks.D_SQ])
        alone = sum(np.array(s) for (_, key), s in content["segments"].items() if key == (1, -1))
        total = np.sum([sums for key, sums in served.items() if key[:3] == (1, -1, dimension)], axis=0)
        assert total[SERVED_N] == alone[N:SCALARS:8].sum()
        assert total[SERVED_Y] == alone[Y:SCALARS:8].sum()
        assert total[SERVED_L] == alone[blocks.L : SCALARS : 8].sum()
    assert {key[2] for key in levels} == {1}
    assert {key[3] for key in levels} == {0, 1, 2}
    alone = sum(np.array(s) for (_, key), s in content["segments"].items() if key == (1, -1))
    total = np.sum([sums for key, sums in levels.items() if key[:2] == (1, -1)], axis=0)
    for first, cell in ((LEVEL_N, N), (LEVEL_Y, Y), (LEVEL_P, blocks.P)):
        assert total[first : first + BLOCKS].tolist() == alone[cell:SCALARS:8].tolist()


def test_levels_are_what_a_version_served_by_bucket_of_its_own_pclick() -> None:
    traffic = Traffic(2_000, 6)
    counting = with_curves()
    counting.observe(*traffic.part(np.arange(2_000)))
    counting.ledger.advance(1 << 40)
    block = blocks_of(traffic.user)
    own = traffic.p[np.arange(2_000), traffic.series]
    for version in (0, 1):
        values, by_segment = counting.ledger.levels(version, 0, 1 << 40)
        assert sorted(values) == [(1, 0), (1, 1), (1, 2)]
        found = np.sum(list(by_segment.values()), axis=0)
        for (_, bucket), sums in zip(values, found, strict=True):
            on = (traffic.series == version) & (np.searchsorted(EDGES, own, side="right") == bucket)
            count = np.bincount(block[on], minlength=BLOCKS)
            clicks = np.bincount(block[on], traffic.label[on], minlength=BLOCKS)
            assert sums[LEVEL_N:LEVEL_Y].tolist() == count.tolist()
            assert sums[LEVEL_Y:LEVEL_P].tolist() == clicks.tolist()
            assert sums[LEVEL_P:] / SCALE == pytest.approx(np.bincount(block[on], own[on], minlength=BLOCKS), abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 99), st.lists(st.integers(0, 400), max_size=6))
def test_batches_do_not_matter(seed: int, cuts: list[int]) -> None:
    traffic = Traffic(400, seed)
    assert counted(traffic, cuts).content() == counted(traffic, []).content()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.lists(st.integers(0, 399), min_size=1, max_size=40, unique=True))
def test_a_label_that_changes_is_as_if_it_had_always_been_so(seed: int, changed: list[int]) -> None:
    traffic = Traffic(400, seed)
    curves = counted(traffic, [])  # curves are those of the first labels
    rows = np.array(sorted(changed))
    counting = counted(traffic, [100])
    counting.observe(*traffic.part(rows, fresh=False), -1)
    counting.observe(*traffic.part(rows, 1 - traffic.label[rows], fresh=False), +1)
    traffic.label[rows] = 1 - traffic.label[rows]
    straight = Counting()
    straight.ledger = Ledger(curves.board.references, PANE, HORIZON, CATALOG.radix, 1, EDGES)
    straight.ledger.observe(*traffic.part(np.arange(400)), 1)
    assert counting.content() == straight.content()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.integers(0, 400), st.integers(0, 8))
def test_a_restart_changes_nothing(seed: int, at: int, looked: int) -> None:
    traffic = Traffic(400, seed)
    straight, before = Counting(), Counting()
    rows = np.arange(400)
    end = BASE // PANE + looked
    for counting in (straight, before):
        if at:
            counting.observe(*traffic.part(rows[:at]))
        counting.ledger.cut(end)
        counting.ledger.advance(end)
    catalog = Catalog(("country",), 5)
    for version in ("v3", "other", "v2"):
        catalog.series_code("m", version)
    codes = catalog.adopt({**CATALOG.names(), "values": [["", "", "a", "b"]]})
    after = Counting()
    after.board.references.restore(before.board.references.state(), codes.series)
    after.ledger.restore(before.ledger.state(), codes)
    back = np.argsort(codes.series)
    again = Counting()
    again.board.references.restore(after.board.references.state(), _inverse(codes.series))
    inverse = Catalog(("country",), 5).adopt({"series": [], "values": [["", "", "a", "b"]]})
    again.ledger.restore(after.ledger.state(), type(codes)(_inverse(codes.series), inverse.values, inverse.radix))
    assert back.size == 3
    for counting in (straight, again):
        if at < 400:
            counting.observe(*traffic.part(rows[at:]))
    assert again.content() == straight.content()


def _inverse(codes: NDArray[np.int32]) -> NDArray[np.int32]:
    out = np.zeros(int(codes.max()) + 1, np.int32)
    out[codes] = np.arange(codes.size)
    return out


def test_the_placed_sums_are_the_auc_and_its_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "ENOUGH", (50, 500))
    traffic = Traffic(60_000, 5, gap=20)
    score = np.random.default_rng(0).normal(0, 1, (60_000, 3)) + np.array([1.0, 0.9, 0.2]) * traffic.label[:, None]
    traffic.p = 1 / (1 + np.exp(2 - score))
    traffic.shadow[:] = True
    content = counted(traffic, []).content()["segments"]
    counted_from = traffic.ts >= (BASE // PANE + 1) * PANE  # the first pane has no curves
    for key, versions in (((0, 1), (1, 0)), ((0, -1), (0, None))):
        whole = sum(np.array(s) for (_, row), s in content.items() if row == key)
        on = (traffic.series == 0) & counted_from
        clicks, others = int(traffic.label[on].sum()), int((1 - traffic.label[on]).sum())
        assert (whole[0:SCALARS:8].sum(), whole[1:SCALARS:8].sum()) == (on.sum(), clicks)
        placed = (whole[PHI1:SCALARS:8].sum() / clicks + whole[PHI0:SCALARS:8].sum() / others) / SCALE
        auc = [0.0 if v is None else roc_auc_score(traffic.label[on], traffic.p[on, v]) for v in versions]
        assert placed == pytest.approx(auc[0] - auc[1], abs=5e-4)
        if key == (0, 1):
            server = whole[SCALARS + blocks.SERVER_PHI1] / clicks + whole[SCALARS + blocks.SERVER_PHI0] / others
            assert server / SCALE == pytest.approx(auc[1], abs=5e-4)


def test_what_is_forgotten_or_cleared_is_gone() -> None:
    counting = counted(Traffic(8_000, 3), [])
    counting.ledger.advance(1 << 40)
    numbers = [number for number, _ in counting.ledger.segments()]
    assert len(numbers) == 3
    counting.ledger.forget_before(numbers[1])
    assert [number for number, _ in counting.ledger.segments()] == numbers[1:]
    counting.ledger.clear(1)
    assert {key for _, by_key in counting.ledger.segments() for key in by_key} == {(0, -1), (0, 2)}
    assert isinstance(counting.board.references, References)


def test_what_is_late_counts_once_the_horizon_is_over_whenever_it_came() -> None:
    traffic = Traffic(400, 9)
    rows, label = np.arange(400), traffic.label.copy()
    flags = rows < 50
    in_time, corrected, late = (with_curves() for _ in range(3))
    traffic.label[:50] = 0
    in_time.observe(*traffic.part(rows))
    in_time.observe(*traffic.part(rows[:50], fresh=False), -1)
    in_time.observe(*traffic.part(rows[:50], label[:50], fresh=False), +1)
    traffic.label = label
    labelled, scored = traffic.part(rows)
    corrected.observe(
        replace(labelled, corrected=flags & (label == 1)), scored
    )  # the click was there before it matured
    late.observe(replace(labelled, fresh=~flags), scored)
    end = BASE // PANE + 7
    for counting in (in_time, corrected, late):
        assert _clicks(counting, end) == int(label[50:].sum())
        assert _clicks(counting, end + HORIZON // PANE + 1) == int(label.sum())


def _clicks(counting: Counting, end: int) -> int:
    counting.ledger.advance(end)
    rows = [(key, sums) for _, by_key in counting.ledger.segments() for key, sums in by_key.items() if key[1] < 0]
    return int(sum(sums[Y:SCALARS:8].sum() for _, sums in rows))


def test_numbering_a_few_at_a_time_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = counted(Traffic(600, 7), []).content()
    monkeypatch.setattr(ledger, "_PARTS_AT_ONCE", 1)
    assert counted(Traffic(600, 7), []).content() == whole


def test_impressions_without_a_logged_pclick_count_for_nobody() -> None:
    traffic = Traffic(600, 8)
    labelled, scored = traffic.part(np.arange(600))
    keep = np.ones(scored.row.size, np.bool_)
    keep[: scored.bounds[1] : 3] = False  # every third impression has shadow scores only
    bounds = tuple(int(keep[:b].sum()) for b in scored.bounds)
    some = Scored(bounds, *(getattr(scored, name)[keep] for name in ("row", "series", "p", "violation")))
    counting = Counting()
    counting.observe(labelled, some)
    rows = np.flatnonzero(np.arange(600) % 3 != 0)
    straight = Counting()
    straight.board.observe(labelled, some)  # curves are made of every score
    straight.ledger.observe(*traffic.part(rows), 1)
    assert counting.content() == straight.content()


def test_rows_beyond_the_most_are_counted_as_untracked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_ROWS", 3)
    traffic = Traffic(600, 9)
    counting = with_curves()
    for part in np.split(np.arange(600), [200, 400]):
        counting.observe(*traffic.part(part))
    keys = {key for _, key in counting.content()["segments"]}
    assert len(keys) == 3
    assert keys >= {(0, -1), (1, -1)}
    possible = traffic.shadow.sum() - 600
    pairs = sum(sum(s[0:SCALARS:8]) for (_, key), s in counting.content()["segments"].items() if key[1] >= 0)
    assert counting.ledger.untracked == possible - pairs


def test_what_nothing_is_kept_of_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_ROWS", 6)
    monkeypatch.setattr(references, "PROMISED", 1 << 60)  # curves stay as they are
    monkeypatch.setattr(references, "ENOUGH", (1 << 60, 1 << 60))
    traffic = Traffic(600, 11)
    counting, expected = with_curves(), with_curves()
    counting.observe(*traffic.part(np.arange(300)))
    counting.ledger.advance(1 << 40)
    assert len(counting.ledger._rows) == 6
    counting.ledger.clear(1)
    counting.ledger.forget_before(0)  # of four rows nothing is kept
    assert counting.ledger._rows == [(0, -1), (0, 2)]
    rest = np.arange(300, 600)
    for one in (counting, expected):
        one.observe(*traffic.part(rest))
    found, first = counting.content(), with_curves()
    first.observe(*traffic.part(np.arange(300)))
    first.ledger.clear(1)
    before = first.content()
    for kind in ("segments", "parts"):
        for key, sums in expected.content()[kind].items():
            old = before[kind].get(key)
            assert found[kind][key] == (sums if old is None else [a + b for a, b in zip(sums, old, strict=True)])

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

from streameval.compare.ledger import ledger, numbering, strata
from streameval.compare.ledger.as_due import as_due
from streameval.compare.ledger.ledger import Ledger
from streameval.compare.ledger.numbering import LEVELS, PAIRS, SERVED
from streameval.compare.ledger.placements import ITEMS
from streameval.compare.ledger.strata import Strata
from streameval.compare.ledger.sums import (
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
from streameval.counting.scoreboard import Labelled
from streameval.events.batch import Catalog
from streameval.events.columns import Scored
from streameval.sketches import blocks
from streameval.sketches.blocks import BLOCKS, NO_ITEM, PHI0, PHI1, SCALE, D, N, Y, blocks_of

BASE = 1_700_000_040_000
PLACED = [  # cells and scalars of a row that placements fill
    *range(PHI1, SCALARS, 8), *range(PHI0, SCALARS, 8), *range(ITEMS + PHI1, ITEMS + SCALARS, 8), *range(ITEMS + PHI0, ITEMS + SCALARS, 8),
    *(SCALARS + k for k in (blocks.PHI1_SQ, blocks.PHI0_SQ, blocks.SERVER_PHI1, blocks.SERVER_PHI0)),
]  # fmt: skip
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
        self.item = rng.integers(0, NO_ITEM + 1, n).astype(np.int8)
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
            {},
            np.full(n, fresh),
            self.item[rows],
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
    """The ledgers of a process' partitions, and their strata."""

    def __init__(self, partitions: int = 1, horizon: int = HORIZON) -> None:
        self.ledgers = [Ledger(PANE, horizon, CATALOG.radix, 1, EDGES) for _ in range(partitions)]
        self.strata = Strata(PANE, horizon, lambda code: "m")
        self.gains: dict[tuple[int, Any], NDArray[np.int64]] = {}

    @property
    def ledger(self) -> Ledger:
        return self.ledgers[0]

    def observe(self, labelled: Labelled, scored: Scored, sign: int = 1, partition: int = 0) -> None:
        self.ledgers[partition].observe(labelled, scored, sign)

    def look(self, end: int, over: bool = False) -> None:
        """Takes all panes before `end`, as a look does."""
        for one in self.ledgers:
            for segment, rows in one.advance(end):
                self._gain({(segment, key): row for key, row in rows.items()})
        self._gain(self.strata.settle(self.ledgers, end, over=over))

    def _gain(self, gains: dict[tuple[int, Any], NDArray[np.int64]]) -> None:
        for where, row in gains.items():
            self.gains[where] = self.gains[where] + row if where in self.gains else row

    def content(self, end: int = 1 << 40) -> dict[str, Any]:
        """Everything, after looks at all panes one by one and at the end."""
        for pane in sorted({pane for one in self.ledgers for pane in one.waiting(end)}):
            self.look(pane + 1)
        self.look(end, over=True)
        segments: dict[Any, NDArray[np.int64]] = {}
        for one in self.ledgers:
            for number, by_key in one.segments():
                for key, sums in by_key.items():
                    segments[number, key] = segments.get((number, key), 0) + sums
        parts = {
            (kind, *key): sums.tolist()
            for kind in (PAIRS, SERVED, LEVELS)
            for key, sums in self.ledger.parts.totals(kind, 0).items()
            if sums.any()
        }
        return {"segments": {where: row.tolist() for where, row in segments.items()}, "parts": parts}


def counted(traffic: Traffic, cuts: list[int]) -> Counting:
    counting = Counting()
    for rows in np.split(np.arange(traffic.ts.size), sorted(cuts)):
        if rows.size:
            counting.observe(*traffic.part(rows))
    return counting


@pytest.fixture(autouse=True)
def few_labels_close_a_stratum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strata, "_ENOUGH", 40)


def loss(p: float, label: int) -> float:
    return -math.log(p if label else 1 - p)


def test_sums_are_those_of_a_loop_over_impressions() -> None:
    traffic = Traffic(3_000, 0)
    counting = Counting()
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
    pairs, served, levels = (counting.ledger.parts.totals(kind, 0) for kind in (PAIRS, SERVED, LEVELS))
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
    counting = Counting()
    counting.observe(*traffic.part(np.arange(2_000)))
    counting.ledger.advance(1 << 40)
    block = blocks_of(traffic.user)
    own = traffic.p[np.arange(2_000), traffic.series]
    for version in (0, 1):
        values, by_segment = counting.ledger.parts.levels(version, range(1 << 40))
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
@given(st.integers(0, 99), st.integers(0, 400), st.integers(0, 400), st.booleans())
def test_a_partition_that_counts_evaluated_panes_again_finds_its_strata(
    seed: int, at: int, saved: int, late: bool
) -> None:
    """One of two partitions comes back from a checkpoint of before the last looks, which saw its labels then.

    `late`: all clicks of v2 come after their labels were due, so its strata wait for them.
    """
    traffic = Traffic(800, seed, gap=12_000 if late else 1_000)
    mine = traffic.user % 2 == 0
    rows, others = np.flatnonzero(mine), np.flatnonzero(~mine)
    at, saved = min(at, rows.size), min(saved, at, rows.size)
    until = int(traffic.ts[rows[at - 1]]) // PANE if at else 0
    straight = Counting(2)
    codes = Catalog(("country",), 5).adopt({**CATALOG.names(), "values": [["", "", "a", "b"]]})

    def due(some: NDArray[np.int64]) -> tuple[Labelled, Scored]:
        return traffic.part(some, (traffic.label[some] * (traffic.series[some] == 0)).astype(np.int8) if late else None)

    straight.observe(*due(others), partition=1)
    if saved:
        straight.observe(*due(rows[:saved]))
    early = int(traffic.ts[rows[saved - 1]]) // PANE if saved else 0
    for pane in straight.ledgers[1].waiting(early):
        straight.look(pane + 1)
    checkpoint = straight.ledger.state()
    if saved < at:
        straight.observe(*due(rows[saved:at]))
    for pane in sorted({pane for one in straight.ledgers for pane in one.waiting(until)}):
        straight.look(pane + 1)
    again = Counting(2)
    again.ledgers[0].restore(checkpoint, codes)
    again.ledgers[1].restore(straight.ledgers[1].state(), codes)
    again.strata.restore(straight.strata.state(lambda code: [code]), lambda name: int(name[0]))
    if saved < at:
        again.observe(*due(rows[saved:at]))
    again.ledger.advance(until)
    again.strata.settle(again.ledgers, until, close=False)
    for one in (straight, again):
        if at < rows.size:
            one.observe(*due(rows[at:]))
        if late:
            come_late(one, traffic, rows, 0)
            come_late(one, traffic, others, 1)
    assert again.content() == straight.content()


def come_late(counting: Counting, traffic: Traffic, rows: NDArray[np.int64], partition: int) -> None:
    """The clicks of v2 among these impressions, which were counted without them, come."""
    some = rows[(traffic.label[rows] == 1) & (traffic.series[rows] == 1)]
    if some.size:
        before = traffic.part(some, np.zeros(some.size, np.int8), fresh=False)
        counting.observe(*before, sign=-1, partition=partition)
        counting.observe(*traffic.part(some, fresh=False), partition=partition)


@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.03])
def test_the_sums_of_clicks_that_all_came_late_are_those_of_clicks_in_time(
    over: bool, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was known of where clicks score when the strata of v2 closed: its AUC was too low by (AUC - 1/2) times the CTR."""
    monkeypatch.setattr(strata, "_ENOUGH", 1 << 60)
    traffic = Traffic(6_000, 3, gap=2_000)
    score = np.random.default_rng(0).normal(0, 1, (6_000, 3)) + 1.2 * traffic.label[:, None]
    traffic.p = 1 / (1 + np.exp(1 - score))
    rows, end = np.arange(6_000), int(traffic.ts[-1]) // PANE + 1
    in_time = np.random.default_rng(1).random(6_000) < share
    straight, corrected = (Counting(horizon=24 * HORIZON) for _ in range(2))
    straight.observe(*traffic.part(rows))
    known = (traffic.series == 0) | in_time
    corrected.observe(*traffic.part(rows, (traffic.label * known).astype(np.int8)))
    for pane in corrected.ledger.waiting(1 << 40):
        corrected.look(pane + 1)
    come_late(corrected, traffic, np.flatnonzero(~known), 0)
    if not over:  # nothing can be corrected any more, and the stream goes on
        corrected.look(end + 25 * HORIZON // PANE)
        assert not corrected.ledger.open.rows()
    assert corrected.content()["segments"] == straight.content()["segments"]


def test_a_version_without_clicks_waits_for_them_with_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strata, "_MOST", 700)
    traffic = Traffic(6_000, 4, gap=4_000)
    traffic.label[traffic.series == 1] = 0
    counting = Counting(horizon=24 * HORIZON)
    counting.observe(*traffic.part(np.arange(6_000)))
    most = 0
    for pane in counting.ledger.waiting(1 << 40):
        counting.look(pane + 1)
        most = max([most, *(counting.ledger.open.total(row)[0] for row in counting.ledger.open.rows())])
    assert 500 < most < 700 + 460  # an hour has 450 of v2


def test_rows_added_by_looks_equal_those_of_segments() -> None:
    counting = counted(Traffic(8_000, 14), [3_000])
    content = counting.content()["segments"]
    assert {where: row.tolist() for where, row in counting.gains.items()} == content


def test_the_placed_sums_are_the_auc_within_strata_and_its_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strata, "_ENOUGH", 1_000)
    traffic = Traffic(60_000, 5, gap=20)
    score = np.random.default_rng(0).normal(0, 1, (60_000, 3)) + np.array([1.0, 0.9, 0.2]) * traffic.label[:, None]
    traffic.p = 1 / (1 + np.exp(2 - score))
    traffic.shadow[:] = True
    content = counted(traffic, []).content()["segments"]
    for key, versions in (((0, 1), (1, 0)), ((0, -1), (0, None))):
        whole = sum(np.array(s) for (_, row), s in content.items() if row == key)
        on = traffic.series == 0
        clicks, others = int(traffic.label[on].sum()), int((1 - traffic.label[on]).sum())
        assert (whole[0:SCALARS:8].sum(), whole[1:SCALARS:8].sum()) == (on.sum(), clicks)
        placed = (whole[PHI1:SCALARS:8].sum() / clicks + whole[PHI0:SCALARS:8].sum() / others) / SCALE
        auc = [0.0 if v is None else roc_auc_score(traffic.label[on], traffic.p[on, v]) for v in versions]
        assert placed == pytest.approx(auc[0] - auc[1], abs=5e-4)
        if key == (0, 1):
            server = whole[SCALARS + blocks.SERVER_PHI1] / clicks + whole[SCALARS + blocks.SERVER_PHI0] / others
            assert server / SCALE == pytest.approx(auc[1], abs=5e-4)


def test_a_stratum_is_its_auc_to_the_last_bin(monkeypatch: pytest.MonkeyPatch) -> None:
    """One stratum, one version: placements are exactly the Mann-Whitney statistic of scores that stand alone in their bins."""
    monkeypatch.setattr(strata, "_ENOUGH", 1 << 60)
    traffic = Traffic(3_000, 12, gap=1)
    traffic.p = np.random.default_rng(1).choice(2.0 ** -np.arange(1, 9), (3_000, 3))
    content = counted(traffic, []).content()["segments"]
    (whole,) = (np.array(s) for (_, key), s in content.items() if key == (0, -1))
    on = traffic.series == 0
    clicks = int(traffic.label[on].sum())
    auc = roc_auc_score(traffic.label[on], traffic.p[on, 0])
    assert whole[PHI1:SCALARS:8].sum() / clicks / SCALE == pytest.approx(auc, abs=1e-8)
    assert abs(whole[PHI0:SCALARS:8].sum()) / SCALE < 1e-5  # centred


def test_blocks_of_items_add_up_to_those_of_users_where_items_are_named() -> None:
    traffic = Traffic(3_000, 13)
    for item in (traffic.item, np.full(3_000, NO_ITEM, np.int8), traffic.item % NO_ITEM):
        traffic.item = item
        for (_, key), sums in counted(traffic, []).content()["segments"].items():
            row = np.array(sums)
            users, items = row[:SCALARS].reshape(BLOCKS, 8), row[ITEMS:].reshape(BLOCKS, 8)
            named = (0, 1, 2, 3, 6, 7) if key[1] < 0 else range(8)
            if (item < NO_ITEM).all():
                assert users.sum(axis=0)[list(named)].tolist() == items.sum(axis=0)[list(named)].tolist()
            elif (item == NO_ITEM).all():
                assert not items.any()
            else:
                assert 0 < items[:, 0].sum() < users[:, 0].sum()


def test_forgotten_and_cleared_sums_are_gone() -> None:
    counting = counted(Traffic(8_000, 3), [])
    counting.ledger.advance(1 << 40)
    numbers = [number for number, _ in counting.ledger.segments()]
    assert len(numbers) == 3
    counting.ledger.forget_before(numbers[1])
    assert [number for number, _ in counting.ledger.segments()] == numbers[1:]
    counting.ledger.clear(1)
    assert {key for _, by_key in counting.ledger.segments() for key in by_key} == {(0, -1), (0, 2)}


def test_late_labels_count_once_the_horizon_is_over_whenever_they_came() -> None:
    traffic = Traffic(400, 9)
    rows, label = np.arange(400), traffic.label.copy()
    flags = rows < 50
    in_time, corrected, late = (Counting() for _ in range(3))
    traffic.label[:50] = 0
    in_time.observe(*traffic.part(rows))
    in_time.observe(*traffic.part(rows[:50], fresh=False), -1)
    in_time.observe(*traffic.part(rows[:50], label[:50], fresh=False), +1)
    traffic.label = label
    labelled, scored = traffic.part(rows)
    # the click was there before it matured
    corrected.observe(replace(labelled, corrected=flags & (label == 1)), scored)
    late.observe(replace(labelled, fresh=~flags), scored)
    end = BASE // PANE + 7
    for counting in (in_time, corrected, late):
        assert _clicks(counting, end) == int(label[50:].sum())
        assert _clicks(counting, end + HORIZON // PANE + 1) == int(label.sum())


def test_an_entirely_late_batch_is_not_split() -> None:
    traffic = Traffic(40, 9)
    labelled, scored = traffic.part(np.arange(40), fresh=False)  # as of a click that comes late
    ((some, its, sign, late),) = as_due(labelled, scored, -1, values=False)
    assert some is labelled
    assert its is scored
    assert (sign, late) == (-1, 1)
    mixed = replace(labelled, fresh=np.arange(40) < 30, corrected=np.arange(40) == 3)
    assert [(some.ts.size, sign, late) for some, _, sign, late in as_due(mixed, scored, 1, values=False)] == [
        (30, 1, 0),
        (1, -1, 1),
        (11, 1, 1),
    ]


def _clicks(counting: Counting, end: int) -> int:
    counting.ledger.advance(end)
    rows = [(key, sums) for _, by_key in counting.ledger.segments() for key, sums in by_key.items() if key[1] < 0]
    return int(sum(sums[Y:SCALARS:8].sum() for _, sums in rows))


def test_numbering_a_few_at_a_time_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = counted(Traffic(600, 7), []).content()
    monkeypatch.setattr(numbering, "_PARTS_AT_ONCE", 1)
    assert counted(Traffic(600, 7), []).content() == whole


def test_writing_the_codes_of_a_few_scores_at_a_time_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = counted(Traffic(500, 6), []).content()
    monkeypatch.setattr(ledger, "CODED_AT_ONCE", 7)
    assert counted(Traffic(500, 6), []).content() == expected


def test_impressions_without_a_logged_pclick_count_for_no_version() -> None:
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
    straight.observe(*traffic.part(rows))
    assert counting.content() == straight.content()


def test_rows_beyond_the_most_are_counted_as_untracked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbering, "MOST_ROWS", 3)
    traffic = Traffic(600, 9)
    counting = Counting()
    for part in np.split(np.arange(600), [200, 400]):
        counting.observe(*traffic.part(part))
    keys = {key for _, key in counting.content()["segments"]}
    assert len(keys) == 3
    assert keys >= {(0, -1), (1, -1)}
    possible = traffic.shadow.sum() - 600
    pairs = sum(sum(s[0:SCALARS:8]) for (_, key), s in counting.content()["segments"].items() if key[1] >= 0)
    assert counting.ledger.untracked == possible - pairs


def test_unused_numbers_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbering, "MOST_ROWS", 6)
    traffic = Traffic(600, 11)
    begin, rest = np.split(np.arange(600), [int(np.searchsorted(traffic.ts, (BASE // PANE + 5) * PANE))])
    counting, expected, first = Counting(), Counting(), Counting()
    for one in (counting, first):
        one.observe(*traffic.part(begin))
        one.look(BASE // PANE + 5, over=True)
        assert len(one.ledger._numbers.rows) == 6
        one.ledger.clear(1)
        one.ledger.forget_before(0)  # of four rows nothing is kept
        assert one.ledger._numbers.rows == [(0, -1), (0, 2)]
    for one in (counting, expected):
        one.observe(*traffic.part(rest))
    found, before = counting.content(), first.content()
    for kind in ("segments", "parts"):
        for key, sums in expected.content()[kind].items():
            old = before[kind].get(key)
            assert found[kind][key] == (sums if old is None else [a + b for a, b in zip(sums, old, strict=True)])

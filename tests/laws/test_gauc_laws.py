"""GAUC of comparisons: equal to a loop over users and windows, whatever the batches, late clicks and restarts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from streameval.compare.ledger import gauc_rows, list_rows
from streameval.compare.ledger.gauc_rows import GaucRows
from streameval.events.batch import Series, Shadow
from streameval.events.hashing import hash_strings
from streameval.join.rows import Table
from streameval.join.runs import Runs
from streameval.join.scores import Others, Served, scores_of, split_scored
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BLOCKS, SCALE, blocks_of
from streameval.store import container
from streameval.testing import Event, ManualClock, Shown, Tap, make_batch, readers_see
from tests.aucs import auc_of

BASE = 1_700_000_040_000
WINDOW = 60_000
N = 900
CONFIG = Settings.model_validate(
    {
        "join": {"attribution_window": "20s", "allowed_lateness": "5s", "correction_horizon": "100s", "request_gap": "10s"},
        "windows": {"pane": "10s", "sliding": ["60s"]},
        "compare": {"gauc_window": "1m", "share": 0.05},
    }
)  # fmt: skip
SERIES = [Series("default", name, "logged") for name in ("v1", "v2", "v3")]
Content = dict[tuple[int, str, str], list[int]]


class Traffic:
    """Impressions of a few users, two versions serving, the others in shadow for most; clicks. Some come late."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.ts = BASE + np.sort(rng.integers(0, 240_000, N))
        self.user = [f"u{i}" for i in rng.integers(0, 25, N)]
        self.server = (rng.random(N) < 0.2).astype(int)
        self.p = np.round(rng.uniform(0.02, 0.6, (N, 3)), 2)  # many ties
        self.has = rng.random((N, 3)) < 0.9
        self.has[np.arange(N), self.server] = True
        self.label = (rng.random(N) < 0.3).astype(int)
        self.behind = np.where(rng.random(N) < 0.03, rng.integers(6_000, 70_000, N), 0)  # how late it is shown to us
        self.delay = np.where(rng.random(N) < 0.1, rng.integers(26_000, 70_000, N), 1_000)  # when the click arrives

    def arrivals(self, late: bool) -> list[tuple[int, Event, int]]:
        """(arrival, event, row) in order of arrival; not `late`: everything comes soon."""
        out: list[tuple[int, Event, int]] = []
        for i in range(N):
            ts = int(self.ts[i])
            shown = Shown(f"i{i}", ts, self.user[i], float(self.p[i, self.server[i]]), f"v{self.server[i] + 1}")
            out.append((ts + (int(self.behind[i]) if late else 0), shown, i))
            if self.label[i]:
                out.append((ts + (int(self.delay[i]) if late else 1_000), Tap(f"i{i}", ts + 500), i))
        return sorted(out, key=lambda event: event[0])


class Process:
    """A pipeline that takes the events."""

    def __init__(self, traffic: Traffic, order: tuple[int, ...] = (0, 1, 2)) -> None:
        self.traffic, self.pipeline = traffic, Pipeline(CONFIG, ManualClock())
        for i in order:
            self.pipeline.catalog.series_code("default", SERIES[i].version)

    def take(self, events: list[tuple[int, Event, int]]) -> None:
        batch = make_batch([event for _, event, _ in events], self.pipeline.catalog)
        rows = [row for _, event, row in events if isinstance(event, Shown)]
        t = self.traffic
        others = [[v for v in range(3) if v != t.server[i] and t.has[i, v]] for i in rows]
        indptr = np.cumsum([0, *map(len, others)]).astype(np.int64)
        codes = [self.pipeline.catalog.series_code("default", SERIES[v].version) for some in others for v in some]
        p = [t.p[i, v] for i, some in zip(rows, others, strict=True) for v in some]
        shadow = Shadow(indptr, np.array(codes, np.int32), np.array(p, float))
        self.pipeline.take(replace(batch, impressions=replace(batch.impressions, shadow=shadow)))

    def content(self) -> Content:
        """Everything, after the end of the stream."""
        self.pipeline.finish()
        readers_see(self.pipeline, with_history=False)
        names = self.pipeline.catalog.series
        out: Content = {}
        for start, rows in self.pipeline.partitions[0].counted.gauc.given():
            for (served, other), row in rows.items():
                out[start, names[served].version, names[other].version] = row.tolist()
        return out


def counted(traffic: Traffic, sizes: list[int], late: bool = True, looks: bool = True) -> Content:
    process, events, k = Process(traffic), traffic.arrivals(late), 0
    while events:
        size = sizes[k % len(sizes)]
        process.take(events[:size])
        events, k = events[size:], k + 1
        if looks and k % 3 == 0:
            readers_see(process.pipeline, with_history=False)
    return process.content()


def loop(traffic: Traffic) -> dict[tuple[int, str, str], NDArray[np.float64]]:
    """By window and pair, the sums as a loop makes them."""
    t, out = traffic, {}
    block = blocks_of(hash_strings(t.user))
    window, of_user = t.ts // WINDOW * WINDOW, np.array(t.user)
    for start in np.unique(window):
        for served in range(2):
            for other in range(3):
                sums = np.zeros(list_rows.GAUC_WIDTH)
                for user in sorted(set(t.user)):
                    on = (window == start) & (of_user == user) & (t.server == served) & t.has[:, other]
                    y = t.label[on]
                    if other == served or not 0 < y.sum() < y.size:
                        continue
                    w = y.size
                    own = w * auc_of(y, t.p[on, served])
                    wd = w * auc_of(y, t.p[on, other]) - own
                    at = 2 * int(block[t.user.index(user)])
                    sums[at : at + 2] += w, wd * SCALE
                    sums[2 * BLOCKS :] += wd * wd * SCALE, w * wd * SCALE, w * w, 1, own * SCALE
                if sums.any():
                    out[int(start), f"v{served + 1}", f"v{other + 1}"] = sums
    return out


def test_sums_are_those_of_a_loop_over_users_and_windows() -> None:
    traffic = Traffic(0)
    found, expected = counted(traffic, [50]), loop(traffic)
    assert found.keys() == expected.keys()
    assert len(found) >= 8
    for key, sums in expected.items():
        assert found[key][: sums.size] == pytest.approx(sums, abs=20), key
        assert not any(found[key][sums.size :]), "no item is known"
        for cell in (2 * cells.G_W, 2 * BLOCKS + cells.G_W_SQ, 2 * BLOCKS + cells.G_ROWS):
            assert found[key][cell] == sums[cell]


def test_scores_read_where_they_are_kept_give_what_a_copy_of_them_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(table: Table, runs: Runs, rows: NDArray[np.int64], online: list[int]) -> tuple[Served, list[Others]]:
        return split_scored(scores_of(table, runs, rows, online, 0), rows.size)

    traffic = Traffic(1)
    found = counted(traffic, [50])
    monkeypatch.setattr(gauc_rows, "served_and_others", copied)
    assert counted(traffic, [50]) == found


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 99), st.lists(st.sampled_from([1, 7, 40, 300, 2000]), min_size=1, max_size=4))
def test_batches_and_looks_do_not_matter(seed: int, sizes: list[int]) -> None:
    traffic = Traffic(seed)
    assert counted(traffic, [max(size, 7) for size in sizes]) == counted(traffic, [5000], looks=False)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 99))
def test_what_comes_late_is_as_if_it_had_always_been_known(seed: int) -> None:
    traffic = Traffic(seed)
    assert counted(traffic, [30], late=True) == counted(traffic, [30], late=False)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 99))
def test_a_restart_changes_nothing(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    traffic, luck = Traffic(seed), Random(seed)
    path = tmp_path_factory.mktemp("gauc") / "checkpoint"
    straight, process = Process(traffic), Process(traffic)
    events = traffic.arrivals(late=True)
    for k, start in enumerate(range(0, len(events), 60)):
        for one in (straight, process):
            one.take(events[start : start + 60])
            if k % 4 == 0:
                readers_see(one.pipeline, with_history=False)
        if luck.random() < 0.3:
            state = process.pipeline.partition_state(0)
            assert state is not None
            container.write(path, state)
            process = Process(traffic, (2, 0, 1))
            process.pipeline.restore_partition(0, container.read(path))
    assert process.content() == straight.content()
    for mine, its in zip(
        readers_see(process.pipeline).comparisons, readers_see(straight.pipeline).comparisons, strict=True
    ):
        assert mine.metrics == its.metrics


def test_a_comparison_reads_its_gauc() -> None:
    traffic = Traffic(3)
    process = Process(traffic)
    for start in range(0, 2000, 100):
        process.take(traffic.arrivals(late=True)[start : start + 100])
        readers_see(process.pipeline, with_history=False)
    content = process.content()
    read = {}
    for one in readers_see(process.pipeline).comparisons:
        if one.setup == "paired":
            read[one.baseline.version, one.candidate.version] = next(m for m in one.metrics if m.metric == "gauc")
    assert read
    for (baseline, candidate), metric in read.items():
        whole = np.zeros(2)
        for (_, served, other), sums in content.items():
            if {served, other} == {baseline, candidate}:
                w, wd = sum(sums[0 : 2 * BLOCKS : 2]), sum(sums[1 : 2 * BLOCKS : 2]) / SCALE
                whole += w, wd if served == baseline else -wd
        assert metric.reason is None
        assert metric.difference is not None
        assert metric.stderr is not None
        assert abs(metric.difference - whole[1] / whole[0]) < 6 * metric.stderr  # the first windows may not be its own


def test_beyond_the_bound_users_are_sampled_the_same_in_every_window(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = counted(Traffic(1), [100])
    monkeypatch.setattr(gauc_rows, "MOST_CHOSEN", 120)
    some = counted(Traffic(1), [100])
    rows = 2 * BLOCKS + cells.G_ROWS
    assert 0 < sum(sums[rows] for sums in some.values()) < sum(sums[rows] for sums in whole.values())


def test_what_is_forgotten_or_cleared_is_gone() -> None:
    process = Process(Traffic(2))
    for start in range(0, 2000, 100):
        process.take(process.traffic.arrivals(late=False)[start : start + 100])
    gauc: GaucRows = process.pipeline.partitions[0].counted.gauc
    process.content()
    starts = [start for start, _ in gauc.given()]
    gauc.forget_before(starts[2])
    assert [start for start, _ in gauc.given()] == starts[2:]
    gauc.clear(0)
    assert all(0 not in key for _, rows in gauc.given() for key in rows)
    assert gauc.nbytes > 0

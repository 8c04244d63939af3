"""The joiner against its brute-force twin, event by event, whatever the batches."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.events.batch import Catalog
from streameval.events.hashing import hash_strings
from streameval.join.joiner import Joiner
from streameval.join.policy import CLICKED, MATURED, JoinPolicy
from streameval.testing import BruteForceJoiner, Shown, Tap, make_batch

WINDOW, LATENESS, HORIZON = 50, 20, 200
FATES = (
    "impressions", "clicks", "duplicate_impressions", "conflicting_impressions", "expired_impressions", "late_impressions", "matched_clicks",
    "duplicate_clicks", "unmatched_clicks", "late_clicks", "early_clicks", "corrected",
)  # fmt: skip
BASE = 1_000_000

ids = st.integers(0, 12).map(lambda i: f"i{i}")
shown = st.builds(
    Shown,
    id=ids,
    ts=st.integers(0, 600).map(lambda t: BASE + t),
    clicked=st.sampled_from([None, None, None, 0, 1]),
    version=st.sampled_from(["v1", "v1", "v2"]),
)
taps = st.builds(Tap, id=ids, ts=st.integers(0, 600).map(lambda t: BASE + t))
streams = st.lists(st.one_of(shown, taps), max_size=60)


def roughly_ordered(events: list, jitter: list[int]) -> list:
    keyed = [(e.ts + jitter[i % len(jitter)], i) for i, e in enumerate(events)]
    return [events[i] for _, i in sorted(keyed)]


def run(events: list, sizes: list[int], shared: bool = True) -> tuple[Joiner, dict[str, bool], list[int]]:
    joiner, catalog = Joiner(JoinPolicy(WINDOW, LATENESS, HORIZON), shared=shared), Catalog()
    labels: dict[int, bool] = {}
    order: list[int] = []
    names = dict(
        zip(hash_strings([e.id for e in events] or ["x"]).tolist(), [e.id for e in events] or ["x"], strict=False)
    )

    def settle(rows: np.ndarray) -> None:
        table = joiner.table
        for row in rows.tolist():
            key = (int(table.id[row]), int(table.ts[row]))
            assert key not in labels, "an impression matured twice"
            labels[key] = bool(table.state[row] & CLICKED)
            order.append(int(table.ts[row]))

    at = k = 0
    while at < len(events):
        size = sizes[k % len(sizes)]
        batch = make_batch(events[at : at + size], catalog, shared=shared)
        settle(joiner.mature(joiner.progress.look_ahead(batch.impressions.ts, batch.clicks.ts)))
        _, flips = joiner.add(batch)
        for row in flips.rows.tolist():
            labels[int(joiner.table.id[row]), int(joiner.table.ts[row])] = bool(joiner.table.state[row] & CLICKED)
        settle(joiner.mature(joiner.progress.firm))
        joiner.forget()
        at, k = at + size, k + 1
    joiner.finish()
    settle(joiner.mature(joiner.progress.watermark))
    return joiner, {(names[i], ts): y for (i, ts), y in labels.items()}, order


@patch("streameval.join.runs._MANY_RUNS", 3)
@settings(max_examples=300, deadline=None)
@given(
    streams, st.lists(st.integers(0, 90), min_size=1, max_size=7), st.lists(st.integers(1, 20), min_size=1, max_size=5)
)
def test_labels_and_fates_equal_the_brute_force_joiner_at_any_batch_size(
    events: list, jitter: list[int], sizes: list[int]
) -> None:
    events = roughly_ordered(events, jitter)
    joiner, labels, _ = run(events, sizes)
    twin, expected = brute_force(events)
    assert {f: joiner.counts[f] for f in FATES} == {f: twin.counts[f] for f in FATES}
    assert labels == expected
    assert joiner.pending == 0


def brute_force(events: list) -> tuple[BruteForceJoiner, dict[tuple[str, int], bool]]:
    twin = BruteForceJoiner(WINDOW, LATENESS, HORIZON)
    labels: dict[tuple[str, int], bool] = {}
    for event in events:
        twin.feed(event)
        for name, one in twin.shown.items():
            labels[name, one.ts] = twin.clicked[name]
    twin.finish()
    return twin, labels


def keyed(log: list, kind: int) -> list[tuple[int, int, int]]:
    """(newest time of the log so far, kind, place in the log) of its events."""
    return [(max(e.ts for e in log[: i + 1]), kind, i) for i in range(len(log))]


def read(logs: tuple[list, list], turns: list[tuple[int, int]]) -> list:
    """The events of two logs, a few of one and a few of the other in turn."""
    out: list = []
    at, k = [0, 0], 0
    while any(at[kind] < len(logs[kind]) for kind in (0, 1)):
        for kind, n in enumerate(turns[k % len(turns)] if k < 100 else (60, 60)):
            out += logs[kind][at[kind] : at[kind] + n]
            at[kind] += n
        k += 1
    return out


@patch("streameval.join.runs._MANY_RUNS", 3)
@settings(max_examples=500, deadline=None)
@given(
    streams,
    st.lists(st.integers(0, 300), min_size=1, max_size=7),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=6),
    st.lists(st.integers(1, 20), min_size=1, max_size=5),
)
def test_two_logs_are_joined_as_if_merged_by_time_however_far_one_is_read_ahead(
    events: list, jitter: list[int], turns: list[tuple[int, int]], sizes: list[int]
) -> None:
    events = roughly_ordered(events, jitter)
    logs = [e for e in events if isinstance(e, Shown)], [e for e in events if isinstance(e, Tap)]
    for first in logs[0][:1]:  # impressions that all carry their label are not kept for clicks that nobody has seen
        first.clicked = None
    merged = [logs[kind][i] for _, kind, i in sorted(keyed(logs[0], 0) + keyed(logs[1], 1))]
    twin, expected = brute_force(merged)
    joiner, labels, _ = run(read(logs, turns), sizes, shared=False)
    assert {f: joiner.counts[f] for f in FATES} == {f: twin.counts[f] for f in FATES}
    assert labels == expected
    assert joiner.pending == 0


@settings(max_examples=200, deadline=None)
@given(streams, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=6))
def test_what_is_on_time_matures_in_one_order_however_far_one_log_is_read_ahead(
    events: list, turns: list[tuple[int, int]]
) -> None:
    """Placement curves are made in the order of maturity."""
    logs = [e for e in events if isinstance(e, Shown)], [e for e in events if isinstance(e, Tap)]
    logs[0].sort(key=lambda e: e.ts)
    _, _, order = run(read(logs, turns), [7], shared=False)
    assert order == sorted(order)


@settings(max_examples=100, deadline=None)
@given(streams, st.lists(st.integers(1, 30), min_size=1, max_size=4))
def test_events_in_order_mature_in_order_of_time(events: list, sizes: list[int]) -> None:
    _, _, order = run(sorted(events, key=lambda e: e.ts), sizes)
    assert order == sorted(order)


def test_nothing_is_lost_when_the_tables_move_and_grow() -> None:
    rng = np.random.default_rng(0)
    n = 30_000
    ts = BASE + np.arange(n)
    events: list = []
    for i in range(n):
        events.append(Shown(f"i{i}", int(ts[i]), user=f"u{i % 50}", features={f"f{i}": 1.0}))
        if rng.random() < 0.2:
            events.append(Tap(f"i{i}", int(ts[i] + rng.integers(1, WINDOW))))
    events.sort(key=lambda e: e.ts)
    joiner, catalog = Joiner(JoinPolicy(WINDOW, LATENESS, HORIZON)), Catalog()
    matured = clicks = 0
    for at in range(0, len(events), 97):
        joiner.add(make_batch(events[at : at + 97], catalog))
        rows = joiner.mature(joiner.progress.watermark)
        if rows.size:
            names = [next(iter(d)) for _, features in joiner.runs.features(rows) for d in features.dicts]
            assert hash_strings([f"i{name[1:]}" for name in names]).tolist() == joiner.table.id[rows].tolist()
        matured, clicks = matured + rows.size, clicks + int((joiner.table.state[rows] & CLICKED).astype(bool).sum())
        joiner.runs.drop_features()
        joiner.forget()
        assert joiner.table.id.size < 5_000, "the table must stay as small as what is alive"
    joiner.finish()
    rows = joiner.mature(joiner.progress.watermark)
    matured, clicks = matured + rows.size, clicks + int((joiner.table.state[rows] & CLICKED).astype(bool).sum())
    assert (matured, clicks) == (n, sum(isinstance(e, Tap) for e in events))


def test_little_batches_do_not_leave_a_run_each() -> None:
    """A day of twenty batches a second would be 1.7 million runs, each looked at by every batch."""
    joiner, catalog = Joiner(JoinPolicy(3_600_000, LATENESS, 86_400_000)), Catalog()
    for i in range(5_000):
        joiner.add(make_batch([Shown(f"i{i}", BASE + i, features={"f": 1.0})], catalog))
        joiner.mature(joiner.progress.watermark - 3_590_000)  # all but the last few are mature, and stay correctable
        joiner.runs.drop_features()
    assert joiner.known == 5_000
    assert len(joiner.runs) < 200
    rows = joiner.mature(joiner.progress.watermark + 3_600_000)
    assert sum(f.indptr.size - 1 for _, f in joiner.runs.features(rows)) == rows.size > 0


def test_the_slower_of_two_inputs_holds_the_watermark_until_it_is_idle() -> None:
    joiner, catalog = Joiner(JoinPolicy(WINDOW, 0, HORIZON), shared=False), Catalog()
    joiner.add(make_batch([Shown("a", BASE), Shown("b", BASE + 150)], catalog, shared=False))
    assert joiner.mature(joiner.progress.watermark).size == 0, "no click seen yet: nothing is known about clicks"
    joiner.add(make_batch([Tap("a", BASE + 10)], catalog, shared=False))
    assert joiner.progress.watermark == BASE + 10
    joiner.progress.set_idle(1, True)
    assert joiner.progress.watermark == BASE + 150
    rows = joiner.mature(joiner.progress.watermark)
    assert (joiner.table.state[rows] & CLICKED).tolist() == [CLICKED]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_when_all_inputs_are_idle_none_holds_the_watermark_whoever_fell_silent_first(order: tuple[int, int]) -> None:
    joiner, catalog = Joiner(JoinPolicy(WINDOW, 0, HORIZON), shared=False), Catalog()
    joiner.add(make_batch([Shown("a", BASE), Shown("b", BASE + 150), Tap("a", BASE + 10)], catalog, shared=False))
    for number in order:
        joiner.progress.set_idle(number, True)
    assert joiner.progress.watermark == BASE + 150


def test_the_table_never_holds_more_than_max_pending() -> None:
    joiner, catalog = Joiner(JoinPolicy(10**9, 0, 2 * 10**9, max_pending=1000)), Catalog()
    for k in range(50):
        joiner.add(make_batch([Shown(f"{k}-{i}", BASE + k * 100 + i) for i in range(100)], catalog))
        joiner.mature(max(joiner.progress.watermark, joiner.pressure_watermark()))
        joiner.forget()
        assert joiner.pending <= 1000
        assert joiner.table.id.size <= 4000
    assert joiner.counts["matured_early"] == 4000
    assert joiner.counts["matured"] == 4000
    assert not (joiner.table.state[joiner.front] & MATURED) or joiner.pending < 1000

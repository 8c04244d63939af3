"""Batches in, results out: windows, partitions, corrections, join health, versions."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from streameval.loop.pipeline import Pipeline
from streameval.metrics.registry import with_stderr
from streameval.results.snapshot import Snapshot
from streameval.settings.tree import Settings
from streameval.sources.formats.decode import Decoder
from streameval.testing import Event, ManualClock, Shown, Tap, make_batch, readers_see
from tests.aucs import auc_of

BASE = 1_700_000_040_000  # on a minute


def make_pipeline(**join: object) -> Pipeline:
    tree = {"join": {"attribution_window": "2m", "allowed_lateness": "1m", "request_gap": "1m", **join}}
    return Pipeline(Settings.model_validate(tree), ManualClock())


def traffic(n: int = 3000, seed: int = 0, minutes: int = 30, ctr: float = 0.2) -> list[Event]:
    rng = np.random.default_rng(seed)
    ts = BASE + np.sort(rng.integers(0, minutes * 60_000, n))
    events: list[Event] = []
    for i in range(n):
        p = float(rng.beta(2, 2 / ctr - 2))
        user = f"u{rng.integers(0, 60)}"
        events.append(Shown(f"i{i}", int(ts[i]), user, p, request=f"{user}-{i // 300}" if i % 3 else ""))
        if rng.random() < p:
            events.append(Tap(f"i{i}", int(ts[i] + rng.integers(1, 119_000))))
    return sorted(events, key=lambda e: e.ts)


def feed(pipeline: Pipeline, events: list[Event], size: int, partitions: int = 1) -> Snapshot:
    user = {e.id: e.user for e in events if isinstance(e, Shown)}
    for start in range(0, len(events), size):
        part = events[start : start + size]
        for p in range(partitions):
            mine = [e for e in part if hash_of(user.get(e.id, "")) % partitions == p]
            if mine:
                pipeline.take(make_batch(mine, pipeline.catalog, p))
    pipeline.finish()
    return readers_see(pipeline)


def hash_of(text: str) -> int:
    return sum(map(ord, text))


def result(snapshot: Snapshot, window: str = "all", version: str = "v1"):
    return next(r for r in snapshot.results if r.window == window and r.series.version == version and r.slice is None)


def test_windows_hold_what_brute_force_says_also_when_a_batch_is_larger_than_a_window() -> None:
    events = traffic()
    clicked = {e.id for e in events if isinstance(e, Tap)}
    shown = [e for e in events if isinstance(e, Shown)]
    snapshot = feed(make_pipeline(), events, size=100_000)  # torchrec#4424
    for window in ("5m", "1h", "all"):
        r = result(snapshot, window)
        start, end = r.window_start or 0, r.window_end or 1 << 60
        mine = [e for e in shown if start <= e.ts < end]
        y, p = [e.id in clicked for e in mine], [e.pclick for e in mine]
        assert (r.totals.impressions, r.totals.clicks) == (len(mine), sum(y))
        assert r.metrics["auc"] == pytest.approx(roc_auc_score(y, p), abs=1e-9)


def test_windows_in_which_nothing_came_keep_their_names() -> None:
    early = Shown("i", BASE, "u", 0.5)
    snapshot = feed(make_pipeline(), [early, replace(early, id="later", ts=BASE + 7_200_000)], size=1)
    quiet = feed(make_pipeline(), [early, Tap("none", BASE + 7_200_000)], size=1)
    assert {r.window for r in snapshot.results} == {"5m", "1h", "24h", "all"}
    assert {r.window for r in quiet.results} == {"24h", "all"}
    assert snapshot.windows == quiet.windows == ("all", "5m", "1h", "24h")


@pytest.mark.slow
def test_windows_slide_while_the_stream_runs_and_equal_a_fresh_count() -> None:
    events = traffic(4000, minutes=90)
    pipeline = make_pipeline()
    clicked = {e.id for e in events if isinstance(e, Tap)}
    shown = [e for e in events if isinstance(e, Shown)]
    for k, start in enumerate(range(0, len(events), 50)):
        pipeline.take(make_batch(events[start : start + 50], pipeline.catalog))
        if k % 7 == 0:
            for r in readers_see(pipeline).results:
                if r.window == "5m":
                    mine = [e for e in shown if r.window_start <= e.ts < r.window_end]
                    y, p, u = (
                        np.array(c) for c in zip(*((e.id in clicked, e.pclick, e.user) for e in mine), strict=True)
                    )
                    assert (r.totals.impressions, r.totals.clicks) == (len(mine), y.sum())
                    if 0 < y.sum() < len(y):
                        assert r.metrics["auc"] == pytest.approx(roc_auc_score(y, p), abs=1e-9)
                    weighted = weight = 0.0
                    for one in np.unique(u):
                        on = u == one
                        if 0 < y[on].sum() < on.sum():
                            weighted, weight = weighted + on.sum() * auc_of(y[on], p[on]), weight + on.sum()
                    expected = weighted / weight if weight else None
                    assert r.metrics["gauc"] == (None if expected is None else pytest.approx(expected, abs=1e-9))
                    if expected is None:
                        assert r.reasons["gauc"] == "no_eligible_user"


def test_the_report_is_the_same_for_any_split_order_within_lateness_and_number_of_partitions() -> None:
    events = traffic(2000, seed=1)
    reference = feed(make_pipeline(), events, size=10_000).report()
    rng = np.random.default_rng(0)
    shuffled = [e for _, e in sorted(((e.ts + rng.uniform(0, 59_000), i), e) for i, e in enumerate(events))]
    for other in (feed(make_pipeline(), events, size=13), feed(make_pipeline(), shuffled, size=101)):
        assert other.report() == reference
    other = feed(make_pipeline(), shuffled, size=500, partitions=4).report()
    for one, same in zip(other["results"], reference["results"], strict=True):  # every partition has its own curves
        for name in ("auc_stderr", "pauc_stderr"):
            assert one.pop(name) == pytest.approx(same.pop(name), rel=0.1)
    assert other == reference


def test_clicks_that_come_after_maturity_are_corrected_to_the_last_bit() -> None:
    events = traffic(2000, seed=2)
    rng = np.random.default_rng(1)
    late = {id(e) for e in events if isinstance(e, Tap) and rng.random() < 0.3}
    moved = [e for e in events if id(e) not in late] + [e for e in events if id(e) in late]
    in_order, corrected = feed(make_pipeline(), events, 200), feed(make_pipeline(), moved, 200)
    assert corrected.events["corrected"] > 50
    for one, other in zip(in_order.results, corrected.results, strict=True):
        assert one.metrics == other.metrics
        assert one.buckets == other.buckets
        assert one.totals == other.totals


def test_a_dead_click_topic_is_not_taken_for_a_calibration_collapse() -> None:
    events = traffic(6000, minutes=60, seed=3)
    silent = [e for e in events if isinstance(e, Shown) or not BASE + 1_800_000 <= e.ts < BASE + 2_700_000]
    r = result(feed(make_pipeline(), silent, 500))
    assert not r.reliable
    assert "no clicks for" in r.reliable_reason
    assert result(feed(make_pipeline(), events, 500)).reliable


def test_a_click_input_that_is_silent_from_the_very_start_is_not_taken_for_a_ctr_of_0() -> None:
    events = traffic(6000, minutes=60, seed=3)
    pipeline = make_pipeline()
    pipeline.inputs = ("shown", "tapped")
    shown = [e for e in events if isinstance(e, Shown)]
    for start in range(0, len(shown), 500):
        pipeline.take(make_batch(shown[start : start + 500], pipeline.catalog, shared=False))
    pipeline.partitions[0].set_idle(1, True)
    snapshot = readers_see(pipeline)
    assert not snapshot.join.reliable
    assert "where the scores predict about" in snapshot.join.reason
    assert "no click has ever been read from 'tapped'" in snapshot.join.reason
    for window in ("5m", "1h", "all"):
        assert result(snapshot, window).reliable_reason == snapshot.join.reason


@pytest.mark.parametrize("shared", [True, False])
def test_a_click_log_that_was_silent_at_first_leaves_that_time_unreliable(shared: bool) -> None:
    events = traffic(12_000, minutes=120, seed=3)
    taps = [e for e in events if isinstance(e, Tap) and e.ts > BASE + 3_600_000]
    for clicks in (3, 40, 99, 100, 200, 1000):
        kept = {id(e) for e in taps[:clicks]}
        until = taps[min(clicks, len(taps) - 1)].ts
        some = [e for e in events if e.ts <= until and (isinstance(e, Shown) or id(e) in kept)]
        pipeline = make_pipeline()
        for kind in (Shown, Tap) if not shared else ((Shown, Tap),):
            pipeline.take(make_batch([e for e in some if isinstance(e, kind)], pipeline.catalog, shared=shared))
        snapshot = readers_see(pipeline)
        assert "no clicks for" in result(snapshot).reliable_reason, clicks
        assert snapshot.join.reliable is (clicks > 3), clicks  # at 3 no pane with a click is complete


@pytest.mark.parametrize("since", [0, 1_800_000])
def test_a_partition_whose_clicks_do_not_come_is_not_hidden_by_the_others(since: int) -> None:
    events = traffic(12_000, minutes=60, seed=3)
    user = {e.id: e.user for e in events if isinstance(e, Shown)}

    def taken(event: Event) -> bool:
        return isinstance(event, Shown) or event.ts < BASE + since or hash_of(user[event.id]) % 4 != 2

    pipeline = make_pipeline()
    pipeline.inputs = ("shown", "taps")
    for start in range(0, len(events), 500):
        for p in range(4):
            mine = [e for e in events[start : start + 500] if hash_of(user[e.id]) % 4 == p and taken(e)]
            if mine:
                pipeline.take(make_batch(mine, pipeline.catalog, p))
    snapshot = readers_see(pipeline)
    assert snapshot.join.reason.startswith("partition 2: no clicks for ")
    assert ("no click has ever been read from 'taps' [2]" in snapshot.join.reason) is (since == 0)
    assert all(result(snapshot, window).reliable_reason == snapshot.join.reason for window in ("5m", "1h", "all"))
    assert feed(make_pipeline(), events, 500, partitions=4).join.reliable


def test_a_partition_of_low_scores_is_judged_by_its_own() -> None:
    pipeline = make_pipeline()
    shown = [Shown(f"i{i}", BASE + 1_000 * i, f"u{i % 50}", 0.2) for i in range(3_000)]
    taps = [Tap(f"i{i}", BASE + 1_000 * i + 1) for i in range(0, 3_000, 5)]
    rare = [Shown(f"r{i}", BASE + 1_000 * i, f"u{i % 50}", 0.002) for i in range(3_000)]  # 6 predicted, none came
    for p, events in enumerate((sorted([*shown, *taps], key=lambda e: e.ts), rare)):
        pipeline.take(make_batch(events, pipeline.catalog, p))
    assert readers_see(pipeline).join.reliable


def test_too_few_impressions_for_a_click_are_no_silence() -> None:
    events = [e for e in traffic(400, minutes=10, ctr=0.2) if isinstance(e, Shown)]  # 80 predicted
    assert feed(make_pipeline(), events, 100).join.reliable


def test_labels_that_impressions_carry_may_all_be_no_click() -> None:
    events = [e for e in traffic(6000) if isinstance(e, Shown)]
    for e in events:
        e.clicked = 0
    assert feed(make_pipeline(), events, 500).join.reliable


def test_few_clicks_that_come_far_between_are_no_silence() -> None:
    shown = [Shown(f"i{i}", BASE + 1_000 * i, f"u{i % 50}", 0.02) for i in range(20_000)]  # ten times too high
    taps = [Tap(f"i{i}", BASE + 1_000 * i + 1) for i in range(499, 20_000, 500)]
    events = sorted([*shown, *taps], key=lambda e: e.ts)
    assert feed(make_pipeline(), events, 1_000).join.reliable


def test_clicks_that_find_no_impression_make_the_results_unreliable() -> None:
    events = [Tap(f"other-{e.id}", e.ts) if isinstance(e, Tap) and hash_of(e.id) % 2 else e for e in traffic(seed=4)]
    snapshot = feed(make_pipeline(), events, 500)
    assert not snapshot.join.reliable
    assert "matched an impression" in snapshot.join.reason
    assert "rejected" not in snapshot.join.reason
    assert snapshot.events["unmatched_clicks"] > 100


def test_clicks_on_impressions_that_were_rejected_are_not_a_riddle() -> None:
    """As when one producer of many writes `pclick` as a text."""
    events = [e for e in traffic(seed=4) if isinstance(e, Tap) or hash_of(e.id) % 4]
    pipeline = make_pipeline()
    first = make_batch(events[:500], pipeline.catalog)
    pipeline.take(replace(first, invalid={"wrong_type": 700}))
    reason = feed(pipeline, events[500:], 500).join.reason or ""
    assert "matched an impression; 700 events were rejected, which may include their impressions" in reason


def test_a_new_version_starts_from_nothing() -> None:
    events = traffic(seed=5)
    for e in events[len(events) // 2 :]:
        if isinstance(e, Shown):
            e.version = "v2"
    snapshot = feed(make_pipeline(), events, 300)
    counts = [sum(isinstance(e, Shown) and e.version == v for e in events) for v in ("v1", "v2")]
    assert [result(snapshot, version=v).totals.impressions for v in ("v1", "v2")] == counts


def test_what_is_undefined_is_null_with_a_reason_and_never_zero_or_one_half() -> None:
    pipeline = make_pipeline()
    r = result(feed(pipeline, [Shown("a", BASE, pclick=0.0), Shown("b", BASE + 1, pclick=1.0)], 10))
    assert (r.metrics["auc"], r.reasons["auc"]) == (None, "no_clicks")
    assert (r.metrics["gauc"], r.reasons["gauc"]) == (None, "no_eligible_user")
    assert r.metrics["calibration"] is None
    assert r.metrics["log_loss"] == pytest.approx((1e-7 - np.log(1e-7)) / 2)
    assert readers_see(pipeline).undefined["auc:no_clicks"] > 0


def test_maturity_says_how_much_of_a_window_has_its_labels() -> None:
    pipeline = make_pipeline()
    events = traffic(seed=6)
    for start in range(0, len(events), 100):
        pipeline.take(make_batch(events[start : start + 100], pipeline.catalog))
    r = result(readers_see(pipeline))
    seen = sum(isinstance(e, Shown) for e in events)
    assert r.matured_share == pytest.approx(r.totals.impressions / seen)
    assert 0.5 < r.matured_share < 1
    assert r.newest_label <= events[-1].ts - 180_000


def test_an_absurd_backlog_of_panes_in_one_batch_is_no_problem() -> None:
    events: list[Event] = [Shown(f"i{i}", BASE + i * 3_600_000, pclick=0.3, clicked=i % 2) for i in range(500)]
    r = result(feed(make_pipeline(correction_horizon="1h"), events, 1000))
    assert (r.totals.impressions, r.totals.clicks) == (500, 250)


def test_past_the_budget_whole_users_are_sampled_and_the_standard_error_is_honest() -> None:
    from streameval.counting.users import Users
    from streameval.sketches.grid import score_keys, scores_bits
    from streameval.sketches.sorted_lists import entries

    inside = trials = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n = 20_000
        user = rng.integers(1, 2**62, 1500).astype(np.uint64)[rng.integers(0, 1500, n)]
        p = rng.beta(1, 4, n)
        y = (rng.random(n) < p).astype(np.int8)
        full, small = Users([5], "impressions", 1 << 40), Users([5], "impressions", 1 << 40)
        for users in (full, small):
            for part in np.array_split(np.arange(n), 4):
                entry = entries(users.slots(user[part]), score_keys(p[part]), y[part])
                users.add(0, 0, entry, scores_bits(p[part], y[part]), None, 1)
            if users is small:
                users._halve()
                users._halve()
        exact, _ = full.ranked(0, None, 1)
        ranked, spread = small.ranked(0, None, 1)
        assert small.sampled == 0.25
        assert spread is not None
        stderr = (spread * 0.75) ** 0.5 / (ranked.weight / 2**31)
        z = (ranked.weighted_auc / ranked.weight - exact.weighted_auc / exact.weight) / stderr
        trials, inside = trials + 1, inside + (abs(z) < 1.96)
        window, _ = small.ranked(0, 0, 1)
        assert window == ranked
    assert inside / trials > 0.85  # nominal 0.95; 60 seeded trials


def test_gauc_of_a_pane_is_over_the_users_of_that_pane_in_all_partitions() -> None:
    rng = np.random.default_rng(9)
    settings = Settings.model_validate({"windows": {"pane": "1m", "sliding": ["5m"]}})
    pipeline = Pipeline(settings, ManualClock())
    pane, user = rng.integers(0, 3, 600), rng.integers(0, 40, 600)
    p, y = rng.random(600), rng.integers(0, 2, 600)
    start = 1_700_000_040_000
    for partition in (0, 1):
        mine = np.flatnonzero(user % 2 == partition)
        mine = mine[np.argsort(pane[mine], kind="stable")]
        shown = [
            Shown(f"i{i}", start + int(pane[i]) * 60_000, user=f"u{user[i]}", pclick=float(p[i]), clicked=int(y[i]))
            for i in mine
        ]
        for part in (shown[:100], shown[100:]):
            pipeline.take(make_batch(part, pipeline.catalog, partition=partition))
    pipeline.finish()
    (columns,) = readers_see(pipeline).panes.values()
    assert columns.metrics["gauc"].size == 3
    for number, found in enumerate(columns.metrics["gauc"].tolist()):
        users = [np.flatnonzero((pane == number) & (user == u)) for u in range(40)]
        terms = [(w.size, auc_of(y[w], p[w])) for w in users if len(set(y[w])) == 2]
        assert found == pytest.approx(sum(n * auc for n, auc in terms) / sum(n for n, _ in terms), abs=1e-9)


def test_a_pane_has_the_standard_errors_of_a_result_over_it() -> None:
    rng = np.random.default_rng(4)
    pipeline = Pipeline(Settings.model_validate({"windows": {"pane": "1m", "sliding": ["5m"]}}), ManualClock())
    start = 1_700_000_040_000
    shown = [
        Shown(f"i{i}", start + i, user=f"u{i % 300}", pclick=float(p), clicked=int(y))
        for i, (p, y) in enumerate(zip(rng.random(2000), rng.integers(0, 2, 2000), strict=True))
    ]
    pipeline.take(make_batch(shown, pipeline.catalog))
    pipeline.finish()
    snapshot = readers_see(pipeline)
    (columns,) = snapshot.panes.values()
    whole = next(r for r in snapshot.results if r.window == "all" and r.slice is None)
    for name in with_stderr():
        (found,) = columns.stderrs[name].tolist()
        expected = whole.stderrs.get(name)
        assert (found == expected) if expected is not None else np.isnan(found)
    assert columns.stderrs["log_loss"][0] > 0
    assert columns.df is not None
    assert columns.gauc_df is not None
    assert (columns.df.tolist(), columns.gauc_df.tolist()) == ([whole.stderr_df], [whole.gauc_stderr_df])
    assert whole.as_json()["stderr_df"] == whole.stderr_df > 30
    assert not columns.stderrs["auc"].flags.writeable


def test_a_partition_that_was_silent_while_others_went_on_goes_on_in_whole_panes() -> None:
    minute, times = 60_000, {}
    clock = ManualClock()
    join = {"attribution_window": "1m", "allowed_lateness": "0s", "request_gap": "0s", "correction_horizon": "5m"}
    settings = {"join": {**join, "idle_timeout": "30s"}, "windows": {"sliding": ["5m"]}}
    pipeline = Pipeline(Settings.model_validate(settings), clock)
    stored: dict[tuple[int, int], int] = {}  # impressions by partition and pane, as a history would have them

    def show(partition: int, ts: int) -> None:
        shown = Shown(f"{partition}-{ts}", ts, f"u{partition}", clicked=0)
        pipeline.take(make_batch([shown], pipeline.catalog, partition))
        times.setdefault((partition, ts // minute), []).append(ts)
        for _ in range(10):
            clock.advance(2)
            pipeline.tick(lambda: {("impressions", 0), ("impressions", 1)})
        readers_see(pipeline)
        for number, panes in pipeline.history_rows((0, 1)).items():
            for rows in panes:
                stored[number, rows.pane] = int(rows.overall.values[0])
                assert rows.counts.seen >= stored[number, rows.pane]
            pipeline.partitions[number].scoreboard.overall.written(True)

    for number in range(10):
        for partition in (0, 1):
            show(partition, BASE + number * minute)
    for number in range(10, 60):  # only one of them: the other is idle, and holds nobody back
        show(0, BASE + number * minute)
    for late in (6, 7, 8, 9):  # the other comes back where it was, with what is late but not too late
        show(1, BASE + late * minute + 30_000)
    for number in range(10, 60):
        show(1, BASE + number * minute)
    pipeline.finish()
    show(0, BASE + 60 * minute)
    assert stored == {key: len(ts) for key, ts in times.items() if key in stored}
    assert {key for key in times if key[1] < BASE // minute + 58} <= stored.keys()


def test_a_pane_goes_to_the_history_once_and_not_with_every_request_that_closes() -> None:
    pipeline, written = make_pipeline(), []
    for second in range(0, 1800, 10):  # every ten seconds a request of two impressions
        ts = BASE + second * 1000
        shown = [Shown(f"{second}-{i}", ts + i, f"u{second}", 0.1 + i / 2, request=f"r{second}") for i in (0, 1)]
        pipeline.take(make_batch([*shown, Tap(f"{second}-1", ts + 5)], pipeline.catalog))
        written += [rows.pane for rows in pipeline.history_rows((0,)).get(0, [])]
        pipeline.partitions[0].scoreboard.overall.written(True)
    assert len(written) == len(set(written)) == 25
    assert readers_see(pipeline).results[0].metrics["gauc_request"] == 1.0


def test_only_a_silence_that_was_listened_to_makes_an_input_idle() -> None:
    clock = ManualClock()
    pipeline = Pipeline(Settings.model_validate({"join": {"idle_timeout": "30s"}}), clock)
    pipeline.take(make_batch([Shown("a", BASE)], pipeline.catalog))
    joiner = pipeline.partitions[0].joiner
    everything, asked = {("impressions", 0)}, []

    def caught_up() -> set[tuple[str, int]]:
        asked.append(clock())
        return everything

    for step in (3600.0, -7200.0, 3600.0):  # frozen (SIGSTOP), the clock set back, and forward again
        clock.advance(step)
        pipeline.tick(caught_up)
    assert not joiner.progress.is_idle(0)
    assert not asked
    everything = set()  # messages wait, or nobody answers: no silence
    for _ in range(40):
        clock.advance(1)
        pipeline.tick(caught_up)
    assert asked
    assert not joiner.progress.is_idle(0)
    everything = {("impressions", 0)}
    for _ in range(31):
        clock.advance(1)
        pipeline.tick(caught_up)
    assert joiner.progress.is_idle(0)


@pytest.mark.parametrize("idle_timeout", ["1s", "30s"])
@pytest.mark.parametrize("ticks", [0, 1])
@pytest.mark.parametrize("at_end", [False, True])
def test_an_input_that_speaks_again_is_waited_for_however_far_ahead_the_other_was_read(
    ticks: int, at_end: bool, idle_timeout: str
) -> None:
    """Clicks were silent for a while, and go on; a client reads impressions of twenty horizons before the next of them.

    A tick takes two seconds, so with a timeout of one it finds the impressions silent, too.
    """
    minute, clock = 60_000, ManualClock()
    join = {"attribution_window": "1m", "allowed_lateness": "0s", "request_gap": "30s", "correction_horizon": "2m"}
    join["idle_timeout"] = idle_timeout
    pipeline = Pipeline(Settings.model_validate({"join": join}), clock)
    places = {("impressions", 0), ("clicks", 0)}
    pipeline.inputs = ("impressions", "clicks")

    def take(*some: Shown | Tap) -> None:
        pipeline.take(make_batch([*some], pipeline.catalog, shared=False))

    def wait(ticks: int, at_end: set[tuple[str, int]]) -> None:
        for _ in range(ticks):
            clock.advance(2)
            pipeline.tick(lambda: at_end)

    take(Shown("first", BASE), Tap("first", BASE + 1))
    wait(20, places)
    assert pipeline.partitions[0].joiner.progress.is_idle(1)
    take(*[Shown(f"i{k}", BASE + k * minute) for k in range(1, 40)])
    wait(ticks, places if at_end else places - {("clicks", 0)})
    take(*[Tap(f"i{k}", BASE + k * minute + 1) for k in range(1, 40)])
    pipeline.finish()
    counts = readers_see(pipeline).report()["events"]
    if ticks and at_end:  # they were known to be silent: what is so late is not waited for
        assert counts["unmatched_clicks"] > 30
        return
    assert counts["unmatched_clicks"] == 0
    assert counts["matched_clicks"] == 40


def test_a_new_version_has_users_in_the_first_snapshot_that_knows_it() -> None:
    pipeline = make_pipeline()
    minute = 60_000
    for step, version in ((0, "v1"), (10, "v2")):
        events: list[Event] = [
            Shown(f"{version}-{i}", BASE + step * minute + i, f"u{i % 5}", 0.3, version=version) for i in range(50)
        ]
        events.append(Shown(f"{version}-end", BASE + (step + 5) * minute, "u0", 0.3, version=version))
        pipeline.take(make_batch(events, pipeline.catalog, 0))
        snapshot = readers_see(pipeline)  # seconds have not passed since the one before
        counted = {r.series.version for r in snapshot.results if r.totals.impressions}
        assert version in counted
        assert counted <= {series.version for series in snapshot.users}


def test_users_are_renewed_also_after_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    elapsed = ManualClock(0.0)
    monkeypatch.setattr("streameval.results.user_columns.time.monotonic", elapsed)
    clock = ManualClock()
    pipeline = Pipeline(
        Settings.model_validate({"join": {"attribution_window": "1s", "allowed_lateness": "0s"}}), clock
    )
    sizes = []
    for number in range(3):
        pipeline.take(make_batch([Shown(f"{number}", BASE + 10_000 * number, f"u{number}")], pipeline.catalog))
        clock.advance(-3600.0)
        elapsed.advance(6.0)
        sizes.append(sum(len(users) for users in readers_see(pipeline).users.values()))
    assert sizes == [0, 1, 2]


# -- time that is wrong ------------------------------------------------------------------------------------------


def unit_log(click_unit: int, impression_unit: int = 1, delay: int = 20_000) -> list[bytes]:
    """300 impressions in an hour, each with a click so many ms later; times divided by these."""
    rows: list[dict[str, object]] = []
    for i in range(300):
        ts = BASE + 12_000 * i
        shown = {"impression_id": f"i{i}", "user_id": f"u{i % 20}", "pclick": 0.1, "ts": ts // impression_unit}
        rows += [shown, {"impression_id": f"i{i}", "ts": (ts + delay) // click_unit}]
    return [json.dumps(row).encode() for row in rows]


def decoded(pipeline: Pipeline, values: list[bytes]) -> Snapshot:
    decoder = Decoder(pipeline.catalog, clock=lambda: BASE + 10_000_000, max_future=3_600_000)
    for start in range(0, len(values), 50):
        part = values[start : start + 50]
        batch, _ = decoder.messages(
            part, [0] * len(part), topic=("t",), partition=0, offsets=range(start, start + len(part)), format="json",
            shared=True,
        )  # fmt: skip
        pipeline.take(batch)
    pipeline.finish()
    return readers_see(pipeline)


def test_clicks_in_seconds_are_refused_and_are_no_positives() -> None:
    assert decoded(make_pipeline(), unit_log(click_unit=1)).events["matched_clicks"] == 300
    snapshot = decoded(make_pipeline(), unit_log(click_unit=1000))
    assert snapshot.events["invalid"] == {"out_of_range": 300}
    assert (snapshot.events["impressions"], snapshot.events["matched_clicks"]) == (300, 0)
    assert result(snapshot, version="unknown").totals.clicks == 0
    assert not snapshot.join.reliable, "labels without a single click, while hundreds of events were refused"
    assert "300 events were rejected" in (snapshot.join.reason or "")


def test_labels_without_a_click_are_not_reliable_when_all_clicks_come_after_the_attribution_window() -> None:
    """As where the clicks' clock is hours ahead."""
    snapshot = decoded(make_pipeline(), unit_log(click_unit=1, delay=5_400_000))
    assert snapshot.events["late_clicks"] == 300
    assert result(snapshot, version="unknown").totals.clicks == 0
    assert not snapshot.join.reliable
    assert "300 clicks came later than join.attribution_window" in (snapshot.join.reason or "")


def test_both_kinds_in_seconds_are_refused_not_joined_in_a_window_a_thousand_times_as_long() -> None:
    snapshot = decoded(make_pipeline(), unit_log(click_unit=1000, impression_unit=1000))
    assert snapshot.events["invalid"] == {"out_of_range": 600}
    assert snapshot.events["impressions"] == snapshot.events["clicks"] == 0


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("first", ["impression", "click"])
@pytest.mark.parametrize(("ahead", "positive"), [(0, True), (60_000, True), (60_001, False), (3_600_000, False)])
def test_a_click_may_precede_its_impression_by_the_lateness_and_not_more(
    ahead: int, positive: bool, first: str, size: int
) -> None:
    pipeline = make_pipeline()  # lateness: 1m
    ts = BASE + 7_200_000
    pair: list[Event] = [Shown("a", ts), Tap("a", ts - ahead)]
    snapshot = feed(pipeline, [Shown("z", ts), *(pair if first == "impression" else pair[::-1])], size)
    expected = {"matched_clicks": 1, "early_clicks": 0} if positive else {"matched_clicks": 0, "early_clicks": 1}
    assert {name: snapshot.events[name] for name in expected} == expected
    assert result(snapshot).totals.clicks == positive
    assert snapshot.events["unmatched_clicks"] == 0


def test_a_join_whose_clicks_are_dated_before_their_impressions_is_unreliable_and_says_so() -> None:
    events: list[Event] = []
    for i in range(300):
        events += [Shown(f"i{i}", BASE + 12_000 * i), Tap(f"i{i}", BASE + 12_000 * i - 3_600_000)]
    snapshot = feed(make_pipeline(), events, 100)
    assert snapshot.events["early_clicks"] == 300
    assert not snapshot.join.reliable
    assert "300 are dated before their impression" in (snapshot.join.reason or "")


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize(("old", "reliable"), [(60, True), (300, False)])
def test_a_log_that_is_not_in_order_of_time_is_unreliable_and_says_what_was_not_counted(
    old: int, reliable: bool, labelled: bool
) -> None:
    events: list[Event] = []
    for i in range(600):
        ts, label = BASE + 86_400_000 * 3 + 1000 * i, int(i % 10 == 0) if labelled else None
        events.append(Shown(f"new{i}", ts, clicked=label))
        if not labelled and i % 10 == 0:
            events.append(Tap(f"new{i}", ts + 500))
        if i < old:
            events.append(Shown(f"old{i}", BASE + 1000 * i, clicked=label))
    snapshot = feed(make_pipeline(), events, 100)
    assert snapshot.events["expired_impressions"] == old
    assert {r.reliable for r in snapshot.results} == {snapshot.join.reliable} == {reliable}
    said = "300 of 900 impressions came later than join.correction_horizon and were not counted"
    assert (snapshot.join.reason or "").startswith("" if reliable else said)


# -- ids that are not unique -------------------------------------------------------------------------------------


def two_models(n: int = 60) -> list[dict[str, object]]:
    """n impressions that two models log under the same ids, and a click on every third."""
    events: list[dict[str, object]] = []
    for i in range(n):
        ts = BASE + 12_000 * i
        shown = {"impression_id": f"i{i}", "user_id": f"u{i % 7}", "pclick": 0.1, "ts": ts}
        events += [{**shown, "model": model} for model in ("first", "second")]
        if i % 3 == 0:
            events.append({"impression_id": f"i{i}", "ts": ts + 1000})
    return events


@pytest.mark.parametrize("size", [1, 50, 1000])
def test_a_second_model_under_the_same_ids_is_refused_aloud(size: int) -> None:
    pipeline = make_pipeline()
    told: list[tuple[bytes, str, int]] = []
    pipeline.on_conflicts = lambda found: told.extend(found.batch.whole(place) for place in found.places.tolist())
    values = [json.dumps(event).encode() for event in two_models()]
    for start in range(0, len(values), size):
        part = values[start : start + size]
        decoder = Decoder(pipeline.catalog, clock=lambda: BASE + 10_000_000, max_future=3_600_000)
        batch, _ = decoder.messages(
            part, [0] * len(part), topic=("t",), partition=0, offsets=range(start, start + len(part)), format="json",
            shared=True,
        )  # fmt: skip
        pipeline.take(batch)
    pipeline.finish()
    snapshot = readers_see(pipeline)
    names = ("impressions", "conflicting_impressions", "duplicate_impressions", "matched_clicks")
    assert [snapshot.events[name] for name in names] == [60, 60, 0, 20]
    assert snapshot.events["invalid"] == {"conflicting_id": 60}
    assert not snapshot.join.reliable
    assert "60 of 120 impressions were rejected" in (snapshot.join.reason or "")
    # a log begins with two different events: what waited for the second has no bytes any more when its batch is gone
    letters = [(value, "t", offset) for offset, value in enumerate(values) if b'"second"' in value]
    assert told == letters[size == 1 :]


def test_a_copy_of_an_impression_is_a_duplicate_and_no_conflict() -> None:
    events: list[Event] = [Shown(f"i{i % 50}", BASE + 1000 * (i % 50), version="v1") for i in range(100)]
    events.append(Shown("i3", BASE + 3000, version="v2"))
    for size in (1, 7, 1000):
        snapshot = feed(make_pipeline(), events, size)
        assert (snapshot.events["duplicate_impressions"], snapshot.events["conflicting_impressions"]) == (50, 1)
        assert snapshot.join.reliable

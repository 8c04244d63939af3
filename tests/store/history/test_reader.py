"""The reading side, from events through a pipeline to a past range: what scikit-learn says of the raw events."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from streameval.events.batch import Series
from streameval.events.durations import DAY, HOUR
from streameval.loop.options import options_of
from streameval.loop.pipeline import Pipeline
from streameval.results import lines
from streameval.results.lines import Busy, TooMuch
from streameval.settings.tree import Settings
from streameval.sketches.layout import Options
from streameval.store.history import added
from streameval.store.history.format import SAMPLE_ENTRIES, HistoryFormat
from streameval.store.history.reader import HistoryReader
from streameval.store.history.rows import pane_rows
from streameval.store.history.user_samples import depth
from streameval.store.history.writer import HistoryWriter, Retention
from streameval.testing import ManualClock, Scores, Shown, Tap, counted_pane, history_content, make_batch, readers_see

MINUTE = 60_000
START = 19_000 * DAY
KEEP = Retention(2 * DAY, 30 * DAY, 400 * DAY, 1 << 30)
V1, V2 = Series("m", "v1", "logged"), Series("m", "v2", "logged")


def traffic(n: int, hours: float, seed: int, users: int = 300) -> list[Shown | Tap]:
    """Impressions and clicks; some clicks are so late that labels are corrected after maturity."""
    rng = np.random.default_rng(seed)
    ts = START + np.sort(rng.integers(0, int(hours * HOUR), n))
    events: list[tuple[int, Shown | Tap]] = []
    for i in range(n):
        p = float(rng.beta(1, 5))
        user = f"u{rng.integers(0, users)}"
        version = "v1" if rng.random() < 0.6 else "v2"
        events.append((int(ts[i]), Shown(f"i{i}", int(ts[i]), user, p, version, request=f"{user}-{i // 50}")))
        if rng.random() < p:
            at = int(ts[i] + rng.integers(1, 119_000))
            events.append((at + (900_000 if rng.random() < 0.1 else 0), Tap(f"i{i}", at)))
    return [event for _, event in sorted(events, key=lambda e: e[0])]


def partition_of(user: str) -> int:
    return sum(map(ord, user)) % 2


def run(
    events: list[Shown | Tap],
    weighting: str = "impressions",
    size: int = 700,
    metrics: Mapping[str, object] = MappingProxyType({}),
) -> Pipeline:
    tree = {
        "metrics": dict(metrics),
        "join": {"attribution_window": "2m", "allowed_lateness": "1m", "request_gap": "1m"},
        "users": {"weighting": weighting},
    }
    pipeline = Pipeline(Settings.model_validate(tree), ManualClock())
    user = {e.id: e.user for e in events if isinstance(e, Shown)}
    for begin in range(0, len(events), size):
        part = events[begin : begin + size]
        for p in (0, 1):
            mine = [e for e in part if partition_of(user[e.id]) == p]
            pipeline.take(make_batch(mine, pipeline.catalog, p))
    pipeline.finish()
    readers_see(pipeline, with_history=False)
    return pipeline


def store(pipeline: Pipeline, path: Path, weighting: str = "impressions") -> tuple[HistoryWriter, HistoryReader]:
    form = HistoryFormat(MINUTE, options_of(pipeline.settings), weighting)
    writer = HistoryWriter(path, form, KEEP)
    for partition, monitor in pipeline.partitions.items():
        rows = pane_rows(
            monitor.scoreboard,
            monitor.panes,
            pipeline.catalog,
            pipeline._slice_rows,
            monitor.scoreboard.overall.numbers(),
        )
        writer.write(partition, 1, rows)
    return writer, HistoryReader(path, form, 20)


def columns(events: list[Shown | Tap], version: str, start: int, end: int) -> tuple[np.ndarray, ...]:
    clicked = {e.id for e in events if isinstance(e, Tap)}
    mine = [e for e in events if isinstance(e, Shown) and e.version == version and start <= e.ts < end]
    return tuple(np.array(c) for c in zip(*((e.id in clicked, e.pclick, e.user) for e in mine), strict=True))


def brute_gauc(y: np.ndarray, p: np.ndarray, user: np.ndarray) -> float:
    terms = []
    order = np.argsort(user, kind="stable")
    for on in np.split(order, np.flatnonzero(np.diff(np.unique(user, return_inverse=True)[1][order])) + 1):
        clicks, others = p[on][y[on] == 1], p[on][y[on] == 0]
        if clicks.size and others.size:
            terms.append((on.size, (clicks[:, None] > others).mean() + (clicks[:, None] == others).mean() / 2))
    return sum(n * auc for n, auc in terms) / sum(n for n, _ in terms)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.slow
def test_a_past_range_says_what_scikit_learn_says_of_the_raw_events(path, folded: bool) -> None:
    events = traffic(9000, 4, seed=0)
    pipeline = run(events)
    live = {r.series: r for r in readers_see(pipeline, with_history=False).results if r.window == "all"}
    writer, reader = store(pipeline, path)
    start, end = START + 20 * MINUTE + 7, START + 3 * HOUR - 1
    if folded:
        assert writer.fold({0: START + 9 * DAY, 1: START + HOUR}, START + 9 * DAY) == 5
        start, end = START, START + 3 * HOUR
    found = reader.range(reader.series_names(), start, end)
    assert (found.matched, len(found.results)) == (2, 2)
    cover = found.coverage
    assert (cover.start, cover.end) == (START if folded else START + 20 * MINUTE, START + 3 * HOUR)
    assert (cover.panes, cover.expected) == ((180, 180) if folded else (160, 160))
    for result in found.results:
        y, p, user = columns(events, result.series.version, cover.start, cover.end)
        m = result.metrics
        assert (result.totals.impressions, result.totals.clicks) == (len(y), y.sum())
        assert 0 < m["auc_error"] < 1e-3
        assert abs(m["auc"] - roc_auc_score(y, p)) <= m["auc_error"]
        assert m["log_loss"] == pytest.approx(log_loss(y, p), abs=1e-12)
        assert m["mse"] == pytest.approx(brier_score_loss(y, p), abs=1e-12)
        assert m["calibration"] == pytest.approx(p.mean() / y.mean(), abs=1e-12)
        assert (result.users_sampled, result.gauc_sampling_error) == (1.0, None)
        assert m["gauc"] == pytest.approx(brute_gauc(y, p, user), abs=1e-8)
        assert (result.window, result.window_start, result.window_end) == ("range", cover.start, cover.end)
        assert result.matured_share == 1.0
        assert result.newest_label == max(e.ts for e in events if isinstance(e, Shown) and e.ts < cover.end)
    assert sum(r.corrected for r in found.results) > 50
    everything = {r.series: r for r in reader.range(reader.series_names(), None, None).results}
    for series, one in live.items():
        other = everything[series]
        assert one.totals == other.totals
        assert (one.buckets, one.quantiles, one.corrected) == (other.buckets, other.quantiles, other.corrected)
        exact = {"auc", "auc_error"}  # live sorts the scores while they are few
        live_only = {name for name in one.metrics if name.endswith("_by_user")}
        assert {other.reasons[name] for name in live_only} == {"not_kept_for_ranges"}
        assert {k: v for k, v in one.metrics.items() if k not in exact | live_only} == {
            k: v for k, v in other.metrics.items() if k not in exact | live_only
        }
    writer.close()


@pytest.mark.slow
def test_the_same_events_in_other_batches_give_the_same_history_to_the_last_byte(tmp_path) -> None:
    events = traffic(3000, 1, seed=5)
    contents = []
    for size in (3, 250, 100_000):
        writer, _ = store(run(events, size=size), tmp_path / f"{size}.sqlite")
        writer.close()
        contents.append(history_content(writer.path))
    assert contents[0] == contents[1] == contents[2]
    assert len(contents[0]["samples"]) == 2 * 2 * 60  # versions, partitions, minutes


@pytest.mark.parametrize("kept", [True, False])
def test_gauc_by_value_of_a_range_says_whether_a_setting_is_missing_or_the_values_of_the_past(path, kept: bool) -> None:
    pipeline = run(traffic(500, 1, seed=1, users=40), metrics={"value": kept})
    writer, reader = store(pipeline, path)
    for result in reader.range(reader.series_names(), None, None).results:
        assert result.metrics["gauc_value"] is None
        assert result.reasons["gauc_value"] == ("not_kept_for_ranges" if kept else "values_not_kept")
    writer.close()


@pytest.mark.parametrize("weighting", ["clicks", "uniform", "value"])
def test_gauc_of_a_range_has_the_weights_of_now_but_no_values(path, weighting: str) -> None:
    pipeline = run(traffic(2000, 1, seed=1, users=40), weighting)
    live = {r.series: r for r in readers_see(pipeline, with_history=False).results if r.window == "all"}
    writer, reader = store(pipeline, path, weighting)
    for result in reader.range(reader.series_names(), None, None).results:
        if weighting == "value":
            assert (result.metrics["gauc"], result.reasons["gauc"]) == (None, "not_kept_for_ranges")
            assert result.metrics["gauc_users"] is None
        else:
            assert result.metrics["gauc"] == pytest.approx(live[result.series].metrics["gauc"], abs=1e-9)
        assert result.metrics["gauc_request"] == live[result.series].metrics["gauc_request"]
    line = reader.series("gauc", [live[s].series for s in live], None, None)
    assert all(
        (p.value is None) == (weighting == "value" or p.reason is not None) for one in line.values() for p in one.points
    )
    writer.close()


@pytest.mark.slow
def test_a_sampled_gauc_is_within_its_standard_error_of_the_exact_one(tmp_path) -> None:
    form = HistoryFormat(MINUTE, Options((0.1,)), "impressions")
    z = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        writer = HistoryWriter(tmp_path / f"{seed}.sqlite", form, KEEP)
        ids = rng.integers(1, 2**62, 1500).astype(np.uint64)
        drawn = []
        for minute in range(8):
            n = 3 * SAMPLE_ENTRIES[0]
            user, p = ids[rng.integers(0, ids.size, n)], rng.beta(1, 4, n)
            y = (rng.random(n) < p).astype(np.int8)
            drawn.append((user, p, y))
            scores = Scores(np.zeros(n, np.int32), user, p, y, np.zeros(n, np.int32))
            writer.write(0, 1, [counted_pane(START // MINUTE + minute, (V1,), scores, form)])
        user, p, y = (np.concatenate(column) for column in zip(*drawn, strict=True))
        reader = HistoryReader(tmp_path / f"{seed}.sqlite", form, 20)
        for fold in (False, True):
            if fold:
                assert writer.fold({0: START + DAY}, START + 3 * DAY) == 1
            (result,) = reader.range([V1], None, None, [None]).results
            k = -int(np.log2(result.users_sampled))
            assert k >= 2
            kept = depth(user) >= k
            assert result.metrics["gauc"] == pytest.approx(brute_gauc(y[kept], p[kept], user[kept]), abs=1e-8)
            if not fold:
                z.append((result.metrics["gauc"] - brute_gauc(y, p, user)) / result.gauc_sampling_error)
        (point,) = reader.series("gauc", [V1], None, None)[V1].points
        assert (point.value, point.error) == (result.metrics["gauc"], result.gauc_sampling_error)
        writer.close()
    assert max(map(abs, z)) < 4
    assert sum(abs(one) < 1.96 for one in z) >= 20  # nominal 0.95 of 25 seeded trials


def test_a_slice_asked_for_alone_has_the_errors_that_it_has_among_all(path) -> None:
    pipeline = Pipeline(Settings.model_validate({"slices": {"dimensions": ["country"]}}), ManualClock())
    shown = [
        Shown(f"i{i}", START + i, user=f"u{i * i % 397}", pclick=(i % 97) / 97, clicked=int(i * i % 397 % 5 == 0))
        for i in range(3000)
    ]
    batch = make_batch(shown, pipeline.catalog)
    countries = np.array([pipeline.catalog.value_code(0, name) for name in ("de", "fr")])
    impressions = replace(batch.impressions, slices=pipeline.catalog.combine([countries[np.arange(3000) % 2]]))
    pipeline.take(replace(batch, impressions=impressions))
    pipeline.finish()
    (monitor,) = pipeline.partitions.values()
    rows = pane_rows(
        monitor.scoreboard, monitor.panes, pipeline.catalog, pipeline._slice_rows, monitor.scoreboard.overall.numbers()
    )
    form = HistoryFormat(MINUTE, options_of(pipeline.settings), "impressions")
    writer = HistoryWriter(path, form, KEEP)
    writer.write(0, 1, rows)
    live = {r.slice: r for r in readers_see(pipeline).results if r.window == "all"}
    reader = HistoryReader(path, form, 20)
    (series,) = reader.series_names()
    among_all = {r.slice: r for r in reader.range([series], None, None).results}
    found = reader.range([series], None, None, [("country", "fr")])
    (alone,) = found.results
    assert found.matched == 1
    assert alone.stderrs == among_all["country", "fr"].stderrs == live["country", "fr"].stderrs
    assert alone.stderr_df == live["country", "fr"].stderr_df == live[None].stderr_df is not None
    assert live[None].design_effects["ctr"] > 1.5
    writer.close()


def test_more_users_than_are_ranked_at_a_time_are_sampled_further(path, form, writer, pane, monkeypatch) -> None:
    for minute in range(6):
        writer.write(0, 1, [pane(minute, n=400, users=200)])
    reader = HistoryReader(path, form, 20)
    whole = reader.range([V1], None, None, [None]).results[0]
    monkeypatch.setattr(added, "RANKED", 150)
    few = reader.range([V1], None, None, [None]).results[0]
    assert (whole.users_sampled, few.users_sampled < 0.5) == (1.0, True)
    assert few.gauc_sampling_error > 0
    assert few.totals == whole.totals


def test_a_range_is_widened_until_it_cuts_no_part_of_any_partition(path, form, writer, pane) -> None:
    for minute in range(0, 180, 5):
        writer.write(0, 1, [pane(minute)])
        writer.write(1, 1, [pane(minute + 1)])
    writer.fold({0: START + 2 * HOUR}, START + 9 * DAY)  # partition 0 has two hours, partition 1 minutes
    reader = HistoryReader(path, form, 20)

    def minutes(start: int, end: int) -> tuple[int, ...]:
        c = reader.range([V1], START + start * MINUTE, START + end * MINUTE).coverage
        return (c.start - START) // MINUTE, (c.end - START) // MINUTE, c.panes, c.expected

    assert minutes(70, 71) == (60, 120, 12, 60)  # 12 panes of either partition; which ones, an hour does not say
    assert minutes(50, 61) == (0, 120, 24, 120)
    assert minutes(121, 130) == (121, 130, 3, 9)
    assert minutes(119, 121) == (60, 121, 13, 61)
    (hour,) = (p for p in reader.series("ctr", [V1], START + 70 * MINUTE, START + 70 * MINUTE)[V1].points)
    assert (hour.start, hour.length) == (START + HOUR, HOUR)
    merged = reader.range([V1], START + HOUR, START + 2 * HOUR, [None]).results[0]
    assert (hour.impressions, hour.clicks) == (merged.totals.impressions, merged.totals.clicks)


def test_a_range_without_anything_in_it_is_empty_and_says_so(path, form, writer, pane) -> None:
    reader = HistoryReader(path, form, 20)
    assert reader.range([], None, None).coverage.panes == 0
    assert reader.series("auc", [V1], None, None) == {}
    writer.write(0, 1, [pane(0)])
    found = reader.range([V1, V2], START + DAY, START + 2 * DAY)
    assert (found.results, found.matched) == ((), 0)
    assert (found.coverage.first, found.coverage.panes, found.coverage.expected) == (None, 0, 1440)
    after = reader.range([V1], START + DAY, None)
    assert (after.results, after.coverage.expected) == ((), 0)
    before = reader.range([V1], None, START - DAY).coverage
    assert (before.start, before.end, before.expected) == (START - DAY, START - DAY, 0)


def test_results_come_by_name_and_a_limit_counts_the_rest(path, form, writer, pane) -> None:
    writer.write(0, 1, [pane(0), pane(1)])
    reader = HistoryReader(path, form, 20)
    names = [(r.series.version, r.slice) for r in reader.range([V2, V1], None, None).results]
    c0, c1 = ("country", "c0"), ("country", "c1")
    assert names == [("v1", None), ("v2", None), ("v1", c0), ("v1", c1), ("v2", c0), ("v2", c1)]
    some = reader.range([V2, V1], None, None, [c1, None], limit=3)
    assert [(r.series.version, r.slice) for r in some.results] == [("v1", None), ("v2", None), ("v1", c1)]
    assert some.matched == 4
    sliced = some.results[2]
    assert (sliced.metrics["gauc"], sliced.reasons["gauc"]) == (None, "not_kept_for_slices")


def test_too_large_a_question_is_refused_and_what_it_names_instead_is_not(path, form, writer, pane) -> None:
    for minute in range(120):
        writer.write(0, 1, [pane(minute)])
    for bounds in ({"max_rows": 300}, {"max_bytes": 100_000}):
        reader = HistoryReader(path, form, 20, **bounds)
        with pytest.raises(TooMuch, match=r"ask for at most (\d+)m at a time, or name one model") as refused:
            reader.range([V1, V2], None, None)
        fits = int(str(refused.value).split("at most ")[1].split("m ")[0])
        assert fits > 10
        assert reader.range([V1, V2], START, START + fits * MINUTE).results
    reader = HistoryReader(path, form, 20, max_rows=100)
    with pytest.raises(TooMuch):
        reader.series("auc", [V1], None, None)
    assert len(reader.series("auc", [V1], None, None, limit=100)[V1].points) == 100


def test_how_much_may_be_asked_for_is_said_in_whole_days(path, form, writer, pane) -> None:
    for hour in range(0, 30 * 24, 4):
        writer.write(0, 1, [pane(hour * 60)])
    with pytest.raises(TooMuch, match=r"ask for at most (1\d|2\d)d at a time"):
        HistoryReader(path, form, 20, max_rows=700).range([V1, V2], None, None)


def test_the_newest_points_are_kept_and_unwanted_panes_are_not_read(path, form, writer, pane) -> None:
    for minute in range(10):
        writer.write(0, 1, [pane(minute)])
    reader = HistoryReader(path, form, 20)
    line = reader.series("log_loss", [V1], None, None, limit=3)[V1]
    assert ([(p.start - START) // MINUTE for p in line.points], line.truncated) == ([7, 8, 9], True)
    line = reader.series("log_loss", [V1], None, START + 8 * MINUTE, 3, {V1: {START + 7 * MINUTE}})[V1]
    assert ([(p.start - START) // MINUTE for p in line.points], line.truncated) == ([5, 6, 8], True)
    assert all(p.error is None for p in line.points)
    errors = [p.error for p in reader.series("auc", [V1], None, None)[V1].points]
    assert all(error is not None and 0 <= error < 0.01 for error in errors)


def test_names_are_what_counts_and_not_the_codes_of_a_process(path, form, writer) -> None:
    """Two runs of the program number versions by arrival: the other way around after a restart."""
    rng = np.random.default_rng(0)
    n = 200
    p, user = rng.random(n), rng.integers(1, 9, n).astype(np.uint64)
    label, country = (rng.random(n) < p).astype(np.int8), np.zeros(n, np.int32)
    series = np.sort(rng.integers(0, 2, n)).astype(np.int32)
    writer.write(0, 1, [counted_pane(START // MINUTE, (V1, V2), Scores(series, user, p, label, country), form)])
    writer.write(0, 2, [counted_pane(START // MINUTE + 1, (V2, V1), Scores(series, user, p, label, country), form)])
    found = {
        r.series: r.totals.impressions
        for r in HistoryReader(path, form, 20).range([V1, V2], None, None, [None]).results
    }
    assert found == {V1: n, V2: n}


def test_only_so_many_questions_are_answered_at_a_time(path, form, writer, pane, monkeypatch) -> None:
    writer.write(0, 1, [pane(0)])
    reader = HistoryReader(path, form, 20)
    monkeypatch.setattr(lines, "WAIT_SECONDS", 0.05)
    inside, leave = threading.Barrier(lines.AT_A_TIME + 1), threading.Event()

    def hold() -> None:
        with reader._reading():
            inside.wait(10)
            leave.wait(10)

    threads = [threading.Thread(target=hold) for _ in range(lines.AT_A_TIME)]
    for thread in threads:
        thread.start()
    inside.wait(10)
    with pytest.raises(Busy, match="try again in a moment"):
        reader.series_names()
    leave.set()
    for thread in threads:
        thread.join()
    assert reader.series_names() == [V1, V2]


def test_rows_taken_from_a_monitor_do_not_change_when_it_counts_on(path) -> None:
    events = traffic(3000, 1, seed=3)
    pipeline = Pipeline(Settings(), ManualClock())
    shown = [
        Shown(e.id, e.ts, e.user, e.pclick, e.version, clicked=i % 3 == 0)
        for i, e in enumerate(events)
        if isinstance(e, Shown)
    ]
    pipeline.take(make_batch(shown[:1500], pipeline.catalog))
    pipeline.finish()
    readers_see(pipeline, with_history=False)
    (monitor,) = pipeline.partitions.values()
    panes = monitor.scoreboard.overall.numbers()
    first = pane_rows(monitor.scoreboard, monitor.panes, pipeline.catalog, pipeline._slice_rows, panes)
    form = HistoryFormat(MINUTE, options_of(pipeline.settings), "impressions")
    writer = HistoryWriter(path, form, KEEP)
    writer.write(0, 1, first)
    before = HistoryReader(path, form, 20).range([Series("default", "v1", "logged")], None, None).results[0]
    pipeline.take(make_batch(shown[1500:], pipeline.catalog))
    monitor.background.wait()
    monitor.scoreboard.users._halve()
    writer.write(0, 1, first)
    after = HistoryReader(path, form, 20).range([Series("default", "v1", "logged")], None, None).results[0]
    assert (after.totals, after.metrics) == (before.totals, before.metrics)
    writer.write(0, 1, pane_rows(monitor.scoreboard, monitor.panes, pipeline.catalog, pipeline._slice_rows, panes))
    halved = HistoryReader(path, form, 20).range([Series("default", "v1", "logged")], None, None).results[0]
    assert halved.users_sampled == 0.5
    writer.close()


def test_reading_the_history_loads_no_joiner_no_model_and_no_comparison() -> None:
    code = "import sys, streameval.store.history.reader as r; print(*(name for name in sys.modules if 'streameval.' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = {name.split(".")[1] for name in done.stdout.split()}
    assert {"metrics", "results", "store"} <= rooms
    assert not rooms & {"join", "models", "compare", "loop", "sources"}

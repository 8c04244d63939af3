"""What could grow with traffic, with time or with names that others choose, and does not: docs/operations.md has the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from streameval.counting import panestats, scoreboard
from streameval.events.batch import Batch, Catalog, Features, Impressions, Shadow, empty_clicks
from streameval.events.names import MAX_NAME, OTHER
from streameval.join import runs
from streameval.loop.pipeline import Pipeline
from streameval.server.api.degraded import degraded
from streameval.settings.tree import Files, Settings
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.files import FileSource
from streameval.sources.formats import lines as json_lines
from streameval.sources.formats import mapped_lines
from streameval.sources.formats.decode import Decoder
from streameval.sources.protocol import SourceError
from streameval.store import container
from streameval.testing import ManualClock, readers_see

T0 = 1_700_000_000_000


def settings(**changes: object) -> Settings:
    tree = {
        "join": {
            "attribution_window": "10s",
            "allowed_lateness": "1s",
            "correction_horizon": "10m",
            "request_gap": "1s",
        },
        "windows": {"pane": "1s", "sliding": ["5s"]},
        "models": [{"name": "ftrl", "kind": "ftrl", "bits": 10}],
        **changes,
    }
    return Settings.model_validate(tree)


def batch(number: int, ts: np.ndarray, code: int, shadow: bool = True) -> Batch:
    """Impressions with features, and with a shadow score each."""
    n = ts.size
    ids = (number * 1000 + np.arange(1, n + 1)).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    score = np.linspace(0.1, 0.9, n)
    return Batch(
        0,
        Impressions(
            np.arange(n, dtype=np.int32), ids, ts.astype(np.int64), ids % np.uint64(7) + np.uint64(1), ids, ids,
            np.full(n, code, np.int32), score, np.zeros(n, np.int64), (ids % np.uint64(2)).astype(np.int8),
            shadow=Shadow(np.arange(n + 1), np.full(n, code + 1, np.int32), 1 - score) if shadow else None,
            features=Features(np.arange(n + 1), ids % np.uint64(50), np.ones(n)),
        ),
        empty_clicks(),
        True,
    )  # fmt: skip


def small_batches(count: int) -> Iterator[tuple[int, np.ndarray]]:
    rng = np.random.default_rng(3)
    for number in range(count):  # a little out of order, so that runs interleave
        yield number, T0 + number * 500 + rng.integers(-2_000, 500, 1 + number % 4)


def report(pipeline: Pipeline) -> object:
    found = readers_see(pipeline).report()
    return found["events"], found["results"]


def pipeline() -> tuple[Pipeline, int]:
    made = Pipeline(settings(), lambda: 0.0)
    code = made.catalog.series_code("m", "v1")
    made.catalog.series_code("m", "v2")
    return made, code


def test_a_day_of_small_batches_is_few_runs_and_counts_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    few, code = pipeline()
    for number, ts in small_batches(800):
        few.take(batch(number, ts, code, shadow=number % 3 > 0))
    assert len(few.partitions[0].joiner.runs) <= 2 * runs._MANY_RUNS, "800 batches are inside the correction horizon"
    monkeypatch.setattr(runs, "_MANY_RUNS", 1 << 30)
    many, code = pipeline()
    for number, ts in small_batches(800):
        many.take(batch(number, ts, code, shadow=number % 3 > 0))
    assert len(many.partitions[0].joiner.runs) == 800
    few.finish()
    many.finish()
    assert report(few) == report(many)


def test_event_times_scattered_over_centuries_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panestats, "_MOST_PANES", 64)
    monkeypatch.setattr(scoreboard, "_MOST_PANES", 64)
    made, code = pipeline()
    day = 86_400_000
    for number in range(100):
        made.take(batch(number, number * 40 * day + np.arange(10) * 3 * day, code))
    monitor = made.partitions[0]
    made._background.wait()
    assert len(monitor.panes.by_pane) <= 64
    assert len(monitor.scoreboard.overall) <= 65
    assert len(monitor.scoreboard.users._series[code]._log) <= 65
    made.finish()
    whole = [r for r in readers_see(made).results if r.window == "all" and r.series.version == "v1"]
    assert whole[0].totals.impressions == 1000, "the run keeps what its panes no longer do"


def test_long_names_become_other() -> None:
    catalog = Catalog(("country",))
    longest, longer = "x" * MAX_NAME, "x" * (MAX_NAME + 1)
    assert catalog.series[catalog.series_code("m", longest)].version == longest
    assert catalog.series[catalog.series_code("m", longer)].version == OTHER
    assert catalog.series[catalog.series_code(longer, "v1")].model == OTHER
    assert catalog.value_code(0, longest) > 1
    assert catalog.value_code(0, longer) == 1


def test_names_that_others_choose_do_not_grow_the_catalog_beyond_its_limits() -> None:
    catalog = Catalog(("country",), max_values=5, max_series=8)
    for i in range(1000):
        catalog.series_code(f"m{i}", f"v{i}")
        catalog.series_code("m", f"v{i}")
        catalog.value_code(0, f"c{i}")
    assert len(catalog.series) <= 2 * 8 + 1
    assert len(catalog._series) == len(catalog.series)
    assert len(catalog.values[0]) == catalog.most_values + 2 == 4 * 5 + 2
    assert catalog.overflowed == [True]


def test_lines_with_ever_new_fields_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "MOST_FIELDS", 20)
    monkeypatch.setattr(mapped_lines, "MOST_COLUMNS", 20)  # of the kernel: at most so many
    path = tmp_path / "events.jsonl"
    files = Files.model_validate({"columns": {"impression_id": "id", "ts": "ts", "user_id": "u", "pclick": "p"}})
    event = {"id": "i", "ts": T0, "u": "u", "p": 0.5}

    def read(lines: list[dict[str, object]]) -> int:
        path.write_text("\n".join(map(json.dumps, lines)))
        decoder = Decoder(Catalog(), clock=lambda: T0, max_future=0)
        source = FileSource([path], decoder, files, 10, JsonlDeadLetters(""))
        events = 0
        while not source.finished:
            events += sum(len(one) for one in source.poll(0.0))
        assert len(source._rows._seen) <= 20
        return events

    assert read([{**event, f"x{i}": 1} for i in range(100)]) == 100, "ten different ones in a batch are no trouble"
    with pytest.raises(SourceError, match=r"events\.jsonl: the lines have 26 different fields: at most 20"):
        read([{**event, **{f"x{i}-{k}": 1 for k in range(11)}} for i in range(2)])


def test_versions_come_and_go_for_years_and_each_is_seen_under_its_name(tmp_path: Path) -> None:
    config = settings(slices={"dimensions": ["country"]})
    clock = ManualClock()
    made = Pipeline(config, clock)
    sizes = []
    for number in range(140):  # a version an hour; what is correctable and every window are shorter than that
        clock.advance(3600)
        code = made.catalog.series_code("m", f"v{number}")
        ts = T0 + number * 3_600_000 + np.arange(50) * 30  # two panes: each of them is evaluated
        made.take(batch(number, ts, code, shadow=False))
        if number == 80:  # a restart with names that were given to codes twice
            state = made.partition_state(0)
            assert state is not None
            path = tmp_path / "checkpoint"
            container.write(path, state)
            made = Pipeline(config, clock)
            made.catalog.series_code("m", "another")
            made.restore_partition(0, container.read(path))
        shown = {r.series.version: r.totals.impressions for r in readers_see(made).results if r.window == "all"}
        assert OTHER not in shown
        if number > 1:
            assert shown[f"v{number - 1}"] == 50
            assert number < 40 or shown.get(f"v{number - 40}") == 50, "the last 47 stay, though nothing of them comes"
        sizes.append(made.partitions[0].scoreboard.nbytes)
    assert len(made.catalog.series) <= 64
    assert max(sizes[100:]) <= 1.1 * max(sizes[:70])


def test_versions_beyond_the_limit_are_named_as_such_and_compared_with_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Pipeline(settings(join={"attribution_window": "10s", "allowed_lateness": "1s"}), ManualClock())
    beyond = 0
    for number in range(80):  # of a quarter of an hour each, so all of them are in memory
        code = made.catalog.series_code("m", f"v{number}")
        ts = T0 + number * 900_000 + np.arange(50) * 500
        made.take(batch(number, ts, code, shadow=False))
        beyond += 50 * (made.catalog.series[code].version == OTHER)
    found = readers_see(made, with_history=False)
    shown = {r.series: r.totals.impressions for r in found.results if r.window == "all"}
    deploys = [deploy.version for deploy in found.deploys]
    assert beyond > 500
    assert beyond - 50 < sum(n for series, n in shown.items() if series.version == OTHER) <= beyond
    assert len(deploys) > 50
    assert OTHER not in deploys
    assert not [one for one in found.comparisons if OTHER in (one.baseline.version, one.candidate.version)]
    assert "more than 64 versions at once" in caplog.text
    assert degraded(found) == [
        "versions: more than are distinguished at once; the further ones are in __other__, and not compared"
    ]

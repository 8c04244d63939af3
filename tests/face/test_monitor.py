"""`Monitor` in somebody's own loop says what `replay` says of the same events, however they are cut, saved and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streameval
from streameval.app import replay
from streameval.settings.tree import ConfigError, Settings
from streameval.store.errors import StoreError
from tests.face.tables import START, as_clicks, impressions

TREE: dict[str, Any] = {
    "slices": {"dimensions": ["country"]},
    "windows": {"sliding": ["1h"]},
    "files": {"dead_letters": ""},
}


def pieces(shown: pa.Table, clicks: pa.Table, step: int) -> list[tuple[pa.Table, pa.Table]]:
    """Both tables cut where event time reaches the same moments."""
    cuts = range(START, START + 4 * 3_600_000, step)
    a, b = (table["ts"].to_numpy() for table in (shown, clicks))
    out = []
    for cut in cuts:
        i, j = ((t >= cut) & (t < cut + step) for t in (a, b))
        out.append((shown.filter(pa.array(i)), clicks.filter(pa.array(j))))
    return out


@pytest.mark.slow
@pytest.mark.parametrize("step", [60_000, 1_234_567])
def test_any_cut_of_the_stream_gives_the_report_of_replay(tmp_path: Path, step: int) -> None:
    shown, clicks = as_clicks(impressions(8_000))
    pq.write_table(shown, tmp_path / "i.parquet")
    pq.write_table(clicks, tmp_path / "c.parquet")
    want = replay(Settings.model_validate(TREE), [tmp_path / "i.parquet", tmp_path / "c.parquet"]).report()
    monitor = streameval.Monitor(slices=["country"], windows=["1h"])
    for number, (some, clicked) in enumerate(pieces(shown, clicks, step)):
        monitor.update(some, clicked)
        if number % 5 == 0:
            monitor.snapshot()
    monitor.finish()
    assert monitor.snapshot().report() == want


@pytest.mark.slow
def test_a_monitor_that_was_saved_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    shown, clicks = as_clicks(impressions(6_000))
    parts = pieces(shown, clicks, 600_000)
    straight, saved = (streameval.Monitor(slices=["country"], windows=["1h"]) for _ in range(2))
    for number, (some, clicked) in enumerate(parts):
        straight.update(some, clicked)
        saved.update(some, clicked)
        if number in (0, 7):
            saved.save(tmp_path / "monitor")
            saved = streameval.Monitor.load(tmp_path / "monitor")
    for monitor in (straight, saved):
        monitor.finish()
    assert saved.snapshot().report() == straight.snapshot().report()
    assert saved.snapshot().users == straight.snapshot().users


def test_a_new_monitor_can_be_saved_and_a_damaged_file_is_refused(tmp_path: Path) -> None:
    streameval.Monitor().save(tmp_path / "new")
    assert streameval.Monitor.load(tmp_path / "new").snapshot().results.num_rows == 0
    (tmp_path / "torn").write_bytes((tmp_path / "new").read_bytes()[:-3])
    with pytest.raises(StoreError):
        streameval.Monitor.load(tmp_path / "torn")


def test_labels_inline_need_no_ids_and_count_at_once() -> None:
    table = impressions(3_000).drop_columns(["impression_id", "slices.age"])
    monitor = streameval.Monitor()
    for start in range(0, 3_000, 500):
        monitor.update(table.slice(start, 500))
    monitor.finish()
    want = streameval.evaluate(table).report()["results"]
    assert [row for row in monitor.snapshot().report()["results"] if row["window"] == "all"] == want


def test_a_snapshot_does_not_change_when_more_comes() -> None:
    table = impressions(2_000)
    monitor = streameval.Monitor(settings={"join": {"attribution_window": "1m"}})
    monitor.update(table.slice(0, 1000))
    before = monitor.snapshot()
    n = before.metric("ctr", version="v1")
    users = before.users.num_rows
    monitor.update(table.slice(1000))
    assert before.metric("ctr", version="v1") == n
    assert before.users.num_rows == users
    assert monitor.snapshot().users.num_rows > users


def test_columns_are_arrays_too_and_slices_go_by_their_names() -> None:
    n = 400
    rng = np.random.default_rng(0)
    monitor = streameval.Monitor(slices=["country"])
    monitor.update(
        {
            "ts": START + np.arange(n), "user_id": rng.integers(0, 50, n), "pclick": rng.random(n),
            "clicked": rng.integers(0, 2, n), "country": ["de", "us"] * (n // 2),
        }
    )  # fmt: skip
    monitor.finish()
    found = monitor.snapshot()
    assert found.metric("ctr", where=("country", "de")) is not None
    assert found.results.num_rows == 4 * 3


def test_events_that_cannot_be_used_are_counted_and_tables_that_cannot_are_refused() -> None:
    monitor = streameval.Monitor()
    monitor.update({"ts": [START, START], "user_id": ["a", "b"], "pclick": [0.5, 7.0], "clicked": [0, 1]})
    with pytest.raises(ValueError, match="impression_id"):
        monitor.update({"ts": [START], "user_id": ["a"], "pclick": [0.5]})
    with pytest.raises(ValueError, match="ts: is missing"):
        monitor.update({"user_id": ["a"], "pclick": [0.5], "clicked": [1]})
    monitor.finish()
    assert monitor.snapshot().report()["events"]["invalid"] == {"out_of_range": 1}
    with pytest.raises(ConfigError, match="attribution_window"):
        streameval.Monitor(attribution_window="half an hour")


def test_after_finish_nothing_can_be_added_also_by_a_loaded_one(tmp_path: Path) -> None:
    """Every click of new impressions was unmatched: an AUC of half the positives, and a hint that blamed the data."""
    monitor = streameval.Monitor()
    some = {"impression_id": ["a"], "ts": [START], "user_id": ["u"], "pclick": [0.5]}
    monitor.update(some, {"impression_id": ["a"], "ts": [START + 1]})
    monitor.finish()
    monitor.save(tmp_path / "state")
    for finished in (monitor, streameval.Monitor.load(tmp_path / "state")):
        before = finished.snapshot().report()["events"]
        with pytest.raises(ValueError, match=r"^finish\(\) has ended the input"):
            finished.update(some)
        assert finished.snapshot().report()["events"] == before


def test_an_impression_without_a_pclick_is_no_click() -> None:
    shown, clicks = as_clicks(impressions(2_000))
    pclick = pa.array([None, *shown["pclick"].to_pylist()[1:]], pa.float64())
    lacking = shown.set_column(shown.column_names.index("pclick"), "pclick", pclick)
    whole, some = (streameval.evaluate(table, clicks=clicks).report()["events"] for table in (shown, lacking))
    assert (some["impressions"], some["clicks"]) == (whole["impressions"] - 1, whole["clicks"])
    assert some["invalid"] == {**whole["invalid"], "missing_field": 1}


def test_clicks_that_found_no_impression_for_want_of_room_are_told_with_the_setting() -> None:
    """It said only that they matched none, as where their keys are wrong."""
    monitor = streameval.Monitor(attribution_window="5m", settings={"join": {"max_pending": 1000}})
    n = 20_000
    ts = START + 50 * np.arange(n)
    names = np.char.add("i", np.arange(n).astype(str))
    for k in range(4, n // 1000):  # each click comes 200 s after its impression
        now, then = (slice(j * 1000, j * 1000 + 1000) for j in (k, k - 4))
        shown = {"impression_id": names[now], "ts": ts[now], "user_id": names[now], "pclick": np.full(1000, 0.1)}
        monitor.update(shown, {"impression_id": names[then][::10], "ts": ts[now][::10]})
    monitor.finish()
    snapshot = monitor.snapshot()
    assert snapshot.report()["events"]["forgotten_early"] > 10_000
    assert "impressions were forgotten before their clicks could come, at join.max_pending in memory: raise it" in str(
        snapshot
    )

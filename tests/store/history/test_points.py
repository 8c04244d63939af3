"""The metrics kept beside the parts of a history: the same as added up anew, and never older than their vectors."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from streameval.events.batch import Series
from streameval.events.durations import DAY
from streameval.loop.options import options_of
from streameval.loop.pipeline import Pipeline
from streameval.metrics.registry import METRICS, with_stderr
from streameval.results.lines import Line
from streameval.settings.tree import Settings
from streameval.store.errors import StoreError
from streameval.store.history.format import HistoryFormat
from streameval.store.history.reader import HistoryReader
from streameval.store.history.rows import PaneRows, pane_rows
from streameval.store.history.writer import HistoryWriter, Retention
from streameval.testing import ManualClock, Shown, make_batch, readers_see
from tests.store.conftest import MINUTE, START, V1, V2

Pane = Callable[..., PaneRows]


@pytest.fixture
def filled(writer: HistoryWriter, pane: Pane) -> HistoryWriter:
    """Two hours of two partitions whose panes hold other users."""
    for partition in (0, 1):
        writer.write(partition, 1, [pane(n, seed=partition, users=40) for n in range(120)])
    return writer


def lines(path: Path, form: HistoryFormat, metric: str) -> dict[Series, Line]:
    return HistoryReader(path, form, 4).series(metric, [V1, V2], None, None)


def points(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT count(*) FROM points").fetchone()[0])


def without_points(path: Path, form: HistoryFormat, metric: str) -> dict[Series, Line]:
    """What the reader adds up itself."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE settings SET value = 'of another program' WHERE name = 'points'")
    try:
        return lines(path, form, metric)
    finally:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            names = " ".join(["4", *(m.name for m in METRICS), *with_stderr()])
            db.execute("UPDATE settings SET value = ? WHERE name = 'points'", (names,))


def assert_same(stored: dict[Series, Line], added_up: dict[Series, Line]) -> None:
    assert stored.keys() == added_up.keys()
    for series, line in stored.items():
        for a, b in zip(line.points, added_up[series].points, strict=True):
            assert (a.start, a.length, a.value, a.reason, a.error) == (b.start, b.length, b.value, b.reason, b.error)
            assert (a.impressions, a.clicks, a.corrected) == (b.impressions, b.clicks, b.corrected)
            assert a.stderr == b.stderr
            assert b.stderr_df in (None, a.stderr_df)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.slow
def test_a_stored_point_is_what_adding_up_gives(filled: HistoryWriter, form: HistoryFormat, folded: bool) -> None:
    if folded:
        assert filled.fold({0: START + DAY, 1: START + DAY}, START + 4 * DAY) == 4
    filled.refresh(60.0)
    assert points(filled.path) == (4 if folded else 240)
    for metric in (m.name for m in METRICS):
        stored = lines(filled.path, form, metric)
        assert_same(stored, without_points(filled.path, form, metric))
        if metric in with_stderr() and not metric.startswith("gauc"):  # which needs two users, or requests
            assert all(p.stderr is not None for line in stored.values() for p in line.points if p.value is not None)


def test_the_error_of_a_stored_point_is_that_of_the_results(filled: HistoryWriter, form: HistoryFormat) -> None:
    filled.refresh(60.0)
    reader = HistoryReader(filled.path, form, 4)
    for metric in ("ctr", "auc", "gauc", "log_loss", "calibration", "ece", "rig"):
        point = reader.series(metric, [V1], None, None)[V1].points[7]
        (result,) = reader.range([V1], point.start, point.start + MINUTE, [None]).results
        assert (point.value, point.stderr) == (result.metrics[metric], result.stderrs[metric])
        assert point.stderr is not None
        assert point.stderr > 0
        assert point.stderr_df == (result.gauc_stderr_df if metric == "gauc" else result.stderr_df)


def test_degrees_of_freedom_are_stored_as_they_were_live(tmp_path: Path) -> None:
    pipeline = Pipeline(Settings(), ManualClock())
    shown = [
        Shown(f"i{i}", START + i, user=f"u{i * i % 397}", pclick=(i % 97) / 97, clicked=int(i % 5 == 0))
        for i in range(900)
    ]
    pipeline.take(make_batch(shown, pipeline.catalog))
    pipeline.finish()
    live = readers_see(pipeline).results[0]
    (monitor,) = pipeline.partitions.values()
    rows = pane_rows(
        monitor.scoreboard, monitor.panes, pipeline.catalog, pipeline._slice_rows, monitor.scoreboard.overall.numbers()
    )
    form = HistoryFormat(MINUTE, options_of(pipeline.settings), "impressions")
    writer = HistoryWriter(tmp_path / "history.sqlite", form, Retention(DAY, DAY, DAY, 1 << 30))
    writer.write(0, 1, rows)
    writer.refresh(60.0)
    assert live.stderr_df is not None
    assert 30 < live.stderr_df < 63
    for metric, df in (("auc", live.stderr_df), ("ece", live.stderr_df), ("gauc", live.gauc_stderr_df)):
        reader = HistoryReader(writer.path, form, 4)
        (line,) = reader.series(metric, [live.series], None, None).values()
        (added_up,) = reader.steps(metric, [live.series], None, None).values()
        assert [line.points[0].stderr_df, added_up.points[0].stderr_df] == [df, df]
    (past,) = HistoryReader(writer.path, form, 4).range([live.series], None, None, [None]).results
    assert (past.stderr_df, past.gauc_stderr_df) == (live.stderr_df, live.gauc_stderr_df)
    writer.close()


def test_a_pane_that_is_written_again_loses_its_point_until_it_is_worked_out(
    filled: HistoryWriter, form: HistoryFormat, pane: Pane
) -> None:
    filled.refresh(60.0)
    before = lines(filled.path, form, "auc")[V1].points[3]
    filled.write(1, 1, [pane(3, n=90, seed=7)])
    assert points(filled.path) == 238
    changed = lines(filled.path, form, "auc")[V1].points[3]
    assert changed.value != before.value
    filled.refresh(60.0)
    assert points(filled.path) == 240
    assert lines(filled.path, form, "auc")[V1].points[3] == changed


def test_a_program_without_points_cannot_leave_a_wrong_one(filled: HistoryWriter, form: HistoryFormat) -> None:
    filled.refresh(60.0)
    with closing(sqlite3.connect(filled.path)) as db:  # as one of before would: it knows of vectors only
        db.execute("DELETE FROM vectors WHERE partition = 1 AND start = ?", (START + 5 * MINUTE,))
        db.execute("UPDATE vectors SET impressions = impressions WHERE start = ?", (START + 6 * MINUTE,))
        db.commit()
    assert points(filled.path) == 236
    with_some = lines(filled.path, form, "ctr")
    assert_same(with_some, without_points(filled.path, form, "ctr"))


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE points SET numbers = CAST(zeroblob(8) || substr(numbers, 9) AS BLOB)",
        "UPDATE points SET clicks = clicks + 256",
        "UPDATE points SET reasons = 'x' || reasons",
        "UPDATE points SET numbers = x''",
    ],
)
def test_a_point_that_the_disk_has_changed_is_added_up_again_and_said(
    filled: HistoryWriter, form: HistoryFormat, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled.refresh(60.0)
    right = lines(filled.path, form, "auc")
    with closing(sqlite3.connect(filled.path, isolation_level=None)) as db:
        db.execute(f"{damage} WHERE start = ?", (START + 3 * MINUTE,))
        db.execute(f"{damage} WHERE start = ?", (START + 5 * MINUTE,))
    assert_same(lines(filled.path, form, "auc"), right)
    assert "2 points of panes are damaged, and added up again: check the disk" in caplog.text


def test_a_text_that_the_disk_has_changed_is_damage_not_permissions(filled: HistoryWriter, form: HistoryFormat) -> None:
    filled.refresh(60.0)
    with closing(sqlite3.connect(filled.path, isolation_level=None)) as db:
        db.execute("UPDATE points SET reasons = CAST(x'ff80' AS TEXT)")
    with pytest.raises(StoreError, match=r"Could not decode .*; move the file away to begin a new history"):
        lines(filled.path, form, "auc")


def test_partitions_that_fold_apart_are_one_point(filled: HistoryWriter, form: HistoryFormat) -> None:
    filled.refresh(60.0)
    assert filled.fold({0: START + DAY}, START + 4 * DAY) == 2
    filled.refresh(60.0)
    stored = lines(filled.path, form, "auc")
    assert [p.length for p in stored[V1].points] == [3_600_000] * 2
    assert_same(stored, without_points(filled.path, form, "auc"))


def test_a_file_from_before_there_were_points_is_read_and_then_gets_them(
    filled: HistoryWriter, form: HistoryFormat, keep
) -> None:
    filled.close()
    with closing(sqlite3.connect(filled.path)) as db:
        for trigger in ("INSERT", "DELETE", "UPDATE"):
            db.execute(f"DROP TRIGGER vectors_{trigger}")
        db.execute("DROP TABLE points")
        db.execute("DROP TABLE stale")
        db.execute("DELETE FROM settings WHERE name = 'points'")
        db.commit()
    old = lines(filled.path, form, "ctr")
    again = HistoryWriter(filled.path, form, keep)
    assert_same(lines(filled.path, form, "ctr"), old)
    again.refresh(60.0)
    new = lines(filled.path, form, "ctr")
    assert_same(new, old)
    assert all(p.stderr is not None and math.isfinite(p.stderr) for p in new[V1].points)
    again.close()


def test_the_newest_points_are_those_that_count_against_the_limit(filled: HistoryWriter, form: HistoryFormat) -> None:
    filled.refresh(60.0)
    line = HistoryReader(filled.path, form, 4).series(
        "log_loss", [V1], None, START + 8 * MINUTE, 3, {V1: {START + 7 * MINUTE}}
    )[V1]
    assert [(p.start - START) // MINUTE for p in line.points] == [5, 6, 8]
    assert line.truncated


def test_points_cost_a_question_nothing_of_what_it_may_read(filled: HistoryWriter, form: HistoryFormat) -> None:
    filled.refresh(60.0)
    small = HistoryReader(filled.path, form, 4, max_rows=10)
    assert len(small.series("auc", [V1], None, None)[V1].points) == 120

"""Steps and slices over time: each point is the result over its interval, from the history and from memory alike."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streameval.events.durations import DAY, HOUR
from streameval.metrics.registry import by_name, names, with_stderr
from streameval.results.lines import QuestionSlots, Steps, TooMuch
from streameval.results.pane_memory import NEEDS_HISTORY, PaneMemory
from streameval.results.snapshot import PaneSketches, empty_snapshot
from streameval.store.history.format import HistoryFormat
from streameval.store.history.reader import HistoryReader
from streameval.store.history.rows import PaneRows
from streameval.store.history.writer import HistoryWriter, Retention
from tests.store.conftest import MINUTE, START, V1, V2

Pane = Callable[..., PaneRows]
WHERE = (None, ("country", "c1"))


@pytest.fixture(scope="module")
def rows(pane: Pane) -> dict[int, list[PaneRows]]:
    """By partition: two hours and a half, with a hole of ten minutes."""
    return {p: [pane(n, seed=p, users=40) for n in range(150) if not 70 <= n < 80] for p in (0, 1)}


@pytest.fixture(scope="module")
def written(rows, form: HistoryFormat, keep: Retention, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a history of them."""
    folder = tmp_path_factory.mktemp("written")
    writer = HistoryWriter(folder / "history.sqlite", form, keep)
    for partition, panes in rows.items():
        writer.write(partition, 1, panes)
    writer.close()
    return folder


@pytest.fixture
def writer(written: Path, path: Path, form: HistoryFormat, keep: Retention) -> Iterator[HistoryWriter]:
    """Of a copy, which a test may change."""
    shutil.copytree(written, path.parent)
    writer = HistoryWriter(path, form, keep)
    yield writer
    writer.close()


@pytest.fixture
def reader(writer: HistoryWriter, form: HistoryFormat) -> HistoryReader:
    return HistoryReader(writer.path, form, 4)


def memory(rows: dict[int, list[PaneRows]], form: HistoryFormat, max_rows: int = 10_000) -> PaneMemory:
    """The same panes as memory holds them."""
    panes = {one.pane: one for one in rows[0]}
    others = {one.pane: one for one in rows[1]}
    slices = {place: row for row, place in rows[0][0].slice_names.items()}
    kept = PaneSketches(
        form.options, (V1, V2), slices,
        {n: (one.overall, others[n].overall) for n, one in panes.items()},
        {n: (one.slices, others[n].slices) for n, one in panes.items()},
    )  # fmt: skip
    return PaneMemory(replace(empty_snapshot(0.0), pane=MINUTE, sketches=kept), QuestionSlots(), max_rows)


@pytest.mark.slow
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("metric", names())
def test_a_step_is_the_result_over_it(reader: HistoryReader, rows, form: HistoryFormat, metric: str, where) -> None:
    row = by_name(metric)
    lines = reader.steps(metric, [V1, V2], START, START + 110 * MINUTE, 30 * MINUTE, where)
    assert [(p.start - START) // MINUTE for p in lines[V2].points] == [0, 30, 60, 90]
    for series, line in lines.items():
        for point in line.points:
            (result,) = reader.range([series], point.start, point.start + point.length, [where]).results
            assert point.length == 30 * MINUTE
            assert (point.value, point.stderr) == (result.metrics[metric], result.stderrs.get(metric))
            df = result.gauc_stderr_df if metric == "gauc" else result.user_dfs.get(metric, result.stderr_df)
            assert point.stderr_df == (None if point.stderr is None else df)
            assert point.reason == result.reasons.get(metric)
            assert (point.impressions, point.clicks) == (result.totals.impressions, result.totals.clicks)
            error = result.metrics[row.bound] if row.bound and point.value is not None else None
            assert point.error == (0.0 if point.value and row.of_users else error)
    without = ("gauc_request", "gauc_value")  # nothing was requested; users' values are not stored
    if metric in with_stderr() and (where is None or not metric.startswith("gauc")) and metric not in without:
        assert all(p.stderr or p.value is None for line in lines.values() for p in line.points)
    held = memory(rows, form).steps(metric, [V1, V2], START, START + 110 * MINUTE, 30 * MINUTE, where)
    if where is None and by_name(metric).needs == "users":
        reason = "values_not_kept" if metric == "value_per_user" else NEEDS_HISTORY.reason
        assert {(p.value, p.reason) for line in held.values() for p in line.points} == {(None, reason)}
    else:
        assert held == lines


@pytest.mark.parametrize("where", WHERE)
def test_without_a_step_every_pane_of_a_slice_is_a_point(reader: HistoryReader, rows, form, where) -> None:
    lines = reader.steps("log_loss", [V1], None, None, None, where, limit=100)
    assert (len(lines[V1].points), lines[V1].truncated) == (100, True)
    assert {p.length for p in lines[V1].points} == {MINUTE}
    assert memory(rows, form).steps("log_loss", [V1], None, None, None, where, 100) == lines
    if where is None:
        plain = reader.series("log_loss", [V1], None, None, 100)[V1].points
        assert [(p.start, p.value) for p in lines[V1].points] == [(p.start, p.value) for p in plain]


def test_a_step_that_from_or_to_falls_into_is_taken_whole(reader: HistoryReader) -> None:
    line = reader.steps("ctr", [V1], START + 14 * MINUTE, START + 31 * MINUTE, 10 * MINUTE)[V1]
    assert [(p.start - START) // MINUTE for p in line.points] == [10, 20, 30]
    everything = reader.steps("ctr", [V1], None, None, DAY)[V1].points
    assert sum(p.impressions for p in everything) == sum(
        p.impressions for p in reader.series("ctr", [V1], None, None)[V1].points
    )


def test_an_hour_that_was_folded_stays_whole(reader: HistoryReader, writer: HistoryWriter) -> None:
    before = sum(p.impressions for p in reader.steps("ctr", [V1], None, None, 5 * MINUTE)[V1].points)
    assert writer.fold({0: START + DAY}, START + 3 * DAY) == 3
    for step, lengths in ((5, [60, 60, 60]), (90, [180]), (60, [60, 60, 60]), (180, [180])):
        points = reader.steps("ctr", [V1], None, None, step * MINUTE)[V1].points
        assert [p.length // MINUTE for p in points] == lengths
        assert sum(p.impressions for p in points) == before


@pytest.mark.parametrize("step", [40, 90])
def test_a_step_is_the_same_wherever_a_question_about_folded_hours_begins_and_ends(
    reader: HistoryReader, writer: HistoryWriter, step: int
) -> None:
    """Hours that cross the borders of steps make one of several steps; it said that it began at 40 minutes, and lacked the 20 of the hour before."""
    assert writer.fold({0: START + DAY}, START + 3 * DAY) == 3
    everything = reader.steps("ctr", [V1], None, None, step * MINUTE)[V1].points
    for start, end in ((85, 90), (70, 75), (0, 5), (130, 140), (10, 170)):
        asked = START + start * MINUTE, START + end * MINUTE
        points = reader.steps("ctr", [V1], *asked, step * MINUTE)[V1].points
        assert set(points) <= set(everything), (start, end)
        for point in points:
            (result,) = reader.range([V1], point.start, point.start + point.length, [None]).results
            assert (point.value, point.impressions) == (result.metrics["ctr"], result.totals.impressions)


def test_steps_never_overlap_and_never_cut_a_part() -> None:
    steps = Steps([(60, 120), (120, 130), (130, 140), (300, 360)], 50)
    assert steps.intervals == [(50, 150), (300, 400)]
    assert (steps.of(60), steps.of(130), steps.of(300)) == ((50, 150), (50, 150), (300, 400))
    assert Steps([(-60, 0), (0, 60)], None).intervals == [(-60, 0), (0, 60)]
    assert Steps([(-60, -30)], 50).intervals == [(-100, 0)]
    assert Steps([], 5).intervals == []


def test_a_question_that_is_too_large_is_refused_and_scores_go_before_that(
    reader: HistoryReader, writer: HistoryWriter, form: HistoryFormat, rows
) -> None:
    few_rows = HistoryReader(writer.path, form, 4, max_rows=100)
    with pytest.raises(TooMuch, match="a query may read 100"):
        few_rows.steps("ctr", [V1], None, None, HOUR)
    with pytest.raises(TooMuch, match="a query may read 100"):
        memory(rows, form, 100).steps("ctr", [V1], None, None, HOUR)
    few_bytes = HistoryReader(writer.path, form, 4, max_bytes=80_000)
    with pytest.raises(TooMuch):
        few_bytes.steps("auc", [V1], None, None, HOUR)
    points = few_bytes.steps("ctr", [V1], None, None, HOUR)[V1].points
    assert [p.value for p in points] == [p.value for p in reader.steps("ctr", [V1], None, None, HOUR)[V1].points]
    assert {p.stderr for p in points} == {None}


def test_what_is_nowhere_has_no_line(reader: HistoryReader, rows, form: HistoryFormat) -> None:
    for ask in (reader.steps, memory(rows, form).steps):
        assert ask("ctr", [V1], None, None, HOUR, ("country", "zz")) == {}
        assert ask("ctr", [], None, None, HOUR) == {}
        assert ask("ctr", [V1], START + 9 * DAY, None, HOUR) == {}

"""Rows on disk are the rows in memory: one report, one history, the same comparisons; restarts, losses and full disks."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from streameval.join.cold import index
from streameval.join.cold.cold_rows import ColdRows
from streameval.join.cold.ground import ALIGN
from streameval.join.cold.segment import RowsFile
from streameval.join.to_disk import RowsToDisk
from streameval.loop import keeper as keeper_module
from streameval.loop.keeper import PartitionKeeper
from streameval.loop.options import options_of
from streameval.loop.pipeline import Pipeline
from streameval.loop.rows_on_disk import open_rows, work_on_rows
from streameval.settings.tree import Settings
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.store import container
from streameval.store.checkpoints import Checkpoints
from streameval.store.errors import StoreError
from streameval.store.history.format import HistoryFormat
from streameval.store.history.writer import HistoryWriter, Retention
from streameval.testing import ManualClock, history_content, readers_see
from tests.join.cold.traffic import Stream, settings

PARTITION = frozenset({0})
PATIENCE = 120.0  # seconds, on a slow machine


class Process:
    """A pipeline and its store, as one process has them."""

    def __init__(self, path: Path, segment_rows: int, names_first: bool = False, **changes: Any) -> None:
        path.mkdir(exist_ok=True)
        self.config = Settings.model_validate(settings(str(path), segment_rows, **changes))
        clock = ManualClock()
        self.pipeline = Pipeline(self.config, clock)
        if names_first:  # codes differ from those of the process before
            for name in ("z", "y", "c3", "c1"):
                self.pipeline.catalog.series_code("ctr", f"other {name}")
                self.pipeline.catalog.value_code(0, name)
        form = HistoryFormat(self.config.windows.pane, options_of(self.config), self.config.users.weighting)
        history = HistoryWriter(path / "history.sqlite", form, Retention(1 << 40, 1 << 40, 1 << 40, 1 << 30))
        self.keeper = PartitionKeeper(self.config, self.pipeline, clock, history, JsonlDeadLetters(""))
        offsets = self.keeper.take(PARTITION)
        self.begin = next(iter(offsets.values()), 0)

    @property
    def cold(self) -> ColdRows:
        return self.pipeline.partitions[0].joiner.cold

    def settle(self) -> None:
        """Ticks until nothing that could go to the disk is in memory."""
        deadline = time.monotonic() + PATIENCE
        while True:
            self.keeper.tick()
            joiner = self.pipeline.partitions[0].joiner
            if self.keeper._job is None and not joiner.cold.due(joiner.front, joiner.waiting):
                return
            assert time.monotonic() < deadline
            time.sleep(0.0005)


class Run:
    """A stream, all of it; `report`, `history`, and the most segments that there were at a time."""

    def __init__(
        self,
        path: Path,
        stream: Stream,
        segment_rows: int,
        *,
        shared: bool = True,
        size: int = 4000,
        stops: dict[int, Callable[[Path], None]] | None = None,
        names_first: bool = False,
        rows_later: int | None = None,
        **changes: Any,
    ) -> None:
        """At `stops`, after so many events, the process ends, something happens to its store, and another goes on."""
        left = dict(stops or {})
        self.most = self.changed = 0
        process = Process(path, segment_rows, **changes)
        done = 0
        while done < stream.order.size:
            for done, batch in stream.batches(process.pipeline.catalog, size, shared, process.begin):
                process.pipeline.take(batch)
                if segment_rows:
                    process.settle()
                    self.most = max(self.most, len(process.cold.segments))
                    self.changed = max(self.changed, process.cold.changed(0, 1 << 62).size)
                if left and done >= min(left):
                    process.keeper.close()
                    left.pop(min(left))(path / "checkpoints" / "partition-00000")
                    segment_rows = segment_rows if rows_later is None else rows_later
                    process = Process(path, segment_rows, names_first=names_first, **changes)
                    assert process.begin == done
                    break
        process.pipeline.finish()
        self.report = readers_see(
            process.pipeline, with_history=False
        ).report()  # panes are in `history`, and take longest
        process.keeper.close()
        self.history = history_content(path / "history.sqlite")
        for name in ("checkpoints", "uptime_s"):
            self.report.pop(name, None)


def nothing(folder: Path) -> None:
    """Happens."""


@cache
def stream() -> Stream:
    return Stream(1)


@cache
def in_memory(kind: str = "plain", shared: bool = True) -> Run:
    """The stream with all rows in memory, by a name of `KINDS`."""
    with TemporaryDirectory() as folder:
        return Run(Path(folder), stream(), 0, shared=shared, **KINDS[kind])


FTRL = {
    "name": "ftrl",
    "kind": "ftrl",
    "bits": 14,
}  # its whole state is in every checkpoint: 64 MB with as many as by default
RICH: dict[str, Any] = {
    "models": [FTRL],
    "exposure": {"propensity": "popularity"},
    "objectives": [{"name": "long", "value_at_least": 1.0}],
}
LABEL: dict[str, Any] = {"models": [FTRL], "join": {"score_at": "label"}}

KINDS: dict[str, dict[str, Any]] = {"plain": {}, "fields and models": RICH, "scores at the label": LABEL}


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False], ids=["one log", "two logs"])
def test_rows_on_disk_give_what_rows_in_memory_give(shared: bool, tmp_path: Path) -> None:
    plain = in_memory(shared=shared)
    assert plain.report["events"]["corrected"] > 700
    assert plain.report["events"]["duplicate_impressions"] > 200
    on_disk = Run(tmp_path / "disk", stream(), ALIGN, shared=shared)
    assert on_disk.most >= 3
    assert on_disk.changed > 60  # labels of rows on disk were corrected
    assert on_disk.report == plain.report
    assert on_disk.history == plain.history


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "names_first"),
    [("fields and models", True), ("scores at the label", False)],
)
def test_a_restart_maps_the_files_and_changes_nothing(kind: str, names_first: bool, tmp_path: Path) -> None:
    plain = in_memory(kind)
    stops = dict.fromkeys((40_000, 62_000, 87_000), nothing)
    on_disk = Run(tmp_path / "disk", stream(), ALIGN, stops=stops, names_first=names_first, **KINDS[kind])
    assert on_disk.most >= 3
    assert on_disk.report == plain.report
    assert on_disk.history == plain.history


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "later"), [(ALIGN, 0), (0, ALIGN)])
def test_how_many_rows_go_to_the_disk_may_change_with_a_restart(rows: int, later: int, tmp_path: Path) -> None:
    plain = in_memory()
    other = Run(tmp_path / "disk", stream(), rows, stops={55_000: nothing}, rows_later=later)
    assert other.report == plain.report
    assert other.history == plain.history


def test_files_that_no_checkpoint_names_any_more_are_deleted(tmp_path: Path) -> None:
    process = Process(
        tmp_path, ALIGN, store={"path": str(tmp_path), "segment_rows": ALIGN, "checkpoint_interval": "1ms", "keep": 2}
    )
    folder = tmp_path / "checkpoints" / "partition-00000"
    left_behind = folder / "rows-0000000001-0000009999"
    most = 0
    for _, batch in stream().batches(process.pipeline.catalog, 4000, True):
        process.pipeline.take(batch)
        until(process, lambda: not process.cold.due(*where(process)) and process.cold.freezing is None)
        left_behind.touch()  # by a worker that was killed before anything named it
        most = max(most, len(process.cold.segments))
    names = {segment.file.path.name for segment in process.cold.segments}
    until(process, lambda: names <= named(sorted(folder.glob("*.checkpoint"))[-1:]))
    process.pipeline.finish()
    process.keeper.close()
    kept = sorted(folder.glob("*.checkpoint"))
    assert len(kept) == 2
    assert most >= 3
    assert "rows-0000000001-0000000001" not in names  # all of it is forgotten
    assert on_disk(folder) == named(kept)
    assert named(kept) >= names


def test_an_index_of_ids_that_is_finished_while_the_process_ends_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_TOGETHER", 2)
    store = {"path": str(tmp_path), "segment_rows": ALIGN, "checkpoint_interval": "1ms", "keep": 2}
    process = Process(tmp_path, ALIGN, store=store)
    folder, ids = tmp_path / "checkpoints" / "partition-00000", process.keeper._ids
    for _, batch in stream().batches(process.pipeline.catalog, 4000, True):
        process.pipeline.take(batch)
        until(
            process, lambda: ids._under is not None or not (process.cold.due(*where(process)) or process.cold.freezing)
        )
        if ids._under is not None:
            break
    under = ids._under
    assert under is not None
    written = under.future.result(PATIENCE).path
    assert written.exists()
    process.keeper.close()
    assert not written.exists()
    assert on_disk(folder) == named(sorted(folder.glob("*.checkpoint")))


def on_disk(folder: Path) -> set[str]:
    return {path.name for kind in ("rows", "ids") for path in folder.glob(f"{kind}-*")}


def named(checkpoints: Sequence[Path]) -> set[str]:
    return {name for path in checkpoints for name in container.layout(path)[0]["rows_files"]}


def where(process: Process) -> tuple[int, int]:
    joiner = process.pipeline.partitions[0].joiner
    return joiner.front, joiner.waiting


def until(process: Process, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    process.keeper.tick()
    while not holds():
        assert time.monotonic() < deadline
        process.keeper.tick()
        time.sleep(0.0005)


def change_a_bit(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.unlink()  # another file: the old bytes may still be mapped
    path.write_bytes(data)


def second_file(folder: Path) -> Path:
    """Of those that the newest checkpoint needs."""
    newest = max(folder.glob("*.checkpoint"))
    return folder / container.layout(newest)[0]["rows_files"][1]


def cut_short(folder: Path) -> None:
    file = second_file(folder)
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data[:-1])


def with_another_bit(folder: Path) -> None:
    file = second_file(folder)
    change_a_bit(file, file.stat().st_size // 2)


LOST: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (lambda folder: second_file(folder).unlink(), "it is missing"),
    "cut short": (cut_short, "cut short"),
    "with another bit": (with_another_bit, "the checksum of array"),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", LOST)
def test_a_lost_file_is_named_with_what_is_lost_and_the_rest_goes_on(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    happens, cause = LOST[how]
    names = []

    def loses_one(folder: Path) -> None:
        names.append(second_file(folder).name)
        happens(folder)

    whole = in_memory()
    with caplog.at_level(logging.ERROR):
        torn = Run(tmp_path / "torn", stream(), ALIGN, stops={62_000: loses_one, 70_000: nothing})
    said = [record.getMessage() for record in caplog.records if "impressions are lost" in record.getMessage()]
    assert said
    assert all(names[0] in text and cause in text and "its 16384 impressions" in text for text in said)
    before, after = whole.report["events"], torn.report["events"]
    assert after["impressions"] > before["impressions"]  # copies of lost ones count as new
    assert after["corrected"] < before["corrected"]
    assert after["unmatched_clicks"] > before["unmatched_clicks"]
    lost = (
        after["matched_clicks"]
        + after["late_clicks"]
        + after["duplicate_clicks"]
        + after["unmatched_clicks"]
        + after["early_clicks"]
    )
    assert lost == after["clicks"] == before["clicks"]


def test_a_file_that_went_with_its_rows_before_anybody_compared_it_is_not_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process = Process(tmp_path, ALIGN)
    for done, batch in stream().batches(process.pipeline.catalog, 4000, True):
        process.pipeline.take(batch)
        process.settle()
        if done > 60_000:
            break
    joiner = process.pipeline.partitions[0].joiner
    there, gone = joiner.cold.segments[0].file, RowsFile(tmp_path / "rows-0000000001-0000009999", ALIGN, None)
    for file, said in ((gone, 0), (there, 1)):
        there.path.unlink(missing_ok=True)
        joiner.cold.unchecked.put([file], lambda file: None)
        work = work_on_rows(RowsToDisk(joiner), Checkpoints(tmp_path, 1))
        assert work is not None
        checked: Future[None] = Future()
        with pytest.raises(FileNotFoundError) as error:
            work.call()
        checked.set_exception(error.value)
        work.done(checked)
        assert caplog.text.count("impressions are lost") == said
    assert joiner.cold.segments[0].file.lost


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "rows-0000000001-0000000001").mkdir()  # root is refused this, too
    saved = {"joiner": {"cold": {"files": [["rows-0000000001-0000000001", ALIGN]]}}}
    with pytest.raises(StoreError, match="rows-0000000001-0000000001: cannot be read: Is a directory; check"):
        open_rows(tmp_path, saved)


def test_a_full_disk_leaves_rows_in_memory_and_takes_them_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = in_memory()
    write, refused = container.write, []

    def full(path: Path, *given: Any, **named: Any) -> int:
        if path.name.startswith("rows-") and len(refused) < 3:
            refused.append(path.name)
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, *given, **named)

    with patch.object(container, "write", full), patch.object(keeper_module, "ROWS_AGAIN_SECONDS", 0.0):
        on_disk = Run(tmp_path / "disk", stream(), ALIGN)
    assert len(refused) == 3
    assert caplog.text.count("cannot be written: No space left on device; rows stay in memory") == 3
    assert on_disk.most >= 3
    assert on_disk.report == plain.report


def test_partitions_take_turns_on_the_way_to_the_disk(tmp_path: Path) -> None:
    process = Process(tmp_path, ALIGN)
    process.keeper.take(frozenset({1, 2}))
    for done, batch in stream().batches(process.pipeline.catalog, 4000, True):
        for partition in range(3):
            offsets = {("impressions", partition): done}
            process.pipeline.take(replace(batch, partition=partition, offsets=offsets))
        process.keeper.tick()
        if process.keeper._job is not None:
            wait([process.keeper._job.future])
        if done > 70_000:
            break
    written = [len(process.pipeline.partitions[partition].joiner.cold.segments) for partition in range(3)]
    assert min(written) >= 2
    assert max(written) - min(written) <= 1


def test_a_worker_that_has_lost_the_partition_writes_no_rows(tmp_path: Path) -> None:
    process = Process(tmp_path, ALIGN)
    folder = tmp_path / "checkpoints" / "partition-00000"
    batches = stream().batches(process.pipeline.catalog, 4000, True)
    for _ in range(12):
        process.pipeline.take(next(batches)[1])
    Checkpoints(folder, 3).claim()
    until(process, lambda: not process.keeper.holds(0))
    assert not list(folder.glob("rows-*"))


@pytest.mark.slow
def test_what_is_on_disk_does_not_count_against_max_pending(tmp_path: Path) -> None:
    few = {"join": {"max_pending": 33_000}}
    plain = in_memory()
    forgetful = Run(tmp_path / "memory", stream(), 0, **few)
    assert forgetful.report["events"]["forgotten_early"] > 6_000
    on_disk = Run(tmp_path / "disk", stream(), ALIGN, **few)
    assert on_disk.report["events"]["forgotten_early"] == 0
    assert on_disk.report["events"] == plain.report["events"]


def test_a_column_is_copied_with_what_is_on_disk(tmp_path: Path) -> None:
    process = Process(tmp_path, ALIGN, **LABEL)
    for done, batch in stream().batches(process.pipeline.catalog, 4000, True):
        process.pipeline.take(batch)
        process.settle()
        if done > 60_000:
            break
    joiner = process.pipeline.partitions[0].joiner
    assert joiner.cold.segments
    rows = slice(joiner.front, joiner.front + joiner.known)
    for name in ("score of ftrl", "trained of ftrl"):
        column = joiner.table.columns()[name][rows]
        assert np.unique(column).size > 10
        np.testing.assert_array_equal(joiner.cold.copy(joiner.table, name)[rows], column)


def test_segments_become_larger_where_there_are_many() -> None:
    cold = ColdRows(ALIGN)
    assert cold.next_rows == ALIGN
    cold.segments = [None] * 64  # type: ignore[list-item]
    assert cold.next_rows == 2 * ALIGN
    cold.segments *= 30
    assert cold.next_rows == 1 << 24


@contextmanager
def small_runs() -> Iterator[None]:
    with patch("streameval.join.runs._MANY_RUNS", 3):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("size", [700, 20_000])
def test_batches_of_any_size_go_to_the_disk_alike(size: int, tmp_path: Path) -> None:
    plain = in_memory(shared=False)
    with small_runs():
        on_disk = Run(tmp_path / "disk", stream(), ALIGN, shared=False, size=size)
    assert on_disk.report == plain.report
    assert on_disk.history == plain.history


def test_pages_of_all_rows_that_a_batch_finds_are_requested_before_one_is_touched(tmp_path: Path) -> None:
    process = Process(tmp_path, ALIGN)
    for _, batch in stream().batches(process.pipeline.catalog, 4000, True):
        process.pipeline.take(batch)
        process.settle()
        if process.cold.segments:
            break
    table, rows = process.pipeline.partitions[0].joiner.table, np.arange(0, ALIGN, 16)
    asked: list[int] = []
    with patch("streameval.join.cold.cold_rows.ask_for_rows", lambda _, some: asked.extend(some.tolist())):
        process.cold.fetch(table, 0, table.id[:0], table.id[rows], None)
    assert rows.size == 1024
    assert set(rows.tolist()) <= set(asked)

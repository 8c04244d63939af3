"""Rows that wait for their label are written once: checkpoints name the files, and what comes of them is the same."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest

from streameval.join.cold import written
from streameval.join.cold.ground import ALIGN
from streameval.join.policy import JoinPolicy
from streameval.join.rows import Table
from streameval.loop import rows_on_disk
from streameval.store import container
from streameval.store.errors import StoreError
from streameval.testing import history_content, readers_see
from tests.join.cold.test_cold_rows import FTRL, Process, Run, stream, until
from tests.join.cold.test_indexes import small_sizes

LONG: dict[str, Any] = {"join": {"attribution_window": "25m"}}  # 27,000 impressions wait
KINDS: dict[str, dict[str, Any]] = {"plain": LONG, "with a model": {**LONG, "models": [FTRL]}}
STOPS = (45_000, 62_000, 64_000, 87_000)


@cache
def in_memory(kind: str) -> Run:
    with TemporaryDirectory() as folder:
        return Run(Path(folder), stream(), 0, **KINDS[kind])


def newest(folder: Path) -> dict[str, Any]:
    """The newest checkpoint of a partition, with places instead of arrays."""
    tree: dict[str, Any] = container.layout(max(folder.glob("*.checkpoint")))[0]
    return tree


def rows_copied(checkpoint: dict[str, Any]) -> tuple[int, int]:
    """(rows whose columns are in it, rows in memory)."""
    rows = checkpoint["monitor"]["joiner"]["rows"]
    return rows["id"][1][0], rows["state"][1][0]


def sizes(folder: Path) -> dict[str, int]:
    """Of files that are no checkpoints, in bytes."""
    return {path.name: path.stat().st_size for kind in ("rows", "ids") for path in folder.glob(f"{kind}-*")}


def leaving(files: int) -> Any:
    """So many files of rows in memory are left to a checkpoint; 0: they are written as soon as there are rows enough for one."""
    return patch.object(written, "_LEFT", files)


@contextmanager
def full_once() -> Iterator[list[str]]:
    """The disk is full when one file is to be written; its name, when that has been tried."""
    whole, refused = container.write, list[str]()

    def full(path: Path, *given: Any, **named: Any) -> int:
        if path.name == "rows-0000000001-0000000002" and not refused:
            refused.append(path.name)
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(path, *given, **named)

    with patch.object(container, "write", full):
        yield refused


def checkpoint_size(folder: Path) -> int:
    return max(folder.glob("*.checkpoint")).stat().st_size


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "names_first"), [("plain", False), ("with a model", True)])
def test_rows_that_a_checkpoint_names_come_back_as_they_were(kind: str, names_first: bool, tmp_path: Path) -> None:
    found: list[tuple[int, int, int]] = []

    def look(folder: Path) -> None:
        checkpoint = newest(folder)
        found.append((len(checkpoint["read_with_it"]), *rows_copied(checkpoint)))

    plain = in_memory(kind)
    run = Run(
        tmp_path / "disk", stream(), ALIGN, stops=dict.fromkeys(STOPS, look), names_first=names_first, **KINDS[kind]
    )
    assert [files for files, _, _ in found] == [2, 2, 2, 2]
    assert all(copied < ALIGN < 2 * ALIGN <= rows < 3 * ALIGN for _, copied, rows in found)
    assert run.most >= 2  # some rows went to the disk for good
    assert run.report == plain.report
    assert run.history == plain.history


def half(path: Path, upto: int = 62_000, **changes: Any) -> tuple[Process, Path]:
    """A process that has taken a part of the stream, and its folder of checkpoints."""
    store = {"path": str(path), "segment_rows": ALIGN, "checkpoint_interval": "1h", "keep": 2, **changes}
    process = Process(path, ALIGN, store=store, **LONG)
    go_on(process, 4000)
    process.settle()  # one is written as soon as it is known where reading began
    go_on(process, upto)
    return process, path / "checkpoints" / "partition-00000"


def go_on(process: Process, upto: int) -> None:
    for done, batch in stream().batches(process.pipeline.catalog, 4000, True, process.begin):
        process.pipeline.take(batch)
        process.begin = done
        if done >= upto:
            return


def write(process: Process) -> int:
    """One checkpoint; bytes written, with those of the files that it names first."""
    process.settle()
    before = process.keeper.state()
    process.keeper._held[0].due = 0.0
    until(
        process,
        lambda: process.keeper.state().written + process.keeper.state().failures > before.written + before.failures,
    )
    return process.keeper.state().bytes


@pytest.mark.parametrize("early", [True, False])
def test_a_file_of_rows_is_written_when_there_are_enough_for_it_and_no_checkpoint_writes_it_again(
    early: bool, tmp_path: Path
) -> None:
    process, folder = half(tmp_path)
    with leaving(0 if early else 2):
        process.settle()
        before = sizes(folder)
        first, own, named = write(process), checkpoint_size(folder), newest(folder)["read_with_it"]
    assert len(named) == 2
    assert set(named) & before.keys() == (set(named) if early else set())
    assert first == own + (0 if early else sum(sizes(folder)[name] for name in named))
    process.settle()
    assert [block.mapped for block in process.pipeline.partitions[0].joiner.written.blocks] == [True, True]
    go_on(process, 64_000)
    assert write(process) == checkpoint_size(folder)
    assert newest(folder)["read_with_it"] == named


def test_the_size_of_files_counts_those_of_rows_in_memory_and_of_ids(tmp_path: Path) -> None:
    process, folder = half(tmp_path)
    for _ in range(2):
        write(process)
        process.settle()
        now = sizes(folder)
        assert len([name for name in now if name.startswith("ids-")]) == len(process.cold.segments) > 0
        assert len(newest(folder)["read_with_it"]) == 2
        assert process.keeper.state().rows_bytes == sum(now.values())
        process.keeper.close()
        process = Process(tmp_path, ALIGN, **LONG)  # after a restart, too


def test_a_disk_that_was_full_when_a_file_could_be_written_early_gets_it_with_a_checkpoint(tmp_path: Path) -> None:
    process, folder = half(tmp_path)
    with full_once() as refused, leaving(0):
        process.settle()
    assert refused
    assert process.keeper.state().failures == 1
    write(process)
    names = newest(folder)["read_with_it"]
    assert len(names) == len(set(names)) == 2
    assert process.keeper.state().failures == 1


def test_files_that_are_named_no_more_are_deleted(tmp_path: Path) -> None:
    process, folder = half(tmp_path)
    write(process)
    gone = newest(folder)["read_with_it"][0]
    for upto in (80_000, 90_000):
        go_on(process, upto)
        write(process)
    kept = [container.layout(path)[0] for path in folder.glob("*.checkpoint")]
    needed = {name for tree in kept for key in ("rows_files", "read_with_it") for name in tree[key]}
    assert len(kept) == 2
    assert gone not in needed
    assert {path.name for kind in ("rows", "ids") for path in folder.glob(f"{kind}-*")} == needed


def test_files_that_are_out_of_use_before_a_checkpoint_names_them_are_deleted_without_one(tmp_path: Path) -> None:
    process, folder = half(tmp_path, 8_000)
    before, written = newest(folder), set[str]()
    with leaving(0):
        for upto in range(12_000, 100_000, 4_000):
            go_on(process, upto)
            process.settle()
            written |= sizes(folder).keys()
    cold, blocks = process.cold, process.pipeline.partitions[0].joiner.written.blocks
    assert newest(folder) == before
    used = {one.file.path.name for one in cold.segments} | {index.path.name for index in cold.indexes}
    used |= {block.file.path.name for block in blocks if block.file}
    there = sizes(folder).keys()
    assert used <= there
    assert len(there - used) <= 4  # what has gone out of use since the last was written
    assert len(written - there) >= 4
    write(process)
    tree = newest(folder)
    assert {*tree["rows_files"], *tree["read_with_it"]} == sizes(folder).keys()


def test_a_disk_that_was_full_when_rows_were_to_be_written_gets_them_later(tmp_path: Path) -> None:
    process, folder = half(tmp_path)
    with full_once() as refused, leaving(2):
        write(process)
    assert refused
    assert process.keeper.state().failures == 1
    assert not newest(folder)["read_with_it"]  # it is that of the beginning
    write(process)
    assert process.keeper.state().failures == 1
    names = newest(folder)["read_with_it"]
    assert len(names) == len(set(names)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("together", [False, True])
def test_a_worker_that_is_killed_before_a_checkpoint_names_its_files_changes_nothing(
    together: bool, tmp_path: Path
) -> None:
    plain, folder = in_memory("plain"), tmp_path / "checkpoints" / "partition-00000"
    process, before = Process(tmp_path, ALIGN, **LONG), set[str]()
    done = killed = kills = 0
    with (
        leaving(0),
        small_sizes() if together else nullcontext(),
    ):  # indexes become one: files that nobody names yet, and old ones
        while done < stream().order.size:
            for done, batch in stream().batches(process.pipeline.catalog, 4000, True, process.begin):
                process.pipeline.take(batch)
                process.settle()
                until(process, lambda process=process: process.cold.joining is None)
                if sizes(folder).keys() <= before:
                    continue
                if done > killed:  # nobody closes it; what it has done since its last checkpoint is done again
                    killed, kills = done, kills + 1
                    process = Process(tmp_path, ALIGN, **LONG)
                    break
                write(process)
                before = set(sizes(folder))
    assert kills >= 6
    process.pipeline.finish()
    report = readers_see(process.pipeline, with_history=False).report()
    process.keeper.close()
    assert {**plain.report, **report, "checkpoints": 0, "uptime_s": 0} == {
        **plain.report,
        "checkpoints": 0,
        "uptime_s": 0,
    }
    assert history_content(tmp_path / "history.sqlite") == plain.history


def test_ingest_waits_for_a_slow_disk_when_a_checkpoint_would_have_much_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written, "_MOST", 4096)
    monkeypatch.setattr(rows_on_disk, "_MANY_ROWS", 3 * 4096)
    write_now, left = container.write, []

    def slow(path: Path, *given: Any, **named: Any) -> int:
        time.sleep(0.4 if path.name.startswith("rows-") else 0.0)
        return write_now(path, *given, **named)

    monkeypatch.setattr(container, "write", slow)
    process = Process(tmp_path, ALIGN, **LONG)
    for done, batch in stream().batches(process.pipeline.catalog, 1000, True):
        process.pipeline.take(batch)
        process.keeper.tick()
        joiner = process.pipeline.partitions[0].joiner
        left.append(joiner.written.unwritten(slice(joiner.cold.end(joiner.front), joiner.front + joiner.known)))
        if done > 30_000:
            break
    assert joiner.written.blocks
    assert max(left) < 4 * 4096


@pytest.mark.parametrize("how", ["missing", "with another bit"])
def test_a_checkpoint_whose_rows_are_damaged_is_refused_and_the_file_is_named(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process, folder = half(tmp_path, 12_000)
    write(process)
    first = max(folder.glob("*.checkpoint"))
    go_on(process, 50_000)
    write(process)
    process.keeper.drop(frozenset({0}))
    assert newest(folder)["read_with_it"]
    file = folder / newest(folder)["read_with_it"][0]
    data = bytearray(file.read_bytes())
    file.unlink()
    if how != "missing":
        data[len(data) // 2] ^= 4
        file.write_bytes(data)
    again = Process(tmp_path, ALIGN, **LONG)
    said = "is missing" if how == "missing" else "the checksum of array"
    assert f"checkpoint refused: {file}: {said}" in caplog.text
    assert again.begin == 12_000  # the one before, which did not need it
    first.unlink()
    with pytest.raises(StoreError, match="all 1 checkpoints are damaged"):
        Process(tmp_path, ALIGN, **LONG)


def mapped_files(process: Process, column: str) -> list[str]:
    """The files that lie in a column of the table, by the system's own account, in order."""
    whole = getattr(process.pipeline.partitions[0].joiner.table, column)
    begin, out = whole.ctypes.data, []
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, *_, name = line.split(maxsplit=5)
        if "/rows-" in name and begin <= int(addresses.split("-")[0], 16) < begin + whole.nbytes:
            out.append(Path(name).name)
    return out


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_files_replace_the_memory_of_rows_that_wait_through_moves_and_restarts(tmp_path: Path) -> None:
    process, _ = half(tmp_path, 24_000)
    tables = set[int]()
    with leaving(0):
        for upto in range(28_000, 66_000, 4_000):
            go_on(process, upto)
            process.settle()
            joiner = process.pipeline.partitions[0].joiner
            tables.add(id(joiner.table))
            blocks = [block for block in joiner.written.blocks if block.end > joiner.outside_segments.start]
            assert blocks
            names = [block.file.path.name for block in blocks if block.file]
            assert mapped_files(process, "user")[-len(names) :] == names  # behind those of segments
    assert len(tables) > 1
    row = sum(column.itemsize for column in joiner.table.columns().values())
    copied = joiner.outside_segments.stop - joiner.written.blocks[-1].end
    assert process.keeper.state().rows_mapped == joiner.in_memory - copied
    waiting = joiner.nbytes - joiner.cold.nbytes - joiner._index.nbytes - joiner._held.nbytes
    assert waiting < row * copied + row // 2 * (joiner.in_memory - copied)  # the rest: scores, fields, state
    write(process)
    process.keeper.drop(frozenset({0}))
    again = Process(tmp_path, ALIGN, **LONG)
    assert again.begin == process.begin
    assert mapped_files(again, "user")[-len(names) :] == names
    assert mapped_files(again, "pclick") == mapped_files(again, "user")


@pytest.mark.slow
def test_rows_stay_in_memory_where_the_system_allows_no_more_maps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain, whole, calls = in_memory("plain"), written.map_file, []

    def some(path: Path, places: Any, columns: dict[str, Any], *rows: int) -> None:
        calls.append(path)
        if len(calls) % 2:
            whole(path, places, columns, *rows)
            return
        whole(path, places, {"user": columns["user"]}, *rows)
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with patch.object(written, "map_file", some), leaving(0):
        run = Run(tmp_path, stream(), ALIGN, stops=dict.fromkeys(STOPS, lambda _: None), **LONG)
    assert len(calls) >= 6
    assert "rows that are on disk cannot be mapped: Cannot allocate memory" in caplog.text
    assert run.report == plain.report
    assert run.history == plain.history


@pytest.mark.slow
def test_rows_that_are_forgotten_as_soon_as_they_mature_are_mapped_too(tmp_path: Path) -> None:
    # a pane as short as the gap of requests, for rows are kept until their request has closed
    short: dict[str, Any] = {
        "join": {"attribution_window": "25m", "correction_horizon": "1520s"},
        "windows": {"pane": "10s", "sliding": ["10m"]},
    }
    plain = Run(tmp_path / "memory", stream(), 0, **short)
    found: list[tuple[int, bool]] = []
    move = written.WrittenRows.move

    def look(rows: written.WrittenRows, old: Table, to: Table, here: slice, shift: int) -> None:
        move(rows, old, to, here, shift)
        found.append((here.start - shift, any(block.mapped for block in rows.blocks)))

    with patch.object(written.WrittenRows, "move", look), patch.object(written, "_MOST", 4096), leaving(0):
        run = Run(tmp_path / "disk", stream(), 4 * ALIGN, stops=dict.fromkeys(STOPS, lambda _: None), **short)
    assert run.most == 0
    assert any(first % 4096 and mapped for first, mapped in found)  # rows that do not begin at a whole page
    assert run.report == plain.report
    assert run.history == plain.history


def test_few_files_are_left_to_a_checkpoint_however_many_rows_wait() -> None:
    rows = written.WrittenRows(ALIGN)
    table = Table.allocate(10 * ALIGN, JoinPolicy(60_000, 5_000, 3_600_000))
    names = []
    while (block := rows.early(table, slice(100, 9 * ALIGN + 5))) is not None:
        block.file = written.WrittenFile(Path(f"rows-{len(names)}"), 0, {})
        names.append((block.first, block.end))
    assert names == [(i * ALIGN, (i + 1) * ALIGN) for i in range(9 - written._LEFT)]
    assert rows.early(table, slice(100, 10 * ALIGN)) is not None

"""What a kill, a full disk and a damaged file do to the history: nothing that was acknowledged is lost."""

from __future__ import annotations

import multiprocessing
import resource
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streameval.events.durations import DAY, HOUR
from streameval.store.errors import StoreError
from streameval.store.history.format import HistoryFormat
from streameval.store.history.reader import HistoryReader
from streameval.store.history.rows import PaneRows
from streameval.store.history.writer import HistoryWriter

MINUTE = 60_000
START = 19_000 * DAY


def check(path: Path) -> dict[int, int]:
    """Everything in the file fits together; the number of panes by partition."""
    db = sqlite3.connect(path)
    try:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        counted = "SELECT level, start, partition, sum(impressions) FROM vectors WHERE slice {} 0 GROUP BY 1, 2, 3"
        parts = set(db.execute("SELECT level, start, partition, seen FROM parts"))
        assert set(db.execute(counted.format("="))) == parts
        assert set(db.execute(counted.format(">"))) == parts  # one dimension, so its slices add up to the whole
        return dict(db.execute("SELECT partition, sum(panes) FROM parts GROUP BY 1"))
    finally:
        db.close()


def _write_on(path: Path, form: HistoryFormat, keep, panes, acknowledged) -> None:
    writer = HistoryWriter(path, form, keep)
    for turn in range(1_000_000):
        writer.write(0, 1, panes[turn % 7 :: 7])
        acknowledged.value = max(acknowledged.value, min(turn + 1, 7))
        if turn > 7 and turn % 3 == 0:
            writer.fold({0: START + DAY}, START + 2 * DAY + (turn % 5) * HOUR)


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_leaves_whole_transactions(path, form, keep, pane) -> None:
    context = multiprocessing.get_context("spawn")
    panes = [pane(minute, n=400) for minute in range(0, 240, 5)]
    rng = np.random.default_rng(7)
    for _ in range(8):
        acknowledged = context.Value("i", 0)
        child = context.Process(target=_write_on, args=(path, form, keep, panes, acknowledged))
        child.start()
        deadline = time.monotonic() + 60
        while acknowledged.value == 0 and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.3))
        child.kill()
        child.join()
        least = sum(len(panes[turn::7]) for turn in range(acknowledged.value))
        assert check(path)[0] >= least > 0
        assert HistoryReader(path, form, 20).range([panes[0].series[0]], None, None).results
    writer = HistoryWriter(path, form, keep)
    writer.write(0, 1, panes)
    writer.close()
    assert check(path) == {0: len(panes)}


def test_a_file_that_is_deleted_is_an_error_once_and_no_place_to_write_to(writer, path, pane) -> None:
    writer.write(0, 1, [pane(0)])
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    with pytest.raises(StoreError, match=r"history.sqlite: was deleted or replaced while this worker was running"):
        writer.write(0, 1, [pane(1)])
    assert writer.counts["failures"] == 1
    writer.write(0, 1, [pane(1)])
    assert check(path) == {0: 1}


def test_a_copy_that_is_put_in_its_place_is_written_to(writer, path, pane) -> None:
    writer.write(0, 1, [pane(0)])
    with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(path.with_name("copy"))) as copy:
        db.backup(copy)
    writer.write(0, 1, [pane(1)])
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()
    path.with_name("copy").rename(path)
    with pytest.raises(StoreError, match="deleted or replaced"):
        writer.write(0, 1, [pane(2)])
    writer.write(0, 1, [pane(2)])
    assert check(path) == {0: 2}


@contextmanager
def small_files(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_may_not_grow_is_an_error_after_which_the_same_rows_can_be_written(writer, path, pane) -> None:
    written = 0
    with small_files(400_000), pytest.raises(StoreError, match=r"history.sqlite: .*(full|I/O)"):
        for written in range(1000):
            writer.write(0, 1, [pane(written, n=300)])
    assert writer.counts["failures"] >= 1
    assert check(path) == {0: written}
    writer.write(0, 1, [pane(written, n=300)])
    assert check(path) == {0: written + 1}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    where = tmp_path / "disk"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(where)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield where
    subprocess.run(["umount", str(where)], check=True)


def test_a_full_disk_is_an_error_that_says_what_to_do_until_there_is_room(small_disk, form, keep, pane) -> None:
    writer = HistoryWriter(small_disk / "history.sqlite", form, keep)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(700_000))
    written = 0
    with pytest.raises(StoreError, match=r"free disk space, or lower store\.max_size"):
        for written in range(1000):
            writer.write(0, 1, [pane(written, n=100)])
    for _ in range(3):  # it stays full
        with pytest.raises(StoreError):
            writer.write(0, 1, [pane(written, n=100)])
    assert writer.counts["failures"] == 4
    assert check(writer.path) == {0: written}
    ballast.unlink()
    writer.write(0, 1, [pane(written, n=100)])
    assert check(writer.path) == {0: written + 1}
    writer.close()


def test_another_writer_that_never_ends_is_an_error_and_not_a_hang(path, form, keep, pane, monkeypatch) -> None:
    monkeypatch.setattr("streameval.store.history.format.BUSY_SECONDS", 0.2)
    writer = HistoryWriter(path, form, keep)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="database is locked; another process held it"):
        writer.write(0, 1, [pane(0)])
    other.execute("ROLLBACK")
    other.close()
    writer.write(0, 1, [pane(0)])
    assert check(path) == {0: 1}
    writer.close()


def test_a_damaged_row_is_named_and_the_file_stays_usable(writer, path, form, pane) -> None:
    writer.write(0, 1, [pane(0), pane(90)])
    db = sqlite3.connect(path)
    with db:
        db.execute(f"UPDATE vectors SET scores = x'00' WHERE start = {START}")
    db.close()
    reader = HistoryReader(path, form, 20)
    series = reader.series_names()
    words = (
        f"partition 0, from {START} ms: 1 bytes: shorter than a sketch's head.*put a good copy of the file in its place"
    )
    with pytest.raises(StoreError, match=words):
        reader.range(series, None, None)
    with pytest.raises(StoreError, match=words):
        reader.series("auc", series, None, None)
    assert reader.range(series, START + HOUR, None).results
    assert writer.fold({0: START + DAY}, START + 9 * DAY) == 1  # the other hour
    assert writer.counts["damaged"] == 1
    writer.write(0, 1, [pane(0)])
    assert writer.fold({0: START + DAY}, START + 9 * DAY) == 1


def test_readers_neither_wait_for_a_writer_nor_stop_it(writer, path, form, pane) -> None:
    writer.write(0, 1, [pane(0)])
    reader = HistoryReader(path, form, 20)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("DELETE FROM parts")
    assert reader.range(reader.series_names(), None, None).coverage.panes == 1
    other.execute("ROLLBACK")
    other.close()
    with reader._reading() as reading:  # a slow question, in the middle of its transaction
        before = reading.execute("SELECT count(*) FROM parts").fetchone()
        writer.write(0, 1, [pane(1)])
        writer.fold({0: START + DAY}, START + 9 * DAY)
        assert reading.execute("SELECT count(*) FROM parts").fetchone() == before
    assert replace(reader.range(reader.series_names(), None, None).coverage, expected=0).panes == 2


# -- one bad row -----------------------------------------------------------------------------------------------------


def rows_of(path: Path) -> dict[tuple[int, int, int], int]:
    """Impressions by (start, series, slice)."""
    db = sqlite3.connect(path)
    try:
        return {tuple(row[:3]): row[3] for row in db.execute("SELECT start, series, slice, impressions FROM vectors")}
    finally:
        db.close()


def spoilt(rows: PaneRows, how: str) -> PaneRows:
    """The same pane with one row of its slices that cannot be written; row 0 is the first of them."""
    names = dict(rows.slice_names)
    if how == "twice":
        names[0] = names[1]
    elif how == "nameless":
        del names[0]
    else:  # two names that are one as text
        names[0], names[1] = (0, "country", "\ud800"), (0, "country", "\\ud800")
    return replace(rows, slice_names=names)


@pytest.mark.parametrize("how", ["twice", "nameless", "alike"])
def test_a_row_that_cannot_be_written_is_skipped_and_named_and_the_rest_is_written(
    writer, path, pane, caplog, how: str
) -> None:
    writer.write(0, 1, [pane(0)])
    whole = {key[1:]: n for key, n in rows_of(path).items()}
    writer.write(0, 1, [spoilt(pane(1), how), pane(2)])
    writer.write(0, 1, [pane(3)])  # what comes later is not held up
    found = rows_of(path)
    by_pane = [{key[1:] for key in found if key[0] == START + i * MINUTE} for i in range(4)]
    assert by_pane[0] == by_pane[2] == by_pane[3] == set(whole)
    assert len(by_pane[1]) == len(whole) - 1
    assert sum(key[1] == 0 for key in by_pane[1]) == 2, "the whole of either version is there"
    assert (writer.counts["skipped"], writer.counts["written"], writer.counts["failures"]) == (1, 4, 0)
    said = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert len(said) == 1
    assert said[0].startswith(f"history: partition 0, pane from {START + MINUTE} ms: not written: ")


def test_many_bad_rows_do_not_fill_the_log(writer, pane, caplog) -> None:
    writer.write(0, 1, [spoilt(pane(i), "twice") for i in range(60)])
    assert writer.counts["skipped"] == 60
    said = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert len(said) == 21
    assert said[-1] == "history: partition 0: 40 more rows were not written"


def test_an_empty_file_begins_a_new_history_and_says_so(path, form, keep, pane, caplog) -> None:
    path.parent.mkdir()
    HistoryWriter(path, form, keep).close()
    assert not caplog.records, "a file that is not there yet is a first start"
    path.unlink()
    path.touch()
    with closing(HistoryWriter(path, form, keep)) as writer:
        writer.write(0, 1, [pane(0)])
    assert check(path) == {0: 1}
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert caplog.records[0].getMessage().startswith(f"{path}: is empty (0 bytes): a new history begins; ")

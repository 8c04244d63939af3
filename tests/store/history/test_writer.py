"""The writing side: fencing, folding, sizes, foreign files."""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from streameval.events.durations import DAY, HOUR
from streameval.sketches.layout import Options
from streameval.store.errors import FencedError, StoreError
from streameval.store.history.format import HISTORY_FORMAT, HistoryFormat
from streameval.store.history.reader import HistoryReader
from streameval.store.history.writer import HistoryWriter

MINUTE = 60_000
START = 19_000 * DAY


def query(path: Path, sql: str) -> list[tuple]:
    db = sqlite3.connect(path)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


# -- fencing ---------------------------------------------------------------------------------------------------------


def test_a_lower_epoch_may_not_write_and_changes_nothing(writer, path, form, keep, pane) -> None:
    writer.write(3, 1, [pane(0)])
    other = HistoryWriter(path, form, keep)
    other.write(3, 2, [])  # takes the partition over before it has anything to write
    before = query(path, "SELECT * FROM vectors ORDER BY 1, 2, 3, 4")
    with pytest.raises(FencedError, match="partition 3: epoch 1 may no longer write, epoch 2 has"):
        writer.write(3, 1, [pane(0, seed=9), pane(1)])
    assert query(path, "SELECT * FROM vectors ORDER BY 1, 2, 3, 4") == before
    assert writer.counts["failures"] == 0  # nothing is wrong with the file
    writer.write(4, 1, [pane(0)])  # another partition is another matter
    other.write(3, 2, [pane(1)])
    other.close()
    assert query(path, "SELECT partition, count(*) FROM parts GROUP BY 1") == [(3, 2), (4, 1)]


def test_the_same_epoch_may_write_again_after_a_restart(writer, path, form, keep, pane) -> None:
    writer.write(0, 5, [pane(0)])
    writer.close()
    again = HistoryWriter(path, form, keep)
    again.write(0, 5, [pane(0), pane(1)])
    again.close()
    assert query(path, "SELECT epoch FROM owners") == [(5,)]


def test_the_last_owner_of_a_partition_is_known_to_any_thread(writer, path, pane) -> None:
    assert writer.last_epoch(3) == 0
    writer.write(3, 2, [pane(0)])
    with ThreadPoolExecutor(1) as other:
        assert [other.submit(writer.last_epoch, partition).result() for partition in (3, 4)] == [2, 0]
    path.unlink()
    with pytest.raises(StoreError, match="does not exist"):
        writer.last_epoch(3)


def _worker(path: Path, form: HistoryFormat, keep, panes, partition: int, results) -> None:
    writer = HistoryWriter(path, form, keep)
    fenced = 0
    for epoch in range(1, 21):
        try:
            writer.write(partition % 2, epoch, panes)
        except FencedError:
            fenced += 1
    writer.close()
    results.put((partition, fenced))


@pytest.mark.slow
def test_several_processes_make_and_write_one_file(path, form, keep, pane) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    panes = [pane(0), pane(1)]
    workers = [context.Process(target=_worker, args=(path, form, keep, panes, p, results)) for p in range(4)]
    for worker in workers:
        worker.start()
    fenced = dict(results.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    # two of them share a partition: whoever is behind is refused, and the highest epoch stays
    assert all(count < 20 for count in fenced.values())
    assert query(path, "SELECT partition, epoch FROM owners") == [(0, 20), (1, 20)]
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    assert query(path, "SELECT count(*) FROM parts") == [(4,)]


# -- folding ---------------------------------------------------------------------------------------------------------


def test_minutes_become_hours_and_hours_days_of_utc(writer, path, pane) -> None:
    for minute in (0, 1, 59, 60, 1439, 1440):
        writer.write(0, 1, [pane(minute)])
    settled = {0: START + 10 * DAY}
    assert writer.fold(settled, START + HOUR) == 0
    assert writer.fold(settled, START + 2 * DAY + HOUR) == 1
    assert query(path, "SELECT level, start, panes, seen FROM parts WHERE level = 1") == [(1, START, 3, 150)]
    assert writer.fold(settled, START + 3 * DAY) == 2
    assert writer.fold(settled, START + 31 * DAY) == 2  # the hour of minute 1440, and the first day
    assert query(path, f"SELECT level, (start - {START}) / 3600000, panes, seen FROM parts") == [
        (1, 24, 1, 50), (2, 0, 5, 250),
    ]  # fmt: skip
    writer.fold(settled, START + 500 * DAY)
    assert query(path, "SELECT count(*) FROM parts") == [(0,)]
    assert query(path, "SELECT count(*) FROM series") == [(0,)]  # names without rows go too
    assert writer.counts["deleted_by_age"] == 2
    assert writer.counts["folded"] == 5


def test_a_day_that_is_folded_late_is_whole_or_gone(writer, path, keep, pane) -> None:
    """As after a long stop, or in a fast replay: hours of a day are past `days` when it is not folded yet."""
    for minute in (0, 600, 1380, 1440):
        writer.write(0, 1, [pane(minute)])
    settled = {0: START + 10 * DAY}
    while writer.fold(settled, START + keep.days + DAY // 2):
        pass
    days = f"SELECT level, (start - {START}) / 86400000, panes FROM parts"
    assert query(path, days) == [(2, 0, 3), (2, 1, 1)]
    writer.fold(settled, START + keep.days + DAY)
    assert query(path, days) == [(2, 1, 1)]


def test_a_part_that_reaches_past_what_is_settled_is_not_made(writer, path, pane) -> None:
    for minute in range(0, 120, 10):
        writer.write(0, 1, [pane(minute)])
        writer.write(1, 1, [pane(minute)])
    assert writer.fold({0: START + 2 * HOUR - 1}, START + 9 * DAY) == 1
    assert query(path, "SELECT level, partition, count(*) FROM parts GROUP BY 1, 2") == [
        (0, 0, 6),
        (0, 1, 12),
        (1, 0, 1),
    ]


def test_what_is_folded_is_not_written_again_but_counted(writer, path, pane) -> None:
    writer.write(0, 1, [pane(0), pane(70)])
    writer.fold({0: START + HOUR}, START + 9 * DAY)
    before = query(path, "SELECT * FROM vectors WHERE level = 1")
    writer.write(0, 1, [pane(5), pane(71)])
    assert query(path, "SELECT * FROM vectors WHERE level = 1") == before
    assert query(path, "SELECT level, count(*) FROM parts GROUP BY 1") == [(0, 2), (1, 1)]
    assert (writer.counts["refused"], writer.counts["written"]) == (1, 3)


def test_hours_that_shall_live_shorter_than_minutes_lose_nothing(path, form, keep, pane) -> None:
    writer = HistoryWriter(path, form, replace(keep, hours=HOUR))
    for minute in range(0, 1440, 30):
        writer.write(0, 1, [pane(minute)])
    for hour in range(96):
        writer.fold({0: START + 9 * DAY}, START + hour * HOUR)
    writer.close()
    assert query(path, "SELECT level, panes, seen FROM parts") == [(2, 48, 48 * 50)]


def test_panes_that_do_not_divide_an_hour_fold_into_multiples_of_themselves() -> None:
    assert HistoryFormat(7 * MINUTE, Options((0.5,)), "uniform").lengths == (7 * MINUTE, 63 * MINUTE, 23 * 63 * MINUTE)
    assert HistoryFormat(2 * HOUR, Options((0.5,)), "uniform").lengths == (2 * HOUR, 2 * HOUR, DAY)
    assert HistoryFormat(10_000, Options((0.5,)), "uniform").lengths == (10_000, HOUR, DAY)


# -- size ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_file_stays_within_its_size_and_forgets_the_oldest(path, form, keep, pane) -> None:
    most = 1_500_000
    writer = HistoryWriter(path, form, replace(keep, max_size=most))
    for minute in range(300):
        writer.write(0, 1, [pane(minute, n=300)])
        if minute % 20 == 0:
            writer.fold({0: START + minute * MINUTE}, START + minute * MINUTE)
        assert writer.nbytes <= most
    writer.close()
    ((first, last, count),) = query(
        path, f"SELECT (min(start) - {START}) / 60000, (max(start) - {START}) / 60000, count(*) FROM parts"
    )
    assert last == 299
    assert count == last - first + 1  # what is left is the newest, without a gap
    assert writer.counts["deleted_by_size"] == first
    assert 0 < first < 280
    assert most / 3 < path.stat().st_size < most


@pytest.mark.slow
def test_the_journal_does_not_grow_while_one_question_follows_another(path, form, keep, pane) -> None:
    most = 2_000_000
    writer = HistoryWriter(path, form, replace(keep, max_size=most))
    reader = HistoryReader(path, form, 20)
    stop, asked = threading.Event(), []

    def ask() -> None:
        while not stop.is_set():
            asked.append(reader.range(reader.series_names(), None, None, limit=2).coverage.panes)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(120):
            writer.write(0, 1, [pane(turn % 40, n=300)])
            assert writer.nbytes <= most
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert writer.counts["failures"] == 0
    assert max(asked) == 40
    writer.close()


def test_a_size_lowered_over_a_restart_gives_the_room_back(path, form, keep, pane) -> None:
    """SQLite's module gave one page back at a time: old parts were deleted, and the disk was as full as before."""
    writer = HistoryWriter(path, form, keep)
    writer.write(0, 1, [pane(minute, n=300) for minute in range(120)])
    writer.close()
    before = path.stat().st_size
    most = before // 4
    writer = HistoryWriter(path, form, replace(keep, max_size=most))
    writer.write(0, 1, [pane(120, n=300)])
    assert writer.nbytes <= most
    writer.close()
    assert path.stat().st_size <= most
    assert query(path, f"SELECT (max(start) - {START}) / 60000 FROM parts") == [(120,)]


def test_where_one_partition_is_folded_and_another_is_not_both_forget_the_same_hours(path, form, keep, pane) -> None:
    """A silent partition keeps its minutes where the others have hours: what was left of an hour was its minutes alone."""
    writer = HistoryWriter(path, form, keep)
    for partition in (0, 1):
        writer.write(partition, 1, [pane(minute, n=300) for minute in range(20 * partition, 180, 5)])
    writer.fold({0: START + 9 * DAY}, START + 9 * DAY)
    writer.close()
    levels = query(path, "SELECT partition, max(level) FROM parts GROUP BY 1")
    assert dict(levels)[0] > dict(levels)[1] == 0
    writer = HistoryWriter(path, form, replace(keep, max_size=path.stat().st_size * 3 // 4))
    writer.write(0, 1, [pane(3 * 1440, n=300)])
    writer.close()
    ((first,),) = query(path, "SELECT min(start) FROM parts WHERE partition = 1")
    assert query(path, f"SELECT count(*) FROM parts WHERE partition = 0 AND start <= {first}") != [(0,)]
    assert first % HOUR == 0 or first == START + 3 * 1440 * MINUTE


def test_a_size_too_small_for_anything_keeps_nothing_and_does_not_hang(path, form, keep, pane) -> None:
    writer = HistoryWriter(path, form, replace(keep, max_size=1))
    writer.write(0, 1, [pane(0), pane(1)])
    writer.close()
    assert query(path, "SELECT count(*) FROM parts") == [(0,)]


# -- foreign files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [HistoryWriter, HistoryReader])
def test_a_file_that_is_not_ours_is_refused_by_name_with_what_to_do(kind, path, form, keep) -> None:
    last = keep if kind is HistoryWriter else 20
    path.parent.mkdir()
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match=r"history.sqlite: file is not a database; move the file away"):
        kind(path, form, last)
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE mine (x)")
    db.close()
    with pytest.raises(StoreError, match="is another program's database; move it away"):
        kind(path, form, last)
    assert query(path, "SELECT name FROM sqlite_master") == [("mine",)]


@pytest.mark.parametrize("kind", [HistoryWriter, HistoryReader])
def test_another_format_or_other_settings_are_refused_with_what_to_do(kind, writer, path, form, keep) -> None:
    last = keep if kind is HistoryWriter else 20
    for other, words in (
        (replace(form, pane=120_000), "windows.pane = 1m, which cannot be added to the current ones, 2m; set it back"),
        (replace(form, options=Options((0.5,))), r"buckets.edges = \[0.01, 0.1, 0.5\]"),
        (replace(form, weighting="clicks"), "users.weighting = impressions"),
    ):
        with pytest.raises(StoreError, match=words):
            kind(path, other, last)
    writer.close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {HISTORY_FORMAT + 1}")
    db.close()
    with pytest.raises(
        StoreError, match=f"history of format {HISTORY_FORMAT + 1}, this program reads format {HISTORY_FORMAT}"
    ):
        kind(path, form, last)


def test_a_reader_without_a_file_says_who_makes_it(path, form) -> None:
    with pytest.raises(StoreError, match="does not exist; it is created by"):
        HistoryReader(path, form, 20)
    assert not path.exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path, form, keep) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match=r"history.sqlite: .*file is a file, not a folder"):
        HistoryWriter(tmp_path / "file" / "history.sqlite", form, keep)


def test_names_that_no_database_can_hold_are_escaped(writer, path, form, pane) -> None:
    rows = pane(0)
    odd = tuple(name._replace(version="half \ud800 a pair \0 'quoted'") for name in rows.series[:1]) + rows.series[1:]
    writer.write(0, 1, [replace(rows, series=odd)])
    assert [s.version for s in HistoryReader(path, form, 20).series_names()] == [
        "half \\ud800 a pair \0 'quoted'",
        "v2",
    ]


def test_the_settings_in_the_file_are_readable(writer, path) -> None:
    stored = dict(query(path, "SELECT name, value FROM settings"))
    assert stored["windows.pane"] == "1m"
    assert json.loads(stored["buckets.edges"]) == [0.01, 0.1, 0.5]

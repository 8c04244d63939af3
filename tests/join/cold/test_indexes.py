"""Ids of rows on disk: read at a restart or rebuilt, many files become few, and results are what they are in memory."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from streameval.join.cold.cold_rows import Joining
from streameval.join.cold.ground import ALIGN
from streameval.join.cold.ids import in_pages
from streameval.loop import ids_on_disk
from streameval.store import container
from streameval.store.checkpoints import Checkpoints
from tests.join.cold.test_cold_rows import (
    PARTITION,
    PATIENCE,
    Process,
    Run,
    change_a_bit,
    in_memory,
    nothing,
    stream,
    until,
)


def files_of_ids(folder: Path) -> list[Path]:
    return sorted(folder.glob("ids-*"))


def without(folder: Path) -> None:
    files_of_ids(folder)[-1].unlink()


def without_any(folder: Path) -> None:
    for path in files_of_ids(folder):
        path.unlink()


def of_another_form(folder: Path) -> None:
    path = files_of_ids(folder)[-1]
    tree = container.read(path)
    path.unlink()  # the old bytes may still be mapped
    container.write(path, tree | {"form": 1}, container.PAGE)


def damaged(folder: Path) -> None:
    """In the filter, which is in memory."""
    change_a_bit(files_of_ids(folder)[-1], -100)


INDEXES: dict[str, tuple[Callable[[Path], None], int]] = {  # how many are rebuilt
    "whole": (nothing, 0),
    "missing": (without, 1),
    "all missing": (without_any, 1),  # of neighbours, so one
    "damaged": (damaged, 1),
    "of another form": (of_another_form, 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", INDEXES)
def test_files_of_ids_are_read_or_rebuilt(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    make = ids_on_disk._rebuilt
    monkeypatch.setattr(ids_on_disk, "_rebuilt", lambda *given: made.append(1) or make(*given))
    found: list[int] = []
    happens, expected = INDEXES[how]

    def happens_now(folder: Path) -> None:
        found.append(len(files_of_ids(folder)))
        happens(folder)

    plain = in_memory()
    run = Run(tmp_path / "disk", stream(), ALIGN, stops={62_000: happens_now, 87_000: happens_now})
    assert min(found) >= 1
    assert len(made) == 2 * expected
    assert run.report == plain.report
    assert run.history == plain.history


@contextmanager
def small_sizes() -> Iterator[None]:
    """Two neighbours become one, whatever their size."""

    def to_merge(rows: Sequence[int]) -> slice | None:
        return slice(len(rows) - 2, len(rows)) if len(rows) > 1 else None

    with patch("streameval.join.cold.cold_rows.to_merge", to_merge):
        yield


@pytest.mark.parametrize("shared", [True, False], ids=["one log", "two logs"])
def test_indexes_become_one_and_change_nothing(shared: bool, tmp_path: Path) -> None:
    plain = in_memory(shared=shared)
    counts: list[tuple[int, int]] = []

    def look(folder: Path) -> None:
        tree = container.layout(max(folder.glob("*.checkpoint")))[0]
        cold = tree["monitor"]["joiner"]["cold"]
        counts.append((len(cold["files"]), len(cold["ids"])))
        assert {path.name for path in folder.glob("ids-*")} >= {name for name, *_ in cold["ids"]}

    with small_sizes():
        run = Run(tmp_path / "disk", stream(), ALIGN, shared=shared, stops={62_000: look, 87_000: look})
    assert all(1 <= indexes < segments for segments, indexes in counts)
    assert run.report == plain.report
    assert run.history == plain.history


def half_way(path: Path) -> Process:
    """With some segments."""
    process = Process(path, ALIGN)
    for done, batch in stream().batches(process.pipeline.catalog, 4000, True):
        process.pipeline.take(batch)
        process.settle()
        if done > 60_000:
            break
    return process


def test_indexes_are_put_together_while_rows_move_and_are_forgotten(tmp_path: Path) -> None:
    process = half_way(tmp_path)
    joiner = process.pipeline.partitions[0].joiner
    cold, ids = joiner.cold, joiner.table.id[joiner.front : joiner.cold.end(0)].copy()
    assert len(cold.indexes) == len(cold.segments) >= 2
    with small_sizes():
        joining = cold.begin_to_join()
    assert joining is not None
    assert cold.begin_to_join() is None  # one at a time
    files = Checkpoints(tmp_path / "other", 1)
    files.claim()
    one = ids_on_disk.write_index(files, joining.parts, joining.ids)
    shift = joiner.cold.front(joiner.front)
    joiner._move(type(joiner.table).allocate(joiner.table.id.size, joiner.policy, (), True))
    assert shift > 0 or cold.segments[0].first == 0
    cold.join_indexes(one)
    cold.joining = None
    assert (one.first, one.end) == (cold.segments[-2].first, cold.segments[-1].end)
    found = cold.fetch(joiner.table, joiner.front, ids, ids[:0], None)
    rows = np.flatnonzero(np.isin(joiner.table.id[: cold.end(0)], ids))
    assert (joiner.table.id[found.shown] == ids).all()
    assert set(found.shown.tolist()) <= set(rows.tolist())
    cold.forget_before(joiner.table, cold.segments[-2].end)
    assert cold.indexes == [one]  # some of its rows are still known
    with small_sizes():
        assert cold.begin_to_join() is None
    cold.forget_before(joiner.table, one.end)
    assert cold.indexes == []


def test_a_full_disk_leaves_indexes_as_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    process = half_way(tmp_path)
    before = list(process.cold.indexes)
    write, refused = container.write, []

    def full(path: Path, *given: Any, **named: Any) -> int:
        if path.name.startswith("ids-") and not refused:
            refused.append(path.name)
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, *given, **named)

    with small_sizes(), patch.object(container, "write", full):
        until(process, lambda: bool(refused) and process.cold.joining is None)
        assert process.cold.indexes == before
        assert process.keeper.state().failures == 1
        assert f"{refused[0]}: cannot be written: No space left on device; tried again later" in caplog.text
        with patch.object(process.keeper._ids, "_due", 0.0):
            until(process, lambda: len(process.cold.indexes) == 1)


def test_what_is_under_way_at_the_end_is_left(tmp_path: Path) -> None:
    process = half_way(tmp_path)
    begun, go = threading.Event(), threading.Event()
    parts = Joining.parts

    def slowly(joining: Joining) -> list[Any]:
        begun.set()
        assert go.wait(PATIENCE)
        return parts(joining)

    with small_sizes(), patch.object(Joining, "parts", slowly):
        until(process, begun.is_set)
        names = [index.path.name for index in process.cold.indexes]
        folder = process.cold.indexes[0].path.parent
        process.keeper.release(PARTITION)  # a checkpoint deletes what others have left, not what is being written
        assert len(list(folder.glob("*.partial"))) == 1
        threading.Timer(0.2, go.set).start()
        process.keeper.close()
    assert not list(folder.glob("*.partial"))
    cold = container.layout(max(folder.glob("*.checkpoint")))[0]["monitor"]["joiner"]["cold"]
    assert [name for name, *_ in cold["ids"]] == names


def test_ids_whose_damage_is_found_after_a_restart_are_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process = half_way(tmp_path)
    process.keeper.close()
    folder = tmp_path / "checkpoints" / "partition-00000"
    name = files_of_ids(folder)[0].name
    change_a_bit(folder / name, container.PAGE + 100)  # of the pages, which a restart does not read
    again = Process(tmp_path, ALIGN)
    assert again.cold.indexes[0].path.name == name
    until(again, lambda: again.cold.indexes[0].path.name != name)
    assert f"{name}: the checksum of array 0 does not match: damaged: rebuilt from the files of rows" in caplog.text
    assert not again.cold.indexes[0].damaged
    joiner = again.pipeline.partitions[0].joiner
    ids = joiner.table.id[joiner.front : joiner.cold.end(0)]
    found = joiner.cold.fetch(joiner.table, joiner.front, ids, ids[:0], None)
    assert (joiner.table.id[found.shown] == ids).all()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["pages", "fences", "no fences"])
def test_files_and_checkpoints_of_before_ids_had_files_of_their_own_are_read(how: str, tmp_path: Path) -> None:
    kinds: list[set[bool]] = []

    def look(folder: Path) -> None:
        named = [container.layout(path)[0] for path in folder.glob("rows-*")]
        kinds.append({"index" in tree for tree in named if "shadow" in tree})

    def as_before(folder: Path) -> None:
        """Has every file hold what the program wrote then."""
        for path in files_of_ids(folder):
            path.unlink()
        for path in [*folder.glob("rows-*"), *folder.glob("*.checkpoint")]:
            tree = container.read(path)
            if "shadow" in tree:
                tree["index"] = of_before(tree["columns"]["id"], how)
            cold = (tree.get("monitor") or {}).get("joiner", {}).get("cold") or {}
            if cold.pop("ids", None) is not None and how != "no fences":
                cold["filter"] = "ids-0000000001-0000000001"
            path.unlink()
            container.write(path, tree, align=container.PAGE if "columns" in tree else container.TIGHT)
        look(folder)

    plain = in_memory()
    run = Run(tmp_path / "disk", stream(), ALIGN, stops={62_000: as_before, 87_000: look})
    assert kinds == [{True}, {True, False}]
    assert run.report == plain.report
    assert run.history == plain.history


def of_before(ids: np.ndarray, how: str) -> dict[str, np.ndarray]:
    """What files of rows had of their ids."""
    order = np.argsort(ids, kind="stable")
    if how == "pages":
        pages, fence = in_pages(ids[order], order.astype(np.uint32))
        return {"pages": pages, "fence": fence}
    return {"ids": ids[order], "at": order.astype(np.uint32)} | (
        {"fence": ids[order][::512]} if how == "fences" else {}
    )

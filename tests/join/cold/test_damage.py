"""Damaged files of rows and ids: what is done with what a click has changed, and what is used before its bytes are compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from streameval.join.cold.cold_rows import Joining
from streameval.join.cold.ground import ALIGN
from streameval.join.cold.ids import PAGE_BYTES, PAGE_IDS
from streameval.store import container
from streameval.testing import readers_see
from tests.join.cold.test_cold_rows import Process, change_a_bit, stream, until
from tests.join.cold.test_indexes import half_way, small_sizes


def labels_of(process: Process, number: int) -> dict[str, np.ndarray]:
    """What clicks have changed of the rows of a segment, which count from its first one."""
    cold, table = process.cold, process.pipeline.partitions[0].joiner.table
    segment = cold.segments[number]
    rows = cold.changed(segment.first, segment.end)
    fields = {name: column[rows] for name, column in table.columns().items() if name.startswith("field.")}
    return {"row": rows - segment.first, "state": table.state[rows], **fields}


def test_a_file_that_is_put_back_has_the_labels_that_clicks_had_changed(tmp_path: Path) -> None:
    process = half_way(tmp_path)
    before, path = labels_of(process, 1), process.cold.segments[1].file.path
    assert before["row"].size > 5
    process.keeper.close()
    good = path.read_bytes()
    change_a_bit(path, len(good) // 2)
    torn = Process(tmp_path, ALIGN)
    until(torn, lambda: torn.cold.segments[1].file.lost)
    torn.keeper.close()
    path.unlink()
    path.write_bytes(good)
    for name, values in labels_of(Process(tmp_path, ALIGN), 1).items():
        np.testing.assert_array_equal(values, before[name])


def restarted(path: Path, names_first: bool = False) -> Process:
    """With some segments, none of which has been compared."""
    process = Process(path, ALIGN, names_first)
    assert len(process.cold.unchecked) == len(process.cold.segments) + len(process.cold.indexes)
    return process


def value_changed(path: Path, name: str, row: int, *values: float) -> None:
    """Writes values of a column from a row on, as a bad disk might."""
    dtype, _, offset = container.layout(path)[0]["columns"][name]
    data = bytearray(path.read_bytes())
    at, new = offset + row * np.dtype(dtype).itemsize, np.array(values, dtype).tobytes()
    data[at : at + len(new)] = new
    path.unlink()  # another file: the old bytes may still be mapped
    path.write_bytes(data)


def fetched(process: Process, ids: np.ndarray) -> np.ndarray:
    """The rows that clicks with these ids would find; -1: none."""
    joiner = process.pipeline.partitions[0].joiner
    return joiner.cold.fetch(joiner.table, joiner.front, ids[:0], ids, None).before


def ids_by_segment(process: Process) -> list[np.ndarray]:
    """Of impressions that have one row in segments, which was not forgotten."""
    joiner = process.pipeline.partitions[0].joiner
    ids, many = np.unique(joiner.table.id[: joiner.cold.end(0)], return_counts=True)
    once = ids[many == 1]
    known = [joiner.table.id[max(one.first, joiner.front) : one.end] for one in joiner.cold.segments]
    return [some[np.isin(some, once)].copy() for some in known]


@contextmanager
def files_compared() -> Iterator[list[str]]:
    compared: list[str] = []
    check = container.check
    with patch.object(container, "check", lambda path: compared.append(path.name) or check(path)):
        yield compared


COLUMNS = {"pclick": 0.777, "series": 0x7FFFFF00, "previous": -(1 << 30), "state": 255}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_row_is_used_only_after_its_file_was_compared(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process = half_way(tmp_path)
    path, ids = process.cold.segments[1].file.path, ids_by_segment(process)
    process.keeper.close()
    value_changed(path, name, 77, COLUMNS[name])
    torn = restarted(tmp_path)
    with files_compared() as compared:
        assert (fetched(torn, ids[1][:5]) == -1).all()
        assert (fetched(torn, ids[-1][:5]) >= 0).all()
        assert not torn.cold.segments[-1].file.lost
        assert torn.cold.segments[1].file.lost
        once = list(compared)
        assert path.name in once
        assert len(once) == len(set(once))
        fetched(torn, np.concatenate((ids[1], ids[-1])))
        assert compared == once
    assert caplog.text.count("impressions are lost") == 1
    assert f"{path.name}: the checksum of array" in caplog.text
    torn.keeper.close()


def test_the_stream_goes_on_where_late_clicks_meet_damaged_rows(tmp_path: Path) -> None:
    process = half_way(tmp_path)
    paths = [segment.file.path for segment in process.cold.segments]
    process.keeper.close()
    for path in paths:
        value_changed(path, "pclick", 0, *np.full(ALIGN, 0.777))
    torn = restarted(tmp_path)
    for _, batch in stream().batches(torn.pipeline.catalog, 4000, True, torn.begin):
        torn.pipeline.take(batch)  # without the background's turn
        torn.keeper.state()
    torn.pipeline.finish()
    readers_see(torn.pipeline, with_history=False)  # what was counted on another thread may have failed
    assert torn.keeper.state().rows_lost >= ALIGN
    torn.keeper.close()


def row_number_changed(path: Path, id_: np.uint64, bit: int) -> None:
    """Changes a bit of the row number that a file of ids has for an id."""
    dtype, shape, offset = container.layout(path)[0]["pages"]
    pages = np.fromfile(path, dtype, shape[0] * shape[1], offset=offset).reshape(shape)
    ((page, place),) = np.argwhere(pages[:, :PAGE_IDS] == id_)
    data = bytearray(path.read_bytes())
    at = offset + page * PAGE_BYTES + 8 * PAGE_IDS + 4 * place
    data[at + bit // 8] ^= 1 << bit % 8
    path.unlink()  # the old bytes may still be mapped
    path.write_bytes(data)


@pytest.mark.parametrize("bit", [8, 30], ids=["another row", "no row"])
@pytest.mark.parametrize("found_by", ["a click", "the background"])
def test_the_ids_of_a_damaged_file_are_made_anew_before_one_is_used(
    bit: int, found_by: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process = half_way(tmp_path)
    ids, name = ids_by_segment(process)[1], process.cold.indexes[1].path.name
    process.keeper.close()
    row_number_changed(process.cold.indexes[1].path, ids[5], bit)
    torn = restarted(tmp_path)
    with patch.object(Joining, "parts", lambda joining: _full_disk()):  # so that its file stays
        if found_by == "the background":
            until(torn, lambda: torn.cold.indexes[1].damaged)
        rows = fetched(torn, ids)
        assert (torn.pipeline.partitions[0].joiner.table.id[rows] == ids).all()
        assert torn.cold.indexes[1].path.name == name
    assert caplog.text.count("rebuilt from the files of rows") == 1
    assert "impressions are lost" not in caplog.text
    torn.keeper._ids._due = 0.0
    until(torn, lambda: torn.cold.indexes[1].path.name != name)
    assert (fetched(torn, ids) == rows).all()
    torn.keeper.close()


def _full_disk() -> list:
    raise OSError(28, "No space left on device")


def test_indexes_are_put_together_only_after_they_were_compared(tmp_path: Path) -> None:
    half_way(tmp_path).keeper.close()
    again = restarted(tmp_path)
    with small_sizes():
        assert again.cold.begin_to_join() is None
        again.cold.unchecked.check(again.cold.indexes)
        assert again.cold.begin_to_join() is not None
    again.keeper.close()


def test_rows_that_are_read_by_time_or_by_request_are_compared_too(tmp_path: Path) -> None:
    process = half_way(tmp_path)
    paths = [segment.file.path for segment in process.cold.segments]
    process.keeper.close()
    value_changed(paths[1], "user", 7, 5)
    value_changed(paths[-1], "previous", 8, -9)  # would lead to itself, by way of the next row
    value_changed(paths[-1], "previous", 17, 9)
    torn = restarted(tmp_path)
    joiner = torn.pipeline.partitions[0].joiner
    segments = torn.cold.segments
    joiner.check_requests(np.array([segments[-1].first + 17, -1]))
    assert [segment.file.lost for segment in segments] == [segment is segments[-1] for segment in segments]
    ts = int(joiner.table.ts[segments[1].first + 7])
    joiner.rows_between(ts, ts + 1)
    assert segments[1].file.lost
    torn.keeper.close()


def test_a_code_that_no_process_had_does_not_end_a_restart_with_other_codes(tmp_path: Path) -> None:
    process = half_way(tmp_path)
    path = process.cold.segments[1].file.path
    process.keeper.close()
    value_changed(path, "series", 3, 1_000_000)
    value_changed(path, "slices", 4, 1_000_000)
    torn = restarted(tmp_path, names_first=True)
    assert torn.cold.segments[1].codes is not None
    until(torn, lambda: torn.cold.segments[1].file.lost)
    torn.keeper.close()


def test_the_oldest_rows_are_not_forgotten_because_their_file_is_lost(tmp_path: Path) -> None:
    process = half_way(tmp_path)
    joiner, first = process.pipeline.partitions[0].joiner, process.cold.segments[0]
    front, end, lost = joiner.front, first.end, [segment.file for segment in process.cold.segments[:2]]
    for file in lost:
        process.cold.lose(joiner.table, joiner.runs, file)
    joiner.forget()
    assert joiner.front == front < end
    joiner.finish()
    joiner.forget()
    assert not process.cold.segments
    process.keeper.close()

"""Ids are found in a segment, whatever they are like; a file's columns take the place of memory, and give it back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval.join.cold.ground import ALIGN, empty, give_back, map_over, mapped
from streameval.join.cold.segment import RowsFile, Segment, _in_order

small = st.integers(0, 20)
hashes = st.integers(0, (1 << 64) - 1)
near_the_ends = st.sampled_from([0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1])
lists = st.one_of(*(st.lists(kind, max_size=60) for kind in (small, hashes, near_the_ends, st.one_of(small, hashes))))


@given(lists, lists)
def test_every_row_that_has_an_id_is_found_and_no_other(there: list[int], wanted: list[int]) -> None:
    ids = np.array(there, np.uint64)
    index = _in_order(ids)
    segment = Segment(RowsFile(Path(), ids.size, None), 1000, 1000 + ids.size, index["ids"], index["at"])
    asked = np.array(wanted + there[:5], np.uint64)
    where, rows = segment.find(asked)
    expected = [(i, 1000 + row) for i, one in enumerate(asked.tolist()) for row, had in enumerate(there) if had == one]
    assert list(zip(where.tolist(), rows.tolist(), strict=True)) == expected


def test_an_id_that_a_whole_segment_has_is_found_in_all_of_its_rows() -> None:
    index = _in_order(np.full(5000, 7, np.uint64))
    segment = Segment(RowsFile(Path(), 5000, None), 0, 5000, index["ids"], index["at"])
    where, rows = segment.find(np.array([6, 7, 8], np.uint64))
    assert (where == 1).all()
    assert (rows == np.arange(5000)).all()


def test_a_file_takes_the_place_of_memory_and_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "column"
    written = np.arange(ALIGN, dtype=np.int64)
    path.write_bytes(written.tobytes())
    column = empty(3 * ALIGN, np.int64)
    column[:] = -1
    with path.open("rb") as file:
        map_over(column, ALIGN, file.fileno(), ("<i8", (ALIGN,), 0))
        whole = mapped(file.fileno(), ("<i8", (ALIGN,), 0))
    assert (column[ALIGN : 2 * ALIGN] == written).all()
    assert (whole == written).all()
    assert (column[:ALIGN] == -1).all()
    assert (column[2 * ALIGN :] == -1).all()
    column[ALIGN + 5] = 77
    assert path.read_bytes() == written.tobytes()
    assert whole[5] == 5
    path.unlink()  # what is mapped stays
    assert column[ALIGN + 6] == 6
    give_back(column, ALIGN, 2 * ALIGN)
    assert not column[ALIGN : 2 * ALIGN].any()
    assert (column[2 * ALIGN :] == -1).all()


@pytest.mark.parametrize(("first", "rows"), [(1, ALIGN), (ALIGN, 100), (2 * ALIGN, ALIGN)])
def test_what_is_no_whole_page_of_the_column_is_refused(first: int, rows: int, tmp_path: Path) -> None:
    path = tmp_path / "column"
    path.write_bytes(bytes(8 * ALIGN))
    column = empty(2 * ALIGN, np.int64)
    with path.open("rb") as file, pytest.raises(ValueError, match="not whole pages"):
        map_over(column, first, file.fileno(), ("<i8", (rows,), 0))


def test_a_file_of_another_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "column"
    path.write_bytes(bytes(8 * ALIGN))
    with path.open("rb") as file, pytest.raises(ValueError, match="a column of int32 cannot hold the file's <i8"):
        map_over(empty(ALIGN, np.int32), 0, file.fileno(), ("<i8", (ALIGN,), 0))

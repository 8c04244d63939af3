"""Ids are found in a segment, whatever they are like; a file's columns take the place of memory, and give it back."""

from __future__ import annotations

import lzma
import mmap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval.join.cold import ground, lookup
from streameval.join.cold import ids as ids_module
from streameval.join.cold.ground import ALIGN, empty, give_back, map_over, mapped
from streameval.join.cold.ids import PAGE_IDS, IdPart, SortedIds, in_pages, merged
from streameval.join.cold.index import Index, in_order, to_merge
from streameval.join.cold.lookup import Lookup
from streameval.join.cold.ribbon import RibbonMaker
from streameval.join.cold.segment import RowsFile, Segment
from streameval.join.policy import CLICKED
from streameval.store import container
from tests.join.cold.traffic import START

DATA = Path(__file__).parent / "data"

small = st.integers(0, 20)
hashes = st.integers(0, (1 << 64) - 1)
near_the_ends = st.sampled_from([0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1])
lists = st.one_of(*(st.lists(kind, max_size=60) for kind in (small, hashes, near_the_ends, st.one_of(small, hashes))))


def index_of(parts: list[IdPart], first: int, end: int) -> Index:
    """Of these, as a file has it."""
    ids = sum(part.ids.size for part in parts)
    maker, pages, fences = RibbonMaker(ids), [np.empty((0, 512), np.uint64)], [np.empty(0, np.uint64)]
    for some, rows in merged(parts):
        maker.add(some)
        for made, into in zip(in_pages(some, rows), (pages, fences), strict=True):
            into.append(made)
    in_order = SortedIds.of_pages(ids, np.concatenate(pages), np.concatenate(fences))
    return Index(Path(f"ids-{first}"), 0, first, end, in_order, maker.finish())


def index(ids: np.ndarray, first: int) -> Index:
    """Of these rows' ids."""
    return index_of([in_order(ids)], first, first + ids.size)


@given(lists, lists, lists, st.booleans())
def test_every_row_that_has_an_id_is_found_and_no_other(
    there: list[int], then: list[int], wanted: list[int], together: bool
) -> None:
    first, behind = np.array(there, np.uint64), np.array(then, np.uint64)
    if together:
        parts = [in_order(first), in_order(first[:0]), in_order(behind, 1000)]
        parts[0] = IdPart(index_of(parts[:1], 0, first.size).ids, 0)  # as of a file, and as of memory
        indexes = [index_of(parts, 1000, 2000 + behind.size)]
    else:
        indexes = [index(first, 1000), index(first[:0], 2000), index(behind, 2000)]
    asked = np.array(wanted + there[:5] + then[:5], np.uint64)
    where, rows, _ = Lookup(indexes).find(asked)
    expected = {
        (i, begin + row)
        for i, one in enumerate(asked.tolist())
        for ids, begin in ((there, 1000), (then, 2000))
        for row, had in enumerate(ids)
        if had == one
    }
    found = list(zip(where.tolist(), rows.tolist(), strict=True))
    assert len(found) == len(set(found))
    assert set(found) == expected


def test_an_id_that_a_whole_segment_has_is_found_in_all_of_its_rows() -> None:
    where, rows, _ = Lookup([index(np.full(5000, 7, np.uint64), 0)]).find(np.array([6, 7, 8], np.uint64))
    assert (where == 1).all()
    assert (rows == np.arange(5000)).all()


@pytest.mark.parametrize("edge", [-2, -1, 0, 1])
def test_an_id_at_the_edge_of_a_page_is_found_on_both_sides_of_it(edge: int) -> None:
    ids = np.arange(10, 10 + 4 * PAGE_IDS, 2, dtype=np.uint64)
    first = PAGE_IDS + edge
    ids[first : first + 3] = ids[first]
    where, rows, _ = Lookup([index(ids, 0)]).find(np.array([ids[first], ids[first] - np.uint64(1)], np.uint64))
    assert where.tolist() == [0, 0, 0]
    assert rows.tolist() == [first, first + 1, first + 2]


def test_pieces_are_what_the_whole_is(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    parts = [in_order(rng.integers(0, 1 << 12, size, dtype=np.uint64), 10_000 * size) for size in (3000, 1, 0, 2500)]
    ((ids, rows),) = merged(parts)
    together = np.concatenate([part.ids.words for part in parts])
    order = np.argsort(together, kind="stable")
    assert (ids == together[order]).all()
    assert (rows == np.concatenate([part.ids.rows + part.rows for part in parts])[order]).all()
    monkeypatch.setattr(ids_module, "_PIECE", PAGE_IDS)
    pieces = list(merged(parts))
    assert [some.size for some, _ in pieces] == [PAGE_IDS] * 16 + [61]
    assert (np.concatenate([some for some, _ in pieces]) == ids).all()
    assert (np.concatenate([some for _, some in pieces]) == rows).all()


def test_sixteen_indexes_of_alike_size_become_one_unless_that_is_large_beside_the_others() -> None:
    small, large = 1 << 18, 1 << 22
    assert to_merge([small] * 15) is None
    assert to_merge([small] * 17) == slice(0, 16)
    assert to_merge([large, *[small] * 16]) == slice(1, 17)
    assert to_merge([large, *[small] * 15, 2 * small]) == slice(1, 17)
    assert to_merge([small, *[large] * 4, *[small] * 15]) is None
    assert to_merge([small, *[large] * 16, *[large] * 48]) == slice(0, 16)
    assert to_merge([large] * 63) is None
    assert to_merge([1 << 30] * 200) is None  # rows are numbered by 32 bits
    sizes: list[int] = []
    most = 0
    for _ in range(5_000_000_000 // (1 << 24)):  # how a day of rows comes, 64 segments at a time
        sizes += [small] * 64
        while (some := to_merge(sizes)) is not None:
            sizes[some] = [sum(sizes[some])]
        most = max(most, len(sizes))
    assert most <= 80
    assert len(sizes) <= 50


def test_ids_that_are_no_hashes_are_found_among_many() -> None:
    rng = np.random.default_rng(0)
    for ids in (
        np.arange(100_000, dtype=np.uint64) * np.uint64(3),
        (rng.pareto(0.2, 100_000).clip(0, 1e17) * 10).astype(np.uint64),
        np.uint64(1 << 63) + rng.integers(0, 1 << 20, 100_000).astype(np.uint64),
        rng.integers(0, 1 << 64, 100_000, dtype=np.uint64),
    ):
        asked = np.concatenate((ids[::97], ids[::89] + np.uint64(1)))
        where, rows, _ = Lookup([index(ids, 0)]).find(asked)
        assert (ids[rows] == asked[where]).all()
        assert where.size == sum(np.count_nonzero(ids == one) for one in asked)


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


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The addresses of the pages that the system is asked to read."""
    out: list[int] = []

    def note(begin: int, length: int, _: int) -> None:
        assert (begin % mmap.PAGESIZE, length) == (0, mmap.PAGESIZE)
        out.append(begin)

    monkeypatch.setattr(ground, "_madvise", note)
    return out


def test_the_pages_of_single_rows_are_asked_for_once(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    columns, rows = [empty(ALIGN, np.int64), empty(ALIGN, np.uint8)], np.array([3, 5000, 5001, ALIGN - 1])
    ground.ask_for_rows(columns, rows)
    pages = {(column.ctypes.data + row * column.itemsize) // mmap.PAGESIZE for column in columns for row in rows}
    assert sorted(asked) == [page * mmap.PAGESIZE for page in sorted(pages)]
    asked.clear()
    monkeypatch.setattr(ground, "_MANY_ROWS", 3)
    ground.ask_for_rows(columns, rows)
    assert not asked


def test_what_an_id_is_looked_for_in_is_asked_for_and_no_more(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    ids = [rng.integers(0, 1 << 64, 50_000, dtype=np.uint64) for _ in range(2)]
    indexes = [index(ids[0], 0), index(ids[1], 50_000)]
    address = (indexes[1].ids.words.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    ordered = np.sort(ids[1])
    where, rows, _ = Lookup(indexes).find(ordered[30_000:30_001])
    assert ids[1][rows - 50_000] == ordered[30_000]
    assert where.tolist() == [0]
    assert address + 30_000 // PAGE_IDS * 4096 in asked
    assert len(asked) <= 2  # another index is asked for without need hardly ever
    asked.clear()
    monkeypatch.setattr(lookup, "_AT_ONCE", 1000)
    some = rng.permutation(ordered[:5000])  # more than are asked for at once
    where, rows, _ = Lookup(indexes).find(some)
    assert (some[where] == ids[1][rows - 50_000]).all()
    assert np.unique(where).size == where.size == 5000
    there = [page for page in asked if address <= page < address + indexes[1].ids.words.nbytes]
    assert 15 <= len(there) <= 15 + 6  # a page once, or twice where thousands end in it
    assert len(asked) - len(there) < 60


def test_a_file_of_before_ids_and_rows_shared_pages_is_read(tmp_path: Path) -> None:
    name = "rows-0000000001-0000000001"  # written by the program of commit df67b45, which had them apart
    (tmp_path / name).write_bytes(lzma.decompress((DATA / f"{name}.xz").read_bytes()))
    container.check(tmp_path / name)
    layout, size = container.layout(tmp_path / name)
    one = Segment.of(RowsFile(tmp_path / name, ALIGN, layout, size), 5 * ALIGN)
    number = np.arange(ALIGN)
    ids = ((number * 7919 + 13) % 65_536 + 1).astype(np.uint64)
    found = Lookup([index_of([one.file.part(0)], one.first, one.end), index(ids + np.uint64(100_000), 0)])
    where, rows, _ = found.find(ids)
    assert (np.sort(where) == number).all()
    assert (rows == where + 5 * ALIGN).all()
    assert not found.find(np.arange(70_000, 80_000, dtype=np.uint64))[0].size
    columns = {"ts": np.int64, "pclick": np.float64, "state": np.uint8, "id": np.uint64}
    table = {column: empty(6 * ALIGN, dtype) for column, dtype in columns.items()}
    one.file.map_over(table, 5 * ALIGN)
    here = slice(5 * ALIGN, None)
    assert (table["id"][here] == ids).all()
    assert (table["ts"][here] == START + number * 20).all()
    assert (table["pclick"][here] == (number % 97 + 1) / 100).all()
    assert (table["state"][here] & CLICKED == (number % 5 == 0) * CLICKED).all()

"""Columns of slices say what was last counted of each, however that came, and do not keep what is gone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streameval.results.slice_columns import CountedSlices, SliceCells, SliceColumns
from streameval.sketches.layout import BUCKETS, IMPRESSIONS
from streameval.sketches.sparse import SparseVector

CELLS = 70  # of a row
WHY = [{"auc": "no clicks"}, {"auc": "only clicks"}, {}]

slices = st.dictionaries(st.integers(0, 9), st.dictionaries(st.integers(BUCKETS, CELLS - 1), st.integers(-3, 9)))


def counted(some: dict[int, dict[int, int]]) -> CountedSlices:
    """Of every slice its cells, and as many impressions as it has cells, and one more."""
    rows = {number: {IMPRESSIONS: len(cells) + 1, **cells} for number, cells in sorted(some.items())}
    flat = {i * CELLS + cell: value for i, row in enumerate(rows.values()) for cell, value in row.items()}
    vector = SparseVector.of(np.array(list(flat), np.int64), np.array(list(flat.values()), np.int64))
    cells = SliceCells.of(vector, len(rows), CELLS)
    reason = np.array([len(some[number]) % 3 for number in rows])
    return CountedSlices(np.array(list(rows)), cells.heads(), cells, WHY, reason)


looks = st.lists(st.tuples(st.lists(slices.filter(bool), max_size=3), st.sets(st.integers(0, 9))), max_size=8)


@given(looks, st.permutations(range(10)))
def test_they_say_what_was_last_counted(looks, order) -> None:
    columns, known = SliceColumns.nothing(10), {}
    earlier = []
    for every, gone in looks:
        parts = [
            {number: cells for number, cells in part.items() if all(number not in other for other in every[:i])}
            for i, part in enumerate(every)
        ]
        now = {number: cells for part in parts for number, cells in part.items()}
        changed = np.array(sorted({*now, *gone}), np.int64)
        columns = columns.updated(changed, [counted(part) for part in parts if part])
        known = {**{number: cells for number, cells in known.items() if number not in gone}, **now}
        earlier.append((columns, dict(known)))
    before = np.array([*order[:7], -1])
    earlier.append(
        (columns.numbered(before), {i: known[number] for i, number in enumerate(order[:7]) if number in known})
    )
    for columns, known in earlier:  # those of earlier looks are what they were
        assert columns.there().tolist() == sorted(known)
        for number, cells in known.items():
            there = {IMPRESSIONS: len(cells) + 1, **cells}
            found = columns.cells(number)
            assert dict(zip(found.cells.tolist(), found.values.tolist(), strict=True)) == {
                cell: value for cell, value in there.items() if value
            }
            assert columns.heads[number, IMPRESSIONS] == len(cells) + 1
            assert columns.reasons(number) == WHY[len(cells) % 3]
        counts = {tuple(reasons.items()): n for reasons, n in columns.undefined() if n}
        kinds = [tuple(WHY[len(cells) % 3].items()) for cells in known.values()]
        assert counts == {kind: kinds.count(kind) for kind in kinds}


def test_what_is_gone_is_not_kept() -> None:
    """One slice in a hundred that stays does not keep the cells of those that were counted beside it."""
    columns = SliceColumns.nothing(100)
    full = dict.fromkeys(range(BUCKETS, CELLS), 1)
    for look in range(100):
        some = dict.fromkeys(range(look, 100), full)
        columns = columns.updated(np.array(list(some)), [counted(some)])
    kept = sum(some.vector.cells.size for some in columns._cells)
    assert kept <= 2 * 100 * (len(full) + 1)
    assert len(columns._reasons) == 1
    assert len(columns._cells) == 100

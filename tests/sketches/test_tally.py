"""Tallies: cells of their own in a vector, wherever it goes, whatever other settings ask for."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.counting.scoreboard import Scoreboard
from streameval.counting.slice_rows import SliceRows
from streameval.counting.windows import Panes
from streameval.events.batch import Catalog, Series
from streameval.metrics import errors
from streameval.metrics.metric import OfTally
from streameval.metrics.view import NOT_KEPT_FOR_SLICES, View
from streameval.sketches.layout import IMPRESSIONS, Layout, Options, read_histogram, read_tally
from streameval.sketches.sparse import SparseVector
from streameval.sketches.tally import Tally, reals
from streameval.store.history.stored import decode_vector, encode_vector

EDGES = (0.01, 0.1)
LISTS = Tally("lists", ("n", "gain"), scales=reals("gain"))
WHOLE = Tally("whole", ("a", "b", "c"), blocks=False)


def vector(layout: Layout, seed: int = 1) -> SparseVector:
    luck = np.random.default_rng(seed)
    cells = np.sort(luck.choice(layout.size, 400, replace=False))
    return SparseVector.of(np.append(cells, IMPRESSIONS), np.append(luck.integers(1, 99, 400), 7))


def by_tally(dense: np.ndarray, layout: Layout) -> dict[str, list[int]]:
    return {t.name: np.ravel(read_tally(dense, layout, t.name)).tolist() for t in layout.tallied}


def dense(sparse: SparseVector, layout: Layout) -> np.ndarray:
    out = np.zeros(layout.size, np.int64)
    sparse.add_to(out)
    return out


def test_tallies_stand_behind_everything_else_and_slices_have_none() -> None:
    plain, more = Options(EDGES), Options(EDGES, (LISTS, WHOLE))
    assert more.overall.tallies == plain.overall.size
    assert more.overall.size == plain.overall.size + 64 * 2 + 3
    assert more.slice.size == plain.slice.size
    full = np.arange(more.overall.size)
    assert [part.tolist() for part in read_histogram(full, more.overall)] == [
        part.tolist() for part in read_histogram(full[: plain.overall.size], plain.overall)
    ]


def test_a_view_reads_a_tally_in_units() -> None:
    options = Options(EDGES, (WHOLE, LISTS))
    board = Scoreboard(SliceRows(Catalog()), 0, options, 60_000, [], "impressions", 1 << 20, 3_600_000)
    series, block = np.array([0, 1, 1], np.int32), np.array([5, 63, 63])
    cells = np.array([[1, 1 << 29], [1, 1 << 30], [-1, 0]])
    board.add_tally(3, "lists", series, block, cells)
    board.add_tally(3, "unheard of", series, block, cells)
    rows = board.overall.total
    first, second = (View.of(rows.row(i), options.overall, NOT_KEPT_FOR_SLICES) for i in (0, 1))
    assert first.tally("lists")[5].tolist() == [1.0, 0.5]
    assert second.tally("lists")[63].tolist() == [0.0, 1.0]
    assert second.tally("lists").sum() == 1.0
    assert first.tally("whole").tolist() == [0, 0, 0]
    assert first.tally("unheard of") is None


def test_its_error_leaves_out_block_by_block() -> None:
    options = Options(EDGES, (LISTS,))
    luck = np.random.default_rng(2)
    full = np.zeros(options.overall.size, np.int64)
    n, gain = luck.integers(5, 9, 64), luck.uniform(1, 3, 64)
    read_tally(full, options.overall, "lists")[:] = np.stack((n, np.rint(gain * (1 << 30))), axis=1)
    view = View.of(full, options.overall, NOT_KEPT_FOR_SLICES)

    of = OfTally(lambda v: v.tally("lists"), lambda cells: cells[..., 1] / cells[..., 0])
    left = (gain.sum() - gain) / (n.sum() - n) - gain.sum() / n.sum()
    assert errors._of_tally(of, view) == pytest.approx(np.sqrt(63 / 64 * (left**2).sum()), rel=1e-6)
    assert errors.standard_errors(view, {}).stderr == {}


def test_the_history_knows_tallies_by_name() -> None:
    one, other = Options(EDGES, (LISTS, WHOLE)).overall, Options(EDGES, (Tally("new", ("x",)), WHOLE)).overall
    written = vector(one)
    stored = encode_vector(written, one)
    back = decode_vector(stored.sums, one) + decode_vector(stored.scores, one)
    assert back == written
    assert stored.impressions == dict(zip(written.cells.tolist(), written.values.tolist(), strict=True))[IMPRESSIONS]
    elsewhere = dense(decode_vector(stored.sums, other) + decode_vector(stored.scores, other), other)
    assert by_tally(elsewhere, other) == {"new": [0] * 64, "whole": by_tally(dense(written, one), one)["whole"]}
    assert elsewhere[: other.tallies].tolist() == dense(written, one)[: one.tallies].tolist()


def test_a_checkpoint_is_restored_with_other_tallies() -> None:
    catalog = Catalog()
    for version in ("v1", "v2"):
        catalog.series_code("ctr", version, "logged")
    assert catalog.series[1] == Series("ctr", "v2", "logged")
    one, other = Options(EDGES, (LISTS, WHOLE)).overall, Options(EDGES, (WHOLE, Tally("new", ("x",)))).overall
    panes = Panes(one.size)
    a, b = vector(one, 1), vector(one, 2)
    panes.add(4, SparseVector(a.cells + one.size, a.values))
    panes.add(9, b)
    state = panes.state() | {"panes": panes.state()["panes"]()}
    places = other.places([(t.name, t.size) for t in one.tallied])
    restored = Panes(other.size)
    restored.restore(state, np.array([1, 0]), places)
    swapped = restored.get(4), SparseVector(restored.get(9).cells - other.size, restored.get(9).values)
    for found, was in zip(swapped, (a, b), strict=True):
        assert by_tally(dense(found, other), other)["whole"] == by_tally(dense(was, one), one)["whole"]
        assert not any(by_tally(dense(found, other), other)["new"])
        assert dense(found, other)[: other.tallies].tolist() == dense(was, one)[: one.tallies].tolist()
    assert restored.total.row(0).tolist() == dense(swapped[0], other).tolist()
    assert restored.total.row(1).tolist() == dense(swapped[1], other).tolist()

"""Panes of a second with ten events: what is counted and kept goes by the events, whatever other panes hold."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.counting.scoreboard import Labelled, Scoreboard
from streameval.counting.slice_rows import SliceRows
from streameval.events.batch import Catalog
from streameval.events.columns import Scored
from streameval.sketches.layout import Options
from streameval.sketches.scratch import Scratch

BASE, PANE = 1_700_000_040_000, 1_000
EVENTS, VALUES = 10, 200
CELLS_OF_A_SCORE = 80  # at most: its series' sums, block, bucket and bin, as much by slice, and some more
BYTES = 16  # of a cell and its value


def few(board: Scoreboard, pane: int, n: int = EVENTS, seed: int = 0) -> None:
    """Counts n events of one pane, the same of any board."""
    rng = np.random.default_rng([seed, pane, n])
    ts = BASE + pane * PANE + np.arange(n) * PANE // n
    p, no = rng.uniform(0.01, 0.6, n), np.zeros(n, np.bool_)
    label = (rng.random(n) < p).astype(np.int8)
    user = rng.integers(1, 2**62, n).astype(np.uint64)
    slices = rng.integers(0, VALUES, n)
    series = rng.integers(0, 3, n).astype(np.int32)
    labelled = Labelled(ts, user, slices, label, no, {}, np.ones(n, np.bool_))
    board.observe(labelled, Scored((0, n), np.arange(n, dtype=np.int32), series, p, no))


def board_of() -> Scoreboard:
    catalog = Catalog(("country",), VALUES)
    for name in ("v1", "v2", "v3"):
        catalog.series_code("m", name)
    options = Options((0.01, 0.05, 0.2))
    return Scoreboard(SliceRows(catalog), 1, options, PANE, [60], "impressions", 1 << 30, 3_600_000)


def kept(board: Scoreboard) -> list[int]:
    """Bytes of every pane, overall and by slice."""
    both = board.overall, board.slices
    return [sum(part.nbytes for panes in both for part in panes.parts(n)) for n in board.overall.numbers()]


def test_a_small_pane_keeps_what_its_events_need_beside_a_full_one_too() -> None:
    alone, beside = board_of(), board_of()
    few(beside, 0, 20_000)
    full = kept(beside)[0]
    for pane in range(1, 31):
        few(alone, pane)
        few(beside, pane)
    small = kept(beside)[1:]
    assert len(small) == 30
    # beside a full one there are curves, so that every score has a placement, too
    assert small == pytest.approx(kept(alone), rel=0.1)
    assert max(small) <= BYTES * CELLS_OF_A_SCORE * EVENTS < full / 50


def test_room_for_a_small_pane_goes_by_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    room = Scratch.room

    def seen(scratch: Scratch, scores: np.ndarray) -> np.ndarray:
        out = room(scratch, scores)
        asked.extend(out.tolist())
        return out

    monkeypatch.setattr(Scratch, "room", seen)
    alone, beside = board_of(), board_of()
    few(alone, 1)
    of_alone = asked.copy()
    few(beside, 0, 20_000)
    of_a_full_one = asked[len(of_alone) :]
    asked.clear()
    few(beside, 1)
    assert asked == of_alone
    assert sum(of_alone) < sum(of_a_full_one) / 10  # what is not in proportion: the sums of the few rows of versions

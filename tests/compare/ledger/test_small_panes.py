"""What a ledger keeps of panes of a second until their look: sums as large whatever is in them, one set for ten seconds, and codes
by event.

So sums are in proportion to the looks, not to the events: small panes share theirs, and nothing is kept for a pane without any.
Late labels wait for the whole correction horizon: their sums are in proportion to the events, up to as much as a look's.
"""

from __future__ import annotations

from math import prod

import numpy as np

from streameval.compare.ledger.ledger import Ledger
from streameval.compare.ledger.numbering import PAIRS
from streameval.compare.ledger.packed import restored
from streameval.counting.look_panes import LEAST
from streameval.events.batch import Catalog
from tests.compare.ledger.test_ledger import CATALOG, EDGES, HORIZON, PANE, Traffic

SECOND, SECONDS = 1_000, 60
NO_CHANGE = Catalog(("country",), 5).adopt({**CATALOG.names(), "values": [["", "", "a", "b"]]})  # of codes


def known() -> Ledger:
    """A ledger that knows all versions and slices, and in which nothing is waiting."""
    ledger = Ledger(SECOND, HORIZON, CATALOG.radix, 1, EDGES)
    some = Traffic(2_000, 1, gap=1)
    ledger.observe(*some.part(np.arange(some.ts.size)), 1)
    ledger.advance(int(some.ts[-1]) // SECOND + LEAST // SECOND)
    assert not ledger.state()["waiting"]
    return ledger


def kept(n: int) -> tuple[set[tuple[int, ...]], int, int]:
    """Of n impressions in a minute: the sizes of the sums of looks, how many looks, how many codes."""
    ledger = known()
    some = Traffic(n, 2, gap=SECONDS * SECOND // n)
    some.ts += 100 * SECOND
    ledger.observe(*some.part(np.arange(n)), 1)
    state = ledger.state()
    sums = zip(state["waiting"], state["waiting_parts"], strict=True)
    sizes = [tuple(prod(one["shape"]) for one in (rows, *parts)) for (*_, rows), (_, _, *parts) in sums]
    return set(sizes), len(sizes), sum(codes.size for *_, codes in state["waiting_codes"])


def test_sums_go_by_looks_of_ten_seconds_and_codes_by_events() -> None:
    few, of_few, codes_of_few = kept(60)
    many, of_many, codes_of_many = kept(6_000)
    assert len(few) == 1
    assert few == many
    assert of_few <= of_many <= SECONDS * SECOND // LEAST + 1
    assert 80 < codes_of_many / codes_of_few < 120


def late_bytes(n: int, panes: int) -> float:
    """Of n late impressions, one by one, over this many panes of ten seconds: bytes of each."""
    ledger = known()
    before = ledger.nbytes
    some = Traffic(n, 2)
    some.ts = int(some.ts[0]) // LEAST * LEAST + np.arange(n) % panes * LEAST
    for i in range(n):
        ledger.observe(*some.part(np.arange(i, i + 1), fresh=False), 1)
    return (ledger.nbytes - before) / n


def test_what_late_labels_cost_goes_by_their_number() -> None:
    ledger = known()
    one, before = Traffic(1, 2), ledger.nbytes
    ledger.observe(*one.part(np.arange(1)), 1)
    whole = ledger.nbytes - before  # sums of a look
    assert late_bytes(1_000, 1_000) < whole / 20
    assert late_bytes(1_000, 100) < whole / 20
    assert late_bytes(5_000, 5) < 1.01 * whole * 5 / 5_000 + 50  # 50: codes


def test_a_checkpoint_has_them_without_zeros_and_one_from_before_is_read() -> None:
    ledgers = [Ledger(PANE, HORIZON, CATALOG.radix, 1, EDGES, 2) for _ in range(3)]
    some = Traffic(600, 3, gap=4_000)
    for fresh, rows in ((True, np.arange(300, 600)), (False, np.arange(300))):
        ledgers[0].observe(*some.part(rows, fresh=fresh), 1)
    state = ledgers[0].state()
    assert {late for late, *_ in state["waiting"]} == {0, 1}
    assert all(matrix["values"].all() for _, _, *matrices in state["waiting_parts"] for matrix in matrices)
    before = {
        key: [[late, pane, *map(restored, matrices)] for late, pane, *matrices in state[key]]
        for key in ("waiting", "waiting_parts")
    }
    ledgers[1].restore(state, NO_CHANGE)
    ledgers[2].restore({**state, **before}, NO_CHANGE)
    end = int(some.ts[-1]) // PANE + HORIZON // PANE + 1
    first, *others = ([ledger.advance(end), ledger.parts.totals(PAIRS, 0)] for ledger in ledgers)
    assert first[0]
    for other in others:
        np.testing.assert_equal(other, first)

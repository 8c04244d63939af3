"""What a ledger keeps of panes of a second until their look: sums as large whatever is in them, one set for ten seconds, and codes
by event.

So sums are in proportion to the looks, not to the events: small panes share theirs, and nothing is kept for a pane without any.
"""

from __future__ import annotations

import numpy as np
import pytest

from streameval.compare.ledger.ledger import Ledger
from streameval.counting.look_panes import LEAST
from tests.compare.ledger.test_ledger import CATALOG, EDGES, HORIZON, Traffic

SECOND, SECONDS = 1_000, 60


def kept(n: int, late: bool) -> tuple[set[tuple[int, ...]], int, int]:
    """Of n impressions in a minute, after all versions and slices are known: the sizes of the sums of looks, how many looks,
    how many codes.
    """
    ledger = Ledger(SECOND, HORIZON, CATALOG.radix, 1, EDGES)
    known = Traffic(2_000, 1, gap=1)
    ledger.observe(*known.part(np.arange(known.ts.size)), 1)
    ledger.advance(int(known.ts[-1]) // SECOND + LEAST // SECOND)
    assert not ledger.state()["waiting"]
    some = Traffic(n, 2, gap=SECONDS * SECOND // n)
    some.ts += 100 * SECOND
    ledger.observe(*some.part(np.arange(n), fresh=not late), 1)
    state = ledger.state()
    sums = zip(state["waiting"], state["waiting_parts"], strict=True)
    assert {which for which, *_ in state["waiting"]} == {int(late)}
    sizes = [(rows.nbytes, *(part.nbytes for part in parts)) for (*_, rows), (_, _, *parts) in sums]
    return set(sizes), len(sizes), sum(codes.size for *_, codes in state["waiting_codes"])


@pytest.mark.parametrize("late", [False, True])
def test_sums_go_by_looks_of_ten_seconds_and_codes_by_events(late: bool) -> None:
    few, of_few, codes_of_few = kept(60, late)
    many, of_many, codes_of_many = kept(6_000, late)
    assert len(few) == 1
    assert few == many
    assert of_few <= of_many <= SECONDS * SECOND // LEAST + 1
    assert 80 < codes_of_many / codes_of_few < 120

"""A partition of which nothing comes any more, and whose labels become final as those of others do."""

from __future__ import annotations

import numpy as np

from streameval.join.policy import NEVER, JoinPolicy
from streameval.join.progress import Progress

PENDING = np.zeros(1, np.uint8)  # the state of an impression that waits for clicks


def read(inputs: int, *newest: int) -> Progress:
    """The progress of inputs that were read up to these times."""
    out = Progress(JoinPolicy(attribution_window=50, allowed_lateness=10, correction_horizon=1_000), inputs)
    out.newest[:] = newest
    out.heard(PENDING, 1)
    return out


def test_it_waits_for_no_input_and_is_as_firm_as_the_others() -> None:
    one = read(2, 500, NEVER)
    assert one.firm == NEVER
    one.follow(300)
    assert (one.firm, one.idle, one.newest_event) == (300, True, 500)
    one.follow(2_000)
    assert (one.firm, one.watermark, one.newest_event) == (2_000, 2_000, 500)


def test_it_never_goes_back() -> None:
    one = read(1, 500)
    one.follow(100)
    assert (one.firm, one.watermark) == (490, 490)


def test_without_others_it_stays_where_it_was() -> None:
    one = read(2, 500, 400)
    one.follow(NEVER)
    assert (one.firm, one.newest.tolist()) == (390, [500, 400])
    assert one.idle

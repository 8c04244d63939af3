"""The quarantine of a partition: what its inputs hold back, and what they release, as batches."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.events.batch import Batch, Catalog
from streameval.events.codes import Codes
from streameval.join.leaps import ENOUGH, MOST
from streameval.join.quarantine import Quarantine
from streameval.testing import Event, Shown, Tap, make_batch

BASE, HORIZON = 1_700_000_000_000, 3_600_000
SAME = Codes(np.arange(8, dtype=np.int32), (), 1)
START: list[Event] = [Shown(f"i{k}", BASE + k) for k in range(ENOUGH)] + [Tap(f"i{k}", BASE + k) for k in range(ENOUGH)]


def batch(events: list[Event], shared: bool) -> Batch:
    return make_batch(events, Catalog(), shared=shared)


@pytest.mark.parametrize("shared", [True, False])
def test_an_event_far_ahead_waits_until_its_input_has_caught_up_and_survives_a_restart(shared: bool) -> None:
    one = Quarantine(HORIZON, 1 if shared else 2, shared)
    far = BASE + 2 * HORIZON
    held = one.screen(batch([*START, Shown("far", far)], shared))
    assert (len(held.before or ()), len(held.now), len(one)) == (0, 2 * ENOUGH, 1)
    assert one.share_used == 1 / MOST
    assert np.concatenate(one.take_ahead()).tolist() == [BASE + ENOUGH - 1]
    assert one.take_ahead()[0].size == 0

    again = Quarantine(HORIZON, 1 if shared else 2, shared)
    again.restore(one.state(), SAME)
    for waiting in (one, again):
        assert waiting.series_in_use() == {0}
        released = waiting.screen(batch([Shown("near", BASE + HORIZON), Shown("nearer", far)], shared))
        assert sorted(released.now.impressions.ts.tolist()) == [BASE + HORIZON, far, far]
        assert len(waiting) == 0
        places = released.places.tolist()
        assert sorted(place for place in places if place >= 0) == [0, 1]
        assert sum(place < 0 for place in places) == 1  # of the batch before


def test_what_still_waits_at_the_end_is_refused_and_counted() -> None:
    one = Quarantine(HORIZON, 2, False)
    one.screen(batch([*START, Shown("far", BASE + 2 * HORIZON), Tap("far", BASE + 3 * HORIZON)], False))
    assert [len(events) for left in one.finish() for events in left] == [0, 0, 0, 0]
    assert dict(one.counts) == {"runaway_impressions": 1, "runaway_clicks": 1}

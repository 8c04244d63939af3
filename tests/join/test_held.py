"""How long clicks wait for their impression, and rows for their clicks."""

from __future__ import annotations

from streameval.events.batch import Catalog
from streameval.join.held import HeldClicks
from streameval.join.joiner import Joiner
from streameval.join.policy import JoinPolicy
from streameval.testing import Shown, Tap, make_batch

BASE, WINDOW, LATENESS, HORIZON, HOLD = 1_700_000_000_000, 60_000, 5_000, 60_000, 10_000


def waiting(*clicks: tuple[int, int]) -> HeldClicks:
    """Clicks by (time, key)."""
    held = HeldClicks([])
    for at, (ts, key) in enumerate(clicks):
        held.id[at], held.ts[at], held.key[at] = at + 1, ts, key
    held.grown_to(len(clicks))
    return held


def test_a_click_is_given_up_when_the_time_has_reached_its_own() -> None:
    held = waiting((10, 10), (20, 20), (15, 20))
    assert [held.expire(before).tolist() for before in (9, 10, 14, 20)] == [[], [10], [], [20, 15]]
    assert held.end == 0


def test_only_those_with_an_older_key_are() -> None:
    held = waiting((10, 30), (10, 29))
    assert held.expire(10, 30).tolist() == [10]
    assert held.key[: held.end].tolist() == [30]


def test_of_two_logs_a_click_waits_for_an_impression_that_is_as_late_as_allowed() -> None:
    catalog, joiner = Catalog(), Joiner(JoinPolicy(WINDOW, LATENESS, HORIZON), shared=False)
    joiner.add(make_batch([Tap("x", BASE), Shown("clock", BASE + HORIZON + 2_000)], catalog, shared=False))
    joiner.forget()
    joiner.add(make_batch([Shown("x", BASE - 1)], catalog, shared=False))
    assert joiner.counts["matched_clicks"] == 1


def test_rows_are_held_for_longer_than_clicks_find_them() -> None:
    catalog, joiner = Catalog(), Joiner(JoinPolicy(WINDOW, LATENESS, HORIZON, hold=HOLD))
    left = []
    for ahead in (-HOLD, -1, HOLD // 2, HOLD - 1, HOLD):
        ts = BASE + HORIZON + LATENESS + ahead
        joiner.add(make_batch([Shown("first", BASE)] * (not left) + [Shown(f"clock {ahead}", ts)], catalog))
        joiner.mature(joiner.progress.firm)
        joiner.forget()
        left.append(joiner.in_memory)
    assert left == [2, 3, 4, 5, 5]

"""Clicks that wait for their impression, and are given up."""

from __future__ import annotations

from streameval.join.held import HeldClicks


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

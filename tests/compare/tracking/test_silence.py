"""Stretches without clicks: short ones are luck, long ones are put off, and nothing depends on when somebody asked."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.compare.tracking.silence import Silence, Stretch

BEFORE = [(pane, 100, 3) for pane in range(100)]


def silence() -> Silence:
    out = Silence()
    assert out.due(BEFORE, over=False).looks == list(range(100))
    return out


def test_a_short_stretch_without_clicks_is_looked_at_once_a_click_has_come() -> None:
    some = silence()
    quiet = [(pane, 100, 0) for pane in range(100, 109)]
    assert some.due(quiet, over=False).looks == []
    found = some.due([*quiet, (109, 100, 1)], over=False)
    assert (found.looks, found.silent, found.waiting) == (list(range(100, 110)), [], None)


def test_a_long_one_is_deferred_and_reported_while_it_lasts() -> None:
    some = silence()
    quiet = [(pane, 100, 0) for pane in range(100, 112)]
    found = some.due(quiet, over=False)
    assert (found.looks, found.silent, found.waiting) == ([], [], 109)
    assert some.due(quiet, over=False) == found  # asking changes nothing
    back = [(112, 100, 2), (113, 100, 3), (114, 100, 0), (115, 100, 4)]
    assert some.due([*quiet, *back[:3]], over=False) == found, "nine clicks were expected: too few to tell"
    found = some.due([*quiet, *back], over=False)
    assert (found.looks, found.silent, found.waiting) == ([112, 113, 114, 115], [Stretch(100, 112, 109)], None)
    assert some.deferred == set(range(100, 112))
    some.forget_before(110)
    assert some.deferred == {110, 111}


def test_stray_clicks_do_not_end_one() -> None:
    """Of clicks that an outage held back, and that came in no order, the first ones ended it again and again."""
    some = silence()
    panes = [(100 + i, 100, int(i in (15, 16, 40, 75))) for i in range(90)]
    found = some.due(panes, over=False)
    assert (found.looks, found.silent, found.waiting) == ([], [], 109)
    found = some.due([*panes, *((190 + i, 100, 3) for i in range(4))], over=False)
    assert (found.looks, found.silent) == ([190, 191, 192, 193], [Stretch(100, 190, 109)])
    assert some.deferred == set(range(100, 190))


def test_clicks_that_come_back_at_a_fifth_of_their_rate_have_come_back() -> None:
    panes = [(100 + i, 1000, 0) for i in range(5)] + [(105 + i, 1000, 6) for i in range(2)]
    assert silence().due(panes, over=False).looks == [105, 106]


@pytest.mark.parametrize("clicks", [1, 20])
def test_at_the_end_of_the_stream_what_came_back_is_judged_by_what_there_is(clicks: int) -> None:
    panes = [(100 + i, 1000, 0) for i in range(5)] + [(105, 200, clicks)]
    found = silence().due(panes, over=True)
    assert found.silent == [Stretch(100, 105 if clicks > 1 else 106, 100)]
    assert found.looks == [105]


def test_at_the_end_of_the_stream_one_look_includes_everything() -> None:
    some = silence()
    found = some.due([(pane, 100, 0) for pane in range(100, 112)], over=True)
    assert (found.looks, found.silent) == ([111], [Stretch(100, 112, 109)])
    assert 111 in some.deferred
    assert silence().due([(100, 100, 0)], over=True).looks == [100]


def test_before_the_first_click_nothing_is_due() -> None:
    assert Silence().due([(0, 10**6, 0)], over=False).looks == [0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=60), st.lists(st.integers(1, 60), max_size=5))
def test_it_does_not_matter_when_one_asks(clicks: list[int], asked: list[int]) -> None:
    panes = [(100 + i, 400, 0 if i % 17 else y) for i, y in enumerate(clicks)]
    straight, bit_by_bit = silence(), silence()
    expected = straight.due(panes, over=True)
    looks: list[int] = []
    silent: list[Stretch] = []
    done = 100
    for upto in [*sorted(asked), len(panes)]:
        state = bit_by_bit.state()
        bit_by_bit = Silence()
        bit_by_bit.restore(state, lambda pane: pane)
        found = bit_by_bit.due([p for p in panes[:upto] if p[0] >= done], over=upto == len(panes) and upto != 0)
        looks += found.looks
        silent += found.silent
        ends = [p + 1 for p in found.looks] + [one.end for one in found.silent]
        done = max([done, *ends])
    assert (looks, silent, bit_by_bit.state()) == (expected.looks, expected.silent, straight.state())

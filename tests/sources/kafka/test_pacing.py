"""The rule that keeps two inputs together, without Kafka."""

from __future__ import annotations

import pytest

from streameval.sources.kafka.pacing import Pacing

IMP, CLK = ("impressions", 0), ("clicks", 0)
BEHIND = {IMP: 1_000, CLK: 1_000}


@pytest.fixture
def pacing() -> Pacing:
    one = Pacing(ahead_ms=100, patience=5.0)
    one.assign([(IMP, CLK)])
    return one


def test_nothing_is_held_while_the_inputs_are_close(pacing):
    pacing.delivered(IMP, 1_000)
    pacing.delivered(CLK, 1_100)
    assert pacing.held(BEHIND) == set()


def test_the_input_ahead_is_held_until_less_than_half_of_the_limit_is_left(pacing):
    pacing.delivered(IMP, 1_000)
    pacing.delivered(CLK, 1_101)
    assert pacing.held(BEHIND) == {CLK}
    pacing.delivered(IMP, 1_050)
    assert pacing.held(BEHIND) == {CLK}
    pacing.delivered(IMP, 1_051)
    assert pacing.held(BEHIND) == set()


def test_impressions_are_held_as_clicks_are(pacing):
    pacing.delivered(CLK, 1_000)
    pacing.delivered(IMP, 1_101)
    assert pacing.held(BEHIND) == {IMP}


def test_an_input_waits_for_a_partner_that_has_not_spoken_yet_but_has_messages(pacing):
    pacing.delivered(IMP, 1_000)
    pacing.delivered(IMP, 1_101)
    assert pacing.held(BEHIND) == {IMP}


@pytest.mark.parametrize("lag", [{IMP: 1_000, CLK: 0}, {IMP: 1_000}])
def test_a_partner_at_its_end_or_of_unknown_end_is_not_waited_for(pacing, lag):
    pacing.delivered(CLK, 1_000)
    pacing.delivered(IMP, 9_000)
    assert pacing.held(lag) == set()


def test_a_partner_that_stays_silent_is_not_waited_for_until_it_speaks(pacing):
    pacing.delivered(CLK, 1_000)
    pacing.delivered(IMP, 2_000)
    assert pacing.held(BEHIND) == {IMP}
    pacing.listened(5.1)
    assert pacing.held(BEHIND) == set()
    pacing.delivered(IMP, 3_000)
    assert pacing.held(BEHIND) == set()
    pacing.delivered(CLK, 1_500)
    assert pacing.held(BEHIND) == {IMP}


def test_pairs_are_independent_and_a_new_assignment_forgets(pacing):
    other_i, other_c = ("impressions", 1), ("clicks", 1)
    pacing.assign([(IMP, CLK), (other_i, other_c)])
    pacing.delivered(IMP, 1_000)
    pacing.delivered(CLK, 5_000)
    pacing.delivered(other_i, 9_000)
    pacing.delivered(other_c, 9_000)
    assert pacing.held({**BEHIND, other_i: 10, other_c: 10}) == {CLK}
    pacing.assign([(IMP, CLK)])
    assert pacing.held(BEHIND) == set()

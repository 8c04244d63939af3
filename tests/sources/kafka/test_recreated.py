"""What is noticed when a client does not read a topic that was recreated."""

from __future__ import annotations

from streameval.sources.kafka.recreated import HEARD_WITHIN, Unheard
from streameval.testing import ManualClock

ALL = frozenset({("i", 0), ("i", 1), ("c", 0), ("c", 1)})
C0, C1 = ("c", 0), ("c", 1)


def test_only_what_stays_silent_after_its_topic_was_recreated_is_overdue_and_once() -> None:
    clock = ManualClock()
    unheard = Unheard(clock)
    assert not unheard.overdue({}, ALL, frozenset())
    assert not unheard.overdue({"c": 1}, ALL, {C0, C1}), "these messages were of the old topic"
    assert not unheard.overdue({"c": 1}, ALL, {C0})
    clock.advance(HEARD_WITHIN - 1)
    assert not unheard.overdue({"c": 1}, ALL, frozenset())
    clock.advance(1.0)
    assert unheard.overdue({"c": 1}, ALL, frozenset()) == {C1}
    clock.advance(60.0)
    assert not unheard.overdue({"c": 1}, ALL, frozenset()), "once"
    assert not unheard.overdue({"c": 2}, ALL, frozenset())
    clock.advance(HEARD_WITHIN)
    assert unheard.overdue({"c": 2}, ALL, frozenset()) == {C0, C1}, "again after the next time"


def test_what_is_paused_or_gone_is_not_waited_for() -> None:
    clock = ManualClock()
    unheard = Unheard(clock)
    unheard.overdue({"c": 1}, ALL, frozenset())
    unheard.overdue({"c": 1}, ALL - {C0}, {C1})
    clock.advance(HEARD_WITHIN)
    assert not unheard.overdue({"c": 1}, ALL, frozenset())

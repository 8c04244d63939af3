"""The panes that wait against a twin that goes through all of them at every look."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.compare.ledger.due import DuePanes

HOUR, DEFER = 10, 25


class Slow:
    """Everything that waits, in a set."""

    def __init__(self, cuts: list[int]) -> None:
        self.cuts, self.on_time, self.late = cuts, set[int](), set[int]()

    def end_of(self, pane: int) -> int:
        return min([pane // HOUR * HOUR + HOUR, *(cut for cut in self.cuts if cut > pane)])

    def take(self, end: int, deferred: set[int]) -> list[tuple[int, int]]:
        due = {(pane, 1) for pane in self.late if pane + DEFER < end}
        for pane in self.on_time:
            if (self.end_of(pane) - 1 + DEFER if pane in deferred else pane) < end:
                due.add((pane, 0))
        self.late -= {pane for pane, late in due if late}
        self.on_time -= {pane for pane, late in due if not late}
        return sorted(due)


events = st.lists(
    st.tuples(st.sampled_from(["time", "time", "late", "off", "cut", "look"]), st.integers(0, 6)), max_size=120
)


@settings(max_examples=200, deadline=None)
@given(events)
def test_due_panes_equal_those_of_a_walk_through_all_panes(happening: list[tuple[str, int]]) -> None:
    slow = Slow([])
    fast = DuePanes(DEFER)
    deferred: set[int] = set()
    now, looked = 0, 0
    for what, n in happening:
        pane = now + n
        if what == "time" and pane >= looked and pane not in slow.on_time:
            slow.on_time.add(pane)
            fast.add(pane, 0)
        elif what == "late" and pane - 5 not in slow.late:
            slow.late.add(pane - 5)
            fast.add(pane - 5, 1)
        elif what == "off":
            deferred |= set(range(looked, looked + n))
        elif what == "cut":
            slow.cuts.append(pane)
            fast.cut()
        elif what == "look":
            looked, now = now + n, now + n
            expected = sorted(p for p in slow.on_time if p < looked and p not in deferred)
            assert fast.waiting(0, looked, deferred) == expected
            assert fast.take(looked, deferred, slow.end_of) == slow.take(looked, deferred)
    assert fast.take(1 << 40, set(), slow.end_of) == slow.take(1 << 40, set())


def test_a_look_does_not_go_through_panes_that_are_deferred_or_not_due() -> None:
    """A day of panes of a second is put off; then every look asks for the segments of its own panes alone."""
    asked: list[int] = []

    def end_of(pane: int) -> int:
        asked.append(pane)
        return pane // 3_600 * 3_600 + 3_600

    panes = DuePanes(86_400)
    silent = range(10_000)
    for pane in range(20_000):
        panes.add(pane, 0)
        panes.add(pane, 1)
    assert panes.take(10_000, silent, end_of) == []
    assert len(asked) == 10_000
    for pane in range(10_000, 20_000):
        assert panes.waiting(pane, pane + 1, silent) == [pane]
        assert panes.take(pane + 1, silent, end_of) == [(pane, 0)]
    assert len(asked) == 10_000

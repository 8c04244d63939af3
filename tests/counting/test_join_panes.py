"""Whether a comparison may decide anything by a pane: a function of the logs, by what had come when labels were due."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from streameval.counting.join_panes import (
    MATCHED_CLICKS,
    READ_CLICKS,
    READ_IMPRESSIONS,
    RECENT_PANES,
    UNLABELLED,
    JoinPanes,
    broken,
)
from streameval.events.batch import Catalog
from streameval.join.joiner import Joiner
from streameval.join.policy import JoinPolicy
from streameval.testing import Shown, Tap, make_batch

MINUTE, WINDOW, LATENESS = 60_000, 600_000, 30_000
BASE = 1_700_000_040_000
PANE = BASE // MINUTE
Event = Shown | Tap


def counted(events: Sequence[Event], sizes: Sequence[int] = (1_000,), shared: bool = True) -> JoinPanes:
    joiner, catalog = Joiner(JoinPolicy(WINDOW, LATENESS, 86_400_000), shared=shared), Catalog()
    out, at, step = JoinPanes(MINUTE, WINDOW, LATENESS), 0, 0
    while at < len(events):
        batch = make_batch(events[at : at + sizes[step % len(sizes)]], catalog, shared=shared)
        rows, _ = joiner.add(batch)
        out.add(joiner.table, rows, joiner.fates)
        at, step = at + len(batch), step + 1
    return out


def minutes(n: int, clicks: int, astray: int, conflicts: int = 0) -> list[Event]:
    """A hundred impressions a minute, one clicked at a time; then clicks on nothing."""
    out: list[Event] = []
    for minute in range(n):
        start = BASE + minute * MINUTE
        out += [Shown(f"{minute}-{i}", start + i) for i in range(100)]
        out += [Shown(f"{minute}-{i}", start + 200, version="v2") for i in range(conflicts)]
        out += [Tap(f"{minute}-{i}", start + 1_000 + i) for i in range(clicks)]
        out += [Tap(f"nobody-{minute}-{i}", start + 2_000 + i) for i in range(astray)]
    return out


def test_events_after_the_labels_of_their_pane_were_due_do_not_count() -> None:
    due = BASE + MINUTE + WINDOW + LATENESS  # of the first pane, at this place in a log
    late = Shown("late", BASE + 2)
    events = [
        Shown("a", BASE), Shown("b", BASE + 1), Tap("a", BASE + 5), Tap("late", BASE + 6), Tap("later", BASE + 7),
        Shown("clock", due - 1), late, Tap("b", BASE + 8),
        Shown("clock 2", due), Shown("later", BASE + 3), Tap("b", BASE + 9),
    ]  # fmt: skip
    row = counted(events).between(PANE, PANE + 1)
    assert (row[READ_IMPRESSIONS], row[UNLABELLED]) == (3, 2)  # "late" is there, and nobody waits for it
    assert (row[READ_CLICKS], row[MATCHED_CLICKS]) == (4, 3)


@pytest.mark.parametrize("size", [1, 7, 50])
def test_batches_change_nothing(size: int) -> None:
    events = minutes(5, 20, 5, 3)
    luck = np.random.default_rng(size)
    shuffled = [events[i] for i in np.argsort([e.ts + luck.integers(0, 3 * MINUTE) for e in events])]
    whole = counted(shuffled).state()
    assert counted(shuffled, [size, 2 * size, 1]).state() == whole
    shown, taps = ([e for e in shuffled if isinstance(e, kind)] for kind in (Shown, Tap))
    apart = counted([*shown, *taps], [size], shared=False).state()
    assert counted([*taps, *shown], [3 * size], shared=False).state() == apart


def test_too_many_clicks_on_nothing_or_refused_impressions_or_leaps_withhold() -> None:
    good, bad = counted(minutes(3, 30, 3)), counted(minutes(3, 30, 4))
    end = PANE + 2  # the panes before the last one
    assert broken([good], end) is None
    assert broken([bad], end) == "only 88% of 68 clicks matched an impression"
    assert broken([counted(minutes(3, 10, 10))], end) is None, "40 clicks tell nothing yet"
    assert "matched an impression" in (broken([good, bad, bad], end) or "")
    refused = broken([counted(minutes(3, 30, 0, 12))], end)
    assert refused == ("24 of 224 impressions were rejected: another model or version has used their impression_id")
    good.ahead(np.full(30, BASE + 5, np.int64))
    assert broken([good], end) is None
    good.ahead(np.full(30, BASE + MINUTE, np.int64))
    assert (
        broken([good], end) == "60 of 326 events are dated further ahead of their stream than join.correction_horizon"
    )


def test_the_hour_before_the_pane_counts_and_a_partition_that_waits_for_no_click_there_does_not() -> None:
    bad = counted([*minutes(2, 30, 30), *(Shown(f"x{m}", BASE + m * MINUTE) for m in range(2, 65))])
    assert broken([bad], PANE + RECENT_PANES) is not None
    assert broken([bad], PANE + RECENT_PANES + 2) is None
    assert broken([bad], PANE + 70) is None, "nothing was shown there"


def test_what_was_saved_goes_on_and_what_is_old_is_let_go() -> None:
    one = counted(minutes(3, 30, 4))
    again = JoinPanes(MINUTE, WINDOW, LATENESS)
    again.restore(one.state())
    assert again.state() == one.state()
    again.forget_before(PANE + 1)
    assert [row[0] for row in again.state()] == [PANE + 1, PANE + 2]


def test_times_from_all_over_the_centuries_are_counted() -> None:
    joiner, catalog = Joiner(JoinPolicy(WINDOW, LATENESS, 86_400_000)), Catalog()
    taps = [Tap(f"t{i}", BASE - i * 1_000_000 * MINUTE) for i in range(50)]
    rows, _ = joiner.add(make_batch([Shown("a", BASE), *taps], catalog))
    panes = JoinPanes(MINUTE, WINDOW, LATENESS)
    panes.add(joiner.table, rows, joiner.fates)
    assert [row[0] for row in panes.state()] == [PANE]
    assert panes.between(PANE, PANE + 1)[READ_CLICKS] == 1


def test_sums_of_panes_do_not_depend_on_what_was_asked_before() -> None:
    rng = np.random.default_rng(3)
    joiner, catalog = Joiner(JoinPolicy(WINDOW, LATENESS, 86_400_000), shared=True), Catalog()
    joins = JoinPanes(MINUTE, WINDOW, LATENESS)
    for step in range(60):
        at = BASE + step * MINUTE
        own = at + rng.integers(-9 * MINUTE, MINUTE, 20)
        events: list[Event] = [Shown(f"{step}-{i}", int(ts)) for i, ts in enumerate(own)]
        rows, _ = joiner.add(make_batch([*events, Tap(f"{step}-1", at + MINUTE)], catalog, shared=True))
        joins.add(joiner.table, rows, joiner.fates)
        if rng.random() < 0.2:
            joins.forget_before(PANE + max(0, step - int(rng.integers(5, 30))))
        if rng.random() < 0.1:
            joins.restore(joins.state())
        for _ in range(int(rng.integers(0, 4))):
            start = PANE + step - int(rng.integers(0, 25))
            end = start + int(rng.integers(0, 30))
            fresh = JoinPanes(MINUTE, WINDOW, LATENESS)
            fresh.restore(joins.state())
            assert joins.between(start, end) == fresh.between(start, end)

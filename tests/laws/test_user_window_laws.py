"""Laws of one series' users: a window's ranks are those of its panes, whatever was looked at before."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streameval.counting import series_users
from streameval.counting.series_users import Part, SeriesUsers
from streameval.sketches.ranks import GroupRanks
from streameval.sketches.weightings import NO_WORTHS

WINDOWS = [2, 5]
ONE = (1, 2, 1)
NO_VALUE = np.empty(0, np.int32), NO_WORTHS

# an entry: (user, key, label); a step: entries added to a pane, or everything there taken out again, and then a look
entry = st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 1))
add = st.tuples(st.just("add"), st.integers(0, 8), st.lists(entry, min_size=1, max_size=12))
undo = st.tuples(st.just("undo"), st.integers(0, 8), st.just([]))
look = st.tuples(st.just("look"), st.integers(0, 11), st.just([]))
forget = st.tuples(st.just("forget"), st.just(0), st.just([]))
restart = st.tuples(st.just("restart"), st.just(0), st.just([]))


def packed(entries: list[tuple[int, int, int]]) -> np.ndarray:
    return np.array([u << 32 | k << 1 | y for u, k, y in entries], np.uint64)


def ranks_of(entries: list[tuple[int, int, int]]) -> GroupRanks:
    ranks = GroupRanks()
    ranks.apply(np.sort(packed(entries)), np.empty(0, np.uint64), 5)
    return ranks


@patch.object(series_users, "_MERGE_AT", 3)
@settings(max_examples=500, deadline=None)
@given(st.lists(st.one_of(add, look, add, undo, forget, look, restart), max_size=40))
@example(  # what came into a pane after the last look was never in the window, and must not be taken out of it
    [("add", 0, [ONE]), ("add", 3, [ONE]), ("look", 6, []), ("add", 3, [ONE]), ("add", 7, [ONE]), ("look", 9, [])]
)
def test_a_windows_ranks_are_those_of_its_panes_whatever_was_looked_at_before(
    steps: list[tuple[str, int, list[tuple[int, int, int]]]],
) -> None:
    users = SeriesUsers(WINDOWS, "impressions")
    panes: dict[int, list[tuple[int, int, int]]] = {}
    newest = forgotten = 0
    for what, number, entries in steps:
        if what == "add" and number >= forgotten:
            users.add(number, Part(packed(entries), 1, *NO_VALUE))
            panes.setdefault(number, []).extend(entries)
        elif what == "undo" and panes.get(number) and number >= forgotten:
            users.add(number, Part(packed(panes[number]), -1, *NO_VALUE))
            panes[number] = []
        elif what == "forget":  # as the pipeline does: after a look, what no window will hold again
            forgotten = max(forgotten, newest - max(WINDOWS))
            users.forget_before(forgotten)
        elif what == "restart":
            state = users.state()
            users = SeriesUsers(WINDOWS, "impressions")
            users.restore({**state, "log": state["log"]()})
        elif what == "look":
            newest = max(newest, number)
            for index, length in enumerate(WINDOWS):
                held = [e for n, of in panes.items() if newest - length <= n < newest for e in of]
                expected, found = ranks_of(held), users.window(index, newest)
                assert (found.terms(), found.eligible, found.impressions, found.groups) == (
                    expected.terms(), expected.eligible, expected.impressions, expected.groups
                )  # fmt: skip
    everything = [e for of in panes.values() for e in of]
    assert users.run().terms() == ranks_of(everything).terms()

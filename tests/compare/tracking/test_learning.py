"""Online models that have only begun to learn, and what series are there for, on a board with sums by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from streameval.compare.evidence.evidence import Rule
from streameval.compare.evidence.ratio import Ints
from streameval.compare.reading.as_json import comparison_json
from streameval.compare.reading.reading import COMPARED, Comparison
from streameval.compare.tracking.board import Board
from streameval.compare.tracking.learning import LABELS, Learning
from streameval.compare.tracking.limits import BoardLimits
from streameval.compare.tracking.roles import Roles
from streameval.compare.tracking.sums import RowName
from streameval.compare.tracking.watch import Watch
from streameval.events.batch import Series
from streameval.sketches.blocks import BLOCKS, SERIES_CELLS, N
from tests.compare.pairs import draw, ledger_row, pair_rows

MINUTE, HOUR = 60_000, 3_600_000
V1, V2 = Series("m", "v1", "logged"), Series("m", "v2", "logged")
FTRL = Series("ftrl", "online", "online")
RULE = Rule(alpha=0.05, margins=dict.fromkeys(COMPARED, 0.0), windows=4, min_duration=5 * MINUTE, horizon=24 * HOUR)
WINDOW = 20 * MINUTE
LIMITS = BoardLimits(0.01, 1000, 64, 72 * HOUR, WINDOW)


class World:
    """A version serves, an online model scores; the ledger's rows are those of each minute."""

    def __init__(self, revision: int = 0, rule: Rule = RULE) -> None:
        self.board = Board(rule, LIMITS, MINUTE, revisions={"ftrl": revision})
        self.given: list[tuple[int, dict[RowName, Ints]]] = []

    def minute(
        self, number: int, noise: float, other: Series | None = FTRL, withheld: str | None = None
    ) -> Comparison | None:
        """v1 serves 500 impressions; the other's scores are off by `noise`. The model's comparison, if there is one."""
        self.board.arrivals(number, {V1: 500})
        rows = minute_rows(number, noise, other)
        cuts = [cut for cut in self.board.cuts() if cut <= number]
        segment = max([number // 60 * 60, *cuts])
        self.given.append((segment, rows))
        self.board.look(number, [(segment, rows)], lambda: iter(self.given), withheld)
        return self.of(other)

    def of(self, candidate: Series | None) -> Comparison | None:
        found = [c for c in self.board.readings(lambda _, reading: reading) if c.candidate == candidate]
        return found[-1] if found else None

    def restarted(self, revision: int = 0, rule: Rule = RULE) -> World:
        """Another process with the same logs."""
        out = World(revision, rule)
        out.board.restore(json.loads(json.dumps(self.board.state())))
        out.given = list(self.given)
        out.board.rebuild(lambda: iter(out.given))
        return out


def minute_rows(number: int, noise: float, other: Series | None) -> dict[RowName, Ints]:
    rng = np.random.default_rng(number)
    block, y, p, _ = draw(rng, 500, noise=0.0)
    served = np.zeros((BLOCKS, SERIES_CELLS), np.int64)
    np.add.at(served[:, N], block, 1)
    width = ledger_row(pair_rows(block, y, p, p)).size
    rows: dict[RowName, NDArray[np.int64]] = {(V1, None): np.zeros(width, np.int64)}
    rows[V1, None][: served.size] = served.ravel()
    if other is not None:
        q = 1 / (1 + np.exp(-(np.log(p / (1 - p)) + noise * rng.normal(size=p.size))))
        rows[V1, other] = ledger_row(pair_rows(block, y, p, q))
    return rows


def better_and_better(number: int) -> float:
    """Off by less from window to window for two hours, then about as good as what serves."""
    return max(0.02, 2.5 - 0.02 * number)


def test_a_model_that_improves_is_not_judged_until_it_stops_improving() -> None:
    world, seen = World(), []
    for number in range(240):
        c = world.minute(number, better_and_better(number))
        seen.append(c)
        role = world.board.role(FTRL).name
        assert role == ("learning" if c is None or c.reason == "learning" else "shadow")
    learning = [c for c in seen if c is not None and c.reason == "learning"]
    assert {(c.verdict, c.floors_met) for c in learning} == {("undecided", False)}
    assert learning[-1].impressions > 20_000
    judged = [c for c in seen if c is not None and c.reason != "learning"]
    assert {c.verdict for c in judged} <= {"undecided", "not_worse"}  # never worse, as bad as it was in the beginning
    assert judged[-1].verdict == "not_worse"
    assert judged[-1].start >= 120 * MINUTE  # only what came after counts
    assert [change.kind for change in judged[-1].changes] == ["anew", "verdict"]


def test_a_model_that_stops_improving_and_is_worse_is_found_worse() -> None:
    world = World()
    seen = [world.minute(number, 0.8) for number in range(150)]
    first = next(c for c in seen if c is not None and c.verdict == "worse")
    assert (first.looked or 0) > 2 * WINDOW
    assert first.start >= 2 * WINDOW


def test_found_worse_it_may_recover_be_certified_and_be_found_worse_again() -> None:
    world = World()
    verdicts: list[str] = []
    for number in range(300):
        c = world.minute(number, 0.9 if number < 100 or number >= 250 else 0.02)
        if c is not None and (not verdicts or verdicts[-1] != c.verdict):
            verdicts.append(c.verdict)
    again = ["undecided", "worse"]  # while it is bad, once a window has passed
    assert verdicts[:4] == 2 * again
    while verdicts[:4] == 2 * again:
        verdicts = verdicts[2:]
    assert verdicts == [*again, "undecided", "not_worse", "worse"]


@pytest.mark.parametrize("rule", [RULE, replace(RULE, alpha=0.04)])
def test_a_model_that_starts_from_scratch_is_not_judged_until_it_has_learned(rule: Rule) -> None:
    world = World()
    for number in range(100):
        before = world.minute(number, 0.02)
    assert before is not None
    assert before.reason != "learning"
    world, seen = world.restarted(1, rule), []
    assert world.board.role(FTRL).name == "learning"
    for number in range(100, 340):
        seen.append(world.minute(number, better_and_better(number - 100)))
        if number == 150:
            world = world.restarted(1, rule)  # not again
    assert all(c is not None and c.start >= 100 * MINUTE for c in seen)
    assert {c.verdict for c in seen if c is not None} <= {"undecided", "not_worse"}
    (last,) = seen[-1:]
    assert last is not None
    assert last.verdict == "not_worse"
    why = [change.text for change in last.changes if change.kind == "anew"]
    assert why[-2:] == ["its model starts from scratch", "learned enough to be evaluated"] or rule != RULE
    assert why[-1] == "learned enough to be evaluated"


def test_a_checkpoint_that_says_no_revisions_is_of_the_same_ones() -> None:
    world = World(3)
    for number in range(100):
        world.minute(number, 0.02)
    state = json.loads(json.dumps(world.board.state()))
    del state["revisions"]
    other = World(3)
    other.board.restore(state)
    assert other.board.role(FTRL) == world.board.role(FTRL)
    assert other.board.role(FTRL).name == "shadow"


@given(st.integers(1, 239), st.booleans())
@settings(max_examples=10, deadline=None)
@pytest.mark.slow
def test_a_restart_at_any_minute_changes_nothing(cut: int, bad: bool) -> None:
    noise: Callable[[int], float] = (lambda _: 0.8) if bad else better_and_better
    whole, other = World(), World()
    for number in range(240):
        whole.minute(number, noise(number))
        other.minute(number, noise(number))
        if number == cut:
            other = other.restarted()
    a, b = whole.of(FTRL), other.of(FTRL)
    assert a is not None
    assert b is not None
    assert json.dumps(comparison_json(a)) == json.dumps(comparison_json(b))
    assert json.dumps(whole.board.state()) == json.dumps(other.board.state())


def test_comparisons_of_an_older_checkpoint_continue_to_be_judged() -> None:
    world = World()
    for number in range(10):
        world.minute(number, 0.8)
    state = json.loads(json.dumps(world.board.state()))
    del state["roles"], state["learning"]
    for one in state["tracked"]:
        for name in ("learning", "since", "decision", "now"):
            one.pop(name, None)
    older = Board(RULE, LIMITS, MINUTE)
    older.restore(state)
    older.rebuild(lambda: iter(world.given))
    assert [c.reason for c in older.readings(lambda _, reading: reading) if c.candidate == FTRL] == [
        "too_short"
    ] or older
    assert older.role(FTRL).name != "learning"


def test_while_the_labels_cannot_be_believed_nothing_is_learned_from_them() -> None:
    one = Learning(WINDOW, 0)
    assert not one.look(10 * WINDOW, 1)  # without labels no window ends
    world = World()
    for number in range(100):
        c = world.minute(number, 0.8, withheld="join_rate_low" if number >= 10 else None)
    assert c is not None
    assert world.board.role(FTRL).name == "learning"


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_window_has_labels_enough_for_each_model_that_learns(partitions: int) -> None:
    one, at = Learning(WINDOW, 0), 0
    over = []
    for _ in range(100):
        at += MINUTE
        one.add(V1, 50, 1_000)
        over.append(one.look(at, partitions))
    ends = [i + 1 for i, now in enumerate(over) if now]
    assert ends == ([80] if partitions == 1 else [])
    assert LABELS == 2_000


def test_windows_are_compared_against_the_same_version_only() -> None:
    one = Learning(WINDOW, 0)
    one.add(V1, 5_000, 100)
    assert not one.look(WINDOW, 1)
    one.add(V2, 5_000, 900)  # another one serves, and is harder to beat
    assert not one.look(2 * WINDOW, 1)
    one.add(V2, 5_000, 800)
    assert not one.look(3 * WINDOW, 1)
    one.add(V2, 5_000, 800)
    assert one.look(4 * WINDOW, 1)
    assert not one.look(5 * WINDOW, 1)  # said once
    assert json.loads(json.dumps(Learning.restore(WINDOW, one.state()).state())) == one.state()


def test_roles_follow_the_traffic() -> None:
    watch, roles = Watch(0.01, 1000), Roles(0.01)

    def role(series: Series, learned: bool = True) -> tuple[str, float | None]:
        one = roles.of(series, watch, learned)
        return one.name, one.traffic_share

    for pane in range(5):
        watch.pane(pane * MINUTE, (pane + 1) * MINUTE, {("m", "v1"): 300, ("m", "v2"): 100})
    assert (role(V1), role(V2)) == (("live", 0.75), ("live", 0.25))
    assert (role(FTRL, False), role(FTRL)) == (("learning", None), ("shadow", None))
    assert role(Series("m", "v3", "logged")) == ("shadow", None)  # its labels are not final yet
    roles.look({FTRL: "m"}, {"m": 400})
    assert role(FTRL) == ("shadow", None)
    for pane in range(5, 15):
        watch.pane(pane * MINUTE, (pane + 1) * MINUTE, {("m", "v1"): 400})
    assert role(V2)[0] == "retired"
    roles.look({V2: "m"}, {"m": 400})
    assert role(V2) == ("shadow", None)
    again = Roles(0.01)
    again.restore(json.loads(json.dumps(roles.state())))
    for one in (roles, again):
        one.look({FTRL: "m"}, {"m": 1_000})
        one.look({FTRL: "m"}, {"m": 1_000})
        assert one.of(V2, watch, True).name == "retired"  # 2,000 impressions without its score
        assert one.of(FTRL, watch, True).name == "shadow"

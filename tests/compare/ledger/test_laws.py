"""The laws of a ledger's sums, whatever its rows have: batches, partitions, labels that change, worth that grows, restart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from streameval.compare.ledger import exposure, strata
from streameval.compare.ledger.exposure import EXPOSED
from streameval.compare.ledger.ledger import Ledger
from streameval.compare.ledger.placements import WIDTH
from streameval.compare.ledger.row_shape import shape_of
from streameval.counting.scoreboard import Labelled
from streameval.events.batch import Catalog
from streameval.events.columns import Scored, ScoreList
from tests.compare.ledger.test_ledger import BASE, CATALOG, EDGES, HORIZON, PANE, PLACED, Counting, Traffic
from tests.compare.ledger.test_user_cap import traffic_of_few

NAMES = [["", "", "a", "b"]]
PIECES = shape_of(("log_loss_snips", "value", "policy_value", "pauc"), 1e-3, (0.1, 0.6)).pieces
MAKERS: dict[str, Callable[[], Ledger]] = {
    "plain": lambda: Ledger(PANE, HORIZON, CATALOG.radix, 1, EDGES),
    "capped": lambda: Ledger(PANE, HORIZON, CATALOG.radix, 1, EDGES, 3),
    "exposed": lambda: Ledger(PANE, HORIZON, CATALOG.radix, 1, EDGES, min_propensity=1e-3),
    "further": lambda: Ledger(PANE, HORIZON, CATALOG.radix, 1, EDGES, pieces=PIECES),
    "everything": lambda: Ledger(PANE, HORIZON, CATALOG.radix, 1, EDGES, 3, 1e-3, PIECES),
}
KINDS = pytest.mark.parametrize("kind", MAKERS)
EXPOSED_PLACED = [
    *range(exposure.XWPHI, exposure.X_N, exposure.EXPOSED_CELLS),
    exposure.X_WWPHI,
    exposure.X_WWPHI2,
]


class Rich(Traffic):
    """Traffic of few users; most impressions have a propensity, policies of some versions, and a worth of their click."""

    def __init__(self, n: int, seed: int) -> None:
        self.__dict__ = traffic_of_few(n, seed).__dict__
        rng = np.random.default_rng(seed + 7)
        self.propensity = np.where(rng.random(n) < 0.2, np.nan, np.exp(rng.uniform(-9, 0, n)))
        self.policy = np.where(rng.random((n, 3)) < 0.2, np.nan, rng.random((n, 3)))
        self.value = np.exp(rng.normal(0.0, 3.0, n))
        self.in_time = self.value.copy()

    def part(
        self, rows: NDArray[np.int64], label: NDArray[np.int8] | None = None, fresh: bool = True
    ) -> tuple[Labelled, Scored]:
        labelled, scored = super().part(rows, label, fresh)
        of, version = np.nonzero(~np.isnan(self.policy[rows]))
        policies = ScoreList(of.astype(np.int32), version.astype(np.int32), self.policy[rows][of, version])
        fields = {
            "propensity": self.propensity[rows],
            "value": np.where(labelled.label == 1, self.value[rows], 0.0),
            "value_in_time": np.where(labelled.label == 1, self.in_time[rows], 0.0),
        }
        return replace(labelled, fields=fields, policies=policies), scored


def counting(kind: str, partitions: int = 1) -> Counting:
    out = Counting()
    out.ledgers = [MAKERS[kind]() for _ in range(partitions)]
    return out


def counted(kind: str, traffic: Traffic, cuts: list[int]) -> Counting:
    out = counting(kind)
    for rows in np.split(np.arange(traffic.ts.size), sorted(cuts)):
        if rows.size:
            out.observe(*traffic.part(rows))
    return out


def of_labels(kind: str, row: list[int]) -> dict[str, list[int]]:
    """What of a row follows from labels alone: placements, and what is under the cap, are by the labels as they were on time."""
    sums, ledger = np.array(row), MAKERS[kind]()
    out = {"core": np.delete(sums[:WIDTH], PLACED).tolist()}
    if kind in ("exposed", "everything"):
        out["exposed"] = np.delete(sums[-EXPOSED:], EXPOSED_PLACED).tolist()
    for piece, _ in ledger.pieces:
        if piece.place is None:
            out[piece.metric] = ledger.pieces.of(piece.metric, sums).tolist()
    return out


@pytest.fixture(autouse=True)
def few_labels_close_a_stratum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strata, "_ENOUGH", 40)


@KINDS
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 99), st.lists(st.integers(0, 400), max_size=6))
def test_batches_do_not_matter(kind: str, seed: int, cuts: list[int]) -> None:
    traffic = Rich(400, seed)
    assert counted(kind, traffic, cuts).content() == counted(kind, traffic, []).content()


@KINDS
@pytest.mark.parametrize("partitions", [4, 8])
@settings(max_examples=5, deadline=None)
@given(st.integers(0, 99))
def test_partitions_do_not_matter(kind: str, partitions: int, seed: int) -> None:
    traffic = Rich(600, seed)
    apart = counting(kind, partitions)
    for number in range(partitions):
        rows = np.flatnonzero(traffic.user % partitions == number)
        if rows.size:
            apart.observe(*traffic.part(rows), partition=number)
    assert apart.content()["segments"] == counted(kind, traffic, []).content()["segments"]


@pytest.mark.slow
@KINDS
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 99), st.lists(st.integers(0, 399), min_size=1, max_size=40, unique=True))
def test_a_changed_label_counts_as_if_it_had_always_been_so(kind: str, seed: int, changed: list[int]) -> None:
    traffic = Rich(400, seed)
    rows = np.array(sorted(changed))
    there, back = counted(kind, traffic, [100]), counted(kind, traffic, [])
    was = traffic.label[rows]
    for one in (there, back):
        one.observe(*traffic.part(rows, fresh=False), -1)
        one.observe(*traffic.part(rows, 1 - was, fresh=False), +1)
    back.observe(*traffic.part(rows, 1 - was, fresh=False), -1)
    back.observe(*traffic.part(rows, was, fresh=False), +1)
    assert back.content() == counted(kind, traffic, []).content()
    traffic.label[rows] = 1 - was
    found, straight = there.content(), counted(kind, traffic, []).content()
    assert found["parts"] == straight["parts"]
    for where, sums in straight["segments"].items():
        assert of_labels(kind, found["segments"][where]) == of_labels(kind, sums)


@pytest.mark.parametrize("kind", ["further", "everything"])
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 99), st.lists(st.integers(0, 399), min_size=1, max_size=40, unique=True))
def test_a_click_that_was_worth_more_too_late_counts_late_whenever_it_was_read(
    kind: str, seed: int, raised: list[int]
) -> None:
    traffic = Rich(400, seed)
    rows = np.array(sorted(raised))
    after, before, never = counting(kind), counting(kind), counted(kind, traffic, [])
    after.observe(*traffic.part(np.arange(400)))  # it is read when labels have matured
    after.observe(*traffic.part(rows, fresh=False), -1)
    traffic.value[rows] *= 3.0
    after.observe(*traffic.part(rows, fresh=False), +1)
    before.observe(*traffic.part(np.arange(400)))  # or it was read ahead, and then they matured
    first = {}
    for one in (after, before, never):
        one.look(int(traffic.ts[-1]) // PANE + 1)
        first[id(one)] = {where: row.tolist() for where, row in one.gains.items()}
    assert first[id(after)] == first[id(before)] == first[id(never)]
    found = before.content()
    assert after.content() == found
    assert (never.content() == found) == (not traffic.label[rows].any())


@KINDS
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 99), st.integers(0, 400), st.integers(0, 8))
def test_a_restart_changes_nothing(kind: str, seed: int, at: int, looked: int) -> None:
    traffic = Rich(400, seed)
    straight, before = counting(kind), counting(kind)
    rows = np.arange(400)
    end = int(traffic.ts[0]) // PANE + looked
    for one in (straight, before):
        if at:
            one.observe(*traffic.part(rows[:at]))
        one.ledger.cut(end)
        for pane in one.ledger.waiting(end):
            one.look(pane + 1)
    catalog = Catalog(("country",), 5)
    for version in ("v3", "other", "v2"):
        catalog.series_code("m", version)
    codes = catalog.adopt({**CATALOG.names(), "values": NAMES})
    after, again = counting(kind), counting(kind)
    after.ledger.restore(before.ledger.state(), codes)
    inverse: Any = Catalog(("country",), 5).adopt({"series": [], "values": NAMES})
    again.ledger.restore(after.ledger.state(), type(codes)(_inverse(codes.series), inverse.values, inverse.radix))
    again.strata.restore(before.strata.state(lambda code: [code]), lambda name: int(name[0]))
    for one in (straight, again):
        if at < 400:
            one.observe(*traffic.part(rows[at:]))
    assert again.content() == straight.content()


@pytest.mark.parametrize(("first", "second"), [(a, b) for a in MAKERS for b in MAKERS if a != b])
def test_a_checkpoint_with_other_rows_is_read_and_common_ones_continue(first: str, second: str) -> None:
    traffic = Rich(400, 5)
    rows = np.arange(400)
    codes = Catalog(("country",), 5).adopt({**CATALOG.names(), "values": NAMES})
    old, new = counting(first), counting(second)
    old.observe(*traffic.part(rows[:200]))
    new.ledger.restore(old.ledger.state(), codes)
    new.observe(*traffic.part(rows[200:]))
    found = {where: of_labels(second, row) for where, row in new.content()["segments"].items()}
    whole = {where: of_labels(second, row) for where, row in counted(second, traffic, []).content()["segments"].items()}
    both = of_labels(first, [0] * MAKERS[first]().width).keys()
    assert traffic.ts[0] > BASE
    for where, sums in whole.items():
        assert {name: found[where][name] for name in sums if name in both} == {
            name: cells for name, cells in sums.items() if name in both
        }


def _inverse(codes: NDArray[np.int32]) -> NDArray[np.int32]:
    out = np.zeros(int(codes.max()) + 1, np.int32)
    out[codes] = np.arange(codes.size)
    return out

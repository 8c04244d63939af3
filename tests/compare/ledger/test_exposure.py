"""The sums of pairs by inverse propensity: their laws (batches, corrections, partitions, restart, settings that change)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.compare.ledger import exposure, strata
from streameval.compare.ledger.exposure import EXPOSED, weight_codes, weight_of
from streameval.compare.ledger.ledger import Ledger
from streameval.compare.ledger.placements import WIDTH
from streameval.counting.scoreboard import Labelled
from streameval.events.batch import Catalog
from streameval.events.columns import Scored
from tests.compare.ledger.test_ledger import CATALOG, EDGES, HORIZON, PANE, Counting, Traffic

NAMES = {**CATALOG.names(), "values": [["", "", "a", "b"]]}
PLACED = [*range(exposure.XWPHI, exposure.X_N, exposure.EXPOSED_CELLS), exposure.X_WWPHI, exposure.X_WWPHI2]


class Weighted(Traffic):
    """Traffic of which most has a propensity."""

    def __init__(self, n: int, seed: int) -> None:
        super().__init__(n, seed)
        rng = np.random.default_rng(seed + 7)
        self.propensity = np.where(rng.random(n) < 0.2, np.nan, np.exp(rng.uniform(-9, 0, n)))

    def part(
        self, rows: NDArray[np.int64], label: NDArray[np.int8] | None = None, fresh: bool = True
    ) -> tuple[Labelled, Scored]:
        labelled, scored = super().part(rows, label, fresh)
        return replace(labelled, fields={"propensity": self.propensity[rows]}), scored


class Exposing(Counting):
    """Ledgers that keep them."""

    def __init__(self, partitions: int = 1, cap: int = 0) -> None:
        super().__init__(partitions)
        self.ledgers = [
            Ledger(PANE, HORIZON, CATALOG.radix, 1, EDGES, cap, min_propensity=1e-3) for _ in range(partitions)
        ]


def counted(traffic: Traffic, cuts: list[int], cap: int = 0) -> Exposing:
    counting = Exposing(cap=cap)
    for rows in np.split(np.arange(traffic.ts.size), sorted(cuts)):
        if rows.size:
            counting.observe(*traffic.part(rows))
    return counting


@pytest.fixture(autouse=True)
def few_labels_close_a_stratum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strata, "_ENOUGH", 40)


def test_a_weight_is_kept_to_its_128th() -> None:
    propensity = np.concatenate(
        (np.exp(np.random.default_rng(0).uniform(-9, 0, 5_000)), 2.0 ** -np.arange(14), [np.nan])
    )
    codes = weight_codes(propensity, 1e-4, propensity.size)
    weight = np.array([weight_of(int(code)) for code in codes[:-1]]) / exposure.WEIGHT_SCALE
    exact = 1 / np.maximum(propensity[:-1], 1e-4)
    assert np.all((weight <= exact) & (exact < weight * (1 + 1 / 128)))
    assert weight[5_000:].tolist() == (2.0 ** np.arange(14)).clip(max=exact.max()).tolist()
    assert codes[-1] == 0
    assert not weight_codes(None, 1e-4, 3).any()
    assert not weight_codes(propensity, None, propensity.size).any()


def test_all_other_sums_are_as_without_them() -> None:
    traffic = Weighted(1_000, 1)
    plain, capped = Counting(), Counting()
    capped.ledgers = [Ledger(PANE, HORIZON, CATALOG.radix, 1, EDGES, 3)]
    for one in (plain, capped):
        one.observe(*traffic.part(np.arange(1_000)))
    for cap, without in ((0, plain), (3, capped)):
        found, expected = counted(traffic, [300], cap).content(), without.content()
        assert {where: row[:-EXPOSED] for where, row in found["segments"].items()} == expected["segments"]
        assert found["parts"] == expected["parts"]
        for (_, key), row in found["segments"].items():
            assert any(row[-EXPOSED:]) == (key[1] >= 0)


def test_a_checkpoint_from_before_propensities_were_kept_is_read_and_the_other_way_round() -> None:
    traffic = Weighted(400, 5)
    rows = np.arange(400)
    codes = Catalog(("country",), 5).adopt(NAMES)
    whole = Counting()
    whole.observe(*traffic.part(rows))
    expected = whole.content()["segments"]
    for first, second in ((Counting(), Exposing(cap=2)), (Exposing(cap=2), Counting()), (Exposing(), Exposing(cap=2))):
        first.observe(*traffic.part(rows[:200]))
        second.ledger.restore(first.ledger.state(), codes)
        second.observe(*traffic.part(rows[200:]))
        assert {k: row[:WIDTH] for k, row in second.content()["segments"].items()} == expected

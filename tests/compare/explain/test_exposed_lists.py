"""The Simpson guard's NDCG: against a loop over lists with scikit-learn, in a world where it must speak, and why it is silent."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import ndcg_score

from streameval.compare.explain.uniform_exposure import uniform_exposure_of_lists
from streameval.compare.ledger.exposed_lists import EXPOSED_LISTS, XL_KNOWN, ExposedCut, turned_lists
from streameval.compare.ledger.list_rows import GAUC_WIDTH, ListMetrics
from streameval.compare.ledger.user_aucs import Groups
from streameval.compare.reading.reading import Comparison
from streameval.events.columns import ScoreList
from streameval.results.publish import Publisher
from streameval.results.snapshot import Snapshot
from streameval.server.prometheus.collector import SnapshotCollector
from streameval.sketches.blocks import BLOCKS, GAUC_OF_ITEMS
from tests.compare.explain.test_simpson import only, replayed
from tests.compare.explain.test_uniform_exposure import Rows, world

BASE = 1_700_002_800_000  # on the hour
K, LENGTH, LEAST = 5, 8, 1e-3
CUT = ExposedCut(K, LEAST)
LISTS = ListMetrics(("mrr",), CUT)


def ndcg(label: NDArray[Any], p: NDArray[Any]) -> float:
    return 1.0 if label.size == 1 else float(ndcg_score([label], [p], k=K))


def weighted(label: NDArray[Any], p: NDArray[Any], weight: NDArray[Any]) -> NDArray[Any]:
    """NDCG whose clicks weigh, over the ideal of all of them; lists [..., items]."""
    return dcg(np.where(label > 0, weight, 0.0), p) / dcg(label, label)


def dcg(gain: NDArray[Any], p: NDArray[Any]) -> NDArray[Any]:
    """DCG at K, ties at their mean, by the definition; lists [..., items]."""
    above = (p[..., None, :] > p[..., None]).sum(axis=-1)
    level = (p[..., None, :] == p[..., None]).sum(axis=-1)
    ranks = np.arange(1, p.shape[-1] + 1)
    up_to = np.concatenate(([0.0], np.cumsum(np.where(ranks <= K, 1 / np.log2(ranks + 1), 0.0))))
    return (gain * (up_to[above + level] - up_to[above]) / level).sum(axis=-1)


class Some:
    """Lists of 1 to 9 items, scores with ties; some clicks have no propensity."""

    def __init__(self, n: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.size = rng.integers(1, 10, n)
        total = int(self.size.sum())
        self.request = np.repeat(np.arange(1, n + 1).astype(np.uint64), self.size)
        self.group = np.repeat(np.arange(n) % (n // 3), self.size).astype(np.int32)
        self.label = (rng.random(total) < 0.25).astype(np.int8)
        self.p = rng.integers(1, 6, (2, total)) / 10.0
        self.propensity = np.where(rng.random(total) < 0.05, np.nan, 10.0 ** rng.uniform(-4, 0, total))
        self.block = rng.integers(0, BLOCKS, n // 3).astype(np.int8)

    def row(self, at: NDArray[np.int64], lists: ListMetrics = LISTS, server: int = 0) -> NDArray[np.int64]:
        """int64[width], the impressions in an order; one version served, the other scored."""
        groups = Groups(np.zeros(self.block.size, np.int32), self.block, self.group[at], self.label[at])
        row = np.tile(np.arange(at.size, dtype=np.int32), 2)
        series = np.repeat(np.array([server, 1 - server], np.int32), at.size)
        pair_of = np.full((2, 2), -1, np.int32)
        pair_of[server, 1 - server] = 0
        sums = np.zeros((1, 4, lists.width), np.int64)
        scores = ScoreList(row, series, np.concatenate((self.p[server, at], self.p[1 - server, at])))
        lists.add(groups, self.request[at], scores, at.size, pair_of, sums, self.propensity[at])
        assert not sums[0, 1:].any()
        return sums[0, 0]


def test_sums_are_those_of_a_loop_over_lists() -> None:
    some = Some(600, 1)
    row = some.row(np.arange(some.label.size))
    assert row[GAUC_WIDTH : 2 * GAUC_WIDTH].any(), "beside other metrics"
    sums = LISTS.exposed(row)
    assert sums is not None
    d, t, w = [], [], []
    for one in (np.flatnonzero(some.request == r) for r in np.unique(some.request)):
        label, weight = some.label[one], 1 / np.maximum(some.propensity[one], LEAST)
        if not label.any():
            continue
        d.append(ndcg(label, some.p[1, one]) - ndcg(label, some.p[0, one]))
        if not np.isnan(weight[label > 0]).any():
            t.append(weighted(label, some.p[1, one], weight) - weighted(label, some.p[0, one], weight))
            w.append(weight[label > 0].mean())
    assert 200 < len(t) < len(d)
    assert sums[XL_KNOWN] == len(t)
    shown, alike = uniform_exposure_of_lists(sums)
    assert float(shown.theta) == pytest.approx(np.mean(d), abs=1e-9)
    assert float(alike.theta) == pytest.approx(np.sum(t) / np.sum(w), abs=1e-6)
    resid = np.array(t) - float(alike.theta) * np.array(w)
    assert float(alike.v_iid) == pytest.approx((resid**2).sum() / np.sum(w) ** 2, rel=1e-4)


def test_equal_weights_give_the_difference_as_shown() -> None:
    some = Some(300, 2)
    some.propensity[:] = 0.25
    guarded = LISTS.exposed(some.row(np.arange(some.label.size)))
    assert guarded is not None
    shown, alike = uniform_exposure_of_lists(guarded)
    assert float(shown.theta) == pytest.approx(float(alike.theta), abs=1e-6)


def test_the_order_of_arrival_and_who_served_are_nothing() -> None:
    some = Some(300, 3)
    order = np.arange(some.label.size)
    row = some.row(order)
    assert np.array_equal(row, some.row(np.random.default_rng(0).permutation(order)))
    other = LISTS.exposed(some.row(order, server=1))
    assert other is not None
    assert np.array_equal(turned_lists(other), LISTS.exposed(row))


def test_rows_of_a_checkpoint_keep_the_metrics_still_configured() -> None:
    some = Some(200, 4)
    row = some.row(np.arange(some.label.size))[None]
    row[:, -GAUC_OF_ITEMS:] = np.arange(GAUC_OF_ITEMS)
    again = ListMetrics(("ndcg_3", "mrr"), CUT).fitted(row, LISTS.names)
    assert np.array_equal(again[:, -EXPOSED_LISTS - GAUC_OF_ITEMS :], row[:, -EXPOSED_LISTS - GAUC_OF_ITEMS :])
    assert np.array_equal(again[:, 2 * GAUC_WIDTH : 3 * GAUC_WIDTH], row[:, GAUC_WIDTH : 2 * GAUC_WIDTH])
    other = ListMetrics((), ExposedCut(K + 1, LEAST)).fitted(row, LISTS.names)
    assert not other[:, GAUC_WIDTH:-GAUC_OF_ITEMS].any()
    assert np.array_equal(other[:, -GAUC_OF_ITEMS:], row[:, -GAUC_OF_ITEMS:])
    without = ListMetrics(("mrr",)).fitted(row, LISTS.names)
    assert np.array_equal(without[:, GAUC_WIDTH : 2 * GAUC_WIDTH], row[:, GAUC_WIDTH : 2 * GAUC_WIDTH])
    assert np.array_equal(without[:, 2 * GAUC_WIDTH :], row[:, -GAUC_OF_ITEMS:])


def test_rows_of_a_checkpoint_without_users_by_item_have_none() -> None:
    row = Some(200, 4).row(np.arange(Some(200, 4).label.size))[None]
    older = LISTS.fitted(row[:, :-GAUC_OF_ITEMS], LISTS.names[:-1])
    assert np.array_equal(older, row)
    assert not older[:, -GAUC_OF_ITEMS:].any()


# -- end to end --------------------------------------------------------------------------------------------------


def lists_of(rows: Rows) -> Rows:
    """The impressions in lists of `LENGTH`, each of one user, of items that are shown often or of others, as of two queries."""
    often = rows.propensity > 0.01
    kinds = [np.flatnonzero(on)[: on.sum() // LENGTH * LENGTH].reshape(-1, LENGTH) for on in (often, ~often)]
    at = np.random.default_rng(1).permutation(np.concatenate(kinds)).ravel()
    names = ("propensity", "label", "p1", "p3", "served3")
    return Rows(np.repeat(rows.user[at][::LENGTH], LENGTH), *(getattr(rows, name)[at] for name in names))


def events(rows: Rows, *, requests: bool = True, propensities: bool = True) -> list[dict[str, Any]]:
    columns = (rows.user, rows.propensity, rows.label, rows.p1, rows.p3)
    out = []
    for k, (user, propensity, label, p1, p3) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        event = {
            "type": "impression", "impression_id": f"i{k}", "ts": BASE + 1_000 * (k // LENGTH), "user_id": str(user),
            "model_version": "v1", "pclick": p1, "predictions": {"v3": p3}, "clicked": bool(label),
        }  # fmt: skip
        more = {"request_id": f"r{k // LENGTH}"} if requests else {}
        out.append({**event, **more, **({"propensity": propensity} if propensities else {})})
    return out


def guarded(all_of: list[dict[str, Any]], **sections: Any) -> Snapshot:
    return replayed(all_of, strata={"by": "propensity"}, **{"ranking": {"k": [1, K]}, **sections})


@pytest.fixture(scope="module")
def rows() -> Rows:
    return lists_of(world(np.random.default_rng(0), 160_000, 0.05, 1.2, usual=0.8)[0])


@pytest.fixture(scope="module")
def called(rows: Rows) -> Snapshot:
    return guarded(events(rows))


@pytest.mark.slow
def test_a_version_that_wins_ndcg_on_head_items_and_loses_elsewhere_is_called(rows: Rows, called: Snapshot) -> None:
    c = only(called, "paired")
    mix = next(m for m in c.mixes if m.metric == f"ndcg_{K}")
    assert (mix.dimension, mix.simpson) == ("propensity", True)
    assert mix.total > 0 > mix.within
    assert mix.text is not None
    assert f"the NDCG@{K} of v3 is" in mix.text
    assert f"NDCG@{K} has the opposite sign" in called.report()["comparisons"][0]["words"]
    expected = by_hand(rows, c)
    assert (mix.total, mix.within) == pytest.approx(expected, abs=1e-6)


def by_hand(rows: Rows, c: Comparison) -> tuple[float, float]:
    """(as shown, under uniform exposure), of whole hours since the comparison began."""
    lists = len(rows) // LENGTH
    label, p1, p3, weight = (
        column[: lists * LENGTH].reshape(lists, LENGTH)
        for column in (rows.label, rows.p1, rows.p3, 1 / np.maximum(rows.propensity, 1e-4))
    )
    since = (BASE + 1_000 * np.arange(lists)) // 3_600_000 * 3_600_000 >= c.start
    some = since & label.any(axis=1)
    label, p1, p3, weight = label[some], p1[some], p3[some], weight[some]
    d = float(ndcg_score(label, p3, k=K)) - float(ndcg_score(label, p1, k=K))  # the means over lists
    t = weighted(label, p3, weight) - weighted(label, p1, weight)
    return d, float(t.sum() / np.nanmean(np.where(label > 0, weight, np.nan), axis=1).sum())


@pytest.mark.slow
def test_readers_have_it_as_they_have_the_others(called: Snapshot) -> None:
    collector = SnapshotCollector(
        Publisher(called), version="1", version_ttl=1e9, max_series=10_000, clock=lambda: BASE / 1000
    )
    found = {
        sample.name.removeprefix("streameval_comparison_"): sample.value
        for family in collector.collect()
        for sample in family.samples
        if sample.labels.get("metric") == f"ndcg_{K}" and sample.labels.get("setup") == "paired"
    }
    mix = next(m for m in only(called, "paired").mixes if m.metric == f"ndcg_{K}")
    assert found["simpson"] == 1.0
    assert found["uniform_exposure"] == mix.within
    assert found["uniform_exposure_stderr"] == mix.within_stderr
    said = called.report()["comparisons"][0]
    assert said["mixes"][-1] == json.loads(json.dumps(said["mixes"][-1]))
    assert (said["mixes"][-1]["metric"], said["mixes_unknown"]) == (f"ndcg_{K}", [])


def why(rows: Rows, part: int = 40_000, **options: Any) -> dict[str, str]:
    sections = options.pop("sections", {})
    few = Rows(*(getattr(rows, name)[:part] for name in ("user", "propensity", "label", "p1", "p3", "served3")))
    return {m.metric: m.reason for m in only(guarded(events(few, **options), **sections), "paired").mixes_unknown}


@pytest.mark.slow
def test_unknown_results_have_a_reason(rows: Rows) -> None:
    assert why(rows, requests=False) == {f"ndcg_{K}": "no_requests"}
    assert why(rows, propensities=False) == dict.fromkeys(("log_loss", "auc", f"ndcg_{K}"), "no_propensities")
    assert why(rows, sections={"ranking": {"k": []}}) == {"ndcg": "not_configured"}
    assert set(why(rows, 400).values()) == {"too_few_clicks"}
    plain = replayed(
        events(Rows(*(getattr(rows, n)[:8_000] for n in ("user", "propensity", "label", "p1", "p3", "served3"))))
    )
    assert not only(plain, "paired").mixes
    assert not only(plain, "paired").mixes_unknown, "nobody has asked"

"""DCG and precision as if everything had been shown equally often, and NDCG by stratum: against every order of the ties, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from streameval.results.result import Result
from streameval.testing import readers_see
from tests.exposure.worlds import T0, make_settings, pipeline_of, results

LEAST, MOST, K = 1e-4, 100.0, (1, 3)
EDGES = [0.01, 0.1, 0.5]
Item = dict[str, Any]


def lists(n: int, seed: int = 11) -> list[list[Item]]:
    """Requests of 1 to 5 impressions with ties, some with an impression that has no propensity, a third without a click."""
    rng = np.random.default_rng(seed)
    out = []
    for r in range(n):
        size = int(rng.integers(1, 6))
        some = rng.random() < 0.15
        mine = []
        for i in range(size):
            p = float(np.round(rng.beta(1, 4), 1))
            item = {
                "impression_id": f"i{r}-{i}", "request_id": f"r{r}", "user_id": f"u{r % 300}", "ts": T0 + 40 * r + i,
                "model_version": "v1", "pclick": p, "predictions": {"v2": float(np.round(1 - p, 1))}, "position": i,
                "propensity": float(10 ** rng.uniform(-5 if rng.random() < 0.05 else -2.5, 0)), "clicked": int(rng.random() < 0.3),
            }  # fmt: skip
            if some and i == 0:
                del item["propensity"]
            mine.append(item)
        out.append(mine)
    return out


def score(item: Item, version: str) -> float:
    return float(item["pclick"] if version == "v1" else item["predictions"][version])


def orders(some: list[Item], version: str) -> Iterator[tuple[Item, ...]]:
    """Every order of the items in which no score is above an earlier one."""
    for order in permutations(some):
        scores = [score(item, version) for item in order]
        if scores == sorted(scores, reverse=True):
            yield order


def weight(item: Item) -> float:
    return 1 / max(item["propensity"], LEAST)


def brute_force(log: list[list[Item]], version: str, k: int, clipped: bool) -> dict[str, float]:
    dcg = hits = total = squares = 0.0
    n = items = 0
    for some in log:
        if not all("propensity" in item for item in some):
            continue
        w = {item["impression_id"]: min(weight(item), MOST) if clipped else weight(item) for item in some}
        n, items = n + 1, items + len(some)
        total, squares = total + sum(w.values()), squares + sum(x * x for x in w.values())
        every = list(orders(some, version))
        for order in every:
            for rank, item in enumerate(order[:k], 1):
                dcg += w[item["impression_id"]] * item["clicked"] / np.log2(rank + 1) / len(every)
                hits += w[item["impression_id"]] * item["clicked"] / k / len(every)
    return {
        "dcg_ips": dcg / n, "precision_ips": hits / n, "n": n, "ess": total**2 / squares,
        "dcg_snips": dcg / n * items / total, "precision_snips": hits / n * items / total,
    }  # fmt: skip


@cache
def replayed(cut: str = "edges") -> tuple[list[list[Item]], dict[str, dict[str, Any]]]:
    log = lists(700)
    events = [item for some in log for item in some]
    strata = {"cut": EDGES} if cut == "edges" else {"cut": cut, "count": 3}
    config = make_settings(ranking={"k": list(K), "by_user": []}, strata=strata)
    return log, results(events, config)


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("suffix", ["", "_clipped"])
def test_ips_and_snips_of_lists_are_those_of_every_order_of_the_ties(version: str, suffix: str) -> None:
    log, found = replayed()
    mine = found[version]
    for k in K:
        expected = brute_force(log, version, k, bool(suffix))
        for name in ("dcg", "precision"):
            for estimator in ("ips", "snips"):
                got = mine[f"{name}_{k}_{estimator}{suffix}"]
                assert got == pytest.approx(expected[f"{name}_{estimator}"], rel=1e-9)
                assert 0 < mine[f"{name}_{k}_{estimator}{suffix}_stderr"] < got
        assert mine["exposure_requests"] == expected["n"] < 700
        assert mine[f"exposure_requests_ess{suffix}"] == pytest.approx(expected["ess"], rel=1e-9)
    assert mine["exposure_requests_clipped"] > 0


def test_alike_weights_give_the_plain_dcg() -> None:
    log = [[{**item, "propensity": 0.25} for item in some] for some in lists(200)]
    found = results([item for some in log for item in some], make_settings(ranking={"k": [3], "by_user": []}))["v1"]
    plain = [
        np.mean([sum(i["clicked"] / np.log2(r + 1) for r, i in enumerate(o[:3], 1)) for o in orders(some, "v1")])
        for some in log
    ]
    assert found["dcg_3_snips"] == pytest.approx(np.mean(plain), rel=1e-9)
    assert found["dcg_3_ips"] == pytest.approx(4 * np.mean(plain), rel=1e-9)
    assert found["precision_3_snips"] == pytest.approx(found["precision_3"], rel=1e-9)


def ndcg_of(chosen: list[Item], some: list[Item], version: str, k: int) -> float:
    """Of the chosen ones alone, in the whole list."""
    every = list(orders(some, version))
    got = [sum(1 / np.log2(r + 1) for r, item in enumerate(order[:k], 1) if item in chosen) for order in every]
    return float(np.mean(got) / sum(1 / np.log2(r + 1) for r in range(1, min(len(chosen), k) + 1)))


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("cut", ["edges", "mass", "width"])
def test_ndcg_of_a_stratum_is_that_of_its_clicks_alone_in_the_whole_list(version: str, cut: str) -> None:
    log, found = replayed(cut)
    rows = found[version]["strata"]
    assert len(rows) == (5 if cut == "edges" else 4)
    for k in K:
        combined = {"share": [0.0, 0.0], "uniform_exposure": [0.0, 0.0]}
        for row in rows:
            if row["lower"] is None:
                assert row["lists"] == 0
                assert row[f"ndcg_{k}"] is None
                continue
            values = []
            for some in log:
                chosen = [i for i in some if i["clicked"] and row["lower"] <= i.get("propensity", -1) < row["upper"]]
                if chosen:
                    values.append(ndcg_of(chosen, some, version, k))
            assert row["lists"] == len(values) > 10
            assert row[f"ndcg_{k}"] == pytest.approx(np.mean(values), abs=1e-9)
            for name, w in (
                ("share", len(values)),
                ("uniform_exposure", len(values) * row["inverse_mass"] / row["impressions"]),
            ):
                combined[name][0] += w * float(np.mean(values))
                combined[name][1] += w
        got = found[version]["stratified"][f"ndcg_{k}"]
        for name, (above, below) in combined.items():
            assert got[name] == pytest.approx(above / below, abs=1e-9)
        assert len(set(got.values())) == 3


def test_a_list_with_clicks_in_a_dozen_bins_counts_once_in_every_stratum() -> None:
    rng = np.random.default_rng(4)
    log = []
    for r in range(40):
        propensity = 10 ** rng.uniform(-3, -0.05, 30)
        order = rng.permutation(30)
        log.append(
            [
                {
                    "impression_id": f"i{r}-{i}", "request_id": f"r{r}", "user_id": f"u{r}", "ts": T0 + 40 * r + i,
                    "model_version": "v1", "pclick": 1 / (2 + order[i]), "propensity": float(propensity[i]), "clicked": int(i < 14),
                }
                for i in range(30)
            ]
        )  # fmt: skip
    events = [item for some in log for item in some]
    config = make_settings(ranking={"k": [3, 10], "by_user": []}, strata={"count": 3})
    rows = results(events, config)["v1"]["strata"]
    assert len(rows) == 3
    for k in (3, 10):
        for row in rows:
            values = []
            for some in log:
                ranked = sorted(some, key=lambda item: -float(item["pclick"]))
                mine = [
                    rank
                    for rank, i in enumerate(ranked, 1)
                    if i["clicked"] and row["lower"] <= i["propensity"] < row["upper"]
                ]
                ideal = sum(1 / np.log2(rank + 1) for rank in range(1, min(len(mine), k) + 1))
                if mine:
                    values.append(sum(1 / np.log2(rank + 1) for rank in mine if rank <= k) / ideal)
            assert row["lists"] == len(values) >= 38
            assert row[f"ndcg_{k}"] == pytest.approx(np.mean(values), abs=1e-9)


def test_a_log_without_requests_or_propensities_says_why_there_are_none() -> None:
    config = make_settings(ranking={"k": [3], "by_user": []}, strata={"count": 3})
    log = [item for some in lists(100) for item in some]
    for gone, requests in (("propensity", 0), ("request_id", 0)):
        found = results([{k: v for k, v in item.items() if k != gone} for item in log], config)["v1"]
        assert found["exposure_requests"] == requests
        for name in ("dcg_3_ips", "precision_3_snips_clipped", "exposure_requests_ess", "exposure_requests_clipped"):
            assert found[name] is None
            assert found["reasons"][name] == "no_request_with_propensities"
        assert all(row["ndcg_3"] is None for row in found["strata"])
    off = results(log, make_settings(ranking={"k": [], "by_user": []}))["v1"]
    assert off["reasons"]["exposure_requests"] == "not_configured"


def by_version(log: list[list[Item]], size: int) -> dict[str, Result]:
    events = [item for some in log for item in some]
    config = make_settings(ranking={"k": list(K), "gain": "log_value", "by_user": []}, strata={"count": 4})
    found = readers_see(pipeline_of(events, config, size)).results
    return {r.series.version: r for r in found if r.window == "all" and r.slice is None}


def test_the_order_within_a_list_and_batches_change_no_bit() -> None:
    rng = np.random.default_rng(3)
    log = lists(300)
    turned = [[some[i] for i in rng.permutation(len(some))] for some in log]
    straight, other = by_version(log, 10_000), by_version(turned, 37)
    for version, result in straight.items():
        assert other[version].metrics == result.metrics
        assert other[version].stderrs == result.stderrs
        assert other[version].strata == result.strata

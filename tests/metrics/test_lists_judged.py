"""Ranking metrics against trec_eval and ranx, on a log without ties: how these break them depends on names or order.

Both divide P@K by K, however short the list, and MAP@K and recall@K by all relevant documents, as we do. They average
over every list, also those without a click, in which they count all metrics as 0: so NDCG, MAP, recall and the
reciprocal rank are compared over the lists with a gain, P@K and the hit rate over all.
"""

from __future__ import annotations

import numpy as np
import pytest
import pytrec_eval

from tests.ranked_lists import JUDGED, KS, documents, result, run, untied

MEASURES = {f"{name}.{','.join(map(str, KS))}" for name in ("ndcg_cut", "map_cut", "P", "recall", "success")}

# what ranx 0.3.21 found in this log, by gain (see `judged_by_ranx.py`)
RANX = {
    "click": {
        "hit_rate_1": 0.19808306709265175,
        "hit_rate_10": 0.5858055682336832,
        "hit_rate_3": 0.4390689183021451,
        "map": 0.5448877851361296,
        "map_1": 0.24488378132710034,
        "map_10": 0.5448877851361296,
        "map_3": 0.430619400077912,
        "mrr": 0.5665771606655907,
        "ndcg_1": 0.3381379041682898,
        "ndcg_10": 0.6695040089485427,
        "ndcg_3": 0.5052103121875617,
        "precision_1": 0.19808306709265175,
        "precision_10": 0.08966225467822911,
        "precision_3": 0.17495816217860943,
        "recall_1": 0.24488378132710034,
        "recall_10": 1.0,
        "recall_3": 0.6236138163874821,
    },
    "value": {
        "ndcg_1": 0.286993769470405,
        "ndcg_10": 0.6402820260958476,
        "ndcg_3": 0.4851725307663609,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("gain", ["click", "value"])
def test_trec_eval_finds_the_same(gain: str) -> None:
    rows = untied(*JUDGED)
    wanted, ranked = documents(rows, gain)
    each = pytrec_eval.RelevanceEvaluator(wanted, {*MEASURES, "map", "recip_rank"}).evaluate(ranked).values()
    clicked = [one for one, of in zip(each, wanted.values(), strict=True) if any(of.values())]
    expected = {f"ndcg_{k}": np.mean([one[f"ndcg_cut_{k}"] for one in clicked]) for k in KS}
    if (
        gain == "click"
    ):  # relevance of trec_eval is the gain: what was clicked and is worth nothing is not relevant to it
        clicks = sum(sum(of.values()) for of in wanted.values())
        expected |= {"map": np.mean([one["map"] for one in clicked])}
        expected |= {"mrr": np.mean([one["recip_rank"] for one in clicked])}
        for k in KS:
            expected[f"map_{k}"] = np.mean([one[f"map_cut_{k}"] for one in clicked])
            expected[f"recall_{k}"] = np.mean([one[f"recall_{k}"] for one in clicked])
            expected[f"precision_{k}"] = np.mean([one[f"P_{k}"] for one in each])
            expected[f"hit_rate_{k}"] = np.mean([one[f"success_{k}"] for one in each])
            expected[f"click_hit_rate_{k}"] = sum(k * one[f"P_{k}"] for one in each) / clicks
    metrics = result(run(rows, gain)).metrics
    assert metrics["requests"] == len(wanted) > 3_000
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("gain", ["click", "value"])
def test_ranx_found_the_same(gain: str) -> None:
    metrics = result(run(untied(*JUDGED), gain)).metrics
    assert {name: metrics[name] for name in RANX[gain]} == pytest.approx(RANX[gain], abs=1e-9)

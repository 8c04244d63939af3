"""Ranking metrics against trec_eval, on a log without ties: how it breaks them depends on the names of documents."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import pytrec_eval

from tests.ranked_lists import Row, log, result, run

KS = (1, 3, 10)
MEASURES = {f"{name}.{','.join(map(str, KS))}" for name in ("ndcg_cut", "map_cut", "P", "recall", "success")}


def untied(n: int, seed: int) -> list[Row]:
    """Scores that are all different, also in the 32 bits that trec_eval keeps of them; no shadow version."""
    rows = log(n, seed)
    scores = (np.random.default_rng(seed).permutation(len(rows)) + 1) / (len(rows) + 1)
    return [replace(r, event=replace(r.event, pclick=float(p)), shadow=None) for r, p in zip(rows, scores, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("gain", ["click", "value"])
def test_trec_eval_finds_the_same(gain: str) -> None:
    rows = untied(40_000, seed=3)
    wanted: defaultdict[str, dict[str, int]] = defaultdict(dict)
    ranked: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        if row.event.request and row.event.version == "v1":
            gained = int(row.value) if gain == "value" else 1
            wanted[row.event.request][row.event.id] = gained if row.clicked else 0
            ranked[row.event.request][row.event.id] = row.event.pclick
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

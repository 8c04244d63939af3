"""Reference curves of the AUC difference, computed once or every hour: the error of the estimate, in standard errors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.world import SCENARIOS, World, warm
from streameval.compare.evidence import paired
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BlockSums

HOURS = (2, 8, 24)


def error(seed: int, scenario: str, refresh: bool) -> NDArray[np.float64]:
    """(estimate - exact AUC difference of the same impressions) / standard error after HOURS, with first curves from two hours."""
    world = World(seed)
    candidate = SCENARIOS[scenario]
    warm(world, candidate)
    minutes, (old, new, y) = world.day(0, candidate, refresh=refresh, rows=())
    count = minutes.pair.blocks[..., cells.PAIR_N].sum(axis=1).cumsum()
    out = []
    for hour in HOURS:
        part = slice(0, 60 * hour)
        n = int(count[60 * hour - 1])
        sums = BlockSums(minutes.pair.blocks[part].sum(axis=0), minutes.pair.scalars[part].sum(axis=0))
        s = paired.statistics(sums)["auc"]
        exact = _auc(new[:n], y[:n]) - _auc(old[:n], y[:n])
        out.append((-float(s.theta) - exact) / float(s.stderr()))
    return np.array(out)


def _auc(score: NDArray[np.float64], y: NDArray[np.bool_]) -> float:
    order = np.argsort(score, kind="stable")
    ranks = np.empty(score.size)
    ranks[order] = np.arange(1, score.size + 1)
    positives = int(y.sum())
    return float((ranks[y].sum() - positives * (positives + 1) / 2) / (positives * (score.size - positives)))

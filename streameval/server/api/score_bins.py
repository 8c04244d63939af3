"""A score histogram with few bins: log-spaced in odds, each edge moved to an edge of the sketch's bins.

So every count is exact: a bin here consists of whole bins of the sketch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.metrics.tables import ScoreCounts

_NEAREST = 2.0**-24  # to 0 or 1: the sketch's outermost bins hold everything beyond
_AFTER_HALF = 0.5 + 2.0**-9  # an edge of every sketch, of slices and overall


@dataclass(frozen=True, slots=True)
class ScoreBins:
    """Bin i has the scores in [edges[i], edges[i + 1]); no bins for no scores."""

    edges: NDArray[np.float64]  # [k + 1], increasing
    impressions: NDArray[np.int64]  # [k]
    clicks: NDArray[np.int64]  # [k]


def score_bins(scores: ScoreCounts, bins: int) -> ScoreBins:
    """At most `bins` bins over the range that scores occupy; fewer where the sketch has no more."""
    order = np.argsort(scores.lower, kind="stable")
    lower, upper = scores.lower[order], scores.upper[order]
    if not lower.size:
        nothing = np.empty(0, np.int64)
        return ScoreBins(np.empty(0), nothing, nothing)
    if lower[-1] == upper[-1]:  # the sketch's bin of 1/2 has no width, and ours end before their upper edge
        upper[-1] = _AFTER_HALF
    ends = np.clip([lower[0], upper[-1]], _NEAREST, 1 - _NEAREST)
    odds = np.log(ends) - np.log1p(-ends)
    wanted = 1 / (1 + np.exp(-np.linspace(odds[0], odds[1], bins + 1)[1:-1]))
    edges = np.unique(np.concatenate((lower[:1], _beside(wanted, lower, upper), upper[-1:])))
    at = np.searchsorted(edges, lower, side="right") - 1
    positives, negatives = scores.positives[order], scores.negatives[order]
    clicks, others = (np.zeros(edges.size - 1, np.int64) for _ in range(2))
    np.add.at(clicks, at, positives)
    np.add.at(others, at, negatives)
    return ScoreBins(edges, clicks + others, clicks)


def _beside(wanted: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each wanted edge, or the nearer end of the used bin that it would cut. Between used bins every edge is exact."""
    at = np.clip(np.searchsorted(lower, wanted, side="right") - 1, 0, None)
    cuts = (lower[at] < wanted) & (wanted < upper[at])
    nearer = np.where(wanted - lower[at] <= upper[at] - wanted, lower[at], upper[at])
    return np.clip(np.where(cuts, nearer, wanted), lower[0], upper[-1])

"""AUC: the probability that a random click outscores a random non-click, ties counted 1/2 (Fawcett 2006)."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.ranks import concordant_pairs


@numba.njit(cache=True, nogil=True)
def _binned(negatives: NDArray[np.int64], positives: NDArray[np.int64]) -> tuple[float, float, float, float]:
    """(concordant, tied, P, N) as float64, which no number of events overflows."""
    concordant = 0.0
    tied = 0.0
    below = 0.0
    p = 0.0
    for b in range(negatives.size):
        if negatives[b] == 0 and positives[b] == 0:
            continue
        neg = float(negatives[b])
        pos = float(positives[b])
        concordant += pos * below
        tied += pos * neg
        below += neg
        p += pos
    return concordant, tied, p, below


def binned_auc(negatives: NDArray[np.int64], positives: NDArray[np.int64]) -> tuple[float, float] | None:
    """(auc, error) of a score histogram (int64 counts per bin, lowest scores first); None when a class is missing.

    Inside a bin every pair counts 1/2, so the exact AUC of the scores is certainly within [auc - error, auc + error],
    error = sum_b pos_b neg_b / (2 P N).
    """
    concordant, tied, p, n = _binned(negatives, positives)
    if p == 0 or n == 0:
        return None
    return (concordant + tied / 2) / (p * n), tied / (2 * p * n)


@numba.njit(cache=True, nogil=True)
def _ranked(scores: NDArray[np.uint64]) -> tuple[int, int]:
    return concordant_pairs(scores, scores.size)


def ranked_auc(sorted_scores: NDArray[np.uint64]) -> float | None:
    """The exact AUC of sorted `grid.score_bits`, uint64[n]; None when a class is missing.

    Up to 2**31 scores: the doubled pair count then stays below 2**62.
    """
    pairs, clicks = _ranked(sorted_scores)
    others = sorted_scores.size - clicks
    if clicks == 0 or others == 0:
        return None
    return float(pairs) / (2.0 * float(clicks) * float(others))

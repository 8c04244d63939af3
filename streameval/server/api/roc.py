"""The ROC curve of a score histogram: exact points, thinned without moving any.

Points go from (0, 0), where nothing is predicted a click, to (1, 1). Between two neighbouring bins the curve is the
straight line that counts ties by halves, so the area under all points is the binned AUC.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.metrics.tables import ScoreCounts


@dataclass(frozen=True, slots=True)
class _Roc:
    """Points of the curve; `threshold[i]` is the lowest score predicted a click there, NaN at (0, 0)."""

    threshold: NDArray[np.float64]  # [k]
    false_positives: NDArray[np.int64]  # [k] non-clicks at or above the threshold
    true_positives: NDArray[np.int64]  # [k] clicks at or above the threshold
    points: int  # before thinning

    @property
    def false_positive_rate(self) -> NDArray[np.float64]:
        """False positives over all non-clicks."""
        return self.false_positives / float(self.false_positives[-1])

    @property
    def true_positive_rate(self) -> NDArray[np.float64]:
        """True positives over all clicks."""
        return self.true_positives / float(self.true_positives[-1])


def roc_curve(scores: ScoreCounts, max_points: int) -> _Roc | None:
    """At most `max_points` (2 or more) points of the curve; None when clicks or non-clicks are missing.

    Points in the middle of a straight line go first: without them the curve is the same. If there are still too many,
    points evenly spaced along fpr + tpr are kept; both ends always are, and a kept point is never moved.
    """
    down = np.argsort(scores.lower, kind="stable")[::-1]
    fp = np.concatenate(([0], np.cumsum(scores.negatives[down])))
    tp = np.concatenate(([0], np.cumsum(scores.positives[down])))
    if fp[-1] == 0 or tp[-1] == 0:
        return None
    threshold = np.concatenate(([np.nan], scores.lower[down]))
    keep = _corners(fp, tp)
    if len(keep) > max_points:
        along = fp[keep] / float(fp[-1]) + tp[keep] / float(tp[-1])
        wanted = np.linspace(0.0, 2.0, max_points)
        right = np.searchsorted(along, wanted).clip(1, len(keep) - 1)
        nearest = np.where(wanted - along[right - 1] <= along[right] - wanted, right - 1, right)
        nearest[0], nearest[-1] = 0, len(keep) - 1
        keep = keep[np.unique(nearest)]
    return _Roc(threshold[keep], fp[keep], tp[keep], len(fp))


def _corners(fp: NDArray[np.int64], tp: NDArray[np.int64]) -> NDArray[np.intp]:
    """The points where the direction changes, and both ends. Differences are exact; products may round above 2**53."""
    x, y = np.diff(fp).astype(np.float64), np.diff(tp).astype(np.float64)
    turns = np.flatnonzero(x[:-1] * y[1:] != x[1:] * y[:-1]) + 1
    return np.concatenate(([0], turns, [len(fp) - 1]))

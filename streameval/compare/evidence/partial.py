"""The difference of two versions' partial AUCs: from a pair's piece to a `Statistic`, on the standardised scale.

theta = -(mean over clicks + mean over non-clicks of how much higher the other version places them), as for AUC
(`paired`), times 1 / ((high - low) (2 - low - high)), so that 0.5 is chance and 1 perfect whatever the range (McClish
1989).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streameval.compare.evidence.paired import COVERED
from streameval.compare.evidence.ratio import Ints, Reals, Statistic, two_means, where_clustered
from streameval.compare.ledger.partial import (
    P_ITEMS,
    P_N,
    P_PHI0,
    P_PHI0_SQ,
    P_PHI1,
    P_PHI1_SQ,
    P_SERVER0,
    P_SERVER1,
    P_USERS,
    P_Y,
    PAUC_CELLS,
)
from streameval.metrics.auc import standardised, standardised_width
from streameval.sketches.blocks import BLOCKS, SCALE


class PartialAuc:
    """The partial AUC over false positive rates in [low, high]."""

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, high

    def turned(self, piece: Ints) -> Ints:
        """Converts a piece of (candidate served, baseline scored) to (baseline, candidate), int64[..., width]; its own
        inverse.
        """
        out = piece.copy()
        users = _cells(piece, P_USERS)
        for own, phi in ((P_SERVER1, P_PHI1), (P_SERVER0, P_PHI0)):
            out[..., own] += users[..., phi].sum(axis=-1)
        for side in (P_USERS, P_ITEMS):
            _cells(out, side)[..., (P_PHI1, P_PHI0)] *= -1
        return out

    def statistic(self, piece: Ints) -> Statistic:
        """From pieces int64[..., width]: the statistic in harm, [...]."""
        by_user = _two_means(_cells(piece, P_USERS), piece[..., P_PHI1_SQ] / SCALE, piece[..., P_PHI0_SQ] / SCALE)
        items = _cells(piece, P_ITEMS)
        covered = items[..., P_N].sum(axis=-1) >= COVERED * _cells(piece, P_USERS)[..., P_N].sum(axis=-1)
        found = where_clustered(covered, by_user, _two_means(items, 0.0, 0.0))
        scale = standardised_width(1.0, self._low, self._high)
        theta, v_clu, v_iid = found.theta * scale, found.v_clu * scale**2, found.v_iid * scale**2
        return replace(found, theta=theta, v_clu=v_clu, v_iid=v_iid)

    def levels(self, piece: Ints) -> tuple[float | None, float | None]:
        """Returns the standardised partial AUC of baseline and candidate, from a piece int64[width]; None: a label is
        missing.
        """
        n, y, phi1, phi0 = _cells(piece, P_USERS).sum(axis=0).tolist()
        if not 0 < y < n:
            return None, None
        own = piece[P_SERVER1] / y + piece[P_SERVER0] / (n - y)
        areas = own / SCALE, (own + phi1 / y + phi0 / (n - y)) / SCALE
        old, new = (float(standardised(area, self._low, self._high)) for area in areas)
        return old, new

    def reason(self, piece: Ints) -> str | None:
        """Returns why a piece gives no estimate; None if it does."""
        return None if np.isfinite(self.statistic(piece).theta) else "too_few_clicks"


def _cells(piece: Ints, side: int) -> Ints:
    return piece[..., side : side + BLOCKS * PAUC_CELLS].reshape(*piece.shape[:-1], BLOCKS, PAUC_CELLS)


def _two_means(cells: Ints, clicks: Reals | float, others: Reals | float) -> Statistic:
    y, n = cells[..., P_Y].astype(np.float64), cells[..., P_N].astype(np.float64)
    return two_means(-cells[..., P_PHI1] / SCALE, y, -cells[..., P_PHI0] / SCALE, n - y, clicks, others)

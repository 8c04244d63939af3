"""Metrics of single users, as columns: NaN where undefined.

Inputs are columns of u users: `impressions`, `clicks` (int64), `pairs` (int64, twice the concordant pairs of a click
and a non-click, ties counted once), `predicted_clicks` and `log_loss_nats` (float64 sums).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_Counts = NDArray[np.int64]
_Reals = NDArray[np.float64]


def user_auc(impressions: _Counts, clicks: _Counts, pairs: _Counts) -> _Reals:
    """pairs / (2 P N) per user; undefined without both labels."""
    both = 2.0 * clicks.astype(np.float64) * (impressions - clicks).astype(np.float64)
    return _divided(pairs.astype(np.float64), both)


def user_log_loss(impressions: _Counts, log_loss_nats: _Reals) -> _Reals:
    """Mean log loss per user, nats; undefined without impressions."""
    return _divided(log_loss_nats, impressions.astype(np.float64))


def user_calibration(clicks: _Counts, predicted_clicks: _Reals) -> _Reals:
    """Predicted clicks over clicks per user; undefined without clicks."""
    return _divided(predicted_clicks, clicks.astype(np.float64))


def _divided(above: _Reals, below: _Reals) -> _Reals:
    out = np.full(len(above), np.nan)
    np.divide(above, below, out=out, where=below != 0)
    return out

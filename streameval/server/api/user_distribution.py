"""How a metric of single users is distributed over the users of one series: sums only, no single user.

A pass over the columns takes about 0.1 s for a million users. So its result is kept as long as the columns live, and
one pass runs at a time.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Series
from streameval.metrics.users import user_auc, user_calibration, user_log_loss
from streameval.results.snapshot import UserColumns

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_TAIL = 0.005  # of the users at either end share a bin, so that one odd user does not stretch all of them
_KEPT = 64  # answers


@dataclass(frozen=True, slots=True)
class Distribution:
    """Bin i has the users whose metric is in [edges[i], edges[i + 1]), the last one closed; no bins for no users."""

    edges: tuple[float, ...]  # k + 1
    users: tuple[int, ...]  # k
    impressions: tuple[int, ...]  # k, of these users
    quantiles: tuple[float, ...]  # at `QUANTILES`, of users alike; () for no users
    total: int  # users
    undefined: int  # of them


class Distributions:
    """Computes distributions, and keeps the latest. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Series, str, int], tuple[weakref.ref[NDArray[np.uint64]], Distribution]]
        self._kept = OrderedDict()

    def of(self, users: UserColumns, series: Series, metric: str, bins: int) -> Distribution:
        """The distribution of a metric (auc, log_loss, calibration or impressions) in at most `bins` bins."""
        key = (series, metric, bins)
        with self._lock:
            held = self._kept.get(key)
            if held is None or held[0]() is not users.user:  # other columns: there were new ones since
                held = (weakref.ref(users.user), distribution(users, metric, bins))
                self._kept[key] = held
            self._kept.move_to_end(key)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return held[1]


def distribution(users: UserColumns, metric: str, bins: int) -> Distribution:
    """One pass over the columns."""
    value = {
        "auc": lambda: user_auc(users.impressions, users.clicks, users.pairs),
        "log_loss": lambda: user_log_loss(users.impressions, users.log_loss_nats),
        "calibration": lambda: user_calibration(users.clicks, users.predicted_clicks),
        "impressions": lambda: users.impressions.astype(np.float64),
    }[metric]()
    defined = np.isfinite(value)
    if not defined.any():
        return Distribution((), (), (), (), len(users), len(users))
    value, impressions = value[defined], users.impressions[defined]
    edges = _edges(value, metric, bins)
    at = np.clip(np.searchsorted(edges, value, side="right") - 1, 0, edges.size - 2)
    return Distribution(
        edges=tuple(edges.tolist()),
        users=tuple(np.bincount(at, minlength=edges.size - 1).tolist()),
        # sums in float64: exact up to 2**53 impressions
        impressions=tuple(int(n) for n in np.bincount(at, impressions, edges.size - 1)),
        quantiles=tuple(np.quantile(value, QUANTILES).tolist()),
        total=len(users),
        undefined=len(users) - value.size,
    )


def _edges(value: NDArray[np.float64], metric: str, bins: int) -> NDArray[np.float64]:
    """AUC: equal steps from 0 to 1. Others: equal ratios between the tails, whole numbers for impressions."""
    if metric == "auc":
        return np.linspace(0.0, 1.0, bins + 1)
    lowest, highest = float(value.min()), float(value.max())
    if metric == "impressions":
        return np.unique(np.rint(np.geomspace(max(lowest, 1.0), highest + 1, bins + 1)))
    low, high = np.quantile(value, (_TAIL, 1 - _TAIL)).tolist()
    low = low if low > 0 else min(high, float(value[value > 0].min(initial=math.inf)))
    if not 0 < low < high:
        return np.array([lowest, highest if highest > lowest else math.nextafter(lowest, math.inf)])
    inner = np.geomspace(low, high, bins + 1)[1:-1]
    return np.unique(np.concatenate(([lowest], inner, [highest])))

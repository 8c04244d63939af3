"""The scalar kernel behind `evidence.Evidence.advance`: look by look, so any way to cut looks into calls gives the same bits.

`packed` float64[P, 4, 5, T, J]: theta, W, variance, df of every leaf, of P = 2 processes (all, and capped; see `evidence`) at T looks at
J windows; NaN is no evidence. `frozen` float64[P, windows, FROZEN]: what was fixed at a process's first look with enough.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare import joint
from streameval.compare.eprocess import log_mixture, normal_score

Reals = NDArray[np.float64]
LOG_LOSS, AUC, GAUC, CALIBRATION = range(4)  # metrics; calibration has two leaves, its own and the one behind it
JOINT, SCALE = 5, 6  # columns of `frozen` behind the leaves: V of a click of the joint statistic, and its c
FROZEN = 7


@numba.njit(cache=True)
def advance(
    elapsed: NDArray[np.int64], at: NDArray[np.int64], clicks: NDArray[np.int64], packed: Reals, correlation: Reals,
    given: NDArray[np.bool_], strict: Reals, margins: Reals, tolerances: Reals, log_weights: Reals, log_parts: Reals,
    certified: NDArray[np.bool_], log_windows: Reals, rhos: Reals, rho: float, frozen: Reals, peak: Reals,
    found: NDArray[np.int64], level: float, spent: float, min_duration: int, min_clicks: int,
    worse: Reals, not_worse: Reals, standing: NDArray[np.int8],
) -> None:  # fmt: skip
    """`clicks` int64[P, T, J], `given` bool[P, 5] (which leaves there are), `log_parts` float64[3]: weights in the overall
    verdict of log loss, AUC and both together, whose mixtures have `rho`, `spent` and `level`: log of what the overall verdict
    and the others must reach. Fills worse, not_worse float64[T, 5] and standing int8[T, 5]; changes frozen, peak and found.
    """
    _, looks, begun = clicks.shape
    metrics, parts, own = margins.size, np.empty(3), np.empty(margins.size)
    for t in range(looks):
        parts[:] = -math.inf  # log loss, AUC and both together, for the overall verdict
        worse[t], not_worse[t] = -math.inf, 0.0
        for j in range(log_windows.size):
            on = j < begun and clicks[0, t, j] >= min_clicks
            for m in range(metrics):
                value = 0.0  # e = 1: no window, no statistic, or not enough of it
                if on:
                    value = _worse_of(t, j, m, clicks, packed, given, margins, frozen, rhos[j])
                    if j == 0 and _ready(m, packed[0, :, :, t, 0], frozen[0, 0], clicks[0, t, 0]):
                        not_worse[t, m] = _not_worse(
                            m, packed[0, :, :, t, 0], tolerances[m], frozen[0, 0], rhos[0]
                        )  # fmt: skip
                own[m] = value
                worse[t, m] = np.logaddexp(worse[t, m], log_windows[j] + value)
            for k in range(3):
                value = 0.0
                if on and k < 2:
                    value = (
                        own[k] if rhos[j] == rho else _worse_of(t, j, k, clicks, packed, given, margins, frozen, rho)
                    )
                elif on:
                    value = _joint_of(t, j, clicks, packed, correlation, given, margins, frozen, rho)
                parts[k] = np.logaddexp(parts[k], log_windows[j] + value)
        total = -math.inf
        for k in range(3):
            total = np.logaddexp(total, log_parts[k] + parts[k])
        least = math.inf
        for m in range(metrics):
            if m >= GAUC:
                total = np.logaddexp(total, log_weights[m] + worse[t, m])
            if certified[m]:
                least = min(least, not_worse[t, m])
        total = told(total, level, spent)
        if not math.isnan(strict[t]):
            worse[t, LOG_LOSS] = total = strict[t]
        worse[t, metrics] = total
        not_worse[t, metrics] = least
        if elapsed[t] >= min_duration and begun > 0 and clicks[0, t, 0] >= min_clicks:
            for m in range(metrics + 1):
                peak[m, 0] = max(peak[m, 0], worse[t, m])
                peak[m, 1] = max(peak[m, 1], not_worse[t, m])
                if worse[t, m] >= level and found[m, 0] < 0:
                    found[m, 0] = at[t]
                if not_worse[t, m] >= level and found[m, 1] < 0:
                    found[m, 1] = at[t]
        for m in range(metrics + 1):
            standing[t, m] = 1 if found[m, 0] >= 0 else (2 if found[m, 1] >= 0 else 0)


@numba.njit(cache=True)
def told(total: float, level: float, spent: float) -> float:
    """Evidence whose level is `spent`, on the scale of one whose level is `level`: 0 stays 0, and `spent` becomes `level`."""
    if total <= 0.0:
        return total
    if total < spent:
        return total * (level / spent)
    return total + (level - spent)


@numba.njit(cache=True)
def _worse_of(
    t: int, j: int, m: int, clicks: NDArray[np.int64], packed: Reals, given: NDArray[np.bool_], margins: Reals,
    frozen: Reals, rho: float,
) -> float:  # fmt: skip
    """log of the mean e over the processes that have the metric; one that has not enough counts 1."""
    total, some = -math.inf, 0
    for p in range(clicks.shape[0]):
        if given[p, m]:
            some += 1
            value = 0.0
            if _ready(m, packed[p, :, :, t, j], frozen[p, j], clicks[p, t, j]):
                value = _worse(m, packed[p, :, :, t, j], margins[m], frozen[p, j], rho)
            total = np.logaddexp(total, value)
    return total - math.log(some) if some else 0.0


@numba.njit(cache=True)
def _joint_of(
    t: int, j: int, clicks: NDArray[np.int64], packed: Reals, correlation: Reals, given: NDArray[np.bool_],
    margins: Reals, frozen: Reals, rho: float,
) -> float:  # fmt: skip
    """The same of the joint statistic; without an AUC there is none."""
    total, some = -math.inf, 0
    for p in range(clicks.shape[0]):
        if given[p, LOG_LOSS] and given[p, AUC]:
            some += 1
            value = 0.0
            of, fixed = packed[p, :, :, t, j], frozen[p, j]
            ready = _ready(LOG_LOSS, of, fixed, clicks[p, t, j])
            if _ready(AUC, of, fixed, clicks[p, t, j]) and ready:
                value = _joint(of, correlation[p, t, j], margins, fixed, clicks[p, t, j], rho)
            total = np.logaddexp(total, value)
    return total - math.log(some) if some else 0.0


@numba.njit(cache=True)
def _ready(m: int, of: Reals, frozen: Reals, clicks: int) -> bool:
    """Whether a metric's leaves are defined; V of a click is fixed when they are for the first time."""
    ready = clicks > 0
    for i in range(m, m + 2 if m == CALIBRATION else m + 1):
        if not (clicks > 0 and of[2, i] > 0.0):
            ready = False
        elif math.isnan(frozen[i]):
            frozen[i] = of[2, i] * of[1, i] ** 2 / clicks
    return ready


@numba.njit(cache=True)
def _leaf(sign: float, beyond: float, of: Reals, i: int, frozen: Reals, rho: float) -> float:
    """log e of sign * theta > beyond."""
    variance = of[2, i] * of[1, i] * of[1, i]
    score = normal_score((sign * of[0, i] - beyond) / math.sqrt(of[2, i]), of[3, i])
    return log_mixture(score * math.sqrt(variance), variance, frozen[i] * rho)


@numba.njit(cache=True)
def _worse(m: int, of: Reals, margin: float, frozen: Reals, rho: float) -> float:
    up = _leaf(1.0, margin, of, m, frozen, rho)
    if m != CALIBRATION:
        return up
    down = min(_leaf(-1.0, margin, of, m, frozen, rho), _leaf(-1.0, margin, of, m + 1, frozen, rho))
    up = min(up, _leaf(1.0, margin, of, m + 1, frozen, rho))
    return np.logaddexp(up, down) - math.log(2.0)


@numba.njit(cache=True)
def _not_worse(m: int, of: Reals, tolerance: float, frozen: Reals, rho: float) -> float:
    below = _leaf(-1.0, -tolerance, of, m, frozen, rho)
    if m != CALIBRATION:
        return below
    above = np.logaddexp(_leaf(1.0, -tolerance, of, m, frozen, rho), _leaf(1.0, -tolerance, of, m + 1, frozen, rho))
    below = np.logaddexp(below, _leaf(-1.0, -tolerance, of, m + 1, frozen, rho))
    return min(below, above) - math.log(2.0)


@numba.njit(cache=True)
def _joint(of: Reals, r: float, margins: Reals, frozen: Reals, clicks: int, rho: float) -> float:
    """log e of theta_LL + c theta_AUC beyond its margin; c and V of a click are fixed the first time."""
    if math.isnan(frozen[SCALE]):
        frozen[SCALE] = joint.scale(of[2, LOG_LOSS], of[2, AUC])
    c = frozen[SCALE]
    theta = of[0, LOG_LOSS] - margins[LOG_LOSS] + c * (of[0, AUC] - margins[AUC])
    v = joint.variance(of[2, LOG_LOSS], of[2, AUC], c, r)
    variance = v * of[1, LOG_LOSS] * of[1, LOG_LOSS]
    if math.isnan(frozen[JOINT]):
        frozen[JOINT] = variance / clicks
    s = normal_score(theta / math.sqrt(v), min(of[3, LOG_LOSS], of[3, AUC])) * math.sqrt(variance)
    return log_mixture(s, variance, frozen[JOINT] * rho)

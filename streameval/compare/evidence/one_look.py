"""The scalar kernel behind `evidence.Evidence.advance`: look by look, so however the looks are divided into calls, the
bits are the same."""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.evidence import joint
from streameval.compare.evidence.eprocess import log_mixture, normal_score
from streameval.compare.evidence.packed_statistics import LEAF_DF, LEAF_THETA, LEAF_VARIANCE, LEAF_WEIGHT

_Reals = NDArray[np.float64]
_LOG_LOSS, _AUC, _GAUC, _CALIBRATION = range(4)  # metrics; calibration has two leaves, its own and the next one
_JOINT, _COEFFICIENT = 5, 6  # columns of `frozen` after the leaves: the joint statistic's V per click, and its c
FROZEN = 7
PARTS = (_LOG_LOSS, _AUC, _JOINT)  # these mostly agree, and share one weight in the overall verdict
_WORSE, _NOT_WORSE = range(2)  # columns of `peak` and `found`


class LookColumns(NamedTuple):
    """T looks at J windows by P = 2 processes: all impressions, and each user's impressions capped (see `evidence`)."""

    elapsed: NDArray[np.int64]  # [T] ms
    at: NDArray[np.int64]  # [T] ms
    clicks: NDArray[np.int64]  # [P, T, J]
    leaves: _Reals  # [P, 4, 5, T, J], by field (THETA ... DF) and leaf; NaN is no evidence
    correlation: _Reals  # [P, T, J] of log loss and AUC
    given: NDArray[np.bool_]  # [P, 5], which leaves are given
    strict: _Reals  # [T] log e of the strict mode; NaN: it is off
    more_worse: _Reals  # [T] log of what further metrics add to the overall mean; -inf: nothing
    more_not_worse: _Reals  # [T] the smallest log e of further metrics; inf: there are none


class RuleColumns(NamedTuple):
    """The rule; by metric, unless stated otherwise."""

    margins: _Reals
    tolerances: _Reals
    log_weights: _Reals
    log_parts: _Reals  # [3], weights of PARTS
    certified: NDArray[np.bool_]
    log_windows: _Reals  # [windows], their weights
    rhos: _Reals  # [windows], for the metrics' own mixtures
    rho: float  # for the mixtures of PARTS in the overall verdict
    level: float  # log of what a metric must reach
    spent: float  # log of what the overall verdict must reach
    min_duration: int  # ms
    min_clicks: int


class Kept(NamedTuple):
    """The state that looks leave behind; rows of `peak` and `found` are metrics and, last, the overall verdict."""

    frozen: _Reals  # [P, windows, FROZEN], fixed at a process's first look with enough clicks and blocks
    peak: _Reals  # [5, 2], largest log e
    found: NDArray[np.int64]  # [5, 2], ms; -1: not yet


class Path(NamedTuple):
    """The looks of one `advance`, oldest first. Columns are METRICS and, last, the overall verdict."""

    log_e_worse: _Reals  # [T, 5]
    log_e_not_worse: _Reals  # [T, 5]
    verdict: NDArray[np.int8]  # [T, 5], current after the look: 0 undecided, 1 worse, 2 not_worse


@numba.njit(cache=True)
def advance(looks: LookColumns, terms: RuleColumns, kept: Kept, path: Path) -> None:
    """Fills `path` and updates `kept`."""
    processes, count, begun = looks.clicks.shape
    clicks, leaves, given, correlation = looks.clicks, looks.leaves, looks.given, looks.correlation
    margins, log_windows, rhos, frozen = terms.margins, terms.log_windows, terms.rhos, kept.frozen
    worse, not_worse = path.log_e_worse, path.log_e_not_worse
    metrics, parts, own = margins.size, np.empty(len(PARTS)), np.empty(margins.size)

    def worse_of(t: int, j: int, m: int, rho: float) -> float:
        """Returns the log of the mean e over the processes that have a metric (JOINT: both log loss and AUC); 1 where
        there is not enough.
        """
        total, some = -math.inf, 0
        for p in range(processes):
            if not (given[p, _LOG_LOSS] and given[p, _AUC] if m == _JOINT else given[p, m]):
                continue
            of, fixed, value = leaves[p, :, :, t, j], frozen[p, j], 0.0
            if m == _JOINT:
                ready = _ready(_LOG_LOSS, of, fixed, clicks[p, t, j])
                if _ready(_AUC, of, fixed, clicks[p, t, j]) and ready:
                    value = _joint(of, correlation[p, t, j], margins, fixed, clicks[p, t, j], rho)
            elif _ready(m, of, fixed, clicks[p, t, j]):
                value = _worse(m, of, margins[m], fixed, rho)
            some += 1
            total = np.logaddexp(total, value)
        return total - math.log(some) if some else 0.0

    for t in range(count):
        parts[:] = -math.inf
        worse[t], not_worse[t] = -math.inf, 0.0
        for j in range(log_windows.size):
            # otherwise e = 1, as it is without a statistic, or without enough of one
            on = j < begun and clicks[0, t, j] >= terms.min_clicks
            for m in range(metrics):
                own[m] = worse_of(t, j, m, rhos[j]) if on else 0.0
                if on and j == 0 and _ready(m, leaves[0, :, :, t, 0], frozen[0, 0], clicks[0, t, 0]):
                    of, tolerance = leaves[0, :, :, t, 0], terms.tolerances[m]
                    not_worse[t, m] = _not_worse(m, of, tolerance, frozen[0, 0], rhos[0])
                worse[t, m] = np.logaddexp(worse[t, m], log_windows[j] + own[m])
            for k in range(len(PARTS)):
                value = 0.0
                if on and PARTS[k] != _JOINT and rhos[j] == terms.rho:
                    value = own[PARTS[k]]
                elif on:
                    value = worse_of(t, j, PARTS[k], terms.rho)
                parts[k] = np.logaddexp(parts[k], log_windows[j] + value)
        total, least = looks.more_worse[t], looks.more_not_worse[t]
        for k in range(len(PARTS)):
            total = np.logaddexp(total, terms.log_parts[k] + parts[k])
        for m in range(metrics):
            if m >= _GAUC:  # the others are in the parts
                total = np.logaddexp(total, terms.log_weights[m] + worse[t, m])
            if terms.certified[m]:
                least = min(least, not_worse[t, m])
        total = rescaled(total, terms.level, terms.spent)
        if not math.isnan(looks.strict[t]):
            worse[t, _LOG_LOSS] = total = looks.strict[t]
        worse[t, metrics], not_worse[t, metrics] = total, least
        if looks.elapsed[t] >= terms.min_duration and begun > 0 and clicks[0, t, 0] >= terms.min_clicks:
            for m in range(metrics + 1):
                _find(m, _WORSE, worse[t, m], looks.at[t], terms.level, kept)
                _find(m, _NOT_WORSE, not_worse[t, m], looks.at[t], terms.level, kept)
        for m in range(metrics + 1):
            path.verdict[t, m] = 1 if kept.found[m, _WORSE] >= 0 else (2 if kept.found[m, _NOT_WORSE] >= 0 else 0)


@numba.njit(inline="always")
def _find(m: int, side: int, log_e: float, at: int, level: float, kept: Kept) -> None:
    kept.peak[m, side] = max(kept.peak[m, side], log_e)
    if log_e >= level and kept.found[m, side] < 0:
        kept.found[m, side] = at


@numba.njit(cache=True)
def rescaled(total: float, level: float, spent: float) -> float:
    """Evidence whose level is `spent`, rescaled to `level`: 0 stays 0, and `spent` becomes `level`."""
    if total <= 0.0:
        return total
    if total < spent:
        return total * (level / spent)
    return total + (level - spent)


@numba.njit(cache=True)
def _ready(m: int, of: _Reals, frozen: _Reals, clicks: int) -> bool:
    """Whether a metric's leaves are defined; their V per click is fixed when they are defined for the first time."""
    ready = clicks > 0
    for i in range(m, m + 2 if m == _CALIBRATION else m + 1):
        if not (clicks > 0 and of[LEAF_VARIANCE, i] > 0.0):
            ready = False
        elif math.isnan(frozen[i]):
            frozen[i] = of[LEAF_VARIANCE, i] * of[LEAF_WEIGHT, i] ** 2 / clicks
    return ready


@numba.njit(cache=True)
def _leaf(sign: float, beyond: float, of: _Reals, i: int, frozen: _Reals, rho: float) -> float:
    """Returns log e of sign * theta > beyond."""
    variance = of[LEAF_VARIANCE, i] * of[LEAF_WEIGHT, i] * of[LEAF_WEIGHT, i]
    score = normal_score((sign * of[LEAF_THETA, i] - beyond) / math.sqrt(of[LEAF_VARIANCE, i]), of[LEAF_DF, i])
    return log_mixture(score * math.sqrt(variance), variance, frozen[i] * rho)


@numba.njit(cache=True)
def _worse(m: int, of: _Reals, margin: float, frozen: _Reals, rho: float) -> float:
    up = _leaf(1.0, margin, of, m, frozen, rho)
    if m != _CALIBRATION:
        return up
    down = min(_leaf(-1.0, margin, of, m, frozen, rho), _leaf(-1.0, margin, of, m + 1, frozen, rho))
    up = min(up, _leaf(1.0, margin, of, m + 1, frozen, rho))
    return np.logaddexp(up, down) - math.log(2.0)


@numba.njit(cache=True)
def _not_worse(m: int, of: _Reals, tolerance: float, frozen: _Reals, rho: float) -> float:
    below = _leaf(-1.0, -tolerance, of, m, frozen, rho)
    if m != _CALIBRATION:
        return below
    above = np.logaddexp(_leaf(1.0, -tolerance, of, m, frozen, rho), _leaf(1.0, -tolerance, of, m + 1, frozen, rho))
    below = np.logaddexp(below, _leaf(-1.0, -tolerance, of, m + 1, frozen, rho))
    return min(below, above) - math.log(2.0)


@numba.njit(cache=True)
def _joint(of: _Reals, r: float, margins: _Reals, frozen: _Reals, clicks: int, rho: float) -> float:
    """Returns log e of theta_LL + c theta_AUC beyond its margin; c and V per click are fixed the first time."""
    theta, v, df = of[LEAF_THETA], of[LEAF_VARIANCE], of[LEAF_DF]
    if math.isnan(frozen[_COEFFICIENT]):
        frozen[_COEFFICIENT] = joint.scale(v[_LOG_LOSS], v[_AUC])
    c = frozen[_COEFFICIENT]
    beyond = theta[_LOG_LOSS] - margins[_LOG_LOSS] + c * (theta[_AUC] - margins[_AUC])
    both = joint.variance(v[_LOG_LOSS], v[_AUC], c, r)
    variance = both * of[LEAF_WEIGHT, _LOG_LOSS] * of[LEAF_WEIGHT, _LOG_LOSS]
    if math.isnan(frozen[_JOINT]):
        frozen[_JOINT] = variance / clicks
    s = normal_score(beyond / math.sqrt(both), min(df[_LOG_LOSS], df[_AUC])) * math.sqrt(variance)
    return log_mixture(s, variance, frozen[_JOINT] * rho)

"""Evidence that may be checked at any time: the one-sided normal mixture, and how e-values are combined.

S is a sum with variance V whose mean is at most 0 under the null. With a half-normal prior over drifts,

    log e(S, V) = 1/2 log(4 rho / (V + rho)) + S**2 / (2 (V + rho)) + log Phi(S / sqrt(V + rho))

and P(e >= 1/alpha at any time) <= alpha (Robbins 1970; Howard, Ramdas, McAuliffe, Sekhon, Annals of Statistics 49(2),
2021, section 3.2). With an estimated V this holds asymptotically (Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas, Annals
of Statistics 2024). It is the same function as `OneSidedNormalMixture` of the confseq package. Under clustering, when V
is the variance of S and a user's returns correlate positively, the crossing probability is at most that of Brownian
motion at V (Slepian's inequality), so the bound still holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

_Reals = NDArray[np.float64]
_LOG_2PI = math.log(2 * math.pi)
_SQRT_HALF = math.sqrt(0.5)
_TAIL = -30.0  # of `log_normal_cdf`, from where on down it is the series
_MOST_EXPONENT = 700.0  # of e, in a double
_STEPS, _PRECISION = 50, 1e-14  # of Newton's method: at most, and relative


@numba.njit(cache=True)
def log_normal_cdf(x: float) -> float:
    """Returns log Phi(x), to 1e-14 relative; below -30 by the asymptotic series (Abramowitz and Stegun 26.2.12)."""
    if x > 0.0:
        return math.log1p(-0.5 * math.erfc(x * _SQRT_HALF))
    if x > _TAIL:
        return math.log(0.5 * math.erfc(-x * _SQRT_HALF))
    u = 1.0 / (x * x)
    return -0.5 * x * x - math.log(-x) - 0.5 * _LOG_2PI + math.log1p(-u * (1.0 - u * (3.0 - u * (15.0 - 105.0 * u))))


@numba.njit(cache=True)
def normal_score(t: float, df: float) -> float:
    """Returns the normal quantile of a t quantile: z with Phi(z) = T_df(t), within 0.1% for df >= 30 and z <= 10.

    Wallace 1959 (Annals of Mathematical Statistics 30:1124); from z = 2 on its error is conservative. It is in closed
    form, and invertible where the exact tails underflow. Negative t is returned unchanged: it is no evidence.
    """
    if t <= 0.0 or df <= 0.0:
        return min(t, 0.0)
    return (8.0 * df + 1.0) / (8.0 * df + 3.0) * math.sqrt(df * math.log1p(t * t / df))


@numba.njit(cache=True)
def t_score(z: float, df: float) -> float:
    """The inverse of `normal_score`."""
    if z <= 0.0:
        return z
    if df <= 0.0:
        return math.inf
    u = z * (8.0 * df + 3.0) / (8.0 * df + 1.0)
    if u * u / df > _MOST_EXPONENT:
        return math.inf
    return math.sqrt(df * math.expm1(u * u / df))


@numba.njit(cache=True)
def log_mixture(s: float, v: float, rho: float) -> float:
    """Returns log e(S, V) as above; V >= 0, rho > 0."""
    total = v + rho
    return 0.5 * math.log(4.0 * rho / total) + s * s / (2.0 * total) + log_normal_cdf(s / math.sqrt(total))


@numba.njit(cache=True)
def mixture_root(v: float, rho: float, level: float) -> float:
    """Returns the S >= 0 at which log e(S, V) = level >= 0. Newton from above on a convex increasing function: never
    overshoots.
    """
    total = v + rho
    target = level - 0.5 * math.log(4.0 * rho / total)
    x = math.sqrt(max(2.0 * (target + math.log(2.0)), 0.0))  # log Phi >= -log 2 on x >= 0, so the root is below
    for _ in range(_STEPS):
        log_cdf = log_normal_cdf(x)
        slope = x + math.exp(-0.5 * x * x - 0.5 * _LOG_2PI - log_cdf)
        step = (0.5 * x * x + log_cdf - target) / slope
        x -= step
        if step <= _PRECISION * x:
            break
    return max(x, 0.0) * math.sqrt(total)


@cache
def _each(function: Callable[..., float], arguments: int) -> Callable[..., _Reals]:
    """Returns the function for arrays. Built on first use: it takes a tenth of a second, too long for an import."""
    kinds = ",".join(["f8"] * arguments)
    made: Callable[..., _Reals] = numba.vectorize([f"f8({kinds})"], cache=True)(function)
    return made


def _log_e(s: float, v: float, rho: float) -> float:
    return log_mixture(s, v, rho)


def _root(v: float, rho: float, level: float) -> float:
    return mixture_root(v, rho, level)


def _to_normal(t: float, df: float) -> float:
    return normal_score(t, df)


def _to_t(z: float, df: float) -> float:
    return t_score(z, df)


def log_e(s: ArrayLike, v: ArrayLike, rho: ArrayLike, df: ArrayLike | None = None) -> _Reals:
    """Returns log e at sums s with variances v > 0, broadcast to float64[...]; `df`: the degrees of freedom if v is
    estimated.
    """
    s, v = np.asarray(s, np.float64), np.asarray(v, np.float64)
    if df is not None:
        root = np.sqrt(v)
        s = _each(_to_normal, 2)(s / root, df) * root
    out: _Reals = _each(_log_e, 3)(s, v, rho)
    return out


def half_width(v: ArrayLike, rho: ArrayLike, alpha: ArrayLike, df: ArrayLike | None = None) -> _Reals:
    """Returns the h with log_e(h, v, rho, df) = log(1/alpha): S - h is a lower confidence sequence of level 1 - alpha.
    float64[...].
    """
    v = np.asarray(v, np.float64)
    h: _Reals = _each(_root, 3)(v, rho, -np.log(alpha))
    if df is not None:
        root = np.sqrt(v)
        h = _each(_to_t, 2)(h / root, df) * root
    return h


def best_rho(v_opt: ArrayLike, alpha: float) -> _Reals:
    """Returns the rho whose boundary is lowest at V = v_opt, for alpha < 1/2 (Howard et al. 2021, eq. 25; confseq's
    `best_rho`).
    """
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha must be in (0, 1/2), not {alpha}")
    level = 2.0 * math.log(1.0 / (2.0 * alpha))
    return np.asarray(v_opt, np.float64) / (level + math.log1p(level))


def weighted_mean(log_es: ArrayLike, weights: Sequence[float] | _Reals) -> _Reals:
    """Returns the log of the weighted mean of e-values over the last axis, weights summing to 1: an e-value whatever
    their dependence.
    """
    log_es = np.asarray(log_es, np.float64)
    with np.errstate(divide="ignore"):
        terms = log_es + np.log(np.asarray(weights, np.float64))
    top = terms.max(axis=-1, keepdims=True)
    out: _Reals = top[..., 0] + np.log(np.exp(terms - top).sum(axis=-1))
    return out


def mean_log_e(
    theta: _Reals, weight: _Reals, variance: _Reals, df: _Reals, enough: NDArray[np.bool_], rhos: _Reals | None
) -> _Reals:
    """Returns log e of theta > 0 for K estimates, float64[K]: the mean over mixtures; 0 (no evidence) where `enough` is
    False.

    `weight` W: the scale on which evidence adds up, S = theta * W. `rhos` float64[k]; None: not known yet.
    """
    out = np.zeros(theta.size)
    on = enough & np.isfinite(theta) & (variance > 0) & (df > 0) & (weight > 0)
    if rhos is None or not on.any():
        return out
    s, v = theta[on] * weight[on], variance[on] * weight[on] ** 2
    each = log_e(s[:, None], v[:, None], rhos[None, :], df[on, None])
    out[on] = weighted_mean(each, np.full(rhos.size, 1.0 / rhos.size))
    return out


def e_bh(log_es: ArrayLike, alpha: float) -> NDArray[np.bool_]:
    """Returns which of K hypotheses are rejected with false discovery rate <= alpha, bool[K]; log e-values float64[K],
    any dependence.

    Wang and Ramdas, JRSS B 84(3), 2022: the k largest with e_(k) >= K / (k alpha), for the largest such k. The values
    must be current ones at one look (or at a stopping time); a running maximum is not an e-value.
    """
    values = np.asarray(log_es, np.float64)
    count = values.size
    order = np.argsort(-values, kind="stable")
    ranks = np.arange(1, count + 1)
    passed = np.flatnonzero(values[order] >= np.log(count / (ranks * alpha)))
    out = np.zeros(count, np.bool_)
    if passed.size:
        out[order[: passed[-1] + 1]] = True
    return out

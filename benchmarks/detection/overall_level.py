"""The level of the overall verdict, by Brownian motion: the value that a null's e-process reaches with probability alpha in a week.

A mean of e-processes reaches 1 / alpha with probability alpha only if its value at the end is 0. With a finite horizon some value is
left at the end, so the level can be lower. V counts clicks, from the floor to the most in a week; a new window begins every 28th. The
more clicks, the lower the level, so the table (`streameval.compare.evidence.overall_level`) is for very many, and conservative for fewer.

Importance sampling: paths are drawn with the drifts over which the mixture itself is a mean, and weighted at the crossing
by the likelihood ratio, which is the e-value without floors. So small probabilities cost no more than large ones.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.evidence.eprocess import best_rho, log_mixture
from streameval.compare.evidence.evidence import Rule
from streameval.compare.evidence.overall_level import OPTIMUM

ALPHAS = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.2, 0.4)
CLICKS = 1_000_000.0  # in the horizon
FLOOR = 200.0  # clicks of the first look
GROWTH = 1.0 / 256.0  # of V between looks: more looks than in the product


def crossing(
    alpha: float,
    level: float,
    paths: int,
    *,
    clicks: float = CLICKS,
    parts: tuple[float, ...] = (1.0,),
    seed: int = 1,
    plain: bool = False,
) -> tuple[float, float]:
    """Probability that the null's e-value ever reaches `level`, and its standard error.

    `clicks`: in the horizon. `parts`: weights of independent metrics of which it is the mean. `plain`: counts paths without
    drift instead, as a check.
    """
    rule = Rule(alpha=alpha)
    rng = np.random.default_rng([seed, paths])
    starts = clicks / rule.windows * np.arange(rule.windows)
    looks = [FLOOR]
    while looks[-1] < clicks:
        looks.append(min(looks[-1] * (1.0 + GROWTH), clicks))
    grid = np.unique(np.concatenate([[0.0], starts, looks]))
    rho = float(best_rho(OPTIMUM, alpha))
    at = np.searchsorted(grid, looks)
    begins = np.searchsorted(grid, starts)
    weights, shares = rule.window_weights(), np.array(parts)
    values = np.empty(paths)
    for i in range(paths):
        part = rng.choice(shares.size, p=shares)
        window = rng.choice(rule.windows, p=weights)
        drift = abs(rng.standard_normal()) / math.sqrt(rho)
        noise = rng.standard_normal((shares.size, grid.size - 1)) * np.sqrt(np.diff(grid))
        path = np.concatenate([np.zeros((shares.size, 1)), noise.cumsum(axis=1)], axis=1)
        if not plain:
            path[part] += drift * np.maximum(grid - starts[window], 0.0)
        found = _crossed(path, grid, at, begins, rho, weights, shares, math.log(level))
        values[i] = float(found > 0.0) if plain else found
    return float(values.mean()), float(values.std() / math.sqrt(paths))


def level(alpha: float, paths: int, clicks: float = CLICKS) -> float:
    """The level that a null's e-value reaches with probability alpha."""
    out = 0.7 / alpha
    for _ in range(4):
        out *= crossing(alpha, out, paths, clicks=clicks)[0] / alpha
    return out


@numba.njit(cache=True)
def _mean(
    path: NDArray[np.float64], grid: NDArray[np.float64], k: int, begins: NDArray[np.int64], rho: float,
    weights: NDArray[np.float64], floor: float,
) -> float:  # fmt: skip
    total = 0.0
    for j in range(begins.size):
        v = grid[k] - grid[begins[j]]
        value = 1.0
        if v > 0.0 and v >= floor:
            value = math.exp(min(log_mixture(path[k] - path[begins[j]], v, rho), 600.0))
        total += weights[j] * value
    return total


@numba.njit(cache=True)
def _crossed(
    path: NDArray[np.float64], grid: NDArray[np.float64], at: NDArray[np.int64], begins: NDArray[np.int64],
    rho: float, weights: NDArray[np.float64], shares: NDArray[np.float64], level: float,
) -> float:  # fmt: skip
    """1 over the likelihood ratio at the crossing; 0 without a crossing."""
    for k in at:
        e = 0.0
        for part in range(shares.size):
            e += shares[part] * _mean(path[part], grid, k, begins, rho, weights, FLOOR)
        if math.log(e) >= level:
            ratio = 0.0
            for part in range(shares.size):
                ratio += shares[part] * _mean(path[part], grid, k, begins, rho, weights, 0.0)
            return 1.0 / ratio
    return 0.0

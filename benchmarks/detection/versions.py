"""Two versions of a model in the worlds of `worlds`: their differences, and their scores of the same impressions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.world import (
    _INPUT_HIGH,
    _INPUT_LOW,
    _INPUTS,
    NOISE_SHARED,
    SCENARIOS,
    Version,
)

Reals = NDArray[np.float64]
FAILURE = 1e-6  # the pClick of a version that fails


@dataclass(frozen=True)
class Model:
    """One of the two: its noise and the factor on its pClick (`core`), and its faults."""

    core: Version = SCENARIOS["equal"]
    item_noise: float = 0.0  # sd in log-odds, constant for an item
    user_noise: float = 0.0  # sd in log-odds, constant for a user
    failures: float = 0.0  # share of the impressions with the score `FAILURE`


@dataclass(frozen=True)
class Pair:
    """Baseline and candidate."""

    baseline: Model = Model()
    candidate: Model = Model()
    same: bool = False  # they share all of their noise, and differ at most in factors and failures
    levelled: bool = (
        False  # exactly calibrated over the stream but for their factors, whatever luck users and items bring
    )


PAIRS = {
    "identical": Pair(same=True),
    "0.8 x": Pair(Model(), Model(Version(scale=0.8)), same=True),
    "0.93 and 1.07": Pair(Model(Version(scale=0.93)), Model(Version(scale=1.07)), same=True, levelled=True),
    "exchangeable": Pair(),
    "item noise": Pair(Model(item_noise=0.28), Model(item_noise=0.28)),
    "user noise": Pair(Model(user_noise=0.3), Model(user_noise=0.3)),
    "rare failures": Pair(Model(), Model(failures=0.0024), same=True),
    "AUC -0.02": Pair(Model(), Model(SCENARIOS["AUC -0.02"])),
    "AUC -0.005": Pair(Model(), Model(SCENARIOS["AUC -0.005"])),
    "log loss +1%": Pair(Model(), Model(SCENARIOS["log loss +1%"])),
    "equal": Pair(),
}


def scores(
    pair: Pair,
    rng: np.random.Generator,
    known: Reals,
    signal: Reals,
    user: NDArray[np.int32],
    item: NDArray[np.int64],
    sizes: tuple[int, int],
) -> Reals:
    """pClick [2, n] of n impressions with the level `known` and user + item `signal`; `sizes`: numbers of users and items.

    Half of a version's noise is constant for a user, the other half is drawn for every impression.
    """
    half = np.sqrt(0.5)

    def noise(sd: float) -> Reals:
        return sd * half * (rng.standard_normal(sizes[0])[user] + rng.standard_normal(user.size))

    seen = signal + noise(np.sqrt(NOISE_SHARED))
    grid = np.linspace(_INPUT_LOW, _INPUT_HIGH, _INPUTS)
    out = np.empty((2, user.size))
    own = np.zeros(user.size)
    for m, model in enumerate((pair.baseline, pair.candidate)):
        if m == 0 or not pair.same:
            own = noise(np.sqrt(model.core.noise))
        p = np.interp(known + model.core.shrink() * (seen + own), grid, model.core.table())
        shift = np.zeros(0)
        for sd, size, index in ((model.item_noise, sizes[1], item), (model.user_noise, sizes[0], user)):
            if sd:
                shift = sd * rng.standard_normal(size)[index] + (shift if shift.size else 0.0)
        if shift.size:
            odds = p / (1.0 - p) * np.exp(shift)
            p = odds / (1.0 + odds)
        if model.failures:
            p = np.where(rng.random(p.size) < model.failures, FAILURE, p)
        out[m] = p
    return out


def harm(pclick: Reals, truth: Reals) -> float:
    """The true relative harm in log loss of the second row of pClicks [2, n]: its expectation over labels."""
    loss = -(truth * np.log(pclick) + (1.0 - truth) * np.log1p(-pclick)).mean(axis=1)
    return float(loss[1] / loss[0] - 1.0)

"""The level that the overall e-process must reach when its horizon is known: less than 1 / alpha.

A nonnegative martingale that begins at 1 passes c with probability (1 - what is left of it at the end) / c (optional
stopping). Only in infinite time is nothing left. A comparison ends after `compare.horizon`, so what is left then can be
spent: c alpha, below, is the level at which Brownian motion is stopped in alpha of all cases, for the mixtures and the
windows of the default rule. More traffic leaves less, so the table is for a million clicks within the horizon,
evaluated from 200 clicks on; with fewer it is conservative. `python -m benchmarks.detection --only spent` rebuilds it
(seeded; `benchmarks/detection/overall_level.py`).
"""

from __future__ import annotations

import math

import numpy as np

WINDOWS, FIRST_WEIGHT = 28, 0.8  # of the rule that the table is for
OPTIMUM = 1500.0  # clicks at which its mixtures are tightest
ALPHAS = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.2, 0.4, 0.5)
C_ALPHA = (0.71, 0.73, 0.75, 0.78, 0.80, 0.835, 0.885, 1.0)  # with its standard error of 0.01 added


def log_level(alpha: float) -> float:
    """Returns log c for 0 < alpha < 1/2, positive and at most log(1 / alpha); the table is interpolated linearly in log
    alpha.
    """
    share = float(np.interp(math.log(alpha), np.log(ALPHAS), C_ALPHA))
    return math.log(share / alpha)

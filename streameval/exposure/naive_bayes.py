"""Propensities by outcome, from counts: naive Bayes with a randomised slice (Schnabel et al. 2016, section 5.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_Counts = NDArray[np.int64]
_Reals = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ByOutcome:
    """Per class of outcome (click or none, 1 to 5 stars): the propensity, float64[r] in [0, 1], and its standard error.

    NaN: the randomised slice has no outcome of the class, so nothing is known of it.
    """

    propensity: _Reals
    stderr: _Reals


def by_outcome(shown: _Counts, randomised: _Counts, pairs: int) -> ByOutcome:
    """P(O = 1 | r) = P(r | O = 1) P(O = 1) / P(r) of every class r.

    `shown`: outcomes by class of what the logging policy showed, int64[r]. `randomised`: outcomes by class of items that
    were shown at random, int64[r], whose shares are P(r). `pairs`: everything that could have been shown, so that P(O = 1)
    is the sum of `shown` over `pairs`. The error is the delta method's, for both sets of counts being independent samples.
    Raises ValueError where counts are negative, or more was shown than could have been.
    """
    n, m = int(shown.sum()), int(randomised.sum())
    if shown.shape != randomised.shape or min(shown.min(initial=0), randomised.min(initial=0)) < 0:
        raise ValueError(f"{shown.tolist()}, {randomised.tolist()}: must be counts of the same classes, none negative")
    if pairs < n:
        raise ValueError(f"pairs = {pairs}: must be at least the {n} outcomes that were shown")
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate = np.where(randomised > 0, shown / max(pairs, 1) / (randomised / max(m, 1)), np.nan)
        relative = (1 / shown - 1 / max(pairs, 1)) + (1 / randomised - 1 / max(m, 1))
        stderr = np.where(shown > 0, estimate * np.sqrt(np.maximum(relative, 0)), estimate)
    return ByOutcome(np.minimum(estimate, 1.0), stderr)

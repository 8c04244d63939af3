"""The planning formula's delays in this world, and in the one from which the target delays are.

n50 = K v / theta**2 impressions at margin 0, p90 = 2.5 n50, with K = 7.7 at alpha 0.05 and 11.3 at 0.01 (the squared boundary
near its optimum); v is the variance of the estimate times impressions, clustering included.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.detection.looks import PairedLooks, days
from benchmarks.detection.world import SCENARIOS

K = {0.05: 7.7, 0.01: 11.3}
P90 = 2.5
TOLERANCE = 0.005  # within which equality is certified
# the world of the target delays: harm in relative log loss, and v: nats**2 per impression, over its log loss of 0.125, times 1.6
REFERENCE = {"AUC -0.005": (0.0039, 0.174), "AUC -0.02": (0.015, 0.543)}


@dataclass(frozen=True)
class Planned:
    """For one metric: the true harm, v, and the formula's n50 at each alpha."""

    harm: float
    variance: float

    def n50(self, alpha: float, equal: bool = False) -> float:
        """Median impressions until detection; `equal`: until equality is certified."""
        return K[alpha] * self.variance / (TOLERANCE if equal else self.harm) ** 2


def measured(scenario: str, runs: int, seed: int = 60_000) -> dict[str, Planned]:
    """For log loss and AUC, from whole days: the harm is the mean over runs, v the mean of stderr**2 times impressions."""
    seen: dict[str, list[tuple[float, float]]] = {"log_loss": [], "auc": []}
    for i in range(runs):
        taker = PairedLooks()
        for minutes in days(seed + i, lambda _: SCENARIOS[scenario], 1, rows=()):
            for looks in taker.take(minutes):
                last = looks
        for metric, values in seen.items():
            s = last.statistics[metric][-1, 0]
            values.append((float(s.theta), float(s.variance()) * float(last.impressions[-1])))
    return {metric: Planned(*np.mean(values, axis=0).tolist()) for metric, values in seen.items()}

"""Rates with their bounds, and delays, as tables print them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import beta


def bounds(hits: int, runs: int, confidence: float = 0.95) -> tuple[float, float]:
    """The confidence bounds of a rate, by Clopper and Pearson (1934, Biometrika 26:404)."""
    tail = (1.0 - confidence) / 2.0
    low = float(beta.ppf(tail, hits, runs - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1.0 - tail, hits + 1, runs - hits)) if hits < runs else 1.0
    return low, high


def rate(hits: int, runs: int) -> str:
    """As "3 of 40 = 7.5% (1.6-20)"."""
    low, high = bounds(hits, runs)
    return f"{hits} of {runs} = {_percent(hits / max(runs, 1))}% ({_percent(low)}-{_percent(high)})"


def delay(impressions: Sequence[float], runs: int) -> str:
    """Median (ninetieth percentile) of detections, with the share of `runs` that had one: "12k (26k), 100%"."""
    every = np.sort(np.concatenate((np.asarray(impressions, float), np.full(runs - len(impressions), np.inf))))
    median, late = (float(np.quantile(every, q, method="higher")) for q in (0.5, 0.9))
    return f"{thousands(median)} ({thousands(late)}), {_percent(len(impressions) / max(runs, 1))}%"


def thousands(n: float) -> str:
    """As 12k; "never" if infinite."""
    return f"{n / 1000:.0f}k" if np.isfinite(n) else "never"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0") if share < 0.0995 else f"{100 * share:.0f}"

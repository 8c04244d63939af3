"""Textbook rules on the same minutes, evaluated every minute for a week."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from river import drift
from scipy.stats import norm

from streameval.compare.evidence import strict
from streameval.compare.evidence.ratio import Statistic
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BlockSums

Reals = NDArray[np.float64]
LOOKS = 10080
WARM = 30  # minutes
CLICKS = 200


@dataclass(frozen=True)
class Track:
    """A paired comparison since its start, by minute: statistics [T], clicks [T], pair scalars [T, 8], and rows of minutes."""

    log_loss: Statistic
    auc: Statistic
    clicks: NDArray[np.int64]
    impressions: NDArray[np.int64]
    scalars: NDArray[np.int64]
    minutes: BlockSums


def first(found: NDArray[np.bool_]) -> int:
    """Index of the first look that fires, -1 if none."""
    hits = np.flatnonzero(found)
    return int(hits[0]) if hits.size else -1


def _z(s: Statistic, variance: Reals, critical: float, ready: NDArray[np.bool_]) -> int:
    with np.errstate(invalid="ignore", divide="ignore"):
        return first(ready & (s.theta > critical * np.sqrt(variance)))


def _cusum(x: Reals, threshold: float, allowance: float, base: int) -> int:
    """One-sided CUSUM of ten-minute means, standardised by the first `base` of them (Page 1954)."""
    sd, c = x[:base].std(), 0.0
    for i in range(base, x.size):
        c = max(0.0, c + x[i] / sd - allowance)
        if c > threshold:
            return (i + 1) * 10 - 1
    return -1


def _river(detector: drift.ADWIN | drift.PageHinkley, x: Reals) -> int:
    for i, value in enumerate(x):
        detector.update(float(value))
        if detector.drift_detected and i > WARM:
            return i
    return -1


def textbook(track: Track, alpha: float = 0.05) -> dict[str, int]:
    """Rule -> minute at which it first says "worse" (or "drift"), -1 for never."""
    ready = (track.clicks >= CLICKS) & (np.arange(track.clicks.size) >= WARM)
    one, many = float(norm.isf(alpha)), float(norm.isf(alpha / LOOKS))
    ll, auc = track.log_loss, track.auc
    n = track.minutes.blocks[..., cells.PAIR_N].sum(axis=1)
    d = track.minutes.blocks[..., cells.D].sum(axis=1) / cells.SCALE
    loss = track.minutes.blocks[..., cells.PAIR_L].sum(axis=1) / cells.SCALE + d
    count = n.size // 10 * 10
    tens = d[:count].reshape(-1, 10).sum(axis=1) / np.maximum(n[:count].reshape(-1, 10).sum(axis=1), 1)
    minute, raw = d / np.maximum(n, 1), loss / np.maximum(n, 1)
    scaled, level = minute / minute[:60].std(), (raw - raw[:60].mean()) / raw[:60].std()
    base = min(144, tens.size // 2)
    return {
        "log loss: z test every minute, impressions independent": _z(ll, ll.v_iid, one, ready),
        "log loss: z test every minute, user blocks": _z(ll, ll.v_clu, one, ready),
        "AUC: DeLong's z every minute": _z(auc, auc.v_iid, one, ready),
        "log loss: Bonferroni over 10,080 looks, user blocks": _z(ll, ll.v_clu, many, ready),
        "AUC: Bonferroni over 10,080 looks, DeLong": _z(auc, auc.v_iid, many, ready),
        "log loss: CUSUM h=5 k=0.5, 10 min": _cusum(tens, 5.0, 0.5, base),
        "log loss: CUSUM h=8 k=0.25, 10 min": _cusum(tens, 8.0, 0.25, base),
        "River PageHinkley on the paired difference": _river(drift.PageHinkley(mode="up"), scaled),
        "River ADWIN on the paired difference": _river(drift.ADWIN(), np.clip(scaled / 12 + 0.5, 0, 1)),
        "River PageHinkley on the new version's log loss": _river(drift.PageHinkley(mode="up"), level),
        "River ADWIN on the new version's log loss": _river(drift.ADWIN(), np.clip(level / 12 + 0.5, 0, 1)),
        "strict (empirical Bernstein)": first(
            ready
            & (
                strict.log_e(
                    track.scalars[:, cells.D_STRICT] / cells.SCALE, track.scalars[:, cells.D_STRICT_SQ] / cells.SCALE
                )
                >= np.log(1 / alpha)
            )
        ),
    }

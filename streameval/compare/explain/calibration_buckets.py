"""Calibration by bucket of pClick: where the candidate predicts more, or less, than the baseline did.

Each version is evaluated on what it served itself, in buckets of its own pClick. Selection alone makes a version that
only scored look under-predicting, and the same is true of any version in the high buckets of another's pClick
(regression to the mean); hence a shadow has no such table.

As in `split`, both are standardised to the hours in which both served: with om_h the weight n_A n_B / (n_A + n_B) of an
hour and x_h a version's mean, E/O = sum om_h p_h / sum om_h y_h. The harm is |E_new/O_new - 1| - |E_old/O_old - 1|; its
MID and GAP (`paired`) are combined as in `evidence`. Deviations by block of users are taken of both versions together,
so the correlation from users served by both is accounted for. The floor of the variance is that of independent clicks,
(E/O)**2 (1 - ctr) / clicks.

V grows by about 1 with every click (of the harmonic mean of both versions' clicks), so the mixtures' rhos are
constants, tightest after 100, 500 and 2,500 clicks; nothing is tuned on the data. All buckets go into one e-BH at alpha
(`who`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.compare.evidence.eprocess import best_rho, e_bh, mean_log_e
from streameval.compare.evidence.evidence import Rule, calibration_harm
from streameval.compare.evidence.ratio import Reals, leverage
from streameval.compare.reading.reading import CalibrationBucket
from streameval.metrics import left_out
from streameval.sketches.blocks import SCALE

_N, _Y, _P = range(3)  # cells of a bucket
_OPTIMA = (100.0, 500.0, 2500.0)  # clicks


@dataclass(frozen=True, slots=True, eq=False)
class _Ratios:
    """E/O of two versions in K buckets, and their difference. NaN where undefined."""

    over: Reals  # [2, K]
    weight: Reals  # [K], clicks
    variance: Reals  # [2, K] of E_new/O_new + E_old/O_old, and of the difference
    df: Reals  # [K], Welch's
    blocks: Reals  # [K], of the version with fewer
    counts: NDArray[np.int64]  # [2, K, 2] impressions and clicks in the hours in which both served


def calibration_buckets(names: Sequence[str], sums: NDArray[np.int64], rule: Rule) -> tuple[CalibrationBucket, ...]:
    """Returns the buckets in which both versions served, in the order given.

    `sums` int64[2, S, K, 3, G]: of baseline and candidate, by hour, bucket, cell and block of users; P in fixed point.
    """
    r = _ratios(sums)
    margin = rule.margins["calibration"]
    mid, gap = r.over[0] + r.over[1] - 2.0, r.over[1] - r.over[0]
    enough = (r.counts[..., 1].min(axis=0) >= rule.min_clicks) & (r.blocks >= rule.min_blocks)
    rhos = best_rho(_OPTIMA, rule.alpha)
    signs = []
    for sign in (1.0, -1.0):
        both = [
            mean_log_e(sign * theta - margin, r.weight, variance, r.df, enough, rhos)
            for theta, variance in zip((mid, gap), r.variance, strict=True)
        ]
        signs.append(np.minimum(*both))
    evidence = np.logaddexp(*signs) - np.log(2.0)
    harm = calibration_harm(mid, gap, -mid, -gap)
    stderr = np.sqrt(r.variance.max(axis=0))
    served = np.flatnonzero(r.counts[..., 0].all(axis=0))
    significant = np.zeros(len(names), np.bool_)
    significant[served] = e_bh(evidence[served], rule.alpha)
    return tuple(
        CalibrationBucket(
            bucket=names[k],
            baseline_impressions=int(r.counts[0, k, 0]),
            baseline_clicks=int(r.counts[0, k, 1]),
            baseline=_known(r.over[0, k]),
            candidate_impressions=int(r.counts[1, k, 0]),
            candidate_clicks=int(r.counts[1, k, 1]),
            candidate=_known(r.over[1, k]),
            difference=_known(harm[k]),
            stderr=_known(stderr[k]),
            log_e=float(evidence[k]),
            significant=bool(significant[k]),
        )
        for k in served.tolist()
    )


def _ratios(sums: NDArray[np.int64]) -> _Ratios:
    n_g, y_g = sums[..., _N, :].astype(np.float64), sums[..., _Y, :].astype(np.float64)  # [2, S, K, G]
    p_g = sums[..., _P, :] / SCALE
    n, y, p = n_g.sum(axis=-1), y_g.sum(axis=-1), p_g.sum(axis=-1)
    both = (n > 0).all(axis=0)  # [S, K]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(both, n[::-1] / n.sum(axis=0), 0.0)  # om_h / n_h: the weight of an impression
        clicks = (share * y).sum(axis=1)  # [2, K]
        over = np.where(clicks > 0, (share * p).sum(axis=1) / clicks, np.nan)
        error = p_g - over[:, None, :, None] * y_g  # [2, S, K, G]
        mean = np.where(n > 0, error.sum(axis=-1) / n, 0.0)
        devs = np.einsum("ask,askg->akg", share, error - mean[..., None] * n_g) / clicks[..., None]
        ctr = np.where(n > 0, y / n, 0.0)
        chance = (share**2 * y * (1.0 - ctr)).sum(axis=1)
        independent = (over**2 * chance / clicks**2).sum(axis=0)
        users = np.einsum("ask,askg->akg", share, n_g)
        devs = devs * leverage(users)  # each block is left out once: see `evidence.ratio`
        blocks = (users > 0).sum(axis=-1).min(axis=0).astype(np.float64)
        clustered = np.stack([((devs[1] + sign * devs[0]) ** 2).sum(axis=-1) for sign in (1.0, -1.0)])
        variance = np.maximum(clustered * (blocks - 1.0) / blocks, independent)
        own = (devs**2).sum(axis=-1)  # [2, K]
        freedom = left_out.degrees_of_freedom(users, np.einsum("ask,askg->akg", share, y_g), chance)
        df = own.sum(axis=0) ** 2 / (own**2 / freedom).sum(axis=0)  # Welch 1947
        weight = np.where(both, y[0] * y[1] / (y[0] + y[1]), 0.0)
    counts = (both[None, ..., None] * np.stack([n, y], axis=-1)).sum(axis=1).astype(np.int64)
    return _Ratios(over, np.nan_to_num(weight).sum(axis=0), variance, df, blocks, counts)


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None

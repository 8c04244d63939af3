"""One version replaced another on the same stream: weak evidence that can only warn.

Levels since the deploy against the same hours one week earlier. Two errors add: sampling, from user blocks (users return,
so a block's deviations are subtracted before they are squared), and days that differ for reasons of their own. The latter
does not shrink with traffic and is measured on history: a placebo day's level over the same clock hours, of `days` >= 2
finished days without a deploy, varies by v_day; the difference of two such means has 2 v_day per day elapsed. The larger
of the two is used, with a t of days - 1. It holds if days are exchangeable: holidays and campaigns break it.

Metrics: NE (never raw log loss, which follows the CTR), AUC by centred placements, and log O/E beyond a dead band. With an
online model scoring both periods, `yardstick` compares paired differences to it instead of levels; what moves both
versions alike, a day's mix of traffic, then cancels.

Evidence is in the information form, S = theta / v and V = 1 / v, with rho = 2 / tau**2 for tau the smallest effect that
matters: V is known in advance but for v, and a burn-in would say nothing about days.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streameval.compare import eprocess
from streameval.compare.ratio import Reals
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE

Kind = Literal["ne", "auc", "calibration"]
KINDS: tuple[Kind, ...] = ("ne", "auc", "calibration")
ADVICE = "score a few percent of the traffic with the old version too (shadow predictions): a paired comparison needs a thousandth of the traffic"


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """A metric's level with its deviation per block: value [...], devs [..., G] (summing to about 0). Harm is up."""

    value: Reals
    devs: Reals


def levels(kind: Kind, rows: NDArray[np.int64]) -> Level:
    """From served rows int64[..., G, 8]: NE; minus AUC; or log E/O. NaN without clicks or without non-clicks."""
    x = rows.astype(np.float64)
    n, y = x[..., cells.N], x[..., cells.Y]
    total_n, total_y = n.sum(axis=-1, keepdims=True), y.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        if kind == "ne":
            loss = x[..., cells.L] / SCALE
            c = total_y / total_n
            entropy = -c * np.log(c) - (1.0 - c) * np.log1p(-c)
            ne = loss.sum(axis=-1, keepdims=True) / (total_n * entropy)
            devs = (loss - ne * (entropy * n + np.log((1.0 - c) / c) * (y - c * n))) / (entropy * total_n)
            return Level(ne[..., 0], devs)
        if kind == "auc":
            above, below = x[..., cells.PHI1] / SCALE, x[..., cells.PHI0] / SCALE
            mean1 = above.sum(axis=-1, keepdims=True) / total_y
            mean0 = below.sum(axis=-1, keepdims=True) / (total_n - total_y)
            devs = (above - mean1 * y) / total_y + (below - mean0 * (n - y)) / (total_n - total_y)
            return Level(-(mean1 + mean0)[..., 0], -devs)
        p = x[..., cells.P] / SCALE
        total_p = p.sum(axis=-1, keepdims=True)
        return Level(np.log(total_p / total_y)[..., 0], p / total_p - y / total_y)


def yardstick(kind: Literal["log_loss", "auc"], rows: NDArray[np.int64]) -> Level:
    """From pair rows int64[..., G, 8] of (served, online): the server's log loss relative to the online model's, or AUC below it."""
    x = rows.astype(np.float64)
    n, y = x[..., cells.PAIR_N], x[..., cells.PAIR_Y]
    with np.errstate(divide="ignore", invalid="ignore"):
        if kind == "log_loss":
            d, loss = -x[..., cells.D] / SCALE, (x[..., cells.PAIR_L] + x[..., cells.D]) / SCALE
            total = loss.sum(axis=-1, keepdims=True)
            value = d.sum(axis=-1, keepdims=True) / total
            return Level(value[..., 0], (d - value * loss) / total)
        total_y, total_0 = y.sum(axis=-1, keepdims=True), (n - y).sum(axis=-1, keepdims=True)
        above, below = x[..., cells.PAIR_PHI1] / SCALE, x[..., cells.PAIR_PHI0] / SCALE
        mean1, mean0 = above.sum(axis=-1, keepdims=True) / total_y, below.sum(axis=-1, keepdims=True) / total_0
        devs = (above - mean1 * y) / total_y + (below - mean0 * (n - y)) / total_0
        return Level((mean1 + mean0)[..., 0], devs)


@dataclass(frozen=True, slots=True, eq=False)
class Shift:
    """after - before: float64[...] each; `variance` the larger of sampling and days."""

    theta: Reals
    variance: Reals
    sampling: Reals
    df: float


def shift(before: Level, after: Level, placebo: Reals, elapsed_days: Reals) -> Shift:
    """`placebo` float64[days, ...]: levels of the placebo days over the clock hours that each look covers (whole days from
    the first on); `elapsed_days` [...]. ValueError with fewer than 2 days.
    """
    days = placebo.shape[0]
    if days < 2:
        raise ValueError("before/after needs at least 2 days of history, and deserves 28")
    devs = after.devs - before.devs
    groups = devs.shape[-1]
    sampling = groups / (groups - 1) * np.einsum("...g,...g->...", devs, devs)
    between = 2.0 * placebo.var(axis=0, ddof=1) / np.maximum(1.0, elapsed_days)
    return Shift(after.value - before.value, np.maximum(sampling, between), sampling, float(min(days, groups) - 1))


def log_e(change: Shift, tau: float, margin: float = 0.0) -> Reals:
    """log e [...] for theta > margin; `tau` > 0, in the metric's unit, is the smallest effect that matters."""
    with np.errstate(divide="ignore", invalid="ignore"):
        information = 1.0 / change.variance
        s = (change.theta - margin) * information
    known = np.isfinite(s) & (information > 0)
    out = np.zeros(np.shape(s))
    out[known] = eprocess.log_e(s[known], information[known], 2.0 / tau**2, change.df)
    return out


def log_e_either(change: Shift, tau: float, margin: float) -> Reals:
    """The same for |theta| > margin, as calibration needs: the mean over both directions."""
    other = Shift(-change.theta, change.variance, change.sampling, change.df)
    out: Reals = np.logaddexp(log_e(change, tau, margin), log_e(other, tau, margin)) - np.log(2.0)
    return out

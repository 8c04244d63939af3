"""Standard errors of every metric, clustered by user, from one idea.

Every metric is a function of a few sums over impressions (1, click, pClick, log loss, ...; see `sketches.blocks`). Between
blocks of users its variance is the jackknife's: G blocks are left out one by one and the metric is made again of the rest,

    v = (G - 1) / G * sum_g (metric(cells - cells_g) - metric(cells))^2,    G = 64

(Efron and Tibshirani 1993, ch. 11). For a ratio A / W the change is (A_g - A/W W_g) / W over 1 - h_g, h_g = W_g / W the
block's share: a heavy user draws the mean to itself, and without that divisor, as in the random groups of Wolter (2007, ch. 2),
its deviation and the error are too small by that share (CR3 of Cameron and Miller 2015, Journal of Human
Resources 50:317). It is right however an impression depends on the user's others. Where a block has all the clicks, say, there
is no rest, and what follows counts.

Between single impressions, which is right only if they do not depend on each other, it is that of the linearised metric,
sum_i (cells_i . gradient)^2. The ratio of the two is the design effect. A slice, which keeps no blocks, takes its own
variance between impressions times the design effect of the whole; so does ECE, which changes its formula with the bucket.
The second moments of single impressions come from the score histogram, within its resolution.

A variance between few blocks is itself uncertain, and too small more often than too large: 95% of the time an error is
within Student's t of `df` standard errors, not within 1.96. With a few dominating users there are fewer blocks than
non-empty ones: `df` is their effective number less one, (sum N_g)^2 / sum N_g^2 - 1, as in `compare.ratio`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.metrics.view import View
from streameval.sketches.accumulate import CURVE_BITS, log_loss
from streameval.sketches.blocks import ABSOLUTE, BLOCKS, PHI0, PHI1, SCALE, SQUARED, L, N, P, Y
from streameval.sketches.grid import bin_edges
from streameval.sketches.layout import BLOCK_CELLS, BLOCK_PLACED0, BLOCK_PLACED1, BLOCK_REQUEST_W, BLOCK_REQUEST_WA
from streameval.sketches.ranks import SQUARE_SCALE

ENOUGH_BLOCKS = 30  # blocks with impressions, from which the variance between them is used

Cells = NDArray[Any]  # [..., BLOCK_CELLS], of reals; complex in `_gradient`
_REALS = [P, L, SQUARED, ABSOLUTE, PHI1, PHI0, BLOCK_REQUEST_W, BLOCK_REQUEST_WA]  # cells in fixed point
_EDGES = bin_edges(CURVE_BITS)
_MIDDLE = (_EDGES[:-1] + _EDGES[1:]) / 2


def _ratio(of: int, to: int) -> Callable[[Cells], Cells]:
    return lambda cells: cells[..., of] / cells[..., to]


def _rig(cells: Cells) -> Cells:
    """1 - NE; NE = loss / (n H(c)), c = y / n (He et al. 2014)."""
    n, c = cells[..., N], cells[..., Y] / cells[..., N]
    return 1 + cells[..., L] / n / (c * np.log(c) + (1 - c) * np.log(1 - c))


def _nmse(cells: Cells) -> Cells:
    n, c = cells[..., N], cells[..., Y] / cells[..., N]
    return cells[..., SQUARED] / n / (c * (1 - c))


def _auc(cells: Cells) -> Cells:
    """mean of PHI1 over clicks + mean of PHI0 over non-clicks, of those placed (Obuchowski 1997)."""
    return cells[..., PHI1] / cells[..., BLOCK_PLACED1] + cells[..., PHI0] / cells[..., BLOCK_PLACED0]


# by metric, up to a constant; those whose values need clicks, or both labels, are asked only when they have a value
_OF_CELLS: Mapping[str, Callable[[Cells], Cells]] = {
    "ctr": _ratio(Y, N),
    "mean_pclick": _ratio(P, N),
    "auc": _auc,
    "gauc_request": _ratio(BLOCK_REQUEST_WA, BLOCK_REQUEST_W),
    "log_loss": _ratio(L, N),
    "rig": _rig,
    "mse": _ratio(SQUARED, N),
    "nmse": _nmse,
    "mae": _ratio(ABSOLUTE, N),
    "prediction_error": _ratio(P, Y),
    "calibration": _ratio(P, Y),
}
WITH_ERROR = (*_OF_CELLS, "gauc", "ece")


@dataclass(frozen=True, slots=True)
class Errors:
    """Standard errors by metric (None: unknown), and how much wider than between impressions they are, squared.

    Degrees of freedom: `df` of all but GAUC, at most 63, None where the errors are between impressions; `gauc_df` of GAUC,
    whose errors are between the users that have one, None without it.
    """

    stderr: Mapping[str, float | None]
    design: Mapping[str, float]
    df: float | None
    gauc_df: float | None

    def df_of(self, metric: str) -> float | None:
        """Degrees of freedom of one metric's standard error."""
        return self.gauc_df if metric == "gauc" else self.df


def standard_errors(view: View, values: Mapping[str, float | int | None], whole: Errors | None = None) -> Errors:
    """The errors of the metrics that have a value. `whole`: those of the whole, for a slice of it, which keeps no blocks."""
    design = None if whole is None else whole.design
    by_impression, mean = _impressions(view)
    enough = view.blocks is not None and int((view.blocks[:, N] > 0).sum()) >= ENOUGH_BLOCKS
    by_block = view.blocks.astype(np.float64) if view.blocks is not None else np.zeros((0, BLOCK_CELLS))
    by_block[:, _REALS] /= SCALE
    total = by_block.sum(axis=0)
    placed = total[BLOCK_PLACED1] + total[BLOCK_PLACED0]
    stderr: dict[str, float | None] = {}
    effects: dict[str, float] = {}
    for name, metric in _OF_CELLS.items():
        if values.get(name) is None or (name == "gauc_request" and view.blocks is None):
            continue
        alone = None
        if name != "gauc_request":
            at = _gradient(metric, mean)
            alone = float(at @ by_impression @ at)
        variance = _left_out(metric, by_block, total) if enough else None
        if name == "auc" and variance is not None:  # of those placed: the first minutes of a version have no curves
            variance = variance * placed / total[N] if 2 * placed > total[N] else None
        if variance is None:
            if alone is None:
                continue
            variance = alone * (1.0 if design is None else design.get(name, 1.0))
        elif alone:
            effects[name] = variance / alone
        stderr[name] = math.sqrt(max(variance, 0.0))
    widening = effects if design is None else design
    if values.get("ece") is not None:
        stderr["ece"] = math.sqrt(_ece(view) * widening.get("calibration", 1.0))
    gauc_df = None
    if values.get("gauc") is not None:
        stderr["gauc"] = _gauc(view)
        gauc_df = None if stderr["gauc"] is None else _gauc_df(view)
    df = _df(by_block[:, N]) if enough else None if whole is None else whole.df
    return Errors(stderr, effects, df, gauc_df)


def _left_out(metric: Callable[[Cells], Cells], by_block: Cells, total: Cells) -> float | None:
    """63/64 of the sum of squares of what leaving out one block changes; None where it leaves nothing to tell a value from."""
    with np.errstate(divide="ignore", invalid="ignore"):
        change = metric(total - by_block) - metric(total)
    return (BLOCKS - 1) / BLOCKS * float(change @ change) if np.isfinite(change).all() else None


def _gradient(metric: Callable[[Cells], Cells], at: Cells) -> Cells:
    """By steps so small into the imaginary that nothing is rounded off (Squire and Trapp 1998, SIAM Review 40:110)."""
    step = 1e-30
    slopes: Cells = metric(at + 1j * step * np.eye(BLOCK_CELLS)).imag / step
    return slopes


def _df(weights: NDArray[np.float64]) -> float:
    return max(float(weights.sum() ** 2 / (weights * weights).sum()) - 1, 0.0)


def _gauc(view: View) -> float | None:
    """Users are independent: sum (w (AUC - GAUC))^2 * u / (u - 1), over (sum w)^2."""
    ranked = view.ranked
    if ranked is None or ranked.users < 2 or not ranked.weight:
        return None
    gauc, weight = ranked.weighted_auc / ranked.weight, ranked.weight / 2.0**31
    both, one, plain = (square / SQUARE_SCALE for square in ranked.squares)
    spread = max(both - 2 * gauc * one + gauc * gauc * plain, 0.0)
    return math.sqrt(spread * ranked.users / (ranked.users - 1)) / weight


def _gauc_df(view: View) -> float | None:
    """The same of single users, by their weight in GAUC."""
    ranked = view.ranked
    if ranked is None or not ranked.squares[2]:
        return None
    weight = ranked.weight / 2.0**31
    return max(weight * weight / (ranked.squares[2] / SQUARE_SCALE) - 1, 0.0)


def _ece(view: View) -> float:
    """Variance between impressions of sum_b |sum_{i in b} (p - c)| / n, at the signs it has now."""
    m = view.moments
    within = m.squared - sum((b.pclick - b.clicks) ** 2 / b.impressions for b in view.buckets if b.impressions)
    return max(within, 0.0) / m.impressions**2


def _impressions(view: View) -> tuple[NDArray[np.float64], Cells]:
    """(sum of the outer products of single impressions' cells, their sum), from the histogram."""
    no, yes = _coarse(view.negatives), _coarse(view.positives)
    used = np.flatnonzero(no + yes)
    return _second_moments(_MIDDLE[used], no[used].astype(np.float64), yes[used].astype(np.float64))


def _coarse(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """A histogram of any resolution from `CURVE_BITS` on, at that of the curves (the middle bin stands alone)."""
    half = counts.size // 2
    width = half // (_MIDDLE.size // 2)
    if width <= 1:
        return counts
    low, high = counts[:half].reshape(-1, width).sum(axis=1), counts[half + 1 :].reshape(-1, width).sum(axis=1)
    return np.concatenate((low, counts[half : half + 1], high))


@numba.njit(cache=True, nogil=True)
def _second_moments(
    p: NDArray[np.float64], no: NDArray[np.float64], yes: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    moments = np.zeros((BLOCK_CELLS, BLOCK_CELLS))
    total = np.zeros(BLOCK_CELLS)
    cell = np.zeros(BLOCK_CELLS)
    clicks, others = max(yes.sum(), 1.0), max(no.sum(), 1.0)
    below = 0.0
    above = yes.sum()
    auc = 0.0
    for i in range(p.size):
        auc += yes[i] * (below + no[i] / 2) / (clicks * others)
        below += no[i]
    below = 0.0
    for i in range(p.size):
        above -= yes[i]
        for label in range(2):
            n = yes[i] if label else no[i]
            if n > 0:
                error = abs(p[i] - label)
                cell[N] = 1.0
                cell[Y] = label
                cell[P] = p[i]
                cell[L] = log_loss(p[i], label)
                cell[SQUARED] = error * error
                cell[ABSOLUTE] = error
                cell[BLOCK_PLACED1], cell[BLOCK_PLACED0] = label, 1 - label
                cell[PHI1] = (below + no[i] / 2) / others if label else 0.0
                cell[PHI0] = 0.0 if label else (above + yes[i] / 2) / clicks - auc
                for a in range(BLOCK_CELLS):
                    total[a] += n * cell[a]
                    for b in range(BLOCK_CELLS):
                        moments[a, b] += n * cell[a] * cell[b]
        below += no[i]
    return moments, total

"""Standard errors of every metric, clustered by user, from one idea.

Near its value every metric is a sum over impressions of a linear function of a few cells (1, click, pClick, log loss,
...; see `sketches.blocks`): its influence function. So a metric names its coefficients, and its variance is a quadratic
form: over the 64 blocks of users, G / (G - 1) * sum_g (cells_g . coefficients)^2 (random groups; Wolter 2007, ch. 2),
which is right however an impression depends on the user's others; and over single impressions, sum_i (cells_i .
coefficients)^2, which is right only if they do not. The ratio of the two is the design effect. A slice, which keeps no
blocks, takes its own variance between impressions times the design effect of the whole; so does ECE, whose coefficients
depend on the bucket. The second moments of single impressions come from the score histogram, within its resolution.

A variance between few blocks is itself uncertain, and too small more often than too large: 95% of the time an error is
within Student's t of `df` standard errors, not within 1.96. With a few dominating users there are fewer blocks than
non-empty ones: `df` is their effective number less one, (sum N_g)^2 / sum N_g^2 - 1, as in `compare.ratio`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.metrics.losses import entropy
from streameval.metrics.view import View
from streameval.sketches.accumulate import CURVE_BITS, log_loss
from streameval.sketches.blocks import ABSOLUTE, BLOCKS, PHI0, PHI1, SCALE, SQUARED, L, N, P, Y
from streameval.sketches.grid import bin_edges
from streameval.sketches.layout import BLOCK_CELLS, BLOCK_PLACED0, BLOCK_PLACED1, BLOCK_REQUEST_W, BLOCK_REQUEST_WA
from streameval.sketches.ranks import SQUARE_SCALE

ENOUGH_BLOCKS = 30  # blocks with impressions, from which the variance between them is used

Coefficients = NDArray[np.float64]  # [BLOCK_CELLS]
_EDGES = bin_edges(CURVE_BITS)
_MIDDLE = (_EDGES[:-1] + _EDGES[1:]) / 2


def _cells(**values: float) -> Coefficients:
    out = np.zeros(BLOCK_CELLS)
    for name, value in values.items():
        out[_PLACE[name]] = value
    return out


_PLACE = {
    "n": N, "y": Y, "p": P, "loss": L, "squared": SQUARED, "absolute": ABSOLUTE, "phi1": PHI1, "phi0": PHI0,
    "request_w": BLOCK_REQUEST_W, "request_wa": BLOCK_REQUEST_WA, "placed1": BLOCK_PLACED1, "placed0": BLOCK_PLACED0,
}  # fmt: skip


def _mean(cell: str) -> Callable[[View, Coefficients], Coefficients]:
    """Influence of the mean of a cell over impressions."""

    def influence(view: View, total: Coefficients) -> Coefficients:
        n = total[N]
        return _cells(**{cell: 1 / n}) - _cells(n=total[_PLACE[cell]] / n / n)

    return influence


def _calibration(view: View, total: Coefficients) -> Coefficients:
    return _cells(p=1 / total[Y], y=-total[P] / total[Y] ** 2)


def _rig(view: View, total: Coefficients) -> Coefficients:
    """NE = loss / (n H(c)), c = y / n, so its error is that of 1 - NE (He et al. 2014; delta method)."""
    n, c = total[N], total[Y] / total[N]
    h, slope = entropy(c), math.log((1 - c) / c)
    ne = total[L] / n / h
    return _cells(loss=1 / (h * n), n=-ne * (h - slope * c) / (h * n), y=-ne * slope / (h * n))


def _nmse(view: View, total: Coefficients) -> Coefficients:
    n, c = total[N], total[Y] / total[N]
    spread, slope = c * (1 - c), 1 - 2 * c
    nmse = total[SQUARED] / n / spread
    return _cells(
        squared=1 / (spread * n), n=-nmse * (spread - slope * c) / (spread * n), y=-nmse * slope / (spread * n)
    )


def _auc(view: View, total: Coefficients) -> Coefficients:
    """mean of PHI1 over clicks + mean of PHI0 over non-clicks, of those placed (Obuchowski 1997)."""
    clicks, others = total[BLOCK_PLACED1], total[BLOCK_PLACED0]
    one, zero = total[PHI1] / clicks, total[PHI0] / others
    return _cells(phi1=1 / clicks, phi0=1 / others, placed1=-one / clicks, placed0=-zero / others)


def _gauc_request(view: View, total: Coefficients) -> Coefficients:
    w = total[BLOCK_REQUEST_W]
    return _cells(request_wa=1 / w, request_w=-total[BLOCK_REQUEST_WA] / w / w)


# by metric; those whose values need clicks, or both labels, are asked only when they have a value
INFLUENCES: Mapping[str, Callable[[View, Coefficients], Coefficients]] = {
    "ctr": _mean("y"),
    "mean_pclick": _mean("p"),
    "auc": _auc,
    "gauc_request": _gauc_request,
    "log_loss": _mean("loss"),
    "rig": _rig,
    "mse": _mean("squared"),
    "nmse": _nmse,
    "mae": _mean("absolute"),
    "prediction_error": _calibration,
    "calibration": _calibration,
}
WITH_ERROR = (*INFLUENCES, "gauc", "ece")


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
    by_block[:, [P, L, SQUARED, ABSOLUTE, PHI1, PHI0, BLOCK_REQUEST_W, BLOCK_REQUEST_WA]] /= SCALE
    total = by_block.sum(axis=0) if view.blocks is not None else mean
    placed = (
        2 * (total[BLOCK_PLACED1] + total[BLOCK_PLACED0]) > total[N] and total[BLOCK_PLACED1] * total[BLOCK_PLACED0] > 0
    )
    stderr: dict[str, float | None] = {}
    effects: dict[str, float] = {}
    for name, influence in INFLUENCES.items():
        if values.get(name) is None or (name == "gauc_request" and view.blocks is None):
            continue
        alone = None
        if name != "gauc_request":
            at = influence(view, mean)
            alone = float(at @ by_impression @ at)
        if enough and (name != "auc" or placed):
            at = influence(view, total)
            deviations = by_block @ at
            variance = BLOCKS / (BLOCKS - 1) * float((deviations * deviations).sum())
            if name == "auc":  # of those placed: the first minutes of a version have no curves
                variance *= (total[BLOCK_PLACED1] + total[BLOCK_PLACED0]) / total[N]
            if alone:
                effects[name] = variance / alone
        elif alone is None:
            continue
        else:
            variance = alone * (1.0 if design is None else design.get(name, 1.0))
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


def _impressions(view: View) -> tuple[NDArray[np.float64], Coefficients]:
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

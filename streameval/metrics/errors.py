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
non-empty ones: `df` is their effective number less one, of impressions or of clicks (`left_out.degrees_of_freedom`).

Of a sampled log, where an impression counts as several copies, a block is whole, whatever its impressions weigh, so the variance
between blocks needs nothing. Between impressions it is that of their weights' squares, by label; design effects are relative to
copies as if each were an impression, and so hold what weights add.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.metrics import left_out
from streameval.metrics.metric import Cells, OfCells, OfImpressions, OfTally, OfUsers, OfView
from streameval.metrics.registry import by_name, judged
from streameval.metrics.view import Undefined, View
from streameval.sketches.accumulate import CURVE_BITS, log_loss
from streameval.sketches.blocks import ABSOLUTE, PHI0, PHI1, SCALE, SQUARED, L, N, P, Y
from streameval.sketches.grid import bin_edges
from streameval.sketches.layout import BLOCK_CELLS, BLOCK_PLACED0, BLOCK_PLACED1, BLOCK_REQUEST_W, BLOCK_REQUEST_WA

# A design effect is at most the impressions of a block, widened by 1 / (1 - h): more is a variance between impressions that is
# nothing but rounding, as where all scores are in one bin
_MOST_EFFECT = 4.0
_FEWEST_BLOCKS = 2  # with impressions: how far a single one is from others, nobody can tell

_REALS = [P, L, SQUARED, ABSOLUTE, PHI1, PHI0, BLOCK_REQUEST_W, BLOCK_REQUEST_WA]  # cells in fixed point
_EDGES = bin_edges(CURVE_BITS)
_MIDDLE = (_EDGES[:-1] + _EDGES[1:]) / 2
# the cells of a click, and of a non-click, that are not 0
_OF_CLICKS = np.array([N, Y, P, L, SQUARED, ABSOLUTE, PHI1, BLOCK_PLACED1])
_OF_OTHERS = np.array([N, P, L, SQUARED, ABSOLUTE, PHI0, BLOCK_PLACED0])
_STEP = 1e-30
_STEPS = 1j * _STEP * np.eye(BLOCK_CELLS)
_NO_BLOCKS, _NO_CELLS = np.zeros((0, BLOCK_CELLS)), np.zeros(BLOCK_CELLS)


@dataclass(frozen=True, slots=True)
class Errors:
    """Standard errors by metric (None: unknown), and how much wider than between impressions they are, squared.

    Degrees of freedom: `df` of all but means over users, at most 63, None where the errors are between impressions; `gauc_df` of
    GAUC, whose errors are between the users that have one, None without it; `user_dfs` likewise of the other such means.
    """

    stderr: Mapping[str, float | None]
    design: Mapping[str, float]
    df: float | None
    gauc_df: float | None
    user_dfs: Mapping[str, float | None] = field(default_factory=dict)

    def df_of(self, metric: str) -> float | None:
        """Degrees of freedom of one metric's standard error."""
        if metric == "gauc":
            return self.gauc_df
        row = by_name(metric)
        return self.user_dfs.get(metric) if row.of_users else row.df(self.df)


def standard_errors(view: View, values: Mapping[str, float | int | None], whole: Errors | None = None) -> Errors:
    """The errors of the metrics that have a value. `whole`: those of the whole, for a slice of it, which keeps no blocks."""
    by_impression, mean = _impressions(view)
    of_weights = None if view.spread_of_weights is None else _impressions(view, view.spread_of_weights)[0]
    beside = mean + _STEPS
    by_block, total = _NO_BLOCKS, _NO_CELLS
    if view.blocks is not None:
        by_block = view.blocks.astype(np.float64)
        by_block[:, _REALS] /= SCALE
        total = by_block.sum(axis=0)
    enough = int((by_block[:, N] > 0).sum()) >= _FEWEST_BLOCKS
    rests = left_out.rests(by_block, total)
    placed = total[BLOCK_PLACED1] + total[BLOCK_PLACED0]
    stderr: dict[str, float | None] = {}
    effects: dict[str, float] = {}
    beyond: dict[str, float] = {}  # of a sampled log: effects beside those of its weights
    design = effects if whole is None else whole.design
    dfs: dict[str, float | None] = {}
    others = []
    for row in judged(view.options):
        of = row.influence
        if values.get(row.name) is None:
            continue
        if isinstance(of, OfImpressions):
            others.append((row.name, of))
        elif isinstance(of, OfUsers):
            found = None if isinstance(view.ranked, Undefined) else of.errors(view.ranked)
            stderr[row.name], dfs[row.name] = found or (None, None)
        elif isinstance(of, OfTally | OfView):
            stderr[row.name] = _of_tally(of, view) if isinstance(of, OfTally) else of.error(view)
        elif isinstance(of, OfCells) and (of.alone or view.blocks is not None):
            alone = None
            if of.alone:
                at = _gradient(of.function, beside)
                alone = float(at @ by_impression @ at)
            variance = _variance(of.function, rests) if enough else None
            if of.placed and variance is not None:  # the first minutes of a version have no curves
                variance = variance * placed / total[N] if 2 * placed > total[N] else None
            if variance is None:
                if alone is None:
                    continue
                variance = alone if whole is None else alone * design.get(row.name, 1.0)
                if of_weights is not None:
                    variance = float(at @ of_weights @ at)
                    effects[row.name] = variance / alone if alone else 1.0
            elif alone and variance <= _MOST_EFFECT * total[N] * alone:
                effects[row.name] = variance / alone
                if of_weights is not None:
                    beyond[row.name] = variance / float(at @ of_weights @ at)
            stderr[row.name] = math.sqrt(max(variance, 0.0))
    for name, other in others:  # once all design effects are known
        widened = (design if of_weights is None else beyond).get(other.widened_as, 1.0)
        stderr[name] = math.sqrt(max(other.variance(view) * widened, 0.0))
    df = _df(by_block, view.spread_of_weights) if enough else None if whole is None else whole.df
    return Errors(stderr, effects, df, dfs.pop("gauc", None), dfs)


def _df(by_block: Cells, spread_of_weights: tuple[float, float] | None) -> float:
    n, y = by_block[:, N], by_block[:, Y]
    of_clicks = 1.0 if spread_of_weights is None else spread_of_weights[1]
    return float(left_out.degrees_of_freedom(n, y, of_clicks * y.sum() - y.sum() ** 2 / n.sum()))


def _of_tally(of: OfTally, view: View) -> float | None:
    cells = of.cells(view)
    if cells is None or int((cells != 0).any(axis=1).sum()) < _FEWEST_BLOCKS:
        return None
    variance = _variance(of.function, left_out.rests(cells, cells.sum(axis=0)))
    return None if variance is None else math.sqrt(max(variance, 0.0))


def _variance(metric: Callable[[Cells], Cells], rests: Cells) -> float | None:
    """Between blocks; None where one of them leaves nothing to tell a value from."""
    found = float(left_out.variance(left_out.changes(metric, rests)))
    return found if math.isfinite(found) else None


def _gradient(metric: Callable[[Cells], Cells], beside: Cells) -> Cells:
    """Where `beside` are `_STEPS` from: by steps so small into the imaginary that nothing is rounded off (Squire and Trapp 1998, SIAM Review 40:110)."""
    slopes: Cells = metric(beside).imag / _STEP
    return slopes


def _impressions(view: View, spread: tuple[float, float] = (1.0, 1.0)) -> tuple[NDArray[np.float64], Cells]:
    """(sum of the outer products of single impressions' cells, their sum), from the histogram.

    `spread`: the sum of squared weights over that of weights, of non-clicks and of clicks.
    """
    used = view.used
    return _second_moments(_MIDDLE, view.negatives.size, used.bins, used.negatives, used.positives, spread)


def coarse(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """A histogram of any resolution from `CURVE_BITS` on, at that of the curves (the middle bin stands alone)."""
    half = counts.size // 2
    width = half // (_MIDDLE.size // 2)
    if width <= 1:
        return counts
    low, high = counts[:half].reshape(-1, width).sum(axis=1), counts[half + 1 :].reshape(-1, width).sum(axis=1)
    return np.concatenate((low, counts[half : half + 1], high))


@numba.njit(cache=True, nogil=True)
def _second_moments(
    middle: NDArray[np.float64],
    size: int,
    bins: NDArray[np.int64],
    negatives: NDArray[np.int64],
    positives: NDArray[np.int64],
    spread: tuple[float, float],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """`bins`: those used, of `size` bins; `middle`: of those of the curves, by which they are combined."""
    p, no, yes = np.empty(bins.size), np.zeros(bins.size), np.zeros(bins.size)
    width, half, found, before = max((size // 2) // (middle.size // 2), 1), size // 2, 0, -1
    for i in range(bins.size):
        at = bins[i] // width
        if bins[i] >= half:
            at = middle.size // 2 + (bins[i] > half) + (bins[i] - half - 1) // width * (bins[i] > half)
        if at != before:
            p[found] = middle[at]
            found += 1
        before = at
        no[found - 1] += negatives[i]
        yes[found - 1] += positives[i]
    p, no, yes = p[:found], no[:found], yes[:found]
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
                for a in _OF_CLICKS if label else _OF_OTHERS:
                    total[a] += n * cell[a]
                    for b in _OF_CLICKS if label else _OF_OTHERS:
                        moments[a, b] += n * spread[label] * cell[a] * cell[b]
        below += no[i]
    return moments, total

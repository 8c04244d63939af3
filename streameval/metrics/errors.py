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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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
_NO_BLOCKS = np.zeros((0, BLOCK_CELLS), np.int64)
_ALL_WEIGH_1 = 1.0, 1.0


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
    return standard_errors_of([view], [values], whole)[0]


def standard_errors_of(
    views: Sequence[View], values: Sequence[Mapping[str, float | int | None]], whole: Errors | None = None
) -> list[Errors]:
    """The same of several views with one layout: every metric is made of all of them at once."""
    if not views:
        return []
    sums, found = _Sums(views), [_Found(whole) for _ in views]
    others = []
    for row in judged(views[0].options):
        of, name = row.influence, row.name
        asked = [i for i, known in enumerate(values) if known.get(name) is not None]
        if isinstance(of, OfImpressions):
            others += [(i, name, of) for i in asked]
        elif isinstance(of, OfUsers):
            for i in asked:
                ranked = views[i].ranked
                error = None if isinstance(ranked, Undefined) else of.errors(ranked)
                found[i].stderr[name], found[i].dfs[name] = error or (None, None)
        elif isinstance(of, OfTally | OfView):
            for i in asked:
                found[i].stderr[name] = _of_tally(of, views[i]) if isinstance(of, OfTally) else of.error(views[i])
        elif isinstance(of, OfCells) and asked and (of.alone or sums.rests is not None):
            variances = sums.variances(of)
            for i in asked:
                found[i].add(name, variances[i], sums.most(i))
    for i, name, other in others:  # once all design effects are known
        found[i].widen(name, other, views[i])
    return [one.errors(sums.df(i)) for i, one in enumerate(found)]


class _Variances(NamedTuple):
    """Of one metric of one view; None: unknown."""

    between_blocks: float | None
    alone: float | None  # between impressions
    weighted: float | None  # the same, of weighted impressions; None: all weigh 1


class _Sums:
    """Over the impressions of several views, by block and alone."""

    def __init__(self, views: Sequence[View]) -> None:
        self._views = views
        self.rests: Cells | None = None  # [views, BLOCKS + 1, BLOCK_CELLS]; None: they keep no blocks
        self._by_block = np.stack([_NO_BLOCKS if view.blocks is None else view.blocks for view in views]).astype(
            np.float64
        )
        self._by_block[..., _REALS] /= SCALE
        total = self._by_block.sum(axis=1)
        self._enough = (self._by_block[..., N] > 0).sum(axis=1) >= _FEWEST_BLOCKS
        if self._by_block.shape[1]:
            self.rests = left_out.rests(self._by_block, total)
        self._n, self._placed = total[:, N], total[:, BLOCK_PLACED1] + total[:, BLOCK_PLACED0]
        self._moments, mean = map(np.stack, zip(*(_impressions(view) for view in views), strict=True))
        self._beside = mean[:, None, :] + _STEPS
        self._spreads = [view.spread_of_weights for view in views]
        self._weighted = self._moments
        if any(self._spreads):
            every = zip(views, self._spreads, strict=True)
            self._weighted = np.stack([_impressions(view, spread or _ALL_WEIGH_1)[0] for view, spread in every])

    def variances(self, of: OfCells) -> list[_Variances]:
        """Those of a metric, by view."""
        k = len(self._views)
        between, alone, weighted = _unknown(k), _unknown(k), _unknown(k)
        with np.errstate(divide="ignore", invalid="ignore"):  # of those that have no value
            if of.alone:
                at = _gradient(of.function, self._beside)
                alone, weighted = _form(at, self._moments), _form(at, self._weighted)
            if self.rests is not None:
                found = left_out.variance(left_out.changes(of.function, self.rests))
                known = self._enough & np.isfinite(found)
                if of.placed:  # the first minutes of a version have no curves
                    found, known = found * self._placed / self._n, known & (2 * self._placed > self._n)
                between = [v if there else None for v, there in zip(found.tolist(), known.tolist(), strict=True)]
        every = zip(between, alone, weighted, self._spreads, strict=True)
        return [_Variances(b, a, None if spread is None else w) for b, a, w, spread in every]

    def most(self, i: int) -> float:
        """How many times wider than between impressions a variance between blocks may be, in this view."""
        return _MOST_EFFECT * float(self._n[i])

    def df(self, i: int) -> float | None:
        """Degrees of freedom between the blocks of a view; None: there are too few."""
        return _df(self._by_block[i], self._spreads[i]) if self._enough[i] else None


@dataclass(slots=True)
class _Found:
    """The errors of one view, metric by metric."""

    whole: Errors | None
    stderr: dict[str, float | None] = field(default_factory=dict)
    effects: dict[str, float] = field(default_factory=dict)
    beyond: dict[str, float] = field(default_factory=dict)  # of a sampled log: effects beside those of its weights
    dfs: dict[str, float | None] = field(default_factory=dict)

    def add(self, name: str, of: _Variances, most: float) -> None:
        """A metric of cells."""
        variance, alone = of.between_blocks, of.alone
        if variance is None:
            if alone is None:
                return
            variance = alone * self._design.get(name, 1.0) if self.whole is not None else alone
            if of.weighted is not None:
                variance = of.weighted
                self.effects[name] = variance / alone if alone else 1.0
        elif alone and variance <= most * alone:
            self.effects[name] = variance / alone
            if of.weighted is not None:
                self.beyond[name] = variance / of.weighted
        self.stderr[name] = math.sqrt(max(variance, 0.0))

    def widen(self, name: str, of: OfImpressions, view: View) -> None:
        """A metric whose error is that between impressions, wider by another's design effect."""
        effects = self._design if view.spread_of_weights is None else self.beyond
        self.stderr[name] = math.sqrt(max(of.variance(view) * effects.get(of.widened_as, 1.0), 0.0))

    def errors(self, df: float | None) -> Errors:
        """All of them; `df`: between blocks."""
        if df is None and self.whole is not None:
            df = self.whole.df
        return Errors(self.stderr, self.effects, df, self.dfs.pop("gauc", None), self.dfs)

    @property
    def _design(self) -> Mapping[str, float]:
        return self.effects if self.whole is None else self.whole.design


def _unknown(k: int) -> list[float | None]:
    return [None] * k


def _form(at: Cells, moments: Cells) -> list[float | None]:
    """The quadratic forms of [k, cells] and [k, cells, cells]."""
    found: list[float | None] = np.matmul(np.matmul(at[:, None, :], moments), at[:, :, None])[:, 0, 0].tolist()
    return found


def _df(by_block: Cells, spread_of_weights: tuple[float, float] | None) -> float:
    n, y = by_block[:, N], by_block[:, Y]
    of_clicks = 1.0 if spread_of_weights is None else spread_of_weights[1]
    return float(left_out.degrees_of_freedom(n, y, of_clicks * y.sum() - y.sum() ** 2 / n.sum()))


def _of_tally(of: OfTally, view: View) -> float | None:
    cells = of.cells(view)
    if cells is None or int((cells != 0).any(axis=1).sum()) < _FEWEST_BLOCKS:
        return None
    found = float(left_out.variance(left_out.changes(of.function, left_out.rests(cells, cells.sum(axis=0)))))
    return math.sqrt(max(found, 0.0)) if math.isfinite(found) else None


def _gradient(metric: Callable[[Cells], Cells], beside: Cells) -> Cells:
    """Where `beside` are `_STEPS` from: by steps so small into the imaginary that nothing is rounded off (Squire and Trapp 1998, SIAM Review 40:110)."""
    slopes: Cells = metric(beside).imag / _STEP
    return slopes


def _impressions(view: View, spread: tuple[float, float] = _ALL_WEIGH_1) -> tuple[NDArray[np.float64], Cells]:
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

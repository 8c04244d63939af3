"""Strata of propensity: how good a model is where the server shows items often, and where hardly ever.

Jadidinejad, Macdonald and Ounis (The Simpson's Paradox in the Offline Evaluation of Recommendation Systems, ACM TOIS
40(1), 2021): an aggregate is dominated by what is shown often. The strata's values are combined in three ways, and they
answer different questions:

- `share`: by what the strata have of the impressions (of the clicks, for AUC and calibration). The paper's. Of the same
  impressions E(Y) = sum E(Y | x) P(x), so it gives back the overall value of any mean and corrects nothing.
- `plain`: every stratum alike, however little it holds.
- `uniform_exposure`: by the inverse-propensity mass of the stratum, as if everything had been shown equally often. Subclassified
  SNIPS, and the only one of the three that estimates what the open loop would show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, zip_longest

import numpy as np
from numpy.typing import NDArray

from streameval.metrics.errors import coarse
from streameval.metrics.view import View
from streameval.metrics.when_read import WhenRead
from streameval.sketches.exposed_lists import span_of, strata_ndcg
from streameval.sketches.layout import Moments, UsedBins, read_tally
from streameval.sketches.propensity import (
    SCORE_BINS,
    STRATUM_L,
    STRATUM_MASS,
    STRATUM_MASS_FRACTION,
    STRATUM_N,
    STRATUM_P,
    STRATUM_SUMS,
    STRATUM_Y,
    PropensityStrata,
    score_bins,
)
from streameval.sketches.sparse import SparseVector

_Reals = NDArray[np.float64]
_Ints = NDArray[np.int64]
WEIGHTINGS = ("share", "plain", "uniform_exposure")
STRATIFIED = ("log_loss", "calibration", "auc")


@dataclass(frozen=True, slots=True)
class Stratum:
    """One stratum: propensities in [lower, upper), the last one closed. None: undefined.

    `auc_of_clicks` is the probability that one of its clicks outscores one of the window's non-clicks, whatever stratum that is
    in; weighted by clicks, those of all rows add up to the AUC. `auc_of_clicks_error` bounds what the resolution of
    the scores costs. `ndcg`: by cut K, of `lists` with a gain in the stratum: the NDCG of those items alone, in the whole list.
    The row without edges, if there is one, has the impressions without a propensity.
    """

    lower: float | None
    upper: float | None
    impressions: int
    clicks: int
    log_loss: float | None
    calibration: float | None
    auc_of_clicks: float | None
    auc_of_clicks_error: float | None
    inverse_mass: float | None
    lists: int = 0
    ndcg: tuple[tuple[int, float | None], ...] = ()

    def as_json(self) -> dict[str, int | float | None]:
        """As in the report: `ndcg_K` by name."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {**plain, **({"lists": self.lists} if self.ndcg else {}), **{f"ndcg_{k}": x for k, x in self.ndcg}}


_PLAIN = tuple(Stratum.__slots__[:9])


def cut_by_mass(impressions: _Ints, count: int) -> list[int]:
    """Where bins int64[n] are cut into at most `count` strata of nearly equal impressions: places between bins, ascending.

    The i-th cut is where the impressions below are nearest to i / count of all. A bin is never divided, and no stratum is
    empty: so there are fewer than `count` where a bin alone holds more than its share.
    """
    upto = np.cumsum(impressions)
    total = int(upto[-1]) if upto.size else 0
    found: set[int] = set()
    for i in range(1, count):
        # the first of equals, so that no empty bin moves a cut
        below = int(np.argmin(np.abs(upto * count - i * total)))
        if 0 < upto[below] < total:
            found.add(below + 1)
    return sorted(found)


def cut_by_width(edges: Sequence[float], impressions: _Ints, count: int) -> list[int]:
    """The same for strata of nearly equal width, from the first bin that is used to the last; bin i is edges[i] to edges[i + 1].

    What pandas.cut does, to the nearest edge of a bin.
    """
    used = np.flatnonzero(impressions)
    if not used.size:
        return []
    first, last = int(used[0]), int(used[-1]) + 1
    low, high = edges[first], edges[last]
    inner = np.array(edges[first + 1 : last])
    if not inner.size:
        return []
    wanted = [low + i * (high - low) / count for i in range(1, count)]
    return sorted({first + 1 + int(np.argmin(np.abs(inner - at))) for at in wanted})


def combined(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """sum v w / sum w over the strata that have a value; None when none has."""
    known = [(v, w) for v, w in zip(values, weights, strict=True) if v is not None and w > 0]
    total = math.fsum(w for _, w in known)
    return math.fsum(v * w for v, w in known) / total if known else None


def stratified(strata: Sequence[Stratum]) -> dict[str, dict[str, float | None]]:
    """Every metric under the three weightings, of the strata that have a propensity.

    Under `uniform_exposure` the metric's own weight (impressions, clicks, or lists) is multiplied by the mean inverse propensity
    of the stratum's impressions.
    """
    some = [s for s in strata if s.inverse_mass is not None]
    out: dict[str, dict[str, float | None]] = {}
    cuts = [k for k, _ in strata[0].ndcg] if strata else []
    for metric in (*STRATIFIED, *(f"ndcg_{k}" for k in cuts)):
        values, own = _of_strata(metric, some)
        mean = [(s.inverse_mass or 0.0) / s.impressions if s.impressions else 0.0 for s in some]
        weights: Mapping[str, Sequence[float]] = {
            "share": own,
            "plain": [1.0] * len(some),
            "uniform_exposure": [w * m for w, m in zip(own, mean, strict=True)],
        }
        out[metric] = {name: combined(values, weights[name]) for name in WEIGHTINGS}
    return out


def _of_strata(metric: str, strata: Sequence[Stratum]) -> tuple[list[float | None], list[float]]:
    """(the metric in every stratum, its own weights)."""
    if metric.startswith("ndcg_"):
        k = int(metric.removeprefix("ndcg_"))
        return [dict(s.ndcg)[k] for s in strata], [float(s.lists) for s in strata]
    if metric == "log_loss":
        return [s.log_loss for s in strata], [float(s.impressions) for s in strata]
    values = [s.auc_of_clicks if metric == "auc" else s.calibration for s in strata]
    return values, [float(s.clicks) for s in strata]


@dataclass(frozen=True, slots=True)
class Whole:
    """Everything that the strata are of: sums, and labels by score at the resolution of the strata, int64[SCORE_BINS]."""

    impressions: int
    clicks: int
    pclick: float
    log_loss: float
    negatives: _Ints
    positives: _Ints


@dataclass(frozen=True, slots=True)
class _Kept:
    """A vector's strata, without empty cells, which are nearly all of those of clicks."""

    of: PropensityStrata
    moments: Moments
    bins: int  # of the window's histogram
    used: UsedBins
    by_bin: _Reals  # [bins, STRATUM_SUMS]
    clicks: SparseVector  # over [bins, SCORE_BINS]
    ndcg: _Reals | None  # [bins or spans of them, 1 + cuts]; None: not kept
    k: tuple[int, ...]


def read_strata(view: View) -> Sequence[Stratum] | None:
    """The strata of a series, lowest propensities first, then what has none; None where they are not kept.

    Combined on request: their sums are a large part of a vector, and few readers need them.
    """
    of = view.options.strata
    if of is None or not view.layout.by_block:
        return None
    sums, clicks = view.tally(of.sums), read_tally(view.vector, view.layout, of.clicks)
    if sums is None or clicks is None:
        return None
    k = view.options.k
    ndcg = view.tally(strata_ndcg(of, k, view.options.gain))
    by_list = None if ndcg is None else ndcg.reshape(-1, 1 + len(k))
    by_bin, by_score = sums.reshape(-1, STRATUM_SUMS), SparseVector.of_dense(clicks)
    kept = _Kept(of, view.moments, view.layout.bins, view.used, by_bin, by_score, by_list, k)
    return WhenRead(partial(_put_together, kept))


def _put_together(kept: _Kept) -> tuple[Stratum, ...]:
    of, impressions = kept.of, kept.by_bin[:, STRATUM_N].astype(np.int64)
    if of.edges:
        limits = list(range(len(of.bounds)))
    elif not impressions.any():
        limits = []
    else:
        used = np.flatnonzero(impressions)
        by_mass = of.cut == "mass"
        cuts = cut_by_mass(impressions, of.count) if by_mass else cut_by_width(of.bounds, impressions, of.count)
        limits = [int(used[0]), *cuts, int(used[-1]) + 1]
    by_score = np.zeros((len(kept.by_bin), SCORE_BINS), np.int64)
    kept.clicks.add_to(by_score.ravel())
    strata = strata_of(kept.by_bin, by_score, of.bounds, limits, _whole(kept))
    return tuple(strata) if kept.ndcg is None else _with_ndcg(strata, kept.ndcg, kept, limits)


def _whole(kept: _Kept) -> Whole:
    m, (bins, *of_labels) = kept.moments, kept.used
    by_label = np.zeros((len(of_labels), kept.bins), np.int64)
    by_label[:, bins] = of_labels
    return Whole(m.impressions, m.clicks, m.pclick, m.log_loss, *(score_bins(coarse(counts)) for counts in by_label))


def _with_ndcg(strata: Sequence[Stratum], cells_of: _Reals, kept: _Kept, limits: Sequence[int]) -> tuple[Stratum, ...]:
    """The same with NDCG; the row without edges has none."""
    bins = 0 if kept.of.edges else len(kept.of.bounds) - 1
    totals = (_of_run(cells_of, first, last, bins) for first, last in pairwise(limits))
    out = []
    for one, cells in zip_longest(strata, totals):
        lists = 0 if cells is None else int(cells[0])
        ndcg = [float(cell) / lists if lists else None for cell in (cells_of[0] if cells is None else cells)[1:]]
        out.append(replace(one, lists=lists, ndcg=tuple(zip(kept.k, ndcg, strict=True))))
    return tuple(out)


def _of_run(cells: _Reals, first: int, last: int, bins: int) -> _Reals:
    """The sum of the stratum of bins first to last - 1; of its spans, when sums are of spans of so many `bins`."""
    if not bins:
        return np.asarray(cells[first:last].sum(axis=0))
    own = [np.arange(last - x) + span_of(x, x, bins) for x in range(first, last)]
    return np.asarray(cells[np.concatenate(own)].sum(axis=0))


def strata_of(
    sums: _Reals, by_score: _Ints, bounds: Sequence[float], limits: Sequence[int], whole: Whole
) -> list[Stratum]:
    """The table, lowest propensities first; behind them what has none, if there is any.

    `sums` float64[bins, STRATUM_SUMS] in units, `by_score` int64[bins, SCORE_BINS]: clicks; bin i is bounds[i] to
    bounds[i + 1]; stratum i is of bins limits[i] to limits[i + 1] - 1.
    """
    out = []
    for first, last in pairwise(limits):
        cells = sums[first:last].sum(axis=0)
        mass = float(cells[STRATUM_MASS] + cells[STRATUM_MASS_FRACTION])
        out.append(_stratum((bounds[first], bounds[last]), cells, mass, by_score[first:last].sum(axis=0), whole))
    total = sums.sum(axis=0)
    rest = np.zeros(STRATUM_SUMS)
    known = [STRATUM_N, STRATUM_Y, STRATUM_P, STRATUM_L]
    rest[known] = np.array([whole.impressions, whole.clicks, whole.pclick, whole.log_loss]) - total[known]
    if rest[STRATUM_N]:
        out.append(_stratum((None, None), rest, None, whole.positives - by_score.sum(axis=0), whole))
    return out


def _stratum(
    bounds: tuple[float | None, float | None], cells: _Reals, mass: float | None, by_score: _Ints, whole: Whole
) -> Stratum:
    n, y = int(cells[STRATUM_N]), int(cells[STRATUM_Y])
    auc = error = None
    others = int(whole.negatives.sum())
    if y and others:
        below = np.cumsum(whole.negatives) - whole.negatives
        tied = float(by_score @ whole.negatives)
        auc = (float(by_score @ below) + tied / 2) / (y * others)
        error = tied / (2 * y * others)
    return Stratum(
        *bounds,
        impressions=n,
        clicks=y,
        log_loss=float(cells[STRATUM_L]) / n if n else None,
        calibration=float(cells[STRATUM_P]) / y if y else None,
        auc_of_clicks=auc,
        auc_of_clicks_error=error,
        inverse_mass=mass,
    )

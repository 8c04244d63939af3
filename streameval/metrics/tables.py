"""The bucket tables: pClick buckets with fixed edges, and with equal counts (Yi et al. 2013, figures 3 and 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.accumulate import CLIP
from streameval.sketches.grid import bin_edges
from streameval.sketches.layout import BucketSums, Layout, UsedBins, used_bins


@dataclass(frozen=True, slots=True)
class Bucket:
    """One row of the bucket table; pClick in [lower, upper), the last bucket closed. None: undefined (empty)."""

    lower: float
    upper: float
    impressions: int
    clicks: int
    mean_pclick: float | None
    ctr: float | None
    log_loss: float | None
    prediction_error: float | None


_Edges = NDArray[np.float64]
_Counts = NDArray[np.int64]


class ScoreCounts:
    """The score histogram behind a result: bin i holds scores in [lower[i], upper[i]); only bins in use, all arrays read-only."""

    __slots__ = ("_columns", "_make")

    def __init__(self, lower: _Edges, upper: _Edges, negatives: _Counts, positives: _Counts) -> None:
        self._make: Callable[[], ScoreCounts] | None = None
        self._columns: tuple[_Edges, _Edges, _Counts, _Counts] | None = (lower, upper, negatives, positives)

    @classmethod
    def when_read(cls, make: Callable[[], ScoreCounts]) -> ScoreCounts:
        """One that is made when it is read."""
        out = cls.__new__(cls)
        out._make, out._columns = make, None
        return out

    @property
    def lower(self) -> _Edges:
        """Lower edges."""
        return self._all()[0]

    @property
    def upper(self) -> _Edges:
        """Upper edges."""
        return self._all()[1]

    @property
    def negatives(self) -> _Counts:
        """Non-clicks by bin."""
        return self._all()[2]

    @property
    def positives(self) -> _Counts:
        """Clicks by bin."""
        return self._all()[3]

    def _all(self) -> tuple[_Edges, _Edges, _Counts, _Counts]:
        if self._columns is None:
            assert self._make is not None
            self._columns = self._make()._all()
        return self._columns


def make_bucket(lower: float, upper: float, impressions: int, clicks: int, pclick: float, log_loss: float) -> Bucket:
    """One row from its sums; what an empty bucket, or one without clicks, cannot say is None."""
    if not impressions:
        return Bucket(lower, upper, 0, 0, None, None, None, None)
    error = pclick / clicks - 1 if clicks else None
    return Bucket(
        lower, upper, impressions, clicks, pclick / impressions, clicks / impressions, log_loss / impressions, error
    )


def fixed_buckets(sums: list[BucketSums], edges: tuple[float, ...]) -> tuple[Bucket, ...]:
    """The table with the configured edges; exact."""
    bounds = (0.0, *edges, 1.0)
    return tuple(
        make_bucket(bounds[i], bounds[i + 1], b.impressions, b.clicks, b.pclick, b.log_loss) for i, b in enumerate(sums)
    )


def score_counts(negatives: NDArray[np.int64], positives: NDArray[np.int64], layout: Layout) -> ScoreCounts:
    """The histogram's used bins with their edges."""
    return counts_of(used_bins(negatives, positives), layout)


def counts_of(used: UsedBins, layout: Layout) -> ScoreCounts:
    """The same, of bins that have been found."""
    edges = _edges(layout.bits)
    counts = ScoreCounts(edges[used.bins], edges[used.bins + 1], used.negatives, used.positives)
    for column in (counts.lower, counts.upper, counts.negatives, counts.positives):
        column.flags.writeable = False
    return counts


def quantile_buckets(scores: ScoreCounts, count: int) -> tuple[Bucket, ...]:
    """At most `count` buckets of nearly equal impressions, cut between histogram bins.

    Impressions and clicks are exact; mean_pclick and log_loss take the middle of a bin for all its scores, so they
    are within 2**-(bits + 1) of the exact ones (relative to p, or to 1 - p): 5e-4 overall, 4e-3 in slices.
    """
    total = scores.negatives + scores.positives
    if not total.size:
        return ()
    middle = (scores.lower + scores.upper) / 2
    clipped = np.minimum(np.maximum(middle, CLIP), 1 - CLIP)
    loss = -(scores.positives * np.log(clipped) + scores.negatives * np.log1p(-clipped))
    first, last = _cuts(total, count)
    sums = [np.add.reduceat(column, first) for column in (total, scores.positives, total * middle, loss)]
    columns = (scores.lower[first], scores.upper[last], *sums)
    return tuple(make_bucket(*row) for row in zip(*(column.tolist() for column in columns), strict=True))


@numba.njit(cache=True, nogil=True)
def _cuts(total: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first bin and the last of every quantile that is not empty: a bin belongs to that of its middle impression."""
    first, last = np.empty(total.size, np.int64), np.empty(total.size, np.int64)
    all_of, upto, found, before = float(total.sum()), 0, 0, -1
    for b in range(total.size):
        upto += total[b]
        which = min(int((upto - total[b] / 2) * count / all_of), count - 1)
        if which != before:
            first[found] = b
            found += 1
        last[found - 1] = b
        before = which
    return first[:found], last[:found]


_EDGES: dict[int, NDArray[np.float64]] = {}


def _edges(bits: int) -> NDArray[np.float64]:
    """Edges by resolution, made once: they depend on nothing else."""
    if bits not in _EDGES:
        _EDGES[bits] = bin_edges(bits)
    return _EDGES[bits]

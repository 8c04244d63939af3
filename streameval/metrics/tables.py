"""The bucket tables: pClick buckets with fixed edges, and with equal counts (Yi et al. 2013, figures 3 and 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.accumulate import CLIP
from streameval.sketches.grid import bin_edges
from streameval.sketches.layout import BucketSums, Layout, UsedBins, used_bins

_Row = TypeVar("_Row")


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


@dataclass(frozen=True, slots=True)
class ScoreCounts:
    """The score histogram behind a result: bin i holds scores in [lower[i], upper[i]); only bins in use."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    negatives: NDArray[np.int64]
    positives: NDArray[np.int64]


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


class WhenRead(Sequence[_Row]):
    """A table that is made when it is read: a snapshot has several for every result, and readers need few."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], tuple[_Row, ...]]) -> None:
        self._make = make
        self._made: tuple[_Row, ...] | None = None

    def _rows(self) -> tuple[_Row, ...]:
        if self._made is None:  # two readers at once make the same
            self._made = self._make()
        return self._made

    def __len__(self) -> int:
        return len(self._rows())

    @overload
    def __getitem__(self, at: int) -> _Row: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[_Row, ...]: ...
    def __getitem__(self, at: int | slice) -> _Row | tuple[_Row, ...]:
        return self._rows()[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._rows() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._rows())


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

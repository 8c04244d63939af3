"""The bucket tables: pClick buckets with fixed edges, and with equal counts (Yi et al. 2013, figures 3 and 4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streameval.report import Bucket, ScoreCounts
from streameval.sketches.accumulate import CLIP
from streameval.sketches.grid import bin_edges
from streameval.sketches.layout import BucketSums, Layout


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
    used = np.flatnonzero((negatives != 0) | (positives != 0))
    edges = _edges(layout.bits)
    counts = ScoreCounts(edges[used], edges[used + 1], negatives[used], positives[used])
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
    upto = np.cumsum(total)
    # a bin belongs to the quantile in which its middle impression lies
    which = np.minimum(((upto - total / 2) * count / upto[-1]).astype(np.int64), count - 1)
    middle = (scores.lower + scores.upper) / 2
    clipped = np.clip(middle, CLIP, 1 - CLIP)
    loss = -(scores.positives * np.log(clipped) + scores.negatives * np.log1p(-clipped))
    first = np.flatnonzero(np.diff(which, prepend=-1))  # of every quantile that is not empty
    last = np.append(first[1:], which.size) - 1
    columns = (
        scores.lower[first], scores.upper[last],
        *(np.add.reduceat(column, first) for column in (total, scores.positives, total * middle, loss)),
    )  # fmt: skip
    return tuple(make_bucket(*row) for row in zip(*(column.tolist() for column in columns), strict=True))


_EDGES: dict[int, NDArray[np.float64]] = {}


def _edges(bits: int) -> NDArray[np.float64]:
    """Edges by resolution, made once: they depend on nothing else."""
    if bits not in _EDGES:
        _EDGES[bits] = bin_edges(bits)
    return _EDGES[bits]

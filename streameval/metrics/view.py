"""What a metric may look at: the sums, buckets, histogram and ranks of one series in one window and slice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.sketches.layout import BucketSums, Moments


@dataclass(frozen=True, slots=True)
class Undefined:
    """Why a metric has no value."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ranked:
    """GAUC over users: sum of w AUC and of w, over `users` with both labels and their `impressions`.

    The sums are integers in units of 2**-31, so that adding up partitions is exact in any order. `squares`: the sums of
    (w AUC)^2, w * w AUC and w^2, in units of 1 / `ranks.SQUARE_SCALE`, for the standard error.
    """

    weighted_auc: int
    weight: int
    users: int
    impressions: int
    squares: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class View:
    """Read-only inputs of every metric."""

    moments: Moments
    buckets: list[BucketSums]
    negatives: NDArray[np.int64]  # non-clicks per histogram bin
    positives: NDArray[np.int64]
    ranked: Ranked | None  # None: not kept (slices)
    exact_auc: float | None  # from the scores themselves; None: use the histogram
    blocks: NDArray[np.int64] | None = (
        None  # sums by block of users (see `layout.read_blocks`); None: not kept (slices)
    )

    def need_both_classes(self) -> Undefined | None:
        """The reason why nothing that compares clicks with non-clicks is defined."""
        m = self.moments
        if m.impressions == 0:
            return Undefined("no_impressions")
        if m.clicks == 0:
            return Undefined("no_clicks")
        if m.clicks == m.impressions:
            return Undefined("no_non_clicks")
        return None

    def need_clicks(self) -> Undefined | None:
        """The reason why nothing that divides by clicks is defined."""
        if self.moments.impressions == 0:
            return Undefined("no_impressions")
        return Undefined("no_clicks") if self.moments.clicks == 0 else None

    def need_impressions(self) -> Undefined | None:
        """The reason why nothing at all is defined."""
        return Undefined("no_impressions") if self.moments.impressions == 0 else None

"""The data that metrics are computed from: the sums, buckets, histogram and ranks of one series in one window and slice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from streameval.sketches.blocks import BLOCKS
from streameval.sketches.copies import CLICKS_SQUARED, OTHERS_SQUARED, WEIGHED, WEIGHTS
from streameval.sketches.grid import bin_edges
from streameval.sketches.layout import (
    BucketSums,
    Layout,
    Moments,
    Options,
    UsedBins,
    read_blocks,
    read_buckets,
    read_histogram,
    read_tally,
    used_bins,
)
from streameval.sketches.weightings import Weighted

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Undefined:
    """Why a metric has no value."""

    reason: str


NOT_CONFIGURED = Undefined("not_configured")  # no setting asks for it
NOT_KEPT_FOR_SLICES = Undefined("not_kept_for_slices")
WEIGHTS_NOT_SUPPORTED = Undefined("weights_not_supported")  # it needs every impression, and these are a sample
VALUES_NOT_KEPT = Undefined("values_not_kept")  # no setting asks for the value of clicks
NOT_KEPT_FOR_RANGES = Undefined("not_kept_for_ranges")  # neither values of users, nor means over their lists


@dataclass(frozen=True, slots=True)
class Ranked:
    """GAUC over users: sum of w AUC and of w, over `users` with both labels and their `impressions`.

    The sums are integers in units of 2**-31, so that adding up partitions is exact in any order. `squares`: the sums of
    (w AUC)^2, w * w AUC and w^2, in units of 1 / `weightings.SQUARE_SCALE`, for the standard error. `others`: the same sums by
    each of `weightings.OTHER_WEIGHTINGS`; the last one None where users' values are not kept. `by_block`: users with
    impressions that this version served, whatever their labels, by block; estimated where only a sample of them is kept; of all that
    it scored unless `served_known`.
    """

    weighted_auc: int
    weight: int
    users: int
    impressions: int
    squares: tuple[int, int, int] = (0, 0, 0)
    others: tuple[Weighted, Weighted, Weighted | None] = (Weighted(), Weighted(), Weighted())
    by_block: tuple[int, ...] = (0,) * BLOCKS
    served_known: bool = True

    @property
    def weighted(self) -> Weighted:
        """By the weighting that is configured."""
        return Weighted(self.weighted_auc, self.weight, self.squares)

    def plus(self, other: Ranked) -> Ranked:
        """The terms over disjoint users."""
        own = self.weighted.plus(other.weighted)
        (clicks, uniform, value), (c, u, v) = self.others, other.others
        others = (clicks.plus(c), uniform.plus(u), None if value is None or v is None else value.plus(v))
        users, impressions = self.users + other.users, self.impressions + other.impressions
        by_block = tuple(map(add, self.by_block, other.by_block))
        known = self.served_known and other.served_known
        return Ranked(own.weighted_auc, own.weight, users, impressions, own.squares, others, by_block, known)

    @classmethod
    def sum(cls, parts: Iterable[Ranked]) -> Ranked:
        """The terms over partitions, whose users are disjoint."""
        return reduce(cls.plus, parts, cls(0, 0, 0, 0))


@dataclass(frozen=True, slots=True)
class UserMeans:
    """A metric's mean within every user, over the `users` that have one: the sum of the means, in units of 2**-30, and of
    their squares, in units of 2**-60. Integers, so that adding up partitions is exact in any order.
    """

    users: int = 0
    total: int = 0
    squares: int = 0

    def __add__(self, other: UserMeans) -> UserMeans:
        return UserMeans(self.users + other.users, self.total + other.total, self.squares + other.squares)


@dataclass(frozen=True, slots=True)
class View:
    """Read-only inputs of every metric."""

    moments: Moments
    buckets: list[BucketSums]
    negatives: NDArray[np.int64]  # non-clicks per histogram bin
    positives: NDArray[np.int64]
    ranked: Ranked | Undefined  # Undefined: why there are no ranks
    exact_auc: float | None  # from the scores themselves; None: use the histogram
    blocks: NDArray[np.int64] | None  # sums by block of users (see `layout.read_blocks`); None: not kept, or not read
    layout: Layout
    vector: NDArray[np.int64]  # of which all this is
    # by metric of lists; Undefined: why there are none
    by_user: Mapping[str, UserMeans] | Undefined = NOT_KEPT_FOR_RANGES
    lacking: frozenset[str] = (
        frozenset()
    )  # tallies that were not counted for all of it, unlike what they are divided by
    made: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)  # see `once`

    @classmethod
    def of(
        cls,
        vector: NDArray[np.int64],
        layout: Layout,
        ranked: Ranked | Undefined,
        exact_auc: float | None = None,
        by_user: Mapping[str, UserMeans] | Undefined = NOT_KEPT_FOR_RANGES,
        lacking: frozenset[str] = frozenset(),
    ) -> View:
        """The view of a series' vector; for sums, one that ends before its blocks and histogram is enough."""
        negatives, positives = read_histogram(vector, layout)
        blocks = read_blocks(vector, layout) if layout.by_block and vector.size == layout.size else None
        moments, buckets = Moments.read(vector), read_buckets(vector, layout)
        return cls(
            moments,
            buckets,
            negatives,
            positives,
            ranked,
            exact_auc,
            blocks,
            layout=layout,
            vector=vector,
            by_user=by_user,
            lacking=lacking,
        )

    @property
    def options(self) -> Options:
        """The settings of metrics."""
        return self.layout.options or Options(self.layout.edges)

    def tally(self, name: str) -> NDArray[np.float64] | None:
        """A tally's sums, float64[BLOCKS, cells], or float64[cells] of one without blocks; None: not kept, not read, or
        `lacking`.
        """

        def read() -> NDArray[np.float64] | None:
            cells, found = read_tally(self.vector, self.layout, name), self.layout.tally(name)
            if cells is None or found is None or found[0].name in self.lacking:
                return None
            return cells * found[0].units()

        return self.once(f"tally {name}", read) if self.layout.by_block else None

    @property
    def is_sampled(self) -> bool:
        """Whether any impression stands for more, or less, than itself; in slices, which do not know, False."""
        squares = self.tally(WEIGHTS.name)
        return squares is not None and bool(squares[WEIGHED])

    @property
    def spread_of_weights(self) -> tuple[float, float] | None:
        """Sum of squared weights over sum of weights, of non-clicks and of clicks; None: all weigh 1."""
        squares, m = self.tally(WEIGHTS.name), self.moments
        if squares is None or not squares[WEIGHED]:
            return None
        of_others, of_clicks = float(squares[OTHERS_SQUARED]), float(squares[CLICKS_SQUARED])
        return of_others / max(m.impressions - m.clicks, 1), of_clicks / max(m.clicks, 1)

    @property
    def effective_impressions(self) -> float | None:
        """(sum of weights)^2 / sum of squared weights (Kish 1965); None: all weigh 1."""
        squares = self.tally(WEIGHTS.name)
        if squares is None or not squares[WEIGHED]:
            return None
        both = float(squares[OTHERS_SQUARED] + squares[CLICKS_SQUARED])
        return self.moments.impressions**2 / both if both else None

    @property
    def used(self) -> UsedBins:
        """The histogram without its empty bins, from which the same numbers follow."""
        return self.once("used bins", lambda: used_bins(self.negatives, self.positives))

    @property
    def middles(self) -> NDArray[np.float64]:
        """The middle of each of the used bins, float64[used]."""
        edges = bin_edges(self.layout.bits)
        return (edges[self.used.bins] + edges[self.used.bins + 1]) / 2

    def once(self, name: str, make: Callable[[], T]) -> T:
        """An input of several metrics, computed once: `name` identifies it. Read-only."""
        if name not in self.made:
            self.made[name] = make()
        found: T = self.made[name]
        return found

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

"""What follows from the sums of one slice, made when somebody reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streameval.metrics import registry
from streameval.metrics.errors import Errors, standard_errors
from streameval.metrics.tables import Bucket, ScoreCounts, counts_of, fixed_buckets, quantile_buckets
from streameval.metrics.view import NOT_KEPT_FOR_SLICES, View
from streameval.results.result import Result
from streameval.sketches.layout import Layout
from streameval.sketches.sparse import SparseVector


class OfAllSlices(NamedTuple):
    """What the result of a slice takes over from that of all slices together."""

    errors: Errors | None
    sampled: bool

    @classmethod
    def of(cls, result: Result | None) -> OfAllSlices:
        """`result`: that of all slices together, if there is one."""
        if result is None:
            return cls(None, False)
        errors = Errors(result.stderrs, result.design_effects, result.stderr_df, result.gauc_stderr_df)
        return cls(errors, result.sampled)


@dataclass(slots=True)
class SliceSums:
    """What was counted of a slice."""

    head: list[int]  # the first `BUCKETS` cells
    vector: SparseVector  # all cells that are not 0
    metrics: Mapping[str, float | int | None] | None = None  # once somebody has read them
    errors: tuple[OfAllSlices, Errors] | None = None  # the same, and of which result of all slices they follow

    def view(self, layout: Layout) -> View:
        """What metrics are made of."""
        row = np.zeros(layout.size, np.int64)
        self.vector.add_to(row)
        return View.of(row, layout, NOT_KEPT_FOR_SLICES)


class SliceNumbers:
    """What follows from the sums of a slice when it is read."""

    __slots__ = ("_asked", "_layout", "_quantiles", "_sums", "_whole")

    def __init__(
        self, sums: SliceSums, layout: Layout, quantiles: int, whole: OfAllSlices, asked: Callable[[], None]
    ) -> None:
        """`asked` is called whenever somebody reads its metrics or their errors."""
        self._sums, self._layout, self._quantiles = sums, layout, quantiles
        self._whole, self._asked = whole, asked

    def metrics(self) -> Mapping[str, float | int | None]:
        """Every metric by name."""
        self._asked()
        return self._made_metrics()

    def stderrs(self) -> Mapping[str, float | None]:
        """Standard errors, by metric."""
        self._asked()
        return self._made_errors().stderr

    def design_effects(self) -> Mapping[str, float]:
        """Variance by user over variance by impression, by metric."""
        return self._made_errors().design

    def scores(self) -> ScoreCounts:
        """The score histogram."""
        return counts_of(self._sums.view(self._layout).used, self._layout)

    def buckets(self) -> tuple[Bucket, ...]:
        """The table with the configured edges."""
        return fixed_buckets(self._sums.view(self._layout).buckets, self._layout.edges)

    def quantiles(self) -> tuple[Bucket, ...]:
        """The table with equal counts."""
        return quantile_buckets(self.scores(), self._quantiles)

    def make(self) -> None:
        """Makes metrics and errors."""
        self._made_errors()

    def _made_metrics(self) -> Mapping[str, float | int | None]:
        sums = self._sums
        if sums.metrics is None:  # two readers at once make the same
            sums.metrics = registry.evaluate(sums.view(self._layout))[0]
        return sums.metrics

    def _made_errors(self) -> Errors:
        sums, whole = self._sums, self._whole
        if sums.errors is None or sums.errors[0] is not whole:
            errors = standard_errors(sums.view(self._layout), self._made_metrics(), whole.errors)
            sums.errors = whole, errors
            return errors
        return sums.errors[1]

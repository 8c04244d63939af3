"""What follows from the sums of one slice, made when somebody reads it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from streameval.metrics import registry
from streameval.metrics.errors import Errors, standard_errors
from streameval.metrics.tables import Bucket, ScoreCounts, counts_of, fixed_buckets, quantile_buckets
from streameval.metrics.view import NOT_KEPT_FOR_SLICES, View
from streameval.metrics.when_read import MappingWhenRead
from streameval.results.result import Result
from streameval.sketches.layout import Layout
from streameval.sketches.sparse import SparseVector

READ_FOR = 90.0  # seconds: whoever reads numbers of a slice may ask again for so long, as Prometheus every minute


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


class SliceNumbers:
    """The sums of a slice, and what follows from them when it is read."""

    __slots__ = ("_errors", "_layout", "_metrics", "_quantiles", "read_at", "sums", "whole")

    def __init__(
        self, sums: SparseVector, layout: Layout, quantiles: int, whole: OfAllSlices, before: SliceNumbers | None = None
    ) -> None:
        """`before`: those of the same slice at the last look. If they were read, these are made at once: whoever asks again, as
        Prometheus does, need not wait.
        """
        self.sums, self.whole = sums, whole
        self._layout, self._quantiles = layout, quantiles
        self._metrics: Mapping[str, float | int | None] | None = None
        self._errors: Errors | None = None
        self.read_at: float = -math.inf if before is None else before.read_at  # monotonic seconds
        if before is not None and before.sums is sums:
            self._metrics = before._metrics
        if self.read_at + READ_FOR > time.monotonic():
            self._made_errors()

    def view(self) -> View:
        """What metrics are made of."""
        row = np.zeros(self._layout.size, np.int64)
        self.sums.add_to(row)
        return View.of(row, self._layout, NOT_KEPT_FOR_SLICES)

    def metrics(self) -> Mapping[str, float | int | None]:
        """Every metric by name."""
        self.read_at = time.monotonic()
        return self._made_metrics()

    def stderrs(self) -> Mapping[str, float | None]:
        """Standard errors, by metric."""
        self.read_at = time.monotonic()
        return self._made_errors().stderr

    def design_effects(self) -> Mapping[str, float]:
        """Variance by user over variance by impression, by metric."""
        return self._made_errors().design

    def scores(self) -> ScoreCounts:
        """The score histogram."""
        return counts_of(self.view().used, self._layout)

    def buckets(self) -> tuple[Bucket, ...]:
        """The table with the configured edges."""
        return fixed_buckets(self.view().buckets, self._layout.edges)

    def quantiles(self) -> tuple[Bucket, ...]:
        """The table with equal counts."""
        return quantile_buckets(self.scores(), self._quantiles)

    def inherited(self) -> dict[str, Any]:
        """The fields of a result that follow from that of all slices together, too."""
        return {
            "stderrs": MappingWhenRead(self.stderrs),
            "design_effects": MappingWhenRead(self.design_effects),
            "stderr_df": None if self.whole.errors is None else self.whole.errors.df,
            "sampled": self.whole.sampled,
        }

    def _made_metrics(self) -> Mapping[str, float | int | None]:
        if self._metrics is None:  # two readers at once make the same
            self._metrics = registry.evaluate(self.view())[0]
        return self._metrics

    def _made_errors(self) -> Errors:
        if self._errors is None:
            self._errors = standard_errors(self.view(), self._made_metrics(), self.whole.errors)
        return self._errors

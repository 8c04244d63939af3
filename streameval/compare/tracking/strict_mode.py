"""The strict mode of one comparison: evidence that needs no large samples (see `evidence.strict`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streameval.compare.evidence import strict
from streameval.compare.evidence.evidence import Rule
from streameval.compare.tracking.sums import ComparisonSums, PairedSums
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE

_MOST = 0.99  # nats: the largest margin that `strict.log_e` takes


class StrictMode:
    """Its margin in nats is the relative margin times the baseline's log loss at the moment when the floors of clicks
    and users are met. The error of that log loss is ignored: a few percent of a threshold that is a choice anyway.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.margin: float | None = None  # frozen once the floors are met

    def log_e(self, sums: ComparisonSums) -> NDArray[np.float64] | None:
        """Returns log e, float64[1], 0 before the margin is known; None if strict mode is off or not available in this
        setup.
        """
        if not self._rule.strict or not isinstance(sums, PairedSums):
            return None
        baseline, _ = sums.totals()
        clicks, n = int(sums.clicks()[0, 0]), int(baseline[cells.N])
        if self.margin is None:
            if clicks < self._rule.min_clicks or sums.blocks() < self._rule.min_blocks:
                return np.zeros(1)
            self.margin = self._rule.margins["log_loss"] * int(baseline[cells.L]) / SCALE / n
        scalars = sums.strict()
        d, squares = int(scalars[cells.D_STRICT]) / SCALE, int(scalars[cells.D_STRICT_SQ]) / SCALE
        return np.array([strict.log_e(d, squares, n, min(self.margin, _MOST))])

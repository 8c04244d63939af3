"""The evidence of one further metric by itself: the same e-processes, windows, floors and bounds as for any metric of a
comparison.

It is an `Evidence` with a single statistic in the place of GAUC, because nothing else reads that one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.compare.evidence.evidence import DEFAULT_WEIGHTS, Evidence, Rule, Standing
from streameval.compare.evidence.ratio import Reals, Statistic
from streameval.compare.reading.reading import COMPARED

_PLACE = "gauc"
_COLUMN = COMPARED.index(_PLACE)


class Alone:
    """The evidence of one metric of one comparison."""

    def __init__(self, rule: Rule, metric: str, start: int) -> None:
        """`start`: event time in ms."""
        self._rule = replace(
            rule,
            margins=dict.fromkeys(COMPARED, rule.margins[metric]),
            tolerances=dict.fromkeys(COMPARED, rule.tolerances[metric]),
            weights=dict(DEFAULT_WEIGHTS),
            certified=(_PLACE,),
            more=(),
            decide=COMPARED,
            strict=False,
        )
        self._evidence = Evidence(self._rule, start)

    def advance(self, at: NDArray[np.int64], clicks: NDArray[np.int64], statistic: Statistic) -> tuple[Reals, Reals]:
        """Takes looks at int64[T] ms: clicks int64[T, J], statistic [T, J]. Returns log e of worse and of not worse,
        float64[T] each.
        """
        path = self._evidence.advance(at, clicks, {_PLACE: statistic})
        return path.log_e_worse[:, _COLUMN], path.log_e_not_worse[:, _COLUMN]

    def retract(self, at: int, since: int) -> bool:
        """See `Evidence.retract`. Returns whether there was a verdict to retract."""
        return bool(self._evidence.retract(at, since))

    def standing(self) -> Standing:
        """The current state of the metric."""
        return self._evidence.standing(_PLACE)

    def bounds(self, statistic: Statistic, clicks: int, window: int, sides: int) -> tuple[float, float]:
        """Returns (lower, upper) of harm over a window, see `Evidence.bounds`; infinite where unknown."""
        lower, upper = self._evidence.bounds({_PLACE: statistic}, clicks, window, sides, (0, window))[_PLACE]
        low, high = float(lower), float(upper)
        return (low, high) if math.isfinite(low) and math.isfinite(high) else (-math.inf, math.inf)

    def state(self) -> dict[str, Any]:
        """See `Evidence.state`."""
        return self._evidence.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self._evidence = Evidence.restore(self._rule, state)

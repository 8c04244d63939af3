"""The further metrics of a comparison (`compare.more`): each has an interval and a verdict, in addition to those of
`COMPARED`.

They use the rows, the windows and the looks of their comparison, so the same guarantees hold. They contribute to the
overall verdict (`deciding`) only if `compare.decide` names them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from streameval.compare.evidence.alone import Alone
from streameval.compare.evidence.decision import enough
from streameval.compare.evidence.evidence import Rule
from streameval.compare.evidence.ratio import Ints, Reals
from streameval.compare.ledger.exposed_lists import EXPOSED_LISTS, GuardedLists, turned_lists
from streameval.compare.ledger.row_shape import RowShape
from streameval.compare.reading.further import further_metric
from streameval.compare.reading.reading import COMPARED, MetricReading, Setup, sign_of
from streameval.compare.tracking.further_sums import FurtherSums, further_sums
from streameval.compare.tracking.record import UNKNOWN
from streameval.compare.tracking.sums import RowName
from streameval.compare.tracking.tracked import finite, known
from streameval.events.batch import Series

Difference = tuple[float, float, float]  # difference, lower, upper


class FurtherMetrics:
    """The further metrics of the rule, in its order; those that this setup cannot compute are reported as unknown."""

    def __init__(self, rule: Rule, setup: Setup, sides: tuple[Series, Series], start: int, shape: RowShape) -> None:
        """`sides`: baseline and candidate; `start`: event time in ms."""
        self._rule, self._setup, self._sides, self._shape = rule, setup, sides, shape
        self.metrics = tuple(
            name for name in rule.more if (of := further_metric(name)) is not None and of.setup == setup
        )
        self._sums: dict[str, FurtherSums] = {}
        self._alone: dict[str, Alone] = {}
        self._log_e: dict[str, tuple[float, float]] = {}  # at the last look: worse, not worse
        self._guard = shape.lists.guard if setup == "paired" else None
        self._exposed_lists = np.zeros(EXPOSED_LISTS, np.int64)
        self.empty()
        self.start_over(start)

    # -- sums ----------------------------------------------------------------------------------------------------

    def add(self, segment: int, key: RowName, row: Ints) -> None:
        """Adds a row of the ledger; ignores rows of other versions and pairs."""
        if not self.metrics:
            return
        served, other = key
        if served not in self._sides or other != self._beside(served):
            return
        for sums in self._sums.values():
            sums.add(segment, served == self._sides[1], row)

    def add_window(self, segment: int, key: RowName, row: Ints) -> None:
        """Adds a row of a window of users' AUC (see `list_rows`)."""
        served, other = key
        if not (self.metrics or self._guard) or served not in self._sides or other != self._beside(served):
            return
        back = served == self._sides[1]
        for sums in self._sums.values():
            sums.add_window(segment, back, row)
        exposed = None if self._guard is None else self._shape.lists.exposed(row)
        if exposed is not None:
            self._exposed_lists += turned_lists(exposed) if back else exposed

    def begin(self, segment: int) -> None:
        """Begins a window."""
        for sums in self._sums.values():
            sums.begin(segment)

    def empty(self) -> None:
        """Clears sums and windows."""
        self._sums = {name: further_sums(name, self._shape) for name in self.metrics}
        self._exposed_lists = np.zeros(EXPOSED_LISTS, np.int64)

    def exposed_lists(self) -> GuardedLists | None:
        """Returns the list sums for the Simpson guard; None if it does not use lists."""
        return None if self._guard is None else GuardedLists(self._guard.metric, self._exposed_lists.copy())

    # -- evidence ------------------------------------------------------------------------------------------------

    def look(self, at: int, clicks: Ints) -> None:
        """Evaluates the sums as they are; `clicks`: of the windows, int64[1, J]."""
        for name, alone in self._alone.items():
            worse, not_worse = alone.advance(np.array([at]), clicks, self._sums[name].statistic())
            self._log_e[name] = float(worse[0]), float(not_worse[0])

    def deciding(self) -> tuple[Reals, Reals] | None:
        """Returns what `Evidence.advance` takes as `further`; None if no further metric decides.

        A metric that this setup cannot compute counts as an e-value of 1, and need not be certified; if no certified
        metric is left, the verdict is never `not_worse`.
        """
        rule = self._rule
        names = [name for name in rule.more if name in rule.weights]
        if not names:
            return None
        weights = np.log([rule.weights[name] for name in names])
        worse = np.logaddexp.reduce(weights + [self._log_e.get(name, (0.0, 0.0))[0] for name in names])
        certified = [name for name in rule.certified if name in COMPARED or name in self.metrics]
        least = min((self._log_e[name][1] for name in certified if name in self._log_e), default=math.inf)
        return np.array([worse]), np.array([least if certified else 0.0])

    def retract(self, at: int, since: int) -> bool:
        """See `Evidence.retract`."""
        taken = [alone.retract(at, since) for alone in self._alone.values()]
        return any(taken)

    def start_over(self, start: int) -> None:
        """Discards the evidence, to start at event time `start` (ms)."""
        self._alone = {name: Alone(self._rule, name, start) for name in self.metrics}
        self._log_e = dict.fromkeys(self.metrics, (0.0, 0.0))

    # -- what it shows -------------------------------------------------------------------------------------------

    def log_es(self) -> tuple[list[float], list[float]]:
        """Returns log e of all metrics of the rule at the last look: worse, not worse."""
        pairs = [self._log_e.get(name, (0.0, 0.0)) for name in self._rule.more]
        return [worse for worse, _ in pairs], [not_worse for _, not_worse in pairs]

    def differences(self, clicks: Ints, window: int = 0, sides: int = 2) -> dict[str, Difference]:
        """Returns (difference, lower, upper) by metric for one window, in the metrics' own signs; `clicks`
        int64[1, J].
        """
        out = {}
        for name, alone in self._alone.items():
            statistic = self._sums[name].statistic()
            sign, theta = sign_of(name), float(statistic.theta[0, window])
            low, high = alone.bounds(statistic, int(clicks[0, window]), window, sides)
            out[name] = (sign * theta, low, high) if sign > 0 else (sign * theta, -high, -low)
        return out

    def harm(self, metric: str) -> tuple[float, float]:
        """Returns (harm, its variance) of one of its metrics over the first window; NaN where unknown."""
        statistic = self._sums[metric].statistic()[0, 0]
        return float(statistic.theta), float(statistic.variance())

    def readings(self, clicks: Ints, differences: Mapping[str, Difference]) -> tuple[MetricReading, ...]:
        """Returns one reading for every metric of the rule."""
        return tuple(self._reading(name, differences.get(name, UNKNOWN)) for name in self._rule.more)

    def _reading(self, name: str, difference: Difference) -> MetricReading:
        rule, here = self._rule, name in self.metrics
        worse, not_worse = self._log_e.get(name, (0.0, 0.0))
        levels = self._sums[name].levels() if here else (None, None)
        stderr = float(self._sums[name].statistic()[0, 0].stderr()) if here else math.nan
        standing = self._alone[name].standing() if here else None
        verdict = "undecided" if standing is None else standing.verdict
        decided = None if standing is None else standing.worse_at if verdict == "worse" else standing.not_worse_at
        return MetricReading(
            metric=name,
            baseline=levels[0],
            candidate=levels[1],
            difference=known(difference[0]),
            lower=known(difference[1]),
            upper=known(difference[2]),
            stderr=known(stderr),
            margin=rule.margins[name],
            tolerance=rule.tolerances[name],
            log_e_worse=finite(worse),
            log_e_not_worse=finite(not_worse),
            p_worse=1.0 if standing is None else min(1.0, math.exp(-standing.peak_worse)),
            verdict=verdict,
            decided_at=decided,
            supported_now=None if verdict == "undecided" else enough(rule, verdict, ([worse], [not_worse]), 0),
            reason=self._sums[name].reason() if here else self._elsewhere(name),
        )

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Returns the evidence so far, by metric."""
        return {
            name: {"evidence": self._alone[name].state(), "log_e": list(self._log_e[name])} for name in self.metrics
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        for name, one in state.items():
            if name in self._alone:
                self._alone[name].restore(one["evidence"])
                worse, not_worse = one["log_e"]
                self._log_e[name] = worse, not_worse

    @staticmethod
    def _elsewhere(name: str) -> str:
        of = further_metric(name)
        return "not_compared" if of is None else f"only_in_{of.setup}_comparisons"

    def _beside(self, served: Series) -> Series | None:
        """Returns the other series that a row scores beside the one that served; None for arms."""
        return None if self._setup == "split" else self._sides[served == self._sides[0]]

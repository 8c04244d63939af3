"""The board's interface to a running comparison, whatever its setup: rows of the ledger in, looks, a reading out.

Methods that a setup does not need do nothing, so that callers need not know the setup.
"""

# ruff: noqa: B027  (empty on purpose)
from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from streameval.compare.evidence.decision import Decision, LogE
from streameval.compare.evidence.evidence import Rule
from streameval.compare.evidence.ratio import Ints, Statistic
from streameval.compare.ledger.exposed_lists import GuardedLists
from streameval.compare.reading.reading import COMPARED, Comparison, Deploy, Estimate, Setup, Verdict
from streameval.compare.tracking.record import Record
from streameval.compare.tracking.sums import RowName
from streameval.events.batch import Series
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE, BlockSums


class Exposure(NamedTuple):
    """What the Simpson guard of a pair reads."""

    sums: BlockSums
    found: dict[str, Statistic]  # its fields are scalars
    exposed: Ints  # by inverse propensity, int64[EXPOSED]
    lists: GuardedLists | None  # None: the guard does not use lists


class Tracked(ABC):
    """A candidate against a baseline in one setup, look by look."""

    explained: ClassVar[bool] = True  # whether it can be explained by parts of the traffic and by pending impressions
    kept = True  # whether the sums are still kept
    holds = False  # whether provisional placements are in the sums
    learning = False  # the candidate is still learning: no verdict is reached
    has_past = True  # rows from before it have been added, or do not matter
    windows = 1  # number of windows begun
    keys: Sequence[RowName] = ()  # the rows of the ledger whose open strata `hold` needs

    def __init__(
        self, deploy: Deploy, setup: Setup, baseline: Series, candidate: Series, start: int, segment: int, rule: Rule
    ) -> None:
        """`start`: event time in ms; `segment`: the first one that counts."""
        self.deploy, self.setup = deploy, setup
        self.baseline, self.candidate, self.start, self.segment = baseline, candidate, start, segment
        self.rule = rule
        self.looked: int | None = None
        self._record = Record(self._metrics_of_looks())
        self._decision: Decision | None = None  # the decision behind the current verdict

    @property
    def id(self) -> str:
        """Stable, can be used in a URL."""
        return f"{self.deploy.id}-{self.setup}"

    @property
    def until(self) -> int:
        """Event time in ms at which it ends."""
        return self.start + self.rule.horizon

    def runs(self, at: int) -> bool:
        """Whether it is running at `at` (ms)."""
        return self.start < at <= self.until

    @property
    @abstractmethod
    def verdict(self) -> Verdict:
        """The current verdict."""

    @abstractmethod
    def add(self, segment: int, key: RowName, row: Ints) -> None:
        """Adds a row of the ledger; ignores rows of other versions and pairs."""

    @abstractmethod
    def look(self, at: int, withheld: str | None) -> None:
        """Evaluates the sums at the end of a pane (ms), but not while the join is unhealthy (`withheld`: why)."""

    @abstractmethod
    def reading(self) -> Comparison:
        """Returns the comparison for readers, without findings."""

    @abstractmethod
    def forget_sums(self) -> None:
        """Clears the sums, before the ledger's segments are added again: a partition was assigned or revoked."""

    def state(self) -> dict[str, Any]:
        """Returns the results of the looks; the sums are recomputed from the ledger's segments."""
        return {
            "deploy": self.deploy.id,
            "setup": self.setup,
            "baseline": names(self.baseline),
            "candidate": names(self.candidate),
            "start": self.start,
            "segment": self.segment,
            "looked": self.looked,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned, in a new object; the ledger's segments must be added afterwards."""
        self.looked = state["looked"]
        self._record = Record.restore(state["record"], self._metrics_of_looks())
        self._decision = Decision.restore(state.get("decision"))

    def begins_anew(self, at: int, why: str) -> None:
        """Records at the start that it takes the place of an earlier one of the same versions, which it forgets."""
        self._record.start_over(at, why)

    # -- optional: not every setup has them -----------------------------------------------------------------------

    def log_loss(self) -> Statistic | None:
        """Returns the first window's statistic; its fields are scalars. None: nothing to compare."""
        return None

    def arms(self) -> Ints | None:
        """Returns what the two arms served in the hours in which both did, int64[2, G, 8]; None unless the setup is
        split.
        """
        return None

    def exposure(self) -> Exposure | None:
        """Returns what the Simpson guard reads, over the first window; None unless the setup is paired."""
        return None

    def rho(self) -> float | None:
        """Returns rho of the log loss's mixture (see `Evidence.rho`); None: not known yet."""
        return None

    def concerned(self, rows: Collection[RowName]) -> Iterable[RowName]:
        """Returns the rows, out of many, that this comparison needs."""
        return rows

    def is_due(self, at: int) -> bool:
        """Whether there is enough new evidence for another look, at `at` in ms."""
        return False

    def lapsed(self, at: int, least: int) -> bool:
        """Whether a version that does not serve was found worse, and should be evaluated again."""
        return False

    def gain_gauc(self, segment: int, key: RowName, row: Ints) -> None:
        """Adds a pair's row for a window of GAUC that begins at a segment; windows that began before this comparison do
        not count.
        """

    def hold(self, placed: Mapping[tuple[int, RowName], Ints]) -> None:
        """Adds provisional placements of scores in open strata, until `release`."""

    def release(self) -> None:
        """Removes what `hold` has added."""

    def begin(self, segment: int, since: int | None = None) -> None:
        """Begins a window at a segment that nothing has been added to yet; `since`: its start, ms."""

    def start_over(self, start: int, segment: int, why: str) -> None:
        """Judges only what comes from a segment on, to which nothing has been added yet; `start`: its start, ms."""

    def withhold(self, at: int, why: str) -> None:
        """Withholds verdicts until the next look."""

    def retract(self, since: int, at: int) -> None:
        """Retracts verdicts reached at looks from `since` on (ms), whose clicks turned out at `at` to have been
        delayed.
        """

    def freeze(self) -> None:
        """Drops the sums, because the ledger no longer has all of them; the verdict and the recorded looks stay."""

    def _metrics_of_looks(self) -> tuple[str, ...]:
        """Returns the metrics recorded with each look."""
        return COMPARED

    # -- for subclasses -------------------------------------------------------------------------------------------

    def _read(self, now: Estimate | None, log_e: LogE, **found: Any) -> Comparison:
        """`now`: the current value of what decided the verdict; `found`: the fields that the setup provides."""
        decision = self._decision
        return Comparison(
            id=self.id,
            deploy=self.deploy.id,
            setup=self.setup,
            baseline=self.baseline,
            candidate=self.candidate,
            start=self.start,
            looked=self.looked,
            alpha=self.rule.alpha,
            verdict=self.verdict,
            withheld=self._record.withheld is not None,
            changes=tuple(self._record.changes),
            looks=self._record.looks(),
            decided_at=None if decision is None else decision.at,
            decided_on=None if decision is None else decision.on,
            decided_now=now,
            supported_now=None if decision is None else decision.supported(self.rule, now, log_e),
            **found,
        )


def metric_value(metric: str, sums: Ints) -> float | None:
    """Returns a version's own value of a metric from sums over blocks; None if they do not give it."""
    n, clicks = int(sums[cells.N]), int(sums[cells.Y])
    if metric == "log_loss":
        return int(sums[cells.L]) / SCALE / n if n else None
    if metric == "calibration":
        return int(sums[cells.P]) / SCALE / clicks if clicks else None
    placed = sums[cells.PHI1] != 0 or sums[cells.PHI0] != 0
    if metric == "auc" and placed and 0 < clicks < n:
        return (int(sums[cells.PHI1]) / clicks + int(sums[cells.PHI0]) / (n - clicks)) / SCALE
    return None


def names(series: Series) -> list[str]:
    """Returns a series as plain values."""
    return [series.model, series.version, series.source]


def known(value: float) -> float | None:
    """Returns the value, or None for NaN and infinities."""
    return value if math.isfinite(value) else None


def finite(value: float) -> float:
    """Returns the value, or 0 for NaN and infinities."""
    return value if math.isfinite(value) else 0.0

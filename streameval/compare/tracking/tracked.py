"""The board's interface to a running comparison, whatever its setup: rows of the ledger in, looks, a reading out.

Methods that a setup does not need do nothing, so that callers need not know which setup it is.
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
    found: dict[str, Statistic]  # of scalars
    exposed: Ints  # by inverse propensity, int64[EXPOSED]
    lists: GuardedLists | None  # None: it is not asked to read lists


class Tracked(ABC):
    """A candidate against a baseline in one setup, look by look."""

    explained: ClassVar[bool] = (
        True  # whether there are parts of the traffic, and pending impressions, to explain it by
    )
    kept = True  # whether there are sums
    holds = False  # whether the sums have what is not placed for good yet
    learning = False  # the candidate has only begun to learn: nothing is judged
    has_past = True  # what was before it has been added, or does not matter
    windows = 1  # how many have begun
    keys: Sequence[RowName] = ()  # the rows of the ledger of which `hold` wants what is still open

    def __init__(
        self, deploy: Deploy, setup: Setup, baseline: Series, candidate: Series, start: int, segment: int, rule: Rule
    ) -> None:
        """`start`: event time in ms; `segment`: the first one that counts."""
        self.deploy, self.setup = deploy, setup
        self.baseline, self.candidate, self.start, self.segment = baseline, candidate, start, segment
        self.rule = rule
        self.looked: int | None = None
        self._record = Record(self._metrics_of_looks())
        self._decision: Decision | None = None  # of the verdict that stands

    @property
    def id(self) -> str:
        """Stable, fit for an address."""
        return f"{self.deploy.id}-{self.setup}"

    @property
    @abstractmethod
    def verdict(self) -> Verdict:
        """The one that stands."""

    @abstractmethod
    def gain(self, segment: int, key: RowName, row: Ints) -> None:
        """Adds a row of the ledger; rows of others are passed by."""

    @abstractmethod
    def look(self, at: int, withheld: str | None) -> None:
        """Looks at the sums as they are, at the end of a pane (ms); not while the join is unhealthy (`withheld`: why)."""

    @abstractmethod
    def reading(self) -> Comparison:
        """For the readers, without findings."""

    @abstractmethod
    def forget_sums(self) -> None:
        """Empties the sums, for the ledger's segments to be added again: a partition has come or gone."""

    def state(self) -> dict[str, Any]:
        """What the looks have left; the sums are made again of the ledger's segments."""
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
        """Restores what `state` returned, into one that has seen nothing; the ledger's segments are still to be gained."""
        self.looked = state["looked"]
        self._record = Record.restore(state["record"], self._metrics_of_looks())
        self._decision = Decision.restore(state.get("decision"))

    # -- what not every setup has --------------------------------------------------------------------------------

    def log_loss(self) -> Statistic | None:
        """The first window's statistic; its fields are scalars. None: nothing to compare."""
        return None

    def arms(self) -> Ints | None:
        """What the two arms served in the hours in which both did, int64[2, G, 8]; None unless the setup is split."""
        return None

    def exposure(self) -> Exposure | None:
        """Of a paired comparison, over its first window; else None."""
        return None

    def rho(self) -> float | None:
        """The log loss's mixture (see `Evidence.rho`); None: not yet."""
        return None

    def concerned(self, rows: Collection[RowName]) -> Iterable[RowName]:
        """Those of many rows that are to be gained."""
        return rows

    def is_due(self) -> bool:
        """Whether impressions have changed enough for a look to tell something new."""
        return False

    def lapsed(self, at: int, least: int) -> bool:
        """Whether a version that does not serve was found worse, and is evaluated again."""
        return False

    def gain_gauc(self, segment: int, key: RowName, row: Ints) -> None:
        """Adds what a pair has of a window of GAUC that begins at a segment; one that began before this comparison is not of it."""

    def hold(self, placed: Mapping[tuple[int, RowName], Ints]) -> None:
        """Adds what scores whose stratum is still open come to so far; until `release`."""

    def release(self) -> None:
        """Takes out what `hold` has added."""

    def begin(self, segment: int, since: int | None = None) -> None:
        """A window begins at a segment of which nothing was gained yet; `since`: its start, ms."""

    def start_over(self, start: int, segment: int, why: str) -> None:
        """Judges only what comes from a segment on, of which nothing was gained yet; `start`: its begin, ms."""

    def withhold(self, at: int, why: str) -> None:
        """Nothing is decided until the next look."""

    def retract(self, since: int, at: int) -> None:
        """Takes back what was found at looks from `since` on (ms): clicks that they should have had were held up, as `at` tells."""

    def freeze(self) -> None:
        """The ledger no longer has all of it: the verdict stays, with what is on record of it."""

    def _metrics_of_looks(self) -> tuple[str, ...]:
        """What looks tell of."""
        return COMPARED

    # -- for those that are one ----------------------------------------------------------------------------------

    def _read(self, now: Estimate | None, log_e: LogE, **found: Any) -> Comparison:
        """`now`: what the verdict fell on, as it is now; `found`: what the setup knows."""
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
    """A version's own value of a metric from sums over blocks; None: not known from them."""
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
    """A series as plain values."""
    return [series.model, series.version, series.source]


def known(value: float) -> float | None:
    """The value, None for NaN and infinities."""
    return value if math.isfinite(value) else None


def finite(value: float) -> float:
    """The value, 0 for NaN and infinities."""
    return value if math.isfinite(value) else 0.0

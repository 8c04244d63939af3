"""A comparison by sums and sequential evidence: what was decided and when, and what its readers see."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from streameval.compare.evidence.decision import Estimates, LogE, column, decide, missing_floor, unresolved
from streameval.compare.evidence.evidence import OVERALL, Evidence, Rule, harm
from streameval.compare.evidence.paired import GAP, MID
from streameval.compare.evidence.ratio import Ints, Statistic, Statistics
from streameval.compare.ledger.row_shape import PLAIN_ROWS, RowShape
from streameval.compare.reading.reading import (
    COMPARED,
    SIGN,
    Comparison,
    Deploy,
    Estimate,
    MetricReading,
    Setup,
    Verdict,
)
from streameval.compare.tracking.core_readings import core_readings
from streameval.compare.tracking.further import FurtherMetrics
from streameval.compare.tracking.remains import remains
from streameval.compare.tracking.split_sums import SplitSums
from streameval.compare.tracking.strict_mode import StrictMode
from streameval.compare.tracking.sums import ComparisonSums, PairedSums, RowName
from streameval.compare.tracking.tracked import Exposure, Tracked, finite, known
from streameval.events.batch import Series
from streameval.sketches import blocks as cells

GROWTH = 32  # a look is taken once impressions have grown by a 32nd: more frequent looks would add nothing


class SequentialTracked(Tracked):
    """A comparison with evidence at every look: both versions scored the same impressions, or they serve disjoint
    users.
    """

    def __init__(
        self,
        deploy: Deploy,
        setup: Setup,
        baseline: Series,
        candidate: Series,
        start: int,
        segment: int,
        rule: Rule,
        *,
        shape: RowShape = PLAIN_ROWS,
    ) -> None:
        """See `Tracked`; `shape`: the layout of the ledger's rows."""
        super().__init__(deploy, setup, baseline, candidate, start, segment, rule)
        self.evidence = Evidence(rule, start)
        beside = (candidate, baseline) if setup == "paired" else (None, None)
        self.keys = list(zip((baseline, candidate), beside, strict=True))
        self._pieces = shape.pieces
        self._further = FurtherMetrics(rule, setup, (baseline, candidate), start, shape)
        self._sums: ComparisonSums = self._new_sums()
        self._held: list[tuple[int, RowName, Ints]] = []
        self._starts: list[int] = []  # segments at which later windows began
        self._since: list[int | None] = []  # ms: where the traffic of later windows begins
        self._now: Estimate | None = None  # the current value of what decided the verdict, as of the last look taken
        self._strict = StrictMode(rule)
        self._seen = 0  # impressions at the last look
        self._evaluated = start  # ms, event time of the last look
        self._path: tuple[list[float], list[float]] | None = None  # log e by metric and overall, worse and not worse
        self._reading: Comparison | None = None  # cached until something changes

    @property
    def verdict(self) -> Verdict:
        """See `Tracked`."""
        return self.evidence.verdict

    def log_loss(self) -> Statistic | None:
        """See `Tracked`."""
        statistics = self._statistics()
        return statistics["log_loss"][0, 0] if "log_loss" in statistics else None

    def arms(self) -> Ints | None:
        """See `Tracked`."""
        return self._sums.arms() if isinstance(self._sums, SplitSums) else None

    def exposure(self) -> Exposure | None:
        """See `Tracked`."""
        if not isinstance(self._sums, PairedSums):
            return None
        found = {name: some[0, 0] for name, some in self._sums.statistics().items()}
        return Exposure(self._sums.whole(), found, self._sums.exposed(), self._further.exposed_lists())

    def rho(self) -> float | None:
        """See `Tracked`."""
        return self.evidence.rho()

    def add(self, segment: int, key: RowName, row: Ints) -> None:
        """See `Tracked`."""
        if segment >= self.segment and self.kept:
            self._sums.add(segment, key, self._pieces.core(row))
            self._further.add(segment, key, row)
            self._reading = None

    def gain_gauc(self, segment: int, key: RowName, row: Ints) -> None:
        """See `Tracked`."""
        if segment >= self.segment and self.kept:
            self._sums.gain_gauc(segment, key, row)
            self._further.add_window(segment, key, row)
            self._reading = None

    def concerned(self, rows: Collection[RowName]) -> Iterable[RowName]:
        """See `Tracked`: with many versions there are many rows, and a comparison reads two of them."""
        return [key for key in self.keys if key in rows]

    def hold(self, placed: Mapping[tuple[int, RowName], Ints]) -> None:
        """See `Tracked`."""
        self.release()
        for (segment, key), row in placed.items():
            self.add(segment, key, row)
            self._held.append((segment, key, row))
        self.holds = True

    def release(self) -> None:
        """See `Tracked`."""
        for segment, key, row in self._held:
            self.add(segment, key, -row)
        self._held, self.holds = [], False

    def lapsed(self, at: int, least: int) -> bool:
        """Whether a version that does not serve was found worse, and should be evaluated again: `worse` is final only
        for versions that serve.

        That is when all evidence for it has gone; right after the verdict, chance alone may leave too little. For a
        model that keeps learning, also once the verdict has stood for as long as it took to reach, and for `least`, ms.
        """
        found = self.evidence.standing().worse_at
        if self.deploy.kind != "shadow" or found is None:
            return False
        past = self.candidate.source == "online" and at - found >= max(least, found - self.start)
        return past or self._log_e()[0][OVERALL] < 0

    def begin(self, segment: int, since: int | None = None) -> None:
        """See `Tracked`."""
        if self.windows < self.rule.windows:
            self._starts.append(segment)
            self.windows += 1
            self._since.append(since)
            self._sums.begin(segment)
            self._further.begin(segment)

    def withhold(self, at: int, why: str) -> None:
        """See `Tracked`."""
        self._record.withhold(at, why, self.verdict)
        self._reading = None

    def retract(self, since: int, at: int) -> None:
        """See `Tracked`."""
        was = self.verdict
        taken = bool(self.evidence.retract(at, since))
        if self._further.retract(at, since) or taken:
            self._record.retract(at, was, self.verdict)
            self._reading = None
            if self.verdict != was:
                self._decision = self._now = None

    def is_due(self, at: int) -> bool:
        """See `Tracked`: also once the minimum duration is over, if one version has stopped serving before."""
        if self.learning:
            return False
        seen, duration = self._seen, self.rule.min_duration
        waited = seen > 0 and self._evaluated - self.start < duration <= at - self.start
        return waited or abs(self._sums.impressions() - seen) > seen // GROWTH

    def start_over(self, start: int, segment: int, why: str) -> None:
        """See `Tracked`."""
        self._record.start_over(start, why)
        self.start, self.segment, self.learning = start, segment, False
        self.evidence = Evidence(self.rule, start)
        self._further.start_over(start)
        self._empty(windows=True)
        self._decision = self._now = self._path = self._reading = None
        self._strict.margin = None
        self._seen, self._evaluated = 0, start

    def look(self, at: int, withheld: str | None) -> None:
        """See `Tracked`."""
        self._record.withhold(at, withheld, self.verdict)
        self.looked, self._reading = at, None
        if withheld is not None or not self.is_due(at):
            return
        self._seen = impressions = self._sums.impressions()
        self._evaluated = at
        if unresolved(*self._sums.totals()):
            return
        statistics = self._statistics()
        was, before = self.verdict, None if self._path is None else self._path[0][OVERALL]
        clicks = self._sums.clicks()
        self._further.look(at, clicks)
        path = self.evidence.advance(
            np.array([at]),
            self._sums.judged(),
            statistics,
            self._strict.log_e(self._sums),
            correlation=self._sums.correlation(),
            capped=self._sums.capped(self._left_out()),
            further=self._further.deciding(),
        )
        worse, not_worse = path.log_e_worse[-1].tolist(), path.log_e_not_worse[-1].tolist()
        self._path = worse, not_worse
        self._decide(at, was, statistics)
        self._record.note(at, was, self.verdict, before, worse[OVERALL], not_worse[OVERALL])
        self._now = self._estimate_now(statistics)
        found = self._log_e()[0]
        log_e = {name: found[column(self.rule, name)] for name in self._metrics_of_looks()}
        differences, blocks = self._differences(statistics), self._sums.blocks()
        self._record.draw(at, impressions, int(clicks[0, 0]), differences, log_e, worse[OVERALL], blocks)

    # -- what it shows -------------------------------------------------------------------------------------------

    def reading(self) -> Comparison:
        """See `Tracked`."""
        if self._reading is None:
            reading = self._from_sums()
            self._reading = reading if self.kept else remains(reading, self._record.last(), self.rule.min_clicks)
        return self._reading

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """See `Tracked`."""
        return super().state() | {
            "starts": list(self._starts),
            "seen": self._seen,
            "evaluated": self._evaluated,
            "path": None if self._path is None else [list(part) for part in self._path],
            "record": self._record.state(),
            "evidence": self.evidence.state(),
            "further": self._further.state(),
            "strict_margin": self._strict.margin,
            "learning": self.learning,
            "since": list(self._since),
            "decision": None if self._decision is None else self._decision.state(),
            "now": None if self._now is None else asdict(self._now),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Tracked`."""
        super().restore(state)
        self.evidence = Evidence.restore(self.rule, state["evidence"])
        self._further.restore(state.get("further", {}))
        self._strict.margin = state["strict_margin"]
        # older checkpoints lack the rest
        since = state.get("since") or [None] * len(state["starts"])
        for segment, begun in zip(state["starts"], since, strict=True):
            self.begin(segment, begun)
        self.learning = state.get("learning", False)
        self._now = None if state.get("now") is None else Estimate(**state["now"])
        self._seen = state["seen"]
        self._evaluated = state.get("evaluated", self.start)  # older checkpoints: a look too many does no harm
        self._path = None if state["path"] is None else (list(state["path"][0]), list(state["path"][1]))

    def forget_sums(self) -> None:
        """See `Tracked`."""
        self._empty()
        for segment in self._starts:
            self._sums.begin(segment)
            self._further.begin(segment)

    def freeze(self) -> None:
        """See `Tracked`."""
        if self.kept:
            self.kept, self._reading = False, None
            self._empty(windows=True)

    # -- inside --------------------------------------------------------------------------------------------------

    def _from_sums(self) -> Comparison:
        (baseline, candidate), blocks = self._sums.totals(), self._sums.blocks()
        standing = self.evidence.standing()
        elapsed, judged = (self.looked or self.start) - self.start, int(self._sums.judged()[0, 0])
        floor = missing_floor(self.rule, elapsed, judged, blocks) or unresolved(baseline, candidate)
        reason = self._record.withheld
        if reason is None and standing.verdict == "undecided":
            reason = "learning" if self.learning else floor
        worse, not_worse = log_e = self._log_e()
        statistics = self._statistics()
        metrics = self._metrics(log_e, statistics)
        if reason is None and standing.verdict == "undecided" and all(one.difference is None for one in metrics):
            reason = metrics[0].reason  # as where both served the same hours for moments only
        return self._read(
            self._estimate_now(statistics),
            log_e,
            impressions=int(baseline[cells.N]) + (int(candidate[cells.N]) if self.setup == "split" else 0),
            clicks=int(self._sums.clicks()[0, 0]),
            blocks=blocks,
            since=standing.worse_at if standing.verdict == "worse" else standing.not_worse_at,
            reason=reason,
            log_e_worse=finite(worse[OVERALL]),
            log_e_not_worse=finite(not_worse[OVERALL]),
            p_worse=min(1.0, math.exp(-standing.peak_worse)),
            metrics=metrics,
            floors_met=not self.learning and floor is None,
            clustered_by=self._sums.clustered_by(),
            retracted=standing.retracted_at is not None,
        )

    def _log_e(self) -> LogE:
        """Returns log e at the last look; 0 before the first."""
        worse, not_worse = self._path or ([0.0] * (OVERALL + 1), [0.0] * (OVERALL + 1))
        more_worse, more_not_worse = self._further.log_es()
        return [*worse, *more_worse], [*not_worse, *more_not_worse]

    def _decide(self, at: int, was: Verdict, statistics: Mapping[str, Statistic]) -> None:
        """Records what a verdict was decided on, and its current value."""
        if self.verdict == "undecided":
            self._decision = None
        elif self.verdict != was:
            starts = [self.start, *self._since]
            strict = self.rule.strict and self.setup == "paired"
            self._decision = decide(
                self.rule, self.verdict, at, self._log_e(), partial(self._estimates, statistics), starts, strict=strict
            )
            self._now = self._estimate_now(statistics)

    def _estimate_now(self, statistics: Mapping[str, Statistic]) -> Estimate | None:
        """Returns the current value of what decided the verdict; without sums, its value at the last look taken."""
        if self._decision is None or not self.kept:
            return None if self._decision is None else self._now
        return self._estimates(statistics, self._decision.window).get(self._decision.on.metric)

    def _estimates(self, statistics: Mapping[str, Statistic], window: int) -> Estimates:
        """Returns the estimate of every metric, over one window."""
        found = self._differences(statistics, window, sides=1)
        return {name: Estimate(*map(known, of)) for name, of in found.items()}

    def _statistics(self) -> Statistics:
        """Returns the statistics of every window."""
        return self._sums.statistics().without(*self._left_out())

    def _left_out(self) -> tuple[str, ...]:
        """Returns the statistics not compared: calibration in shadow, because selection alone makes an unserved version
        look under-predicting.
        """
        return (MID, GAP) if self.deploy.kind == "shadow" else ()

    def _metrics_of_looks(self) -> tuple[str, ...]:
        """See `Tracked`."""
        return (*COMPARED, *self.rule.more)

    def _empty(self, windows: bool = False) -> None:
        """Clears the sums; with `windows` also all windows but the first."""
        self._sums, self._held, self.holds = self._new_sums(), [], False
        self._further.empty()
        if windows:
            self._starts, self._since, self.windows = [], [], 1

    def _new_sums(self) -> ComparisonSums:
        kind = PairedSums if self.setup == "paired" else SplitSums
        return kind(self.baseline, self.candidate, bool(self.rule.weighed), self.rule.min_clicks)

    def _differences(
        self, statistics: Mapping[str, Statistic], window: int = 0, sides: int = 2
    ) -> dict[str, tuple[float, float, float]]:
        """Returns (difference, lower, upper) by metric for one window (`sides`: see `bounds`); NaN and infinite where
        unknown.
        """
        clicks, at = int(self._sums.judged()[0, window]), (0, window)
        estimates, bounds = harm(statistics), self.evidence.bounds(statistics, clicks, window, sides, at)
        out = {}
        for name, value in estimates.items():
            low, high = (float(b) for b in bounds[name])
            high = math.inf if name == "calibration" and self._sums.at_least(window) else high
            difference = SIGN[name] * float(value[at])
            out[name] = (difference, low, high) if SIGN[name] > 0 else (difference, -high, -low)
        return out | self._further.differences(self._sums.clicks(), window, sides)

    def _metrics(self, log_e: LogE, statistics: Mapping[str, Statistic]) -> tuple[MetricReading, ...]:
        differences = self._differences(statistics)
        core = core_readings(self.rule, self.evidence, self._sums, statistics, differences, log_e)
        return (*core, *self._further.readings(self._sums.clicks(), differences))

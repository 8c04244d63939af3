"""One comparison while it runs: its sums, its evidence, what was decided and when, and what it tells its readers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.compare import strict
from streameval.compare.decision import Decision, Estimates, LogE, decide, enough
from streameval.compare.evidence import OVERALL, Evidence, Rule, harm
from streameval.compare.paired import GAP, MID
from streameval.compare.ratio import Statistic
from streameval.compare.reading import METRICS, SIGN, Comparison, Deploy, Estimate, MetricReading, Setup, Verdict
from streameval.compare.record import UNKNOWN, Record
from streameval.compare.sums import Ints, Key, PairedSums, SplitSums, Sums
from streameval.events import Series
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE

GROWTH = 32  # a look is taken once the impressions have grown by a 32nd: looks more often would tell nothing new


class Tracked:
    """A candidate against a baseline in one setup, look by look."""

    def __init__(
        self,
        deploy: Deploy,
        setup: Setup,
        baseline: Series,
        candidate: Series,
        start: int,
        segment: int,
        rule: Rule,
    ) -> None:
        """`start`: event time in ms; `segment`: the first one that counts."""
        self.deploy, self.setup = deploy, setup
        self.baseline, self.candidate, self.start, self.segment = baseline, candidate, start, segment
        self.rule = rule
        self.kept = True  # whether there are sums
        self.evidence = Evidence(rule, start)
        self.looked: int | None = None
        self._record = Record()
        self._sums: Sums = self._new_sums()
        self._held: list[tuple[int, Key, Ints]] = []
        self.holds = False  # whether the sums have what is not placed for good yet
        self._starts: list[int] = []  # segments at which later windows began
        self.learning = False  # the candidate has only begun to learn: nothing is judged
        self._since: list[int | None] = []  # ms: where the traffic of later windows begins
        self._decision: Decision | None = None  # of the verdict that stands
        self._now: Estimate | None = None  # what it fell on, at the last look that was drawn
        self._strict_margin: float | None = None  # nats; frozen once the evidence floors are met
        self._seen = 0  # impressions at the last look
        self._path: tuple[list[float], list[float]] | None = None  # log e by metric and overall, worse and not worse
        self._reading: Comparison | None = None  # until something changes

    @property
    def id(self) -> str:
        """Stable, fit for an address."""
        return f"{self.deploy.id}-{self.setup}"

    @property
    def verdict(self) -> Verdict:
        """The one that stands."""
        return self.evidence.standing().verdict

    @property
    def windows(self) -> int:
        """How many have begun."""
        return len(self._starts) + 1

    def log_loss(self) -> Statistic | None:
        """The first window's statistic; its fields are scalars. None: nothing to compare."""
        statistics = self._statistics()
        return statistics["log_loss"][0, 0] if "log_loss" in statistics else None

    def arms(self) -> Ints | None:
        """What the two arms served in the hours in which both did, int64[2, G, 8]; None unless the setup is split."""
        return self._sums.arms() if isinstance(self._sums, SplitSums) else None

    def gain(self, segment: int, key: Key, row: Ints) -> None:
        """Adds a row of the ledger."""
        if segment >= self.segment and self.kept:
            self._sums.gain(segment, key, row)
            self._reading = None

    def gain_gauc(self, segment: int, key: Key, row: Ints) -> None:
        """Adds what a pair has of a window of GAUC that begins at a segment; one that began before this comparison is not of it."""
        if segment >= self.segment and self.kept:
            self._sums.gain_gauc(segment, key, row)
            self._reading = None

    def keys(self) -> list[Key]:
        """The rows of the ledger that it is made of."""
        if self.setup == "paired":
            return [(self.baseline, self.candidate), (self.candidate, self.baseline)]
        return [(self.baseline, None), (self.candidate, None)]

    def hold(self, placed: Mapping[tuple[int, Key], Ints]) -> None:
        """Adds what scores whose stratum is still open come to so far; until `release`."""
        self.release()
        for (segment, key), row in placed.items():
            self.gain(segment, key, row)
            self._held.append((segment, key, row))
        self.holds = True

    def release(self) -> None:
        """Takes out what `hold` has added."""
        for segment, key, row in self._held:
            self.gain(segment, key, -row)
        self._held, self.holds = [], False

    def lapsed(self, at: int, least: int) -> bool:
        """Whether a version that serves nobody was found worse, and is judged anew: `worse` is final only for what serves.

        When all evidence is gone; at the first look after the one that found it, chance alone may leave too little. A
        model that goes on learning also once the verdict has stood for as long as it took, and for `least`, ms.
        """
        found = self.evidence.standing().worse_at
        if self.deploy.kind != "shadow" or found is None:
            return False
        past = self.candidate.source == "online" and at - found >= max(least, found - self.start)
        return past or self._log_e()[0][OVERALL] < 0

    def begin(self, segment: int, since: int | None = None) -> None:
        """A window begins at a segment of which nothing was gained yet; `since`: its start, ms."""
        if len(self._starts) + 1 < self.rule.windows:
            self._starts.append(segment)
            self._since.append(since)
            self._sums.begin(segment)

    def withhold(self, at: int, why: str) -> None:
        """Nothing is decided until the next look."""
        self._record.withhold(at, why, self.verdict)
        self._reading = None

    def retract(self, since: int, at: int) -> None:
        """Takes back what was found at looks from `since` on (ms): clicks that they should have had were held up, as `at` tells."""
        was = self.verdict
        if self.evidence.retract(at, since):
            self._record.retract(at, was, self.verdict)
            self._reading = None
            if self.verdict != was:
                self._decision = self._now = None

    def is_due(self) -> bool:
        """Whether impressions have grown enough for a look to tell something new."""
        return not self.learning and self._sums.impressions() - self._seen > self._seen // GROWTH

    def begin_anew(self, start: int, segment: int, why: str) -> None:
        """Judges only what comes from a segment on, of which nothing was gained yet; `start`: its begin, ms."""
        self._record.begin_anew(start, why)
        self.start, self.segment, self.learning = start, segment, False
        self.evidence = Evidence(self.rule, start)
        self._sums, self._starts, self._since = self._new_sums(), [], []
        self._held, self.holds = [], False
        self._decision = self._now = self._path = self._strict_margin = self._reading = None
        self._seen = 0

    def look(self, at: int, withheld: str | None) -> None:
        """Looks at the sums as they are, at the end of a pane (ms); not while the join is unhealthy (`withheld`: why)."""
        self._record.withhold(at, withheld, self.verdict)
        self.looked, self._reading = at, None
        if withheld is not None or not self.is_due():
            return
        self._seen = impressions = self._sums.impressions()
        statistics = self._statistics()
        was, before = self.verdict, None if self._path is None else self._path[0][OVERALL]
        path = self.evidence.advance(
            np.array([at]), self._sums.clicks(), statistics, self._strict(),
            correlation=self._sums.correlation(), capped=self._sums.capped(),
        )  # fmt: skip
        worse, not_worse = path.log_e_worse[-1].tolist(), path.log_e_not_worse[-1].tolist()
        self._path = worse, not_worse
        self._decide(at, was, statistics)
        self._record.note(at, was, self.verdict, before, worse[OVERALL], not_worse[OVERALL])
        self._now = self._estimate_now(statistics)
        self._record.draw(at, impressions, int(self._sums.clicks()[0, 0]), self._differences(statistics), worse)

    # -- what it tells -------------------------------------------------------------------------------------------

    def reading(self) -> Comparison:
        """For the readers, without findings."""
        if self._reading is None:
            self._reading = self._read() if self.kept else self._remains()
        return self._reading

    # -- checkpoints ---------------------------------------------------------------------------------------------

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
            "starts": list(self._starts),
            "seen": self._seen,
            "path": None if self._path is None else [list(part) for part in self._path],
            "record": self._record.state(),
            "evidence": self.evidence.state(),
            "strict_margin": self._strict_margin,
            "learning": self.learning,
            "since": list(self._since),
            "decision": None if self._decision is None else self._decision.state(),
            "now": None if self._now is None else asdict(self._now),
        }  # fmt: skip

    @classmethod
    def restore(cls, state: Mapping[str, Any], deploy: Deploy, rule: Rule) -> Tracked:
        """From what `state` gave; the ledger's segments are still to be gained."""
        baseline, candidate = Series(*state["baseline"]), Series(*state["candidate"])
        out = cls(deploy, state["setup"], baseline, candidate, state["start"], state["segment"], rule)
        out.evidence = Evidence.restore(rule, state["evidence"])
        out.looked, out._record = state["looked"], Record.restore(state["record"])
        out._strict_margin = state["strict_margin"]
        # checkpoints that are older do not have the rest
        since = state.get("since") or [None] * len(state["starts"])
        for segment, begun in zip(state["starts"], since, strict=True):
            out.begin(segment, begun)
        out.learning = state.get("learning", False)
        out._decision = Decision.restore(state.get("decision"))
        out._now = None if state.get("now") is None else Estimate(**state["now"])
        out._seen = state["seen"]
        out._path = None if state["path"] is None else (list(state["path"][0]), list(state["path"][1]))
        return out

    def forget_sums(self) -> None:
        """Empties the sums, for the ledger's segments to be gained anew: a partition has come or gone."""
        self._sums, self._held, self.holds = self._new_sums(), [], False
        for segment in self._starts:
            self._sums.begin(segment)

    def let_go(self) -> None:
        """The ledger no longer has all of it: the verdict stays, with what is on record of it."""
        if self.kept:
            self.kept, self._reading = False, None
            self._sums, self._starts, self._since = self._new_sums(), [], []
            self._held, self.holds = [], False

    # -- inside --------------------------------------------------------------------------------------------------

    def _read(self) -> Comparison:
        baseline, candidate = self._sums.totals()
        split = self.setup == "split"
        impressions = int(baseline[cells.N]) + (int(candidate[cells.N]) if split else 0)
        clicks, blocks = int(self._sums.clicks()[0, 0]), self._sums.blocks()
        standing = self.evidence.standing()
        elapsed = 0 if self.looked is None else self.looked - self.start
        reason = self._record.withheld
        if reason is None and standing.verdict == "undecided":
            reason = "learning" if self.learning else self._floor(elapsed, clicks, blocks)
        worse, not_worse = log_e = self._log_e()
        statistics = self._statistics()
        decision, now = self._decision, self._estimate_now(statistics)
        return Comparison(
            id=self.id, deploy=self.deploy.id, setup=self.setup, baseline=self.baseline, candidate=self.candidate,
            start=self.start, looked=self.looked, impressions=impressions, clicks=clicks, blocks=blocks,
            alpha=self.rule.alpha, verdict=standing.verdict,
            since=standing.worse_at if standing.verdict == "worse" else standing.not_worse_at,
            reason=reason, withheld=self._record.withheld is not None,
            log_e_worse=finite(worse[OVERALL]), log_e_not_worse=finite(not_worse[OVERALL]),
            p_worse=min(1.0, math.exp(-standing.peak_worse)),
            metrics=self._metrics(baseline, candidate, worse, not_worse, statistics),
            changes=tuple(self._record.changes), looks=self._record.looks(),
            floors_met=not self.learning and self._floor(elapsed, clicks, blocks) is None,
            decided_at=None if decision is None else decision.at,
            decided_on=None if decision is None else decision.on, decided_now=now,
            supported_now=None if decision is None else decision.supported(self.rule, now, log_e),
            clustered_by=self._sums.clustered_by(), retracted=standing.retracted_at is not None,
        )  # fmt: skip

    def _remains(self) -> Comparison:
        """Without sums: impressions and differences are those of the last look that was drawn."""
        reading, last = self._read(), self._record.last()
        if last is None:
            return reading
        impressions, clicks, differences = last
        why = reading.reason if reading.withheld else "no_longer_kept" if reading.verdict == "undecided" else None
        metrics = []
        for metric in reading.metrics:
            value, low, high = map(known, differences[metric.metric])
            reason = metric.reason if value is None else None
            metrics.append(replace(metric, difference=value, lower=low, upper=high, reason=reason))
        return replace(
            reading, impressions=impressions, clicks=clicks, metrics=tuple(metrics), reason=why,
            floors_met=clicks >= self.rule.min_clicks,
        )  # fmt: skip

    def _log_e(self) -> LogE:
        """At the last look; 0 before the first."""
        return self._path or ([0.0] * (OVERALL + 1), [0.0] * (OVERALL + 1))

    def _decide(self, at: int, was: Verdict, statistics: Mapping[str, Statistic]) -> None:
        """Keeps what a verdict falls on, and where that is now."""
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
        """What the verdict fell on, as it is now; without sums as it was at the last look that was drawn."""
        if self._decision is None or not self.kept:
            return None if self._decision is None else self._now
        return self._estimates(statistics, self._decision.window).get(self._decision.on.metric)

    def _estimates(self, statistics: Mapping[str, Statistic], window: int) -> Estimates:
        """Of every metric, over one window."""
        found = self._differences(statistics, window, sides=1)
        return {name: Estimate(*map(known, of)) for name, of in found.items()}

    def _statistics(self) -> dict[str, Statistic]:
        """Of every window; one that never serves looks under-predicting by selection alone, so its calibration is left out."""
        out = self._sums.statistics()
        if self.deploy.kind == "shadow":
            for name in (MID, GAP):
                out.pop(name, None)
        return out

    def _new_sums(self) -> Sums:
        kind = PairedSums if self.setup == "paired" else SplitSums
        return kind(self.baseline, self.candidate)

    def _strict(self) -> NDArray[np.float64] | None:
        """log e float64[1] of the strict mode, 0 before its margin is known; None: it is off, or the setup has none.

        The margin in nats is the relative one of the log loss that the baseline has when the floors of clicks and users
        are met; its own error, a few percent of what is a choice anyway, is left aside.
        """
        if not self.rule.strict or not isinstance(self._sums, PairedSums):
            return None
        baseline, _ = self._sums.totals()
        clicks, n = int(self._sums.clicks()[0, 0]), int(baseline[cells.N])
        if self._strict_margin is None:
            if clicks < self.rule.min_clicks or self._sums.blocks() < self.rule.min_blocks:
                return np.zeros(1)
            self._strict_margin = self.rule.margins["log_loss"] * int(baseline[cells.L]) / SCALE / n
        scalars = self._sums.strict()
        d, squares = int(scalars[cells.D_STRICT]) / SCALE, int(scalars[cells.D_STRICT_SQ]) / SCALE
        return np.array([strict.log_e(d, squares, n, min(self._strict_margin, 0.99))])

    def _floor(self, elapsed: int, clicks: int, blocks: int) -> str | None:
        """Which evidence floor is not met yet."""
        if clicks < self.rule.min_clicks:
            return "too_few_clicks"
        if blocks < self.rule.min_blocks:
            return "too_few_users"
        return "too_short" if elapsed < self.rule.min_duration else None

    def _differences(
        self, statistics: Mapping[str, Statistic], window: int = 0, sides: int = 2
    ) -> dict[str, tuple[float, float, float]]:
        """(difference, lower, upper) by metric, of one window (`sides`: see `bounds`); NaN and infinite where unknown."""
        clicks, at = int(self._sums.clicks()[0, window]), (0, window)
        estimates, bounds = harm(statistics), self.evidence.bounds(statistics, clicks, window, sides, at)
        out = {}
        for name, value in estimates.items():
            low, high = (float(b) for b in bounds[name])
            difference = SIGN[name] * float(value[at])
            out[name] = (difference, low, high) if SIGN[name] > 0 else (difference, -high, -low)
        return out

    def _metrics(
        self,
        baseline: Ints,
        candidate: Ints,
        worse: Sequence[float],
        not_worse: Sequence[float],
        statistics: Mapping[str, Statistic],
    ) -> tuple[MetricReading, ...]:
        differences = self._differences(statistics)
        out = []
        for i, name in enumerate(METRICS):
            levels = (
                self._sums.gauc() if name == "gauc" else (metric_value(name, baseline), metric_value(name, candidate))
            )
            difference, lower, upper = differences.get(name, UNKNOWN)
            standing = self.evidence.standing(name)
            parts = [
                statistics[leaf][0, 0]
                for leaf in ((MID, GAP) if name == "calibration" else (name,))
                if leaf in statistics
            ]
            stderr = max((float(part.stderr()) for part in parts), default=math.nan)
            reason = None
            if name not in differences:
                reason = "not_compared"
            elif not math.isfinite(difference):
                reason = "too_few_clicks"
            out.append(
                MetricReading(
                    metric=name, baseline=levels[0], candidate=levels[1],
                    difference=known(difference), lower=known(lower), upper=known(upper), stderr=known(stderr),
                    margin=self.rule.margins[name], tolerance=self.rule.tolerances[name],
                    log_e_worse=finite(worse[i]), log_e_not_worse=finite(not_worse[i]),
                    p_worse=min(1.0, math.exp(-standing.peak_worse)), verdict=standing.verdict, reason=reason,
                    decided_at=standing.worse_at if standing.verdict == "worse" else standing.not_worse_at,
                    supported_now=None
                    if standing.verdict == "undecided"
                    else enough(self.rule, standing.verdict, (worse, not_worse), i),
                )
            )  # fmt: skip
        return tuple(out)


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

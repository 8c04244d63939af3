"""One comparison while it runs: its sums, its evidence, what was decided and when, and what it tells its readers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from streameval.compare.evidence import OVERALL, Evidence, Path, Rule, harm
from streameval.compare.paired import GAP, MID
from streameval.compare.ratio import Statistic
from streameval.compare.reading import METRICS, Comparison, Deploy, Looks, MetricReading, Setup, Verdict, VerdictChange
from streameval.compare.sums import Ints, Key, PairedSums, SplitSums, Sums
from streameval.events import Series
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE

VERDICTS: tuple[Verdict, ...] = ("undecided", "worse", "not_worse")  # as `Evidence` numbers them
GROWTH = 256  # a look is taken once the impressions have grown by a 256th: looks more often would tell nothing new
MOST_LOOKS = 400  # that are kept to be drawn; then every other one goes
MOST_CHANGES = 100
SIGN = {"log_loss": 1.0, "auc": -1.0, "gauc": -1.0, "calibration": 1.0}  # of a difference, in harm


@dataclass(frozen=True, slots=True)
class _Look:
    """One look, as it is drawn."""

    at: int
    impressions: int
    clicks: int
    log_e: float
    metrics: tuple[tuple[float, float, float, float], ...]  # by METRICS: difference, lower, upper, log e


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
        self.evidence = Evidence(rule, start)
        self.looked: int | None = None
        self.changes: list[VerdictChange] = []
        self.withheld: str | None = None  # why nothing is decided now
        self._sums: Sums = self._new_sums()
        self._starts: list[int] = []  # segments at which later windows began
        self._seen = 0  # impressions at the last look
        self._drawn = 0  # impressions at the last look that is kept
        self._looks: list[_Look] = []
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

    def gain(self, segment: int, key: Key, row: Ints) -> None:
        """Adds a row of the ledger."""
        if segment >= self.segment:
            self._sums.gain(segment, key, row)
            self._reading = None

    def begin(self, segment: int) -> None:
        """A window begins at a segment of which nothing was gained yet."""
        if len(self._starts) + 1 < self.rule.windows:
            self._starts.append(segment)
            self._sums.begin(segment)

    def look(self, at: int, withheld: str | None) -> None:
        """Looks at the sums as they are, at the end of a pane (ms); not while the join is unhealthy (`withheld`: why)."""
        self._withhold(at, withheld)
        baseline, candidate = self._sums.totals()
        impressions = int(baseline[cells.N]) + (int(candidate[cells.N]) if self.setup == "split" else 0)
        self.looked, self._reading = at, None
        if withheld is not None or impressions - self._seen <= self._seen // GROWTH:
            return
        self._seen = impressions
        statistics = self._sums.statistics()
        was = self.evidence.standing()
        path = self.evidence.advance(np.array([at]), self._sums.clicks(), statistics)
        self._note(at, was.verdict, path)
        self._path = path.log_e_worse[-1].tolist(), path.log_e_not_worse[-1].tolist()
        if impressions - self._drawn > self._drawn // 50:
            self._drawn = impressions
            self._draw(at, impressions, statistics)

    # -- what it tells -------------------------------------------------------------------------------------------

    def reading(self) -> Comparison:
        """For the readers, without findings."""
        if self._reading is None:
            self._reading = self._read()
        return self._reading

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What the looks have left; the sums are made again of the ledger's segments."""
        return {
            "deploy": self.deploy.id,
            "setup": self.setup,
            "baseline": _names(self.baseline),
            "candidate": _names(self.candidate),
            "start": self.start,
            "segment": self.segment,
            "looked": self.looked,
            "starts": list(self._starts),
            "seen": self._seen,
            "drawn": self._drawn,
            "path": None if self._path is None else [list(part) for part in self._path],
            "changes": [asdict(change) for change in self.changes],
            "withheld": self.withheld,
            "looks": [[look.at, look.impressions, look.clicks, look.log_e, *map(list, look.metrics)] for look in self._looks],
            "evidence": self.evidence.state(),
        }  # fmt: skip

    @classmethod
    def restore(cls, state: Mapping[str, Any], deploy: Deploy, rule: Rule) -> Tracked:
        """From what `state` gave; the ledger's segments are still to be gained."""
        baseline, candidate = Series(*state["baseline"]), Series(*state["candidate"])
        out = cls(deploy, state["setup"], baseline, candidate, state["start"], state["segment"], rule)
        out.evidence = Evidence.restore(rule, state["evidence"])
        out.looked, out.withheld = state["looked"], state["withheld"]
        for segment in state["starts"]:
            out.begin(segment)
        out._seen, out._drawn = state["seen"], state["drawn"]
        out._path = None if state["path"] is None else (list(state["path"][0]), list(state["path"][1]))
        out.changes = [VerdictChange(**change) for change in state["changes"]]
        out._looks = [
            _Look(at, n, clicks, log_e, tuple((m[0], m[1], m[2], m[3]) for m in metrics))
            for at, n, clicks, log_e, *metrics in state["looks"]
        ]
        return out

    def forget_sums(self) -> None:
        """Empties the sums, for the ledger's segments to be gained anew: a partition has come or gone."""
        self._sums = self._new_sums()
        for segment in self._starts:
            self._sums.begin(segment)

    # -- inside --------------------------------------------------------------------------------------------------

    def _read(self) -> Comparison:
        baseline, candidate = self._sums.totals()
        split = self.setup == "split"
        impressions = int(baseline[cells.N]) + (int(candidate[cells.N]) if split else 0)
        clicks, blocks = int(self._sums.clicks()[0, 0]), self._sums.blocks()
        standing = self.evidence.standing()
        elapsed = 0 if self.looked is None else self.looked - self.start
        reason = self.withheld
        if reason is None and standing.verdict == "undecided":
            reason = self._floor(elapsed, clicks, blocks)
        worse, not_worse = self._path or ([0.0] * (OVERALL + 1), [0.0] * (OVERALL + 1))
        return Comparison(
            id=self.id, deploy=self.deploy.id, setup=self.setup, baseline=self.baseline, candidate=self.candidate,
            start=self.start, looked=self.looked, impressions=impressions, clicks=clicks, blocks=blocks,
            alpha=self.rule.alpha, verdict=standing.verdict,
            since=standing.worse_at if standing.verdict == "worse" else standing.not_worse_at,
            reason=reason, withheld=self.withheld is not None,
            log_e_worse=_finite(worse[OVERALL]), log_e_not_worse=_finite(not_worse[OVERALL]),
            p_worse=min(1.0, math.exp(-standing.peak_worse)),
            metrics=self._metrics(baseline, candidate, worse, not_worse),
            changes=tuple(self.changes), looks=self._drawn_looks(),
            floors_met=self._floor(elapsed, clicks, blocks) is None,
        )  # fmt: skip

    def _new_sums(self) -> Sums:
        kind = PairedSums if self.setup == "paired" else SplitSums
        return kind(self.baseline, self.candidate)

    def _floor(self, elapsed: int, clicks: int, blocks: int) -> str | None:
        """Which evidence floor is not met yet."""
        if clicks < self.rule.min_clicks:
            return "too_few_clicks"
        if blocks < self.rule.min_blocks:
            return "too_few_users"
        return "too_short" if elapsed < self.rule.min_duration else None

    def _withhold(self, at: int, withheld: str | None) -> None:
        if (withheld is None) == (self.withheld is None):
            self.withheld = withheld
            return
        self.withheld = withheld
        if withheld is None:
            self._record(VerdictChange(at, "restored", self.verdict, "the labels can be believed again"))
        else:
            self._record(VerdictChange(at, "withheld", self.verdict, withheld))

    def _note(self, at: int, was: Verdict, path: Path) -> None:
        """Records what a look has changed."""
        now = self.verdict
        worse = float(path.log_e_worse[-1, OVERALL])
        evidence = {"log_e_worse": worse, "log_e_not_worse": float(path.log_e_not_worse[-1, OVERALL])}
        if now != was:
            text = f"{was} -> {now}".replace("_", " ")
            self._record(VerdictChange(at, "verdict" if was == "undecided" else "contrary", now, text, evidence))
        elif now == "worse" and self._path is not None and worse < 0 <= self._path[0][OVERALL]:
            self._record(VerdictChange(at, "contrary", now, "the evidence that led to the verdict is gone", evidence))

    def _record(self, change: VerdictChange) -> None:
        self.changes.append(change)
        del self.changes[1:-MOST_CHANGES]  # the first stays

    def _differences(self, statistics: Mapping[str, Statistic]) -> dict[str, tuple[float, float, float]]:
        """(difference, lower, upper) by metric, of the first window; NaN and infinite where unknown."""
        first = {name: s[0, 0] for name, s in statistics.items()}
        estimates, bounds = harm(first), self.evidence.bounds(first)
        out = {}
        for name, value in estimates.items():
            low, high = (float(b) for b in bounds[name])
            difference = SIGN[name] * float(value)
            out[name] = (difference, low, high) if SIGN[name] > 0 else (difference, -high, -low)
        return out

    def _draw(self, at: int, impressions: int, statistics: Mapping[str, Statistic]) -> None:
        differences, log_e = self._differences(statistics), (self._path or ([], []))[0]
        unknown = (math.nan, math.nan, math.nan)
        metrics = tuple((*differences.get(name, unknown), log_e[i]) for i, name in enumerate(METRICS))
        self._looks.append(_Look(at, impressions, int(self._sums.clicks()[0, 0]), log_e[OVERALL], metrics))
        if len(self._looks) > MOST_LOOKS:
            del self._looks[:-1:2]

    def _drawn_looks(self) -> Looks | None:
        if not self._looks:
            return None
        table = np.array([look.metrics for look in self._looks])  # [T, metrics, 4]
        names = ("difference", "lower", "upper", "log_e")
        metrics = {m: {name: table[:, i, k] for k, name in enumerate(names)} for i, m in enumerate(METRICS)}
        return Looks(
            np.array([look.at for look in self._looks]),
            np.array([look.impressions for look in self._looks]),
            np.array([look.log_e for look in self._looks]),
            metrics,
            np.array([look.clicks for look in self._looks]),
        )

    def _metrics(
        self, baseline: Ints, candidate: Ints, worse: Sequence[float], not_worse: Sequence[float]
    ) -> tuple[MetricReading, ...]:
        statistics = self._sums.statistics()
        differences = self._differences(statistics)
        out = []
        for i, name in enumerate(METRICS):
            difference, lower, upper = differences.get(name, (math.nan, math.nan, math.nan))
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
                    metric=name, baseline=_value(name, baseline), candidate=_value(name, candidate),
                    difference=_known(difference), lower=_known(lower), upper=_known(upper), stderr=_known(stderr),
                    margin=self.rule.margins[name], tolerance=self.rule.tolerances[name],
                    log_e_worse=_finite(worse[i]), log_e_not_worse=_finite(not_worse[i]),
                    p_worse=min(1.0, math.exp(-standing.peak_worse)), verdict=standing.verdict, reason=reason,
                )
            )  # fmt: skip
        return tuple(out)


def _value(metric: str, sums: Ints) -> float | None:
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


def _names(series: Series) -> list[str]:
    return [series.model, series.version, series.source]


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0

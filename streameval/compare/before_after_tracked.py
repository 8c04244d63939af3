"""A version that replaced another one, hour by hour: `before_after` on the ledger's hours, a warning at the most.

Whole clock hours of which the candidate served at least `SHARE` are held against the same hours one week earlier, of which
the baseline did. Placebo days are the 24 hours that end where the deploy begins, and so on backwards as far as the ledger
reaches, those of which the baseline served `SHARE` of each hour that counts. The first week is all there is: the same
hours of last week are the candidate's own from then on.

If an online model has scored both periods, log loss and AUC may be compared through it instead of by levels (`before_after`).
Whichever has the smaller variance at the first hour that can be judged is used from then on; an online model that still learns, so
that its difference has a trend over the placebo days, is not. Looks are taken when an hour ends, as days are what limits this.
What was found at the last one is kept: nothing is shown that would change with what the ledger lets go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from streameval.compare import before_after
from streameval.compare.before_after import ADVICE, KINDS, UNDEFINED, Kind, Level, Shift
from streameval.compare.decision import Decision, Estimates, LogE, decide, enough
from streameval.compare.evidence import OVERALL, Rule, calibration_harm
from streameval.compare.reading import METRICS, Comparison, Deploy, Estimate, MetricReading, Setup, Verdict
from streameval.compare.record import UNKNOWN, Record
from streameval.compare.sums import Ints, Key
from streameval.compare.tracked import finite, known, metric_value, names
from streameval.events import Series
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BLOCKS, PAIR_CELLS, SERIES_CELLS

HOUR = 3_600_000
WEEK, DAY = 168, 24  # hours
SHARE = 0.9  # of the model's impressions in an hour, from which a version served it alone
FEWEST_DAYS = 3  # of history, below which nothing can be said
DESERVED_DAYS = 28
FINEST = 1e-4  # the smallest effect that matters, at least

_COMPARED = ("log_loss", "auc", "calibration")
_THROUGH: tuple[Kind, ...] = ("log_loss", "auc")  # may be compared through an online model
assert SERIES_CELLS == PAIR_CELLS


@dataclass(frozen=True, slots=True)
class _Hours:
    """What is compared at a look."""

    alone: list[int]  # of the candidate, hours since the epoch
    after: list[int]  # those of them that have a counterpart
    placebo: list[list[int]]  # of each day

    @property
    def before(self) -> list[int]:
        """One week earlier."""
        return [hour - WEEK for hour in self.after]


@dataclass(frozen=True, slots=True, eq=False)
class _Periods:
    """Sums int64[G, 8] of one kind; `days` int64[days, 1, 8]."""

    before: Ints
    after: Ints
    days: Ints


@dataclass(frozen=True, slots=True)
class _Found:
    """What a look has found, as it is shown."""

    impressions: int
    clicks: int
    blocks: int
    days: int  # of history
    floor: str | None  # why it could not be judged
    log_e: list[float]  # for worse: METRICS and overall
    metrics: dict[str, list[float]]  # difference, lower, upper, stderr
    values: dict[str, list[float | None]]  # the baseline's and the candidate's own


class BeforeAfterTracked:
    """A candidate against what it replaced; to the board what a `Tracked` is."""

    setup: Setup = "before_after"

    def __init__(
        self,
        deploy: Deploy,
        baseline: Series,
        candidate: Series,
        start: int,
        segment: int,
        rule: Rule,
        pane: int,
        horizon: int,
        history: int,
    ) -> None:
        """`start`, `pane`, `horizon` (how long it runs) and `history` (how long the ledger keeps sums) in ms; `segment`: the
        first pane of the candidate.
        """
        self.deploy, self.baseline, self.candidate = deploy, baseline, candidate
        self.start, self.segment, self.rule = start, segment, rule
        self.told = False  # of what was before the deploy
        self.looked: int | None = None
        self._pane, self._history = pane, history
        self._from = -(-start // HOUR)  # the first whole hour
        self._until = min((start + horizon) // HOUR, self._from + WEEK)
        self._first: int | None = None  # hour from which the model is known; it may not be whole
        self._judged = self._from  # hours before it have been looked at
        self._by: Series | None = None  # the online model that is the yardstick
        self._chosen = False  # whether there is to be one
        self._peaks = [0.0] * (OVERALL + 1)
        self._worse_at: list[int | None] = [None] * (OVERALL + 1)
        self._decision: Decision | None = None
        self._record = Record()
        self._found: _Found | None = None
        self.forget_sums()

    @property
    def id(self) -> str:
        """Stable, fit for an address."""
        return f"{self.deploy.id}-{self.setup}"

    @property
    def verdict(self) -> Verdict:
        """The one that stands."""
        return self._verdict(OVERALL)

    def gain(self, segment: int, key: Key, row: Ints) -> None:
        """Adds a row of the ledger; also of segments before the deploy."""
        served, other = key
        if served.model != self.candidate.model or self._judged >= self._until:
            return
        hour = segment * self._pane // HOUR
        rows = row[: BLOCKS * SERIES_CELLS].reshape(BLOCKS, SERIES_CELLS)
        if other is None:
            self._first = hour if self._first is None else min(hour, self._first)
            self._all[hour] = self._all.get(hour, 0) + int(rows[:, cells.N].sum())
        elif other.source == "logged":
            return
        if served == self.candidate:
            if not self._from <= hour < self._until:
                return
        elif served != self.baseline or hour >= self._from:
            return
        elif hour < self._from - WEEK:
            rows = rows.sum(axis=0, keepdims=True)  # of placebo days only levels count
        by_hour = self._rows.setdefault(key, {})
        by_hour[hour] = by_hour[hour] + rows if hour in by_hour else rows.copy()

    def look(self, at: int, withheld: str | None) -> None:
        """Judges the hours that have ended, if another one has; not while the join is unhealthy (`withheld`: why)."""
        self._record.withhold(at, withheld, self.verdict)
        self.looked = at
        ended = min(at // HOUR, self._until)
        if withheld is not None or ended <= self._judged:
            return
        self._judge(at, self._hours(at, ended))
        self._judged = ended
        if ended == self._until:
            self.forget_sums()

    def forget_sums(self) -> None:
        """Empties the sums, for the ledger's segments to be gained anew."""
        self._rows: dict[Key, dict[int, Ints]] = {}  # by hour: int64[G, 8], int64[1, 8] before the last week
        self._all: dict[int, int] = {}  # impressions of the model by hour

    # -- what it tells -------------------------------------------------------------------------------------------

    def reading(self) -> Comparison:
        """For the readers."""
        found = self._found or _Found(0, 0, 0, 0, "too_short", [0.0] * (OVERALL + 1), {}, {})
        reason = self._record.withheld
        if reason is None:
            history = f"{found.days} days before the deploy show how days differ, and {DESERVED_DAYS} would be better"
            reason = f"{found.floor or history}; {ADVICE}"
        decision, log_e = self._decision, self._log_e(found)
        now = None if decision is None else self._estimates(found).get(decision.on.metric)
        return Comparison(
            id=self.id, deploy=self.deploy.id, setup=self.setup, baseline=self.baseline, candidate=self.candidate,
            start=self.start, looked=self.looked, impressions=found.impressions, clicks=found.clicks,
            blocks=found.blocks, alpha=self.rule.alpha, verdict=self.verdict, since=self._worse_at[OVERALL],
            reason=reason, withheld=self._record.withheld is not None,
            log_e_worse=finite(found.log_e[OVERALL]), log_e_not_worse=0.0,
            p_worse=min(1.0, math.exp(-self._peaks[OVERALL])),
            metrics=tuple(self._metric(i, name, found) for i, name in enumerate(METRICS)),
            changes=tuple(self._record.changes), looks=self._record.looks(), floors_met=found.floor is None,
            decided_at=None if decision is None else decision.at,
            decided_on=None if decision is None else decision.on, decided_now=now,
            supported_now=None if decision is None else decision.supported(self.rule, now, log_e),
        )  # fmt: skip

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What the looks have left; the sums are made again of the ledger's segments."""
        found = self._found
        return {
            "deploy": self.deploy.id,
            "setup": self.setup,
            "baseline": names(self.baseline),
            "candidate": names(self.candidate),
            "start": self.start,
            "segment": self.segment,
            "looked": self.looked,
            "first": self._first,
            "judged": self._judged,
            "by": None if self._by is None else names(self._by),
            "chosen": self._chosen,
            "peaks": list(self._peaks),
            "worse_at": list(self._worse_at),
            "decision": None if self._decision is None else self._decision.state(),
            "record": self._record.state(),
            "found": None if found is None else {name: getattr(found, name) for name in _Found.__slots__},
        }

    @classmethod
    def restore(
        cls, state: Mapping[str, Any], deploy: Deploy, rule: Rule, pane: int, horizon: int, history: int
    ) -> BeforeAfterTracked:
        """From what `state` gave; the ledger's segments are still to be gained."""
        baseline, candidate = Series(*state["baseline"]), Series(*state["candidate"])
        out = cls(deploy, baseline, candidate, state["start"], state["segment"], rule, pane, horizon, history)
        out.told = True
        out.looked, out._first, out._judged = state["looked"], state["first"], state["judged"]
        out._by, out._chosen = None if state["by"] is None else Series(*state["by"]), state["chosen"]
        out._peaks, out._worse_at = list(state["peaks"]), list(state["worse_at"])
        out._record, out._decision = Record.restore(state["record"]), Decision.restore(state.get("decision"))
        out._found = None if state["found"] is None else _Found(**state["found"])
        return out

    # -- a look --------------------------------------------------------------------------------------------------

    def _hours(self, at: int, ended: int) -> _Hours:
        """`at`: by it goes what the ledger still holds, here and after a restart alike."""
        oldest = max((at - self._history) // HOUR + 1, self._from if self._first is None else self._first)

        def alone(version: Series, hour: int, silent: bool = False) -> bool:
            whole = self._all.get(hour, 0)
            if whole == 0:
                return silent
            rows = self._rows.get((version, None), {}).get(hour)
            return rows is not None and int(rows[:, cells.N].sum()) >= SHARE * whole

        mine = [hour for hour in range(self._from, ended) if alone(self.candidate, hour)]
        after = [hour for hour in mine if hour - WEEK > oldest and alone(self.baseline, hour - WEEK)]
        clock = sorted({(hour - self._from) % DAY for hour in after or mine})
        placebo = []
        for first in range(self._from - DAY, oldest, -DAY):
            day = [first + hour for hour in clock]
            if all(alone(self.baseline, hour, silent=True) for hour in day):
                placebo.append(day)
        return _Hours(mine, after, placebo)

    def _judge(self, at: int, hours: _Hours) -> None:
        after, before = self._sum(self.candidate, hours.after), self._sum(self.baseline, hours.before)
        n = self._sum(self.candidate, hours.alone)[:, cells.N].sum() + before[:, cells.N].sum()
        y = min(after[:, cells.Y].sum(), before[:, cells.Y].sum())
        blocks = int(((after[:, cells.N] > 0) & (before[:, cells.N] > 0)).sum())
        floor = self._floor(hours, int(y), blocks)
        log_e, metrics = [0.0] * (OVERALL + 1), dict[str, list[float]]()
        if len(hours.placebo) >= FEWEST_DAYS and y > 0:
            log_e, metrics = self._evidence(hours, before, after, choose=floor is None)
        totals = before.sum(axis=0), after.sum(axis=0)
        values = {name: [metric_value(name, total) for total in totals] for name in METRICS}
        was, last = self.verdict, self._found
        self._found = _Found(int(n), int(y), blocks, len(hours.placebo), floor, log_e, metrics, values)
        if floor is None:
            for i, value in enumerate(log_e):
                self._peaks[i] = max(self._peaks[i], value)
                if value >= math.log(1.0 / self.rule.alpha) and self._worse_at[i] is None:
                    self._worse_at[i] = at
        if self.verdict != was:
            found = self._found
            self._decision = decide(
                self.rule, self.verdict, at, self._log_e(found), lambda _: self._estimates(found), [self.start]
            )
        self._record.note(at, was, self.verdict, None if last is None else last.log_e[OVERALL], log_e[OVERALL])
        if metrics and self._record.due(int(n)):
            differences = {name: (m[0], m[1], m[2]) for name, m in metrics.items()}
            self._record.draw(at, int(n), int(y), differences, log_e)

    def _evidence(
        self, hours: _Hours, before: Ints, after: Ints, choose: bool
    ) -> tuple[list[float], dict[str, list[float]]]:
        """log e by METRICS and overall, and (difference, lower, upper, stderr) by metric. `choose`: it can be judged."""
        if not self._chosen:
            self._by, self._chosen = self._yardstick(hours), choose
        served, elapsed = self._periods(hours, None), len(hours.after) / DAY
        through = served if self._by is None else self._periods(hours, self._by)
        shifts: dict[str, Shift] = {}
        for kind in KINDS:
            through_it = kind in _THROUGH
            shifts[kind] = self._shift(
                kind, through if through_it else served, elapsed, self._by if through_it else None
            )
        now, then = before_after.levels("calibration", after), before_after.levels("calibration", before)
        gap = shifts["calibration"]
        both = now.devs + then.devs
        mid = replace(gap, theta=now.value + then.value, sampling=BLOCKS / (BLOCKS - 1) * np.square(both).sum())
        alpha, out, metrics = self.rule.alpha, [0.0] * (OVERALL + 1), {}
        for i, name in enumerate(METRICS):
            if name not in _COMPARED:
                continue
            tau, margin = max(self.rule.tolerances[name], FINEST), self.rule.margins[name]
            if name == "calibration":
                half = gap.half_width(tau, alpha / 4.0)
                value = before_after.log_e_calibration(gap, mid, shifts["mean_pclick"], tau, margin)
                harm = [
                    float(calibration_harm(mid.theta + s, gap.theta + s, s - mid.theta, s - gap.theta))
                    for s in (0.0, -half, half)
                ]
            else:
                half = shifts[name].half_width(tau, alpha / 2.0)
                value = shifts[name].log_e(tau, margin)
                harm = [float(shifts[name].theta + s) for s in (0.0, -half, half)]
            stderr = math.sqrt(float((gap if name == "calibration" else shifts[name]).variance()))
            out[i] = float(value)
            metrics[name] = [*(harm if name != "auc" else [-harm[0], -harm[2], -harm[1]]), stderr]
        weights = np.array([self.rule.weights[name] for name in METRICS])
        with np.errstate(divide="ignore"):
            out[OVERALL] = float(np.logaddexp.reduce(np.log(weights) + out[:OVERALL]))
        return out, metrics

    def _periods(self, hours: _Hours, by: Series | None) -> _Periods | None:
        """None: not enough is known of how the online model compares."""
        placebo = hours.placebo
        if by is not None:
            placebo = [day for day in placebo if self._covered(self.baseline, day, by)]
            if len(placebo) < FEWEST_DAYS or not self._covered(self.candidate, hours.after, by):
                return None
        days = np.stack([self._sum(self.baseline, day, by).sum(axis=0, keepdims=True) for day in placebo])
        return _Periods(self._sum(self.baseline, hours.before, by), self._sum(self.candidate, hours.after, by), days)

    def _shift(self, kind: Kind, periods: _Periods | None, elapsed: float, by: Series | None) -> Shift:
        """`elapsed` in days."""
        if periods is None:
            return UNDEFINED
        unit = self._unit(kind, periods, by)
        then, now, usual = (
            self._level(kind, by, rows).over(unit) for rows in (periods.before, periods.after, periods.days)
        )
        some = usual.value[np.isfinite(usual.value)]
        return UNDEFINED if some.size < FEWEST_DAYS else before_after.shift(then, now, some, elapsed)

    @staticmethod
    def _unit(kind: Kind, periods: _Periods | None, by: Series | None) -> float:
        """What a level is measured in: log loss in the baseline's entropy per click."""
        if kind != "log_loss" or periods is None:
            return 1.0
        n, y = (cells.N, cells.Y) if by is None else (cells.PAIR_N, cells.PAIR_Y)
        return before_after.entropy_per_click(float(periods.before[:, n].sum()), float(periods.before[:, y].sum()))

    @staticmethod
    def _level(kind: Kind, by: Series | None, rows: NDArray[np.int64]) -> Level:
        if by is not None and kind in _THROUGH:
            yardstick: Literal["log_loss", "auc"] = "auc" if kind == "auc" else "log_loss"
            return before_after.yardstick(yardstick, rows)
        level = before_after.levels(kind, rows)
        if kind == "auc":  # nothing is placed until its hour is over
            placed = (rows[..., [cells.PHI1, cells.PHI0]] != 0).any(axis=(-2, -1))
            level = Level(np.where(placed, level.value, math.nan), level.devs)
        return level

    def _sum(self, version: Series, hours: Sequence[int], by: Series | None = None) -> Ints:
        """int64[G, 8] of a version's served rows, or of its pairs with `by`; only the sum over blocks means something before
        the last week.
        """
        rows = self._rows.get((version, by), {})
        out = np.zeros((BLOCKS, SERIES_CELLS), np.int64)
        for hour in hours:
            if hour in rows:
                some = rows[hour]
                out[: len(some)] += some
        return out

    def _yardstick(self, hours: _Hours) -> Series | None:
        """What knows the difference best: an online model that has scored nearly all of both periods, and of half of the placebo
        days, or, None, the levels.
        """
        online = sorted(
            (other for served, other in self._rows if other is not None and served == self.baseline),
            key=lambda s: (s.model, s.version),
        )
        best, least = None, self._variance(hours, None)
        for one in online:
            days = [day for day in hours.placebo if self._covered(self.baseline, day, one)]
            periods = (self.candidate, hours.after), (self.baseline, hours.before)
            if not all(self._covered(*period, one) for period in periods) or len(days) < max(
                FEWEST_DAYS, len(hours.placebo) / 2
            ):
                continue
            variance = self._variance(hours, one)
            if variance < least and not self._learns(hours, days, one):
                best, least = one, variance
        return best

    def _variance(self, hours: _Hours, by: Series | None) -> float:
        """Of log loss and AUC together: the geometric mean, infinite where unknown."""
        periods, elapsed = self._periods(hours, by), len(hours.after) / DAY
        both = math.prod(self._shift(kind, periods, elapsed, by).variance() for kind in _THROUGH)
        return math.sqrt(both) if math.isfinite(both) else math.inf

    def _learns(self, hours: _Hours, days: Sequence[Sequence[int]], by: Series) -> bool:
        """Whether the difference to an online model has a trend: a week of it is more than the difference's own error."""
        when = np.array([day[0] / DAY for day in days])
        when = when - when.mean()
        rows = np.stack([self._sum(self.baseline, day, by).sum(axis=0, keepdims=True) for day in days])
        periods, elapsed = self._periods(hours, by), len(hours.after) / DAY
        for kind in _THROUGH:
            value = self._level(kind, by, rows).over(self._unit(kind, periods, by)).value
            slope = float(when @ value / (when @ when))
            rest = value - value.mean() - slope * when
            error = math.sqrt(float(rest @ rest) / max(value.size - 2, 1) / float(when @ when))
            own = math.sqrt(float(self._shift(kind, periods, elapsed, by).variance()))
            if abs(slope) > 2 * error and abs(slope) * WEEK / DAY > own:
                return True
        return False

    def _covered(self, version: Series, hours: Sequence[int], by: Series) -> bool:
        """Whether an online model has scored nearly all that a version served in these hours."""
        scored = self._sum(version, hours, by)[:, cells.PAIR_N].sum()
        return bool(scored >= SHARE * self._sum(version, hours)[:, cells.N].sum())

    def _floor(self, hours: _Hours, clicks: int, blocks: int) -> str | None:
        """Why it cannot be judged yet."""
        days = len(hours.placebo)
        if not hours.after:
            return f"the version before did not serve these hours alone a week earlier ({days} days before the deploy it did)"
        if days < FEWEST_DAYS:
            return f"needs {FEWEST_DAYS} days before the deploy to know how days differ, has {days} (deserves {DESERVED_DAYS})"
        if clicks < self.rule.min_clicks:
            return "too_few_clicks"
        if blocks < self.rule.min_blocks:
            return "too_few_users"
        return "too_short" if len(hours.after) * HOUR < self.rule.min_duration else None

    @staticmethod
    def _log_e(found: _Found) -> LogE:
        return found.log_e, [0.0] * (OVERALL + 1)

    @staticmethod
    def _estimates(found: _Found) -> Estimates:
        return {name: Estimate(*map(known, m[:3])) for name, m in found.metrics.items()}

    def _verdict(self, i: int) -> Verdict:
        return "undecided" if self._worse_at[i] is None else "worse"

    def _metric(self, i: int, name: str, found: _Found) -> MetricReading:
        difference, lower, upper, stderr = found.metrics.get(name, (*UNKNOWN, math.nan))
        baseline, candidate = found.values.get(name, (None, None))
        reason = None
        if name not in _COMPARED:
            reason = "not_compared"
        elif not math.isfinite(difference):
            reason = "too_little_history" if found.days < FEWEST_DAYS else "too_few_clicks"
        return MetricReading(
            metric=name, baseline=baseline, candidate=candidate, difference=known(difference), lower=known(lower),
            upper=known(upper), stderr=known(stderr), margin=self.rule.margins[name],
            tolerance=self.rule.tolerances[name], log_e_worse=finite(found.log_e[i]), log_e_not_worse=0.0,
            p_worse=min(1.0, math.exp(-self._peaks[i])), verdict=self._verdict(i), reason=reason,
            decided_at=self._worse_at[i],
            supported_now=None if self._worse_at[i] is None else enough(self.rule, "worse", self._log_e(found), i),
        )  # fmt: skip

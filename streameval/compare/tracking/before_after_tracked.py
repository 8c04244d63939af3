"""A version that replaced another one, hour by hour: `before_after` over the hours of the ledger, a warning at most.

Full clock hours in which the candidate served at least `SHARE` are compared with the same hours one week earlier, in
which the baseline did. Placebo days are the 24-hour periods that end where the deploy begins, and so on backwards as
far as the ledger reaches, if the baseline served `SHARE` of each hour that counts. It runs for a week: after that, the
same hours of the week before are the candidate's own.

If versions are deployed more often, the baseline served no such hours. Then the counterparts are the same hours of the
earliest day of the past week on which it did, for that many days, and placebo days may be any version's: differences
between versions only add to the differences between days. They must span a week, or nothing would be known about
weekends.

If an online model has scored both periods, log loss and AUC may be compared relative to it instead of by levels
(`before_after`). Whichever has the smaller variance at the first hour that can be judged is used from then on; an
online model that is still learning, so that its difference has a trend over the placebo days, is not used. Looks are
taken when an hour ends, because the number of days is what limits the precision. The result of the last look is kept,
so nothing that is shown depends on what the ledger has dropped since.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from streameval.compare.evidence import before_after
from streameval.compare.evidence.before_after import ADVICE, LEVEL_KINDS, Shift
from streameval.compare.evidence.decision import Estimates, LogE, decide, enough
from streameval.compare.evidence.evidence import OVERALL, Rule, calibration_harm
from streameval.compare.evidence.ratio import Ints
from streameval.compare.reading.reading import COMPARED, Comparison, Deploy, Estimate, MetricReading, Verdict
from streameval.compare.tracking.hours import DAY_HOURS, THROUGH, WEEK_DAYS, WEEK_HOURS, Hours, HourSums, fewest_days
from streameval.compare.tracking.record import UNKNOWN
from streameval.compare.tracking.sums import RowName
from streameval.compare.tracking.tracked import Tracked, finite, known, metric_value, names
from streameval.events.batch import Series
from streameval.events.durations import HOUR
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BLOCKS, SERIES_CELLS

DESERVED_DAYS = 28
SOON_HOURS = 6  # a counterpart a week earlier is worth waiting this long for
FINEST = 1e-4  # the smallest effect that matters

_COMPARED = ("log_loss", "auc", "calibration")


@dataclass(frozen=True, slots=True)
class _Found:
    """The result of a look, as users see it."""

    impressions: int
    clicks: int
    blocks: int
    days: int  # days of history
    floor: str | None  # why no verdict was possible
    log_e: list[float]  # for worse: METRICS and overall
    metrics: dict[str, list[float]]  # difference, lower, upper, stderr
    values: dict[str, list[float | None]]  # the values of baseline and candidate


class BeforeAfterTracked(Tracked):
    """Compares a candidate with the version it replaced."""

    explained = False

    def __init__(
        self,
        deploy: Deploy,
        baseline: Series,
        candidate: Series,
        start: int,
        segment: int,
        rule: Rule,
        pane: int,
        history: int,
    ) -> None:
        """`start`, `pane` and `history` (how long the ledger keeps sums) in ms; `segment`: the first pane of the
        candidate.
        """
        super().__init__(deploy, "before_after", baseline, candidate, start, segment, rule)
        self.has_past = False  # whether the time before the deploy has been added
        self._pane, self._history = pane, history
        self._from = -(-start // HOUR)  # the first full hour
        self._until = min(self.until // HOUR, self._from + WEEK_HOURS)
        # days from the candidate's hours back to their counterparts; None: there were none yet
        self._back: int | None = None
        self._first: int | None = None  # hour from which the model is known; it may be incomplete
        self._judged = self._from  # hours before this one have been judged
        self._by: Series | None = None  # the online model that is the yardstick
        self._chosen = False  # whether that choice is final
        self._peaks = [0.0] * (OVERALL + 1)
        self._worse_at: list[int | None] = [None] * (OVERALL + 1)
        self._found: _Found | None = None
        self.forget_sums()

    @property
    def verdict(self) -> Verdict:
        """The current verdict."""
        return self._verdict(OVERALL)

    def add(self, segment: int, key: RowName, row: Ints) -> None:
        """Adds a row of the ledger, including rows of segments before the deploy."""
        served, other = key
        if served.model != self.candidate.model or self._judged >= self._until:
            return
        hour = segment * self._pane // HOUR
        rows = row[: BLOCKS * SERIES_CELLS].reshape(BLOCKS, SERIES_CELLS)
        if other is None:
            self._first = hour if self._first is None else min(hour, self._first)
            self._sums.count(hour, int(rows[:, cells.N].sum()))
        elif other.source == "logged":
            return
        if hour >= self._from:
            if served != self.candidate or hour >= self._until:
                return
        elif served != self.baseline or hour < self._from - WEEK_HOURS:
            rows = rows.sum(axis=0, keepdims=True)  # placebo days only need the sums over blocks
        self._sums.add(hour, key, rows)

    def look(self, at: int, withheld: str | None) -> None:
        """Judges the hours that have ended since the last look, if any."""
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
        """See `Tracked`."""
        self._sums = HourSums(self.baseline, self.candidate)

    # -- what it shows -------------------------------------------------------------------------------------------

    def reading(self) -> Comparison:
        """See `Tracked`."""
        found = self._found or _Found(0, 0, 0, 0, "too_short", [0.0] * (OVERALL + 1), {}, {})
        reason = self._record.withheld
        if reason is None:
            history = f"{found.days} days before the deploy show how much days differ; {DESERVED_DAYS} would be better"
            reason = f"{found.floor or self._counterpart() + history}; {ADVICE}"
        now = None if self._decision is None else self._estimates(found).get(self._decision.on.metric)
        return self._read(
            now,
            self._log_e(found),
            impressions=found.impressions,
            clicks=found.clicks,
            blocks=found.blocks,
            since=self._worse_at[OVERALL],
            reason=reason,
            log_e_worse=finite(found.log_e[OVERALL]),
            log_e_not_worse=0.0,
            p_worse=min(1.0, math.exp(-self._peaks[OVERALL])),
            metrics=tuple(self._metric(i, name, found) for i, name in enumerate(COMPARED)),
            floors_met=found.floor is None,
        )

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """See `Tracked`."""
        return super().state() | {
            "back": self._back,
            "first": self._first,
            "judged": self._judged,
            "by": None if self._by is None else names(self._by),
            "chosen": self._chosen,
            "peaks": list(self._peaks),
            "worse_at": list(self._worse_at),
            "decision": None if self._decision is None else self._decision.state(),
            "record": self._record.state(),
            "found": None if self._found is None else asdict(self._found),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Tracked`."""
        super().restore(state)
        self.has_past = True
        self._back = state.get("back", WEEK_DAYS)  # older checkpoints know nothing else
        self._first, self._judged = state["first"], state["judged"]
        self._by, self._chosen = None if state["by"] is None else Series(*state["by"]), state["chosen"]
        self._peaks, self._worse_at = list(state["peaks"]), list(state["worse_at"])
        self._found = None if state["found"] is None else _Found(**state["found"])

    # -- a look --------------------------------------------------------------------------------------------------

    def _hours(self, at: int, ended: int) -> Hours:
        """Returns the hours to compare. `at` determines what the ledger still holds, so the result is the same after a
        restart.
        """
        oldest = max((at - self._history) // HOUR + 1, self._from if self._first is None else self._first)
        mine = [hour for hour in range(self._from, ended) if self._sums.alone(self.candidate, hour)]
        if self._back is None:
            self._back = self._days_back(oldest)
        back = self._back or WEEK_DAYS
        usual = self.baseline if back == WEEK_DAYS else None
        after = [hour for hour in mine if self._is_before(hour - back * DAY_HOURS, oldest)]
        clock = sorted({(hour - self._from) % DAY_HOURS for hour in after or mine})
        days = ([first + hour for hour in clock] for first in range(self._from - DAY_HOURS, oldest, -DAY_HOURS))
        placebo = [day for day in days if self._sums.usual(usual, day)]
        return Hours(mine, after, placebo, back, usual)

    def _is_before(self, hour: int, oldest: int) -> bool:
        """Whether the baseline served an hour before the deploy alone."""
        return oldest < hour < self._from and self._sums.alone(self.baseline, hour)

    def _days_back(self, oldest: int) -> int | None:
        """Returns how many days back counterparts are: as many as the first hours have any for, up to a week; None:
        there are none.
        """
        for hours in (SOON_HOURS, DAY_HOURS):
            for back in range(WEEK_DAYS, 0, -1):
                first = self._from - back * DAY_HOURS
                if any(self._is_before(hour, oldest) for hour in range(first, first + hours)):
                    return back
        return None

    def _judge(self, at: int, hours: Hours) -> None:
        after, before = self._sums.sum(self.candidate, hours.after), self._sums.sum(self.baseline, hours.before)
        n = self._sums.sum(self.candidate, hours.alone)[:, cells.N].sum() + before[:, cells.N].sum()
        y = min(after[:, cells.Y].sum(), before[:, cells.Y].sum())
        blocks = int(((after[:, cells.N] > 0) & (before[:, cells.N] > 0)).sum())
        floor = self._floor(hours, int(y), blocks)
        log_e, metrics = [0.0] * (OVERALL + 1), dict[str, list[float]]()
        if len(hours.placebo) >= hours.fewest and y > 0:
            log_e, metrics = self._evidence(hours, before, after, choose=floor is None)
        totals = before.sum(axis=0), after.sum(axis=0)
        values = {name: [metric_value(name, total) for total in totals] for name in COMPARED}
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
            self._record.draw(
                at, int(n), int(y), differences, dict(zip(COMPARED, log_e, strict=False)), log_e[len(COMPARED)]
            )

    def _evidence(
        self, hours: Hours, before: Ints, after: Ints, choose: bool
    ) -> tuple[list[float], dict[str, list[float]]]:
        """Returns log e by METRICS and overall, and (difference, lower, upper, stderr) by metric. `choose`: the floors
        are met.
        """
        if not self._chosen:
            self._by, self._chosen = self._sums.yardstick(hours), choose
        served, elapsed = self._sums.periods(hours, None), len(hours.after) / DAY_HOURS
        through = served if self._by is None else self._sums.periods(hours, self._by)
        shifts: dict[str, Shift] = {}
        for kind in LEVEL_KINDS:
            through_it = kind in THROUGH
            shifts[kind] = self._sums.shift(
                kind, through if through_it else served, elapsed, self._by if through_it else None
            )
        now, then = before_after.levels("calibration", after), before_after.levels("calibration", before)
        gap = shifts["calibration"]
        both = now + then
        mid = replace(gap, theta=both.value, sampling=both.variance())
        alpha, out, metrics = self.rule.alpha, [0.0] * (OVERALL + 1), {}
        for i, name in enumerate(COMPARED):
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
        with np.errstate(divide="ignore"):  # further metrics have an e-value of 1 here, and the weight that is left
            weights = np.log([self.rule.weights[name] for name in COMPARED])
            rest = np.log(max(1.0 - sum(self.rule.weights[name] for name in COMPARED), 0.0) if self.rule.more else 0.0)
        with np.errstate(divide="ignore"):
            out[OVERALL] = float(np.logaddexp(np.logaddexp.reduce(weights + out[:OVERALL]), rest))
        return out, metrics

    def _floor(self, hours: Hours, clicks: int, blocks: int) -> str | None:
        """Returns why no verdict is possible yet, or None."""
        if self.rule.weighed == "weights":  # hours do not record how many clicks a sampled click stands for
            return "weights_not_supported"
        days, fewest = len(hours.placebo), hours.fewest
        if not hours.after:
            return "the previous version served none of the same hours alone on any day of the week before the deploy"
        if days < fewest:
            return f"needs at least {fewest} days before the deploy to know how much days differ, has {days} ({DESERVED_DAYS} is better)"
        if clicks < self.rule.min_clicks:
            return "too_few_clicks"
        if blocks < self.rule.min_blocks:
            return "too_few_users"
        return "too_short" if len(hours.after) * HOUR < self.rule.min_duration else None

    def _counterpart(self) -> str:
        """Says which hours before the deploy are used, if not those of a week earlier."""
        if self._back in (None, WEEK_DAYS):
            return ""
        return f"against the same hours {self._back} {'day' if self._back == 1 else 'days'} earlier; "

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
            reason = "too_little_history" if found.days < fewest_days(self._back or WEEK_DAYS) else "too_few_clicks"
        elif not math.isfinite(lower):
            reason = "too_little_history"
        return MetricReading(
            metric=name,
            baseline=baseline,
            candidate=candidate,
            difference=known(difference),
            lower=known(lower),
            upper=known(upper),
            stderr=known(stderr),
            margin=self.rule.margins[name],
            tolerance=self.rule.tolerances[name],
            log_e_worse=finite(found.log_e[i]),
            log_e_not_worse=0.0,
            p_worse=min(1.0, math.exp(-self._peaks[i])),
            verdict=self._verdict(i),
            reason=reason,
            decided_at=self._worse_at[i],
            supported_now=None if self._worse_at[i] is None else enough(self.rule, "worse", self._log_e(found), i),
        )

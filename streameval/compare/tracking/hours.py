"""The sums of two versions by hour, and whether their difference is best measured by levels or relative to an online
model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streameval.compare.evidence import before_after
from streameval.compare.evidence.before_after import UNDEFINED, Level, LevelKind, Shift
from streameval.compare.evidence.ratio import Ints
from streameval.compare.tracking.sums import RowName
from streameval.events.batch import Series
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BLOCKS, PAIR_CELLS, SERIES_CELLS

WEEK_DAYS, DAY_HOURS = 7, 24
WEEK_HOURS = WEEK_DAYS * DAY_HOURS
SHARE = 0.9  # of the model's impressions in an hour, from which a version counts as having served it alone
FEWEST_DAYS = 3  # of history, below which hours cannot be compared with those of a week earlier
_MOST_DAYS = 512  # cached sums of days

THROUGH: tuple[LevelKind, ...] = ("log_loss", "auc")  # may be compared relative to an online model
assert SERIES_CELLS == PAIR_CELLS


def fewest_days(back: int) -> int:
    """Returns the fewest placebo days needed to compare hours with those of `back` days earlier.

    Other days of the week are no counterparts, so the placebo days must cover how much days of the week differ.
    """
    return FEWEST_DAYS if back == WEEK_DAYS else WEEK_DAYS


@dataclass(frozen=True, slots=True)
class Hours:
    """The hours compared at a look."""

    alone: list[int]  # hours that the candidate served alone, since the epoch
    after: list[int]  # those of them that have a counterpart
    placebo: list[list[int]]  # hours of each placebo day
    back: int  # days from an hour back to its counterpart
    usual: Series | None  # the version that served the placebo days; None: any version

    @property
    def before(self) -> list[int]:
        """The counterparts of `after`."""
        return [hour - self.back * DAY_HOURS for hour in self.after]

    @property
    def fewest(self) -> int:
        """See `fewest_days`."""
        return fewest_days(self.back)


@dataclass(frozen=True, slots=True, eq=False)
class Periods:
    """Sums int64[G, 8] of one kind; `days`: of the placebo days, int64[days, 1, 8]."""

    before: Ints
    after: Ints
    days: Ints


class HourSums:
    """Sums of what the baseline, the candidate and earlier versions served, and of their pairs with online models."""

    def __init__(self, baseline: Series, candidate: Series) -> None:
        self._baseline, self._candidate = baseline, candidate
        self._rows: dict[RowName, dict[int, Ints]] = {}  # by hour: int64[G, 8], or int64[1, 8] for placebo days
        self._all: dict[int, int] = {}  # impressions of the model by hour
        self._served: dict[RowName, dict[int, int]] = {}  # impressions by hour, of `_rows`
        # cached sums of placebo days, int64[1, 8]: read at every look, and changed only when one of their hours is
        # corrected
        self._days: dict[tuple[Series | None, Series | None, tuple[int, ...]], Ints] = {}
        self._in_days: set[int] = set()

    def count(self, hour: int, impressions: int) -> None:
        """Adds impressions of the model, whatever the version."""
        self._all[hour] = self._all.get(hour, 0) + impressions

    def add(self, hour: int, key: RowName, rows: Ints) -> None:
        """Adds a row of the ledger: int64[G, 8], or int64[1, 8] where only the sum over blocks matters."""
        by_hour = self._rows.setdefault(key, {})
        by_hour[hour] = by_hour[hour] + rows if hour in by_hour else rows.copy()
        served = self._served.setdefault(key, {})
        served[hour] = served.get(hour, 0) + int(rows[:, cells.N].sum())
        if hour in self._in_days:
            self._days.clear()
            self._in_days.clear()

    def usual(self, version: Series | None, day: Sequence[int]) -> bool:
        """Whether a version served a placebo day alone, hours without impressions aside; None: whether any version
        served it.
        """
        if version is None:
            return any(self._all.get(hour, 0) for hour in day)
        served = self._served.get((version, None), {})
        return all(self._nearly_alone(served, hour) or not self._all.get(hour, 0) for hour in day)

    def alone(self, version: Series, hour: int) -> bool:
        """Whether a version served nearly all of an hour's impressions."""
        return self._nearly_alone(self._served.get((version, None), {}), hour)

    def _nearly_alone(self, served: Mapping[int, int], hour: int) -> bool:
        whole = self._all.get(hour, 0)
        return whole > 0 and hour in served and served[hour] >= SHARE * whole

    def sum(self, version: Series | None, hours: Sequence[int], by: Series | None = None) -> Ints:
        """Returns int64[G, 8]: sums of the rows that a version served (None: all versions), or of its pairs with `by`.
        For placebo days only the sum over blocks is meaningful.
        """
        versions = [version] if version is not None else [served for served, other in self._rows if other == by]
        out = np.zeros((BLOCKS, SERIES_CELLS), np.int64)
        for served in versions:
            rows = self._rows.get((served, by), {})
            for hour in hours:
                if hour in rows:
                    some = rows[hour]
                    out[: len(some)] += some
        return out

    def of_day(self, version: Series | None, day: Sequence[int], by: Series | None = None) -> Ints:
        """Returns the same sums over all blocks for a placebo day, int64[1, 8]."""
        name = version, by, tuple(day)
        if name not in self._days:
            if len(self._days) >= _MOST_DAYS:  # entries of earlier looks: days grow with the time since the deploy
                self._days.clear()
                self._in_days.clear()
            self._days[name] = self.sum(version, day, by).sum(axis=0, keepdims=True)
            self._in_days.update(day)
        return self._days[name]

    def periods(self, hours: Hours, by: Series | None) -> Periods | None:
        """Returns the sums of the periods; None if the online model `by` has not scored enough of them."""
        placebo = hours.placebo
        if by is not None:
            placebo = [day for day in placebo if self._covered_day(hours.usual, day, by)]
            if len(placebo) < hours.fewest or not self._covered(self._candidate, hours.after, by):
                return None
        days = np.stack([self.of_day(hours.usual, day, by) for day in placebo])
        return Periods(self.sum(self._baseline, hours.before, by), self.sum(self._candidate, hours.after, by), days)

    def shift(self, kind: LevelKind, periods: Periods | None, elapsed: float, by: Series | None) -> Shift:
        """Returns the shift of a level after the deploy; `elapsed` in days."""
        if periods is None:
            return UNDEFINED
        unit = _unit(kind, periods, by)
        then, now, usual = (_level(kind, by, rows).over(unit) for rows in (periods.before, periods.after, periods.days))
        some = usual.value[np.isfinite(usual.value)]
        return UNDEFINED if some.size < FEWEST_DAYS else before_after.shift(then, now, some, elapsed)

    def yardstick(self, hours: Hours) -> Series | None:
        """Returns what measures the difference best: an online model that has scored nearly all of both periods and of
        half of the placebo days, or None for levels.
        """
        online = sorted(
            (other for served, other in self._rows if other is not None and served == self._baseline),
            key=lambda s: (s.model, s.version),
        )
        best, least = None, self._variance(hours, None)
        for one in online:
            days = [day for day in hours.placebo if self._covered_day(hours.usual, day, one)]
            periods = (self._candidate, hours.after), (self._baseline, hours.before)
            if not all(self._covered(*period, one) for period in periods) or len(days) < max(
                hours.fewest, len(hours.placebo) / 2
            ):
                continue
            variance = self._variance(hours, one)
            if variance < least and not self._learns(hours, days, one):
                best, least = one, variance
        return best

    def _variance(self, hours: Hours, by: Series | None) -> float:
        """Returns the geometric mean of the variances of log loss and AUC; infinite where unknown."""
        periods, elapsed = self.periods(hours, by), len(hours.after) / DAY_HOURS
        both = math.prod(self.shift(kind, periods, elapsed, by).variance() for kind in THROUGH)
        return math.sqrt(both) if math.isfinite(both) else math.inf

    def _learns(self, hours: Hours, days: Sequence[Sequence[int]], by: Series) -> bool:
        """Whether the difference to an online model has a trend: over a week it exceeds the difference's own error."""
        when = np.array([day[0] / DAY_HOURS for day in days])
        when = when - when.mean()
        rows = np.stack([self.of_day(hours.usual, day, by) for day in days])
        periods, elapsed = self.periods(hours, by), len(hours.after) / DAY_HOURS
        for kind in THROUGH:
            value = _level(kind, by, rows).over(_unit(kind, periods, by)).value
            slope = float(when @ value / (when @ when))
            rest = value - value.mean() - slope * when
            error = math.sqrt(float(rest @ rest) / max(value.size - 2, 1) / float(when @ when))
            own = math.sqrt(float(self.shift(kind, periods, elapsed, by).variance()))
            if abs(slope) > 2 * error and abs(slope) * WEEK_HOURS / DAY_HOURS > own:
                return True
        return False

    def _covered(self, version: Series | None, hours: Sequence[int], by: Series) -> bool:
        """Whether an online model has scored nearly everything that a version served in these hours."""
        return _nearly_all(self.sum(version, hours, by), self.sum(version, hours))

    def _covered_day(self, version: Series | None, day: Sequence[int], by: Series) -> bool:
        return _nearly_all(self.of_day(version, day, by), self.of_day(version, day))


def _nearly_all(scored: Ints, served: Ints) -> bool:
    return bool(scored[:, cells.PAIR_N].sum() >= SHARE * served[:, cells.N].sum())


def _unit(kind: LevelKind, periods: Periods | None, by: Series | None) -> float:
    """Returns the unit of a level: for log loss the baseline's entropy per click."""
    if kind != "log_loss" or periods is None:
        return 1.0
    n, y = (cells.N, cells.Y) if by is None else (cells.PAIR_N, cells.PAIR_Y)
    return before_after.entropy_per_click(float(periods.before[:, n].sum()), float(periods.before[:, y].sum()))


def _level(kind: LevelKind, by: Series | None, rows: NDArray[np.int64]) -> Level:
    if by is not None and kind in THROUGH:
        yardstick: Literal["log_loss", "auc"] = "auc" if kind == "auc" else "log_loss"
        return before_after.yardstick(yardstick, rows)
    level = before_after.levels(kind, rows)
    if kind == "auc":  # scores are placed only when their hour is over
        placed = (rows[..., [cells.PHI1, cells.PHI0]] != 0).any(axis=(-2, -1))
        level = replace(level, value=np.where(placed, level.value, math.nan))
    return level

"""The sequential state of one comparison: updated at every look, with the verdicts that follow.

There is an e-process (`eprocess`) per metric and direction: *worse*, theta > margin, and *not worse*, theta <
tolerance. Theta is harm, candidate against baseline (`paired`, `split`). E-values are combined in these steps, each
valid whatever their dependence:

- processes: one over all impressions and, if the caller provides it, one with each user's impressions per day capped,
  which a few heavy users cannot drown: their mean. *Not worse* uses all impressions only.
- windows: a mean over the process that begins at the start and those that begin every few hours, so that a break on day
  3 is found almost as fast as one on day 0 (windows that have not begun count as 1). *Not worse* has the first window
  only.
- calibration: harm > m means that, for one of two signs, both of two statistics exceed m: the mean over signs of the
  smaller one; for *not worse* the smaller over signs of the mean.
- overall worse: log loss, AUC, a joint statistic of both (`joint`, half of AUC's weight), GAUC and calibration. A
  deploy that is worse is usually worse in the first three alike, and then has the weight of all three; if not, one of
  them is enough. The weighted mean must reach less than 1 / alpha, because its horizon is known (`overall_level`); it is
  reported on the scale of the others, where the level is 1 / alpha. A missing metric counts as 1.
- overall not worse: the smallest of the metrics that must be certified, because each of them must be, at alpha (an
  intersection-union test).

Variances have a floor. Equal scores have no variance at all, and are certified as soon as the floors of clicks and time
are met; but differences in a few last digits, or in one odd impression, must not look certain. At `min_clicks` the
smallest standard error is a tenth of the tolerance, and it falls as 1 / clicks: far below any real one, which falls as
1 / sqrt(clicks).

rho is frozen, per window and metric, at its first look with enough clicks and blocks, from the variance there, such
that the boundary is tightest at `optimum` clicks (earlier in the later windows: they are there for what is new);
evidence begins there. A verdict also needs `min_duration`. The first look at which each verdict was reached stays on
record. *Worse* is final, *not worse* stands until *worse* is found: a version that was good for two days may break on
the third. A verdict from labels that have been corrected since is retracted (`retract`), and may be reached again from
the corrected labels.

In strict mode, the log loss has the evidence that the caller provides (`strict`), and it alone decides *worse*. One
scalar kernel (`one_look`) does all of this look by look, so however the looks are divided into calls, the bits are the
same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from streameval.compare.evidence import one_look, overall_level, packed_statistics
from streameval.compare.evidence.eprocess import best_rho
from streameval.compare.evidence.one_look import Kept, LookColumns, Path, RuleColumns
from streameval.compare.evidence.packed_statistics import LEAVES
from streameval.compare.evidence.paired import GAP, MID
from streameval.compare.evidence.ratio import STATISTIC_FIELDS, Reals, Statistic, Statistics
from streameval.compare.reading.reading import COMPARED, Verdict
from streameval.events.durations import HOUR

OVERALL = len(COMPARED)  # column of paths, after the metrics

SURE = 10.0  # largest number of standard errors in a tolerance at the floor of clicks: a z of 7.7 with 64 blocks

DEFAULT_MARGINS = {"log_loss": 0.001, "auc": 0.001, "gauc": 0.001, "calibration": 0.1}
DEFAULT_TOLERANCES = {"log_loss": 0.005, "auc": 0.005, "gauc": 0.005, "calibration": 0.1}
DEFAULT_WEIGHTS = {"log_loss": 0.5, "auc": 0.35, "gauc": 0.03, "calibration": 0.12}
_ALL = np.ones(len(LEAVES))
_TESTS = np.array([2.0 if name in {MID, GAP} else 1.0 for name in LEAVES])  # tests of a leaf that share its level
_JOINT = 0.5  # of AUC's weight in the overall verdict, for the joint statistic

_RESTART = 6 * HOUR  # ms: the least time between the starts of two windows
_TUPLES = ("certified", "more", "decide", "pieces")
_ADDED = ("horizon", "pieces")  # in format 13

Weighed = Literal["", "negatives", "weights"]


@dataclass(frozen=True, slots=True)
class Rule:
    """The parameters of a comparison. ValueError if they are inconsistent."""

    alpha: float = 0.01
    margins: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_MARGINS))
    tolerances: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_TOLERANCES))
    # weights of metrics in the overall verdict
    weights: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_WEIGHTS))
    certified: tuple[str, ...] = ("log_loss", "auc")  # metrics that must be not worse for the overall verdict
    more: tuple[str, ...] = ()  # further metrics, which have a weight only if they decide (see `alone`)
    decide: tuple[str, ...] = COMPARED  # metrics whose evidence makes the overall verdict
    windows: int = overall_level.WINDOWS  # processes: one from the start, the others begin every few hours
    first_weight: float = overall_level.FIRST_WEIGHT  # of the process from the start; the others share the rest
    optimum: float = 3000.0  # clicks at which the first window's boundary is tightest
    restart_optimum: float = 1500.0  # the same for the other windows
    min_duration: int = 3_600_000  # ms
    min_clicks: int = 200
    min_blocks: int = 30
    user_cap: int = 0  # a user's impressions per day that count in the second process of pairs; 0: none
    strict: bool = False  # whether `worse` in a paired comparison is decided by `strict` alone
    weighed: Weighed = ""  # which impressions may have a weight above 1: non-clicks only, or any
    horizon: int = 7 * 24 * HOUR  # ms: how long a comparison runs
    pieces: tuple[str, ...] = ()  # the names of the sums of further metrics, which tell their settings (see `RowPiece`)

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"alpha must be in (0, 1/2), not {self.alpha}")
        metrics, deciding = (*COMPARED, *self.more), (*COMPARED, *(m for m in self.more if m in self.decide))
        for name, names in (("margins", metrics), ("tolerances", metrics), ("weights", deciding)):
            if set(getattr(self, name)) != set(names):
                raise ValueError(f"{name} must name each of {', '.join(names)}")
        if abs(sum(self.weights.values()) - 1.0) > 1e-9 or min(self.weights.values()) < 0:
            raise ValueError("weights must not be negative and add up to 1")
        if not min(self.tolerances.values()) > 0:
            raise ValueError("tolerances must be above 0")
        if not self.certified or not set(self.certified) <= set(metrics):
            raise ValueError(f"certified must name some of {', '.join(metrics)}")
        if self.windows < 1 or not 0 < self.first_weight <= 1 or not min(self.optimum, self.restart_optimum) > 0:
            raise ValueError("windows >= 1, 0 < first_weight <= 1, and optima above 0 are needed")

    @classmethod
    def of(cls, fields: Mapping[str, Any], now: Rule) -> Rule:
        """Restores a rule from the result of `dataclasses.asdict`, even after a round trip through JSON.

        What checkpoints before format 13 do not have is taken to be as it is `now`.
        """
        unknown = {name: getattr(now, name) for name in _ADDED}
        names = {name: tuple(fields[name]) for name in _TUPLES if name in fields}
        return cls(**{**unknown, **fields, **names})

    @property
    def restart(self) -> int:
        """The time between the starts of two windows, ms."""
        return max(_RESTART, self.horizon // self.windows)

    def log_level(self) -> float:
        """Returns the log of what the overall e-process of `worse` must reach: from the table, or 1 / alpha for windows
        or metrics that the table does not cover.
        """
        of_table = (self.windows, self.first_weight) == (overall_level.WINDOWS, overall_level.FIRST_WEIGHT)
        if of_table and set(self.decide) == set(COMPARED):
            return overall_level.log_level(self.alpha)
        return math.log(1.0 / self.alpha)

    def window_weights(self) -> Reals:
        """Returns the weights of the windows, float64[windows], adding up to 1."""
        out = np.full(self.windows, (1.0 - self.first_weight) / max(self.windows - 1, 1))
        out[0] = 1.0 if self.windows == 1 else self.first_weight
        return out


@dataclass(frozen=True, slots=True)
class Standing:
    """The current state of a metric, or of the overall verdict."""

    verdict: Verdict
    worse_at: int | None  # the look at which the verdict was reached, ms
    not_worse_at: int | None
    peak_worse: float  # largest log e at looks beyond the floors; exp(-peak) is the anytime p-value
    peak_not_worse: float
    retracted_at: int | None = None  # when a verdict was last retracted, ms


@dataclass(frozen=True, slots=True, eq=False)
class Capped:
    """The same looks with each user's impressions per day capped, in the form that `Evidence.advance` takes."""

    clicks: NDArray[np.int64]
    statistics: Mapping[str, Statistic]
    correlation: Reals | None = None


class Evidence:
    """The state of one comparison. Not thread-safe."""

    def __init__(self, rule: Rule, start: int) -> None:
        """`start`: event time in ms at which the sums of the first window begin."""
        self.rule = rule
        self.start = start
        count = rule.windows
        self._frozen = np.full((2, count, one_look.FROZEN), np.nan)
        self._peak = np.zeros((OVERALL + 1, 2))
        self._found = np.full((OVERALL + 1, 2), -1, np.int64)
        self._retracted = np.full(OVERALL + 1, -1, np.int64)
        self._weights = rule.window_weights()
        tolerances = np.array([rule.tolerances["calibration" if n in {MID, GAP} else n] for n in LEAVES])
        self._floors = (tolerances / SURE) ** 2  # of the leaves' variances, at the floor of clicks
        joint = _JOINT if rule.weights["log_loss"] else 0.0
        with np.errstate(divide="ignore"):
            self._terms = RuleColumns(
                margins=np.array([rule.margins[m] for m in COMPARED], np.float64),
                tolerances=np.array([rule.tolerances[m] for m in COMPARED], np.float64),
                log_weights=np.log(np.array([rule.weights[m] for m in COMPARED], np.float64)),
                log_parts=np.log(
                    [rule.weights["log_loss"], rule.weights["auc"] * (1.0 - joint), rule.weights["auc"] * joint]
                ),
                certified=np.array([m in rule.certified for m in COMPARED]),
                log_windows=np.log(self._weights),
                rhos=best_rho([rule.optimum] + [rule.restart_optimum] * (count - 1), rule.alpha),
                rho=float(best_rho(overall_level.OPTIMUM, rule.alpha)),
                level=math.log(1.0 / rule.alpha),
                spent=rule.log_level(),
                min_duration=rule.min_duration,
                min_clicks=rule.min_clicks,
            )

    def advance(
        self,
        at: NDArray[np.int64],
        clicks: NDArray[np.int64],
        statistics: Mapping[str, Statistic],
        strict: Reals | None = None,
        *,
        correlation: Reals | None = None,
        capped: Capped | None = None,
        further: tuple[Reals, Reals] | None = None,
    ) -> Path:
        """Takes looks, oldest first: `at` int64[T] (ms, not before earlier ones), `clicks` int64[T, J] and each
        statistic [T, J], for the J <= rule.windows windows that have begun (an empty window is undefined, which is no
        evidence). Metrics without statistics are missing. Returns the evidence and the verdicts at these looks.

        `strict` float64[T]: the log e of strict mode, which then replaces the log loss and alone decides *worse*.
        `correlation` float64[T, J]: that of log loss and AUC over blocks (`joint`), 1 if it is not known. `further`:
        what further deciding metrics contribute, float64[T] each: the log of the sum of their e-values of *worse* times
        their weights, and the smallest log e of *not worse* of those that must be certified. ValueError for other
        shapes.
        """
        shape = clicks.shape
        if len(shape) != 2 or shape[1] > self.rule.windows or at.shape != shape[:1]:
            raise ValueError(f"clicks must be [{at.size}, <= {self.rule.windows}], not {list(shape)}")
        processes = [Capped(clicks, statistics, correlation)] + ([] if capped is None else [capped])
        counts = np.empty((len(processes), *shape), np.int64)
        packed = np.empty((len(processes), packed_statistics.LEAF_FIELDS, len(LEAVES), *shape))
        together = np.ones((len(processes), *shape))
        given = np.zeros((len(processes), len(LEAVES)), np.bool_)
        for p, process in enumerate(processes):
            some = Statistics.of(process.statistics)
            given[p, packed_statistics.places_of(some.names)] = True
            counts[p] = process.clicks
            packed[p] = self._leaves(some, process.clicks, self.rule.min_blocks)
            if process.correlation is not None:
                together[p] = process.correlation
        given[:, LEAVES.index(MID)] &= given[:, LEAVES.index(GAP)]
        looks = LookColumns(
            elapsed=at.astype(np.int64) - self.start,
            at=at.astype(np.int64),
            clicks=counts,
            leaves=packed,
            correlation=together,
            given=given,
            strict=np.full(shape[0], np.nan) if strict is None else strict,
            more_worse=np.full(shape[0], -np.inf) if further is None else further[0],
            more_not_worse=np.full(shape[0], np.inf) if further is None else further[1],
        )
        worse, not_worse = np.empty((2, shape[0], OVERALL + 1))
        path = Path(worse, not_worse, np.empty((shape[0], OVERALL + 1), np.int8))
        one_look.advance(looks, self._terms, Kept(self._frozen, self._peak, self._found), path)
        return path

    def retract(self, at: int, since: int = 0) -> tuple[str, ...]:
        """Retracts verdicts reached at looks from `since` on (ms), whose labels were corrected. Returns the metrics
        concerned, "overall" for the overall verdict.

        The peaks of evidence start over for every metric, because they may come from the same looks. Frozen scales
        stay.
        """
        taken = (self._found >= max(since, 0)).any(axis=1)
        self._found[self._found >= max(since, 0)] = -1
        self._retracted[taken] = at
        self._peak[:] = 0.0
        return tuple(np.array([*COMPARED, "overall"])[taken].tolist())

    @property
    def verdict(self) -> Verdict:
        """The overall verdict: that of `standing`, which every look of every comparison asks for."""
        return _verdict(*self._found[OVERALL].tolist())

    def standing(self, metric: str | None = None) -> Standing:
        """Returns the state of one metric, or of the overall verdict."""
        i = OVERALL if metric is None else COMPARED.index(metric)
        worse_at, not_worse_at = self._found[i].tolist()
        peak_worse, peak_not_worse = self._peak[i].tolist()
        return Standing(
            _verdict(worse_at, not_worse_at),
            worse_at if worse_at >= 0 else None,
            not_worse_at if not_worse_at >= 0 else None,
            peak_worse,
            peak_not_worse,
            int(self._retracted[i]) if self._retracted[i] >= 0 else None,
        )

    def rho(self, leaf: str = "log_loss") -> float | None:
        """Returns the frozen rho of the first window's mixture, in units of S = theta * W; None: not frozen yet."""
        frozen = float(self._frozen[0, 0, LEAVES.index(leaf)] * self._terms.rhos[0])
        return None if math.isnan(frozen) else frozen

    def bounds(
        self,
        statistics: Mapping[str, Statistic],
        clicks: NDArray[np.int64] | int,
        window: int = 0,
        sides: int = 2,
        at: tuple[int, ...] = (),
    ) -> dict[str, tuple[Reals, Reals]]:
        """Returns (lower, upper) of harm per metric, each float64[...], from statistics and clicks [...] of one window
        at any looks.

        `at`: index of these looks in the statistics, if they are not all of it. For each metric, bounds hold at all
        looks at once with probability at least 1 - alpha: both together, or (`sides` 1) each by itself, as in the tests
        behind verdicts. Both together are inverted from the e-process of all impressions, at the level of its share in
        the metric's verdict: beyond the floors no interval is beyond the margin, or within the tolerance, while the
        metric is undecided. Infinite before rho is frozen.
        """
        some = Statistics.of(statistics)
        if at:
            place: tuple[Any, ...] = (slice(None), *at)
            some = Statistics(some.names, some.packed[place])
        of = self._leaves(some, clicks)
        frozen, capped = self._frozen[:, window, : len(LEAVES)]
        share = self._weights[0] / np.where(np.isnan(capped), 1.0, 2.0)  # of the verdict
        level = -np.log(self.rule.alpha * (_ALL if sides == 1 else np.minimum(0.5, share)) / _TESTS)
        rho = frozen * self._terms.rhos[window]
        low, high = packed_statistics.bounds(of.reshape(*of.shape[:2], -1), rho, level).reshape(2, *of.shape[1:])
        leaf = {LEAVES[i]: (low[i], high[i]) for i in sorted(packed_statistics.places_of(some.names).tolist())}
        out = {name: leaf[name] for name in COMPARED if name in leaf}
        if MID in leaf and GAP in leaf:
            (mid_low, mid_high), (gap_low, gap_high) = leaf[MID], leaf[GAP]
            out["calibration"] = (
                calibration_harm(mid_low, gap_low, -mid_high, -gap_high),
                calibration_harm(mid_high, gap_high, -mid_low, -gap_low),
            )
        return out

    def _leaves(self, some: Statistics, clicks: NDArray[np.int64] | int, min_blocks: float = -math.inf) -> Reals:
        """Returns the leaves' fields, float64[LEAF_FIELDS, 5, ...]; NaN without enough blocks. ValueError if clicks
        have another shape.
        """
        shape = some.packed.shape[1:-1] if some.names else np.shape(clicks)
        if np.shape(clicks) not in {(), shape}:
            raise ValueError(f"{', '.join(some.names)} must be {list(np.shape(clicks))}, not {list(shape)}")
        counts = np.full(shape, clicks) if np.shape(clicks) != shape else np.asarray(clicks)
        out = np.full((packed_statistics.LEAF_FIELDS, len(LEAVES), counts.size), np.nan)
        packed_statistics.fill(
            np.ascontiguousarray(some.packed).reshape(len(some), counts.size, STATISTIC_FIELDS),
            packed_statistics.places_of(some.names),
            counts.ravel(),
            packed_statistics.Floors(self._floors, self.rule.min_clicks, float(min_blocks)),
            out,
        )
        return out.reshape(*out.shape[:2], *shape)

    def state(self) -> dict[str, Any]:
        """Returns everything that looks have left, as JSON values, without the rule."""
        return {
            "start": self.start,
            "frozen": [
                [[None if math.isnan(x) else x for x in row] for row in process] for process in self._frozen.tolist()
            ],
            "peak": self._peak.tolist(),
            "found": self._found.tolist(),
            "retracted": self._retracted.tolist(),
        }

    @classmethod
    def restore(cls, rule: Rule, state: Mapping[str, Any]) -> Evidence:
        """Restores a state under the same rule. ValueError if it has another number of windows."""
        out = cls(rule, int(state["start"]))
        frozen = np.array(
            [[[math.nan if x is None else x for x in row] for row in process] for process in state["frozen"]],
            np.float64,
        )
        if frozen.shape != out._frozen.shape:
            raise ValueError(f"state of {frozen.shape[1]} windows for a rule with {rule.windows}")
        out._frozen[:] = frozen
        out._peak[:] = state["peak"]
        out._found[:] = state["found"]
        out._retracted[:] = state["retracted"]
        return out


def _verdict(worse_at: int, not_worse_at: int) -> Verdict:
    return "worse" if worse_at >= 0 else "not_worse" if not_worse_at >= 0 else "undecided"


def harm(statistics: Mapping[str, Statistic]) -> dict[str, Reals]:
    """Returns point estimates per metric, float64[...]; NaN where undefined."""
    some = Statistics.of(statistics)
    out = {name: some.theta(name) for name in COMPARED if name in some}
    if MID in some:
        mid, gap = some.theta(MID), some.theta(GAP)
        out["calibration"] = calibration_harm(mid, gap, -mid, -gap)
    return out


def calibration_harm(mid: Reals, gap: Reals, other_mid: Reals, other_gap: Reals) -> Reals:
    """Returns |new| - |old| from new + old, new - old and the same with signs flipped (or from bounds of them)."""
    out: Reals = np.maximum(np.minimum(mid, gap), np.minimum(other_mid, other_gap))
    return out

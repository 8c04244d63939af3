"""The sequential state of one comparison: what every look adds, and the verdicts that it leads to.

Per metric and direction an e-process (`eprocess`): *worse*, theta > margin, and *not worse*, theta < tolerance. Theta is
harm, candidate against baseline (`paired`, `split`). How e-values are put together, each step valid whatever their dependence:

- windows: a mean over the process that begins at the start and those that begin anew every few hours, so that a break on
  day 3 is found almost as fast as one on day 0 (those that have not begun count 1). *Not worse* has the first window only.
- calibration: harm > m says that for one of two signs both of two statistics exceed m: the mean over signs of the
  smaller one; for *not worse* the smaller over signs of the mean.
- overall worse: the weighted mean over metrics, at alpha. A metric that is not there counts 1.
- overall not worse: the smallest of the metrics that must be certified: each of them is, at alpha (an intersection-union test).

rho is frozen, per window and metric, at its first look with enough clicks and blocks, from the variance there, such that the
boundary is tightest at `optimum` clicks (earlier in windows that begin anew: they are there for what is new); evidence
begins there. A verdict also wants `min_duration`. The first look at which either was found stays on record. *Worse* is final,
*not worse* stands until *worse* is found: a version that was good for two days may break on the third.

Strict mode: the log loss has the evidence that the caller brings (`strict`), and it alone decides *worse*.

One scalar kernel does all of this look by look, so any way to cut the looks into calls gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.eprocess import best_rho, half_width, log_mixture, normal_score
from streameval.compare.paired import GAP, MID
from streameval.compare.ratio import Reals, Statistic
from streameval.compare.reading import METRICS, Verdict

LEAVES = ("log_loss", "auc", "gauc", MID, GAP)  # statistics; the last two make the metric "calibration"
OVERALL = len(METRICS)  # column of paths, behind the metrics

DEFAULT_MARGINS = {"log_loss": 0.001, "auc": 0.001, "gauc": 0.001, "calibration": 0.1}
DEFAULT_TOLERANCES = {"log_loss": 0.005, "auc": 0.005, "gauc": 0.005, "calibration": 0.1}
DEFAULT_WEIGHTS = {"log_loss": 0.5, "auc": 0.25, "gauc": 0.05, "calibration": 0.2}


@dataclass(frozen=True, slots=True)
class Rule:
    """What is asked of a comparison. ValueError if it makes no sense."""

    alpha: float = 0.01
    margins: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_MARGINS))
    tolerances: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_TOLERANCES))
    weights: Mapping[str, float] = field(
        default_factory=lambda: dict(DEFAULT_WEIGHTS)
    )  # of metrics in the overall verdict
    certified: tuple[str, ...] = ("log_loss", "auc")  # what must be not worse for the overall verdict
    windows: int = 28  # processes: one from the start, the others begin every few hours
    first_weight: float = 0.8  # of the one from the start; the others share the rest
    optimum: float = 3000.0  # clicks at which the first window's boundary is tightest
    restart_optimum: float = 1500.0  # of the other windows
    min_duration: int = 3_600_000  # ms
    min_clicks: int = 200
    min_blocks: int = 30
    strict: bool = False  # whether a paired comparison's `worse` rests on `strict` alone

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"alpha must be in (0, 1/2), not {self.alpha}")
        for name in ("margins", "tolerances", "weights"):
            if set(getattr(self, name)) != set(METRICS):
                raise ValueError(f"{name} must name each of {', '.join(METRICS)}")
        if abs(sum(self.weights.values()) - 1.0) > 1e-9 or min(self.weights.values()) < 0:
            raise ValueError("weights must not be negative and add up to 1")
        if not self.certified or not set(self.certified) <= set(METRICS):
            raise ValueError(f"certified must name some of {', '.join(METRICS)}")
        if self.windows < 1 or not 0 < self.first_weight <= 1 or not min(self.optimum, self.restart_optimum) > 0:
            raise ValueError("windows >= 1, 0 < first_weight <= 1, and optima above 0 are needed")

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Rule:
        """From what `dataclasses.asdict` gave, also if it was JSON since."""
        return cls(**{**fields, "certified": tuple(fields["certified"])})

    def window_weights(self) -> Reals:
        """float64[windows], adding up to 1."""
        out = np.full(self.windows, (1.0 - self.first_weight) / max(self.windows - 1, 1))
        out[0] = 1.0 if self.windows == 1 else self.first_weight
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """The looks of one `advance`, oldest first. Columns are METRICS and, last, the overall verdict."""

    log_e_worse: Reals  # [T, 5]
    log_e_not_worse: Reals  # [T, 5]
    verdict: NDArray[np.int8]  # [T, 5], standing after the look: 0 undecided, 1 worse, 2 not_worse


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a metric (or the whole) stands."""

    verdict: Verdict
    worse_at: int | None  # the look at which it was found, ms
    not_worse_at: int | None
    peak_worse: float  # largest log e of looks beyond the floors; exp(-peak) is the anytime p-value
    peak_not_worse: float


class Evidence:
    """The state of one comparison. Not thread-safe."""

    def __init__(self, rule: Rule, start: int) -> None:
        """`start`: event time in ms at which the sums of the first window begin."""
        self.rule = rule
        self.start = start
        count = rule.windows
        self._frozen = np.full((count, len(LEAVES)), np.nan)
        self._peak = np.zeros((OVERALL + 1, 2))
        self._found = np.full((OVERALL + 1, 2), -1, np.int64)
        certified = np.array([m in rule.certified for m in METRICS])
        with np.errstate(divide="ignore"):
            self._constants = (
                np.array([rule.margins[m] for m in METRICS], np.float64),
                np.array([rule.tolerances[m] for m in METRICS], np.float64),
                np.log(np.array([rule.weights[m] for m in METRICS], np.float64)),
                certified,
                np.log(rule.window_weights()),
                best_rho([rule.optimum] + [rule.restart_optimum] * (count - 1), rule.alpha),
            )

    def advance(
        self,
        at: NDArray[np.int64],
        clicks: NDArray[np.int64],
        statistics: Mapping[str, Statistic],
        strict: Reals | None = None,
    ) -> Path:
        """Takes looks, oldest first: `at` int64[T] (ms, not before earlier ones), `clicks` int64[T, J] and each statistic [T, J],
        for the J <= rule.windows windows that have begun (an empty one is undefined, which is no evidence). A metric without
        statistics is not there. `strict` float64[T]: the log e of the strict mode, which then has the log loss and alone decides
        *worse*. ValueError for other shapes.
        """
        shape = clicks.shape
        if len(shape) != 2 or shape[1] > self.rule.windows or at.shape != shape[:1]:
            raise ValueError(f"clicks must be [{at.size}, <= {self.rule.windows}], not {list(shape)}")
        packed = np.full((4, len(LEAVES), *shape), np.nan)
        for i, name in enumerate(LEAVES):
            if name in statistics:
                s = statistics[name]
                if s.theta.shape != shape:
                    raise ValueError(f"{name} must be {list(shape)}, not {list(s.theta.shape)}")
                packed[0, i], packed[1, i], packed[3, i] = s.theta, s.weight, s.df
                packed[2, i] = np.where(s.blocks >= self.rule.min_blocks, s.variance(), np.nan)
        worse, not_worse = np.empty((2, shape[0], OVERALL + 1))
        verdict = np.empty((shape[0], OVERALL + 1), np.int8)
        _advance(
            at.astype(np.int64) - self.start,
            at.astype(np.int64),
            np.ascontiguousarray(clicks, np.int64),
            packed,
            np.full(shape[0], np.nan) if strict is None else strict,
            *self._constants,
            self._frozen,
            self._peak,
            self._found,
            math.log(1.0 / self.rule.alpha),
            self.rule.min_duration,
            self.rule.min_clicks,
            worse,
            not_worse,
            verdict,
        )
        return Path(worse, not_worse, verdict)

    def standing(self, metric: str | None = None) -> Standing:
        """Of one metric, or of the whole."""
        i = OVERALL if metric is None else METRICS.index(metric)
        worse_at, not_worse_at = (int(x) for x in self._found[i])
        peaks = self._peak[i]
        return Standing(
            "worse" if worse_at >= 0 else "not_worse" if not_worse_at >= 0 else "undecided",
            worse_at if worse_at >= 0 else None,
            not_worse_at if not_worse_at >= 0 else None,
            float(peaks[0]),
            float(peaks[1]),
        )

    def rho(self, leaf: str = "log_loss") -> float | None:
        """The mixture's rho of the first window, as frozen; None: not yet. In units of S = theta * W."""
        frozen = float(self._frozen[0, LEAVES.index(leaf)] * self._constants[5][0])
        return None if math.isnan(frozen) else frozen

    def bounds(
        self, statistics: Mapping[str, Statistic], window: int = 0, sides: int = 2
    ) -> dict[str, tuple[Reals, Reals]]:
        """(lower, upper) of harm per metric, each float64[...], from statistics [...] of one window at any looks.

        Per metric, they hold at all looks at once with probability 1 - alpha: both together, or (`sides` 1) each by itself,
        as the tests behind verdicts do. Infinite before rho is frozen.
        """
        leaf: dict[str, tuple[Reals, Reals]] = {}
        for i, name in enumerate(LEAVES):
            if name not in statistics:
                continue
            s = statistics[name]
            alpha = self.rule.alpha / (2 * sides if name in {MID, GAP} else sides)
            rho = self._frozen[window, i] * self._constants[5][window]
            with np.errstate(invalid="ignore", divide="ignore"):
                half = half_width(s.variance() * s.weight**2, rho, alpha, s.df) / s.weight
            half = np.where(np.isfinite(half) & np.isfinite(s.theta), half, np.inf)
            theta = np.where(np.isfinite(s.theta), s.theta, 0.0)
            leaf[name] = (theta - half, theta + half)
        out = {name: leaf[name] for name in METRICS if name in leaf}
        if MID in leaf and GAP in leaf:
            (mid_low, mid_high), (gap_low, gap_high) = leaf[MID], leaf[GAP]
            out["calibration"] = (
                calibration_harm(mid_low, gap_low, -mid_high, -gap_high),
                calibration_harm(mid_high, gap_high, -mid_low, -gap_low),
            )
        return out

    def state(self) -> dict[str, Any]:
        """Everything that looks have left, as JSON; the rule is not in it."""
        return {
            "start": self.start,
            "frozen": [[None if math.isnan(x) else x for x in row] for row in self._frozen.tolist()],
            "peak": self._peak.tolist(),
            "found": self._found.tolist(),
        }

    @classmethod
    def restore(cls, rule: Rule, state: Mapping[str, Any]) -> Evidence:
        """The same state under the same rule. ValueError if it is of another number of windows."""
        out = cls(rule, int(state["start"]))
        frozen = np.array([[math.nan if x is None else x for x in row] for row in state["frozen"]], np.float64)
        if frozen.shape != out._frozen.shape:
            raise ValueError(f"state of {len(frozen)} windows for a rule with {rule.windows}")
        out._frozen[:] = frozen
        out._peak[:] = state["peak"]
        out._found[:] = state["found"]
        return out


def harm(statistics: Mapping[str, Statistic]) -> dict[str, Reals]:
    """Point estimates per metric, float64[...]; NaN where undefined."""
    out = {name: statistics[name].theta for name in METRICS if name in statistics}
    if MID in statistics:
        mid, gap = statistics[MID].theta, statistics[GAP].theta
        out["calibration"] = calibration_harm(mid, gap, -mid, -gap)
    return out


def calibration_harm(mid: Reals, gap: Reals, other_mid: Reals, other_gap: Reals) -> Reals:
    """|new| - |old| from new + old, new - old and the same with signs turned (or bounds of them)."""
    out: Reals = np.maximum(np.minimum(mid, gap), np.minimum(other_mid, other_gap))
    return out


@numba.njit(cache=True)
def _leaf(theta: float, weight: float, v: float, df: float, rho: float) -> float:
    """log e of theta > 0."""
    variance = v * weight * weight
    return log_mixture(normal_score(theta / math.sqrt(v), df) * math.sqrt(variance), variance, rho)


@numba.njit(cache=True)
def _advance(
    elapsed: NDArray[np.int64], at: NDArray[np.int64], clicks: NDArray[np.int64], packed: Reals, strict: Reals,
    margins: Reals, tolerances: Reals, log_weights: Reals, certified: NDArray[np.bool_], log_windows: Reals, rhos: Reals,
    frozen: Reals, peak: Reals, found: NDArray[np.int64], level: float, min_duration: int, min_clicks: int,
    worse: Reals, not_worse: Reals, standing: NDArray[np.int8],
) -> None:  # fmt: skip
    looks, begun = clicks.shape
    metrics = margins.size
    leaf = np.empty(4)
    for t in range(looks):
        for m in range(metrics):
            worse[t, m] = -math.inf
            not_worse[t, m] = 0.0
        for j in range(log_windows.size):
            for m in range(metrics):
                value = 0.0  # e = 1: no window, no statistic, or not enough of it
                if j < begun and clicks[t, j] >= min_clicks:
                    pieces = 2 if m == 3 else 1
                    ready = True
                    for i in range(m, m + pieces):
                        v = packed[2, i, t, j]
                        if not v > 0.0:
                            ready = False
                        elif math.isnan(frozen[j, i]):
                            frozen[j, i] = v * packed[1, i, t, j] ** 2 / clicks[t, j]
                    if ready:
                        for i in range(m, m + pieces):
                            theta, w, v, df = (
                                packed[0, i, t, j],
                                packed[1, i, t, j],
                                packed[2, i, t, j],
                                packed[3, i, t, j],
                            )
                            leaf[2 * (i - m)] = _leaf(theta - margins[m], w, v, df, frozen[j, i] * rhos[j])
                            if pieces == 2:
                                leaf[2 * (i - m) + 1] = _leaf(-theta - margins[m], w, v, df, frozen[j, i] * rhos[j])
                        value = leaf[0]
                        if pieces == 2:
                            value = np.logaddexp(min(leaf[0], leaf[2]), min(leaf[1], leaf[3])) - math.log(2.0)
                        if j == 0:
                            for i in range(m, m + pieces):
                                theta, w, v, df = (
                                    packed[0, i, t, j],
                                    packed[1, i, t, j],
                                    packed[2, i, t, j],
                                    packed[3, i, t, j],
                                )
                                leaf[2 * (i - m)] = _leaf(tolerances[m] - theta, w, v, df, frozen[j, i] * rhos[j])
                                if pieces == 2:
                                    leaf[2 * (i - m) + 1] = _leaf(
                                        tolerances[m] + theta, w, v, df, frozen[j, i] * rhos[j]
                                    )
                            not_worse[t, m] = leaf[0]
                            if pieces == 2:
                                not_worse[t, m] = min(
                                    np.logaddexp(leaf[0], leaf[2]), np.logaddexp(leaf[1], leaf[3])
                                ) - math.log(2.0)
                worse[t, m] = np.logaddexp(worse[t, m], log_windows[j] + value)
        total, least = -math.inf, math.inf
        for m in range(metrics):
            total = np.logaddexp(total, log_weights[m] + worse[t, m])
            if certified[m]:
                least = min(least, not_worse[t, m])
        if not math.isnan(strict[t]):
            worse[t, 0] = total = strict[t]
        worse[t, metrics] = total
        not_worse[t, metrics] = least
        if elapsed[t] >= min_duration and begun > 0 and clicks[t, 0] >= min_clicks:
            for m in range(metrics + 1):
                peak[m, 0] = max(peak[m, 0], worse[t, m])
                peak[m, 1] = max(peak[m, 1], not_worse[t, m])
                if worse[t, m] >= level and found[m, 0] < 0:
                    found[m, 0] = at[t]
                if not_worse[t, m] >= level and found[m, 1] < 0:
                    found[m, 1] = at[t]
        for m in range(metrics + 1):
            standing[t, m] = 1 if found[m, 0] >= 0 else (2 if found[m, 1] >= 0 else 0)

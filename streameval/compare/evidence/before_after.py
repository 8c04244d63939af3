"""One version replaced another on the same stream: weak evidence that can only warn.

Levels since the deploy are compared with the same hours one week earlier. There are two sources of error. Sampling
error is estimated by leaving out blocks of users one by one, each in both periods, because users return (`left_out`;
a block's deviation from levels that contain the block would be too small by its share, which heavy users make large),
with the degrees of freedom of the effective number of blocks (`left_out.degrees_of_freedom`). And
days differ for reasons of their own. That error does not shrink with traffic and is measured on history: over
finished days without a deploy, a placebo day's level over the same clock hours has variance v_day; the difference of
two such means has variance 2 v_day per day elapsed, with a t distribution of days - 1. There is an e-value for each
of the two variances, and the smaller one counts, because with few days v_day may be small by luck. It is valid if
days are exchangeable: holidays and campaigns break it.

Metrics, none of which follows the CTR to first order:

- log loss: the information per click, in nats, that pClick gives beyond its own mean q,

      u = (L - n CE) / Y,   n CE = -Y ln q - (n - Y) ln(1 - q)

  divided by the baseline's entropy per click, H(c) / c: a difference in normalised entropy (He et al. 2014) at one
  base rate and with the level of pClick right. NE itself is unsuitable: with the same ranking, a CTR that
  falls by 40% makes it a percent worse, and three more if pClick does not follow.
- AUC by centred placements (`paired`).
- calibration: harm = |log E/O| now less |log E/O| then, beyond a dead band. As in `paired` it takes two statistics per
  sign ("gap", "mid"), and here a third: the mean pClick must have moved in the same direction. If clicks have moved and
  pClick has not, the change cannot be attributed to the version.

If an online model has scored both periods, `yardstick` compares with it on the same impressions instead of using
levels; a day's mix of traffic moves both and cancels. What the online model learns over the weeks does not. Evidence is
in the information form, S = theta / v and V = 1 / v, with rho = 2 / tau**2 for the smallest effect tau that matters: V
is known in advance except for v, and a burn-in would say nothing about days.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from streameval.compare.evidence import eprocess
from streameval.compare.evidence.ratio import Ints, Reals
from streameval.metrics import left_out
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE

LevelKind = Literal["log_loss", "auc", "calibration", "mean_pclick"]
LEVEL_KINDS: tuple[LevelKind, ...] = ("log_loss", "auc", "calibration", "mean_pclick")
ADVICE = "score a few percent of the traffic with the old version too, in shadow: a paired comparison needs a thousandth of the traffic"
_SAYS_NOTHING = 1.0  # a change in AUC, in log E/O, in log loss relative to the entropy: all of it


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """A metric's level: value [...], what leaving out each block changes it by [..., G], degrees of freedom [...]. Higher
    is worse.
    """

    value: Reals
    changes: Reals
    df: Reals

    def __add__(self, other: Level) -> Level:
        return Level(self.value + other.value, self.changes + other.changes, np.minimum(self.df, other.df))

    def __sub__(self, other: Level) -> Level:
        return self + -other

    def __neg__(self) -> Level:
        return Level(-self.value, -self.changes, self.df)

    def over(self, unit: float) -> Level:
        """Returns the level in another unit."""
        return Level(self.value / unit, self.changes / unit, self.df)

    def variance(self) -> Reals:
        """Returns the sampling variance [...]; NaN where a block leaves nothing to tell a level from."""
        return left_out.variance(self.changes)


def levels(kind: LevelKind, rows: Ints) -> Level:
    """From served rows int64[..., G, 8]: minus the information per click, in nats; minus AUC; log E/O; or log of the
    mean pClick. NaN or infinite without clicks or without non-clicks.
    """
    return _level(_OF_SERVED[kind], rows, cells.N, cells.Y)


def yardstick(kind: Literal["log_loss", "auc"], rows: Ints) -> Level:
    """From rows int64[..., G, 8] of pairs (served, online): how much worse the server is on the same impressions, in
    the units of `levels`.
    """
    return _level(_pair_placed if kind == "auc" else _pair_information, rows, cells.PAIR_N, cells.PAIR_Y)


def _level(metric: Callable[[Ints], Reals], rows: Ints, n: int, y: int) -> Level:
    total = rows.sum(axis=-2)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.asarray(metric(total))
    df = left_out.degrees_of_freedom(rows[..., n], rows[..., y])
    return Level(value, left_out.changes(metric, left_out.rests(rows, total)), df)


def entropy_per_click(impressions: float, clicks: float) -> float:
    """H(c) / c in nats for the CTR c = clicks / impressions, 0 < c < 1."""
    c = clicks / impressions
    return float(-np.log(c) - (1.0 - c) / c * np.log1p(-c))


def _information(n: Ints, y: Ints, loss: Reals, p: Reals) -> Reals:
    q = p / n
    out: Reals = (loss + y * np.log(q) + (n - y) * np.log1p(-q)) / y
    return out


def _served_information(x: Ints) -> Reals:
    return _information(x[..., cells.N], x[..., cells.Y], x[..., cells.L] / SCALE, x[..., cells.P] / SCALE)


def _pair_information(x: Ints) -> Reals:
    n, y, loss = x[..., cells.PAIR_N], x[..., cells.PAIR_Y], x[..., cells.PAIR_L]
    server = _information(n, y, loss / SCALE, x[..., cells.PAIR_P] / SCALE)
    online = _information(n, y, (loss + x[..., cells.D]) / SCALE, x[..., cells.PAIR_P_OTHER] / SCALE)
    return np.subtract(server, online)


def _placed(n: Ints, y: Ints, above: Ints, below: Ints) -> Reals:
    out: Reals = above / SCALE / y + below / SCALE / (n - y)
    return out


def _served_placed(x: Ints) -> Reals:
    return -_placed(x[..., cells.N], x[..., cells.Y], x[..., cells.PHI1], x[..., cells.PHI0])


def _pair_placed(x: Ints) -> Reals:
    return _placed(x[..., cells.PAIR_N], x[..., cells.PAIR_Y], x[..., cells.PAIR_PHI1], x[..., cells.PAIR_PHI0])


def _calibration(x: Ints) -> Reals:
    out: Reals = np.log(x[..., cells.P] / SCALE / x[..., cells.Y])
    return out


def _mean_pclick(x: Ints) -> Reals:
    out: Reals = np.log(x[..., cells.P] / SCALE / x[..., cells.N])
    return out


_OF_SERVED: Mapping[LevelKind, Callable[[Ints], Reals]] = {
    "log_loss": _served_information,
    "auc": _served_placed,
    "calibration": _calibration,
    "mean_pclick": _mean_pclick,
}


@dataclass(frozen=True, slots=True, eq=False)
class Shift:
    """after - before: float64[...] each, and its variance by blocks of users and by days, each with its degrees of
    freedom.
    """

    theta: Reals
    sampling: Reals
    between: Reals
    df_sampling: Reals
    df_between: float

    def __neg__(self) -> Shift:
        return Shift(-self.theta, self.sampling, self.between, self.df_sampling, self.df_between)

    def variance(self) -> Reals:
        """The larger of the two variances."""
        out: Reals = np.maximum(self.sampling, self.between)
        return out

    def _both(self) -> tuple[tuple[Reals, Reals], tuple[Reals, Reals]]:
        with np.errstate(divide="ignore", invalid="ignore"):
            first, second = np.asarray(1.0 / self.sampling), np.asarray(1.0 / self.between)
        return (
            (first, np.broadcast_to(self.df_sampling, first.shape)),
            (second, np.broadcast_to(self.df_between, second.shape)),
        )

    def log_e(self, tau: float, margin: float) -> Reals:
        """Returns log e [...] for theta > margin; `tau` > 0 is the smallest effect that matters, in the metric's unit.
        0 where unknown.
        """
        parts = []
        for information, df in self._both():
            with np.errstate(invalid="ignore"):
                s = np.asarray((self.theta - margin) * information)
            known = np.isfinite(s) & (information > 0)
            part = np.zeros(s.shape)
            part[known] = eprocess.log_e(s[known], information[known], 2.0 / tau**2, df[known])
            parts.append(part)
        out: Reals = np.minimum(*parts)
        return out

    def half_width(self, tau: float, alpha: float) -> Reals:
        """Returns half the width of theta's confidence sequence of level 1 - 2 alpha, valid at all looks at once.
        Infinite where unknown, and where the sequence says nothing: it holds 0, and changes of `_SAYS_NOTHING` too.
        """
        parts = []
        for information, df in self._both():
            part = np.full(information.shape, np.inf)
            known = np.isfinite(information) & (information > 0)
            part[known] = eprocess.half_width(information[known], 2.0 / tau**2, alpha, df[known]) / information[known]
            parts.append(part)
        half: Reals = np.maximum(*parts)
        out: Reals = np.where((half > np.abs(self.theta)) & (half >= _SAYS_NOTHING), np.inf, half)
        return out


_UNKNOWN = np.array(np.nan)
UNDEFINED = Shift(_UNKNOWN, _UNKNOWN, _UNKNOWN, np.array(1.0), 1.0)


def shift(before: Level, after: Level, placebo: Reals, elapsed_days: Reals | float) -> Shift:
    """Returns the shift of a level, with its variances.

    `placebo` float64[days, ...]: levels of the placebo days over the clock hours that each look covers (full days from
    the first on); `elapsed_days` [...]. ValueError with fewer than 2 days.
    """
    days = placebo.shape[0]
    if days < 2:
        raise ValueError("before/after needs at least 2 days of history; 28 are better")
    change = after - before
    between = 2.0 * placebo.var(axis=0, ddof=1) / np.maximum(1.0, elapsed_days)
    return Shift(change.value, change.variance(), between, change.df, days - 1.0)


def log_e_calibration(gap: Shift, mid: Shift, pclick: Shift, tau: float, margin: float) -> Reals:
    """Returns log e [...] for the hypothesis that |log E/O| has grown by more than `margin`, and pClick with it.

    `gap` is the shift of log E/O, `mid` the same with the baseline's sign flipped (a sum), `pclick` that of the log of
    the mean pClick. For either sign all three must exceed the margin, so its evidence is the smallest; returns the mean
    over signs.
    """
    sides = [
        np.min([(s if sign > 0 else -s).log_e(tau, margin) for s in (gap, mid, pclick)], axis=0) for sign in (1, -1)
    ]
    out: Reals = np.logaddexp(sides[0], sides[1]) - np.log(2.0)
    return out

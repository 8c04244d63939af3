"""Preliminary estimates, before labels are mature: under stated assumptions, never verdicts.

- promised_ctr, promised_auc: what the scores themselves imply, if they are calibrated: an impression of pClick p is a
  click with weight p and a non-click with weight 1 - p. A version with a lower value discriminates less, or is only
  less confident.
- corrected_calibration: predicted clicks over clicks, for impressions some of whose clicks are still to come. With
  Ghat(a) the learned share of clicks that come within a of their impression, it is sum p Ghat(age) / clicks so far: the
  maximum likelihood for Poisson clicks at rates p Ghat(age). (Dividing every click by Ghat(its age) estimates the same,
  but lets the very youngest decide; Chapelle 2014, KDD, models the delay likewise.) It is computed only for the version
  that served: selection alone makes any other look under-predicting.
- score_shift: mean log-odds of the candidate minus the baseline's on the same impressions. It needs no label at all,
  and shows that scores changed, not that they got worse.

Delays are learned from the join's histogram. This also holds clicks of impressions that are still pending, whose delays
are too short because of truncation (a delay is seen only if it is below the age). Expectation maximisation adds what is
missing: for every pending click of age a there are (1 - Ghat(a)) / Ghat(a) still to come, distributed over the bins
beyond a according to Ghat; Ghat is what all of them together imply (self-consistency; Turnbull, JRSS B 38(3), 1976).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.compare.reading.reading import EarlyReading

_Reals = NDArray[np.float64]
Bools = NDArray[np.bool_]

ENOUGH_CLICKS = 200  # on mature impressions, needed to know their delays
FEW = 1_000  # impressions; with fewer, no promised values are given
_CLIP = 1e-7  # as the log loss clips p
_ROUNDS = 300


@dataclass(frozen=True, slots=True, eq=False)
class DelayCurve:
    """Ghat: the share of clicks within `edges` (ms, increasing, the last one the attribution window), float64[k] up to
    1.
    """

    edges: _Reals
    shares: _Reals

    def within(self, age: _Reals) -> _Reals:
        """Returns Ghat(age), age in ms; between edges by a monotone curve over log time (Fritsch and Carlson 1980)."""
        x, at = _log_time(self.edges), _log_time(np.clip(age, 0.0, self.edges[-1]))
        x, y = np.concatenate(([0.0], x)), np.concatenate(([0.0], self.shares))
        step, rise = np.diff(x), np.diff(y)
        slope = rise / step
        tangent = np.zeros(x.size)
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = (step[1:] + 2 * step[:-1], step[:-1] + 2 * step[1:])
            mean = (weight[0] + weight[1]) / (weight[0] / slope[:-1] + weight[1] / slope[1:])
        tangent[1:-1] = np.where(slope[:-1] * slope[1:] > 0, mean, 0.0)
        i = np.clip(np.searchsorted(x, at, side="right") - 1, 0, step.size - 1)
        t = (at - x[i]) / step[i]
        out: _Reals = (
            y[i]
            + rise[i] * t * t * (3 - 2 * t)
            + step[i] * (tangent[i] * t * (1 - t) ** 2 - tangent[i + 1] * t * t * (1 - t))
        )
        return np.clip(out, 0.0, 1.0)


def learn_delays(counts: NDArray[np.int64], edges: Sequence[float], window: float, ages: _Reals) -> DelayCurve | None:
    """Returns Ghat from delays of matched clicks: `counts` int64[k] up to `edges` (s), including those of pending
    impressions.

    `ages`: ms, of the pending impressions that have a click. None if there are fewer than `ENOUGH_CLICKS` mature
    clicks.
    """
    limits = np.array(edges, np.float64) * 1000.0
    last = int(np.searchsorted(limits, window))  # the bin that contains the end of the attribution window
    limits = np.append(limits[:last], window)
    seen = counts[:last].astype(np.float64)
    seen = np.append(seen, float(counts[last:].sum()))
    mature = seen.sum() - ages.size
    if mature < ENOUGH_CLICKS:
        return None
    g = seen / seen.sum()
    _, first, many = np.unique(np.round(32.0 * _log_time(ages)), return_index=True, return_counts=True)
    ages = ages[first]  # ages within 3% of each other count as one
    for _ in range(_ROUNDS if ages.size else 0):
        now = DelayCurve(limits, _cumulated(g))
        upto = now.within(np.minimum(ages[:, None], limits[None, :]).ravel()).reshape(ages.size, -1)
        on = upto[:, -1] > 0
        # Ghat's mass of each bin that the age hides
        beyond = np.diff(now.shares[None, :] - upto[on], axis=1, prepend=0.0)
        whole = seen + (beyond / upto[on, -1:] * many[on, None]).sum(axis=0)
        new = whole / whole.sum()
        done = float(np.abs(new - g).max()) < 1e-7
        g = new
        if done:
            break
    return DelayCurve(limits, _cumulated(g))


def promised_ctr(p: _Reals) -> float:
    """Returns the mean pClick of n > 0 scores."""
    return float(p.mean())


def promised_auc(p: _Reals) -> float:
    """Returns the AUC of scores float64[n] if they are calibrated, ties counted 1/2; NaN if they promise a single
    class.
    """
    p = np.sort(p)
    first = np.flatnonzero(np.concatenate(([True], p[1:] != p[:-1])))
    clicks = np.add.reduceat(p, first)
    others = np.add.reduceat(1.0 - p, first)
    below = np.cumsum(others) - others
    pairs = float(clicks.sum()) * float(others.sum())
    return float((clicks * (below + others / 2)).sum()) / pairs if pairs > 0 else math.nan


def corrected_calibration(p: _Reals, arrived: _Reals, clicks: int) -> float:
    """Returns predicted clicks that should have come by now over those that have. `arrived`: Ghat(age), 1 where the
    label is known.
    """
    return float((p * arrived).sum()) / clicks if clicks else math.nan


def score_shift(baseline: _Reals, candidate: _Reals) -> float:
    """Returns the mean log-odds of the candidate minus the baseline's on the same n > 0 impressions."""
    return float((_log_odds(candidate) - _log_odds(baseline)).mean())


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """Pending impressions that one side scored: all of them if it serves, else those that the other one served."""

    p: _Reals
    served: Bools  # whether this side served each
    clicked: Bools
    arrived: _Reals | None  # Ghat(age); None: delays are not known


def early_readings(baseline: Arm, candidate: Arm, paired: bool) -> tuple[EarlyReading, ...]:
    """Returns all readings of this module. `paired`: both arms are the same impressions, in the same order."""
    arms = (baseline, candidate)
    few = [arm.p.size < FEW for arm in arms]
    thin = "too_few_pending_impressions" if any(few) else None
    out = [
        _reading("promised_auc", [None if f else promised_auc(a.p) for a, f in zip(arms, few, strict=True)], thin),
        _reading("promised_ctr", [None if f else promised_ctr(a.p) for a, f in zip(arms, few, strict=True)], thin),
    ]
    corrected, why = zip(*(_corrected(arm) for arm in arms), strict=True)
    out.append(_reading("corrected_calibration", list(corrected), why[1] or why[0]))
    if not paired:
        out.append(EarlyReading("score_shift", None, None, "not_the_same_impressions"))
    else:
        shift = None if thin else score_shift(baseline.p, candidate.p)
        out.append(_reading("score_shift", [None if shift is None else 0.0, shift], thin))
    return tuple(out)


def _corrected(arm: Arm) -> tuple[float | None, str | None]:
    if arm.arrived is None:
        return None, "click_delays_unknown"
    if not arm.served.any():
        return None, "does_not_serve"
    clicks = int(arm.clicked[arm.served].sum())
    if clicks < ENOUGH_CLICKS // 2:
        return None, "too_few_clicks"
    return corrected_calibration(arm.p[arm.served], arm.arrived[arm.served], clicks), None


def _reading(name: str, values: Sequence[float | None], reason: str | None) -> EarlyReading:
    known = [None if v is None or not math.isfinite(v) else v for v in values]
    if reason is None and None in known:
        reason = "undefined"
    return EarlyReading(name, known[0], known[1], reason)


def _cumulated(g: _Reals) -> _Reals:
    out = np.minimum(np.cumsum(g), 1.0)
    out[-1] = 1.0
    return out


def _log_time(ms: _Reals) -> _Reals:
    out: _Reals = np.log1p(ms / 10.0)
    return out


def _log_odds(p: _Reals) -> _Reals:
    p = np.clip(p, _CLIP, 1.0 - _CLIP)
    out: _Reals = np.log(p) - np.log1p(-p)
    return out

"""How many impressions it takes to detect a difference.

The mixture stops when z**2 reaches K, and z**2 grows by (theta - m)**2 / (DEFF v) per impression, so
n50 = K DEFF v / (theta - m)**2; the random walk makes the ninetieth percentile about 2.5 times that. K is the squared
boundary, in standard errors, at which the process stops: it depends on alpha, on where the mixture is tightest, and on
how the level is shared with other processes, so it is found by iterating on n.

For comparison there are lower bounds for any test on these data, with v = DEFF v the variance per impression:

- 2 log(1/alpha) v / (theta - m)**2 on average, for tests that may stop at any look and detect every effect in the end:
  the mean of Wald's test of a known theta, which no test beats (Wald and Wolfowitz 1948, Annals of Mathematical
  Statistics 19:326).
- (z_alpha + z_beta)**2 v / (theta - m)**2 for a single look at a time fixed in advance, with power 1 - beta (Neyman and
  Pearson): fewer for exactly this theta, but such a test says nothing before that time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from streameval.compare.evidence.eprocess import best_rho, half_width
from streameval.compare.evidence.evidence import Rule
from streameval.compare.evidence.overall_level import OPTIMUM

P90 = 2.5  # times n50, from the simulation

# per impression, for two retrained models whose logits have correlation 0.96 (benchmarks/detection); observed variances
# replace them
PAIRED_VARIANCE = {"log_loss": 0.15, "auc": 0.33, "gauc": 0.9}  # stderr**2 * n, clustering included
SPLIT_VARIANCE = {"log_loss": 5.5, "auc": 9.5}  # per impression of both arms at 50:50
CTR = 0.03
DESIGN_EFFECT = 1.5  # included in these variances


@dataclass(frozen=True, slots=True)
class Plan:
    """Impressions until a difference is detected in half of the cases (n50), and in nine of ten (p90)."""

    n50: float
    p90: float


def impressions(
    effect: float,
    variance: float,
    *,
    alpha: float = 0.01,
    margin: float = 0.0,
    deff: float = 1.0,
    ctr: float = CTR,
    optimum: float = 3000.0,
    share: float = 1.0,
    floor: float = 0.0,
) -> Plan:
    """Returns the impressions needed to detect a true harm `effect` beyond `margin`, in the metric's unit (relative log
    loss; AUC).

    `variance`: the metric's variance times impressions (`stderr**2 * n` of any look). `share`: this process's share of
    the level, the weight of its metric times that of its window. `floor`: impressions below which no verdict is given.
    ValueError if the effect is not above the margin: it would never be detected.
    """
    if effect <= margin:
        raise ValueError(f"an effect of {effect} is within the margin of {margin}: it would never be called worse")
    per = deff * variance / (effect - margin) ** 2  # impressions per unit of z**2
    rho = float(best_rho(optimum, alpha))  # in units of one click's variance
    best = per * 10.0
    for _ in range(60):
        v = max(best * ctr, 1e-9)
        best = 0.5 * (best + per * (float(half_width(v, rho, alpha * share)) ** 2 / v))
    n50 = max(best, floor)
    return Plan(n50, max(P90 * best, floor))


@dataclass(frozen=True, slots=True)
class Bounds:
    """The fewest impressions that any test needs."""

    sequential: float  # on average, if the test may stop at any look
    fixed50: float  # in half of the cases, with one look at a time fixed in advance
    fixed90: float  # in nine of ten cases


def bounds(effect: float, variance: float, *, alpha: float, margin: float = 0.0) -> Bounds:
    """Returns the bounds for a true harm `effect` beyond `margin`; `variance`: per impression, clustering included.

    ValueError as in `impressions`.
    """
    if effect <= margin:
        raise ValueError(f"an effect of {effect} is within the margin of {margin}: it would never be called worse")
    per = variance / (effect - margin) ** 2
    z, beyond = -NormalDist().inv_cdf(alpha), NormalDist().inv_cdf(0.9)  # 1 - alpha may be 1
    return Bounds(2.0 * math.log(1.0 / alpha) * per, z * z * per, (z + beyond) ** 2 * per)


@dataclass(frozen=True, slots=True)
class DeployEstimate:
    """What a deploy would need for a verdict, under the default rule."""

    n50: int  # impressions, in half of the cases
    n90: int  # in nine of ten cases
    clicks50: int
    variance: float  # of the estimate, times impressions
    note: str
    bounds: Bounds


def plan(
    metric: str,
    effect: float,
    alpha: float,
    setup: str,
    ctr: float,
    design_effect: float,
    variance: float | None = None,
) -> DeployEstimate:
    """Returns how many impressions it takes until a difference `effect` of "log_loss" (relative), "auc" or "gauc" is
    called worse.

    `variance`: as observed (`stderr**2 * impressions`); None: that of the simulation, scaled to this CTR and design
    effect. ValueError if the effect is never called worse, or the metric is not compared in this setup.
    """
    known = PAIRED_VARIANCE if setup == "paired" else SPLIT_VARIANCE
    if metric not in known:
        raise ValueError(f"{metric} is not compared in the setup {setup}; it can be one of {', '.join(known)}")
    rule = Rule(alpha=alpha)
    per = known[metric] * CTR / ctr * design_effect / DESIGN_EFFECT if variance is None else variance
    margin = rule.margins[metric]
    spent = 1.0 / (alpha * math.exp(rule.log_level()))  # the level is reached this factor sooner
    weight, optimum = rule.weights[metric], rule.optimum
    if metric != "gauc":  # log loss and AUC move together, and so does their combined process
        weight, optimum = rule.weights["log_loss"] + rule.weights["auc"], OPTIMUM
    found = impressions(
        abs(effect),
        per,
        alpha=alpha,
        margin=margin,
        ctr=ctr,
        optimum=optimum,
        share=weight * rule.first_weight * spent,
        floor=rule.min_clicks / ctr,
    )
    note = "At 50:50; a canary of share s needs 0.25 / (s (1 - s)) times that." if setup == "split" else ""
    least = bounds(abs(effect), per, alpha=alpha, margin=margin)
    return DeployEstimate(math.ceil(found.n50), math.ceil(found.p90), math.ceil(found.n50 * ctr), per, note, least)

"""How many impressions it takes to detect a difference.

The mixture stops when z**2 reaches K, and z**2 grows by (theta - m)**2 / (DEFF v) an impression, so n50 = K DEFF v / (theta
- m)**2; the walk makes the ninetieth percentile about 2.5 times that. K is the squared boundary, in standard errors, where
the process is: it depends on alpha, on where the mixture is tight, and on how the level is shared with other processes, so
it is found by iteration on n.

Beside it stand the bounds of what any test could do with these data, v = DEFF v the variance of an impression:

- 2 log(1/alpha) v / (theta - m)**2 on the average, of all tests that may stop at any look and find everything in the end: the mean
  of Wald's test of one known theta, than which none is shorter (Wald and Wolfowitz 1948, Annals of Mathematical Statistics 19:326).
- (z_alpha + z_beta)**2 v / (theta - m)**2 for a single look at a time fixed beforehand, with power 1 - beta (Neyman and Pearson): less
  for just this theta, and blind before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from streameval.compare.evidence.eprocess import best_rho, half_width
from streameval.compare.evidence.evidence import Rule
from streameval.compare.evidence.spent import OPTIMUM

P90 = 2.5  # of n50, from the simulation

# per impression, of two retrained models whose logits correlate 0.96 (benchmarks/detection); observed ones replace them
PAIRED_VARIANCE = {"log_loss": 0.15, "auc": 0.33, "gauc": 0.9}  # stderr**2 * n, clustering included
SPLIT_VARIANCE = {"log_loss": 5.5, "auc": 9.5}  # per impression of both arms at 50:50
CTR = 0.03
DESIGN_EFFECT = 1.5  # in them


@dataclass(frozen=True, slots=True)
class Plan:
    """Impressions until a difference is seen in half of the cases, and in nine of ten."""

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
    """For a true harm `effect` beyond `margin`, in the metric's unit (relative log loss; AUC).

    `variance`: of the metric's estimate times impressions (`stderr**2 * n` of any look). `share`: of the level that this
    process has, its weight as a metric times that of its window. `floor`: impressions below which nothing is said.
    ValueError if the effect is not above the margin: it would never be seen.
    """
    if effect <= margin:
        raise ValueError(f"an effect of {effect} is within the margin of {margin}: it would never be called worse")
    per = deff * variance / (effect - margin) ** 2  # impressions for one unit of z**2
    rho = float(best_rho(optimum, alpha))  # in units of one click's variance
    best = per * 10.0
    for _ in range(60):
        v = max(best * ctr, 1e-9)
        best = 0.5 * (best + per * (float(half_width(v, rho, alpha * share)) ** 2 / v))
    n50 = max(best, floor)
    return Plan(n50, max(P90 * best, floor))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Impressions below which no test gets."""

    sequential: float  # on the average, if it may stop at any look
    fixed50: float  # in half of the cases, with one look at a time fixed beforehand
    fixed90: float  # in nine of ten


def bounds(effect: float, variance: float, *, alpha: float, margin: float = 0.0) -> Bounds:
    """For a true harm `effect` beyond `margin`; `variance`: of an impression, clustering included. ValueError as `impressions`."""
    if effect <= margin:
        raise ValueError(f"an effect of {effect} is within the margin of {margin}: it would never be called worse")
    per = variance / (effect - margin) ** 2
    z, beyond = -NormalDist().inv_cdf(alpha), NormalDist().inv_cdf(0.9)  # 1 - alpha may be 1
    return Bounds(2.0 * math.log(1.0 / alpha) * per, z * z * per, (z + beyond) ** 2 * per)


@dataclass(frozen=True, slots=True)
class DeployEstimate:
    """What a deploy would need, under the default rule."""

    n50: int  # impressions, in half of the cases
    n90: int  # in nine of ten
    clicks50: int
    variance: float  # of the estimate times impressions
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
    """Impressions until a difference `effect` of "log_loss" (relative), "auc" or "gauc" would be called worse.

    `variance`: as observed (`stderr**2 * impressions`); None: that of the simulation, scaled to this CTR and design
    effect. ValueError for what is never called worse, or not compared in this setup.
    """
    known = PAIRED_VARIANCE if setup == "paired" else SPLIT_VARIANCE
    if metric not in known:
        raise ValueError(f"{metric} is not compared in the setup {setup}; it can be one of {', '.join(known)}")
    rule = Rule(alpha=alpha)
    per = known[metric] * CTR / ctr * design_effect / DESIGN_EFFECT if variance is None else variance
    margin = rule.margins[metric]
    spent = 1.0 / (alpha * math.exp(rule.log_level()))  # the level is reached sooner by so much
    weight, optimum = rule.weights[metric], rule.optimum
    if metric != "gauc":  # log loss and AUC move together, and so does what is made of both
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


def split_variance(variance: float, share: float) -> float:
    """A variance at 50:50 (per impression of both arms) when arm B has `share` of the traffic. ValueError outside (0, 1)."""
    if not 0.0 < share < 1.0:
        raise ValueError(f"share must be in (0, 1), not {share}")
    return variance * 0.25 / (share * (1.0 - share))

"""How many impressions until a difference would be seen.

The mixture stops when z**2 reaches K, and z**2 grows by (theta - m)**2 / (DEFF v) an impression, so n50 = K DEFF v / (theta
- m)**2; the walk makes the ninetieth percentile about 2.5 times that. K is the squared boundary, in standard errors, where
the process is: it depends on alpha, on where the mixture is tight, and on how the level is shared with other processes, so
it is found by iteration on n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from streameval.compare.eprocess import best_rho, half_width
from streameval.compare.evidence import Rule

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
        raise ValueError(f"an effect of {effect} is within the margin of {margin}: it will not be called worse")
    per = deff * variance / (effect - margin) ** 2  # impressions for one unit of z**2
    rho = float(best_rho(optimum, alpha))  # in units of one click's variance
    best = per * 10.0
    for _ in range(60):
        v = max(best * ctr, 1e-9)
        best = 0.5 * (best + per * (float(half_width(v, rho, alpha * share)) ** 2 / v))
    n50 = max(best, floor)
    return Plan(n50, max(P90 * best, floor))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a deploy would need, under the default rule."""

    n50: int  # impressions, in half of the cases
    n90: int  # in nine of ten
    clicks50: int
    variance: float  # of the estimate times impressions
    note: str


def plan(
    metric: str,
    effect: float,
    alpha: float,
    setup: str,
    ctr: float,
    design_effect: float,
    variance: float | None = None,
) -> Estimate:
    """Impressions until a difference `effect` of "log_loss" (relative), "auc" or "gauc" would be called worse.

    `variance`: as observed (`stderr**2 * impressions`); None: that of the simulation, scaled to this CTR and design
    effect. ValueError for what is never called worse, or not compared in this setup.
    """
    known = PAIRED_VARIANCE if setup == "paired" else SPLIT_VARIANCE
    if metric not in known:
        raise ValueError(f"{metric} is not compared in the setup {setup}; it can be one of {', '.join(known)}")
    rule = Rule(alpha=alpha)
    per = known[metric] * CTR / ctr * design_effect / DESIGN_EFFECT if variance is None else variance
    share = rule.weights[metric] * rule.first_weight
    found = impressions(
        abs(effect), per, alpha=alpha, margin=rule.margins[metric], ctr=ctr, optimum=rule.optimum, share=share,
        floor=rule.min_clicks / ctr,
    )  # fmt: skip
    note = "At 50:50; a canary of share s needs 0.25 / (s (1 - s)) times that." if setup == "split" else ""
    return Estimate(math.ceil(found.n50), math.ceil(found.p90), math.ceil(found.n50 * ctr), per, note)


def split_variance(variance: float, share: float) -> float:
    """A variance at 50:50 (per impression of both arms) when arm B has `share` of the traffic. ValueError outside (0, 1)."""
    if not 0.0 < share < 1.0:
        raise ValueError(f"share must be in (0, 1), not {share}")
    return variance * 0.25 / (share * (1.0 - share))

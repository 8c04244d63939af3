"""Whether the difference of two arms comes from their traffic or from how they treat it; and the Simpson guard.

Kitagawa (JASA 50(272), 1955): with shares s and rates r of the strata of a dimension, in baseline a and candidate b,

    R_b - R_a = sum (s_b - s_a) (r_a + r_b) / 2  +  sum (s_a + s_b) / 2 (r_b - r_a)
                         mix                                  within

Rates are clicks or log loss per impression; calibration is predicted clicks per click, with shares of the clicks. A
stratum missing in one arm has nothing to compare and counts as mix. "hour" is a dimension too, because ramping up over
a day is the most common change of mix. Variances are those of independent impressions times the design effect of the
arms, whose users are known in blocks. The guard reports a paradox when the aggregate and the strata disagree in sign,
each beyond its error, by intervals that are valid at all looks (`eprocess`). A paired comparison has its own guard
(`uniform_exposure`).
"""

from __future__ import annotations

import math

import numpy as np

from streameval.compare.evidence.eprocess import best_rho, half_width
from streameval.compare.evidence.ratio import Ints, Reals, ratio
from streameval.compare.explain.findings import SplitParts, Terms, of_dimension
from streameval.compare.ledger.sums import SERVED_L, SERVED_L_SQ, SERVED_N, SERVED_P, SERVED_Y
from streameval.compare.reading.reading import PCLICK, Mix
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE

_HOUR = "hour"
MIXED = ("ctr", "log_loss", "calibration")
_WORDS = {"ctr": "CTR", "log_loss": "log loss", "calibration": "predicted clicks per click"}
_OPTIMUM = 2_000.0  # clicks at which the guard's intervals are tightest


def split_mixes(parts: SplitParts, blocks: Ints, terms: Terms, candidate: str) -> tuple[Mix, ...]:
    """Returns a `Mix` per dimension and metric. `blocks`: int64[2, G, 8], what the arms served (see
    `sketches.blocks`).
    """
    whole = of_dimension(parts.names, PCLICK)
    hours = parts.sums[:, :, whole].sum(axis=2)  # [2, S, 6]
    both = (hours[..., SERVED_N] > 0).all(axis=0)
    if not both.any():
        return ()
    tables = {_HOUR: hours[:, both]}
    for dimension in dict(parts.names):
        if dimension != PCLICK:  # buckets of the server's own score are not the same strata in both arms
            tables[dimension] = parts.sums[:, both][:, :, of_dimension(parts.names, dimension)].sum(axis=1)
    effects, df = _design_effects(blocks, hours[:, both].sum(axis=1))
    tables = {name: table for name, table in tables.items() if (table[..., SERVED_N].sum(axis=0) > 0).sum() > 1}
    out = []
    for dimension, table in tables.items():
        for metric in MIXED:
            mix = _kitagawa(table, metric, effects[metric])
            if mix is not None:
                total, between, within, v_total, v_within = mix
                clicks = float(table[..., SERVED_Y].sum(axis=1).min())
                alpha = terms.alpha / (len(MIXED) * len(tables))
                simpson = disagree(total, v_total, within, v_within, clicks, df, alpha)
                text = None
                if simpson:
                    what = _WORDS[metric]
                    text = (
                        f"the {what} of {candidate} is {by_how_much(total)} over all its traffic, but {by_how_much(within)} on the same "
                        f"mix of {dimension}: the arms got different traffic, so trust the second"
                    )
                out.append(Mix(dimension, metric, total, between, within, math.sqrt(v_within), simpson, text))
    return tuple(out)


# -- inside ------------------------------------------------------------------------------------------------------


def _columns(table: Ints, metric: str) -> tuple[Reals, Reals, Reals]:
    """Returns (weights, sums, sums of squared deviations of an impression) for strata int64[..., 6]."""
    n, y, p = (table[..., c].astype(np.float64) for c in (SERVED_N, SERVED_Y, SERVED_P))
    p /= SCALE
    loss, loss_sq = table[..., SERVED_L] / SCALE, table[..., SERVED_L_SQ] / SCALE
    with np.errstate(divide="ignore", invalid="ignore"):
        if metric == "ctr":
            return n, y, y - y * y / n
        if metric == "log_loss":
            return (
                n,
                loss,
                np.maximum(loss_sq - loss * loss / n, 0.0),
            )  # for equal losses, rounding may leave less than 0
        # sum (p - r y)**2 <= r**2 Y if pClick and clicks roughly agree: the clicks' own noise
        return y, p, (p / y) ** 2 * y


def _kitagawa(table: Ints, metric: str, effect: float) -> tuple[float, float, float, float, float] | None:
    """Returns (total, mix, within, variance of the total, of within) for strata int64[2, K, 6]; None if undefined."""
    weight, sums, squares = _columns(table, metric)  # [2, K]
    have = (weight > 0).all(axis=0)
    every = weight.sum(axis=1)
    if not have.any() or not (every > 0).all():
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = sums / weight
        rate = np.where(weight > 0, rate, rate[::-1])  # missing in one arm: the same rate in both, so all is mix
        rate = np.where(np.isfinite(rate), rate, 0.0)
        v = np.where(weight > 0, squares / weight**2, 0.0)
    share = weight / every[:, None]
    overall = (share * rate).sum(axis=1)
    # a stratum can have sums but no weight in an arm only for calibration (no clicks): such sums are left out
    total = float(overall[1] - overall[0])
    mean_share = share.mean(axis=0)
    within = float((mean_share * (rate[1] - rate[0]))[have].sum())
    v_within = float((mean_share**2 * v)[:, have].sum()) * effect
    _, _, whole = _columns(table.sum(axis=1), metric)
    v_total = float((whole / every**2).sum()) * effect
    return total, total - within, within, v_total, v_within


def _design_effects(blocks: Ints, whole: Ints) -> tuple[dict[str, float], float]:
    """Returns (variance by user over variance by impression, by metric, the larger arm's and at least 1; degrees of
    freedom).
    """
    n, y = blocks[..., cells.N].astype(np.float64), blocks[..., cells.Y].astype(np.float64)
    columns = {
        "ctr": (y, n),
        "log_loss": (blocks[..., cells.L] / SCALE, n),
        "calibration": (blocks[..., cells.P] / SCALE, y),
    }
    effects = {}
    df = math.inf
    for metric, (a, w) in columns.items():
        stat = ratio(a, w)
        weight, _, squares = _columns(whole, metric)
        with np.errstate(divide="ignore", invalid="ignore"):
            effect = stat.v_clu / (squares / weight**2)
        known = effect[np.isfinite(effect)]
        effects[metric] = float(max(1.0, known.max())) if known.size else 1.0
        df = min(df, float(stat.df.min()))
    return effects, df


def disagree(
    total: float, v_total: float, within: float, v_within: float, clicks: float, df: float, alpha: float
) -> bool:
    """Whether both have opposite signs with certainty: by two-sided confidence sequences on the information scale 1 /
    v.
    """
    if not (v_total > 0 and v_within > 0 and clicks > 0 and df > 0) or total * within >= 0:
        return False
    for theta, v in ((total, v_total), (within, v_within)):
        rho = best_rho(_OPTIMUM / (v * clicks), alpha / 2)
        if abs(theta) <= float(half_width(1.0 / v, rho, alpha / 2, df)) * v:
            return False
    return True


def by_how_much(difference: float) -> str:
    return f"{abs(difference):.3g} {'higher' if difference > 0 else 'lower'}"

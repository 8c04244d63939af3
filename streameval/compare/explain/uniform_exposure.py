"""The Simpson guard of a paired comparison: what was shown, against what would be if everything were shown equally
often.

Both versions score the same impressions, so their mixes cannot differ; but the serving model chose what was shown, and
what it shows often can dominate the aggregate (Jadidinejad, Macdonald and Ounis, The Simpson's Paradox in the Offline
Evaluation of Recommendation Systems, ACM TOIS 40(1), 2021). The second reading weights every impression by its inverse
propensity. Weights by share would give back the aggregate, and a plain mean over strata gives one of 9 impressions as
much as one of 26,000: neither estimates the open loop. For AUC the clicks are weighted, each placed among all
non-clicks; for NDCG too, each in its place in the full list (`ledger.exposed_lists`).

Heavy weights invalidate the large-sample intervals that the guard relies on: for each metric it reports only a reason
until there are 200 effective clicks or lists and no weight can be above a twentieth of their sum, and unless nearly all
have a propensity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from streameval.compare.evidence.paired import COVERED
from streameval.compare.evidence.ratio import Ints, Statistic, ratio
from streameval.compare.explain.findings import Terms
from streameval.compare.explain.mixes import by_how_much, disagree
from streameval.compare.ledger import exposed_lists as xl
from streameval.compare.ledger import exposure as x
from streameval.compare.reading.reading import Mix, UnknownMix
from streameval.compare.reading.words import name_of
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BLOCKS, SCALE, BlockSums

PROPENSITY = "propensity"
ENOUGH_EFFECTIVE = 200.0
LARGEST_SHARE = 0.05  # of the sum of weights, that a single weight may have


class _Both(NamedTuple):
    """Candidate minus baseline of a metric: over what was shown, and under uniform exposure."""

    total: float
    v_total: float
    df: float
    within: Statistic
    clicks: float


def paired_mixes(
    sums: BlockSums,
    found: Mapping[str, Statistic],
    exposed: Ints,
    terms: Terms,
    candidate: str,
    lists: xl.GuardedLists | None = None,
) -> tuple[tuple[Mix, ...], tuple[UnknownMix, ...]]:
    """Returns a `Mix` of log loss, of AUC and of NDCG, and for those that cannot be computed the reason; nothing if
    nothing is weighted.

    `sums`: of the pair, blocks int64[G, 8]; `found`: its statistics, scalars, by `paired.statistics`; `exposed`:
    int64[EXPOSED].
    """
    if lists is None and not exposed[x.X_N]:
        return (), ()
    n, clicks = (int(sums.blocks[:, c].sum()) for c in (cells.PAIR_N, cells.PAIR_Y))
    few = "too_few_clicks" if clicks < terms.min_clicks else None
    missing = few or _lack(exposed, n, terms)
    read: dict[str, _Both | str] = {"log_loss": missing or "", "auc": missing or ""}
    if missing is None:
        read |= _of_impressions(sums, found, uniform_exposure(exposed))
    if lists is None:
        read["ndcg"] = "not_configured"
    else:
        lack = few or (_lack_of_lists(lists.sums, terms) if exposed[x.X_N] else "no_propensities")
        read[lists.metric] = lack or _of_lists(lists.sums)
    known = {metric: one for metric, one in read.items() if isinstance(one, _Both)}
    mixes = tuple(_mix(metric, one, terms.alpha / len(known), candidate) for metric, one in known.items())
    unknown = (UnknownMix(PROPENSITY, metric, one) for metric, one in read.items() if isinstance(one, str))
    return mixes, tuple(unknown)


def uniform_exposure(exposed: Ints) -> dict[str, Statistic]:
    """Returns candidate minus baseline by metric, weighted by inverse propensity, from int64[EXPOSED]: log loss in
    nats, AUC.
    """
    by_block = exposed[: x.X_N].reshape(BLOCKS, x.EXPOSED_CELLS)
    out = {}
    of_log_loss = ("log_loss", x.XW, x.XWD, x.X_WW, x.X_WWD, x.X_WWDD)
    of_auc = ("auc", x.XW1, x.XWPHI, x.X_WW1, x.X_WWPHI, x.X_WWPHI2)
    for metric, weight, term, ww, wwt, wwtt in (of_log_loss, of_auc):
        out[metric] = ratio(
            by_block[:, term] / x.TERM_UNITS,
            by_block[:, weight] / x.WEIGHT_SCALE,
            float(exposed[wwtt]) / x.SQUARED_TERM_UNITS,
            float(exposed[wwt]) / x.SQUARED_TERM_UNITS,
            float(exposed[ww]) / x.SQUARE_UNITS,
        )
    return out


def uniform_exposure_of_lists(sums: Ints) -> tuple[Statistic, Statistic]:
    """Returns candidate minus baseline in NDCG, as shown and weighted by inverse propensity, from
    int64[EXPOSED_LISTS].
    """
    by_block = _blocks_of_lists(sums)
    n = by_block[:, xl.XL_N].astype(np.float64)
    d = by_block[:, xl.XL_D] / SCALE
    shown = ratio(d, n, float(sums[xl.XL_DD]) / SCALE, float(d.sum()), float(n.sum()))
    alike = ratio(
        by_block[:, xl.XL_T] / xl.LIST_UNITS,
        by_block[:, xl.XL_W] / xl.LIST_UNITS,
        *(float(sums[cell]) / xl.LIST_SQUARES for cell in (xl.XL_TT, xl.XL_WT, xl.XL_WW)),
    )
    return shown, alike


# -- inside ------------------------------------------------------------------------------------------------------


def _of_impressions(
    sums: BlockSums, found: Mapping[str, Statistic], within: Mapping[str, Statistic]
) -> dict[str, _Both | str]:
    n, clicks, d = (int(sums.blocks[:, c].sum()) for c in (cells.PAIR_N, cells.PAIR_Y, cells.D))
    loss = int(sums.blocks[:, cells.PAIR_L].sum()) / SCALE / n  # of the baseline: its statistic is relative to that
    totals = {
        "log_loss": (d / SCALE / n, float(found["log_loss"].variance()) * loss**2),
        "auc": (-float(found["auc"].theta), float(found["auc"].variance())),
    }
    out: dict[str, _Both | str] = {}
    for metric, (total, v_total) in totals.items():
        known = math.isfinite(total) and math.isfinite(float(within[metric].theta))
        df = float(found[metric].df)
        out[metric] = _Both(total, v_total, df, within[metric], clicks) if known else "too_few_clicks"
    return out


def _of_lists(sums: Ints) -> _Both:
    shown, alike = uniform_exposure_of_lists(sums)
    lists = int(_blocks_of_lists(sums)[:, xl.XL_N].sum())
    return _Both(float(shown.theta), float(shown.variance()), float(shown.df), alike, lists)


def _mix(metric: str, both: _Both, alpha: float, candidate: str) -> Mix:
    total, v_total, df, within, clicks = both
    theta, v, df = float(within.theta), float(within.variance()), min(df, float(within.df))
    simpson = disagree(total, v_total, theta, v, clicks, df, alpha)
    text = None
    if simpson:
        text = (
            f"the {name_of(metric)} of {candidate} is {by_how_much(total)} over what was shown, but {by_how_much(theta)} "
            "under uniform exposure, as if every item had been shown equally often: the first is dominated by what the serving model shows often"
        )
    return Mix(PROPENSITY, metric, total, total - theta, theta, math.sqrt(v), simpson, text)


def _lack(exposed: Ints, impressions: int, terms: Terms) -> str | None:
    """Returns why the weighted means of impressions and clicks rest on too little, or on single weights; None if they
    do not.
    """
    by_block = exposed[: x.X_N].reshape(BLOCKS, x.EXPOSED_CELLS)
    if not exposed[x.X_N]:
        return "no_propensities"
    if exposed[x.X_N] < COVERED * impressions:
        return "too_few_propensities"
    if (by_block[:, x.XW] > 0).sum() < terms.min_blocks:
        return "too_few_users"
    for weight, squares, octaves in ((x.XW, x.X_WW, x.X_OCTAVES), (x.XW1, x.X_WW1, x.X_OCTAVES1)):
        total, square = by_block[:, weight].sum() / x.WEIGHT_SCALE, float(exposed[squares]) / x.SQUARE_UNITS
        if not _is_spread(total, square, exposed[octaves : octaves + x.X_OCTAVES1 - x.X_OCTAVES]):
            return "too_few_effective_samples"
    return None


def _lack_of_lists(sums: Ints, terms: Terms) -> str | None:
    """Returns the same for lists."""
    by_block = _blocks_of_lists(sums)
    lists, known = int(by_block[:, xl.XL_N].sum()), int(sums[xl.XL_KNOWN])
    if not lists:
        return "no_requests"
    if known < COVERED * lists:
        return "too_few_propensities"
    if (by_block[:, xl.XL_W] > 0).sum() < max(terms.min_blocks, 2):
        return "too_few_users"
    weight, square = by_block[:, xl.XL_W].sum() / xl.LIST_UNITS, float(sums[xl.XL_WW]) / xl.LIST_SQUARES
    return None if _is_spread(weight, square, sums[xl.XL_OCTAVES :]) else "too_few_effective_samples"


def _is_spread(total: float, square: float, octaves: Ints) -> bool:
    """Whether a sum has enough effective weights, and none that dominates; `square`: sum of their squares."""
    used = octaves.nonzero()[0]
    if not used.size or total * total < ENOUGH_EFFECTIVE * square:
        return False
    return 2.0 ** (int(used[-1]) + 1) <= LARGEST_SHARE * total


def _blocks_of_lists(sums: Ints) -> Ints:
    return sums[: BLOCKS * xl.XL_CELLS].reshape(BLOCKS, xl.XL_CELLS)

"""The breakdown: the parts of the traffic that carry a difference of log loss, and which of them are significantly
worse.

A part is a value of a slice dimension, or a bucket of the serving pClick. Each has its own null hypothesis, "not worse
by more than the margin here", with the e-process of the whole comparison (`eprocess`): the same rho, frozen from the
whole comparison's variance per click, so that nothing is tuned on the part. All parts go into one e-BH (Wang and
Ramdas, JRSS B 84(3), 2022) at the comparison's alpha: whatever their dependence, on average at most a share alpha of
those called significant at a look is wrong. The e-values are current ones; a running maximum would not be an e-value.

- paired: S = sum d - m l N over the part's impressions, d the candidate's log loss less the baseline's, m the margin, l
  the baseline's mean log loss overall. V from the part's own blocks of users (at least that of independent
  impressions).
- split: NE_new / NE_old - 1 of the part, by hour as for the whole (`split`), V as for independent impressions times the
  design effect of the whole: parts of served traffic have no blocks.

A part that is all of the traffic says nothing and is left out. Users are listed too, but never significant on their
own, because they were selected by their contribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streameval.compare.evidence.eprocess import e_bh, mean_log_e
from streameval.compare.evidence.ratio import Ints, Reals, ratio
from streameval.compare.ledger.sums import SERVED_L, SERVED_L_SQ, SERVED_L_Y, SERVED_N, SERVED_P, SERVED_Y
from streameval.compare.reading.reading import PCLICK, USER, Finding
from streameval.sketches.blocks import SCALE

_Name = tuple[str, str]  # dimension, value

MOST_FINDINGS = 50
MOST_USER_FINDINGS = 10


@dataclass(frozen=True, slots=True)
class Terms:
    """The parameters of significance, from the comparison as a whole."""

    alpha: float
    margin: float  # relative, of log loss
    min_clicks: int
    min_blocks: int
    rhos: Reals | None  # float64[k], from `Evidence.rho`; evidence is the mean over them; None: no evidence yet


@dataclass(frozen=True, slots=True, eq=False)
class PairedParts:
    """K parts of a pair's impressions, oriented as candidate minus baseline; the values of `pclick` together make up
    all traffic.
    """

    names: Sequence[_Name]
    n: Ints  # [K, G]
    d: Ints  # [K, G] fixed point, nats
    clicks: Ints  # [K]
    d_sq: Ints  # [K] fixed point


@dataclass(frozen=True, slots=True, eq=False)
class SplitParts:
    """K parts of what two arms served (0: the baseline) in S hours: int64[2, S, K, 6]; the values of `pclick` make up
    all traffic.
    """

    names: Sequence[_Name]
    sums: Ints


def of_dimension(names: Sequence[_Name], dimension: str) -> NDArray[np.int64]:
    """Returns the indexes of a dimension's values."""
    return np.array([k for k, name in enumerate(names) if name[0] == dimension], np.int64)


# -- paired ------------------------------------------------------------------------------------------------------


def paired_findings(parts: PairedParts, terms: Terms, baseline_loss: float) -> tuple[Finding, ...]:
    """Returns up to `MOST_FINDINGS` parts, largest contribution first. `baseline_loss`: nats per impression,
    overall.
    """
    whole = of_dimension(parts.names, PCLICK)
    impressions = int(parts.n[whole].sum())
    total = float(parts.d[whole].sum()) / SCALE
    n, d = parts.n.astype(np.float64), parts.d / SCALE
    several = _several(parts.names, parts.n.sum(axis=1), impressions)
    if not several.size:
        return ()
    stat = ratio(d, n, parts.d_sq / SCALE, d.sum(axis=1), n.sum(axis=1))
    evidence = mean_log_e(
        stat.theta - terms.margin * baseline_loss,
        stat.weight,
        stat.variance(),
        stat.df,
        (parts.clicks >= terms.min_clicks) & (stat.blocks >= terms.min_blocks),
        terms.rhos,
    )
    sums = d.sum(axis=1)
    return _ranked(
        names=parts.names,
        some=several,
        n=parts.n.sum(axis=1),
        clicks=parts.clicks,
        difference=stat.theta,
        carried=sums,
        total=np.full(sums.size, total),
        evidence=evidence,
        alpha=terms.alpha,
    )


# -- split -------------------------------------------------------------------------------------------------------


def split_findings(parts: SplitParts, terms: Terms, v_clu: float, df: float) -> tuple[Finding, ...]:
    """Returns the same for two arms. `v_clu`, `df`: variance by user of the overall NE_new / NE_old - 1, and its
    degrees of freedom.
    """
    whole = of_dimension(parts.names, PCLICK)
    everything = parts.sums[:, :, whole].sum(axis=2, keepdims=True)
    both = (everything[..., SERVED_N] > 0).all(axis=0)  # [S, 1] hours in which both served
    sums = np.where(both[None, ..., None], parts.sums, 0)
    several = _several(
        parts.names, sums[..., SERVED_N].sum(axis=(0, 1)), int(everything[:, both[:, 0], :, SERVED_N].sum())
    )
    if not several.size:
        return ()
    grown, weight, v_iid, level = _relative(sums)
    _, _, whole_iid, _ = _relative(np.where(both[None, ..., None], everything, 0))
    effect = v_clu / whole_iid[0] if whole_iid[0] > 0 and v_clu > 0 else math.nan
    fewest = sums[..., SERVED_Y].sum(axis=1).min(axis=0)
    evidence = mean_log_e(
        grown - terms.margin,
        weight,
        v_iid * max(effect, 1.0),
        np.full(grown.size, df),
        (fewest >= terms.min_clicks) & (not math.isnan(effect)),
        terms.rhos,
    )
    difference = grown * level
    carried = np.nan_to_num(difference) * sums[1, ..., SERVED_N].sum(axis=0)
    totals = np.zeros(grown.size)
    for dimension in dict(parts.names):
        at = of_dimension(parts.names, dimension)
        totals[at] = carried[at].sum()
    return _ranked(
        names=parts.names,
        some=several,
        n=sums[..., SERVED_N].sum(axis=(0, 1)),
        clicks=sums[..., SERVED_Y].sum(axis=(0, 1)),
        difference=difference,
        carried=carried,
        total=totals,
        evidence=evidence,
        alpha=terms.alpha,
    )


def _relative(sums: Ints) -> tuple[Reals, Reals, Reals, Reals]:
    """From parts int64[2, S, K, 6]: NE_new / NE_old - 1, its weight, its variance if impressions were independent, and
    the baseline's log loss in nats; float64[K] each, NaN where undefined.

    As `split.statistics`, but with the variance of an impression pooled over hours, because a part may have few in
    each.
    """
    x = sums.astype(np.float64)
    x[..., SERVED_P:] /= SCALE
    n = x[..., SERVED_N]
    with np.errstate(divide="ignore", invalid="ignore"):
        om = np.where((n > 0).all(axis=0), n[0] * n[1] / (n[0] + n[1]), 0.0)  # [S, K]
        mean = np.where(n[..., None] > 0, x / n[..., None], 0.0)
        total = om.sum(axis=0)  # [K]
        m_l = (om * mean[..., SERVED_L]).sum(axis=1)  # [2, K]
        c = (om * mean[..., SERVED_Y]).sum(axis=1) / total
        entropy = -c * np.log(c) - (1.0 - c) * np.log1p(-c)
        slope = np.log((1.0 - c) / c) / entropy
        ne = m_l / total / entropy
        grown = ne[1] / ne[0]

        def spread(a: int, b: Reals, about: Reals) -> Reals:
            """Returns the pooled (co)variance of an impression within hours, [2, K]."""
            within = (x[..., a] - about * b).sum(axis=1)
            out: Reals = np.maximum(within, 0.0) / np.maximum(n - 1.0, 0.0).sum(axis=1)
            return out

        var_l = spread(SERVED_L_SQ, x[..., SERVED_L], mean[..., SERVED_L])
        var_y = spread(SERVED_Y, x[..., SERVED_Y], mean[..., SERVED_Y])
        cov = spread(SERVED_L_Y, x[..., SERVED_Y], mean[..., SERVED_L])
        z = var_l / m_l**2 + slope**2 * var_y / total**2 - 2.0 * slope * cov / (m_l * total)
        used = np.where(n > 0, om**2 / n, 0.0).sum(axis=1)  # [2, K]: (om / n)**2 n
        v = (np.maximum(z, 0.0) * used).sum(axis=0) * grown**2
        return grown - 1.0, total, v, m_l[0] / total


# -- users -------------------------------------------------------------------------------------------------------


class UserSums(Protocol):
    """Every known user of one series, by increasing hash; a user may occur once per partition."""

    @property
    def user(self) -> NDArray[np.uint64]: ...

    @property
    def impressions(self) -> Ints: ...

    @property
    def clicks(self) -> Ints: ...

    @property
    def log_loss_nats(self) -> Reals: ...


def user_findings(
    users: tuple[NDArray[np.uint64], NDArray[np.uint64]],
    impressions: tuple[Ints, Ints],
    clicks: Ints,
    loss: tuple[Reals, Reals],
) -> tuple[Finding, ...]:
    """Returns the users whose log loss has grown most, from (baseline, candidate); users by increasing hash, `clicks`
    the candidate's. A user may occur once per partition.

    Empty unless nearly all of the candidate's impressions belong to users with the same impressions in both. `value` is
    the hash in the format of the users' lists.
    """
    first = [np.flatnonzero(np.concatenate(([True], u[1:] != u[:-1]))) if u.size else u.astype(np.int64) for u in users]
    if not all(f.size for f in first):
        return ()
    users = users[0][first[0]], users[1][first[1]]
    impressions = np.add.reduceat(impressions[0], first[0]), np.add.reduceat(impressions[1], first[1])
    clicks = np.add.reduceat(clicks, first[1])
    loss = np.add.reduceat(loss[0], first[0]), np.add.reduceat(loss[1], first[1])
    _, a, b = np.intersect1d(users[0], users[1], assume_unique=True, return_indices=True)
    same = impressions[0][a] == impressions[1][b]
    a, b = a[same], b[same]
    if not b.size or impressions[1][b].sum() < 0.99 * impressions[1].sum():
        return ()
    d = loss[1][b] - loss[0][a]
    total = float(d.sum())
    some = np.argsort(-d, kind="stable")[:MOST_USER_FINDINGS]
    return tuple(
        Finding(
            USER,
            f"{int(users[1][b[i]]):016x}",
            int(impressions[1][b[i]]),
            int(clicks[b[i]]),
            float(d[i]) / int(impressions[1][b[i]]),
            float(d[i]) / total if total else None,
            0.0,
            False,
        )
        for i in some.tolist()
        if d[i] > 0
    )


# -- inside ------------------------------------------------------------------------------------------------------


def _several(names: Sequence[_Name], n: Ints, whole: int) -> NDArray[np.int64]:
    """Returns the parts that are neither all of the traffic nor empty."""
    return np.flatnonzero((n > 0) & (n < whole))


def _ranked(
    names: Sequence[_Name],
    some: NDArray[np.int64],
    n: Ints,
    clicks: Ints,
    difference: Reals,
    carried: Reals,
    total: Reals,
    evidence: Reals,
    alpha: float,
) -> tuple[Finding, ...]:
    significant = np.zeros(n.size, np.bool_)
    significant[some] = e_bh(evidence[some], alpha)
    kept = sorted(some.tolist(), key=lambda k: (not significant[k], -abs(carried[k]), names[k]))[:MOST_FINDINGS]
    out = []
    for k in sorted(kept, key=lambda k: (-abs(carried[k]), names[k])):
        known = math.isfinite(difference[k])
        out.append(
            Finding(
                names[k][0],
                names[k][1],
                int(n[k]),
                int(clicks[k]),
                float(difference[k]) if known else None,
                float(carried[k] / total[k]) if known and total[k] else None,
                float(evidence[k]),
                bool(significant[k]),
            )
        )
    return tuple(out)

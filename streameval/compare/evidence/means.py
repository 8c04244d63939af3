"""Two arms' ratios sum a / sum w (clicks per impression, value per request), hour by hour, as one relative difference.

Hours are weighted as in `split`: om_h = n_A n_B / (n_A + n_B) with n the arm's sum of w, so a ramp-up over a daily
cycle does not look like a difference. For an arm M = sum_h om_h a_h / n_h, its blocks of users move it by dev_g = sum_h
om_h (a_g - mean w_g) / n_h, and

    r = M_new / M_old,     dev of r = r (dev_new / M_new - dev_old / M_old)

The arms' users are disjoint, so v = v_new + v_old with Welch's degrees of freedom; their items are the same, so blocks
of items move both at once. Each block is left out once (`ratio`): dev_g over the share of the arm that it leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.compare.evidence.paired import COVERED
from streameval.compare.evidence.ratio import Reals, Statistic, leverage, where_clustered


@dataclass(frozen=True, slots=True, eq=False)
class ArmTerms:
    """Sums of an hour; arm 0 is the baseline."""

    users: Reals  # [2, G, 2], a and w by block of users
    items: Reals  # [2, G, 2], by block of items, for impressions that name their item
    squares: Reals  # [2, 3], sums of a*a, a*w, w*w over impressions; 0 where unknown


@dataclass(frozen=True, slots=True, eq=False)
class MeanSums:
    """Sums that are additive over hours. [...] may be windows."""

    om: Reals  # [...]
    means: Reals  # [..., 2], M of an arm
    users: Reals  # [..., 2, G, 2], dev, and the block's share of om
    items: Reals  # [..., 2, G, 2]
    item_om: Reals  # [...]: `om` of the impressions that name their item
    spread: Reals  # [..., 2], variance of M as if impressions were independent
    moments: Reals  # [..., 2, 2], sums of a and of a*a of an arm, over single impressions


def stratum(terms: ArmTerms) -> MeanSums | None:
    """Returns the sums of one hour; None if an arm has nothing in it."""
    total = terms.users.sum(axis=1)  # [2, 2]
    n = total[:, 1]
    if not n.min() > 0.0:
        return None
    om = float(n[0] * n[1] / (n[0] + n[1]))
    mean = total[:, 0] / n
    saa, saw, sww = terms.squares.T
    spread = (om / n) ** 2 * np.maximum(saa - 2.0 * mean * saw + mean * mean * sww, 0.0)
    named = terms.items[:, :, 1].sum(axis=1)
    item_om = float(om * min(named / n))
    return MeanSums(
        np.asarray(om, np.float64),
        om * mean,
        _deviations(terms.users, om / n, mean),
        _deviations(terms.items, om / n, mean),
        np.asarray(item_om, np.float64),
        spread,
        np.stack([saw, saa], axis=-1),
    )


def _deviations(blocks: Reals, weight: Reals, mean: Reals) -> Reals:
    out = np.empty_like(blocks)
    out[:, :, 0] = weight[:, None] * (blocks[:, :, 0] - mean[:, None] * blocks[:, :, 1])
    out[:, :, 1] = weight[:, None] * blocks[:, :, 1]
    return out


def windows(strata: list[MeanSums], first: NDArray[np.int64], groups: int) -> MeanSums:
    """Returns the sums of windows that begin at strata `first` int64[J]; [J]. `strata`: oldest first, added in this
    order.
    """

    def over(name: str, shape: tuple[int, ...]) -> Reals:
        column = np.zeros((len(strata), *shape))
        for i, one in enumerate(strata):
            column[i] = getattr(one, name)
        return np.stack([np.add.reduce(column[f:], axis=0) for f in first.tolist()])

    blocks = (2, groups, 2)
    return MeanSums(
        om=over("om", ()),
        means=over("means", (2,)),
        users=over("users", blocks),
        items=over("items", blocks),
        item_om=over("item_om", ()),
        spread=over("spread", (2,)),
        moments=over("moments", (2, 2)),
    )


def is_enough(sums: MeanSums, fewest: float) -> NDArray[np.bool_]:
    """Whether both arms have at least `fewest` effective samples, (sum a)**2 / sum a*a; bool[...]. With 200, none
    exceeds 7.1% of its arm.
    """
    return np.all(sums.moments[..., 0] ** 2 >= fewest * sums.moments[..., 1], axis=-1)


def relative(sums: MeanSums) -> Statistic:
    """Returns M_new / M_old - 1, [...], with errors clustered by users and items; undefined where an arm has
    nothing.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        known = (sums.om > 0.0) & (sums.means.min(axis=-1) > 0.0)
        level = np.where(known[..., None], sums.means, np.nan)
        r = level[..., 1] / level[..., 0]
        share = sums.users[..., 1]
        moved = r[..., None, None] * sums.users[..., 0] / level[..., None] * leverage(share)
        some = (share > 0.0).sum(axis=-1).astype(np.float64)  # [..., 2]
        v = (moved * moved).sum(axis=-1) * (some - 1.0) / some
        df = share.sum(axis=-1) ** 2 / (share * share).sum(axis=-1) - 1.0
        total = v.sum(axis=-1)
        enough = known & (some.min(axis=-1) >= 2.0)
        welch = np.where(total > 0.0, total * total / (v * v / df).sum(axis=-1), 0.0)
        iid = r * r * (sums.spread / (level * level)).sum(axis=-1)
        by_user = Statistic(
            theta=np.where(enough, r - 1.0, np.nan),
            weight=sums.om,
            v_clu=np.where(enough, total, np.nan),
            v_iid=np.where(enough, iid, np.nan),
            df=np.where(enough, welch, 0.0),
            blocks=some.min(axis=-1),
        )
        of_arm = sums.items[..., 0] / level[..., None] * leverage(sums.items[..., 1])
        both = r[..., None] * (of_arm[..., 1, :] - of_arm[..., 0, :])
        share = sums.items[..., 1].sum(axis=-2)
        some = (share > 0.0).sum(axis=-1).astype(np.float64)
        by_item = Statistic(
            theta=by_user.theta,
            weight=sums.om,
            v_clu=np.where(some >= 2.0, (both * both).sum(axis=-1) * (some - 1.0) / some, np.nan),
            v_iid=np.zeros_like(r),
            df=np.where(some >= 2.0, share.sum(axis=-1) ** 2 / (share * share).sum(axis=-1) - 1.0, 0.0),
            blocks=some,
        )
    return where_clustered(enough & (sums.item_om >= COVERED * sums.om), by_user, by_item)

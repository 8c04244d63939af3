"""Two versions live on disjoint users (canary, A/B): from served block sums by hour to one `Statistic` per metric.

Arms are compared within the hour and combined with weights n_A n_B / (n_A + n_B) (Cochran 1954; Mantel and Haenszel
1959), so a ramp from 1% to 50% over a daily cycle of the CTR is no Simpson reversal: both arms are standardised to the
same hours. For a component x (click, loss, pClick: per impression; placements: per click, per non-click) and an arm,

    M_x = sum_h om_h mean_x,h        dev_x,g = sum_h om_h (X_g,h - mean_x,h N_g,h) / n_h        om_h the weight above

are sums over hours (`StrataSums`), and every metric is a smooth function of the M's. v = v_A + v_B (users are disjoint) with
Welch's degrees of freedom (Welch 1947; of an arm `_df`), each by leaving out the blocks one by one: without block g, of share h_g, M_x is
(M_x (1 - h_g) - dev_x,g) / (1 - h_g), h_g taken over all hours together. Deviations from means that contain the block are too
small by its share, which heavy users make large (`metrics.errors`; CR3 of Cameron and Miller 2015). `deviations` are by the
delta method: only their correlation is used.

- log_loss: NE_new / NE_old - 1 with NE = M_l / (Om H(M_y / Om)) the normalised entropy (He et al. 2014, section 3). Raw
  log loss of two arms differs by who happened to click; that noise cancels here almost entirely.
- auc: AUC_old - AUC_new by placements, PHI0 centred (`paired`).
- calibration: MID and GAP (`paired`) of E / O of each arm over what it served.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.evidence.paired import COVERED, GAP, MID
from streameval.compare.evidence.ratio import (
    DF,
    NO_REST,
    STATISTIC_FIELDS,
    THETA,
    USED_BLOCKS,
    V_CLU,
    V_IID,
    WEIGHT,
    Reals,
    Statistic,
    rest_of,
    unpacked,
    where_clustered,
)
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE

_NAMES = ("log_loss", "auc", MID, GAP)
_LOG_LOSS, _AUC, _MID, _GAP = range(4)
# totals of an arm: om and the M's, and om of clicks and of non-clicks; the first six have deviations too (for OM,
# shares)
OM, M_CLICKS, _M_L, M_PREDICTED, _M_PHI1, _M_PHI0, _OM1, _OM0 = range(8)
TOTALS, DEVS = 8, 6
_CELLS = (cells.N, cells.Y, cells.L, cells.P, cells.PHI1, cells.PHI0)  # column of each component in a row of the ledger
_IMPRESSIONS, _CLICKS, _OTHERS = range(3)  # what a component is a mean over
_OVER = (_IMPRESSIONS, _IMPRESSIONS, _IMPRESSIONS, _IMPRESSIONS, _CLICKS, _OTHERS)
_OM_OF = (OM, _OM1, _OM0)  # the weight of an hour's impressions, clicks and non-clicks
_V_LOSS, _V_LOSS_CLICK, _V_CLICK, _V_PHI1, _V_PHI0 = range(5)  # columns of `spread`
SPREADS = 5


@dataclass(frozen=True, slots=True, eq=False)
class StrataSums:
    """Sums that are additive over hours: `totals` float64[..., 2, 8] and `devs` float64[..., 2, 6, G], arm 0 the
    baseline.
    """

    totals: Reals
    devs: Reals

    def __add__(self, other: StrataSums) -> StrataSums:
        return StrataSums(self.totals + other.totals, self.devs + other.devs)

    def __sub__(self, other: StrataSums) -> StrataSums:
        return StrataSums(self.totals - other.totals, self.devs - other.devs)

    def sum(self, axis: int = 0) -> StrataSums:
        """Returns the sum over hours (an axis counted from the front), added in order."""
        return StrataSums(self.totals.cumsum(axis).take(-1, axis), self.devs.cumsum(axis).take(-1, axis))


def strata(baseline: NDArray[np.int64], candidate: NDArray[np.int64]) -> StrataSums:
    """Returns one stratum per leading index from the arms' served rows int64[..., G, 8] of the same hour; an hour
    without one of the arms has weight 0.
    """
    shape, groups = baseline.shape[:-2], baseline.shape[-2]
    count = math.prod(shape)
    totals, devs = np.zeros((count, 2, TOTALS)), np.zeros((count, 2, DEVS, groups))
    _strata(baseline.reshape(count, groups, -1), candidate.reshape(count, groups, -1), totals, devs)
    return StrataSums(totals.reshape(*shape, 2, TOTALS), devs.reshape(*shape, 2, DEVS, groups))


def statistics(sums: StrataSums, spreads: Reals | None = None, items: StrataSums | None = None) -> dict[str, Statistic]:
    """Returns what `Evidence.advance` takes, each [...], from sums of strata [...].

    `spreads` float64[..., 2, 5]: sums of `spread`, without which `v_iid` is 0 (not known). `items`: the same strata by
    block of items, for two-way variances (`ratio.two_way`): the arms' users differ, their items are the same.
    """
    shape = sums.totals.shape[:-2]
    out = np.empty((len(_NAMES), math.prod(shape), STATISTIC_FIELDS))
    given = np.zeros((*shape, 2, SPREADS)) if spreads is None else spreads
    _statistics(*_flat(sums), given.reshape(-1, 2, SPREADS), out)
    packed = out.reshape(len(_NAMES), *shape, STATISTIC_FIELDS)
    found = {name: unpacked(packed[i]) for i, name in enumerate(_NAMES)}
    if items is not None:
        shared = np.empty_like(out)
        _by_item(*_flat(items), given.reshape(-1, 2, SPREADS), shared)
        by_item = shared.reshape(packed.shape)
        covered = items.totals[..., 0, OM] >= COVERED * sums.totals[..., 0, OM]
        for i, name in enumerate(_NAMES):
            found[name] = where_clustered(covered, found[name], unpacked(by_item[i]))
    return found


def spread(rows: NDArray[np.int64], scalars: NDArray[np.int64]) -> Reals:
    """Returns the variation between impressions of one hour, float64[2, 5], additive over hours, from the arms' rows
    int64[2, G, 8] and scalars int64[2, k].

    These are sums of squares about the mean of log loss, of products of log loss and click, of squares of clicks, and
    of placements of clicks and of non-clicks, each times the squared weight of an impression in `strata`; for a sampled
    log, with the squares of its weights.
    """
    totals = rows.sum(axis=1)
    out = np.zeros((2, SPREADS))
    n, y = totals[:, cells.N].astype(np.float64), totals[:, cells.Y].astype(np.float64)
    if min(n.min(), y.min(), (n - y).min()) <= 0:
        return out
    loss, phi1, phi0 = (totals[:, c] / SCALE for c in (cells.L, cells.PHI1, cells.PHI0))
    squares = scalars / SCALE
    weigh, weigh1, weigh0 = ((m[::-1] / m.sum()) ** 2 for m in (n, y, n - y))
    out[:, _V_LOSS] = weigh * (squares[:, cells.LOSS_SQ] - loss * loss / n)
    out[:, _V_LOSS_CLICK] = weigh * (squares[:, cells.LOSS_Y] - loss * y / n)
    of_clicks, of_others = scalars[:, cells.CLICKS_EXCESS], scalars[:, cells.OTHERS_EXCESS]  # 0 if all weights are 1
    out[:, _V_CLICK] = weigh * (y + of_clicks - y * y / n)
    # about the mean, then times the weights: of the square of a mean near 1 they would make most of the variance
    out[:, _V_PHI1] = weigh1 * (1.0 + of_clicks / y) * (squares[:, cells.PHI1_SQ] - phi1 * phi1 / y)
    out[:, _V_PHI0] = weigh0 * (1.0 + of_others / (n - y)) * (squares[:, cells.PHI0_SQ] - phi0 * phi0 / (n - y))
    return out


def deviations(sums: StrataSums) -> tuple[Reals, Reals]:
    """Returns how much each block of either arm moves log_loss and auc, float64[..., 2 G] each, from sums of strata
    [...].

    v_clu is about the sum of their squares, as long as no block has much of an arm. NaN where the metric is undefined.
    """
    shape, groups = sums.totals.shape[:-2], sums.devs.shape[-1]
    out = np.empty((2, math.prod(shape), 2 * groups))
    _deviations(*_flat(sums), out)
    both = out.reshape(2, *shape, 2 * groups)
    return both[0], both[1]


def clicks(baseline: NDArray[np.int64], candidate: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the clicks of the arm with fewer, int64[...], from served rows [..., G, 8] summed over hours: what the
    evidence floor counts.
    """
    out: NDArray[np.int64] = np.minimum(baseline[..., cells.Y].sum(axis=-1), candidate[..., cells.Y].sum(axis=-1))
    return out


def _flat(sums: StrataSums) -> tuple[Reals, Reals]:
    """Returns totals and deviations with one leading axis."""
    return sums.totals.reshape(-1, 2, TOTALS), sums.devs.reshape(-1, 2, DEVS, sums.devs.shape[-1])


@numba.njit(inline="always")
def _many(n: float, y: float, over: int) -> float:
    """Returns the number of impressions, clicks or non-clicks."""
    return n if over == _IMPRESSIONS else (y if over == _CLICKS else n - y)


@numba.njit(inline="always")
def _comparable(t: Reals) -> bool:
    """Whether both arms have clicks and non-clicks in the same hours; `t` float64[2, 8]."""
    om = t[0, OM]
    weighed = om > 0.0 and t[0, _OM1] > 0.0 and t[0, _OM0] > 0.0
    return weighed and min(t[0, M_CLICKS], t[1, M_CLICKS]) > 0.0 and max(t[0, M_CLICKS], t[1, M_CLICKS]) < om


@numba.njit(inline="always")
def _levels(t: Reals) -> tuple[float, float, float]:
    """Returns (NE, the slope of log H at the CTR, E / O) of an arm, `t` float64[8]; H in nats."""
    c = t[M_CLICKS] / t[OM]
    entropy = -c * math.log(c) - (1.0 - c) * math.log(1.0 - c)
    return t[_M_L] / t[OM] / entropy, math.log((1.0 - c) / c) / entropy, t[M_PREDICTED] / t[M_CLICKS]


@numba.njit(cache=True)
def _strata(baseline: NDArray[np.int64], candidate: NDArray[np.int64], totals: Reals, devs: Reals) -> None:
    sums = np.empty((2, DEVS))  # impressions in place of OM
    groups = baseline.shape[1]
    for i in range(baseline.shape[0]):
        for arm in range(2):
            rows = baseline[i] if arm == 0 else candidate[i]
            for c in range(DEVS):
                total = 0
                for g in range(groups):
                    total += rows[g, _CELLS[c]]
                sums[arm, c] = total if c <= M_CLICKS else total / SCALE  # counts are exact, the others fixed-point
        for over in range(3):
            old, new = _many(sums[0, OM], sums[0, M_CLICKS], over), _many(sums[1, OM], sums[1, M_CLICKS], over)
            if old <= 0.0 or new <= 0.0:
                continue
            om = old * new / (old + new)
            for arm in range(2):
                rows = baseline[i] if arm == 0 else candidate[i]
                many = old if arm == 0 else new
                totals[i, arm, _OM_OF[over]] = om
                for c in range(DEVS):
                    if _OVER[c] != over:
                        continue
                    mean = sums[arm, c] / many
                    if c != OM:
                        totals[i, arm, c] = om * mean
                    cell, scale = _CELLS[c], 1.0 if c <= M_CLICKS else SCALE
                    for g in range(groups):
                        n = _many(rows[g, cells.N], rows[g, cells.Y], over)
                        value = rows[g, cell] / scale
                        devs[i, arm, c, g] = om / many * (n if c == OM else value - mean * n)


@numba.njit(cache=True)
def _deviations(totals: Reals, devs: Reals, out: Reals) -> None:
    groups, ne, slope = devs.shape[3], np.empty(2), np.empty(2)
    for i in range(totals.shape[0]):
        t, om, om1, om0 = totals[i], totals[i, 0, OM], totals[i, 0, _OM1], totals[i, 0, _OM0]
        out[:, i] = np.nan
        if not _comparable(t):
            continue
        for arm in range(2):
            ne[arm], slope[arm], _ = _levels(t[arm])
        for arm in range(2):
            sign = 2.0 * arm - 1.0  # of the candidate's part in NE_new / NE_old; for AUC less is harm
            for g in range(groups):
                d = devs[i, arm, :, g]
                log_ne = d[_M_L] / t[arm, _M_L] - slope[arm] * d[M_CLICKS] / om
                out[0, i, arm * groups + g] = sign * ne[1] / ne[0] * log_ne
                out[1, i, arm * groups + g] = -sign * (d[_M_PHI1] / om1 + d[_M_PHI0] / om0)


@numba.njit(inline="always")
def _df(t: Reals, devs: Reals, chance: float) -> float:
    """Returns `left_out.degrees_of_freedom` of arms that share their blocks, t float64[k, 8], devs float64[k, 6, G], in the weights of
    hours; clicks are as if hours had the same CTR.
    """
    n, y, shown, clicked = 0.0, 0.0, 0.0, -chance
    for g in range(devs.shape[2]):
        n_g, y_g = 0.0, 0.0
        for arm in range(devs.shape[0]):
            n_g += devs[arm, OM, g]
            y_g += devs[arm, M_CLICKS, g] + t[arm, M_CLICKS] / t[arm, OM] * devs[arm, OM, g]
        n += n_g
        y += y_g
        shown += n_g * n_g
        clicked += y_g * y_g
    effective = n * n / shown
    if clicked > 0.0:
        effective = min(effective, y * y / clicked)
    return max(effective - 1.0, 0.0)


@numba.njit(inline="always")
def _theta(t: Reals, ne: Reals, over: Reals, out: Reals) -> None:
    """Fills in theta of every metric, `out` float64[4, FIELDS]."""
    out[_LOG_LOSS, THETA] = ne[1] / ne[0] - 1.0
    out[_AUC, THETA] = (t[0, _M_PHI1] - t[1, _M_PHI1]) / t[0, _OM1] + (t[0, _M_PHI0] - t[1, _M_PHI0]) / t[0, _OM0]
    out[_MID, THETA], out[_GAP, THETA] = over[0] + over[1] - 2.0, over[1] - over[0]
    out[:, WEIGHT] = t[0, _OM1]
    out[_LOG_LOSS, WEIGHT] = t[0, OM]


@numba.njit(cache=True)
def _by_item(totals: Reals, devs: Reals, spreads: Reals, out: Reals) -> None:
    """Like `_statistics`, for blocks that both arms share: a block moves the difference by its effect on either arm."""
    ne, slope, over = np.empty(2), np.empty(2), np.empty(2)
    for i in range(totals.shape[0]):
        t, om, om1, om0 = totals[i], totals[i, 0, OM], totals[i, 0, _OM1], totals[i, 0, _OM0]
        out[:, i] = np.nan
        out[:, i, V_IID:] = 0.0
        if not _comparable(t):
            continue
        for arm in range(2):
            ne[arm], slope[arm], over[arm] = _levels(t[arm])
        blocks = 0
        v_ne, v_auc, v_mid, v_gap = 0.0, 0.0, 0.0, 0.0
        whole = devs[i, 0, OM].sum(), devs[i, 1, OM].sum()
        for g in range(devs.shape[3]):
            blocks += devs[i, 0, OM, g] + devs[i, 1, OM, g] > 0.0
            # left out, each block moves an arm's means by its deviation over what it leaves of the arm
            a = devs[i, 0, :, g] * (whole[0] / rest_of(whole[0], devs[i, 0, OM, g]))
            b = devs[i, 1, :, g] * (whole[1] / rest_of(whole[1], devs[i, 1, OM, g]))
            log_ne = (b[_M_L] / t[1, _M_L] - slope[1] * b[M_CLICKS] / om) - (
                a[_M_L] / t[0, _M_L] - slope[0] * a[M_CLICKS] / om
            )
            old = (a[M_PREDICTED] - over[0] * a[M_CLICKS]) / t[0, M_CLICKS]
            new = (b[M_PREDICTED] - over[1] * b[M_CLICKS]) / t[1, M_CLICKS]
            auc = (a[_M_PHI1] - b[_M_PHI1]) / om1 + (a[_M_PHI0] - b[_M_PHI0]) / om0
            v_ne += (ne[1] / ne[0] * log_ne) ** 2
            v_auc += auc * auc
            v_mid += (new + old) ** 2
            v_gap += (new - old) ** 2
        out[:, i, USED_BLOCKS] = blocks
        if blocks < 2:
            continue
        _theta(t, ne, over, out[:, i])
        out[:, i, DF] = _df(t, devs[i], spreads[i, 0, _V_CLICK] + spreads[i, 1, _V_CLICK])
        for k, v in enumerate((v_ne, v_auc, v_mid, v_gap)):
            out[k, i, V_CLU] = v * (blocks - 1.0) / blocks


@numba.njit(inline="always")
def _left_out(t: Reals, devs: Reals, share: float, om1: float, om0: float, v: Reals) -> None:
    """Adds the squares of what an arm's log NE, AUC and E / O change by if its blocks are left out one by one; `t` float64[8],
    `devs` float64[6, G], `share` the sum of its first row.
    """
    ne, slope, over = _levels(t)
    for g in range(devs.shape[1]):
        d = devs[:, g]
        if d[OM] <= 0.0:
            continue
        rest = 1.0 - d[OM] / share
        rest1 = rest - d[M_CLICKS] / t[M_CLICKS]  # of the clicks
        rest0 = rest + d[M_CLICKS] / (t[OM] - t[M_CLICKS])
        loss, clicked = t[_M_L] * rest - d[_M_L], t[M_CLICKS] * rest1
        if min(rest, rest1, rest0, loss) <= NO_REST or clicked >= t[OM] * rest:  # it has nearly all
            v[_LOG_LOSS] += (d[_M_L] / t[_M_L] - slope * d[M_CLICKS] / t[OM]) ** 2
            v[_AUC] += (d[_M_PHI1] / om1 + d[_M_PHI0] / om0) ** 2
            v[_MID] += ((d[M_PREDICTED] - over * d[M_CLICKS]) / t[M_CLICKS]) ** 2
            continue
        v[_LOG_LOSS] += math.log(_entropy(loss, clicked, t[OM] * rest) / ne) ** 2
        v[_AUC] += (d[_M_PHI1] / (om1 * rest1) + d[_M_PHI0] / (om0 * rest0)) ** 2
        v[_MID] += ((t[M_PREDICTED] * rest - d[M_PREDICTED]) / clicked - over) ** 2


@numba.njit(inline="always")
def _entropy(loss: float, clicked: float, om: float) -> float:
    """Returns the normalised entropy."""
    c = clicked / om
    return loss / om / (-c * math.log(c) - (1.0 - c) * math.log(1.0 - c))


@numba.njit(cache=True)
def _statistics(totals: Reals, devs: Reals, spreads: Reals, out: Reals) -> None:
    ne, over, df, v, iid = np.empty(2), np.empty(2), np.empty(2), np.empty((4, 2)), np.empty(4)
    for i in range(totals.shape[0]):
        t, om, om1, om0 = totals[i], totals[i, 0, OM], totals[i, 0, _OM1], totals[i, 0, _OM0]
        out[:, i] = 0.0
        out[:, i, THETA] = out[:, i, V_CLU] = np.nan
        if not _comparable(t):
            continue
        fewest = np.inf
        iid[:], v[:] = 0.0, 0.0
        for arm in range(2):
            mine, s = t[arm], spreads[i, arm]
            ne[arm], slope, level = _levels(mine)
            over[arm] = level
            per_nat, per_click = 1.0 / mine[_M_L], slope / om
            iid[_LOG_LOSS] += (
                s[_V_LOSS] * per_nat * per_nat
                - 2.0 * s[_V_LOSS_CLICK] * per_nat * per_click
                + s[_V_CLICK] * per_click * per_click
            )
            iid[_AUC] += s[_V_PHI1] / (om1 * om1) + s[_V_PHI0] / (om0 * om0)
            # from the clicks; that of the scores is small
            iid[_MID] += level * level * s[_V_CLICK] / (mine[M_CLICKS] * mine[M_CLICKS])
            blocks, share = 0, 0.0
            for g in range(devs.shape[3]):
                if devs[i, arm, OM, g] > 0.0:
                    blocks += 1
                    share += devs[i, arm, OM, g]
            fewest = min(fewest, float(blocks))
            if blocks >= 2:
                _left_out(mine, devs[i, arm], share, om1, om0, v[:, arm])
                v[:, arm] *= (blocks - 1.0) / blocks
                df[arm] = _df(t[arm : arm + 1], devs[i, arm : arm + 1], s[_V_CLICK])  # combined to Welch's below
        out[:, i, USED_BLOCKS] = fewest
        if fewest < 2.0:
            continue
        grown = ne[1] / ne[0]
        v[_LOG_LOSS] *= grown * grown
        iid[_LOG_LOSS] *= grown * grown
        v[_GAP], iid[_GAP] = v[_MID], iid[_MID]
        _theta(t, ne, over, out[:, i])
        for k in range(4):
            a, b = v[k, 0], v[k, 1]
            out[k, i, V_CLU], out[k, i, V_IID] = a + b, max(iid[k], 0.0)
            out[k, i, DF] = (a + b) ** 2 / (a * a / df[0] + b * b / df[1]) if a + b > 0.0 and df.min() > 0.0 else 0.0

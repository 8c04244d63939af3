"""Two versions live on disjoint users (canary, A/B): from served block sums by hour to one `Statistic` per metric.

Arms are compared within the hour and put together with weights n_A n_B / (n_A + n_B) (Cochran 1954; Mantel and Haenszel
1959), so a ramp from 1% to 50% over a diurnal CTR is no Simpson reversal: both arms are standardised to the same hours.
For a component x (click, loss, pClick: per impression; placements: per click, per non-click) and an arm,

    M_x = sum_h om_h mean_x,h        dev_x,g = sum_h om_h (X_g,h - mean_x,h N_g,h) / n_h        om_h the weight above

are sums over hours (`Strata`), and every metric is a smooth function of the M's; its deviations follow by the delta
method. v = v_A + v_B (users are disjoint) with Welch's degrees of freedom (Welch 1947).

- log_loss: NE_new / NE_old - 1 with NE = M_l / (Om H(M_y / Om)) the normalised entropy (He et al. 2014, section 3). Raw
  log loss of two arms differs by who happened to click; that noise cancels here almost wholly.
- auc: AUC_old - AUC_new by placements, PHI0 centred (`paired`).
- calibration: MID and GAP (`paired`) of E / O of either arm on what it served.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.paired import COVERED, GAP, MID
from streameval.compare.ratio import Reals, Statistic, unpacked, where_clustered
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE

_NAMES = ("log_loss", "auc", MID, GAP)
_OM, _Y, _L, _P, _PHI1, _PHI0, _OM1, _OM0 = range(8)  # totals; the first six have deviations too (those of _OM: shares)


@dataclass(frozen=True, slots=True, eq=False)
class Strata:
    """Additive over hours: `totals` float64[..., 2, 8] and `devs` float64[..., 2, 6, G], arm 0 the baseline."""

    totals: Reals
    devs: Reals

    def __add__(self, other: Strata) -> Strata:
        return Strata(self.totals + other.totals, self.devs + other.devs)

    def __sub__(self, other: Strata) -> Strata:
        return Strata(self.totals - other.totals, self.devs - other.devs)

    def sum(self, axis: int = 0) -> Strata:
        """Over hours (an axis counted from the front), in order."""
        return Strata(self.totals.cumsum(axis).take(-1, axis), self.devs.cumsum(axis).take(-1, axis))


def strata(baseline: NDArray[np.int64], candidate: NDArray[np.int64]) -> Strata:
    """One stratum per leading index from served rows int64[..., G, 8] of the two arms in the same hour. An hour that one of
    them lacks weighs nothing.
    """
    shape, groups = baseline.shape[:-2], baseline.shape[-2]
    count = math.prod(shape)
    totals, devs = np.zeros((count, 2, 8)), np.zeros((count, 2, 6, groups))
    _strata(baseline.reshape(count, groups, -1), candidate.reshape(count, groups, -1), totals, devs)
    return Strata(totals.reshape(*shape, 2, 8), devs.reshape(*shape, 2, 6, groups))


def statistics(sums: Strata, spreads: Reals | None = None, items: Strata | None = None) -> dict[str, Statistic]:
    """What `Evidence.advance` takes, each [...], from sums of strata [...].

    `spreads` float64[..., 2, 5]: sums of what `spread` gives, without which `v_iid` is 0: not known. `items`: the same strata by
    block of items, for variances by both (`ratio.two_way`): the arms' users differ, their items are the same.
    """
    shape, groups = sums.totals.shape[:-2], sums.devs.shape[-1]
    out = np.empty((4, math.prod(shape), 6))
    given = np.zeros((*shape, 2, 5)) if spreads is None else spreads
    _statistics(sums.totals.reshape(-1, 2, 8), sums.devs.reshape(-1, 2, 6, groups), given.reshape(-1, 2, 5), out)
    packed = out.reshape(4, *shape, 6)
    found = {name: unpacked(packed[i]) for i, name in enumerate(_NAMES)}
    if items is not None:
        shared = np.empty((4, math.prod(shape), 6))
        _by_item(items.totals.reshape(-1, 2, 8), items.devs.reshape(-1, 2, 6, groups), shared)
        by_item = shared.reshape(4, *shape, 6)
        covered = items.totals[..., 0, 0] >= COVERED * sums.totals[..., 0, 0]
        for i, name in enumerate(_NAMES):
            found[name] = where_clustered(covered, found[name], unpacked(by_item[i]))
    return found


def spread(rows: NDArray[np.int64], scalars: NDArray[np.int64]) -> Reals:
    """What impressions of one hour differ by, float64[2, 5], additive over hours, from the arms' rows int64[2, G, 8], scalars int64[2, k].

    Sums of squares about the mean of log loss, of both, of clicks, and of placements of clicks and of non-clicks, each times
    the square of what one impression weighs in `strata`.
    """
    totals = rows.sum(axis=1)
    out = np.zeros((2, 5))
    n, y = totals[:, cells.N].astype(np.float64), totals[:, cells.Y].astype(np.float64)
    if min(n.min(), y.min(), (n - y).min()) <= 0:
        return out
    loss, phi1, phi0 = (totals[:, c] / SCALE for c in (cells.L, cells.PHI1, cells.PHI0))
    squares = scalars / SCALE
    weigh, weigh1, weigh0 = ((m[::-1] / m.sum()) ** 2 for m in (n, y, n - y))
    out[:, 0] = weigh * (squares[:, cells.LOSS_SQ] - loss * loss / n)
    out[:, 1] = weigh * (squares[:, cells.LOSS_Y] - loss * y / n)
    out[:, 2] = weigh * (y - y * y / n)
    out[:, 3] = weigh1 * (squares[:, cells.PHI1_SQ] - phi1 * phi1 / y)
    out[:, 4] = weigh0 * (squares[:, cells.PHI0_SQ] - phi0 * phi0 / (n - y))
    return out


def deviations(sums: Strata) -> tuple[Reals, Reals]:
    """By how much each block of either arm moves log_loss and auc, float64[..., 2 G] each, from sums of strata [...].

    v_clu is the sum of their squares, but for the correction for few blocks. NaN where the metric is undefined.
    """
    shape, groups = sums.totals.shape[:-2], sums.devs.shape[-1]
    out = np.empty((2, math.prod(shape), 2 * groups))
    _deviations(sums.totals.reshape(-1, 2, 8), sums.devs.reshape(-1, 2, 6, groups), out)
    both = out.reshape(2, *shape, 2 * groups)
    return both[0], both[1]


@numba.njit(inline="always")
def _entropy(c: float) -> tuple[float, float]:
    """H(c), nats, of a CTR 0 < c < 1, and the slope of its logarithm."""
    entropy = -c * math.log(c) - (1.0 - c) * math.log(1.0 - c)
    return entropy, math.log((1.0 - c) / c) / entropy


@numba.njit(cache=True)
def _deviations(totals: NDArray[np.float64], devs: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    groups, ne, slope = devs.shape[3], np.empty(2), np.empty(2)
    for i in range(totals.shape[0]):
        t = totals[i]
        om, om1, om0 = t[0, 0], t[0, 6], t[0, 7]
        out[:, i] = np.nan
        if om <= 0.0 or om1 <= 0.0 or om0 <= 0.0 or min(t[0, 1], t[1, 1]) <= 0.0 or max(t[0, 1], t[1, 1]) >= om:
            continue
        for arm in range(2):
            c = t[arm, 1] / om
            entropy, slope[arm] = _entropy(c)
            ne[arm] = t[arm, 2] / om / entropy
        for arm in range(2):
            sign = 2.0 * arm - 1.0  # of the candidate's share in NE_new / NE_old; less is harm in AUC
            for g in range(groups):
                d = devs[i, arm, :, g]
                out[0, i, arm * groups + g] = sign * ne[1] / ne[0] * (d[2] / t[arm, 2] - slope[arm] * d[1] / om)
                out[1, i, arm * groups + g] = -sign * (d[4] / om1 + d[5] / om0)


def clicks(baseline: NDArray[np.int64], candidate: NDArray[np.int64]) -> NDArray[np.int64]:
    """Clicks of the arm that has fewer, int64[...], from served rows [..., G, 8] summed over hours: what the evidence floor counts."""
    out: NDArray[np.int64] = np.minimum(baseline[..., cells.Y].sum(axis=-1), candidate[..., cells.Y].sum(axis=-1))
    return out


@numba.njit(cache=True)
def _strata(
    baseline: NDArray[np.int64], candidate: NDArray[np.int64], totals: NDArray[np.float64], devs: NDArray[np.float64]
) -> None:
    columns = (cells.N, cells.Y, cells.L, cells.P, cells.PHI1, cells.PHI0)
    sums = np.empty((2, 6))
    groups = baseline.shape[1]
    for i in range(baseline.shape[0]):
        for arm in range(2):
            rows = baseline[i] if arm == 0 else candidate[i]
            for c in range(6):
                total = 0
                for g in range(groups):
                    total += rows[g, columns[c]]
                sums[arm, c] = total if c < 2 else total / SCALE
        for kind in range(3):  # per impression, per click, per non-click
            na = sums[0, 0] if kind == 0 else (sums[0, 1] if kind == 1 else sums[0, 0] - sums[0, 1])
            nb = sums[1, 0] if kind == 0 else (sums[1, 1] if kind == 1 else sums[1, 0] - sums[1, 1])
            if na <= 0.0 or nb <= 0.0:
                continue
            om = na * nb / (na + nb)
            for arm in range(2):
                rows = baseline[i] if arm == 0 else candidate[i]
                n = na if arm == 0 else nb
                totals[i, arm, 0 if kind == 0 else 5 + kind] = om
                for c in range(6):
                    if (kind == 0) != (c < 4) or (c >= 4 and c != 3 + kind):
                        continue
                    mean = sums[arm, c] / n
                    if c > 0:
                        totals[i, arm, c] = om * mean
                    for g in range(groups):
                        many = rows[g, 0] if kind == 0 else (rows[g, 1] if kind == 1 else rows[g, 0] - rows[g, 1])
                        value = rows[g, columns[c]] / (1.0 if c < 2 else SCALE)
                        devs[i, arm, c, g] = om / n * (many if c == 0 else value - mean * many)


@numba.njit(cache=True)
def _by_item(totals: NDArray[np.float64], devs: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Like `_statistics`, for blocks that both arms share: a block moves the difference by what it moves either arm."""
    groups = devs.shape[3]
    ne, over, slope, v = np.empty(2), np.empty(2), np.empty(2), np.empty(4)
    for i in range(totals.shape[0]):
        t = totals[i]
        om, om1, om0 = t[0, 0], t[0, 6], t[0, 7]
        out[:, i] = np.nan
        out[:, i, 3:] = 0.0
        if om <= 0.0 or om1 <= 0.0 or om0 <= 0.0 or min(t[0, 1], t[1, 1]) <= 0.0 or max(t[0, 1], t[1, 1]) >= om:
            continue
        for arm in range(2):
            c = t[arm, 1] / om
            entropy, slope[arm] = _entropy(c)
            ne[arm] = t[arm, 2] / om / entropy
            over[arm] = t[arm, 3] / t[arm, 1]
        some, share, squares = 0, 0.0, 0.0
        v[:] = 0.0
        for g in range(groups):
            a, b = devs[i, 0, :, g], devs[i, 1, :, g]
            weight = a[0] + b[0]
            if weight > 0.0:
                some += 1
                share += weight
                squares += weight * weight
            loss = (b[2] / t[1, 2] - slope[1] * b[1] / om) - (a[2] / t[0, 2] - slope[0] * a[1] / om)
            auc = (a[4] - b[4]) / om1 + (a[5] - b[5]) / om0
            old = over[0] * (a[3] / t[0, 3] - a[1] / t[0, 1])
            new = over[1] * (b[3] / t[1, 3] - b[1] / t[1, 1])
            v[0] += (ne[1] / ne[0] * loss) ** 2
            v[1] += auc * auc
            v[2] += (new + old) ** 2
            v[3] += (new - old) ** 2
        out[:, i, 5] = some
        if some < 2:
            continue
        out[0, i, 0], out[1, i, 0] = ne[1] / ne[0] - 1.0, (t[0, 4] - t[1, 4]) / om1 + (t[0, 5] - t[1, 5]) / om0
        out[2, i, 0], out[3, i, 0] = over[0] + over[1] - 2.0, over[1] - over[0]
        for k in range(4):
            out[k, i, 1] = om if k == 0 else om1
            out[k, i, 2] = v[k] * some / (some - 1.0)
            out[k, i, 4] = share * share / squares - 1.0


@numba.njit(cache=True)
def _statistics(
    totals: NDArray[np.float64], devs: NDArray[np.float64], spreads: NDArray[np.float64], out: NDArray[np.float64]
) -> None:
    groups = devs.shape[3]
    iid = np.empty(4)
    ne, over, v, df = np.empty(2), np.empty(2), np.empty((3, 2)), np.empty(2)
    for i in range(totals.shape[0]):
        out[:, i, 0], out[:, i, 1], out[:, i, 2], out[:, i, 3], out[:, i, 4], out[:, i, 5] = (
            np.nan,
            0.0,
            np.nan,
            0.0,
            0.0,
            0.0,
        )
        t = totals[i]
        om, om1, om0 = t[0, 0], t[0, 6], t[0, 7]
        if om <= 0.0 or om1 <= 0.0 or om0 <= 0.0:
            continue
        fewest = np.inf
        iid[:] = 0.0
        for arm in range(2):
            c = t[arm, 1] / om
            if not 0.0 < c < 1.0:
                fewest = 0.0
                break
            entropy, slope = _entropy(c)
            ne[arm] = t[arm, 2] / om / entropy
            over[arm] = t[arm, 3] / t[arm, 1]
            s = spreads[i, arm]
            per_nat, per_click = 1.0 / t[arm, 2], slope / om
            iid[0] += s[0] * per_nat * per_nat - 2.0 * s[1] * per_nat * per_click + s[2] * per_click * per_click
            iid[1] += s[3] / (om1 * om1) + s[4] / (om0 * om0)
            iid[2] += (
                over[arm] * over[arm] * s[2] / (t[arm, 1] * t[arm, 1])
            )  # of the clicks; that of the scores is small
            some, share, squares = 0, 0.0, 0.0
            v[:, arm] = 0.0
            for g in range(groups):
                d = devs[i, arm, :, g]
                if d[0] > 0.0:
                    some += 1
                    share += d[0]
                    squares += d[0] * d[0]
                v[0, arm] += (d[2] / t[arm, 2] - slope * d[1] / om) ** 2
                v[1, arm] += (d[4] / om1 + d[5] / om0) ** 2
                v[2, arm] += (over[arm] * (d[3] / t[arm, 3] - d[1] / t[arm, 1])) ** 2
            fewest = min(fewest, float(some))
            if some >= 2:
                v[:, arm] *= some / (some - 1.0)
                df[arm] = share * share / squares - 1.0
        out[:, i, 5] = fewest
        if fewest < 2.0:
            continue
        grown = ne[1] / ne[0]
        v[0] *= grown * grown
        iid[0] *= grown * grown
        iid[3] = iid[2]
        out[0, i, 0], out[0, i, 1] = grown - 1.0, om
        out[1, i, 0], out[1, i, 1] = (t[0, 4] - t[1, 4]) / om1 + (t[0, 5] - t[1, 5]) / om0, om1
        out[2, i, 0], out[2, i, 1] = over[0] + over[1] - 2.0, om1
        out[3, i, 0], out[3, i, 1] = over[1] - over[0], om1
        for k in range(4):
            a, b = v[min(k, 2), 0], v[min(k, 2), 1]
            out[k, i, 2], out[k, i, 3] = a + b, max(iid[k], 0.0)
            out[k, i, 4] = (a + b) ** 2 / (a * a / df[0] + b * b / df[1]) if a + b > 0.0 else 0.0

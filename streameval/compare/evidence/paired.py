"""Two versions on the same impressions: from block sums of a pair to one `Statistic` per metric.

Everything is oriented as *harm*: theta > 0 means that the candidate is worse than the baseline. A comparison's rows are
(baseline served, candidate only scored); reversed rows are converted by `oriented` and then added.

- log_loss: relative, (L_new - L_old) / L_old. With a margin m, S = (theta - m) W = sum l_new - (1 + m) l_old.
- auc: the one-step (von Mises) estimate of AUC_old - AUC_new from placements against frozen reference curves. A
  version's AUC is E F0(s+) with F0 the scores' distribution among non-clicks, and E S1(s-) with S1 the survival among
  clicks. Both terms count, and one constant is counted twice: AUC ~ mean F0(s+) + mean S1(s-) - AUC_ref with AUC_ref
  that of the reference sample itself, which is the mean of S1 over the reference's non-clicks. **PHI0 therefore must be
  stored centred: every non-click adds (S1_new(s_new) - AUC_ref_new) - (S1_old(s_old) - AUC_ref_old)**, a click adds
  F0_new(s_new) - F0_old(s_old) uncentred. Then no constant is left, and sums made with different references
  (partitions, hours) add up: theta = -(PHI1 / n1 + PHI0 / n0). PHI0_SQ is of the centred term. A reference's error
  enters only in second order, as long as scores are distributed as in the reference: re-freeze it every few hours;
  until then a shift of every score by d on the logit costs about 0.1 d**2 of AUC.
- gauc: sum w_u D_u / sum w_u over (user, window) rows, of windows that begin after the comparison does; a user served
  by both versions in a window has a row for each.
- calibration: which total is closer to the clicks, harm = (|E_new - O| - |E_old - O|) / O. For a sign s this is above m
  if and only if both s (E_new + E_old - 2 O) / O > m ("mid") and s (E_new - E_old) / O > m ("gap") for s = + or s = -,
  so it takes two statistics, which `evidence` combines. It needs impressions that both versions served: selection alone
  makes a version that did not choose the items look under-predicting.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.evidence.ratio import (
    FEWEST_ITEMS,
    STATISTIC_FIELDS,
    V_FLOOR,
    Reals,
    Statistic,
    Statistics,
    ratio,
    ratio_of,
    two_means_of,
    unpacked,
    where_clustered,
)
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE, BlockSums

COVERED = 0.9  # share of the impressions that must name their item before errors are clustered by item
_SIDES = 2.0  # of a pair of impressions, see `ledger.user_items`
MID, GAP = "calibration_mid", "calibration_gap"
_LOG_LOSS, _AUC, _MID, _GAP = range(4)  # rows of `_pair`; `_deviations` has the first two


def oriented(sums: BlockSums) -> BlockSums:
    """Converts rows of (candidate served, baseline scored) to rows of (baseline, candidate); its own inverse.

    Blocks int64[..., G, 8], scalars int64[..., 8]. Exact: the other's loss is the server's plus D. The strict sums
    assume that the odds ratio was clipped on both sides, so that the bound holds for -D too.
    """
    scalars = sums.scalars.copy()
    scalars[..., cells.D_STRICT] *= -1
    for cell, own in ((cells.PAIR_PHI1, cells.SERVER_PHI1), (cells.PAIR_PHI0, cells.SERVER_PHI0)):
        scalars[..., own] += sums.blocks[..., cell].sum(axis=-1)
    return BlockSums(_turned(sums.blocks), scalars, None if sums.items is None else _turned(sums.items))


def _turned(blocks: NDArray[np.int64]) -> NDArray[np.int64]:
    out = blocks.copy()
    for cell in (cells.D, cells.PAIR_PHI1, cells.PAIR_PHI0):
        out[..., cell] *= -1  # np.negative(x, out=x) with strided x is wrong in NumPy 2.4
    out[..., cells.PAIR_L] = blocks[..., cells.PAIR_L] + blocks[..., cells.D]
    out[..., cells.PAIR_P] = blocks[..., cells.PAIR_P_OTHER]
    out[..., cells.PAIR_P_OTHER] = blocks[..., cells.PAIR_P]
    return out


def oriented_gauc(sums: BlockSums) -> BlockSums:
    """Does the same for GAUC rows: blocks int64[..., G, 2], scalars int64[..., 5], or 8 with items."""
    blocks, scalars = sums.blocks.copy(), sums.scalars.copy()
    blocks[..., cells.G_WD] *= -1
    scalars[..., cells.G_W_WD] *= -1
    scalars[..., cells.G_W_SERVER] += sums.blocks[..., cells.G_WD].sum(axis=-1)
    items = sums.items
    if items is not None:
        items = items.copy()
        items[..., cells.G_WD] *= -1
    return BlockSums(blocks, scalars, items)


def windows(total: BlockSums, before: BlockSums) -> BlockSums:
    """Returns the sums of looks t over windows j, exactly: totals [T, ...] less those at the starts of windows [J, ...]
    -> [T, J, ...].
    """
    items = None
    if total.items is not None and before.items is not None:
        items = total.items[:, None] - before.items[None]
    return BlockSums(total.blocks[:, None] - before.blocks[None], total.scalars[:, None] - before.scalars[None], items)


def clicks(sums: BlockSums, weighed: bool = False) -> NDArray[np.int64]:
    """Returns the clicks of pair rows, int64[...]; `weighed`: their effective number, for a sampled log."""
    out: NDArray[np.int64] = sums.blocks[..., cells.PAIR_Y].sum(axis=-1)
    return effective(out, sums.scalars[..., cells.PAIR_CLICKS_EXCESS]) if weighed else out


def effective(total: NDArray[np.int64], excess: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns (sum w)^2 / sum w^2 rounded down, int64[...], from sums of w and of w^2 - w; never more than sum w."""
    squares = total + np.maximum(excess, 0)
    out: NDArray[np.int64] = np.where(excess > 0, total.astype(np.float64) ** 2 / np.maximum(squares, 1), total).astype(
        np.int64
    )
    return out


def statistics(sums: BlockSums, gauc_sums: BlockSums | None = None, weighed: bool = False) -> Statistics:
    """Returns what `Evidence.advance` takes: each [...], from pair rows [..., G, 8], [..., 8] and GAUC rows [..., G,
    2], [..., 5].

    v_iid of log_loss leaves out the small noise of its denominator; calibration has none. With `items`, variances are
    two-way (`ratio.two_way`) if nearly all impressions name their item and there are enough items; that of gauc likewise,
    from the items of its own rows. The variance of log_loss is at least what the scores themselves predict: a rare
    disaster shows in the scores before it does in the clicks. `weighed`: the log is sampled.
    """
    by_user = _statistics(sums, gauc_sums, weighed)
    if gauc_sums is not None and gauc_sums.items is not None and gauc_sums.items.any():
        by_user = Statistics.of({**by_user, "gauc": _gauc_by_both(by_user["gauc"], gauc_sums, gauc_sums.items)})
    if sums.items is None or not sums.items[..., cells.PAIR_N].any():
        return by_user
    by_item = dict(_statistics(BlockSums(sums.items, np.zeros_like(sums.scalars))))
    covered = sums.items[..., cells.PAIR_N].sum(axis=-1) >= COVERED * sums.blocks[..., cells.PAIR_N].sum(axis=-1)
    clicked, n = (sums.blocks[..., c].sum(axis=-1) for c in (cells.PAIR_Y, cells.PAIR_N))
    with np.errstate(divide="ignore", invalid="ignore"):  # of the clicks, which contribute nearly all of it
        several = clicked / np.maximum(clicks(sums, weighed), 1)  # the weight of an effective click
        v_iid = np.where(clicked > 0, several * (2.0 + by_user[MID].theta) ** 2 * (1.0 - clicked / n) / clicked, np.nan)
    by_item[MID] = replace(by_item[MID], v_iid=v_iid)
    return Statistics.of(
        {name: where_clustered(covered, of, by_item[name]) if name in by_item else of for name, of in by_user.items()}
    )


def _statistics(sums: BlockSums, gauc_sums: BlockSums | None = None, weighed: bool = False) -> Statistics:
    shape, groups = sums.blocks.shape[:-2], sums.blocks.shape[-2]
    names = ("log_loss", "auc", MID, GAP) if gauc_sums is None else ("log_loss", "auc", MID, GAP, "gauc")
    out = np.empty((len(names), math.prod(shape), STATISTIC_FIELDS))
    _pair(sums.blocks.reshape(-1, groups, cells.PAIR_CELLS), sums.scalars.reshape(-1, cells.PAIR_SCALARS), weighed, out)
    if gauc_sums is not None:
        _gauc(
            gauc_sums.blocks.reshape(-1, groups, cells.GAUC_CELLS),
            gauc_sums.scalars.reshape(-1, gauc_sums.scalars.shape[-1]),
            out[4],
        )
    return Statistics(names, out.reshape(len(names), *shape, STATISTIC_FIELDS))


def _gauc_by_both(by_user: Statistic, sums: BlockSums, items: NDArray[np.int64]) -> Statistic:
    """Clusters GAUC by item, too: adds what blocks of items vary by beyond what single impressions explain, which is in the
    variance between users already. Both count a pair of impressions on either side, so neither is a variance by itself.
    """
    squares, saw, sww = (sums.scalars[..., cells.G_OF_ITEMS + i] for i in range(cells.GAUC_ITEM_SCALARS))
    a, w = items[..., cells.G_WD] / SCALE, items[..., cells.G_W] / SCALE
    by_item = ratio(-a, w, squares / SCALE, -saw / SCALE, sww.astype(np.float64))
    covered = w.sum(axis=-1) / _SIDES >= COVERED * sums.blocks[..., cells.G_W].sum(axis=-1)
    on = covered & (by_item.blocks >= FEWEST_ITEMS) & np.isfinite(by_item.v_clu)
    more = _SIDES**2 * np.maximum(by_item.v_clu - by_item.v_iid, 0.0)
    return replace(
        by_user,
        v_clu=by_user.v_clu + np.where(on, more, 0.0),
        df=np.where(on, np.minimum(by_user.df, by_item.df), by_user.df),
    )


def gauc_sums(rows: NDArray[np.int64]) -> BlockSums:
    """Splits GAUC rows int64[..., width], or other rows of the same form, into blocks, scalars and, if they have any, cells
    by item.
    """
    at = cells.BLOCKS * cells.GAUC_CELLS
    by_item = at + cells.GAUC_SCALARS + cells.GAUC_ITEM_SCALARS
    parts = rows[..., :at], rows[..., at:by_item], rows[..., by_item:]
    blocks, scalars, items = map(np.ascontiguousarray, parts)
    by = (*rows.shape[:-1], cells.BLOCKS, cells.GAUC_CELLS)
    return BlockSums(blocks.reshape(by), scalars, items.reshape(by) if items.size else None)


def gauc_statistic(sums: BlockSums) -> Statistic:
    """From GAUC rows alone, or other rows of the same form where more is better; in harm: [..., G, 2], [..., 5] ->
    [...].
    """
    shape, groups = sums.blocks.shape[:-2], sums.blocks.shape[-2]
    out = np.empty((math.prod(shape), STATISTIC_FIELDS))
    _gauc(
        sums.blocks.reshape(-1, groups, cells.GAUC_CELLS),
        sums.scalars.reshape(-1, sums.scalars.shape[-1]),
        out,
    )
    return unpacked(out.reshape(*shape, STATISTIC_FIELDS))


def deviations(sums: BlockSums) -> tuple[Reals, Reals]:
    """Returns how much each block moves log_loss and auc, float64[..., G] each; NaN where the metric is undefined.

    v_clu is about the sum of their squares, as long as no block has much of the traffic.
    """
    shape, groups = sums.blocks.shape[:-2], sums.blocks.shape[-2]
    out = np.empty((2, math.prod(shape), groups))
    _deviations(sums.blocks.reshape(-1, groups, cells.PAIR_CELLS), out)
    both = out.reshape(2, *shape, groups)
    return both[0], both[1]


@numba.njit(cache=True)
def _deviations(blocks: NDArray[np.int64], out: NDArray[np.float64]) -> None:
    for i in range(blocks.shape[0]):
        loss, n, y, d, phi1, phi0 = 0, 0, 0, 0, 0, 0
        for g in range(blocks.shape[1]):
            b = blocks[i, g]
            loss, n, y, d = loss + b[cells.PAIR_L], n + b[cells.PAIR_N], y + b[cells.PAIR_Y], d + b[cells.D]
            phi1, phi0 = phi1 + b[cells.PAIR_PHI1], phi0 + b[cells.PAIR_PHI0]
        ratio = d / loss if loss > 0 else np.nan
        mean1, mean0 = (phi1 / y, phi0 / (n - y)) if 0 < y < n else (np.nan, np.nan)
        for g in range(blocks.shape[1]):
            b = blocks[i, g]
            out[_LOG_LOSS, i, g] = (b[cells.D] - ratio * b[cells.PAIR_L]) / loss if loss > 0 else np.nan
            out[_AUC, i, g] = np.nan
            if 0 < y < n:
                clicked = (b[cells.PAIR_PHI1] - mean1 * b[cells.PAIR_Y]) / y
                others = (b[cells.PAIR_PHI0] - mean0 * (b[cells.PAIR_N] - b[cells.PAIR_Y])) / (n - y)
                out[_AUC, i, g] = -(clicked + others) / SCALE


@numba.njit(cache=True)
def _pair(blocks: NDArray[np.int64], scalars: NDArray[np.int64], weighed: bool, out: NDArray[np.float64]) -> None:
    groups = blocks.shape[1]
    a, w, b, v = np.empty(groups), np.empty(groups), np.empty(groups), np.empty(groups)
    for i in range(blocks.shape[0]):
        n, total, loss = 0.0, 0.0, 0
        for g in range(groups):
            loss += blocks[i, g, cells.PAIR_L]
            a[g] = blocks[i, g, cells.D] / SCALE
            w[g] = blocks[i, g, cells.PAIR_L] / SCALE
            n += blocks[i, g, cells.PAIR_N]
            total += a[g]
        squares = scalars[i, cells.D_SQ] / SCALE - total * total / n if n > 0.0 else 0.0
        ratio_of(a, w, squares, 0.0, 0.0, out[_LOG_LOSS, i])
        if loss > 0:
            nats = loss / SCALE
            out[_LOG_LOSS, i, V_FLOOR] = scalars[i, cells.D_PROMISED] / SCALE / (nats * nats)
        for g in range(groups):
            a[g] = -blocks[i, g, cells.PAIR_PHI1] / SCALE
            w[g] = blocks[i, g, cells.PAIR_Y]
            b[g] = -blocks[i, g, cells.PAIR_PHI0] / SCALE
            v[g] = blocks[i, g, cells.PAIR_N] - blocks[i, g, cells.PAIR_Y]
        above, below = scalars[i, cells.PAIR_PHI1_SQ] / SCALE, scalars[i, cells.PAIR_PHI0_SQ] / SCALE
        if weighed:  # squares of weights over weights, by label
            above *= 1.0 + scalars[i, cells.PAIR_CLICKS_EXCESS] / max(w.sum(), 1.0)
            below *= 1.0 + scalars[i, cells.PAIR_OTHERS_EXCESS] / max(v.sum(), 1.0)
        two_means_of(a, w, b, v, above, below, out[_AUC, i])
        for g in range(groups):
            old, new = blocks[i, g, cells.PAIR_P] / SCALE, blocks[i, g, cells.PAIR_P_OTHER] / SCALE
            a[g] = new + old - 2.0 * w[g]
            b[g] = new - old
        ratio_of(a, w, 0.0, 0.0, 0.0, out[_MID, i])
        ratio_of(b, w, 0.0, 0.0, 0.0, out[_GAP, i])


@numba.njit(cache=True)
def _gauc(blocks: NDArray[np.int64], scalars: NDArray[np.int64], out: NDArray[np.float64]) -> None:
    groups = blocks.shape[1]
    a, w = np.empty(groups), np.empty(groups)
    for i in range(blocks.shape[0]):
        for g in range(groups):
            a[g] = -blocks[i, g, cells.G_WD] / SCALE
            w[g] = blocks[i, g, cells.G_W]
        s = scalars[i]
        ratio_of(a, w, s[cells.G_WD_SQ] / SCALE, -s[cells.G_W_WD] / SCALE, float(s[cells.G_W_SQ]), out[i])


def level(served: BlockSums) -> Statistic:
    """Returns E / O - 1 of a version over what it served; rows [..., G, 8] -> [...]. Either sign is harm beyond the
    dead band.
    """
    y = served.blocks[..., cells.Y].astype(np.float64)
    return ratio(served.blocks[..., cells.P] / SCALE - y, y)

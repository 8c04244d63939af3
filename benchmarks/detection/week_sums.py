"""Block sums of a stream of `worlds` by pane, computed independently of the product's counting: 400 weeks in minutes.

Rows have sums by block of users and by block of items, and of the variance that the scores themselves predict. Impressions are placed
among those of their hour: for pairs, by each version's scores of the same impressions; for splits, by what each arm served.
At a look within an hour the product has only that hour's labels so far; here all of them are used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.feed import Plan
from benchmarks.detection.worlds import DAY, HOUR, Stream
from streameval.compare.ledger.sums import log_odds_ratio, promised_variance
from streameval.sketches import blocks as cells
from streameval.sketches.accumulate import CURVE_BITS, measure
from streameval.sketches.blocks import BLOCKS, SCALE, BlockSums, blocks_of
from streameval.sketches.grid import PART_BITS, bin_count

BINS = bin_count(CURVE_BITS) << PART_BITS
Ints = NDArray[np.int64]
Reals = NDArray[np.float64]


@dataclass(frozen=True)
class WeekSums:
    """By pane of `pane` ms, of which the first begins at `begin`. Of a pair: rows oriented (baseline, candidate)."""

    begin: int
    pane: int
    users: BlockSums  # pair: [T + 1, 64, 8], [T + 1, 8], cumulative: of the panes before
    items: BlockSums  # the same with blocks of items
    served: Ints  # split: [T, 2, 64, 8], baseline and candidate, each pane's own
    served_items: Ints  # the same with blocks of items
    served_scalars: Ints  # [T, 2, 9], of which the first four count
    impressions: Ints  # [T] from the deploy on, including those left out, cumulative at the ends of panes


def capped(stream: Stream, most: int) -> NDArray[np.bool_]:
    """Which impressions are among a user's first `most` of a day."""
    _, user = np.unique(stream.user, return_inverse=True)
    day = stream.ts // DAY
    key = user * (int(day[-1] - day[0]) + 1) + (day - day[0])
    order = np.argsort(key, kind="stable")
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    number = np.arange(key.size) - np.repeat(first, np.diff(first, append=key.size))
    out = np.empty(key.size, np.bool_)
    out[order] = number < most
    return out


def week(stream: Stream, plan: Plan, pane: int, where: NDArray[np.bool_] | None = None) -> WeekSums:
    """The sums from the deploy on, of the impressions `where` (all)."""
    keep = stream.ts >= stream.deploy
    seen = stream.ts[keep]
    if where is not None:
        keep = keep & where
    begin = stream.deploy // HOUR * HOUR  # the hour of the deploy belongs to both
    count = (stream.end - begin) // pane
    ts, p, clicked = stream.ts[keep], stream.pclick[:, keep], stream.clicked[keep]
    keep_panes = (ts - begin) // pane < count
    ts, p, clicked = ts[keep_panes], p[:, keep_panes], clicked[keep_panes]
    label = clicked.astype(np.int8)
    row = np.arange(ts.size, dtype=np.int32)
    loss, bins = (np.stack(x) for x in zip(*(measure(p[m], row, label) for m in range(2)), strict=True))
    new = plan.serves(stream)[keep][keep_panes]
    paired = plan.setup == "paired"
    hour = (ts - begin) // HOUR
    phi = _placements(hour, bins, label, new, paired)
    at = (ts - begin) // pane
    user, item = blocks_of(stream.user[keep][keep_panes]), blocks_of(stream.item[keep][keep_panes])
    users, items = (
        BlockSums(
            np.zeros((count + 1, BLOCKS, cells.PAIR_CELLS), np.int64),
            np.zeros((count + 1, cells.PAIR_SCALARS), np.int64),
        )
        for _ in range(2)
    )
    served_scalars = np.zeros((count, 2, cells.PAIR_SCALARS), np.int64)
    served, served_items = np.zeros((2, count, 2, BLOCKS, cells.SERIES_CELLS), np.int64)
    if paired:
        for block, sums in ((user, users), (item, items)):
            _add_pairs(at + 1, block, label, p, loss, phi, sums.blocks, sums.scalars)
            for x in (sums.blocks, sums.scalars):
                np.cumsum(x, axis=0, out=x)
    else:
        for block, some in ((user, served), (item, served_items)):
            _add_served(at, block, label, new, p, loss, phi, some, served_scalars)
        served_scalars //= 2  # both have added to them
    ends = begin + pane * np.arange(1, count + 1)
    return WeekSums(begin, pane, users, items, served, served_items, served_scalars, np.searchsorted(seen, ends))


def _placements(
    hour: Ints, bins: NDArray[np.int16], label: NDArray[np.int8], new: NDArray[np.bool_], paired: bool
) -> Reals:
    """Every impression's placement [2, n] by each version's score; 0 in hours with only clicks, or without any."""
    phi = np.zeros(bins.shape)
    bounds = np.searchsorted(hour, np.arange(int(hour[-1]) + 2))
    for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        for m in range(2):
            among = np.flatnonzero(new[a:b] == m) + a if not paired else slice(a, b)
            counts = np.bincount(label[among].astype(np.int64) * BINS + bins[m, among], minlength=2 * BINS)
            counts = counts.reshape(2, BINS)
            if counts.sum(axis=1).min() > 0:
                phi[m, among] = _curve(counts.astype(np.float64))[label[among], bins[m, among]]
    return phi


def _curve(counts: Reals) -> Reals:
    """[2, BINS]: S1 less the AUC for non-clicks, F0 for clicks; ties by half."""
    no, yes = counts
    below = (np.cumsum(no) - no / 2) / no.sum()
    above = (yes.sum() - np.cumsum(yes) + yes / 2) / yes.sum()
    return np.stack((above - below @ yes / yes.sum(), below))


@numba.njit(inline="always")
def _fixed(x):  # type: ignore[no-untyped-def]
    return np.int64(np.rint(x * SCALE))


@numba.njit(cache=True)
def _add_pairs(at, block, label, p, loss, phi, sums, scalars):  # type: ignore[no-untyped-def]
    for i in range(at.size):
        t, g, y = at[i], block[i], label[i]
        d, f = loss[1, i] - loss[0, i], phi[1, i] - phi[0, i]
        own, other = cells.PAIR_PHI0 - y, cells.PAIR_PHI0_SQ - y
        sums[t, g, cells.PAIR_N] += 1
        sums[t, g, cells.PAIR_Y] += y
        sums[t, g, cells.D] += _fixed(d)
        sums[t, g, cells.PAIR_L] += _fixed(loss[0, i])
        sums[t, g, cells.PAIR_P] += _fixed(p[0, i])
        sums[t, g, cells.PAIR_P_OTHER] += _fixed(p[1, i])
        sums[t, g, own] += _fixed(f)
        scalars[t, cells.D_SQ] += _fixed(d * d)
        scalars[t, other] += _fixed(f * f)
        scalars[t, cells.SERVER_PHI0 - y] += _fixed(phi[0, i])
        scalars[t, cells.D_PROMISED] += _fixed(promised_variance(p[0, i], p[1, i], log_odds_ratio(p[0, i], p[1, i])))


@numba.njit(cache=True)
def _add_served(at, block, label, new, p, loss, phi, sums, scalars):  # type: ignore[no-untyped-def]
    for i in range(at.size):
        t, g, y, m = at[i], block[i], label[i], np.int64(new[i])
        sums[t, m, g, cells.N] += 1
        sums[t, m, g, cells.Y] += y
        sums[t, m, g, cells.P] += _fixed(p[m, i])
        sums[t, m, g, cells.L] += _fixed(loss[m, i])
        sums[t, m, g, cells.PHI0 - y] += _fixed(phi[m, i])
        scalars[t, m, cells.LOSS_SQ] += _fixed(loss[m, i] * loss[m, i])
        scalars[t, m, cells.LOSS_Y] += y * _fixed(loss[m, i])
        scalars[t, m, cells.PHI0_SQ - y] += _fixed(phi[m, i] * phi[m, i])

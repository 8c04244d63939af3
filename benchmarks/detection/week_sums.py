"""Block sums of a stream of `worlds` by pane, made here, apart from the product's counting: 400 weeks in minutes.

A pair's rows are made twice, with blocks of users and with blocks of items, and of the variance that the scores themselves
promise. Placements are by curves of the labels of closed hours since the deploy, in which both versions scored: of a pair each
version's own on the same impressions, of a split one of both arms. What comes before there are such curves is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.feed import Plan
from benchmarks.detection.worlds import DAY, HOUR, Stream
from streameval.sketches import blocks as cells
from streameval.sketches.accumulate import CLIP, CURVE_BITS, measure
from streameval.sketches.blocks import BLOCKS, SCALE, BlockSums, blocks_of
from streameval.sketches.grid import bin_count

BINS = bin_count(CURVE_BITS)
ENOUGH = 100  # clicks that curves are made of
LONGEST = 24  # hours of labels that they are made of
Ints = NDArray[np.int64]
Reals = NDArray[np.float64]


@dataclass(frozen=True)
class WeekSums:
    """By pane of `pane` ms, of which the first begins at `begin`. Of a pair: rows oriented (baseline, candidate)."""

    begin: int
    pane: int
    users: BlockSums  # pair: [T + 1, 64, 8], [T + 1, 8], cumulated: of the panes before
    items: BlockSums  # the same with blocks of items
    promised: Reals  # [T + 1] sum of p(1-p)(logit new - logit old)**2, p the larger one; nats**2
    served: Ints  # split: [T, 2, 64, 8], baseline and candidate, each pane's own
    impressions: Ints  # [T] from the deploy on, also of what is left out, cumulated at the ends of panes


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
    begin = stream.deploy // HOUR * HOUR  # an hour that the deploy cut is an hour of both
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
    phi, placed = _placements(hour, bins, label, new, paired)
    at = (ts - begin) // pane
    user, item = blocks_of(stream.user[keep][keep_panes]), blocks_of(stream.item[keep][keep_panes])
    users, items = (
        BlockSums(
            np.zeros((count + 1, BLOCKS, cells.PAIR_CELLS), np.int64),
            np.zeros((count + 1, cells.PAIR_SCALARS), np.int64),
        )
        for _ in range(2)
    )
    promised = np.zeros(count + 1)
    served = np.zeros((count, 2, BLOCKS, cells.SERIES_CELLS), np.int64)
    if paired:
        for block, sums in ((user, users), (item, items)):
            _add_pairs(at + 1, block, label, p, loss, phi, placed, sums.blocks, sums.scalars, promised)
            for x in (sums.blocks, sums.scalars):
                np.cumsum(x, axis=0, out=x)
        promised = promised.cumsum() / 2.0  # both have added to it
    else:
        _add_served(at, user, label, new, p, loss, phi, placed, served)
    ends = begin + pane * np.arange(1, count + 1)
    return WeekSums(begin, pane, users, items, promised, served, np.searchsorted(seen, ends))


def _placements(
    hour: Ints, bins: NDArray[np.int16], label: NDArray[np.int8], new: NDArray[np.bool_], paired: bool
) -> tuple[Reals, NDArray[np.bool_]]:
    """Every impression's placement [2, n] under either version's curves, and whether there are any [n]."""
    phi, placed = np.zeros(bins.shape), np.zeros(hour.size, np.bool_)
    bounds = np.searchsorted(hour, np.arange(int(hour[-1]) + 2))
    counts = np.zeros((bounds.size - 1, 2, 2, BINS))  # of every hour: version, label, bin
    for h, (a, b) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        day = counts[max(h - LONGEST, 0) : h].sum(axis=0)
        if min(day.sum(axis=2).min(axis=1)) >= ENOUGH:
            placed[a:b] = True
            for m in range(2):
                phi[m, a:b] = _curve(day[m])[label[a:b], bins[m, a:b]]
        for m in range(2):
            # of a split both versions have the curves of both arms, each arm's impressions by the score that served
            score = bins[m, a:b] if paired else np.where(new[a:b], bins[1, a:b], bins[0, a:b])
            counts[h, m] = np.bincount(label[a:b].astype(np.int64) * BINS + score, minlength=2 * BINS).reshape(2, BINS)
    return phi, placed


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
def _add_pairs(at, block, label, p, loss, phi, placed, sums, scalars, promised):  # type: ignore[no-untyped-def]
    for i in range(at.size):
        if not placed[i]:
            continue
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
        a, b = min(max(p[0, i], CLIP), 1.0 - CLIP), min(max(p[1, i], CLIP), 1.0 - CLIP)
        apart = np.log(b / (1.0 - b)) - np.log(a / (1.0 - a))
        most = max(a, b)
        promised[t] += most * (1.0 - most) * apart * apart


@numba.njit(cache=True)
def _add_served(at, block, label, new, p, loss, phi, placed, sums):  # type: ignore[no-untyped-def]
    for i in range(at.size):
        if not placed[i]:
            continue
        t, g, y, m = at[i], block[i], label[i], np.int64(new[i])
        sums[t, m, g, cells.N] += 1
        sums[t, m, g, cells.Y] += y
        sums[t, m, g, cells.P] += _fixed(p[m, i])
        sums[t, m, g, cells.L] += _fixed(loss[m, i])
        sums[t, m, g, cells.PHI0 - y] += _fixed(phi[m, i])

"""Sums by block of users, and by block of items: the input of standard errors and comparisons.

Users are hashed into G = 64 blocks, the same in every partition, process and version. A block's sums are plain int64
in fixed point with 30 fractional bits (a term is rounded to nearest, error 5e-10), so they merge, retract and
restart bit by bit like every sketch. Capacity: a term is below 16.2 (log loss of p clipped to 1e-7), so a cell
holds 5.3e8 terms at worst and 1e11 ordinary ones.

Three kinds of rows:

- of a version's scores ("series"): `SERIES_CELLS` a block, in the vector of every pane and window, for error bars;
- of a version that served ("served"): the same cells, by hour, for comparisons of users (split, before/after);
- of a pair on the same impressions ("pair"): `PAIR_CELLS` a block, by hour, for paired comparisons. The first of the
  pair served the impression, the other one only scored it.

Served and pair rows have the same cells again by block of items, over impressions with an item: impressions of one user
are correlated, and so are those of one item (`compare.ratio.two_way`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.directory import mix

BLOCKS = 64
_TOP_BITS = np.uint64(58)  # the bits of a hash from here on are its block, one of 64
SCALE = float(1 << 30)
OF_USERS, OF_ITEMS = range(2)  # which blocks a sum is by, for kernels that keep both
NO_ITEM = 64  # in place of an item's block
_SALT = np.uint64(0x5E77A1B10C5)  # makes blocks independent of the sample of users, which is taken by the same hash

# cells of a block, for one version: counts, then sums of reals
N, Y, P, L, SQUARED, ABSOLUTE, PHI1, PHI0 = range(8)
SERIES_CELLS = 8
# scalars behind the blocks, for variances between impressions
# LOSS_Y: log loss of the clicks. Where impressions have copies, LOSS_SQ and LOSS_Y are weighted by copies squared; they are
# followed by the sums of (copies squared - copies), of clicks and of others
LOSS_SQ, PHI1_SQ, PHI0_SQ, LOSS_Y, CLICKS_EXCESS, OTHERS_EXCESS = range(6)

# cells of a block, for a pair; D is the other version's log loss minus the serving version's, and PHI likewise
PAIR_N, PAIR_Y, D, PAIR_L, PAIR_P, PAIR_P_OTHER, PAIR_PHI1, PAIR_PHI0 = range(8)
PAIR_CELLS = 8
# scalars: squares of D and of PHI; then D with its ratio of pClicks clipped (strict mode), its square, how many were
# clipped; then the serving version's own PHI; then the variance of D that the scores predict
D_SQ, PAIR_PHI1_SQ, PAIR_PHI0_SQ, D_STRICT, D_STRICT_SQ, STRICT_CLIPPED, SERVER_PHI1, SERVER_PHI0, D_PROMISED = range(9)
PAIR_SCALARS = 9
# where impressions have copies, these replace the cells of strict mode, which does not support them: see `CLICKS_EXCESS`
PAIR_CLICKS_EXCESS, PAIR_OTHERS_EXCESS = STRICT_CLIPPED, D_STRICT_SQ

# cells of a block, for per-user AUC within tumbling windows: rows are (user, window) with both labels
G_W, G_WD = range(2)  # sum of w = impressions, sum of w * (the other version's AUC - the serving version's)
GAUC_CELLS = 2
# scalars: sums of (wD)^2, w * wD, w^2, the number of rows, and the sum of w * the serving version's AUC
G_WD_SQ, G_W_WD, G_W_SQ, G_ROWS, G_W_SERVER = range(5)
GAUC_SCALARS = 5
# and by item, behind everything else in a row: of single impressions of known items the sums of a^2, a * w and w^2, then by
# block of items those of w and a, all but w^2 in fixed point (see `compare.ledger.user_items`)
G_OF_ITEMS = 5
GAUC_ITEM_SCALARS = 3
GAUC_OF_ITEMS = GAUC_ITEM_SCALARS + BLOCKS * GAUC_CELLS


@numba.njit(inline="always")
def block_of(user: np.uint64) -> int:
    """The block of a user (64-bit hash of the id), 0 to 63."""
    return int(mix(user ^ _SALT) >> _TOP_BITS)


@numba.njit(cache=True, nogil=True)
def blocks_of(user: NDArray[np.uint64]) -> NDArray[np.int8]:
    """`block_of` of n users."""
    out = np.empty(user.size, np.int8)
    for i in range(user.size):
        out[i] = block_of(user[i])
    return out


@numba.njit(cache=True, nogil=True)
def item_blocks_of(item: NDArray[np.uint64]) -> NDArray[np.int8]:
    """The blocks of n items (64-bit hashes of ids), 0 to 63; `NO_ITEM` where the hash is 0: no id was given."""
    out = np.empty(item.size, np.int8)
    for i in range(item.size):
        out[i] = np.int64(mix(item[i] ^ _SALT) >> _TOP_BITS) if item[i] else NO_ITEM
    return out


@numba.njit(inline="always")
def fixed(x: float) -> int:
    """In fixed point."""
    return int(np.rint(x * SCALE))


@numba.njit(inline="always")
def add_counts(sums: NDArray[np.int64], r: int, at: int, p: int, loss: int, clicked: int, sign: int) -> None:
    """Adds a score to N, Y, P and L of a version's block, which begins at sums[r, at]; `p` and `loss` in fixed point."""
    sums[r, at + N] += sign
    sums[r, at + Y] += sign * clicked
    sums[r, at + P] += sign * p
    sums[r, at + L] += sign * loss


@numba.njit(inline="always")
def add_score(
    sums: NDArray[np.int64], r: int, at: int, p: int, loss: int, error: float, clicked: int, sign: int
) -> None:
    """As `add_counts`, and to the sums of its error, |p - label|: all cells but that of its placement."""
    add_counts(sums, r, at, p, loss, clicked, sign)
    sums[r, at + SQUARED] += sign * fixed(error * error)
    sums[r, at + ABSOLUTE] += sign * fixed(error)


@dataclass(frozen=True, slots=True, eq=False)
class BlockSums:
    """Rows of one kind, of any leading shape: `blocks` int64[..., G, cells], `scalars` int64[..., k], `items` as `blocks`
    (None: not counted); all fixed point but counts. All are additive: merge is `+`, retract is `-`.
    """

    blocks: NDArray[np.int64]
    scalars: NDArray[np.int64]
    items: NDArray[np.int64] | None = None

    def rows(self) -> NDArray[np.int64]:
        """The same as rows int64[..., width]: blocks, scalars, items."""
        by = (*self.scalars.shape[:-1], -1)
        parts = [self.blocks.reshape(by), self.scalars] + ([] if self.items is None else [self.items.reshape(by)])
        return np.concatenate(parts, axis=-1)

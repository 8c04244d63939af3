"""The value that two versions' own policies would have earned: from a pair's piece to a relative difference.

V = sum w v / sum w for each policy (self-normalised; Swaminathan and Joachims 2015), r = V_new / V_old, harm is 1 - r.
An impression adds r (w_new v / A_new - w_new / W_new - w_old v / A_old + w_old / W_old) to r, with A = sum w v and W =
sum w; hence the variance between blocks, and the one as if impressions were independent.

With a few heavy weights, neither is the sum normal nor can its error be estimated: evidence requires `FEWEST_EFFECTIVE`
effective samples of each policy's weights, and of its weighted values, and no weight above `MOST_OF_WEIGHTS` of their
sum. A policy's mean weight is 1 if the propensities are right, whatever the policy; if it is not, within its error,
nothing is reported.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from streameval.compare.evidence.paired import COVERED
from streameval.compare.evidence.ratio import Ints, Reals, Statistic, leverage, where_clustered
from streameval.compare.evidence.snips import FEWEST_EFFECTIVE, MOST_OF_WEIGHTS
from streameval.compare.ledger.policy import (
    L_CLASSES,
    L_ITEMS,
    L_MOMENTS,
    L_N,
    L_USERS,
    L_WEIGHT,
    L_WORTH,
    MOMENTS,
    POLICY_CELLS,
    TERMS,
)
from streameval.compare.ledger.snips import CLASS_BITS, E_UNIT, WEIGHT_CLASSES
from streameval.compare.ledger.wide_sums import REAL, SQUARE, reals, squares
from streameval.sketches.blocks import BLOCKS
from streameval.sketches.weight_classes import class_ends

_BEYOND, _LEAST_BLOCKS = 4.0, 30  # standard errors of the mean weight from 1; blocks needed to estimate that error
_OTHER = (2, 3, 0, 1)  # the terms with the versions swapped
_ROUNDED = 1e-3  # tolerated rounding of logged propensities


def turned(piece: Ints) -> Ints:
    """Converts a piece of (candidate served, baseline scored) to (baseline, candidate), int64[..., width]; its own
    inverse.
    """
    out = piece.copy()
    for side in (L_USERS, L_ITEMS):
        old, new = _cells(piece, side), _cells(out, side)
        for one in range(2):
            new[..., L_WEIGHT + one] = old[..., L_WEIGHT + 1 - one]
            at, of = L_WORTH + REAL * one, L_WORTH + REAL * (1 - one)
            new[..., at : at + REAL] = old[..., of : of + REAL]
    for number, (i, j) in enumerate(MOMENTS):
        a, b = sorted((_OTHER[i], _OTHER[j]))
        at, of = L_MOMENTS + SQUARE * number, L_MOMENTS + SQUARE * MOMENTS.index((a, b))
        out[..., at : at + SQUARE] = piece[..., of : of + SQUARE]
    first, second = L_CLASSES, L_CLASSES + WEIGHT_CLASSES
    out[..., first:second], out[..., second:] = piece[..., second:], piece[..., first:second]
    return out


def statistic(piece: Ints) -> Statistic:
    """From pieces int64[..., width]: the statistic, [...]. Where it is unreliable it has no blocks and no degrees of
    freedom.
    """
    users, items = _cells(piece, L_USERS), _cells(piece, L_ITEMS)
    by_user, slope = _relative(users)
    with np.errstate(invalid="ignore"):
        by_user = replace(by_user, v_iid=np.maximum(np.einsum("...i,...ij,...j", slope, _moments(piece), slope), 0.0))
    by_item = _relative(items)[0]
    covered = items[..., L_N].sum(axis=-1) >= COVERED * users[..., L_N].sum(axis=-1)
    found = where_clustered(covered, by_user, by_item)
    on = is_enough(piece) & ~is_inconsistent(piece)
    return replace(found, blocks=np.where(on, found.blocks, 0.0), df=np.where(on, found.df, 0.0))


def is_enough(piece: Ints) -> NDArray[np.bool_]:
    """Whether both policies have enough effective samples, and none of their weights is too large a share;
    bool[...].
    """
    totals, moments = _terms(_cells(piece, L_USERS)).sum(axis=-2), _moments(piece)
    out = np.ones(piece.shape[:-1], np.bool_)
    for term in range(TERMS):
        total = totals[..., term]
        out &= (total > 0.0) & (total * total >= FEWEST_EFFECTIVE * moments[..., term, term])
    for one in range(2):
        first = L_CLASSES + one * WEIGHT_CLASSES
        classes = piece[..., first : first + WEIGHT_CLASSES]
        last = WEIGHT_CLASSES - 1 - np.argmax(classes[..., ::-1] > 0, axis=-1)
        out &= class_ends(last, CLASS_BITS) <= MOST_OF_WEIGHTS * totals[..., 2 * one]
    return out


def is_inconsistent(piece: Ints) -> NDArray[np.bool_]:
    """Whether a policy's mean weight is further from 1 than chance explains: 4 standard errors between blocks of users;
    bool[...].
    """
    users = _cells(piece, L_USERS)
    n, out = users[..., L_N].astype(np.float64), np.zeros(piece.shape[:-1], np.bool_)
    some = (n > 0.0).sum(axis=-1) >= _LEAST_BLOCKS
    for one in range(2):
        w = users[..., L_WEIGHT + one] / E_UNIT
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = w.sum(axis=-1) / n.sum(axis=-1)
            left = (w.sum(axis=-1, keepdims=True) - w) / (n.sum(axis=-1, keepdims=True) - n) - mean[..., None]
            error = np.sqrt((BLOCKS - 1) / BLOCKS * (left * left).sum(axis=-1))
            total, square = w.sum(axis=-1), _moments(piece)[..., 2 * one, 2 * one]
            out |= some & (total * total >= FEWEST_EFFECTIVE * square) & (abs(mean - 1.0) > _BEYOND * error + _ROUNDED)
    return out


def levels(piece: Ints) -> tuple[float | None, float | None]:
    """Returns the value per impression under the policies of baseline and candidate, from a piece int64[width]; None:
    not known.
    """
    w0, a0, w1, a1 = _terms(_cells(piece, L_USERS)).sum(axis=0).tolist()
    return a0 / w0 if w0 > 0.0 else None, a1 / w1 if w1 > 0.0 else None


def reason(piece: Ints) -> str | None:
    """Returns why a piece gives no estimate; None if it does."""
    if not piece.any():
        return "no_policy"
    if bool(is_inconsistent(piece)):
        return "propensities_inconsistent"
    if not np.isfinite(statistic(piece).theta):
        return "no_values"
    return None if bool(is_enough(piece)) else "too_few_effective_samples"


def _cells(piece: Ints, side: int) -> Ints:
    return piece[..., side : side + BLOCKS * POLICY_CELLS].reshape(*piece.shape[:-1], BLOCKS, POLICY_CELLS)


def _terms(cells: Ints) -> Reals:
    """Returns weight and weighted value of the server, then of the other version, by block: float64[..., G, 4]."""
    sides = [(cells[..., L_WEIGHT + one] / E_UNIT, reals(cells, L_WORTH + REAL * one)) for one in range(2)]
    return np.stack([term for side in sides for term in side], axis=-1)


def _moments(piece: Ints) -> Reals:
    out = np.empty((*piece.shape[:-1], TERMS, TERMS))
    for number, (i, j) in enumerate(MOMENTS):
        out[..., i, j] = out[..., j, i] = squares(piece, L_MOMENTS + SQUARE * number)
    return out


def _relative(cells: Ints) -> tuple[Statistic, Reals]:
    """Returns the statistic in harm, and its derivative by each term, float64[..., 4]."""
    terms = _terms(cells)
    total = terms.sum(axis=-2)
    with np.errstate(divide="ignore", invalid="ignore"):
        known = total.min(axis=-1) > 0.0
        w0, a0, w1, a1 = (np.where(known, total[..., i], np.nan) for i in range(TERMS))
        r = (a1 / w1) / (a0 / w0)
        slope = r[..., None] * np.stack([-1.0 / w0, 1.0 / a0, 1.0 / w1, -1.0 / a1], axis=-1)  # of harm
        by_side = (terms * slope[..., None, :]).reshape(*terms.shape[:-1], 2, 2).sum(axis=-1)
        some = (cells[..., L_N] > 0).sum(axis=-1).astype(np.float64)
        shares = terms[..., (0, 2)]
        drawn = leverage(np.swapaxes(shares, -1, -2))  # each block is left out once: see `ratio`
        moved = (by_side * np.swapaxes(drawn, -1, -2)).sum(axis=-1)
        df = (shares.sum(axis=-2) ** 2 / (shares * shares).sum(axis=-2)).min(axis=-1) - 1.0
        enough = known & (some >= 2.0)
        out = Statistic(
            theta=np.where(enough, 1.0 - r, np.nan),
            weight=np.where(enough, w0, 0.0),
            v_clu=np.where(enough, (moved * moved).sum(axis=-1) * (some - 1.0) / some, np.nan),
            v_iid=np.where(enough, 0.0, np.nan),
            df=np.where(enough, df, 0.0),
            blocks=some,
        )
    return out, np.where(enough[..., None], slope, np.nan)

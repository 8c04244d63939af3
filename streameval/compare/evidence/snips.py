"""Log loss of two versions as if everything had been shown equally often: from a pair's piece to a relative difference.

theta = sum w (l_new - l_old) / sum w l_old with w = 1 / propensity: a ratio of sums by block (`ratio`), like the log
loss. The self-normalised estimates of both versions have the same sum of weights, which cancels. With a few heavy
weights, neither is the sum normal nor can its error be estimated: evidence requires `FEWEST_EFFECTIVE` samples, (sum
w)**2 / sum w**2, and no weight above `MOST_OF_WEIGHTS` of their sum. Counts by class of weight give an upper bound of
the largest weight that is too large by at most a quarter.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from streameval.compare.evidence.paired import COVERED
from streameval.compare.evidence.ratio import Ints, Reals, Statistic, ratio, where_clustered
from streameval.compare.ledger.snips import (
    CLASS_BITS,
    E_CLASSES,
    E_D,
    E_DD,
    E_DL,
    E_FIRST,
    E_ITEMS,
    E_LL,
    E_LOSS,
    E_PROMISED,
    E_REST,
    E_SCALARS,
    E_SQUARES,
    E_UNIT,
    E_USERS,
    E_WEIGHT,
    E_WW,
    SNIPS_CELLS,
)
from streameval.sketches.blocks import BLOCKS
from streameval.sketches.weight_classes import class_ends

FEWEST_EFFECTIVE = 200.0
MOST_OF_WEIGHTS = 0.05


def turned(piece: Ints) -> Ints:
    """Converts a piece of (candidate served, baseline scored) to (baseline, candidate), int64[..., width]; its own
    inverse.
    """
    out = piece.copy()
    for side in (E_USERS, E_ITEMS):
        cells = out[..., side : side + BLOCKS * SNIPS_CELLS].reshape(*out.shape[:-1], BLOCKS, SNIPS_CELLS)
        cells[..., E_LOSS] += cells[..., E_D]
        cells[..., E_D] *= -1
    squares = out[..., E_SCALARS + E_FIRST : E_SCALARS + E_FIRST + 2 * E_SQUARES].reshape(*out.shape[:-1], E_SQUARES, 2)
    dd, dl = squares[..., E_DD, :].copy(), squares[..., E_DL, :].copy()
    squares[..., E_LL, :] += 2 * dl + dd
    squares[..., E_DL, :] = -dl - dd
    return out


def statistic(piece: Ints) -> Statistic:
    """From pieces int64[..., width]: the statistic, [...]. Without enough effective samples it has no blocks and no
    degrees of freedom.
    """
    users, items = (_cells(piece, side) for side in (E_USERS, E_ITEMS))
    squares = _squares(piece)
    loss, d = users[..., E_LOSS] / E_UNIT, users[..., E_D] / E_UNIT
    by_user = ratio(d, loss, squares[..., E_DD], squares[..., E_DL], squares[..., E_LL])
    with np.errstate(divide="ignore", invalid="ignore"):
        total = loss.sum(axis=-1)
        promised = np.where(total > 0.0, squares[..., E_PROMISED] / (total * total), 0.0)
    by_user = replace(by_user, v_floor=promised)
    by_item = ratio(items[..., E_D] / E_UNIT, items[..., E_LOSS] / E_UNIT)
    covered = items[..., E_WEIGHT].sum(axis=-1) >= COVERED * users[..., E_WEIGHT].sum(axis=-1)
    found = where_clustered(covered, by_user, by_item)
    enough = is_enough(piece)
    return replace(found, blocks=np.where(enough, found.blocks, 0.0), df=np.where(enough, found.df, 0.0))


def is_enough(piece: Ints) -> NDArray[np.bool_]:
    """Whether there are enough effective samples, and no weight is too large a share; bool[...]."""
    total = _cells(piece, E_USERS)[..., E_WEIGHT].sum(axis=-1) / E_UNIT
    squares = _squares(piece)[..., E_WW]
    classes = piece[..., E_CLASSES:]
    last = classes.shape[-1] - 1 - np.argmax(classes[..., ::-1] > 0, axis=-1)
    largest = class_ends(last, CLASS_BITS)
    out: NDArray[np.bool_] = (
        (total > 0.0) & (total * total >= FEWEST_EFFECTIVE * squares) & (largest <= MOST_OF_WEIGHTS * total)
    )
    return out


def levels(piece: Ints) -> tuple[float | None, float | None]:
    """Returns the self-normalised log loss of baseline and candidate, from a piece int64[width]; None: nothing has a
    propensity.
    """
    weight, loss, d = (_cells(piece, E_USERS).sum(axis=0)[k] / E_UNIT for k in (E_WEIGHT, E_LOSS, E_D))
    return (float(loss / weight), float((loss + d) / weight)) if weight > 0.0 else (None, None)


def reason(piece: Ints) -> str | None:
    """Returns why a piece int64[width] gives no estimate; None if it does."""
    if not piece.any():
        return "no_propensities"
    return None if bool(is_enough(piece)) else "too_few_effective_samples"


def _cells(piece: Ints, side: int) -> Ints:
    return piece[..., side : side + BLOCKS * SNIPS_CELLS].reshape(*piece.shape[:-1], BLOCKS, SNIPS_CELLS)


def _squares(piece: Ints) -> Reals:
    cells = piece[..., E_SCALARS + E_FIRST : E_SCALARS + E_FIRST + 2 * E_SQUARES].reshape(
        *piece.shape[:-1], E_SQUARES, 2
    )
    out: Reals = cells[..., 0] + cells[..., 1] / E_REST
    return out

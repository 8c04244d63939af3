"""Leaving blocks out one by one: what each changes of a metric, and the variance which that makes (`errors` says why).

The jackknife of Efron and Tibshirani (1993, ch. 11). `compare.evidence.ratio` and `split` have it in closed form, as kernels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from streameval.metrics.metric import Cells


def rests(by_block: Cells, total: Cells) -> Cells:
    """Returns the cells without each block of [..., G, cells], and then all of them, [..., G + 1, cells]; `total` [..., cells]."""
    whole = total[..., None, :]
    return np.concatenate((whole - by_block, whole), axis=-2)


def changes(metric: Callable[[Cells], Cells], of: Cells) -> NDArray[np.float64]:
    """Returns the metric without a block less that with it, [..., G], of `rests`.

    Not finite where a block leaves nothing to tell a value from.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        values = metric(of)
        out: NDArray[np.float64] = values[..., :-1] - values[..., -1:]
    return out


def variance(changed: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns (G - 1) / G times the sum of their squares, [...]; NaN unless all of [..., G] are finite."""
    blocks = changed.shape[-1]
    squares = np.matmul(changed[..., None, :], changed[..., :, None])[..., 0, 0]
    out: NDArray[np.float64] = (blocks - 1) / blocks * squares
    return np.where(np.isfinite(out), out, np.nan)


def degrees_of_freedom(impressions: Cells, clicks: Cells, chance: Cells | None = None) -> NDArray[np.float64]:
    """Returns the effective number of blocks less one, [...], by their impressions or by their clicks, [..., G], whichever is smaller.

    With a few dominating users there are fewer than non-empty ones, and a user with few impressions may have many of the
    clicks, which carry most of an error. `chance` [...] is what independent clicks add to the sum of the squares: it is no
    user's; None: where every click counts once. NaN without impressions. `compare.evidence.split` has it as a kernel.
    """
    shown, clicked = impressions.astype(np.float64), clicks.astype(np.float64)
    n, y = shown.sum(axis=-1), clicked.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_chance = y - y * y / n if chance is None else chance
        squares = np.maximum((clicked * clicked).sum(axis=-1) - of_chance, 0.0)
        out: NDArray[np.float64] = np.maximum(np.fmin(n * n / (shown * shown).sum(axis=-1), y * y / squares) - 1.0, 0.0)
    return out

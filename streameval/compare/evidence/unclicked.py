"""An arm of a split that receives hardly any of its predicted clicks: a page that cannot be clicked, or clicks that are
not logged.

The floor of clicks exists because approximations need clicks. Such an arm never reaches it, so the worst deploy of all
would stay undecided forever. But the number of *expected* clicks is known, from its own pClick. If `FOR_A_CLICK` times
the floor were predicted and fewer than the floor arrived, the arm is evaluated by its calibration, as if one click had
arrived for every `FOR_A_CLICK` predicted. That is more than really arrived, so the true difference is at least the one
tested, and the evidence is not overstated. A calibrated arm with that many predicted clicks cannot by chance have only
1 / `FOR_A_CLICK` of them: 200 of 1,000 at the default floor. Log loss and AUC, which depend on clicks, are then
unknown.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streameval.compare.evidence.paired import GAP, MID
from streameval.compare.evidence.ratio import (
    DF,
    THETA,
    USED_BLOCKS,
    V_CLU,
    V_FLOOR,
    V_IID,
    WEIGHT,
    Ints,
    Reals,
    Statistics,
)
from streameval.compare.evidence.split import M_CLICKS, M_PREDICTED, OM, StrataSums
from streameval.metrics import left_out

FOR_A_CLICK = 5.0  # predicted clicks for each one assumed to have arrived

_Bools = NDArray[np.bool_]


def unclicked(clicks: Ints, promised: Reals, floor: int) -> _Bools:
    """Whether each arm is such a one, bool[...], by clicks that arrived and that were predicted, [...]."""
    out: _Bools = (clicks < floor) & (promised >= FOR_A_CLICK * floor)
    return out


def judged(clicks: Ints, promised: Reals, floor: int) -> Ints:
    """Returns the clicks as the floor counts them, int64[...]."""
    out: Ints = np.where(unclicked(clicks, promised, floor), promised // FOR_A_CLICK, clicks).astype(np.int64)
    return out


def statistics(found: Statistics, by_user: StrataSums, clicks: Ints, promised: Reals, floor: int) -> Statistics:
    """Returns `split.statistics` [1, J] with calibration alone in windows with such an arm; `clicks` and `promised` [J,
    2] of the arms.
    """
    on = unclicked(clicks, promised, floor)
    if not on.any():
        return found
    packed = found.packed.copy()
    for j in np.flatnonzero(on.any(axis=1)).tolist():
        packed[:, 0, j, V_CLU : V_IID + 1] = np.nan
        if not (on[j] | (by_user.totals[0, j, :, M_CLICKS] > 0)).all():
            continue  # the other arm has no click either, and has not predicted enough for a verdict
        many = np.where(on[j], promised[j] / FOR_A_CLICK, np.maximum(clicks[j], 1))
        for name, theta, fields in _calibration(by_user.totals[0, j], by_user.devs[0, j], on[j], many):
            packed[found.names.index(name), 0, j] = 0.0
            packed[found.names.index(name), 0, j, [THETA, WEIGHT, V_CLU, V_IID, DF, USED_BLOCKS, V_FLOOR]] = (
                theta,
                *fields,
            )
    return Statistics(found.names, packed)


def _calibration(totals: Reals, devs: Reals, on: _Bools, many: Reals) -> list[tuple[str, float, tuple[float, ...]]]:
    """Returns (statistic, theta, its other fields) for one window: totals float64[2, 8], devs float64[2, 6, G]; `many`:
    clicks of the arms.
    """
    predicted = totals[:, M_PREDICTED]
    came = np.where(on, predicted / FOR_A_CLICK, totals[:, M_CLICKS])
    over = predicted / came
    moved = over[:, None] * (devs[:, M_PREDICTED] / predicted[:, None] - devs[:, M_CLICKS] / came[:, None])
    share = devs[:, OM]
    blocks = (share > 0.0).sum(axis=1)
    v = (moved * moved).sum(axis=1) * blocks / np.maximum(blocks - 1.0, 1.0)
    v = np.maximum(v, over * over / many)  # at least the variance of independent clicks
    clicked = np.where(on[:, None], 0.0, devs[:, M_CLICKS] + totals[:, None, M_CLICKS] / totals[:, None, OM] * share)
    df = left_out.degrees_of_freedom(share, clicked, came * came / many)
    welch = v.sum() ** 2 / (v * v / np.maximum(df, 1e-9)).sum()
    weight = many.prod() / many.sum()
    fields = tuple(map(float, (weight, v.sum(), 0.0, welch, blocks.min(), 0.0)))
    return [(MID, float(over.sum() - 2.0), fields), (GAP, float(over[1] - over[0]), fields)]

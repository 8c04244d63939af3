"""Standard errors: those of user blocks against the metric's true variation, for levels and for paired differences.

The days' shocks are part of what a level measures, not of its error, so all runs share one path of shocks, and the truth is the mean
over runs. A level is that of one version on all traffic; differences are paired.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from benchmarks.detection.world import DAY, SCENARIOS, World, warm
from streameval.compare.evidence import before_after, paired
from streameval.metrics import left_out
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BlockSums

SPANS = {"1 hour": 60, "1 day": DAY, "7 days": 7 * DAY}


@dataclass(frozen=True)
class Calibrated:
    """Mean block standard error over the empirical one, and the coverage of 95% intervals (t of the blocks)."""

    runs: int
    ratio: float
    coverage: float


def one(
    seed: int, scenario: str = "AUC -0.005", first_hour: int = 12
) -> dict[tuple[str, str], tuple[float, float, float]]:
    """(metric, span) -> estimate, standard error, degrees of freedom; one hour is one at noon."""
    world = World(seed, shocks=1)
    candidate = SCENARIOS[scenario]
    warm(world, candidate)
    out: dict[tuple[str, str], tuple[float, float, float]] = {}
    pair = BlockSums(np.zeros((64, 8), np.int64), np.zeros(cells.PAIR_SCALARS, np.int64))
    gauc = BlockSums(np.zeros((64, 2), np.int64), np.zeros(cells.GAUC_SCALARS, np.int64))
    served = np.zeros((64, 8), np.int64)
    for day in range(7):
        minutes, _ = world.day(day, candidate, rows=(0,))
        hour = slice(60 * first_hour, 60 * first_hour + 60)
        for span, part in (("1 hour", hour), ("1 day", slice(None))):
            if day == 0:
                _read(
                    out,
                    span,
                    _sum(minutes.pair, part),
                    _sum(minutes.gauc, part),
                    minutes.served.blocks[0, part].sum(axis=0),
                )
        whole = slice(None)
        pair, gauc = _plus(pair, _sum(minutes.pair, whole)), _plus(gauc, _sum(minutes.gauc, whole))
        served = served + minutes.served.blocks[0].sum(axis=0)
    _read(out, "7 days", pair, gauc, served)
    return out


def _read(
    out: dict[tuple[str, str], tuple[float, float, float]],
    span: str,
    pair: BlockSums,
    gauc: BlockSums,
    served: np.ndarray,
) -> None:
    for name, s in paired.statistics(pair, gauc).items():
        out[f"{name}, paired", span] = (float(s.theta), float(s.stderr()), float(s.df))
    n = served[:, cells.N].astype(float)
    loss = served[:, cells.L] / cells.SCALE
    mean = loss.sum() / n.sum()
    # its log loss is relative to one base rate, so it is normalised entropy
    levels = {kind.replace("log_loss", "ne"): before_after.levels(kind, served) for kind in before_after.LEVEL_KINDS}
    df = left_out.degrees_of_freedom(n, served[:, cells.Y])
    moved = (loss.sum() - loss) / (n.sum() - n) - mean
    levels["log loss"] = before_after.Level(np.array(mean), moved, df)
    for name, level in levels.items():
        out[f"{name}, level", span] = (float(level.value), float(np.sqrt(level.variance())), float(df))


def calibrated(runs: list[dict[tuple[str, str], tuple[float, float, float]]]) -> dict[tuple[str, str], Calibrated]:
    """Calibration of errors over runs."""
    out = {}
    for key in runs[0]:
        estimate, error, df = np.array([r[key] for r in runs]).T
        truth, count = estimate.mean(), len(runs)
        inside = np.abs(estimate - truth) <= stats.t.isf(0.025, df) * error * np.sqrt(1 - 1 / count)
        out[key] = Calibrated(count, float(error.mean() / estimate.std(ddof=1)), float(inside.mean()))
    return out


def _sum(sums: BlockSums, part: slice) -> BlockSums:
    return BlockSums(sums.blocks[part].sum(axis=0), sums.scalars[part].sum(axis=0))


def _plus(a: BlockSums, b: BlockSums) -> BlockSums:
    return BlockSums(a.blocks + b.blocks, a.scalars + b.scalars)

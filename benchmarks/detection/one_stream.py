"""Before/after: what the deploy's week says against the week before, with the days' own noise measured on four weeks of history."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.world import BASELINE, SCENARIOS, Minutes, World, warm
from streameval.compare import before_after
from streameval.compare.before_after import Level
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE

HISTORY = 28
TAU = {"ne": 0.005, "auc": 0.005, "calibration": 0.05, "yardstick log_loss": 0.005, "yardstick auc": 0.005}
DEAD_BAND = 0.1
HOURS = 7 * 24


@dataclass(frozen=True)
class Weeks:
    """By hour: served rows of history (old) and of the deploy's week (old, new), pair rows of (old or new, an online model)."""

    history: NDArray[np.int64]  # [28 * 24, 64, 8]
    after: NDArray[np.int64]  # [168, 64, 8]
    history_pair: NDArray[np.int64]
    after_pair: NDArray[np.int64]


def weeks(seed: int, scenarios: tuple[str, ...]) -> dict[str, Weeks]:
    """One history, and then the deploy's week of each scenario. The world's old version plays the online yardstick, its new
    one the stream's version: as good as the old one in the history, the scenario's afterwards.
    """
    world = World(seed)
    warm(world, BASELINE)
    history = [_hours(world.day(day, BASELINE, rows=(1,))[0]) for day in range(HISTORY)]
    out = {}
    for scenario in scenarios:
        future = copy.deepcopy(world)
        after = [_hours(future.day(HISTORY + day, SCENARIOS[scenario], rows=(1,))[0]) for day in range(7)]
        served, pair = (np.concatenate([h[i] for h in history]) for i in range(2))
        out[scenario] = Weeks(
            served, np.concatenate([a[0] for a in after]), pair, np.concatenate([a[1] for a in after])
        )
    return out


def _hours(minutes: Minutes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return tuple(x.reshape(24, 60, 64, 8).sum(axis=1) for x in (minutes.served.blocks[1], minutes.pair.blocks))  # type: ignore[return-value]


def log_es(data: Weeks, naive: bool = False) -> dict[str, NDArray[np.float64]]:
    """Metric -> log e by hour of the deploy's week [168]; naive: log of nothing, but z without the days' noise."""
    out = {}
    elapsed = np.arange(1, HOURS + 1) / 24.0
    hours = np.minimum(np.arange(HOURS), 23)
    for name, tau in TAU.items():
        yard = name.startswith("yardstick")
        history, after = (data.history_pair, data.after_pair) if yard else (data.history, data.after)

        def level(rows: NDArray[np.int64], name: str = name, yard: bool = yard) -> Level:
            if yard:
                # the pair's server is the yardstick here: the harm of the other one is the negative
                found = before_after.yardstick(name.removeprefix("yardstick "), rows)  # type: ignore[arg-type]
                return Level(-found.value, -found.devs)
            return before_after.levels(name, rows)  # type: ignore[arg-type]

        placebo = level(history.reshape(HISTORY, 24, 64, 8).cumsum(axis=1)).value[:, hours]
        change = before_after.shift(
            level(history[-HOURS:].cumsum(axis=0)), level(after.cumsum(axis=0)), placebo, elapsed
        )
        if naive:
            z = change.theta / np.sqrt(change.sampling)
            out[name] = np.abs(z) if name == "calibration" else z
        elif name == "calibration":
            out[name] = before_after.log_e_either(change, tau, np.log1p(DEAD_BAND))
        else:
            out[name] = before_after.log_e(change, tau)
    if naive:
        raw_after, raw_before = (
            rows[..., cells.L].cumsum(axis=0)
            / SCALE
            / np.maximum(rows[..., cells.N].cumsum(axis=0).sum(axis=-1, keepdims=True), 1)
            for rows in (data.after, data.history[-HOURS:])
        )
        n = data.after[..., cells.N].cumsum(axis=0)
        share = n / n.sum(axis=-1, keepdims=True)
        devs = (raw_after - raw_after.sum(axis=-1, keepdims=True) * share) - (
            raw_before - raw_before.sum(axis=-1, keepdims=True) * share
        )
        out["raw log loss"] = (raw_after - raw_before).sum(axis=-1) / np.sqrt(64 / 63 * (devs**2).sum(axis=-1))
    return out


def impressions(data: Weeks) -> NDArray[np.int64]:
    """Of the deploy's week, by hour, cumulated [168]."""
    out: NDArray[np.int64] = data.after[..., cells.N].sum(axis=-1).cumsum()
    return out

"""Before/after: the deploy's week against the week before, with the noise between days measured on four weeks of history."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.world import BASELINE, SCENARIOS, Minutes, World, warm
from streameval.compare.evidence import before_after
from streameval.compare.evidence.before_after import Level, LevelKind, Shift
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE

Rows = NDArray[np.int64]
HISTORY = 28
TAU = {"ne": 0.005, "auc": 0.005, "calibration": 0.05, "yardstick log_loss": 0.005, "yardstick auc": 0.005}
KINDS: dict[str, LevelKind] = {
    "ne": "log_loss",
    "auc": "auc",
    "calibration": "calibration",
    "yardstick log_loss": "log_loss",
    "yardstick auc": "auc",
}
MARGIN = 0.001
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
    """One history, and then the deploy's week of each scenario. The world's old version serves as the online reference model, its
    new one as the stream's version: as good as the old one in the history, the scenario's afterwards.
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
    return tuple(x.reshape(24, 60, 64, 8).sum(axis=1) for x in (minutes.served.blocks[1], minutes.pair.blocks))


def log_es(data: Weeks, naive: bool = False) -> dict[str, NDArray[np.float64]]:
    """Metric -> log e by hour of the deploy's week [168]; `naive`: z without the noise between days instead."""
    out = {}
    elapsed = np.arange(1, HOURS + 1) / 24.0
    hours = np.minimum(np.arange(HOURS), 23)
    last = data.history[-HOURS:].sum(axis=(0, 1))
    entropy = before_after.entropy_per_click(float(last[cells.N]), float(last[cells.Y]))
    for name, tau in TAU.items():
        yard, kind = name.startswith("yardstick"), KINDS[name]
        history, after = (data.history_pair, data.after_pair) if yard else (data.history, data.after)

        def levels(kind: LevelKind, yard: bool = yard, history: Rows = history, after: Rows = after) -> list[Level]:
            """Levels of the week before, of the deploy's week, and of the placebo days, by hour."""
            unit = entropy if kind == "log_loss" else 1.0
            days = history.reshape(HISTORY, 24, 64, 8).cumsum(axis=1)
            found = []
            for rows in (history[-HOURS:].cumsum(axis=0), after.cumsum(axis=0), days):
                if yard:  # the pair's serving version is the reference model here, so the sign of the harm is reversed
                    found.append(-before_after.yardstick("auc" if kind == "auc" else "log_loss", rows).over(unit))
                else:
                    found.append(before_after.levels(kind, rows).over(unit))
            return found

        def shift(kind: LevelKind, sign: int = 1) -> Shift:
            before, now, days = levels(kind)
            return before_after.shift(before if sign > 0 else -before, now, days.value[:, hours], elapsed)

        change = shift(kind)
        if naive:
            z = change.theta / np.sqrt(change.sampling)
            out[name] = np.abs(z) if name == "calibration" else z
        elif name == "calibration":
            mid, pclick = shift(kind, -1), shift("mean_pclick")
            out[name] = before_after.log_e_calibration(change, mid, pclick, tau, DEAD_BAND)
        else:
            out[name] = change.log_e(tau, MARGIN)
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
    """Impressions of the deploy's week, by hour, cumulative [168]."""
    out: NDArray[np.int64] = data.after[..., cells.N].sum(axis=-1).cumsum()
    return out

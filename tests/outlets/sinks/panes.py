"""Snapshots with panes and a verdict, and what a sink must hold of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from streameval.compare.reading.reading import VerdictChange
from streameval.events.batch import Series
from streameval.results.snapshot import PaneColumns, Snapshot, empty_snapshot
from tests.comparisons import NOON, comparison

PANE = 60_000
V1, V2 = Series("ads", "v1", "logged"), Series("ads", "v2", "logged")


def columns(starts: list[int], seed: int) -> PaneColumns:
    rng = np.random.default_rng(seed)
    n = len(starts)
    metrics = {"auc": rng.uniform(0.5, 1, n), "log_loss": np.where(np.arange(n) % 3 == 0, np.nan, rng.uniform(0, 1, n))}
    counts = rng.integers(1, 1000, (3, n))
    stderrs = {"auc": rng.uniform(0, 0.1, n)}
    return PaneColumns(np.array(starts, np.int64), *counts, metrics=metrics, reasons=[{}] * n, stderrs=stderrs)


def snapshot(panes: int = 4, seed: int = 1, first: int = 0, **changes: Any) -> Snapshot:
    starts = [NOON + i * PANE for i in range(first, first + panes)]
    told = (VerdictChange(NOON + PANE, "verdict", "worse", "undecided -> worse", {"log_e_worse": 9.0}),)
    base: dict[str, Any] = {
        "number": 1, "whole": True, "panes": {V1: columns(starts, seed), V2: columns(starts[1:], seed + 1)}, "pane": PANE,
        "comparisons": (comparison(changes=told),),
    }  # fmt: skip
    return replace(empty_snapshot(0.0), **{**base, **changes})


def corrected(before: Snapshot, index: int) -> Snapshot:
    """A late click has changed a pane of v1."""
    old = before.panes[V1]
    auc = old.metrics["auc"].copy()
    auc[index] = np.nextafter(auc[index], 2.0)
    new = replace(old, metrics={**old.metrics, "auc": auc})
    return replace(before, number=before.number + 1, panes={**before.panes, V1: new})


def expected(of: Snapshot) -> dict[tuple[int, str], tuple[int, float, float | None]]:
    out = {}
    for series, c in of.panes.items():
        for i, start in enumerate(c.start.tolist()):
            loss = float(c.metrics["log_loss"][i])
            out[start, series.version] = (
                int(c.impressions[i]), float(c.metrics["auc"][i]), None if np.isnan(loss) else loss,
            )  # fmt: skip
    return out


def _ms(value: Any) -> int:
    return round(value.timestamp() * 1000)


def held(rows: list[dict[str, Any]]) -> dict[tuple[int, str], tuple[int, float, float | None]]:
    """Fails when a row is there twice."""
    out: dict[tuple[int, str], tuple[int, float, float | None]] = {}
    for row in rows:
        start = row["pane_start"]
        if isinstance(start, str):  # SQLite has no times
            start = np.datetime64(start).astype("datetime64[ms]").astype(int)
        key = (int(start) if not hasattr(start, "timestamp") else _ms(start), row["version"])
        assert key not in out, key
        out[key] = (row["impressions"], row["auc"], row["log_loss"])
    return out


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240  # on a slow machine
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)

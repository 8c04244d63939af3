"""Seeded logs with propensities, as JSON events, and what a pipeline reports of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sources.formats.decode import Decoder
from streameval.testing import ManualClock, readers_see

T0 = 1_700_000_000_000


def make_settings(**more: Any) -> Settings:
    join = {"attribution_window": "60s", "allowed_lateness": "30s", "correction_horizon": "4h"}
    return Settings.model_validate(
        {"join": join, "windows": {"pane": "1m", "sliding": ["5m"]}, "metrics": {"value": True}, **more}
    )


def log(n: int, seed: int = 7) -> list[dict[str, Any]]:
    """n impressions with ties in scores, heavy and tiny propensities, some missing; clicks with values, some twice."""
    rng = np.random.default_rng(seed)
    p = np.round(rng.beta(1, 6, n), 2)
    missing = rng.random(n) < 0.2
    propensity = np.where(rng.random(n) < 0.02, 10 ** rng.uniform(-7, -4, n), 10 ** rng.uniform(-3, 0, n))
    clicked = rng.random(n) < 0.15
    out = []
    for i in range(n):
        event = {
            "impression_id": f"i{i}", "ts": T0 + 25 * i, "user_id": f"u{rng.integers(900)}", "pclick": float(p[i]),
            "model_version": "v1", "predictions": {"v2": float(np.round(p[i] ** 1.3, 2))},
            "policies": {"v2": float(np.round(rng.random(), 3)), "never": float(rng.integers(2))},
        }  # fmt: skip
        if rng.random() < 0.1:
            del event["policies"]
        if not missing[i]:
            event["propensity"] = float(propensity[i])
        out.append(event)
        if clicked[i]:
            for again in range(1 + (rng.random() < 0.1)):
                value = round(float(rng.gamma(2, 20)), 2)
                ts = T0 + 25 * i + 500 + again
                out.append(
                    {"type": "click", "impression_id": f"i{i}", "ts": ts, "user_id": event["user_id"], "value": value}
                )
    return out


def pipeline_of(events: list[dict[str, Any]], settings: Settings, size: int = 5000) -> Pipeline:
    pipeline = Pipeline(settings, ManualClock(T0 / 1000 + 100_000))
    decoder = Decoder(pipeline.catalog, clock=lambda: T0 + 100_000_000, max_future=0)
    for start in range(0, len(events), size):
        values = [json.dumps(event).encode() for event in events[start : start + size]]
        batch, letters = decoder.messages(
            values, [0] * len(values), topic=("t",), partition=0, offsets=range(len(values)), format="json", shared=True
        )
        assert not letters
        pipeline.take(batch)
    pipeline.finish()
    return pipeline


def results(events: list[dict[str, Any]], settings: Settings, size: int = 5000) -> dict[str, dict[str, Any]]:
    """By version, of the whole run."""
    report = readers_see(pipeline_of(events, settings, size)).report()
    return {r["version"]: r for r in report["results"] if r["window"] == "all" and r["slice"] is None}

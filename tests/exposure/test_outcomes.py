"""Propensities estimated from a slice that was shown at random: by the hour, whatever the batches and restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sources.formats.decode import Decoder
from streameval.store import container
from streameval.testing import ManualClock, readers_see
from tests.exposure.worlds import T0, make_settings

HOUR = 3_600_000
TRUE = np.array([0.2, 0.8])  # of being shown, without and with a click to come


def config() -> Settings:
    return make_settings(
        slices={"dimensions": ["policy"]}, exposure={"propensity": "naive_bayes", "randomised": "policy:random"}
    )


def traffic(n: int = 12_000, hours: float = 3.0, seed: int = 3) -> list[dict[str, Any]]:
    """Pairs with a click rate of 10%: a tenth shown at random, the others by their outcome."""
    rng = np.random.default_rng(seed)
    out: list[dict[str, Any]] = []
    start = T0 // HOUR * HOUR
    for i in range(n):
        known = rng.normal(-2.4, 0.8)
        clicked = int(rng.random() < 1 / (1 + np.exp(-known)))
        at_random = rng.random() < 0.15
        if not at_random and rng.random() > TRUE[clicked]:
            continue
        ts = start + int(hours * HOUR * i / n)
        event = {
            "impression_id": f"i{i}", "ts": ts, "user_id": f"u{rng.integers(800)}", "pclick": float(1 / (1 + np.exp(-known))),
            "model_version": "v1", "slices": {"policy": "random" if at_random else "chosen"},
        }  # fmt: skip
        out.append(event)
        if clicked:
            click = {"type": "click", "impression_id": f"i{i}", "ts": ts + 900, "user_id": event["user_id"]}
            out.append(click)
    return sorted(out, key=lambda event: event["ts"])


class Process:
    def __init__(self) -> None:
        self.pipeline = Pipeline(config(), ManualClock(T0 / 1000 + 100_000))
        self.decoder = Decoder(self.pipeline.catalog, clock=lambda: T0 + 100_000_000, max_future=0)

    def take(self, events: list[dict[str, Any]]) -> None:
        values = [json.dumps(event).encode() for event in events]
        batch, letters = self.decoder.messages(
            values, [0] * len(values), topic=("t",), partition=0, offsets=range(len(values)), format="json", shared=True
        )
        assert not letters
        self.pipeline.take(batch)

    def end(self) -> dict[str, Any]:
        self.pipeline.finish()
        return readers_see(self.pipeline).report()


def run(events: list[dict[str, Any]], size: int) -> dict[str, Any]:
    process = Process()
    for start in range(0, len(events), size):
        process.take(events[start : start + size])
    return process.end()


def whole(report: dict[str, Any]) -> dict[str, Any]:
    return next(r for r in report["results"] if r["window"] == "all" and r["slice"] is None)


def brute_force(events: list[dict[str, Any]], late: list[dict[str, Any]] = []) -> tuple[float, float, float]:  # noqa: B006
    """(impressions that weigh, SNIPS of the absolute error, that error of what was shown at random); tables do not know
    of `late` clicks, which correct labels later."""
    on_time = {e["impression_id"] for e in events if e.get("type") == "click"}
    clicked = on_time | {e["impression_id"] for e in late}
    shown = [e for e in events if e.get("type") != "click"]
    hour = np.array([e["ts"] // HOUR for e in shown])
    hour -= hour.min()
    label, due = (np.array([int(e["impression_id"] in some) for e in shown]) for some in (clicked, on_time))
    random = np.array([e["slices"]["policy"] == "random" for e in shown])
    error = np.abs(np.array([e["pclick"] for e in shown]) - label)
    above = below = n = 0.0
    for h in (1, 2):
        chosen, drawn = (np.bincount(due[(hour < h) & (random == kind)], minlength=2) for kind in (False, True))
        relative = (chosen / chosen.sum()) / (drawn / drawn.sum())
        mine = (hour == h) & ~random
        weight = 1 / (relative / relative.max())[label[mine]]
        above, below, n = above + (weight * error[mine]).sum(), below + weight.sum(), n + mine.sum()
    return n, above / below, error[random].mean()


def test_the_weights_of_an_hour_are_naive_bayes_of_the_hours_before() -> None:
    events = traffic()
    found = whole(run(events, 5_000))
    n, snips, truth = brute_force(events)
    assert found["with_propensity"] == n > 1_500
    assert found["mae_snips"] == pytest.approx(snips, rel=1e-4)  # pairs are a whole number
    # what was shown at random is the truth
    assert abs(found["mae"] - truth) > 0.03
    assert abs(found["mae_snips"] - truth) < 0.015
    assert found["reasons"]["policy_snips"] == "no_policy"


@pytest.mark.slow
def test_batches_and_order_within_the_lateness_change_no_bit() -> None:
    events = traffic(6_000)
    expected = run(events, 100_000)
    assert run(events, 137) == expected
    rng = np.random.default_rng(1)
    arrival = np.array([event["ts"] for event in events]) + rng.integers(0, 25_000, len(events))
    shuffled = [events[i] for i in np.argsort(arrival, kind="stable")]
    assert whole(run(shuffled, 500))["log_loss_snips"] == whole(expected)["log_loss_snips"]
    assert whole(run(shuffled, 500))["exposure_ess"] == whole(expected)["exposure_ess"]


@pytest.mark.parametrize("at_once", [False, True])
def test_corrections_come_with_the_weights_of_their_hour(at_once: bool) -> None:
    events = traffic(9_000)
    late = [event for event in events if event.get("type") == "click" and event["ts"] % 7 == 0]
    on_time = [event for event in events if event not in late]
    process = Process()
    split = next(i for i, event in enumerate(on_time) if event["ts"] > events[-1]["ts"] - 1_000)
    parts = [on_time[:split], late, on_time[split:]]
    for part in [[*parts[0], *parts[1], *parts[2]]] if at_once else parts:
        process.take(part)
    found = process.end()
    assert found["events"]["corrected"] > 20
    n, snips, _ = brute_force(on_time, late)
    mine = whole(found)
    assert mine["with_propensity"] == n
    assert mine["mae_snips"] == pytest.approx(snips, rel=1e-4)


@pytest.mark.slow
def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    events = traffic(6_000)
    expected = run(events, 100_000)
    half = len(events) // 2
    first, second = Process(), Process()
    first.take(events[:half])
    state = first.pipeline.partition_state(0)
    assert state is not None
    container.write(tmp_path / "checkpoint", state)
    second.pipeline.catalog.value_code(0, "other")  # codes differ
    second.pipeline.restore_partition(0, container.read(tmp_path / "checkpoint"))
    second.take(events[half:])
    assert second.end()["results"] == expected["results"]

"""Deploys and comparisons built by hand, for the tests of what people see."""

from __future__ import annotations

from typing import Any

import numpy as np

from streameval.compare.reading.reading import (
    CalibrationBucket,
    Comparison,
    DecidedOn,
    Deploy,
    EarlyReading,
    Estimate,
    Finding,
    Looks,
    MetricReading,
    Mix,
    Verdict,
    VerdictChange,
)
from streameval.events.batch import Series

NOON = 1_714_564_800_000  # 2024-05-01T12:00:00Z
MINUTE = 60_000


def deploy(number: int = 2, version: str = "v2", **changes: Any) -> Deploy:
    """The deploy of a version, `number` hours after 10:00."""
    base: dict[str, Any] = {
        "id": str(number), "model": "default", "version": version, "replaces": "v1", "at": NOON + (number - 2) * 3_600_000,
        "kind": "deploy", "noticed": NOON + (number - 2) * 3_600_000 + MINUTE,
    }  # fmt: skip
    return Deploy(**{**base, **changes})


def reading(metric: str = "auc", verdict: Verdict = "worse", **changes: Any) -> MetricReading:
    """One metric: clearly worse, clearly not, or not known yet."""
    sign = -1 if metric in ("auc", "gauc") else 1
    size, log_e = {"worse": (0.012, 9.5), "not_worse": (0.0001, -3.0), "undecided": (0.003, 1.25)}[verdict]
    value = sign * size
    base: dict[str, Any] = {
        "metric": metric, "baseline": 0.75, "candidate": 0.75 + value, "difference": value, "lower": value - 0.004,
        "upper": value + 0.004, "stderr": 0.001, "margin": 0.002, "tolerance": 0.005, "log_e_worse": log_e,
        "log_e_not_worse": -log_e, "p_worse": min(1.0, float(np.exp(-log_e))), "verdict": verdict,
    }  # fmt: skip
    return MetricReading(**{**base, **changes})


def unknown(metric: str, reason: str = "not_compared_in_this_setup") -> MetricReading:
    """A metric that nothing is known about."""
    nothing = dict.fromkeys(("baseline", "candidate", "difference", "lower", "upper", "stderr"))
    return reading(metric, "undecided", log_e_worse=0.0, log_e_not_worse=0.0, p_worse=1.0, reason=reason, **nothing)


def looks(count: int = 3) -> Looks:
    """So many looks, the first before anything is known."""
    at = NOON + MINUTE * np.arange(count, dtype=np.int64)
    value = np.linspace(-0.001, -0.012, count)
    value[0] = np.nan
    columns = {"difference": value, "lower": value - 0.004, "upper": value + 0.004, "log_e": np.linspace(0, 9.5, count)}
    seen = 1000 * np.arange(count, dtype=np.int64)
    return Looks(at, seen, np.linspace(0, 9.5, count), {"auc": columns}, seen // 50)


def decided(verdict: Verdict) -> dict[str, Any]:
    """What a verdict fell on three minutes after noon, and that it still holds."""
    if verdict == "undecided":
        return {}
    then, now = {
        "worse": (Estimate(-0.018, -0.026, -0.01), Estimate(-0.012, -0.016, -0.008)),
        "not_worse": (Estimate(0.0, -0.0045, 0.0045), Estimate(-0.0001, -0.0041, 0.0039)),
    }[verdict]
    on = DecidedOn("auc", then, NOON, alone=True)
    return {"decided_at": NOON + 3 * MINUTE, "decided_on": on, "decided_now": now, "supported_now": True}


def comparison(verdict: Verdict = "worse", setup: str = "paired", number: int = 2, **changes: Any) -> Comparison:
    """v2 against v1, everything filled."""
    base: dict[str, Any] = {
        "id": f"{number}-{setup}",
        "deploy": str(number),
        "setup": setup,
        "baseline": Series("default", "v1", "logged"),
        "candidate": Series("default", "v2", "logged"),
        "start": NOON,
        "looked": NOON + 10 * MINUTE,
        "impressions": 41_234,
        "clicks": 802,
        "blocks": 64,
        "alpha": 0.01,
        "verdict": verdict,
        "since": None if verdict == "undecided" else NOON + 3 * MINUTE,
        **decided(verdict),
        "reason": "too_few_clicks" if verdict == "undecided" else None,
        "withheld": False,
        "log_e_worse": 8.1,
        "log_e_not_worse": -4.5,
        "p_worse": 0.0003,
        "metrics": (
            reading("log_loss", verdict, log_e_worse=1.0), reading("auc", verdict), unknown("gauc"),
            unknown("calibration", "not_the_serving_version"),
        ),
        "changes": (VerdictChange(NOON + 3 * MINUTE, "verdict", verdict, "AUC is below its margin", {"log_e": 8.1}),),
        "looks": looks(),
        "findings": (
            Finding("country", "de", 20_000, 400, 0.01, 0.75, 6.5, verdict == "worse"),
            Finding("user", "~0123456789abcdef", 90, 3, None, None, 0.0, False),
        ),
        "calibration_buckets": (
            CalibrationBucket("0-0.02", 20_000, 210, 1.02, 9_800, 100, 1.05, 0.03, 0.12, 0.0, False),
            CalibrationBucket("0.02-0.05", 8_000, 260, 0.99, 3_434, 83, 1.43, 0.42, 0.09, 9.1, True),
        ),
        "mixes": (Mix("country", "auc", -0.012, 0.001, -0.013, None, True, "worse in every country"),),
        "early": (EarlyReading("promised_auc", 0.76, 0.75), EarlyReading("score_shift", None, None, "one_arm_only")),
    }  # fmt: skip
    return Comparison(**{**base, **changes})

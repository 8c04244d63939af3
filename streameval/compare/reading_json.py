"""Deploys and comparisons as JSON, in one shape for the report and for the API, which differ in how a time is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from streameval.compare.reading import Comparison, DecidedOn, Deploy, Estimate, Looks, MetricReading, Role
from streameval.compare.words import headline
from streameval.events import Series

When = Callable[[int | None], Any]


def as_it_is(ms: int | None) -> int | None:
    """A time as the report writes it: milliseconds."""
    return ms


def finite(value: float | None) -> float | None:
    """The number, None for what JSON has no number for."""
    return None if value is None or not math.isfinite(value) else float(value)


def deploy_json(deploy: Deploy, when: When = as_it_is) -> dict[str, Any]:
    """One deploy."""
    return {
        "id": deploy.id,
        "model": deploy.model,
        "version": deploy.version,
        "replaces": deploy.replaces,
        "at": when(deploy.at),
        "kind": deploy.kind,
        "noticed": when(deploy.noticed),
        "announced": deploy.announced,
        "note": deploy.note,
        "link": deploy.link,
    }


def comparison_json(comparison: Comparison, when: When = as_it_is) -> dict[str, Any]:
    """One comparison without its looks."""
    c = comparison
    return {
        "id": c.id,
        "deploy": c.deploy,
        "setup": c.setup,
        "model": c.candidate.model,
        "baseline": {**_series(c.baseline), **role_json(c.roles[0])},
        "candidate": {**_series(c.candidate), **role_json(c.roles[1])},
        "start": when(c.start),
        "looked": when(c.looked),
        "impressions": c.impressions,
        "clicks": c.clicks,
        "blocks": c.blocks,
        "alpha": c.alpha,
        "verdict": c.verdict,
        "since": when(c.since),
        **decision_json(c, when),
        "retracted": c.retracted,
        "clustered_by": c.clustered_by,
        "reason": c.reason,
        "withheld": c.withheld,
        "floors_met": c.floors_met,
        "log_e_worse": finite(c.log_e_worse),
        "log_e_not_worse": finite(c.log_e_not_worse),
        "p_worse": finite(c.p_worse),
        "words": headline(c),
        "metrics": [reading_json(reading, when) for reading in c.metrics],
        "changes": [
            {
                "at": when(change.at),
                "kind": change.kind,
                "verdict": change.verdict,
                "text": change.text,
                "evidence": {name: finite(value) for name, value in change.evidence.items()},
            }
            for change in c.changes
        ],
        "findings": [
            {
                "dimension": f.dimension,
                "value": f.value,
                "impressions": f.impressions,
                "clicks": f.clicks,
                "difference": finite(f.difference),
                "share": finite(f.share),
                "log_e": finite(f.log_e),
                "significant": f.significant,
            }
            for f in c.findings
        ],
        "calibration_buckets": [asdict(bucket) for bucket in c.calibration_buckets],
        "mixes": [
            {
                "dimension": m.dimension,
                "metric": m.metric,
                "total": finite(m.total),
                "mix": finite(m.mix),
                "within": finite(m.within),
                "within_stderr": finite(m.within_stderr),
                "simpson": m.simpson,
                "text": m.text,
            }
            for m in c.mixes
        ],
        "early": [
            {"name": e.name, "baseline": finite(e.baseline), "candidate": finite(e.candidate), "reason": e.reason}
            for e in c.early
        ],
    }


def decision_json(comparison: Comparison, when: When = as_it_is) -> dict[str, Any]:
    """When a verdict fell, on what, and whether what is known now still shows it; null while undecided."""
    c = comparison
    on, now = c.decided_on, c.decided_now
    return {
        "decided_at": when(c.decided_at),
        "decided_on": None if on is None else _decided_on(on, when),
        "decided_now": None if now is None else _estimate(now),
        "supported_now": c.supported_now,
    }


def role_json(role: Role | None) -> dict[str, Any]:
    """What a series is there for; null: not known."""
    return {
        "role": None if role is None else role.name,
        "traffic_share": None if role is None else finite(role.traffic_share),
    }


def reading_json(reading: MetricReading, when: When = as_it_is) -> dict[str, Any]:
    """One metric of a comparison."""
    numbers = (
        "baseline", "candidate", "difference", "lower", "upper", "stderr", "margin", "tolerance", "log_e_worse",
        "log_e_not_worse", "p_worse",
    )  # fmt: skip
    return {
        "metric": reading.metric,
        **{name: finite(getattr(reading, name)) for name in numbers},
        "verdict": reading.verdict,
        "decided_at": when(reading.decided_at),
        "supported_now": reading.supported_now,
        "reason": reading.reason,
    }


def looks_json(looks: Looks | None, when: When = as_it_is) -> list[dict[str, Any]]:
    """The e-process and the intervals over time, oldest first."""
    if looks is None:
        return []
    metrics = {name: {key: c.tolist() for key, c in columns.items()} for name, columns in looks.metrics.items()}
    clicks = [None] * len(looks.at) if looks.clicks is None else looks.clicks.tolist()
    rows = zip(looks.at.tolist(), looks.impressions.tolist(), clicks, looks.log_e.tolist(), strict=True)
    return [
        {
            "at": when(at),
            "impressions": impressions,
            "clicks": clicked,
            "log_e": finite(log_e),
            "metrics": {
                name: {key: finite(column[i]) for key, column in columns.items()} for name, columns in metrics.items()
            },
        }
        for i, (at, impressions, clicked, log_e) in enumerate(rows)
    ]


def _decided_on(on: DecidedOn, when: When) -> dict[str, Any]:
    return {"metric": on.metric, **_estimate(on.then), "since": when(on.since), "alone": on.alone}


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {name: finite(getattr(estimate, name)) for name in ("difference", "lower", "upper")}


def _series(series: Series) -> dict[str, str]:
    return {"model": series.model, "version": series.version, "source": series.source}

"""The verdict on a deploy as one flat object: what a gate reads with one path, and no loop."""

from __future__ import annotations

from typing import Any

from streameval.compare.reading.as_json import finite
from streameval.compare.reading.choice import deploy_and_comparison
from streameval.compare.reading.reading import COMPARED, Comparison, Deploy
from streameval.compare.reading.words import headline
from streameval.results.snapshot import Snapshot
from streameval.server.api.answers import rfc3339

_THEN = {name: f"decided_{name}" for name in ("difference", "lower", "upper")}  # when the verdict was decided
_HANDLED = {"handled": "state", "handled_by": "by", "handled_reason": "reason"}
_NUMBERS = ("difference", "lower", "upper", "margin")


def verdict_json(snapshot: Snapshot, model: str, candidate: str | None) -> dict[str, Any]:
    """The verdict on the newest deploy of a model (of `candidate`), by its best comparison; undecided without one."""
    deploy, c = deploy_and_comparison(snapshot.deploys, snapshot.comparisons, model, candidate)
    if deploy is not None:
        candidate = deploy.version
    elif c is not None:
        candidate = c.candidate.version
    shared = {
        "model": model,
        "candidate": candidate,
        "deploy": deploy.id if deploy is not None else c.deploy if c is not None else None,
        "deployed_at": None if deploy is None else rfc3339(deploy.at),
    }
    doubt = _doubt(snapshot)
    if c is None:
        reason = _nothing_yet(snapshot, deploy)
        return {
            **shared,
            **dict.fromkeys(("baseline", "setup", "comparison", "since", "looked", "alpha")),
            **dict.fromkeys(("decided_at", "decided_on", *_THEN.values(), "supported_now")),
            **dict.fromkeys(_HANDLED),
            "verdict": "undecided",
            "worse": False,
            "not_worse": False,
            "warning_only": False,
            "reliable": doubt is None,
            "reason": doubt or reason,
            "words": f"undecided: {reason.replace('_', ' ')}",
            "log_e": None,
            "log_e_not_worse": None,
            "p_value": None,
            "impressions": 0,
            "clicks": 0,
            **{f"{number}_{metric}": None for metric in COMPARED for number in _NUMBERS},
            **{f"reason_{metric}": reason for metric in COMPARED},
        }
    return {
        **shared,
        "baseline": c.baseline.version,
        "setup": c.setup,
        "comparison": c.id,
        "verdict": c.verdict,
        "worse": c.verdict == "worse",
        "not_worse": c.verdict == "not_worse",
        "warning_only": c.setup == "before_after",
        "reliable": doubt is None and not c.withheld,
        "reason": c.reason or doubt,
        "since": rfc3339(c.since),
        **_decision(c),
        "looked": rfc3339(c.looked),
        "words": headline(c, snapshot.taken_ms),
        **{flat: None if c.handling is None else getattr(c.handling, name) for flat, name in _HANDLED.items()},
        "alpha": c.alpha,
        "log_e": finite(c.log_e_worse),
        "log_e_not_worse": finite(c.log_e_not_worse),
        "p_value": finite(c.p_worse),
        "impressions": c.impressions,
        "clicks": c.clicks,
        **_metrics(c),
    }


def _nothing_yet(snapshot: Snapshot, deploy: Deploy | None) -> str:
    if deploy is None:
        return "no_deploy_yet"
    # a deploy is noticed by some traffic, of which the first impressions are less
    seen = {(r.series.model, r.series.version) for r in snapshot.results.overall}
    unseen = deploy.noticed is None and (deploy.model, deploy.version) not in seen
    return "no_traffic_yet" if unseen else "no_comparison_yet"


def _doubt(snapshot: Snapshot) -> str | None:
    """Why nothing should be concluded from the numbers now; None: it may be."""
    if snapshot.stands_still:
        return f"the group has dropped the monitor: the results are those of {rfc3339(round(snapshot.taken_at * 1000))}"
    if not snapshot.ready.get("assigned", True):
        return "no partition is assigned to the monitor: there are no results yet"
    return None if snapshot.join.reliable else snapshot.join.reason or "the join is unhealthy"


def _decision(c: Comparison) -> dict[str, Any]:
    on = c.decided_on
    return {
        "decided_at": rfc3339(c.decided_at),
        "decided_on": None if on is None else on.metric,
        **{flat: None if on is None else finite(getattr(on.then, name)) for name, flat in _THEN.items()},
        "supported_now": c.supported_now,
    }


def _metrics(c: Comparison) -> dict[str, Any]:
    readings = {reading.metric: reading for reading in c.metrics}
    out: dict[str, Any] = {}
    for metric in COMPARED:
        reading = readings.get(metric)
        for number in _NUMBERS:
            out[f"{number}_{metric}"] = None if reading is None else finite(getattr(reading, number))
        out[f"reason_{metric}"] = "not_compared" if reading is None else reading.reason
    return out

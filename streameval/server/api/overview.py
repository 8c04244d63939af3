"""The state of the monitor in one JSON object, for the page and the stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from streameval.compare.reading.as_json import comparison_json, role_json
from streameval.compare.reading.choice import begun, headlines, worse_live
from streameval.compare.reading.reading import Comparison
from streameval.compare.reading.words import claim, headline, remarks
from streameval.metrics.registry import by_name, names
from streameval.results.certificate import CertificateState
from streameval.results.result import Result
from streameval.results.snapshot import CheckpointState, PartitionState, Snapshot
from streameval.server.api.answers import LAST_MS, result_json, rfc3339, series_json
from streameval.server.api.degraded import degraded
from streameval.server.api.schemas.status import Compared
from streameval.server.api.selection import slice_values, windows

_MOST_WORSE = 10  # live versions of a model whose verdicts are shown in full; all are named


def overview(snapshot: Snapshot) -> dict[str, Any]:
    """Overall results (no slices, no buckets) and the flow, small enough to send with every snapshot.

    Of the metrics by further fields (lists, exposure, policies, yields) it has those that are defined in any result.
    """
    return {
        "started_at": rfc3339(round(snapshot.started_at * 1000)),
        "verdicts": [_headline(snapshot, c) for c in headlines(snapshot.deploys, snapshot.comparisons)],
        "worse": [
            {
                "model": model,
                "versions": [c.candidate.version for c in found],
                "verdicts": [_headline(snapshot, c) for c in found[:_MOST_WORSE]],
            }
            for model, found in worse_live(snapshot.deploys, snapshot.comparisons).items()
        ],
        "ready": checks(snapshot),
        "degraded": degraded(snapshot),
        "preparing": snapshot.preparing or None,
        "events": _events(snapshot),
        "join": _join(snapshot),
        "partitions": [_partition(state) for state in snapshot.partitions],
        "objectives": objectives(snapshot),
        "sampling": snapshot.options.sampling.words(),
        "auctions": bool(snapshot.auctions),
        "attribution_window_seconds": snapshot.attribution_window / 1000,
        "results": _results(snapshot),
    }


def _headline(snapshot: Snapshot, c: Comparison) -> dict[str, Any]:
    said = _lean(c)
    return {
        "comparison": c.id,
        "model": c.candidate.model,
        "candidate": c.candidate.version,
        "baseline": c.baseline.version,
        "verdict": c.verdict,
        "deployed_at": rfc3339(begun(snapshot.deploys, snapshot.comparisons, c)),
        "decided_at": rfc3339(c.decided_at),
        "supported_now": c.supported_now,
        "withheld": c.withheld,
        **role_json(c.roles[1]),
        "impressions": c.impressions,
        "clicks": c.clicks,
        "alpha": c.alpha,
        "words": headline(c, snapshot.taken_ms),
        "claim": claim(c),
        "remarks": remarks(c),
        "setup": c.setup,
        "decided_on": said["decided_on"],
        "decided_now": said["decided_now"],
        "metrics": [{name: one[name] for name in Compared.model_fields} for one in said["metrics"]],
    }


def _results(snapshot: Snapshot) -> list[dict[str, Any]]:
    results = [result for result in snapshot.results.overall if not result.series.objective]
    idle = _idle(results)
    return [
        {name: value for name, value in row.items() if name not in idle}
        | {"reasons": {name: reason for name, reason in row["reasons"].items() if name not in idle}}
        | role_json(snapshot.roles.get(result.series))
        for result in results
        for row in (result_json(result, buckets=False),)
    ]


def _idle(results: Sequence[Result]) -> set[str]:
    """The members of metrics of fields that no event here has: they would fill half of every overview."""
    asked = {name for result in results for name in result.metrics if by_name(name).overall}
    none = {name for name in asked if all(result.metrics.get(name) is None for result in results)}
    return none | {f"{name}_stderr" for name in none} | {f"{name}_stderr_df" for name in none}


def status(snapshot: Snapshot, version: str) -> dict[str, Any]:
    """The state of the program: build, checks, flow, and the names that queries can use."""
    whole = {r.series: r.totals for r in snapshot.results.overall if r.window == "all"}
    undefined = [(*key.rpartition(":")[::2], count) for key, count in snapshot.undefined.items()]
    return {
        "version": version,
        "started_at": rfc3339(round(snapshot.started_at * 1000)),
        "uptime_seconds": max(0.0, snapshot.taken_at - snapshot.started_at),
        "ready": checks(snapshot),
        "degraded": degraded(snapshot),
        "preparing": snapshot.preparing or None,
        "events": _events(snapshot),
        "join": _join(snapshot),
        "attribution_window_seconds": snapshot.attribution_window / 1000,
        "partitions": [_partition(state) for state in snapshot.partitions],
        "series": [
            {
                **series_json(series),
                **role_json(snapshot.roles.get(series)),
                "last_seen": rfc3339(round(snapshot.last_seen[series] * 1000))
                if series in snapshot.last_seen
                else None,
                "impressions": totals.impressions,
                "clicks": totals.clicks,
            }
            for series, totals in whole.items()
            if not series.objective
        ],
        "objectives": objectives(snapshot),
        "sampling": snapshot.options.sampling.words(),
        "windows": windows(snapshot),
        "slices": slice_values(snapshot),
        "slice_values": {dimension: asdict(values) for dimension, values in snapshot.slice_values.items()},
        "metrics": list(names(snapshot.options)),
        "undefined": [{"metric": m, "reason": r, "results": n} for m, r, n in undefined],
        "online_updates": dict(snapshot.online_updates),
        "online_failures": {model: dict(reasons) for model, reasons in snapshot.online_failures.items()},
        "suspensions": [asdict(one) for one in snapshot.suspensions],
        "stage_seconds": dict(snapshot.stage_seconds),
        "table_bytes": dict(snapshot.table_bytes),
        "budget_used": dict(snapshot.budget_used),
        "history": None if snapshot.history is None else asdict(snapshot.history),
        "checkpoints": None if snapshot.checkpoints is None else _checkpoints(snapshot.checkpoints),
        "certificate": None if snapshot.certificate is None else _certificate(snapshot.certificate),
        "receivers": [{**asdict(one), "oldest": _seconds(one.oldest)} for one in snapshot.receivers],
        "sinks": [{**asdict(one), "last_success": _seconds(one.last_success)} for one in snapshot.sinks],
    }


def objectives(snapshot: Snapshot) -> list[str]:
    """The names that `objective=` accepts."""
    return sorted({result.series.objective for result in snapshot.results.overall} - {""})


def _lean(c: Comparison) -> dict[str, Any]:
    """A comparison as JSON, without its long lists: this is made for every snapshot."""
    return comparison_json(
        replace(c, findings=(), calibration_buckets=(), mixes=(), mixes_unknown=(), early=(), changes=()), rfc3339
    )


def checks(snapshot: Snapshot) -> dict[str, bool]:
    """The named checks of /readyz; before the first snapshot there is one, and it fails."""
    if not snapshot.ready and snapshot.number <= 0:
        return {"first_snapshot": False}
    return dict(snapshot.ready)


def _events(snapshot: Snapshot) -> dict[str, Any]:
    return {name: dict(n) if isinstance(n, Mapping) else int(n) for name, n in snapshot.events.items()}


def _join(snapshot: Snapshot) -> dict[str, Any]:
    join = snapshot.join
    return {
        "reliable": join.reliable,
        "reason": join.reason,
        "join_rate": join.join_rate,
        "overdue_clicks": join.overdue_clicks,
    }


def _checkpoints(state: CheckpointState) -> dict[str, Any]:
    return {**asdict(state), "oldest": None if state.oldest is None else rfc3339(round(state.oldest * 1000))}


def _certificate(state: CertificateState) -> dict[str, Any]:
    return {"not_before": _seconds(state.not_before), "not_after": _seconds(state.not_after)}


def _partition(state: PartitionState) -> dict[str, Any]:
    return {
        "partition": state.partition,
        "watermark": rfc3339(state.watermark),
        "label_complete": rfc3339(state.label_complete),
        "newest_event": rfc3339(state.newest_event),
        "waiting_since": rfc3339(state.waiting_since),
        "complete": _complete(state),
        "offsets": _positions(state.offsets),
        "lag": _positions(state.lag),
    }


def _complete(state: PartitionState) -> bool:
    # while events may still come, labels trail the newest event by the attribution window
    done, newest = state.label_complete, state.newest_event
    return done is not None and (done > LAST_MS or (newest is not None and done >= newest))


def _positions(by_place: Mapping[tuple[str, int], int]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": part, "value": int(n)} for (topic, part), n in sorted(by_place.items())]


def _seconds(at: float | None) -> str | None:
    return None if at is None else rfc3339(round(at * 1000))

"""What the whole program looks like in one JSON object: the status page and the stream are made of this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from streameval.compare.choice import headlines
from streameval.compare.reading_json import role_json
from streameval.compare.words import headline
from streameval.report import METRIC_NAMES, CheckpointState, PartitionState, Snapshot
from streameval.server.answers import LAST_MS, result_json, rfc3339, series_json


def overview(snapshot: Snapshot) -> dict[str, Any]:
    """Overall results (no slices, no buckets) and the flow, small enough to send with every snapshot."""
    return {
        "started_at": rfc3339(round(snapshot.started_at * 1000)),
        "verdicts": [
            {
                "comparison": c.id,
                "model": c.candidate.model,
                "candidate": c.candidate.version,
                "baseline": c.baseline.version,
                "verdict": c.verdict,
                "decided_at": rfc3339(c.decided_at),
                "supported_now": c.supported_now,
                "withheld": c.withheld,
                **role_json(c.roles[1]),
                "impressions": c.impressions,
                "clicks": c.clicks,
                "words": headline(c),
            }
            for c in headlines(snapshot.deploys, snapshot.comparisons)
        ],
        "ready": checks(snapshot),
        "degraded": degraded(snapshot),
        "events": _events(snapshot),
        "join": _join(snapshot),
        "partitions": [_partition(state) for state in snapshot.partitions],
        "results": [
            {**result_json(result, buckets=False), **role_json(snapshot.roles.get(result.series))}
            for result in snapshot.results
            if result.slice is None
        ],
    }


def status(snapshot: Snapshot, version: str) -> dict[str, Any]:
    """Where the program stands: build, checks, flow, and the names that queries can use."""
    slices: dict[str, dict[str, None]] = {}
    for result in snapshot.results:
        if result.slice is not None:
            slices.setdefault(result.slice[0], {})[result.slice[1]] = None
    whole = {r.series: r.totals for r in snapshot.results if r.window == "all" and r.slice is None}
    undefined = [(*key.rpartition(":")[::2], count) for key, count in snapshot.undefined.items()]
    return {
        "version": version,
        "started_at": rfc3339(round(snapshot.started_at * 1000)),
        "uptime_seconds": max(0.0, snapshot.taken_at - snapshot.started_at),
        "ready": checks(snapshot),
        "degraded": degraded(snapshot),
        "events": _events(snapshot),
        "join": _join(snapshot),
        "attribution_window_seconds": snapshot.attribution_window / 1000,
        "partitions": [_partition(state) for state in snapshot.partitions],
        "series": [
            {
                **series_json(series.model, series.version, series.source),
                **role_json(snapshot.roles.get(series)),
                "last_seen": rfc3339(round(snapshot.last_seen[series] * 1000))
                if series in snapshot.last_seen
                else None,
                "impressions": totals.impressions,
                "clicks": totals.clicks,
            }
            for series, totals in whole.items()
        ],
        "windows": list(dict.fromkeys(r.window for r in snapshot.results)),
        "slices": {dimension: list(values) for dimension, values in slices.items()},
        "slice_values": {dimension: asdict(values) for dimension, values in snapshot.slice_values.items()},
        "metrics": list(METRIC_NAMES),
        "undefined": [{"metric": m, "reason": r, "results": n} for m, r, n in undefined],
        "online_updates": dict(snapshot.online_updates),
        "online_failures": {model: dict(reasons) for model, reasons in snapshot.online_failures.items()},
        "suspensions": [asdict(one) for one in snapshot.suspensions],
        "stage_seconds": dict(snapshot.stage_seconds),
        "table_bytes": dict(snapshot.table_bytes),
        "budget_used": dict(snapshot.budget_used),
        "history": None if snapshot.history is None else asdict(snapshot.history),
        "checkpoints": None if snapshot.checkpoints is None else _checkpoints(snapshot.checkpoints),
    }


def checks(snapshot: Snapshot) -> dict[str, bool]:
    """The named checks of /readyz; before the first snapshot there is one, and it fails."""
    if not snapshot.ready and snapshot.number == 0:
        return {"first_snapshot": False}
    return dict(snapshot.ready)


def degraded(snapshot: Snapshot) -> list[str]:
    """What is amiss while the rest goes on, in sentences: nothing for which traffic should go elsewhere."""
    out = [one.words() for one in snapshot.suspensions]
    if snapshot.history is not None and snapshot.history.skipped:
        out.append(f"history: {snapshot.history.skipped} rows could not be written; the log names them")
    for dimension, values in snapshot.slice_values.items():
        if values.overflowed:
            out.append(
                f"slices: {dimension} has had more than {values.most_counted} values; which of them are in __other__ "
                "depends on the order of events"
            )
    return out


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


def _partition(state: PartitionState) -> dict[str, Any]:
    return {
        "partition": state.partition,
        "watermark": rfc3339(state.watermark),
        "label_complete": rfc3339(state.label_complete),
        "newest_event": rfc3339(state.newest_event),
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

"""The state of the monitor in one JSON object, for the page and the stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from streameval.compare.reading.as_json import comparison_json, role_json
from streameval.compare.reading.choice import begun, headlines, worse_live
from streameval.compare.reading.reading import Comparison
from streameval.compare.reading.words import claim, headline, remarks
from streameval.events.names import OTHER
from streameval.metrics.registry import by_name, names
from streameval.results.certificate import CertificateState
from streameval.results.result import Result
from streameval.results.snapshot import CheckpointState, PartitionState, Snapshot
from streameval.server.api.answers import LAST_MS, result_json, rfc3339, series_json
from streameval.server.api.schemas.status import Compared
from streameval.server.api.selection import slice_values

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
        "words": headline(c),
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
        "windows": list(dict.fromkeys(r.window for r in snapshot.results.overall)),
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


def degraded(snapshot: Snapshot) -> list[str]:
    """Problems that do not stop the monitor, in sentences: no reason to send traffic elsewhere."""
    out = [one.words() for one in snapshot.suspensions]
    if snapshot.checkpoints is not None and snapshot.checkpoints.failing:
        out.append(
            f"checkpoints: {snapshot.checkpoints.failing} partitions cannot be written now, their last good ones stay; the log says why"
        )
    if snapshot.checkpoints is not None and snapshot.checkpoints.claimed:
        out.append(
            f"checkpoints: {snapshot.checkpoints.claimed} partitions were claimed by another worker and are not counted here; "
            "do two groups share store.path?"
        )
    if snapshot.checkpoints is not None and snapshot.checkpoints.gone_unread:
        out.append(
            f"checkpoints: the topics no longer have partitions {', '.join(map(str, snapshot.checkpoints.gone_unread))}, and what "
            "they had counted cannot be restored, so it is missing from the results; the log says why"
        )
    if snapshot.checkpoints is not None and snapshot.checkpoints.rows_lost:
        out.append(
            f"checkpoints: {snapshot.checkpoints.rows_lost} impressions were in files that are damaged or missing, so late clicks on "
            "them are unmatched; the log names the files"
        )
    if snapshot.history is not None and snapshot.history.failing:
        out.append(f"history: {snapshot.history.unwritten} panes wait, none can be written now; the log says why")
    if snapshot.history is not None and snapshot.history.lost:
        out.append(f"history: {snapshot.history.lost} panes left memory before they could be written")
    if snapshot.history is not None and snapshot.history.skipped:
        out.append(f"history: {snapshot.history.skipped} rows could not be written; the log names them")
    if snapshot.stands_still:
        as_of = rfc3339(round(snapshot.taken_at * 1000))
        out.append(f"kafka: the group has no partition for this process any more; the results stay those of {as_of}")
    if snapshot.certificate is not None and (expiry := snapshot.certificate.words(snapshot.taken_at)) is not None:
        out.append(expiry)
    out += [f"notify {r.name}: {r.waiting} messages are waiting: {r.error}" for r in snapshot.receivers if r.error]
    out += [f"notify {r.name}: {r.dropped} messages were dropped" for r in snapshot.receivers if r.dropped]
    out += [f"sink {s.name}: {s.waiting} panes and verdicts are waiting: {s.error}" for s in snapshot.sinks if s.error]
    out += [f"sink {s.name}: {s.lost} panes could not be written in time" for s in snapshot.sinks if s.lost]
    for (topic, partition), count in sorted(snapshot.lost.items()):
        out.append(f"kafka: {count} messages of {topic} [{partition}] were deleted or skipped before they were read")
    for topic, times in sorted(snapshot.recreated.items()):
        out.append(f"kafka: topic {topic} was deleted and recreated" + (f", {times} times" if times > 1 else ""))
    for topic, count in sorted(snapshot.unpaired.items()):
        out.append(f"kafka: {count} partitions of topic {topic} are not read because the other topic lacks them")
    for who, count in sorted(snapshot.strangers.items()):
        out.append(
            f"kafka: {who} is no streameval but in this group, and the {count} partitions it reads are not counted; give it one of its own"
        )
    out += [one for one in (snapshot.letters, snapshot.schemas) if one]
    if snapshot.ready.get("broker"):
        out += [
            f"kafka: nothing comes from {topic} [{p}], and no broker says that this is its end; has it a leader?"
            for topic, p in snapshot.unread
        ]
    if any(OTHER in r.series for r in snapshot.results.overall):
        out.append("versions: more than are distinguished at once; the further ones are in __other__, and not compared")
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

"""The samples that are about the flow of events, not about a model: never left out, whatever the series budget."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

from prometheus_client.utils import floatToGoString

from streameval.events.batch import Series
from streameval.results.snapshot import CheckpointState, Delays, HistoryState, Snapshot
from streameval.server.api.answers import LAST_MS
from streameval.server.prometheus.outlets import outlet_samples
from streameval.sources.protocol import REASONS

# the report's counters -> (event, fate); known ones are exported as 0 before they happen
FATES = {
    "matured": ("impression", "matured"),
    "duplicate_impressions": ("impression", "duplicate"),
    "late_impressions": ("impression", "late"),
    "late_unscored": ("impression", "late_unscored"),
    "expired_impressions": ("impression", "expired"),
    "matured_early": ("impression", "matured_early"),
    "forgotten_early": ("impression", "forgotten_early"),
    "matched_clicks": ("click", "matched"),
    "duplicate_clicks": ("click", "duplicate"),
    "unmatched_clicks": ("click", "unmatched"),
    "late_clicks": ("click", "late"),
    "early_clicks": ("click", "early"),
    "conflicting_impressions": ("impression", "conflicting"),
    "runaway_impressions": ("impression", "runaway"),
    "runaway_clicks": ("click", "runaway"),
    "corrected": ("click", "corrected"),
}
# of what checkpoints hold (see `_counted`)
RESTORED = frozenset(
    [
        "events_received_total",
        "events_total",
        "events_invalid_total",
        "join_delay_seconds",
        "online_updates_total",
        "online_failures_total",
    ]
)


def flow_samples(snapshot: Snapshot, gone: Collection[Series]) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """(family, label values, value); online models in `gone` are left out."""
    if snapshot.partitions or snapshot.ready.get("assigned"):  # a 0 before they are restored would count the past again
        yield from _counted(snapshot, gone)
    yield "pending_impressions", (), snapshot.events.get("pending", 0)
    yield "quarantined_events", (), snapshot.events.get("quarantined", 0)
    yield from _partitions(snapshot)
    edges = (0.0, *snapshot.options.edges, 1.0) if snapshot.options.edges else ()
    for i, (lower, upper) in enumerate(pairwise(edges)):
        yield "bucket_info", (f"{i:02d}", _number(lower), _number(upper)), 1
    for key, count in snapshot.undefined.items():
        metric, _, reason = key.rpartition(":")
        yield "undefined_results", (metric, reason), count
    for topic, partition in snapshot.unread if snapshot.ready.get("broker") else ():  # else all are, for another reason
        yield "consumer_silent", (topic, str(partition)), 1
    for (topic, partition), count in snapshot.lost.items():
        yield "events_lost_total", (topic, str(partition)), count
    for (topic, partition), count in snapshot.empty_offsets.items():
        yield "empty_offsets_total", (topic, str(partition)), count
    for topic, count in snapshot.recreated.items():
        yield "topics_recreated_total", (topic,), count
    for topic, count in snapshot.unpaired.items():
        yield "unpaired_partitions", (topic,), count
    for table, size in snapshot.table_bytes.items():
        yield "table_bytes", (table,), size
    for table, share in snapshot.budget_used.items():
        yield "budget_used_ratio", (table,), share
    for dimension, values in snapshot.slice_values.items():
        yield "slice_values", (dimension,), values.counted
        yield "slice_overflowed", (dimension,), float(values.overflowed)
    if snapshot.checkpoints is not None:
        yield from _checkpoints(snapshot.checkpoints)
    if snapshot.history is not None:
        yield from _history(snapshot.history)
    for stage, seconds in snapshot.stage_seconds.items():
        yield "stage_seconds_total", (stage,), seconds
    if snapshot.join.join_rate is not None:
        yield "join_ratio", (), snapshot.join.join_rate
    yield "join_reliable", (), float(snapshot.join.reliable)
    yield "overdue_clicks", (), snapshot.join.overdue_clicks
    yield "attribution_window_seconds", (), snapshot.attribution_window / 1000
    for model in snapshot.online_failures:
        suspended = sum(one.model == model for one in snapshot.suspensions)
        yield "online_suspended_partitions", (model,), suspended
    yield from outlet_samples(snapshot)
    yield from _process(snapshot)


def _counted(snapshot: Snapshot, gone: Collection[Series]) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """What checkpoints hold, so that it goes on after a restart."""
    events = snapshot.events
    yield "events_received_total", ("impression",), events.get("impressions", 0)
    yield "events_received_total", ("click",), events.get("clicks", 0)
    if "candidates" in events:
        yield "events_received_total", ("candidate",), events["candidates"]
    for name, (event, fate) in FATES.items():
        yield "events_total", (event, fate), events.get(name, 0)
    invalid = dict.fromkeys(REASONS, 0) | dict(events.get("invalid", {}))
    for reason, count in invalid.items():
        yield "events_invalid_total", (reason,), count
    yield from _delays(snapshot.join.delays)
    for model, updates in snapshot.online_updates.items():
        if Series(model, "online", "online") not in gone:
            yield "online_updates_total", (model,), updates
    for model, failures in snapshot.online_failures.items():
        for reason, count in failures.items():
            yield "online_failures_total", (model, reason), count


def _process(snapshot: Snapshot) -> Iterator[tuple[str, tuple[str, ...], float]]:
    if snapshot.certificate is not None:
        yield "certificate_not_before_timestamp_seconds", (), snapshot.certificate.not_before
        yield "certificate_not_after_timestamp_seconds", (), snapshot.certificate.not_after
    yield "snapshot_timestamp_seconds", (), snapshot.taken_at
    yield "snapshot_number", (), max(snapshot.number, 0)
    yield "start_timestamp_seconds", (), snapshot.started_at


def timestamp(ms: int | None) -> float | None:
    """Seconds since the epoch; None for None and for the infinity at the end of a replay."""
    return None if ms is None or abs(ms) > LAST_MS else ms / 1000


def _partitions(snapshot: Snapshot) -> Iterator[tuple[str, tuple[str, ...], float]]:
    lag: dict[tuple[str, int], int] = {}
    for state in snapshot.partitions:
        for family, ms in (
            ("watermark_timestamp_seconds", state.watermark),
            ("label_complete_timestamp_seconds", state.label_complete),
        ):
            seconds = timestamp(ms)
            if seconds is not None:
                yield family, (str(state.partition),), seconds
        lag.update(state.lag)
    for (topic, partition), records in sorted(lag.items()):
        if records >= 0:  # clients say -1 or so for unknown, which would poison a sum
            yield "consumer_lag_records", (topic, str(partition)), records


def _delays(delays: Delays) -> Iterator[tuple[str, tuple[str, ...], float]]:
    below = 0
    for edge, count in zip(delays.edges, delays.counts, strict=True):
        below += count
        yield "join_delay_seconds", ("_bucket", _number(edge)), below
    yield "join_delay_seconds", ("_count",), below
    yield "join_delay_seconds", ("_sum",), delays.sum_seconds


def _number(value: float) -> str:
    return str(floatToGoString(value))


def _checkpoints(state: CheckpointState) -> Iterator[tuple[str, tuple[str, ...], float]]:
    if state.oldest is not None and not state.never_written:
        yield "checkpoint_last_success_timestamp_seconds", (), state.oldest
    yield "checkpoint_missing_partitions", (), state.never_written
    yield "checkpoint_gone_partitions", (), len(state.gone_unread)
    if state.written:
        yield "checkpoint_size_bytes", (), state.bytes
        yield "checkpoint_duration_seconds", (), state.write_seconds
        yield "checkpoint_pause_seconds", (), state.pause_seconds
    if state.restores:
        yield "checkpoint_restore_duration_seconds", (), state.restore_seconds
    yield "checkpoints_total", (), state.written
    yield "checkpoint_failures_total", (), state.failures
    yield "checkpoints_fenced_total", (), state.fenced
    yield "checkpoint_restores_total", (), state.restores
    if state.restores or state.written:  # a 0 before they are restored would count the past again
        yield "restarts_total", (), state.restarts
    yield "rows_on_disk", (), state.rows
    yield "rows_mapped", (), state.rows_mapped
    yield "rows_size_bytes", (), state.rows_bytes
    yield "rows_lost_total", (), state.rows_lost


def _history(state: HistoryState) -> Iterator[tuple[str, tuple[str, ...], float]]:
    yield "history_size_bytes", (), state.bytes
    yield "history_unwritten_panes", (), state.unwritten
    yield "history_panes_written_total", (), state.written
    yield "history_parts_folded_total", (), state.folded
    yield "history_failures_total", (), state.failures
    yield "history_panes_lost_total", (), state.lost
    yield "history_panes_refused_total", (), state.refused
    yield "history_rows_skipped_total", (), state.skipped
    yield "history_parts_deleted_total", ("age",), state.deleted_by_age
    yield "history_parts_deleted_total", ("size",), state.deleted_by_size

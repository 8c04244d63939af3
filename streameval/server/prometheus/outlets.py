"""The samples about outgoing data: notifications and sinks."""

from __future__ import annotations

from collections.abc import Iterator

from streameval.results.snapshot import Snapshot
from streameval.server.prometheus.labels import Sample


def outlet_samples(snapshot: Snapshot) -> Iterator[Sample]:
    """(family, label values, value); nothing of what is not configured."""
    for r in snapshot.receivers:
        at = (r.name,)
        yield "notifications_pending", at, r.waiting
        if r.oldest is not None:
            yield "notifications_oldest_pending_timestamp_seconds", at, r.oldest
        yield "notifications_delivered_total", at, r.delivered
        yield "notifications_failures_total", at, r.failures
        yield "notifications_dropped_total", at, r.dropped
        yield "notifications_muted_total", at, r.muted
    for s in snapshot.sinks:
        at = (s.name,)
        yield "sink_pending", at, s.waiting
        if s.last_success is not None:
            yield "sink_last_success_timestamp_seconds", at, s.last_success
        yield "sink_panes_total", at, s.panes
        yield "sink_verdicts_total", at, s.verdicts
        yield "sink_failures_total", at, s.failures
        yield "sink_panes_lost_total", at, s.lost
    if snapshot.external_url:
        yield "page_info", (snapshot.external_url.rstrip("/"),), 1

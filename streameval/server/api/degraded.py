"""Problems that do not stop the monitor, in sentences."""

from __future__ import annotations

from streameval.events.names import OTHER
from streameval.results.silent import why_silent
from streameval.results.snapshot import Snapshot
from streameval.server.api.answers import rfc3339


def degraded(snapshot: Snapshot) -> list[str]:
    """All of them: no reason to send traffic elsewhere."""
    out = [one.words() for one in snapshot.suspensions]
    out += [*_of_the_store(snapshot), *_of_outlets(snapshot), *_of_kafka(snapshot)]
    if any(OTHER in r.series for r in snapshot.results.overall):
        out.append("versions: more than are distinguished at once; the further ones are in __other__, and not compared")
    for dimension, values in snapshot.slice_values.items():
        if values.overflowed:
            out.append(
                f"slices: {dimension} has had more than {values.most_counted} values; which of them are in __other__ "
                "depends on the order of events"
            )
    return out


def _of_the_store(snapshot: Snapshot) -> list[str]:
    out = []
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
    return out


def _of_outlets(snapshot: Snapshot) -> list[str]:
    out = []
    if snapshot.certificate is not None and (expiry := snapshot.certificate.words(snapshot.taken_at)) is not None:
        out.append(expiry)
    out += [f"notify {r.name}: {r.waiting} messages are waiting: {r.error}" for r in snapshot.receivers if r.error]
    out += [f"notify {r.name}: {r.dropped} messages were dropped" for r in snapshot.receivers if r.dropped]
    out += [f"sink {s.name}: {s.waiting} panes and verdicts are waiting: {s.error}" for s in snapshot.sinks if s.error]
    out += [f"sink {s.name}: {s.lost} panes could not be written in time" for s in snapshot.sinks if s.lost]
    return out


def _of_kafka(snapshot: Snapshot) -> list[str]:
    out = []
    if snapshot.stands_still:
        as_of = rfc3339(round(snapshot.taken_at * 1000))
        out.append(
            f"kafka: the group has dropped this process; the results stay those of {as_of} until it has partitions again, and has read what came since"
        )
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
        out += [f"kafka: {why_silent(place, snapshot.in_transaction)}" for place in snapshot.unread]
    return out

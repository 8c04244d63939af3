"""The store thread's work on the history for a worker's partitions."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from streameval.join.policy import NEVER
from streameval.loop.pipeline import Pipeline
from streameval.results.snapshot import HistoryState
from streameval.store.errors import StoreError
from streameval.store.history.rows import PaneRows
from streameval.store.history.writer import HistoryWriter

log = logging.getLogger(__name__)

_MANY_PANES = 512  # of a partition that can be written, at which ingest waits for the history
_COUNTS = ("written", "folded", "deleted_by_age", "deleted_by_size", "refused", "failures", "skipped")


def panes_wait(pipeline: Pipeline, partitions: Collection[int]) -> bool:
    """Whether the history is so far behind one of these partitions that ingest must wait for it.

    Panes that are not complete yet do not count: only further events complete them.
    """
    parts = [part for partition, part in pipeline.partitions.items() if partition in partitions]
    return any(part.unwritten > _MANY_PANES and part.panes_due > _MANY_PANES for part in parts)


def state_of(history: HistoryWriter, size: int, pipeline: Pipeline) -> HistoryState:
    """The current numbers; `size`: bytes of the file after the last write."""
    return HistoryState(
        bytes=size,
        **{name: history.counts[name] for name in _COUNTS},
        unwritten=sum(part.unwritten for part in pipeline.partitions.values()),
        lost=sum(part.never_written for part in pipeline.partitions.values()),
        failing=not pipeline.history_works,
    )


def last_epoch(history: HistoryWriter, partition: int) -> int:
    """The epoch in which a partition was last written, 0 if that cannot be read. Any thread may call it."""
    try:
        return history.last_epoch(partition)
    except StoreError as error:
        log.warning("history: %s; partition %d is claimed without it", error, partition)
        return 0


def claim_history(history: HistoryWriter, partition: int, epoch: int) -> None:
    """Claims a partition for this worker."""
    try:
        history.write(partition, epoch, [])
    except StoreError as error:  # writing the first panes will report it again
        log.error("history: %s", error)


def add_to_history(
    history: HistoryWriter,
    rows: Mapping[int, list[PaneRows]],
    epochs: Mapping[int, int],
    settled: Mapping[int, int] | None,
    newest: int,
) -> dict[int, StoreError]:
    """Writes panes, and folds old ones if `settled` is given; returns the partitions whose panes could not be written.

    These are not folded either: changes that are missing from an hour can never be added to it.
    """
    failed: dict[int, StoreError] = {}
    for partition, panes in rows.items():
        try:
            history.write(partition, epochs[partition], panes)
        except StoreError as error:
            failed[partition] = error
    whole = {partition: before for partition, before in (settled or {}).items() if partition not in failed}
    if whole and newest > NEVER:
        try:
            while history.fold(whole, newest):
                pass
        except StoreError as error:
            log.error("history: parts not merged: %s", error)
    if not failed:
        try:
            history.refresh()
        except StoreError as error:  # the next call tries again
            log.warning("history: points not refreshed: %s", error)
    return failed

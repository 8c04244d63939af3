"""Whole record batches from kafka-python, instead of an object for each of their messages.

The library reads a fetched batch as it always does: it checks the sum, removes what was aborted, skips control records,
unpacks. Only what iterating over the batch yields is different: one record, whose value is the values of all messages.
So positions, errors and transactions remain the library's. Batches that are not plain (see `scan_records`), small, or of
an old format are iterated as ever.

The library has no public way to do that. Two private names are used, only here: the consumer's `_fetcher`, whose
`PartitionRecords` is replaced, and a batch's `_buffer`. If a version of the library does without them, or makes something
else of such a record, messages are read one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import numpy as np
from kafka import TopicPartition
from kafka.record import MemoryRecords, MemoryRecordsBuilder
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch

from streameval.sources.formats.line_text import Lines
from streameval.sources.kafka.reader import MessageRun
from streameval.sources.kafka.scan_records import values_of

log = logging.getLogger(__name__)

SMALL_BATCH = 4  # messages; a smaller one costs more as a whole than one by one


class _Batch:
    """A batch of the library, with one record if it is plain."""

    def __init__(self, batch: Any, first: int) -> None:
        self._batch, self._first = batch, first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[Any]:
        batch = self._batch
        records: Iterator[Any] = iter(batch)  # unpacks
        data = np.frombuffer(batch._buffer, np.uint8)
        if not batch.compression_type:
            data = data[batch.HEADER_STRUCT.size :]
        found = values_of(data, batch.records_count, batch.base_offset, self._first)
        if found is None:
            return records
        values, offsets = found
        if not offsets.size:
            return iter(())
        return iter((DefaultRecord(data.size, int(offsets[-1]), -1, 0, None, (values, offsets), []),))


class _Batches:
    """The batches of a fetch, of which messages before the offset `first` were not asked for."""

    def __init__(self, records: MemoryRecords, first: int) -> None:
        self._records, self._first = records, first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def next_batch(self) -> Any:
        """Returns the next batch, or None."""
        batch = self._records.next_batch()
        plain = isinstance(batch, DefaultRecordBatch) and not batch.is_control_batch
        return _Batch(batch, self._first) if plain and batch.records_count >= SMALL_BATCH else batch


def keep_whole(consumer: Any) -> bool:
    """Has a consumer deliver batches as a whole; returns whether it does. For `runs_of`."""
    try:
        fetcher = consumer._fetcher
        read = fetcher.PartitionRecords
        _try(read)
    except Exception as error:
        log.warning("kafka-python: its record batches cannot be read (%r); messages are read one by one", error)
        return False
    fetcher.PartitionRecords = lambda first, place, records, **options: read(
        first, place, _Batches(records, first), **options
    )
    return True


def _try(read: Any) -> None:
    """Raises an exception if the library's reader does not take batches as they are made here."""
    values = [b"%d" % k for k in range(SMALL_BATCH)]
    builder = MemoryRecordsBuilder(2, 0, 1_000)
    for value in values:
        builder.append(0, None, value)
    builder.close()
    (run,) = runs_of("", 0, read(0, TopicPartition("", 0), _Batches(builder.records(), 0)).take())
    if not isinstance(run.values, Lines) or list(run.values) != values or run.end != SMALL_BATCH:
        raise TypeError("read as something else")


def runs_of(topic: str, partition: int, records: Iterable[Any]) -> Iterator[MessageRun]:
    """Yields the messages of a poll: each whole batch is a run, and so are the messages between two of them."""
    for whole, some in groupby(records, lambda record: type(record.value) is tuple):
        if whole:
            yield from (MessageRun(topic, partition, *record.value) for record in some)
        else:
            these = list(some)
            yield MessageRun(topic, partition, [r.value for r in these], [r.offset for r in these])

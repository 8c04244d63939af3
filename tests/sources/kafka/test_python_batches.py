"""kafka-python's batches as a whole."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.protocol.consumer import IsolationLevel
from kafka.record import MemoryRecords, MemoryRecordsBuilder
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

from streameval.sources.formats.line_text import Lines
from streameval.sources.kafka import python_batches
from streameval.sources.kafka.python_batches import SMALL_BATCH, keep_whole, runs_of

PLACE = TopicPartition("t", 0)
CODECS = {"none": 0, "gzip": 1, "lz4": 3, "zstd": 4}


def batch(first: int, values: list[bytes | None], codec: int = 0, producer: int = -1) -> bytes:
    """A batch; `producer`: of a transaction of it."""
    builder = MemoryRecordsBuilder(2, codec, 1 << 24)
    if producer >= 0:
        builder.set_producer_state(producer, 0, 0, True)
    for value in values:
        builder.append(timestamp=1_700_000_000_000, key=b"k", value=value)
    builder.close()
    whole = bytearray(builder.buffer())
    whole[:8] = first.to_bytes(8, "big")  # not in the sum
    return bytes(whole)


def marker(offset: int, producer: int, commit: bool) -> bytes:
    """A control batch, which ends a transaction."""
    builder = DefaultRecordBatchBuilder(2, 0, True, producer, 0, -1, 1_000)
    builder.append(0, timestamp=0, key=bytes([0, 0, 0, int(commit)]), value=b"\0\0\0\0\0\0", headers=[])
    whole = builder.build()
    whole[:8] = offset.to_bytes(8, "big")
    whole[21:23] = (0x30).to_bytes(2, "big")  # transactional, control
    whole[17:21] = calc_crc32c(memoryview(whole)[21:]).to_bytes(4, "big")
    return bytes(whole)


def hooked() -> Any:
    """The reader of fetched records that `keep_whole` gives a consumer."""
    fetcher = SimpleNamespace(PartitionRecords=Fetcher.PartitionRecords)
    assert keep_whole(SimpleNamespace(_fetcher=fetcher))
    return fetcher.PartitionRecords


def read(make: Any, data: bytes, first: int = 0, aborted: Any = None, step: int | None = None) -> Any:
    """(offset and value of every message, the next offset, how many came in a batch)."""
    part = make(
        *(first, PLACE, MemoryRecords(data)),
        isolation_level=IsolationLevel.READ_COMMITTED,
        aborted_transactions=aborted,
    )
    messages: list[tuple[int, bytes | None]] = []
    whole = 0
    while part:
        records = part.take(step)
        for run in runs_of("t", 0, records):
            messages += zip(map(int, run.offsets), run.values, strict=True)
            whole += len(run.offsets) if isinstance(run.values, Lines) else 0
        if not records:
            break
    return messages, part.next_fetch_offset, whole


def values(count: int, word: bytes = b"v") -> list[bytes | None]:
    return [b"%b%d" % (word, k) for k in range(count)]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("step", [1, 3, None])
@pytest.mark.parametrize("first", [0, 5, 27, 61])
def test_both_ways_read_the_same(codec: int, step: int | None, first: int) -> None:
    data = b"".join(
        (
            batch(0, values(20), codec),
            batch(20, values(SMALL_BATCH - 1, b"small"), codec),
            batch(30, [*values(10), None, b"", b"x" * 100_000], codec),
            batch(50, [*values(10), b"", b"x" * 100_000], codec),
            batch(62, values(20, "\u00e4".encode()), codec),
        )
    )
    messages, end, whole = read(hooked(), data, first, step=step)
    assert (messages, end) == read(Fetcher.PartitionRecords, data, first, step=step)[:2]
    assert whole == sum(1 for offset, _ in messages if offset < 20 or offset >= 50)


def test_aborted_transactions_and_control_records_are_left_out() -> None:
    data = b"".join(
        (
            batch(0, values(10, b"good"), producer=7),
            marker(10, 7, True),
            batch(11, values(10, b"bad"), producer=8),
            batch(21, values(10, b"free")),
            marker(31, 8, False),
            batch(32, values(10, b"again"), producer=8),
            marker(42, 8, True),
        )
    )
    aborted = [SimpleNamespace(producer_id=8, first_offset=11)]
    messages, end, whole = read(hooked(), data, aborted=aborted)
    assert (messages, end) == read(Fetcher.PartitionRecords, data, aborted=aborted)[:2]
    assert [offset for offset, _ in messages] == [*range(10), *range(21, 31), *range(32, 42)]
    assert end == 43
    assert whole == 30


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_read_one_by_one(magic: int) -> None:
    builder = MemoryRecordsBuilder(magic, 0, 1 << 20)
    for value in values(20):
        builder.append(timestamp=1, key=None, value=value)
    builder.close()
    messages, _, whole = read(hooked(), bytes(builder.buffer()))
    assert messages == list(enumerate(values(20)))
    assert whole == 0


def test_a_damaged_batch_is_the_librarys_error() -> None:
    damaged = bytearray(batch(0, values(20)))
    damaged[100] ^= 1
    errors = []
    for make in (hooked(), Fetcher.PartitionRecords):
        with pytest.raises(Exception, match="failed crc check") as error:
            read(make, bytes(damaged))
        errors.append((type(error.value), str(error.value)))
    assert errors[0] == errors[1]


def test_the_locked_version_shows_its_batches(caplog: pytest.LogCaptureFixture) -> None:
    """If this fails after an upgrade of kafka-python, reading with it is ten times slower: look at `python_batches`."""
    consumer = KafkaConsumer(bootstrap_servers=["127.0.0.1:1"], bootstrap_timeout_ms=0, api_version=(2, 6))
    try:
        assert keep_whole(consumer)
        assert not [record for record in caplog.records if record.name.startswith("streameval")]
    finally:
        consumer.close()


@pytest.mark.parametrize("lacks", ["_fetcher", "PartitionRecords", "_buffer", "another way"])
def test_another_version_reads_messages_one_by_one(
    lacks: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer: Any = SimpleNamespace(_fetcher=SimpleNamespace(PartitionRecords=Fetcher.PartitionRecords))
    if lacks == "_fetcher":
        del consumer._fetcher
    elif lacks == "PartitionRecords":
        del consumer._fetcher.PartitionRecords
    elif lacks == "_buffer":
        monkeypatch.setattr(python_batches, "values_of", lambda *_: bytearray()._buffer)  # type: ignore[attr-defined]
    else:  # records that are made of bytes, not of what a record has
        record = SimpleNamespace(value=None, offset=0)
        consumer._fetcher.PartitionRecords = lambda first, place, records: SimpleNamespace(take=lambda: [record])
    before = getattr(getattr(consumer, "_fetcher", None), "PartitionRecords", None)
    with caplog.at_level(logging.WARNING):
        assert not keep_whole(consumer)
    assert len(caplog.records) == 1
    assert getattr(getattr(consumer, "_fetcher", None), "PartitionRecords", None) is before

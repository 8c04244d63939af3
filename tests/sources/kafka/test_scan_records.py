"""Values and offsets of record batches, by the kernel and by the library that made them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import CorruptRecordError
from kafka.record import MemoryRecords, MemoryRecordsBuilder

from streameval.sources.kafka.scan_records import values_of

HEADER = 61  # bytes before the records of an uncompressed batch
some_bytes = st.one_of(st.binary(max_size=20), st.binary(min_size=60, max_size=70), st.just(b"x" * 20_000))
headers = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=5)), max_size=3)
records = st.tuples(
    st.integers(0, 3),  # offsets skipped before it
    st.integers(0, 2**41),
    st.none() | some_bytes,
    st.none() | some_bytes,
    headers,
)


def batch_of(made: list[Any], base: int) -> bytes:
    """An uncompressed batch."""
    builder = MemoryRecordsBuilder(2, 0, 1 << 24)
    for number, (skipped, ts, key, value, names) in enumerate(made):
        builder.skip(skipped if number else 0)
        builder.append(timestamp=ts, key=key, value=value, headers=names)
    builder.close()
    return base.to_bytes(8, "big") + bytes(builder.buffer()[8:])


def by_library(batch: bytes) -> list[tuple[int, bytes | None]] | None:
    """(offset, value) of every record; None if it refuses the batch."""
    try:
        return [(record.offset, record.value) for record in MemoryRecords(batch).next_batch()]
    except CorruptRecordError:
        return None


def by_kernel(batch: bytes, count: int, base: int, first: int = 0) -> list[tuple[int, bytes]] | None:
    found = values_of(np.frombuffer(batch, np.uint8)[HEADER:], count, base, first)
    return None if found is None else list(zip(found[1].tolist(), found[0], strict=True))


@given(st.lists(records, min_size=1, max_size=12), st.integers(0, 2**50), st.integers(-2, 20))
def test_a_whole_batch_is_what_the_library_makes_of_it(made: list[Any], base: int, skipped: int) -> None:
    batch = batch_of(made, base)
    found = by_kernel(batch, len(made), base, base + skipped)
    plain = all(value is not None for _, _, _, value, _ in made)
    plain = plain and all(name.isascii() for *_, names in made for name, _ in names)
    expected = [one for one in by_library(batch) or [] if one[0] >= base + skipped]
    assert found == (expected if plain else None)


@given(st.lists(records, min_size=1, max_size=6), st.data())
def test_what_the_library_refuses_is_never_read(made: list[Any], data: st.DataObject) -> None:
    batch = bytearray(batch_of(made, 0))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(HEADER, min(len(batch) - 1, HEADER + 200)))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from((0, 0, 1, 5)))
    batch = batch[: max(HEADER, len(batch) - cut)]
    found = by_kernel(bytes(batch), len(made), 0)
    assert found is None or found == by_library(bytes(batch))


def test_attributes_that_the_library_reads_otherwise_are_left_to_it() -> None:
    """It takes them for a varint of several bytes, and refused what the kernel had read."""
    batch = bytearray(batch_of([(0, 0, None, b"v", [])], 0))
    assert by_kernel(bytes(batch), 1, 0) == [(0, b"v")]
    batch[HEADER + 1] |= 0x80
    assert by_library(bytes(batch)) is None
    assert by_kernel(bytes(batch), 1, 0) is None


def test_more_records_than_there_can_be_take_no_memory() -> None:
    assert by_kernel(batch_of([(0, 0, None, b"v", [])], 0), 2**31 - 1, 0) is None

"""The short form of the fuzz: the same inputs every time; `python -m tests.fuzz` is the long one."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.laws import MAX_MESSAGE, Form, decode
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_decoders_survive_and_lose_nothing(name: str) -> None:
    strategy, check = TARGETS[name]

    @settings(
        max_examples=120, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip
    @given(strategy)
    def law(example: object) -> None:
        check(example)

    law()


def stream(table: pa.Table, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    options = pyarrow.ipc.IpcWriteOptions(compression=compression)
    with pyarrow.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def bombs() -> dict[str, bytes]:
    n = 100_000
    ids, ts = pa.array(["a"] * 4), pa.array([1, 2, 3, 4])
    long = pa.DictionaryArray.from_arrays(pa.array(np.zeros(MAX_MESSAGE // 2, np.int8)), pa.array(["x" * 100_000]))
    one = pa.array(np.zeros(MAX_MESSAGE // 2, np.int8))
    return {
        "compressed zeros": stream(pa.table({"impression_id": ["a"] * n, "ts": np.zeros(n)}), "zstd"),
        "a row for every byte": stream(pa.table({"impression_id": pa.nulls(one.__len__()), "ts": one})),
        "columns of nothing": stream(
            pa.table({"impression_id": ids, "ts": ts} | {f"n{i}": pa.nulls(4) for i in range(40)}).take([0] * 9000),
            "zstd",
        ),
        "a long text by reference": stream(
            pa.table({"impression_id": long, "ts": pa.array(np.zeros(len(long), np.int8))}), "zstd"
        ),
    }


@pytest.mark.parametrize("name", sorted(bombs()))
def test_a_message_that_unfolds_to_far_more_than_it_is_goes_to_the_dead_letters_unread(name: str) -> None:
    value = bombs()[name]
    before = pa.total_allocated_bytes()
    peak = pa.default_memory_pool().max_memory()
    _, batch, letters = decode(Form(), [value], [1], "arrow")
    assert [(letter.reason, letter.value) for letter in letters] == [("too_large", value)]
    assert len(batch) == 0
    assert pa.total_allocated_bytes() == before
    assert pa.default_memory_pool().max_memory() - peak < 64 * MAX_MESSAGE


def test_an_array_of_more_elements_than_bytes_could_spell_is_one_dead_letter() -> None:
    value = b"[" + b"1," * (MAX_MESSAGE // 3) + b"1]"
    _, batch, letters = decode(Form(), [value], [1], "json")
    assert len(value) <= MAX_MESSAGE
    assert [(letter.reason, letter.value) for letter in letters] == [("too_large", value)]
    assert len(batch) == 0

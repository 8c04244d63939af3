"""Arrow and Parquet bytes: valid containers of adversarial columns, written in every way that Arrow can write them."""

from __future__ import annotations

import decimal
import io
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from hypothesis import strategies as st

from streameval.events.fields import FIELDS
from tests.fuzz.strategies import NOW, T0, bent

ROWS = 4
_text = pa.array(["a", None, "", "ä" * 30])
_NUMBERS = [
    pa.array([0.25, None, float("nan"), float("inf")]),
    pa.array([0.5, -0.0, 2.0, None], pa.float32()),
    pa.array([0, 1, None, 5], pa.int8()),
    pa.array([2**63 - 1, -(2**63), 0, None], pa.int64()),
    pa.array([2**64 - 1, 2**63, 0, 1], pa.uint64()),
    pa.array([T0, T0 + 1, NOW + 3_600_001, None], pa.int64()),
    pa.array([decimal.Decimal("0.5"), None, decimal.Decimal("1"), decimal.Decimal("-3")], pa.decimal128(30, 10)),
    pa.array([0.5, 0.25, None, 1.0], pa.float16()),
]
_TIMES = [
    pa.array([T0, None, -1, 5], pa.timestamp("ms")),
    pa.array([2**62, -(2**62), 0, None], pa.timestamp("s")),
    pa.array([T0 * 1_000_000, None, 5, 2**63 - 1], pa.timestamp("ns", "Europe/Rome")),
    pa.array([1, 2, None, 2**31 - 1], pa.date32()),
    pa.array([1, None, 3, 4], pa.duration("us")),
    pa.array(["2024-05-01", "x", None, "1700000000000"]),
]
_TEXTS = [
    _text,
    _text.cast(pa.large_string()),
    _text.cast(pa.string_view()),
    _text.cast(pa.binary()),
    pa.array([b"\xff\xfe", b"", None, b"a"], pa.binary_view()),
    pa.array([b"abcd", b"\xff\xff\xff\xff", None, b"    "], pa.binary(4)),
    _text.dictionary_encode(),
    _text.cast(pa.large_string()).dictionary_encode(),
    pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.uint8()), pa.array(["x", None])),
    pa.DictionaryArray.from_arrays(pa.array([0, 0, 1, 1], pa.int16()), pa.array([0.5, 0.25])),
    pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int32()), pa.array(["p", "q"])),
    pa.Array.from_buffers(  # not UTF-8, though it says so
        pa.string(), 4, [None, pa.array([0, 1, 2, 3, 4], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xc3\xa4a")]
    ),
]
_NESTED = [
    pa.array([["a", None], None, [], ["b"]]),
    pa.array([["a"], None, [], ["b"]], pa.large_list(pa.large_string())),
    pa.array([[1.5, None], None, [], [2.0]]),
    pa.array([[["a"]], None, [], [[None]]]),
    pa.array([["a", "b"], None, ["c", "d"], ["e", None]], pa.list_(pa.string(), 2)),
    pa.array([{"v2": 0.5, "v3": None}, None, {"v2": 7.0, "v3": "x"}, {}], pa.struct({"v2": pa.float64(), "v3": pa.string()})),
    pa.array([{"country": "de"}, {"country": None}, None, {"country": "fr"}]),
    pa.array([{"a": {"b": [1]}}, None, {}, {"a": None}]),
    pa.array([[("v2", 0.5)], None, [], [("v2", None), ("v2", 3.0)]], pa.map_(pa.string(), pa.float64())),
    pa.array([[("k", "v")], None, [], [("k", None)]], pa.map_(pa.string(), pa.string())),
    pa.array([[(1, [1])], None, [], []], pa.map_(pa.int64(), pa.list_(pa.int64()))),
    pa.array(['{"v2": 0.5}', "[1]", None, '{"country": "de", "a": {"b": 1}}']),
    pa.array(['{"v2": "\\ud800"}', "{" * 3000, "", '{"a": 1e999, "country": [1]}']),
]  # fmt: skip
_OTHER = [pa.nulls(4), pa.array([True, None, False, True])]
ODD = [*_NUMBERS, *_TIMES, *_TEXTS, *_NESTED, *_OTHER]
_MORE = ["predictions.v9", "policies.v9", "slices.country", "features.a", "unknown", ""]
_GOOD: dict[str, Any] = {
    "impression_id": pa.array(["good-1", "good-2", "good-3", "good-4"]),
    "ts": pa.array([T0, T0 + 1, T0 + 2, T0 + 3]),
    "user_id": pa.array(["u", "v", "u", "w"]),
    "pclick": pa.array([0.1, 0.2, 0.3, 0.4]),
}


@st.composite
def tables(draw: st.DrawFn, most_odd: int = 5) -> pa.Table:
    """Good columns, some of them exchanged for odd ones, some missing, some twice; cut to any number of rows."""
    columns = list(_GOOD.items())
    for name in draw(st.lists(st.sampled_from([*FIELDS, *_MORE]), max_size=most_odd)):
        odd = draw(st.sampled_from(ODD))
        if draw(st.integers(0, 9)):
            columns = [(n, c) for n, c in columns if n != name]
        columns.append((name, odd))
    if draw(st.integers(0, 19)) == 0:
        columns.pop(draw(st.integers(0, len(columns) - 1)))
    table = pa.Table.from_arrays([c for _, c in columns], names=[n for n, _ in columns])
    start = draw(st.integers(0, 2))
    table = table.slice(start, draw(st.integers(0, ROWS)))
    return pa.concat_tables([table, table]) if draw(st.integers(0, 4)) == 0 else table


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, bool]:
    """(an Arrow IPC stream, or file, of one to three tables; whether it is unharmed)."""
    first = draw(tables())
    options = pyarrow.ipc.IpcWriteOptions(
        compression=draw(st.sampled_from([None, "lz4", "zstd"])),
        emit_dictionary_deltas=draw(st.booleans()),
        unify_dictionaries=False,
    )
    sink = io.BytesIO()
    try:
        with pyarrow.ipc.new_stream(sink, first.schema, options=options) as writer:
            for _ in range(draw(st.integers(0, 3))):
                writer.write_table(first)
    except pa.ArrowException:  # a table that Arrow itself cannot write
        return b"", True
    data = sink.getvalue()
    if draw(st.integers(0, 3)) == 0:  # another schema goes on in the middle
        other = io.BytesIO()
        second = draw(tables())
        with pyarrow.ipc.new_stream(other, second.schema) as writer:
            writer.write_table(second)
        data = data[:-8] + other.getvalue()
        return data, False
    if draw(st.booleans()):
        return data, True
    return draw(bent(data, data)), False


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """An Arrow IPC file, whole or harmed."""
    table = draw(tables(3))
    options = pyarrow.ipc.IpcWriteOptions(compression=draw(st.sampled_from([None, "lz4", "zstd"])))
    sink = io.BytesIO()
    try:
        with pyarrow.ipc.new_file(sink, table.schema, options=options) as writer:
            writer.write_table(table)
    except pa.ArrowException:
        return b"ARROW1"
    data = sink.getvalue()
    return data if draw(st.booleans()) else draw(bent(data, data))


@st.composite
def parquet(draw: st.DrawFn) -> bytes:
    """A Parquet file, whole or with its pages, its footer or its magic harmed."""
    table = draw(tables(3))
    sink = io.BytesIO()
    try:
        pq.write_table(
            table, sink,
            compression=draw(st.sampled_from(["none", "snappy", "gzip", "zstd", "lz4", "brotli"])),
            use_dictionary=draw(st.booleans()),
            data_page_version=draw(st.sampled_from(["1.0", "2.0"])),
            write_page_checksum=draw(st.booleans()),
            row_group_size=draw(st.integers(1, 4)),
            store_schema=draw(st.booleans()),
        )  # fmt: skip
    except (pa.ArrowException, ValueError):
        return b"PAR1PAR1"
    data = sink.getvalue()
    return data if draw(st.booleans()) else draw(bent(data, data))

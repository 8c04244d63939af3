"""Rows of a table as JSON objects: the complete form of a dead letter from Arrow or Parquet."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

_ERRORS = (ValueError, OverflowError, TypeError, pa.ArrowException)


def rows_as_json(table: pa.Table, rows: Sequence[int]) -> list[bytes]:
    """Returns each row without its nulls; values that Python or JSON cannot represent become text."""
    if not rows:
        return []
    try:
        objects = table.take(rows).to_pylist()
        return [_encode({name: value for name, value in row.items() if value is not None}) for row in objects]
    except _ERRORS:  # a time out of range, text that is not UTF-8: each cell separately
        return [_encode(_cells(table, row)) for row in rows]


def _cells(table: pa.Table, row: int) -> dict[str, Any]:
    out = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        value = _value(column, row)
        if value is not None:
            out[name] = value
    return out


def _value(column: pa.ChunkedArray, row: int) -> Any:
    cell = column[row]
    try:
        value = cell.as_py()
        _encode(value)
        return value
    except UnicodeDecodeError:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            return {"base64": base64.b64encode(cell.cast(pa.large_binary()).as_py()).decode()}
    except _ERRORS:
        pass
    return str(column.slice(row, 1).to_string())  # Arrow's own form for display


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)

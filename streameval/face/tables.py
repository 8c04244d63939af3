"""Any kind of table as an Arrow table with the wanted columns.

pandas, Polars, DuckDB and others hand over their columns by the Arrow C stream, so none of them is imported here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq

_TABLES = (".parquet", ".arrow", ".feather", ".csv", ".tsv")


def column_names(data: Any) -> list[str] | None:
    """The names of a table's columns; None for data that only `as_table` can tell."""
    if isinstance(data, Mapping):
        return list(data)
    if isinstance(data, (pa.Table, pa.RecordBatch)):
        return list(data.schema.names)
    if (hasattr(data, "__arrow_c_stream__") or hasattr(data, "__dataframe__")) and hasattr(data, "columns"):
        return [str(name) for name in data.columns]
    return None


def as_table(data: Any, wanted: Collection[str] | None = None) -> pa.Table:
    """The columns of a table that are in `wanted` (None: all), without a copy where the maker allows it.

    Takes an Arrow table, batch or reader, whatever speaks the Arrow C stream (pandas, Polars, DuckDB) or the dataframe
    protocol, and a mapping of names to arrays. Raises TypeError for anything else.
    """
    names = column_names(data)
    some = None if names is None or wanted is None else [name for name in names if name in wanted]
    if isinstance(data, Mapping):
        return pa.table({name: data[name] for name in (data if some is None else some)})
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        data = data.read_all()
    if not isinstance(data, pa.Table):
        if some is not None and hasattr(data, "__getitem__") and hasattr(data, "__arrow_c_stream__"):
            data = data[some]  # before they are handed over: what is not wanted may not even be possible in Arrow
        if hasattr(data, "__arrow_c_stream__"):
            data = pa.RecordBatchReader.from_stream(data).read_all()
        elif hasattr(data, "__dataframe__"):
            from pyarrow.interchange import from_dataframe

            data = from_dataframe(data)
        else:
            lazy = "; collect() it first" if hasattr(data, "collect") else ""
            raise TypeError(
                f"{type(data).__name__} is not a table; give a pandas, Polars or Arrow table, a mapping of columns, or a path{lazy}"
            )
    return _without_views(data if wanted is None else data.select([n for n in data.column_names if n in wanted]))


def _without_views(table: pa.Table) -> pa.Table:
    """Texts in one buffer instead of views, for which Arrow lacks many functions."""
    for i, column in enumerate(table.schema):
        kind = column.type
        if pa.types.is_dictionary(kind) and kind.value_type == pa.string_view():
            table = table.set_column(
                i, column.name, table.column(i).cast(pa.dictionary(kind.index_type, pa.large_string()))
            )
        elif kind == pa.string_view():
            table = table.set_column(i, column.name, table.column(i).cast(pa.large_string()))
    return table


def is_table_file(path: Path) -> bool:
    """Whether a file is one table; any other is a log of events."""
    return path.suffix.lower() in _TABLES


def file_columns(path: Path) -> list[str]:
    """The names of the columns in a file that `read_table` reads. Raises OSError, or ValueError if it is damaged."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return list(pq.read_schema(path).names)
    if suffix in (".csv", ".tsv"):
        with pyarrow.csv.open_csv(path, parse_options=_csv(suffix)) as reader:
            return list(reader.schema.names)
    return list(_arrow(path).column_names)


def read_table(path: Path, wanted: Collection[str], texts: Collection[str] = ()) -> pa.Table:
    """The wanted columns of a Parquet, Arrow or CSV file; `texts` are columns of a CSV that are ids, so "007" stays."""
    suffix = path.suffix.lower()
    names = [name for name in file_columns(path) if name in wanted]
    if suffix == ".parquet":
        return pq.read_table(path, columns=names)
    if suffix in (".csv", ".tsv"):
        options = pyarrow.csv.ConvertOptions(
            include_columns=names, column_types={name: pa.string() for name in texts if name in names}
        )
        return pyarrow.csv.read_csv(path, parse_options=_csv(suffix), convert_options=options)
    return _arrow(path).select(names)


def _csv(suffix: str) -> pyarrow.csv.ParseOptions:
    return pyarrow.csv.ParseOptions(delimiter="\t" if suffix == ".tsv" else ",", newlines_in_values=True)


def _arrow(path: Path) -> pa.Table:
    source = pa.memory_map(str(path))
    try:
        return pyarrow.ipc.open_file(source).read_all()
    except pa.ArrowInvalid:
        source.seek(0)
        return pyarrow.ipc.open_stream(source).read_all()

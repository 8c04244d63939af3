"""Any kind of table as an Arrow table with the wanted columns.

pandas, Polars, DuckDB and others hand over their columns by the Arrow C stream, so none of them is imported here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq

from streameval.events.views import without_views

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
    protocol, and a mapping of names to arrays. Raises TypeError for anything else, ValueError for a column that is none.
    """
    names = column_names(data)
    some = None if names is None or wanted is None else [name for name in names if name in wanted]
    twice = next((name for name in some or [] if (some or []).count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"column {twice!r} is there more than once; rename or drop all but one of them")
    if isinstance(data, Mapping):
        return _of_columns(data, list(data) if some is None else some)
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        data = data.read_all()
    if not isinstance(data, pa.Table):
        if some is not None and hasattr(data, "__getitem__") and hasattr(data, "__arrow_c_stream__"):
            data = data[some]  # before they are handed over: what is not wanted may not even be possible in Arrow
        if hasattr(data, "__arrow_c_stream__"):
            data = _handed_over(data)
        elif hasattr(data, "__dataframe__"):
            from pyarrow.interchange import from_dataframe

            data = from_dataframe(data)
        else:
            lazy = next((f"; {name}() it first" for name in ("collect", "to_table") if hasattr(data, name)), "")
            raise TypeError(
                f"{type(data).__name__} is not a table; give a pandas, Polars or Arrow table, a mapping of columns, or a path{lazy}"
            )
    return without_views(data if wanted is None else data.select([n for n in data.column_names if n in wanted]))


def _handed_over(data: Any) -> pa.Table:
    try:
        return pa.RecordBatchReader.from_stream(data).read_all()
    except (pa.ArrowException, NotImplementedError):  # which of the columns is the trouble?
        if not hasattr(data, "columns") or not hasattr(data, "__getitem__"):
            raise
        return _of_columns(data, list(data.columns))


def _of_columns(data: Any, names: Sequence[Any]) -> pa.Table:
    """A table of columns that are given one by one."""
    columns = {name: _column(name, data[name]) for name in names}
    for name, column in columns.items():
        if len(column) != len(columns[names[0]]):
            raise ValueError(
                f"column {names[0]!r} has {len(columns[names[0]])} rows, column {name!r} has {len(column)}: "
                "columns must have one value for each row"
            )
    return pa.table(columns)


def _column(name: Any, values: Any) -> pa.ChunkedArray:
    shape, dtype = getattr(values, "shape", None), getattr(values, "dtype", None)
    if isinstance(shape, tuple) and len(shape) != 1:
        raise ValueError(
            f"column {name!r} has the shape {shape}: must have one value for each row"
            + (", so name one of its columns, such as [:, 1]" if len(shape) == 2 else "")
        )
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise ValueError(f"column {name!r} is {values!r}: must have one value for each row")
    if isinstance(dtype, np.dtype) and not dtype.isnative:
        values = np.asarray(values).astype(dtype.newbyteorder("="))
    try:
        return pa.table({name: values}).column(0)
    except (pa.ArrowException, NotImplementedError) as error:  # PyArrow's, of types for which it has no array
        kind = type(values).__name__ if dtype is None else str(dtype)
        raise ValueError(f"column {name!r} ({kind}) cannot be read: {error}") from None


def is_table_file(path: Path) -> bool:
    """Whether a file is one table; any other is a log of events."""
    return path.suffix.lower() in _TABLES


def file_columns(path: Path) -> list[str]:
    """The names of the columns in a file that `read_table` reads. Raises OSError, or ValueError if it is damaged."""
    suffix = path.suffix.lower()
    with _whole(path):
        if suffix == ".parquet":
            return list(pq.read_schema(path).names)
        if suffix in (".csv", ".tsv"):
            with pyarrow.csv.open_csv(path, parse_options=_csv(suffix)) as reader:
                return list(reader.schema.names)
        return list(_arrow(path).column_names)


def read_table(path: Path, wanted: Collection[str], texts: Collection[str] = ()) -> pa.Table:
    """The wanted columns of a Parquet, Arrow or CSV file; `texts` are columns of a CSV that are ids, so "007" stays.

    Raises as `file_columns` does.
    """
    suffix = path.suffix.lower()
    names = [name for name in file_columns(path) if name in wanted]
    with _whole(path):
        if suffix == ".parquet":
            return without_views(pq.read_table(path, columns=names))
        if suffix in (".csv", ".tsv"):
            options = pyarrow.csv.ConvertOptions(
                include_columns=names, column_types={name: pa.string() for name in texts if name in names}
            )
            return pyarrow.csv.read_csv(path, parse_options=_csv(suffix), convert_options=options)
        table = _arrow(path).select(names)
        table.validate(full=True)  # reading values of a column that leads out of its data would end the process
        return without_views(table)


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """What Arrow finds wrong with a file names the file."""
    kind = {".parquet": "Parquet", ".csv": "CSV", ".tsv": "TSV"}.get(path.suffix.lower(), "Arrow")
    if path.is_file() and not path.stat().st_size:
        raise ValueError(f"{path}: is empty; it must be a table ({kind}) with a row for each impression")
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # no such file, and the like: names it already
            raise
        raise ValueError(
            f"{path}: cannot be read as {kind}; it is damaged, cut off or of another format "
            f"({str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__})"
        ) from error


def _csv(suffix: str) -> pyarrow.csv.ParseOptions:
    return pyarrow.csv.ParseOptions(delimiter="\t" if suffix == ".tsv" else ",", newlines_in_values=True)


def _arrow(path: Path) -> pa.Table:
    source = pa.memory_map(str(path))
    try:
        return pyarrow.ipc.open_file(source).read_all()
    except pa.ArrowInvalid:
        source.seek(0)
        return pyarrow.ipc.open_stream(source).read_all()

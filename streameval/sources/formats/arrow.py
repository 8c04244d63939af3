"""Columnar input (Arrow IPC messages, Parquet, CSV text) to raw columns, a column at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streameval.events.batch import Features
from streameval.events.fields import FIELDS, Field, by_version, required_of_all, scalars
from streameval.sources.formats import features as feature_columns
from streameval.sources.formats.arrow_column import SchemaError, blank_to_null, flat
from streameval.sources.formats.arrow_maps import features_of, slice_of, versions_of
from streameval.sources.formats.raw import ByVersion, RawEvents, Rejection
from streameval.sources.formats.texts import Ids, Words
from streameval.sources.formats.times import as_ms, in_ms


def to_raw(table: pa.Table, kind: int, dimensions: Sequence[str], hashed: bool, dicts: bool, text: bool) -> RawEvents:
    """Raw columns of a table. Raises SchemaError when a required column is missing or has an impossible type."""
    n = table.num_rows
    problems: dict[int, Rejection] = {}
    columns: dict[str, pa.Array] = {}
    for name, chunks in zip(table.column_names, table.columns, strict=True):
        if name in columns:
            what = f'the column "{name[:50]}" appears twice; every column needs its own name'
            raise SchemaError(("wrong_schema", name[:50], what))
        columns[name] = flat(name, chunks)
    return raw_of(Getter(columns, n, text, problems), kind, dimensions, hashed, dicts)


def raw_of(get: Getter, kind: int, dimensions: Sequence[str], hashed: bool, dicts: bool) -> RawEvents:
    """Raw columns of what `get` has. Raises SchemaError as `to_raw`."""
    for name in required_of_all():
        if name not in get.names:
            raise SchemaError(("wrong_schema", name, f"column {name}: is missing; there are {sorted(get.names)[:30]}"))
    ts, has_ts = get.times()
    features, has_features = get.features(hashed, dicts)
    return RawEvents(
        kind=np.full(ts.size, kind, np.int8),
        ts=ts,
        has_ts=has_ts,
        columns={field.name: get.scalar(field) for field in scalars() if field.type != "time"},
        by_version={field.name: get.by_version(field.name) for field in by_version()},
        slices=[get.slice(name) for name in dimensions],
        has_features=has_features,
        features=features,
        problems=get.problems,
    )


_LABEL = "true, false, 0 or 1"


class Getter:
    """Takes contract columns out of a table, by the type each must have."""

    def __init__(self, columns: dict[str, pa.Array], n: int, text: bool, problems: dict[int, Rejection]) -> None:
        self._columns = columns
        self._n = n
        self._text = text
        self.problems = problems

    @property
    def names(self) -> Collection[str]:
        """Of all columns."""
        return self._columns

    def features(self, hashed: bool, dicts: bool) -> tuple[Features | None, NDArray[np.bool_]]:
        """(features in the form that is wanted, where there are any)."""
        given, has = features_of(self._columns, self._n, dicts, self.problems, hashed)
        if not (hashed or dicts):
            return None, has
        features = given if isinstance(given, Features) else feature_columns.from_columns(given, self._n, dicts)
        return feature_columns.from_columns([], self._n, True) if dicts and features.dicts is None else features, has

    def by_version(self, field: str) -> ByVersion:
        """The numbers of a field that gives them to versions."""

        def numbers_of(name: str, column: pa.Array) -> NDArray[np.float64]:
            return Getter({name: column}, self._n, self._text, self.problems).numbers(name)

        return versions_of(field, self._columns, numbers_of, self.problems)

    def slice(self, dimension: str) -> pa.Array | Words:
        """The values of a dimension of slices."""
        return slice_of(self._columns, self._n, dimension, self.problems)

    def scalar(self, field: Field) -> pa.Array | Ids | Words | NDArray[Any]:
        """The column of a field, as `RawEvents.columns` has it."""
        if field.type == "text":
            return self.text(field.name)
        if field.type == "label":
            return self.labels(field.name)
        return self.integers(field) if field.type == "integer" else self.numbers(field.name)

    def text(self, name: str) -> pa.Array | Ids | Words:
        """A string column; integers become their decimal text."""
        column = self._columns.get(name)
        if column is None:
            return pa.nulls(self._n, pa.string())
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.dictionary_decode()
            kind = column.type
        if (
            pa.types.is_string(kind)
            or pa.types.is_large_string(kind)
            or pa.types.is_integer(kind)
            or pa.types.is_null(kind)
        ):
            column = column.cast(pa.string())
            return blank_to_null(column) if self._text and not FIELDS[name].required else column
        raise SchemaError(("wrong_schema", name, f"column {name} is {kind}: must be a string"))

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A float column; NaN: absent. A value that is no finite number becomes a problem."""
        column = self._columns.get(name)
        if column is None:
            return np.full(self._n, np.nan)
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            if not self._text:
                raise SchemaError(("wrong_schema", name, f"column {name} is {kind}: must be a number"))
            column = self._parse(name, blank_to_null(column), pa.float64(), float)
        elif pa.types.is_boolean(kind) or not (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)
        ):
            raise SchemaError(("wrong_schema", name, f"column {name} is {kind}: must be a number"))
        out = np.array(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
        written = column.is_valid().to_numpy(zero_copy_only=False) & ~np.isfinite(out)
        for row in np.flatnonzero(written).tolist():
            self.problems.setdefault(row, ("out_of_range", name, f"{name} = {out[row]}: must be a finite number"))
            out[row] = np.nan
        return out

    def integers(self, field: Field) -> NDArray[np.float64]:
        """A column of whole numbers; NaN: absent. Others, and those out of the field's range, become problems."""
        out = self.numbers(field.name)
        wrong = (out < field.low) | (out != np.floor(out)) | (out > field.high)
        least = f" >= {field.low:g}" if np.isfinite(field.low) else ""
        for row in np.flatnonzero(wrong & ~np.isnan(out)).tolist():
            what = f"{field.name} = {out[row]}: must be an integer{least}"
            self.problems.setdefault(row, ("out_of_range", field.name, what))
            out[row] = np.nan
        return out

    def labels(self, name: str) -> NDArray[np.int8]:
        """A column of labels; -1: absent."""
        column = self._columns.get(name)
        if column is None:
            return np.full(self._n, -1, np.int8)
        if pa.types.is_boolean(column.type):
            return np.array(column.cast(pa.int8()).fill_null(-1).to_numpy(zero_copy_only=False), np.int8)
        if self._text and pa.types.is_string(column.type):
            words = {"true": "1", "false": "0"}  # in any case: R and Excel write TRUE
            self._columns[name] = pa.array([v and words.get(v.lower(), v) for v in column.to_pylist()], pa.string())
        values = self.numbers(name)
        for row in np.flatnonzero(~np.isnan(values) & (values != 0) & (values != 1)).tolist():
            self.problems.setdefault(row, ("out_of_range", name, f"{name} = {values[row]:g}: must be {_LABEL}"))
            values[row] = np.nan
        return np.where(np.isnan(values), -1, values).astype(np.int8)

    def times(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """(`ts` in ms, where it is given)."""
        column = self._columns["ts"]
        kind = column.type
        if pa.types.is_timestamp(kind):
            column = in_ms(column.cast(pa.int64()), kind.unit)
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            column = self._parse("ts", blank_to_null(column), pa.int64(), as_ms)
        elif not pa.types.is_integer(kind):
            raise SchemaError(
                ("wrong_schema", "ts", f"column ts is {kind}: must be integer ms, a timestamp or ISO 8601")
            )
        else:
            column = column.cast(pa.int64(), safe=False)
        has = column.is_valid().to_numpy(zero_copy_only=False)
        return np.array(column.fill_null(0).to_numpy(zero_copy_only=False), np.int64), np.asarray(has, bool)

    def _parse(self, name: str, column: pa.Array, kind: pa.DataType, one: Callable[[str], Any]) -> pa.Array:
        """Text as numbers; a text that is none becomes a problem of its row."""
        try:
            return pc.cast(column, kind)
        except pa.ArrowInvalid:
            pass
        out: list[Any] = []
        for row, value in enumerate(column.to_pylist()):
            try:
                out.append(None if value is None else one(value))
            except (ValueError, OverflowError):
                out.append(_cast(value, kind))
                if out[-1] is None:
                    type_ = FIELDS[name.partition(".")[0]].type
                    what = {"time": "integer ms or ISO 8601", "label": _LABEL}.get(type_, "a number")
                    self.problems.setdefault(row, ("wrong_type", name, f'{name} = "{value[:50]}": must be {what}'))
        return pa.array(out, kind)


def _cast(value: str, kind: pa.DataType) -> Any:
    """What Arrow alone takes for a number (0x1F): then it is one beside a text that is none, too."""
    try:
        return pc.cast(pa.scalar(value), kind).as_py()
    except pa.ArrowInvalid:
        return None

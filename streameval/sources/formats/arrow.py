"""Columnar input (Arrow IPC messages, Parquet, CSV text) to raw columns, a column at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streameval.events.batch import Features
from streameval.events.fields import FIELDS, Field, by_version, required_of_all, scalars
from streameval.sources.formats import features as feature_columns
from streameval.sources.formats import map_columns
from streameval.sources.formats.json import has_surrogate
from streameval.sources.formats.raw import ByVersion, RawEvents, Rejection
from streameval.sources.formats.texts import Ids, Words
from streameval.sources.formats.times import as_ms, in_ms


class SchemaError(ValueError):
    """A stream or file whose columns cannot contain events."""

    def __init__(self, problem: Rejection) -> None:
        super().__init__(problem[2])
        self.problem = problem


def to_raw(table: pa.Table, kind: int, dimensions: Sequence[str], hashed: bool, dicts: bool, text: bool) -> RawEvents:
    """Returns raw columns of a table. Raises SchemaError if a required column is missing or has an impossible type."""
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
    """Returns raw columns of what `get` provides. Raises SchemaError like `to_raw`."""
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


class Getter:
    """Takes the contract's columns from a table, by the type that each must have."""

    def __init__(self, columns: dict[str, pa.Array], n: int, text: bool, problems: dict[int, Rejection]) -> None:
        self._columns = columns
        self._n = n
        self._text = text
        self.problems = problems

    @property
    def names(self) -> Collection[str]:
        """The names of all columns."""
        return self._columns

    def features(self, hashed: bool, dicts: bool) -> tuple[Features | None, NDArray[np.bool_]]:
        """Returns (features in the form needed, whether each row has any)."""
        given, has = _feature_columns(self._columns, self._n, dicts, self.problems, hashed)
        if not (hashed or dicts):
            return None, has
        features = given if isinstance(given, Features) else feature_columns.from_columns(given, self._n, dicts)
        return feature_columns.from_columns([], self._n, True) if dicts and features.dicts is None else features, has

    def by_version(self, field: str) -> ByVersion:
        """Returns the values of a field that has one per version."""
        return _by_version(field, self._columns, self._n, self._text, self.problems)

    def slice(self, dimension: str) -> pa.Array | Words:
        """Returns the values of a slice dimension."""
        return _slice(self._columns, self._n, dimension, self.problems)

    def scalar(self, field: Field) -> pa.Array | Ids | Words | NDArray[Any]:
        """Returns the column of a field in the form of `RawEvents.columns`."""
        if field.type == "text":
            return self.text(field.name)
        if field.type == "label":
            return self.labels(field.name)
        return self.integers(field) if field.type == "integer" else self.numbers(field.name)

    def text(self, name: str) -> pa.Array | Ids | Words:
        """Returns a string column; integers become their decimal text."""
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
            return _blank_to_null(column) if self._text and not FIELDS[name].required else column
        raise SchemaError(("wrong_schema", name, f"column {name} is {kind}: must be a string"))

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Returns a float column; NaN: absent. A value that is not a finite number becomes a problem."""
        column = self._columns.get(name)
        if column is None:
            return np.full(self._n, np.nan)
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            if not self._text:
                raise SchemaError(("wrong_schema", name, f"column {name} is {kind}: must be a number"))
            column = self._parse(name, _blank_to_null(column), pa.float64(), float)
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
        """Returns a column of integers; NaN: absent. Other numbers, and those out of the field's range, become
        problems.
        """
        out = self.numbers(field.name)
        wrong = (out < field.low) | (out != np.floor(out)) | (out > field.high)
        least = f" >= {field.low:g}" if np.isfinite(field.low) else ""
        for row in np.flatnonzero(wrong & ~np.isnan(out)).tolist():
            what = f"{field.name} = {out[row]}: must be an integer{least}"
            self.problems.setdefault(row, ("out_of_range", field.name, what))
            out[row] = np.nan
        return out

    def labels(self, name: str) -> NDArray[np.int8]:
        """Returns a column of labels; -1: absent."""
        column = self._columns.get(name)
        if column is None:
            return np.full(self._n, -1, np.int8)
        if pa.types.is_boolean(column.type):
            return np.array(column.cast(pa.int8()).fill_null(-1).to_numpy(zero_copy_only=False), np.int8)
        if self._text and pa.types.is_string(column.type):
            words = {"true": "1", "false": "0", "True": "1", "False": "0"}
            self._columns[name] = pa.array([words.get(v, v) for v in column.to_pylist()], pa.string())
        values = self.numbers(name)
        for row in np.flatnonzero(~np.isnan(values) & (values != 0) & (values != 1)).tolist():
            self.problems.setdefault(row, ("out_of_range", name, f"{name} = {values[row]:g}: must be 0 or 1"))
            values[row] = np.nan
        return np.where(np.isnan(values), -1, values).astype(np.int8)

    def times(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Returns (`ts` in ms, whether it is given)."""
        column = self._columns["ts"]
        kind = column.type
        if pa.types.is_timestamp(kind):
            column = in_ms(column.cast(pa.int64()), kind.unit)
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            column = self._parse("ts", _blank_to_null(column), pa.int64(), as_ms)
        elif not pa.types.is_integer(kind):
            raise SchemaError(
                ("wrong_schema", "ts", f"column ts is {kind}: must be integer ms, a timestamp or ISO 8601")
            )
        else:
            column = column.cast(pa.int64(), safe=False)
        has = column.is_valid().to_numpy(zero_copy_only=False)
        return np.array(column.fill_null(0).to_numpy(zero_copy_only=False), np.int64), np.asarray(has, bool)

    def _parse(self, name: str, column: pa.Array, kind: pa.DataType, one: Callable[[str], Any]) -> pa.Array:
        """Parses text as numbers; any other text becomes a problem of its row."""
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
                    what = "integer ms or ISO 8601" if name == "ts" else "a number"
                    self.problems.setdefault(row, ("wrong_type", name, f'{name} = "{value[:50]}": must be {what}'))
        return pa.array(out, kind)


def _cast(value: str, kind: pa.DataType) -> Any:
    """Parses what only Arrow accepts as a number (0x1F), so that it is one even if other rows contain other text."""
    try:
        return pc.cast(pa.scalar(value), kind).as_py()
    except pa.ArrowInvalid:
        return None


def flat(name: str, column: pa.ChunkedArray) -> pa.Array:
    """Returns the column in one piece; null values of a dictionary become nulls of the column."""
    whole = column.combine_chunks()
    whole = whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
    if pa.types.is_dictionary(whole.type):
        if whole.dictionary.null_count:
            indices = pc.if_else(
                whole.dictionary.is_valid().take(whole.indices), whole.indices, pa.scalar(None, whole.indices.type)
            )
            whole = pa.DictionaryArray.from_arrays(indices, whole.dictionary)
        if _is_text(whole.type.value_type):
            size = pc.sum(pc.binary_length(whole.dictionary).take(whole.indices)).as_py() or 0
            if size > _MOST_TEXT:
                what = f"column {name[:50]}: {size} bytes of text when written out; at most {_MOST_TEXT}"
                raise SchemaError(("too_large", name[:50], what))
    return whole


_MOST_TEXT = 1 << 28  # bytes; a dictionary of one long text with a byte per row could expand to any size


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _blank_to_null(column: pa.Array) -> pa.Array:
    column = column.cast(pa.string())
    return pc.if_else(pc.equal(pc.utf8_trim_whitespace(column), ""), pa.scalar(None, pa.string()), column)


def _dotted(columns: dict[str, pa.Array], prefix: str) -> list[tuple[str, pa.Array]]:
    """Returns the members of a map-like field: dotted columns, or the children of a struct."""
    whole = columns.get(prefix)
    out = [(name[len(prefix) + 1 :], column) for name, column in columns.items() if name.startswith(prefix + ".")]
    if whole is not None and pa.types.is_struct(whole.type):
        children = whole.flatten()
        out += [(whole.type.field(i).name, child) for i, child in enumerate(children)]
    return out


def _objects(column: pa.Array, field: str, problems: dict[int, Rejection]) -> list[dict[str, Any] | None]:
    """Returns a map column, or a column of JSON objects as text, row by row. Raises SchemaError for any other."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_map = pa.types.is_map(kind) and _is_text(kind.key_type)
    if not (is_map or _is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise _must_be(field, column, "a struct, a map from strings, or JSON objects as text")
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):  # a map to times that Python cannot represent
        raise _must_be(field, column, "a map to numbers, texts or booleans") from None
    out: list[dict[str, Any] | None] = []
    for row, value in enumerate(values):
        if value is None or value == "":
            out.append(None)
        elif is_map:
            out.append(dict(value))
        else:
            try:
                parsed = msgspec.json.decode(value)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                parsed = None
            if not isinstance(parsed, dict):
                problems.setdefault(row, ("wrong_type", field, f"{field}: must be a JSON object"))
                parsed = None
            elif has_surrogate(value, parsed):
                problems.setdefault(row, ("malformed", "", "a string holds a lone surrogate, which is not text"))
                parsed = None
            out.append(parsed)
    return out


def _must_be(field: str, column: pa.Array, what: str) -> SchemaError:
    return SchemaError(("wrong_schema", field, f"column {field} is {str(column.type)[:100]}: must be {what}"))


def _of_map(column: pa.Array | None, read: Callable[[pa.Array], Any]) -> Any:
    """Returns a map column read as a column; None if it must be read row by row, or is not a map."""
    return read(column) if column is not None and map_columns.is_plain_map(column) else None


def _is_objects(column: pa.Array | None) -> bool:
    return column is not None and not pa.types.is_struct(column.type) and not pa.types.is_null(column.type)


def _by_version(
    field: str, columns: dict[str, pa.Array], n: int, text: bool, problems: dict[int, Rejection]
) -> ByVersion:
    rows: list[NDArray[np.int64]] = []
    versions: list[str] = []
    numbers: list[NDArray[np.float64]] = []
    for name, column in _dotted(columns, field):
        whole = f"{field}.{name}"
        number = Getter({whole: column}, n, text, problems).numbers(whole)
        on = np.flatnonzero(~np.isnan(number))
        rows.append(on)
        versions += [name] * on.size
        numbers.append(number[on])
    quick = None if rows else _of_map(columns.get(field), map_columns.by_version)
    if quick is not None:
        return quick
    if _is_objects(columns.get(field)):
        for row, given in enumerate(_objects(columns[field], field, problems)):
            for version, one in (given or {}).items():
                if type(one) not in (int, float):
                    problems.setdefault(row, ("wrong_type", field, f'{field}["{version}"]: must be a number'))
                    continue
                rows.append(np.array([row]))
                versions.append(str(version))
                numbers.append(np.array([float(one)]))
    if not rows:
        return ByVersion(np.empty(0, np.int64), pa.array([], pa.string()), np.empty(0))
    return ByVersion(np.concatenate(rows), pa.array(versions, pa.string()), np.concatenate(numbers))


def _feature_columns(
    columns: dict[str, pa.Array], n: int, dicts: bool, problems: dict[int, Rejection], hashed: bool
) -> tuple[Features | list[tuple[str, pa.Array]], NDArray[np.bool_]]:
    parts = _dotted(columns, "features")
    has = np.zeros(n, bool)
    if _is_objects(columns.get("features")):
        quick = None if dicts else _of_map(columns["features"], map_columns.features if hashed else map_columns.unread)
        if quick is not None:
            return quick, columns["features"].is_valid().to_numpy(zero_copy_only=False)
        given = _objects(columns["features"], "features", problems)
        features, wrong = feature_columns.from_objects(given, dicts)
        for row, message in wrong.items():
            problems.setdefault(row, ("wrong_type", "features", message))
        return features, np.array([g is not None for g in given], bool)
    for name, column in parts:
        if not _can_be_feature(column.type):
            raise _must_be(f"features.{name[:50]}", column, "text, a number, a boolean or a list of strings")
        has |= column.is_valid().to_numpy(zero_copy_only=False)
    return parts, has


def _can_be_feature(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_text(kind.value_type)
    return _is_text(kind) or _is_plain(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)


def _is_plain(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def _slice(columns: dict[str, pa.Array], n: int, name: str, problems: dict[int, Rejection]) -> pa.Array:
    for member, column in _dotted(columns, "slices"):
        if member == name:
            return _as_text(name, column)
    quick = _of_map(columns.get("slices"), lambda column: map_columns.values(column, name))
    if quick is not None:
        return quick
    if _is_objects(columns.get("slices")):
        out: list[str | None] = []
        for row, given in enumerate(_objects(columns["slices"], "slices", problems)):
            value = (given or {}).get(name)
            if value is None or isinstance(value, str):
                out.append(value)
            elif isinstance(value, (bool, int, float)):
                out.append(json.dumps(value))
            else:
                out.append(None)
                what = f'slices["{name}"]: must be a string, number or boolean'
                problems.setdefault(row, ("wrong_type", "slices", what))
        return pa.array(out, pa.string())
    return pa.nulls(n, pa.string())


def _as_text(name: str, column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind) and _is_text(kind.value_type):
        column = column.dictionary_decode()
    if _is_text(column.type):
        return _blank_to_null(column)
    if not (_is_plain(kind) or pa.types.is_null(kind)):
        raise _must_be(f"slices.{name}", column, "text, a number or a boolean")
    return pa.array([None if v is None else json.dumps(v) for v in column.to_pylist()], pa.string())

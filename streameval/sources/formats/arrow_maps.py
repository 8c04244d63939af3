"""Fields with members (features, slices, predictions) of a table: dotted columns, structs, maps, and JSON objects as text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.events.batch import Features
from streameval.sources.formats import features as feature_columns
from streameval.sources.formats import map_columns
from streameval.sources.formats.arrow_column import blank_to_null, is_plain, is_text, must_be
from streameval.sources.formats.json import has_surrogate
from streameval.sources.formats.raw import ByVersion, Rejection


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
    is_map = pa.types.is_map(kind) and is_text(kind.key_type)
    if not (is_map or is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise must_be(field, column, "a struct, a map from strings, or JSON objects as text")
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):  # a map to times that Python cannot represent
        raise must_be(field, column, "a map to numbers, texts or booleans") from None
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


def _of_map(column: pa.Array | None, read: Callable[[pa.Array], Any]) -> Any:
    """Returns a map column read as a column; None if it must be read row by row, or is not a map."""
    return read(column) if column is not None and map_columns.is_plain_map(column) else None


def _is_objects(column: pa.Array | None) -> bool:
    return column is not None and not pa.types.is_struct(column.type) and not pa.types.is_null(column.type)


def versions_of(
    field: str,
    columns: dict[str, pa.Array],
    numbers_of: Callable[[str, pa.Array], NDArray[np.float64]],
    problems: dict[int, Rejection],
) -> ByVersion:
    """The numbers that a field gives to versions; `numbers_of`: those of a column, by its whole name."""
    rows: list[NDArray[np.int64]] = []
    versions: list[str] = []
    numbers: list[NDArray[np.float64]] = []
    for name, column in _dotted(columns, field):
        whole = f"{field}.{name}"
        number = numbers_of(whole, column)
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
                if one is None:  # absent, as in a struct
                    continue
                if type(one) not in (int, float):
                    problems.setdefault(row, ("wrong_type", field, f'{field}["{version}"]: must be a number'))
                    continue
                rows.append(np.array([row]))
                versions.append(str(version))
                numbers.append(np.array([float(one)]))
    if not rows:
        return ByVersion(np.empty(0, np.int64), pa.array([], pa.string()), np.empty(0))
    return ByVersion(np.concatenate(rows), pa.array(versions, pa.string()), np.concatenate(numbers))


def features_of(
    columns: dict[str, pa.Array], n: int, dicts: bool, problems: dict[int, Rejection], hashed: bool
) -> tuple[Features | list[tuple[str, pa.Array]], NDArray[np.bool_]]:
    """(features, or the columns that they are to be made of; where there are any)."""
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
            raise must_be(f"features.{name[:50]}", column, "text, a number, a boolean or a list of strings")
        has |= column.is_valid().to_numpy(zero_copy_only=False)
    return parts, has


def _can_be_feature(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return is_text(kind.value_type)
    return is_text(kind) or is_plain(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)


def slice_of(columns: dict[str, pa.Array], n: int, name: str, problems: dict[int, Rejection]) -> pa.Array:
    """The values of a dimension of slices, as text."""
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
    if pa.types.is_dictionary(kind) and is_text(kind.value_type):
        column = column.dictionary_decode()
    if is_text(column.type):
        return blank_to_null(column)
    if not (is_plain(kind) or pa.types.is_null(kind)):
        raise must_be(f"slices.{name}", column, "text, a number or a boolean")
    return pa.array([None if v is None else json.dumps(v) for v in column.to_pylist()], pa.string())

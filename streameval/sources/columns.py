"""Foreign logs: how to make our fields out of a file's own columns (`[files.columns]`).

user_id = "uid"                                   a column
model = { constant = "policy" }                   the same for every row
user_id = { join = ["f0", "f1"], separator = ":" }  several columns
impression_id = { row = true }                    the row's number
ts = { column = "hour", format = "%y%m%d%H" }     a time in its own format (UTC), or unit = "s" | "ms" | "us"
slices = { country = "geo", policy = { constant = "bts" } }
predictions = { v2 = "score_v2" }
features = ["C*", "I1"]                           columns by name or glob: text is one-hot
features = { columns = ["*"], exclude = ["label"], numeric = ["I*"] }   numeric: text parsed as numbers
header = ["label", "I1", ...]                     names of a file without a header line
delimiter = "\\t"                                  of text files
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streameval.config import ConfigError

FIELDS = (
    "type", "impression_id", "ts", "user_id", "model", "model_version", "pclick", "request_id", "item_id", "position",
    "propensity", "clicked", "value",
)  # fmt: skip
_OPTIONS = ("header", "delimiter")
_MAPS = ("slices", "predictions")


class ColumnMap:
    """The mapping of `[files.columns]`; an empty one changes nothing."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        """Raises ConfigError naming the key that is wrong."""
        self.header: list[str] | None = columns.get("header")
        self.delimiter: str = columns.get("delimiter", ",")
        self._fields = {k: v for k, v in columns.items() if k in FIELDS}
        self._maps = {k: columns[k] for k in _MAPS if k in columns}
        self._features = columns.get("features")
        known = (*FIELDS, *_MAPS, *_OPTIONS, "features")
        for key in columns:
            if key not in known:
                raise ConfigError(f"files.columns.{key}: unknown field; there are {', '.join(known)}")
        for key, spec in self._fields.items():
            _check_spec(f"files.columns.{key}", spec)
        for key, members in self._maps.items():
            if not isinstance(members, dict):
                raise ConfigError(f'files.columns.{key} = {members!r}: must be a table such as {{ country = "geo" }}')
            for member, spec in members.items():
                _check_spec(f"files.columns.{key}.{member}", spec)
        if len(self.delimiter) != 1:
            raise ConfigError(f'files.columns.delimiter = "{self.delimiter}": must be one character')

    @property
    def active(self) -> bool:
        """Whether anything is mapped."""
        return bool(self._fields or self._maps or self._features)

    def apply(self, table: pa.Table, first_row: int) -> pa.Table:
        """The table with our columns (map-like fields dotted). Raises ConfigError for a column that is not there."""
        if not self.active:
            return table
        out: dict[str, Any] = {}
        for field, spec in self._fields.items():
            out[field] = _make(table, f"files.columns.{field}", spec, first_row)
        for field, members in self._maps.items():
            for member, spec in members.items():
                out[f"{field}.{member}"] = _make(table, f"files.columns.{field}.{member}", spec, first_row)
        if self._features is not None:
            out |= self._feature_columns(table)
        return pa.table(out)

    def _feature_columns(self, table: pa.Table) -> dict[str, Any]:
        spec = self._features if isinstance(self._features, dict) else {"columns": self._features}
        wanted, exclude = _globs(spec.get("columns", ["*"])), _globs(spec.get("exclude", []))
        numeric, text = _globs(spec.get("numeric", [])), _globs(spec.get("text", []))
        for pattern in wanted:
            if not any(fnmatchcase(name, pattern) for name in table.column_names):
                raise ConfigError(f'files.columns.features: "{pattern}" matches no column; there are {_names(table)}')
        out: dict[str, Any] = {}
        for name in table.column_names:
            if not _matches(name, wanted) or _matches(name, exclude):
                continue
            column = table[name]
            is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
            if is_text:
                column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
                if _matches(name, numeric):
                    column = _to_numbers(column)
            elif _matches(name, text):
                column = column.cast(pa.string())
            out[f"features.{name}"] = column
        return out


def _globs(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _to_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    try:
        return pc.cast(column, pa.float64())
    except pa.ArrowInvalid:  # what is no number is absent
        out: list[float | None] = []
        for value in column.to_pylist():
            try:
                out.append(None if value is None else float(value))
            except ValueError:
                out.append(None)
        return pa.array(out, pa.float64())


def _check_spec(key: str, spec: Any) -> None:
    if isinstance(spec, str):
        return
    if isinstance(spec, dict):
        kinds = [k for k in ("column", "constant", "join", "row") if k in spec]
        rest = set(spec) - set(kinds) - {"separator", "format", "unit"}
        if len(kinds) == 1 and not rest:
            return
    raise ConfigError(
        f"{key} = {spec!r}: must be a column name, or a table with one of column, constant, join or row "
        '(and separator, format or unit), for example { join = ["a", "b"], separator = ":" }'
    )


def _make(table: pa.Table, key: str, spec: Any, first_row: int) -> pa.Array | pa.ChunkedArray:
    if isinstance(spec, str):
        spec = {"column": spec}
    n = table.num_rows
    if "constant" in spec:
        return pa.array([spec["constant"]] * n)
    if spec.get("row"):
        return pa.array([str(first_row + i) for i in range(n)], pa.string())
    if "join" in spec:
        parts = [_column(table, key, name).cast(pa.string()).fill_null("") for name in spec["join"]]
        return pc.binary_join_element_wise(*parts, spec.get("separator", "_"))
    column = _column(table, key, spec["column"])
    if "format" in spec:
        return pa.array([_parse(key, v, spec["format"]) for v in column.cast(pa.string()).to_pylist()], pa.int64())
    if "unit" in spec:
        scale = {"s": 1000.0, "ms": 1.0, "us": 0.001}.get(spec["unit"])
        if scale is None:
            raise ConfigError(f'{key}.unit = "{spec["unit"]}": must be "s", "ms" or "us"')
        return pc.cast(pc.floor(pc.multiply(pc.cast(column, pa.float64()), scale)), pa.int64())
    return column


def _column(table: pa.Table, key: str, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise ConfigError(f'{key}: the file has no column "{name}"; there are {_names(table)}')
    return table[name]


def _names(table: pa.Table) -> str:
    return ", ".join(table.column_names[:40])


def _parse(key: str, text: str | None, format: str) -> int | None:
    if text is None:
        return None
    try:
        when = datetime.strptime(text, format).replace(tzinfo=UTC)
    except ValueError:
        raise ConfigError(f'{key}: "{text}" does not match format = "{format}"') from None
    return round(when.timestamp() * 1000)

"""Foreign logs: how to make our fields out of a file's own columns (`[files.columns]`).

user_id = "uid"                                   a column
model = { constant = "policy" }                   the same for every row
user_id = { join = ["f0", "f1"], separator = ":" }  several columns
impression_id = { row = true }                    the row's number; as `ts`: of ms since 2000-01-01
ts = { column = "hour", format = "%y%m%d%H" }     a time in its own format (UTC), or unit = "s" | "ms" | "us"
slices = { country = "geo", policy = { constant = "bts" } }
predictions = { v2 = "score_v2" }
features = ["C*", "I1"]                           columns by name or glob: text is one-hot
features = { columns = ["*"], exclude = ["label"], numeric = ["I*"] }   numeric: text parsed as numbers
header = ["label", "I1", ...]                     names of a file without a header line
delimiter = "\\t"                                  of text files
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streameval.events.fields import FIELDS, required_of_all, scalars
from streameval.settings.tree import ConfigError
from streameval.sources.formats.raw import EARLIEST

_OPTIONS = ("header", "delimiter")
_MS = {"s": 1000.0, "ms": 1.0, "us": 0.001}


class ColumnMap:
    """The mapping of `[files.columns]`, or of another `section`; an empty one changes nothing."""

    def __init__(self, columns: Mapping[str, Any], section: str = "files.columns", live: bool = False) -> None:
        """`live`: for messages, which may lack any field, and have no row number and no header. Raises ConfigError
        naming the wrong key.
        """
        plain = [field.name for field in scalars()]
        maps = [field.name for field in FIELDS.values() if field.type in ("values", "numbers")]
        known = (*plain, *maps, *(() if live else _OPTIONS), "features")
        self._section, self._live = section, live
        for key in columns:
            if key not in known:
                raise ConfigError(f"{section}.{key}: unknown field; there are {', '.join(known)}")
        self.header: list[str] | None = columns.get("header")
        self.delimiter: str | None = columns.get("delimiter")
        self._fields = {k: v for k, v in columns.items() if k in plain}
        self._maps = {k: columns[k] for k in maps if k in columns}
        self._features = columns.get("features")
        self._told: set[str] = set()  # keys whose times were readable once: unreadable text is then the row's fault
        _check_options(self.header, self.delimiter)
        for key, spec in self._fields.items():
            _check_spec(f"{section}.{key}", spec)
        for key, members in self._maps.items():
            if not isinstance(members, dict):
                raise ConfigError(f'{section}.{key} = {members!r}: must be a table such as {{ country = "geo" }}')
            for member, spec in members.items():
                _check_spec(f"{section}.{key}.{member}", spec)
        if self._features is not None:
            _check_features(f"{section}.features", self._features)
        for key in required_of_all():
            if self.active and key not in self._fields:
                row = "" if live else f", or write {key} = {{ row = true }}"
                raise ConfigError(f"{section}.{key}: is missing; every event needs one: name a column{row}")
        for key, spec in self._fields.items() if live else ():
            if isinstance(spec, dict) and "row" in spec:
                raise ConfigError(f"{section}.{key} = {spec!r}: messages have no row number; name one of their fields")

    @property
    def active(self) -> bool:
        """Whether anything is mapped."""
        return bool(self._fields or self._maps or self._features)

    @property
    def has_features(self) -> bool:
        """Whether features are mapped."""
        return self._features is not None

    def knows_one_of(self, names: Sequence[str]) -> bool:
        """Whether a line of text can be the header of a mapped file: it contains a name from the mapping."""
        if not self.active:
            return any(field.name in names for field in scalars())
        wanted = self.wanted()
        return not wanted or bool(wanted & set(names))

    def wanted(self) -> set[str]:
        """Returns the columns that the mapping names, without those of features."""
        return {name for _, spec in self._specs() for name in _read_by(spec)}

    def is_feature(self, name: str) -> bool:
        """Whether a column of this name is a feature."""
        if self._features is None:
            return False
        spec = self._features if isinstance(self._features, dict) else {"columns": self._features}
        return _matches(name, _globs(spec.get("columns", ["*"]))) and not _matches(
            name, _globs(spec.get("exclude", []))
        )

    def apply(self, table: pa.Table, first_row: int, made: Mapping[str, Any] | None = None) -> pa.Table:
        """Returns the table with our columns (map-like fields dotted). Raises ConfigError for a column that does not
        exist.

        `made`: columns of these rows already computed by `make`.
        """
        if not self.active:
            return table
        out: dict[str, Any] = {}
        for name, spec in self._specs():
            if made is not None and name in made:
                out[name] = made[name]
            else:
                out[name] = self._make(table, f"{self._section}.{name}", spec, first_row)
        if self._features is not None:
            out |= self._feature_columns(table)
        return pa.table(out)

    def plain(self, names: Sequence[str]) -> dict[str, str]:
        """Returns, by our name, the columns of a text file with these `names` that are used unchanged. Raises
        ConfigError.
        """
        if not self.active:
            return {name: name for name in names}
        if self._features is not None:
            spec = self._features if isinstance(self._features, dict) else {"columns": self._features}
            self._need_columns(names, _globs(spec.get("columns", ["*"])))
        out = {}
        for name, spec in self._specs():
            if _is_plain(spec):
                out[name] = spec if isinstance(spec, str) else spec["column"]
        return out | {f"features.{name}": name for name in names if self.is_feature(name)}

    def numeric(self, name: str) -> bool:
        """Whether a feature, by its column's name, is a number written as text."""
        return isinstance(self._features, dict) and _matches(name, _globs(self._features.get("numeric", [])))

    def textual(self, name: str) -> bool:
        """Whether a feature, by its column's name, is text even if it is written as a number."""
        return isinstance(self._features, dict) and _matches(name, _globs(self._features.get("text", [])))

    def needs(self) -> set[str]:
        """Returns the columns that `make` reads."""
        return {name for _, spec in self._specs() if not _is_plain(spec) for name in _read_by(spec)}

    def make(self, table: pa.Table, first_row: int) -> dict[str, Any]:
        """Returns, by our name, the columns that are computed from others. Raises ConfigError."""
        return {
            name: self._make(table, f"{self._section}.{name}", spec, first_row)
            for name, spec in self._specs()
            if not _is_plain(spec)
        }

    def _specs(self) -> Iterator[tuple[str, Any]]:
        """Yields (our name, its definition) for all fields except features."""
        yield from self._fields.items()
        for field, members in self._maps.items():
            for member, spec in members.items():
                yield f"{field}.{member}", spec

    def _feature_columns(self, table: pa.Table) -> dict[str, Any]:
        spec = self._features if isinstance(self._features, dict) else {"columns": self._features}
        wanted, exclude = _globs(spec.get("columns", ["*"])), _globs(spec.get("exclude", []))
        numeric, text = _globs(spec.get("numeric", [])), _globs(spec.get("text", []))
        self._need_columns(table.column_names, wanted)
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
                column = _as_text(f"{self._section}.features.text", name, column)
            out[f"features.{name}"] = column
        return out

    def _need_columns(self, names: Sequence[str], patterns: Sequence[str]) -> None:
        for pattern in patterns:
            if not self._live and not any(fnmatchcase(name, pattern) for name in names):
                there = ", ".join(names[:40])
                raise ConfigError(f'{self._section}.features: "{pattern}" matches no column; there are {there}')

    def _make(self, table: pa.Table, key: str, spec: Any, first_row: int) -> pa.Array | pa.ChunkedArray:
        if isinstance(spec, str):
            spec = {"column": spec}
        n = table.num_rows
        if "constant" in spec:
            return pa.array([spec["constant"]] * n)
        if "row" in spec:
            # a log without times gets one ms per row, from the earliest valid time on
            first = first_row + (EARLIEST if key.endswith("columns.ts") else 0)
            return pa.array([str(first + i) for i in range(n)], pa.string())
        if "join" in spec:
            parts = [_as_text(key, name, _column(table, key, name)).fill_null("") for name in spec["join"]]
            return pc.binary_join_element_wise(*parts, spec.get("separator", "_"))
        column = _column(table, key, spec["column"])
        if "format" in spec:
            text = _as_text(key, spec["column"], column)
            return self._times(key, text, f'format = "{spec["format"]}"', lambda v: _parse(v, spec["format"]))
        if "unit" not in spec or pa.types.is_timestamp(column.type):  # a timestamp has its own unit
            return column
        scaled = _scaled(column, spec["unit"])
        if scaled is not None:
            self._told.add(key)
            return scaled
        text = _as_text(key, spec["column"], column)
        return self._times(key, text, f'unit = "{spec["unit"]}"', lambda v: _scale(v, spec["unit"]))

    def _times(self, key: str, column: pa.Array, wanted: str, read: Callable[[str], int | None]) -> pa.Array:
        """Returns ms, or text if some value is not a time: text that no decoder accepts as one, so that only its row is
        rejected.
        """
        encoded = pc.dictionary_encode(column)
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        texts: list[str | None] = encoded.dictionary.to_pylist()
        times = [read(v) if v is not None and v.strip() else None for v in texts]
        wrong = [v for v, ms in zip(texts, times, strict=True) if ms is None and v is not None and v.strip()]
        if any(ms is not None for ms in times):
            self._told.add(key)
        elif wrong and not self._live and key not in self._told:
            raise ConfigError(f"{key}: none of the first values matches {wanted}")
        if not wrong:
            return pa.array(times, pa.int64()).take(encoded.indices)
        said = [
            str(ms) if ms is not None else f'{v[:20]}" does not match {wanted}' if v is not None and v.strip() else None
            for v, ms in zip(texts, times, strict=True)
        ]
        return pa.array(said, pa.string()).take(encoded.indices)


def _read_by(spec: Any) -> list[str]:
    """Returns the columns that a field is computed from: none for a constant, or for the row's number."""
    return [spec] if isinstance(spec, str) else spec.get("join", [spec["column"]] if "column" in spec else [])


def _is_plain(spec: Any) -> bool:
    """Whether a field is an unchanged column."""
    return isinstance(spec, str) or set(spec) == {"column"}


def _globs(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _to_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    try:
        return pc.cast(column, pa.float64())
    except pa.ArrowInvalid:  # what is not a number is absent
        out: list[float | None] = []
        for value in column.to_pylist():
            try:
                out.append(None if value is None else float(value))
            except ValueError:
                out.append(None)
        return pa.array(out, pa.float64())


def _check_options(header: Any, delimiter: Any) -> None:
    if header is not None:
        if not isinstance(header, list) or not header or not all(isinstance(name, str) and name for name in header):
            raise ConfigError(f'files.columns.header = {header!r}: must be a list of names such as ["label", "I1"]')
        twice = next((name for name in header if header.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f'files.columns.header: names "{twice}" twice; every column needs its own name')
    if delimiter is not None and (
        not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n' or ord(delimiter) > 127
    ):
        raise ConfigError(f'files.columns.delimiter = {delimiter!r}: must be one ASCII character, for example ";"')


def _check_features(key: str, spec: Any) -> None:
    parts = spec if isinstance(spec, dict) else {"columns": spec}
    for part, globs in parts.items():
        if part not in ("columns", "exclude", "numeric", "text"):
            raise ConfigError(f"{key}.{part}: unknown option; there are columns, exclude, numeric and text")
        if not isinstance(globs, str) and not (isinstance(globs, list) and all(isinstance(g, str) for g in globs)):
            raise ConfigError(f'{key} = {globs!r}: must be names or globs such as ["C*", "I1"]')


# kind -> (options allowed with it, check of its value)
_KINDS: dict[str, tuple[set[str], Callable[[Any], bool]]] = {
    "column": ({"format", "unit"}, lambda v: isinstance(v, str)),
    "constant": (set(), lambda v: isinstance(v, (str, int, float))),
    "join": ({"separator"}, lambda v: isinstance(v, list) and bool(v) and all(isinstance(name, str) for name in v)),
    "row": (set(), lambda v: v is True),
}


def _check_spec(key: str, spec: Any) -> None:
    if isinstance(spec, str):
        return
    if isinstance(spec, dict):
        kinds = [k for k in _KINDS if k in spec]
        if len(kinds) == 1:
            options, fits = _KINDS[kinds[0]]
            rest = set(spec) - set(kinds)
            texts = all(isinstance(spec[option], str) for option in rest)
            if rest <= options and len(rest) <= 1 and texts and fits(spec[kinds[0]]):
                if spec.get("unit", "s") not in _MS:
                    raise ConfigError(f'{key}.unit = "{spec["unit"]}": must be "s", "ms" or "us"')
                return
    raise ConfigError(
        f"{key} = {spec!r}: must be a column name, or a table with one of column (and format or unit), constant, "
        'join (and separator) or row = true, for example { join = ["a", "b"], separator = ":" }'
    )


def _as_text(key: str, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        raise ConfigError(f'{key}: the column "{name}" is {column.type}: must be text, a number or a boolean') from None


def _scaled(column: pa.ChunkedArray, unit: str) -> pa.ChunkedArray | None:
    """Returns numbers as integer ms; None if some are not numbers: then each is read separately."""
    try:
        if not pa.types.is_floating(column.type):
            whole = pc.cast(column, pa.int64())
            if unit == "us":
                return pc.divide(whole, 1000)
            return pc.multiply_checked(whole, 1000) if unit == "s" else whole
        # to the microsecond first: 1700000000.123 s is 1700000000122.9999 ms in a double
        return pc.cast(pc.floor(pc.round(pc.multiply(pc.cast(column, pa.float64()), _MS[unit]), 3)), pa.int64())
    except pa.ArrowException:
        return None


def _scale(text: str, unit: str) -> int | None:
    try:
        ms = int(text) * 1000 // round(1000 / _MS[unit])
        return ms if abs(ms) < 1 << 63 else None
    except ValueError:
        pass
    try:
        real = round(float(text) * _MS[unit], 3)
        return math.floor(real) if abs(real) < 1 << 53 else None
    except (ValueError, OverflowError):
        return None


def _column(table: pa.Table, key: str, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise ConfigError(f'{key}: the file has no column "{name}"; there are {_names(table)}')
    return table[name]


def _names(table: pa.Table) -> str:
    return ", ".join(table.column_names[:40])


def _parse(text: str, format: str) -> int | None:
    try:
        when = datetime.strptime(text.strip(), format)
    except ValueError:
        return None
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)

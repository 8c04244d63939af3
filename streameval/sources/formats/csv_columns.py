"""Rows of CSV text, and of mapped JSON lines, to columns by kernels (`csv_cells`), without Arrow in between: the same
result as `arrow`, in a fraction of the time.

Cells that a kernel cannot read for certain are read separately in the way of an entire column without kernels
(`arrow.Getter`), which also describes what is wrong with them. So the two can differ only in speed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.events.batch import Features
from streameval.events.fields import FIELDS, by_version, scalars
from streameval.events.words64 import PADDING
from streameval.sources.formats import csv_cells
from streameval.sources.formats.arrow import Getter
from streameval.sources.formats.arrow_column import flat
from streameval.sources.formats.cell_spans import (
    IS_INTEGER,
    IS_LARGE,
    IS_REAL,
    IS_TEXT,
    IS_TRUTH,
    NotPlainError,
    TextRows,
)
from streameval.sources.formats.mapping import ColumnMap
from streameval.sources.formats.pool import Pool
from streameval.sources.formats.raw import IDS, ByVersion
from streameval.sources.formats.row_json import rows_as_json
from streameval.sources.formats.texts import Ids, Words

_INTEGERS = IS_TEXT | IS_INTEGER | IS_LARGE
_NUMBERS = _INTEGERS | IS_REAL
_BY_TYPE = {
    "text": _INTEGERS, "time": _INTEGERS, "values": _INTEGERS | IS_TRUTH, "label": _NUMBERS | IS_TRUTH, "features": _NUMBERS | IS_TRUTH,
}  # fmt: skip
_ONE_HOT, _NUMBER, _TRUTH = range(3)  # how a feature's column is read


class CellGetter(Getter):
    """Takes the contract's columns from rows of text."""

    def __init__(
        self,
        rows: TextRows,
        mapping: ColumnMap,
        first_row: int,
        dimensions: Collection[str],
        *,
        hashed: bool,
        names: bool,
    ) -> None:
        """`first_row`: the number of the first row over all files; `hashed`: features are needed, `names`: ids are
        needed as text.

        Raises ConfigError, and NotPlainError for columns that do not exist.
        """
        self._rows, self._mapping = rows, mapping
        columns = mapping.plain(rows.names)
        if not set(columns.values()) <= set(rows.names):  # even if nobody reads what is made of them
            raise NotPlainError
        self._all: Collection[str] = columns.keys()
        features = [name for name in columns if name.startswith("features.")]
        self._any_feature = bool(features)
        if not (hashed or mapping.active):  # every row has them, even if all are empty
            features = []
        kept = {field.name for field in scalars()} | {f"slices.{name}" for name in dimensions} | {*features}
        kept |= {name for name in columns for field in by_version() if name.startswith(f"{field.name}.")}
        self._of = {name: column for name, column in columns.items() if name in kept}  # the cells of a field
        objects = [name for name in FIELDS.keys() - kept if name in columns]  # an entire map, as JSON
        need = mapping.needs()
        self._cells = rows.cells(sorted({*self._of.values(), *objects, *need}))
        for name, column in self._of.items():
            if self._cells.kind(column) & ~_BY_TYPE.get(FIELDS[name.split(".")[0]].type, _NUMBERS):
                raise NotPlainError
        given = {name: pa.chunked_array([self._cells.values(name)]) for name in sorted(need)}
        self._made = mapping.make(pa.table({"": pa.nulls(len(rows))} | given), first_row) if mapping.active else {}
        table = pa.table(self._made)
        made = {name: flat(name, column) for name, column in zip(table.column_names, table.columns, strict=True)}
        super().__init__(made | {name: self._cells.texts(name) for name in objects}, len(rows), True, {})
        self._all = columns.keys() | made.keys()
        self._written = names

    @property
    def names(self) -> Collection[str]:
        """The names of all columns."""
        return self._all

    def as_json(self, rows: Sequence[int]) -> list[bytes]:
        """Returns rows as JSON under our names."""
        if not rows:
            return []
        made = {name: column.take(pa.array(rows, pa.int64())) for name, column in self._made.items()}
        return rows_as_json(self._mapping.apply(self._rows.some(rows), 0, made), range(len(rows)))

    def text(self, name: str) -> pa.Array | Ids | Words:
        """Returns a column of text."""
        if name not in self._of:
            if name not in self._columns and name in IDS:
                return Ids(np.zeros(self._n, np.uint64), pa.nulls(self._n, pa.string()))
            return super().text(name)
        out = self._ids(name) if name in IDS else self._words(name)
        if out is None:
            self._columns[name] = self._cells.texts(self._of[name])
            return super().text(name)
        return out

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Returns a float column; NaN: absent."""
        return self._numbers(name, False) if name in self._of else super().numbers(name)

    def labels(self, name: str) -> NDArray[np.int8]:
        """Returns a column of labels; -1: absent."""
        if name not in self._of:
            return super().labels(name)
        return np.nan_to_num(self._numbers(name, True), nan=-1.0).astype(np.int8)

    def times(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Returns (`ts` in ms, whether it is given)."""
        if "ts" not in self._of:
            return super().times()
        out, has, unsure = np.empty(self._n, np.int64), np.empty(self._n, np.bool_), np.empty(self._n, np.int64)
        left = csv_cells.read_times(self._cells.text, self._cells.spans(self._of["ts"]), out, has, unsure)
        if left:
            rows = unsure[:left]
            rest = self._rest("ts", rows)
            out[rows], has[rows] = rest.times()
            self._record_problems(rest, rows)
        return out, has

    def by_version(self, field: str) -> ByVersion:
        """Returns the values of a field that has one per version, column after column."""
        mine = [name for name in self._of if name.startswith(f"{field}.")]
        others = [name for name in self._columns if name.split(".")[0] == field]
        if not mine:
            return super().by_version(field)
        if others:  # in the order of the mapping
            raise NotPlainError
        numbers = [self.numbers(name) for name in mine]
        on = [np.flatnonzero(~np.isnan(column)) for column in numbers]
        code = np.repeat(np.arange(len(mine), dtype=np.int32), [rows.size for rows in on])
        values = [name[len(field) + 1 :] for name in mine]
        number = np.concatenate([column[rows] for column, rows in zip(numbers, on, strict=True)])
        return ByVersion(np.concatenate(on), Words(code, values), number)

    def slice(self, dimension: str) -> pa.Array | Words:
        """Returns the values of a slice dimension."""
        name = f"slices.{dimension}"
        if name not in self._of:
            return super().slice(dimension)
        out = self._words(name)
        if out is None:
            self._columns[name] = self._cells.texts(self._of[name])
            return super().slice(dimension)
        return out

    def features(self, hashed: bool, dicts: bool) -> tuple[Features | None, NDArray[np.bool_]]:
        """Returns (hashed features if they are needed, whether each row has any)."""
        mine = [name for name in self._of if name.startswith("features.")]
        if "features" in self._columns or not (mine or self._any_feature):
            return super().features(hashed, dicts)
        if not mine:
            return None, np.ones(self._n, bool)
        mapped = self._mapping.active
        how = np.array([self._how(self._of[name]) for name in mine], np.int8)
        encoded = [name[len("features.") :].encode() for name in mine]
        known = np.frombuffer(b"".join(encoded) + PADDING, np.uint8)
        bounds = np.zeros((len(mine), 2), np.int64)
        bounds[:, 1] = np.cumsum([len(name) for name in encoded])
        bounds[1:, 0] = bounds[:-1, 1]
        spans = self._cells.several([self._of[name] for name in mine])
        most = int((spans[:, 1] - spans[:, 0]).max(initial=0)) + max(map(len, encoded))
        entry, value = np.empty(len(mine) * self._n, np.uint64), np.empty(len(mine) * self._n)
        indptr, scratch = np.empty(self._n + 1, np.int64), np.empty(most + 3 * len(PADDING), np.uint8)
        used = csv_cells.read_features(
            self._cells.text,
            spans,
            bounds + known.ctypes.data,
            how,
            mapped,
            entry,
            value,
            indptr=indptr,
            scratch=scratch,
        )
        if used < 0:
            raise NotPlainError
        has = np.diff(indptr) > 0 if mapped else np.ones(self._n, bool)
        return (Features(indptr, entry[:used], value[:used]) if hashed else None), has

    # -- inside --------------------------------------------------------------------------------------------------

    def _ids(self, name: str) -> Ids | None:
        """Returns a column of ids; None if a cell may be white space only."""
        out, unsure = np.empty(self._n, np.uint64), np.empty(self._n, np.int64)
        spans = self._cells.spans(self._of[name])
        if csv_cells.hash_ids(self._cells.text, spans, not FIELDS[name].required, out, unsure):
            return None
        return Ids(out, self._cells.texts(self._of[name]) if self._written else None)

    def _words(self, name: str) -> Words | None:
        """Returns a column of words; None if a cell may be white space only, or there are too many words."""
        out, unsure, pool = np.empty(self._n, np.int64), np.empty(self._n, np.int64), Pool.of(1, self._n)
        if csv_cells.code_words(self._cells.text, self._cells.spans(self._of[name]), 0, pool, out, unsure):
            return None
        return self._cells.words(out, pool)

    def _numbers(self, name: str, labels: bool) -> NDArray[np.float64]:
        out, unsure = np.empty(self._n), np.empty(self._n, np.int64)
        left = csv_cells.read_numbers(self._cells.text, self._cells.spans(self._of[name]), labels, out, unsure)
        if left:
            rows = unsure[:left]
            rest = self._rest(name, rows)
            if labels:
                found = rest.labels(name)
                out[rows] = np.where(found < 0, np.nan, found)
            else:
                out[rows] = rest.numbers(name)
            self._record_problems(rest, rows)
        return out

    def _how(self, column: str) -> int:
        """Returns how a column of features is read."""
        kind, written = self._cells.kind(column), self._mapping.textual(column)
        if kind & IS_TEXT:
            return _NUMBER if self._mapping.numeric(column) else _ONE_HOT
        if written and kind & IS_REAL:  # Arrow has its own form
            raise NotPlainError
        return _ONE_HOT if written else _TRUTH if kind & IS_TRUTH else _NUMBER

    def _rest(self, name: str, rows: NDArray[np.int64]) -> Getter:
        """Returns the cells of some rows, for Arrow."""
        return Getter({name: self._cells.texts(self._of[name], rows)}, rows.size, True, {})

    def _record_problems(self, rest: Getter, rows: NDArray[np.int64]) -> None:
        """Records the problems of these rows."""
        for k, problem in rest.problems.items():
            self.problems.setdefault(int(rows[k]), problem)

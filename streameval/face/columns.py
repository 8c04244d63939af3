"""Columns of a labelled table in the form that counting needs: ids hashed, names coded, numbers checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streameval.counting.scoreboard import Labelled
from streameval.events.batch import Catalog
from streameval.events.columns import Scored
from streameval.events.fields import MAX_WEIGHT
from streameval.events.hashing import hash_strings
from streameval.sketches.blocks import item_blocks_of
from streameval.sketches.copies import Copies, by_label, copies_of

PIECE = 1 << 16  # rows that are made ready while the piece before is counted
_2000 = 946_684_800_000  # ms: 2000-01-01 00:00; rows without a time are put in its first hour, as panes of a minute
_PANES, _FEWEST = 60, 512  # of it at most, and rows of a pane at least
_BLOCK, _MANY = 64, 1 << 20  # rows that stay together when more than so many are shuffled: ten times as fast
_EMPTY = np.uint64(0xEF46DB3751D8E999)  # the hash of ""
NOBODY = 4096  # users that rows without one are spread over: errors are then between rows, as if each stood alone


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column of a table holds what; None: none does. `scores` gives the columns of pClick by version: the first
    version served, the others scored along. With a `version` column there is one, of whatever version the row names."""

    label: str
    scores: Mapping[str, str]
    user: str | None = None
    version: str | None = None
    model: str | None = None
    ts: str | None = None
    request: str | None = None
    item: str | None = None
    value: str | None = None
    weight: str | None = None
    slices: Mapping[str, str] = field(default_factory=dict)  # column by dimension

    def names(self) -> set[str]:
        """Every column that is read."""
        rest = (self.ts, self.request, self.item, self.value, self.weight)
        alone = (self.label, self.user, self.version, self.model, *rest)
        return {name for name in (*alone, *self.scores.values(), *self.slices.values()) if name is not None}

    def texts(self) -> set[str]:
        """Those that are ids or names, however much they look like numbers."""
        some = (self.user, self.version, self.model, self.request, self.item, *self.slices.values())
        return {name for name in some if name is not None}


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows, in order of time."""

    labelled: Labelled
    scored: Scored
    request: NDArray[np.uint64] | None  # 0: none


class TableRows:
    """The rows of a table in order of time. Raises ValueError for missing columns and invalid values.

    Rows without a time have no meaningful order, as a table may be sorted by score or label: they are shuffled, always
    in the same way.
    """

    def __init__(self, table: pa.Table, columns: Columns, catalog: Catalog, negatives: float = 1.0) -> None:
        """`catalog`: of the dimensions `columns.slices`, in that order; `negatives`: share of the non-clicks that the table holds."""
        self._columns, self._catalog, self._negatives = columns, catalog, negatives
        missing = sorted(columns.names() - set(table.column_names))
        if missing:
            raise ValueError(f"there is no column {missing[0]!r}; there are {', '.join(table.column_names)}")
        table = table.select(sorted(columns.names()))
        self._order: NDArray[np.int64] | None = None  # None: as the table has them
        if columns.ts is None:
            self._order, self.ts = _shuffled(table.num_rows)
        else:
            self.ts = _times(columns.ts, table[columns.ts])
            if bool((self.ts[1:] < self.ts[:-1]).any()):
                self._order = np.argsort(self.ts, kind="stable")
                self.ts = self.ts[self._order]
        self._table = table

    def __len__(self) -> int:
        return len(self.ts)

    def pieces(self, size: int = PIECE) -> Iterator[Piece]:
        """All rows, so many at a time."""
        for start in range(0, len(self), size):
            yield self._piece(start, min(start + size, len(self)))

    def _piece(self, start: int, end: int) -> Piece:
        n, columns, order = end - start, self._columns, self._order
        some = self._table.slice(start, n) if order is None else self._table.take(pa.array(order[start:end]))

        def column(name: str) -> pa.Array:
            whole = some[name].combine_chunks()
            return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)

        check = partial(self._check, start)

        def ids(option: str, name: str) -> NDArray[np.uint64]:
            hashes = hash_strings(as_text(option, name, column(name)))
            hashes[hashes == _EMPTY] = 0  # "" is no id
            return hashes

        def number(option: str, name: str) -> NDArray[np.float64]:
            return _numbers(option, name, column(name))

        if columns.user is None:
            user = _spread(start, end)
        else:
            user = ids("user", columns.user)
            check(user != 0, "user", columns.user, "is missing", None)
        label = number("label", columns.label)
        check((label == 0) | (label == 1), "label", columns.label, "must be 0 or 1", label)
        weight = None if columns.weight is None else number("weight", columns.weight)
        if weight is not None:
            good = (weight > 0) & (weight <= MAX_WEIGHT)
            check(good, "weight", columns.weight or "", f"must be above 0 and at most {MAX_WEIGHT:g}", weight)
        value = None if columns.value is None else number("value", columns.value)
        if value is not None:
            check(~np.isinf(value), "value", columns.value or "", "must be finite", value)
        series, scores = [], []
        for version, name in columns.scores.items():
            p = number("score", name)
            check((p >= 0) & (p <= 1), "score", name, "must be in [0, 1]", p)
            scores.append(p)
            series.append(self._series(column, version, n))
        return Piece(
            Labelled(
                ts=self.ts[start:end],
                user=user,
                slices=self._slices(column, n),
                label=label.astype(np.int8),
                corrected=np.zeros(n, np.bool_),
                fields={} if value is None else {"value": np.nan_to_num(value)},
                fresh=np.ones(n, np.bool_),
                item=None if columns.item is None else item_blocks_of(ids("item", columns.item)),
                copies=self._copies(start, end, label.astype(np.int8), weight),
            ),
            _scored(n, series, scores),
            None if columns.request is None else ids("request", columns.request),
        )

    def _check(
        self, start: int, good: NDArray[np.bool_], option: str, name: str, what: str, values: NDArray[np.float64] | None
    ) -> None:
        """Raises ValueError for the first of the rows from `start` on that is not good."""
        if good.all():
            return
        row = int(np.argmin(good))
        shown = "" if values is None else f" is {values[row]}:"
        at = start + row if self._order is None else self._order[start + row]
        raise ValueError(f"{option}: {name!r} of row {at}{shown} {what}".replace(" is nan:", " is missing:"))

    def _slices(self, column: Callable[[str], pa.Array], n: int) -> NDArray[np.int64]:
        codes = [
            _codes(as_text(f"slices[{dimension!r}]", name, column(name), values=True), self._value_of(d))
            for d, (dimension, name) in enumerate(self._columns.slices.items())
        ]
        return self._catalog.combine(codes) if codes else np.zeros(n, np.int64)

    def _copies(
        self, start: int, end: int, label: NDArray[np.int8], weight: NDArray[np.float64] | None
    ) -> Copies | None:
        """The weights of the rows; None: all 1. Fractions are rounded by a hash of the row's number, in place of an id."""
        if weight is None and self._negatives == 1:
            return None
        row = np.arange(start, end) if self._order is None else self._order[start:end]
        number = row.astype(np.uint64) + np.uint64(1)
        if weight is None:
            return by_label(number, 1.0 / self._negatives, label)
        found = copies_of(number, weight)
        return Copies(found, found)

    def _series(self, column: Callable[[str], pa.Array], version: str, n: int) -> NDArray[np.int32]:
        of_model, of_version = self._columns.model, self._columns.version
        models, model = _named("model", of_model, column, "default", n)
        versions, of = _named("version", of_version, column, version, n)
        pair = model * len(versions) + of
        code = np.zeros(len(models) * len(versions), np.int32)
        for one in pair[np.sort(np.unique(pair, return_index=True)[1])].tolist() if of_model or of_version else [0]:
            code[one] = self._catalog.series_code(models[one // len(versions)], versions[one % len(versions)])
        return code[pair]

    def _value_of(self, dimension: int) -> Callable[[str | None], int]:
        def code(value: str | None) -> int:
            return self._catalog.value_code(dimension, value) if value else 0

        return code


def _scored(n: int, series: Sequence[NDArray[np.int32]], scores: Sequence[NDArray[np.float64]]) -> Scored:
    """Scores of the same n rows by several versions."""
    many = len(scores)
    row, bounds = np.tile(np.arange(n, dtype=np.int32), many), tuple(n * i for i in range(many + 1))
    return Scored(bounds, row, np.concatenate(series), np.concatenate(scores), np.zeros(n * many, np.bool_))


def _shuffled(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(rows in an order of no meaning, a time for each)."""
    width = _BLOCK if n > _MANY else 1
    blocks = np.arange(-(-n // width))
    np.random.default_rng(0).shuffle(blocks[1:])  # the first version of the table stays the first
    order = (blocks[:, None] * width + np.arange(width)).ravel()
    rows = max(-(-n // _PANES), _FEWEST)  # of a pane
    return order[order < n], _2000 + np.arange(n) // rows * 60_000


def _times(name: str, column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Event times in ms: integers are ms already, text is ISO 8601."""
    if column.null_count:
        raise ValueError(f"ts: {column.null_count} values of the column {name!r} are missing")
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    try:
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            column = _parsed(column)
        elif pa.types.is_date(kind):
            column = column.cast(pa.timestamp("us"))
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
        elif not pa.types.is_integer(kind):
            raise ValueError(f"ts: the column {name!r} is {kind}: must be integer ms, a timestamp or ISO 8601")
        ts = np.ascontiguousarray(column.cast(pa.int64()).to_numpy())
    except pa.ArrowException as error:
        raise ValueError(f"ts: the column {name!r} cannot be read as times: {error}") from None
    good = (ts >= _2000) & (ts < _2000 * 1000)  # as of events: ms from then on look like no other unit
    if not good.all():
        row = int(np.argmin(good))
        unit = "seconds" if ts[row] < _2000 else "microseconds or nanoseconds"
        what = f"must be ms since the epoch, from 2000-01-01 on; {unit} instead of milliseconds?"
        raise ValueError(f"ts: {name!r} of row {row} is {ts[row]}: {what}")
    return ts


def _parsed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """ISO 8601 as timestamps: UTC where no offset is named. Arrow reads texts with an offset, or texts without."""
    try:
        return column.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        plain = pc.match_substring_regex(column, r"\d(Z|z|[+-]\d\d(:?\d\d)?)$")
        zone, nothing = pa.scalar("Z", column.type), pa.scalar("", column.type)
        written = pc.if_else(plain, column, pc.binary_join_element_wise(column, zone, nothing))
        return written.cast(pa.timestamp("ns", "UTC"))


def _numbers(option: str, name: str, column: pa.Array) -> NDArray[np.float64]:
    """NaN where there is none."""
    if pa.types.is_dictionary(column.type):  # a category
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    ):
        raise ValueError(f"{option}: the column {name!r} is {kind}: must be numbers")
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def as_text(option: str, name: str, column: pa.Array, values: bool = False) -> pa.Array:
    """Ids and names as text, as the events of a log write them; `values`: also numbers and booleans, as JSON does."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        inner = kind.value_type
        if pa.types.is_string(inner) or pa.types.is_large_string(inner):
            return column
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column
    if pa.types.is_integer(kind) or pa.types.is_null(kind):
        return column.cast(pa.string())
    if values and (pa.types.is_boolean(kind) or pa.types.is_floating(kind)):
        encoded = column.dictionary_encode()
        words = [json.dumps(value) for value in encoded.dictionary.to_pylist()]
        return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(words, pa.string()))
    raise ValueError(f"{option}: the column {name!r} is {kind}: must be text{'' if values else ' or integers'}")


def _codes(texts: pa.Array, code: Callable[[str | None], int]) -> NDArray[np.int64]:
    values, index = _encoded(texts)
    return np.array([code(value) for value in values], np.int64)[index]


def _named(
    option: str, name: str | None, column: Callable[[str], pa.Array], default: str, n: int
) -> tuple[list[str], NDArray[np.int64]]:
    """(names, the place of each row's): what the column says, the default where it says nothing."""
    if name is None:
        return [default], np.zeros(n, np.int64)
    values, index = _encoded(as_text(option, name, column(name)))
    return [value or default for value in values], index


def _encoded(texts: pa.Array) -> tuple[list[str | None], NDArray[np.int64]]:
    """(values, the place of each row's), in order of appearance; the last one is None, for rows without."""
    encoded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    values: list[str | None] = [*encoded.dictionary.to_pylist(), None]
    index = pc.fill_null(encoded.indices.cast(pa.int64()), len(values) - 1)
    return values, index.to_numpy(zero_copy_only=False)


def _spread(start: int, end: int) -> NDArray[np.uint64]:
    row = np.arange(start, end, dtype=np.uint64) % np.uint64(NOBODY)
    return row * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)

"""Bytes to batches: the decoder that every source uses."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.events.batch import NO_IMPRESSIONS, Batch, Catalog, Impressions, empty_clicks, empty_impressions
from streameval.events.columns import concat_clicks, concat_impressions
from streameval.sources.formats import arrow as decode_arrow
from streameval.sources.formats import read_json
from streameval.sources.formats.arrow_column import SchemaError
from streameval.sources.formats.arrow_stream import read_stream
from streameval.sources.formats.cell_spans import TextRows
from streameval.sources.formats.csv_columns import CellGetter
from streameval.sources.formats.mapping import ColumnMap
from streameval.sources.formats.raw import Assembled, CheckRules, RawEvents, Rejection, Wants, assemble
from streameval.sources.formats.row_json import rows_as_json
from streameval.sources.formats.unread import Unread
from streameval.sources.protocol import DeadLetter

# (messages, kinds, dimensions, what is needed, the longest message) -> one row per message
RowReader = Callable[[Sequence[bytes | None], Sequence[int], Sequence[str], Wants, int], RawEvents]


class Decoder:
    """Decodes events of any format into batches, and reports what is wrong with those it cannot use.

    `clock` returns ms since the epoch; an event later than that by more than `max_future` ms is rejected. `hashed` and
    `dicts` select the form of the features for online models (neither: features are skipped), `names` keeps the ids as
    text, `json_kernel` False has all JSON and CSV read by the slow decoders. An impression with features but without
    pclick is accepted if a model uses features, because that model scores it.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        clock: Callable[[], int],
        max_future: int,
        hashed: bool = False,
        dicts: bool = False,
        names: bool = False,
        max_message: int = 16_000_000,
        json_kernel: bool = True,
    ) -> None:
        self.own: RowReader | None = None  # for a source whose messages are in no format of files
        self._catalog = catalog
        self._clock = clock
        self._max_future = max_future
        self._hashed = hashed
        self._dicts = dicts
        self._names = names
        self.max_message = max_message
        self._unread = Unread()
        self._wanted = read_json.WantedOfJson(tuple(catalog.dimensions), hashed, dicts, names, max_message, json_kernel)

    @property
    def json_kernel(self) -> bool:
        """Whether kernels read JSON and CSV; may change between any two batches, because the slow decoders give the
        same results.
        """
        return self._wanted.kernel

    @json_kernel.setter
    def json_kernel(self, on: bool) -> None:
        self._wanted = self._wanted._replace(kernel=on)

    def messages(
        self,
        values: Sequence[bytes | None],
        kinds: Sequence[int] | NDArray[np.int8],
        *,
        topic: Sequence[str],
        partition: int,
        offsets: Sequence[int] | NDArray[np.int64],
        format: Literal["json", "arrow", "own"],
        shared: bool,
        next_offsets: Mapping[tuple[str, int], int] | None = None,
    ) -> tuple[Batch, list[DeadLetter]]:
        """Decodes messages of one partition in arrival order.

        `kinds[i]`: 0 if the event itself must say (a file, a shared topic), 1 impressions, 2 clicks. `topic` names the
        topic of impressions first and that of clicks last.
        """
        if format == "arrow":
            return self._arrow(values, kinds, topic, partition, offsets, shared, next_offsets)
        if format == "own":  # one event per message
            found_rows = read_json.JsonEvents(
                self._own(values, np.asarray(kinds).tolist()), np.arange(len(values)), dict[int, bytes]().get
            )
        else:
            found_rows = read_json.read(values, kinds, self._wanted)
            self._unread.look(values)
        raw, message, element = found_rows
        found = assemble(raw, self._rules())
        if found.impressions.features is not None:
            where = np.asarray(offsets, np.int64)[message[found.impressions.order]]
            found = found._replace(impressions=_placed(found.impressions, where))

        def whole(row: int) -> tuple[bytes, str, int]:
            number = int(message[row])
            value = element(row) or values[number] or b""
            return value, _topic(topic, int(kinds[number])), int(offsets[number])

        letters = []
        for row, problem in sorted(found.problems.items()):
            value, from_topic, offset = whole(row)
            letters.append(_letter(value, problem, from_topic, partition, offset))
        return self._batch(partition, found, shared, next_offsets, letters, whole), letters

    def table(
        self, table: pa.Table, *, topic: str, partition: int, first_offset: int, text: bool = False
    ) -> tuple[Batch, list[DeadLetter]]:
        """Decodes rows of a file; `text`: every column is text (CSV) and is parsed. Raises decode_arrow.SchemaError."""
        raw = decode_arrow.to_raw(table, 0, self._catalog.dimensions, self._hashed, self._dicts, text)
        return self._rows(raw, partial(rows_as_json, table), topic, partition, first_offset)

    @property
    def reads_cells(self) -> bool:
        """Whether `cells` can read rows of text: features as dicts are only available through Arrow."""
        return self._wanted.kernel and not self._dicts

    def cells(
        self, rows: TextRows, mapping: ColumnMap, first_row: int, *, topic: str
    ) -> tuple[Batch, list[DeadLetter]]:
        """Decodes rows of CSV text, or mapped JSON lines; the first one has number `first_row` over all files.

        Raises ConfigError, decode_arrow.SchemaError, and NotPlainError if only Arrow can read the columns.
        """
        dimensions = self._catalog.dimensions
        get = CellGetter(rows, mapping, first_row, dimensions, hashed=self._hashed, names=self._names)
        raw = decode_arrow.raw_of(get, 0, dimensions, self._hashed, False)
        return self._rows(raw, get.as_json, topic, 0, 0)

    def _rows(
        self, raw: RawEvents, as_json: Callable[[Sequence[int]], list[bytes]], topic: str, partition: int, first: int
    ) -> tuple[Batch, list[DeadLetter]]:
        """Decodes rows; the first one is at offset `first`."""
        found = assemble(raw, self._rules())
        offset = found.impressions.order.astype(np.int64) + first
        found = found._replace(impressions=_placed(found.impressions, offset))
        letters = _row_letters(as_json, found.problems, topic, partition, first)

        def whole(row: int) -> tuple[bytes, str, int]:
            return as_json([row])[0], topic, first + row

        return self._batch(partition, found, True, None, letters, whole), letters

    def _arrow(
        self,
        values: Sequence[bytes | None],
        kinds: Sequence[int] | NDArray[np.int8],
        topic: Sequence[str],
        partition: int,
        offsets: Sequence[int] | NDArray[np.int64],
        shared: bool,
        next_offsets: Mapping[tuple[str, int], int] | None,
    ) -> tuple[Batch, list[DeadLetter]]:
        parts: list[Assembled] = []
        letters: list[DeadLetter] = []
        order = 0
        tables: list[tuple[int, pa.Table, str, int]] = []  # first index, rows, topic, offset
        rules = self._rules()
        for value, kind, offset in zip(values, np.asarray(kinds).tolist(), np.asarray(offsets).tolist(), strict=True):
            where = _topic(topic, kind)
            try:
                table = read_stream(value, self.max_message)
                raw = decode_arrow.to_raw(table, kind, self._catalog.dimensions, self._hashed, self._dicts, False)
                found = assemble(raw, rules)
            except SchemaError as error:
                letters.append(_letter(value or b"", error.problem, where, partition, offset))
                continue
            except (pa.ArrowException, UnicodeDecodeError) as error:  # a type without a cast, a name that is not text
                problem = ("wrong_schema", "", f"a column that cannot be used: {str(error)[:200]}")
                letters.append(_letter(value or b"", problem, where, partition, offset))
                continue
            letters += _row_letters(partial(rows_as_json, table), found.problems, where, partition, offset, same=True)
            tables.append((order, table, where, offset))
            parts.append(_behind(found, order, offset))
            order += table.num_rows

        def whole(row: int) -> tuple[bytes, str, int]:
            first, table, where, offset = tables[bisect_right(tables, row, key=lambda entry: entry[0]) - 1]
            return rows_as_json(table, [row - first])[0], where, offset

        return self._batch(partition, _as_one(parts), shared, next_offsets, letters, whole), letters

    def _own(self, values: Sequence[bytes | None], kinds: Sequence[int]) -> RawEvents:
        """Reads messages with one event each by `own`."""
        if self.own is None:
            raise RuntimeError("nobody reads these messages")
        wants = Wants(self._hashed, self._dicts, self._names)
        return self.own(values, kinds, self._catalog.dimensions, wants, self.max_message)

    def _rules(self) -> CheckRules:
        return CheckRules(self._catalog, self._clock() + self._max_future, self._names, self._hashed or self._dicts)

    @staticmethod
    def _batch(
        partition: int,
        found: Assembled,
        shared: bool,
        next_offsets: Mapping[tuple[str, int], int] | None,
        letters: Sequence[DeadLetter],
        whole: Callable[[int], tuple[bytes, str, int]],
    ) -> Batch:
        invalid: dict[str, int] = {}
        for letter in letters:
            invalid[letter.reason] = invalid.get(letter.reason, 0) + 1
        return Batch(
            partition,
            found.impressions,
            found.clicks,
            shared,
            dict(next_offsets or {}),
            invalid,
            whole,
            candidates=found.candidates,
        )


def _behind(found: Assembled, order: int, offset: int) -> Assembled:
    """Returns the events of a message whose first row has index `order` in its batch."""
    impressions, candidates, clicks, problems = found
    by = np.int32(order)
    return Assembled(
        _placed(replace(impressions, order=impressions.order + by), np.full(len(impressions), offset, np.int64)),
        replace(candidates, order=candidates.order + by),
        replace(clicks, order=clicks.order + by),
        problems,
    )


def _as_one(parts: Sequence[Assembled]) -> Assembled:
    """Joins the events of several messages; the problems of their rows have been reported."""
    if not parts:
        return Assembled(empty_impressions(), NO_IMPRESSIONS, empty_clicks(), {})
    candidates = [part.candidates for part in parts if len(part.candidates)]
    return Assembled(
        concat_impressions([part.impressions for part in parts]),
        concat_impressions(candidates) if candidates else NO_IMPRESSIONS,
        concat_clicks([part.clicks for part in parts]),
        {},
    )


def _placed(impressions: Impressions, offset: NDArray[np.int64]) -> Impressions:
    """Returns the impressions with the offsets of their messages added to features, if they have any."""
    if impressions.features is None:
        return impressions
    return replace(impressions, features=replace(impressions.features, offset=offset))


def _topic(topics: Sequence[str], kind: int) -> str:
    return topics[-1] if kind == 2 else topics[0]


def _letter(value: bytes, problem: Rejection, topic: str, partition: int, offset: int) -> DeadLetter:
    reason, field, message = problem
    return DeadLetter(value, reason, field, message, topic, partition, offset)


def _row_letters(
    as_json: Callable[[Sequence[int]], list[bytes]],
    problems: Mapping[int, Rejection],
    topic: str,
    partition: int,
    first: int,
    same: bool = False,
) -> list[DeadLetter]:
    """Returns letters of bad rows, each as JSON; `same`: all rows share one offset (they came in one message)."""
    rows = sorted(problems)
    return [
        _letter(value, problems[row], topic, partition, first if same else first + row)
        for row, value in zip(rows, as_json(rows), strict=True)
    ]

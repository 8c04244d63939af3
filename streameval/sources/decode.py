"""Bytes to batches: the decoder that every source uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.columns import concat_clicks, concat_impressions
from streameval.events import Batch, Catalog, Clicks, Impressions, empty_clicks, empty_impressions
from streameval.sources import decode_arrow, decode_json
from streameval.sources.protocol import DeadLetter
from streameval.sources.raw import Problem, Rules, assemble
from streameval.sources.row_json import rows_as_json


class Decoder:
    """Decodes events of any format into batches, and says what is wrong with those it cannot use.

    `clock` gives ms since the epoch; an event later than that by more than `max_future` ms is refused. `hashed` and
    `dicts` say which form of the features online models want (neither: features are skipped), `names` keeps the ids
    as text. An impression with features but without pclick is accepted when a model wants features: that model scores it.
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
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._max_future = max_future
        self._hashed = hashed
        self._dicts = dicts
        self._names = names
        self.max_message = max_message

    def messages(
        self,
        values: Sequence[bytes | None],
        kinds: Sequence[int],
        *,
        topic: Sequence[str],
        partition: int,
        offsets: Sequence[int],
        format: Literal["json", "arrow"],
        shared: bool,
        next_offsets: Mapping[tuple[str, int], int] | None = None,
    ) -> tuple[Batch, list[DeadLetter]]:
        """Messages of one partition in arrival order.

        `kinds[i]`: 0 when the event itself must tell (a file, a shared topic), 1 impressions, 2 clicks. `topic` names
        the topic of impressions first and that of clicks last.
        """
        if format == "arrow":
            return self._arrow(values, kinds, topic, partition, offsets, shared, next_offsets)
        rows = decode_json.decode(values, self._dicts, self.max_message)
        message = np.asarray(rows.message, np.int64)
        kind = np.asarray(kinds, np.int8)[message] if rows.message else np.zeros(0, np.int8)
        raw = decode_json.to_raw(rows, kind, self._catalog.dimensions, self._hashed, self._dicts)
        impressions, clicks, problems = assemble(raw, self._rules())
        if impressions.features is not None:
            impressions = _placed(impressions, np.asarray(offsets, np.int64)[message[impressions.order]])
        letters = []
        for row in sorted(problems):
            number = rows.message[row]
            whole = rows.element.get(row)
            value = whole if whole is not None else values[number] or b""
            letters.append(_letter(value, problems[row], _topic(topic, kinds[number]), partition, offsets[number]))
        return self._batch(partition, impressions, clicks, shared, next_offsets, letters), letters

    def table(
        self, table: pa.Table, *, topic: str, partition: int, first_offset: int, text: bool = False
    ) -> tuple[Batch, list[DeadLetter]]:
        """Rows of a file; `text`: every column is text (CSV) and is parsed. Raises decode_arrow.SchemaError."""
        raw = decode_arrow.to_raw(table, 0, self._catalog.dimensions, self._hashed, self._dicts, text)
        impressions, clicks, problems = assemble(raw, self._rules())
        impressions = _placed(impressions, impressions.order.astype(np.int64) + first_offset)
        letters = _row_letters(table, problems, topic, partition, first_offset)
        return self._batch(partition, impressions, clicks, True, None, letters), letters

    def _arrow(
        self,
        values: Sequence[bytes | None],
        kinds: Sequence[int],
        topic: Sequence[str],
        partition: int,
        offsets: Sequence[int],
        shared: bool,
        next_offsets: Mapping[tuple[str, int], int] | None,
    ) -> tuple[Batch, list[DeadLetter]]:
        impressions: list[Impressions] = []
        clicks: list[Clicks] = []
        letters: list[DeadLetter] = []
        order = 0
        rules = self._rules()
        for value, kind, offset in zip(values, kinds, offsets, strict=True):
            where = _topic(topic, kind)
            try:
                table = decode_arrow.read_stream(value, self.max_message)
                raw = decode_arrow.to_raw(table, kind, self._catalog.dimensions, self._hashed, self._dicts, False)
                imp, clk, problems = assemble(raw, rules)
            except decode_arrow.SchemaError as error:
                letters.append(_letter(value or b"", error.problem, where, partition, offset))
                continue
            except (pa.ArrowException, UnicodeDecodeError) as error:  # a type without a cast, a name that is no text
                problem = ("wrong_schema", "", f"a column that cannot be used: {str(error)[:200]}")
                letters.append(_letter(value or b"", problem, where, partition, offset))
                continue
            letters += _row_letters(table, problems, where, partition, offset, same=True)
            impressions.append(_placed(_renumbered(imp, order), np.full(len(imp), offset, np.int64)))
            clicks.append(Clicks(clk.order + np.int32(order), clk.id, clk.ts, clk.value))
            order += table.num_rows
        merged = concat_impressions(impressions) if impressions else empty_impressions()
        return self._batch(partition, merged, concat_clicks(clicks) if clicks else empty_clicks(), shared, next_offsets, letters), letters  # fmt: skip

    def _rules(self) -> Rules:
        return Rules(self._catalog, self._clock() + self._max_future, self._names, self._hashed or self._dicts)

    @staticmethod
    def _batch(
        partition: int,
        impressions: Impressions,
        clicks: Clicks,
        shared: bool,
        next_offsets: Mapping[tuple[str, int], int] | None,
        letters: Sequence[DeadLetter],
    ) -> Batch:
        invalid: dict[str, int] = {}
        for letter in letters:
            invalid[letter.reason] = invalid.get(letter.reason, 0) + 1
        return Batch(partition, impressions, clicks, shared, dict(next_offsets or {}), invalid)


def _renumbered(impressions: Impressions, order: int) -> Impressions:
    """The impressions with their places counted from `order`."""
    columns = {name: getattr(impressions, name) for name in Impressions.__slots__}
    return Impressions(**{**columns, "order": impressions.order + np.int32(order)})


def _placed(impressions: Impressions, offset: NDArray[np.int64]) -> Impressions:
    """The impressions whose features, if they have any, know the offsets of their messages."""
    if impressions.features is None:
        return impressions
    return replace(impressions, features=replace(impressions.features, offset=offset))


def _topic(topics: Sequence[str], kind: int) -> str:
    return topics[-1] if kind == 2 else topics[0]


def _letter(value: bytes, problem: Problem, topic: str, partition: int, offset: int) -> DeadLetter:
    reason, field, message = problem
    return DeadLetter(value, reason, field, message, topic, partition, offset)


def _row_letters(
    table: pa.Table, problems: Mapping[int, Problem], topic: str, partition: int, first: int, same: bool = False
) -> list[DeadLetter]:
    """Letters of bad rows, each as JSON; `same`: all rows share one offset (they came in one message)."""
    rows = sorted(problems)
    return [
        _letter(value, problems[row], topic, partition, first if same else first + row)
        for row, value in zip(rows, rows_as_json(table, rows), strict=True)
    ]

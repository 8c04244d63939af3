"""JSON messages to raw columns: plain ones by the kernel (`scan_events`), the rest by msgspec (`json`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from streameval.events.fields import FIELDS
from streameval.events.words64 import PADDING
from streameval.sources.formats import json as slow
from streameval.sources.formats.event_layout import layout_of
from streameval.sources.formats.line_text import Lines
from streameval.sources.formats.merge_raw import merged
from streameval.sources.formats.raw import RawEvents, most_events
from streameval.sources.formats.scan_events import scan
from streameval.sources.formats.scan_features import is_utf8
from streameval.sources.formats.scanned import Messages, raw_events
from streameval.sources.formats.split_arrays import EventRows, split


class WantedOfJson(NamedTuple):
    """What is read of events."""

    dimensions: tuple[str, ...]  # of slices
    hashed: bool  # features as hashed columns
    dicts: bool  # features as dicts, which only msgspec creates
    names: bool  # ids as text
    max_message: int  # bytes
    kernel: bool  # False: everything by msgspec, without any kernel


class JsonEvents(NamedTuple):
    """Rows, and the origin of each."""

    raw: RawEvents
    message: NDArray[np.int64]  # number of the message that contained the row
    element: Callable[[int], bytes | None]  # a row's own bytes, if it is from an array


def read(values: Sequence[bytes | None], kinds: Sequence[int] | NDArray[np.int8], wanted: WantedOfJson) -> JsonEvents:
    """Returns one row per object; a message that is an array gives one row per element. `kinds` by message."""
    layout = layout_of(tuple(FIELDS.values()), wanted.dimensions) if wanted.kernel and not wanted.dicts else None
    kind = np.asarray(kinds, np.int8)
    if layout is None or not values:
        return _slowly(values, kind, wanted)
    joined, bounds, hard = _as_one(values, wanted.max_message)
    data, ascii_only = np.frombuffer(joined, np.uint8), not is_utf8(joined)
    rows = split(data, bounds, hard, ascii_only, most_events(wanted.max_message))
    found = scan(Messages(data, rows.bounds, rows.hard, ascii_only, wanted.hashed, wanted.names), layout)
    hard[rows.message[rows.hard]] = True  # an array is read as a whole, by one or the other
    if hard.all():
        return _slowly(values, kind, wanted)
    raw = raw_events(joined, kind[rows.message], layout, *found, hashed=wanted.hashed, names=wanted.names)
    rest = np.flatnonzero(hard)
    if not rest.size:
        return JsonEvents(raw, rows.message, _elements(joined, rows, np.arange(rows.message.size), {}))
    others = _slowly([values[k] for k in rest.tolist()], kind[rest], wanted)
    easy = ~hard[rows.message]
    message = np.concatenate((rows.message[easy], rest[others.message]))
    by_message = np.argsort(message, kind="stable")
    place = np.empty(message.size, np.int64)
    place[by_message] = np.arange(message.size)
    of_easy, of_others = np.full(easy.size, -1, np.int64), place[np.count_nonzero(easy) :]
    of_easy[easy] = place[: place.size - of_others.size]
    parts = [(raw, of_easy), (others.raw, of_others)]
    whole = merged(parts, message.size, wanted.dimensions, wanted.hashed, wanted.dicts)
    slow_texts = {int(place): text for row, place in enumerate(of_others) if (text := others.element(row)) is not None}
    return JsonEvents(whole, message[by_message], _elements(joined, rows, of_easy, slow_texts))


def _as_one(values: Sequence[bytes | None], max_message: int) -> tuple[bytes, NDArray[np.int64], NDArray[np.bool_]]:
    """Returns (all messages in one text followed by `PADDING`, start and end of each [n, 2], which ones are too short
    or too long).
    """
    if isinstance(values, Lines):  # they are one text already
        return values.text, values.bounds, (values.sizes == 0) | (values.sizes > max_message)
    present = [value or b"" for value in values] if None in values else cast(Sequence[bytes], values)
    sizes = np.fromiter(map(len, present), np.int64, len(values))
    hard = (sizes == 0) | (sizes > max_message)
    if hard.any():
        sizes[hard] = 0
        present = [b"" if no else value for value, no in zip(present, hard.tolist(), strict=True)]
    ends = np.cumsum(sizes)
    return b"".join([*present, PADDING]), np.column_stack((ends - sizes, ends)), hard


def _elements(
    text: bytes, rows: EventRows, places: NDArray[np.int64], others: dict[int, bytes]
) -> Callable[[int], bytes | None]:
    """Returns a function for the texts of elements: of rows with these indexes (-1: none), and of others. They are
    looked up on demand, which is rare; without arrays nothing is kept.
    """
    if not rows.element.any():
        return others.get

    def element(row: int) -> bytes | None:
        at = np.flatnonzero(rows.element & (places == row))
        if not at.size:
            return others.get(row)
        begin, end = rows.bounds[at[0]].tolist()
        return text[begin:end]

    return element


def _slowly(values: Sequence[bytes | None], kind: NDArray[np.int8], wanted: WantedOfJson) -> JsonEvents:
    rows = slow.decode(values, wanted.dicts, wanted.max_message)
    message = np.asarray(rows.message, np.int64)
    raw = slow.to_raw(rows, kind[message], wanted.dimensions, wanted.hashed, wanted.dicts, wanted.kernel)
    return JsonEvents(raw, message, rows.element.get)

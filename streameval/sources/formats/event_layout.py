"""How the kernel of `scan_events` looks up the fields of events and the slice dimensions in use."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.events.fields import Field
from streameval.events.words64 import PADDING
from streameval.sources.formats.raw import IDS

ID, WORD, TIME, NUMBER, INTEGER, LABEL, BY_VERSION, OF_SLICES, FEATURES = range(9)
_KINDS = {
    "time": TIME, "number": NUMBER, "integer": INTEGER, "label": LABEL, "numbers": BY_VERSION, "values": OF_SLICES,
    "features": FEATURES,
}  # fmt: skip
TS, HAS_TS, HAS_FEATURES, LENGTHS, HASHES = range(5)  # rows of `Columns.whole`
BEGINS, ENDS, KIND, PLACE, IS_PLAIN = range(5)
_MOST_FIELDS = 62  # one bit each


class EventLayout(NamedTuple):
    """The fields, and the slice dimensions in use, in the form of the kernel's look-ups, and where it writes them.

    The rows of `whole` are: ts, whether it is given, whether features are given, their number of entries, the hashes of
    `ids`, the codes of `words`, those of the dimensions, and the start and end of ids if needed. The rows of `real` are
    `numbers`.
    """

    ids: list[str]
    words: list[str]
    numbers: list[Field]  # numbers, integers and labels
    by_version: list[str]
    dimensions: int
    text: NDArray[np.uint8]  # all names, each as `"name":`, and `words64.PADDING`
    # [fields and dimensions, 5]: start and end in `text`, kind, slot, whether it is ASCII without escapes
    names: NDArray[np.int64]
    limits: NDArray[np.float64]  # [fields, 3]: low, high, whether low is exclusive

    @property
    def codes(self) -> int:
        """The first row of codes; slots of words count from here."""
        return HASHES + len(self.ids)

    @property
    def spans(self) -> int:
        """The first row of positions of ids."""
        return self.codes + len(self.words) + self.dimensions


@cache
def layout_of(table: tuple[Field, ...], dimensions: tuple[str, ...]) -> EventLayout | None:
    """Returns the layout; None if there are more fields, or dimensions, than the kernel can handle."""
    if len(table) > _MOST_FIELDS or len(dimensions) > _MOST_FIELDS:
        return None
    slots: dict[int, list[Field]] = {kind: [] for kind in range(9)}
    names = [name.encode() for name in (*(field.name for field in table), *dimensions)]
    sizes = np.array([len(name) for name in names])
    rows = np.zeros((len(names), 5), np.int64)
    rows[:, ENDS] = np.cumsum(sizes + len(b'"":')) - len(b'":')
    rows[:, BEGINS] = rows[:, ENDS] - sizes
    rows[:, IS_PLAIN] = [
        name.isascii() and name.decode().isprintable() and not set(name) & set(b'"\\') for name in names
    ]
    for k, field in enumerate(table):
        kind = (ID if field.name in IDS else WORD) if field.type == "text" else _KINDS[field.type]
        same = slots[NUMBER if kind in (INTEGER, LABEL) else kind]
        rows[k, KIND], rows[k, PLACE] = kind, len(same)
        same.append(field)
    rows[len(table) :, PLACE] = len(slots[WORD]) + np.arange(len(dimensions))
    ids, words, versions = ([field.name for field in slots[kind]] for kind in (ID, WORD, BY_VERSION))
    limits = np.array([(field.low, field.high, field.above) for field in table], np.float64)
    text = np.frombuffer(b"".join(b'"%s":' % name for name in names) + PADDING, np.uint8)
    return EventLayout(ids, words, slots[NUMBER], versions, len(dimensions), text, rows, limits)

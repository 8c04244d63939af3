"""Lines of a text stream, and the objects of JSON lines as a table for `[files.columns]`."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from streameval.sources.formats.json import has_surrogate
from streameval.sources.formats.raw import Rejection
from streameval.sources.protocol import SourceError

# A line that is too long is kept whole up to this many times the limit: whole, as a dead letter should be, but a file
# that is one endless line must not fill the memory.
KEEP = 4
MOST_FIELDS = 10_000  # names of fields in mapped lines; every one is a column of every batch


def lines(stream: io.BufferedIOBase, longest: int) -> Iterator[tuple[bytes, int]]:
    """(a line without its end, its length in bytes); of one longer than `KEEP * longest` only the start."""
    first = True
    while True:
        line = stream.readline(longest + 2)
        if not line:
            return
        if first:
            line = line.removeprefix(b"\xef\xbb\xbf")
            first = False
        if len(line) > longest and not line.endswith(b"\n"):
            line, size = _rest(stream, line, KEEP * longest)
            yield line, size
        else:
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            yield line, len(line)


def _rest(stream: io.BufferedIOBase, head: bytes, keep: int) -> tuple[bytes, int]:
    parts, size, part = [head], len(head), head
    while not part.endswith(b"\n"):
        part = stream.readline(1 << 20)
        if not part:
            break
        if size < keep:
            parts.append(part)
        size += len(part)
    whole = b"".join(parts)
    if len(whole) < size:
        return whole[:keep], size - part.endswith(b"\n")
    whole = whole.removesuffix(b"\n").removesuffix(b"\r")
    return whole, len(whole)


def objects(texts: Sequence[bytes]) -> tuple[pa.Table, list[int], dict[int, Rejection]]:
    """(one row per line that is an object, the place of each row's line, the problem of every other line by place).

    A column whose values do not share a type becomes text: strings as they are, anything else as JSON. Raises
    SourceError for more than `MOST_FIELDS` columns.
    """
    rows: list[dict[str, Any]] = []
    places: list[int] = []
    problems: dict[int, Rejection] = {}
    for place, text in enumerate(texts):
        try:
            row = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            problems[place] = ("malformed", "", f"not JSON: {str(error)[:200]}")
            continue
        if not isinstance(row, dict):
            problems[place] = ("wrong_type", "", f"a line must be a JSON object; it is {text[:50]!r}")
        elif has_surrogate(text, row):
            problems[place] = ("malformed", "", "a string holds a lone surrogate, which is not text")
        else:
            rows.append(row)
            places.append(place)
    names = dict.fromkeys(name for row in rows for name in row)
    if len(names) > MOST_FIELDS:
        raise SourceError(f"the lines have {len(names)} different fields: at most {MOST_FIELDS} can be columns")
    return pa.table({name: column_of([row.get(name) for row in rows]) for name in names}), places, problems


def column_of(values: list[Any]) -> pa.Array:
    """An array of JSON values; text where they do not share a type."""
    try:
        column = pa.array(values)
    except (pa.ArrowException, OverflowError):  # of several types, or an integer of more than 64 bits
        texts = [v if v is None or isinstance(v, str) else msgspec.json.encode(v).decode() for v in values]
        return pa.array(texts, pa.string())
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column

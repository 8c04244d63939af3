"""Lines of a text stream, and the objects of JSON lines as a table for `[files.columns]`."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from streameval.sources.formats.json import has_surrogate
from streameval.sources.formats.line_text import Lines
from streameval.sources.formats.raw import Rejection
from streameval.sources.protocol import SourceError

# A line that is too long is kept up to this many times the limit: completely, as a dead letter should be, but a file
# that is one endless line must not fill the memory.
KEEP = 4
_BLOCK = 1 << 18  # largest number of bytes read at a time
_MARK = b"\xef\xbb\xbf"  # which some programs write before UTF-8
MOST_FIELDS = 10_000  # names of fields in mapped lines; every one is a column of every batch


class LineRun(NamedTuple):
    """Consecutive lines, without their line ends."""

    first: int  # number of the first line in the stream
    lines: Lines
    size: int = 0  # size in bytes of a line that is too long, which is alone in its run; only its start may be here


def runs(stream: io.BufferedIOBase, longest: int, is_cut: Callable[[], bool] = lambda: False) -> Iterator[LineRun]:
    """Yields all lines of a stream in runs; a line longer than `KEEP * longest` bytes is cut there.

    `is_cut`: whether, at the end, a last line without a line end is only the start of one, and no line.
    """
    rest, number = stream.read1(_BLOCK), 0
    while 0 < len(rest) < len(_MARK) and (more := stream.read1(_BLOCK)):
        rest += more
    rest = rest.removeprefix(_MARK)
    while True:
        end = rest.rfind(b"\n")
        if end >= 0:
            for run in _runs(rest, end, number, longest):
                yield run
                number = run.first + len(run.lines)
            rest = rest[end + 1 :]
        if len(rest) > longest:
            line, size, rest = _long(stream, rest, KEEP * longest)
            yield from _run_of_one(line, size, number, longest)
            number += 1
        more = stream.read1(_BLOCK)
        if not more:
            break
        rest += more
    if is_cut():
        rest = rest[: rest.rfind(b"\n") + 1]
    if rest:
        yield from _runs(rest, len(rest) - rest.endswith(b"\n"), number, longest)


def _runs(text: bytes, end: int, number: int, longest: int) -> Iterator[LineRun]:
    """Yields the lines of a text up to the last line end; the first one has number `number`."""
    lines = Lines.of(text, end)
    if lines.sizes.max() <= longest:
        yield LineRun(number, lines)
        return
    for k, line in enumerate(lines):
        yield from _run_of_one(line, len(line), number + k, longest)


def _run_of_one(line: bytes, size: int, number: int, longest: int) -> Iterator[LineRun]:
    yield LineRun(number, Lines.one(line[: KEEP * longest]), size if size > longest else 0)


def _long(stream: io.BufferedIOBase, head: bytes, keep: int) -> tuple[bytes, int, bytes]:
    """Returns (the line that begins with `head`, or the first `keep` bytes of a longer one; its size; what was read
    after it).
    """
    parts, size, rest, last = [head], len(head), b"", head
    while part := stream.read1(_BLOCK):
        part, found, rest = part.partition(b"\n")
        if size <= keep:
            parts.append(part)
        size, last = size + len(part), part or last
        if found:
            break
    size -= last.endswith(b"\r")
    return b"".join(parts)[: min(size, keep)], size, rest


def objects(texts: Sequence[bytes], known: Iterable[str] = ()) -> tuple[pa.Table, list[int], dict[int, Rejection]]:
    """Returns (one row per line that is an object, the index of each row's line, the problem of every other line by
    index). `known`: names of columns that the table has in any case.

    A column whose values do not share a type becomes text: strings unchanged, anything else as JSON. Raises SourceError
    for more than `MOST_FIELDS` columns.
    """
    rows: list[dict[str, Any]] = []
    places: list[int] = []
    problems: dict[int, Rejection] = {}
    for place, text in enumerate(texts):
        row = object_of(text)
        if isinstance(row, dict):
            rows.append(row)
            places.append(place)
        else:
            problems[place] = row
    names = dict.fromkeys(name for row in rows for name in row)
    if len(names) > MOST_FIELDS:
        raise SourceError(f"the lines have {len(names)} different fields: at most {MOST_FIELDS} can be columns")
    names |= dict.fromkeys(known)
    columns = {name: column_of([row.get(name) for row in rows]) for name in names}
    return pa.table(columns or {"": pa.nulls(len(rows))}), places, problems  # without a column a table has no rows


def object_of(text: bytes, must: str = "a line must be a JSON object") -> dict[str, Any] | Rejection:
    """Returns the object that a text is, or why it is none; `must`: what is said of any other value."""
    try:
        row = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return "malformed", "", f"not JSON: {str(error)[:200]}"
    if not isinstance(row, dict):
        return "wrong_type", "", f"{must}; it is {text[:50]!r}"
    if has_surrogate(text, row):
        return "malformed", "", "a string holds a lone surrogate, which is not text"
    return row


def column_of(values: list[Any]) -> pa.Array:
    """Returns an array of JSON values; text if they do not share a type."""
    try:
        column = pa.array(values)
    except (pa.ArrowException, OverflowError):  # of several types, or an integer of more than 64 bits
        texts = [v if v is None or isinstance(v, str) else msgspec.json.encode(v).decode() for v in values]
        return pa.array(texts, pa.string())
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column

"""Every format with its inputs and its laws: what both forms of the fuzz run."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from typing import Any

import zstandard
from hypothesis import strategies as st

from tests.fuzz import arrow_bytes
from tests.fuzz.avro_bytes import AVRO
from tests.fuzz.laws import (
    FORMS,
    check_file_kernel,
    check_good_lines_survive,
    check_json_kernel,
    check_messages,
    read_file,
)
from tests.fuzz.strategies import T0, as_json, bent, good_event, json_messages, odd_events

forms = st.sampled_from(FORMS)
# `[files.columns]` over our own fields, so that the same inputs serve
MAPPING: dict[str, Any] = {
    "impression_id": "impression_id", "ts": {"column": "ts", "unit": "ms"}, "user_id": "user_id", "pclick": "pclick",
    "type": "type", "slices": {"country": "user_id"}, "features": ["user_id", "pclick"], "model": {"constant": "m"},
}  # fmt: skip
mappings = st.sampled_from([None, MAPPING])


@st.composite
def _two_topics(draw: st.DrawFn, messages: st.SearchStrategy[list[bytes | None]]) -> tuple[Any, ...]:
    values = draw(messages)
    if draw(st.booleans()):
        return draw(forms), values, [0] * len(values)
    return draw(forms), values, draw(st.lists(st.sampled_from([1, 2]), min_size=len(values), max_size=len(values)))


def json_check(given: tuple[Any, ...]) -> None:
    """JSON messages, on one topic and on two."""
    check_messages(*given, "json")
    check_json_kernel(*given)


def arrow_check(given: tuple[Any, ...]) -> None:
    """Arrow messages, on one topic and on two."""
    check_messages(*given, "arrow")


@st.composite
def _lines(draw: st.DrawFn) -> tuple[Any, ...]:
    """(form, mapping, lines, ids of the good ones): what is between good lines is anything without a line end."""
    lines: list[bytes] = []
    good: list[str] = []
    for number in range(draw(st.integers(1, 8))):
        kind = draw(st.integers(0, 4))
        if kind <= 1:
            lines.append(as_json(good_event(number)))
            good.append(f"good-{number}")
        elif kind == 2:
            lines.append(as_json(draw(odd_events())))
        else:
            bad = draw(bent(as_json(good_event(number)), as_json(draw(odd_events()))))
            lines.append(bad.replace(b"\n", b" ").replace(b"\r", b" "))
    return draw(forms), draw(mappings), lines, good


def jsonl_check(given: tuple[Any, ...]) -> None:
    """JSON lines: every line that is not blank is an event, or a letter, or an array of them."""
    form, mapping, lines, good = given
    check_file_kernel(form, b"\n".join(lines) + b"\n", ".jsonl", mapping)
    read = read_file(form, b"\n".join(lines) + b"\n", ".jsonl", mapping)
    if read.error:  # a mapping names columns that no line has
        assert mapping is not None
        return
    check_good_lines_survive(good, read)
    if not any(line.lstrip(b"\xef\xbb\xbf \t\r").startswith(b"[") for line in lines):
        blank = sum(not line.removeprefix(b"\xef\xbb\xbf" if k == 0 else b"").strip() for k, line in enumerate(lines))
        assert read.count == len(lines) - blank


@st.composite
def _packed(draw: st.DrawFn) -> tuple[Any, ...]:
    """(form, mapping, bytes, suffix): packed lines, whole or harmed."""
    form, mapping, lines, _ = draw(_lines())
    text = b"\n".join(lines) + b"\n"
    if draw(st.integers(0, 9)) == 0:
        text *= 2000
    suffix = draw(st.sampled_from([".gz", ".zst"]))
    data = gzip.compress(text, 1, mtime=0) if suffix == ".gz" else zstandard.compress(text)
    if draw(st.integers(0, 3)) == 0:
        data += data  # members one after the other
    if draw(st.booleans()):
        data = draw(bent(data, data))
    return form, mapping, data, ".jsonl" + suffix


def packed_check(given: tuple[Any, ...]) -> None:
    """Packed lines, whole or harmed: what comes before the fault, and then a SourceError."""
    form, mapping, data, suffix = given
    read_file(form, data, suffix, mapping, max_events=1000)


_CELLS = st.one_of(
    st.sampled_from(["", '"', '""', "a,b", "a\nb", "a\r\nb", '"x" y', "1", "0.5", "-1", "NaN", "inf", "1e400", "\x00"]),
    st.sampled_from(["i", "impression", "click", str(T0), "2024-05-01", "true", "\ufeff", "'", '{"a": 1}', "9" * 30]),
    st.text(max_size=6),
)
_COLUMNS = ["impression_id", "ts", "user_id", "pclick", "type"]


@st.composite
def _csv(draw: st.DrawFn) -> tuple[Any, ...]:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator=draw(st.sampled_from(["\n", "\r\n"])))
    names = list(_COLUMNS)
    if draw(st.integers(0, 4)) == 0:
        names = draw(st.lists(st.one_of(st.sampled_from(_COLUMNS), st.text(max_size=3)), max_size=6))
    writer.writerow(names)
    for number in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            writer.writerow([f"good-{number}", T0 + number, "u", 0.5, "impression"])
        else:
            writer.writerow(draw(st.lists(_CELLS, max_size=6)))
    data = out.getvalue().encode("utf-8", "surrogatepass")
    suffix = draw(st.sampled_from([".csv", ".csv", ".tsv", ".csv.gz", ".csv.zst"]))
    if draw(st.booleans()):
        data = draw(bent(data, data))
    if suffix.endswith(".gz"):
        data = gzip.compress(data, 1, mtime=0)
    elif suffix.endswith(".zst"):
        data = zstandard.compress(data)
    return draw(forms), draw(mappings), data, suffix


def csv_check(given: tuple[Any, ...]) -> None:
    """CSV and TSV, plain and packed, with the kernels and without; see `csv_neighbours_check` for the law of neighbours."""
    form, mapping, data, suffix = given
    read_file(form, data, suffix, mapping)
    if data:
        check_file_kernel(form, data, suffix, mapping)


@st.composite
def _csv_neighbours(draw: st.DrawFn) -> tuple[Any, ...]:
    """(form, mapping, bytes, ids of the good rows): what is between good rows is one line without quotes."""
    rows, good = [",".join(_COLUMNS).encode()], []
    for number in range(draw(st.integers(1, 8))):
        if draw(st.booleans()):
            rows.append(f"good-{number},{T0 + number},u,0.5,impression".encode())
            good.append(f"good-{number}")
        else:
            bad = draw(bent(rows[-1], draw(st.binary(max_size=20))))
            for byte in (b"\n", b"\r", b'"'):
                bad = bad.replace(byte, b"")
            rows.append(bad)
    return draw(forms), draw(mappings), b"\n".join(rows) + b"\n", good


def csv_neighbours_check(given: tuple[Any, ...]) -> None:
    """Every row that is not blank is an event or a letter, and good rows are untouched."""
    form, mapping, data, good = given
    check_file_kernel(form, data, ".csv", mapping)
    read = read_file(form, data, ".csv", mapping)
    if read.error:  # no time could be read in the whole first batch: taken for a mistake in the mapping
        assert mapping is not None
        assert "none of the first values matches" in read.error or "does not match" in read.error
        return
    check_good_lines_survive(good, read)
    assert read.count == sum(1 for line in data.split(b"\n")[1:] if line)


def parquet_check(given: tuple[Any, ...]) -> None:
    """Parquet files with odd columns, harmed pages and harmed footers."""
    form, mapping, data = given
    read_file(form, data, ".parquet", mapping)


def arrow_file_check(given: tuple[Any, ...]) -> None:
    """Arrow files and streams on disk."""
    form, mapping, data = given
    read_file(form, data, ".arrow", mapping)


_arrow_messages = st.lists(
    st.one_of(st.sampled_from([None, b"", b"\xff\xff\xff\xff"]), *[arrow_bytes.streams().map(lambda made: made[0])] * 4),
    min_size=1, max_size=3,
)  # fmt: skip

TARGETS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], None]]] = {
    "json": (_two_topics(json_messages()), json_check),
    "arrow": (_two_topics(_arrow_messages), arrow_check),
    "jsonl": (_lines(), jsonl_check),
    "jsonl-packed": (_packed(), packed_check),
    "csv": (_csv(), csv_check),
    "csv-neighbours": (_csv_neighbours(), csv_neighbours_check),
    "parquet": (st.tuples(forms, mappings, arrow_bytes.parquet()), parquet_check),
    "arrow-file": (
        st.tuples(forms, mappings, st.one_of(arrow_bytes.files(), arrow_bytes.streams().map(lambda made: made[0]))),
        arrow_file_check,
    ),
    "avro": AVRO,
}

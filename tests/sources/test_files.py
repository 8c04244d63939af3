"""Files of every format, as real files: the same events, whatever holds them, and nothing lost when a file is bad."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from streameval.events.batch import Batch, Catalog
from streameval.events.hashing import hash_one
from streameval.settings.tree import Files
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.files import FileSource
from streameval.sources.formats import csv as csv_rows
from streameval.sources.formats.csv import CsvReader
from streameval.sources.formats.decode import Decoder
from streameval.sources.protocol import REASONS, DeadLetter, SourceError

NOW = 1_800_000_000_000
T0 = 1_700_000_000_000
COLUMNS = (
    "id", "ts", "user", "request", "item", "series", "pclick", "slices", "label", "position", "propensity",
)  # fmt: skip


class Read:
    """Everything a source gave until its end, or until the error."""

    def __init__(self, paths: Path | Sequence[Path], files: Files | None = None, **options: int) -> None:
        paths = [paths] if isinstance(paths, Path) else paths
        folder = paths[0].parent
        self.letters_path = folder / "dead-letters.jsonl"
        self.letters_path.unlink(missing_ok=True)
        max_events = options.pop("max_events", 1000)
        self.catalog = Catalog(("country",))
        decoder = Decoder(self.catalog, clock=lambda: NOW, max_future=0, hashed=True, names=True, **options)
        sink = JsonlDeadLetters(self.letters_path)
        self.batches: list[Batch] = []
        self.progress: list[tuple[int, int]] = []
        self.error = ""
        source = FileSource(paths, decoder, files or Files(), max_events, sink)
        try:
            while not source.finished:
                self.batches += source.poll(0.0)
                self.progress.append(source.progress() or (0, 0))
        except SourceError as error:
            self.error = str(error)
        finally:
            source.close()
            sink.close()

    def column(self, name: str) -> list:
        columns = [b.impressions.fields.get(name, getattr(b.impressions, name, None)) for b in self.batches]
        return [v for column in columns for v in column.tolist()]

    @property
    def ids(self) -> list[str]:
        return [v for b in self.batches if b.impressions.names for v in b.impressions.names.impression_id]

    @property
    def clicks(self) -> list[tuple[int, int, str]]:
        return [(*row[:2], repr(row[2])) for b in self.batches for row in zip(b.clicks.id.tolist(), b.clicks.ts.tolist(), b.clicks.fields["value"].tolist(), strict=True)]  # fmt: skip

    @property
    def order(self) -> list[tuple[str, list[int]]]:
        return [(kind, getattr(b, kind).order.tolist()) for b in self.batches for kind in ("impressions", "clicks")]

    @property
    def features(self) -> list[set[tuple[int, float]]]:
        rows = []
        for b in self.batches:
            f = b.impressions.features
            for start, end in zip(f.indptr, f.indptr[1:], strict=False):
                rows.append(set(zip(f.index[start:end].tolist(), f.value[start:end].tolist(), strict=True)))
        return rows

    @property
    def letters(self) -> list[dict]:
        if not self.letters_path.exists():
            return []
        return [json.loads(line) for line in self.letters_path.read_bytes().splitlines()]

    @property
    def invalid(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for batch in self.batches:
            total.update(batch.invalid)
        return total


def original(letter: dict) -> bytes:
    return base64.b64decode(letter["value_base64"]) if letter["value"] is None else letter["value"].encode()


def make_events(n: int = 250) -> list[dict]:
    rng = np.random.default_rng(5)
    events: list[dict] = []
    for i in range(n):
        event = {
            "impression_id": f"i{i}", "ts": T0 + 1000 * i, "user_id": f"u {i % 7},é", "model": "m",
            "model_version": f"v{i % 2}", "pclick": float(rng.random()), "item_id": f'it"em{i % 9}', "position": i % 4,
            "propensity": 0.5, "slices": {"country": "de" if i % 3 else "fr"}, "predictions": {"shadow": 0.25},
            "features": {"age": float(i % 50), "city": f"c{i % 5}"},
        }  # fmt: skip
        if i % 4:
            event["request_id"] = f"r{i // 4}"
        if i % 10 == 0:
            event["clicked"] = i % 20 == 0
        events.append(event)
        if i % 3 == 0:
            click = {"impression_id": f"i{i}", "ts": T0 + 1000 * i + 1}
            events.append({**click, "value": 2.5} if i % 6 else click)
    return events


def line(i: int, **change: object) -> bytes:
    event = {"impression_id": f"i{i}", "ts": T0 + i, "user_id": "u", "pclick": 0.5, **change}
    return json.dumps(event).encode()


def jsonl(events: list[dict]) -> bytes:
    return b"".join(json.dumps(e, ensure_ascii=False).encode() + b"\n" for e in events)


def table_of(events: list[dict]) -> pa.Table:
    """Map-like fields as JSON text, which every columnar format can hold."""
    rows = [{**e, **{k: json.dumps(e[k]) for k in ("slices", "predictions", "features") if k in e}} for e in events]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def write_jsonl(path: Path, events: list[dict]) -> None:
    path.write_bytes(jsonl(events))


def write_gz(path: Path, events: list[dict]) -> None:
    half = len(events) // 2  # two members, as `cat a.gz b.gz` makes
    path.write_bytes(gzip.compress(jsonl(events[:half])) + gzip.compress(jsonl(events[half:])))


def write_zst(path: Path, events: list[dict]) -> None:
    half = len(events) // 2
    pack = zstandard.ZstdCompressor().compress
    path.write_bytes(pack(jsonl(events[:half])) + pack(jsonl(events[half:])))


def write_csv(path: Path, events: list[dict]) -> None:
    data = io.BytesIO()
    pyarrow.csv.write_csv(table_of(events), data)
    text = data.getvalue()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def write_parquet(path: Path, events: list[dict]) -> None:
    pq.write_table(table_of(events), path, row_group_size=60)


def write_arrow(path: Path, events: list[dict]) -> None:
    table = table_of(events)
    with pyarrow.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=70)


def with_views(kind: pa.DataType) -> pa.DataType:
    """What Polars has for this type: its text is views."""
    if pa.types.is_string(kind):
        return pa.string_view()
    if pa.types.is_list(kind):
        return pa.large_list(with_views(kind.value_type))
    return (
        pa.struct([pa.field(part.name, with_views(part.type)) for part in kind]) if pa.types.is_struct(kind) else kind
    )


def write_views(path: Path, events: list[dict]) -> None:
    table = table_of(events)
    table = table.cast(pa.schema([(field.name, with_views(field.type)) for field in table.schema]))
    assert pa.string_view() in table.schema.types
    with pyarrow.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=70)


def write_arrow_stream(path: Path, events: list[dict]) -> None:
    table = table_of(events)
    with pyarrow.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=70)


def write_feather(path: Path, events: list[dict]) -> None:
    """With the compression that it has by default."""
    write_arrow(path, events)
    pyarrow.feather.write_feather(pyarrow.ipc.open_file(path).read_all(), path)


WRITERS: dict[str, Callable[[Path, list[dict]], None]] = {
    "t.jsonl": write_jsonl, "t.jsonl.gz": write_gz, "t.jsonl.zst": write_zst, "t.csv": write_csv,
    "t.csv.gz": write_csv, "t.parquet": write_parquet, "t.arrow": write_arrow, "stream.arrow": write_arrow_stream,
    "t.feather": write_feather,
    "views.arrow": write_views,
}  # fmt: skip


# -- the same events ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("all_carried")
@pytest.mark.parametrize("max_events", [97, 1000])
@pytest.mark.parametrize("name", list(WRITERS))
def test_every_format_gives_the_same_columns_in_the_same_order(tmp_path: Path, name: str, max_events: int) -> None:
    events = make_events()
    write_jsonl(tmp_path / "plain.jsonl", events)
    WRITERS[name](tmp_path / name, events)
    expected = Read(tmp_path / "plain.jsonl", max_events=max_events)
    got = Read(tmp_path / name, max_events=max_events)
    assert not got.error
    assert not got.letters
    for column in COLUMNS:
        assert np.array_equal(got.column(column), expected.column(column), equal_nan=True), column
    assert got.clicks == expected.clicks
    assert got.order == expected.order
    assert got.features == expected.features
    assert got.catalog.series == expected.catalog.series
    assert got.catalog.values == expected.catalog.values
    assert [len(b) for b in got.batches] == [len(b) for b in expected.batches]
    assert sum(len(b) for b in got.batches) == len(events)
    assert {len(b) for b in got.batches[:-1]} <= {max_events}


@pytest.mark.parametrize("write", [write_gz, write_zst])
def test_what_is_compressed_is_unpacked_whatever_its_name(
    tmp_path: Path, write: Callable[[Path, list[dict]], None]
) -> None:
    """Every few bytes were a dead letter."""
    events = make_events(60)
    write(tmp_path / "t.jsonl", events)
    got = Read(tmp_path / "t.jsonl")
    assert (got.error, got.letters) == ("", [])
    assert got.ids == [e["impression_id"] for e in events if "pclick" in e]


@pytest.mark.parametrize(
    ("write", "says"),
    [(write_parquet, 'name it .parquet, or set files.format = "parquet"'), (write_arrow, "name it .arrow")],
)
def test_a_table_that_is_named_as_text_is_an_error_that_says_what_it_is(
    tmp_path: Path, write: Callable[[Path, list[dict]], None], says: str
) -> None:
    write(tmp_path / "t.jsonl", make_events(60))
    got = Read(tmp_path / "t.jsonl")
    assert says in got.error
    assert str(tmp_path / "t.jsonl") in got.error
    assert not got.letters


def test_several_files_are_read_one_after_the_other_in_the_given_order(tmp_path: Path) -> None:
    events = make_events(60)
    write_zst(tmp_path / "b.jsonl.zst", events[:30])
    write_csv(tmp_path / "a.csv", events[30:50])
    write_parquet(tmp_path / "c.parquet", events[50:])
    got = Read([tmp_path / "b.jsonl.zst", tmp_path / "a.csv", tmp_path / "c.parquet"])
    assert not got.error
    assert got.ids == [e["impression_id"] for e in events if "pclick" in e]
    assert len(got.clicks) == sum("pclick" not in e for e in events)


@pytest.mark.parametrize("name", list(WRITERS))
def test_progress_never_falls_or_passes_the_total_and_ends_there(tmp_path: Path, name: str) -> None:
    paths = [tmp_path / f"{k}-{name}" for k in range(2)]
    for path in paths:
        WRITERS[name](path, make_events())
    got = Read(paths, max_events=50)
    done, totals = [p[0] for p in got.progress], {p[1] for p in got.progress}
    total = sum(path.stat().st_size for path in paths)
    assert totals == {total}
    assert done == sorted(done)
    assert done[-1] == total


# -- text --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbf" + line(0) + b"\n" + line(1) + b"\n",
        line(0) + b"\r\n" + line(1) + b"\r\n",
        b"\n\n" + line(0) + b"\n  \n\r\n" + line(1) + b"\n\n",
        line(0) + b"\n" + line(1),
    ],
    ids=["BOM", "CRLF", "blank lines", "no newline at the end"],
)
def test_lines_may_be_written_in_any_usual_way(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "t.jsonl").write_bytes(text)
    got = Read(tmp_path / "t.jsonl")
    assert got.ids == ["i0", "i1"]
    assert not got.letters


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_line_longer_than_the_limit_is_a_dead_letter_and_its_neighbours_are_counted(
    tmp_path: Path, place: int, end: bytes
) -> None:
    lines = [line(0), line(1)]
    lines.insert(place, line(9, item_id="x" * 3000))
    (tmp_path / "t.jsonl").write_bytes(end.join(lines))
    got = Read(tmp_path / "t.jsonl", max_message=1000)
    assert got.ids == ["i0", "i1"]
    (letter,) = got.letters
    assert (letter["reason"], letter["offset"]) == ("too_large", place)
    assert original(letter) == lines[place]
    assert f"{len(lines[place])} bytes: longer than kafka.max_message = 1000" in letter["message"]
    assert got.invalid == {"too_large": 1}


@pytest.mark.parametrize("over", [0, 1, 2])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_limit_of_a_line_counts_its_bytes_without_the_end(tmp_path: Path, over: int, end: bytes) -> None:
    text = line(0)
    (tmp_path / "t.jsonl").write_bytes(text + end)
    got = Read(tmp_path / "t.jsonl", max_message=len(text) - over)
    assert got.ids == ([] if over else ["i0"])
    assert [original(letter) for letter in got.letters] == ([text] if over else [])


def test_a_line_that_would_fill_the_memory_is_cut_and_its_size_reported(tmp_path: Path) -> None:
    endless = b"x" * 3_000_000
    (tmp_path / "t.jsonl").write_bytes(line(0) + b"\n" + endless + b"\n" + line(1))
    got = Read(tmp_path / "t.jsonl", max_message=1000)
    assert got.ids == ["i0", "i1"]
    (letter,) = got.letters
    assert original(letter) == endless[:4000]
    assert "3000000 bytes: longer than" in letter["message"]


def test_bad_lines_alone_are_counted_too(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(b"x" * 5000)
    got = Read(tmp_path / "t.jsonl", max_message=1000)
    assert got.invalid == {"too_large": 1}
    assert not got.error


# -- files that cannot be read -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t.jsonl.gz", "t.jsonl.zst", "t.csv.gz", "t.parquet", "t.arrow", "stream.arrow"])
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.97])
def test_a_file_that_is_cut_short_ends_in_one_clear_error(tmp_path: Path, name: str, kept: float) -> None:
    whole = tmp_path / name
    WRITERS[name](whole, make_events(2000))
    data = whole.read_bytes()
    whole.write_bytes(data[: int(len(data) * kept)])
    got = Read(whole)
    assert got.error.startswith(f"{whole}: cannot be read to its end: ")
    assert "cut short" in got.error
    assert "copy it again" in got.error
    assert "\n" not in got.error


def test_the_complete_lines_before_the_cut_are_delivered_before_the_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    text = b"".join(line(i, item_id=rng.bytes(60).hex()) + b"\n" for i in range(3000))
    data = gzip.compress(text)
    (tmp_path / "t.jsonl.gz").write_bytes(data[: len(data) // 2])
    got = Read(tmp_path / "t.jsonl.gz", max_events=700)
    assert "cut short" in got.error
    assert not got.letters, "half a line is not a bad event"
    assert got.ids == [f"i{i}" for i in range(len(got.ids))]
    assert 1000 < len(got.ids) < 2000


@pytest.mark.parametrize("name", ["t.jsonl.gz", "t.jsonl.zst", "t.parquet", "t.arrow"])
def test_a_file_that_is_not_what_its_name_says_ends_in_one_clear_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(jsonl(make_events(50)))
    got = Read(tmp_path / name)
    assert got.error.startswith(f"{tmp_path / name}: ")
    assert "\n" not in got.error
    assert not got.batches


def test_a_damaged_byte_of_a_packed_file_is_an_error(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(jsonl(make_events())))
    data[-6] ^= 0xFF  # the checksum
    (tmp_path / "t.jsonl.gz").write_bytes(data)
    assert "CRC" in Read(tmp_path / "t.jsonl.gz").error


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("missing.jsonl", None, "no such file"),
        ("events.log", b"{}", "format cannot be told from the name; set files.format"),
        ("events.jsonl.bz2", b"{}", "format cannot be told from the name; set files.format"),
    ],
)
def test_an_unusable_file_is_rejected_before_anything_is_read(
    tmp_path: Path, name: str, data: bytes | None, says: str
) -> None:
    good = tmp_path / "good.jsonl"
    good.write_bytes(line(0))
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError, match=says) as failure:
        Read([good, tmp_path / name])
    assert str(failure.value).startswith(str(tmp_path / name))


def test_an_empty_file_among_others_is_named_and_one_alone_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of hourly logs one may be of an hour without traffic."""
    (tmp_path / "good.jsonl").write_bytes(line(0))
    (tmp_path / "empty.jsonl").write_bytes(b"")
    got = Read([tmp_path / "empty.jsonl", tmp_path / "good.jsonl"])
    assert sum(len(batch.impressions) for batch in got.batches) == 1
    assert "empty.jsonl is empty: there is nothing to read" in caplog.text
    with pytest.raises(SourceError, match=r"empty\.jsonl: is empty"):
        Read([tmp_path / "empty.jsonl"])


def test_a_folder_is_rejected_as_a_folder(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is a directory"):
        Read([tmp_path])


@pytest.mark.parametrize("kind", ["jsonl", "mapped", "csv"])
@pytest.mark.parametrize("cut", [True, False])
def test_of_a_file_that_grows_the_whole_lines_that_it_had_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, cut: bool
) -> None:
    """A last line without its end is half a line if more follows, otherwise a line."""
    path, other = tmp_path / f"t.{'csv' if kind == 'csv' else 'jsonl'}", tmp_path / "other.jsonl"
    rows = (
        [b"i%d,%d,u,0.125\n" % (i, T0 + i) for i in range(9)] if kind == "csv" else [line(i) + b"\n" for i in range(9)]
    )
    head = b"impression_id,ts,user_id,pclick\n" if kind == "csv" else b""
    before = head + b"".join(rows[:6])
    path.write_bytes(before[:-3] if cut else before)
    other.write_bytes(line(10))
    columns = {"columns": {n: n for n in ("impression_id", "ts", "user_id", "pclick")}} if kind == "mapped" else {}
    decoder = Decoder(Catalog(()), clock=lambda: NOW, max_future=0, names=True)
    letters = JsonlDeadLetters(tmp_path / "dead")
    source, batches = FileSource([path, other], decoder, Files(**columns), 2, letters), []
    path.write_bytes(head + b"".join(rows))
    while not source.finished:
        batches += source.poll(0.0)
    source.close()
    letters.close()
    names = [name for batch in batches if batch.impressions.names for name in batch.impressions.names.impression_id]
    assert names == [f"i{i}" for i in [*range(5 if cut else 6), 10]]
    assert not (tmp_path / "dead").exists()
    says = "grew while it was read: only the whole lines that it had at the start are counted"
    assert caplog.text.count(f"{path} {says}; replay it again when it is complete") == caplog.text.count("grew") == 1


def test_a_pipe_or_a_device_is_rejected_as_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "events.jsonl")
    with pytest.raises(SourceError, match=r"events\.jsonl: is a pipe, and only files can be read; write it to a file"):
        Read([tmp_path / "events.jsonl"])
    (tmp_path / "null.jsonl").symlink_to("/dev/null")
    with pytest.raises(
        SourceError, match=r"null\.jsonl: is a device or a socket, and only files can be read; name a file"
    ):
        Read([tmp_path / "null.jsonl"])


def test_the_format_may_be_set_instead_of_derived_from_the_name(tmp_path: Path) -> None:
    (tmp_path / "events.log").write_bytes(line(0))
    assert Read(tmp_path / "events.log", Files(format="jsonl")).ids == ["i0"]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.arrow"])
def test_a_table_without_a_required_column_is_one_error_that_lists_the_columns(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, [{"id": "a", "ts": 1}])
    got = Read(tmp_path / name)
    assert got.error == f"{tmp_path / name}: column impression_id: is missing; there are ['id', 'ts']"


def test_a_column_that_is_there_twice_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"impression_id,ts,ts\na,1,2\n")
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array([1]), pa.array([2])], ["impression_id", "ts", "ts"])
    with pyarrow.ipc.new_file(tmp_path / "t.arrow", table.schema) as writer:
        writer.write_table(table)
    for name in ("t.csv", "t.arrow"):
        got = Read(tmp_path / name)
        says = (
            "the first line gives columns 2 and 3 the same name" if name == "t.csv" else 'the column "ts" appears twice'
        )
        assert says in got.error


# -- CSV ---------------------------------------------------------------------------------------------------------

HEADER = b"impression_id,ts,user_id,pclick,item_id\n"


def csv_row(i: int, item: str = "x", pclick: object = 0.5) -> bytes:
    return f"i{i},{T0 + i},u,{pclick},{item}\n".encode()


def test_quoted_cells_may_hold_commas_quotes_and_lines(tmp_path: Path) -> None:
    items = ["a,b", "one\ntwo\r\nthree", 'say "hi"', "", "\n"]
    rows = [csv_row(i, '"' + item.replace('"', '""') + '"') for i, item in enumerate(items)]
    (tmp_path / "t.csv").write_bytes(HEADER + b"".join(rows))
    got = Read(tmp_path / "t.csv")
    assert not got.letters
    assert got.ids == [f"i{i}" for i in range(5)]
    assert got.column("item") == [hash_one(i) if i.strip() else 0 for i in items]


def test_bad_csv_rows_go_to_the_dead_letters_as_they_were_and_are_counted(tmp_path: Path) -> None:
    rows = [
        csv_row(0),
        b"i1,5,u\n",  # too few cells
        b"\n",
        csv_row(2)[:-1] + b",more\n",  # too many
        csv_row(3, pclick="half"),
        csv_row(4),
        csv_row(5, pclick=1.5),
        b"i6,soon,u,0.5,x\n",
        csv_row(7, item='"q,\n7"'),
        b"i8," + str(T0).encode() + b",u,0.5,\xff\xfe\n",  # no UTF-8
        b'i9,"' + str(T0).encode() + b'",,0.5,"x"\r\n',
        csv_row(10)[:-1],
    ]
    (tmp_path / "t.csv").write_bytes(HEADER + b"".join(rows))
    for max_events in (2, 1000):
        got = Read(tmp_path / "t.csv", max_events=max_events)
        assert not got.error
        assert got.ids == ["i0", "i4", "i7", "i10"]
        expected = {  # row number without the header and blank lines: (reason, field, the row)
            1: ("malformed", "", rows[1]), 2: ("malformed", "", rows[3]), 3: ("wrong_type", "pclick", rows[4]),
            5: ("out_of_range", "pclick", rows[6]), 6: ("wrong_type", "ts", rows[7]), 8: ("malformed", "", rows[9]),
            9: ("missing_field", "user_id", rows[10]),
        }  # fmt: skip
        assert {letter["offset"]: (letter["reason"], letter["field"], original(letter)) for letter in got.letters} == {
            k: (reason, field, row.strip(b"\r\n")) for k, (reason, field, row) in expected.items()
        }
        assert got.invalid == Counter(reason for reason, _, _ in expected.values())


def test_a_quote_that_is_never_closed_costs_its_own_line_only(tmp_path: Path) -> None:
    rows = [csv_row(0), csv_row(1, item='"open'), *(csv_row(i) for i in range(2, 500))]
    (tmp_path / "t.csv").write_bytes(HEADER + b"".join(rows))
    for limit in (1000, 16_000_000):  # found at the limit of a row, or at the end of the file
        got = Read(tmp_path / "t.csv", max_message=limit)
        assert got.ids == [f"i{i}" for i in range(500) if i != 1]
        assert [(original(letter), letter["offset"]) for letter in got.letters] == [(rows[1].strip(), 1)]
        assert "quote" in got.letters[0]["message"]


@pytest.mark.parametrize("block", [64, 1 << 20])
def test_a_csv_row_longer_than_the_limit_is_rejected_alone_and_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(csv_rows, "BLOCK", block)
    rows = [csv_row(0), csv_row(1, item="y" * 2000), csv_row(2), csv_row(3, item="z" * 1200), csv_row(4)]
    (tmp_path / "t.csv").write_bytes(HEADER + b"".join(rows))
    got = Read(tmp_path / "t.csv", max_message=1000)
    assert got.ids == ["i0", "i2", "i4"]
    assert [(original(letter), letter["offset"]) for letter in got.letters] == [(rows[1][:-1], 1), (rows[3][:-1], 3)]
    assert got.invalid == {"too_large": 2}
    assert f"{len(rows[1]) - 1} bytes" in got.letters[0]["message"]


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_csv_may_begin_with_a_bom_and_end_lines_in_either_way(tmp_path: Path, bom: bytes, end: bytes) -> None:
    text = HEADER + csv_row(0) + b"\n" + csv_row(1)[:-1]
    (tmp_path / "t.csv").write_bytes(bom + text.replace(b"\n", end))
    got = Read(tmp_path / "t.csv")
    assert got.ids == ["i0", "i1"]
    assert not got.letters


@pytest.mark.parametrize("text", [HEADER, HEADER.strip(), b"\n" + HEADER + b"\n\n"])
def test_a_csv_file_of_a_header_alone_has_no_events(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "t.csv").write_bytes(text)
    got = Read(tmp_path / "t.csv")
    assert (got.error, got.batches, got.letters) == ("", [], [])


def test_a_csv_file_whose_first_line_names_no_columns_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b",\n1,2\n")
    assert "first line must name the columns, and it does not; write a header" in Read(tmp_path / "t.csv").error
    (tmp_path / "t.csv").write_bytes(b"a,,c\n1,2,3\n")
    assert "first line names none of the columns that are wanted; write a header" in Read(tmp_path / "t.csv").error


@pytest.mark.parametrize("kernel", [True, False])
def test_a_column_of_a_csv_may_have_no_name(tmp_path: Path, kernel: bool) -> None:
    """As pandas writes its index."""
    rows = [b"," + HEADER, *(b"%d,%s" % (i, csv_row(i)) for i in range(3))]
    (tmp_path / "t.csv").write_bytes(b"".join(rows))
    got = Read(tmp_path / "t.csv", json_kernel=kernel)
    assert got.ids == ["i0", "i1", "i2"]
    assert not got.letters


def test_a_tsv_file_is_split_at_tabs(tmp_path: Path) -> None:
    (tmp_path / "t.tsv.gz").write_bytes(gzip.compress((HEADER + csv_row(0, "a b")).replace(b",", b"\t")))
    got = Read(tmp_path / "t.tsv.gz")
    assert got.ids == ["i0"]
    assert got.column("item") == [hash_one("a b")]


@given(text=st.text(alphabet='ab",\n\r;', max_size=80), block=st.integers(1, 30))
@example(text='a,b\n"a""\nb",c\r\n\r\n,\n"a"b,"c\n', block=3)
@example(text='""\n"",""\n"a"""",b', block=1)
def test_rows_are_those_that_arrows_own_parser_sees_however_the_stream_is_cut(text: str, block: int) -> None:
    rows, refused = [], {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_rows, "BLOCK", block)
        for part in CsvReader(io.BytesIO(b"x,y\n" + text.encode()), None, ",", 1 << 20).rows():
            rows += part.table.to_pylist()
            refused |= {number: problem[2] for number, _, problem in part.bad}
    if any("quote" in message for message in refused.values()):
        return  # Arrow makes one cell of all that follows an open quote, which is what we do not want
    bad: list[int] = []

    def refuse(row: pyarrow.csv.InvalidRow) -> str:
        bad.append(row.number - 1)
        return "skip"

    arrow = pyarrow.csv.read_csv(
        io.BytesIO(b"first,row\n" + text.encode()),  # Arrow takes no empty file
        pyarrow.csv.ReadOptions(column_names=["x", "y"], use_threads=False),
        pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=refuse),
        pyarrow.csv.ConvertOptions(column_types={"x": pa.string(), "y": pa.string()}, strings_can_be_null=False),
    )
    assert rows == arrow.slice(1).to_pylist()
    assert list(refused) == [number - 1 for number in bad]


# -- Parquet and Arrow -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_bad_rows_of_a_table_are_dead_letters_as_json(tmp_path: Path, name: str) -> None:
    events = [json.loads(line(i)) for i in range(6)]
    events[1]["pclick"], events[4]["user_id"], events[5]["ts"] = 7.0, None, -3
    WRITERS[name](tmp_path / name, events)
    got = Read(tmp_path / name, max_events=2)
    assert got.ids == ["i0", "i2", "i3"]
    assert [(letter["offset"], letter["reason"], letter["field"]) for letter in got.letters] == [
        (1, "out_of_range", "pclick"), (4, "missing_field", "user_id"), (5, "out_of_range", "ts"),
    ]  # fmt: skip
    assert json.loads(got.letters[0]["value"]) == events[1]


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_a_text_of_a_table_that_is_not_utf8_is_a_dead_letter_with_its_bytes(tmp_path: Path, name: str) -> None:
    raw = pa.array([b"u0", b"\xff\xfe", b"u2"], pa.binary())
    users = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    table = pa.table(
        {"impression_id": ["i0", "i1", "i2"], "ts": [T0, T0 + 1, T0 + 2], "user_id": users, "pclick": [0.5] * 3}
    )
    if name.endswith("parquet"):
        pq.write_table(table, tmp_path / name)
    else:
        with pyarrow.ipc.new_file(tmp_path / name, table.schema) as writer:
            writer.write_table(table)
    got = Read(tmp_path / name)
    assert got.ids == ["i0", "i2"]
    (letter,) = got.letters
    assert (letter["reason"], letter["offset"]) == ("malformed", 1)
    assert base64.b64decode(json.loads(letter["value"])["user_id"]["base64"]) == b"\xff\xfe"
    assert got.invalid == {"malformed": 1}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.list_(pa.string())], ids=str)
def test_a_column_that_leads_out_of_its_data_is_an_error(tmp_path: Path, kind: pa.DataType) -> None:
    """Where an offset was damaged, reading the text ended the process: found by fuzzing. One text is not UTF-8, too."""
    text = ["a text that no view holds itself", "b" * 20, "c" * 20]
    harmed = pa.array([[one] for one in text] if pa.types.is_list(kind) else text).cast(kind)
    if pa.types.is_string_view(kind):
        good, bad = np.array([20], np.int32).tobytes() + b"bbbb", np.array([1 << 30], np.int32).tobytes() + b"bbbb"
    else:
        offsets = np.array([0, 1, 2, 3] if pa.types.is_list(kind) else [0, 32, 52, 72])
        wide = np.int64 if pa.types.is_large_string(kind) else np.int32
        good, bad = ((offsets * [1, by, 1, 1]).astype(wide).tobytes() for by in (1, 1 << 24))
    users = pa.array([b"u", b"\xff\xfe", b"v"]).view(pa.string())
    table = pa.table({"impression_id": ["i0", "i1", "i2"], "ts": [T0, T0 + 1, T0 + 2], "user_id": users})
    table = table.append_column("pclick", pa.array([0.5] * 3)).append_column("item_id", harmed)
    path = tmp_path / "t.arrow"
    with pyarrow.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    data = path.read_bytes()
    assert data.count(good) == 1
    path.write_bytes(data.replace(good, bad))
    got = Read(path)
    assert got.error.startswith(f"{path}: ")
    assert not got.ids


# -- dead letters ------------------------------------------------------------------------------------------------


def test_dead_letters_say_what_where_and_why_and_give_the_bytes_back(tmp_path: Path) -> None:
    bad = [
        b'{"impression_id": "x", "ts": -1, "user_id": "u", "pclick": 0.5}',
        b"\xff\xfe\x00 not text",
        b'  {"impression_id": \t"\xc3\xa9", "ts": 1, "user_id": "u"  ',
        b'{"impression_id": "\\ud800", "ts": 1, "user_id": "u", "pclick": 0.5}',
        line(5, pclick="0.5"),
        b'"text"',
        b"\x00",
    ]
    text = b"".join(line(i) + b"\n" + row + b"\n" for i, row in enumerate(bad))
    path = tmp_path / "t.jsonl"
    path.write_bytes(text)
    got = Read(path)
    assert got.ids == [f"i{i}" for i in range(len(bad))]
    assert [original(letter) for letter in got.letters] == bad
    assert [letter["offset"] for letter in got.letters] == list(range(1, 2 * len(bad), 2))
    assert {letter["topic"] for letter in got.letters} == {str(path)}
    assert {letter["partition"] for letter in got.letters} == {0}
    assert {letter["reason"] for letter in got.letters} <= set(REASONS)
    assert (got.letters[0]["reason"], got.letters[0]["field"]) == ("out_of_range", "ts")
    assert "ts = -1: must be ms since the epoch, from 2000-01-01 on" in got.letters[0]["message"]
    assert (got.letters[4]["reason"], got.letters[4]["field"]) == ("wrong_type", "pclick")
    assert sum(got.invalid.values()) == len(bad)


@given(value=st.binary(max_size=60) | st.text(max_size=40).map(lambda t: t.encode("utf-8", "surrogatepass")))
@example(value=b"")
@example(value=b"\xed\xa0\x80")
@example(value='\ufeff\u2028\x7f\x00"\\'.encode())
def test_any_bytes_come_back_from_a_dead_letter(tmp_path_factory: pytest.TempPathFactory, value: bytes) -> None:
    path = tmp_path_factory.mktemp("letters") / "dead.jsonl"
    sink = JsonlDeadLetters(path)
    sink.write([DeadLetter(value, "malformed", "", "says \ud800", "/a/\udcff.jsonl", 0, 7)] * 2)
    sink.close()
    letters = [json.loads(row) for row in path.read_bytes().split(b"\n")[:-1]]
    assert [original(letter) for letter in letters] == [value] * 2


def test_dead_letters_are_in_the_file_once_flushed_and_added_to_older_ones(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    letter = DeadLetter(b"x", "malformed", "", "bad", "t", 0, 1)
    for expected in (1, 2):
        sink = JsonlDeadLetters(path)
        sink.write([letter])
        sink.flush()
        assert len(path.read_bytes().splitlines()) == expected
        sink.close()
        sink.close()


def test_without_dead_letters_no_file_is_made_but_they_are_counted(tmp_path: Path) -> None:
    JsonlDeadLetters("").write([DeadLetter(b"x", "malformed", "", "bad", "t", 0, 1)])
    sink = JsonlDeadLetters(tmp_path / "dead.jsonl")
    sink.write([])
    sink.close()
    assert not list(tmp_path.iterdir())


def test_dead_letters_that_cannot_be_written_stop_the_program_with_the_fix(tmp_path: Path) -> None:
    letter = DeadLetter(b"x", "malformed", "", "bad", "t", 0, 1)
    with pytest.raises(SourceError, match=r"cannot be written: .*set files\.dead_letters"):
        JsonlDeadLetters(tmp_path / "no" / "folder.jsonl").write([letter])
    full = JsonlDeadLetters("/dev/full")
    full.write([letter])
    with pytest.raises(SourceError, match="No space left"):
        full.flush()
    with pytest.raises(SourceError, match="No space left"):
        full.close()
    full.close()

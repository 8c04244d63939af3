"""Foreign logs through `[files.columns]`: the public click datasets' own columns, and mappings that are wrong."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streameval.events.batch import Batch, Catalog
from streameval.settings.tree import ConfigError, Files
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.files import FileSource
from streameval.sources.formats.decode import Decoder
from streameval.sources.formats.mapping import ColumnMap
from streameval.sources.formats.raw import EARLIEST
from streameval.sources.protocol import SourceError

NOW = 1_800_000_000_000


class Mapped:
    """The impressions that a mapping makes of some files."""

    def __init__(self, mapping: str, *paths: Path, dimensions: tuple[str, ...] = (), max_events: int = 1000) -> None:
        self.dead = paths[0].parent / "dead.jsonl"
        self.dead.unlink(missing_ok=True)
        self.catalog = Catalog(dimensions)
        decoder = Decoder(self.catalog, clock=lambda: NOW, max_future=0, hashed=True, dicts=True, names=True)
        sink = JsonlDeadLetters(self.dead)
        source = FileSource(paths, decoder, Files(columns=tomllib.loads(mapping)), max_events, sink)
        self.batches: list[Batch] = []
        try:
            while not source.finished:
                self.batches += source.poll(0.0)
        finally:
            source.close()
            sink.close()

    def column(self, name: str) -> list:
        columns = [b.impressions.fields.get(name, getattr(b.impressions, name, None)) for b in self.batches]
        return [v for column in columns for v in column.tolist()]

    @property
    def ids(self) -> list[str]:
        return [v for b in self.batches for v in b.impressions.names.impression_id]

    @property
    def users(self) -> list[str]:
        return [v for b in self.batches for v in b.impressions.names.user_id]

    @property
    def features(self) -> list[dict[str, float]]:
        return [f for b in self.batches for f in b.impressions.features.dicts]

    @property
    def letters(self) -> list[dict]:
        return [json.loads(row) for row in self.dead.read_bytes().splitlines()] if self.dead.exists() else []


# -- the public datasets' own columns ----------------------------------------------------------------------------

CRITEO = [f"I{i}" for i in range(1, 14)] + [f"C{i}" for i in range(1, 27)]
CRITEO_MAP = f"""
header = {json.dumps(["label", *CRITEO])}
delimiter = "\\t"
impression_id = {{ row = true }}
ts = {{ row = true }}
user_id = {{ column = "C1" }}
clicked = "label"
model = {{ constant = "criteo" }}
features = {{ columns = ["I*", "C*"], exclude = ["C26"], numeric = ["I*"] }}
"""


def criteo_row(label: int, shift: int) -> str:
    numbers = [str(i + shift) if i % 3 else "" for i in range(13)]
    return "\t".join([str(label), *numbers, *(f"{i:08x}" if i % 5 else "" for i in range(1 + shift, 27 + shift))])


@pytest.mark.parametrize("name", ["day_0.tsv", "day_0.csv"])
def test_a_criteo_file_gives_its_labels_and_its_numeric_and_one_hot_features(tmp_path: Path, name: str) -> None:
    rows = [criteo_row(i % 2, 100 * i + 1) for i in range(6)]
    (tmp_path / name).write_text("\n".join(rows) + "\n")
    got = Mapped(CRITEO_MAP, tmp_path / name, max_events=4)
    assert got.letters == []
    assert got.ids == [str(i) for i in range(6)]
    assert got.column("ts") == list(range(EARLIEST, EARLIEST + 6))
    assert got.column("label") == [0, 1] * 3
    assert {got.catalog.series[s].model for s in got.column("series")} == {"criteo"}
    for row, features in zip(rows, got.features, strict=True):
        cells = dict(zip(CRITEO, row.split("\t")[1:], strict=True))
        numeric = {k: float(v) for k, v in cells.items() if k[0] == "I" and v}
        one_hot = {f"{k}={v}": 1.0 for k, v in cells.items() if k[0] == "C" and v and k != "C26"}
        assert features == numeric | one_hot
    assert got.users[0] == rows[0].split("\t")[14]


def test_rows_are_numbered_on_from_file_to_file_so_that_no_two_share_an_id(tmp_path: Path) -> None:
    for name in ("day_0.tsv", "day_1.tsv"):
        (tmp_path / name).write_text("\n".join(criteo_row(0, 10 * i + 1) for i in range(4)))
    got = Mapped(CRITEO_MAP, tmp_path / "day_0.tsv", tmp_path / "day_1.tsv", max_events=3)
    assert got.ids == [str(i) for i in range(8)]


AVAZU = "id,click,hour,C1,banner_pos,site_id,device_id,device_ip,C14"
AVAZU_MAP = """
impression_id = "id"
ts = { column = "hour", format = "%y%m%d%H" }
user_id = { join = ["device_id", "device_ip"], separator = ":" }
clicked = "click"
position = "banner_pos"
model_version = { constant = "none" }
slices = { site = "site_id", app = { constant = "web" } }
features = ["C*", "banner_pos"]
"""


@pytest.mark.usefixtures("all_carried")
def test_an_avazu_file_gives_its_hours_users_positions_and_slices(tmp_path: Path) -> None:
    rows = ["1000009418151094273,0,14102100,1005,0,1fbe01fe,a99f214a,ddd2926e,15706",
            "10000169349117863715,1,14102123,1005,1,85f751fd,c357dbff,96809ac8,15704"]  # fmt: skip
    (tmp_path / "train.csv").write_text("\n".join([AVAZU, *rows]))
    got = Mapped(AVAZU_MAP, tmp_path / "train.csv", dimensions=("site", "app"))
    assert got.letters == []
    assert got.ids == ["1000009418151094273", "10000169349117863715"], "ids of 20 digits are text, not numbers"
    assert got.column("ts") == [1_413_849_600_000, 1_413_932_400_000]
    assert got.users == ["a99f214a:ddd2926e", "c357dbff:96809ac8"]
    assert got.column("label") == [0, 1]
    assert got.column("position") == [0, 1]
    assert got.catalog.values == [
        ["__missing__", "__other__", "1fbe01fe", "85f751fd"],
        ["__missing__", "__other__", "web"],
    ]
    assert got.features[0] == {"C1=1005": 1.0, "C14=15706": 1.0, "banner_pos=0": 1.0}


BANDIT_MAP = """
impression_id = { row = true }
ts = "timestamp"
user_id = { join = ["user_feature_0", "user_feature_1"], separator = ":" }
item_id = "item_id"
position = "position"
propensity = "propensity_score"
clicked = "click"
model_version = "policy"
predictions = { shadow = "score" }
features = { columns = ["user_feature_*", "item_id"], text = ["item_id"] }
"""
BANDIT_ROWS = [
    {"timestamp": "2019-11-24 00:00:02.5+00:00", "item_id": 14, "position": 3, "click": 1, "propensity_score": 0.25,
     "user_feature_0": "8a", "user_feature_1": "03", "policy": "bts", "score": 0.1},
    {"timestamp": "2019-11-24 00:00:03+00:00", "item_id": 27, "position": 1, "click": 0, "propensity_score": 1.0,
     "user_feature_0": "8a", "user_feature_1": "9b", "policy": "random", "score": 0.2},
]  # fmt: skip


@pytest.mark.usefixtures("all_carried")
@pytest.mark.parametrize("name", ["men.csv", "men.parquet", "men.jsonl"])
def test_open_bandit_rows_are_the_same_whatever_file_holds_them(tmp_path: Path, name: str) -> None:
    if name.endswith("csv"):
        lines = [",".join(BANDIT_ROWS[0]), *(",".join(map(str, row.values())) for row in BANDIT_ROWS)]
        (tmp_path / name).write_text("\n".join(lines))
    elif name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(BANDIT_ROWS), tmp_path / name)
    else:
        (tmp_path / name).write_text("\n".join(json.dumps(row) for row in BANDIT_ROWS))
    got = Mapped(BANDIT_MAP, tmp_path / name)
    assert got.letters == []
    assert got.ids == ["0", "1"]
    assert got.column("ts") == [1_574_553_602_500, 1_574_553_603_000]
    assert got.users == ["8a:03", "8a:9b"]
    assert (got.column("position"), got.column("label"), got.column("propensity")) == ([3, 1], [1, 0], [0.25, 1.0])
    assert [got.catalog.series[s].version for s in got.column("series")] == ["bts", "random"]
    assert got.batches[0].impressions.shadow.pclick.tolist() == [0.1, 0.2]
    assert got.features == [
        {"user_feature_0=8a": 1.0, "user_feature_1=03": 1.0, "item_id=14": 1.0},
        {"user_feature_0=8a": 1.0, "user_feature_1=9b": 1.0, "item_id=27": 1.0},
    ]


# -- times -------------------------------------------------------------------------------------------------------

SMALL_MAP = 'impression_id = "id"\nuser_id = { constant = "u" }\npclick = "p"\n'


@pytest.mark.parametrize(
    ("spec", "value", "ms"),
    [
        ('{ column = "t", unit = "s" }', 1_700_000_000, 1_700_000_000_000),
        ('{ column = "t", unit = "s" }', 1_700_000_000.123, 1_700_000_000_123),
        ('{ column = "t", unit = "ms" }', 1_700_000_000_123, 1_700_000_000_123),
        ('{ column = "t", unit = "us" }', 1_700_000_000_123_999, 1_700_000_000_123),
        ('{ column = "t", unit = "us" }', 1_700_000_000_001_000, 1_700_000_000_001),
        ('{ column = "t", format = "%d.%m.%Y %H:%M" }', "14.11.2023 22:13", 1_699_999_980_000),
        ('{ column = "t", format = "%Y-%m-%d %H:%M %z" }', "2023-11-15 00:13 +0200", 1_699_999_980_000),
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_time_may_be_in_its_own_unit_or_format(tmp_path: Path, spec: str, value: object, ms: int, name: str) -> None:
    row = {"id": "a", "p": 0.5, "t": value}
    if name == "t.csv":
        (tmp_path / name).write_text(",".join(row) + "\n" + ",".join(map(str, row.values())))
    else:
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / name)
    got = Mapped(f"{SMALL_MAP}ts = {spec}", tmp_path / name)
    assert got.letters == []
    assert got.column("ts") == [ms]


def test_every_microsecond_and_millisecond_keeps_its_millisecond(tmp_path: Path) -> None:
    base = 1_700_000_000_000
    whole = {
        "us": [str((base + k) * 1000) for k in range(1000)],
        "s": [f"{(base + k) / 1000:.3f}" for k in range(1000)],
    }
    for unit, texts in whole.items():
        expected = [base + k for k in range(1000)]
        as_float = pa.array([float(t) for t in texts])
        for column in (pa.array(texts), as_float):
            table = pa.table({"t": column})
            mapping = ColumnMap({"impression_id": {"row": True}, "ts": {"column": "t", "unit": unit}})
            assert mapping.apply(table, 0)["ts"].to_pylist() == expected, (unit, column.type)


@pytest.mark.parametrize(
    ("spec", "good", "bad"),
    [
        ('{ column = "t", format = "%Y%m%d" }', "20231114", "1410"),
        ('{ column = "t", format = "%Y%m%d" }', "20231114", "2023-11-14"),
        ('{ column = "t", unit = "s" }', "1700000000", "noon"),
        ('{ column = "t", unit = "s" }', "1700000000.5", "inf"),
        ('{ column = "t", unit = "us" }', "1700000000000000", ""),
    ],
)
def test_a_row_with_a_wrong_time_is_rejected_alone_and_complete(tmp_path: Path, spec: str, good: str, bad: str) -> None:
    rows = [f"a,{good},0.5,extra", f"b,{bad},0.5,extra", f"c,{good},0.5,extra"]
    (tmp_path / "t.csv").write_text("\n".join(["id,t,p,other", *rows]))
    for max_events in (1, 100):
        got = Mapped(f"{SMALL_MAP}ts = {spec}", tmp_path / "t.csv", max_events=max_events)
        assert got.ids == ["a", "c"]
        (letter,) = got.letters
        assert (letter["field"], letter["offset"], letter["value"]) == ("ts", 1, rows[1])
        assert letter["reason"] == ("wrong_type" if bad else "missing_field")


def test_a_format_that_no_row_has_is_one_error_and_not_a_dead_letter_for_every_row(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,t,p\na,14102100,0.5\nb,14102101,0.5\n")
    with pytest.raises(SourceError) as failure:
        Mapped(SMALL_MAP + 'ts = { column = "t", format = "%Y-%m-%d" }', tmp_path / "t.csv")
    assert str(failure.value).endswith('t.csv: files.columns.ts: none of the first values matches format = "%Y-%m-%d"')


# -- foreign JSON lines ------------------------------------------------------------------------------------------

JSON_MAP = 'impression_id = "id"\nts = "at"\nuser_id = "who"\npclick = "p"\nfeatures = ["age", "city"]\n'


def json_lines(path: Path, rows: list[dict | bytes]) -> list[bytes]:
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"\n".join(lines))
    return lines


def foreign(i: int, **change: object) -> dict:
    return {"id": f"i{i}", "at": 1_700_000_000_000 + i, "who": "u", "p": 0.5, "age": 30, "city": "rom"} | change


def test_one_bad_foreign_line_does_not_take_its_batch_with_it(tmp_path: Path) -> None:
    rows = [foreign(0), b'{"id": ', foreign(1), b"", b"[1]", foreign(2, p=7), foreign(3), b"\xff", foreign(4, at="x"),
            b'{"id": "\\ud800"}', foreign(5, who=None), foreign(6)]  # fmt: skip
    lines = json_lines(tmp_path / "t.jsonl", rows)
    got = Mapped(JSON_MAP, tmp_path / "t.jsonl")
    assert got.ids == ["i0", "i1", "i3", "i6"]
    assert {
        letter["offset"]: (letter["reason"], letter["field"], letter["value"] or "") for letter in got.letters
    } == {
        1: ("malformed", "", lines[1].decode()), 4: ("wrong_type", "", "[1]"), 7: ("malformed", "", ""),
        5: ("out_of_range", "pclick", lines[5].decode()), 8: ("wrong_type", "ts", lines[8].decode()),
        9: ("malformed", "", lines[9].decode()), 10: ("missing_field", "user_id", lines[10].decode()),
    }  # fmt: skip
    assert sum(got.batches[0].invalid.values()) == 7


def test_a_batch_of_bad_foreign_lines_alone_is_counted_and_the_next_one_read(tmp_path: Path) -> None:
    json_lines(tmp_path / "t.jsonl", [b"{", b"[]", foreign(0)])
    got = Mapped(JSON_MAP, tmp_path / "t.jsonl", max_events=2)
    assert got.ids == ["i0"]
    assert [dict(b.invalid) for b in got.batches] == [{"malformed": 1, "wrong_type": 1}, {}]


def test_foreign_lines_of_mixed_types_are_read_one_by_one(tmp_path: Path) -> None:
    json_lines(
        tmp_path / "t.jsonl", [foreign(0), foreign(1, at="2023-11-14T22:13:20Z", p="0.25"), foreign(2, at=10**30)]
    )
    got = Mapped(JSON_MAP, tmp_path / "t.jsonl")
    assert got.column("ts") == [1_700_000_000_000, 1_700_000_000_000]
    assert got.column("pclick") == [0.5, 0.25]
    assert [(letter["field"], letter["offset"]) for letter in got.letters] == [("ts", 2)]


def test_a_field_that_only_the_first_foreign_lines_have_is_absent_from_the_others(tmp_path: Path) -> None:
    later = {k: v for k, v in foreign(1).items() if k != "city"}
    json_lines(tmp_path / "t.jsonl", [foreign(0), later, {**later, "id": "i2"}])
    got = Mapped(JSON_MAP, tmp_path / "t.jsonl", max_events=1)
    assert got.ids == ["i0", "i1", "i2"]
    assert got.features == [{"age": 30.0, "city=rom": 1.0}, {"age": 30.0}, {"age": 30.0}]


def test_a_bad_row_of_a_mapped_table_is_kept_with_the_columns_that_were_not_mapped(tmp_path: Path) -> None:
    rows = [foreign(0, other="kept"), foreign(1, p=2.0, other="kept")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    got = Mapped(JSON_MAP, tmp_path / "t.parquet")
    assert got.ids == ["i0"]
    assert [json.loads(letter["value"]) for letter in got.letters] == [rows[1]]


# -- features ----------------------------------------------------------------------------------------------------


def test_features_by_glob_skip_excluded_blank_and_non_numeric_cells(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "id,t,p,n1,n2,c1,c2,c3\na,1700000000005,0.5,1.5,x,red,,no\nb,1700000000006,0.5,nan,2,,blue,no\n"
    )
    mapping = SMALL_MAP + 'ts = "t"\nfeatures = { columns = ["n?", "c*"], exclude = ["c3"], numeric = ["n*"] }'
    got = Mapped(mapping, tmp_path / "t.csv")
    assert got.features == [{"n1": 1.5, "c1=red": 1.0}, {"n2": 2.0, "c2=blue": 1.0}]


def test_typed_columns_keep_their_numbers_unless_they_are_called_text(tmp_path: Path) -> None:
    row = {"id": "a", "t": 1_700_000_000_005, "p": 0.5, "n": 7, "k": 7, "s": "x", "b": True, "l": ["a", "b"]}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "t.parquet")
    mapping = SMALL_MAP + 'ts = "t"\nfeatures = { columns = ["n", "k", "s", "b", "l"], text = "k" }'
    got = Mapped(mapping, tmp_path / "t.parquet")
    assert got.features == [{"n": 7.0, "k=7": 1.0, "s=x": 1.0, "b": 1.0, "l=a": 1.0, "l=b": 1.0}]


# -- mappings that are wrong -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ('item_id = "itme"', 'files.columns.item_id: the file has no column "itme"; there are id, t, p'),
        ('item_id = { join = ["id", "x"] }', 'files.columns.item_id: the file has no column "x"; there are id, t, p'),
        ('slices = { geo = "x" }', 'files.columns.slices.geo: the file has no column "x"; there are id, t, p'),
        ('predictions = { v2 = "x" }', 'files.columns.predictions.v2: the file has no column "x"; there are id, t, p'),
        ('features = ["p", "C*"]', 'files.columns.features: "C*" matches no column; there are id, t, p'),
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.jsonl"])
def test_a_column_that_is_not_there_is_one_error_with_the_key_and_the_columns_there_are(
    tmp_path: Path, wrong: str, says: str, name: str
) -> None:
    row = {"id": "a", "t": 1_700_000_000_005, "p": 0.5}
    if name == "t.csv":
        (tmp_path / name).write_text("id,t,p\na,1700000000005,0.5\n")
    elif name == "t.parquet":
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / name)
    else:
        (tmp_path / name).write_text(json.dumps(row))
    with pytest.raises(SourceError) as failure:
        Mapped(f'{SMALL_MAP}ts = "t"\n{wrong}', tmp_path / name)
    assert str(failure.value) == f"{tmp_path / name}: {says}"


def test_a_column_that_cannot_be_text_is_one_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a"], "t": [5], "p": [0.5], "l": [["x"]]}), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r'files.columns.item_id: the column "l" is list<.*> *: must be text'):
        Mapped(SMALL_MAP + 'ts = "t"\nitem_id = { join = ["id", "l"] }', tmp_path / "t.parquet")


def test_a_header_that_does_not_fit_the_file_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;1700000000005;0.5\nb;1700000000006;0.5\n")
    with pytest.raises(SourceError) as failure:
        Mapped(SMALL_MAP + 'ts = "t"\nheader = ["id", "t", "p"]', tmp_path / "t.csv")
    assert "files.columns.header names 3 columns, the first row has 1" in str(failure.value)
    assert "files.columns.delimiter" in str(failure.value)
    assert Mapped(SMALL_MAP + 'ts = "t"\nheader = ["id", "t", "p"]\ndelimiter = ";"', tmp_path / "t.csv").ids == [
        "a",
        "b",
    ]


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        ('user = "x"', "files.columns.user: unknown field; there are type, impression_id, ts"),
        ("user_id = 5", "files.columns.user_id = 5: must be a column name, or a table with one of column"),
        ("user_id = {}", "files.columns.user_id = {}: must be"),
        ('user_id = { column = "a", constant = "b" }', "files.columns.user_id = {"),
        ('user_id = { columm = "a" }', "files.columns.user_id = {'columm': 'a'}: must be"),
        ('user_id = { join = "ab" }', "files.columns.user_id = {'join': 'ab'}: must be"),
        ("user_id = { join = [] }", "files.columns.user_id = {'join': []}: must be"),
        ("user_id = { row = false }", "files.columns.user_id = {'row': False}: must be"),
        ('user_id = { column = "a", separator = ":" }', "files.columns.user_id = {"),
        ('ts = { column = "a", unit = "min" }', 'files.columns.ts.unit = "min": must be "s", "ms" or "us"'),
        ('ts = { column = "a", unit = "s", format = "%Y" }', "files.columns.ts = {"),
        ('slices = "geo"', "files.columns.slices = 'geo': must be a table such as { country = "),
        ("slices = { geo = 1 }", "files.columns.slices.geo = 1: must be"),
        ("features = 5", "files.columns.features = 5: must be names or globs"),
        ('features = { colums = ["a"] }', "files.columns.features.colums: unknown option; there are columns"),
        ('header = "a,b"', "files.columns.header = 'a,b': must be a list of names"),
        ('header = ["a", "a"]', 'files.columns.header: names "a" twice'),
        ('delimiter = "||"', "files.columns.delimiter = '||': must be one ASCII character"),
        ("delimiter = 9", "files.columns.delimiter = 9: must be one ASCII character"),
        ('impression_id = "a"', "files.columns.ts: is missing; every event needs one"),
        ('ts = "a"', "files.columns.impression_id: is missing; every event needs one"),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_one_error_with_its_key(mapping: str, says: str) -> None:
    with pytest.raises(ConfigError) as failure:
        ColumnMap(tomllib.loads(mapping))
    assert str(failure.value).startswith(says)
    assert "\n" not in str(failure.value)


def test_without_a_mapping_a_table_is_left_as_it_is() -> None:
    table = pa.table({"a": [1]})
    assert ColumnMap({}).apply(table, 0) is table
    assert ColumnMap({"delimiter": ";"}).apply(table, 0) is table

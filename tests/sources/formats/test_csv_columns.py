"""CSV by the kernels and by Arrow: they may differ in speed only."""

from __future__ import annotations

import csv
import io
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streameval.sources.formats import decode as module
from streameval.sources.formats.cell_spans import CellSpans
from tests.fuzz.laws import Form, check_file_kernel, given_by
from tests.fuzz.strategies import T0, bent

FORMS = (Form(), Form(hashed=False), Form(names=True))
HEADER = (
    "type,impression_id,ts,user_id,request_id,item_id,model,model_version,pclick,clicked,position,propensity,shown,value,"
    "slices.country,predictions.v2,predictions.v3,policies.v2,features.age,features.city,else"
)
NAMES = HEADER.split(",")
GOOD = {
    "type": "impression", "impression_id": "i1", "ts": str(T0), "user_id": "u1", "request_id": "r", "item_id": "x", "model": "m",
    "model_version": "v1", "pclick": "0.25", "clicked": "", "position": "3", "propensity": "0.5", "shown": "", "value": "",
    "slices.country": "de", "predictions.v2": "0.5", "predictions.v3": "", "policies.v2": "0.125", "features.age": "41",
    "features.city": "rom", "else": "nobody reads it",
}  # fmt: skip
OTHERS: dict[str, Any] = {
    "impression_id": "impression_id", "ts": {"column": "ts", "unit": "ms"}, "user_id": {"column": "user_id"}, "pclick": "pclick",
    "type": "type", "model": {"constant": "m"}, "item_id": {"join": ["item_id", "request_id"]}, "clicked": "clicked",
    "slices": {"country": "slices.country"}, "predictions": {"v2": "predictions.v2", "v3": "predictions.v3"},
    "features": {"columns": ["features.*", "else"], "numeric": ["*age"]},
}  # fmt: skip
NUMBERED: dict[str, Any] = {
    "impression_id": {"row": True}, "ts": {"row": True}, "user_id": "user_id", "pclick": "pclick", "features": ["*"],
    "predictions": {"v2": {"constant": 0.5}, "v3": "predictions.v3"},
}  # fmt: skip
MAPPINGS = (None, OTHERS, NUMBERED)


def written(rows: list[dict[str, str]], **how: Any) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, NAMES, **how)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode("utf-8", "surrogatepass")


def both(data: bytes, suffix: str = ".csv") -> None:
    for form in FORMS:
        for mapping in MAPPINGS:
            check_file_kernel(form, data, suffix, mapping)


def few_and_many(data: bytes, turn: int) -> None:
    """Small batches, whose neighbours are few, in one form a mapping, which differs with `turn`; a single batch in the others."""
    for (k, form), (j, mapping) in product(enumerate(FORMS), enumerate(MAPPINGS)):
        check_file_kernel(form, data, ".csv", mapping, 1_000 if (k + j + turn) % 3 else 3)


def beside_good_ones(**change: str) -> bytes:
    """A row between rows that are plain."""
    return written([GOOD, {**GOOD, **change}, {**GOOD, "impression_id": "i2"}])


TRAPS = [
    "-0.0", "-0", "1e-320", "0.10000000000000001", "1E5", "1e5", "01", "+1", ".5", "1.", "0x1F", "1e400", "-1e400", "1e-400", "nan",
    "NaN", "nan(1)", "inf", "-Infinity", "1_0", " 1", "1 ", "\t1", "1\u3000", "١", "true", "True", "TRUE", "false", " true", "2", "1.0",
    "FALSE", "fAlSe", "TRUe", "T", "\x34rue", "tru\xe9", "falſe", "TRUE ", "yes",
    "0.5.5", "-", "e5", "12345678901234567890", "9" * 30, "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "2024-05-01", "2024-05-01T12:00:00Z", "2024-05-01T24:00:00Z", "2024-05-01T12:00:00.25+02:00", str(T0), f" {T0}", f"0{T0}", f"{T0}.0",
    "0x18BCFE56800", "", " ", "   ", "\t", "\xa0", "\u3000", "\u2003\u2028", "\u180e", "\x00", "\x1c", "\x85", "\u3001", "日本", "\ufeff",
    '"', '""', 'a"b', '"a"b', '"a""b"', "a,b", "a\nb", "a\r\nb", "\r", "click", "view", "x" * 3000, "null",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_whatever_a_cell_holds_it_comes_to_the_same(name: str) -> None:
    rows = [{**GOOD, "impression_id": f"i{k}", name: trap} for k, trap in enumerate(TRAPS)]
    few_and_many(written(rows), NAMES.index(name))


@pytest.mark.parametrize("trap", TRAPS)
def test_a_row_is_the_same_beside_any_other(trap: str) -> None:
    numbers = ("ts", "pclick", "clicked", "position", "value", "features.age")
    both(beside_good_ones(**dict.fromkeys(numbers, trap)))


@pytest.mark.parametrize(
    "data",
    [
        beside_good_ones(),
        b"\xef\xbb\xbf" + beside_good_ones(),
        beside_good_ones().replace(b"\r\n", b"\n"),
        beside_good_ones().replace(b"\r\n", b"\r"),
        beside_good_ones().rstrip(),
        written([GOOD, GOOD], quoting=csv.QUOTE_ALL),
        beside_good_ones().replace(b"\r\n", b"\n\n\r\n \n"),
        beside_good_ones(user_id="\xff").replace(b"\xc3\xbf", b"\xff"),
        beside_good_ones(user_id="\ud800"),
        beside_good_ones(user_id="u\x00\x00"),
        beside_good_ones().replace(b"i1", b'i"1', 1),
        beside_good_ones().replace(b"i1", b'"i1', 1),
        beside_good_ones().replace(b"i1", b'"i1"x"', 1),
        beside_good_ones().replace(b"i1", b'"i""1"', 1),
        beside_good_ones().replace(b"i1", b'"""i1"""', 1),
        beside_good_ones().replace(b"i1", b'""', 1),
        beside_good_ones().replace(b"0.25", b"0.25,more", 1),
        beside_good_ones().replace(b",0.25", b"", 1),
        beside_good_ones().replace(b"pclick", b"ts", 1),
        beside_good_ones().replace(b"pclick", b"", 1),
        beside_good_ones().replace(b"impression_id", b"id", 1),
        beside_good_ones().replace(b"else", b"features", 1),
        beside_good_ones().replace(b"else", b"slices", 1),
        beside_good_ones().replace(b"else", b"predictions", 1),
        beside_good_ones().replace(b"features.", b"f."),
        written([]),
        b"",
        b"\n",
    ],
)
def test_however_a_file_is_written_it_comes_to_the_same(data: bytes) -> None:
    if data:
        both(data)
        both(data.replace(b",", b"\t"), ".tsv")


def test_json_in_cells_comes_to_the_same() -> None:
    names = ["impression_id", "ts", "user_id", "pclick", "slices", "predictions", "features"]
    cells = ['{"country": "de"}', '{"v2": 0.5}', '{"a": "x", "b": 1.5}']
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(names)
    for k, bad in enumerate(["", "[]", "{", '{"a": {}}', '{"v2": "x"}', '{"country": []}']):
        writer.writerow([f"i{k}", T0, "u", 0.5, *cells])
        for place in range(3):
            writer.writerow([f"j{k}", T0, "u", 0.5, *cells[:place], bad, *cells[place + 1 :]])
    for form in FORMS:
        check_file_kernel(form, out.getvalue().encode(), ".csv", None)


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("other", [str(T0), "2024-05-01T12:00:00Z", "soon"])
def test_whether_a_cell_is_a_time_does_not_depend_on_other_rows(tmp_path: Any, kernel: bool, other: str) -> None:
    path, odd = tmp_path / "t.csv", f"{T0:#x}"  # which Arrow takes for a number, and Python does not
    for rows in ([{**GOOD, "ts": odd}], [{**GOOD, "ts": odd}, {**GOOD, "ts": other}]):
        path.write_bytes(written(rows))
        _, batches, _, _ = given_by(Form(json_kernel=kernel), str(path), None, 10)
        assert batches[0].impressions.ts[0] == T0


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize(
    ("cells", "labels"),
    [("true false", [1, 0]), ("True False", [1, 0]), ("TRUE FALSE", [1, 0]), ("1 0", [1, 0]), ("TRUE 0", [1, 0])],
)
def test_a_label_is_a_word_in_any_case(tmp_path: Any, kernel: bool, cells: str, labels: list[int]) -> None:
    """R and Excel write TRUE."""
    path = tmp_path / "t.csv"
    path.write_bytes(written([{**GOOD, "clicked": cell, "shown": "TRUE"} for cell in cells.split()]))
    _, batches, letters, error = given_by(Form(json_kernel=kernel), str(path), None, 10)
    assert (batches[0].impressions.label.tolist(), letters, error) == (labels, [], "")


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize(("cell", "shown"), [("yes", '"yes"'), ("2", "2")])
def test_a_label_that_is_none_is_told_what_is_one(tmp_path: Any, kernel: bool, cell: str, shown: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(written([{**GOOD, "clicked": cell}]))
    _, _, letters, _ = given_by(Form(json_kernel=kernel), str(path), None, 10)
    assert [letter.message for letter in letters] == [f"clicked = {shown}: must be true, false, 0 or 1"]


def test_plain_cells_never_come_to_arrow(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(CellSpans, "texts", None)
    monkeypatch.setattr(module.decode_arrow, "to_raw", None)
    rows = [GOOD, {**GOOD, "ts": "2024-05-01T12:00:00Z", "clicked": "TRUE", "user_id": 'a "quoted", "one"'}]
    path = tmp_path / "t.csv"
    path.write_bytes(written(rows))
    _, batches, letters, error = given_by(Form(), str(path), None, 10)
    assert (sum(map(len, batches)), letters, error) == (2, [], "")


_cells = st.one_of(st.sampled_from(TRAPS), st.text(max_size=5))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from(NAMES), _cells, max_size=5), min_size=1, max_size=6),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(MAPPINGS),
    st.sampled_from(FORMS),
)
def test_rows_of_anything_come_to_the_same(
    changes: list[dict[str, str]], quoting: Any, mapping: dict[str, Any] | None, form: Form
) -> None:
    data = written([{**GOOD, **change} for change in changes], quoting=quoting)
    check_file_kernel(form, data, ".csv", mapping)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    bent(beside_good_ones(), written([GOOD, GOOD], quoting=csv.QUOTE_ALL)),
    st.sampled_from(MAPPINGS),
    st.sampled_from(FORMS),
)
@example(b'impression_id,ts\n"a""b"c,1\n', None, FORMS[2])
def test_bent_files_come_to_the_same(data: bytes, mapping: dict[str, Any] | None, form: Form) -> None:
    if data:
        check_file_kernel(form, data, ".csv", mapping)

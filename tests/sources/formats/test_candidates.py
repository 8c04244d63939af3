"""Impressions that were not shown, and the fields of auctions and policies, through every format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streameval.events.batch import Batch, Catalog, Impressions, Shadow
from streameval.events.columns import concat_impressions, take_impressions
from streameval.events.hashing import hash_one
from streameval.settings.tree import Files
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.files import FileSource
from streameval.sources.formats.decode import Decoder

T0 = 1_700_000_000_000


def event(name: str, **more: Any) -> dict[str, Any]:
    return {"impression_id": name, "ts": T0, "user_id": "u", "pclick": 0.25, "request_id": "r", "item_id": name, **more}


EVENTS = [
    event("a", query_id="q", bid=2.0, shown=True, **{"policies.v1": 1.0, "policies.v2": 0.5}),
    event("b", query_id="q", bid=0.0, shown=False, **{"predictions.v2": 0.75}),
    event("c"),
    event("d", bid=3.5, shown=False, clicked=0),
]


@pytest.fixture
def catalog() -> Catalog:
    return Catalog(("country",), max_values=5)


def decoder(catalog: Catalog) -> Decoder:
    return Decoder(catalog, clock=lambda: T0, max_future=0, names=True)


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in flat.items():
        field, _, version = name.partition(".")
        if version:
            out.setdefault(field, {})[version] = value
        else:
            out[field] = value
    return out


def write(path: Path) -> None:
    names = list(dict.fromkeys(name for one in EVENTS for name in one))
    rows = [[one.get(name) for name in names] for one in EVENTS]
    if path.suffix == ".parquet":
        pq.write_table(pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)}), path)
    elif path.suffix == ".csv":
        cells = [["" if cell is None else str(cell).lower() for cell in row] for row in rows]
        path.write_text("\n".join(",".join(row) for row in [names, *cells]))
    else:
        path.write_text("\n".join(json.dumps(nested(one)) for one in EVENTS))


def by_version(shadow: Shadow | None, row: int, catalog: Catalog) -> dict[str, float]:
    if shadow is None:
        return {}
    part = slice(shadow.indptr[row], shadow.indptr[row + 1])
    return {
        catalog.series[s].version: p
        for s, p in zip(shadow.series[part].tolist(), shadow.pclick[part].tolist(), strict=True)
    }


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "csv"])
def test_they_come_through_files(tmp_path: Path, suffix: str, catalog: Catalog) -> None:
    path = tmp_path / f"log.{suffix}"
    write(path)
    sink = JsonlDeadLetters(tmp_path / "dead.jsonl")
    source = FileSource([path], decoder(catalog), Files(), 100, sink)
    batches: list[Batch] = []
    while not source.finished:
        batches += source.poll(0.0)
    sink.close()
    assert (tmp_path / "dead.jsonl").exists() is False or not (tmp_path / "dead.jsonl").read_text()
    shown = concat_impressions([batch.impressions for batch in batches])
    rest = concat_impressions([batch.candidates for batch in batches if len(batch.candidates)])
    assert [shown.id.tolist(), rest.id.tolist()] == [[hash_one("a"), hash_one("c")], [hash_one("b"), hash_one("d")]]
    assert shown.query is not None
    assert rest.query is not None
    assert shown.query.tolist() == rest.query.tolist() == [hash_one("q"), 0]
    assert repr([shown.fields["bid"].tolist(), rest.fields["bid"].tolist()]) == "[[2.0, nan], [0.0, 3.5]]"
    assert by_version(shown.policies, 0, catalog) == {"v1": 1.0, "v2": 0.5}
    assert by_version(rest.shadow, 0, catalog) == {"v2": 0.75}
    assert rest.policies is None
    assert rest.label.tolist() == [-1, -1]


def test_arrow_reports_problems_of_bids_and_policies(catalog: Catalog) -> None:
    nan, inf = float("nan"), float("inf")
    table = pa.table(
        {
            "impression_id": list("abcdef"), "ts": [T0] * 6, "user_id": ["u"] * 6, "pclick": [0.5] * 6,
            "bid": [nan, inf, -1.0, 1.0, 1.0, None], "policies.v1": [0.5, 0.5, 0.5, 1.5, nan, None],
        }
    )  # fmt: skip
    batch, letters = decoder(catalog).table(table, topic="f", partition=0, first_offset=0)
    assert [(letter.reason, letter.field) for letter in letters] == [("out_of_range", "bid")] * 3 + [
        ("out_of_range", "policies"), ("out_of_range", "policies.v1"),
    ]  # fmt: skip
    assert batch.impressions.id.tolist() == [hash_one("f")]


def test_a_candidate_takes_no_room_of_the_slices_that_are_shown(catalog: Catalog) -> None:
    values = [json.dumps(event(f"x{i}", shown=False, slices={"country": f"c{i}"})).encode() for i in range(50)]
    batch, _ = decoder(catalog).messages(
        values, [0] * 50, topic=("t",), partition=0, offsets=range(50), format="json", shared=True
    )
    assert (len(batch), len(batch.candidates)) == (0, 50), "a batch of candidates is empty for the join"
    assert len(catalog.values[0]) == 2, "__missing__ and __other__"


def test_taking_and_joining_batches_keeps_queries_and_policies(catalog: Catalog) -> None:
    def batch(*events: dict[str, Any]) -> Impressions:
        values = [json.dumps(nested(one)).encode() for one in events]
        found, _ = decoder(catalog).messages(
            values, [0] * len(values), topic=("t",), partition=0, offsets=range(len(values)), format="json", shared=True
        )
        return found.impressions

    plain, full = batch(event("p1"), event("p2")), batch(EVENTS[0])
    assert plain.query is plain.policies is None
    both = concat_impressions([plain, full])
    turned = take_impressions(both, np.array([2, 0]), np.arange(2, dtype=np.int32))
    assert turned.query is not None
    assert turned.query.tolist() == [hash_one("q"), 0]
    assert [by_version(turned.policies, row, catalog) for row in (0, 1)] == [{"v1": 1.0, "v2": 0.5}, {}]

"""Positions and propensities as slice dimensions, whatever the format; `slices` comes first."""

from __future__ import annotations

import io
import json
from bisect import bisect_right

import pyarrow as pa
import pyarrow.ipc
import pytest

from streameval.events.batch import Catalog, Impressions
from streameval.events.names import MISSING
from streameval.sources.formats.decode import Decoder

DIMENSIONS = ("position", "country", "propensity")
GOOD = {"ts": 1_700_000_000_000, "user_id": "u", "pclick": 0.25}
EVENTS = [
    {**GOOD, "impression_id": f"i{k}", **more}
    for k, more in enumerate(
        [
            *({"position": p} for p in (0, 1, 2, 3, 4, 5, 9, 10, 4_000_000)),
            *({"propensity": q} for q in (1e-9, 0.0099, 0.01, 0.0999, 0.1, 0.49, 0.5, 1.0)),
            {},
            {"position": 7, "slices": {"position": "top", "country": "de"}},
            {"propensity": 0.3, "slices": {"propensity": "explored"}},
        ]
    )
]


def expected(event: dict[str, object]) -> tuple[str, str, str]:
    slices = event.get("slices", {})
    position, propensity = event.get("position"), event.get("propensity")
    named = {"position": MISSING, "country": MISSING, "propensity": MISSING}
    if position is not None:
        named["position"] = ("0", "1", "2", "3-4", "5-9", "10+")[bisect_right([1, 2, 3, 5, 10], position)]
    if propensity is not None:
        named["propensity"] = ("<0.01", "0.01-0.1", "0.1-0.5", ">=0.5")[bisect_right([0.01, 0.1, 0.5], propensity)]
    return tuple((named | slices)[name] for name in DIMENSIONS)


def decoded(format: str, dimensions: tuple[str, ...], mainline: int = 3) -> tuple[Impressions, Catalog]:
    catalog = Catalog(dimensions, mainline=mainline)
    decoder = Decoder(catalog, clock=lambda: 1_800_000_000_000, max_future=0)
    if format == "table":
        batch, letters = decoder.table(pa.Table.from_pylist(EVENTS_FLAT), topic="f", partition=0, first_offset=0)
    else:
        values = [json.dumps(event).encode() for event in EVENTS]
        if format == "arrow":
            sink, table = io.BytesIO(), pa.Table.from_pylist(EVENTS_FLAT)
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            values = [sink.getvalue()]
        n = len(values)
        batch, letters = decoder.messages(
            values, [1] * n, topic=("t",), partition=0, offsets=range(n), format=format, shared=True
        )
    assert not letters
    return batch.impressions, catalog


EVENTS_FLAT = [
    {
        **{k: v for k, v in {"position": None, "propensity": None, **event}.items() if k != "slices"},
        **{f"slices.{name}": event.get("slices", {}).get(name) for name in DIMENSIONS},
    }
    for event in EVENTS
]


@pytest.mark.parametrize("format", ["json", "arrow", "table"])
def test_events_fall_into_the_strata_of_their_own_fields(format: str) -> None:
    impressions, catalog = decoded(format, DIMENSIONS)
    columns = [[catalog.values[d][c] for c in catalog.split(impressions.slices, d)] for d in range(3)]
    assert list(zip(*columns, strict=True)) == [expected(event) for event in EVENTS]


@pytest.mark.parametrize("format", ["json", "arrow", "table"])
@pytest.mark.parametrize("mainline", [1, 3, 10])
def test_blocks_are_the_positions_of_the_mainline_and_the_rest(format: str, mainline: int) -> None:
    impressions, catalog = decoded(format, ("block",), mainline)
    found = [catalog.values[0][c] for c in catalog.split(impressions.slices, 0)]
    positions = [event.get("position") for event in EVENTS]
    assert found == [MISSING if p is None else "mainline" if p < mainline else "sidebar" for p in positions]
    assert {"mainline", "sidebar", MISSING} == set(found)


def test_a_block_of_the_events_own_slices_comes_first() -> None:
    catalog = Catalog(("block",))
    decoder = Decoder(catalog, clock=lambda: 1_800_000_000_000, max_future=0)
    events = [{**GOOD, "impression_id": "a", "position": 0, "slices": {"block": "north"}}]
    batch, _ = decoder.messages([json.dumps(e).encode() for e in events], [1], topic=("t",), partition=0, offsets=range(1), format="json", shared=True)  # fmt: skip
    assert [catalog.values[0][c] for c in catalog.split(batch.impressions.slices, 0)] == ["north"]


def test_other_dimensions_ignore_them_and_absent_values_take_no_codes() -> None:
    impressions, catalog = decoded("json", ("country",))
    assert {catalog.values[0][c] for c in catalog.split(impressions.slices, 0)} == {MISSING, "de"}
    _, catalog = decoded("json", ("propensity",))
    assert len(catalog.values[0]) == 2 + 4 + 1

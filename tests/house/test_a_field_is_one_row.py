"""A stranger adds a number to clicks by one object, outside the package, and it is everywhere a field has to be."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import find

from docs.make.pages import FOLDER, made
from streameval.counting.scoreboard import Labelled, Scoreboard
from streameval.events.batch import Batch, Catalog
from streameval.events.fields import ALWAYS, CLICK, FIELDS, IMPRESSION, Field, Join, Need, register
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import ConfigError, Files, Settings
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.files import FileSource
from streameval.sources.formats.decode import Decoder
from streameval.sources.formats.mapping import ColumnMap
from streameval.sources.protocol import DeadLetter
from streameval.store import container
from streameval.testing import ManualClock, Shown, Tap, make_batch, readers_see
from tests.fuzz.arrow_bytes import tables
from tests.fuzz.strategies import odd_events

DWELL = Field(
    "dwell", "number", (CLICK,), "seconds until the user came back", low=0.0, high=3600.0, default=0.0, join=Join.SUM,
    needs=(ALWAYS,),
)  # fmt: skip
T0 = 1_700_000_000_000
NOW = T0 + 1_000_000


@pytest.fixture(autouse=True)
def dwell() -> Iterator[None]:
    register(DWELL)
    yield
    del FIELDS["dwell"]


def click(name: str, **more: object) -> dict[str, object]:
    return {"type": "click", "impression_id": name, "ts": T0 + 5, "user_id": "u", **more}


GOOD = [click("a", dwell=12.5), click("b", dwell=3600), click("c"), click("d", dwell=0.0, value=2.0)]
BAD = [click("e", dwell=-1.0), click("f", dwell=3600.5)]
READ = [12.5, 3600.0, None, 0.0]
RANGE = "must be in [0, 3600]"


def decoder() -> Decoder:
    return Decoder(Catalog(), clock=lambda: NOW, max_future=0)


def dwells(*batches: Batch) -> list[float | None]:
    columns = np.concatenate([batch.clicks.fields["dwell"] for batch in batches])
    return [None if np.isnan(x) else x for x in columns.tolist()]


def refused(letters: list[DeadLetter]) -> list[tuple[str, str]]:
    return [(letter.reason, letter.field) for letter in letters]


def test_it_comes_through_json_and_what_is_out_of_its_range_is_refused_by_name() -> None:
    values = [json.dumps(event).encode() for event in [*GOOD, *BAD, click("g", dwell="long")]]
    batch, letters = decoder().messages(
        values, [0] * len(values), topic=("t",), partition=0, offsets=range(len(values)), format="json", shared=True
    )
    assert dwells(batch) == READ
    assert refused(letters) == [("out_of_range", "dwell"), ("out_of_range", "dwell"), ("wrong_type", "dwell")]


def as_arrow(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_it_comes_through_arrow_messages() -> None:
    columns = {name: [event.get(name) for event in [*GOOD, *BAD]] for name in (*GOOD[0], "value")}
    table = pa.table(columns)
    odd = pa.table({**columns, "dwell": ["long"] * len(columns["ts"])})
    values = [as_arrow(table), as_arrow(odd)]
    batch, letters = decoder().messages(
        values, [0, 0], topic=("t",), partition=0, offsets=[0, 1], format="arrow", shared=True
    )
    assert dwells(batch) == READ
    assert refused(letters) == [("out_of_range", "dwell")] * 2 + [("wrong_schema", "dwell")]
    assert letters[0].message == f"dwell = -1.0: {RANGE}"


def write(path: Path, column: str) -> None:
    rows = [{column if name == "dwell" else name: value for name, value in event.items()} for event in [*GOOD, *BAD]]
    names = list(rows[0])
    if path.suffix == ".parquet":
        pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), path)
    elif path.suffix == ".csv":
        lines = [",".join("" if row.get(name) is None else str(row[name]) for name in names) for row in rows]
        path.write_text("\n".join([",".join(names), *lines]))
    else:
        path.write_text("\n".join(map(json.dumps, rows)))


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_it_comes_through_files_and_a_column_mapping(tmp_path: Path, suffix: str, mapped: bool) -> None:
    path = tmp_path / f"clicks.{suffix}"
    write(path, "seconds_away" if mapped else "dwell")
    columns = {"dwell": "seconds_away", **{name: name for name in ("impression_id", "ts", "type")}} if mapped else {}
    sink = JsonlDeadLetters(tmp_path / "dead.jsonl")
    source = FileSource([path], decoder(), Files(columns=columns), 3, sink)
    batches = []
    while not source.finished:
        batches += source.poll(0.0)
    sink.close()
    assert dwells(*batches) == READ
    letters = [json.loads(line) for line in (tmp_path / "dead.jsonl").read_text().splitlines()]
    assert [(letter["reason"], letter["field"]) for letter in letters] == [("out_of_range", "dwell")] * 2


def test_a_mapping_names_it_among_the_fields_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"unknown field; there are .*dwell"):
        ColumnMap({"dwel": "x"})


class Seen:
    """The labelled rows that the loop counts: the dwell of every impression that a metric could read now, by its time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dwell: dict[int, float] = {}
        observe = Scoreboard.observe

        def watch(
            board: Scoreboard, labelled: Labelled, scored: object, sign: int = 1, *more: object, **others: object
        ) -> None:
            for ts, value in zip(labelled.ts.tolist(), labelled.fields["dwell"].tolist(), strict=True):
                if sign > 0:
                    self.dwell[ts] = value
                else:
                    assert self.dwell.pop(ts) == value, "what is taken out is what was counted"
            observe(board, labelled, scored, sign, *more, **others)

        monkeypatch.setattr(Scoreboard, "observe", watch)


def settings(**join: str) -> Settings:
    durations = {"attribution_window": "60s", "allowed_lateness": "5s", "correction_horizon": "1h"}
    return Settings.model_validate({"join": {**durations, **join}, "windows": {"pane": "10s", "sliding": ["60s"]}})


def tap(name: str, ts: int, dwell: float | None = None) -> Tap:
    return Tap(name, T0 + ts, {} if dwell is None else {"dwell": dwell})


def first_part() -> list[Shown | Tap]:
    """a: two clicks, and one without a dwell; b: a click that comes before it; c: none; d: its first label is "no"."""
    return [
        tap("b", 3_000, 7.0), Shown("a", T0 + 1_000), Shown("b", T0 + 2_000), Shown("c", T0 + 3_000),
        Shown("d", T0 + 4_000), tap("a", 4_500, 1.5), tap("a", 5_000, 2.25), tap("a", 6_000),
        tap("a", 900_000, 500.0), Shown("clock", T0 + 90_000, clicked=0),
    ]  # fmt: skip


def second_part() -> list[Shown | Tap]:
    """Late clicks within the window: d's first, and a's third."""
    return [tap("d", 30_000, 4.0), tap("d", 31_000, 0.5), tap("a", 32_000, 10.0), Shown("end", T0 + 400_000, clicked=0)]


def test_it_joins_by_its_rule_and_reaches_the_labelled_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, pipeline = Seen(monkeypatch), Pipeline(settings(), ManualClock())
    pipeline.take(make_batch(first_part(), pipeline.catalog))
    pipeline.finish()
    readers_see(pipeline)
    by_name = {(ts - T0) // 1000: dwell for ts, dwell in seen.dwell.items()}
    assert (by_name[1], by_name[2], by_name[3], by_name[4]) == (3.75, 7.0, 0.0, 0.0)


def test_a_checkpoint_holds_it_and_later_clicks_go_on_from_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen, pipeline = Seen(monkeypatch), Pipeline(settings(), ManualClock())
    held = [tap("e", 60_000, 3.0)]  # waits for its impression in the checkpoint
    pipeline.take(make_batch([*first_part(), *held], pipeline.catalog))
    state = pipeline.partition_state(0)
    assert state is not None
    container.write(tmp_path / "checkpoint", state)
    again = Pipeline(settings(), ManualClock())
    again.restore_partition(0, container.read(tmp_path / "checkpoint"))
    again.take(make_batch([Shown("e", T0 + 59_000), *second_part()], again.catalog))
    again.finish()
    readers_see(again)
    by_name = {(ts - T0) // 1000: dwell for ts, dwell in seen.dwell.items()}
    assert (by_name[1], by_name[2], by_name[4], by_name[59]) == (13.75, 7.0, 4.5, 3.0)


def test_a_checkpoint_from_before_the_field_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    del FIELDS["dwell"]
    pipeline = Pipeline(settings(), ManualClock())
    pipeline.take(make_batch([*first_part(), tap("e", 60_000)], pipeline.catalog))
    state = pipeline.partition_state(0)
    assert state is not None
    container.write(tmp_path / "checkpoint", state)
    register(DWELL)
    seen, again = Seen(monkeypatch), Pipeline(settings(), ManualClock())
    again.restore_partition(0, container.read(tmp_path / "checkpoint"))
    seen.dwell = dict.fromkeys((T0 + s * 1000 for s in (1, 2, 3, 4, 90)), 0.0)  # as they were counted
    again.take(make_batch([Shown("e", T0 + 59_000), *second_part()], again.catalog))
    again.finish()
    readers_see(again)
    by_name = {(ts - T0) // 1000: dwell for ts, dwell in seen.dwell.items()}
    assert (by_name[1], by_name[2], by_name[4], by_name[59]) == (10.0, 0.0, 4.5, 0.0)


def kept(need: Need, **tree: object) -> int:
    """How many numbers the joiner's rows keep."""
    FIELDS["dwell"] = replace(DWELL, needs=(need,))
    pipeline = Pipeline(Settings.model_validate(tree), ManualClock())
    pipeline.take(make_batch([Shown("a", T0)], pipeline.catalog))
    return len(pipeline.partitions[0].joiner.table.fields)


def test_rows_keep_it_only_when_somebody_needs_it() -> None:
    by_model = Need("models.kind", "ftrl")
    others = kept(by_model)
    assert kept(ALWAYS) == others + 1
    assert kept(by_model, models=[{"name": "m", "kind": "ftrl", "bits": 10}]) == others + 1


def test_a_number_of_impressions_comes_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    FIELDS["dwell"] = Field("dwell", "number", (IMPRESSION,), "a bid", low=0.0, needs=(ALWAYS,))
    seen, pipeline = Seen(monkeypatch), Pipeline(settings(), ManualClock())
    names = {"a": {"dwell": 2.5}, "b": {}, "a again": {"dwell": 9.0}}
    batch = [Shown(name[0], T0 + 1000 * i, fields=fields) for i, (name, fields) in enumerate(names.items())]
    pipeline.take(make_batch(batch, pipeline.catalog))
    pipeline.finish()
    readers_see(pipeline)
    assert repr(sorted(seen.dwell.items())) == repr([(T0, 2.5), (T0 + 1000, float("nan"))])


def test_the_docs_list_it_and_their_check_asks_for_it() -> None:
    page = made()["events.md"]
    assert "| `dwell` | finite number in [0, 3600] | optional | seconds until the user came back |" in page
    assert "| `dwell` | their sum | `0.0` | always |" in page
    assert page != (FOLDER / "events.md").read_text(), "the check of the docs fails until the page is made anew"


def test_the_fuzz_tries_it() -> None:
    assert "dwell" in find(odd_events(), lambda event: "dwell" in event)
    assert "dwell" in find(tables(), lambda table: "dwell" in table.column_names).column_names


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "value"},
        {"join": None},
        {"default": None},
        {"of": (IMPRESSION,)},
        {"of": (CLICK, IMPRESSION)},
        {"type": "text"},
        {"needs": ()},
    ],
)
def test_a_row_that_contradicts_itself_or_another_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=str(wrong.get("name", "dwell"))):
        register(replace(DWELL, **{"name": "dwell_2", **wrong}))

"""Names that events choose, spelled like those that stand for what is left out: from the decoder to what readers see."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from streameval.app import make_decoder
from streameval.compare.announce import Announcements
from streameval.events.batch import Batch, Catalog
from streameval.events.names import MISSING, OTHER, spelled
from streameval.loop.keeper import PartitionKeeper
from streameval.loop.options import options_of
from streameval.loop.pipeline import Pipeline
from streameval.results.publish import Publisher
from streameval.results.snapshot import Snapshot
from streameval.server import create_app
from streameval.server.prometheus.labels import label
from streameval.settings.server import Server
from streameval.settings.toml import load
from streameval.settings.tree import ConfigError, Settings
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.store.history.format import HistoryFormat
from streameval.store.history.reader import HistoryReader
from streameval.store.history.writer import HistoryWriter, Retention
from streameval.testing import ManualClock, readers_see

T0 = 1_700_000_040_000
NAMES = [
    MISSING,
    OTHER,
    f"~{OTHER}",
    f"~~{MISSING}",
    "unknown",
    "default",
    "none",
    "all",
    "a:b",
    " ",
    "~",
    "x" * 300,
    "",
]


# -- the catalog -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [MISSING, OTHER])
def test_a_placeholder_cannot_be_spelled_and_names_stay_different(name: str) -> None:
    shown = [name, *(spelled("~" * n + name) for n in range(5))]
    assert shown[:3] == [name, f"~{name}", f"~~{name}"]
    assert len(set(shown)) == len(shown)
    for plain in ("", "de", "_", "~", "__", "__others__", f"{name} ", f"-{name}", "unknown", "default"):
        assert spelled(plain) == plain


def test_the_catalog_gives_an_event_no_code_of_a_placeholder() -> None:
    catalog = Catalog(("country",), max_values=2, max_series=4)
    assert {catalog.value_code(0, name) for name in (MISSING, OTHER)}.isdisjoint({0, 1})
    assert catalog.values[0] == [MISSING, OTHER, f"~{MISSING}", f"~{OTHER}"]
    mine = catalog.series_code("m", OTHER)
    for i in range(20):
        lumped = catalog.series_code("m", f"v{i}")
    assert lumped != mine
    assert catalog.series[mine].version == f"~{OTHER}"
    assert catalog.series[lumped].version == OTHER
    shadow = catalog.version_code(catalog.series_code(OTHER, "v1"), "v2")
    assert catalog.series[shadow].model == f"~{OTHER}", "the model of a shadow version is the one that served"


def test_names_of_a_checkpoint_keep_their_meaning_also_when_they_spell_a_placeholder() -> None:
    catalog = Catalog(("country",))
    for name in (MISSING, "de", f"~{OTHER}"):
        catalog.value_code(0, name)
    again = Catalog(("country",))
    again.value_code(0, "fr")
    codes = again.adopt(json.loads(json.dumps(catalog.names())))
    assert [again.values[0][code] for code in codes.values[0]] == catalog.values[0]
    # of a program whose events could spell placeholders, and that counted no more values than it showed
    before = {"series": [["m", OTHER, "logged"]], "values": [[MISSING, OTHER, "de", MISSING, OTHER]]}
    codes = again.adopt(before)
    assert [again.values[0][code] for code in codes.values[0]] == [MISSING, OTHER, "de", f"~{MISSING}", f"~{OTHER}"]
    assert again.series[codes.series[0]].version == OTHER


def test_combinations_of_a_checkpoint_are_read_whose_program_counted_fewer_values() -> None:
    names = {"series": [], "values": [[MISSING, OTHER, "de", "fr", "at"], [MISSING, OTHER, "web"]]}
    radix = 3 + 2
    here = Catalog(("country", "device"), max_values=3)
    assert here.radix > radix
    here.value_code(0, "at")
    country, device = np.array([0, 1, 2, 3, 4]), np.array([2, 0, 1, 2, 2])
    combined = here.adopt(names).slices((device * radix + country).astype(np.int64))
    assert [here.values[0][c] for c in here.split(combined, 0)] == names["values"][0]
    assert [here.values[1][c] for c in here.split(combined, 1)] == ["web", MISSING, OTHER, "web", "web"]


# -- every format ----------------------------------------------------------------------------------------------------


def impressions(values: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "impression_id": f"i{i}", "ts": T0 + i, "user_id": f"u{i % 3}", "model": "m", "model_version": f"v{i % 2}",
            "pclick": 0.25 + i / 100, "clicked": i % 2, "slices.country": value,
        }
        for i, value in enumerate(values)
    ]  # fmt: skip


def settings(path: Path | None = None, **changes: Any) -> Settings:
    tree = {
        "join": {"attribution_window": "1m", "allowed_lateness": "0s", "request_gap": "1m"},
        "slices": {"dimensions": ["country"]},
        **changes,
    }
    if path is not None:
        tree["store"] = {"path": str(path), "checkpoint_interval": "1ms"}
    return Settings.model_validate(tree)


def as_json(rows: list[dict[str, Any]], pipeline: Pipeline) -> Batch:
    values = [
        json.dumps({**{k: v for k, v in row.items() if "." not in k}, "slices": {"country": row["slices.country"]}})
        for row in rows
    ]
    return decoded(pipeline, [value.encode() for value in values], "json")


def as_arrow(rows: list[dict[str, Any]], pipeline: Pipeline) -> Batch:
    table, sink = pa.Table.from_pylist(rows), io.BytesIO()
    with pyarrow.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    return decoded(pipeline, [sink.getvalue()], "arrow")


def decoded(pipeline: Pipeline, values: list[bytes], format: Any) -> Batch:
    n = len(values)
    batch, letters = make_decoder(pipeline.settings, pipeline).messages(
        values, [1] * n, topic=("t",), partition=0, offsets=range(n), format=format, shared=True
    )
    assert letters == []
    return batch


def as_csv(rows: list[dict[str, Any]], pipeline: Pipeline) -> Batch:
    table = pa.Table.from_pylist([{k: str(v) for k, v in row.items()} for row in rows])
    batch, letters = make_decoder(pipeline.settings, pipeline).table(
        table, topic="t", partition=0, first_offset=0, text=True
    )
    assert letters == []
    return batch


FORMATS = [as_json, as_arrow, as_csv]


@pytest.mark.parametrize("make", FORMATS)
def test_every_format_gives_the_same_names(make: Any) -> None:
    pipeline = Pipeline(settings(), ManualClock(T0 / 1000))
    batch = make(impressions(NAMES), pipeline)
    code = pipeline.catalog.split(batch.impressions.slices, 0)
    found = [pipeline.catalog.values[0][c] for c in code.tolist()]
    same = ["unknown", "default", "none", "all", "a:b"]
    assert found[:9] == [f"~{MISSING}", f"~{OTHER}", f"~~{OTHER}", f"~~~{MISSING}", *same]
    assert found[-2:] == [OTHER, MISSING], "too long, and empty"


def test_no_online_model_is_called_like_a_placeholder(tmp_path: Path) -> None:
    for name in (OTHER, MISSING, f"~{OTHER}", "x" * 257):
        path = tmp_path / "config.toml"
        path.write_text(f'[[models]]\nname = "{name}"\nkind = "ftrl"\n')
        with pytest.raises(ConfigError, match=r'the name "(~?__|xxx).* cannot be shown; use at most 256 characters'):
            load(path, {})


# -- what readers see ------------------------------------------------------------------------------------------------


def no_row_twice(snapshot: Snapshot) -> None:
    rows = [(r.series, r.window, r.slice) for r in snapshot.results]
    assert len(rows) == len(set(rows))


def counted(snapshot: Snapshot) -> dict[str, int]:
    out: dict[str, int] = {}
    for r in snapshot.results:
        if r.slice and r.window == "all":
            out[r.slice[1]] = out.get(r.slice[1], 0) + r.totals.impressions
    return out


def samples(
    app: Any, announcements: Announcements | None = None
) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    out: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(ask(app, "/metrics").text):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in out, f"{key} twice"
            out[key] = sample.value
    return out


def ask(app: Any, url: str) -> httpx.Response:
    async def one() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://monitor") as client:
            return await client.get(url)

    return asyncio.run(one())


def full_of_placeholders() -> list[dict[str, Any]]:
    """Events that say every such name, and some that say nothing; as slices, models and versions."""
    rows = impressions([*NAMES * 3, *["de"] * 5])
    for i, row in enumerate(rows):
        row["model"] = ["m", OTHER, "default", ""][i % 4]
        row["model_version"] = [*NAMES[:7], ""][i % 8]
    return rows


def test_results_api_and_metrics_have_every_row_once() -> None:
    pipeline = Pipeline(settings(), ManualClock(T0 / 1000))
    pipeline.take(as_json(full_of_placeholders(), pipeline))
    pipeline.finish()
    snapshot = readers_see(pipeline)
    no_row_twice(snapshot)
    n = counted(snapshot)
    assert (n[MISSING], n[OTHER], n[f"~{MISSING}"], n[f"~{OTHER}"], n[f"~~{OTHER}"]) == (3, 3, 3, 3, 3)
    assert sum(n.values()) == len(NAMES) * 3 + 5
    app = create_app(Publisher(snapshot), Server(), version="1", clock=ManualClock(T0 / 1000))
    found = samples(app)
    sliced = sum(v for (name, _), v in found.items() if name == "streameval_slice_impressions_total")
    assert sliced == sum(n.values())
    for value in (MISSING, f"~{MISSING}", f"~{OTHER}"):
        answer = ask(app, f"/api/v1/results?window=all&limit=5000&slice=country:{value}").json()
        assert sum(row["impressions"] for row in answer["results"]) == 3, value
        assert {row["slice"]["value"] for row in answer["results"]} == {value}


def test_long_names_that_look_like_cut_ones_are_different_labels() -> None:

    cut = label("x" * 250)
    assert len(cut) == 200
    assert label(cut) != cut, "an event may say what a cut name looks like"
    assert label("x" * 200) == "x" * 200


# -- the history and restarts ----------------------------------------------------------------------------------------


def kept(path: Path) -> tuple[Pipeline, PartitionKeeper, HistoryReader]:
    clock = ManualClock(T0 / 1000)
    mine = settings(path)
    pipeline = Pipeline(mine, clock)
    form = HistoryFormat(mine.windows.pane, options_of(mine), mine.users.weighting)
    history = HistoryWriter(path / "history.sqlite", form, Retention(1 << 40, 1 << 40, 1 << 40, 1 << 30))
    keeper = PartitionKeeper(mine, pipeline, clock, history, JsonlDeadLetters(""))
    return pipeline, keeper, HistoryReader(history.path, form, 20)


def test_placeholders_reach_the_history_and_survive_a_restart(tmp_path: Path) -> None:
    rows = full_of_placeholders()
    pipeline, keeper, reader = kept(tmp_path)
    assert keeper.take(frozenset({0})) == {}
    first, second = rows[:20], rows[20:]
    for row in second:
        row["ts"] += 600_000
    pipeline.take(as_json(first, pipeline))
    pipeline.take(as_json(second[:1], pipeline))  # the first pane is complete
    pipeline._readings[0].offsets = {("impressions", 0): 21}
    keeper.close()
    assert keeper.history_state().failures == 0
    before = reader.range(reader.series_names(), None, None, limit=5000)
    assert sum(r.totals.impressions for r in before.results if r.slice is None) == 20

    pipeline, keeper, reader = kept(tmp_path)
    assert keeper.take(frozenset({0})) == {("impressions", 0): 21}
    pipeline.take(as_json(second[1:], pipeline))
    pipeline.finish()
    snapshot = readers_see(pipeline, history=keeper.history_state())
    no_row_twice(snapshot)
    keeper.close()
    state = keeper.history_state()
    assert (state.failures, state.skipped) == (0, 0)
    past = reader.range(reader.series_names(), None, None, limit=5000)
    by_name = {(r.series, r.slice): r.totals.impressions for r in past.results}
    assert len(by_name) == len(past.results)
    assert by_name == {(r.series, r.slice): r.totals.impressions for r in snapshot.results if r.window == "all"}

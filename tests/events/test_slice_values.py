"""More values than a dimension shows: which ones are shown depends on what was counted, not on what came first."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from streameval.app import make_decoder
from streameval.events.batch import Catalog
from streameval.events.codes import counted_values
from streameval.events.names import MISSING, OTHER
from streameval.loop.keeper import PartitionKeeper
from streameval.loop.options import options_of
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.store.history.format import HistoryFormat
from streameval.store.history.writer import HistoryWriter, Retention
from streameval.testing import ManualClock, readers_see

T0 = 1_700_000_040_000
SHOWN = 3
# impressions by country; ties are in order of name
TRAFFIC = {"de": 40, "fr": 30, "at": 7, "it": 7, "es": 6, "us": 5, "gb": 3, "": 4}


def settings(path: Path | None = None) -> Settings:
    return Settings.model_validate(
        {
            "join": {"attribution_window": "1m", "allowed_lateness": "1m", "request_gap": "1m"},
            "slices": {"dimensions": ["country"], "max_values": SHOWN},
            **({"store": {"path": str(path), "checkpoint_interval": "1ms"}} if path else {}),
        }
    )


def events(traffic: dict[str, int], seed: int) -> list[dict[str, Any]]:
    """In an order of their own, all within a minute; of two versions."""
    rows = [(country, i) for country, n in traffic.items() for i in range(n)]
    random.Random(seed).shuffle(rows)
    return [
        {
            "impression_id": f"{country}-{i}", "ts": T0 + k, "user_id": f"u{i % 5}", "model_version": f"v{i % 2}",
            "pclick": (1 + i % 9) / 10, "clicked": i % 3 == 0, "slices": {"country": country},
        }
        for k, (country, i) in enumerate(rows)
    ]  # fmt: skip


def feed(pipeline: Pipeline, rows: list[dict[str, Any]], partition: int, offset: int = 0) -> None:
    values = [json.dumps(row).encode() for row in rows]
    batch, letters = make_decoder(pipeline.settings, pipeline).messages(
        values, [1] * len(rows), topic=("impressions",), partition=partition, offsets=range(len(rows)), format="json",
        shared=True, next_offsets={("impressions", partition): offset + len(rows)},
    )  # fmt: skip
    assert letters == []
    pipeline.take(batch)


def slices(pipeline: Pipeline) -> list[dict[str, Any]]:
    """The rows of slices as in the report, without what depends on curves or times."""
    pipeline.finish()
    rows = [row for row in readers_see(pipeline).report()["results"] if row["slice"]]
    return [{k: v for k, v in row.items() if k not in ("window_start", "window_end", "newest_label")} for row in rows]


def impressions(rows: list[dict[str, Any]]) -> dict[str, int]:
    out: dict[str, int] = {}
    for row in rows:
        if row["window"] == "all":
            out[row["slice"]["value"]] = out.get(row["slice"]["value"], 0) + row["impressions"]
    return out


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.slow
def test_those_with_most_impressions_are_shown_in_whatever_order_they_came(partitions: int) -> None:
    found = []
    for seed in range(6):
        pipeline = Pipeline(settings(), ManualClock(T0 / 1000))
        rows = events(TRAFFIC, seed)
        order = list(range(partitions))
        random.Random(seed).shuffle(order)
        for partition in order:
            feed(pipeline, [row for row in rows if int(row["user_id"][1:]) % partitions == partition], partition)
        found.append(slices(pipeline))
        report = readers_see(pipeline).report()
        assert report["slice_values"] == {"country": {"most_shown": SHOWN, "overflowed": False}}
        assert readers_see(pipeline).slice_values["country"].counted == 7
    assert impressions(found[0]) == {"at": 7, "de": 40, "fr": 30, MISSING: 4, OTHER: 7 + 6 + 5 + 3}
    assert all(rows == found[0] for rows in found[1:])


def test_a_restart_and_the_order_of_partitions_in_it_change_nothing(tmp_path: Path) -> None:
    one, other = events(TRAFFIC, 1), events({"pl": 20, "cz": 11, "it": 5, "de": 1}, 2)
    for row in other:
        row["user_id"] += "b"
    truth = Pipeline(settings(), ManualClock(T0 / 1000))
    for partition, rows in enumerate((one, other)):
        feed(truth, rows, partition)
    expected = slices(truth)
    assert impressions(expected).keys() == {"de", "fr", "pl", MISSING, OTHER}

    def worker(number: int) -> tuple[Pipeline, PartitionKeeper]:
        mine, clock = settings(tmp_path), ManualClock(T0 / 1000)
        pipeline = Pipeline(mine, clock)
        form = HistoryFormat(mine.windows.pane, options_of(mine), mine.users.weighting)
        history = HistoryWriter(tmp_path / f"{number}.sqlite", form, Retention(1 << 40, 1 << 40, 1 << 40, 1 << 30))
        return pipeline, PartitionKeeper(mine, pipeline, clock, history, JsonlDeadLetters(""))

    # two workers, each with its own values; then one that has both, in either order
    for partition, rows in enumerate((one, other)):
        pipeline, keeper = worker(partition)
        keeper.take(frozenset({partition}))
        feed(pipeline, rows[: len(rows) // 2], partition)
        keeper.close()
    for number, order in enumerate(((0, 1), (1, 0))):
        pipeline, keeper = worker(10 + number)
        for partition in order:
            offset = keeper.take(frozenset({partition}))["impressions", partition]
            feed(pipeline, (one, other)[partition][offset:], partition, offset)
        assert slices(pipeline) == expected
        assert readers_see(pipeline).report()["slice_values"]["country"]["overflowed"] is False


def test_beyond_what_is_counted_it_is_said_and_stays_said(tmp_path: Path) -> None:
    many = {f"c{i:02d}": 1 + i % 4 for i in range(30)}
    pipeline = Pipeline(settings(), ManualClock(T0 / 1000))
    feed(pipeline, events(many, 0), 0)
    rows = slices(pipeline)
    n = impressions(rows)
    assert len(n) == SHOWN + 1
    assert sum(n.values()) == sum(many.values())
    for value, count in n.items():
        assert value == OTHER or count == many[value], "what is told apart is counted whole"
    assert readers_see(pipeline).slice_values["country"].overflowed
    assert readers_see(pipeline).budget_used["slice:country"] == 1.0
    again = Catalog(("country",), SHOWN)
    again.adopt(json.loads(json.dumps(pipeline.catalog.names())))
    assert again.overflowed == [True]


@pytest.mark.parametrize("dimensions", range(1, 12))
@pytest.mark.parametrize("shown", [1, 3, 50, 250, 1000])
def test_as_many_are_counted_as_fit_and_rows_get_no_wider(shown: int, dimensions: int) -> None:
    if (shown + 2) ** dimensions > 1 << 62:
        return
    counted = counted_values(shown, dimensions)
    assert shown <= counted <= max(shown, min(4 * shown, 1000))
    assert (counted + 2) ** dimensions <= 1 << 62
    assert ((counted + 2) ** dimensions < 1 << 32) == ((shown + 2) ** dimensions < 1 << 32)
    if dimensions == 1:
        assert counted == max(shown, min(4 * shown, 1000))

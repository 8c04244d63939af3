"""Every measure at once, of a log of ads that has all the fields for them: neither order, batches, kills nor the file change a bit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from streameval.events.durations import DAY
from streameval.loop.options import options_of
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sources.formats.decode import Decoder
from streameval.store.history.format import HistoryFormat
from streameval.store.history.reader import HistoryReader
from streameval.store.history.writer import HistoryWriter, Retention
from streameval.testing import ManualClock, readers_see
from tests import ads
from tests.laws.streams import differences, through_disk

pytestmark = pytest.mark.slow

HOUR = 3_600_000
START = 1_700_002_800_000  # on an hour
REQUESTS = 1_200
LATENESS = 25_000  # ms, less than is allowed
NOW = START + DAY
JOIN = {"attribution_window": "60s", "allowed_lateness": "30s", "correction_horizon": "1h", "request_gap": "20s"}
COMPARE = {
    "more": ["ndcg_3", "mrr", "pauc", "log_loss_snips", "policy_value", "ctr", "value", "click_yield"],
    "min_duration": "10m", "min_clicks": 50, "min_blocks": 10, "count": 50, "gauc_window": "5m",
}  # fmt: skip
LOGGED: dict[str, Any] = {}
ESTIMATED = {"exposure": {"propensity": "logistic"}, "strata": {"by": "popularity", "count": 3}, "compare": {}}
# of a range: what is of single scores, and what would need every user's row of every pane
OF_SCORES = ("auc", "auc_error", "gauc_value")
OF_USERS = ("ndcg_3_by_user", "mrr_by_user", "value_per_user")


def settings(more: dict[str, Any]) -> Settings:
    asked = {"join": JOIN, "windows": {"sliding": ["20m"]}, "slices": {"dimensions": ["country", "block"]}}
    return Settings.model_validate({**ads.SETTINGS, **asked, "compare": COMPARE, **more})


@cache
def log(prompt: bool = False) -> tuple[dict[str, Any], ...]:
    """Three hours, in order of arrival. Unless it is `prompt`, some clicks, and second ones that are worth more, come after labels were final."""
    luck = Random(5)
    out = []
    for number, same_time in enumerate(ads.events(START, START + 3 * HOUR, REQUESTS)):
        # not at the same time: of a user's impressions of one millisecond, those that arrive first come before the cap of comparisons
        event = {**same_time, "ts": same_time["ts"] + number % 13}
        click = event["type"] == "click"
        late = click and not prompt and luck.random() < 0.1
        out.append((event["ts"] + (600_000 if late else 0), event))
        if click and luck.random() < 0.2:
            again = {**event, "ts": event["ts"] + 1_000, "value": 3 * event["value"]}
            out.append((again["ts"] + (0 if prompt or luck.random() < 0.5 else 900_000), again))
    return tuple(event for _, event in sorted(out, key=lambda pair: pair[0]))


def batches(some: Sequence[dict[str, Any]], pipeline: Pipeline, size: int) -> Iterator[Any]:
    decoder = Decoder(pipeline.catalog, clock=lambda: NOW, max_future=0)
    values = [json.dumps(event).encode() for event in some]
    for at in range(0, len(values), size):
        part = values[at : at + size]
        batch, letters = decoder.messages(
            part, [0] * len(part), topic=("t",), partition=0, offsets=range(len(part)), format="json", shared=True
        )
        assert not letters
        yield batch


def make(more: dict[str, Any]) -> Pipeline:
    return Pipeline(settings(more), ManualClock(NOW / 1000))


def fed(more: dict[str, Any], some: Sequence[dict[str, Any]], size: int) -> Pipeline:
    pipeline = make(more)
    for batch in batches(some, pipeline, size):
        pipeline.take(batch)
    return pipeline


def said(pipeline: Pipeline) -> dict[str, Any]:
    """All that readers see of it, but for how events came."""
    pipeline.finish()
    report = readers_see(pipeline, with_history=False).report()
    found = {name: report[name] for name in ("results", "comparisons", "auctions", "slice_values")}
    found["skipped"] = report["events"]["auction_skipped"]
    return found


@cache
def undisturbed(estimated: bool, prompt: bool = False) -> dict[str, Any]:
    return said(fed(ESTIMATED if estimated else LOGGED, log(prompt), 2_000))


def test_every_measure_has_a_value() -> None:
    """Or the laws below would say nothing."""
    report = undisturbed(False)
    whole = [r for r in report["results"] if r["window"] == "all" and r["slice"] is None]
    assert {r["objective"] for r in whole} == {None, "long"}
    for row in whole:
        assert {name for name, why in row["reasons"].items() if row[name] is None} == set()
        assert row["corrected"] > 20
        assert len(row["strata"]) == 3
        assert all(None not in by.values() for by in row["stratified"].values())
    measured = {m["metric"] for c in report["comparisons"] for m in c["metrics"] if m["lower"] is not None}
    assert measured >= set(COMPARE["more"])
    assert any(c["mixes"] for c in report["comparisons"])
    assert {(row["version"], row["point"]) for row in report["auctions"] if row["click_yield"]} >= {
        (version, point) for version in ads.VERSIONS for point in ("now", "strict", "stricter")
    }


@pytest.mark.parametrize(
    ("estimated", "prompt", "size"), [(False, True, 97), (False, False, 5_000), (True, False, 97)],
    ids=["logged, prompt", "logged", "estimated"],
)  # fmt: skip
def test_order_within_the_lateness_and_batches_change_no_bit(estimated: bool, prompt: bool, size: int) -> None:
    """Whether a look of a comparison comes before or after a late click does depend on the order; what it sees in the end does not."""
    luck, at, arrival = Random(1), 0, []
    for event in log(prompt):  # what is late stays about as late as it was
        at = max(at, event["ts"])
        arrival.append((at + luck.uniform(0, LATENESS), event))
    shuffled = [event for _, event in sorted(arrival, key=lambda pair: pair[0])]
    assert shuffled != list(log(prompt))
    found, expected = said(fed(ESTIMATED if estimated else LOGGED, shuffled, size)), undisturbed(estimated, prompt)
    for name in found.keys() - (set() if prompt else {"comparisons"}):
        assert differences(found[name], expected[name]) == [], name
    if not prompt:
        for one, other in zip(found["comparisons"], expected["comparisons"], strict=True):
            for m, n in zip(one["metrics"], other["metrics"], strict=True):
                assert {**m, "log_e_worse": None} == {**n, "log_e_worse": None}


def test_candidates_change_nothing_but_auctions() -> None:
    shown = [event for event in log() if event.get("shown", True)]
    assert len(log()) - len(shown) == REQUESTS * ads.PLACES
    found = said(fed(LOGGED, shown, 2_000))
    for name in ("results", "comparisons"):
        assert differences(found[name], undisturbed(False)[name]) == [], name
    assert found["auctions"] != undisturbed(False)["auctions"]


@pytest.mark.parametrize("estimated", [False, True], ids=["logged", "estimated"])
def test_kills_and_restarts_change_no_bit(estimated: bool, tmp_path: Path) -> None:
    """What was read after the last checkpoint is lost with the process, and read again."""
    more, luck, events = ESTIMATED if estimated else LOGGED, Random(2), log()
    ends = [*sorted(luck.sample(range(len(events) // 4, len(events)), 3)), len(events)]
    pipeline = make(more)
    for start, end in zip([0, *ends], ends, strict=False):
        for batch in batches(events[start:end], pipeline, 700):
            pipeline.take(batch)
        readers_see(pipeline)
        if end < len(events):
            state = through_disk(SimpleNamespace(pipeline=pipeline), 0, tmp_path / f"{start}")
            for batch in batches(events[end : end + luck.randrange(1, 400)], pipeline, 700):
                pipeline.take(batch)
            readers_see(pipeline)
            pipeline = make(more)
            pipeline.catalog.series_code("other", "v0")  # codes differ from the other process'
            pipeline.restore_partition(0, state)
    assert differences(said(pipeline), undisturbed(estimated)) == []


@pytest.mark.parametrize("folded", [False, True], ids=["panes", "hours"])
def test_a_past_range_is_the_live_run_to_the_bit(folded: bool, tmp_path: Path) -> None:
    pipeline = make(LOGGED)
    pipeline.has_history = True
    for batch in batches(log(), pipeline, 2_000):
        pipeline.take(batch)
    pipeline.finish()
    live = {(r.series, r.slice): r for r in readers_see(pipeline).results if r.window == "all"}
    config = settings(LOGGED)
    form = HistoryFormat(config.windows.pane, options_of(config), config.users.weighting)
    keep = HOUR if folded else 10**12
    writer = HistoryWriter(tmp_path / "history.sqlite", form, Retention(keep, 10**12, 10**12, 1 << 40))
    for partition, rows in pipeline.history_rows([0]).items():
        writer.write(partition, 1, rows)
    if folded:
        writer.fold({0: NOW}, NOW)
    writer.close()
    reader = HistoryReader(tmp_path / "history.sqlite", form, config.buckets.quantiles)
    past = {(r.series, r.slice): r for r in reader.range(reader.series_names(), None, None).results}
    assert past.keys() == live.keys()
    for key, result in past.items():
        expected = live[key]
        for name, value in expected.metrics.items():
            if name in OF_USERS or name.startswith(OF_SCORES):
                continue
            assert result.metrics[name] == value, (key, name)
            if not name.startswith("gauc"):
                assert result.stderrs.get(name) == expected.stderrs.get(name), (key, name)
        for name in OF_USERS[:2]:
            assert result.metrics[name] is None
            assert result.reasons[name] == ("not_kept_for_ranges" if key[1] is None else "not_kept_for_slices")
        assert result.strata == expected.strata
        assert result.buckets == expected.buckets

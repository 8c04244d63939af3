"""Auctions of a running stream: what the slow way gives, in any order within the lateness, over restarts."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streameval.auction import live as live_auctions
from streameval.auction.gather import AuctionLog
from streameval.auction.history import count_pairs, curves_of, tables_of
from streameval.auction.pairs import PairHistory, pair_of, placed_keys
from streameval.auction.points import operating_points, tally_names, through_name
from streameval.auction.rerun import AUCTION_CELLS, AUCTIONS_SERVED, USER_GROUPS, run
from streameval.events.batch import Batch, Impressions
from streameval.events.hashing import hash_one
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sources.formats.decode import Decoder
from streameval.store import container
from streameval.testing import ManualClock, readers_see

HOUR = 3_600_000
T0 = 1_700_002_800_000  # on the hour
ADS, REQUESTS, STEP = 6, 240, 60_000  # four hours of a request a minute
WINDOW, LATENESS = 600_000, 30_000
Event = dict[str, Any]


def settings(**auction: Any) -> Settings:
    return Settings.model_validate(
        {
            "join": {
                "attribution_window": "10m", "allowed_lateness": "30s", "correction_horizon": "2h", "request_gap": "30s",
            },
            "windows": {"pane": "60s", "sliding": ["60m"]},
            "auction": {
                "mainline": 2, "slots": 4, "history": "2h",
                "points": [
                    {"name": "now", "mainline_reserve": 0.3, "sidebar_reserve": 0.05},
                    {"name": "high", "mainline_reserve": 0.6, "sidebar_reserve": 0.05},
                ],
                **auction,
            },
        }
    )  # fmt: skip


def log() -> list[Event]:
    rng = np.random.default_rng(4)
    quality = rng.uniform(0.1, 0.9, (5, ADS))
    out: list[Event] = []
    for r in range(REQUESTS):
        query = int(rng.integers(5))
        bids, scores = rng.lognormal(0, 0.5, ADS), quality[query] * rng.uniform(0.7, 1.0, ADS)
        order = np.argsort(-bids * scores).tolist()
        for place, ad in enumerate(order):
            ts = T0 + r * STEP + int(rng.integers(0, 2_000))
            event = {
                "type": "impression", "impression_id": f"i{r}-{ad}", "ts": ts, "user_id": f"u{r % 9}", "request_id": f"r{r}",
                "query_id": f"q{query}", "item_id": f"a{ad}", "bid": float(bids[ad]), "model_version": "v1",
                "pclick": float(scores[ad]), "predictions": {"v2": float(np.clip(scores[ad] * rng.uniform(0.5, 1.5), 0, 1))},
            }  # fmt: skip
            out.append({**event, "position": place} if place < 4 else {**event, "shown": False})
            if place < 4 and rng.random() < quality[query, ad] * 0.5**place:
                delay = int(rng.integers(1_000, 500_000))
                out.append({"type": "click", "impression_id": f"i{r}-{ad}", "ts": ts + delay, "user_id": f"u{r % 9}"})
    return sorted(out, key=lambda event: event["ts"])


def batches(events: list[Event], pipeline: Pipeline, size: int) -> list[Batch]:
    decoder = Decoder(pipeline.catalog, clock=lambda: T0 + 10 * HOUR, max_future=0)
    out = []
    for start in range(0, len(events), size):
        values = [json.dumps(event).encode() for event in events[start : start + size]]
        batch, letters = decoder.messages(
            values, [0] * len(values), topic=("t",), partition=0, offsets=range(len(values)), format="json", shared=True
        )
        assert not letters
        out.append(batch)
    return out


def sums_of(pipeline: Pipeline) -> dict[tuple[str, int], list[Any]]:
    """By version and pane: every sum of every operating point."""
    pipeline.finish()
    pipeline._background.wait()
    (part,) = pipeline.partitions.values()
    layout = part.scoreboard.overall_layout
    out: dict[tuple[str, int], list[Any]] = {}
    for pane in part.scoreboard.overall.numbers():
        sparse = part.scoreboard.overall.get(pane)
        vector = np.zeros(len(pipeline.catalog.series) * layout.size, np.int64)
        vector[sparse.cells] = sparse.values
        for code, series in enumerate(pipeline.catalog.series):
            row = vector[code * layout.size : (code + 1) * layout.size]
            for name in tally_names(pipeline.settings.auction):
                found = layout.tally(name)
                assert found is not None
                cells = row[found[1] : found[1] + found[0].size]
                if cells.any():
                    out.setdefault((series.version, pane), []).append(cells.reshape(-1, len(AUCTION_CELLS)).tolist())
            for name in tally_names(pipeline.settings.auction):
                found = layout.tally(through_name(name))
                assert found is not None
                cells = row[found[1] : found[1] + found[0].size]
                if cells.any():
                    out.setdefault((f"{series.version} through", pane), []).append(cells.tolist())
    return out


def requests_run(sums: dict[tuple[str, int], list[Any]]) -> int:
    """With the scores of v1, at the first operating point."""
    cell = AUCTION_CELLS.index("requests")
    return sum(block[cell] for (name, _), points in sums.items() if name == "v1" for block in points[0])


def fed(events: list[Event], size: int = 500, **auction: Any) -> Pipeline:
    pipeline = Pipeline(settings(**auction), ManualClock(T0 / 1000 + 36_000))
    for batch in batches(events, pipeline, size):
        pipeline.take(batch)
    return pipeline


@pytest.fixture(scope="module")
def expected() -> dict[tuple[str, int], list[Any]]:
    return sums_of(fed(log()))


def test_an_hour_is_run_by_the_labels_that_were_final_before_it(expected: dict[tuple[str, int], list[Any]]) -> None:
    """The last hour, all at once: its history is every impression whose window had ended by then, and not 2 h before."""
    events, hour = log(), T0 // HOUR + 3
    pipeline = Pipeline(settings(), ManualClock())
    auction = pipeline.settings.auction
    clicked = {event["impression_id"] for event in events if event["type"] == "click"}
    times = {event["impression_id"]: event["ts"] for event in events if event["type"] == "impression"}
    gathered = AuctionLog()
    for batch in batches(events, pipeline, 10_000):
        gathered.take(batch)
    ids = list(times)
    gathered.label(
        np.array([hash_one(one) for one in ids], np.uint64), np.array([one in clicked for one in ids], np.int8)
    )
    book = gathered.book(auction.slots)
    begins = {}
    for event in events:
        if event["type"] == "impression":
            begins[event["request_id"]] = min(begins.get(event["request_id"], event["ts"]), event["ts"])
    order = sorted(begins, key=hash_one)
    known = []
    shown_at = dict(zip([hash_one(one) for one in ids], times.values(), strict=True))
    rows = [e for e in events if e["type"] == "impression" and e.get("shown", True)]
    by_place = {(hash_one(e["request_id"]), e["position"]): e["impression_id"] for e in rows}
    for request, position in zip(book.request.tolist(), book.position.tolist(), strict=True):
        final = shown_at[hash_one(by_place[hash_one(order[request]), position])] + WINDOW
        known.append((hour - 2) * HOUR < final <= hour * HOUR)
    on = np.array(known)
    counts = count_pairs(book.pair[on], book.position[on], book.clicked[on], book.pairs, auction.slots)
    tables = tables_of(counts, curves_of(counts, auction.slots, auction.curve))
    tables = tables._replace(rate=tables.rate.astype(np.float32))  # as the stream keeps them
    whole = run(book.auctions, tables, operating_points(auction))  # of every request; those of the hour are picked
    mine = [k for k, request in enumerate(order) if begins[request] // HOUR == hour]
    picked = _picked(book.auctions, mine)
    found = run(picked, tables, operating_points(auction))
    assert whole.sum() > found.sum()
    for v, code in enumerate(book.versions):
        version = pipeline.catalog.series[code].version
        for point in range(2):
            live = sum(
                np.array(cells[point])
                for (name, pane), cells in expected.items()
                if name == version and pane // 60 == hour
            )
            assert np.array_equal(live[:, :AUCTIONS_SERVED], found[v, point, :, :AUCTIONS_SERVED])
    served = sum(np.array(cells[0])[:, AUCTIONS_SERVED].sum() for (name, _), cells in expected.items() if name == "v1")
    assert served == REQUESTS - 60, "all but those of the hour without a history"
    assert not any(
        np.array(cells[0])[:, AUCTIONS_SERVED].any() for (name, _), cells in expected.items() if name == "v2"
    )


def _picked(auctions: Any, requests: list[int]) -> Any:
    of = np.concatenate([np.arange(auctions.indptr[r], auctions.indptr[r + 1]) for r in requests])
    sizes = np.diff(auctions.indptr)[requests]
    return auctions._replace(
        indptr=np.append(0, np.cumsum(sizes)), block=auctions.block[requests], bid=auctions.bid[of],
        pair=auctions.pair[of], score=np.ascontiguousarray(auctions.score[:, of]),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "size"), [(1, 1), (2, 37), (3, 5_000)])
def test_order_within_the_lateness_and_batches_change_nothing(
    expected: dict[tuple[str, int], list[Any]], seed: int, size: int
) -> None:
    rng = random.Random(seed)
    shuffled = sorted(log(), key=lambda event: event["ts"] + rng.uniform(0, 25_000))
    assert sums_of(fed(shuffled, size)) == expected


def test_a_backlog_longer_than_the_horizon_loses_no_candidates(expected: dict[tuple[str, int], list[Any]]) -> None:
    """A batch of four hours after one of a few seconds: its candidates are as far ahead of that as its impressions."""
    events = log()
    pipeline = Pipeline(settings(), ManualClock(T0 / 1000 + 36_000))
    for batch in [*batches(events[:10], pipeline, 10), *batches(events[10:], pipeline, 5_000)]:
        pipeline.take(batch)
    assert sums_of(pipeline) == expected


@pytest.mark.parametrize("size", [1, 5_000])
def test_candidates_behind_the_lateness_are_late_wherever_a_batch_ends(
    expected: dict[tuple[str, int], list[Any]], size: int
) -> None:
    events = log()
    late = [
        {**event, "impression_id": f"late{i}", "ts": event["ts"] - 1_000 - LATENESS, "shown": False}
        for i, event in enumerate(events[100:1_000:100])
        if event["type"] == "impression"
    ]
    for event in late:
        event.pop("position", None)
        reached = event["ts"] + 1_000 + LATENESS
        at = next(i for i, one in enumerate(events) if one["ts"] > reached and one.get("shown", True))
        events.insert(at + 1, event)
    pipeline = fed(events, size)
    assert sums_of(pipeline) == expected
    (part,) = pipeline.partitions.values()
    assert part.auctions is not None
    assert part.auctions.skipped["late_candidates"] == len(late) > 3


def test_a_click_that_comes_too_late_is_in_no_table_wherever_a_batch_ends(
    expected: dict[tuple[str, int], list[Any]],
) -> None:
    """It corrects the label; but the tables have labels as they were when due, also when it comes in the same batch."""
    events = log()
    clicked = {event["impression_id"] for event in events if event["type"] == "click"}
    late = [
        {
            "type": "click",
            "impression_id": event["impression_id"],
            "ts": event["ts"] + 1_000,
            "user_id": event["user_id"],
        }
        for event in events[:: len(events) // 50]
        if event["type"] == "impression" and event.get("shown", True) and event["impression_id"] not in clicked
    ]
    assert len(late) > 10
    for click in late:  # after the label was due
        due = click["ts"] + WINDOW + 2 * LATENESS
        at = next((i for i, one in enumerate(events) if one["ts"] > due and one.get("shown", True)), len(events) - 1)
        events.insert(at + 1, click)
    for size in (1, 5_000):
        assert sums_of(fed(events, size)) == expected


def test_a_restart_changes_nothing(expected: dict[tuple[str, int], list[Any]], tmp_path: Path) -> None:
    events = log()
    half = len(events) * 5 // 8
    first = fed(events[:half], 100)
    state = first.partition_state(0)
    assert state is not None
    container.write(tmp_path / "checkpoint", state)
    again = Pipeline(settings(), ManualClock(T0 / 1000 + 36_000))
    again.restore_partition(0, container.read(tmp_path / "checkpoint"))
    for batch in batches(events[half:], again, 100):
        again.take(batch)
    assert sums_of(again) == expected


def test_requests_that_cannot_be_run_are_counted_by_reason() -> None:
    events = log()
    for event in events:
        if event.get("request_id") == "r100" and event["item_id"] == "a0":
            del event["bid"]
        if event.get("request_id") == "r101":
            del event["request_id"]
    pipeline = fed(
        [
            *events,
            {
                **events[-1],
                "type": "impression",
                "impression_id": "z",
                "request_id": "z",
                "item_id": "x",
                "pclick": 0.1,
                "ts": T0,
                "shown": False,
            },
        ]
    )
    pipeline.finish()
    skipped = readers_see(pipeline).report()["events"]["auction_skipped"]
    assert {name: n for name, n in skipped.items() if n} == {
        "no_history": 60, "no_bid": 1, "no_request": 6, "late_candidates": 1,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 500])
def test_a_request_with_too_many_is_left_out_even_across_two_panes(
    expected: dict[tuple[str, int], list[Any]], monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(live_auctions, "_MOST_CANDIDATES", ADS)
    events = log()
    mine = [event for event in events if event.get("request_id") == "r100"]
    more = [{**mine[-1], "impression_id": f"more{i}", "item_id": f"more{i}", "shown": False} for i in range(3)]
    for event in more:
        event.pop("position", None)
    for event in mine[::2]:
        event["ts"] -= 10_000
    pipeline = fed(sorted([*events, *more], key=lambda event: event["ts"]), size)
    assert requests_run(sums_of(pipeline)) == requests_run(expected) - 1
    (part,) = pipeline.partitions.values()
    assert part.auctions is not None
    assert part.auctions.skipped["too_many_candidates"] == 1


def test_readers_see_the_frontier_by_window(expected: dict[tuple[str, int], list[Any]]) -> None:
    pipeline = fed(log())
    pipeline.finish()
    rows = readers_see(pipeline).report()["auctions"]
    assert {(r["window"], r["version"], r["point"]) for r in rows} == {
        (window, version, point) for window in ("all", "1h") for version in ("v1", "v2") for point in ("now", "high")
    }
    total = sum(np.array(cells[0]).sum(axis=0) for (name, _), cells in expected.items() if name == "v2")
    row = next(r for r in rows if (r["window"], r["version"], r["point"]) == ("all", "v2", "now"))
    assert row["requests"] == total[0]
    assert row["click_yield"] == pytest.approx(total[1] / 2**40 / total[0])
    assert row["mainline_ads"] == total[3] / total[0]
    assert row["matched_to"] == "v1"


def test_beyond_the_memory_limit_entire_queries_are_left_out() -> None:
    small = fed(log(), memory=2_000)
    small.finish()
    report = readers_see(small).report()
    (part,) = small.partitions.values()
    assert part.auctions is not None
    assert part.auctions.history.level > 0
    assert part.auctions.history.nbytes < 6_000
    assert report["events"]["auction_skipped"]["not_sampled"] > 0


def labelled(n: int) -> tuple[Any, ...]:
    """n pairs, each shown once at a position to a user, some clicked."""
    ids = np.arange(1, n + 1).astype(np.uint64)
    pair, key = pair_of(ids, ids), placed_keys(ids, ids, (np.arange(n) % 4).astype(float), 4)
    label, group = (np.arange(n) % 3 == 0).astype(np.int8), np.arange(n) % USER_GROUPS
    return pair, (key, label, np.full(n, HOUR), group)


def test_a_pair_of_the_history_takes_24_bytes() -> None:
    history = PairHistory(4, "within_pairs", 24, 1 << 30)
    pair, labels = labelled(1_000)
    history.add(*labels)
    found = history.at(1)
    before = found.looked_up.nbytes
    assert history.nbytes == 24 * 1_000 + before
    tables, _, at = found.rows(pair)
    assert np.isfinite(tables.rate[at]).all()
    assert history.nbytes > 24 * 1_000 + before
    history.at(2)
    assert history.nbytes == 24 * 1_000 + found.looked_up.nbytes, "another hour of the same labels has the same tables"
    history.forget_before(1)
    history.forget_tables_before(2)
    after = history.at(25)
    history.forget_tables_before(25)
    assert history.nbytes == 12 * 1_000 + after.looked_up.nbytes, "what is known at an hour that is over is let go of"
    history.forget_before(25)
    assert history.nbytes == after.looked_up.nbytes


def test_counts_of_an_entry_that_has_no_room_are_several_entries() -> None:
    history = PairHistory(4, "observed", 24, 1 << 30)
    _, labels = labelled(3)
    for _ in range(3):  # 90,000 impressions of each pair
        history.add(*(np.repeat(column, 30_000) for column in labels))
    history.at(1)
    again = PairHistory(4, "observed", 24, 1 << 30)
    again.restore(history.state())
    for one in (history, again):
        assert one.at(1).curves.impressions.tolist() == [90_000, 90_000, 90_000, 0]
        assert one.at(1).curves.clicks.tolist() == [90_000, 0, 0, 0]
        assert one.at(1).entries.keys.size == 6


def test_an_older_checkpoint_has_the_same_tables() -> None:
    """Its keys had 10 bits of a position below 54 of the pair, its counts 32 bits, and no group of users."""
    pair, labels = labelled(500)
    key, label, final, group = labels
    newer, older = (PairHistory(4, "within_pairs", 24, 1 << 30) for _ in range(2))
    newer.add(key, label, final, group)
    order = np.argsort(key)
    columns = key[order], np.ones(500, np.uint32), label[order].astype(np.uint32)
    older.restore({"level": 0, "hours": [[1, *columns]]})
    a, b = newer.at(1), older.at(1)
    assert np.array_equal(a.curves.curve, b.curves.curve)
    (rows, owed, at), (of_newer, _, its) = b.rows(pair), a.rows(pair)
    assert (at > 0).all()
    assert np.array_equal(rows.rate[at], of_newer.rate[its], equal_nan=True)
    assert np.abs(owed[at]).max() < 1e-12, "all are of one group, without which there is nothing to tell"


def test_residuals_equal_leaving_out_a_group() -> None:
    rng = np.random.default_rng(1)
    query, item = np.full(400, 5, np.uint64), np.full(400, 6, np.uint64)
    pair = pair_of(query, item)
    place, label, group = (
        rng.integers(0, 4, 400),
        (rng.random(400) < 0.3).astype(np.int8),
        rng.integers(0, USER_GROUPS, 400),
    )
    history = PairHistory(4, "observed", 24, 1 << 30)
    history.add(placed_keys(query, item, place.astype(float), 4), label, np.full(400, HOUR), group)
    known = history.at(1)
    curve = known.curves.curve
    nobody_knows = pair[:1] + np.uint64(1 << 10)
    known.rows(nobody_knows.repeat(2))  # rows stay, and others are added
    rows, owed, at = known.rows(np.concatenate([pair[:1], nobody_knows, pair[:1]]))
    found = owed[at]
    rate = label.sum() / curve[place].sum()
    assert rows.rate[at] == pytest.approx([rate, np.nan, rate], rel=1e-6, nan_ok=True)
    assert np.array_equal(found[0], found[2])
    for g in range(USER_GROUPS):
        rest = group != g
        less = label[rest].sum() / curve[place[rest]].sum()
        assert found[0, g] == pytest.approx(rate - less, abs=1e-6)


def test_placements_are_the_same_on_four_partitions_and_yields_nearly() -> None:
    """Every partition has click tables of its own, of its own users, so expected clicks differ with them: not what is placed."""
    events = log()
    one, four = fed(events), Pipeline(settings(), ManualClock(T0 / 1000 + 36_000))
    decoder = Decoder(four.catalog, clock=lambda: T0 + 10 * HOUR, max_future=0)
    for start in range(0, len(events), 200):
        for number in range(4):
            values = [
                json.dumps(e).encode() for e in events[start : start + 200] if hash_one(e["user_id"]) % 4 == number
            ]
            batch, _ = decoder.messages(
                values,
                [0] * len(values),
                topic=("t",),
                partition=number,
                offsets=range(len(values)),
                format="json",
                shared=True,
            )
            four.take(batch)
    found = []
    for pipeline in (one, four):
        pipeline.finish()
        report = readers_see(pipeline).report()
        assert report["events"]["auction_skipped"]["no_history"] == 60
        found.append({(r["window"], r["version"], r["point"]): r for r in report["auctions"]})
    assert found[0].keys() == found[1].keys()
    same = ("requests", "mainline_ads", "mainline_ads_stderr", "ads", "ads_stderr", "extrapolated_share")
    for key, row in found[0].items():
        other = found[1][key]
        assert [row[name] for name in same] == [other[name] for name in same]
        assert row["click_yield"] != other["click_yield"]
        assert abs(row["click_yield"] - other["click_yield"]) < 3 * (
            row["click_yield_stderr"] + other["click_yield_stderr"]
        )


def test_requests_without_scores_are_run_for_no_version() -> None:
    """Impressions without a pClick are for the models that learn here, whose scores no auction has."""
    half = T0 + REQUESTS // 2 * STEP

    def unscored(rows: Impressions) -> Impressions:
        return replace(rows, pclick=np.full(len(rows), np.nan), shadow=None)

    pipeline = Pipeline(settings(), ManualClock(T0 / 1000 + 36_000))
    for one in batches(log(), pipeline, 500):
        bare = replace(one, impressions=unscored(one.impressions), candidates=unscored(one.candidates))
        pipeline.take(bare if one.impressions.ts.min() >= half else one)
    sums = sums_of(pipeline)
    assert requests_run(sums) > 0
    assert max(pane for _, pane in sums) * 60_000 < T0 + REQUESTS * STEP - HOUR // 2


def test_without_operating_points_there_is_nothing() -> None:
    pipeline = fed(log(), points=[])
    pipeline.finish()
    report = readers_see(pipeline).report()
    assert "auctions" not in report
    assert "auction_skipped" not in report["events"]
    (part,) = pipeline.partitions.values()
    assert part.joiner.table.mark.size == 0


def test_candidates_of_a_stream_that_stands_still_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_auctions, "_MOST_WAITING", 100)
    others = [event for event in log() if event.get("shown") is False]
    pipeline = fed([log()[0], *others], 50)
    (part,) = pipeline.partitions.values()
    assert part.auctions is not None
    assert len(part.auctions) <= 100
    assert part.auctions.skipped["no_room"] > 0

"""The cost of replaying auctions, in processor time and memory: 3 versions, 5 operating points, 15 candidates a request.

In the first hours, and after a day, the default length of the history of pairs: tables of a full history cost more.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.paired import HEAD, Took, cells, on_one_core, took
from streameval.auction.live import keys_of
from streameval.auction.pairs import PairHistory, groups_of
from streameval.events.batch import Batch, Catalog, Clicks, Impressions, Shadow
from streameval.events.columns import take_impressions
from streameval.events.durations import HOUR
from streameval.events.hashing import hash_strings
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.testing import readers_see

REQUESTS, CANDIDATES, SLOTS = 60_000, 15, 7
QUERIES, ADS, USERS = 2_000, 40, 20_000
HOURS, DAY, FIRST = 6, 24, 1_700_002_800_000
BATCH = 1_500  # requests
BLOCKS = 8
SNAPSHOTS = 2  # a loop with a backlog spends a twentieth of its time on snapshots; here they are at most a tenth
LIMIT = 1.15
MOST_BYTES = 24  # per pair and hour of the history
VERSIONS = ("v1", "v2", "v3")
RESERVES = (0.02, 0.05, 0.1, 0.2, 0.4)


def settings(auctions: bool) -> Settings:
    """Settings with or without the operating points."""
    points = [{"name": str(at), "mainline_reserve": at, "sidebar_reserve": 0.001} for at in RESERVES]
    return Settings.model_validate(
        {
            "join": {"attribution_window": "10m", "correction_horizon": "1h"},
            "auction": {"mainline": 3, "slots": SLOTS, "points": points if auctions else []},
        }
    )


def batches(catalog: Catalog, seed: int = 0) -> list[Batch]:
    """Decoded columns, in order of time: seven candidates of a request are shown, the others are not."""
    rng = np.random.default_rng(seed)
    codes = np.array([catalog.series_code("ctr", version) for version in VERSIONS], np.int32)
    n = REQUESTS * CANDIDATES
    at = FIRST + np.sort(rng.integers(0, HOURS * 3_600_000, REQUESTS))
    query = rng.zipf(1.3, REQUESTS) % QUERIES
    ad = np.argsort(rng.random((REQUESTS, ADS)), axis=1)[:, :CANDIDATES]
    quality = 1 / (1 + np.exp(-rng.normal(-2.5, 1, (QUERIES, ADS))))[query[:, None], ad]
    score = np.clip(quality[:, :, None] * np.exp(rng.normal(0, 0.3, (*ad.shape, len(VERSIONS)))), 0, 1)
    bid = rng.lognormal(0, 0.5, ad.shape)
    place = np.argsort(np.argsort(-bid * score[:, :, 0], axis=1), axis=1).ravel()
    request = np.repeat(np.arange(REQUESTS), CANDIDATES)
    user = hash_strings([f"u{i}" for i in range(USERS)])[rng.integers(0, USERS, REQUESTS)]
    shown = place < SLOTS
    clicked = shown & (rng.random(n) < quality.ravel() * 0.7**place)
    rows = Impressions(
        order=np.zeros(n, np.int32),
        id=hash_strings([f"i{i}" for i in range(n)]),
        ts=at[request],
        user=user[request],
        request=hash_strings([f"r{i}" for i in range(REQUESTS)])[request],
        item=hash_strings([f"a{i}" for i in range(ADS)])[ad.ravel()],
        series=np.full(n, codes[0], np.int32),
        pclick=score[:, :, 0].ravel(),
        slices=np.zeros(n, np.int64),
        label=np.full(n, -1, np.int8),
        fields={"position": np.where(shown, place, np.nan).astype(float), "bid": bid.ravel()},
        shadow=Shadow(np.arange(n + 1) * 2, np.tile(codes[1:], n), score[:, :, 1:].ravel()),
        query=hash_strings([f"q{i}" for i in range(QUERIES)])[query[request]],
    )
    click_at = rows.ts + rng.integers(1_000, 120_000, n)
    out = []
    for start in range(0, REQUESTS, BATCH):
        inside = np.arange(start * CANDIDATES, min(start + BATCH, REQUESTS) * CANDIDATES)
        on, off = inside[shown[inside]], inside[~shown[inside]]
        begin, end = at[start], at[start + BATCH] if start + BATCH < REQUESTS else 1 << 60
        clicks = np.flatnonzero(clicked & (click_at >= begin) & (click_at < end))
        clicks = clicks[np.argsort(click_at[clicks], kind="stable")]
        order = np.arange(inside.size, inside.size + clicks.size, dtype=np.int32)
        out.append(
            Batch(
                0,
                take_impressions(rows, on, (on - inside[0]).astype(np.int32)),
                Clicks(order, rows.id[clicks], click_at[clicks]),
                True,
                candidates=take_impressions(rows, off, (off - inside[0]).astype(np.int32)),
            )
        )
    return out


def know(history: PairHistory, given: Sequence[Batch]) -> None:
    """Adds the labels of the day before: these hours, repeated. The tables of the hour before are there, too, as in a stream
    that has run for a day: only after a restart are tables made of all hours anew.
    """
    for hours in range(HOURS, DAY + HOURS, HOURS):
        for batch in given:
            rows, final = batch.impressions, batch.impressions.ts - hours * HOUR
            clicked = np.isin(rows.id, batch.clicks.id).astype(np.int8)
            history.add(keys_of(rows, SLOTS), clicked, final, groups_of(rows.user))
    history.at(FIRST // HOUR - 1)


def run(given: Sequence[Batch], auctions: bool, day: bool) -> Took:
    """Takes batches through the loop. `day`: the history has the labels of the day before."""
    took_it, _ = through(given, auctions, day)
    return took_it


def through(given: Sequence[Batch], auctions: bool, day: bool) -> tuple[Took, int]:
    """(what it took, bytes of the history before the stream ends)."""
    pipeline = Pipeline(settings(auctions), time.time)
    for version in VERSIONS:
        pipeline.catalog.series_code("ctr", version)
    pipeline.take(given[0])
    ours = pipeline.partitions[0].auctions
    if ours is not None and day:
        know(ours.history, given)
    gc.collect()
    begin = took()
    for number, batch in enumerate(given[1:], 1):
        pipeline.take(batch)
        if number % (len(given) // SNAPSHOTS) == 0:
            readers_see(pipeline, with_history=False)
    size = 0 if ours is None else ours.history.nbytes
    pipeline.finish()
    readers_see(pipeline, with_history=False)
    return took().since(begin), size


def main() -> None:
    """Prints the tables."""
    on_one_core()
    given = batches(Pipeline(settings(True), time.time).catalog)
    print(f"| 3 versions, 5 points, a request of 15 candidates | {HEAD} limit |")
    print("|---|---|---|---|---|---|---|---|")
    kinds = (("the first hours", False), ("after a day", True))
    for name, day in kinds:
        found = cells(run, (given, False, day), (given, True, day), REQUESTS, BLOCKS)
        print(f"| {name} | {found} | {LIMIT} |", flush=True)
    print("\n| memory of a partition | |\n|---|---|")
    for name, day in kinds:
        print(f"| pairs, positions, hours, and tables, {name} | {through(given, True, day)[1]:,} B |")

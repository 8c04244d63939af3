"""What running auctions again adds to the loop, and its memory: 3 versions, 5 operating points, 15 candidates a request."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence

import numpy as np

from streameval.auction.live import LiveAuctions
from streameval.events.batch import Batch, Catalog, Clicks, Impressions, Shadow
from streameval.events.columns import take_impressions
from streameval.events.hashing import hash_strings
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.testing import readers_see

REQUESTS, CANDIDATES, SLOTS = 60_000, 15, 7
QUERIES, ADS, USERS = 2_000, 40, 20_000
HOURS, FIRST = 6, 1_700_002_800_000
BATCH = 1_500  # requests
ROUNDS = 5
SNAPSHOT = 5  # batches between two snapshots
LIMIT = 1.15
MOST_BYTES = 24  # of a pair in hour and history
VERSIONS = ("v1", "v2", "v3")
RESERVES = (0.02, 0.05, 0.1, 0.2, 0.4)


def settings(auctions: bool) -> Settings:
    """With the operating points, or without."""
    points = [{"name": str(at), "mainline_reserve": at, "sidebar_reserve": 0.001} for at in RESERVES]
    return Settings.model_validate(
        {
            "join": {"attribution_window": "10m", "correction_horizon": "1h"},
            "auction": {"mainline": 3, "slots": SLOTS, "points": points if auctions else []},
        }
    )


def batches(catalog: Catalog, seed: int = 0) -> list[Batch]:
    """Decoded columns, in order of time: seven candidates are shown, the others are not."""
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
        order = np.arange(on.size, on.size + clicks.size, dtype=np.int32)
        out.append(
            Batch(
                0,
                take_impressions(rows, on, np.arange(on.size, dtype=np.int32)),
                Clicks(order, rows.id[clicks], click_at[clicks]),
                True,
                candidates=take_impressions(rows, off, np.arange(off.size, dtype=np.int32)),
            )
        )
    return out


def seconds(given: Sequence[Batch], auctions: bool) -> tuple[float, LiveAuctions | None]:
    """Of the CPU, all threads: other programs on the machine do not count."""
    pipeline = Pipeline(settings(auctions), time.time)
    for version in VERSIONS:
        pipeline.catalog.series_code("ctr", version)
    gc.collect()
    begin = time.process_time()
    for number, batch in enumerate(given):
        pipeline.take(batch)
        if number % SNAPSHOT == SNAPSHOT - 1:
            readers_see(pipeline, with_history=False)
    pipeline.finish()
    readers_see(pipeline, with_history=False)
    return time.process_time() - begin, pipeline.partitions[0].auctions


def main() -> None:
    """Prints the table. Rounds in turn, and the ratio of the best of either: what disturbs only ever adds."""
    given = batches(Pipeline(settings(True), time.time).catalog)
    for on in (True, False):
        seconds(given[:20], on)  # compile
    rounds = [(seconds(given, False)[0], seconds(given, True)) for _ in range(ROUNDS)]
    without, with_them = min(a for a, _ in rounds), min(b for _, (b, _) in rounds)
    ratios = sorted(b / a for a, (b, _) in rounds)
    auctions = rounds[0][1][1]
    assert auctions is not None
    history = auctions.history
    print("| the loop, 3 versions, 5 points, 15 candidates | CPU us a request | ratio: best to best (rounds) | limit |")
    print("|---|---|---|---|")
    each = 1e6 / REQUESTS
    print(f"| off | {without * each:.2f} | 1 | |")
    print(f"| on | {with_them * each:.2f} | {with_them / without:.3f} ({ratios[0]:.3f}, {ratios[-1]:.3f}) | {LIMIT} |")
    print("\n| memory of a partition | |\n|---|---|")
    print(f"| pairs, positions, hours, and tables | {history.nbytes:,} B |")

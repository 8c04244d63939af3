"""Ads with everything that the field logs of them: candidates and bids, positions, values, propensities and policies.

Two versions serve, each half of the users, and each scores every candidate. A request has four places and two candidates
for each; a version draws one of them, so the propensities it logs are the right ones, and so are the policies of both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sources.formats.decode import Decoder
from streameval.testing import ManualClock

PLACES, QUERIES, USERS = 4, 8, 120
VERSIONS = ("v1", "v2")
NOISE = (0.9, 0.2)
Event = dict[str, Any]

SETTINGS: dict[str, Any] = {
    "metrics": {"value": True, "threshold": 0.3},
    "ranking": {"k": [1, 3, 10], "by_user": ["ndcg_3", "mrr"]},
    "strata": {"count": 3},
    "objectives": [{"name": "long", "value_at_least": 30}],
    "auction": {
        "mainline": 2,
        "slots": PLACES,
        "points": [
            {"name": "now", "mainline_reserve": 0.3, "sidebar_reserve": 0.05},
            {"name": "strict", "mainline_reserve": 0.5, "sidebar_reserve": 0.05},
            {"name": "stricter", "mainline_reserve": 0.8, "sidebar_reserve": 0.05},
        ],
    },
}


def events(start_ms: int, end_ms: int, requests: int, *, seed: int = 1, wrong: bool = False) -> Iterator[Event]:
    """In order of time, `type` said; clicks at most a second later. `wrong`: propensities are logged as 0.7 of what they are."""
    world, rng = np.random.default_rng(11), np.random.default_rng(seed)
    quality = np.sort(world.uniform(0.05, 0.8, (QUERIES, 2 * PLACES)), axis=1)[:, ::-1]
    guesses = [np.clip(quality * np.exp(world.normal(0, noise, quality.shape)), 0.01, 0.99) for noise in NOISE]
    for r in range(requests):
        ts = start_ms + (end_ms - start_ms) * r // requests
        user, query = int(rng.integers(USERS)), int(rng.integers(QUERIES))
        serving = user % 2
        chance = [
            np.clip(guess[query][0::2] / (guess[query][0::2] + guess[query][1::2]), 0.1, 0.9) for guess in guesses
        ]
        first = rng.random(PLACES) < chance[serving]
        clicks = []
        for ad in range(2 * PLACES):
            place, second = divmod(ad, 2)
            event = {
                "type": "impression", "impression_id": f"i{start_ms}-{r}-{ad}", "ts": ts, "user_id": f"u{user}", "model": "ads",
                "request_id": f"r{start_ms}-{r}", "query_id": f"q{query}", "item_id": f"a{query}-{ad}",
                "bid": float(rng.lognormal(0, 0.5)), "model_version": VERSIONS[serving],
                "pclick": float(guesses[serving][query, ad]),
                "predictions": {VERSIONS[1 - serving]: float(guesses[1 - serving][query, ad])},
                "slices": {"country": ("de", "fr")[user % 3 > 0]},
            }  # fmt: skip
            if second == first[place]:
                yield {**event, "shown": False}
                continue
            policies = [float(abs(second - of[place])) for of in chance]
            logged = policies[serving] * (0.7 if wrong else 1.0)
            event |= {"position": place, "propensity": logged, "policies": dict(zip(VERSIONS, policies, strict=True))}
            yield event
            if rng.random() < quality[query, ad] * 0.7**place:
                clicks.append((ts + int(rng.integers(1, 1000)), event, float(rng.lognormal(3.4, 1.0))))
        for at, event, value in sorted(clicks, key=lambda one: one[0]):
            of = {name: event[name] for name in ("impression_id", "user_id")}
            yield {"type": "click", "ts": at, **of, "value": value}


def counted(settings: Settings, some: Iterator[Event], now_ms: int) -> Pipeline:
    """A pipeline that has taken all of it."""
    pipeline = Pipeline(settings, ManualClock(now_ms / 1000))
    decoder = Decoder(pipeline.catalog, clock=lambda: now_ms, max_future=0)
    values = [json.dumps(event).encode() for event in some]
    for at in range(0, len(values), 2_000):
        part = values[at : at + 2_000]
        batch, letters = decoder.messages(
            part, [0] * len(part), topic=("t",), partition=0, offsets=range(len(part)), format="json", shared=True
        )
        assert not letters, letters
        pipeline.take(batch)
    pipeline.finish()
    return pipeline

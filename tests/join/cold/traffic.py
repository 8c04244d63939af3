"""A stream of columns, long enough for rows to go to the disk: lists, shadow scores, late and repeated clicks, copies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streameval.events.batch import Batch, Catalog, Clicks, Features, Impressions, Shadow
from streameval.sketches.directory import mix

MINUTE = 60_000
START = 1_760_000_000_000
WINDOW, HORIZON = 1 * MINUTE, 40 * MINUTE  # as `settings` has them
IMPRESSIONS = 80_000
MINUTES = 75


def settings(path: str, segment_rows: int, **changes: dict) -> dict:
    """A tree of settings."""
    return {
        "join": {
            "attribution_window": "1m",
            "allowed_lateness": "5s",
            "correction_horizon": "40m",
            "request_gap": "10s",
            **changes.pop("join", {}),
        },
        "windows": {"pane": "5m", "sliding": ["10m", "1h"]},
        "slices": {"dimensions": ["country"]},
        "ranking": {"k": [1, 3], "by_user": ["mrr"]},
        "compare": {"gauc_window": "10m", "min_duration": "5m"},
        "store": {"path": path, "checkpoint_interval": "1h", "segment_rows": segment_rows, "drain_timeout": "5m"},
        **changes,
    }


class Stream:
    """Impressions in the order of their log and clicks in that of theirs."""

    def __init__(self, seed: int, n: int = IMPRESSIONS) -> None:
        rng = np.random.default_rng(seed)
        self.n = n
        self.ts = np.sort(rng.integers(0, MINUTES * MINUTE, n)) + START
        late = rng.random(n) < 0.02
        self.ts[late] -= rng.integers(0, 20 * MINUTE, int(late.sum()))
        self.id = mixed(np.arange(n) + seed * n + 1)
        again = rng.random(n) < 0.01  # copies of impressions that are up to an hour old
        again[0] = False
        self.id[again] = self.id[(rng.random(int(again.sum())) * np.flatnonzero(again)).astype(np.int64)]
        self.user = mixed(rng.integers(1, 3000, n))
        self.request = mixed(np.arange(n) // 5 + 1)
        self.request[rng.random(n) < 0.1] = 0
        self.item = mixed(rng.integers(1, 500, n))
        self.pclick = 1 / (1 + np.exp(-rng.normal(-2, 1, n)))
        self.country = rng.integers(0, 5, n)
        self.version = (self.user % np.uint64(2)).astype(np.int64)
        self.shadow = np.clip(self.pclick * np.exp(rng.normal(0, 0.3, n)), 1e-6, 0.999)
        self.scored = rng.random(n) < 0.8
        self.position = rng.integers(1, 10, n).astype(np.float64)
        clicked = np.flatnonzero(rng.random(n) < self.pclick)
        delay = rng.exponential(20_000, clicked.size).astype(np.int64)
        wire = np.where(rng.random(clicked.size) < 0.1, rng.integers(0, 45 * MINUTE, clicked.size), 0)
        of = np.concatenate((clicked, rng.choice(clicked, clicked.size // 20)))  # and some twice
        self.click_of = of
        self.click_ts = self.ts[of] + np.concatenate((delay, delay[: of.size - clicked.size]))
        self.click_value = rng.exponential(1.0, of.size)
        comes = self.click_ts + np.concatenate((wire, rng.integers(0, 30 * MINUTE, of.size - clicked.size)))
        shown = np.maximum.accumulate(self.ts)
        self.order = np.argsort(np.concatenate((shown, comes)), kind="stable")

    def batches(self, catalog: Catalog, size: int, shared: bool, begin: int = 0) -> Iterator[tuple[int, Batch]]:
        """(events so far, batch), from event `begin` on."""
        codes = np.array([catalog.series_code("ctr", name) for name in ("v1", "v2")], np.int32)
        shadow = catalog.series_code("ctr", "candidate")
        values = np.array([catalog.value_code(0, f"c{value}") for value in range(5)])
        for start in range(begin, self.order.size, size):
            part = self.order[start : start + size]
            click = part >= self.n
            i, c = part[~click], part[click] - self.n
            scored = self.scored[i]
            impressions = Impressions(
                order=np.flatnonzero(~click).astype(np.int32),
                id=self.id[i],
                ts=self.ts[i],
                user=self.user[i],
                request=self.request[i],
                item=self.item[i],
                series=codes[self.version[i]],
                pclick=self.pclick[i],
                slices=catalog.combine([values[self.country[i]]]),
                label=np.full(i.size, -1, np.int8),
                fields={"position": self.position[i]},
                features=Features(
                    np.arange(i.size + 1) * 2,
                    np.stack((self.item[i], self.user[i] % np.uint64(7) + np.uint64(1)), axis=1).ravel(),
                    np.ones(2 * i.size),
                ),
                shadow=Shadow(
                    np.concatenate((np.zeros(1, np.int64), np.cumsum(scored))),
                    np.full(int(scored.sum()), shadow, np.int32),
                    self.shadow[i][scored],
                ),
            )
            clicks = Clicks(
                np.flatnonzero(click).astype(np.int32),
                self.id[self.click_of[c]],
                self.click_ts[c],
                fields={"value": self.click_value[c]},
            )
            end = start + part.size
            yield end, Batch(0, impressions, clicks, shared, {("impressions", 0): end})


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Hashes of numbers, none of them 0."""
    return np.array([mix(np.uint64(one)) or 1 for one in numbers.tolist()], np.uint64)

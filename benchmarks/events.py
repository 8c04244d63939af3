"""Decoded events for the benchmarks: calibrated logit-normal pClicks, users with many impressions, 8 features."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streameval.events.batch import Batch, Catalog, Clicks, Features, Impressions
from streameval.events.hashing import hash_strings

FEATURES = 8
SERIES = ("ctr", "v1", "logged")


class Events:
    """n impressions and their clicks over some minutes of event time."""

    def __init__(
        self,
        n: int,
        ctr_logit: float = -3.0,
        users: int = 20_000,
        seed: int = 0,
        dicts: bool = False,
        minutes: int = 180,
        countries: int = 20,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.n = n
        self.ts = np.sort(rng.integers(0, minutes * 60_000, n)) + 1_700_000_000_000
        self.pclick = 1 / (1 + np.exp(-rng.normal(ctr_logit, 1, n)))
        self.clicked = rng.random(n) < self.pclick
        self.id = hash_strings([f"imp-{i}" for i in range(n)])
        self.user = hash_strings([f"user-{i}" for i in range(users)])[rng.integers(0, users, n)]
        names = [f"f{k}={v}" for k in range(FEATURES) for v in range(1000)]
        self.pick = rng.integers(0, 1000, (n, FEATURES)) + np.arange(FEATURES) * 1000
        self.index = hash_strings(names)[self.pick]
        self.names = names
        self.countries = countries
        self.country, self.device = rng.integers(0, countries, n) + 2, rng.integers(0, 4, n) + 2
        self.dicts = [{names[j]: 1.0 for j in row} for row in self.pick.tolist()] if dicts else None
        self.click_ts = self.ts[self.clicked] + rng.exponential(60_000, int(self.clicked.sum())).astype(np.int64)

    def name_slices(self, catalog: Catalog) -> None:
        """Adds the values that the columns use to a catalog of ("country", "device"), or of the first alone."""
        for dimension, count in ((0, self.countries), (1, 4))[: len(catalog.dimensions)]:
            for value in range(count):
                catalog.value_code(dimension, str(value))

    def batches(self, catalog: Catalog, size: int, learn: bool = True, known: bool = False) -> Iterator[Batch]:
        """Batches in order of time; `known`: impressions carry their labels, and there are no clicks."""
        code = catalog.series_code(*SERIES)
        clicks = np.flatnonzero(self.clicked) if not known else np.empty(0, np.int64)
        when = np.concatenate((self.ts, self.click_ts[: clicks.size]))
        is_click = np.concatenate((np.zeros(self.n, bool), np.ones(clicks.size, bool)))
        of = np.concatenate((np.arange(self.n), clicks))
        order = np.argsort(when, kind="stable")
        for start in range(0, order.size, size):
            part = order[start : start + size]
            click = is_click[part]
            i, c = of[part][~click], of[part][click]
            m = i.size
            features = Features(np.arange(m + 1) * FEATURES, self.index[i].ravel(), np.ones(m * FEATURES))
            impressions = Impressions(
                order=np.flatnonzero(~click).astype(np.int32), id=self.id[i], ts=self.ts[i], user=self.user[i],
                request=np.zeros(m, np.uint64), item=np.zeros(m, np.uint64), series=np.full(m, code, np.int32),
                pclick=self.pclick[i], slices=catalog.combine([self.country[i], self.device[i]][: len(catalog.dimensions)]),
                label=self.clicked[i].astype(np.int8) if known else np.full(m, -1, np.int8), features=features if learn else None,
            )  # fmt: skip
            order_c = np.flatnonzero(click).astype(np.int32)
            yield Batch(0, impressions, Clicks(order_c, self.id[c], when[part][click]), True)

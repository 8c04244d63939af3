"""The samples about replayed auctions, a group for every version and window."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from streameval.auction.frontier import values_of
from streameval.events.batch import Series
from streameval.results.auctions import WindowAuctions
from streameval.results.snapshot import Snapshot
from streameval.server.prometheus.labels import Sample, label


def auction_samples(snapshot: Snapshot, gone: Collection[Series]) -> Iterator[list[Sample]]:
    """Versions in `gone` are left out."""
    for one in snapshot.auctions:
        values = values_of(one.sums.sum(axis=2))
        for v, series in enumerate(one.series):
            if series not in gone:
                yield [*_samples(one, v, series, {name: value[v].tolist() for name, value in values.items()})]


def _samples(one: WindowAuctions, v: int, series: Series, values: dict[str, list[float]]) -> Iterator[Sample]:
    at = (label(series.model), label(series.version), series.source, one.window)
    for p, point in enumerate(one.settings.points):
        where = (*at, label(point.name))
        samples = (
            ("auction_click_yield", (*where, "all"), values["click_yield"][p]),
            ("auction_click_yield", (*where, "mainline"), values["mainline_click_yield"][p]),
            ("auction_mainline_ads", where, values["mainline_ads"][p]),
            ("auction_replayed_ratio", where, values["replayed_share"][p]),
        )
        yield from (sample for sample in samples if math.isfinite(sample[2]))

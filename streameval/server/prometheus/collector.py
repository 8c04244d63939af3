"""The Prometheus collector: reads the latest snapshot, builds new families on each scrape, keeps to a series budget.

The families of the flow come first and always; then each series (model, version, source), deploys and comparisons (the
newest first), buckets, slices, those with the most impressions first, strata and gauges with labels of their own, and last objectives. Once a group does not fit into `max_series`, it and the rest of its kind
are left out whole, and counted by family.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample as Exposed

from streameval.events.batch import Series
from streameval.metrics.metric import Gauge
from streameval.results.publish import Publisher
from streameval.results.result import Result
from streameval.results.window_slices import SliceRow
from streameval.server.prometheus.auction_samples import auction_samples
from streameval.server.prometheus.comparison_samples import comparison_samples, deploy_samples
from streameval.server.prometheus.families import (
    BY_NAME,
    FAMILIES,
    IN_SLICES,
    OF_METRICS,
    OF_OBJECTIVES,
    labelled_gauges,
)
from streameval.server.prometheus.flow import RESTORED, flow_samples, timestamp
from streameval.server.prometheus.held_counts import HeldCounts
from streameval.server.prometheus.labels import Sample, label

_COUNTS = ("impressions", "clicks", "predicted_clicks", "log_loss_nats", "squared_error")  # from the start, of a series
_SLICE_COUNTS = _COUNTS[:4]
_CUT = [family.name for family in FAMILIES if family.labels[:1] == ("model_name",)]


class SnapshotCollector(Collector):
    """Collects the latest snapshot of `publisher`; versions unseen for `version_ttl` seconds are left out."""

    def __init__(
        self,
        publisher: Publisher,
        *,
        version: str,
        version_ttl: float,
        max_series: int,
        clock: Callable[[], float] = time.time,
        scraped: Path | None = None,
    ) -> None:
        """`scraped`: a file for what counters have shown."""
        self._publisher = publisher
        self._version = version
        self._version_ttl = version_ttl
        self._max_series = max_series
        self._clock = clock
        self._lock = threading.Lock()
        self._dropped: dict[str, int] = {}
        self._held = HeldCounts(scraped)

    def describe(self) -> Iterable[Metric]:
        """Nothing: without this, registering would collect."""
        return []

    def collect(self) -> Iterator[Metric]:
        """New families, in the order of the table; a family without a value is absent."""
        started = time.perf_counter()
        with self._lock:  # one scrape at a time, so that counters that are held go forward only
            sheet = self._fill()
        sheet.add(("series", (), sheet.size + 2))
        sheet.add(("collect_duration_seconds", (), time.perf_counter() - started))
        return sheet.families()

    def _fill(self) -> _Sheet:
        snapshot = self._publisher.latest()
        oldest = self._clock() - self._version_ttl
        gone = {series for series, seen in snapshot.last_seen.items() if seen < oldest}
        results = [r for r in snapshot.results.overall if r.series not in gone]
        overall: dict[Series, list[Result]] = {}
        of_objectives = [r for r in results if r.series.objective]
        for result in (r for r in results if not r.series.objective):
            overall.setdefault(result.series, []).append(result)
        sliced: dict[tuple[object, ...], list[SliceRow]] = {}
        for row in snapshot.results.rows():
            if not row.series.objective and row.series not in gone:
                sliced.setdefault((row.series, row.slice), []).append(row)

        sheet = _Sheet()
        sheet.add(("build_info", (self._version,), 1))
        self._held.begin(snapshot)
        for family, labels, value in flow_samples(snapshot, gone):
            sheet.add((family, labels, self._held.hold((family, labels), (value,))[0] if family in RESTORED else value))
        # to come: `series`, the time taken, and a drop counter for each family that can be cut
        room = self._max_series - 2 - len(_CUT) - sheet.size
        room = self._fit(sheet, room, ([*self._overall(rs)] for rs in overall.values()))
        room = self._fit(sheet, room, deploy_samples(snapshot, gone))
        room = self._fit(sheet, room, comparison_samples(snapshot, gone))
        room = self._fit(sheet, room, ([*self._buckets(rs)] for rs in overall.values()))
        room = self._fit_slices(sheet, room, sorted(sliced.values(), key=_most_first))
        room = self._fit(sheet, room, ([*_labelled(rs), *_stratified(rs)] for rs in overall.values()))
        room = self._fit(sheet, room, auction_samples(snapshot, gone))
        self._fit(sheet, room, map(_objective, of_objectives))
        for family, count in sorted(self._dropped.items()):
            sheet.add(("series_dropped_total", ("streameval_" + family,), count))
        self._held.end()
        return sheet

    def _fit(self, sheet: _Sheet, room: int, groups: Iterable[list[Sample]]) -> int:
        full = False
        for group in groups:
            full = full or len(group) > room
            if full:
                for family, _, _ in group:
                    self._dropped[family] = self._dropped.get(family, 0) + 1
                continue
            room -= len(group)
            for sample in group:
                sheet.add(sample)
        return 0 if full else room

    def _fit_slices(
        self,
        sheet: _Sheet,
        room: int,
        groups: Iterable[list[SliceRow]],
    ) -> int:
        """As `_fit`. There may be thousands beyond the limit, and their numbers are not made to be left out."""
        full = False
        alike: dict[tuple[bool, int], list[str]] = {}  # few slices differ in why they have no value
        left_out = Counter[tuple[bool, int]]()
        for rows in groups:
            kinds = [(row.window == "all", id(row.reasons)) for row in rows]
            for row, kind in zip(rows, kinds, strict=True):
                if kind not in alike:
                    alike[kind] = [*_names_of_slice(row)]
            full = full or sum(len(alike[kind]) for kind in kinds) > room
            if full:
                left_out.update(kinds)
                continue
            before = sheet.size
            for sample in self._slices([row.result() for row in rows]):
                sheet.add(sample)
            room -= sheet.size - before
        for kind, count in left_out.items():
            for name in alike[kind]:
                self._dropped[name] = self._dropped.get(name, 0) + count
        return 0 if full else room

    def _overall(self, results: list[Result]) -> Iterator[Sample]:
        for result in results:
            labels = _labels(result.series)
            if result.window == "all":
                t = result.totals
                counts = (t.impressions, t.clicks, t.predicted_clicks, t.log_loss_nats, t.squared_error)
                values = self._held.hold((result.series,), counts)
                for name, value in zip(_COUNTS, values, strict=True):
                    yield f"{name}_total", labels, value
                newest = timestamp(result.newest_label)
                if newest is not None:
                    yield "newest_label_timestamp_seconds", labels, newest
            at = (*labels, result.window)
            yield from _gauges(result, "", OF_METRICS, at)
            yield "window_impressions", at, result.totals.impressions
            yield "window_clicks", at, result.totals.clicks
            if result.matured_share is not None:
                yield "window_matured_ratio", at, result.matured_share
            yield "result_reliable", at, float(result.reliable)
            yield "result_violations", at, result.violations

    def _buckets(self, results: list[Result]) -> Iterator[Sample]:
        for result in results:
            if result.window != "all":
                continue
            for i, bucket in enumerate(result.buckets):
                predicted = (bucket.mean_pclick or 0.0) * bucket.impressions
                counts = (bucket.impressions, bucket.clicks, predicted)
                # new edges are other buckets: nothing is held over from them
                key = (result.series, "bucket", bucket.lower, bucket.upper)
                at = (*_labels(result.series), f"{i:02d}")
                for name, value in zip(
                    ("impressions", "clicks", "predicted_clicks"), self._held.hold(key, counts), strict=True
                ):
                    yield f"bucket_{name}_total", at, value

    def _slices(self, results: list[Result]) -> Iterator[Sample]:
        for result in results:
            assert result.slice is not None
            labels = (*_labels(result.series), label(result.slice[0]), label(result.slice[1]))
            t = result.totals
            if result.window == "all":
                counts = (t.impressions, t.clicks, t.predicted_clicks, t.log_loss_nats)
                values = self._held.hold((result.series, result.slice), counts)
                for name, value in zip(_SLICE_COUNTS, values, strict=True):
                    yield f"slice_{name}_total", labels, value
            at = (*labels, result.window)
            yield from _gauges(result, "slice_", IN_SLICES, at)
            yield "slice_window_impressions", at, t.impressions
            yield "slice_window_clicks", at, t.clicks


class _Sheet:
    """The samples of one scrape, by family."""

    def __init__(self) -> None:
        self._rows: dict[str, Metric] = {}
        self.size = 0

    def add(self, sample: Sample) -> None:
        name, labels, value = sample
        family = self._rows.get(name)
        if family is None:
            family = self._rows[name] = BY_NAME[name].new()
        kind = BY_NAME[name]
        if kind.kind == "histogram":  # labels: what follows the name, with the upper edge of a bucket
            suffix, *le = labels
            family.samples.append(Exposed(kind.exposed + suffix, {"le": le[0]} if le else {}, value))
        else:
            family.samples.append(Exposed(kind.exposed, dict(zip(kind.labels, labels, strict=True)), value))
        self.size += 1

    def families(self) -> Iterator[Metric]:
        return (self._rows[family.name] for family in FAMILIES if family.name in self._rows)


def _gauges(result: Result, prefix: str, gauges: Iterable[tuple[str, Gauge]], at: tuple[str, ...]) -> Iterator[Sample]:
    for metric, gauge in gauges:
        value, error = result.metrics.get(metric), result.stderrs.get(metric)
        labels = (*at, *(value for _, value in gauge.labels))
        if value is not None and value == value:  # noqa: PLR0124  (a NaN would poison every aggregation)
            yield prefix + gauge.name, labels, gauge.value(value)
        if gauge.stderr is not None and error is not None and math.isfinite(error):
            yield f"{prefix}{gauge.name}_stderr", labels, error


def _names_of_slice(row: SliceRow) -> Iterator[str]:
    """The families of its samples, without their values."""
    if row.window == "all":
        yield from (f"slice_{name}_total" for name in _SLICE_COUNTS)
    for metric, gauge in IN_SLICES:
        if metric not in row.reasons:
            yield f"slice_{gauge.name}"
            if gauge.stderr is not None:
                yield f"slice_{gauge.name}_stderr"
    yield from ("slice_window_impressions", "slice_window_clicks")


def _labelled(results: list[Result]) -> Iterator[Sample]:
    for result in results:
        yield from _gauges(result, "", labelled_gauges(result.metrics), (*_labels(result.series), result.window))


def _stratified(results: list[Result]) -> Iterator[Sample]:
    for result in results:
        for metric, weightings in (result.stratified or {}).items():
            for weighting, value in weightings.items():
                if value is not None:
                    yield "stratified", (*_labels(result.series), result.window, metric, weighting), value


def _objective(result: Result) -> list[Sample]:
    at = (*_labels(result.series), result.window, label(result.series.objective))
    out: list[Sample] = [
        ("objective_window_impressions", at, result.totals.impressions),
        ("objective_window_positives", at, result.totals.clicks),
    ]
    for metric in OF_OBJECTIVES:
        value, error = result.metrics.get(metric), result.stderrs.get(metric)
        if value is not None and math.isfinite(value):
            out.append(("objective_metric", (*at, metric), value))
            if error is not None and math.isfinite(error):
                out.append(("objective_metric_stderr", (*at, metric), error))
    return out


def _most_first(rows: list[SliceRow]) -> tuple[object, ...]:
    return (
        -max(row.impressions for row in rows),
        rows[0].series.model,
        rows[0].series.version,
        rows[0].series.source,
        rows[0].slice,
    )


def _labels(series: Series) -> tuple[str, str, str]:
    return label(series.model), label(series.version), series.source

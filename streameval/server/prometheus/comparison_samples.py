"""The samples about deploys and comparisons, in groups, the newest first, for the series budget to cut."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from streameval.compare.reading.choice import newest_first
from streameval.compare.reading.reading import VERDICTS, Comparison, Verdict
from streameval.events.batch import Series
from streameval.results.snapshot import Snapshot
from streameval.server.prometheus.flow import timestamp
from streameval.server.prometheus.labels import Sample, label

_OVERALL = "overall"  # in place of a metric


def deploy_samples(snapshot: Snapshot, gone: Collection[Series]) -> Iterator[list[Sample]]:
    """When each version last went live, in each way; a version in `gone` is left out."""
    left = _versions_left(snapshot, gone)
    seen = set()
    for deploy in newest_first(snapshot.deploys):
        labels = (label(deploy.model), label(deploy.version), deploy.kind)
        at = timestamp(deploy.at)
        if at is None or labels in seen or left.get((deploy.model, deploy.version)) is False:
            continue
        seen.add(labels)
        yield [("deploy_timestamp_seconds", labels, at)]


def comparison_samples(snapshot: Snapshot, gone: Collection[Series]) -> Iterator[list[Sample]]:
    """Each comparison's samples; of two with the same labels (a version deployed again) the newer one.

    Comparisons of a candidate in `gone` are left out. A baseline does not matter: after a deploy it is usually gone.
    """
    seen = set()
    for c in sorted(snapshot.comparisons, key=lambda c: c.start, reverse=True):
        labels = (label(c.candidate.model), label(c.baseline.version), label(c.candidate.version), c.setup)
        if c.candidate not in gone and labels not in seen:
            seen.add(labels)
            yield [*_samples(c, labels)]


def _samples(c: Comparison, labels: tuple[str, ...]) -> Iterator[Sample]:
    yield "comparison_withheld", labels, float(c.withheld)
    yield "comparison_impressions", labels, c.impressions
    yield "comparison_clicks", labels, c.clicks
    if c.handling is not None:
        yield "comparison_handled", (*labels, c.handling.state), 1.0
    start = timestamp(c.start)
    if start is not None:
        yield "comparison_start_timestamp_seconds", labels, start
    yield from _decision(c, labels)
    yield from _evidence((*labels, _OVERALL), c.log_e_worse, c.verdict)
    yield from _mixes(c, labels)
    for reading in c.metrics:
        at = (*labels, reading.metric)
        numbers = {
            "comparison_difference": reading.difference,
            "comparison_lower_bound": reading.lower,
            "comparison_upper_bound": reading.upper,
            "comparison_margin": reading.margin,
        }
        for family, value in numbers.items():
            if value is not None and math.isfinite(value):
                yield family, at, value
        yield from _evidence(at, reading.log_e_worse, reading.verdict)


def _mixes(c: Comparison, labels: tuple[str, ...]) -> Iterator[Sample]:
    """The Simpson guard, and of a paired comparison its second reading."""
    for mix in c.mixes:
        yield "comparison_simpson", (*labels, label(mix.dimension), mix.metric), float(mix.simpson)
        if c.setup == "paired":
            yield "comparison_uniform_exposure", (*labels, mix.metric), mix.within
            if mix.within_stderr is not None:
                yield "comparison_uniform_exposure_stderr", (*labels, mix.metric), mix.within_stderr


def _decision(c: Comparison, labels: tuple[str, ...]) -> Iterator[Sample]:
    """The metric that decided the verdict; nothing while there is none."""
    if c.supported_now is not None:
        yield "comparison_supported", labels, float(c.supported_now)
    decided_at = timestamp(c.decided_at)
    if c.decided_on is None or decided_at is None:
        return
    at = (*labels, c.decided_on.metric)
    yield "comparison_decided_timestamp_seconds", at, decided_at
    then = c.decided_on.then
    numbers = {
        "comparison_decided_difference": then.difference,
        "comparison_decided_lower_bound": then.lower,
        "comparison_decided_upper_bound": then.upper,
    }
    for family, value in numbers.items():
        if value is not None and math.isfinite(value):
            yield family, at, value


def _evidence(at: tuple[str, ...], log_e: float, verdict: Verdict) -> Iterator[Sample]:
    if not math.isnan(log_e):
        yield "comparison_log_e", at, log_e
    for one in VERDICTS:
        yield "comparison_verdict", (*at, one), float(one == verdict)


def _versions_left(snapshot: Snapshot, gone: Collection[Series]) -> dict[tuple[str, str], bool]:
    """Whether any series of a version is left; a version never seen is not in it."""
    left: dict[tuple[str, str], bool] = {}
    for series in snapshot.last_seen:
        version = (series.model, series.version)
        left[version] = left.get(version, False) or series not in gone
    return left

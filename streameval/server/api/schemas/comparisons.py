"""The shapes of the answers about deploys and comparisons."""

from __future__ import annotations

from streameval.compare.reading import handling, notified, reading
from streameval.compare.reading.handling import HandlingState
from streameval.compare.reading.reading import RoleName, Setup
from streameval.compare.reading.reading import Verdict as Word
from streameval.server.api.schemas.shape import Shape, Stamped
from streameval.server.api.shapes import plus, shape

_OF_A_METRIC = dict.fromkeys(("difference", "lower", "upper", "margin"), float | None) | {"reason": str | None}


@shape(reading.Deploy, kind=str)
class Deploy(Shape):
    pass


class Deploys(Stamped):
    """Deploys, newest first; `matched` counts them before `limit`."""

    matched: int
    truncated: bool
    deploys: list[Deploy]


class AnnouncedDeploy(Deploy):
    """The deploy as it will be recorded; `id` is null until the monitor has accepted it, with its next snapshot."""

    id: str | None  # wider than a record's, on purpose


class Announced(Stamped):
    """The announcement that was accepted; `warning` says so if its model has had no traffic while others have."""

    deploy: AnnouncedDeploy
    warning: str | None


@shape(reading.Estimate)
class Estimate(Shape):
    pass


@shape(reading.DecidedOn)
class DecidedOn(Estimate):
    pass


@shape(reading.MetricReading)
class Reading(Shape):
    pass


@shape(notified.Told)
class Told(Shape):
    pass


@shape(reading.VerdictChange, kind=str)
class Change(Shape):
    pass


@shape(reading.Finding)
class Finding(Shape):
    pass


@shape(reading.CalibrationBucket)
class CalibrationBucket(Shape):
    pass


@shape(reading.Mix)
class Mix(Shape):
    pass


@shape(reading.UnknownMix)
class UnknownMix(Shape):
    pass


@shape(reading.EarlyReading)
class Early(Shape):
    pass


@shape(handling.Handling)
class Handling(Shape):
    pass


class Handled(Stamped):
    """The handling of a comparison; null: there is none, or it was undone."""

    comparison: str
    handling: Handling | None


class ComparedSeries(Shape):
    """One side of a comparison; `role` is live (with `traffic_share`), shadow, learning or retired."""

    model: str
    version: str
    source: str
    role: RoleName | None
    traffic_share: float | None


@shape(reading.Comparison, baseline=ComparedSeries, candidate=ComparedSeries)
class Comparison(Shape):
    pass


class Comparisons(Stamped):
    """Comparisons, newest first; `matched` counts them before `limit`."""

    matched: int
    truncated: bool
    comparisons: list[Comparison]


class LookAtMetric(Shape):
    """One metric at a look."""

    difference: float | None = None
    lower: float | None = None
    upper: float | None = None
    log_e: float | None = None


class Look(Shape):
    """One look: the overall evidence for `worse`, and each metric by its name."""

    at: str | None
    impressions: int
    clicks: int | None
    log_e: float | None
    metrics: dict[str, LookAtMetric]


class ComparisonWithLooks(Stamped, Comparison):
    """One comparison over time; at most a few hundred looks, oldest first."""

    looks: list[Look]


@plus({f"{part}_{metric}": kind for metric in reading.COMPARED for part, kind in _OF_A_METRIC.items()})
class Verdict(Stamped):
    """The verdict on a model's newest deploy, flat. `warning_only`: a setup that cannot prove anything.

    `decided_on` is the metric that decided it, `decided_difference` and its bounds are as they were then; `supported_now`: whether
    current data still support it. `handled`: whether somebody has acknowledged or muted it.
    """

    model: str
    candidate: str | None
    baseline: str | None
    setup: Setup | None
    deploy: str | None
    deployed_at: str | None
    comparison: str | None
    verdict: Word
    worse: bool
    not_worse: bool
    warning_only: bool
    reliable: bool
    reason: str | None
    since: str | None
    decided_at: str | None
    decided_on: str | None
    decided_difference: float | None
    decided_lower: float | None
    decided_upper: float | None
    supported_now: bool | None
    looked: str | None
    words: str
    handled: HandlingState | None
    handled_by: str | None
    handled_reason: str | None
    alpha: float | None
    log_e: float | None
    log_e_not_worse: float | None
    p_value: float | None
    impressions: int
    clicks: int

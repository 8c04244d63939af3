"""What a comparison tells its readers: immutable, made at a look, shown by the API, Prometheus and the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streameval.events import Series

Verdict = Literal["worse", "not_worse", "undecided"]
Setup = Literal["paired", "split", "before_after"]
RoleName = Literal["live", "shadow", "learning", "retired"]
VERDICTS: tuple[Verdict, ...] = ("worse", "not_worse", "undecided")
SETUPS: tuple[Setup, ...] = ("paired", "split", "before_after")  # best first
METRICS = ("log_loss", "auc", "gauc", "calibration")
SIGN = {"log_loss": 1.0, "auc": -1.0, "gauc": -1.0, "calibration": 1.0}  # of a difference, in harm


@dataclass(frozen=True, slots=True)
class Deploy:
    """A version that went live, in whatever way. Times are event time in ms."""

    id: str  # stable, fit for an address: "<number>"; counts from 1 in order of `at` when it became known
    model: str
    version: str
    replaces: str | None  # the version that served most before; None: nothing did
    at: int  # the start of the first pane of its traffic, or the announced time
    kind: Literal["deploy", "rollback", "shadow"]
    noticed: int | None  # when its traffic passed the floor; None: not yet
    announced: bool = False  # by CI/CD
    note: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class MetricReading:
    """One metric of a comparison. `difference` is candidate less baseline; log loss and calibration are ratios less 1.

    Bounds hold at every look at once with probability 1 - alpha. None: not known, `reason` says why.
    """

    metric: str
    baseline: float | None
    candidate: float | None
    difference: float | None
    lower: float | None
    upper: float | None
    stderr: float | None
    margin: float  # `worse` is beyond it
    tolerance: float  # `not_worse` is within it
    log_e_worse: float  # current evidence, natural logarithm of the e-value; 0: none
    log_e_not_worse: float
    p_worse: float  # anytime p-value, from the largest e so far
    verdict: Verdict  # of this metric by itself, at alpha
    reason: str | None = None
    decided_at: int | None = None  # ms: when this metric's own verdict fell
    supported_now: bool | None = None  # whether the evidence of now would lead to it again; None: undecided


@dataclass(frozen=True, slots=True)
class Estimate:
    """The difference of a metric, as in `MetricReading`; each bound holds at every look with probability 1 - alpha by itself.

    None: not known.
    """

    difference: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True, slots=True)
class DecidedOn:
    """What a verdict fell on, as it was then; its words name this metric as long as the verdict stands."""

    metric: str
    then: Estimate
    since: int | None  # ms: where the traffic begins that it is of; None: not known
    alone: bool  # whether this metric's bound shows the verdict by itself; else all metrics together led to it


@dataclass(frozen=True, slots=True)
class Role:
    """What a series is there for, just now."""

    name: RoleName
    traffic_share: float | None = None  # of its model's recent impressions; of live ones alone


@dataclass(frozen=True, slots=True)
class VerdictChange:
    """Something that is on record about a verdict. `at`: event time, ms."""

    at: int
    kind: Literal["verdict", "contrary", "retracted", "withheld", "restored", "anew"]
    verdict: Verdict
    text: str
    evidence: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Looks:
    """The confidence sequence and the e-process over time, oldest first; thinned to at most a few hundred looks."""

    at: NDArray[np.int64]  # ms
    impressions: NDArray[np.int64]
    log_e: NDArray[np.float64]  # overall, for worse
    metrics: Mapping[str, Mapping[str, NDArray[np.float64]]]  # metric -> difference, lower, upper, log_e; NaN: unknown
    clicks: NDArray[np.int64] | None = None  # as impressions; None: not kept


@dataclass(frozen=True, slots=True)
class Finding:
    """A part of the traffic, and how much of the log-loss difference it carries."""

    dimension: str  # a slice dimension, "pclick" (bucket of the server's score) or "user"
    value: str
    impressions: int
    clicks: int
    difference: float | None  # candidate less baseline, nats per impression
    share: float | None  # of the whole difference that this part carries
    log_e: float
    significant: bool  # kept by e-BH at the comparison's level


@dataclass(frozen=True, slots=True)
class CalibrationBucket:
    """Calibration of both versions where their own pClick is in a bucket, on what each served, in the hours in which both did.

    Calibration is E/O: predicted clicks over clicks, of the mix of hours that both have.
    """

    bucket: str  # "0.02-0.05"
    baseline_impressions: int
    baseline_clicks: int
    baseline: float | None  # E/O
    candidate_impressions: int
    candidate_clicks: int
    candidate: float | None
    difference: float | None  # |candidate - 1| - |baseline - 1|
    stderr: float | None
    log_e: float  # that the difference is beyond the margin of calibration
    significant: bool  # kept by e-BH at the comparison's level


@dataclass(frozen=True, slots=True)
class Mix:
    """The difference of two arms in one dimension, taken apart: what the mix of values explains, and what is within.

    `simpson` when the aggregate and the strata disagree in sign beyond their errors.
    """

    dimension: str
    metric: str
    total: float
    mix: float
    within: float
    within_stderr: float | None
    simpson: bool
    text: str | None = None


@dataclass(frozen=True, slots=True)
class EarlyReading:
    """Estimates before labels are mature; never a verdict."""

    name: str  # promised_auc, promised_ctr, corrected_calibration, score_shift
    baseline: float | None
    candidate: float | None
    reason: str | None = None


def shows(
    verdict: Verdict, metric: str, lower: float | None, upper: float | None, margin: float, tolerance: float
) -> bool:
    """Whether the bounds of a difference show a verdict: the one towards the other side is beyond the margin (of `worse`), or
    within the tolerance (of `not_worse`). Nothing shows `undecided`.
    """
    low, high = (lower, upper) if SIGN[metric] > 0 else (upper, lower)  # of harm, but for the sign
    if verdict == "worse":
        return low is not None and SIGN[metric] * low > margin
    return verdict == "not_worse" and high is not None and SIGN[metric] * high < tolerance


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """One candidate against one baseline in one setup. Times are event time in ms."""

    id: str  # stable, fit for an address: "<deploy id>-<setup>"
    deploy: str
    setup: Setup
    baseline: Series
    candidate: Series
    start: int
    looked: int | None  # the end of the last complete pane that was looked at
    impressions: int  # that the comparison rests on
    clicks: int
    blocks: int  # of users, that have any
    alpha: float
    verdict: Verdict
    since: int | None  # when the verdict fell
    reason: str | None  # why it is undecided or withheld, or what to do
    withheld: bool  # the join is unhealthy: nothing is decided now
    log_e_worse: float  # overall: the mean of the metrics' e-values
    log_e_not_worse: float
    p_worse: float
    metrics: tuple[MetricReading, ...]
    changes: tuple[VerdictChange, ...] = ()
    looks: Looks | None = None
    findings: tuple[Finding, ...] = ()
    mixes: tuple[Mix, ...] = ()
    calibration_buckets: tuple[CalibrationBucket, ...] = ()
    early: tuple[EarlyReading, ...] = ()
    floors_met: bool = True  # the evidence floors of a verdict: time, clicks, blocks
    decided_at: int | None = (
        None  # ms; as `decided_on` None while undecided, and when it was not kept (older checkpoints)
    )
    decided_on: DecidedOn | None = None
    decided_now: Estimate | None = None  # the same metric of the same traffic, as it is now
    supported_now: bool | None = None  # whether that still shows the verdict; None: as `decided_on`
    clustered_by: str = "user"  # what the variance knows to share errors
    retracted: bool = False  # a verdict was taken back, because the labels that it rested on have changed
    roles: tuple[Role | None, Role | None] = (None, None)  # of baseline and candidate

"""What readers see of a comparison: immutable, built at a look, shown by the API, Prometheus and the page.

Each class is the single definition of a response: its fields, in their order, are the members of the JSON object
(`as_json`) and of the API's schema, its words are the schema's (`server.api.shapes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from streameval.compare.reading.further import further_metric
from streameval.compare.reading.handling import Handling
from streameval.compare.reading.told import Told, Untold
from streameval.events.batch import Series

Time = Annotated[int, "ms"]  # event time; in an answer as its readers write times
Known = Annotated[float, "finite"]  # any other float may be NaN or infinite, and is null in an answer then
_APART = {"apart": True}  # not a member

Verdict = Literal["worse", "not_worse", "undecided"]
Setup = Literal["paired", "split", "before_after"]
RoleName = Literal["live", "shadow", "learning", "retired"]
VERDICTS: tuple[Verdict, ...] = ("worse", "not_worse", "undecided")
SETUPS: tuple[Setup, ...] = ("paired", "split", "before_after")  # best first
COMPARED = ("log_loss", "auc", "gauc", "calibration")
PCLICK, USER = "pclick", "user"  # dimensions of findings that are nobody's slices
SIGN = {"log_loss": 1.0, "auc": -1.0, "gauc": -1.0, "calibration": 1.0}  # of a difference, in harm


@dataclass(frozen=True, slots=True)
class Deploy:
    """A version that went live; `noticed` when its traffic passed the floor, `replaces` what served most before."""

    id: str  # stable, fit for an address: "<number>"; counts from 1 in order of `at` when it became known
    model: str
    version: str
    replaces: str | None  # the version that served most before; None: nothing did
    at: Time  # the start of the first pane of its traffic, or the announced time
    kind: Literal["deploy", "rollback", "shadow"]
    noticed: Time | None  # when its traffic passed the floor; None: not yet
    announced: bool = False  # by CI/CD
    note: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class MetricReading:
    """One metric: candidate minus baseline; of log loss and calibration the ratio less 1.

    Per metric: its interval holds at every look with probability 1 - alpha, its verdict is at alpha, for this metric by itself.
    An interval beyond the margin means that this metric's verdict is `worse` once the floors are met; the comparison's
    verdict weighs all metrics and may be undecided. `supported_now`: whether the evidence of now would lead to the verdict.
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
    decided_at: Time | None = None  # when this metric's own verdict fell
    supported_now: bool | None = None  # whether the evidence of now would lead to it again; None: undecided
    reason: str | None = None  # why something is not known


@dataclass(frozen=True, slots=True)
class Estimate:
    """A difference; each bound holds at every look with probability 1 - alpha for this metric and this side by itself."""

    difference: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True, slots=True)
class DecidedOn:
    """What decided a verdict, as it was then, over the traffic `since`; `alone`: its bound supports the verdict by itself."""

    metric: str
    then: Estimate = field(metadata=_APART)  # its members are the answer's own
    since: Time | None  # where the traffic begins that it is of; None: not known
    alone: bool  # whether this metric's bound shows the verdict by itself; else all metrics together led to it


@dataclass(frozen=True, slots=True)
class Role:
    """The current role of a series."""

    name: RoleName
    traffic_share: float | None = None  # of its model's recent impressions; of live ones alone


@dataclass(frozen=True, slots=True)
class VerdictChange:
    """A change of the verdict; `kind` is verdict, contrary, retracted, withheld, restored or anew, `told` who was notified, `untold` why nobody was, as far as that is known."""

    at: Time
    kind: Literal["verdict", "contrary", "retracted", "withheld", "restored", "anew"]
    verdict: Verdict
    text: str
    evidence: Mapping[str, float] = field(default_factory=dict)
    told: tuple[Told, ...] = ()  # in the order in which they were; not kept with the comparison, but in the outbox
    untold: Untold | None = None  # nor is this


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
    difference: float | None  # candidate minus baseline, nats per impression
    share: float | None  # of the whole difference that this part carries
    log_e: float
    significant: bool  # kept by e-BH at the comparison's level


@dataclass(frozen=True, slots=True)
class CalibrationBucket:
    """Predicted clicks over clicks of both versions in a bucket of their own pClick, on what each served.

    `difference` is |candidate - 1| - |baseline - 1|.
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
    log_e: Known  # that the difference is beyond the margin of calibration
    significant: bool  # kept by e-BH at the comparison's level


@dataclass(frozen=True, slots=True)
class Mix:
    """A difference taken apart: what the mix of values explains, what is within; `simpson` when they disagree."""

    dimension: str
    metric: str
    total: float
    mix: float
    within: float
    within_stderr: float | None
    simpson: bool
    text: str | None = None


@dataclass(frozen=True, slots=True)
class UnknownMix:
    """What the Simpson guard cannot read of a metric, and why."""

    dimension: str
    metric: str
    reason: str


@dataclass(frozen=True, slots=True)
class EarlyReading:
    """An estimate before labels are final; never a verdict."""

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
    sign = sign_of(metric)
    low, high = (lower, upper) if sign > 0 else (upper, lower)  # of harm, but for the sign
    if verdict == "worse":
        return low is not None and sign * low > margin
    return verdict == "not_worse" and high is not None and sign * high < tolerance


def sign_of(metric: str) -> float:
    """The sign of a metric's difference in harm: -1 where more is better. KeyError: it is not compared."""
    further = further_metric(metric)
    return SIGN[metric] if further is None else further.sign


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Comparison:
    """One candidate against one baseline in one setup; `words` says it in a line.

    `decided_on` is the metric that the words name as long as the verdict stands, `decided_now` the same difference as it is
    now, and `supported_now` whether that still supports the verdict.
    """

    id: str  # stable, fit for an address: "<deploy id>-<setup>"
    deploy: str
    setup: Setup
    model: str = field(
        default="", init=False, repr=False
    )  # as `words` in the answer alone, which makes it (see `as_json`)
    baseline: Series
    candidate: Series
    start: Time
    looked: Time | None  # the end of the last complete pane that was looked at
    impressions: int  # that the comparison rests on
    clicks: int
    blocks: int  # of users, that have any
    alpha: Known
    verdict: Verdict
    since: Time | None  # when the verdict fell
    decided_at: Time | None = None  # as `decided_on` None while undecided, and when it was not kept (older checkpoints)
    decided_on: DecidedOn | None = None
    decided_now: Estimate | None = None  # the same metric of the same traffic, as it is now
    supported_now: bool | None = None  # whether that still shows the verdict; None: as `decided_on`
    retracted: bool = False  # a verdict was taken back, because the labels that it rested on have changed
    clustered_by: str = "user"  # what the variance knows to share errors
    reason: str | None  # why it is undecided or withheld, or what to do
    withheld: bool  # the join is unhealthy: nothing is decided now
    floors_met: bool = True  # the evidence floors of a verdict: time, clicks, blocks
    log_e_worse: float  # overall: the mean of the metrics' e-values
    log_e_not_worse: float
    p_worse: float
    words: str = field(default="", init=False, repr=False)
    handling: Handling | None = None  # who has acknowledged or muted it, and why
    metrics: tuple[MetricReading, ...]
    changes: tuple[VerdictChange, ...] = ()
    findings: tuple[Finding, ...] = ()
    calibration_buckets: tuple[CalibrationBucket, ...] = ()
    mixes: tuple[Mix, ...] = ()
    mixes_unknown: tuple[UnknownMix, ...] = ()
    early: tuple[EarlyReading, ...] = ()
    looks: Looks | None = field(default=None, metadata=_APART)
    roles: tuple[Role | None, Role | None] = field(default=(None, None), metadata=_APART)  # of baseline and candidate

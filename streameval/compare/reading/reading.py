"""What readers see of a comparison: immutable, built at a look, shown by the API, Prometheus and the page.

Each class is the single definition of a response: its fields, in their order, are the members of the JSON object
(`as_json`) and of the API's schema, and its docstring is the schema's description (`server.api.shapes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from streameval.compare.reading.further import further_metric
from streameval.compare.reading.handling import Handling
from streameval.compare.reading.notified import Told, Untold
from streameval.events.batch import Series

Time = Annotated[int, "ms"]  # event time; written in an answer as its reader writes times
Known = Annotated[float, "finite"]  # any other float may be NaN or infinite, and is then null in an answer
_APART = {"apart": True}  # not a member of the answer

Verdict = Literal["worse", "not_worse", "undecided"]
Setup = Literal["paired", "split", "before_after"]
RoleName = Literal["live", "shadow", "learning", "retired"]
VERDICTS: tuple[Verdict, ...] = ("worse", "not_worse", "undecided")
SETUPS: tuple[Setup, ...] = ("paired", "split", "before_after")  # best first
COMPARED = ("log_loss", "auc", "gauc", "calibration")
PCLICK, USER = "pclick", "user"  # dimensions of findings that are not slices of the settings
SIGN = {"log_loss": 1.0, "auc": -1.0, "gauc": -1.0, "calibration": 1.0}  # turns a difference into harm


@dataclass(frozen=True, slots=True)
class Deploy:
    """A version that went live; `noticed` is when its traffic passed the floor, `replaces` the version that served most
    before.
    """

    id: str  # stable, can be used in a URL: "<number>"; counts from 1 in the order in which deploys became known
    model: str
    version: str
    replaces: str | None  # the version that served most before; None: there was none
    at: Time  # the start of the first pane of its traffic, or the announced time
    kind: Literal["deploy", "rollback", "shadow"]
    noticed: Time | None  # when its traffic passed the floor; None: not yet
    announced: bool = False  # by CI/CD
    note: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class MetricReading:
    """One metric: candidate minus baseline; for log loss and calibration their ratio less 1.

    The interval holds at every look with probability 1 - alpha, for this metric by itself, and the verdict is at level
    alpha. An interval beyond the margin means that this metric's verdict is `worse` once the floors are met; the
    comparison's verdict weighs all metrics and may be undecided. `supported_now`: whether the current evidence would
    lead to the same verdict.
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
    decided_at: Time | None = None  # when this metric's own verdict was reached
    supported_now: bool | None = None  # whether the current evidence would lead to it again; None: undecided
    reason: str | None = None  # why a value is not known


@dataclass(frozen=True, slots=True)
class Estimate:
    """A difference; each bound holds at every look with probability 1 - alpha for this metric and this side by itself."""

    difference: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True, slots=True)
class DecidedOn:
    """What a verdict was decided on, as it was then, over the traffic since `since`; `alone`: its bound supports the
    verdict by itself; `capped`: the version is worse with each user's impressions a day capped (`compare.user_cap`), for most
    users, which the difference over all impressions does not show.
    """

    metric: str
    then: Estimate = field(metadata=_APART)  # its members are the answer's own
    since: Time | None  # where the traffic that it covers begins; None: not known
    alone: bool  # whether this metric's bound shows the verdict by itself; otherwise all metrics together led to it
    capped: bool = False  # whether only the sums under `compare.user_cap` show it


@dataclass(frozen=True, slots=True)
class Role:
    """The current role of a series."""

    name: RoleName
    traffic_share: float | None = None  # of its model's recent impressions; only for live ones


@dataclass(frozen=True, slots=True)
class VerdictChange:
    """A change of the verdict; `kind` is verdict, contrary, retracted, withheld, restored or anew (restarted), `told`
    who was notified, and `untold` why nobody was, as far as that is known.
    """

    at: Time
    kind: Literal["verdict", "contrary", "retracted", "withheld", "restored", "anew"]
    verdict: Verdict
    text: str
    evidence: Mapping[str, float] = field(default_factory=dict)
    told: tuple[Told, ...] = ()  # in the order of notification; stored in the outbox, not with the comparison
    untold: Untold | None = None  # stored in the outbox, too


@dataclass(frozen=True, slots=True, eq=False)
class Looks:
    """The confidence sequence and the e-process over time, oldest first; thinned to a few hundred looks."""

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
    share: float | None  # of the total difference that this part carries
    log_e: float
    significant: bool  # kept by e-BH at the comparison's level


@dataclass(frozen=True, slots=True)
class CalibrationBucket:
    """Predicted clicks over clicks of both versions in a bucket of their own pClick, over what each served.

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
    log_e: Known  # for a difference beyond the margin of calibration
    significant: bool  # kept by e-BH at the comparison's level


@dataclass(frozen=True, slots=True)
class Mix:
    """A difference decomposed into what the mix of values explains and what remains within them; `simpson` when the two
    disagree.
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
class UnknownMix:
    """A metric for which the Simpson guard cannot say anything, and why."""

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
    """Whether the bounds of a difference show a verdict: for `worse` the lower bound of harm is beyond the margin, for
    `not_worse` the upper one is within the tolerance. Nothing shows `undecided`.
    """
    sign = sign_of(metric)
    low, high = (lower, upper) if sign > 0 else (upper, lower)  # bounds of harm, up to the sign
    if verdict == "worse":
        return low is not None and sign * low > margin
    return verdict == "not_worse" and high is not None and sign * high < tolerance


def sign_of(metric: str) -> float:
    """Returns the sign that turns a metric's difference into harm: -1 where more is better. KeyError if it is not
    compared.
    """
    further = further_metric(metric)
    return SIGN[metric] if further is None else further.sign


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Comparison:
    """One candidate against one baseline in one setup; `words` sums it up in a line.

    `decided_on` is the metric that the words name as long as the verdict stands, `decided_now` the current value of the
    same difference, and `supported_now` whether that still supports the verdict.
    """

    id: str  # stable, can be used in a URL: "<deploy id>-<setup>"
    deploy: str
    setup: Setup
    # like `words`, only in the answer, which makes it (see `as_json`)
    model: str = field(default="", init=False, repr=False)
    baseline: Series
    candidate: Series
    start: Time
    looked: Time | None  # the end of the last complete pane that was evaluated
    impressions: int  # that the comparison is based on
    clicks: int
    blocks: int  # blocks of users that have any impressions
    alpha: Known
    verdict: Verdict
    since: Time | None  # when the verdict was reached
    decided_at: Time | None = None  # like `decided_on`: None while undecided, and in older checkpoints
    decided_on: DecidedOn | None = None
    decided_now: Estimate | None = None  # the current value of the same metric over the same traffic
    supported_now: bool | None = None  # whether that still shows the verdict; None: as `decided_on`
    retracted: bool = False  # a verdict was retracted, because the labels that it was based on have changed
    clustered_by: str = "user"  # what the variance is clustered by
    reason: str | None  # why it is undecided or withheld, or advice
    withheld: bool  # the join is unhealthy: no verdict is reached for now
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

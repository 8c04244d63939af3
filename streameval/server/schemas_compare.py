"""The shapes of the answers about deploys and comparisons; see `schemas`."""

from __future__ import annotations

from streameval.compare.reading import RoleName, Setup
from streameval.compare.reading import Verdict as Word
from streameval.server.schemas import _Series, _Shape, _Stamped


class Deploy(_Shape):
    """A version that went live; `noticed` when its traffic passed the floor, `replaces` what served most before."""

    id: str
    model: str
    version: str
    replaces: str | None
    at: str | None
    kind: str
    noticed: str | None
    announced: bool
    note: str
    link: str


class Deploys(_Stamped):
    """Deploys, newest first; `matched` counts them before `limit`."""

    matched: int
    truncated: bool
    deploys: list[Deploy]


class AnnouncedDeploy(Deploy):
    """As it will be on record; `id` is null until the monitor has taken it, with its next snapshot."""

    id: str | None  # type: ignore[assignment]  # wider than a record's, on purpose


class Announced(_Stamped):
    """What has been announced."""

    deploy: AnnouncedDeploy


class Estimate(_Shape):
    """A difference; each bound holds at every look with probability 1 - alpha for this metric and this side by itself."""

    difference: float | None
    lower: float | None
    upper: float | None


class DecidedOn(Estimate):
    """What a verdict fell on, as it was then, over the traffic `since`; `alone`: its bound shows the verdict by itself."""

    metric: str
    since: str | None
    alone: bool


class Reading(_Shape):
    """One metric: candidate less baseline; of log loss and calibration the ratio less 1.

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
    margin: float | None
    tolerance: float | None
    log_e_worse: float | None
    log_e_not_worse: float | None
    p_worse: float | None
    verdict: Word
    decided_at: str | None
    supported_now: bool | None
    reason: str | None


class Change(_Shape):
    """Something on record about the verdict; `kind` is verdict, contrary, retracted, withheld, restored or anew."""

    at: str | None
    kind: str
    verdict: Word
    text: str
    evidence: dict[str, float | None]


class Finding(_Shape):
    """A part of the traffic, and how much of the log-loss difference it carries."""

    dimension: str
    value: str
    impressions: int
    clicks: int
    difference: float | None
    share: float | None
    log_e: float | None
    significant: bool


class CalibrationBucket(_Shape):
    """Predicted clicks over clicks of both versions in a bucket of their own pClick, on what each served.

    `difference` is |candidate - 1| - |baseline - 1|.
    """

    bucket: str
    baseline_impressions: int
    baseline_clicks: int
    baseline: float | None
    candidate_impressions: int
    candidate_clicks: int
    candidate: float | None
    difference: float | None
    stderr: float | None
    log_e: float
    significant: bool


class Mix(_Shape):
    """A difference taken apart: what the mix of values explains, what is within; `simpson` when they disagree."""

    dimension: str
    metric: str
    total: float | None
    mix: float | None
    within: float | None
    within_stderr: float | None
    simpson: bool
    text: str | None


class Early(_Shape):
    """An estimate before labels are final; never a verdict."""

    name: str
    baseline: float | None
    candidate: float | None
    reason: str | None


class ComparedSeries(_Series):
    """One side of a comparison; `role` is live (with `traffic_share`), shadow, learning or retired."""

    role: RoleName | None
    traffic_share: float | None


class Comparison(_Shape):
    """One candidate against one baseline in one setup; `words` says it in a line.

    `decided_on` is the metric that the words name as long as the verdict stands, `decided_now` the same difference as it is
    now, and `supported_now` whether that still shows the verdict.
    """

    id: str
    deploy: str
    setup: Setup
    model: str
    baseline: ComparedSeries
    candidate: ComparedSeries
    start: str | None
    looked: str | None
    impressions: int
    clicks: int
    blocks: int
    alpha: float
    verdict: Word
    since: str | None
    decided_at: str | None
    decided_on: DecidedOn | None
    decided_now: Estimate | None
    supported_now: bool | None
    retracted: bool
    clustered_by: str
    reason: str | None
    withheld: bool
    floors_met: bool
    log_e_worse: float | None
    log_e_not_worse: float | None
    p_worse: float | None
    words: str
    metrics: list[Reading]
    changes: list[Change]
    findings: list[Finding]
    calibration_buckets: list[CalibrationBucket]
    mixes: list[Mix]
    early: list[Early]


class Comparisons(_Stamped):
    """Comparisons, newest first; `matched` counts them before `limit`."""

    matched: int
    truncated: bool
    comparisons: list[Comparison]


class LookAtMetric(_Shape):
    """One metric at a look."""

    difference: float | None = None
    lower: float | None = None
    upper: float | None = None
    log_e: float | None = None


class Look(_Shape):
    """What was known at a time: the overall evidence for `worse`, and each metric by its name."""

    at: str | None
    impressions: int
    clicks: int | None
    log_e: float | None
    metrics: dict[str, LookAtMetric]


class ComparisonWithLooks(_Stamped, Comparison):
    """One comparison over time; at most a few hundred looks, oldest first."""

    looks: list[Look]


class Verdict(_Stamped):
    """The verdict on a model's newest deploy, flat. `warning_only`: a setup that cannot prove anything.

    `decided_on` is the metric that it fell on, `decided_difference` and its bounds are those of then; `supported_now`: whether
    what is known now still shows it.
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
    alpha: float | None
    log_e: float | None
    log_e_not_worse: float | None
    p_value: float | None
    impressions: int
    clicks: int
    difference_log_loss: float | None
    lower_log_loss: float | None
    upper_log_loss: float | None
    margin_log_loss: float | None
    reason_log_loss: str | None
    difference_auc: float | None
    lower_auc: float | None
    upper_auc: float | None
    margin_auc: float | None
    reason_auc: str | None
    difference_gauc: float | None
    lower_gauc: float | None
    upper_gauc: float | None
    margin_gauc: float | None
    reason_gauc: str | None
    difference_calibration: float | None
    lower_calibration: float | None
    upper_calibration: float | None
    margin_calibration: float | None
    reason_calibration: str | None

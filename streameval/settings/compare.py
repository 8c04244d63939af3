"""`[compare]`: what a comparison is judged by."""

from __future__ import annotations

from pydantic import Field, model_validator

from streameval.settings.section import Duration, Int, PositiveDuration, Real, Section, written
from streameval.settings.units import format_duration

DECIDE = ("log_loss", "auc", "gauc", "calibration")
OF_PAIRS = ("ndcg_K", "mrr", "pauc", "log_loss_snips", "policy_value")
OF_ARMS = ("ctr", "value", "click_yield")
MORE = (*OF_ARMS, *OF_PAIRS)
_MOST_K = 1_000


class Margins(Section):
    """By how much a version must be worse to be called `worse`."""

    log_loss: Real = Field(0.001, ge=0, lt=1, description="relative")
    auc: Real = Field(0.001, ge=0, lt=1, description="difference")
    gauc: Real = Field(0.001, ge=0, lt=1, description="difference")
    calibration: Real = Field(
        0.1,
        ge=0,
        lt=1,
        description="dead band of predicted clicks over clicks; serving alone shifts it by up to 0.05, so keep it above that",
    )
    ctr: Real = Field(0.01, ge=0, lt=1, description="relative")
    log_loss_snips: Real = Field(0.001, ge=0, lt=1, description="relative")
    ndcg: Real = Field(0.001, ge=0, lt=1, description="difference, at every K")
    mrr: Real = Field(0.001, ge=0, lt=1, description="difference")
    value: Real = Field(0.01, ge=0, lt=1, description="relative")
    click_yield: Real = Field(0.01, ge=0, lt=1, description="relative")
    pauc: Real = Field(0.001, ge=0, lt=1, description="difference of the standardised area")
    policy_value: Real = Field(0.01, ge=0, lt=1, description="relative")


class Tolerances(Section):
    """Within how much of the other a version must be to be called `not_worse`."""

    log_loss: Real = Field(0.005, gt=0, lt=1, description="relative")
    auc: Real = Field(0.005, gt=0, lt=1, description="difference")
    gauc: Real = Field(0.005, gt=0, lt=1, description="difference")
    calibration: Real = Field(0.1, gt=0, lt=1, description="of predicted clicks over clicks")
    ctr: Real = Field(0.02, gt=0, lt=1, description="relative")
    log_loss_snips: Real = Field(0.005, gt=0, lt=1, description="relative")
    ndcg: Real = Field(0.005, gt=0, lt=1, description="difference, at every K")
    mrr: Real = Field(0.005, gt=0, lt=1, description="difference")
    value: Real = Field(0.02, gt=0, lt=1, description="relative")
    click_yield: Real = Field(0.02, gt=0, lt=1, description="relative")
    pauc: Real = Field(0.005, gt=0, lt=1, description="difference of the standardised area")
    policy_value: Real = Field(0.02, gt=0, lt=1, description="relative")


class Compare(Section):
    """Deploys are detected from their traffic and compared with the version they replaced."""

    share: Real = Field(
        0.01,
        gt=0,
        le=0.5,
        description="a deploy is detected once a version serves this share of its model's traffic, recently or since it appeared,",
    )
    count: Int = Field(1_000, ge=1, description="or this many impressions")
    alpha: Real = Field(
        0.01,
        gt=0,
        lt=0.5,
        description="probability of a false `worse` (or `not_worse`) per comparison, however often it is checked",
    )
    margins: Margins = Field(Margins(), description="`worse` means worse by more than this, at level alpha")
    tolerances: Tolerances = Field(
        Tolerances(), description="`not_worse` means worse by less than this, at level alpha"
    )
    more: tuple[str, ...] = Field(
        (),
        description="further metrics, each with its own interval and verdict: for paired comparisons "
        + ", ".join(f"`{name}`" for name in OF_PAIRS)
        + "; for split ones "
        + ", ".join(f"`{name}`" for name in OF_ARMS),
    )
    decide: tuple[str, ...] = Field(
        DECIDE, description="the metrics whose evidence decides the overall verdict; those of `more` can be included"
    )
    strict: bool = Field(
        False, description="`worse` in paired comparisons is decided on log loss alone, without a central limit theorem"
    )
    min_duration: Duration = written(
        "1h", description="no verdict before a comparison has run for this long, in event time"
    )
    min_clicks: Int = Field(200, ge=10, description="no verdict before a comparison has this many clicks")
    min_blocks: Int = Field(
        30, ge=2, le=64, description="no verdict before this many of the 64 blocks of users have impressions"
    )
    user_cap: Int = Field(
        30,
        ge=0,
        le=255,
        description="paired comparisons also evaluate at most this many impressions per user and UTC day, so that a few heavy users cannot mask a difference; 0 turns this off",
    )
    horizon: PositiveDuration = written("7d", description="how long a comparison runs; longer than `min_duration`")
    keep: PositiveDuration = written(
        "15d",
        description="how long the hourly sums behind comparisons are kept in memory; before/after comparisons need twice the horizon plus a day, and work best with 36 days",
    )
    learning_window: PositiveDuration = written(
        "6h",
        description="an online model is `learning`, and not evaluated, until a window of this length in which it did not improve; a window has at least 2,000 labels",
    )
    gauc_window: PositiveDuration = written(
        "1h",
        description="comparisons compute GAUC over users within tumbling windows of this length, a multiple of the pane; impressions are kept in memory this much longer than they can be corrected; impressions of one request are this far apart at most (or `join.request_gap`, if that is longer); at most `join.correction_horizon`",
    )

    @model_validator(mode="after")
    def _metrics_that_there_are(self) -> Compare:
        paired, split = ", ".join(OF_PAIRS), ", ".join(OF_ARMS)
        _check("more", self.more, MORE, f"paired comparisons support {paired}, split ones {split}")
        there = (*DECIDE, *self.more)
        _check("decide", self.decide, there, f"there are {', '.join(there)}; a further metric must be in `more`, too")
        if not self.decide:
            raise ValueError("decide = []: the overall verdict needs a metric")
        return self

    @model_validator(mode="after")
    def _long_enough_to_decide(self) -> Compare:
        if self.horizon <= self.min_duration:
            raise ValueError(
                f'horizon = "{format_duration(self.horizon)}": must be longer than min_duration = '
                f'"{format_duration(self.min_duration)}", before which no comparison decides anything; raise horizon or lower '
                "min_duration"
            )
        return self

    @model_validator(mode="after")
    def _kept_for_the_horizon(self) -> Compare:
        if self.keep <= self.horizon:
            raise ValueError(
                f'keep = "{format_duration(self.keep)}": must be longer than horizon = "{format_duration(self.horizon)}"'
            )
        return self


def _check(key: str, names: tuple[str, ...], known: tuple[str, ...], possible: str) -> None:
    for name in names:
        family, _, k = name.rpartition("_")
        of_k = f"{family}_K" in known and k.isascii() and k.isdecimal() and k[0] != "0" and int(k) <= _MOST_K
        if name.endswith("_K") or (name not in known and not of_k):
            raise ValueError(f'{key} = ["{name}"]: not available; {possible}')
        if names.count(name) > 1:
            raise ValueError(f'{key}: "{name}" is there twice')

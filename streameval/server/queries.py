"""The query parameters of every route: bounded, and an unknown one is an error rather than ignored."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from streameval.compare.reading import Setup
from streameval.names import MAX_NAME
from streameval.report import METRIC_NAMES
from streameval.server.answers import parse_time
from streameval.units import parse_duration

USER_SORTS = ("impressions", "clicks", "auc", "log_loss", "log_loss_nats", "calibration")


def _time(text: str) -> str:
    parse_time(text)
    return text


def _step(text: str) -> str:
    if parse_duration(text) == 0:
        raise ValueError('must be a duration such as "5m", "1h" or "1d"')
    return text


Name = Annotated[str, Field(max_length=512)]
Time = Annotated[str, Field(max_length=64), AfterValidator(_time)]


def _note(text: str) -> str:
    if not text.replace("\n", "").replace("\t", "").isprintable():
        raise ValueError("must be plain text, without control characters")
    return text


def _link(text: str) -> str:
    if text and not re.fullmatch(r"https?://[!-~]+", text):
        raise ValueError('must be an address such as "https://ci.example/builds/42"')
    return text


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, given: Any) -> Any:
        return {k: v for k, v in given.items() if v not in ("", None)} if isinstance(given, dict) else given


class Which(_Query):
    """Which series; an empty value is the same as none."""

    model: Name | None = Field(None, description="model name; absent: every model")
    version: Name | None = Field(None, description="model version; absent: every version")
    source: Literal["logged", "online"] | None = Field(
        None, description="logged (scored by production) or online (a model that learns here); absent: both"
    )


class PastQuery(Which):
    """Which part of the past, if any: a range of the history instead of a window that ends now."""

    start: Time | None = Field(
        None, alias="from", description="begin of a past range, RFC 3339 or unix seconds; absent: as far back as stored"
    )
    end: Time | None = Field(None, alias="to", description="end of a past range, itself not in it; absent: up to now")

    @property
    def past(self) -> bool:
        """Whether it asks for a range."""
        return self.start is not None or self.end is not None


class ResultsQuery(PastQuery):
    """Which results."""

    window: Name | None = Field(
        None, description="`all`, or a sliding window such as `1h`; absent: every window; not with `from` or `to`"
    )
    slice: Annotated[str, Field(max_length=1100)] | None = Field(
        None, description="`none` (overall only), a dimension, or `dimension:value`; absent: everything"
    )
    limit: int = Field(1000, ge=1, le=5000, description="results at the most; `truncated` says when there are more")


class BucketsQuery(ResultsQuery):
    """Which bucket tables."""

    kind: Literal["fixed", "quantiles"] = Field("fixed", description="configured edges, or equal-count buckets")


class OneResultQuery(PastQuery):
    """Which one result."""

    window: Name | None = Field(
        None, description="`all` (default), or a sliding window such as `1h`; not with `from` or `to`"
    )
    slice: Annotated[str, Field(max_length=1100)] = Field("none", description="`none`, or `dimension:value`")


class RocQuery(OneResultQuery):
    """Which one curve."""

    max_points: int = Field(500, ge=2, le=5000, description="points at the most; both ends are always there")


class ScoresQuery(OneResultQuery):
    """Which one histogram."""

    bins: int = Field(60, ge=10, le=200, description="bins at the most")


class SeriesQuery(Which):
    """One metric over time."""

    # a Literal of a tuple: pydantic lists the names, mypy cannot follow
    metric: Literal[METRIC_NAMES] = Field(description="a metric's name")  # type: ignore[valid-type]  # made from the registry
    start: Time | None = Field(None, alias="from", description="first pane start, RFC 3339 or unix seconds")
    end: Time | None = Field(None, alias="to", description="last pane start, RFC 3339 or unix seconds")
    step: Annotated[str, Field(max_length=32), AfterValidator(_step)] | None = Field(
        None, description="panes merged into steps such as `5m`, `1h`, `1d`, aligned to the epoch; absent: as stored"
    )
    slice: Annotated[str, Field(max_length=1100)] = Field("none", description="`none`, or `dimension:value`")
    limit: int = Field(
        2000, ge=1, le=11_000, description="newest panes per series; `truncated` says when there are more"
    )
    shape: Literal["points", "columns"] = Field(
        "points", description="a list of `points` per series, or `columns` of equal length, a third of the bytes"
    )


class UsersQuery(Which):
    """A page of users of one series."""

    # as above
    sort: Literal[USER_SORTS] = Field("impressions", description="what to sort by; undefined values come last")  # type: ignore[valid-type]  # likewise
    order: Literal["desc", "asc"] = Field("desc", description="largest or smallest first")
    limit: int = Field(50, ge=1, le=1000, description="users on a page")
    cursor: Annotated[str, Field(max_length=4096)] | None = Field(None, description="where the last page ended; opaque")


class UserDistributionQuery(Which):
    """Of which metric, over the users of one series."""

    metric: Literal["auc", "log_loss", "calibration", "impressions"] = Field(
        "auc", description="the metric of single users"
    )
    bins: int = Field(40, ge=10, le=200, description="bins at the most")


class DeploysQuery(_Query):
    """Which deploys."""

    model: Name | None = Field(None, description="model name; absent: every model")
    limit: int = Field(100, ge=1, le=1000, description="deploys at the most; `truncated` says when there are more")


class DeployBody(BaseModel):
    """A deploy that CI/CD announces."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(min_length=1, max_length=MAX_NAME, description="model name, as in the events")
    version: str = Field(min_length=1, max_length=MAX_NAME, description="model version, as in the events")
    at: Time | None = Field(None, description="when it went live, RFC 3339 or unix seconds; absent: now")
    note: Annotated[str, Field(max_length=1000), AfterValidator(_note)] = Field("", description="what it changes")
    link: Annotated[str, Field(max_length=2000), AfterValidator(_link)] = Field("", description="an http(s) address")


class ComparisonsQuery(_Query):
    """Which comparisons."""

    model: Name | None = Field(None, description="model name; absent: every model")
    candidate: Name | None = Field(None, description="version of the candidate; absent: every one")
    setup: Setup | None = Field(None, description="paired, split or before_after; absent: all of them")
    limit: int = Field(50, ge=1, le=500, description="comparisons at the most; `truncated` says when there are more")


class VerdictQuery(_Query):
    """On which version."""

    candidate: Name | None = Field(None, description="the version that was deployed; absent: the newest deploy")

"""The query parameters of every route: bounded, and an unknown one is an error rather than ignored."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from streameval.compare.reading.reading import Setup
from streameval.events.names import MAX_NAME
from streameval.metrics import registry
from streameval.server.api.answers import parse_time
from streameval.server.api.tables import TabularBody
from streameval.settings.units import parse_duration

USER_SORTS = ("impressions", "clicks", "auc", "log_loss", "log_loss_nats", "calibration")


def _time(text: str) -> str:
    parse_time(text)
    return text


def _step(text: str) -> str:
    if parse_duration(text) == 0:
        raise ValueError('must be a duration such as "5m", "1h" or "1d"')
    return text


_NOT_BLANK = r"\S"
_Name = Annotated[str, Field(max_length=512)]
_Time = Annotated[str, Field(max_length=64), AfterValidator(_time)]


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


_TimeInBody = Annotated[
    _Time,
    BeforeValidator(_as_text),
    WithJsonSchema({"anyOf": [{"type": "string", "maxLength": 64}, {"type": "number"}]}),
]


def _metric(name: str) -> str:
    try:
        return registry.by_name(name).name
    except KeyError:
        by_k = (family.name.replace("{k}", "K") for family in registry.BY_K)
        raise ValueError(f"must be a metric: {', '.join((*registry.names(), *by_k))}") from None


_ONE_A_LIST = "mrr|map"
_OF_K = "|".join(family.name.replace("{k}", "[1-9][0-9]*") for family in registry.BY_K)
_Metric = Annotated[
    str,
    AfterValidator(_metric),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(registry.names())},
                {"type": "string", "pattern": f"^(({_OF_K})|{_ONE_A_LIST})(_by_user)?$"},
            ]
        }
    ),
]


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


class _Tabular(_Query):
    format: Literal["json", "csv"] = Field("json", description="`csv`: a header line and one line per row")

    def table(self, rows: TabularBody) -> TabularBody | None:
        """The rows, if a table was requested."""
        return rows if self.format == "csv" else None


class DeadLettersQuery(_Tabular):
    """In which form."""


class StatusQuery(_Tabular):
    """Which part of the status, as CSV."""

    rows: Literal["partitions", "events", "stages", "memory"] = Field(
        "partitions", description="which rows, with `format=csv`"
    )


class SeriesFilter(_Tabular):
    """Which series; an empty value is the same as none."""

    model: _Name | None = Field(None, description="model name; absent: every model")
    version: _Name | None = Field(None, description="model version; absent: every version")
    source: Literal["logged", "online"] | None = Field(
        None, description="logged (scored by production) or online (a model that learns here); absent: both"
    )
    objective: _Name | None = Field(
        None, description="the objective whose labels count; absent: clicks; `*`: clicks and every objective"
    )


class PastQuery(SeriesFilter):
    """Which part of the past, if any: a range of the history instead of a window that ends now."""

    start: _Time | None = Field(
        None, alias="from", description="start of a past range, RFC 3339 or unix seconds; absent: as far back as stored"
    )
    end: _Time | None = Field(None, alias="to", description="end of a past range, exclusive; absent: up to now")

    @property
    def past(self) -> bool:
        """Whether it asks for a range."""
        return self.start is not None or self.end is not None


class ResultsQuery(PastQuery):
    """Which results."""

    window: _Name | None = Field(
        None, description="`all`, or a sliding window such as `1h`; absent: every window; not with `from` or `to`"
    )
    slice: Annotated[str, Field(max_length=1100)] | None = Field(
        None, description="`none` (overall only), a dimension, or `dimension:value`; absent: everything"
    )
    limit: int = Field(1000, ge=1, le=5000, description="maximum number of results; `truncated` when there are more")


class BucketsQuery(ResultsQuery):
    """Which bucket tables."""

    kind: Literal["fixed", "quantiles"] = Field("fixed", description="configured edges, or equal-count buckets")


class StrataQuery(PastQuery):
    """Which tables of strata."""

    window: _Name | None = Field(
        None, description="`all`, or a sliding window such as `1h`; absent: every window; not with `from` or `to`"
    )
    limit: int = Field(1000, ge=1, le=5000, description="maximum number of tables; `truncated` when there are more")
    rows: Literal["strata", "stratified"] = Field("strata", description="which rows, with `format=csv`")

    @property
    def of_results(self) -> ResultsQuery:
        """The results to which they belong: strata are those of a whole series, not of its slices."""
        return ResultsQuery(**self.model_dump(exclude={"rows"}), slice="none")


class OneResultQuery(PastQuery):
    """Which one result."""

    window: _Name | None = Field(
        None, description="`all` (default), or a sliding window such as `1h`; not with `from` or `to`"
    )
    slice: Annotated[str, Field(max_length=1100)] = Field("none", description="`none`, or `dimension:value`")


class RocQuery(OneResultQuery):
    """Which one curve."""

    max_points: int = Field(500, ge=2, le=5000, description="maximum number of points; both ends are always included")


class ScoresQuery(OneResultQuery):
    """Which one histogram."""

    bins: int = Field(60, ge=10, le=200, description="maximum number of bins")


class SeriesQuery(SeriesFilter):
    """One metric over time."""

    metric: _Metric = Field(description="a metric's name; K is one of `ranking.k`")
    start: _Time | None = Field(None, alias="from", description="first pane start, RFC 3339 or unix seconds")
    end: _Time | None = Field(None, alias="to", description="last pane start, RFC 3339 or unix seconds")
    step: Annotated[str, Field(max_length=32), AfterValidator(_step)] | None = Field(
        None,
        description="panes merged into steps such as `5m`, `1h`, `1d`, aligned to the epoch; absent: raw resolution",
    )
    slice: Annotated[str, Field(max_length=1100)] = Field("none", description="`none`, or `dimension:value`")
    limit: int = Field(2000, ge=1, le=11_000, description="newest panes per series; `truncated` when there are more")
    shape: Literal["points", "columns"] = Field(
        "points", description="a list of `points` per series, or `columns` of equal length, in a third of the bytes"
    )


class AuctionsQuery(_Tabular):
    """Which auctions."""

    model: _Name | None = Field(None, description="model name; absent: every model")
    window: _Name | None = Field(None, description="`all`, or a sliding window such as `1h`; absent: every window")


class UsersQuery(SeriesFilter):
    """A page of users of one series."""

    # a Literal of a tuple: pydantic lists the names, mypy cannot follow
    sort: Literal[USER_SORTS] = Field("impressions", description="what to sort by; undefined values come last")  # type: ignore[valid-type]  # made from a tuple
    order: Literal["desc", "asc"] = Field("desc", description="largest or smallest first")
    limit: int = Field(50, ge=1, le=1000, description="users per page")
    cursor: Annotated[str, Field(max_length=4096)] | None = Field(
        None, description="of a page; opaque: the previous page's `next` is the link that has it"
    )


class UserDistributionQuery(SeriesFilter):
    """Of which metric, over the users of one series."""

    metric: Literal["auc", "log_loss", "calibration", "impressions"] = Field("auc", description="per-user metric")
    bins: int = Field(40, ge=10, le=200, description="maximum number of bins")


class DeploysQuery(_Tabular):
    """Which deploys."""

    model: _Name | None = Field(None, description="model name; absent: every model")
    limit: int = Field(100, ge=1, le=1000, description="maximum number of deploys; `truncated` when there are more")


class DeployBody(BaseModel):
    """A deploy that CI/CD announces."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(
        min_length=1, pattern=_NOT_BLANK, max_length=MAX_NAME, description="model name, as in the events"
    )
    version: str = Field(
        min_length=1, pattern=_NOT_BLANK, max_length=MAX_NAME, description="model version, as in the events"
    )
    at: _TimeInBody | None = Field(None, description="when it went live, RFC 3339 or unix seconds; absent: now")
    note: Annotated[str, Field(max_length=1000), AfterValidator(_note)] = Field(
        "", description="what the deploy changes"
    )
    link: Annotated[str, Field(max_length=2000), AfterValidator(_link)] = Field("", description="an http(s) address")


class HandlingBody(BaseModel):
    """The handling of a verdict."""

    model_config = ConfigDict(extra="forbid")

    state: Literal["acknowledged", "muted", "open"] = Field(
        description="`acknowledged` (seen), `muted` (no more notifications), `open` (undoes either)"
    )
    by: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_note)] = Field(description="who does this")
    reason: Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_note)] = Field(description="why")


class ComparisonsQuery(_Tabular):
    """Which comparisons."""

    model: _Name | None = Field(None, description="model name; absent: every model")
    candidate: _Name | None = Field(None, description="version of the candidate; absent: every one")
    setup: Setup | None = Field(None, description="paired, split or before_after; absent: all of them")
    limit: int = Field(50, ge=1, le=500, description="maximum number of comparisons; `truncated` when there are more")


class ComparisonQuery(_Tabular):
    """Which part of a comparison, as CSV."""

    rows: Literal["metrics", "looks", "findings", "calibration_buckets", "mixes", "early", "changes"] = Field(
        "metrics", description="which list, with `format=csv`"
    )


class VerdictQuery(_Query):
    """On which version."""

    candidate: _Name | None = Field(None, description="the version that was deployed; absent: the newest deploy")

"""The settings: one typed tree, every key with its default and its rule. `toml` reads and writes it."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field, model_validator

from streameval.events.names import MAX_NAME, spelled
from streameval.settings.compare import Compare
from streameval.settings.kafka import Kafka as Kafka  # noqa: PLC0414  (its modules import it from here)
from streameval.settings.measures import (
    Auction,
    Exposure,
    Metrics,
    Objective,
    Ranking,
    Sampling,
    Strata,
    same_name,
)
from streameval.settings.models import Model
from streameval.settings.outlets import AnyNotifier, AnySink, KafkaSink, same_called
from streameval.settings.section import Duration, Int, PositiveDuration, Real, Section, Size, written
from streameval.settings.server import Server
from streameval.settings.sources import AnySource, KafkaSourceSettings
from streameval.settings.store import Store
from streameval.settings.units import format_duration

MIN_PANE = 1_000  # ms


class ConfigError(ValueError):
    """An invalid setting; the message names the key, the value and the fix."""


class Join(Section):
    """How impressions and clicks become labels."""

    attribution_window: Duration = written(
        "30m",
        description="a click within this time of its impression makes it positive; the label matures when the watermark passes the window's end",
    )
    allowed_lateness: Duration = written(
        "1m",
        description="how far behind the newest event of its topic an event may be without being late; the watermark is the newest event time minus this",
    )
    correction_horizon: PositiveDuration = written(
        "24h",
        description="how long after an impression a late click can still correct its label; older impressions are dropped from memory",
    )
    score_at: Literal["impression", "label"] = Field(
        "impression",
        description="online models score when the impression arrives (as in production) or at maturity, just before learning",
    )
    request_gap: Duration = written(
        "10m", description="a request closes once the watermark is this far past the maturity of its last impression"
    )
    idle_timeout: PositiveDuration = written(
        "30s",
        description="wall-clock time after which an input without events no longer holds back the results (models and comparisons still wait for it)",
    )
    max_future: PositiveDuration = written(
        "1h", description="an event further than this ahead of the wall clock is rejected"
    )
    max_pending: Int = Field(
        50_000_000,
        ge=1_000,
        description="maximum number of impressions (pending or correctable) that each partition keeps in memory; beyond this, labels mature early and the oldest correctable impressions are evicted early, and counted",
    )

    @model_validator(mode="after")
    def _horizon_covers_window(self) -> Join:
        needed = self.attribution_window + self.request_gap + self.allowed_lateness
        if self.correction_horizon < needed:
            raise ValueError(
                f'correction_horizon = "{format_duration(self.correction_horizon)}": must be at least attribution_window '
                f'+ request_gap + allowed_lateness = "{format_duration(needed)}"'
            )
        return self


class Windows(Section):
    """Panes, and the windows that slide over them, in event time."""

    pane: PositiveDuration = written(
        "1m",
        description="length of a pane, the unit of event time, at least 1s; many short panes cost more than a few long ones",
    )
    sliding: tuple[PositiveDuration, ...] = written(
        ("5m", "1h", "24h"), description="window lengths, each a multiple of the pane; the window `all` always exists"
    )

    @model_validator(mode="after")
    def _multiples(self) -> Windows:
        if self.pane < MIN_PANE:
            raise ValueError(
                f'pane = "{format_duration(self.pane)}": must be at least "{format_duration(MIN_PANE)}": every pane costs '
                'time and memory, however little is in it; "1m" suits most streams'
            )
        for window in self.sliding:
            if window % self.pane:
                raise ValueError(
                    f'sliding = "{format_duration(window)}": must be a multiple of pane = "{format_duration(self.pane)}"'
                )
        if len(set(self.sliding)) != len(self.sliding):
            raise ValueError("sliding: names a window twice; each once is enough")
        return self


class Slices(Section):
    """Which slices of the traffic get results of their own."""

    dimensions: tuple[str, ...] = Field(
        (),
        description="keys of an event's `slices` that get their own results; `position`, `block` (mainline or sidebar, see `[auction]`) and `propensity` are built in, from the event's own fields",
    )
    max_values: Int = Field(
        50,
        ge=1,
        le=1000,
        description="values shown per dimension: those with the most impressions; the rest become `__other__`. Four times as many are counted, at most 1000",
    )

    @model_validator(mode="after")
    def _can_be_numbered(self) -> Slices:
        names = self.dimensions
        if not all(names):
            raise ValueError(
                f'dimensions = {json.dumps(names)}: must not hold ""; name a dimension, for example "country"'
            )
        if len(set(names)) != len(names):
            raise ValueError(f"dimensions = {json.dumps(names)}: names a dimension twice; each once is enough")
        for name in names:
            if name == "none" or ":" in name:  # `slice=none` and `slice=dimension:value` would say two things
                raise ValueError(
                    f"dimensions = {json.dumps(names)}: {json.dumps(name)} cannot be queried; must not be "
                    '"none" nor hold ":"'
                )
        if (self.max_values + 2) ** max(1, len(names)) > 1 << 62:  # one int64 numbers all combinations
            raise ValueError(
                f"dimensions = {json.dumps(names)}: {len(names)} with max_values = {self.max_values} are too many "
                "combinations to number; keep fewer dimensions or values"
            )
        return self


class Users(Section):
    """Per-user state."""

    memory: Size = written(
        "512MB",
        description="memory limit of the per-user state; beyond it, users are sampled consistently by hash, and results say so",
    )
    weighting: Literal["impressions", "clicks", "uniform", "value"] = Field(
        "impressions", description="weight of a user's AUC in GAUC"
    )


class Buckets(Section):
    """pClick buckets."""

    edges: tuple[Real, ...] = Field(
        (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
        description="inner edges of the fixed pClick buckets, increasing, in (0, 1); the first bucket starts at 0, the last ends at 1",
    )
    quantiles: Int = Field(20, ge=2, le=100, description="number of equal-count buckets")

    @model_validator(mode="after")
    def _increasing(self) -> Buckets:
        if not self.edges or len(self.edges) > 64:
            raise ValueError(f"edges: {len(self.edges)} given; must be between 1 and 64")
        if any(not 0 < e < 1 for e in self.edges) or any(
            b <= a for a, b in zip(self.edges, self.edges[1:], strict=False)
        ):
            raise ValueError(
                f"edges = {list(self.edges)}: must increase strictly inside (0, 1), for example [0.01, 0.1]"
            )
        return self


class BatchSettings(Section):
    """Batch size."""

    max_events: Int = Field(10_000, ge=1, le=1_000_000, description="maximum number of events in a batch")
    json_kernel: bool = Field(
        True,
        description="read ordinary JSON and CSV with compiled kernels; false: always use the slow decoders, with the same results",
    )


class Files(Section):
    """Event files."""

    format: Literal["auto", "jsonl", "csv", "parquet", "arrow"] = Field(
        "auto", description="`auto` decides by the file name"
    )
    dead_letters: str = Field(
        "dead-letters.jsonl", description='file for invalid events, unchanged; with `""` they are only counted'
    )
    columns: dict[str, Any] = Field(
        default_factory=dict, description="our field = how to derive it from the columns of a file in another format"
    )


class Settings(Section):
    """The whole tree; `docs/reference/configuration.md` is generated from it."""

    join: Join = Join()
    windows: Windows = Windows()
    slices: Slices = Slices()
    users: Users = Users()
    buckets: Buckets = Buckets()
    metrics: Metrics = Metrics()
    ranking: Ranking = Ranking()
    strata: Strata = Strata(by="")
    auction: Auction = Auction()
    exposure: Exposure = Exposure()
    sampling: Sampling = Sampling()
    objectives: tuple[Objective, ...] = Field(
        (),
        max_length=16,
        description="Additional labels beside the click: every metric is also computed with clicks of lower value counted as no click.",
    )
    batch: BatchSettings = BatchSettings()
    models: tuple[Model, ...] = Field(
        (),
        description="Online models: each scores every impression first, and learns from its label once that is mature.",
    )
    source: AnySource = Field(KafkaSourceSettings(), description="What `run` reads; without this section, Kafka.")
    kafka: Kafka = Kafka()
    files: Files = Files()
    store: Store = Store()
    compare: Compare = Compare()
    server: Server = Server()
    notify: tuple[AnyNotifier, ...] = Field((), max_length=20, description="Who is notified when a verdict changes.")
    sinks: tuple[AnySink, ...] = Field((), max_length=10, description="Further destinations of results and verdicts.")

    @property
    def max_message(self) -> int:
        """The largest size of an event, of any source."""
        return self.kafka.max_message

    @property
    def one_log(self) -> bool:
        """Whether impressions and clicks come in one order, also out of files."""
        return self.kafka.impressions_topic == self.kafka.clicks_topic

    @model_validator(mode="after")
    def _gain_of_lists(self) -> Settings:
        if self.ranking.gain != "click" and any(name.startswith("ndcg_") for name in self.compare.more):
            raise ValueError(
                f'ranking.gain = "{self.ranking.gain}": comparisons support NDCG only with clicks as gains; remove ndcg_K '
                'from compare.more, or set ranking.gain = "click"'
            )
        return self

    @model_validator(mode="after")
    def _the_randomised_slice_is_kept(self) -> Settings:
        dimension = self.exposure.randomised.partition(":")[0]
        if dimension and dimension not in self.slices.dimensions:
            raise ValueError(
                f"exposure.randomised = {json.dumps(self.exposure.randomised)}: {json.dumps(dimension)} is not in "
                f"slices.dimensions = {json.dumps(self.slices.dimensions)}; add it there"
            )
        return self

    @model_validator(mode="after")
    def _can_be_estimated(self) -> Settings:
        """Metrics that need every impression cannot be computed from a sample."""
        if not self.sampling.is_sample:
            return self
        wrong = [
            ("auction.points", bool(self.auction.points)),
            ("strata.by", bool(self.strata.by)),
            (f'exposure.propensity = "{self.exposure.propensity}"', self.exposure.propensity != "logged"),
            ('slices.dimensions with "propensity"', "propensity" in self.slices.dimensions),
            (f'users.weighting = "{self.users.weighting}"', self.users.weighting != "impressions"),
            ("compare.more", bool(self.compare.more)),
            ("compare.strict", self.compare.strict),
        ]
        for name, asked in wrong:
            if asked:
                raise ValueError(
                    f"sampling: {name} cannot be estimated from a sample of the impressions; leave it out, or sampling"
                )
        return self

    @model_validator(mode="after")
    def _windows_are_of_panes(self) -> Settings:
        window, pane = self.compare.gauc_window, self.windows.pane
        if window % pane:
            raise ValueError(
                f'compare.gauc_window = "{format_duration(window)}": must be a multiple of windows.pane = '
                f'"{format_duration(pane)}", for example "{format_duration(-(-window // pane) * pane)}"'
            )
        return self

    @model_validator(mode="after")
    def _objectives_differ(self) -> Settings:
        wrong = same_name(self.objectives) or same_called("notify", self.notify) or same_called("sinks", self.sinks)
        if wrong is not None:
            raise ValueError(wrong)
        if self.sinks and not self.store.path:  # what was written is not known after a restart
            raise ValueError("sinks: need store.path, or a restart would write half a pane; name a folder")
        return self

    @model_validator(mode="after")
    def _sinks_are_no_input(self) -> Settings:
        inputs = ("impressions_topic", "clicks_topic") if isinstance(self.source, KafkaSourceSettings) else ()
        for i, sink in enumerate(self.sinks):
            for name in inputs:
                if isinstance(sink, KafkaSink) and sink.to == getattr(self.kafka, name):  # it would read its own rows
                    raise ValueError(
                        f"sinks.{i}.to = {json.dumps(sink.to)}: must be a different topic from kafka.{name}, "
                        "which is an input; name one of its own"
                    )
        return self

    @model_validator(mode="after")
    def _names_differ(self) -> Settings:
        names = [m.name for m in self.models]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f'models: the name "{name}" is given twice; every model needs its own')
            if spelled(name) != name or len(name) > MAX_NAME:
                shown = name if len(name) <= 50 else f"{name[:50]}..."
                raise ValueError(
                    f'models: the name "{shown}" cannot be shown; use at most {MAX_NAME} characters, and not '
                    '"__other__" or "__missing__", which stand for names that are left out'
                )
        return self


def renew() -> None:
    """Makes `Settings` accept the kinds of sections that are registered now."""
    Settings.model_rebuild(force=True)

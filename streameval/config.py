"""The settings: one typed tree, every key with its default and its rule. `config_file` reads and writes it.

Unknown keys are errors. Durations are stored in milliseconds, sizes in bytes; both are written as in `units`.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from streameval.names import MAX_NAME, spelled
from streameval.units import format_duration, parse_duration, parse_size

MIN_PANE = 1_000  # ms


class ConfigError(ValueError):
    """A setting that cannot be used; the message names the key, the value and the fix."""


def _positive_duration(value: object) -> int:
    ms = parse_duration(value)
    if ms <= 0:
        raise ValueError('must be positive, for example "5m"')
    return ms


# what a file may hold, for editors and for docs/reference; `units` has the last word
DURATION_SCHEMA = {"$comment": "duration", "type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(ms|s|m|h|d)\s*$"}
SIZE_SCHEMA = {
    "$comment": "size",
    "anyOf": [
        {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*([Kk]|[Mm]|[Gg])?([Ii][Bb]|[Bb])\s*$"},
        {"type": "integer", "minimum": 1},
    ],
}

Duration = Annotated[
    int,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, when_used="always"),
    WithJsonSchema({"$comment": "duration", "anyOf": [DURATION_SCHEMA, {"const": 0}]}),
]
PositiveDuration = Annotated[
    int,
    BeforeValidator(_positive_duration),
    PlainSerializer(format_duration, when_used="always"),
    WithJsonSchema(DURATION_SCHEMA),
]
Size = Annotated[int, BeforeValidator(parse_size), WithJsonSchema(SIZE_SCHEMA)]


def _no_switch(value: object) -> object:
    if isinstance(value, bool):  # pydantic would take true for 1
        raise ValueError("must be a number, not true or false")
    return value


Int = Annotated[int, BeforeValidator(_no_switch)]
Real = Annotated[float, BeforeValidator(_no_switch)]


def _written(default: object, description: str) -> Any:
    """A field whose default is written as users write it ("30m") and validated like what they write."""
    return Field(default, description=description)


class _Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False, ser_json_inf_nan="constants"
    )


class Join(_Section):
    """How impressions and clicks become labels."""

    attribution_window: Duration = _written(
        "30m",
        description="a click within this time of its impression makes it positive; the label matures when the watermark passes the window's end",
    )
    allowed_lateness: Duration = _written(
        "1m",
        description="how far behind the newest event of its topic another may arrive without being late; the watermark is the newest time less this",
    )
    correction_horizon: PositiveDuration = _written(
        "24h",
        description="how long a matured impression can still be corrected by a late click; older ones are forgotten",
    )
    score_at: Literal["impression", "label"] = Field(
        "impression",
        description="online models score when the impression arrives (as in production) or at maturity, just before learning",
    )
    request_gap: Duration = _written(
        "10m", description="a request closes when the watermark is this far past its last impression's maturity"
    )
    idle_timeout: PositiveDuration = _written(
        "30s",
        description="wall-clock time after which an input without events stops holding back what is shown (models and comparisons wait for it)",
    )
    max_future: PositiveDuration = _written(
        "1h", description="an event whose time is further than this ahead of the wall clock is refused"
    )
    max_pending: Int = Field(
        50_000_000,
        ge=1_000,
        description="impressions that each partition keeps in memory at the most (pending or correctable); beyond, the oldest correctable ones are let go early, and counted",
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


class Windows(_Section):
    """The panes and the windows that slide over them, in event time."""

    pane: PositiveDuration = _written(
        "1m", description="length of a pane, the unit of event time, from 1s; many small ones cost more than few"
    )
    sliding: tuple[PositiveDuration, ...] = _written(
        ("5m", "1h", "24h"), description="window lengths, each a multiple of the pane; the window `all` is always there"
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


class Slices(_Section):
    """Which slices of the traffic get results of their own."""

    dimensions: tuple[str, ...] = Field(
        (),
        description="names from an event's `slices` that get results of their own; `position` and `propensity` are strata of the event's own fields",
    )
    max_values: Int = Field(
        50,
        ge=1,
        le=1000,
        description="values shown per dimension, those with most impressions; the others are `__other__`. Four times as many are counted, at most 1000",
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
                    f"dimensions = {json.dumps(names)}: {json.dumps(name)} cannot be asked for; must not be "
                    '"none" nor hold ":"'
                )
        if (self.max_values + 2) ** max(1, len(names)) > 1 << 62:  # one int64 numbers all combinations
            raise ValueError(
                f"dimensions = {json.dumps(names)}: {len(names)} with max_values = {self.max_values} are too many "
                "combinations to number; keep fewer dimensions or values"
            )
        return self


class Users(_Section):
    """Per-user state."""

    memory: Size = _written(
        "512MB",
        description="budget of the per-user state; past it a consistent hash-sample of users is kept and reported as such",
    )
    weighting: Literal["impressions", "clicks", "uniform", "value"] = Field(
        "impressions", description="what a user's AUC weighs in GAUC"
    )


class Buckets(_Section):
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


class BatchSettings(_Section):
    """How many events are taken at a time."""

    max_events: Int = Field(10_000, ge=1, le=1_000_000, description="events handled at a time")


class _OnlineModel(_Section):
    name: str = Field(min_length=1, description="`model` of its results, another for every model")
    max_failures: Int = Field(
        100,
        ge=1,
        description="a model that fails this often on a partition's events, counting off one failure for every 100 events that go well, is suspended there",
    )
    revision: Int = Field(
        0,
        ge=0,
        description="raise it once a model is mended or changed inside: a restart then begins it anew, suspended or not, and restores all else",
    )


class FtrlModel(_OnlineModel):
    """Hashed FTRL-Proximal logistic regression (McMahan et al. 2013)."""

    kind: Literal["ftrl"] = Field("ftrl", description="which sort of model; must be written")
    alpha: Real = Field(0.05, gt=0, description="learning rate")
    beta: Real = Field(1.0, ge=0, description="smoothing of the learning rate")
    l1: Real = Field(0.0, ge=0, description="L1 penalty")
    l2: Real = Field(1.0, ge=0, description="L2 penalty")
    bits: Int = Field(22, ge=4, le=28, description="2^`bits` hashed weights, 16 bytes each, for each partition")


class RiverModel(_OnlineModel):
    """Any River classifier, by import path and parameters."""

    kind: Literal["river"] = Field("river", description="which sort of model; must be written")
    factory: str = Field(
        description='a callable that returns a River classifier: `"package.module:callable"` or `"river.linear_model.LogisticRegression"`'
    )
    parameters: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the factory")


Model = Annotated[FtrlModel | RiverModel, Field(discriminator="kind")]


class Kafka(_Section):
    """The brokers, the topics and the client."""

    bootstrap_servers: str = Field("127.0.0.1:9092", description="`host:port`, several separated by commas")
    client: Literal["confluent", "kafka-python"] = Field("confluent", description="which client library reads")
    group_id: str = Field("streameval", min_length=1, description="consumer group")
    impressions_topic: str = Field("impressions", min_length=1, description="where impressions come from")
    clicks_topic: str = Field(
        "clicks", min_length=1, description="where clicks come from; may be the same topic as `impressions_topic`"
    )
    dead_letter_topic: str = Field(
        "streameval-dead-letters", description='events that cannot be used go here whole; `""` counts them only'
    )
    format: Literal["json", "arrow"] = Field(
        "json",
        description="`json` (an object or an array of objects per message) or `arrow` (an IPC stream per message)",
    )
    start: Literal["earliest", "latest"] = Field(
        "latest",
        description="where a partition without a stored state starts (without a store: one without committed offsets)",
    )
    on_recreated_topic: Literal["beginning", "end", "stop"] = Field(
        "beginning",
        description="a topic that was deleted and made anew under its name: read it from its `beginning`, from its `end` (what it holds by then is counted as lost), or `stop` with an error",
    )
    max_message: Size = _written("16MB", description="a larger message goes to the dead letters")
    client_options: dict[str, Any] = Field(
        default_factory=dict, description="passed to the client as they are: TLS, SASL, tuning"
    )

    @model_validator(mode="after")
    def _dead_letters_are_no_input(self) -> Kafka:
        for name in ("impressions_topic", "clicks_topic"):
            if self.dead_letter_topic == getattr(self, name):  # every letter would be read, and be one again
                raise ValueError(
                    f"dead_letter_topic = {json.dumps(self.dead_letter_topic)}: must be another topic than {name}, "
                    "which is read"
                )
        return self


class Files(_Section):
    """Event files."""

    format: Literal["auto", "jsonl", "csv", "parquet", "arrow"] = Field(
        "auto", description="`auto` goes by the file's name"
    )
    dead_letters: str = Field(
        "dead-letters.jsonl", description='events that cannot be used go here whole; `""` counts them only'
    )
    columns: dict[str, Any] = Field(
        default_factory=dict, description="our field = how to make it from a foreign file's columns"
    )


class Server(_Section):
    """The HTTP side."""

    host: str = Field("127.0.0.1", description="address to bind")
    port: Int = Field(8080, ge=0, le=65535, description="0 picks a free port")
    token_file: str = Field(
        "", description="file holding the bearer token; it may be in `STREAMEVAL_TOKEN` instead, but not in both"
    )
    token_scope: Literal["private", "all"] = Field(
        "private",
        description="what needs the token: `private` (whatever writes, and single users) or `all` (everything but `/livez`, `/readyz` and `/healthz`)",
    )
    tls_certificate: str = Field("", description="PEM file of the certificate and its chain; with it HTTPS only")
    tls_key: str = Field("", description="PEM file of the certificate's key, without a password")
    version_ttl: PositiveDuration = _written("24h", description="a version unseen for this long leaves `/metrics`")
    snapshot_interval: PositiveDuration = _written(
        "1s", description="how often the readers' snapshot is renewed at the most"
    )
    max_series: Int = Field(
        10_000, ge=100, description="Prometheus series at the most; slice families are cut first, and counted"
    )

    @model_validator(mode="after")
    def _certificate_with_its_key(self) -> Server:
        if bool(self.tls_certificate) != bool(self.tls_key):
            missing, given = ("tls_key", "tls_certificate") if self.tls_certificate else ("tls_certificate", "tls_key")
            raise ValueError(
                f'{missing} = "": is needed with server.{given} = "{getattr(self, given)}"; set both or neither'
            )
        return self


class Store(_Section):
    """Checkpoints and history on disk."""

    path: str = Field(
        "",
        description='folder of the checkpoints and the history, made when needed; `""` keeps neither (a restart forgets)',
    )
    checkpoint_interval: PositiveDuration = _written(
        "30s", description="how often each partition's state and offsets are written"
    )
    keep: Int = Field(3, ge=1, le=100, description="checkpoints kept of each partition; older ones are deleted")
    drain_timeout: PositiveDuration = _written(
        "20s", description="how long a stop, or a partition that goes to another worker, may take to be written"
    )
    minutes: PositiveDuration = _written(
        "2d", description="how long the history keeps single panes; older ones become hours"
    )
    hours: PositiveDuration = _written("30d", description="how long the history keeps hours; older ones become days")
    days: PositiveDuration = _written("400d", description="how long the history keeps days")
    max_size: Size = _written(
        "2GB", description="size of the history at the most; beyond, the oldest parts are deleted early, and counted"
    )


class Margins(_Section):
    """By how much a version must be worse to be called so."""

    log_loss: Real = Field(0.001, ge=0, lt=1, description="relative")
    auc: Real = Field(0.001, ge=0, lt=1, description="difference")
    gauc: Real = Field(0.001, ge=0, lt=1, description="difference")
    calibration: Real = Field(0.1, ge=0, lt=1, description="dead band of predicted clicks over clicks")


class Tolerances(_Section):
    """Within how much of the other a version must be to be called not worse."""

    log_loss: Real = Field(0.005, gt=0, lt=1, description="relative")
    auc: Real = Field(0.005, gt=0, lt=1, description="difference")
    gauc: Real = Field(0.005, gt=0, lt=1, description="difference")
    calibration: Real = Field(0.1, gt=0, lt=1, description="of predicted clicks over clicks")


class Compare(_Section):
    """Deploys are noticed by their traffic and compared with what they replaced."""

    share: Real = Field(
        0.01, gt=0, le=0.5, description="a version is noticed once it serves this share of its model's recent traffic"
    )
    count: Int = Field(1_000, ge=1, description="or this many impressions")
    alpha: Real = Field(
        0.01,
        gt=0,
        lt=0.5,
        description="chance of a false `worse` (or `not_worse`) per comparison, however often one looks",
    )
    margins: Margins = Field(Margins(), description="`worse` means: by more than this, for certain at level alpha")
    tolerances: Tolerances = Field(
        Tolerances(), description="`not_worse` means: by less than this, for certain at level alpha"
    )
    strict: bool = Field(
        False, description="`worse` in paired comparisons rests on log loss alone, without a central limit theorem"
    )
    min_duration: Duration = _written(
        "1h", description="no verdict before a comparison has run this long, in event time"
    )
    min_clicks: Int = Field(200, ge=10, description="nor before it has this many clicks")
    min_blocks: Int = Field(
        30, ge=2, le=64, description="nor before this many of the 64 blocks of users have impressions"
    )
    user_cap: Int = Field(
        30,
        ge=0,
        le=255,
        description="paired comparisons look a second time at no more than so many impressions of a user and UTC day, lest a few heavy users drown a difference; 0: they do not",
    )
    horizon: PositiveDuration = _written("7d", description="how long a comparison runs")
    keep: PositiveDuration = _written(
        "15d",
        description="how long the sums behind comparisons are kept in memory, by hour; before/after needs twice the horizon and a day, and deserves 36 days",
    )
    learning_window: PositiveDuration = _written(
        "6h",
        description="an online model is `learning`, and not judged, until a window of this length in which it became no better; a window has at least 2,000 labels",
    )
    gauc_window: PositiveDuration = _written(
        "1h",
        description="GAUC of comparisons is over users within tumbling windows of this length, a multiple of the pane; impressions are kept in memory this much longer than they can be corrected; never longer than `join.correction_horizon`",
    )

    @model_validator(mode="after")
    def _kept_for_the_horizon(self) -> Compare:
        if self.keep <= self.horizon:
            raise ValueError(
                f'keep = "{format_duration(self.keep)}": must be longer than horizon = "{format_duration(self.horizon)}"'
            )
        return self


class Settings(_Section):
    """The whole tree; `docs/reference/configuration.md` is made of it."""

    join: Join = Join()
    windows: Windows = Windows()
    slices: Slices = Slices()
    users: Users = Users()
    buckets: Buckets = Buckets()
    batch: BatchSettings = BatchSettings()
    models: tuple[Model, ...] = Field(
        (), description="Online models: each learns from matured labels and scores every impression before that."
    )
    kafka: Kafka = Kafka()
    files: Files = Files()
    store: Store = Store()
    compare: Compare = Compare()
    server: Server = Server()

    @model_validator(mode="after")
    def _windows_are_of_panes(self) -> Settings:
        if self.compare.gauc_window % self.windows.pane:
            raise ValueError(
                f'compare: gauc_window = "{format_duration(self.compare.gauc_window)}": must be a multiple of '
                f'windows.pane = "{format_duration(self.windows.pane)}"'
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

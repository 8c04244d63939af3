"""The fields of events, one row each: the single definition of every field.

JSON, Arrow, CSV and Parquet, `[files.columns]`, the reasons of dead letters, docs/reference/events.md, the fuzz, the
columns of batches, the joiner's rows and checkpoints read this table. A new number is one row (plus the code that uses
it):

    register(Field("dwell", "number", (CLICK,), "seconds until the user came back", low=0.0, join=Join.SUM, default=0.0, needs=(ALWAYS,)))
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal, NamedTuple

Kind = Literal["impression", "click"]
IMPRESSION: Final = "impression"
CLICK: Final = "click"
BOTH: tuple[Kind, ...] = (IMPRESSION, CLICK)
MAX_WEIGHT: Final = 1_000.0  # of an impression

Type = Literal["text", "time", "number", "integer", "label", "values", "numbers", "features"]


class Join(IntEnum):
    """How the values of several clicks on one impression become one; those within the attribution window, in the order of their log.

    A click without the field changes nothing. No click is told from its own repetition: one that is delivered twice counts twice.
    """

    FIRST = 0  # that of the first click
    LAST = 1
    LARGEST = 2
    SUM = 3
    LARGEST_IN_TIME = 4  # of those that came before the label was due


class Anything:
    """Of a `Need`: whatever the setting is, as long as it is there: not None, not false, not empty."""

    def __repr__(self) -> str:
        return "anything"


ANYTHING = Anything()


class Need(NamedTuple):
    """A field is needed when a setting has a value: `users.weighting` "value", `models.kind` "ftrl" (of any model).

    With `ANYTHING`, when the setting is there at all: `auction.points`, once one is configured.
    """

    setting: str
    value: object

    def holds(self, settings: object) -> bool:
        """Whether these settings ask for it."""
        nodes: list[object] = [settings]
        for part in self.setting.split(".") if self.setting else ():
            nodes = [getattr(node, part, None) for node in nodes]
            nodes = [one for node in nodes for one in (node if isinstance(node, (list, tuple)) else [node])]
        return not self.setting or (any(nodes) if self.value is ANYTHING else self.value in nodes)


ALWAYS = Need("", None)


@dataclass(frozen=True, slots=True, eq=False)  # a row is no other row: tables are compared for every batch
class Field:
    """One field.

    `of`: the events that have it; `required`: those that must. Numbers are in [`low`, `high`], or in (`low`, `high`]
    when `above`. `default` stands where it is absent: of a click's number, what an impression without clicks has.
    `join`, of a click's number: how several clicks on one impression join; `given_as`: by which name events have it.
    `needs`: who reads it after the decoder; batches carry a number that has any, and the joiner's rows keep it when one
    of them holds. Raises ValueError for a row that contradicts itself.
    """

    name: str
    type: Type
    of: tuple[Kind, ...]
    meaning: str
    required: tuple[Kind, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    default: str | float | bool | None = None
    join: Join | None = None
    needs: tuple[Need, ...] = ()
    given_as: str = ""  # "": its own

    def __post_init__(self) -> None:
        if self.needs and (self.type not in ("number", "integer") or len(self.of) != 1):
            raise ValueError(f"{self.name}: only numbers, of one kind of event, can be carried beyond the decoder")
        if (self.join is None) == (bool(self.needs) and self.of == (CLICK,)):
            raise ValueError(f"{self.name}: a number of clicks that is needed has a join rule, and no other field")
        if self.join is not None and not (isinstance(self.default, float) and math.isfinite(self.default)):
            raise ValueError(
                f"{self.name}: default = {self.default!r}: must be a number, for impressions without a click"
            )

    @property
    def bounded(self) -> bool:
        """Whether there is a range."""
        return math.isfinite(self.low) or math.isfinite(self.high)

    @property
    def range(self) -> str:
        """The range in words: `in (0, 1]`, `at least 0`, `at most 5`; "" when there is none."""
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f"in {'(' if self.above else '['}{self.low:.15g}, {self.high:.15g}]"
        if math.isfinite(self.low):
            return f"{'above' if self.above else 'at least'} {self.low:.15g}"
        return f"at most {self.high:.15g}" if math.isfinite(self.high) else ""

    @property
    def absent(self) -> float:
        """What a row of the joiner has without it."""
        return self.default if isinstance(self.default, float) else math.nan


_ONLINE = "what online models learn from; text is one-hot"
_AUCTIONS = Need("auction.points", ANYTHING)
_ROWS = (
    Field("type", "text", BOTH, '"impression" or "click"; without it, an event with `pclick`, `predictions`, `clicked`, `shown` or `features` is an impression'),
    Field("impression_id", "text", BOTH, "unique; a click names the impression that it is on", required=BOTH),
    Field("ts", "time", BOTH, "when it happened", required=BOTH),
    Field("user_id", "text", BOTH, "for a click in Kafka, the key of the message", required=(IMPRESSION,)),
    Field("request_id", "text", (IMPRESSION,), "the ranked list that it was part of"),
    Field("item_id", "text", (IMPRESSION,), "what was shown"),
    Field("model", "text", (IMPRESSION,), "the model that computed `pclick`", default="default"),
    Field("model_version", "text", (IMPRESSION,), "its version", default="unknown"),
    Field("pclick", "number", (IMPRESSION,), "required unless `predictions` are given, or a model here learns from `features`", low=0.0, high=1.0),
    Field("clicked", "label", (IMPRESSION,), "the label, where it is already known: it matures with the attribution window as any other, but waits for no clicks"),
    Field("position", "integer", (IMPRESSION,), "in the list, 0 is the top; a dimension of `[slices]`, as is `block`", low=0.0, high=float((1 << 31) - 1), needs=(ALWAYS,)),
    Field("propensity", "number", (IMPRESSION,), "the probability that this item was shown; a dimension of `[slices]`", low=0.0, high=1.0, above=True, needs=(Need("compare.more", "log_loss_snips"), Need("compare.more", "policy_value"), Need("exposure.propensity", "logged"), Need("strata.by", "propensity"), Need("slices.dimensions", "propensity"))),
    Field("shown", "label", (IMPRESSION,), "false: a candidate that was considered and not shown; it has no label and is in no metric of impressions", default=True),
    Field("weight", "number", (IMPRESSION,), "number of impressions of the whole traffic that this one stands for", low=0.0, high=MAX_WEIGHT, above=True, default=1.0, needs=(Need("sampling.weights", True),)),
    Field("query_id", "text", (IMPRESSION,), "the query of the request; auctions use the history of (query, item)"),
    Field("bid", "number", (IMPRESSION,), "what the advertiser pays for a click", low=0.0, needs=(_AUCTIONS,)),
    Field("value", "number", (CLICK,), "the value of the click: seconds watched, revenue; a negative one counts as 0, except for `objectives` and `policy_value`", default=0.0, join=Join.LARGEST, needs=(Need("users.weighting", "value"), Need("objectives", ANYTHING), Need("metrics.value", True), Need("compare.more", "value"), Need("compare.more", "policy_value"), *(Need("ranking.gain", gain) for gain in ("value", "sqrt_value", "log_value")))),
    Field("slices", "values", (IMPRESSION,), "those named in `slices.dimensions` get their own results"),
    Field("predictions", "numbers", (IMPRESSION,), "other versions' pClick for this same impression", low=0.0, high=1.0),
    Field("policies", "numbers", (IMPRESSION,), "the probability with which each version would have shown this item here", low=0.0, high=1.0),
    Field("features", "features", (IMPRESSION,), _ONLINE),
)  # fmt: skip
FIELDS: dict[str, Field] = {field.name: field for field in _ROWS}


def register(field: Field) -> None:
    """Adds a field. Raises ValueError when there is one of that name."""
    if field.name in FIELDS:
        raise ValueError(f"{field.name}: there is such a field already")
    FIELDS[field.name] = field


def scalars() -> list[Field]:
    """The fields that have one plain value, in the order of the table: all but maps."""
    return [field for field in FIELDS.values() if field.type not in ("values", "numbers", "features")]


def by_version() -> list[Field]:
    """The fields that give a number to each of several versions."""
    return [field for field in FIELDS.values() if field.type == "numbers"]


def required_of_all() -> list[str]:
    """The names of the fields that no event can do without."""
    return [field.name for field in FIELDS.values() if field.required == BOTH]


def carried(kind: Kind) -> list[Field]:
    """The numbers of one kind of event that its batches carry, because they may be needed."""
    return [field for field in FIELDS.values() if field.needs and field.of == (kind,)]


def needed(settings: object) -> tuple[Field, ...]:
    """The carried fields that these settings ask for, which the joiner's rows keep; those of clicks come first."""
    some: Iterable[Field] = (*carried(CLICK), *carried(IMPRESSION))
    return tuple(field for field in some if any(need.holds(settings) for need in field.needs))

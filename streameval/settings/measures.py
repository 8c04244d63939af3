"""What is measured beside the metrics that every series has: one section each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from streameval.events.durations import HOUR
from streameval.events.fields import MAX_WEIGHT
from streameval.events.names import MAX_NAME
from streameval.settings.section import Int, PositiveDuration, Real, Section, Size, written
from streameval.settings.units import format_duration

MAX_K = 1000  # of a cut
MOST_BY_USER = 3  # metrics: a user has a row of at most 48 bytes for every version
MOST_CUTS = 10


def _range_of_rates(value: object) -> object:
    if isinstance(value, list | tuple) and len(value) == 2:
        low, high = value
        numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in value)
        if numbers and 0 <= low < high <= 1:
            return value
    raise ValueError("must be two false positive rates from 0 to 1, the lower one first, for example [0.0, 0.1]")


_Range = Annotated[
    tuple[float, float],
    BeforeValidator(_range_of_rates),
    WithJsonSchema({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}),
]


class Metrics(Section):
    """Where on the ROC curve, and at which pClick, decisions are made."""

    value: bool = Field(
        False,
        description="keep the `value` of clicks, at 8 bytes per impression: for value per impression, request and user, and GAUC weighted by it; objectives and weighting by value keep it anyway",
    )
    operating_range: _Range = Field(
        (0.0, 0.1),
        description="false positive rates [a, b] between which the partial AUC is computed, 0 <= a < b <= 1",
    )
    threshold: Real = Field(
        0.5,
        ge=0,
        le=1,
        description="pClick from which an impression counts as selected, for precision, recall, F1 and cost",
    )
    cost_ratio: Real = Field(
        1.0, gt=0, description="cost of a click that is not selected, relative to a non-click that is"
    )


class Ranking(Section):
    """Ranking metrics of requests (ranked lists)."""

    k: tuple[Int, ...] = Field((1, 5, 10), description="cut-offs K of the ranked lists; `[]` turns ranking metrics off")
    gain: Literal["click", "value", "sqrt_value", "log_value"] = Field("click", description="gain of NDCG")
    by_user: tuple[str, ...] = Field(
        ("ndcg_10", "hit_rate_1", "mrr"), description="metrics that are also averaged by user, as `<metric>_by_user`"
    )

    @model_validator(mode="after")
    def _cuts(self) -> Ranking:
        shown = list(self.k)
        for k in self.k:
            if not 1 <= k <= MAX_K:
                raise ValueError(f"k = {shown}: {k} must be between 1 and {MAX_K}; [] turns ranking metrics off")
        if len(set(shown)) != len(shown):
            raise ValueError(f"k = {shown}: names a cut twice; each once is enough")
        if len(shown) > MOST_CUTS:
            raise ValueError(f"k = {shown}: must be at most {MOST_CUTS} cuts; every pane keeps sums of each")
        return self

    def _names(self) -> list[str]:
        of_k = ("ndcg", "map", "precision", "recall", "hit_rate", "click_hit_rate")
        return [*(f"{name}_{k}" for k in self.k for name in of_k), *(("mrr", "map") if self.k else ())]

    @model_validator(mode="after")
    def _known_by_user(self) -> Ranking:
        names = self._names()
        if "by_user" not in self.model_fields_set:  # of the default, those that there are
            object.__setattr__(self, "by_user", tuple(name for name in self.by_user if name in names))
        given = list(self.by_user)
        shown = f"by_user = {json.dumps(given)}"
        for name in given:
            if name not in names:
                there_are = f"there are {', '.join(names)}" if names else "there are none with k = []"
                raise ValueError(f"{shown}: {json.dumps(name)} is no ranking metric; {there_are}")
        if len(set(given)) != len(given):
            raise ValueError(f"{shown}: names a metric twice; each once is enough")
        if len(given) > MOST_BY_USER:
            raise ValueError(f"{shown}: must be at most {MOST_BY_USER} metrics; every user has a row for them")
        return self


class Exposure(Section):
    """Estimates as if everything had been shown equally often, and of other policies, from propensities."""

    propensity: Literal["logged", "naive_bayes", "popularity", "logistic"] = Field(
        "logged",
        description="where propensities come from: events, or estimated by the hour: from the clicks of a slice that was shown at random (`naive_bayes`), from how often items were shown (`popularity`), or from the candidates that were not shown (`logistic`)",
    )
    min_propensity: Real = Field(
        1e-4, ge=1e-4, le=1, description="smaller ones are clipped to this, and counted; at least 0.0001"
    )
    max_weight: Real = Field(
        100.0,
        ge=1,
        description="weights are clipped to this in the clipped estimates, which are shown beside the unclipped ones",
    )
    randomised: str = Field("", description="slice whose impressions were shown at random, for example `policy:random`")

    @model_validator(mode="after")
    def _nothing_is_ignored(self) -> Exposure:
        if self.propensity == "naive_bayes":
            dimension, colon, value = self.randomised.partition(":")
            if not (dimension and colon and value):
                raise ValueError(
                    f'randomised = {json.dumps(self.randomised)}: propensity = "naive_bayes" needs a slice whose impressions '
                    'were shown at random, for example "policy:random"'
                )
        elif self.randomised:
            raise ValueError(
                f'randomised = {json.dumps(self.randomised)}: is used only with propensity = "naive_bayes"; leave it out'
            )
        return self


class Strata(Section):
    """Results by strata of propensity; there are none without this section."""

    by: Literal["", "propensity", "popularity"] = Field(
        "propensity",
        description="which propensities define the strata: logged ones, or those estimated from how often items were shown; empty: no strata",
    )
    count: Int = Field(4, ge=2, le=10, description="maximum number of strata, of equal mass or width")
    cut: Literal["mass", "width"] | tuple[Real, ...] = Field(
        "mass",
        description="equal numbers of impressions, equal width, or the inner edges: 1 to 9 ascending numbers between 0 and 1",
    )

    @field_validator("cut", mode="before")
    @classmethod
    def _is_a_cut(cls, cut: object) -> object:
        edges = cut if isinstance(cut, list | tuple) else ()
        numbers = [isinstance(edge, int | float) and not isinstance(edge, bool) and isfinite(edge) for edge in edges]
        if cut in ("mass", "width") or (isinstance(cut, list | tuple) and all(numbers)):
            return cut
        raise ValueError('must be "mass", "width", or a list of edges, for example [0.01, 0.1, 0.5]')

    @model_validator(mode="after")
    def _can_be(self) -> Strata:
        if isinstance(self.cut, tuple):
            edges = [0.0, *self.cut, 1.0]
            if not 1 <= len(self.cut) <= 9:
                raise ValueError(
                    f"cut = {json.dumps(self.cut)}: must have 1 to 9 edges, for 2 to 10 strata; for example [0.01, 0.1, 0.5]"
                )
            if any(not low < high for low, high in pairwise(edges)):
                raise ValueError(
                    f"cut = {json.dumps(self.cut)}: edges must increase, above 0 and below 1; for example [0.01, 0.1, 0.5]"
                )
        return self


class AuctionPoint(Section):
    """One operating point."""

    name: str = Field(min_length=1, max_length=MAX_NAME, description="its name in results")
    mainline_reserve: Real = Field(0.0, ge=0, description="reserve of the mainline: its lowest rank score")
    sidebar_reserve: Real = Field(0.0, ge=0, description="reserve of the sidebar: its lowest rank score")


class Auction(Section):
    """Placements, and replayed auctions."""

    mainline: Int = Field(
        3, ge=1, le=1000, description="number of positions in the mainline, from the top; the rest are the sidebar"
    )
    slots: Int = Field(7, ge=1, le=1000, description="total number of positions")
    squash: Real = Field(1.0, ge=0, description="exponent of pClick in the rank score")
    curve: Literal["within_pairs", "observed"] = Field("within_pairs", description="click curve over positions")
    history: PositiveDuration = written("24h", description="how far back the history of pairs goes")
    memory: Size = written(
        "128MB", description="memory limit of a partition's history of pairs; beyond it, queries are sampled"
    )
    points: tuple[AuctionPoint, ...] = Field(
        (), max_length=64, description="operating points at which requests are replayed; `[]` turns this off"
    )

    @model_validator(mode="after")
    def _can_be_run(self) -> Auction:
        if self.mainline > self.slots:
            raise ValueError(f"mainline = {self.mainline}: must be at most slots = {self.slots}, which include it")
        names = [point.name for point in self.points]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f'points: the name "{name}" is given twice; every operating point needs its own')
            if not name.strip():
                raise ValueError("points: a name is blank; every operating point needs its own")
        known: dict[tuple[float, float], str] = {}
        for point in self.points:
            twin = known.setdefault((point.mainline_reserve, point.sidebar_reserve), point.name)
            if twin != point.name:
                raise ValueError(f'points: "{twin}" and "{point.name}" have the same reserves; leave one of them out')
        if self.history % HOUR:
            raise ValueError(f'history = "{format_duration(self.history)}": must be whole hours, for example "24h"')
        return self


class Sampling(Section):
    """Logs that hold a sample of the traffic only: every sum and metric is then an estimate for the whole of it."""

    negatives: Real = Field(
        1.0,
        ge=1 / MAX_WEIGHT,
        le=1,
        description="share of the non-clicks that the log holds: each counts as 1 / `negatives` non-clicks, a click as one",
    )
    weights: bool = Field(
        False, description="impressions count as many times as their field `weight` says, above 0 and at most 1000"
    )
    trained_negatives: Real = Field(
        1.0,
        ge=1 / MAX_WEIGHT,
        le=1,
        description="share w of the non-clicks that the versions of `recalibrate` were trained on",
    )
    recalibrate: tuple[str, ...] = Field(
        (),
        description='patterns of the versions, such as `"v*"`, whose pClick p is corrected to p / (p + (1 - p) / w) before it is counted; results say so',
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Sampling:
        if self.weights and self.negatives < 1:
            raise ValueError(
                f"negatives = {self.negatives:g}: cannot be used with weights = true, which takes each impression's own weight; "
                "leave one of them out"
            )
        if bool(self.recalibrate) != (self.trained_negatives < 1):
            raise ValueError(
                f"recalibrate = {json.dumps(self.recalibrate)}: goes with trained_negatives, the share of the non-clicks that those "
                f"versions were trained on, below 1; it is {self.trained_negatives:g}"
            )
        if not all(self.recalibrate):
            raise ValueError(f"recalibrate = {json.dumps(self.recalibrate)}: an empty pattern matches no version")
        return self

    @property
    def is_sample(self) -> bool:
        """Whether the log is a sample, whose impressions stand for more, or less, than themselves."""
        return self.weights or self.negatives < 1

    @property
    def by(self) -> Literal["", "negatives", "weights"]:
        """What determines how many they stand for."""
        return "weights" if self.weights else "negatives" if self.negatives < 1 else ""

    @property
    def binding(self) -> str | None:
        """What stored counts depend on; None: on nothing of this."""
        asked = self.model_dump(mode="json", exclude_defaults=True)
        return json.dumps(asked, sort_keys=True) if asked else None


class Objective(Section):
    """A label of its own: clicks that are worth enough."""

    name: str = Field(min_length=1, max_length=MAX_NAME, description="its name in results and queries")
    value_at_least: Real = Field(
        gt=0, description="a click counts as positive when its `value`, the largest of its impression, is at least this"
    )
    versions: tuple[str, ...] = Field(
        ("*",), description='patterns of the model versions that it is evaluated for, such as `"lp-*"`'
    )

    @model_validator(mode="after")
    def _can_be_named(self) -> Objective:
        if self.name == "*" or not self.name.isprintable() or self.name != self.name.strip():
            raise ValueError(
                f'name = {json.dumps(self.name)}: cannot be queried; must be plain text, and not "*", which stands for '
                "all of them"
            )
        if not self.versions or not all(self.versions):
            raise ValueError(
                f"versions = {json.dumps(self.versions)}: matches no version; give patterns, or leave it out for all"
            )
        return self


def same_name(objectives: Sequence[Objective]) -> str | None:
    """What is wrong when two objectives have one name."""
    names = [objective.name for objective in objectives]
    twice = next((name for name in names if names.count(name) > 1), None)
    return None if twice is None else f'objectives: the name "{twice}" is given twice; every objective needs its own'

"""Builds the parts of a pipeline and of its partitions according to the settings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from streameval.auction.live import LiveAuctions, keys_of
from streameval.compare.announce import Announcements
from streameval.compare.comparisons import Comparisons
from streameval.counting.estimates import LOGGED, Propensities, estimated, field_of_estimate
from streameval.counting.objectives import ObjectiveRule, Objectives, kept
from streameval.counting.outcomes import OutcomePropensities, RandomSlice
from streameval.counting.popularity import ItemPopularity
from streameval.counting.scoreboard import Scoreboard
from streameval.counting.shown_model import ShownModel
from streameval.counting.slice_rows import SliceRows
from streameval.events.batch import Catalog, Impressions
from streameval.events.fields import needed
from streameval.join.policy import JoinPolicy
from streameval.loop.estimates import RowPropensities
from streameval.loop.options import guarded, options_of, values_counted, weight_rule
from streameval.loop.partition import Partition
from streameval.loop.recalibration import Recalibration
from streameval.loop.row_counts import LabelListener
from streameval.models.learner import Learner, ModelPlace
from streameval.models.registry import make_model
from streameval.process.background import Background
from streameval.settings.measures import Auction
from streameval.settings.tree import Settings


def partition(
    settings: Settings,
    catalog: Catalog,
    comparisons: Comparisons,
    slice_rows: SliceRows,
    place: ModelPlace,
    users_budget: int,
    *,
    shared: bool,
    listener: LabelListener | None,
    background: Background,
) -> Partition:
    """`place`: the source of its impressions; `users_budget`: its share of `users.memory`, bytes; `background`: which counts."""
    return Partition(
        policy(settings, catalog, comparisons.gauc_window),
        scoreboard(settings, catalog, slice_rows, users_budget),
        comparisons.counted(),
        learners(settings, catalog, place),
        settings.join.request_gap,
        settings.join.score_at,
        shared=shared,
        listener=listener,
        auctions=auctions(settings),
        objectives=objectives_of(settings, catalog),
        estimates=estimates(settings, catalog),
        background=background,
    )


def policy(settings: Settings, catalog: Catalog, gauc_window: int) -> JoinPolicy:
    """The joiner's rules. `gauc_window`: of comparisons, ms; rows of one window can still be read together when the last of
    them cannot be corrected any more, and so can those of one request.
    """
    join, sources = settings.join, estimators(settings)
    request_life = max(gauc_window, join.request_gap)
    closes_after = join.attribution_window + join.request_gap + settings.windows.pane  # at the latest
    keep = kept(needed(settings)) if _valued(settings) else needed(settings)
    return JoinPolicy(
        attribution_window=join.attribution_window,
        allowed_lateness=join.allowed_lateness,
        correction_horizon=join.correction_horizon,
        max_pending=join.max_pending,
        wide_slices=catalog.radix ** len(catalog.dimensions) >= 1 << 32,
        hold=request_life + max(closes_after - join.correction_horizon, 0),
        request_life=request_life,
        mark=_keys(settings.auction) if settings.auction.points else None,
        items=bool({"popularity", "logistic"}.intersection(sources)),
        keep=(*keep, *map(estimated, sources)),
        segment_rows=settings.store.segment_rows if settings.store.path else 0,
        negatives=settings.sampling.negatives,
        recalibrate=recalibration_of(settings, catalog),
    )


def recalibration_of(settings: Settings, catalog: Catalog) -> Recalibration | None:
    """The correction of scores of the versions that the settings name; None: they name none."""
    return Recalibration(options_of(settings).sampling, catalog) if settings.sampling.recalibrate else None


def comparisons(settings: Settings, catalog: Catalog, announcements: Announcements) -> Comparisons:
    """`announcements`: of deploys."""
    least = settings.exposure.min_propensity
    with_guard = guarded(settings)
    return Comparisons(
        settings.compare,
        catalog,
        settings.windows.pane,
        settings.join,
        settings.buckets.edges,
        announcements,
        least if with_guard else None,
        least=least,
        operating_range=settings.metrics.operating_range,
        guard_cut=max(settings.ranking.k, default=None) if with_guard else None,
        weighed=settings.sampling.by,
        revisions={model.name: model.revision for model in settings.models},
    )


def _valued(settings: Settings) -> bool:
    """Whether anything that is counted again after a correction reads the value of clicks as of the label's due time."""
    return bool(settings.objectives) or not {"value", "policy_value"}.isdisjoint(settings.compare.more)


def _keys(settings: Auction) -> Callable[[Impressions], NDArray[np.uint64]]:
    return lambda impressions: keys_of(impressions, settings.slots)


def auctions(settings: Settings) -> LiveAuctions | None:
    """The auctions of one partition; None: auctions are not replayed."""
    if not settings.auction.points:
        return None
    return LiveAuctions(settings.auction, settings.windows.pane, settings.join.request_gap)


def objectives_of(settings: Settings, catalog: Catalog) -> Objectives | None:
    """Counts scores by the labels of further objectives; None: there are none."""
    rules = [ObjectiveRule(one.name, one.value_at_least, one.versions) for one in settings.objectives]
    return Objectives(rules, catalog) if rules else None


def scoreboard(settings: Settings, catalog: Catalog, slice_rows: SliceRows, users_budget: int) -> Scoreboard:
    """`users_budget`: see `partition`."""
    pane = settings.windows.pane
    return Scoreboard(
        slice_rows,
        len(catalog.dimensions),
        options_of(settings),
        pane,
        [window // pane for window in settings.windows.sliding],
        settings.users.weighting,
        users_budget=users_budget,
        horizon=settings.join.correction_horizon,
        weights=weight_rule(settings),
        weigh_by=_field(settings.exposure.propensity),
        strata_by=_field(settings.strata.by if settings.strata.by == "popularity" else "logged"),
        values=values_counted(settings),
        with_copies=settings.sampling.is_sample,
    )


def _field(source: str) -> str:
    return LOGGED if source == "logged" else field_of_estimate(source)


def estimators(settings: Settings) -> tuple[str, ...]:
    """The propensity estimators that the settings need."""
    asked = settings.exposure.propensity, settings.strata.by
    return tuple(source for source in ("naive_bayes", "popularity", "logistic") if source in asked)


def reads_candidates(settings: Settings) -> bool:
    """Whether anything uses candidates, which were considered and not shown."""
    return bool(settings.auction.points) or "logistic" in estimators(settings)


def estimates(settings: Settings, catalog: Catalog) -> RowPropensities | None:
    """The estimators of one partition's propensities; None: there are none."""
    pane, sources = settings.windows.pane, estimators(settings)
    makers: dict[str, Callable[[], Propensities]] = {
        "naive_bayes": lambda: OutcomePropensities(_randomised(settings, catalog), settings.join.correction_horizon),
        "popularity": ItemPopularity,
        "logistic": lambda: ShownModel(pane),
    }
    return RowPropensities({source: makers[source]() for source in sources}, pane) if sources else None


def _randomised(settings: Settings, catalog: Catalog) -> RandomSlice:
    """The slice of traffic that was shown at random."""
    name, _, value = settings.exposure.randomised.partition(":")
    dimension = catalog.dimensions.index(name)
    return RandomSlice(dimension, catalog.value_code(dimension, value), catalog.radix)


def learners(settings: Settings, catalog: Catalog, place: ModelPlace) -> list[Learner]:
    """The online models of one partition; `place`: the source of its impressions. Raises ModelError."""
    return [
        Learner(
            make_model(model),
            catalog.series_code(model.name, "online", "online"),
            model.name,
            place,
            model.max_failures,
            model.revision,
        )
        for model in settings.models
    ]

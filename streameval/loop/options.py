"""The optional sums of a series, as the settings ask for them."""

from __future__ import annotations

from streameval.auction.points import auction_tallies
from streameval.settings.tree import Settings
from streameval.sketches.copies import WEIGHTS
from streameval.sketches.exposed_lists import exposed_tallies, strata_ndcg_tallies
from streameval.sketches.exposure import WeightRule, exposure_tallies, policy_tallies
from streameval.sketches.layout import Options, Sampled
from streameval.sketches.list_cells import ranking_tallies
from streameval.sketches.propensity import PropensityStrata
from streameval.sketches.tally import Tally
from streameval.sketches.yield_cells import VALUES, yields


def weight_rule(settings: Settings) -> WeightRule:
    """How propensities become weights of impressions."""
    return WeightRule(settings.exposure.min_propensity, settings.exposure.max_weight)


def _source(settings: Settings) -> str:
    """Where propensities come from, as used in the names of sums; "": from the log."""
    exposure = settings.exposure
    return "" if exposure.propensity == "logged" else f":{exposure.propensity}:{exposure.randomised}"


def values_counted(settings: Settings) -> bool:
    """Whether values of clicks are counted, overall and by user."""
    return settings.metrics.value or bool(settings.objectives) or settings.users.weighting == "value"


def tallies_of(settings: Settings) -> tuple[Tally, ...]:
    """The tallies that these settings ask for: one line each."""
    strata, lists = strata_of(settings), (settings.ranking.k, settings.ranking.gain)
    return (
        yields(settings.auction.mainline),
        *((VALUES,) if values_counted(settings) else ()),
        *exposure_tallies(weight_rule(settings), _source(settings)),
        *policy_tallies(weight_rule(settings)),
        *ranking_tallies(*lists),
        *exposed_tallies(*lists, weight_rule(settings), _source(settings)),
        *(() if strata is None else strata.tallies()),
        *strata_ndcg_tallies(strata, *lists),
        *auction_tallies(settings.auction),
        *((WEIGHTS,) if settings.sampling.is_sample else ()),
    )


def strata_of(settings: Settings) -> PropensityStrata | None:
    """The strata of propensity that the settings ask for."""
    s, least = settings.strata, settings.exposure.min_propensity
    if not s.by:
        return None
    if isinstance(s.cut, tuple):
        return PropensityStrata(s.count, "mass", s.cut, least, s.by)
    return PropensityStrata(s.count, s.cut, (), least, s.by)


def options_of(settings: Settings) -> Options:
    """The settings that vectors and their metrics depend on."""
    return Options(
        settings.buckets.edges,
        tallies_of(settings),
        **settings.metrics.model_dump(exclude={"value"}),
        k=settings.ranking.k,
        gain=settings.ranking.gain,
        by_user=settings.ranking.by_user,
        strata=strata_of(settings),
        mainline=settings.auction.mainline,
        sampling=Sampled(**settings.sampling.model_dump()),
    )


def guarded(settings: Settings) -> bool:
    """Whether paired comparisons are also evaluated under uniform exposure: propensities are logged, and the settings use them."""
    return settings.strata.by == "propensity" or "propensity" in settings.slices.dimensions

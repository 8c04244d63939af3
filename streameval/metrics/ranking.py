"""Metrics of order: does a click get a higher pClick than a non-click?"""

from __future__ import annotations

from streameval.metrics.auc import binned_auc
from streameval.metrics.view import Undefined, View


def auc(view: View) -> float | Undefined:
    """P(score of a random click > score of a random non-click) + P(equal) / 2, over all samples (Fawcett 2006)."""
    missing = view.need_both_classes()
    if missing:
        return missing
    if view.exact_auc is not None:
        return view.exact_auc
    found = binned_auc(view.negatives, view.positives)
    return Undefined("no_clicks") if found is None else found[0]


def auc_error(view: View) -> float | Undefined:
    """Half-width of the interval that certainly holds the exact AUC of the scores: 0 when `auc` is exact.

    sum_b pos_b neg_b / (2 P N) over histogram bins b.
    """
    missing = view.need_both_classes()
    if missing:
        return missing
    if view.exact_auc is not None:
        return 0.0
    found = binned_auc(view.negatives, view.positives)
    return Undefined("no_clicks") if found is None else found[1]


def gauc(view: View) -> float | Undefined:
    """sum_u w_u AUC_u / sum_u w_u over users with both labels (Zhou et al. 2018, DIN, eq. 8)."""
    if view.moments.impressions == 0:
        return Undefined("no_impressions")
    if view.ranked is None:
        return Undefined("not_kept_for_slices")
    if view.ranked.users == 0:
        return Undefined("no_eligible_user")
    if view.ranked.weight == 0:
        return Undefined("no_weight")
    return view.ranked.weighted_auc / view.ranked.weight


def gauc_users(view: View) -> int | Undefined:
    """Users that GAUC rests on: those with both labels."""
    return Undefined("not_kept_for_slices") if view.ranked is None else view.ranked.users


def gauc_impressions(view: View) -> int | Undefined:
    """Impressions of the users that GAUC rests on."""
    return Undefined("not_kept_for_slices") if view.ranked is None else view.ranked.impressions


def gauc_request(view: View) -> float | Undefined:
    """GAUC with the request (one ranked list) as the group, over closed requests with both labels."""
    m = view.moments
    if m.impressions == 0:
        return Undefined("no_impressions")
    if view.ranked is None:
        return Undefined("not_kept_for_slices")
    if m.requests == 0:
        return Undefined("no_eligible_request")
    return m.request_auc / m.request_weight if m.request_weight else Undefined("no_weight")

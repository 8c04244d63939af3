"""Metrics of order: does a click get a higher pClick than a non-click?"""

from __future__ import annotations

import math
from collections.abc import Callable

from streameval.metrics.auc import binned_auc
from streameval.metrics.metric import Cells, Column, Gauge, Metric, OfCells, OfUsers
from streameval.metrics.view import NOT_KEPT_FOR_RANGES, NOT_KEPT_FOR_SLICES, VALUES_NOT_KEPT, Ranked, Undefined, View
from streameval.sketches.blocks import PHI0, PHI1
from streameval.sketches.layout import BLOCK_PLACED0, BLOCK_PLACED1, BLOCK_REQUEST_W, BLOCK_REQUEST_WA
from streameval.sketches.weightings import SQUARE_SCALE, TERM_SCALE, Weighted
from streameval.sketches.yield_cells import VALUES


def auc(view: View) -> float | Undefined:
    """P(p+ > p-) + P(p+ = p-) / 2 of a random click and non-click, over all samples of the window (Fawcett 2006)."""
    found = _auc(view)
    return found if isinstance(found, Undefined) else found[0]


def auc_error(view: View) -> float | Undefined:
    """sum_b pos_b neg_b / (2 P N) over histogram bins b; 0 when the scores themselves were sorted."""
    found = _auc(view)
    return found if isinstance(found, Undefined) else found[1]


def _auc(view: View) -> tuple[float, float] | Undefined:
    missing = view.need_both_classes()
    if missing:
        return missing
    if view.exact_auc is not None:
        return view.exact_auc, 0.0
    return binned_auc(view.used.negatives, view.used.positives) or Undefined("no_clicks")


def gauc(view: View) -> float | Undefined:
    """sum_u w_u AUC_u / sum_u w_u over users with both labels in the window (Zhou et al. 2018, DIN, eq. 8)."""
    return _gauc_by(view, lambda ranked: ranked.weighted)


def gauc_clicks(view: View) -> float | Undefined:
    """sum_u P_u AUC_u / sum_u P_u over users with both labels, P_u the user's clicks."""
    return _gauc_by(view, lambda ranked: ranked.others[0])


def gauc_uniform(view: View) -> float | Undefined:
    """Mean of AUC_u over users with both labels, each counted once."""
    return _gauc_by(view, lambda ranked: ranked.others[1])


def gauc_value(view: View) -> float | Undefined:
    """sum_u v_u AUC_u / sum_u v_u over users with both labels, v_u the summed value of the user's clicks."""
    return _gauc_by(view, lambda ranked: ranked.others[2])


def _gauc_by(view: View, terms_of: Callable[[Ranked], Weighted | None]) -> float | Undefined:
    """GAUC by one of the weightings, from the same ranks; None: its values are not kept, for ranges even where they are."""
    missing = view.need_impressions()
    if missing:
        return missing
    if isinstance(view.ranked, Undefined):
        return view.ranked
    if view.ranked.users == 0:
        return Undefined("no_eligible_user")
    terms = terms_of(view.ranked)
    if terms is None:
        return VALUES_NOT_KEPT if view.tally(VALUES.name) is None else NOT_KEPT_FOR_RANGES
    return terms.weighted_auc / terms.weight if terms.weight else Undefined("no_weight")


def gauc_users(view: View) -> int | Undefined:
    """Users with both labels."""
    return view.ranked if isinstance(view.ranked, Undefined) else view.ranked.users


def gauc_impressions(view: View) -> int | Undefined:
    """Impressions of the users with both labels."""
    return view.ranked if isinstance(view.ranked, Undefined) else view.ranked.impressions


def gauc_request(view: View) -> float | Undefined:
    """sum_r w_r AUC_r / sum_r w_r over closed requests (ranked lists) with both labels."""
    m = view.moments
    missing = view.need_impressions()
    if missing:
        return missing
    if not view.layout.by_block:
        return NOT_KEPT_FOR_SLICES
    if m.requests == 0:
        return Undefined("no_eligible_request")
    return m.request_auc / m.request_weight if m.request_weight else Undefined("no_weight")


def _auc_of_cells(cells: Cells) -> Cells:
    """mean of PHI1 over clicks + mean of PHI0 over non-clicks, of those placed (Obuchowski 1997)."""
    return cells[..., PHI1] / cells[..., BLOCK_PLACED1] + cells[..., PHI0] / cells[..., BLOCK_PLACED0]


def _gauc_errors(ranked: Ranked) -> tuple[float, float | None] | None:
    return weighted_errors(ranked.weighted, ranked.users)


def weighted_errors(terms: Weighted | None, users: int) -> tuple[float, float | None] | None:
    """Users are independent: sum (w (AUC - GAUC))^2 * u / (u - 1), over (sum w)^2; df by their weights."""
    if users < 2 or terms is None or not terms.weight:
        return None
    gauc, weight = terms.weighted_auc / terms.weight, terms.weight / TERM_SCALE
    both, one, plain = (square / SQUARE_SCALE for square in terms.squares)
    spread = max(both - 2 * gauc * one + gauc * gauc * plain, 0.0)
    df = max(weight * weight / plain - 1, 0.0) if plain else None
    return math.sqrt(spread * users / (users - 1)) / weight, df


def _errors_by(weighting: int) -> Callable[[Ranked], tuple[float, float | None] | None]:
    return lambda ranked: weighted_errors(ranked.others[weighting], ranked.users)


_BY = (  # in the order of `weightings.OTHER_WEIGHTINGS`
    ("clicks", gauc_clicks, "by their clicks"),
    ("uniform", gauc_uniform, "all alike"),
    ("value", gauc_value, "by the value of their clicks"),
)


def _requests_of_cells(cells: Cells) -> Cells:
    return cells[..., BLOCK_REQUEST_WA] / cells[..., BLOCK_REQUEST_W]


ROWS = (
    Metric(
        "auc",
        auc,
        "probability that a random click has a higher score than a random non-click; 0.5 is chance",
        better="higher",
        influence=OfCells(_auc_of_cells, placed=True),
        needs="scores",
        bound="auc_error",
        gauge=Gauge(
            "auc",
            "Area under the ROC curve over all samples of the window, ties 1/2.",
            "User-clustered standard error of auc.",
            in_slices=True,
        ),
        column=Column("AUC", overview=True, least=0, most=1),
    ),
    Metric(
        "auc_error",
        auc_error,
        "certified error: the exact AUC is within this of `auc`",
        better="lower",
        needs="scores",
        gauge=Gauge("auc_error_bound", "The exact AUC is certainly within this of auc; 0 when auc is exact."),
    ),
    Metric(
        "gauc",
        gauc,
        "AUC within each user, averaged over users; 0.5 is chance",
        better="higher",
        influence=OfUsers(_gauc_errors),
        needs="users",
        gauge=Gauge(
            "gauc",
            "Mean of per-user AUC over users with both labels, weighted as configured.",
            "Standard error of gauc.",
        ),
        column=Column("GAUC", overview=True, least=0, most=1),
    ),
    Metric(
        "gauc_users",
        gauc_users,
        "users with both clicks and non-clicks, on which GAUC is based",
        unit="users",
        needs="users",
        whole=True,
        gauge=Gauge("gauc_users", "Users that gauc is based on."),
    ),
    Metric(
        "gauc_impressions",
        gauc_impressions,
        "impressions of these users",
        unit="impressions",
        needs="users",
        whole=True,
    ),
    *(
        Metric(
            f"gauc_{weighting}",
            function,
            f"AUC within each user, averaged over users {by}, whatever `users.weighting` is",
            better="higher",
            influence=OfUsers(_errors_by(number)),
            needs="users",
            of_samples=False,  # who has no other impressions left in the sample is not known to have clicked
            column=Column(f"GAUC {by}"),
        )
        for number, (weighting, function, by) in enumerate(_BY)
    ),
    Metric(
        "gauc_request",
        gauc_request,
        "AUC within each request, averaged over requests; 0.5 is chance",
        better="higher",
        influence=OfCells(_requests_of_cells, alone=False),
        of_samples=False,
        gauge=Gauge("gauc_request", "GAUC with the request (one ranked list) as the group."),
        column=Column("GAUC by request", least=0, most=1),
    ),
)

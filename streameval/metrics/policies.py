"""What a version would have earned with its own policy, from what another one showed.

An impression carries the probability with which every version would have shown it (`policies`), and is weighted by that
probability over its propensity. A policy's mean weight is 1 if the propensities are right, whatever the policy: if it
is not, within its error, they are wrong, and there are no estimates.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from streameval.metrics.exposure import effective_samples, weighted, weighted_cells
from streameval.metrics.metric import Cells, Column, Gauge, Metric, OfTally
from streameval.metrics.view import NOT_KEPT_FOR_SLICES, VALUES_NOT_KEPT, Undefined, View
from streameval.sketches.blocks import BLOCKS
from streameval.sketches.exposure import CLIPPED, COUNT, POLICY_CLICK, POLICY_TERMS, POLICY_VALUE, TERM_WEIGHT, coarse
from streameval.sketches.yield_cells import VALUES

INCONSISTENT = Undefined("propensities_inconsistent")
_TERMS = len(POLICY_TERMS)
_BEYOND = 4.0  # standard errors of the mean weight from 1
_LEAST_BLOCKS, _LEAST_SAMPLES = 30, 200.0  # from which that error is believed
_IPS = -1


def _cells(view: View) -> NDArray[np.float64] | Undefined:
    cells = view.tally("policy")
    if cells is None:
        return NOT_KEPT_FOR_SLICES
    return cells if cells[COUNT] > 0 else Undefined("no_policy")


def policy_impressions(view: View) -> int | Undefined:
    """n, the impressions with a propensity whose `policies` name the version."""
    cells = view.tally("policy")
    return NOT_KEPT_FOR_SLICES if cells is None else int(cells[COUNT])


def policy_mean_weight(view: View) -> float | Undefined:
    """sum w / n, w = policies[version] / propensity; 1 if the propensities are right."""
    cells = _cells(view)
    return cells if isinstance(cells, Undefined) else weighted(cells, TERM_WEIGHT, _TERMS) / float(cells[COUNT])


def policy_ess(view: View) -> float | Undefined:
    """(sum w)^2 / sum w^2 (Kish 1965)."""
    cells = _cells(view)
    return cells if isinstance(cells, Undefined) else effective_samples(cells, _TERMS)


def policy_clipped(view: View) -> float | Undefined:
    """Impressions with w above `max_weight`, or a propensity below `min_propensity`, over n."""
    cells = _cells(view)
    return cells if isinstance(cells, Undefined) else float(cells[CLIPPED] / cells[COUNT])


def inconsistent(view: View) -> bool:
    """Whether the mean weight is further from 1 than chance explains: 4 standard errors between blocks of users.

    From 30 blocks and 200 effective samples on: few heavy weights make the error itself too small.
    """
    cells, blocks = view.tally("policy"), view.tally("policy_users")
    if cells is None or blocks is None or int((blocks[:, COUNT] > 0).sum()) < _LEAST_BLOCKS:
        return False
    if effective_samples(cells, _TERMS) < _LEAST_SAMPLES:
        return False
    n, w = blocks[:, COUNT], blocks[:, coarse(TERM_WEIGHT, _TERMS)]
    left = (w.sum() - w) / (n.sum() - n) - w.sum() / n.sum()
    error = float(np.sqrt((BLOCKS - 1) / BLOCKS * (left @ left)))
    return abs(w.sum() / n.sum() - 1) > _BEYOND * error + 1e-3  # rounding of logged propensities is no fault


def _estimate(term: int, over: int, clipped: bool, docs: str) -> tuple[Callable[[View], float | Undefined], OfTally]:
    def value(view: View) -> float | Undefined:
        cells = _cells(view)
        if isinstance(cells, Undefined):
            return cells
        if inconsistent(view):
            return INCONSISTENT
        if term == POLICY_VALUE and view.layout.tally(VALUES.name) is None:
            return VALUES_NOT_KEPT
        below = float(cells[COUNT]) if over == _IPS else weighted(cells, TERM_WEIGHT, _TERMS, clipped)
        return weighted(cells, term, _TERMS, clipped) / below if below > 0 else Undefined("never_shown_by_policy")

    def of_blocks(cells: Cells) -> Cells:
        below = cells[..., COUNT] if over == _IPS else weighted_cells(cells, TERM_WEIGHT, _TERMS, clipped)
        above = weighted_cells(cells, term, _TERMS, clipped)
        if term == POLICY_VALUE:
            above = above + weighted_cells(cells, term + 1, _TERMS, clipped)  # its rest
        return above / below

    value.__doc__ = docs
    return value, OfTally(lambda view: view.tally("policy_users"), of_blocks)


def _row(name: str, outcome: str, estimator: str, clipped: bool) -> Metric:
    suffix, also = ("_clipped", ", weights clipped") if clipped else ("", "")
    w = "w = policies[version] / propensity" + (", at most max_weight" if clipped else "")
    symbol, term = ("c", POLICY_CLICK) if outcome == "click" else ("v", POLICY_VALUE)
    below, over = ("n", _IPS) if estimator == "ips" else ("sum w", TERM_WEIGHT)
    function, influence = _estimate(
        term, over, clipped, f"sum w {symbol} / {below}, {w} (Swaminathan and Joachims 2015)."
    )
    what = "clicks" if outcome == "click" else "value"
    return Metric(
        f"{name}{suffix}",
        function,
        f"{what} per impression under the version's own policy, {estimator.upper()}{also}",
        unit="value" if outcome == "value" else "ratio",
        better="higher",
        influence=influence,
        needs="scores",
        gauge=Gauge(
            "policy",
            "Clicks or value per impression under the version's own policy.",
            "Standard error of policy.",
            labels=(("outcome", outcome), ("estimator", f"{estimator}{suffix}")),
        ),
        column=Column(f"Policy {what}, {estimator.upper()}{also}", place=7),
    )


ROWS = (
    Metric(
        "policy_impressions",
        policy_impressions,
        "impressions that carry the probability with which the version's policy would have shown them",
        unit="impressions",
        needs="scores",
        whole=True,
    ),
    *(
        _row(name, outcome, estimator, clipped)
        for name, outcome, estimator in (
            ("policy_ips", "click", "ips"),
            ("policy_snips", "click", "snips"),
            ("policy_value_snips", "value", "snips"),
        )
        for clipped in (False, True)
    ),
    Metric(
        "policy_ess",
        policy_ess,
        "effective samples of the policy's weights",
        unit="impressions",
        better="higher",
        needs="scores",
        column=Column("Policy effective samples", digits=0, place=7),
    ),
    Metric(
        "policy_mean_weight",
        policy_mean_weight,
        "mean weight of the policy; 1 if the propensities are right",
        better="one",
        influence=OfTally(
            lambda view: view.tally("policy_users"),
            lambda cells: cells[..., coarse(TERM_WEIGHT, _TERMS)] / cells[..., COUNT],
        ),
        needs="scores",
        gauge=Gauge(
            "propensity_mean_weight",
            "Mean weight of the version's own policy; 1 if the logged propensities are right.",
            "Standard error of propensity_mean_weight.",
        ),
        column=Column("Policy mean weight", digits=3, place=7),
    ),
    Metric(
        "policy_clipped",
        policy_clipped,
        "share of the impressions whose weight or propensity is clipped",
        needs="scores",
    ),
)

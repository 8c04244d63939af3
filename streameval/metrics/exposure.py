"""As if everything had been shown equally often: means over impressions that weigh 1 / propensity (Schnabel et al. 2016, section 3).

IPS divides a weighted sum by the impressions, SNIPS by the sum of the weights. `_clipped`: the same with weights clipped
to `exposure.max_weight`, which has less variance and is biased towards what is shown often; side by side they say how much
rests on the largest weights. The formulas are those of the Open Bandit Pipeline (Saito et al. 2021).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from streameval.metrics.metric import Cells, Column, Gauge, Metric, OfTally
from streameval.metrics.view import NOT_KEPT_FOR_SLICES, Undefined, View
from streameval.sketches.exposure import (
    CLIPPED,
    COUNT,
    EXPOSURE_TERMS,
    TERM_ABSOLUTE,
    TERM_CLICK,
    TERM_LOSS,
    TERM_PCLICK,
    TERM_SQUARE,
    TERM_SQUARED,
    TERM_WEIGHT,
    WEIGHT_BINS,
    WEIGHT_BITS,
    bins_from,
    coarse,
    real,
)
from streameval.sketches.weight_classes import class_ends

_TERMS = len(EXPOSURE_TERMS)


def weighted(cells: NDArray[np.float64], term: int, terms: int, clipped: bool = False) -> float:
    """The sum of a term, with weights as they are or clipped, from the cells of a tally without blocks."""
    at = real(term, terms)
    whole, rest = cells[at], cells[at + 1]
    if clipped:
        less = real(term, terms, clipped=True)
        whole, rest = whole - cells[less], rest - cells[less + 1]
    return float(whole + rest)


def weighted_cells(cells: Cells, term: int, terms: int, clipped: bool = False) -> Cells:
    """The same from blocks of users, for errors."""
    total = cells[..., coarse(term, terms)]
    return total - cells[..., coarse(term, terms, clipped=True)] if clipped else total


def effective_samples(cells: NDArray[np.float64], terms: int, clipped: bool = False) -> float:
    """(sum w)^2 / sum w^2 (Kish 1965): as many equal weights have the same variance."""
    square = weighted(cells, TERM_SQUARE, terms, clipped)
    return weighted(cells, TERM_WEIGHT, terms, clipped) ** 2 / square if square > 0 else 0.0


def largest_share(cells: NDArray[np.float64], terms: int) -> float:
    """The largest weight over the sum of all, from above: it is at most the end of its bin, a quarter of an octave."""
    used = np.flatnonzero(cells[bins_from(terms) : bins_from(terms) + WEIGHT_BINS] > 0)
    total = weighted(cells, TERM_WEIGHT, terms)
    return min(float(class_ends(used[-1:], WEIGHT_BITS)[0]) / total, 1.0) if used.size and total > 0 else 0.0


def _cells(view: View) -> NDArray[np.float64] | Undefined:
    cells = view.tally("exposure")
    if cells is None:
        return NOT_KEPT_FOR_SLICES
    return cells if cells[COUNT] > 0 else Undefined("no_propensities")


def with_propensity(view: View) -> int | Undefined:
    """n_p, the impressions with a propensity."""
    cells = view.tally("exposure")
    return NOT_KEPT_FOR_SLICES if cells is None else int(cells[COUNT])


def exposure_ess(view: View) -> float | Undefined:
    """(sum w)^2 / sum w^2, w = 1 / propensity (Kish 1965)."""
    cells = _cells(view)
    return cells if isinstance(cells, Undefined) else effective_samples(cells, _TERMS)


def exposure_ess_clipped(view: View) -> float | Undefined:
    """(sum w)^2 / sum w^2, w = min(1 / propensity, max_weight) (Kish 1965)."""
    cells = _cells(view)
    return cells if isinstance(cells, Undefined) else effective_samples(cells, _TERMS, clipped=True)


def exposure_clipped(view: View) -> float | Undefined:
    """Impressions with 1 / propensity above `max_weight`, or a propensity below `min_propensity`, over n_p."""
    cells = _cells(view)
    return cells if isinstance(cells, Undefined) else float(cells[CLIPPED] / cells[COUNT])


def exposure_largest_weight(view: View) -> float | Undefined:
    """max w / sum w, at most: the largest weight is known to a quarter of its octave."""
    cells = _cells(view)
    return cells if isinstance(cells, Undefined) else largest_share(cells, _TERMS)


def _estimate(term: int, over: int, clipped: bool, docs: str) -> tuple[Callable[[View], float | Undefined], OfTally]:
    """The weighted sum of a term over another one (COUNT: over the impressions), and its error."""

    def value(view: View) -> float | Undefined:
        cells = _cells(view)
        if isinstance(cells, Undefined):
            return cells
        below = float(cells[COUNT]) if over == _IPS else weighted(cells, over, _TERMS, clipped)
        return weighted(cells, term, _TERMS, clipped) / below if below > 0 else Undefined("no_clicks")

    def of_blocks(cells: Cells) -> Cells:
        below = cells[..., COUNT] if over == _IPS else weighted_cells(cells, over, _TERMS, clipped)
        return weighted_cells(cells, term, _TERMS, clipped) / below

    value.__doc__ = docs
    return value, OfTally(lambda view: view.tally("exposure_users"), of_blocks)


_IPS = -1
_LOSSES = (
    ("log_loss", TERM_LOSS, ("log loss", "nats", "Log loss", "L")),
    ("mse", TERM_SQUARED, ("squared error", "ratio", "MSE", "(p - c)^2")),
    ("mae", TERM_ABSOLUTE, ("absolute error", "ratio", "MAE", "|p - c|")),
)
_GAUGE = "Estimate as if everything had been shown equally often, from inverse propensities."


def _row(name: str, estimator: str, term: int, over: int, words: tuple[str, str, str, str], clipped: bool) -> Metric:
    meaning, unit, title, symbol = words
    suffix, also = ("_clipped", ", weights clipped") if clipped else ("", "")
    w = "w = min(1 / propensity, max_weight)" if clipped else "w = 1 / propensity"
    below = {_IPS: "n_p", TERM_WEIGHT: "sum w", TERM_CLICK: "sum w c"}[over]
    function, influence = _estimate(term, over, clipped, f"sum w {symbol} / {below}, {w} (Schnabel et al. 2016).")
    return Metric(
        f"{name}_{estimator}{suffix}",
        function,
        f"{meaning} as if everything had been shown equally often, {estimator.upper()}{also}",
        unit=unit,
        better="one" if over == TERM_CLICK else "lower",
        influence=influence,
        needs="scores",
        gauge=Gauge(
            "exposure",
            _GAUGE,
            "Standard error of exposure.",
            labels=(("metric", name), ("estimator", f"{estimator}{suffix}")),
        ),
        column=Column(f"{title}, {estimator.upper()}{also}", place=6),
    )


_CALIBRATION = ("predicted clicks over clicks", "ratio", "Calibration", "p")

ROWS = (
    Metric(
        "with_propensity",
        with_propensity,
        "impressions with a propensity",
        unit="impressions",
        needs="scores",
        whole=True,
    ),
    *(
        _row(name, estimator, term, over, words, clipped)
        for name, term, words in _LOSSES
        for clipped in (False, True)
        for estimator, over in (("ips", _IPS), ("snips", TERM_WEIGHT))
    ),
    *(_row("calibration", "snips", TERM_PCLICK, TERM_CLICK, _CALIBRATION, clipped) for clipped in (False, True)),
    Metric(
        "exposure_ess",
        exposure_ess,
        "effective samples of the weights; with few, SNIPS rests on single impressions",
        unit="impressions",
        better="higher",
        needs="scores",
        gauge=Gauge("exposure_effective_samples", "(sum w)^2 / sum w^2 of the inverse propensities."),
        column=Column("Effective samples", digits=0, place=6),
    ),
    Metric(
        "exposure_ess_clipped",
        exposure_ess_clipped,
        "effective samples of the clipped weights",
        unit="impressions",
        better="higher",
        needs="scores",
    ),
    Metric(
        "exposure_clipped",
        exposure_clipped,
        "share of the impressions whose weight or propensity is clipped",
        needs="scores",
        column=Column("Clipped", place=6),
    ),
    Metric(
        "exposure_largest_weight",
        exposure_largest_weight,
        "upper bound of the share of the largest weight in the sum of weights",
        better="lower",
        needs="scores",
    ),
)

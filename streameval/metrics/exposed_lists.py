"""The top of every list as if everything had been shown equally often: DCG and precision at K (Schnabel et al. 2016, section 3).

Of closed requests that a version scored whole, and all of whose impressions have a propensity. An item counts for
w = 1 / propensity of the items that it stands for. IPS divides by the requests: what a list of everything would hold, if ranks
stayed as they are among what was shown. SNIPS divides by the sum of the weights instead, and multiplies by the impressions, so
that it is the plain DCG where all weights are alike.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from streameval.metrics.metric import ByK, Cells, Column, Gauge, Metric, OfTally
from streameval.metrics.view import NOT_CONFIGURED, NOT_KEPT_FOR_SLICES, Undefined, View
from streameval.sketches.exposed_lists import (
    EX_CLIPPED,
    EX_DCG,
    EX_HITS,
    EX_ITEMS,
    EX_LESS_DCG,
    EX_LESS_HITS,
    EX_LESS_SQUARE,
    EX_LESS_WEIGHT,
    EX_LISTS,
    EX_SQUARE,
    EX_WEIGHT,
    EXPOSED_TALLY,
    exposed_cut,
)
from streameval.sketches.list_cells import GROUPS

_NO_LISTS = Undefined("no_request_with_propensities")


def _all(view: View) -> NDArray[np.float64] | Undefined:
    """Sums of all lists by group of users, float64[groups, cells]."""
    return view.once("exposed lists", lambda: _sums_of_all(view))


def _sums_of_all(view: View) -> NDArray[np.float64] | Undefined:
    if view.moments.impressions == 0:
        return Undefined("no_impressions")
    if not view.layout.by_block:
        return NOT_KEPT_FOR_SLICES
    cells = view.tally(EXPOSED_TALLY)
    if cells is None:
        return NOT_CONFIGURED
    return cells[:GROUPS] if cells[:GROUPS, EX_LISTS].any() else _NO_LISTS


def _real(cells: Cells, first: int, less: int, clipped: bool) -> Cells:
    """A sum of two cells, with weights as they are or clipped."""
    total = cells[..., first] + cells[..., first + 1]
    return total - cells[..., less] - cells[..., less + 1] if clipped else total


def exposure_requests(view: View) -> int | Undefined:
    """Closed requests that the version scored whole, all of whose impressions have a propensity."""
    cells = _all(view)
    if isinstance(cells, Undefined):
        return 0 if cells == _NO_LISTS else cells
    return int(cells[:, EX_LISTS].sum())


def _effective(clipped: bool) -> Callable[[View], float | Undefined]:
    def value(view: View) -> float | Undefined:
        cells = _all(view)
        if isinstance(cells, Undefined):
            return cells
        total = cells.sum(axis=0)
        return float(
            _real(total, EX_WEIGHT, EX_LESS_WEIGHT, clipped) ** 2 / _real(total, EX_SQUARE, EX_LESS_SQUARE, clipped)
        )

    weight = "min(1 / propensity, max_weight)" if clipped else "1 / propensity"
    value.__doc__ = f"(sum w)^2 / sum w^2, w = {weight}, over the impressions of these requests (Kish 1965)."
    return value


def exposure_requests_clipped(view: View) -> float | Undefined:
    """Impressions of these requests with 1 / propensity above `max_weight`, or a propensity below `min_propensity`, over all."""
    cells = _all(view)
    if isinstance(cells, Undefined):
        return cells
    return float(cells[:, EX_CLIPPED].sum() / cells[:, EX_ITEMS].sum())


def _estimate(
    k: int, first: int, less: int, snips: bool, clipped: bool, per: int
) -> tuple[Callable[[View], float | Undefined], OfTally]:
    shared = f"exposed lists, cell {first} up to {k}{', clipped' if clipped else ''}"

    def cells_of(view: View) -> Cells | None:  # of IPS and SNIPS, and again for their errors
        return view.once(shared, lambda: made_of(view))

    def made_of(view: View) -> Cells | None:
        """float64[groups, 4]: weighted sum, requests, impressions, weights."""
        of_all, of_cut = _all(view), view.tally(exposed_cut(k))
        if isinstance(of_all, Undefined) or of_cut is None:
            return None
        weight = _real(of_all, EX_WEIGHT, EX_LESS_WEIGHT, clipped)
        sums = _real(of_cut[:GROUPS], first, less, clipped)
        return np.ascontiguousarray(np.array((sums, of_all[:, EX_LISTS], of_all[:, EX_ITEMS], weight)).T)

    def of_cells(cells: Cells) -> Cells:
        mean = cells[..., 0] / cells[..., 1] / per
        return mean * cells[..., 2] / cells[..., 3] if snips else mean

    def value(view: View) -> float | Undefined:
        missing = _all(view)
        if isinstance(missing, Undefined):
            return missing
        cells = cells_of(view)
        return NOT_CONFIGURED if cells is None else float(of_cells(cells.sum(axis=0)))

    return value, OfTally(cells_of, of_cells, GROUPS - 1)


def _family(name: str, snips: bool, clipped: bool) -> ByK:
    estimator = ("snips" if snips else "ips") + ("_clipped" if clipped else "")
    gain, first, less = (
        ("gain / log2(rank + 1)", EX_DCG, EX_LESS_DCG) if name == "dcg" else ("click", EX_HITS, EX_LESS_HITS)
    )
    words = estimator.split("_", maxsplit=1)[0].upper() + (", weights clipped" if clipped else "")
    weight = "min(1 / propensity, max_weight)" if clipped else "1 / propensity"

    def make(k: int) -> Metric:
        per = k if name == "precision" else 1
        function, influence = _estimate(k, first, less, snips, clipped, per)
        below = "requests" + (f" / {k}" if per > 1 else "") + (" * impressions / sum w" if snips else "")
        function.__doc__ = (
            f"sum w {gain} over ranks up to {k} / {below}, w = {weight}, of requests whose impressions all have a "
            "propensity; ties at their expectation (Schnabel et al. 2016)."
        )
        title = f"{'DCG' if name == 'dcg' else 'Precision'}@{k}"
        return Metric(
            f"{name}_{k}_{estimator}",
            function,
            f"{title} of requests as if everything had been shown equally often, {words}",
            unit="gain" if name == "dcg" else "ratio",
            better="higher",
            influence=influence,
            needs="scores",
            gauge=Gauge(
                "exposure",
                "Estimate as if everything had been shown equally often, from inverse propensities.",
                "Standard error of exposure.",
                labels=(("metric", f"{name}_{k}"), ("estimator", estimator)),
            ),
            column=Column(f"{title}, {words}", place=6),
        )

    return ByK(f"{name}_{{k}}_{estimator}", make)


def _row(name: str, function: Callable[[View], float | int | Undefined], meaning: str, whole: bool = False) -> Metric:
    return Metric(name, function, meaning, unit="requests" if whole else "ratio", needs="scores", whole=whole)


ROWS = (
    _row("exposure_requests", exposure_requests, "closed requests whose impressions all have a propensity", whole=True),
    *(
        Metric(
            f"exposure_requests_ess{suffix}",
            _effective(clipped),
            f"effective samples of the {'clipped ' if clipped else ''}weights in these requests",
            unit="impressions",
            better="higher",
            needs="scores",
        )
        for suffix, clipped in (("", False), ("_clipped", True))
    ),
    _row(
        "exposure_requests_clipped",
        exposure_requests_clipped,
        "share of their impressions whose weight or propensity is clipped",
    ),
)
EXPOSED_BY_CUT = tuple(
    _family(name, snips, clipped)
    for name in ("dcg", "precision")
    for clipped in (False, True)
    for snips in (False, True)
)

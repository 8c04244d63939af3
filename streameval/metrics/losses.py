"""Proper losses of pClick, and the same relative to always predicting the CTR."""

from __future__ import annotations

import math

import numpy as np

from streameval.metrics.metric import Cells, Column, Gauge, Metric, OfCells, ratio
from streameval.metrics.view import Undefined, View
from streameval.sketches.blocks import ABSOLUTE, SQUARED, L, N, Y


def log_loss(view: View) -> float | Undefined:
    """-sum [c ln p + (1-c) ln(1-p)] / n, p clipped to [1e-7, 1 - 1e-7]."""
    return view.need_impressions() or view.moments.log_loss / view.moments.impressions


def entropy(ctr: float) -> float:
    """H(g) = -g ln g - (1-g) ln(1-g), nats."""
    return -ctr * math.log(ctr) - (1 - ctr) * math.log1p(-ctr)


def rig(view: View) -> float | Undefined:
    """1 - log_loss / H(g) (Yi et al. 2013); 1 - rig is normalised entropy (He et al. 2014)."""
    m = view.moments
    return view.need_both_classes() or 1 - m.log_loss / m.impressions / entropy(m.clicks / m.impressions)


def mse(view: View) -> float | Undefined:
    """sum (p - c)^2 / n (Yi et al. 2013)."""
    return view.need_impressions() or view.moments.squared / view.moments.impressions


def rmse(view: View) -> float | Undefined:
    """sqrt(mse)."""
    return view.need_impressions() or math.sqrt(view.moments.squared / view.moments.impressions)


def nmse(view: View) -> float | Undefined:
    """mse / (g (1 - g)) (Yi et al. 2013)."""
    m = view.moments
    missing = view.need_both_classes()
    if missing:
        return missing
    ctr = m.clicks / m.impressions
    return m.squared / m.impressions / (ctr * (1 - ctr))


def mae(view: View) -> float | Undefined:
    """sum |p - c| / n (Yi et al. 2013)."""
    return view.need_impressions() or view.moments.absolute / view.moments.impressions


def _rig_of_cells(cells: Cells) -> Cells:
    n, c = cells[..., N], cells[..., Y] / cells[..., N]
    return 1 + cells[..., L] / n / (c * np.log(c) + (1 - c) * np.log(1 - c))


def _rmse_of_cells(cells: Cells) -> Cells:
    root: Cells = np.sqrt(cells[..., SQUARED] / cells[..., N])
    return root


def _nmse_of_cells(cells: Cells) -> Cells:
    n, c = cells[..., N], cells[..., Y] / cells[..., N]
    return cells[..., SQUARED] / n / (c * (1 - c))


def _normalised_entropy(rig: float) -> float:
    return 1 - rig


ROWS = (
    Metric(
        "log_loss",
        log_loss,
        "mean negative log-likelihood of the labels, in nats",
        unit="nats",
        better="lower",
        influence=ratio(L, N),
        gauge=Gauge("log_loss", "Mean log loss, in nats.", "Standard error of log_loss."),
        column=Column("Log loss", overview=True, least=0),
    ),
    Metric(
        "rig",
        rig,
        "relative information gain: 1 minus normalised entropy; 0 is as good as the base rate, below 0 worse",
        better="higher",
        influence=OfCells(_rig_of_cells),
        gauge=Gauge(
            "normalized_entropy",
            "log_loss over the entropy of the click rate; above 1 is worse than the base rate.",
            "Standard error of normalized_entropy.",
            in_slices=True,
            value=_normalised_entropy,
        ),
        column=Column("RIG", overview=True, most=1),
    ),
    Metric(
        "mse",
        mse,
        "mean squared error (Brier score)",
        better="lower",
        influence=ratio(SQUARED, N),
        column=Column("MSE", digits=5, place=5, least=0, most=1),
    ),
    Metric(
        "rmse",
        rmse,
        "square root of the mean squared error",
        better="lower",
        influence=OfCells(_rmse_of_cells),
        column=Column("RMSE", place=5, least=0, most=1),
    ),
    Metric(
        "nmse",
        nmse,
        "mean squared error over that of predicting the base rate",
        better="lower",
        influence=OfCells(_nmse_of_cells),
        column=Column("NMSE", place=5, least=0),
    ),
    Metric(
        "mae",
        mae,
        "mean absolute error",
        better="lower",
        influence=ratio(ABSOLUTE, N),
        column=Column("MAE", place=5, least=0, most=1),
    ),
)

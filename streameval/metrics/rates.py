"""Observed and predicted click rates."""

from __future__ import annotations

from streameval.metrics.metric import Column, Gauge, Metric, ratio
from streameval.metrics.view import Undefined, View
from streameval.sketches.blocks import N, P, Y


def ctr(view: View) -> float | Undefined:
    """P / n."""
    return view.need_impressions() or view.moments.clicks / view.moments.impressions


def mean_pclick(view: View) -> float | Undefined:
    """sum p / n."""
    return view.need_impressions() or view.moments.pclick / view.moments.impressions


ROWS = (
    Metric(
        "ctr",
        ctr,
        "clicks over impressions",
        influence=ratio(Y, N),
        gauge=Gauge("ctr_ratio", "Clicks over impressions.", "Standard error of ctr_ratio.", place=1),
        column=Column("CTR", place=3, least=0, most=1),
    ),
    Metric(
        "mean_pclick",
        mean_pclick,
        "mean predicted probability of a click",
        influence=ratio(P, N),
        gauge=Gauge("predicted_ctr_ratio", "Mean pClick.", "Standard error of predicted_ctr_ratio.", place=1),
        column=Column("Mean pClick", place=3, least=0, most=1),
    ),
)

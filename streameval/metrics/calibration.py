"""Is pClick, on average, the share of clicks?"""

from __future__ import annotations

from streameval.metrics.metric import Column, Gauge, Metric, OfImpressions, ratio
from streameval.metrics.view import Undefined, View
from streameval.sketches.blocks import P, Y


def prediction_error(view: View) -> float | Undefined:
    """mean p / g - 1; above 0 is over-prediction (Yi et al. 2013)."""
    return view.need_clicks() or view.moments.pclick / view.moments.clicks - 1


def calibration(view: View) -> float | Undefined:
    """mean p / g; above 1 is over-prediction (He et al. 2014)."""
    return view.need_clicks() or view.moments.pclick / view.moments.clicks


def ece(view: View) -> float | Undefined:
    """sum_b n_b / n |mean p_b - g_b| over the fixed buckets (Naeini et al. 2015)."""
    missing = view.need_impressions()
    return missing or sum(abs(b.pclick - b.clicks) for b in view.buckets) / view.moments.impressions


def _ece_variance(view: View) -> float:
    """Variance between impressions of sum_b |sum_{i in b} (p - c)| / n, at the signs it has now."""
    m, spread = view.moments, view.spread_of_weights
    squared = m.squared
    if spread is not None:  # by label, from the histogram
        used = view.used
        p = view.middles
        squared = float(spread[0] * (used.negatives @ (p * p)) + spread[1] * (used.positives @ ((1 - p) * (1 - p))))
    within = squared - sum((b.pclick - b.clicks) ** 2 / b.impressions for b in view.buckets if b.impressions)
    return max(within, 0.0) / m.impressions**2


ROWS = (
    Metric(
        "prediction_error",
        prediction_error,
        "calibration minus 1; above 0 over-predicts",
        better="zero",
        influence=ratio(P, Y),
        column=Column("Prediction error", digits=3, place=2, least=-1),
    ),
    Metric(
        "calibration",
        calibration,
        "predicted clicks over clicks (E/O); 1 is calibrated, above 1 over-predicts",
        better="one",
        influence=ratio(P, Y),
        gauge=Gauge(
            "calibration_ratio",
            "Predicted clicks over clicks; above 1 is over-prediction.",
            "Standard error of calibration_ratio.",
            in_slices=True,
        ),
        column=Column("Calibration", digits=3, overview=True, place=1, least=0),
    ),
    Metric(
        "ece",
        ece,
        "expected calibration error: mean distance between mean pClick and CTR over the pClick buckets",
        better="lower",
        influence=OfImpressions(_ece_variance, widened_as="calibration"),
        gauge=Gauge(
            "expected_calibration_error",
            "Mean distance of mean pClick and click rate over pClick buckets, by impressions.",
        ),
        column=Column("ECE", place=4, least=0, most=1),
    ),
)

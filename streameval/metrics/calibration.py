"""Is pClick, on average, the share of clicks?"""

from __future__ import annotations

from streameval.metrics.view import Undefined, View


def ctr(view: View) -> float | Undefined:
    """clicks / impressions."""
    return view.need_impressions() or view.moments.clicks / view.moments.impressions


def mean_pclick(view: View) -> float | Undefined:
    """mean of pClick."""
    return view.need_impressions() or view.moments.pclick / view.moments.impressions


def prediction_error(view: View) -> float | Undefined:
    """mean(p) / ctr - 1; above 0 is over-prediction (Yi et al. 2013)."""
    return view.need_clicks() or view.moments.pclick / view.moments.clicks - 1


def calibration(view: View) -> float | Undefined:
    """mean(p) / ctr; above 1 is over-prediction (He et al. 2014)."""
    return view.need_clicks() or view.moments.pclick / view.moments.clicks


def ece(view: View) -> float | Undefined:
    """Expected calibration error: sum_b n_b / n |mean p_b - ctr_b| over the fixed buckets (Naeini et al. 2015)."""
    missing = view.need_impressions()
    return missing or sum(abs(b.pclick - b.clicks) for b in view.buckets) / view.moments.impressions

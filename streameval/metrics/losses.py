"""Proper losses of pClick, and the same relative to always predicting the CTR."""

from __future__ import annotations

import math

from streameval.metrics.view import Undefined, View


def log_loss(view: View) -> float | Undefined:
    """mean of -[c ln p + (1-c) ln(1-p)], p clipped to [1e-7, 1 - 1e-7]; nats."""
    return view.need_impressions() or view.moments.log_loss / view.moments.impressions


def entropy(ctr: float) -> float:
    """H(g) = -g ln g - (1-g) ln(1-g), nats."""
    return -ctr * math.log(ctr) - (1 - ctr) * math.log1p(-ctr)


def rig(view: View) -> float | Undefined:
    """1 - log_loss / H(ctr): relative information gain (Yi et al. 2013); 1 - normalised entropy (He et al. 2014)."""
    m = view.moments
    return view.need_both_classes() or 1 - m.log_loss / m.impressions / entropy(m.clicks / m.impressions)


def mse(view: View) -> float | Undefined:
    """mean (p - c)^2."""
    return view.need_impressions() or view.moments.squared / view.moments.impressions


def nmse(view: View) -> float | Undefined:
    """mse / (g (1 - g)), g the CTR (Yi et al. 2013)."""
    m = view.moments
    missing = view.need_both_classes()
    if missing:
        return missing
    ctr = m.clicks / m.impressions
    return m.squared / m.impressions / (ctr * (1 - ctr))


def mae(view: View) -> float | Undefined:
    """mean |p - c| (Yi et al. 2013)."""
    return view.need_impressions() or view.moments.absolute / view.moments.impressions

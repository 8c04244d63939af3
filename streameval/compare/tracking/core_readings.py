"""Readings of the four metrics that every comparison has."""

from __future__ import annotations

import math
from collections.abc import Mapping

from streameval.compare.evidence.decision import LogE, enough
from streameval.compare.evidence.evidence import Evidence, Rule
from streameval.compare.evidence.paired import GAP, MID
from streameval.compare.evidence.ratio import Ints, Statistic
from streameval.compare.reading.reading import COMPARED, MetricReading
from streameval.compare.tracking.record import UNKNOWN
from streameval.compare.tracking.sums import ComparisonSums
from streameval.compare.tracking.tracked import finite, known, metric_value
from streameval.sketches import blocks as cells


def core_readings(
    rule: Rule,
    evidence: Evidence,
    sums: ComparisonSums,
    statistics: Mapping[str, Statistic],
    differences: Mapping[str, tuple[float, float, float]],
    log_e: LogE,
) -> list[MetricReading]:
    """Returns one reading for each of `COMPARED`; `differences`: (difference, lower, upper) by metric."""
    totals = sums.totals()
    out = []
    for i, name in enumerate(COMPARED):
        levels = sums.gauc() if name == "gauc" else (metric_value(name, totals[0]), metric_value(name, totals[1]))
        difference, lower, upper = differences.get(name, UNKNOWN)
        standing = evidence.standing(name)
        leaves = (MID, GAP) if name == "calibration" else (name,)
        stderr = max(
            (float(statistics[leaf][0, 0].stderr()) for leaf in leaves if leaf in statistics), default=math.nan
        )
        reason = None
        if name not in differences:
            reason = "not_compared"
        elif not math.isfinite(difference):
            reason = _why_unknown(name, levels, totals)
        undecided = standing.verdict == "undecided"
        out.append(
            MetricReading(
                metric=name,
                baseline=levels[0],
                candidate=levels[1],
                difference=known(difference),
                lower=known(lower),
                upper=known(upper),
                stderr=known(stderr),
                margin=rule.margins[name],
                tolerance=rule.tolerances[name],
                log_e_worse=finite(log_e[0][i]),
                log_e_not_worse=finite(log_e[1][i]),
                p_worse=min(1.0, math.exp(-standing.peak_worse)),
                verdict=standing.verdict,
                reason=reason,
                decided_at=standing.worse_at if standing.verdict == "worse" else standing.not_worse_at,
                supported_now=None if undecided else enough(rule, standing.verdict, log_e, i),
            )
        )
    return out


def _why_unknown(name: str, levels: tuple[float | None, float | None], totals: tuple[Ints, Ints]) -> str:
    """Returns why a metric has no difference."""
    if name == "gauc" and levels[0] is None:  # clicks may be plentiful before the first complete window
        return "no_complete_window"
    only_clicks = any(total[cells.N] > 0 and total[cells.Y] == total[cells.N] for total in totals)
    return "no_non_clicks" if only_clicks else "too_few_clicks"

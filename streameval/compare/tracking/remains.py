"""What readers see of a comparison whose sums are no longer kept."""

from __future__ import annotations

from dataclasses import replace

from streameval.compare.reading.reading import Comparison
from streameval.compare.tracking.record import LastLook
from streameval.compare.tracking.tracked import known


def remains(reading: Comparison, last: LastLook | None, min_clicks: int) -> Comparison:
    """Returns a reading made from empty sums with the impressions and differences of the last look recorded.

    `min_clicks`: those that evidence needs.
    """
    if last is None:
        return reading
    why = reading.reason if reading.withheld else "no_longer_kept" if reading.verdict == "undecided" else None
    metrics = []
    for metric in reading.metrics:
        value, low, high = map(known, last.differences[metric.metric])
        reason = metric.reason if value is None else None
        metrics.append(replace(metric, difference=value, lower=low, upper=high, reason=reason))
    return replace(
        reading,
        impressions=last.impressions,
        clicks=last.clicks,
        blocks=last.blocks,
        metrics=tuple(metrics),
        reason=why,
        floors_met=last.clicks >= min_clicks,
    )

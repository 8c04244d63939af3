"""What a verdict was decided on: the metric that its words name from then on, and whether current data still support
it.

The overall e-value is a mean over metrics and windows, so when it reaches 1 / alpha one of them has as a rule got there: the
metric whose bound, at alpha by itself, lies beyond the margin, over the longest window for which it does. Bounds here are
one-sided, as the tests are: an interval at the same alpha is a little wider, and would deny at its first look what the
test has just found. When no single bound shows the verdict it was all metrics together; the one with most evidence is named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streameval.compare.evidence.evidence import OVERALL, Rule
from streameval.compare.reading.reading import COMPARED, DecidedOn, Estimate, Verdict, shows

Estimates = Mapping[str, Estimate]
LogE = tuple[
    Sequence[float], Sequence[float]
]  # worse, not worse: by METRICS, overall, then by further metrics of the rule


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict that fell."""

    at: int  # ms
    verdict: Verdict
    window: int  # of the comparison's, that it was found over
    on: DecidedOn

    def supported(self, rule: Rule, now: Estimate | None, log_e: LogE) -> bool:
        """Whether the bound of now still shows the verdict; if it never did alone, whether the evidence is still enough."""
        if now is not None and _shows(rule, self.verdict, self.on.metric, now):
            return True
        return not self.on.alone and enough(rule, self.verdict, log_e, OVERALL)

    def state(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def restore(cls, state: Mapping[str, Any] | None) -> Decision | None:
        """From what `state` returned; None: there was none, or it was not kept."""
        if state is None:
            return None
        on = state["on"]
        return cls(
            state["at"],
            state["verdict"],
            state["window"],
            DecidedOn(on["metric"], Estimate(**on["then"]), on["since"], on["alone"]),
        )


def decide(
    rule: Rule,
    verdict: Verdict,
    at: int,
    log_e: LogE,
    estimates: Callable[[int], Estimates],
    starts: Sequence[int | None],
    *,
    strict: bool = False,
) -> Decision | None:
    """What a verdict, not undecided, falls on at a look. `estimates`: by window, whose traffic begins at `starts`, ms.

    None: nothing is known of any metric.
    """
    first = estimates(0)
    if verdict == "not_worse":  # all of them were needed: the last one to get there
        order = sorted(rule.certified, key=lambda m: log_e[1][column(rule, m)])
        windows = [first]  # it is found over the whole alone
    else:
        there = [m for m in rule.decide if column(rule, m) < len(log_e[0])]
        order = sorted(there, key=lambda m: -_weighted(rule, m, log_e[0]))
        windows = [first, *(estimates(j) for j in range(1, len(starts)))]
        if strict:
            order = ["log_loss"]
    for metric in order:
        for j, of in enumerate(windows):
            if metric in of and _shows(rule, verdict, metric, of[metric]):
                return Decision(at, verdict, j, DecidedOn(metric, of[metric], starts[j], alone=True))
    for metric in order:
        if metric in first and first[metric].difference is not None:
            return Decision(at, verdict, 0, DecidedOn(metric, first[metric], starts[0], alone=False))
    return None


def enough(rule: Rule, verdict: Verdict, log_e: LogE, column: int) -> bool:
    """Whether the evidence of now, of a metric or overall, would lead to the verdict."""
    return log_e[verdict == "not_worse"][column] >= math.log(1.0 / rule.alpha)  # the overall one is on this scale


def _weighted(rule: Rule, metric: str, log_e: Sequence[float]) -> float:
    weight = rule.weights[metric]
    return math.log(weight) + log_e[column(rule, metric)] if weight > 0 else -math.inf


def column(rule: Rule, metric: str) -> int:
    """Where a metric is in `LogE`."""
    return COMPARED.index(metric) if metric in COMPARED else OVERALL + 1 + rule.more.index(metric)


def _shows(rule: Rule, verdict: Verdict, metric: str, estimate: Estimate) -> bool:
    return shows(verdict, metric, estimate.lower, estimate.upper, rule.margins[metric], rule.tolerances[metric])


def missing_floor(rule: Rule, elapsed: int, clicks: int, blocks: int) -> str | None:
    """Which floor of evidence is not met yet; `elapsed` in ms, `blocks` of users with impressions."""
    if clicks < rule.min_clicks:
        return "too_few_clicks"
    if blocks < rule.min_blocks:
        return "too_few_users"
    return "too_short" if elapsed < rule.min_duration else None

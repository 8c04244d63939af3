"""What a verdict was decided on: the metric that its words name from then on, and whether current data still support
it.

The overall e-value is a mean over metrics and windows, so when it reaches 1 / alpha, one of them has usually reached it
too: the metric whose bound, at alpha by itself, lies beyond the margin, over the longest window for which it does.
Bounds here are one-sided, as the tests are: a two-sided interval at the same alpha is a little wider, and would
contradict at the first look what the test has just found. If no single bound shows the verdict, all metrics together
led to it; the one with the most evidence is named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streameval.compare.evidence.evidence import OVERALL, Rule
from streameval.compare.evidence.ratio import Ints
from streameval.compare.reading.reading import COMPARED, DecidedOn, Estimate, Verdict, shows, sign_of
from streameval.sketches.blocks import SCALE, N, P

Estimates = Mapping[str, Estimate]
_RESOLVED = 1e-6  # least distance of a mean pClick from 0 and from 1: ten times where log loss is clipped
# worse, not worse: by METRICS, overall, then by further metrics of the rule
LogE = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict that was reached."""

    at: int  # ms
    verdict: Verdict
    window: int  # the comparison's window over which it was reached
    on: DecidedOn

    def supported(self, rule: Rule, now: Estimate | None, log_e: LogE) -> bool:
        """Whether the current bound still shows the verdict; if it never did by itself, whether the evidence is still
        sufficient.
        """
        if now is not None and _shows(rule, self.verdict, self.on.metric, now):
            return True
        return not self.on.alone and enough(rule, self.verdict, log_e, OVERALL)

    def state(self) -> dict[str, Any]:
        """Returns everything, as plain values."""
        return asdict(self)

    @classmethod
    def restore(cls, state: Mapping[str, Any] | None) -> Decision | None:
        """Restores what `state` returned; None: there was no decision, or it was not recorded."""
        if state is None:
            return None
        on = state["on"]
        return cls(
            state["at"],
            state["verdict"],
            state["window"],
            DecidedOn(on["metric"], Estimate(**on["then"]), on["since"], on["alone"], on.get("capped", False)),
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
    """Returns what a verdict, other than undecided, was decided on at a look; None if nothing is known of any metric.

    `estimates`: by window; `starts`: where the traffic of each window begins, ms.
    """
    first = estimates(0)
    if verdict == "not_worse":  # all certified metrics were needed: name the last one to get there
        order = sorted(rule.certified, key=lambda m: log_e[1][column(rule, m)])
        windows = [first]  # this verdict uses only the first window
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
            capped = verdict == "worse" and rule.user_cap > 0 and not any(_harms(rule, metric, of) for of in windows)
            return Decision(at, verdict, 0, DecidedOn(metric, first[metric], starts[0], alone=False, capped=capped))
    return None


def _harms(rule: Rule, metric: str, of: Estimates) -> bool:
    """Whether a difference is beyond the margin, whatever its error."""
    difference = of[metric].difference if metric in of else None
    return difference is not None and sign_of(metric) * difference > rule.margins[metric]


def enough(rule: Rule, verdict: Verdict, log_e: LogE, column: int) -> bool:
    """Whether the current evidence, of a metric or overall, would lead to the verdict."""
    return log_e[verdict == "not_worse"][column] >= math.log(1.0 / rule.alpha)  # the overall one is on this scale, too


def _weighted(rule: Rule, metric: str, log_e: Sequence[float]) -> float:
    weight = rule.weights[metric]
    return math.log(weight) + log_e[column(rule, metric)] if weight > 0 else -math.inf


def column(rule: Rule, metric: str) -> int:
    """Returns the index of a metric in `LogE`."""
    return COMPARED.index(metric) if metric in COMPARED else OVERALL + 1 + rule.more.index(metric)


def _shows(rule: Rule, verdict: Verdict, metric: str, estimate: Estimate) -> bool:
    return shows(verdict, metric, estimate.lower, estimate.upper, rule.margins[metric], rule.tolerances[metric])


def missing_floor(rule: Rule, elapsed: int, clicks: int, blocks: int) -> str | None:
    """Returns the floor of evidence that is not met yet, or None; `elapsed` in ms, `blocks`: blocks of users with
    impressions.
    """
    if clicks < rule.min_clicks:
        return "too_few_clicks"
    if blocks < rule.min_blocks:
        return "too_few_users"
    return "too_short" if elapsed < rule.min_duration else None


def unresolved(baseline: Ints, candidate: Ints) -> str | None:
    """Returns the reason why neither AUC (by bins of scores) nor log loss (clipped) can tell two versions apart, from
    their sums (see `blocks`); None if they can.
    """
    for sums in (baseline, candidate):
        mean = sums[P] / SCALE / max(int(sums[N]), 1)
        if min(mean, 1.0 - mean) >= _RESOLVED:
            return None
    return "scores_too_close_to_0_or_1"

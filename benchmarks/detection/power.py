"""Power: impressions until a worse version is detected, an equal one is certified, and a late break is detected."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.detection.looks import MINUTE, PairedLooks, SplitLooks, days
from benchmarks.detection.null import ZERO
from benchmarks.detection.world import BASELINE, SCENARIOS
from streameval.compare.evidence.evidence import OVERALL, Evidence, Rule
from streameval.compare.reading.reading import COMPARED

NEVER = float("inf")


def rules() -> dict[str, Rule]:
    """Each level, at margin 0 and at the default margins; floors of the simulation."""
    out = {}
    for alpha in (0.05, 0.01):
        out[f"alpha {alpha}, margin 0"] = Rule(alpha=alpha, margins=ZERO, min_duration=30 * MINUTE)
        out[f"alpha {alpha}, default margins"] = Rule(alpha=alpha, min_duration=30 * MINUTE)
    return out


@dataclass(frozen=True)
class Case:
    """A simulation: the candidate, its first day, the number of days, and the expected verdict."""

    scenario: str
    days: int
    from_day: int = 0
    setup: str = "paired"
    code: int = 1  # 1: worse, 2: not worse


CASES = {
    "AUC -0.02": Case("AUC -0.02", 2),
    "log loss +1%": Case("log loss +1%", 3),
    "AUC -0.005": Case("AUC -0.005", 6),
    "pClick x1.2": Case("pClick x1.2", 6),
    "equal, certified": Case("equal", 3, code=2),
    "log loss +1% from day 3": Case("log loss +1%", 6, from_day=3),
    "split: AUC -0.02": Case("AUC -0.02", 7, setup="split"),
    "split: log loss +1%": Case("log loss +1%", 7, setup="split"),
}


def run(case: Case, seed: int) -> dict[tuple[str, str], float]:
    """(rule, metric or "overall") -> impressions until found (since the break), NEVER within the days."""
    taker = PairedLooks() if case.setup == "paired" else SplitLooks()
    evidence = {name: Evidence(rule, 0) for name, rule in rules().items()}
    found: dict[tuple[str, str], float] = {}
    before = 0
    names = (*COMPARED, "overall")
    candidate = SCENARIOS[case.scenario]
    rows = () if case.setup == "paired" else (2, 3)
    for day, minutes in enumerate(
        days(seed, lambda d: candidate if d >= case.from_day else BASELINE, case.days, rows=rows)
    ):
        for looks in taker.take(minutes):
            for rule, e in evidence.items():
                path = e.advance(looks.at, looks.clicks, looks.statistics, correlation=looks.correlation)
                level = np.log(1 / e.rule.alpha)
                values = path.log_e_worse if case.code == 1 else path.log_e_not_worse
                ready = (looks.at >= e.rule.min_duration) & (looks.clicks[:, 0] >= e.rule.min_clicks)
                for i, name in enumerate(names):
                    hits = np.flatnonzero(ready & (values[:, i] >= level))
                    if hits.size and (rule, name) not in found:
                        # a false alarm before the break counts as immediate detection
                        found[rule, name] = (
                            max(float(looks.impressions[hits[0]] - before), 0.0) if day >= case.from_day else 0.0
                        )
            if all((rule, names[OVERALL]) in found for rule in evidence):
                return found
        if day == case.from_day - 1:
            before = int(looks.impressions[-1])
    return found


@dataclass(frozen=True)
class Delay:
    """Of `runs` runs: the share with the verdict, and median and ninetieth percentile of impressions (inf: not within the days)."""

    runs: int
    power: float
    median: float
    p90: float


def delays(found: list[dict[tuple[str, str], float]], rule: str, metric: str) -> Delay:
    """The delay of one rule and metric."""
    values = np.array([f.get((rule, metric), NEVER) for f in found])
    return Delay(
        len(values),
        float(np.isfinite(values).mean()),
        float(np.quantile(values, 0.5, method="higher")),
        float(np.quantile(values, 0.9, method="higher")),
    )

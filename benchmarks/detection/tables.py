"""Results as markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection import planned, power, references
from benchmarks.detection.null import LEVELS, NAMES, Alarms
from benchmarks.detection.power import CASES, Delay, delays
from benchmarks.detection.stderr import SPANS, Calibrated


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A markdown table."""
    head = list(head)
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def percent(alarms: Alarms, name: str) -> str:
    """Rate and its standard error; without alarms, the rule of three."""
    rate, error = alarms.rate(name)
    if not alarms.fired[name]:
        return f"0% (< {300 / max(alarms.runs, 1):.1f}%)"
    return f"{100 * rate:.1f}% ± {100 * error:.1f}"


def levels(found: Mapping[float, float]) -> str:
    """Levels that the overall e-process must reach, by alpha."""
    return table(["alpha", "level c", "c alpha"], ([f"{a:g}", f"{c:.4g}", f"{c * a:.3f}"] for a, c in found.items()))


def overall(results: Mapping[tuple[float, float], Alarms]) -> str:
    """False alarms of all metrics on Gaussian nulls, by design effect and alpha."""
    rows = [[name, *(percent(alarms, name) for alarms in results.values())] for name in NAMES]
    return table(["verdict of", *(f"design effect {d:g}, alpha {a:g}" for d, a in results)], rows)


def gaussian(results: Mapping[tuple[float, str], Alarms]) -> str:
    """False alarms on Gaussian nulls."""
    effects = sorted({d for d, _ in results})
    rows = []
    for setup in ("paired", "split"):
        for rule in ("ours", "naive z"):
            rows.append([f"{setup}: {rule}", *(percent(results[d, setup], rule) for d in effects)])
    return table(["design effect after 7 days", *(f"{d:g}" for d in effects)], rows)


def world_null(both: Alarms, one: Alarms, others: Alarms) -> str:
    """False alarms in the simulated world: of the product, then of the textbook rules."""
    rows = []
    for setup, alarms in (("paired", both), ("split", one)):
        for name in NAMES:
            if setup == "split" and name == "gauc":
                continue
            rows.append(
                [f"{setup}: {name}", *(percent(alarms, f"{setup} {name} {a}") for a in LEVELS), str(alarms.runs)]
            )
    for rule in sorted(others.fired | dict.fromkeys(_textbook(), 0)):
        if rule in _textbook():
            rows.append([rule, percent(others, rule), "", str(others.runs)])
    return table(["rule", *(f"at {a}" for a in LEVELS), "runs"], rows)


def _textbook() -> tuple[str, ...]:
    return (
        "log loss: z test every minute, impressions independent",
        "log loss: z test every minute, user blocks",
        "AUC: DeLong's z every minute",
        "log loss: Bonferroni over 10,080 looks, user blocks",
        "AUC: Bonferroni over 10,080 looks, DeLong",
        "log loss: CUSUM h=5 k=0.5, 10 min",
        "log loss: CUSUM h=8 k=0.25, 10 min",
        "River PageHinkley on the paired difference",
        "River ADWIN on the paired difference",
        "River PageHinkley on the new version's log loss",
        "River ADWIN on the new version's log loss",
        "strict (empirical Bernstein)",
    )


def thousands(n: float) -> str:
    """As 12k."""
    return f"{n / 1000:.0f}k" if np.isfinite(n) else "never"


def _delay(d: Delay) -> str:
    found = "" if d.power == 1 else f", {100 * d.power:.0f}% found"
    return f"{thousands(d.median)} ({thousands(d.p90)}{found})"


def delay(results: Mapping[str, list[dict[tuple[str, str], float]]]) -> str:
    """Power: median (90th percentile) of impressions by case and rule."""
    rows = []
    for name, case in CASES.items():
        if results.get(name):
            metrics = ["overall", "log_loss", "calibration" if case.scenario.startswith("pClick") else "auc"]
            for metric in metrics:
                label = name if metric == metrics[0] else ""
                rows.append([label, metric, *(_delay(delays(results[name], rule, metric)) for rule in power.rules())])
    return table(["case", "verdict of", *power.rules()], rows)


def planning(found: Mapping[str, Mapping[str, planned.Planned]]) -> str:
    """The planning formula's impressions, median (90th percentile), in this world and in the reference one."""

    def cell(n50: float) -> str:
        return f"{thousands(n50)} ({thousands(planned.P90 * n50)})"

    rows = []
    for name, metrics in found.items():
        equal = name == "equal"
        for metric, p in metrics.items():
            harm = f"within {planned.TOLERANCE}" if equal else f"{p.harm:.4f}"
            rows.append([name, metric, harm, f"{p.variance:.2f}", *(cell(p.n50(alpha, equal)) for alpha in planned.K)])
    for name, (reference, variance) in planned.REFERENCE.items():
        p = planned.Planned(reference, variance)
        rows.append(
            [
                f"{name}, reference world",
                "log_loss",
                f"{reference:.4f}",
                f"{variance:.2f}",
                *(cell(p.n50(a)) for a in planned.K),
            ]
        )
    return table(["case", "metric", "harm", "v", *(f"alpha {alpha}" for alpha in planned.K)], rows)


def errors(results: Mapping[tuple[str, str], Calibrated]) -> str:
    """Block standard error over the empirical one, and coverage."""
    names = sorted({name for name, _ in results}, key=lambda n: (n.endswith("paired"), n))

    def cell(c: Calibrated) -> str:
        return f"{c.ratio:.2f}, {100 * c.coverage:.0f}%"

    return table(["", *SPANS], ([name, *(cell(results[name, span]) for span in SPANS)] for name in names))


def one_stream_table(
    results: Mapping[
        str, list[tuple[NDArray[np.int64], Mapping[str, NDArray[np.float64]], Mapping[str, NDArray[np.float64]]]]
    ],
) -> str:
    """Before/after at 0.05: share of runs with a warning within the week, and median impressions until then."""
    rows = []
    for index, label, level in (
        (0, "{} with the days' noise", np.log(20.0)),
        (1, "{}, z every hour, sampling error only", 1.645),
    ):
        _, *kinds = next(iter(results.values()))[0]
        for metric in kinds[index]:
            row = [label.format(metric)]
            for runs in results.values():
                first = [
                    np.flatnonzero(kinds[index][metric][5:] >= (1.96 if index and metric == "calibration" else level))
                    for _, *kinds in runs
                ]
                share = np.mean([f.size > 0 for f in first])
                seen = [r[0][5 + f[0]] for r, f in zip(runs, first, strict=True) if f.size]
                row.append(f"{100 * share:.0f}%" + (f" ({thousands(float(np.median(seen)))})" if seen else ""))
            rows.append(row)
    return table(["", *results], rows)


def reference_table(results: Mapping[tuple[str, bool], NDArray[np.float64]]) -> str:
    """Root mean square of the AUC estimate's error, in its standard errors."""
    rows = []
    for (scenario, refresh), values in results.items():
        rms = np.sqrt((values**2).mean(axis=0))
        rows.append([scenario, "every hour" if refresh else "frozen", *(f"{x:.2f}" for x in rms)])
    return table(["candidate", "references", *(f"{h} hours" for h in references.HOURS)], rows)

"""Prints the tables of docs/detection.md: `python -m benchmarks.detection [--short] [--only gaussian,null,...]`.

And `python -m benchmarks.detection nulls|power|laws`: see `command`.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from benchmarks.detection import command, null, one_stream, overall_level, planned, power, references, stderr, tables

EFFECTS = (1.0, 2.0, 4.0, 10.0, 30.0)
SCENARIOS = ("equal", "log loss +1%", "AUC -0.02")


def gaussian(short: bool) -> str:
    """Clustered Gaussian nulls."""
    runs = 50 if short else 1000
    return tables.gaussian({(d, s): null.gaussian_alarms(d, s, runs) for d in EFFECTS for s in ("paired", "split")})


def overall(short: bool) -> str:
    """The same for all metrics at once."""
    runs = 20 if short else 1200
    return tables.overall({(d, a): null.overall_alarms(d, runs, a) for d in (1.0, 4.0) for a in (0.05, 0.01)})


def world(short: bool) -> str:
    """Equal versions in the simulated world."""
    return tables.world_null(*null.world_alarms(3 if short else 220, peers=3 if short else 100))


def delays(short: bool) -> str:
    """Power."""
    found = {}
    for name, case in power.CASES.items():
        runs = 3 if short else 24 if case.setup == "split" else 60
        found[name] = [power.run(case, 20_000 + i) for i in range(runs)]
    return tables.delay(found)


def formula(short: bool) -> str:
    """The planning formula's values."""
    cases = ("AUC -0.02", "log loss +1%", "AUC -0.005", "equal")
    return tables.planning({case: planned.measured(case, 2 if short else 24) for case in cases})


def errors(short: bool) -> str:
    """Standard errors."""
    return tables.errors(stderr.calibrated([stderr.one(30_000 + i) for i in range(6 if short else 120)]))


def stream(short: bool) -> str:
    """Before/after."""
    results: dict[str, list[Any]] = {name: [] for name in SCENARIOS}
    for i in range(1 if short else 40):
        for name, data in one_stream.weeks(40_000 + i, SCENARIOS).items():
            results[name].append(
                (one_stream.impressions(data), one_stream.log_es(data), one_stream.log_es(data, naive=True))
            )
    return tables.one_stream_table(results)


def curves(short: bool) -> str:
    """Reference curves."""
    import numpy as np

    return tables.reference_table(
        {
            (scenario, refresh): np.array(
                [references.error(50_000 + i, scenario, refresh) for i in range(2 if short else 20)]
            )
            for scenario in ("equal", "AUC -0.02")
            for refresh in (False, True)
        }
    )


def levels(short: bool) -> str:
    """Levels that the overall e-process must reach."""
    return tables.levels({alpha: overall_level.level(alpha, 200 if short else 3000) for alpha in overall_level.ALPHAS})


SECTIONS = {
    "spent": levels,
    "gaussian": gaussian,
    "overall": overall,
    "null": world,
    "power": delays,
    "planning": formula,
    "stderr": errors,
    "one_stream": stream,
    "references": curves,
}


def main() -> None:
    """Runs the command."""
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        command.main(sys.argv[1:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few runs of each, to see that it works")
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"some of {','.join(SECTIONS)}")
    args = parser.parse_args()
    for name in args.only.split(","):
        if name not in SECTIONS:
            parser.error(f"unknown section {name!r}; there are {', '.join(SECTIONS)}")
        start = time.perf_counter()
        print(f"\n### {name}\n\n{SECTIONS[name](args.short)}\n{time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()

"""Before/after with deploys more often than weekly: how often there is a warning about a harmless version, and about a worse one.

In the world of `days`, whose weekends differ from other days; deploys on all days of the week; with and without an online model that
scores everything. A version is watched for as long as it serves.

    python -m benchmarks.detection.frequent --runs 63
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product

import numpy as np

from benchmarks.detection.days import BAD, DAY_HOURS, GOOD, NEW, Days, Key, Quality
from benchmarks.detection.rates import rate
from streameval.compare.evidence.evidence import Rule
from streameval.compare.evidence.ratio import Ints
from streameval.compare.reading.reading import Deploy
from streameval.compare.tracking.before_after_tracked import BeforeAfterTracked
from streameval.events.batch import Series
from streameval.events.durations import DAY, HOUR

PANE = HOUR // 60
WEEKEND = 0.15
EVERY = (1, 2, 3, 5)  # days


def before(number: int) -> Series:
    """The version `number` deploys before the last one that was replaced."""
    return Series("m", f"before-{number}", "logged")


class Deploys:
    """A version every `every` hours for `history` days or up to 6 more, then `NEW` of some quality."""

    def __init__(
        self, seed: int, quality: Quality, *, every: int, history: int, weekend: float = 0.0, online: bool = True
    ) -> None:
        """The seed decides the day of the week on which `NEW` is deployed."""
        self._world = Days(seed, weekend=weekend)
        self._quality, self._every, self._online = quality, every, online
        self.start = (history + seed % 7) * DAY_HOURS

    def hour(self, hour: int) -> dict[Key, Ints]:
        """Rows of an hour; hours must be requested in order."""
        new = hour >= self.start
        served = NEW if new else before((self.start - 1 - hour) // self._every)
        return self._world.hour(hour, served, self._quality if new else GOOD, online=self._online)

    def tracked(self, keep: int = 15) -> BeforeAfterTracked:
        """The comparison with the last version before `NEW`, at alpha 0.05; `keep`: days of sums."""
        at = self.start * HOUR
        deploy = Deploy("1", "m", NEW.version, before(0).version, at, "deploy", at)
        rule = Rule(alpha=0.05)
        return BeforeAfterTracked(deploy, before(0), NEW, at, at // PANE, rule, PANE, keep * DAY)

    def watch(self, one: BeforeAfterTracked, hours: int) -> Iterator[dict[Key, Ints]]:
        """Feeds a comparison until `hours` after the deploy, or until it says worse; yields the rows of every hour."""
        for hour in range(self.start + hours):
            rows = self.hour(hour)
            for key, row in rows.items():
                one.add(hour * (HOUR // PANE), key, row)
            if hour >= self.start:
                one.look((hour + 1) * HOUR, None)
            yield rows
            if one.verdict == "worse":
                return


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection.frequent", description=__doc__)
    parser.add_argument("--runs", type=int, default=63)
    given = parser.parse_args()
    print(
        "| a version every | through an online model | harmless, warned | NE +2.5%, AUC -0.03, warned | hours (median) |"
    )
    print("|---|---|---|---|---|")
    for every, online in product(EVERY, (True, False)):
        cells, hours = [], []
        for quality in (GOOD, BAD):
            warned = 0
            for seed in range(given.runs):
                deploys = Deploys(seed, quality, every=every * DAY_HOURS, history=14, weekend=WEEKEND, online=online)
                one = deploys.tracked()
                seen = sum(1 for _ in deploys.watch(one, every * DAY_HOURS))
                warned += one.verdict == "worse"
                if quality is BAD and one.verdict == "worse":
                    hours.append(seen - deploys.start)
            cells.append(rate(warned, given.runs))
        median = f"{np.median(hours):.0f}" if hours else ""
        days = "day" if every == 1 else f"{every} days"
        print(f"| {days} | {'yes' if online else 'no'} | {' | '.join(cells)} | {median} |", flush=True)


if __name__ == "__main__":
    main()

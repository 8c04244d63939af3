"""Stated standard errors over empirical ones, from sums: of pairs, of split arms and of before/after, in the worlds of `worlds`.

Every stream draws new users. Versions are equal, so that differences vary around 0 and their standard deviation over streams is
the error that should have been stated; with it, how many differences are beyond 1.96 and beyond t stated errors. A ratio is that of
the root of the mean variance, and known to the error behind it (streams left out one by one).

Of before/after it is the sampling error, of whole hours against the same hours of the days before: without the shocks and the
items, which are differences between days and measured on history. The candidate serves alone from the deploy on.

    python -m benchmarks.detection.stated_errors --setups split --worlds "zipf 1.1;zipf 1.3" --runs 200
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from benchmarks.detection import from_sums
from benchmarks.detection.feed import Plan
from benchmarks.detection.rates import rate
from benchmarks.detection.versions import PAIRS
from benchmarks.detection.week_sums import week
from benchmarks.detection.worlds import DAY, HOUR, WORLDS, draw
from streameval.compare.evidence import before_after
from streameval.compare.evidence.before_after import LevelKind
from streameval.compare.evidence.paired import GAP
from streameval.sketches import blocks as cells

PANE = HOUR // 12
METRICS = ("log_loss", "auc", GAP)
LEVELS: tuple[tuple[LevelKind, str], ...] = (("log_loss", "log_loss"), ("auc", "auc"), ("calibration", GAP))
# setup: versions
SETUPS = {"split": "identical", "paired": "user noise", "before_after": "user noise"}
USERS = ("300 users", "zipf 0.8", "zipf 1.1", "zipf 1.3")


@dataclass(frozen=True)
class Found:
    """A difference with its stated standard error and degrees of freedom."""

    theta: float
    stderr: float
    df: float


@dataclass(frozen=True)
class Judged:
    """The stated error over the empirical one, the ratio's own error, and how many of `count` are beyond 1.96, and beyond t."""

    count: int
    ratio: float
    known_to: float
    beyond: int
    beyond_t: int
    df: float


def found(setup: str, world: str, pair: str, seed: int, hours: float) -> dict[str, Found]:
    """The differences of a stream, by metric."""
    if setup == "before_after":
        return _before_after(world, pair, seed, hours)
    sums = week(draw(WORLDS[world], PAIRS[pair], seed, hours, 0.0), Plan(setup), PANE)
    last, first = np.array([len(sums.impressions) - 1]), np.array([0])
    looked = (from_sums.paired_looks if setup == "paired" else from_sums.split_looks)(sums, last, first)
    return {
        name: Found(*(float(x[0, 0]) for x in (s.theta, s.stderr(), s.df)))
        for name, s in looked.statistics.items()
        if name in METRICS
    }


def _before_after(world: str, pair: str, seed: int, hours: float) -> dict[str, Found]:
    traffic = replace(WORLDS[world], items=0, day_shock=0.0, hour_shock=0.0)
    span = -(-round(hours * HOUR) // DAY) * DAY  # whole days, so that hours meet the same hours
    stream = draw(traffic, PAIRS[pair], seed, span / HOUR + 1.0, span / HOUR + 1.0)
    edge, begin = -(-stream.deploy // HOUR), int(stream.ts[0]) // HOUR
    shown = np.where(stream.ts < edge * HOUR, *stream.pclick)
    # all of it as of one arm, the other one's score is of no account
    one = replace(stream, deploy=begin * HOUR, arm=np.ones(len(stream)), pclick=np.stack((shown, shown)))
    served = week(one, Plan("split"), HOUR).served[:, 0]
    many = span // HOUR
    rows = (
        served[edge - begin - many : edge - begin].sum(axis=0),
        served[edge - begin : edge - begin + many].sum(axis=0),
    )
    unit = before_after.entropy_per_click(float(rows[0][:, cells.N].sum()), float(rows[0][:, cells.Y].sum()))
    out = {}
    for kind, name in LEVELS:
        then, now = (before_after.levels(kind, x).over(unit if kind == "log_loss" else 1.0) for x in rows)
        moved = before_after.shift(then, now, np.zeros(2), 1.0)
        out[name] = Found(float(moved.theta), float(np.sqrt(moved.sampling)), float(moved.df_sampling))
    return out


def judged(some: Sequence[Found]) -> Judged:
    """What streams say together; those without a finite error are left out."""
    theta, stderr, df = np.array([(f.theta, f.stderr, f.df) for f in some if np.isfinite(f.stderr)]).T
    z = np.abs(theta / stderr)

    def ratio(keep: np.ndarray) -> float:
        return float(np.sqrt((stderr[keep] ** 2).mean()) / theta[keep].std(ddof=1))

    every = np.arange(theta.size)
    without = np.array([ratio(np.delete(every, i)) for i in every])
    known_to = float(np.sqrt((every.size - 1) / every.size * ((without - without.mean()) ** 2).sum()))
    beyond_t = int((z > stats.t.isf(0.025, np.maximum(df, 1.0))).sum())
    return Judged(
        theta.size, ratio(every), known_to, int((z > stats.norm.isf(0.025)).sum()), beyond_t, float(np.median(df))
    )


def rows(
    setups: Mapping[str, str], worlds: Sequence[str], runs: int, first: int, hours: float
) -> Iterator[tuple[str, ...]]:
    """The table, a metric of a setup and world each."""
    for setup, pair in setups.items():
        for world in worlds:
            got = [found(setup, world, pair, first + seed, hours) for seed in range(runs)]
            for name in METRICS:
                j = judged([one[name] for one in got])
                yield (
                    f"{setup}, {pair}", world, name, f"{j.ratio:.2f} ± {j.known_to:.2f}",
                    rate(j.beyond, j.count), rate(j.beyond_t, j.count), f"{j.df:.0f}",
                )  # fmt: skip


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(";")]


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setups", type=_names, default=list(SETUPS), help=f"some of {'; '.join(SETUPS)}")
    parser.add_argument(
        "--worlds", type=_names, default=list(USERS), help="names of `worlds.WORLDS`, with ; between them"
    )
    parser.add_argument("--pair", choices=PAIRS, help="the versions, instead of those of the setup")
    parser.add_argument("--runs", type=int, default=200, help="streams a row")
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--first", type=int, default=20_000, help="the first stream's seed")
    args = parser.parse_args(argv)
    for kind, some, known in (("setup", args.setups, SETUPS), ("world", args.worlds, WORLDS)):
        for name in some:
            if name not in known:
                parser.error(f"unknown {kind} {name!r}; there are {', '.join(known)}")
    print(f"{args.hours:g} hours, {args.runs} streams, seeds from {args.first}\n")
    print(
        "| setup, versions | world | metric | stated / empirical | beyond 1.96 | beyond t | df |\n" + "|---" * 7 + "|"
    )
    setups = {setup: args.pair or SETUPS[setup] for setup in args.setups}
    for row in rows(setups, args.worlds, args.runs, args.first, args.hours):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()

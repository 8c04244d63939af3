"""Standard errors of the further metrics of comparisons (`compare.more`): stated over empirical.

Every repetition draws new users, with persistent activity (Zipf 0.8 or 1.1), CTR, values and noise of the versions; they see lists of
4 to 9 items. Sums are the product's own (`further.Feed`). A ratio is the root of the mean variance over the standard deviation of
the differences; items have no ids, which would only make errors larger.

    python -m benchmarks.detection.further_errors --repetitions 150
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from benchmarks.detection.further import METRICS, NEW, OLD, Feed, Week, rule
from benchmarks.detection.worlds import HOUR, Stream
from streameval.compare.tracking.further import FurtherMetrics
from streameval.sketches.blocks import NO_ITEM

USERS = (300, 3_000)
LISTS = 2_500
RATIOS = (0.85, 1.25)


def drawn(users: int, seed: int, zipf: float = 0.8) -> Week:
    """An hour of `LISTS` lists, with equal versions."""
    rng = np.random.default_rng([seed, users, 17])
    share = np.arange(1, users + 1) ** -zipf
    who = rng.choice(users, LISTS, p=share / share.sum())
    size = rng.integers(4, 10, LISTS)
    of, user = np.repeat(np.arange(LISTS), size), np.repeat(who, size)
    n = of.size
    logit = -2.2 + rng.normal(0.0, 0.5, users)[user] + rng.normal(0.0, 0.9, n)
    truth = 1.0 / (1.0 + np.exp(-logit))
    clicked = rng.random(n) < truth
    noise = 0.5 * rng.normal(size=(2, n)) + 0.5 * rng.normal(size=(2, users))[:, user] * rng.normal(0.0, 1.0, n)
    ids = rng.integers(1, 1 << 40, users).astype(np.uint64)[user]
    ts = np.full(n, 500_000 * HOUR)
    stream = Stream(
        ts=ts, user=ids, item=np.zeros(n, np.uint64), clicked=clicked, click_ts=ts[clicked],
        pclick=1.0 / (1.0 + np.exp(-logit - noise)), truth=truth, arm=rng.random(users)[user], deploy=int(ts[0]), end=int(ts[0]) + HOUR,
    )  # fmt: skip
    propensity = 0.05 ** rng.random(n)
    policies = propensity * np.exp(rng.normal(0.0, 0.5, (2, n)) - 0.125)
    value = np.exp(rng.normal(0.0, 0.5, users)[user] + rng.normal(0.0, 0.7, n))
    return Week(stream, propensity, propensity, policies, value, (of + 1).astype(np.uint64))


def difference(week: Week, metric: str) -> tuple[float, float]:
    """(theta, its variance) as a comparison computes them."""
    feed = Feed(week, metric)
    feed.item[:] = NO_ITEM
    further = FurtherMetrics(rule(metric, 0.05), feed.setup, (OLD, NEW), week.stream.deploy, feed.shape)
    whole, segment = slice(0, week.stream.ts.size), week.stream.deploy // HOUR
    feed.add(further, segment, whole)
    feed.add_hour(further, segment, whole)
    return further.harm(metric)


def ratio(metric: str, users: int, repetitions: int, first: int = 0, zipf: float = 0.8) -> float:
    """Stated over empirical."""
    some = np.array([difference(drawn(users, seed, zipf), metric) for seed in range(first, first + repetitions)])
    return float(np.sqrt(some[:, 1].mean()) / some[:, 0].std(ddof=1))


def main(argv: Sequence[str] | None = None) -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=150)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--zipf", type=float, default=0.8)
    parser.add_argument("--metrics", nargs="+", default=list(METRICS), choices=METRICS)
    args = parser.parse_args(argv)
    print(f"| metric | {' | '.join(f'{users} users' for users in USERS)} |\n|---|---|---|", flush=True)
    for metric in args.metrics:
        told = [ratio(metric, users, args.repetitions, args.first, args.zipf) for users in USERS]
        kept = all(RATIOS[0] <= one <= RATIOS[1] for one in told)
        print(f"| {metric} | {' | '.join(f'{one:.2f}' for one in told)} |{'' if kept else ' **no**'}", flush=True)


if __name__ == "__main__":
    main()

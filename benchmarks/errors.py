"""Standard errors of all metrics: stated over empirical, and how often Student's t intervals cover.

Every repetition draws new users, who differ in how much they click (sd 0.5 on the logit) and in what they like (sd 0.5 for each
of 8 kinds of items); no score knows either. They see lists of 4 to 9 items, equally often or, by rank, as 1 / rank^1.1 (Zipf).
Events go through the loop of the product. A ratio is the root of the mean of stated variances over the standard deviation of
the values; with it, the standard error that it has of so many repetitions. `covers`: in how many repetitions the mean of all
is within the interval that the stated error gives at 95% with its degrees of freedom. How active users are is the same in every
repetition, so `value_per_user` varies less here than its error says, which takes them for drawn.

    python -m benchmarks.errors --users 3000 --repetitions 150
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from streameval.events.batch import Batch, Catalog, Clicks, Impressions, Shadow
from streameval.loop.pipeline import Pipeline
from streameval.metrics.registry import by_name
from streameval.results.result import Result
from streameval.settings.tree import Settings
from streameval.testing import readers_see

LISTS = 2_500
KINDS = 8
ZIPF = {"uniform": 0.0, "Zipf 1.1": 1.1}
RATIOS = (0.85, 1.25)
BASE = 1_700_000_040_000  # ms
SECONDS = 3_000  # of event time over which lists are spread
FIRST = ("ndcg_5", "mrr", "pauc", "log_loss_snips", "click_yield")  # one of each kind of sums; the others follow


def settings() -> Settings:
    """Everything that a version which serves may have, and that is defined in this world."""
    return Settings.model_validate(
        {
            "metrics": {"value": True, "threshold": 0.2},
            "ranking": {"k": [1, 5]},
        }
    )


def events(rng: np.random.Generator, catalog: Catalog, users: int, zipf: float) -> Batch:
    """`LISTS` lists of new users, shown by one version, and the clicks on them."""
    share = np.arange(1, users + 1) ** -zipf
    who = rng.choice(users, LISTS, p=share / share.sum())
    size = rng.integers(4, 10, LISTS)
    of, first = np.repeat(np.arange(LISTS), size), np.repeat(np.cumsum(size) - size, size)
    user, n = who[of], of.size
    kind, known = rng.integers(0, KINDS, n), rng.normal(-2.2, 0.9, n)
    logit = known + rng.normal(0, 0.5, users)[user] + rng.normal(0, 0.5, (users, KINDS))[user, kind]
    clicked = rng.random(n) < 1 / (1 + np.exp(-logit))
    ts = BASE + np.sort(rng.integers(0, SECONDS * 1000, LISTS))[of]
    id_, code = rng.permutation(n).astype(np.uint64) + np.uint64(1), catalog.series_code("ctr", "v1", "logged")
    when, is_click = np.concatenate((ts, ts[clicked] + 5_000)), np.arange(n + clicked.sum()) >= n
    place = np.empty(when.size, np.int32)
    place[np.argsort(when, kind="stable")] = np.arange(when.size)
    by_time = np.argsort(place[n:])
    propensity = 0.05 ** rng.random(n)
    chance = np.minimum(propensity * np.exp(rng.normal(0, 0.5, n) - 0.125), 1.0)
    impressions = Impressions(
        order=place[:n], id=id_, ts=ts, user=rng.integers(1, 1 << 62, users).astype(np.uint64)[user],
        request=(of + 1).astype(np.uint64), item=(kind + 1).astype(np.uint64), series=np.full(n, code, np.int32),
        pclick=1 / (1 + np.exp(-known - 0.2)), slices=np.zeros(n, np.int64), label=np.full(n, -1, np.int8),
        fields={"position": (np.arange(n) - first).astype(np.float64), "propensity": propensity},
        policies=Shadow(np.arange(n + 1), np.full(n, code, np.int32), chance),
    )  # fmt: skip
    value = np.exp(rng.normal(0, 0.5, users)[user] + rng.normal(0, 0.7, n))[clicked]
    clicks = Clicks(place[n:][by_time], id_[clicked][by_time], when[is_click][by_time], {"value": value[by_time]})
    return Batch(0, impressions, clicks, shared=True)


def repetition(seed: int, users: int, zipf: float) -> Result:
    """What a monitor says about one version after one draw of the world."""
    pipeline = Pipeline(settings(), time.time)
    pipeline.take(events(np.random.default_rng([seed, users, round(100 * zipf)]), pipeline.catalog, users, zipf))
    pipeline.finish()
    (found,) = (one for one in readers_see(pipeline, with_history=False).results if one.window == "all")
    return found


class Judged(NamedTuple):
    """One metric over all repetitions."""

    ratio: float
    spread: float  # standard error of the ratio
    covers: float


def df_of(result: Result, metric: str) -> float:
    """Degrees of freedom of a standard error; infinite: of so many that the normal distribution is right."""
    if metric == "gauc":
        return result.gauc_stderr_df or math.inf
    row = by_name(metric)
    return (result.user_dfs.get(metric) if row.of_users else row.df(result.stderr_df)) or math.inf


def judged(results: Sequence[Result], metric: str) -> Judged:
    """Compares what was stated with how the values vary."""
    value = np.array([result.metrics[metric] for result in results], float)
    stderr = np.array([result.stderrs[metric] for result in results], float)
    wide = np.array([student.ppf(0.975, df_of(result, metric)) for result in results])
    off = np.abs(value - value.mean())
    return Judged(*_ratio(value, stderr), float((off < wide * stderr).mean()))


def _ratio(value: NDArray[np.float64], stderr: NDArray[np.float64]) -> tuple[float, float]:
    """(stated over empirical, its standard error by leaving out one repetition after the other)."""
    n, v, s = value.size, value - value.mean(), stderr * stderr
    ratio = math.sqrt(s.mean() / (v @ v / (n - 1)))
    variances = ((v @ v) - v * v * n / (n - 1)) / (n - 2)
    left_out = np.sqrt((s.sum() - s) / (n - 1) / variances)
    return ratio, math.sqrt((n - 1) / n * float(((left_out - left_out.mean()) ** 2).sum()))


def names(results: Sequence[Result]) -> list[str]:
    """The metrics that have an error in every repetition, `FIRST` first."""
    found = [name for name in results[0].stderrs if all(one.stderrs.get(name) for one in results)]
    return [*FIRST, *(name for name in found if name not in FIRST)]


def main(argv: Sequence[str] | None = None) -> None:
    """Prints a table for each kind of users."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=3_000)
    parser.add_argument("--repetitions", type=int, default=150)
    args = parser.parse_args(argv)
    for name, zipf in ZIPF.items():
        results = [repetition(seed, args.users, zipf) for seed in range(args.repetitions)]
        print(f"\n{args.users} users, {name}; {args.repetitions} repetitions\n")
        print("| metric | stated over empirical | covers | |\n|---|---|---|---|")
        for metric in names(results):
            of = judged(results, metric)
            told = "" if RATIOS[0] <= of.ratio <= RATIOS[1] else "**no**"
            print(f"| {metric} | {of.ratio:.2f} +- {of.spread:.2f} | {of.covers:.1%} | {told} |", flush=True)


if __name__ == "__main__":
    main()

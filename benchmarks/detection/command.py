"""`python -m benchmarks detection nulls|power|laws`: promises about verdicts, in worlds for which verdicts were not tuned.

`nulls`: the rate of false verdicts; `power`: the impressions that it takes to detect a worse version, or to certify an equal one;
`laws`: the measured differences of equal versions, hour by hour, and whether the number of partitions matters.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.pool import Pool

import numpy as np

from benchmarks.detection import from_sums, promises, whole
from benchmarks.detection.rates import delay, thousands
from benchmarks.detection.whole import RULES, Case, Outcome
from streameval.compare.evidence.evidence import Rule

STREAMS_OF_A_PROCESS = 50  # after which a worker is replaced, to bound its memory
ROUTES = {"pipeline": whole.run, "sums": from_sums.run}
METRICS = ("log_loss", "auc", "gauc", "calibration")
BOUNDED = ("log_loss", "auc")


class Runner:
    """Runs streams, in worker processes or here."""

    def __init__(self, route: str, pool: Pool | None, first: int, runs: int, cap: int = 0) -> None:
        self._run, self._pool, self._first, self.runs, self._cap = ROUTES[route], pool, first, runs, cap

    def __call__(self, case: Case) -> list[Outcome]:
        """The outcomes of a case, one per seed."""
        cases = [replace(case, seed=seed, cap=self._cap) for seed in range(self._first, self._first + self.runs)]
        return list((self._pool.imap if self._pool else map)(self._run, cases))


@contextmanager
def runner(route: str, workers: int, first: int, runs: int, cap: int) -> Iterator[Runner]:
    """`workers`: processes; 0 runs here."""
    if not workers:
        yield Runner(route, None, first, runs, cap)
        return
    context = multiprocessing.get_context("spawn")
    # not an executor: those of Python 3.11 can deadlock when they replace a worker (python/cpython#115634)
    with context.Pool(workers, maxtasksperchild=STREAMS_OF_A_PROCESS) as pool:
        yield Runner(route, pool, first, runs, cap)


def nulls(args: argparse.Namespace, run: Runner) -> None:
    """False verdicts."""
    _head(promises.HEAD)
    broken = 0
    for promise in promises.nulls(
        args.worlds, args.pairs, args.plans, args.partitions, args.rules or list(RULES), args.hours
    ):
        outs = run(promise.case)
        broken += not promise.holds(outs)
        _row(promise.cells(outs))
    print(f"\n{broken} promises are not kept")


def power(args: argparse.Namespace, run: Runner) -> None:
    """Delays. Streams without the verdict count as an infinite delay."""
    bounds = [f"{what} {name}" for name in BOUNDED for what in ("bound by", "variance over the empirical one,")]
    _head(("version", "world", "rule", *("overall", *METRICS), "wished for overall", "true harm in log loss", *bounds))
    for case, verdict, (median, late) in promises.power(args.worlds, args.pairs, args.rules or ["0.05/m0"]):
        outs = run(case)
        found = [out.worse if verdict == "worse" else out.not_worse for out in outs]
        cells = [
            delay([f[name] for f in found if name in f], len(outs)) if name == "overall" or not case.until else ""
            for name in ("overall", *METRICS)
        ]
        wish = "" if np.isnan(late) else f"{thousands(median)} ({thousands(late)})"
        harm = f"{np.mean([out.harm for out in outs]):+.4f}"
        _row([case.pair, case.world, case.rule, *cells, wish, harm, *_bounds(case, verdict, outs)])


def _bounds(case: Case, verdict: str, outs: Sequence[Outcome]) -> Iterator[str]:
    """The lower bound of the mean delay of any sequential test of one metric that knows the harm (or, for a certificate, the
    tolerance) and the variance, 2 ln(1/alpha) v / theta**2 (Wald 1945); and v over the variance of differences between streams.

    These need whole streams, so only with sums: the pipeline stops at the verdict.
    """
    rule = Rule(**RULES[case.rule])  # type: ignore[arg-type]
    for name in BOUNDED:
        at = [out.at[case.marks[0]][name] for out in outs if case.marks[0] in out.at]
        if len(at) < max(len(outs), 2):
            yield from ("", "")
            continue
        squares = np.mean([d.stderr**2 for d in at])
        theta = rule.tolerances[name] if verdict == "not_worse" else np.mean([d.value for d in at])
        v = squares * np.mean([out.impressions for out in outs])
        yield thousands(2.0 * np.log(1.0 / rule.alpha) * v / theta**2)
        yield f"{squares / np.var([d.value for d in at], ddof=1):.2f}"


def laws(args: argparse.Namespace, run: Runner) -> None:
    """Differences of equal versions; for arms, every stream also with the arms exchanged."""
    counts = args.partitions or [1, 4, 8, 32]
    _head(
        (
            "streams",
            "partitions",
            "hours",
            "metric",
            "mean difference",
            "mean z times sqrt(runs)",
            "rms z",
            "sd / stderr",
        )
    )
    for name, case in promises.LAWS.items():
        if case.pair not in (args.pairs or [case.pair]) or case.world not in (args.worlds or [case.world]):
            continue
        outs = {}
        for count in counts:
            plan = replace(case.plan, partitions=count)
            outs[count] = run(replace(case, plan=plan))
            if plan.setup != "paired":  # over both streams, chance differences between users nearly cancel
                outs[count] += run(replace(case, plan=replace(plan, mirrored=True)))
        for count, mark in ((count, mark) for count in counts for mark in case.marks):
            for metric in METRICS:
                at = [out.at[mark][metric] for out in outs[count] if metric in out.at.get(mark, {})]
                known = [d for d in at if np.isfinite(d.value) and np.isfinite(d.stderr)]
                if known:
                    z, values = np.array([d.z for d in known]), np.array([d.value for d in known])
                    error = np.mean([d.stderr for d in known])
                    _row(
                        [
                            name, str(count), f"{mark:g}", metric, f"{values.mean():+.2e}",
                            f"{z.mean() * np.sqrt(z.size):+.2f}", f"{np.sqrt((z**2).mean()):.2f}",
                            f"{values.std(ddof=1) / error:.2f}" if error > 0 and z.size > 1 else "",
                        ]
                    )  # fmt: skip
        _agreement(name, outs)


def _agreement(name: str, outs: dict[int, list[Outcome]]) -> None:
    """The agreement of other numbers of partitions with the first one."""
    first, *others = outs
    for count in others:
        apart = [
            abs(b.at[mark]["auc"].value - a.at[mark]["auc"].value) / max(a.at[mark]["auc"].stderr, 1e-12)
            for a, b in zip(outs[first], outs[count], strict=True)
            for mark in a.at.keys() & b.at.keys()
        ]
        same = sum(a.final == b.final for a, b in zip(outs[first], outs[count], strict=True))
        far = np.nanmax(apart) if np.isfinite(apart).any() else float("nan")
        _row([f"{name}: {count} against {first} partitions", "", "", "auc", f"at most {far:.2f} stderr apart",
              f"same verdicts in {same} of {len(outs[count])}", "", ""])  # fmt: skip


def _head(cells: Sequence[str]) -> None:
    _row(cells)
    print("|" + "---|" * len(cells), flush=True)


def _row(cells: Sequence[str]) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(";")]


def main(arguments: Sequence[str]) -> None:
    """Runs one of the three."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks detection", description=__doc__)
    parser.add_argument("what", choices=["nulls", "power", "laws"])
    parser.add_argument("--worlds", type=_names, help="names of `worlds.WORLDS`, with ; between them")
    parser.add_argument("--pairs", type=_names, help="names of `versions.PAIRS`, or pause, or lag")
    parser.add_argument("--plans", type=_names, help="paired; split; percent; ramp; clock")
    parser.add_argument("--rules", type=_names, help="default; 0.05/m0")
    parser.add_argument("--partitions", type=lambda text: [int(n) for n in text.split(",")], help="for example 1,8")
    parser.add_argument(
        "--route", choices=list(ROUTES), default="pipeline", help="the whole product, or sums made apart"
    )
    parser.add_argument("--runs", type=int, default=40, help="streams a row")
    parser.add_argument("--hours", type=float, default=144.0, help="after the deploy, which comes after a day (nulls)")
    parser.add_argument("--seed", type=int, default=0, help="the first stream's")
    parser.add_argument(
        "--cap", type=int, default=0, help="impressions of a user and day, for the second process of sums"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes; 0: this one")
    args = parser.parse_args(arguments)
    begin = time.perf_counter()
    print(
        f"{args.what} by the {args.route} route: {args.runs} streams a row, seeds {args.seed} to {args.seed + args.runs - 1}\n"
    )
    with runner(args.route, args.workers, args.seed, args.runs, args.cap) as run:
        {"nulls": nulls, "power": power, "laws": laws}[args.what](args, run)
    print(f"{time.perf_counter() - begin:.0f} s")

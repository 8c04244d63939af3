"""Further metrics of comparisons (`compare.more`) between equally good versions: how often they say `worse`.

Streams are those of `worlds`; their sums go pane by pane into the product's own further metrics, window by window. Propensities
are by item: log-uniform down to 0.001, or ("rare") 0.001 for one item in a hundred and nearly 1 for the others. A list is what a
user sees within ten minutes. Values of clicks are log-normal (sd 1). For policies, propensities are by impression, or the mean
weight would not be 1; both policies show everything equally, with independent noise (sd 0.5), so weights vary as 1 / propensity does.

    python -m benchmarks.detection.further --runs 100
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.feed import Plan
from benchmarks.detection.rates import bounds, rate
from benchmarks.detection.whole import Case
from benchmarks.detection.worlds import HOUR, Stream
from streameval.compare.evidence.evidence import DEFAULT_MARGINS, DEFAULT_TOLERANCES, Rule
from streameval.compare.ledger.curves import LabelTable
from streameval.compare.ledger.list_rows import ListMetrics
from streameval.compare.ledger.pieces import PieceScores
from streameval.compare.ledger.placements import code_of
from streameval.compare.ledger.request_rows import YIELD_WIDTH, RequestColumns, request_rows
from streameval.compare.ledger.row_shape import shape_of
from streameval.compare.ledger.sums import WIDTH, LedgerLabels, LedgerScores
from streameval.compare.ledger.user_aucs import Groups
from streameval.compare.ledger.window_choice import LiveRows, Wanted
from streameval.compare.reading.reading import Setup
from streameval.compare.tracking.further import FurtherMetrics
from streameval.compare.tracking.sequential import GROWTH
from streameval.events.batch import Series
from streameval.events.columns import ScoreList
from streameval.join.policy import CLICKED, MATURED
from streameval.sketches import blocks as cells
from streameval.sketches.accumulate import measure
from streameval.sketches.blocks import BLOCKS, SERIES_CELLS, blocks_of, item_blocks_of

OLD, NEW = Series("m", "old", "logged"), Series("m", "new", "logged")
PANE = 300_000  # ms
SHAPES = ("log-uniform", "rare")
FLOOR = 1_800_000  # ms: min_duration
PAIRED = ("log_loss_snips", "policy_value", "ndcg_5", "mrr", "pauc")
METRICS = (*PAIRED, "ctr", "value", "click_yield")
WEIGHTED = ("log_loss_snips", "policy_value")  # those that read propensities
LIST = 600_000  # ms
RANGE = (0.0, 0.1)


@dataclass(frozen=True)
class Week:
    """A stream of equal versions from the deploy on."""

    stream: Stream
    propensity: NDArray[np.float64]
    chance: NDArray[np.float64]  # the propensity for policies
    policies: NDArray[np.float64]  # [2, n], probabilities
    value: NDArray[np.float64]  # of the click
    request: NDArray[np.uint64]

    @classmethod
    def of(cls, case: Case, shape: str) -> Week:
        """`shape`: of the propensities, one of `SHAPES`."""
        stream = case.stream()
        items, of = np.unique(stream.item, return_inverse=True)
        rng = np.random.default_rng([case.seed, 11])
        propensity = _propensities(rng.random(items.size)[of], shape)
        noise = np.exp(rng.normal(0.0, 0.5, (2, of.size)) - 0.125)
        value, u = np.exp(rng.normal(0.0, 1.0, of.size)), np.arange(0.5e-6, 1.0, 1e-6)
        policies = noise / np.mean(1.0 / _propensities(u, shape))
        lists = (stream.ts // LIST % (1 << 20)).astype(np.uint64) + np.uint64(1)
        request = (stream.user.astype(np.uint64) << np.uint64(20)) + lists
        return cls(stream, propensity, _propensities(rng.random(of.size), shape), policies, value, request)


def _propensities(u: NDArray[np.float64], shape: str) -> NDArray[np.float64]:
    """Propensities from uniform draws in [0, 1)."""
    return 0.001**u if shape == "log-uniform" else np.where(u < 0.01, 0.001, 0.9)


def rule(metric: str, alpha: float) -> Rule:
    """Margin 0, the hardest case."""
    return Rule(
        alpha=alpha,
        margins={**DEFAULT_MARGINS, metric: 0.0},
        tolerances={**DEFAULT_TOLERANCES, metric: 0.005},
        more=(metric,),
        min_duration=FLOOR,
    )


class Feed:
    """The sums of a stream that the product's further metrics take, for one of them."""

    def __init__(self, week: Week, metric: str) -> None:
        self.week, self.metric = week, metric
        self.setup: Setup = "paired" if metric in PAIRED else "split"
        self.shape = shape_of([metric], 1e-4, RANGE)
        self.table = LabelTable()
        s = week.stream
        self.label = s.clicked.astype(np.int8)
        self.block, self.item = blocks_of(s.user), item_blocks_of(s.item)
        self.arm = Plan("split").serves(s)
        if metric == "log_loss_snips":
            row = np.arange(s.ts.size, dtype=np.int32)
            self.loss = np.array([measure(s.pclick[m], row, self.label)[0] for m in range(2)])
        else:
            self.loss = np.zeros_like(s.pclick)
        if metric == "pauc":
            row = np.arange(s.ts.size, dtype=np.int32)
            self.parts = [measure(s.pclick[m], row, self.label)[1] for m in range(2)]

    def clicks(self, part: slice) -> NDArray[np.int64]:
        """Clicks of the arms, or twice those of the pair."""
        clicked = self.label[part].sum()
        new = self.label[part][self.arm[part] == 1].sum()
        return np.array([clicked, clicked] if self.setup == "paired" else [clicked - new, new], np.int64)

    def add(self, to: FurtherMetrics, segment: int, part: slice) -> None:
        """Adds sums of a pane."""
        if self.metric in WEIGHTED:
            to.add(segment, (OLD, NEW), self._piece(part, pairs=True))
        elif self.metric in ("ctr", "value"):
            for arm, series in enumerate((OLD, NEW)):
                on = np.flatnonzero(self.arm[part] == arm) + part.start
                to.add(segment, (series, None), self._served(on))

    def add_hour(self, to: FurtherMetrics, segment: int, part: slice, sign: int = 1, over: bool = True) -> None:
        """Adds sums of an hour, or (not `over`) of its part so far, which is included only for a look."""
        if self.metric == "pauc":
            to.add(segment, (OLD, NEW), sign * self._placed(part))
        elif over and self.shape.lists.metrics:
            to.add_window(segment, (OLD, NEW), _lists(self.week, self.shape.lists, part))
        elif over and self.shape.requests:
            for arm, series in enumerate((OLD, NEW)):
                to.add_window(segment, (series, None), self._requests(part)[arm])

    def _piece(self, part: slice, pairs: bool) -> NDArray[np.int64]:
        """A row of the pair: impressions that the old version served and both scored, or those that each served."""
        week, (old, new) = self.week, self.week.stream.pclick[:, part]
        label = self.label[part]
        n = label.size
        i = np.arange(n, dtype=np.int32)
        series = np.repeat(np.array([0, 1], np.int32), n)
        losses = self.loss[:, part].ravel()
        scores = LedgerScores(np.tile(i, 2), series, np.concatenate([old, new]), losses, np.zeros(2 * n, np.int16), i)
        labels = LedgerLabels(
            label,
            self.block[part],
            self.item[part],
            np.zeros((n, 0), np.int32),
            np.zeros(n, np.bool_),
            np.zeros(n, np.int16),
            np.ones(n, np.int64),
            False,
        )
        policies = ScoreList(np.repeat(i, 2), np.tile(np.array([0, 1], np.int32), n), week.policies[:, part].T.ravel())
        propensity = week.chance if self.metric == "policy_value" else week.propensity
        fields = {"propensity": propensity[part], "value": week.value[part]}
        row_of = np.array([[-1, -1, 0], [-1, -1, -1]], np.int32)
        out = np.zeros((1, WIDTH + self.shape.pieces.width), np.int64)
        some = PieceScores(n, 2 * n, scores, labels, row_of, fields, 1, policies)
        self.shape.pieces.add(some, pairs, out, WIDTH)
        return out[0]

    def _served(self, on: NDArray[np.int64]) -> NDArray[np.int64]:
        n, i = on.size, np.arange(on.size, dtype=np.int32)
        out = np.zeros((1, WIDTH + self.shape.pieces.width), np.int64)
        for at, group in ((0, self.block), (BLOCKS * SERIES_CELLS + cells.PAIR_SCALARS, self.item)):
            table = out[0, at : at + BLOCKS * SERIES_CELLS].reshape(BLOCKS, SERIES_CELLS)
            named = on[group[on] < BLOCKS]
            np.add.at(table[:, cells.N], group[named], 1)
            np.add.at(table[:, cells.Y], group[named], self.label[named])
        nothing = np.zeros(n)
        scores = LedgerScores(i, np.zeros(n, np.int32), nothing, nothing, np.zeros(n, np.int16), i)
        labels = LedgerLabels(
            self.label[on],
            self.block[on],
            self.item[on],
            np.zeros((n, 0), np.int32),
            np.zeros(n, np.bool_),
            np.zeros(n, np.int16),
            np.ones(n, np.int64),
            False,
        )
        row_of, fields = np.array([[0, -1]], np.int32), {"value": self.week.value[on]}
        self.shape.pieces.add(PieceScores(0, n, scores, labels, row_of, fields, 1), False, out, WIDTH)
        return out[0]

    def _placed(self, part: slice) -> NDArray[np.int64]:
        """A row of the pair, placed within the stratum of these impressions."""
        s = self.block[part].size
        codes = _codes(self.item[part], self.block[part], self.label[part], self.parts[0][part], self.parts[1][part])
        out = np.zeros(WIDTH + self.shape.pieces.width, np.int64)
        if s:
            self.table.add(codes, pair=True)
            labels, core = self.table.take()
            self.shape.pieces.place(codes, self.shape.pieces.curves(core, labels, pair=True), out)
        return out

    def _requests(self, part: slice) -> list[NDArray[np.int64]]:
        s = self.week.stream
        n = s.ts[part].size
        state = (MATURED | np.where(s.clicked[part], CLICKED, 0)).astype(np.uint8)
        hour = int(s.ts[part][0]) // HOUR if n else 0
        columns = RequestColumns(self.week.request[part], self.arm[part].astype(np.int32), np.zeros(n), self.item[part])
        known = LiveRows(s.ts[part], s.user[part].astype(np.uint64), state, np.array([[0, n]]))
        rows, _ = request_rows(known, columns, Wanted.of(HOUR, [hour], 0), [hour])
        nothing = np.zeros(YIELD_WIDTH, np.int64)
        return [rows.get(hour, {}).get((arm, -1), nothing) for arm in range(2)]


@numba.njit(cache=True)
def _codes(
    item: NDArray[np.int8],
    block: NDArray[np.int8],
    label: NDArray[np.int8],
    old: NDArray[np.int16],
    new: NDArray[np.int16],
) -> NDArray[np.uint64]:
    """`old` and `new`: parts of bins, from `measure`."""
    out = np.empty(item.size, np.uint64)
    for i in range(item.size):
        out[i] = code_of(0, item[i], block[i], label[i], old[i], new[i])
    return out


def peaks(week: Week, metric: str) -> tuple[float, float]:
    """The largest log e of `worse` at any look: of the candidate against the baseline, and the other way round."""
    s, feed = week.stream, Feed(week, metric)
    sides = (OLD, NEW), (NEW, OLD)
    tested = rule(metric, 0.05)
    both = [FurtherMetrics(tested, feed.setup, one, s.deploy, feed.shape) for one in sides]
    first = int(np.searchsorted(s.ts, s.deploy))
    edges = np.arange(s.deploy // PANE * PANE, s.end + PANE, PANE)
    cuts = np.searchsorted(s.ts, np.maximum(edges, s.deploy))
    hour = first  # where the hour begins
    clicks, begun, seen, best = np.zeros(2, np.int64), [s.deploy], 0, [0.0, 0.0]
    counts: list[NDArray[np.int64]] = [np.zeros(2, np.int64)]  # clicks of the arms when each window began
    for a, b, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), edges[1:].tolist(), strict=True):
        segment = (end - PANE) // HOUR
        if segment * HOUR >= begun[-1] + tested.restart and segment * HOUR == end - PANE and len(begun) < 28:
            begun.append(end - PANE)
            counts.append(clicks.copy())
            for one in both:
                one.begin(segment)
        clicks += feed.clicks(slice(a, b))
        for one in both:
            feed.add(one, segment, slice(a, b))
            if end % HOUR == 0:
                feed.add_hour(one, segment, slice(hour, b))
        hour = b if end % HOUR == 0 else hour
        n = b - first
        if n - seen <= seen // GROWTH:
            continue
        seen = n
        for i, one in enumerate(both):
            feed.add_hour(one, segment, slice(hour, b), over=False)
            one.look(end, np.array([[int((clicks - c).min()) for c in counts]], np.int64))
            feed.add_hour(one, segment, slice(hour, b), -1, over=False)
            if end - s.deploy >= FLOOR and clicks.min() >= 200:
                best[i] = max(best[i], one.log_es()[0][0])
    return best[0], best[1]


def _lists(week: Week, lists: ListMetrics, part: slice) -> NDArray[np.int64]:
    s = week.stream
    users, group = np.unique(s.user[part], return_inverse=True)
    n = group.size
    label = s.clicked[part].astype(np.int8)
    groups = Groups(np.zeros(users.size, np.int32), blocks_of(users), group.astype(np.int32), label)
    i = np.arange(n, dtype=np.int32)
    p = s.pclick[:, part]
    scores = ScoreList(np.tile(i, 2), np.repeat(np.array([0, 1], np.int32), n), np.concatenate(list(p)))
    sums = np.zeros((1, 1, lists.width), np.int64)
    lists.add(groups, week.request[part], scores, n, np.array([[-1, 0], [-1, -1]], np.int32), sums)
    return sums[0, 0]


def alarms(
    runs: int, first: int, case: Case, shape: str, metrics: Sequence[str] = METRICS
) -> tuple[Counter[tuple[str, float]], int]:
    """How often each metric said `worse` at 0.05 and at 0.01, of twice as many runs: in both directions."""
    fired: Counter[tuple[str, float]] = Counter()
    for seed in range(first, first + runs):
        week = Week.of(Case(case.world, case.pair, seed, hours=case.hours, alone=case.alone), shape)
        for metric in metrics:
            for peak in peaks(week, metric):
                fired.update((metric, alpha) for alpha in (0.05, 0.01) if peak >= np.log(1.0 / alpha))
    return fired, 2 * runs


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--hours", type=float, default=168.0)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--worlds", nargs="+", default=["zipf 0.8", "zipf 1.1"])
    parser.add_argument("--metrics", nargs="+", default=list(METRICS), choices=METRICS)
    args = parser.parse_args()
    print("| world, propensities | metric | at 0.05 | at 0.01 |\n|---|---|---|---|", flush=True)
    for world in args.worlds:
        for number, shape in enumerate(args.shapes):
            metrics = [m for m in args.metrics if m in WEIGHTED or not number]  # the others do not use propensities
            case = Case(world, "exchangeable", 0, hours=args.hours, alone=1.0)
            fired, runs = alarms(args.runs, args.first, case, shape, metrics)
            for metric in metrics:
                told = [rate(fired[metric, alpha], runs) for alpha in (0.05, 0.01)]
                kept = bounds(fired[metric, 0.05], runs)[0] <= 0.05
                print(f"| {world}, {shape} | {metric} | {' | '.join(told)} |{'' if kept else ' **no**'}", flush=True)


if __name__ == "__main__":
    main()

"""False alarms of the Simpson guard for NDCG.

In the hardest case for it, half a null: the candidate ranks better in lists of the three items that are shown most, and under
uniform exposure it is exactly as good as the baseline. 150 items are shown in proportion to 1 / rank, from 0.18 down to 0.0012. In a
list of six, one item is clicked, or (three in ten) two. Every list has a good order and a bad one, independent of its clicks; the
candidate has the good one in lists of the most shown items, the bad one in a share 3 / 147 of the others, and a random one in the
rest. A click on an item is in the log in proportion to the item's exposure and weighs one over that, so the expected weighted difference is
0. Users are heavy-tailed (Pareto 1.5), and random orders are correlated within a user. Sums are the product's own (`ListMetrics`),
and so is the guard (`paired_mixes`).

    python -m benchmarks.detection.guard --runs 3000
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.rates import rate
from streameval.compare.explain.findings import Terms
from streameval.compare.explain.uniform_exposure import paired_mixes
from streameval.compare.ledger.exposed_lists import ExposedCut, GuardedLists
from streameval.compare.ledger.exposure import EXPOSED, X_N
from streameval.compare.ledger.list_rows import ListMetrics
from streameval.compare.ledger.user_aucs import Groups
from streameval.compare.reading.reading import Mix
from streameval.events.columns import ScoreList
from streameval.sketches.blocks import BLOCKS, PAIR_CELLS, PAIR_N, PAIR_SCALARS, PAIR_Y, BlockSums

ITEMS, HEAD, LENGTH, K = 150, 3, 6, 5
USERS = 3_000
LOOKS = (2_000, 2_000, 4_000, 8_000, 16_000)  # lists between one look and the next
SHOWN = 1 / np.arange(1, ITEMS + 1) / (1 / np.arange(1, ITEMS + 1)).sum()
CUT = ExposedCut(K, 1e-4)
LISTS = ListMetrics((), CUT)


def lists_row(rng: np.random.Generator, n: int, coin: NDArray[np.float64], better: float = 0.0) -> NDArray[np.int64]:
    """Sums of n lists; `coin`: by user, the probability of the good order; `better`: additional share of bad orders in the other lists."""
    user = (rng.pareto(1.5, n) * 40).astype(np.int64) % USERS
    head = rng.random(n) < SHOWN[:HEAD].sum()
    clicks = 1 + (rng.random(n) < 0.3)
    label = (np.arange(LENGTH) < clicks[:, None]).astype(np.int8)
    of_head, of_tail = (some / some.sum() for some in (SHOWN[:HEAD], SHOWN[HEAD:]))
    item = np.where(
        head[:, None], rng.choice(HEAD, (n, LENGTH), p=of_head), HEAD + rng.choice(ITEMS - HEAD, (n, LENGTH), p=of_tail)
    )
    good = rng.normal(size=(n, LENGTH)) + 1.2 * label
    bad = rng.normal(size=(n, LENGTH)) + 0.4 * label
    chance = rng.random(n)
    lost = HEAD / (ITEMS - HEAD) + better
    gets_good = np.where(head, True, (chance >= lost) & (rng.random(n) < coin[user]))
    new, old = (np.where(gets_good[:, None] == one, good, bad).ravel() for one in (True, False))
    blocks = (np.arange(USERS) % BLOCKS).astype(np.int8)
    groups = Groups(np.zeros(USERS, np.int32), blocks, np.repeat(user, LENGTH).astype(np.int32), label.ravel())
    total = n * LENGTH
    row = np.tile(np.arange(total, dtype=np.int32), 2)
    scores = ScoreList(row, np.repeat(np.array([0, 1], np.int32), total), np.concatenate((old, new)))
    pair_of = np.array([[-1, 0], [-1, -1]], np.int32)
    sums = np.zeros((1, 1, LISTS.width), np.int64)
    request = np.repeat(np.arange(1, n + 1).astype(np.uint64), LENGTH)
    LISTS.add(groups, request, scores, total, pair_of, sums, SHOWN[item].ravel())
    return sums[0, 0]


def looks(seed: int, better: float = 0.0) -> Iterator[Mix]:
    """The guard's answers for one world, look by look."""
    rng = np.random.default_rng([seed, 23])
    coin = np.where(rng.random(USERS) < 0.5, 0.2, 0.8)  # fair on average, but not within a user
    row, seen = np.zeros(LISTS.width, np.int64), 0
    for more in LOOKS:
        row += lists_row(rng, more, coin, better)
        seen += more
        exposed = LISTS.exposed(row)
        assert exposed is not None
        blocks, weighed = np.zeros((BLOCKS, PAIR_CELLS), np.int64), np.zeros(EXPOSED, np.int64)
        blocks[0, PAIR_N], blocks[0, PAIR_Y], weighed[X_N] = seen * LENGTH, seen, 1
        whole = BlockSums(blocks, np.zeros(PAIR_SCALARS, np.int64))
        terms = Terms(0.05, 0.0, 200, 30, None)
        yield from paired_mixes(whole, {}, weighed, terms, "new", GuardedLists(CUT.metric, exposed))[0]


def alarms(runs: int, first: int = 0, better: float = 0.0) -> tuple[int, int]:
    """(worlds in which the guard raised an alarm at any look, worlds in which it could)."""
    spoke = could = 0
    for seed in range(first, first + runs):
        found = list(looks(seed, better))
        could += bool(found)
        spoke += any(mix.simpson for mix in found)
    return spoke, could


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection.guard", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3_000)
    given = parser.parse_args(arguments)
    print("| worlds | the guard speaks, alpha 0.05 | worlds in which it could |\n|---|---|---|", flush=True)
    for name, better, runs in (
        ("half a null", 0.0, given.runs),
        ("better in lists of the three items, worse in a quarter of the others", 0.25, given.runs // 10),
    ):
        spoke, could = alarms(runs, better=better)
        print(f"| {name} | {rate(spoke, runs)} | {could} |", flush=True)


if __name__ == "__main__":
    main()

"""One replication through the production code: looks at int64 sums minute by minute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.world import DAY, Minutes, Version, World, warm
from streameval.compare.evidence import joint, paired, split
from streameval.compare.evidence.ratio import Statistic
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BlockSums

MINUTE = 60_000
RESTART = 360  # minutes between processes
_STEP = 30  # looks at a time, which fit the cache


@dataclass(frozen=True)
class Looks:
    """A stretch of looks: `at` [T] ms, impressions [T], clicks, statistics and correlation [T, J], pair scalars [T, 8]."""

    at: NDArray[np.int64]
    impressions: NDArray[np.int64]
    clicks: NDArray[np.int64]
    statistics: Mapping[str, Statistic]
    correlation: NDArray[np.float64]
    scalars: NDArray[np.int64]


def days(seed: int, plan: Callable[[int], Version], count: int, **options: object) -> Iterator[Minutes]:
    """The minutes of `count` days; `plan`: the candidate of a day."""
    world = World(seed)
    warm(world, plan(0))
    for day in range(count):
        yield world.day(day, plan(day), **options)[0]  # type: ignore[arg-type]


class PairedLooks:
    """Takes days, and returns looks every minute over all windows that have begun."""

    def __init__(self, turned: bool = False) -> None:
        self._turn = (paired.oriented, paired.oriented_gauc) if turned else (lambda x: x, lambda x: x)
        self._pair = BlockSums(np.zeros((64, 8), np.int64), np.zeros(cells.PAIR_SCALARS, np.int64))
        self._gauc = BlockSums(np.zeros((64, 2), np.int64), np.zeros(cells.GAUC_SCALARS, np.int64))
        self._before: list[tuple[BlockSums, BlockSums]] = []
        self._minute = 0

    def take(self, minutes: Minutes) -> Iterator[Looks]:
        """The looks of a day, six hours at a time."""
        pair, gauc = self._turn[0](minutes.pair), self._turn[1](minutes.gauc)
        for first in range(0, DAY, RESTART):
            self._before.append((self._pair, self._gauc))
            part = slice(first, first + RESTART)
            before = [_stacked([b[i] for b in self._before]) for i in range(2)]
            for begin in range(first, first + RESTART, _STEP):
                part = slice(begin, begin + _STEP)
                pairs, rows = _cumulated(self._pair, pair, part), _cumulated(self._gauc, gauc, part)
                looked = paired.windows(pairs, before[0])
                yield Looks(
                    (self._minute + np.arange(1, _STEP + 1)) * MINUTE,
                    pairs.blocks[..., cells.PAIR_N].sum(axis=-1),
                    paired.clicks(looked),
                    paired.statistics(looked, paired.windows(rows, before[1])),
                    joint.correlation(*paired.deviations(looked)),
                    pairs.scalars,
                )
                self._pair, self._gauc = _last(pairs), _last(rows)
                self._minute += _STEP


class SplitLooks:
    """The same for arm A (old) and arm B (new), or vice versa."""

    def __init__(self, turned: bool = False, arms: tuple[int, int] = (2, 3)) -> None:
        self._arms = arms[::-1] if turned else arms
        self._done = split.StrataSums(np.zeros((2, 8)), np.zeros((2, 6, 64)))
        self._clicks = np.zeros(2, np.int64)
        self._impressions = 0
        self._before: list[tuple[split.StrataSums, NDArray[np.int64]]] = []
        self._minute = 0

    def take(self, minutes: Minutes) -> Iterator[Looks]:
        """The looks of a day, six hours at a time."""
        served = [minutes.served.blocks[arm].reshape(24, 60, 64, 8).cumsum(axis=1) for arm in self._arms]
        for first in range(0, 24, RESTART // 60):
            self._before.append((self._done, self._clicks))
            before = split.StrataSums(
                np.stack([b[0].totals for b in self._before]), np.stack([b[0].devs for b in self._before])
            )
            clicks_before = np.stack([b[1] for b in self._before])
            for hour in range(first, first + RESTART // 60):
                a, b = served[0][hour], served[1][hour]
                now = split.strata(a, b)
                counts = np.stack([x[..., cells.Y].sum(axis=-1) for x in (a, b)], axis=-1) + self._clicks
                n = a[..., cells.N].sum(axis=-1) + b[..., cells.N].sum(axis=-1) + self._impressions
                at = (self._minute + np.arange(1, 61)) * MINUTE
                for begin in range(0, 60, _STEP // 2):
                    part = slice(begin, begin + _STEP // 2)
                    looked = split.StrataSums(
                        (self._done.totals + now.totals[part])[:, None] - before.totals,
                        (self._done.devs + now.devs[part])[:, None] - before.devs,
                    )
                    fewer = (counts[part][:, None] - clicks_before).min(axis=-1)
                    yield Looks(
                        at[part],
                        n[part],
                        fewer,
                        split.statistics(looked),
                        joint.correlation(*split.deviations(looked)),
                        np.zeros((_STEP // 2, cells.PAIR_SCALARS), np.int64),
                    )
                self._done = split.StrataSums(self._done.totals + now.totals[-1], self._done.devs + now.devs[-1])
                self._clicks, self._impressions = counts[-1], int(n[-1])
                self._minute += 60


def _cumulated(start: BlockSums, minutes: BlockSums, part: slice) -> BlockSums:
    return BlockSums(
        start.blocks + minutes.blocks[part].cumsum(axis=0), start.scalars + minutes.scalars[part].cumsum(axis=0)
    )


def _stacked(sums: list[BlockSums]) -> BlockSums:
    return BlockSums(np.stack([s.blocks for s in sums]), np.stack([s.scalars for s in sums]))


def _last(sums: BlockSums) -> BlockSums:
    return BlockSums(sums.blocks[-1], sums.scalars[-1])

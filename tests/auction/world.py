"""A world of ads whose truth is known: what every (query, ad) gets at every position, so what any placement would get."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.auction.history import PairCounts, count_pairs
from streameval.auction.rerun import Auctions, ClickTables, OperatingPoints

CURVE = np.array([1.0, 0.75, 0.6, 0.15, 0.12, 0.1, 0.08])  # clicks at a position over those at the top
ADS, MAINLINE, SLOTS = 15, 3, 7
VERSIONS = ("v1", "v2", "v3", "v2 x 1.5")  # v1 serves; the last one predicts too much, in the order of v2
SERVED, POINT = 0, 4
RESERVES = np.array([0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0])
POINTS = OperatingPoints(MAINLINE, SLOTS, 1.0, RESERVES, np.full(RESERVES.size, 0.02))


@dataclass(frozen=True)
class World:
    """Auctions, and what was shown in them under v1 at `POINT`: position -1 where not."""

    auctions: Auctions
    chance: NDArray[np.float64]  # [pairs] of a click at the top
    position: NDArray[np.int64]  # [candidates]
    clicked: NDArray[np.int8]

    @property
    def truth(self) -> ClickTables:
        return ClickTables(self.chance, CURVE, CURVE, np.ones(SLOTS, bool))

    @property
    def history(self) -> PairCounts:
        on = self.position >= 0
        pair = self.auctions.pair[on]
        return count_pairs(pair, self.position[on], self.clicked[on], self.chance.size, SLOTS)

    @property
    def click_yield(self) -> float:
        return int(self.clicked.sum()) / self.auctions.block.size


def placed(score: NDArray[np.float64], mainline_reserve: float, sidebar_reserve: float) -> NDArray[np.int64]:
    """The position of every candidate of one auction by its rank score, -1: none; a candidate at a time."""
    out = np.full(score.size, -1, np.int64)
    above = side = 0
    for j in sorted(range(score.size), key=lambda j: (-score[j], j)):
        if not side and above < MAINLINE and score[j] >= mainline_reserve:
            out[j] = above
            above += 1
        elif score[j] >= sidebar_reserve and side < SLOTS - MAINLINE:
            out[j] = MAINLINE + side
            side += 1
        else:
            break
    return out


def as_they_stand(n: int) -> tuple[NDArray[np.float64], NDArray[np.uint64]]:
    """Positions and items with which equal rank scores keep their order."""
    return np.zeros(n), np.zeros(n, np.uint64)


def make_world(seed: int, requests: int = 40_000, queries: int = 100) -> World:
    rng = np.random.default_rng(seed)
    chance = 1 / (1 + np.exp(-rng.normal(-2.2, 1.0, (queries, ADS))))
    query = rng.integers(0, queries, requests)
    bid = (rng.lognormal(0, 0.4, (queries, ADS))[query] * rng.lognormal(0, 0.5, (requests, ADS))).ravel()
    pair = (query[:, None] * ADS + np.arange(ADS)).astype(np.int32).ravel()
    scores = [np.clip(chance * np.exp(rng.normal(0, noise, chance.shape)), 0, 1).ravel() for noise in (0.5, 0.2, 0.8)]
    score = np.array([*scores, np.clip(1.5 * scores[1], 0, 1)])[:, pair]
    block = (np.arange(requests) % 64).astype(np.int8)
    auctions = Auctions(np.arange(requests + 1) * ADS, block, bid, pair, score, *as_they_stand(bid.size))
    reserves = float(POINTS.mainline_reserve[POINT]), float(POINTS.sidebar_reserve[POINT])
    rank = (bid * score[SERVED]).reshape(requests, ADS)
    position = np.concatenate([placed(one, *reserves) for one in rank])
    clicked = np.zeros(position.size, np.int8)
    on = position >= 0
    clicked[on] = rng.random(np.count_nonzero(on)) < chance.ravel()[pair[on]] * CURVE[position[on]]
    return World(auctions, chance.ravel(), position, clicked)

"""Stated standard errors of yields on the stream against how yields vary: other users, other requests, other clicks, the same ads."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.auction.arrange import pair_keys
from streameval.auction.frontier import Frontier, frontier_of
from streameval.auction.live import LiveAuctions, keys_of
from streameval.auction.points import operating_points, tally_names, through_name
from streameval.auction.rerun import AUCTION_CELLS, AUCTIONS_RUN, CELLS_OF_A_POINT, THROUGH_CELLS, USER_GROUPS
from streameval.events.batch import Impressions, Shadow
from streameval.events.columns import take_impressions
from streameval.events.durations import HOUR
from streameval.settings.measures import Auction
from streameval.sketches.blocks import BLOCKS

T0 = 1_700_002_800_000  # on the hour
HOURS, PANE, GAP, VERSIONS, ADS, SLOTS = 6, 60_000, 30_000, 3, 15, 7
CURVE = np.array([1.0, 0.75, 0.6, 0.15, 0.12, 0.1, 0.08])
RESERVES = (0.05, 0.15, 0.3)
SERVED = 1  # the operating point
AUCTION = Auction.model_validate(
    {
        "mainline": 3, "slots": SLOTS,
        "points": [{"name": str(at), "mainline_reserve": at, "sidebar_reserve": 0.02} for at in RESERVES],
    }
)  # fmt: skip
MEASURES = ("click_yield", "mainline_click_yield")
LEAST, MOST = 0.85, 1.25


def hashes(column: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Stable ids of numbers."""
    return pair_keys(column.astype(np.uint64), np.zeros(column.size, np.uint64))


class World:
    """Ads and scores, the same for every repetition."""

    def __init__(self, queries: int) -> None:
        rng = np.random.default_rng(99)
        self.queries = queries
        self.chance = 1 / (1 + np.exp(-rng.normal(-2.2, 1.0, (queries, ADS))))
        noises = (0.5, 0.2, 0.8)
        self.score = np.array(
            [np.clip(self.chance * np.exp(rng.normal(0, x, self.chance.shape)), 0, 1) for x in noises]
        )
        self.query = hashes(np.arange(queries))
        self.item = hashes(np.arange(ADS) + 1_000)

    def requests(self, seed: int, users: int) -> tuple[Impressions, NDArray[np.bool_], NDArray[np.int8]]:
        """(candidates by time, which are shown, clicks): about 6 requests a user over the hours, served by version 0."""
        rng = np.random.default_rng(seed)
        user = np.repeat(np.arange(users), 1 + rng.geometric(0.2, users))
        rng.shuffle(user)
        n = user.size
        lift = rng.lognormal(-0.125, 0.5, users)[user]
        query, bid = rng.integers(0, self.queries, n), rng.lognormal(0, 0.5, (n, ADS))
        rank = bid * self.score[0][query]
        order = np.argsort(-rank, axis=1, kind="stable")
        above = np.minimum((rank >= RESERVES[SERVED]).sum(1), AUCTION.mainline)[:, None]
        side = np.clip((rank >= 0.02).sum(1)[:, None] - above, 0, SLOTS - AUCTION.mainline)
        k = np.arange(ADS)[None]
        place = np.full((n, ADS), -1)
        np.put_along_axis(
            place, order, np.where(k < above, k, np.where(k < above + side, AUCTION.mainline + k - above, -1)), 1
        )
        shown = (place >= 0).ravel()
        chance = self.chance[query] * CURVE[place] * lift[:, None]
        clicked = (shown & (rng.random(n * ADS) < chance.ravel())).astype(np.int8)
        at = T0 + np.sort(rng.integers(0, HOURS * HOUR, n))
        request = np.repeat(np.arange(n), ADS)
        shadow = Shadow(
            np.arange(n * ADS + 1, dtype=np.int64) * 2,
            np.tile(np.array([1, 2], np.int32), n * ADS),
            np.stack([self.score[v][query].ravel() for v in (1, 2)], axis=1).ravel(),
        )
        ids = np.arange(1, n * ADS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        rows = Impressions(
            order=np.arange(n * ADS, dtype=np.int32),
            id=ids,
            ts=at[request],
            user=hashes(np.arange(users) + 1_000 * seed)[user][request],
            request=request.astype(np.uint64) + np.uint64(1),
            item=np.tile(self.item, n),
            series=np.zeros(n * ADS, np.int32),
            pclick=self.score[0][query].ravel(),
            slices=np.zeros(n * ADS, np.int64),
            label=np.full(n * ADS, -1, np.int8),
            fields={"position": np.where(shown, place.ravel(), np.nan).astype(float), "bid": bid.ravel()},
            shadow=shadow,
            query=self.query[query][request],
        )
        return rows, shown, clicked


def sums_of(world: World, seed: int, users: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of the whole run, labels final at once; requests of the first hour have no history, and are left out."""
    rows, shown, clicked = world.requests(seed, users)
    live = LiveAuctions(AUCTION, PANE, GAP)
    assert live.tallies == [one for name in tally_names(AUCTION) for one in (name, through_name(name))]
    found = np.zeros((VERSIONS, len(RESERVES), CELLS_OF_A_POINT), np.int64)
    hour = rows.ts // HOUR
    for one in np.unique(hour).tolist():
        for was_shown in (True, False):
            at = np.flatnonzero((shown == was_shown) & (hour == one))
            some = take_impressions(rows, at, at.astype(np.int32))
            if was_shown:
                live.shown(some)
                live.label(keys_of(some, SLOTS), clicked[at], some.ts, some.user)
            else:
                live.candidates(some)
        for panes in live.run_due((one + 1) * HOUR + GAP):
            found[panes.series] += panes.cells.sum(axis=0).reshape(-1, *found.shape[1:])
    sums, through = np.split(found, [BLOCKS * len(AUCTION_CELLS)], axis=2)
    sums = sums.reshape(*sums.shape[:2], BLOCKS, -1)
    assert sums[0, 0, :, AUCTIONS_RUN].sum() > 0.7 * np.unique(rows.request).size
    return sums, through.reshape(*sums.shape[:2], USER_GROUPS, THROUGH_CELLS)


def ratios(found: list[Frontier]) -> dict[str, NDArray[np.float64]]:
    """Stated over empirical by measure, float64[versions, operating points]."""
    out = {}
    for name in MEASURES:
        values = np.array([one.measures[name].value for one in found])
        stated = np.array([one.measures[name].stderr for one in found])
        out[name] = np.sqrt((stated**2).mean(axis=0)) / values.std(axis=0, ddof=1)
    return out


def frontiers(users: int, queries: int, repetitions: int) -> tuple[list[Frontier], list[Frontier]]:
    """With what comes through the tables, and without."""
    world, points = World(queries), operating_points(AUCTION)
    every = [sums_of(world, seed, users) for seed in range(repetitions)]
    return [frontier_of(a, points, 0, None, b) for a, b in every], [frontier_of(a, points, 0) for a, _ in every]


@pytest.mark.slow
def test_errors_of_live_yields_are_those_of_other_users() -> None:
    """A short form of `python -m tests.auction.test_live_errors 150`: 40 repetitions know a standard deviation to 11%."""
    found, without = frontiers(300, 20, 40)
    for name, of in ratios(found).items():
        assert of[0].min() > LEAST - 0.15, f"{name} of the version that serves"
        assert of[0].max() < MOST + 0.15, name
        assert of.min() > 0.55, f"{name} of the others, whose estimates have heavy tails"
    for of in ratios(without).values():
        assert of.max() < 0.65, "the tables counting as given, they were far too small"
    for one, other in zip(found, without, strict=True):
        for name in MEASURES:
            assert np.array_equal(one.measures[name].value, other.measures[name].value), "no value changes"
        assert np.array_equal(
            one.measures["mainline_ads"].stderr, other.measures["mainline_ads"].stderr, equal_nan=True
        )


if __name__ == "__main__":
    for size in (300, 3_000):
        for name, of in ratios(frontiers(size, 20 if size == 300 else 100, int(sys.argv[1]))[0]).items():
            print(f"{size} users, {name}: stated over empirical {of.min():.2f} to {of.max():.2f}")
            print(np.round(of, 2))

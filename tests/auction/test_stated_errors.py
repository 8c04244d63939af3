"""Stated standard errors of yields against how yields vary, in a world of users that click more or less, for good."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.auction.frontier import Frontier, frontier_of
from streameval.auction.gather import Book
from streameval.auction.history import count_pairs, curves_of, tables_of
from streameval.auction.rerun import Auctions, run
from streameval.auction.spread import through_tables
from tests.auction.world import ADS, CURVE, MAINLINE, POINT, POINTS, SLOTS, as_they_stand

MEASURES = ("click_yield", "mainline_click_yield", "mainline_ads")
LEAST, MOST = 0.85, 1.25


def book_of(seed: int, users: int, queries: int) -> Book:
    """What v1 served at `POINT` to users with about 6 requests each; ads and scores are the same for every seed."""
    truth, rng = np.random.default_rng(99), np.random.default_rng(seed)
    chance = 1 / (1 + np.exp(-truth.normal(-2.2, 1.0, (queries, ADS))))
    scores = [np.clip(chance * np.exp(truth.normal(0, noise, chance.shape)), 0, 1).ravel() for noise in (0.5, 0.2, 0.8)]
    user = np.repeat(np.arange(users), 1 + rng.geometric(0.2, users))
    n = user.size
    lift, block = rng.lognormal(-0.125, 0.5, users)[user], rng.integers(0, 64, users)[user].astype(np.int8)
    pair = (rng.integers(0, queries, n)[:, None] * ADS + np.arange(ADS)).astype(np.int32)
    bid, score = rng.lognormal(0, 0.5, (n, ADS)), np.array(scores)[:, pair]
    order = np.argsort(-bid * score[0], axis=1, kind="stable")
    rank = np.take_along_axis(bid * score[0], order, 1)
    above = np.minimum((rank >= POINTS.mainline_reserve[POINT]).sum(1), MAINLINE)[:, None]
    side = np.clip((rank >= POINTS.sidebar_reserve[POINT]).sum(1)[:, None] - above, 0, SLOTS - MAINLINE)
    k = np.arange(ADS)[None]
    position = np.where(k < above, k, np.where(k < above + side, MAINLINE + k - above, -1))
    request, column = np.nonzero(position >= 0)
    shown, place = pair[request, order[request, column]], position[request, column]
    clicked = (rng.random(place.size) < chance.ravel()[shown] * CURVE[place] * lift[request]).astype(np.int8)
    indptr = np.arange(n + 1) * ADS
    auctions = Auctions(indptr, block, bid.ravel(), pair.ravel(), score.reshape(3, -1), *as_they_stand(bid.size))
    return Book(auctions, (0, 1, 2), np.zeros(n, np.int32), queries * ADS, shown, request, place, clicked, {})


def frontier(book: Book) -> Frontier:
    counts = count_pairs(book.pair, book.position, book.clicked, book.pairs, SLOTS)
    tables = tables_of(counts, curves_of(counts, SLOTS, "within_pairs"))
    return frontier_of(run(book.auctions, tables, POINTS), POINTS, 0, through_tables(book, tables, POINTS))


def stated_over_empirical(users: int, queries: int, repetitions: int) -> dict[str, NDArray[np.float64]]:
    """By measure, float64[versions, operating points]."""
    found = [frontier(book_of(seed, users, queries)) for seed in range(repetitions)]
    out = {}
    for name in MEASURES:
        values = np.array([one.measures[name].value for one in found])
        stated = np.array([one.measures[name].stderr for one in found])
        with np.errstate(invalid="ignore"):  # at the lowest reserve every mainline is full
            out[name] = np.sqrt((stated**2).mean(axis=0)) / values.std(axis=0, ddof=1)
    return out


def test_effects_through_the_tables_change_no_value() -> None:
    book = book_of(0, 300, 20)
    counts = count_pairs(book.pair, book.position, book.clicked, book.pairs, SLOTS)
    tables = tables_of(counts, curves_of(counts, SLOTS, "within_pairs"))
    sums, more = run(book.auctions, tables, POINTS), through_tables(book, tables, POINTS)
    assert np.abs(more.sum(axis=2)).max() < 1e-6 * 2.0**40
    own = (sums + more)[0, POINT, :, 1] / 2.0**40
    clicks = np.bincount(book.auctions.block[book.request], weights=book.clicked, minlength=64)
    assert own == pytest.approx(clicks, abs=1e-6), "the served version's blocks have the clicks of their users"


@pytest.mark.slow
def test_stated_errors_are_those_of_other_users() -> None:
    """The served version at its own operating point, and mainline ads of all; see `python -m tests.auction.test_stated_errors`."""
    found = stated_over_empirical(300, 20, 60)
    assert LEAST - 0.15 < found["click_yield"][0, POINT] < MOST + 0.15  # 60 repetitions know it to 9%
    assert (found["click_yield"] > 0.5).all(), "without what comes through the tables: 0.1 to 0.4"
    assert ((found["mainline_ads"][:, 1:] > 0.6) & (found["mainline_ads"][:, 1:] < 1.5)).all()


if __name__ == "__main__":
    for size in (300, 3_000):
        for name, ratios in stated_over_empirical(size, 20 if size == 300 else 100, int(sys.argv[1])).items():
            print(f"{size} users, {name}: stated over empirical {ratios.min():.2f} to {ratios.max():.2f}")
            print(np.round(ratios, 2))

"""One auction at a time: against a slow twin, and the outcomes that are stated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from streameval.auction.rerun import AUCTION_CELLS, CLICK_SCALE, Auctions, ClickTables, OperatingPoints, run
from streameval.sketches.blocks import BLOCKS
from tests.auction.world import as_they_stand


def one(bids: list[float], scores: list[float]) -> Auctions:
    n = len(bids)
    pair = np.arange(n, dtype=np.int32)
    score = np.array([scores], float)
    return Auctions(np.array([0, n]), np.zeros(1, np.int8), np.array(bids, float), pair, score, *as_they_stand(n))


def tables(rate: list[float], curve: list[float], reference: list[float] | None = None) -> ClickTables:
    ref = curve if reference is None else reference
    return ClickTables(np.array(rate, float), np.array(curve), np.array(ref), np.ones(len(curve), bool))


def points(mainline: int, slots: int, *reserves: tuple[float, float], squash: float = 1.0) -> OperatingPoints:
    above, side = np.array(reserves, float).T
    return OperatingPoints(mainline, slots, squash, above.copy(), side.copy())


def cells(auctions: Auctions, known: ClickTables, where: OperatingPoints) -> list[dict[str, float]]:
    """By operating point, of the first version."""
    sums = run(auctions, known, where)[0].sum(axis=1).astype(float)
    units = [1 / CLICK_SCALE if "clicks" in name else 1.0 for name in AUCTION_CELLS]
    return [dict(zip(AUCTION_CELLS, (row * units).tolist(), strict=True)) for row in sums]


CURVE = [1.0, 0.5, 0.25, 0.125]


def test_the_sidebar_begins_below_the_mainline_however_full_it_is() -> None:
    (found,) = cells(one([1, 1, 1], [0.5, 0.1, 0.3]), tables([1, 1, 1], CURVE), points(2, 4, (0.4, 0.2)))
    assert (found["mainline_ads"], found["ads"]) == (1, 2)
    assert (found["mainline_clicks"], found["clicks"]) == (1.0, 1.25)


def test_a_reserve_is_the_lowest_score_that_is_let_in() -> None:
    found = cells(one([2.0], [0.25]), tables([1], CURVE), points(2, 4, (0.5, 0), (np.nextafter(0.5, 1), 0.5), (9, 9)))
    assert [(f["mainline_ads"], f["ads"]) for f in found] == [(1, 1), (0, 1), (0, 0)]


def test_a_request_whose_candidates_are_all_below_the_reserve_counts_with_nothing_shown() -> None:
    (found,) = cells(one([1, 1], [0.1, 0.2]), tables([1, 1], CURVE), points(2, 4, (0.5, 0.3)))
    assert found == dict.fromkeys(AUCTION_CELLS, 0.0) | {"requests": 1.0}


def test_a_request_that_a_version_scored_in_part_does_not_count_for_it() -> None:
    auctions = one([1, 1], [0.1, math.nan])
    both = auctions._replace(score=np.array([[0.1, math.nan], [0.2, 0.1]]))
    sums = run(both, tables([1, 1], CURVE), points(2, 4, (0, 0)))
    assert sums[:, 0, :, 0].sum(axis=1).tolist() == [0, 1]


def test_equal_scores_keep_their_order_and_the_squash_bends_scores() -> None:
    known = tables([1, 10], [1.0, 0.0])
    (equal,) = cells(one([1, 1], [0.3, 0.3]), known, points(1, 2, (0, 0)))
    assert equal["clicks"] == 1.0, "the first one on top"
    (plain,) = cells(one([1, 4], [0.8, 0.25]), known, points(1, 2, (0, 0)))
    (squashed,) = cells(one([1, 4], [0.8, 0.1]), known, points(1, 2, (0, 0), squash=2.0))
    assert (plain["clicks"], squashed["clicks"]) == (10.0, 1.0)


def test_a_pair_without_a_history_gets_the_ctr_of_its_position() -> None:
    known = tables([math.nan, 2.0], [1.0, 0.5], [0.07, 0.03])
    (found,) = cells(one([1, 1], [0.2, 0.1]), known, points(1, 2, (0, 0)))
    assert (found["clicks"], found["with_history"], found["ads"]) == (pytest.approx(0.07 + 1.0), 1, 2)


def test_places_that_were_never_shown_are_counted() -> None:
    known = tables([1, 1], [1.0, 0.5])._replace(shown=np.array([True, False]))
    (found,) = cells(one([1, 1], [0.2, 0.1]), known, points(1, 2, (0, 0)))
    assert found["extrapolated"] == 1


def slow(auctions: Auctions, known: ClickTables, where: OperatingPoints) -> NDArray[np.float64]:
    """Every auction by sorting a list: [versions, points, blocks, cells]."""
    out = np.zeros((len(auctions.score), where.mainline_reserve.size, BLOCKS, len(AUCTION_CELLS)))
    for r, block in enumerate(auctions.block.tolist()):
        of = range(auctions.indptr[r], auctions.indptr[r + 1])
        for v, score in enumerate(auctions.score):
            if any(math.isnan(score[j]) for j in of):
                continue
            rank = {j: auctions.bid[j] * score[j] ** where.squash for j in of}
            ordered = sorted(of, key=lambda j: (-rank[j], j))
            for p, (high, low) in enumerate(zip(where.mainline_reserve, where.sidebar_reserve, strict=True)):
                above = [j for j in ordered if rank[j] >= high][: where.mainline]
                side = [j for j in ordered if j not in above and rank[j] >= low][: where.slots - where.mainline]
                places = [*zip(above, range(where.slots), strict=False)]
                places += [*zip(side, range(where.mainline, where.slots), strict=False)]
                expected = []
                for j, k in places:
                    rate = known.rate[auctions.pair[j]]
                    expected.append(known.reference[k] if math.isnan(rate) else rate * known.curve[k])
                out[v, p, block] += (
                    1, sum(expected), sum(expected[: len(above)]), len(above), len(places),
                    sum(not math.isnan(known.rate[auctions.pair[j]]) for j, _ in places),
                    sum(not known.shown[k] for _, k in places), 0,
                )  # fmt: skip
    return out


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Auctions, ClickTables, OperatingPoints]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    slots = draw(st.integers(1, 6))
    mainline, pairs = draw(st.integers(1, slots)), 8
    sizes = rng.integers(0, 10, draw(st.integers(1, 8)))
    n = int(sizes.sum())
    score = rng.choice([0.0, 0.1, 0.2, 0.5, 1.0], (2, n))  # ties, and zeros
    score[:, rng.random(n) < 0.03] = math.nan
    auctions = Auctions(
        np.append(0, sizes.cumsum()), rng.integers(0, 64, sizes.size).astype(np.int8), rng.choice([0.0, 0.5, 1.0, 3.0], n),
        rng.integers(0, pairs, n).astype(np.int32), score, *as_they_stand(n),
    )  # fmt: skip
    rate = np.where(rng.random(pairs) < 0.3, math.nan, rng.random(pairs))
    known = ClickTables(rate, rng.random(slots), rng.random(slots), rng.random(slots) < 0.8)
    reserve = rng.choice([0.0, 0.1, 0.25, 0.5, 1.0, 4.0], (2, 3))
    squash = draw(st.sampled_from([0.0, 0.5, 1.0, 2.0]))
    return auctions, known, OperatingPoints(mainline, slots, squash, reserve.max(axis=0), reserve.min(axis=0))


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_it_equals_sorting_lists(world: tuple[Auctions, ClickTables, OperatingPoints]) -> None:
    sums, expected = run(*world), slow(*world)
    assert np.array_equal(sums[..., 3:], expected[..., 3:].astype(np.int64))
    assert np.array_equal(sums[..., 0], expected[..., 0].astype(np.int64))
    assert np.abs(sums[..., 1:3] / CLICK_SCALE - expected[..., 1:3]).max() < 1e-9


@settings(max_examples=30, deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_sums_do_not_depend_on_the_order_of_requests_and_add_up(
    world: tuple[Auctions, ClickTables, OperatingPoints], random: object
) -> None:
    auctions, known, where = world
    order = list(range(auctions.block.size))
    random.shuffle(order)  # type: ignore[attr-defined]

    def some(requests: list[int]) -> Auctions:
        of = np.concatenate([np.arange(auctions.indptr[r], auctions.indptr[r + 1]) for r in [*requests, 0]])
        of = of[: sum(int(auctions.indptr[r + 1] - auctions.indptr[r]) for r in requests)].astype(np.int64)
        indptr = np.append(0, np.cumsum([auctions.indptr[r + 1] - auctions.indptr[r] for r in requests])).astype(int)
        return Auctions(
            indptr,
            auctions.block[requests],
            auctions.bid[of],
            auctions.pair[of],
            np.ascontiguousarray(auctions.score[:, of]),
            *as_they_stand(of.size),
        )

    whole = run(auctions, known, where)
    half = len(order) // 2
    assert np.array_equal(run(some(order), known, where), whole)
    assert np.array_equal(run(some(order[:half]), known, where) + run(some(order[half:]), known, where), whole)

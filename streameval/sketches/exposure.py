"""Sums of inverse-propensity-weighted losses: estimates under uniform exposure, or under another policy.

An impression weighs w = target / propensity: target is 1 for uniform exposure, and for a version's policy the probability with
which that policy would have shown it. Propensities below `least` count as `least`, so no weight is above 1 / least, 1e4 at most.
Sums with weights clipped to `most` are kept as the differences that clipping makes: 0 where nothing is clipped.

A sum of reals is two cells, whole units and the remainder in units of 2**-30 (error of a term: 5e-10). Capacity: squares of
weights are at most 1e8 and remainders below 2**30, so cells of whole units hold 9e10 of the largest terms and those of
remainders 8.6e9. Sums by block of users serve only for errors and have one cell each, in units of 2**-16: at most
1e4 * 16.2 nats a term, 8e8 of these. Values, whose unit is unknown, have two cells there, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.tally import Tally, reals
from streameval.sketches.weight_classes import weight_class
from streameval.sketches.weighted_room import Room

LARGEST = 1e4  # weight: the smallest `least` is 1 / LARGEST
_REST_BITS, _COARSE_BITS = 30, 16
_REST_MASK = (1 << _REST_BITS) - 1
REST, COARSE = float(1 << _REST_BITS), float(1 << _COARSE_BITS)
MOST_VALUE = float(1 << 30)  # of a click; larger values count as this

# terms of an impression under uniform exposure: weight, its square, then weight times log loss, squared error, absolute error,
# pClick, click
TERM_WEIGHT, TERM_SQUARE, TERM_LOSS, TERM_SQUARED, TERM_ABSOLUTE, TERM_PCLICK, TERM_CLICK = range(7)
EXPOSURE_TERMS = ("weight", "square", "log_loss", "squared", "absolute", "pclick", "click")
# terms of an impression under a policy: weight, its square, weight times click, and times value
POLICY_CLICK, POLICY_VALUE = 2, 3
POLICY_TERMS = ("weight", "square", "click", "value")

EXPOSURE_PLACES = 13  # cells of a block: impressions, then every term but the square, unclipped and clipped

_TERMS = len(EXPOSURE_TERMS)
# terms that depend on the score, counted from `TERM_LOSS`; the last one is pClick
_LOSS, _SQUARED, _ABSOLUTE = range(3)
_SCORE_TERMS = 4
_CLIPPED_PLACES = _TERMS - 1  # from a term's cell in a block to the one of what clipping removes; squares have none
COUNT, CLIPPED = 0, 1  # impressions; those whose weight or propensity was clipped
FIRST_TERM = 2
WEIGHT_BITS = 2  # classes of weights: four to the octave
WEIGHT_BINS = 14 << WEIGHT_BITS  # 1 to 2**14, above LARGEST


def real(term: int, terms: int, clipped: bool = False) -> int:
    """The first of a term's two cells; `clipped`: of what clipping removes."""
    return FIRST_TERM + 2 * (term + terms * clipped)


def coarse(term: int, terms: int, clipped: bool = False) -> int:
    """The cell of a term in a block (of values, the first of two); squares of weights have none."""
    at = term - (term > TERM_SQUARE)
    cells = terms - 1 + (terms == len(POLICY_TERMS))
    return 1 + at + cells * clipped


def bins_from(terms: int) -> int:
    """The first cell of the counts of weights by size."""
    return FIRST_TERM + 4 * terms


_BINS = bins_from(_TERMS)


class WeightRule(NamedTuple):
    """`least`: smaller propensities count as this; `most`: larger weights are clipped to this, beside the unclipped sums."""

    least: float
    most: float


DEFAULT_RULE = WeightRule(1e-4, 100.0)


def _tallies(kind: str, terms: tuple[str, ...], rule: WeightRule, source: str) -> tuple[Tally, Tally]:
    """The sums over everything, and those by block of users, from which errors are computed."""
    by = f"{rule.least:.15g}:{rule.most:.15g}{source}"
    kinds = ("", "clipped_")
    sums = [f"{kind}{term}" for kind in kinds for term in terms]
    cells = ("count", "clipped", *(f"{term}{rest}" for term in sums for rest in ("", "_rest")))
    bins = tuple(f"weights_{i}" for i in range(WEIGHT_BINS))
    some: list[str] = []
    scales: list[tuple[str, float]] = []
    for term in sums:
        if term.endswith("value"):
            some += [term, f"{term}_rest"]
            scales.append((f"{term}_rest", REST))
        elif not term.endswith("square"):
            some.append(term)
            scales.append((term, COARSE))
    return (
        Tally(f"{kind}:{by}", (*cells, *bins), False, reals(*(f"{term}_rest" for term in sums), scale=REST)),
        Tally(f"{kind}_users:{by}", ("count", *some), True, tuple(scales)),
    )


def exposure_tallies(rule: WeightRule, source: str = "") -> tuple[Tally, Tally]:
    """`exposure` and `exposure_users`; `source`: where the propensities come from, if not from the log."""
    return _tallies("exposure", EXPOSURE_TERMS, rule, source)


def policy_tallies(rule: WeightRule) -> tuple[Tally, Tally]:
    """`policy` and `policy_users`."""
    return _tallies("policy", POLICY_TERMS, rule, "")


@numba.njit(inline="always")
def weight_bin(weight: float) -> int:
    """The bin of a weight: its class; weights below 1 are in the first."""
    return 0 if weight < 1.0 else min(weight_class(weight, WEIGHT_BITS), WEIGHT_BINS - 1)


@numba.njit(inline="always")
def add_real(total: NDArray[np.int64], cell: int, blocks: NDArray[np.int64], place: int, x: float, sign: int) -> None:
    """Adds a term to its two cells, and to its block's; it is below 2**33, so it fits one int64 in units of 2**-30."""
    units = np.int64(np.rint(x * REST))
    total[np.uint64(cell)] += sign * (units >> _REST_BITS)
    total[np.uint64(cell + 1)] += sign * (units & _REST_MASK)
    blocks[np.uint64(place)] += sign * (units >> (_REST_BITS - _COARSE_BITS))


@numba.njit(inline="always")
def add_fine(sums: NDArray[np.int64], cell: int, x: float, sign: int) -> None:
    """Adds a term to two cells: whole units and the remainder."""
    whole = np.int64(x)
    sums[np.uint64(cell)] += sign * whole
    sums[np.uint64(cell + 1)] += sign * np.int64(np.rint((x - whole) * REST))


class WeightedScores(NamedTuple):
    """Scores of labelled impressions, and the columns of the impressions by row."""

    p: NDArray[np.float64]
    loss: NDArray[np.float64]  # nats
    row: NDArray[np.int32]
    series: NDArray[np.int32]
    label: NDArray[np.int8]
    propensity: NDArray[np.float64]  # NaN: not known
    block: NDArray[np.int8]


_CHUNK = 256  # scores whose terms are computed at a time
_WHOLE = float(1 << 52)  # added to a real from 0 to 2**51, it leaves the rounded value in the mantissa
_WHOLE_BITS = np.float64(_WHOLE).view(np.uint64)


@numba.njit(cache=True, nogil=True)
def add_exposure(
    room: Room, ranges: NDArray[np.int64], rows: tuple[int, int], scores: WeightedScores, rule: WeightRule, sign: int
) -> None:
    """Adds (or retracts) the scores of `ranges` [k, 2], which belong to impressions rows[0] to rows[1] - 1, each weighing
    1 / propensity; those without a propensity are ignored.

    Terms of the impressions are added up once for all series that scored every one of them.
    """
    width, size = room.total.shape[1], room.blocks[0].size
    total, blocks = room.total.ravel(), room.blocks.ravel()  # views of rows in the loop would cost as much as the sums
    order, starts = _by_series(ranges, scores.series, len(room.total))
    every, weights = np.arange(rows[0], rows[1]), _weights(scores.propensity[rows[0] : rows[1]], rule)
    shared, shared_blocks = np.empty(0, np.int64), np.empty(0, np.int64)
    for s in range(len(room.total)):
        mine = order[starts[s] : starts[s + 1]]
        if not mine.size:
            continue
        own = scores.row[mine]
        whole = mine.size == every.size
        if whole:
            for k in range(mine.size):
                whole = whole and own[k] == every[k]
        if whole:
            if not shared.size:
                shared, shared_blocks = np.zeros(width, np.int64), np.zeros(size, np.int64)
                _add_impressions(shared, shared_blocks, (0, 0), every, scores, rule, sign)
            for c in range(width):
                total[s * width + c] += shared[c]
            for c in range(size):
                blocks[s * size + c] += shared_blocks[c]
        else:
            _add_impressions(total, blocks, (s * width, s * size), own.astype(np.int64), scores, rule, sign)
        _add_losses(total, blocks, (s * width, s * size), mine, scores, (weights, rows[0]), rule, sign)


@numba.njit(cache=True, nogil=True)
def _weights(propensity: NDArray[np.float64], rule: WeightRule) -> NDArray[np.float64]:
    """The weight of every impression; 0: it has no propensity."""
    out = np.empty(propensity.size)
    for i in range(propensity.size):
        given = propensity[i]
        out[i] = 1.0 / max(given, rule.least) if given > 0 else 0.0
    return out


@numba.njit(cache=True, nogil=True)
def _by_series(
    ranges: NDArray[np.int64], series: NDArray[np.int32], many: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(the scores of `ranges` by series, in order within it; where those of each series begin, and the end)."""
    starts = np.zeros(many + 1, np.int64)
    for r in range(len(ranges)):
        for k in range(ranges[r, 0], ranges[r, 1]):
            starts[np.uint64(series[k]) + np.uint64(1)] += 1
    for s in range(many):
        starts[s + 1] += starts[s]
    order, end = np.empty(starts[many], np.int64), starts[:-1].copy()
    for r in range(len(ranges)):
        for k in range(ranges[r, 0], ranges[r, 1]):
            one = np.uint64(series[k])  # an unsigned index is not checked for wrap-around
            order[np.uint64(end[one])] = k
            end[one] += 1
    return order, starts


@numba.njit(cache=True, nogil=True)
def _add_impressions(
    total: NDArray[np.int64],
    blocks: NDArray[np.int64],
    at: tuple[int, int],
    rows: NDArray[np.int64],
    scores: WeightedScores,
    rule: WeightRule,
    sign: int,
) -> None:
    """Adds the terms of impressions that do not depend on a score, to cells that begin `at`.

    This repeats `policies._weigh`: passing arrays through two levels of helpers counts references, which would triple the time.
    """
    cell, begin = at
    least, most = rule
    label, propensity, block = scores.label, scores.propensity, scores.block
    clipped, click = cell + FIRST_TERM + 2 * _TERMS, cell + FIRST_TERM + 2 * TERM_CLICK
    for row in rows:
        i = np.uint64(row)  # an unsigned index is not checked for wrap-around
        given = propensity[i]
        if given > 0:
            place = begin + block[i] * EXPOSURE_PLACES
            weight = 1.0 / max(given, least)
            total[np.uint64(cell + CLIPPED)] += sign * (weight > most or given < least)
            total[np.uint64(cell + COUNT)] += sign
            blocks[np.uint64(place + COUNT)] += sign
            total[np.uint64(cell + _BINS + weight_bin(weight))] += sign
            add_real(total, cell + FIRST_TERM, blocks, place + 1, weight, sign)
            add_fine(total, cell + FIRST_TERM + 2 * TERM_SQUARE, weight * weight, sign)
            if weight > most:
                add_real(total, clipped, blocks, place + 1 + _CLIPPED_PLACES, weight - most, sign)
                add_fine(total, clipped + 2 * TERM_SQUARE, weight * weight - most * most, sign)
            if label[i]:
                clicks = float(label[i])
                add_real(total, click, blocks, place + TERM_CLICK, weight * clicks, sign)
                if weight > most:
                    beyond = (weight - most) * clicks
                    place += _CLIPPED_PLACES + TERM_CLICK
                    add_real(total, click + 2 * _TERMS, blocks, place, beyond, sign)


@numba.njit(inline="always")
def _units(x: float) -> np.uint64:
    """A real from 0 to 2**21 in units of 2**-30, rounded as `np.rint` does."""
    return np.float64(x * REST + _WHOLE).view(np.uint64) - _WHOLE_BITS


@numba.njit(cache=True, nogil=True)
def _add_losses(
    total: NDArray[np.int64],
    blocks: NDArray[np.int64],
    at: tuple[int, int],
    mine: NDArray[np.int64],
    scores: WeightedScores,
    weights: tuple[NDArray[np.float64], int],
    rule: WeightRule,
    sign: int,
) -> None:
    """Adds one series' terms that depend on the score: weight times log loss, squared error, absolute error, and pClick.

    To cells that begin `at`. `weights`: of impressions, and the first one's row. Each step runs over a chunk of scores before the next, so that most steps are vectorised.
    """
    cell, begin = at
    high, low = np.uint64(_REST_BITS), np.uint64(_REST_MASK)
    coarse = np.uint64(_REST_BITS - _COARSE_BITS)
    of = np.empty((4, _CHUNK))  # weight, log loss, error, pClick
    units, where = np.empty((_SCORE_TERMS, _CHUNK), np.uint64), np.empty(_CHUNK, np.uint64)
    for start in range(0, mine.size, _CHUNK):
        n = min(mine.size - start, _CHUNK)
        _take(scores, mine[start : start + n], weights, begin, of, where)
        weight, loss, error, p = of[0], of[1], of[2], of[3]
        for t in range(_SCORE_TERMS):
            wholes, rests = np.uint64(0), np.uint64(0)
            for c in range(n):
                e = error[c]
                x = loss[c] if t == _LOSS else e * e if t == _SQUARED else e if t == _ABSOLUTE else p[c]
                u = _units(weight[c] * x)
                wholes += u >> high
                rests += u & low
                units[t, c] = u >> coarse
            total[cell + FIRST_TERM + 2 * (TERM_LOSS + t)] += sign * np.int64(wholes)
            total[cell + FIRST_TERM + 2 * (TERM_LOSS + t) + 1] += sign * np.int64(rests)
        u0, u1, u2, u3 = units[0], units[1], units[2], units[3]
        for c in range(n):
            place = where[c]
            blocks[place] += sign * np.int64(u0[c])
            blocks[place + np.uint64(1)] += sign * np.int64(u1[c])
            blocks[place + np.uint64(2)] += sign * np.int64(u2[c])
            blocks[place + np.uint64(3)] += sign * np.int64(u3[c])
        for c in range(n):
            if weight[c] > rule.most:
                less, place = weight[c] - rule.most, where[c] + np.uint64(_CLIPPED_PLACES)
                first = cell + FIRST_TERM + 2 * _TERMS
                add_real(total, first + 2 * TERM_LOSS, blocks, place, less * loss[c], sign)
                square, place = error[c] * error[c], place + np.uint64(1)
                add_real(total, first + 2 * TERM_SQUARED, blocks, place, less * square, sign)
                add_real(total, first + 2 * TERM_ABSOLUTE, blocks, place + np.uint64(1), less * error[c], sign)
                add_real(total, first + 2 * TERM_PCLICK, blocks, place + np.uint64(2), less * p[c], sign)


@numba.njit(cache=True, nogil=True)
def _take(
    scores: WeightedScores,
    some: NDArray[np.int64],
    weights: tuple[NDArray[np.float64], int],
    begin: int,
    of: NDArray[np.float64],
    where: NDArray[np.uint64],
) -> None:
    """Writes weight (0: no propensity), log loss, error and pClick of some scores, and the first cell of their block's terms."""
    ps, losses, row, _, label, _, block = scores
    of_row, from_row = weights[0], np.uint64(weights[1])
    weight, loss, error, p = of[0], of[1], of[2], of[3]
    first = np.uint64(begin + TERM_LOSS)
    for c in range(some.size):
        k = np.uint64(some[c])
        i = np.uint64(row[k])
        weight[c] = of_row[i - from_row]
        p[c], loss[c], error[c] = ps[k], losses[k], abs(ps[k] - label[i])
        where[c] = first + np.uint64(block[i]) * np.uint64(EXPOSURE_PLACES)

"""The fine grid of propensities, and the sums in each of its bins.

Strata of equal mass or width depend on the data; the layout of sums must not. So sums are kept for fixed bins, and strata
are put together from whole bins when results are read: they are a function of the sums, live and for the past.

A bin has counts and sums, and its clicks by score, at the resolution of the placement curves: clicks are few, and their
placements follow from the window's histogram of non-clicks, which exists anyway. Scores below 2**-17 count as equal there,
and so do those above 1 - 2**-7.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.blocks import SCALE, fixed
from streameval.sketches.grid import PART_BITS, bin_count
from streameval.sketches.tally import Tally

# inner edges: four per octave from 2**-14 to 1/4, then multiples of 1/32; all are exact in binary
FINE_EDGES: tuple[float, ...] = tuple(
    [2.0**e * (1 + k / 4) for e in range(-14, -2) for k in range(4)] + [k / 32 for k in range(8, 32)]
)

# cells of a bin: counts and sums, then its clicks by score. The mass is the sum of 1 / propensity, in whole units and a
# remainder: a million terms of 1e4 in one fixed-point cell would overflow int64.
STRATUM_N, STRATUM_Y, STRATUM_P, STRATUM_L, STRATUM_MASS, STRATUM_MASS_FRACTION = range(6)
STRATUM_SUMS = 6
_SUMS = ("impressions", "clicks", "pclick", "log_loss", "mass", "mass_fraction")
STRATUM_SCALES = (1.0, 1.0, SCALE, SCALE, 1.0, SCALE)

STRATA_BITS = 5  # resolution of scores: that of placement curves, whose bins are computed for every score anyway
_FIRST = (24 - 17) << STRATA_BITS  # bin of 2**-17
_LAST = bin_count(STRATA_BITS) - 1 - ((24 - 7) << STRATA_BITS)  # bin of 1 - 2**-7
SCORE_BINS = _LAST - _FIRST + 1
_LEADING = 5  # bits of the mantissa that, with the exponent, tell where to start searching
_SHIFT = 52 - _LEADING
_LOOKUP = (1023 - 14) << _LEADING  # the leading bits of 2**-14


@dataclass(frozen=True, slots=True)
class PropensityStrata:
    """The strata of the settings: at most `count`, of equal mass or width, made of fine bins; or between given `edges`.

    `least`: smaller propensities count as this.
    """

    count: int
    cut: Literal["mass", "width"]
    edges: tuple[float, ...]
    least: float
    by: str = "propensity"  # where propensities come from

    @property
    def bounds(self) -> tuple[float, ...]:
        """Edges of the bins that have sums, one more than there are bins."""
        return (0.0, *(self.edges or FINE_EDGES), 1.0)

    @property
    def sums(self) -> str:
        """The name of the tally of sums; it contains everything that the cells depend on."""
        return f"{self.clicks}_sums_{self.least!r}"

    @property
    def clicks(self) -> str:
        """The name of the tally of clicks by score."""
        by = () if self.by == "propensity" else (self.by,)
        return "_".join(("strata", *by, *(map(repr, self.edges) if self.edges else ("fine",))))

    def tallies(self) -> tuple[Tally, Tally]:
        """The tallies of every series."""
        return _tallies(self)


@lru_cache(maxsize=16)  # some ten thousand names, needed wherever there are settings
def _tallies(strata: PropensityStrata) -> tuple[Tally, Tally]:
    bins = range(len(strata.bounds) - 1)
    sums = [(f"{name}_{i}", scale) for i in bins for name, scale in zip(_SUMS, STRATUM_SCALES, strict=True)]
    names, scales = tuple(name for name, _ in sums), tuple(one for one in sums if one[1] != 1.0)
    clicks = tuple(f"{i}_{score}" for i in bins for score in range(SCORE_BINS))
    return Tally(strata.sums, names, blocks=False, scales=scales), Tally(strata.clicks, clicks, blocks=False)


class PropensityScores(NamedTuple):
    """k scores of labelled impressions, with what `accumulate.measure` computed."""

    series: NDArray[np.int32]
    row: NDArray[np.int32]  # its impression
    p: NDArray[np.float64]
    loss: NDArray[np.float64]
    curve_part: NDArray[np.int16]


class PropensityRows(NamedTuple):
    """Labelled impressions."""

    label: NDArray[np.int8]
    propensity: NDArray[np.float64]  # NaN: none


class PropensityGrid(NamedTuple):
    """The bins: bin i is [edges[i - 1], edges[i]), the last one closed at 1; and a table of where to start searching."""

    edges: NDArray[np.float64]
    lookup: NDArray[np.int16]  # of everything below 2**-14, then by the leading bits of the propensity
    least: float  # smaller propensities count as this

    @classmethod
    def of(cls, strata: PropensityStrata) -> PropensityGrid:
        """The grid as the kernels read it."""
        edges = np.array(strata.bounds[1:-1])
        begins = ((np.arange(14 * 32 + 1) + _LOOKUP) << 47).view(np.float64)
        lookup = np.append(0, np.searchsorted(edges, begins, side="right")).astype(np.int16)
        return cls(edges, lookup, strata.least)


class StrataRoom(NamedTuple):
    """Buffers in which scores are added up. `sums` is zero between two calls."""

    sums: NDArray[np.int64]  # [series, bins, STRATUM_SUMS]
    clicks: NDArray[np.int64]  # [scores]: cells of clicks
    cells: NDArray[np.int64]  # [the most that may be used]
    values: NDArray[np.int64]

    @classmethod
    def of(cls, series: int, bins: int, scores: int) -> StrataRoom:
        """Room for this many scores, of any panes."""
        shape, most = (series, bins, STRATUM_SUMS), (STRATUM_SUMS + 1) * scores
        return cls(np.zeros(shape, np.int64), *(np.empty(k, np.int64) for k in (scores, most, most)))


@numba.njit(inline="always")
def fine_bin(q: float, edges: NDArray[np.float64], lookup: NDArray[np.int16]) -> int:
    """The bin of a propensity above 0, see `PropensityGrid`. Indices are unsigned, which saves a tenth of the time."""
    leading = int(np.float64(q).view(np.int64) >> _SHIFT) - _LOOKUP
    b = int(lookup[np.uint64(max(leading + 1, 0))])
    while b < edges.size and q >= edges[np.uint64(b)]:
        b += 1
    return b


class _Known(NamedTuple):
    """Terms of impressions that do not depend on a score."""

    bin: NDArray[np.int16]  # -1: no propensity
    clicked: NDArray[np.int8]
    mass: NDArray[np.int64]  # 1 / propensity, in whole and fractional parts
    fraction: NDArray[np.int64]


@numba.njit(cache=True, nogil=True)
def _known(first: int, end: int, rows: PropensityRows, grid: PropensityGrid) -> _Known:
    """Those of the rows first to end - 1."""
    n = max(end - first, 0)
    known = _Known(np.empty(n, np.int16), np.empty(n, np.int8), np.empty(n, np.int64), np.empty(n, np.int64))
    of_bin, clicked, mass, fraction = known
    for i in range(n):
        q = rows.propensity[first + i]
        if np.isnan(q):
            of_bin[i] = -1
            continue
        weight = 1.0 / max(q, grid.least)
        of_bin[i] = fine_bin(q, grid.edges, grid.lookup)
        clicked[i] = rows.label[first + i]
        mass[i] = np.int64(weight)
        fraction[i] = fixed(weight - mass[i])
    return known


@numba.njit(cache=True, nogil=True)
def strata_deltas(
    cuts: NDArray[np.int64],
    scores: PropensityScores,
    rows: PropensityRows,
    grid: PropensityGrid,
    at: tuple[int, int, int],
    sign: int,
    room: StrataRoom,
    ends: NDArray[np.int64],
) -> None:
    """Sums the scores of panes into sparse vectors over all rows, in `room.cells` and `room.values`, one after the other.

    Pane j has the scores cuts[j, k] to cuts[j + 1, k] - 1 for every k; its cells ascend, and end at ends[j]. `at`: the size of a
    series' vector, and the first cells of its tallies of sums and of clicks.
    """
    n = 0
    for j in range(ends.size):
        n = _add_pane(cuts[j], cuts[j + 1], scores, rows, grid, at, sign=sign, room=room, n=n)
        ends[j] = n


@numba.njit(cache=True, nogil=True)
def _add_pane(
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    scores: PropensityScores,
    rows: PropensityRows,
    grid: PropensityGrid,
    at: tuple[int, int, int],
    sign: int,
    room: StrataRoom,
    n: int,
) -> int:
    """Writes the cells of a pane, starting at n; returns where they end."""
    series, row, p, loss, curve_part = scores
    sums, clicks, cells, values = room
    size, at_sums, at_clicks = at
    flat, bins = sums.ravel(), sums.shape[1]
    first, end = row.size, 0
    for r in range(begins.size):
        if begins[r] < ends[r]:  # rows ascend
            first, end = min(first, row[begins[r]]), max(end, row[ends[r] - 1] + 1)
    known = _known(first, end, rows, grid)
    found = 0
    for r in range(begins.size):
        for j in range(begins[r], ends[r]):
            k = np.uint64(j)  # an unsigned index is not checked for wrap-around
            i = np.uint64(row[k]) - np.uint64(first)
            b = known.bin[i]
            if b < 0:
                continue
            place = np.uint64((series[k] * bins + b) * STRATUM_SUMS)
            flat[place] += 1
            flat[place + np.uint64(STRATUM_P)] += fixed(p[k])
            flat[place + np.uint64(STRATUM_L)] += fixed(loss[k])
            flat[place + np.uint64(STRATUM_MASS)] += known.mass[i]
            flat[place + np.uint64(STRATUM_MASS_FRACTION)] += known.fraction[i]
            if known.clicked[i]:
                flat[place + np.uint64(STRATUM_Y)] += 1
                score = min(max(int(curve_part[k]) >> PART_BITS, _FIRST), _LAST) - _FIRST
                clicks[found] = series[k] * size + at_clicks + b * SCORE_BINS + score
                found += 1
    order = np.sort(clicks[:found])
    c = 0
    for s in range(sums.shape[0]):
        for b in range(sums.shape[1]):
            if sums[s, b, STRATUM_N]:
                for one in range(STRATUM_SUMS):
                    if sums[s, b, one]:
                        cells[n] = s * size + at_sums + b * STRATUM_SUMS + one
                        values[n] = sign * sums[s, b, one]
                        sums[s, b, one] = 0
                        n += 1
        while c < found and order[c] < (s + 1) * size:
            cells[n], values[n] = order[c], 0
            while c < found and order[c] == cells[n]:
                values[n] += sign
                c += 1
            n += 1
    return n


def score_bins(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Converts a histogram at the resolution of the curves, int64[bin_count(STRATA_BITS)], to the bins of strata: int64[SCORE_BINS]."""
    out = counts[_FIRST : _LAST + 1].copy()
    out[0] += counts[:_FIRST].sum()
    out[-1] += counts[_LAST + 1 :].sum()
    return out

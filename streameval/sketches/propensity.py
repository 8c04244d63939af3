"""The fine grid of propensities, and the sums in each of its bins.

Strata of equal mass or width depend on the data; the layout of sums must not. So sums are kept for fixed bins, and strata
are put together from whole bins when results are read: they are a function of the sums, live and for the past.

A bin has counts and sums, and its clicks by score, at the resolution of the placement curves: clicks are few, and their
placements follow from the window's histogram of non-clicks, which exists anyway. Scores below 2**-17 count as equal there,
and so do those above 1 - 2**-7.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.blocks import SCALE, fixed
from streameval.sketches.grid import bin_count
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
    # names of tallies, asked for at every result: of clicks by score, and of sums; they contain everything that the cells depend on
    clicks: str = field(init=False, repr=False, compare=False)
    sums: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by = () if self.by == "propensity" else (self.by,)
        clicks = "_".join(("strata", *by, *(map(repr, self.edges) if self.edges else ("fine",))))
        object.__setattr__(self, "clicks", clicks)
        object.__setattr__(self, "sums", f"{clicks}_sums_{self.least!r}")

    @property
    def bounds(self) -> tuple[float, ...]:
        """Edges of the bins that have sums, one more than there are bins."""
        return (0.0, *(self.edges or FINE_EDGES), 1.0)

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


class StrataRows(NamedTuple):
    """n impressions: the bin of their propensity, and what they add to its mass. Empty: none has a propensity."""

    bin: NDArray[np.int16]  # -1: no propensity
    mass: NDArray[np.int64]  # [n, 2]: whole units of its inverse, and the rest in fixed point, as often as they count

    @classmethod
    def of(cls, propensity: NDArray[np.float64], times: NDArray[np.int64], grid: PropensityGrid) -> StrataRows:
        """From propensities, NaN: none; `times`: how often impressions count."""
        n = propensity.size if (propensity > 0).any() else 0
        rows = cls(np.empty(n, np.int16), np.empty((n, 2), np.int64))
        _write_rows(propensity[:n], times[:n], grid, rows)
        return rows

    @classmethod
    def none(cls) -> StrataRows:
        """Of impressions that are not counted by propensity."""
        return cls(np.empty(0, np.int16), np.empty((0, 2), np.int64))


@numba.njit(inline="always")
def fine_bin(q: float, edges: NDArray[np.float64], lookup: NDArray[np.int16]) -> int:
    """The bin of a propensity above 0, see `PropensityGrid`. Indices are unsigned, which saves a tenth of the time."""
    leading = int(np.float64(q).view(np.int64) >> _SHIFT) - _LOOKUP
    b = int(lookup[np.uint64(max(leading + 1, 0))])
    while b < edges.size and q >= edges[np.uint64(b)]:
        b += 1
    return b


@numba.njit(cache=True, nogil=True)
def _write_rows(
    propensity: NDArray[np.float64], times: NDArray[np.int64], grid: PropensityGrid, rows: StrataRows
) -> None:
    edges, lookup, least = grid
    of_bin, mass = rows
    for i in range(propensity.size):
        q = propensity[i]
        if np.isnan(q):
            of_bin[i], mass[i, 0], mass[i, 1] = -1, 0, 0
            continue
        weight = 1.0 / max(q, least)
        whole = np.int64(weight)
        of_bin[i] = fine_bin(q, edges, lookup)
        mass[i, 0] = times[i] * whole
        mass[i, 1] = times[i] * fixed(weight - whole)


@numba.njit(inline="always")
def score_bin(curve_bin: int) -> int:
    """The bin of a click's score, from that of placement curves."""
    return min(max(curve_bin, _FIRST), _LAST) - _FIRST


def score_bins(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Converts a histogram at the resolution of the curves, int64[bin_count(STRATA_BITS)], to the bins of strata: int64[SCORE_BINS]."""
    out = counts[_FIRST : _LAST + 1].copy()
    out[0] += counts[:_FIRST].sum()
    out[-1] += counts[_LAST + 1 :].sum()
    return out

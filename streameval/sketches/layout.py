"""What the cells of a series' integer vector mean.

One series (a model version's scores, overall or in one slice) is one vector: a few counts, fixed-point sums (two limbs
each, see `fixed`), the pClick bucket table, sums by block of users (overall only), the score histogram, and the tallies
that the settings ask for (overall only, see `tally`). A pane, a window and the whole run have the same layout, so
every metric is available for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.blocks import BLOCKS, SERIES_CELLS
from streameval.sketches.fixed import read_real
from streameval.sketches.grid import bin_count
from streameval.sketches.propensity import PropensityStrata
from streameval.sketches.tally import Tally

# counts
IMPRESSIONS, CLICKS, CORRECTIONS, VIOLATIONS = 0, 1, 2, 3
REQUESTS, REQUEST_IMPRESSIONS = 4, 5
# sums of reals, two cells each
SUM_PCLICK, SUM_LOG_LOSS, SUM_SQUARED, SUM_ABSOLUTE = 6, 8, 10, 12
REQUEST_WEIGHT, REQUEST_AUC = 14, 16  # sum of w, sum of w * AUC over closed requests
BUCKETS = 18  # first cell of the bucket table
BUCKET_IMPRESSIONS, BUCKET_CLICKS, BUCKET_PCLICK, BUCKET_LOG_LOSS = 0, 1, 2, 4  # sums of reals take two cells
BUCKET_CELLS = 6
# a block of users: the cells of `blocks`, then the weight of its closed requests, and weight times AUC; then clicks and
# non-clicks that have a placement (see `counting.references`)
BLOCK_REQUEST_W, BLOCK_REQUEST_WA, BLOCK_PLACED1, BLOCK_PLACED0 = range(SERIES_CELLS, SERIES_CELLS + 4)
BLOCK_CELLS = SERIES_CELLS + 4


# Resolution of the score histograms: bins per octave = 2**bits; docs/metrics.md has the table of bins against error.
OVERALL_BITS = 10
SLICE_BITS = 7


@dataclass(frozen=True, slots=True)
class Sampled:
    """The settings for a log that is a sample of the traffic, see `settings.measures.Sampling`."""

    negatives: float = 1.0
    weights: bool = False
    trained_negatives: float = 1.0
    recalibrate: tuple[str, ...] = ()

    def recalibrated(self, version: str) -> float | None:
        """The share of non-clicks for which a version's pClick is corrected; None: it is not corrected."""
        is_one = bool(self.recalibrate) and any(fnmatchcase(version, one) for one in self.recalibrate)
        return self.trained_negatives if is_one else None

    def words(self) -> list[str]:
        """Sentences for readers of the results."""
        out = []
        if self.negatives < 1:
            held, each = f"{100 * self.negatives:.4g}%", f"{1 / self.negatives:.6g}"
            out.append(
                f"the log holds {held} of the non-clicks, each counts as {each}: numbers are estimates for all traffic"
            )
        if self.weights:
            out.append("impressions count by their weights: numbers are estimates for all traffic")
        if self.recalibrate:
            which, share = ", ".join(self.recalibrate), f"{100 * self.trained_negatives:.4g}%"
            out.append(f"pClick of {which} is re-calibrated: trained on {share} of the non-clicks")
        return out


@dataclass(frozen=True, slots=True)
class Options:
    """The settings that vectors and their metrics depend on. `edges`: inner edges of the buckets."""

    edges: tuple[float, ...]
    tallies: tuple[Tally, ...] = ()
    operating_range: tuple[float, float] = (0.0, 0.1)  # false positive rates
    threshold: float = 0.5  # pClick
    cost_ratio: float = 1.0
    k: tuple[int, ...] = ()  # cuts of ranked lists
    gain: str = "click"  # of NDCG
    by_user: tuple[str, ...] = ()  # metrics of lists that are also averaged by user
    strata: PropensityStrata | None = None
    mainline: int = 3  # positions, from the top
    sampling: Sampled = Sampled()

    @property
    def overall(self) -> Layout:
        """The layout of a series' overall vector."""
        return Layout(OVERALL_BITS, self.edges, by_block=True, options=self)

    @property
    def slice(self) -> Layout:
        """The layout of a series' vector in a slice."""
        return Layout(SLICE_BITS, self.edges, options=self)


NO_OPTIONS = Options(())


class StrataPlaces(NamedTuple):
    """The tallies of strata, and their first cells."""

    sums: tuple[Tally, int]
    clicks: tuple[Tally, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """Cells of a vector: [counts | sums | buckets | blocks of users | histogram of non-clicks | of clicks | tallies].

    `bits` is the histogram's resolution (bins per octave = 2**bits), `edges` are the inner edges of the buckets;
    `by_block`: whether there are sums by block of users, and tallies.
    """

    bits: int
    edges: tuple[float, ...]
    by_block: bool = False
    options: Options | None = None
    # derived once, because every pane needs it
    buckets: int = field(init=False, repr=False, compare=False)  # of pClick
    blocks: int = field(init=False, repr=False, compare=False)  # first cell of the blocks of users
    histogram: int = field(init=False, repr=False, compare=False)  # first cell of the histogram (non-clicks)
    bins: int = field(init=False, repr=False, compare=False)  # of the histogram, per label
    tallies: int = field(init=False, repr=False, compare=False)  # first cell of the tallies
    size: int = field(init=False, repr=False, compare=False)  # cells of the whole vector
    _known: dict[str, tuple[Tally, int]] = field(init=False, repr=False, compare=False)  # tallies by name

    def __post_init__(self) -> None:
        blocks = BUCKETS + BUCKET_CELLS * (len(self.edges) + 1)
        histogram = blocks + (BLOCKS * BLOCK_CELLS if self.by_block else 0)
        bins = bin_count(self.bits)
        tallies = histogram + 2 * bins
        size = tallies + sum(tally.size for tally in self.tallied)
        found = (len(self.edges) + 1, blocks, histogram, bins, tallies, size)
        for name, value in zip(("buckets", "blocks", "histogram", "bins", "tallies", "size"), found, strict=True):
            object.__setattr__(self, name, value)
        known: dict[str, tuple[Tally, int]] = {}
        for tally in self.tallied:
            for name in (tally.name, tally.name.partition(":")[0]):
                known.setdefault(name, (tally, tallies))
            tallies += tally.size
        object.__setattr__(self, "_known", known)

    @property
    def tallied(self) -> tuple[Tally, ...]:
        """The tallies, in the order of their cells."""
        return self.options.tallies if self.by_block and self.options is not None else ()

    def tally(self, name: str) -> tuple[Tally, int] | None:
        """A tally and its first cell; None if the layout does not have it."""
        return self._known.get(name)

    @property
    def strata(self) -> StrataPlaces | None:
        """Where the sums by propensity are; None: there are none."""
        of = None if self.options is None else self.options.strata
        sums, clicks = (None, None) if of is None else (self.tally(of.sums), self.tally(of.clicks))
        if sums is None or clicks is None:
            return None
        assert sums[1] + sums[0].size == clicks[1]  # kernels write cells in order
        return StrataPlaces(sums, clicks)

    def not_in(self, names: Collection[str]) -> list[Tally]:
        """The tallies that are not among these, and those that begin to count together with them."""
        new = {tally.family for tally in self.tallied if tally.name not in names}
        return [tally for tally in self.tallied if tally.family in new]

    def cells_of(self, tally: Tally) -> range:
        """The cells of one of this layout's tallies."""
        first = self._known[tally.name][1]
        return range(first, first + tally.size)

    def places(self, tallies: Iterable[tuple[str, int]], without: Collection[str] = ()) -> NDArray[np.int64]:
        """Maps the cells of a vector with these tallies (name and size) to cells of this layout; -1: not in it, or of a
        tally in `without`.
        """
        parts = [np.arange(self.tallies)]
        for name, size in tallies:
            found = None if name in without else self.tally(name)
            same = found is not None and found[0].size == size
            parts.append(found[1] + np.arange(size) if found is not None and same else np.full(size, -1))
        return np.concatenate(parts)


@dataclass(frozen=True, slots=True)
class Moments:
    """The vector's sums as plain numbers, by name, as metrics read them."""

    impressions: int
    clicks: int
    corrected: int
    violations: int
    pclick: float
    log_loss: float
    squared: float
    absolute: float
    requests: int
    request_weight: float
    request_auc: float

    @classmethod
    def read(cls, vector: NDArray[np.int64]) -> Moments:
        """From a series' vector (int64[layout.size])."""
        cells = vector[:BUCKETS].tolist()

        def real(cell: int) -> float:
            return read_real(cells[cell], cells[cell + 1])

        return cls(
            impressions=cells[IMPRESSIONS],
            clicks=cells[CLICKS],
            corrected=cells[CORRECTIONS],
            violations=cells[VIOLATIONS],
            pclick=real(SUM_PCLICK),
            log_loss=real(SUM_LOG_LOSS),
            squared=real(SUM_SQUARED),
            absolute=real(SUM_ABSOLUTE),
            requests=cells[REQUESTS],
            request_weight=real(REQUEST_WEIGHT),
            request_auc=real(REQUEST_AUC),
        )


class BucketSums(NamedTuple):
    """The sums of one pClick bucket."""

    impressions: int
    clicks: int
    pclick: float
    log_loss: float


def read_buckets(vector: NDArray[np.int64], layout: Layout) -> list[BucketSums]:
    """The bucket table of a vector, lowest bucket first."""
    cells = vector[BUCKETS : layout.blocks].reshape(layout.buckets, BUCKET_CELLS).tolist()
    return [BucketSums(c[0], c[1], read_real(c[2], c[3]), read_real(c[4], c[5])) for c in cells]


def read_blocks(vector: NDArray[np.int64], layout: Layout) -> NDArray[np.int64]:
    """The blocks of a vector, int64[BLOCKS, BLOCK_CELLS]; a view. Reals are in units of 1 / `blocks.SCALE`."""
    return vector[layout.blocks : layout.histogram].reshape(-1, BLOCK_CELLS)


def read_histogram(vector: NDArray[np.int64], layout: Layout) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(non-clicks, clicks) per bin, int64[layout.bins] each; views of the vector."""
    cells = vector[layout.histogram : layout.tallies]
    return cells[: layout.bins], cells[layout.bins :]


class UsedBins(NamedTuple):
    """The non-empty bins of a score histogram, lowest first: their numbers, and (non-clicks, clicks); int64[used] each."""

    bins: NDArray[np.int64]
    negatives: NDArray[np.int64]
    positives: NDArray[np.int64]


def used_bins(negatives: NDArray[np.int64], positives: NDArray[np.int64]) -> UsedBins:
    """The non-empty bins, usually a few hundred of tens of thousands."""
    return UsedBins(*_used_bins(negatives, positives))


@numba.njit(cache=True, nogil=True)
def _used_bins(
    negatives: NDArray[np.int64], positives: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    n = 0
    for b in range(negatives.size):
        n += (negatives[b] | positives[b]) != 0
    bins, no, yes = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    n = 0
    for b in range(negatives.size):
        if (negatives[b] | positives[b]) != 0:
            bins[n], no[n], yes[n] = b, negatives[b], positives[b]
            n += 1
    return bins, no, yes


def has_result(vector: NDArray[np.int64], layout: Layout) -> bool:
    """Whether a series' vector has anything to show: impressions, or weighted impressions of its policy.

    (Without either it may still have a request that began in this pane, with impressions in others.)
    """
    return any(cell < vector.size and vector[cell] != 0 for cell in cells_of_result(layout))


def cells_of_result(layout: Layout) -> list[int]:
    """The cells of which one is not 0 where there is anything to show, see `has_result`."""
    policy = layout.tally("policy")
    return [IMPRESSIONS] if policy is None else [IMPRESSIONS, policy[1]]


def read_tally(vector: NDArray[np.int64], layout: Layout, name: str) -> NDArray[np.int64] | None:
    """The cells of a tally, int64[BLOCKS, cells], or int64[cells] if it is not by block; a view. None: not in the layout."""
    found = layout.tally(name)
    if found is None or vector.size < layout.size:
        return None
    tally, at = found
    cells = vector[at : at + tally.size]
    return cells.reshape(BLOCKS, -1) if tally.blocks else cells

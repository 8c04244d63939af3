"""What the cells of a series' integer vector mean.

One series (a model version's scores, overall or in one slice) is one vector: a few counts, fixed-point sums (two limbs
each, see `fixed`), the pClick bucket table, sums by block of users (overall only), and the score histogram. A pane, a
window and the whole run hold the same vector, so everything that can be asked of one can be asked of all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streameval.sketches.blocks import BLOCKS, SERIES_CELLS
from streameval.sketches.fixed import read_real
from streameval.sketches.grid import bin_count

# counts
IMPRESSIONS, CLICKS, CORRECTED, VIOLATIONS = 0, 1, 2, 3
REQUESTS, REQUEST_IMPRESSIONS = 4, 5
# sums of reals, two cells each
PCLICK, LOG_LOSS, SQUARED, ABSOLUTE = 6, 8, 10, 12
REQUEST_WEIGHT, REQUEST_AUC = 14, 16  # sum of w, sum of w * AUC over closed requests
BUCKETS = 18  # first cell of the bucket table
BUCKET_CELLS = 6  # impressions, clicks, pclick (2), log loss (2)
# a block of users: the cells of `blocks`, then what its closed requests weigh, and weight times AUC; then clicks and
# non-clicks that were placed (see `counting.references`)
BLOCK_REQUEST_W, BLOCK_REQUEST_WA, BLOCK_PLACED1, BLOCK_PLACED0 = range(SERIES_CELLS, SERIES_CELLS + 4)
BLOCK_CELLS = SERIES_CELLS + 4


@dataclass(frozen=True, slots=True)
class Layout:
    """Cells of a vector: [counts | sums | buckets | blocks of users | histogram of non-clicks | histogram of clicks].

    `bits` is the histogram's resolution (bins per octave = 2**bits), `edges` are the inner edges of the buckets;
    `by_block`: whether sums by block of users are kept.
    """

    bits: int
    edges: tuple[float, ...]
    by_block: bool = False
    # what follows from these, once: every pane asks for it
    buckets: int = field(init=False, repr=False, compare=False)  # of pClick
    blocks: int = field(init=False, repr=False, compare=False)  # first cell of the blocks of users
    histogram: int = field(init=False, repr=False, compare=False)  # first cell of the histogram (non-clicks)
    bins: int = field(init=False, repr=False, compare=False)  # of the histogram, per label
    size: int = field(init=False, repr=False, compare=False)  # cells of the whole vector

    def __post_init__(self) -> None:
        blocks = BUCKETS + BUCKET_CELLS * (len(self.edges) + 1)
        histogram = blocks + (BLOCKS * BLOCK_CELLS if self.by_block else 0)
        bins = bin_count(self.bits)
        found = (len(self.edges) + 1, blocks, histogram, bins, histogram + 2 * bins)
        for name, value in zip(("buckets", "blocks", "histogram", "bins", "size"), found, strict=True):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Moments:
    """The vector's sums as plain numbers, by name; what the metrics read."""

    impressions: int
    clicks: int
    corrected: int
    violations: int
    pclick: float
    log_loss: float
    squared: float
    absolute: float
    requests: int
    request_impressions: int
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
            corrected=cells[CORRECTED],
            violations=cells[VIOLATIONS],
            pclick=real(PCLICK),
            log_loss=real(LOG_LOSS),
            squared=real(SQUARED),
            absolute=real(ABSOLUTE),
            requests=cells[REQUESTS],
            request_impressions=cells[REQUEST_IMPRESSIONS],
            request_weight=real(REQUEST_WEIGHT),
            request_auc=real(REQUEST_AUC),
        )


@dataclass(frozen=True, slots=True)
class BucketSums:
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
    cells = vector[layout.histogram : layout.size]
    return cells[: layout.bins], cells[layout.bins :]

"""Replayed auctions, from panes to what is read: by window and model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.auction.frontier import Frontier, frontier_of
from streameval.auction.points import operating_points, tally_names, through_name
from streameval.auction.rerun import AUCTION_CELLS, AUCTIONS_SERVED, THROUGH_CELLS, USER_GROUPS
from streameval.events.batch import Series
from streameval.settings.measures import Auction
from streameval.sketches.blocks import BLOCKS
from streameval.sketches.layout import Layout, read_tally


@dataclass(frozen=True, slots=True)
class WindowAuctions:
    """One model's auctions in one window; `start` and `end` (ms) are None for the whole run."""

    window: str
    start: int | None
    end: int | None
    settings: Auction
    series: tuple[Series, ...]  # by version
    sums: NDArray[np.int64]  # [series, operating points, blocks, AUCTION_CELLS]
    through: NDArray[np.int64] | None = None  # [series, operating points, USER_GROUPS, THROUGH_CELLS], for errors

    @property
    def reference(self) -> int:
        """The number of the version that served most of the requests: its mainline ads are matched."""
        return int(np.argmax(self.sums[:, 0, :, AUCTIONS_SERVED].sum(axis=1)))

    def frontier(self) -> Frontier:
        """The numbers, computed from the sums: takes some ms, so only on request."""
        return frontier_of(self.sums, operating_points(self.settings), self.reference, None, self.through)


def auctions_by_model(
    vectors: Mapping[Series, NDArray[np.int64]], layout: Layout, settings: Auction
) -> Iterator[tuple[tuple[Series, ...], NDArray[np.int64], NDArray[np.int64]]]:
    """(versions, their sums, what comes through the tables) of every model with replayed auctions. `vectors`: of one window, by series."""
    names = tally_names(settings)
    by_model: dict[str, dict[Series, NDArray[np.int64]]] = {}
    for series, vector in vectors.items():
        sums = _sums(vector, layout, names)
        if sums.any():
            by_model.setdefault(series.model, {})[series] = sums
    for _, some in sorted(by_model.items()):
        order = sorted(some, key=lambda series: (series.version, series.source))
        through = np.stack([_through(vectors[series], layout, names) for series in order])
        yield tuple(order), np.stack([some[series] for series in order]), through


def _sums(vector: NDArray[np.int64], layout: Layout, names: Sequence[str]) -> NDArray[np.int64]:
    """int64[points, blocks, cells] of one series."""
    found = [read_tally(vector, layout, name) for name in names]
    nothing = np.zeros((BLOCKS, len(AUCTION_CELLS)), np.int64)
    return np.stack([nothing if one is None else one for one in found])


def _through(vector: NDArray[np.int64], layout: Layout, names: Sequence[str]) -> NDArray[np.int64]:
    """int64[points, USER_GROUPS, THROUGH_CELLS] of one series."""
    found = [read_tally(vector, layout, through_name(name)) for name in names]
    nothing = np.zeros(USER_GROUPS * THROUGH_CELLS, np.int64)
    return np.stack([nothing if one is None else one for one in found]).reshape(-1, USER_GROUPS, THROUGH_CELLS)

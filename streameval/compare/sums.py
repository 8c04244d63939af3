"""The sums behind one comparison, over the windows of its e-processes: exact, whatever comes late or is restarted.

What a look adds comes as rows of the ledger (`counting.ledger`), each of one segment of an hour at the most. The first
window holds everything since the comparison began; later ones begin every few hours and hold what is of segments from
there on, so a correction of an old impression changes only the windows that hold it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streameval.compare import paired, split
from streameval.compare.paired import oriented, oriented_gauc
from streameval.compare.ratio import Statistic
from streameval.compare.split import Strata
from streameval.events import Series
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import (
    BLOCKS,
    GAUC_CELLS,
    GAUC_SCALARS,
    PAIR_CELLS,
    PAIR_SCALARS,
    SCALE,
    SERIES_CELLS,
    BlockSums,
)

Ints = NDArray[np.int64]
Key = tuple[Series, Series | None]  # who served, and who else scored; None: what the server did alone
_BLOCK_CELLS = BLOCKS * PAIR_CELLS


class Sums(Protocol):
    """What a comparison needs of its sums."""

    def gain(self, segment: int, key: Key, row: Ints) -> None:
        """Adds a row of the ledger; rows of others are passed by."""
        ...

    def gain_gauc(self, segment: int, key: Key, row: Ints) -> None:
        """Adds a pair's GAUC sums of the window of users' AUC that begins at a segment (see `counting.gauc_rows`)."""
        ...

    def begin(self, segment: int) -> None:
        """A window begins at a segment, of which nothing has been gained yet."""
        ...

    def clicks(self) -> Ints:
        """int64[1, J] of the windows."""
        ...

    def statistics(self) -> dict[str, Statistic]:
        """Each [1, J]."""
        ...

    def totals(self) -> tuple[Ints, Ints]:
        """Sums over blocks of the first window as if either had served: (baseline, candidate), int64[8] (see `blocks`)."""
        ...

    def gauc(self) -> tuple[float | None, float | None]:
        """GAUC of baseline and candidate over the first window; None: not known."""
        ...

    def blocks(self) -> int:
        """Blocks of users that have anything."""
        ...


class PairedSums:
    """Both versions scored the same impressions."""

    def __init__(self, baseline: Series, candidate: Series) -> None:
        self._baseline, self._candidate = baseline, candidate
        self._total = BlockSums(np.zeros((BLOCKS, PAIR_CELLS), np.int64), np.zeros(PAIR_SCALARS, np.int64))
        self._before = [self._empty()]  # of each window: what is of segments before it
        self._gauc = self._empty_gauc()
        self._gauc_before = [self._empty_gauc()]
        self._starts: list[int] = [-(1 << 62)]

    def gain(self, segment: int, key: Key, row: Ints) -> None:
        """See `Sums`."""
        some = BlockSums(
            row[:_BLOCK_CELLS].reshape(BLOCKS, PAIR_CELLS), row[_BLOCK_CELLS : _BLOCK_CELLS + PAIR_SCALARS]
        )
        if key == (self._candidate, self._baseline):
            some = oriented(some)
        elif key != (self._baseline, self._candidate):
            return
        self._add(self._total, some)
        for start, before in zip(self._starts, self._before, strict=True):
            if segment < start:
                self._add(before, some)

    def gain_gauc(self, segment: int, key: Key, row: Ints) -> None:
        """See `Sums`."""
        cut = BLOCKS * GAUC_CELLS
        some = BlockSums(row[:cut].reshape(BLOCKS, GAUC_CELLS), row[cut : cut + GAUC_SCALARS])
        if key == (self._candidate, self._baseline):
            some = oriented_gauc(some)
        elif key != (self._baseline, self._candidate):
            return
        self._add(self._gauc, some)
        for start, before in zip(self._starts, self._gauc_before, strict=True):
            if segment < start:
                self._add(before, some)

    def begin(self, segment: int) -> None:
        """See `Sums`."""
        self._starts.append(segment)
        self._gauc_before.append(BlockSums(self._gauc.blocks.copy(), self._gauc.scalars.copy()))
        self._before.append(BlockSums(self._total.blocks.copy(), self._total.scalars.copy()))

    def clicks(self) -> Ints:
        """See `Sums`."""
        return paired.clicks(self._windows())

    def statistics(self) -> dict[str, Statistic]:
        """See `Sums`."""
        return paired.statistics(self._windows(), _less(self._gauc, self._gauc_before))

    def totals(self) -> tuple[Ints, Ints]:
        """See `Sums`."""
        sums = self._total.blocks.sum(axis=0)
        baseline, candidate = np.zeros(SERIES_CELLS, np.int64), np.zeros(SERIES_CELLS, np.int64)
        server = self._total.scalars
        for out, p, other in ((baseline, cells.PAIR_P, 0), (candidate, cells.PAIR_P_OTHER, 1)):
            out[cells.N], out[cells.Y], out[cells.P] = sums[cells.PAIR_N], sums[cells.PAIR_Y], sums[p]
            out[cells.L] = sums[cells.PAIR_L] + other * sums[cells.D]
            out[cells.PHI1] = server[cells.SERVER_PHI1] + other * sums[cells.PAIR_PHI1]
            out[cells.PHI0] = server[cells.SERVER_PHI0] + other * sums[cells.PAIR_PHI0]
        return baseline, candidate

    def gauc(self) -> tuple[float | None, float | None]:
        """See `Sums`."""
        weight, wd = self._gauc.blocks.sum(axis=0).tolist()
        own = int(self._gauc.scalars[cells.G_W_SERVER])
        return (own / SCALE / weight, (own + wd) / SCALE / weight) if weight else (None, None)

    def blocks(self) -> int:
        """See `Sums`."""
        return int((self._total.blocks[:, cells.PAIR_N] > 0).sum())

    def strict(self) -> Ints:
        """The scalars of the first window, int64[8]."""
        return self._total.scalars.copy()

    def _windows(self) -> BlockSums:
        return _less(self._total, self._before)

    @staticmethod
    def _empty() -> BlockSums:
        return BlockSums(np.zeros((BLOCKS, PAIR_CELLS), np.int64), np.zeros(PAIR_SCALARS, np.int64))

    @staticmethod
    def _empty_gauc() -> BlockSums:
        return BlockSums(np.zeros((BLOCKS, GAUC_CELLS), np.int64), np.zeros(GAUC_SCALARS, np.int64))

    @staticmethod
    def _add(into: BlockSums, some: BlockSums) -> None:
        np.add(into.blocks, some.blocks, out=into.blocks)
        np.add(into.scalars, some.scalars, out=into.scalars)


def _less(total: BlockSums, before: list[BlockSums]) -> BlockSums:
    """[1, J, ...]: the windows' own."""
    each = BlockSums(np.stack([b.blocks for b in before]), np.stack([b.scalars for b in before]))
    return paired.windows(BlockSums(total.blocks[None], total.scalars[None]), each)


class SplitSums:
    """Both versions served, disjoint users: strata are segments."""

    def __init__(self, baseline: Series, candidate: Series) -> None:
        self._arms = (baseline, candidate)
        self._starts: list[int] = [-(1 << 62)]
        self._rows: dict[int, Ints] = {}  # by segment: int64[2, G, 8]
        self._strata: dict[int, Strata] = {}  # of the segments, as far as they have not changed since

    def gain(self, segment: int, key: Key, row: Ints) -> None:
        """See `Sums`."""
        if key[1] is not None or key[0] not in self._arms:
            return
        rows = self._rows.setdefault(segment, np.zeros((2, BLOCKS, SERIES_CELLS), np.int64))
        rows[self._arms.index(key[0])] += row[:_BLOCK_CELLS].reshape(BLOCKS, SERIES_CELLS)
        self._strata.pop(segment, None)

    def gain_gauc(self, segment: int, key: Key, row: Ints) -> None:
        """See `Sums`: there are no pairs."""

    def begin(self, segment: int) -> None:
        """See `Sums`."""
        self._starts.append(segment)

    def clicks(self) -> Ints:
        """See `Sums`: of the arm that has fewer."""
        by_segment = {s: rows[:, :, cells.Y].sum(axis=1) for s, rows in self._rows.items() if self._counts(rows)}
        out = [
            sum((c for s, c in by_segment.items() if s >= start), np.zeros(2, np.int64)).min() for start in self._starts
        ]
        return np.array([out], np.int64)

    def statistics(self) -> dict[str, Statistic]:
        """See `Sums`."""
        some = sorted(s for s, rows in self._rows.items() if self._counts(rows))
        for s in some:
            if s not in self._strata:
                self._strata[s] = split.strata(self._rows[s][0], self._rows[s][1])
        totals = np.zeros((len(self._starts), 2, 8))
        devs = np.zeros((len(self._starts), 2, 6, BLOCKS))
        for j, start in enumerate(self._starts):
            for s in some:
                if s >= start:
                    totals[j] += self._strata[s].totals
                    devs[j] += self._strata[s].devs
        return split.statistics(Strata(totals[None], devs[None]))

    def totals(self) -> tuple[Ints, Ints]:
        """See `Sums`: of the hours in which both served."""
        baseline, candidate = self.arms().sum(axis=1)
        return baseline, candidate

    def arms(self) -> Ints:
        """Sums of the arms over the hours in which both served, int64[2, G, 8]."""
        out = np.zeros((2, BLOCKS, SERIES_CELLS), np.int64)
        for rows in self._rows.values():
            if self._counts(rows):
                out += rows
        return out

    def gauc(self) -> tuple[float | None, float | None]:
        """See `Sums`: it is of pairs."""
        return None, None

    def blocks(self) -> int:
        """See `Sums`: of the arm that has fewer."""
        some = [rows[:, :, cells.N] > 0 for rows in self._rows.values() if self._counts(rows)]
        return int(np.any(some, axis=0).sum(axis=1).min()) if some else 0

    @staticmethod
    def _counts(rows: Ints) -> bool:
        """Whether both served in this hour."""
        return bool((rows[:, :, cells.N].sum(axis=1) > 0).all())

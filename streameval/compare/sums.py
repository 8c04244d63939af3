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
from streameval.compare.paired import oriented
from streameval.compare.ratio import Statistic
from streameval.compare.split import Strata
from streameval.events import Series
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BLOCKS, PAIR_CELLS, PAIR_SCALARS, SERIES_CELLS, BlockSums

Ints = NDArray[np.int64]
Key = tuple[Series, Series | None]  # who served, and who else scored; None: what the server did alone
_BLOCK_CELLS = BLOCKS * PAIR_CELLS


class Sums(Protocol):
    """What a comparison needs of its sums."""

    def gain(self, segment: int, key: Key, row: Ints) -> None:
        """Adds a row of the ledger; rows of others are passed by."""
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

    def blocks(self) -> int:
        """Blocks of users that have anything."""
        ...


class PairedSums:
    """Both versions scored the same impressions."""

    def __init__(self, baseline: Series, candidate: Series) -> None:
        self._baseline, self._candidate = baseline, candidate
        self._total = BlockSums(np.zeros((BLOCKS, PAIR_CELLS), np.int64), np.zeros(PAIR_SCALARS, np.int64))
        self._before = [self._empty()]  # of each window: what is of segments before it
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

    def begin(self, segment: int) -> None:
        """See `Sums`."""
        self._starts.append(segment)
        self._before.append(BlockSums(self._total.blocks.copy(), self._total.scalars.copy()))

    def clicks(self) -> Ints:
        """See `Sums`."""
        return paired.clicks(self._windows())

    def statistics(self) -> dict[str, Statistic]:
        """See `Sums`."""
        return paired.statistics(self._windows())

    def totals(self) -> tuple[Ints, Ints]:
        """See `Sums`."""
        sums = self._total.blocks.sum(axis=0)
        baseline, candidate = np.zeros(SERIES_CELLS, np.int64), np.zeros(SERIES_CELLS, np.int64)
        for out, p, loss in (
            (baseline, cells.PAIR_P, sums[cells.PAIR_L]),
            (candidate, cells.PAIR_P_OTHER, sums[cells.PAIR_L] + sums[cells.D]),
        ):
            out[cells.N], out[cells.Y], out[cells.P], out[cells.L] = (
                sums[cells.PAIR_N], sums[cells.PAIR_Y], sums[p], loss,
            )  # fmt: skip
        return baseline, candidate

    def blocks(self) -> int:
        """See `Sums`."""
        return int((self._total.blocks[:, cells.PAIR_N] > 0).sum())

    def strict(self) -> Ints:
        """The scalars of the first window, int64[6]."""
        return self._total.scalars.copy()

    def _windows(self) -> BlockSums:
        before = BlockSums(np.stack([b.blocks for b in self._before]), np.stack([b.scalars for b in self._before]))
        return paired.windows(BlockSums(self._total.blocks[None], self._total.scalars[None]), before)

    @staticmethod
    def _empty() -> BlockSums:
        return BlockSums(np.zeros((BLOCKS, PAIR_CELLS), np.int64), np.zeros(PAIR_SCALARS, np.int64))

    @staticmethod
    def _add(into: BlockSums, some: BlockSums) -> None:
        np.add(into.blocks, some.blocks, out=into.blocks)
        np.add(into.scalars, some.scalars, out=into.scalars)


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
        out = np.zeros((2, SERIES_CELLS), np.int64)
        for rows in self._rows.values():
            if self._counts(rows):
                out += rows.sum(axis=1)
        return out[0], out[1]

    def blocks(self) -> int:
        """See `Sums`: of the arm that has fewer."""
        some = [rows[:, :, cells.N] > 0 for rows in self._rows.values() if self._counts(rows)]
        return int(np.any(some, axis=0).sum(axis=1).min()) if some else 0

    @staticmethod
    def _counts(rows: Ints) -> bool:
        """Whether both served in this hour."""
        return bool((rows[:, :, cells.N].sum(axis=1) > 0).all())

"""The sums behind one comparison, over the windows of its e-processes: exact, whatever comes late or is restarted.

What a look adds comes as rows of the ledger (`compare.ledger`), each of one segment of up to an hour. The first window
holds everything since the comparison began; later ones begin every few hours and hold the segments from there on, so a
correction of an old impression changes only the windows that contain it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from streameval.compare.evidence import joint, paired
from streameval.compare.evidence.evidence import Capped
from streameval.compare.evidence.paired import gauc_sums, oriented, oriented_gauc
from streameval.compare.evidence.ratio import FEWEST_ITEMS, Ints, Reals, Statistics
from streameval.compare.ledger.exposure import EXPOSED, turned
from streameval.compare.ledger.list_rows import GAUC_WIDTH
from streameval.compare.tracking.windowed_sums import BEFORE_ALL, WindowedSums
from streameval.events.batch import Series
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import (
    BLOCKS,
    GAUC_OF_ITEMS,
    PAIR_CELLS,
    PAIR_SCALARS,
    SCALE,
    SERIES_CELLS,
    BlockSums,
)

RowName = tuple[Series, Series | None]  # who served, and who else scored; None: the server's own row
_SCALARS = BLOCKS * PAIR_CELLS  # first scalar of a row of the ledger
_ITEMS = _SCALARS + PAIR_SCALARS  # first cell by block of items
_WIDTH = _ITEMS + BLOCKS * PAIR_CELLS  # then optional parts: the same sums above the user cap, sums by propensity


class ComparisonSums(Protocol):
    """The interface to the sums of a comparison."""

    def add(self, segment: int, key: RowName, row: Ints) -> None:
        """Adds a row of the ledger; ignores rows of other versions and pairs."""
        ...

    def gain_gauc(self, segment: int, key: RowName, row: Ints) -> None:
        """Adds a pair's GAUC sums for the window of users' AUC that begins at a segment (see `ledger.gauc_rows`)."""
        ...

    def begin(self, segment: int) -> None:
        """Begins a window at a segment that nothing has been added to yet."""
        ...

    def clicks(self) -> Ints:
        """Returns the clicks of the windows, int64[1, J]."""
        ...

    def judged(self) -> Ints:
        """Returns the clicks as the floors of evidence count them, int64[1, J]."""
        ...

    def at_least(self, window: int) -> bool:
        """Whether calibration differs by at least what `statistics` say, with no upper bound."""
        ...

    def statistics(self) -> Statistics:
        """Returns the statistics, each [1, J]."""
        ...

    def correlation(self) -> Reals:
        """Returns the correlation of log loss and AUC over blocks of users (see `joint`), float64[1, J]."""
        ...

    def impressions(self) -> int:
        """Returns the impressions that count in the first window."""
        ...

    def capped(self, but: Sequence[str] = ()) -> Capped | None:
        """Returns the same with each user's impressions per day capped, without the statistics in `but`; None if they
        are not counted.
        """
        ...

    def totals(self) -> tuple[Ints, Ints]:
        """Returns the sums over blocks of the first window as if either had served: (baseline, candidate), int64[8]
        (see `blocks`).
        """
        ...

    def gauc(self) -> tuple[float | None, float | None]:
        """Returns GAUC of baseline and candidate over the first window; None if not known."""
        ...

    def blocks(self) -> int:
        """Returns the number of blocks of users that have impressions."""
        ...

    def clustered_by(self) -> str:
        """Returns what errors may be clustered by: "user", or "user_and_item"."""
        ...


class PairedSums:
    """Sums of two versions that scored the same impressions."""

    def __init__(self, baseline: Series, candidate: Series, weighed: bool = False, floor: int = 0) -> None:
        """`floor`: only used for arms; a pair has a single number of clicks."""
        del floor
        self._forth, self._back, self._weighed = (baseline, candidate), (candidate, baseline), weighed
        self._starts = [BEFORE_ALL]
        self._rows, self._gauc = WindowedSums(_WIDTH), WindowedSums(GAUC_WIDTH + GAUC_OF_ITEMS)
        self._whole = _sums(self._rows.total)  # views
        self._is_capped = False  # whether impressions above the user cap are counted
        self._apart: WindowedSums | None = None  # those above the cap; None: there are none yet
        self._exposed = np.zeros(EXPOSED, np.int64)
        self._made: BlockSums | None = None  # the windows and their results, cached until something is added
        self._clicks: Ints | None = None
        self._found: Statistics | None = None
        self._together: Reals | None = None

    def add(self, segment: int, key: RowName, row: Ints) -> None:
        """See `ComparisonSums`."""
        back = key == self._back
        if not back and key != self._forth:
            return
        self._changed()
        self._gain(segment, row[:_WIDTH], back, self._rows)
        if row.size >= 2 * _WIDTH:
            self._is_capped = True
            apart = row[_WIDTH : 2 * _WIDTH]
            if apart.any():
                if self._apart is None:
                    self._apart = WindowedSums(_WIDTH, self._starts)
                self._gain(segment, apart, back, self._apart)
        if row.size % _WIDTH:
            self._exposed += turned(row[-EXPOSED:]) if back else row[-EXPOSED:]

    @staticmethod
    def _gain(segment: int, row: Ints, back: bool, into: WindowedSums) -> None:
        into.add(segment, oriented(_sums(row)).rows() if back else row)

    def gain_gauc(self, segment: int, key: RowName, row: Ints) -> None:
        """See `ComparisonSums`."""
        some = np.concatenate([row[:GAUC_WIDTH], row[-GAUC_OF_ITEMS:]])  # without metrics of lists
        if key == self._back:
            some = oriented_gauc(gauc_sums(some)).rows()
        elif key != self._forth:
            return
        self._changed()
        self._gauc.add(segment, some)

    def begin(self, segment: int) -> None:
        """See `ComparisonSums`."""
        self._starts.append(segment)
        self._changed()
        for sums in (self._rows, self._gauc, self._apart):
            if sums is not None:
                sums.begin(segment)

    def clicks(self) -> Ints:
        """See `ComparisonSums`."""
        if self._clicks is None:
            self._clicks = paired.clicks(self._windows(), self._weighed)
        return self._clicks

    def judged(self) -> Ints:
        """See `ComparisonSums`."""
        return self.clicks()

    def at_least(self, window: int) -> bool:
        """See `ComparisonSums`: never."""
        return False

    def statistics(self) -> Statistics:
        """See `ComparisonSums`."""
        if self._found is None:
            self._found = paired.statistics(self._windows(), gauc_sums(self._gauc.windows()), self._weighed)
        return self._found

    def correlation(self) -> Reals:
        """See `ComparisonSums`."""
        if self._together is None:
            self._together = joint.correlation(*paired.deviations(self._windows()))
        return self._together

    def capped(self, but: Sequence[str] = ()) -> Capped | None:
        """See `ComparisonSums`. GAUC is known for all impressions only."""
        if not self._is_capped:
            return None
        if self._apart is None:
            return Capped(self.clicks(), self.statistics().without("gauc", *but), self.correlation())
        windows, apart = self._windows(), _sums(self._apart.windows())
        assert windows.items is not None
        assert apart.items is not None
        windows = BlockSums(windows.blocks - apart.blocks, windows.scalars - apart.scalars, windows.items - apart.items)
        correlation = joint.correlation(*paired.deviations(windows))
        statistics = paired.statistics(windows, weighed=self._weighed).without(*but)
        return Capped(paired.clicks(windows, self._weighed), statistics, correlation)

    def impressions(self) -> int:
        """See `ComparisonSums`."""
        return int(self._whole.blocks[:, cells.PAIR_N].sum())

    def totals(self) -> tuple[Ints, Ints]:
        """See `ComparisonSums`."""
        sums = self._whole.blocks.sum(axis=0)
        baseline, candidate = np.zeros(SERIES_CELLS, np.int64), np.zeros(SERIES_CELLS, np.int64)
        server = self._whole.scalars
        for out, p, other in ((baseline, cells.PAIR_P, 0), (candidate, cells.PAIR_P_OTHER, 1)):
            out[cells.N], out[cells.Y], out[cells.P] = sums[cells.PAIR_N], sums[cells.PAIR_Y], sums[p]
            out[cells.L] = sums[cells.PAIR_L] + other * sums[cells.D]
            out[cells.PHI1] = server[cells.SERVER_PHI1] + other * sums[cells.PAIR_PHI1]
            out[cells.PHI0] = server[cells.SERVER_PHI0] + other * sums[cells.PAIR_PHI0]
        return baseline, candidate

    def gauc(self) -> tuple[float | None, float | None]:
        """See `ComparisonSums`."""
        sums = gauc_sums(self._gauc.total)
        weight, wd = sums.blocks.sum(axis=0).tolist()
        own = int(sums.scalars[cells.G_W_SERVER])
        return (own / SCALE / weight, (own + wd) / SCALE / weight) if weight else (None, None)

    def blocks(self) -> int:
        """See `ComparisonSums`."""
        return int((self._whole.blocks[:, cells.PAIR_N] > 0).sum())

    def clustered_by(self) -> str:
        """See `ComparisonSums`."""
        assert self._whole.items is not None
        return shared_by(self._whole.items[:, cells.PAIR_N], int(self._whole.blocks[:, cells.PAIR_N].sum()))

    def strict(self) -> Ints:
        """Returns the scalars of the first window, int64[k]."""
        return self._whole.scalars.copy()

    def whole(self) -> BlockSums:
        """Returns the sums of the first window."""
        return self._whole

    def exposed(self) -> Ints:
        """Returns the first window's sums weighted by inverse propensity, int64[EXPOSED] (see `exposure`)."""
        return self._exposed.copy()

    def _windows(self) -> BlockSums:
        if self._made is None:
            self._made = _sums(self._rows.windows())
        return self._made

    def _changed(self) -> None:
        self._made = self._clicks = self._found = self._together = None


def _sums(rows: Ints) -> BlockSums:
    """Splits rows of the ledger, int64[..., width]; views if there is a single one."""
    parts = rows[..., :_SCALARS], rows[..., _SCALARS:_ITEMS], rows[..., _ITEMS:_WIDTH]
    blocks, scalars, items = map(np.ascontiguousarray, parts)
    by = (*rows.shape[:-1], BLOCKS, PAIR_CELLS)
    return BlockSums(blocks.reshape(by), scalars, items.reshape(by))


def shared_by(by_item: Ints, impressions: int) -> str:
    """Returns "user_and_item" if nearly all impressions have items, else "user"; `by_item`: impressions by block of
    items.
    """
    known = by_item.sum() >= paired.COVERED * impressions and (by_item > 0).sum() >= FEWEST_ITEMS
    return "user_and_item" if impressions and known else "user"

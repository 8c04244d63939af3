"""The sums behind a comparison of versions that serve disjoint users, over the windows of its e-processes (see
`sums`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streameval.compare.evidence import joint, paired, split, unclicked
from streameval.compare.evidence.ratio import Ints, Reals, Statistics
from streameval.compare.evidence.split import StrataSums
from streameval.compare.ledger.placements import ITEMS, SCALARS, WIDTH
from streameval.compare.tracking.sums import RowName, shared_by
from streameval.compare.tracking.windowed_sums import BEFORE_ALL
from streameval.events.batch import Series
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BLOCKS, SCALE, SERIES_CELLS


class SplitSums:
    """Sums of two versions that served disjoint users; segments are the strata."""

    def __init__(self, baseline: Series, candidate: Series, weighed: bool = False, floor: int = 0) -> None:
        """`floor`: clicks below which an arm counts as having hardly any (see `unclicked`); not used for sampled logs,
        whose promised clicks are not known.
        """
        self._arms, self._floor = (baseline, candidate), 0 if weighed else floor
        self._starts: list[int] = [BEFORE_ALL]
        self._rows: dict[int, Ints] = {}  # by segment: int64[2, width of a row of the ledger]
        self._both = set[int]()  # the segments in which both served: those that count
        self._whole = np.zeros((2, WIDTH), np.int64)  # sum of their rows
        # (by user, spread, by item) of each segment, and of the windows; cached until they change
        self._strata: dict[int, tuple[StrataSums, Reals, StrataSums]] = {}
        self._made: tuple[StrataSums, Reals, StrataSums] | None = None
        self._clicks: tuple[Ints, Reals] | None = None

    def add(self, segment: int, key: RowName, row: Ints) -> None:
        """See `ComparisonSums`."""
        if key[1] is not None or key[0] not in self._arms:
            return
        rows = self._rows.setdefault(segment, np.zeros((2, WIDTH), np.int64))
        if segment in self._both:
            self._whole -= rows
        rows[self._arms.index(key[0])] += row[:WIDTH]
        if (rows[:, cells.N : SCALARS : SERIES_CELLS].sum(axis=1) > 0).all():
            self._both.add(segment)
            self._whole += rows
        else:
            self._both.discard(segment)
        self._strata.pop(segment, None)
        self._made = self._clicks = None

    def gain_gauc(self, segment: int, key: RowName, row: Ints) -> None:
        """See `ComparisonSums`: not used, as there are no pairs."""

    def begin(self, segment: int) -> None:
        """See `ComparisonSums`."""
        self._starts.append(segment)
        self._made = self._clicks = None

    def clicks(self) -> Ints:
        """See `ComparisonSums`: of the arm with fewer."""
        return self._of_arms()[0].min(axis=1)[None]

    def judged(self) -> Ints:
        """See `ComparisonSums`: an arm with hardly any of the clicks it promised counts part of the promised ones."""
        return unclicked.judged(*self._of_arms(), self._floor).min(axis=1)[None]

    def at_least(self, window: int) -> bool:
        """See `ComparisonSums`: true where promised clicks have not come."""
        return bool(unclicked.unclicked(*self._of_arms(), self._floor)[window].any())

    def statistics(self) -> Statistics:
        """See `ComparisonSums`."""
        by_user, spreads, by_item = self._windows()
        found = Statistics.of(split.statistics(by_user, spreads, by_item))
        return unclicked.statistics(found, by_user, *self._of_arms(), self._floor)

    def correlation(self) -> Reals:
        """See `ComparisonSums`."""
        return joint.correlation(*split.deviations(self._windows()[0]))

    def capped(self, but: Sequence[str] = ()) -> None:
        """See `ComparisonSums`: None, as only pairs have it."""

    def _of_arms(self) -> tuple[Ints, Reals]:
        """Returns, by window, (clicks int64[J, 2], effective ones if the log is sampled; promised clicks float64[J,
        2]).
        """
        if self._clicks is None:
            some = sorted(self._both)
            since = np.zeros((len(some) + 1, 3, 2), np.int64)  # of a segment and all later ones
            for i, s in enumerate(some):
                rows = self._rows[s]
                since[i, 0] = rows[:, cells.Y : SCALARS : SERIES_CELLS].sum(axis=1)
                since[i, 1] = rows[:, SCALARS + cells.CLICKS_EXCESS]
                since[i, 2] = rows[:, cells.P : SCALARS : SERIES_CELLS].sum(axis=1)
            since = since[::-1].cumsum(axis=0)[::-1]
            came, excess, promised = since[np.searchsorted(some, self._starts)].transpose(1, 0, 2)
            self._clicks = paired.effective(came, excess), promised / SCALE
        return self._clicks

    def _windows(self) -> tuple[StrataSums, Reals, StrataSums]:
        """Returns strata by user, spreads, and strata by item for every window; [1, J, ...]."""
        if self._made is not None:
            return self._made
        some = sorted(self._both)
        for s in some:
            if s not in self._strata:
                users, items = (_arms(self._rows[s], part) for part in (slice(0, SCALARS), slice(ITEMS, None)))
                spread = split.spread(users, self._rows[s][:, SCALARS:ITEMS])
                self._strata[s] = split.strata(*users), spread, split.strata(*items)
        j = len(self._starts)
        totals, devs, spreads = np.zeros((2, j, 2, 8)), np.zeros((2, j, 2, 6, BLOCKS)), np.zeros((j, 2, 5))
        for j, start in enumerate(self._starts):
            for s in some:
                if s >= start:
                    by_user, spread, by_item = self._strata[s]
                    spreads[j] += spread
                    for i, one in enumerate((by_user, by_item)):
                        totals[i, j] += one.totals
                        devs[i, j] += one.devs
        by_user, by_item = (StrataSums(totals[i][None], devs[i][None]) for i in range(2))
        self._made = by_user, spreads[None], by_item
        return self._made

    def impressions(self) -> int:
        """See `ComparisonSums`: of both arms, in the hours in which both served."""
        return int(self.arms()[:, :, cells.N].sum())

    def totals(self) -> tuple[Ints, Ints]:
        """See `ComparisonSums`: over the hours in which both served."""
        baseline, candidate = self.arms().sum(axis=1)
        return baseline, candidate

    def arms(self) -> Ints:
        """Returns the sums of the arms over the hours in which both served, int64[2, G, 8]."""
        return _arms(self._whole, slice(0, SCALARS)).copy()

    def gauc(self) -> tuple[float | None, float | None]:
        """See `ComparisonSums`: only pairs have it."""
        return None, None

    def blocks(self) -> int:
        """See `ComparisonSums`: of the arm with fewer."""
        return int((self._whole[:, cells.N : SCALARS : SERIES_CELLS] > 0).sum(axis=1).min())

    def clustered_by(self) -> str:
        """See `ComparisonSums`."""
        by_item = _arms(self._whole, slice(ITEMS, None))[:, :, cells.N].sum(axis=0)
        return shared_by(by_item, self.impressions())


def _arms(rows: Ints, part: slice) -> Ints:
    """Returns the arms' rows as int64[2, G, 8]."""
    return rows[:, part].reshape(2, BLOCKS, SERIES_CELLS)

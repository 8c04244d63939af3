"""The sums of further metrics over the windows of a comparison: for pairs, and for two arms hour by hour (see
`sums`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from streameval.compare.evidence import means, policy, snips
from streameval.compare.evidence.means import ArmTerms, MeanSums
from streameval.compare.evidence.paired import gauc_statistic, gauc_sums, oriented_gauc
from streameval.compare.evidence.partial import PartialAuc
from streameval.compare.evidence.ratio import Ints, Statistic
from streameval.compare.ledger.list_rows import GAUC_WIDTH, ListMetrics
from streameval.compare.ledger.partial import PAUC
from streameval.compare.ledger.pieces import RowPieces
from streameval.compare.ledger.policy import OWN_POLICY
from streameval.compare.ledger.request_rows import Y_ITEMS, Y_SQUARES, YIELD_CELLS
from streameval.compare.ledger.row_shape import CLICK_YIELD, RowShape
from streameval.compare.ledger.snips import SNIPS
from streameval.compare.ledger.values import V_ITEMS, V_N, V_SQUARES, V_WORTH, VALUE, VALUE_CELLS
from streameval.compare.ledger.wide_sums import reals, squares
from streameval.compare.tracking.windowed_sums import BEFORE_ALL, WindowedSums
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BLOCKS, PAIR_SCALARS, SCALE, SERIES_CELLS

_SCALARS = BLOCKS * SERIES_CELLS
_ITEMS = _SCALARS + PAIR_SCALARS
SideValues = tuple[float | None, float | None]  # of baseline and candidate; None: not known


class FurtherSums(Protocol):
    """The interface to the sums of one metric."""

    def add(self, segment: int, candidate: bool, row: Ints) -> None:
        """Adds a row of the ledger; `candidate`: whether the candidate served it."""
        ...

    def add_window(self, segment: int, candidate: bool, row: Ints) -> None:
        """Adds a row of a window of users' AUC that begins at a segment."""
        ...

    def begin(self, segment: int) -> None:
        """Begins a window at a segment that nothing has been added to yet."""
        ...

    def statistic(self) -> Statistic:
        """Returns the statistic in harm, [1, J]."""
        ...

    def levels(self) -> SideValues:
        """Returns the values of baseline and candidate over the first window."""
        ...

    def reason(self) -> str | None:
        """Returns why the first window has no estimate; None if it has."""
        ...


@dataclass(frozen=True, slots=True)
class ArmRows:
    """Where the means of two arms come from: `pick` selects the k sums of a row that are used; `terms` turns those of
    both arms in an hour, int64[2, k], into the hour's terms. `windows`: rows are of windows, not of hours. `nothing`:
    the reason when neither arm has any rows. `fewest`: effective samples below which there is no verdict.
    """

    pick: Callable[[Ints], Ints]
    terms: Callable[[Ints], ArmTerms]
    windows: bool = False
    nothing: str = "too_few_clicks"
    fewest: float = 0.0


class ArmMeans:
    """sum a / sum w over what each version served; more is better."""

    def __init__(self, rows: ArmRows) -> None:
        self._of = rows
        self._rows: dict[int, Ints] = {}  # int64[2, k] by segment
        self._strata: dict[int, MeanSums | None] = {}  # cached until a segment changes
        self._starts = [BEFORE_ALL]
        self._made: MeanSums | None = None

    def add(self, segment: int, candidate: bool, row: Ints) -> None:
        """See `FurtherSums`."""
        if not self._of.windows:
            self._gain(segment, candidate, row)

    def add_window(self, segment: int, candidate: bool, row: Ints) -> None:
        """See `FurtherSums`."""
        if self._of.windows:
            self._gain(segment, candidate, row)

    def _gain(self, segment: int, candidate: bool, row: Ints) -> None:
        some = self._of.pick(row)
        rows = self._rows.setdefault(segment, np.zeros((2, some.size), np.int64))
        rows[int(candidate)] += some
        self._strata.pop(segment, None)
        self._made = None

    def begin(self, segment: int) -> None:
        """See `FurtherSums`."""
        self._starts.append(segment)
        self._made = None

    def statistic(self) -> Statistic:
        """See `FurtherSums`."""
        sums = self._windows()
        found = -means.relative(sums)
        if self._of.fewest:
            on = means.is_enough(sums, self._of.fewest)
            found = replace(found, blocks=np.where(on, found.blocks, 0.0), df=np.where(on, found.df, 0.0))
        return Statistic(*(getattr(found, name)[None] for name in Statistic.__slots__))

    def levels(self) -> SideValues:
        """See `FurtherSums`: over the hours in which both served, with the weights of the difference."""
        sums = self._windows()
        if not sums.om[0] > 0.0:
            return None, None
        old, new = (sums.means[0] / sums.om[0]).tolist()
        return old, new

    def reason(self) -> str | None:
        """See `FurtherSums`."""
        if not any(rows.any() for rows in self._rows.values()):
            return self._of.nothing
        if not np.isfinite(self.statistic().theta[0, 0]):
            return "too_few_clicks"
        enough = not self._of.fewest or bool(means.is_enough(self._windows(), self._of.fewest)[0])
        return None if enough else "too_few_effective_samples"

    def _windows(self) -> MeanSums:
        if self._made is None:
            for segment, rows in self._rows.items():
                if segment not in self._strata:
                    self._strata[segment] = means.stratum(self._of.terms(rows))
            some = [(s, found) for s in sorted(self._rows) if (found := self._strata[s]) is not None]
            first = np.searchsorted(np.array([s for s, _ in some], np.int64), np.array(self._starts, np.int64))
            self._made = means.windows([found for _, found in some], first, BLOCKS)
        return self._made


class PairPiece(Protocol):
    """How the piece of a pair's row is evaluated; see `evidence.snips`."""

    def turned(self, piece: Ints) -> Ints:
        """Returns the piece with the roles of the two versions swapped."""
        ...

    def statistic(self, piece: Ints) -> Statistic:
        """From int64[..., width]: the statistic in harm, [...]."""
        ...

    def levels(self, piece: Ints) -> SideValues:
        """From int64[width]: the values of baseline and candidate."""
        ...

    def reason(self, piece: Ints) -> str | None:
        """Returns why a piece int64[width] gives no estimate; None if it does."""
        ...


class PairTerms:
    """The piece of a pair's rows, whichever of the two served."""

    def __init__(self, metric: str, pieces: RowPieces, read: PairPiece) -> None:
        self._metric, self._pieces, self._read = metric, pieces, read
        self._sums = WindowedSums(next(piece.width for piece, _ in pieces if piece.metric == metric))
        self._found: Statistic | None = None

    def add(self, segment: int, candidate: bool, row: Ints) -> None:
        """See `FurtherSums`."""
        piece = self._pieces.of(self._metric, row)
        if not piece.any():
            return
        self._sums.add(segment, self._read.turned(piece) if candidate else piece)
        self._found = None

    def add_window(self, segment: int, candidate: bool, row: Ints) -> None:
        """See `FurtherSums`: not used, as pieces are counted by the hour."""

    def begin(self, segment: int) -> None:
        """See `FurtherSums`."""
        self._sums.begin(segment)
        self._found = None

    def statistic(self) -> Statistic:
        """See `FurtherSums`."""
        if self._found is None:
            self._found = self._read.statistic(self._sums.windows())
        return self._found

    def levels(self) -> SideValues:
        """See `FurtherSums`."""
        return self._read.levels(self._sums.total)

    def reason(self) -> str | None:
        """See `FurtherSums`."""
        return self._read.reason(self._sums.total)


class ListTerms:
    """A ranking metric over the lists of a pair; its rows have the form of those of users' AUC."""

    def __init__(self, metric: str, lists: ListMetrics) -> None:
        self._metric, self._lists = metric, lists
        self._sums = WindowedSums(GAUC_WIDTH)
        self._found: Statistic | None = None

    def add(self, segment: int, candidate: bool, row: Ints) -> None:
        """See `FurtherSums`: not used, as lists are counted by window."""

    def add_window(self, segment: int, candidate: bool, row: Ints) -> None:
        """See `FurtherSums`."""
        part = self._lists.of(self._metric, row)
        if not part.any():
            return
        self._sums.add(segment, oriented_gauc(gauc_sums(part)).rows() if candidate else part)
        self._found = None

    def begin(self, segment: int) -> None:
        """See `FurtherSums`."""
        self._sums.begin(segment)
        self._found = None

    def statistic(self) -> Statistic:
        """See `FurtherSums`."""
        if self._found is None:
            self._found = gauc_statistic(gauc_sums(self._sums.windows()))
        return self._found

    def levels(self) -> SideValues:
        """See `FurtherSums`."""
        sums = gauc_sums(self._sums.total)
        lists, d = sums.blocks.sum(axis=0).tolist()
        own = int(sums.scalars[cells.G_W_SERVER])
        return (own / SCALE / lists, (own + d) / SCALE / lists) if lists else (None, None)

    def reason(self) -> str | None:
        """See `FurtherSums`."""
        return None if np.isfinite(self.statistic().theta[0, 0]) else "no_requests"


def _clicks(row: Ints) -> Ints:
    """Selects clicks and impressions, by block of users, then by block of items."""
    sides = [row[at : at + BLOCKS * SERIES_CELLS].reshape(BLOCKS, SERIES_CELLS) for at in (0, _ITEMS)]
    return np.concatenate([side[:, [cells.Y, cells.N]].ravel() for side in sides])


def _ctr(picked: Ints) -> ArmTerms:
    users, items = (part.reshape(2, BLOCKS, 2).astype(np.float64) for part in np.split(picked, 2, axis=1))
    y, n = users.sum(axis=1).T
    return ArmTerms(users, items, np.stack([y, y, n], axis=1))


def _values(picked: Ints) -> ArmTerms:
    """Terms from pieces of `value`."""
    users, items = (picked[:, at : at + V_ITEMS].reshape(2, BLOCKS, VALUE_CELLS) for at in (0, V_ITEMS))
    both = [np.stack([reals(side, V_WORTH), side[..., V_N].astype(np.float64)], axis=-1) for side in (users, items)]
    worth, n = both[0].sum(axis=1).T
    return ArmTerms(both[0], both[1], np.stack([squares(picked, V_SQUARES), worth, n], axis=1))


def _yields(picked: Ints) -> ArmTerms:
    """Terms from rows of requests."""
    users, items = (picked[:, at : at + Y_ITEMS].reshape(2, BLOCKS, YIELD_CELLS) for at in (0, Y_ITEMS))
    clicks, requests = users.sum(axis=1).T
    moments = np.stack([picked[:, Y_SQUARES], clicks, requests], axis=1)
    return ArmTerms(users.astype(np.float64), items / np.array([1.0, SCALE]), moments.astype(np.float64))


def further_sums(metric: str, shape: RowShape) -> FurtherSums:
    """Returns the empty sums of a metric. KeyError if there is no such metric."""
    pieces = shape.pieces
    arms = {
        "ctr": ArmRows(_clicks, _ctr),
        VALUE: ArmRows(partial(pieces.of, VALUE), _values, fewest=snips.FEWEST_EFFECTIVE),
        CLICK_YIELD: ArmRows(np.copy, _yields, windows=True, nothing="no_requests"),
    }
    if metric in arms:
        return ArmMeans(arms[metric])
    if metric in shape.lists.metrics:
        return ListTerms(metric, shape.lists)
    pairs: dict[str, PairPiece] = {SNIPS: snips, OWN_POLICY: policy, PAUC: PartialAuc(*shape.operating_range)}
    return PairTerms(metric, pieces, pairs[metric])

"""Rows of impressions: their columns, and the runs of rows that came in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streameval.columns import csr_lengths, take_features
from streameval.events import Features, Names, Shadow


@dataclass(slots=True)
class Run:
    """The rows of one batch: [start, end), in arrival order."""

    start: int
    end: int
    due_order: NDArray[np.int32] | None  # rows - start, by time; None when they came in order
    features: Features | None
    shadow: Shadow | None
    names: Names | None
    given: int = 0  # how many have matured

    @property
    def whole(self) -> bool:
        """Whether all of it has matured."""
        return self.given == self.end - self.start

    def __lt__(self, other: Run) -> bool:
        return self.start < other.start


@dataclass(slots=True)
class Table:
    """The rows' columns (capacity may exceed what is used)."""

    id: NDArray[np.uint64]
    ts: NDArray[np.int64]
    user: NDArray[np.uint64]
    request: NDArray[np.uint64]
    slices: NDArray[np.int64] | NDArray[np.uint32]
    series: NDArray[np.int32]
    pclick: NDArray[np.float64]
    state: NDArray[np.uint8]
    previous: NDArray[np.int32]  # rows back to the request's previous impression, 0: none
    value: NDArray[np.float64]  # empty unless kept
    score: list[NDArray[np.float64]] = field(default_factory=list)  # by online model; NaN: not scored
    trained: list[NDArray[np.int64]] = field(default_factory=list)  # the model's training watermark at that moment

    def arrays(self) -> list[NDArray[np.generic]]:
        """Every column."""
        return [
            self.id, self.ts, self.user, self.request, self.slices, self.series, self.pclick, self.state,
            self.previous, self.value, *self.score, *self.trained,
        ]  # fmt: skip


def trim(run: Run, start: int) -> None:
    """Cuts the forgotten (hence mature) rows off a run's beginning."""
    cut = start - run.start
    keep = np.arange(cut, run.end - run.start, dtype=np.int64)
    if run.due_order is not None:
        later = run.due_order[run.given :]
        run.due_order = np.concatenate((np.setdiff1d(keep, later).astype(np.int32) - cut, later - cut)).astype(np.int32)
        run.given = run.due_order.size - later.size
    else:
        run.given -= cut
    if run.features is not None:
        run.features = take_features(run.features, keep)
    if run.shadow is not None:
        lengths, flat = csr_lengths(run.shadow.indptr, keep)
        indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        run.shadow = Shadow(indptr, run.shadow.series[flat], run.shadow.pclick[flat])
    if run.names is not None:
        run.names = Names(run.names.impression_id[keep], run.names.user_id[keep], run.names.request_id[keep])
    run.start = start


def joined(runs: Sequence[Run]) -> Run:
    """Neighbouring runs that have wholly matured, as one; their features are not needed any more."""
    shadow: Shadow | None = None
    if any(run.shadow is not None for run in runs):
        parts = [
            run.shadow or Shadow(np.zeros(run.end - run.start + 1, np.int64), np.empty(0, np.int32), np.empty(0))
            for run in runs
        ]
        lengths = np.concatenate([np.diff(part.indptr) for part in parts])
        indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        shadow = Shadow(
            indptr, np.concatenate([part.series for part in parts]), np.concatenate([part.pclick for part in parts])
        )
    names = [run.names for run in runs if run.names is not None]
    together = None
    if len(names) == len(runs):
        together = Names(*(np.concatenate([getattr(part, field) for part in names]) for field in Names.__slots__))
    start, end = runs[0].start, runs[-1].end
    return Run(start, end, None, None, shadow, together, end - start)


def interleave(pieces: list[tuple[NDArray[np.int64], Features]], n: int) -> Features:
    """Features of several runs in the order of the rows that were asked for."""
    position = np.concatenate([where for where, _ in pieces])
    back = np.empty(n, np.int64)
    back[position] = np.arange(n)
    lengths = np.concatenate([np.diff(f.indptr) for _, f in pieces])
    dicts = None
    if pieces[0][1].dicts is not None:
        dicts = tuple(d for _, f in pieces for d in f.dicts or ())
    whole = Features(
        np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))),
        np.concatenate([f.index for _, f in pieces]),
        np.concatenate([f.value for _, f in pieces]),
        dicts,
    )
    return take_features(whole, back)

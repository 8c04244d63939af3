"""Rows of impressions: their columns, and the runs of rows that came in one batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streameval.columns import csr_lengths, take_features
from streameval.events import Features, Names, Shadow

_PENDING_ROWS, _MATURE_ROWS = 8_192, 65_536  # up to which runs are joined


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
    behind: NDArray[np.uint32]  # ms that the impression came behind the newest of its log
    previous: NDArray[np.int32]  # rows back to the request's previous impression, 0: none
    item: NDArray[np.int8]  # the item's block, see `sketches.blocks`
    value: NDArray[np.float64]  # empty unless kept
    score: list[NDArray[np.float64]] = field(default_factory=list)  # by online model; NaN: not scored
    trained: list[NDArray[np.int64]] = field(default_factory=list)  # the model's training watermark at that moment

    def arrays(self) -> list[NDArray[np.generic]]:
        """Every column."""
        return [
            self.id, self.ts, self.user, self.request, self.slices, self.series, self.pclick, self.state,
            self.behind, self.previous, self.item, self.value, *self.score, *self.trained,
        ]  # fmt: skip


def first_due(run: Run) -> int:
    """The row that matures next; the run must not have matured whole."""
    return run.start + (run.given if run.due_order is None else int(run.due_order[run.given]))


def compacted(runs: list[Run], ts: NDArray[np.int64]) -> list[Run]:
    """Neighbours made one where they are small: little batches must not leave a run each for as long as a day.

    Mature runs that hold nothing are left out. Runs that mature just now stay as they are.
    """
    out: list[Run] = []
    for run in runs:
        if out and out[-1].end == run.start and _alike(out[-1], run):
            most = _MATURE_ROWS if run.given else _PENDING_ROWS
            if run.end - out[-1].start <= most:
                out[-1] = _joined(out[-1], run, ts)
                continue
        out.append(run)
    return [run for run in out if not _is_spent(run)]


def _is_spent(run: Run) -> bool:
    mature = run.given == run.end - run.start
    return mature and run.features is None and run.shadow is None and run.names is None


def _alike(a: Run, b: Run) -> bool:
    forms = [(*_forms(r.features), r.names is None) for r in (a, b)]
    mature = [r.given == r.end - r.start for r in (a, b)]
    return forms[0] == forms[1] and (all(mature) or a.given == b.given == 0)


def _forms(features: Features | None) -> tuple[bool, bool, bool]:
    if features is None:
        return True, True, True
    return False, features.dicts is None, features.offset is None


def _joined(a: Run, b: Run, ts: NDArray[np.int64]) -> Run:
    order = None
    if not a.given:
        times = ts[a.start : b.end]
        if not bool((times[1:] >= times[:-1]).all()):
            order = np.argsort(times, kind="stable").astype(np.int32)
    features, shadow, names = None, None, None
    if a.features is not None and b.features is not None:
        dicts = None
        if a.features.dicts is not None and b.features.dicts is not None:
            dicts = a.features.dicts + b.features.dicts
        features = Features(
            _indptr(a.features.indptr, b.features.indptr),
            np.concatenate((a.features.index, b.features.index)),
            np.concatenate((a.features.value, b.features.value)),
            dicts,
            _offsets([a.features, b.features]),
        )
    if a.shadow is not None or b.shadow is not None:
        first, second = _shadow(a), _shadow(b)
        shadow = Shadow(
            _indptr(first.indptr, second.indptr),
            np.concatenate((first.series, second.series)),
            np.concatenate((first.pclick, second.pclick)),
        )
    if a.names is not None and b.names is not None:
        names = Names(
            np.concatenate((a.names.impression_id, b.names.impression_id)),
            np.concatenate((a.names.user_id, b.names.user_id)),
            np.concatenate((a.names.request_id, b.names.request_id)),
        )
    return Run(a.start, b.end, order, features, shadow, names, a.given + b.given)


def _offsets(parts: list[Features]) -> NDArray[np.int64] | None:
    offsets = [f.offset for f in parts if f.offset is not None]
    return np.concatenate(offsets) if len(offsets) == len(parts) else None


def _shadow(run: Run) -> Shadow:
    return run.shadow or Shadow(np.zeros(run.end - run.start + 1, np.int64), np.empty(0, np.int32), np.empty(0))


def _indptr(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate((a, b[1:] + a[-1]))


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
        _offsets([f for _, f in pieces]),
    )
    return take_features(whole, back)

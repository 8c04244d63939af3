"""The runs of the rows of one joiner: which rows mature next, and the content by run: features, shadow scores, policies, names."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Features, Names, Shadow
from streameval.events.codes import Codes
from streameval.events.columns import ScoreList, entries, take_features, take_scores
from streameval.join.rows import Run, compacted, cut, first_due, interleave, trim
from streameval.join.saved_runs import pack_runs, unpack_runs

_MANY_RUNS = 64


class Runs:
    """All runs with live rows, by start, and a heap of them by the time of their next row."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._due: list[tuple[int, Run]] = []
        self._compact_at = _MANY_RUNS

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: Run, ts: NDArray[np.int64]) -> None:
        """Adds a batch's rows, behind all others; `ts`: the table's times."""
        self._runs.append(run)
        heapq.heappush(self._due, (int(ts[first_due(run)]), run))
        if len(self._runs) >= self._compact_at:
            self._runs = compacted(self._runs, ts)
            self._compact_at = 2 * len(self._runs) + _MANY_RUNS
            self._schedule(ts)

    @property
    def all(self) -> Sequence[Run]:
        """Every run, by start."""
        return self._runs

    def put(self, run: Run) -> None:
        """Replaces the content of rows that have all matured."""
        before = [one for one in self._runs if one.start < run.start]
        after = [one for one in self._runs if one.end > run.end]
        if before and before[-1].end > run.start:  # it was merged with a neighbour
            before[-1] = replace(before[-1])  # a copy, since it may also reach beyond `run`
            cut(before[-1], run.start)
        if after and after[0].start < run.end:
            trim(after[0], run.end)
        here = [run] if run.shadow is not None or run.policies is not None else []
        self._runs = [*before, *here, *after]

    def take_due(self, limit: int, ts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows with times up to `limit` that were not returned before, in order of time, then of arrival."""
        parts: list[tuple[int, NDArray[np.int64]]] = []
        while self._due and self._due[0][0] <= limit:
            _, run = heapq.heappop(self._due)
            order = run.due_order
            times = ts[run.start : run.end] if order is None else ts[run.start + order.astype(np.int64)]
            upto = int(np.searchsorted(times, limit, side="right"))
            due = np.arange(run.given, upto) if order is None else order[run.given : upto]
            parts.append((run.start, due.astype(np.int64) + run.start))
            run.given = upto
            if upto < run.end - run.start:
                heapq.heappush(self._due, (int(times[upto]), run))
            else:
                run.due_order = None
        if not parts:
            return np.empty(0, np.int64)
        parts.sort(key=lambda part: part[0])
        rows = np.concatenate([part for _, part in parts])
        return rows if len(parts) == 1 else rows[np.argsort(ts[rows], kind="stable")]

    @property
    def first_waiting(self) -> int | None:
        """A row before which all rows have been returned by `take_due`; None: all have."""
        return min((run.start for _, run in self._due), default=None)

    @property
    def next_due(self) -> int | None:
        """The earliest time, in ms, of a row that `take_due` has not returned yet; None: there is none."""
        return self._due[0][0] if self._due else None

    def forget_before(self, row: int) -> None:
        """Drops the runs that end at or before `row`."""
        gone = 0
        while gone < len(self._runs) and self._runs[gone].end <= row:
            gone += 1
        del self._runs[:gone]

    def move(self, shift: int) -> None:
        """Decreases every row number by `shift`; rows before it are dropped."""
        for run in self._runs:
            if run.start < shift:
                trim(run, shift)
            run.start -= shift
            run.end -= shift

    def drop_features(self) -> None:
        """Frees the features of runs that are wholly mature."""
        for run in self._runs:
            if run.features is not None and run.given == run.end - run.start:
                run.features = None

    # -- reading: rows in any order ------------------------------------------------------------------------------

    def features(self, rows: NDArray[np.int64]) -> list[tuple[slice, Features]]:
        """The features of rows, in their order: pieces of consecutive positions; [] if the events had none."""
        pieces: list[tuple[NDArray[np.int64], Features]] = []
        for run, where, own in self._by_run(rows):
            if run.features is None:
                return []
            pieces.append((where, take_features(run.features, own)))
        if len(pieces) > 1 and any(a[-1] > b[0] for (a, _), (b, _) in pairwise(pieces)):
            return [(slice(0, rows.size), interleave(pieces, rows.size))]
        return [(slice(int(where[0]), int(where[-1]) + 1), features) for where, features in pieces]

    def names(self, rows: NDArray[np.int64]) -> Names | None:
        """The ids of rows as text, if kept."""
        out = Names(*(np.empty(rows.size, object) for _ in range(3)))
        for run, where, own in self._by_run(rows):
            if run.names is None:
                return None
            out.impression_id[where] = run.names.impression_id[own]
            out.user_id[where] = run.names.user_id[own]
            out.request_id[where] = run.names.request_id[own]
        return out

    @property
    def has_shadow(self) -> bool:
        """Whether any row has scores of versions that did not serve it."""
        return any(run.shadow is not None for run in self._runs)

    def shadows(self, rows: NDArray[np.int64]) -> list[tuple[Shadow, NDArray[np.int64], NDArray[np.int64]]]:
        """(shadow scores of a run, which of its rows are requested, their positions in `rows`), for every run that has any."""
        return [(run.shadow, own, at) for run, at, own in self._by_run(rows) if run.shadow is not None]

    def spans(self, rows: NDArray[np.int64]) -> Iterator[tuple[Run, int, int]]:
        """(run, position of its first in `rows`, and of the first after it) for every run with some of the ascending rows."""
        bounds = np.array([(run.start, run.end) for run in self._runs], np.int64).reshape(-1, 2)
        for run, (first, end) in zip(self._runs, np.searchsorted(rows, bounds).tolist(), strict=True):
            if first < end:
                yield run, first, end

    def policies(self, rows: NDArray[np.int64]) -> ScoreList | None:
        """The rows' policies, by position in `rows`, with probabilities in place of scores; None: there are none."""
        found = [(run.policies, own, at) for run, at, own in self._by_run(rows) if run.policies is not None]
        k = sum(entries(policies.indptr, of) for policies, of, _ in found)
        if not k:
            return None
        out = ScoreList(np.empty(k, np.int32), np.empty(k, np.int32), np.empty(k))
        n = 0
        for policies, of, at in found:
            n = take_scores(policies, of, at, out, n)
        order = np.argsort(out.row, kind="stable")  # runs may interleave
        return ScoreList(out.row[order], out.series[order], out.p[order])

    @property
    def has_policies(self) -> bool:
        """Whether any row has policies: the probabilities with which versions would have shown it."""
        return any(run.policies is not None for run in self._runs)

    def shadow_series(self) -> set[int]:
        """The series of all shadow scores and policies."""
        kept = (shadow for run in self._runs for shadow in (run.shadow, run.policies) if shadow is not None)
        return set[int]().union(*(np.unique(shadow.series).tolist() for shadow in kept))

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self, front: int, base: int) -> partial[dict[str, Any]]:
        """Returns a call that makes the state of rows from `front` on, for `restore`, from copies; rows count from `base`."""
        return partial(pack_runs, [replace(run) for run in self._runs if run.end > front], front, base)

    def restore(self, state: Mapping[str, Any], codes: Codes, ts: NDArray[np.int64]) -> None:
        """Restores what `state` returned."""
        self._runs = unpack_runs(state, codes)
        self._schedule(ts)

    # -- internal ------------------------------------------------------------------------------------------------

    def _schedule(self, ts: NDArray[np.int64]) -> None:
        """Rebuilds the heap."""
        self._due = [(int(ts[first_due(run)]), run) for run in self._runs if run.given < run.end - run.start]
        heapq.heapify(self._due)

    def _by_run(self, rows: NDArray[np.int64]) -> Iterator[tuple[Run, NDArray[np.int64], NDArray[np.int64]]]:
        """(run, positions in `rows`, numbers within the run) for every run with some of the rows; mature rows may have no run."""
        if not rows.size or not self._runs:
            return
        if bool((rows[1:] >= rows[:-1]).all()):
            every = np.arange(rows.size)
            for run, first, end in self.spans(rows):
                yield run, every[first:end], rows[first:end] - run.start
            return
        starts = np.array([run.start for run in self._runs], np.int64)
        owner = np.searchsorted(starts, rows, side="right") - 1
        owner[rows >= np.array([run.end for run in self._runs], np.int64)[owner]] = -1
        low, high = int(owner.min()), int(owner.max())
        if low == high >= 0:
            yield self._runs[low], np.arange(rows.size), rows - self._runs[low].start
            return
        low = max(low, 0)
        order = np.argsort(owner, kind="stable")
        bounds = np.searchsorted(owner[order], np.arange(low, high + 2))
        for k in range(low, high + 1):
            where = order[bounds[k - low] : bounds[k - low + 1]]
            if where.size:
                yield self._runs[k], where, rows[where] - self._runs[k].start

"""Ranking metrics averaged by user: sums over every user's lists, for one series, in the run and in every window.

A user's row holds the denominators (numbers of lists, of lists with a click, ...) and the sums of the metrics, in
int64. Means of means do not add up, so the sum over users of their means, and of the squares of these, is updated with
every change of a row: reading is O(1), and any order gives the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.metrics.view import UserMeans
from streameval.sketches.list_cells import Averages

_MERGE_AT = 64  # parts that a pane collects before they are merged
_HALF = 15  # bits; a mean has 30, and its square is summed in three parts
_LOW = (1 << _HALF) - 1
# per metric: the number of users that have a mean, the sum of the means, and the parts of the sum of squares
_USERS, _SUM, _HIGH, _MIDDLE, _SMALL = range(5)
UserRows = tuple[NDArray[np.int32], NDArray[np.int64]]  # slots of users, cells of their rows


@numba.njit(inline="always")
def _mean(total: int, below: int) -> int:
    return int(np.rint(float(total) / float(below)))


@numba.njit(inline="always")
def _count(totals: NDArray[np.int64], j: int, mean: int, sign: int) -> None:
    """Adds the mean of one user to the totals of the j-th metric, or subtracts it."""
    high, low = mean >> _HALF, mean & _LOW
    totals[j, _USERS] += sign
    totals[j, _SUM] += sign * mean
    totals[j, _HIGH] += sign * high * high
    totals[j, _MIDDLE] += sign * high * low
    totals[j, _SMALL] += sign * low * low


@numba.njit(cache=True, nogil=True)
def _apply(
    rows: NDArray[np.int64],
    totals: NDArray[np.int64],
    below: NDArray[np.int64],
    slot: NDArray[np.int32],
    cells: NDArray[np.int64],
    sign: int,
) -> None:
    width = rows.shape[1]
    first, flat = width - below.size, rows.ravel()  # a view: taking a row at a time would cost as much as the sums
    for i in range(slot.size):
        at = np.int64(np.uint32(slot[i])) * width
        for j in range(below.size):
            total, n = cells[i, first + j], cells[i, below[j]]
            if total == 0 and n == 0:
                continue  # half of the lists have no click
            old, before = flat[at + first + j], flat[at + below[j]]
            if before > 0:
                _count(totals, j, _mean(old, before), -1)
            if before + sign * n > 0:
                _count(totals, j, _mean(old + sign * total, before + sign * n), +1)
        for c in range(width):
            flat[at + c] += sign * cells[i, c]


class _Rows:
    """Rows of users, by slot, and the totals of their means."""

    def __init__(self, averages: Averages) -> None:
        self._below = np.array(averages.below, np.int64)
        self.rows = np.zeros((0, averages.cells), np.int64)
        self.totals = np.zeros((len(averages.names), 5), np.int64)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    def apply(self, part: UserRows, sign: int) -> None:
        slot, cells = part
        top = int(slot.max(initial=-1)) + 1
        if top > len(self.rows):
            more = np.zeros((max(top, len(self.rows) * 5 // 4) - len(self.rows), self.rows.shape[1]), np.int64)
            self.rows = np.concatenate((self.rows, more))
        _apply(self.rows, self.totals, self._below, slot, cells, sign)

    def means(self) -> tuple[UserMeans, ...]:
        out = []
        for users, total, high, middle, small in self.totals.tolist():
            out.append(UserMeans(users, total, (high << 2 * _HALF) + (middle << _HALF + 1) + small))
        return tuple(out)


@dataclass(slots=True)
class _Window:
    """The rows of the panes [start, end); `rows` is None until the window is read, and while it contains the entire
    run.
    """

    length: int
    rows: _Rows | None = None
    applied: dict[int, int] = field(default_factory=dict)  # number of parts included, by pane

    def forget(self) -> None:
        self.rows = None
        self.applied.clear()


class ListUsers:
    """One series' users: a log by pane, the run, and the windows."""

    def __init__(self, windows: list[int], averages: Averages) -> None:
        """`windows`: lengths in panes."""
        self._averages = averages
        self._run = _Rows(averages)
        self._windows = [_Window(length) for length in windows]
        self._log: dict[int, list[UserRows]] = {}
        self._log_bytes = 0
        self._first, self._last = 1 << 62, -(1 << 62)  # panes that were ever added to

    @property
    def nbytes(self) -> int:
        """Total size in bytes."""
        windows = sum(w.rows.nbytes for w in self._windows if w.rows is not None)
        return self._run.nbytes + windows + self._log_bytes

    def add(self, parts: Mapping[int, UserRows]) -> None:
        """Adds, by pane, int64[n, cells], signed, to the rows of n users; a user may occur twice."""
        for pane, part in parts.items():
            log = self._log.setdefault(pane, [])
            if len(log) >= _MERGE_AT:
                self._merge(pane)
            log.append(part)
            self._log_bytes += _nbytes(part)
            self._first, self._last = min(self._first, pane), max(self._last, pane)
        slots, cells = zip(*parts.values(), strict=True)
        self._run.apply((np.concatenate(slots), np.concatenate(cells)), +1)

    def means(self, window: int | None, end: int) -> tuple[UserMeans, ...]:
        """Returns the user means by metric, for the run (`window` None) or for a window (index) that ends at pane
        `end`.
        """
        if window is None:
            return self._run.means()
        of = self._windows[window]
        start = end - of.length
        if start <= self._first and self._last < end:
            of.forget()
            return self._run.means()
        if of.rows is None or not any(start <= pane < end for pane in of.applied):
            of.forget()
            of.rows = _Rows(self._averages)
        for pane in [pane for pane in of.applied if not start <= pane < end]:
            for part in self._log[pane][: of.applied.pop(pane)]:
                of.rows.apply(part, -1)
        for pane in [pane for pane in self._log if start <= pane < end]:
            for part in self._log[pane][of.applied.get(pane, 0) :]:
                of.rows.apply(part, +1)
            of.applied[pane] = len(self._log[pane])
        return of.rows.means()

    def rows(self, window: int | None, end: int) -> NDArray[np.int64]:
        """Returns the rows by slot, int64[slots, cells], for the run or a window as in `means`: a view."""
        self.means(window, end)
        found = None if window is None else self._windows[window].rows
        return self._run.rows if found is None else found.rows

    def pane(self, number: int, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the rows of some users in one pane, int64[users, cells]."""
        out = np.zeros((slots.size, self._averages.cells), np.int64)
        for slot, cells in self._log.get(number, []):
            at = np.searchsorted(slots, slot)
            found = (at < slots.size) & (slots[np.minimum(at, slots.size - 1)] == slot) if slots.size else at < 0
            np.add.at(out, at[found], cells[found])
        return out

    def forget_before(self, pane: int) -> None:
        """Drops the log of old panes; the run keeps its rows."""
        for number in [n for n in self._log if n < pane]:
            self._log_bytes -= sum(map(_nbytes, self._log.pop(number)))
        for window in self._windows:
            if any(number < pane for number in window.applied):
                window.forget()

    def keep(self, slots: NDArray[np.int64], renumbered: NDArray[np.int32]) -> None:
        """Drops all users but those of `slots`, whose new slots are in `renumbered` (-1 for the others)."""
        rows = self._run.rows[slots[slots < len(self._run.rows)]]
        self._run = _Rows(self._averages)
        self._run.apply((np.arange(len(rows), dtype=np.int32), rows), +1)
        for window in self._windows:
            window.forget()
        for parts in self._log.values():
            parts[:] = [(new[new >= 0], cells[new >= 0]) for new, cells in ((renumbered[s], c) for s, c in parts)]
        self._log_bytes = sum(_nbytes(part) for parts in self._log.values() for part in parts)

    def state(self) -> dict[str, Any]:
        """Returns everything but the windows, which follow from it; the log is packed when the writer asks for it."""
        return {
            "metrics": list(self._averages.names),
            "run": self._run.rows.copy(),
            "first": self._first,
            "last": self._last,
            "log": partial(_pack, {number: tuple(parts) for number, parts in self._log.items()}, self._averages.cells),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned; slots must denote the same users. Nothing is restored if the metrics
        differ.
        """
        if state["metrics"] != list(self._averages.names) or state["run"].shape[1] != self._averages.cells:
            return
        run = state["run"]
        self._run.apply((np.arange(len(run), dtype=np.int32), run), +1)
        self._first, self._last = min(self._first, state["first"]), max(self._last, state["last"])
        log = state["log"]
        ends = np.cumsum(log["length"])
        for number, start, end in zip(log["pane"].tolist(), ends - log["length"], ends, strict=True):
            part = log["slot"][start:end].copy(), log["cells"][start:end].copy()
            self._log[number] = [part]
            self._log_bytes += _nbytes(part)

    def _merge(self, pane: int) -> None:
        """Merges a pane's parts into one, unless a window includes only some of them."""
        parts = self._log[pane]
        holding = [window for window in self._windows if pane in window.applied]
        if any(window.applied[pane] != len(parts) for window in holding):
            return
        self._log_bytes -= sum(map(_nbytes, parts))
        parts[:] = [_sum(parts)]
        self._log_bytes += _nbytes(parts[0])
        for window in holding:
            window.applied[pane] = 1


def _nbytes(part: UserRows) -> int:
    return part[0].nbytes + part[1].nbytes


def _sum(parts: list[UserRows]) -> UserRows:
    """Returns one row per user, without those that are 0."""
    slot, place = np.unique(np.concatenate([slot for slot, _ in parts]), return_inverse=True)
    cells = np.concatenate([cells for _, cells in parts])
    total = np.zeros((slot.size, cells.shape[1]), np.int64)
    np.add.at(total, place, cells)
    some = total.any(axis=1)
    return slot[some], total[some]


def _pack(log: Mapping[int, tuple[UserRows, ...]], cells: int) -> dict[str, NDArray[Any]]:
    """Returns the log as columns, one part per pane."""
    numbers = sorted(log)
    parts = [_sum(list(log[number])) for number in numbers]
    return {
        "pane": np.array(numbers, np.int64),
        "length": np.array([slot.size for slot, _ in parts], np.int64),
        "slot": np.concatenate([np.empty(0, np.int32), *(slot for slot, _ in parts)]),
        "cells": np.concatenate([np.empty((0, cells), np.int64), *(of for _, of in parts)]),
    }

"""One series' users: a log of rank entries by pane, the ranks of the entire run, and the ranks of every window.

A pane logs its changes as rank entries (user slot, score key, label; 8 bytes per impression), additions and retractions
separately. The run's ranks take the entries in bulk. A window's ranks are moved when they are read, by adding the panes
that enter and retracting those that leave; while a window contains the entire run it has no ranks of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.sketches.ranks import GroupRanks, Weighting
from streameval.sketches.sorted_lists import NO_COPIES, Sorted, by_entry
from streameval.sketches.weightings import NO_WORTHS, pack_worths, unpack_worths

_MERGE_AT = 64  # parts that a pane collects before they are merged
APPLY_AT = 1 << 19  # entries that wait to be added to the entire run's ranks
LOW = np.uint64(0xFFFFFFFF)
_NO_ENTRIES = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class Part:
    """What one call added to one pane of one series."""

    entries: NDArray[np.uint64]
    sign: int
    value_slot: NDArray[np.int32]  # changes of users' values, if they are kept
    value: NDArray[np.int64]  # see `weightings.worths`
    copies: NDArray[np.uint32] | None = None  # of each entry; None: 1

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        copies = 0 if self.copies is None else self.copies.nbytes
        return self.entries.nbytes + self.value_slot.nbytes + self.value.nbytes + copies

    def kept(self, renumbered: NDArray[np.int32]) -> Part:
        """Returns the part without users whose new slot is -1."""
        slot = renumbered[(self.entries >> np.uint64(32)).astype(np.int64)]
        on = slot >= 0
        entry = (slot[on].astype(np.uint64) << np.uint64(32)) | (self.entries[on] & LOW)
        value_slot = renumbered[self.value_slot]
        valued = value_slot >= 0
        copies = None if self.copies is None else self.copies[on]
        return Part(entry, self.sign, value_slot[valued], self.value[valued], copies)

    def counts(self) -> NDArray[np.uint32]:
        """Returns the copies of each entry."""
        return np.ones(self.entries.size, np.uint32) if self.copies is None else self.copies


@dataclass(slots=True)
class _Window:
    """The ranks of the panes [start, end). `ranks` is None while the window contains the entire run."""

    length: int
    ranks: GroupRanks | None = None
    start: int = 0
    end: int = 0
    applied: dict[int, int] = field(default_factory=dict)  # number of parts included, by pane

    def forget(self) -> None:
        self.ranks = None
        self.applied.clear()
        self.start = self.end = 0


class SeriesUsers:
    """The log, the run and the windows of one series."""

    def __init__(
        self, windows: list[int], weighting: Weighting, values: bool = False, with_copies: bool = False
    ) -> None:
        """`windows`: lengths in panes; `values`: whether values of users' clicks are kept; `with_copies`: whether entries
        have copies.
        """
        self._new_ranks = partial(GroupRanks, weighting, values, with_copies)
        self._with_copies = with_copies
        self._run = self._new_ranks()
        self._windows = [_Window(length) for length in windows]
        self._log: dict[int, list[Part]] = {}
        self._log_bytes = 0
        self._waiting: list[Part] = []
        self._waiting_entries = 0
        self._first, self._last = 1 << 62, -(1 << 62)  # panes that were ever added to
        self._forgot = False  # the log no longer covers the entire run

    @property
    def nbytes(self) -> int:
        """Total size in bytes."""
        windows = sum(w.ranks.nbytes for w in self._windows if w.ranks is not None)
        return self._run.nbytes + windows + self._log_bytes

    def add(self, pane: int, part: Part) -> None:
        """Adds the changes of one pane."""
        parts = self._log.setdefault(pane, [])
        if len(parts) >= _MERGE_AT:  # so that small batches do not leave a part each
            self._merge_small(pane)
        parts.append(part)
        self._log_bytes += part.nbytes
        self._first, self._last = min(self._first, pane), max(self._last, pane)
        self._waiting.append(part)
        self._waiting_entries += part.entries.size
        if self._waiting_entries >= APPLY_AT:
            self.run()

    def run(self) -> GroupRanks:
        """Returns the ranks of the entire run."""
        if self._waiting:
            self._apply(self._run, self._waiting, [])
            self._waiting, self._waiting_entries = [], 0
        return self._run

    def window(self, index: int, end: int) -> GroupRanks:
        """Returns the ranks of the window `index` ending at pane `end`."""
        window = self._windows[index]
        start = end - window.length
        if self._is_whole(start, end):
            window.forget()
            return self.run()
        if window.ranks is None or start >= window.end or end <= window.start:
            window.forget()
            window.ranks = self._new_ranks()
            if self._is_most(start, end):  # cheaper to remove the few panes from the run than to add the many
                window.ranks = deepcopy(self.run())
                window.applied = {pane: len(parts) for pane, parts in self._log.items()}
        leaving: list[Part] = []
        entering: list[Part] = []
        for pane in [p for p in window.applied if not start <= p < end]:
            leaving += self._log[pane][: window.applied.pop(pane)]
        for pane in self._panes(start, end):
            entering += self._log[pane][window.applied.get(pane, 0) :]
            window.applied[pane] = len(self._log[pane])
        window.start, window.end = start, end
        if leaving or entering:
            self._apply(window.ranks, entering, leaving)
        return window.ranks

    def pane(self, number: int) -> tuple[GroupRanks, NDArray[np.uint64]]:
        """Returns the ranks of one pane, computed for this call with users renumbered, and the slot of each user."""
        ranks = self._new_ranks()
        parts = self._log.get(number, [])
        added, retracted = self._joined(parts, 1), self._joined(parts, -1)
        ids, add = _renumber(added.entries)
        _, sub = _renumber(retracted.entries, ids)
        slot = np.concatenate([np.empty(0, np.int32), *(p.value_slot for p in parts)])
        value = np.concatenate([NO_WORTHS, *(p.value for p in parts)])
        value_slot = np.searchsorted(ids, slot.astype(np.uint64)).astype(np.int32)
        ranks.apply(add, sub, ids.size, value_slot, value, (added.copies, retracted.copies))
        return ranks, ids

    def parts(self, pane: int) -> tuple[Part, ...]:
        """Returns what was added to a pane, in order."""
        return tuple(self._log.get(pane, ()))

    def forget_before(self, pane: int) -> None:
        """Drops the log of old panes; the run keeps its ranks."""
        for number in [n for n in self._log if n < pane]:
            self._log_bytes -= sum(part.nbytes for part in self._log.pop(number))
            self._forgot = True
        for window in self._windows:
            if window.applied and window.start < pane:
                window.forget()

    def keep(self, slots: NDArray[np.int64], renumbered: NDArray[np.int32]) -> None:
        """Drops all users but those of `slots`, whose new slots are in `renumbered` (-1 for the others)."""
        self.run().keep(slots)
        for window in self._windows:
            window.forget()
        self._log_bytes = 0
        for parts in self._log.values():
            parts[:] = [part.kept(renumbered) for part in parts]
            self._log_bytes += sum(part.nbytes for part in parts)

    def state(self) -> dict[str, Any]:
        """Returns everything but the windows, which follow from it; the log is packed when the writer asks for it."""
        return {
            "run": self.run().state(),
            "first": self._first,
            "last": self._last,
            "forgot": self._forgot,
            "log": partial(_pack, {number: tuple(parts) for number, parts in self._log.items()}, self._with_copies),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned; slots must denote the same users."""
        self._run.restore(state["run"])
        self._first, self._last = min(self._first, state["first"]), max(self._last, state["last"])
        self._forgot = self._forgot or state["forgot"]
        log = state["log"]
        ends, valued = np.cumsum(log["length"]), np.cumsum(log["valued"])
        worth = unpack_worths(log)
        copies = log.get("copies") if self._with_copies else None  # missing if written before there were copies
        for i, (number, sign) in enumerate(zip(log["pane"].tolist(), log["sign"].tolist(), strict=True)):
            some, values = slice(ends[i] - log["length"][i], ends[i]), slice(valued[i] - log["valued"][i], valued[i])
            part = Part(
                log["entries"][some].copy(),
                sign,
                log["value_slot"][values].copy(),
                worth[values].copy(),
                None if copies is None else copies[some].copy(),
            )
            self._log.setdefault(number, []).append(part)
            self._log_bytes += part.nbytes

    # -- inside --------------------------------------------------------------------------------------------------

    def _merge_small(self, pane: int) -> None:
        """Merges a pane's additions into one part and its retractions into another, unless a window includes only some
        of them.
        """
        parts = self._log[pane]
        holding = [window for window in self._windows if pane in window.applied]
        if any(window.applied[pane] != len(parts) for window in holding):
            return
        parts[:] = [_sum([p for p in parts if p.sign == sign], sign) for sign in {p.sign for p in parts}]
        for window in holding:
            window.applied[pane] = len(parts)

    def _is_whole(self, start: int, end: int) -> bool:
        return start <= self._first and self._last < end

    def _is_most(self, start: int, end: int) -> bool:
        inside = sum(p.entries.size for pane in self._panes(start, end) for p in self._log[pane])
        return not self._forgot and 2 * inside > sum(p.entries.size for parts in self._log.values() for p in parts)

    def _panes(self, start: int, end: int) -> list[int]:
        if end - start < len(self._log):
            return [n for n in range(start, end) if n in self._log]
        return sorted(n for n in self._log if start <= n < end)

    def _joined(self, parts: Sequence[Part], sign: int) -> Sorted:
        """Returns the entries of the parts of one sign, sorted, with their copies if they have any."""
        some = [p for p in parts if p.sign == sign]
        entries = np.concatenate([_NO_ENTRIES, *(p.entries for p in some)])
        if not self._with_copies or all(p.copies is None for p in some):
            entries.sort()
            return Sorted(entries, np.ones(entries.size if self._with_copies else 0, np.uint32))
        return by_entry(entries, np.concatenate([NO_COPIES, *(p.counts() for p in some)]))

    def _apply(self, ranks: GroupRanks, entering: list[Part], leaving: list[Part]) -> None:
        turned = [replace(p, sign=-p.sign) for p in leaving]
        add, sub = self._joined([*entering, *turned], 1), self._joined([*entering, *turned], -1)
        slots = int(add.entries[-1] >> np.uint64(32)) + 1 if add.entries.size else 0
        slot = np.concatenate([p.value_slot for p in (*entering, *leaving)])
        value = np.concatenate([*(p.value for p in entering), *(-p.value for p in leaving)])
        ranks.apply(add.entries, sub.entries, slots, slot, value, (add.copies, sub.copies))


def _sum(parts: Sequence[Part], sign: int) -> Part:
    """Merges parts of the same sign into one."""
    slot, value = np.concatenate([p.value_slot for p in parts]), np.concatenate([p.value for p in parts])
    plain = all(p.copies is None for p in parts)
    copies = None if plain else np.concatenate([p.counts() for p in parts])
    return Part(np.concatenate([p.entries for p in parts]), sign, slot, value, copies)


def _pack(log: Mapping[int, Sequence[Part]], with_copies: bool) -> dict[str, NDArray[np.generic]]:
    """Returns the log as columns: one part for what was added to a pane, one for what was retracted."""
    numbers: list[int] = []
    parts: list[Part] = []
    for number in sorted(log):
        for sign in (1, -1):
            some = [p for p in log[number] if p.sign == sign]
            if some:
                numbers.append(number)
                parts.append(_sum(some, sign))
    copies = {"copies": np.concatenate([NO_COPIES, *(p.counts() for p in parts)])} if with_copies else {}
    return {
        "pane": np.array(numbers, np.int64),
        "sign": np.array([p.sign for p in parts], np.int8),
        "length": np.array([p.entries.size for p in parts], np.int64),
        "entries": np.concatenate([_NO_ENTRIES, *(p.entries for p in parts)]),
        "valued": np.array([len(p.value) for p in parts], np.int64),
        "value_slot": np.concatenate([np.empty(0, np.int32), *(p.value_slot for p in parts)]),
        **pack_worths(np.concatenate([NO_WORTHS, *(p.value for p in parts)])),
        **copies,
    }


def _renumber(
    entries: NDArray[np.uint64], ids: NDArray[np.uint64] | None = None
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Replaces the slots of sorted entries by indexes in `ids` (the distinct slots)."""
    slot = entries >> np.uint64(32)
    known = slot[np.diff(slot, prepend=LOW + np.uint64(1)) != 0] if ids is None else ids
    place = np.searchsorted(known, slot).astype(np.uint64)
    return known, (place << np.uint64(32)) | (entries & LOW)

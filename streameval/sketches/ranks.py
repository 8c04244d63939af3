"""Every group's exact AUC, kept up to date: each user's scores of the window, sorted, in 4 bytes an impression.

An entry is slot << 32 | key << 1 | label (`grid.score_key`, so scores closer than 6e-8 relative tie). Entries are
added and retracted in bulk, sorted: one merge per touched user rebuilds its sorted list and counts its concordant
pairs (ties by halves: the count is doubled and stays an integer). So no structure is needed for users with millions of
impressions, and a user not touched costs nothing. The sum over users of w_u AUC_u is kept beside it in integers
(31 fractional bits, each user's term rounded once), so reading GAUC is O(1) and any order gives the same bits.

Not linear: a rank list is not the sum of its parts' rank lists. But adding and retracting entries commute and undo
each other exactly, so a window slides by retracting its oldest pane, and merging is adding the other's entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.accumulate import log_loss
from streameval.sketches.grid import key_score

Weighting = Literal["impressions", "clicks", "uniform", "value"]
_WEIGHTINGS: tuple[Weighting, ...] = ("impressions", "clicks", "uniform", "value")
FRACTION = 31
SCALE = float(1 << FRACTION)
_LABEL_MASK = np.uint64(0xFFFFFFFF)
_NONE = np.int64(0xFFFFFFFF)  # end of a free list
_PART = 1 << 16  # entries merged at a time


def entries(slot: NDArray[np.int32], key: NDArray[np.uint32], label: NDArray[np.int8]) -> NDArray[np.uint64]:
    """Entries of n scored impressions, not sorted."""
    group, score = slot.astype(np.uint64), key.astype(np.uint64)
    return np.bitwise_or(np.bitwise_or(group << np.uint64(32), score << np.uint64(1)), label.astype(np.uint64))


@numba.njit(inline="always")
def concordant_pairs(sorted_entries: NDArray[np.uint32] | NDArray[np.uint64], n: int) -> tuple[int, int]:
    """(twice the concordant pairs, clicks) of n sorted score << 1 | label entries; a tie counts 1 of 2."""
    pairs = np.int64(0)
    below = np.int64(0)  # non-clicks with a smaller key
    clicks = np.int64(0)
    tied = np.int64(0)  # non-clicks with this key; they sort before its clicks
    key = np.int64(-1)
    for i in range(n):
        k = np.int64(sorted_entries[i] >> np.uint32(1))
        if k != key:
            below += tied
            tied = np.int64(0)
            key = k
        if sorted_entries[i] & np.uint32(1):
            pairs += 2 * below + tied
            clicks += 1
        else:
            tied += 1
    return int(pairs), int(clicks)


@numba.njit(inline="always")
def room(size_class: int) -> int:
    """Cells of a block: 2, 3, 4, 6, 8, 12, 16, 24, ... so at most a third stays unused."""
    return (2 + (size_class & 1)) << (size_class >> 1)


@numba.njit(inline="always")
def size_class(size: int) -> int:
    """The smallest class whose block holds `size` entries."""
    c = 0
    while room(c) < size:
        c += 1
    return c


@numba.njit(cache=True, nogil=True)
def _measure(add: NDArray[np.uint64], length: NDArray[np.int32], capacity: NDArray[np.int32]) -> tuple[int, int]:
    """(arena cells that the moves will need, longest list after adding)."""
    need = np.int64(0)
    longest = np.int64(0)
    i = 0
    while i < add.size:
        slot = add[i] >> np.uint64(32)
        j = i
        while j < add.size and add[j] >> np.uint64(32) == slot:
            j += 1
        size = np.int64(length[slot]) + (j - i)
        longest = max(longest, size)
        if size > capacity[slot]:
            need += room(size_class(size))
        i = j
    return int(need), int(longest)


@numba.njit(cache=True, nogil=True)
def _apply(
    add: NDArray[np.uint64],
    sub: NDArray[np.uint64],
    offset: NDArray[np.int64],
    length: NDArray[np.int32],
    capacity: NDArray[np.int32],
    clicks: NDArray[np.int32],
    pairs: NDArray[np.int64],
    weighted_auc: NDArray[np.int64],
    weight: NDArray[np.int64],
    value: NDArray[np.int64],
    weighting: int,
    arena: NDArray[np.uint32],
    used: int,
    merged: NDArray[np.uint32],
    free: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> tuple[int, int]:
    """Adds and retracts sorted entries. Returns (arena cells used, entries not found)."""
    missing = np.int64(0)
    a = 0
    s = 0
    while a < add.size or s < sub.size:
        if s >= sub.size or (a < add.size and add[a] >> np.uint64(32) <= sub[s] >> np.uint64(32)):
            slot = np.int64(add[a] >> np.uint64(32))
        else:
            slot = np.int64(sub[s] >> np.uint64(32))
        # merge the sorted list with the sorted additions, leaving out the sorted retractions
        old = offset[slot]
        end = old + length[slot]
        n = 0
        while True:
            more = a < add.size and np.int64(add[a] >> np.uint64(32)) == slot
            if old < end and (not more or arena[old] <= np.uint32(add[a] & np.uint64(0xFFFFFFFF))):
                entry = arena[old]
                old += 1
            elif more:
                entry = np.uint32(add[a] & np.uint64(0xFFFFFFFF))
                a += 1
            else:
                break
            while (
                s < sub.size
                and np.int64(sub[s] >> np.uint64(32)) == slot
                and np.uint32(sub[s] & np.uint64(0xFFFFFFFF)) < entry
            ):
                missing += 1
                s += 1
            if (
                s < sub.size
                and np.int64(sub[s] >> np.uint64(32)) == slot
                and np.uint32(sub[s] & np.uint64(0xFFFFFFFF)) == entry
            ):
                s += 1
                continue
            merged[n] = entry
            n += 1
        while s < sub.size and np.int64(sub[s] >> np.uint64(32)) == slot:
            missing += 1
            s += 1
        if n > capacity[slot]:
            if capacity[slot]:  # the old block goes to the free list of its class; its first cell links to the next
                c = size_class(capacity[slot])
                arena[offset[slot]] = np.uint32(free[c])
                free[c] = offset[slot]
            c = size_class(n)
            capacity[slot] = room(c)
            if free[c] != _NONE:
                offset[slot] = free[c]
                free[c] = np.int64(arena[free[c]])
            else:
                offset[slot] = used
                used += room(c)
        at = offset[slot]
        for i in range(n):
            arena[at + i] = merged[i]
        was = length[slot]
        was_clicks = clicks[slot]
        pair, click = concordant_pairs(merged, n)
        length[slot] = n
        clicks[slot] = click
        pairs[slot] = pair
        # the group's term of GAUC: rounded once, so that the total does not depend on the order
        old_weight = weight[slot]
        old_auc = weighted_auc[slot]
        w = np.int64(0)
        term = np.int64(0)
        eligible = click > 0 and click < n
        if eligible:
            if weighting == 0:
                w = np.int64(n) << FRACTION
            elif weighting == 1:
                w = np.int64(click) << FRACTION
            elif weighting == 2:
                w = np.int64(1) << FRACTION
            else:
                w = value[slot]
            term = np.int64(np.rint(float(w) * (float(pair) / (2.0 * float(click) * float(n - click)))))
        weight[slot] = w
        weighted_auc[slot] = term
        was_eligible = was_clicks > 0 and was_clicks < was
        totals[0] += (term >> 31) - (old_auc >> 31)
        totals[1] += (term & 0x7FFFFFFF) - (old_auc & 0x7FFFFFFF)
        totals[2] += (w >> 31) - (old_weight >> 31)
        totals[3] += (w & 0x7FFFFFFF) - (old_weight & 0x7FFFFFFF)
        totals[4] += np.int64(eligible) - np.int64(was_eligible)
        totals[5] += (n if eligible else 0) - (was if was_eligible else 0)
        totals[6] += np.int64(n > 0) - np.int64(was > 0)
        totals[7] += n - was
    return used, int(missing)


@numba.njit(cache=True, nogil=True)
def _compact(
    offset: NDArray[np.int64],
    length: NDArray[np.int32],
    capacity: NDArray[np.int32],
    arena: NDArray[np.uint32],
    out: NDArray[np.uint32],
) -> int:
    """Moves every list to the front of `out`, in slot order; returns the cells used."""
    used = 0
    for slot in range(offset.size):
        n = length[slot]
        for i in range(n):
            out[used + i] = arena[offset[slot] + i]
        offset[slot] = used
        capacity[slot] = room(size_class(n)) if n else 0
        used += capacity[slot]
    return used


@numba.njit(cache=True, nogil=True)
def _gather(
    offset: NDArray[np.int64], length: NDArray[np.int32], arena: NDArray[np.uint32], out: NDArray[np.uint32]
) -> None:
    """Every list, one after the other, in slot order."""
    k = 0
    for slot in range(offset.size):
        for i in range(offset[slot], offset[slot] + length[slot]):
            out[k] = arena[i]
            k += 1


@numba.njit(cache=True, nogil=True)
def _sums(
    offset: NDArray[np.int64],
    length: NDArray[np.int32],
    arena: NDArray[np.uint32],
    predicted: NDArray[np.float64],
    loss: NDArray[np.float64],
) -> None:
    """Sums of pClick and of log loss by slot; in sorted order, so always rounded alike."""
    for slot in range(offset.size):
        for i in range(offset[slot], offset[slot] + length[slot]):
            p = key_score(np.int64(arena[i] >> np.uint32(1)))
            predicted[slot] += p
            loss[slot] += log_loss(p, np.int64(arena[i] & np.uint32(1)))


SQUARE_SCALE = 256.0  # units of `GroupRanks.squares`: integers, so that they add up in any order
_MOST_SQUARE = float(1 << 50)


@numba.njit(inline="always")
def _fixed_square(x: float) -> int:
    return int(np.rint(min(x * SQUARE_SCALE, _MOST_SQUARE)))


@numba.njit(cache=True, nogil=True)
def _squares(weighted_auc: NDArray[np.int64], weight: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    for i in range(weight.size):
        if weight[i] > 0:
            w = weight[i] / SCALE
            wa = weighted_auc[i] / SCALE
            out[0] += _fixed_square(wa * wa)
            out[1] += _fixed_square(w * wa)
            out[2] += _fixed_square(w * w)


class GroupRanks:
    """The sorted scores of every group (user) of one series in one window, and the GAUC over them.

    Memory: 44 bytes a group and 4 to 6 bytes an impression.
    """

    def __init__(self, weighting: Weighting = "impressions") -> None:
        self._weighting = _WEIGHTINGS.index(weighting)
        self._offset = np.zeros(0, np.int64)
        self._length = np.zeros(0, np.int32)
        self._capacity = np.zeros(0, np.int32)
        self._clicks = np.zeros(0, np.int32)
        self._pairs = np.zeros(0, np.int64)
        self._weighted_auc = np.zeros(0, np.int64)
        self._weight = np.zeros(0, np.int64)
        self._value = np.zeros(0, np.int64)
        self._arena = np.empty(0, np.uint32)
        self._used = 0
        self._free = np.full(64, _NONE, np.int64)
        self._totals = np.zeros(8, np.int64)

    def apply(
        self,
        add: NDArray[np.uint64],
        sub: NDArray[np.uint64],
        slots: int,
        value_slot: NDArray[np.int32] | None = None,
        value: NDArray[np.int64] | None = None,
    ) -> None:
        """Adds the entries `add` and retracts `sub` (both sorted ascending); `slots` is how many slots there are.

        `value_slot`, `value`: changes of users' summed value in units of 2**-31, for weighting "value"; every slot
        named there must also have an entry in `add` or `sub`. Raises KeyError if an entry to retract is not there.
        """
        self._reserve_slots(slots)
        if value_slot is not None and value is not None and _WEIGHTINGS[self._weighting] == "value":
            np.add.at(self._value, value_slot, value)
        a = s = 0
        missing = 0
        while a < add.size or s < sub.size:  # in parts, so that little room must be set aside for the worst case
            a_end = _group_end(add, a + _PART)
            last = add[a_end - 1] >> np.uint64(32) if a_end < add.size else _LABEL_MASK
            s_end = (
                int(np.searchsorted(sub, (last + np.uint64(1)) << np.uint64(32))) if last < _LABEL_MASK else sub.size
            )
            missing += self._apply_part(add[a:a_end], sub[s:s_end])
            a, s = a_end, s_end
        if missing:
            raise KeyError(f"{missing} entries to retract were never added")

    def _apply_part(self, add: NDArray[np.uint64], sub: NDArray[np.uint64]) -> int:
        need, longest = _measure(add, self._length, self._capacity)
        if sub.size:
            longest = max(longest, int(self._length[(sub >> np.uint64(32)).astype(np.int64)].max()))
        self._reserve_arena(need)
        self._used, missing = _apply(
            add, sub, self._offset, self._length, self._capacity, self._clicks, self._pairs, self._weighted_auc,
            self._weight, self._value, self._weighting, self._arena, self._used,
            np.empty(longest + 1, np.uint32), self._free, self._totals,
        )  # fmt: skip
        return int(missing)

    @property
    def gauc(self) -> float | None:
        """sum w_u AUC_u / sum w_u over groups with both labels; None when there is none (or they weigh 0)."""
        t = self._totals.tolist()
        weight = (t[2] << 31) + t[3]
        return ((t[0] << 31) + t[1]) / weight if weight else None

    def terms(self) -> tuple[int, int]:
        """(sum w_u AUC_u, sum w_u) in units of 2**-31: what adds up over disjoint groups of users (partitions)."""
        t = self._totals.tolist()
        return (t[0] << 31) + t[1], (t[2] << 31) + t[3]

    @property
    def eligible(self) -> int:
        """Groups with both labels."""
        return int(self._totals[4])

    @property
    def eligible_impressions(self) -> int:
        """Impressions of the groups with both labels."""
        return int(self._totals[5])

    @property
    def groups(self) -> int:
        """Groups with at least one impression."""
        return int(self._totals[6])

    @property
    def impressions(self) -> int:
        """Impressions of all groups."""
        return int(self._totals[7])

    def squares(self) -> tuple[int, int, int]:
        """Sums over eligible groups of (w AUC)^2, w * w AUC and w^2, in units of 1 / `SQUARE_SCALE`."""
        out = np.zeros(3, np.int64)
        _squares(self._weighted_auc, self._weight, out)
        both, one, plain = out.tolist()
        return both, one, plain

    def group_terms(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(w_u AUC_u, w_u) of the eligible groups, for standard errors."""
        on = self._weight > 0
        return self._weighted_auc[on] / SCALE, self._weight[on] / SCALE

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """Copies by slot: impressions, clicks, pairs, predicted_clicks, log_loss_nats.

        The last two are summed now, from the keys: a score counts as the middle of its key (within 3e-8 of it).
        """
        predicted, loss = np.zeros(self._length.size), np.zeros(self._length.size)
        _sums(self._offset, self._length, self._arena, predicted, loss)
        return {
            "impressions": self._length.astype(np.int64),
            "clicks": self._clicks.astype(np.int64),
            "pairs": self._pairs.copy(),
            "predicted_clicks": predicted,
            "log_loss_nats": loss,
        }

    def keep(self, slots: NDArray[np.int64]) -> None:
        """Forgets every group but `slots`, which are renumbered 0, 1, 2, ... in this order."""
        names = ("_offset", "_length", "_capacity", "_clicks", "_pairs", "_weighted_auc", "_weight", "_value")
        slots = slots[slots < self._length.size]
        for name in names:
            if len(getattr(self, name)):  # values are kept only when they are needed
                setattr(self, name, getattr(self, name)[slots])
        self._compact()
        eligible = (self._clicks > 0) & (self._clicks < self._length)
        self._totals[:] = (
            (self._weighted_auc >> 31).sum(), (self._weighted_auc & 0x7FFFFFFF).sum(), (self._weight >> 31).sum(),
            (self._weight & 0x7FFFFFFF).sum(), eligible.sum(), self._length[eligible].sum(),
            (self._length > 0).sum(), self._length.sum(),
        )  # fmt: skip

    def clear(self) -> None:
        """Forgets everything but the memory."""
        for name in ("_length", "_clicks", "_pairs", "_weighted_auc", "_weight", "_value", "_totals"):
            getattr(self, name)[:] = 0

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Copies of what `restore` needs: every slot's length and value, and all lists in slot order."""
        lists = np.empty(int(self._length.sum()), np.uint32)
        _gather(self._offset, self._length, self._arena, lists)
        return {"length": self._length.copy(), "lists": lists, "value": self._value.copy()}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Adds everything that `state` gave to these ranks (into empty ones: makes them equal)."""
        length = np.asarray(state["length"], np.int64)
        slot = np.repeat(np.arange(length.size, dtype=np.uint64), length)
        entries = (slot << np.uint64(32)) | np.asarray(state["lists"], np.uint32)
        value = np.asarray(state["value"], np.int64)
        valued = np.flatnonzero(value).astype(np.int32)
        self.apply(entries, np.empty(0, np.uint64), length.size, valued, value[valued])

    def snapshot(self, slot: int) -> NDArray[np.uint32]:
        """The sorted key << 1 | label entries of one group; a copy."""
        at = self._offset[slot]
        return self._arena[at : at + self._length[slot]].copy()

    @property
    def nbytes(self) -> int:
        """Bytes of the tables; room never touched takes none."""
        arrays = (
            self._offset, self._length, self._capacity, self._clicks, self._pairs, self._weighted_auc, self._weight,
            self._value,
        )  # fmt: skip
        return sum(a.nbytes for a in arrays) + 4 * self._used

    def _reserve_slots(self, slots: int) -> None:
        have = self._length.size
        if slots <= have:
            return
        more = max(slots, have + have // 4) - have
        for name in ("_offset", "_length", "_capacity", "_clicks", "_pairs", "_weighted_auc", "_weight"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate((column, np.zeros(more, column.dtype))))
        if self._weighting == 3:
            self._value = np.concatenate((self._value, np.zeros(more, np.int64)))

    def _reserve_arena(self, need: int) -> None:
        if self._used + need > self._arena.size:
            size = max(self._used + need, 2 * self._used)  # room never touched takes no memory
            if self._used + need >= 1 << 32:
                raise MemoryError("4 billion scores in one rank table; lower users.memory")
            arena = np.empty(min(size, 1 << 32), np.uint32)
            arena[: self._used] = self._arena[: self._used]
            self._arena = arena

    def _compact(self) -> None:
        """Gives memory back after groups were forgotten."""
        out = np.empty(int(self._length.sum()) * 3 // 2 + self._length.size * 2, np.uint32)
        self._used = _compact(self._offset, self._length, self._capacity, self._arena, out)
        self._arena = out[: self._used].copy()
        self._free[:] = _NONE


def _group_end(sorted_entries: NDArray[np.uint64], at: int) -> int:
    """The first index from `at` on where a new group begins."""
    if at >= sorted_entries.size:
        return sorted_entries.size
    slot = sorted_entries[at - 1] >> np.uint64(32)
    return int(np.searchsorted(sorted_entries, (slot + np.uint64(1)) << np.uint64(32)))

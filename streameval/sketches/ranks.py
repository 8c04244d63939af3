"""Every group's exact AUC, kept up to date: each user's scores in the window, sorted, at 4 bytes per impression.

An entry is slot << 32 | key << 1 | label (`grid.score_key`, so scores closer than 6e-8 relative tie). Entries are
added and retracted in bulk, sorted: one merge per touched user updates the user's sorted list (`sorted_lists`) and the count of its
concordant pairs (a tie is half a pair: the count is doubled and stays an integer). So users with millions of impressions need no
special structure, and users that are not touched cost nothing. Additions alone only count their own pairs; retractions, and entries
with copies, count the list anew. The sum over users of w_u AUC_u is maintained in integers
(31 fractional bits, each user's term rounded once), so reading GAUC is O(1) and any order gives the same bits.

A rank list is not linear: it is not the sum of its parts' lists. But adding and retracting entries commute and are exact
inverses, so a window slides by retracting its oldest pane, and two lists are merged by adding the entries of one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches import sorted_lists
from streameval.sketches.accumulate import log_loss
from streameval.sketches.blocks import BLOCKS, blocks_of
from streameval.sketches.concordance import concordant_pairs, weighted_pairs
from streameval.sketches.grid import key_score
from streameval.sketches.group_terms import (
    AUC_HIGH,
    AUC_LOW,
    BY_VALUE,
    ELIGIBLE,
    ELIGIBLE_IMPRESSIONS,
    GROUPS_SEEN,
    IMPRESSIONS_OF_ALL,
    WEIGHT_HIGH,
    WEIGHT_LOW,
    GroupTerms,
    count_group,
    weight_of_group,
)
from streameval.sketches.sorted_lists import ENTRY, NO_COPIES, NONE, SLOT, Changes, Lists
from streameval.sketches.weightings import (
    TERM_BITS,
    Weighted,
    in_limbs,
    of_each,
    pack_worths,
    rounded,
    unpack_worths,
    weighted_squares,
)

Weighting = Literal["impressions", "clicks", "uniform", "value"]
_WEIGHTINGS: tuple[Weighting, ...] = ("impressions", "clicks", "uniform", "value")  # in the order of `group_terms`
_PART = 1 << 16  # entries merged at a time
_MOST_PAIRS = 2.0**62  # of a group; a larger number is reported as this


@numba.njit(cache=True, nogil=True)
def _apply(
    lists: Lists,
    terms: GroupTerms,
    totals: NDArray[np.int64],
    weighting: int,
    changes: Changes,
    used: int,
    merged: NDArray[np.uint32],
    many: NDArray[np.uint32],
) -> tuple[int, int]:
    """Adds and retracts sorted entries. Returns (arena cells used, entries not found).

    `merged` has room for the longest list, `many` for its copies. A group's terms are rounded once, from the whole list, so totals
    do not depend on order.
    """
    add, sub, _, _ = changes
    with_copies = lists.copies.size > 0
    missing = np.int64(0)
    a = 0
    s = 0
    while a < add.size or s < sub.size:
        if s >= sub.size or (a < add.size and add[a] >> SLOT <= sub[s] >> SLOT):
            slot = np.int64(add[a] >> SLOT)
        else:
            slot = np.int64(sub[s] >> SLOT)
        count_group(terms, slot, lists.length[slot], totals, -1)
        if with_copies or (s < sub.size and np.int64(sub[s] >> SLOT) == slot):
            n, a, s, lost = sorted_lists.merge(lists, slot, changes, a, s, merged, many)
            missing += lost
            used = sorted_lists.store(lists, slot, merged, many, n, used)
            if with_copies:
                twice, clicks, total, of_clicks = weighted_pairs(merged, many, n)
                terms.many[slot] = total
                terms.many_clicks[slot] = of_clicks
                pairs = np.int64(min(twice, _MOST_PAIRS))
            else:
                pairs, clicks = concordant_pairs(merged, n)
        else:  # only additions, as nearly always
            first = a
            while a < add.size and np.int64(add[a] >> SLOT) == slot:
                a += 1
            pairs, clicks = terms.pairs[slot], np.int64(terms.clicks[slot])
            used, new_pairs, new_clicks = sorted_lists.extend(lists, slot, clicks, add, first, a, used)
            pairs, clicks, n = pairs + new_pairs, clicks + new_clicks, np.int64(lists.length[slot])
        if not with_copies:
            twice, total, of_clicks = float(pairs), n, clicks
        terms.pairs[slot] = pairs
        terms.clicks[slot] = clicks
        terms.weight[slot] = 0.0
        terms.weighted_auc[slot] = 0.0
        if 0 < clicks < n:
            weight = weight_of_group(terms, slot, weighting, total)
            auc = twice / (2.0 * float(of_clicks) * float(total - of_clicks))
            terms.weight[slot] = weight
            terms.weighted_auc[slot] = rounded(weight * auc)
        count_group(terms, slot, n, totals, +1)
    return used, int(missing)


@numba.njit(cache=True, nogil=True)
def _sums(lists: Lists, predicted: NDArray[np.float64], loss: NDArray[np.float64]) -> None:
    """Sums of pClick and of log loss by slot; in sorted order, so that rounding is reproducible."""
    for slot in range(lists.offset.size):
        for i in range(lists.offset[slot], lists.offset[slot] + lists.length[slot]):
            p = key_score(np.int64(lists.arena[i] >> np.uint32(1)))
            many = float(lists.copies[i]) if lists.copies.size else 1.0
            predicted[slot] += many * p
            loss[slot] += many * log_loss(p, np.int64(lists.arena[i] & np.uint32(1)))


class GroupRanks:
    """The sorted scores of every group (user) of one series in one window, and the GAUC over them.

    Memory: 40 bytes a group (56 with values) and 5 to 7 bytes an impression; twice that with copies, and 16 bytes a group.
    """

    def __init__(self, weighting: Weighting = "impressions", values: bool = False, with_copies: bool = False) -> None:
        """`values`: keeps the values of groups' clicks, as weighting "value" always does. `with_copies`: entries have copies."""
        self._weighting = _WEIGHTINGS.index(weighting)
        self._values = values or weighting == "value"
        whole, half, real = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0)
        self._with_copies = with_copies
        arena, copies = np.empty(0, np.uint32), np.empty(int(with_copies), np.uint32)  # of length 0: no copies are kept
        self._lists = Lists(np.zeros(0, np.uint32), half, half, np.full(64, NONE, np.int64), arena, copies)
        self._terms = GroupTerms(half, whole, real, real, np.zeros((0, 2), np.int64), whole, whole)
        self._used = 0  # cells of the arena in use
        self._totals = np.zeros(8, np.int64)
        # made when they are read, and kept until groups change: a window is read far more often than it moves
        self._squares: tuple[int, int, int] | None = None
        self._of_each: tuple[Weighted, Weighted, Weighted | None] | None = None

    def apply(
        self,
        add: NDArray[np.uint64],
        sub: NDArray[np.uint64],
        slots: int,
        value_slot: NDArray[np.int32] | None = None,
        value: NDArray[np.int64] | None = None,
        copies: tuple[NDArray[np.uint32], NDArray[np.uint32]] = (NO_COPIES, NO_COPIES),
    ) -> None:
        """Adds the entries `add` and retracts `sub` (both sorted ascending); `slots` is the number of slots.

        `value_slot`, `value`: changes of users' summed `weightings.worths`, if values are kept; every slot named there must
        also have an entry in `add` or `sub`. `copies`: of the entries of each, if copies are kept (see `Sorted`). Raises
        KeyError if an entry to retract is not present.
        """
        self._forget()
        self._reserve_slots(slots)
        if value_slot is not None and value is not None and self._values:
            np.add.at(self._terms.value, value_slot, value)
        a = s = 0
        missing = 0
        while a < add.size or s < sub.size:  # in parts, so that little room must be reserved for the worst case
            a_end = sorted_lists.group_end(add, a + _PART)
            last = add[a_end - 1] >> SLOT if a_end < add.size else ENTRY
            s_end = int(np.searchsorted(sub, (last + np.uint64(1)) << SLOT)) if last < ENTRY else sub.size
            some = Changes(add[a:a_end], sub[s:s_end], copies[0][a:a_end], copies[1][s:s_end])
            missing += self._apply_part(some)
            a, s = a_end, s_end
        if missing:
            raise KeyError(f"{missing} entries to retract were never added")

    def _apply_part(self, changes: Changes) -> int:
        need, longest = sorted_lists.measure(self._lists, changes.add)
        if self._used + need > self._lists.arena.size:
            sorted_lists.fit(self._lists)
            need, _ = sorted_lists.measure(self._lists, changes.add)
            self._compact(need)
        if changes.sub.size:
            longest = max(longest, int(self._lists.length[(changes.sub >> SLOT).astype(np.int64)].max()))
        merged = np.empty(longest + 1, np.uint32)
        many = np.empty_like(merged) if self._with_copies else NO_COPIES
        self._used, missing = _apply(
            self._lists, self._terms, self._totals, self._weighting, changes, self._used, merged, many
        )
        return int(missing)

    def _total(self, high: int, low: int) -> int:
        return (int(self._totals[high]) << TERM_BITS) + int(self._totals[low])

    @property
    def gauc(self) -> float | None:
        """sum w_u AUC_u / sum w_u over groups with both labels; None if there are none (or their weight is 0)."""
        weighted_auc, weight = self.terms()
        return weighted_auc / weight if weight else None

    def terms(self) -> tuple[int, int]:
        """(sum w_u AUC_u, sum w_u) in units of 2**-31; additive over disjoint groups of users (partitions)."""
        return self._total(AUC_HIGH, AUC_LOW), self._total(WEIGHT_HIGH, WEIGHT_LOW)

    @property
    def eligible(self) -> int:
        """Groups with both labels."""
        return int(self._totals[ELIGIBLE])

    @property
    def eligible_impressions(self) -> int:
        """Impressions of the groups with both labels."""
        return int(self._totals[ELIGIBLE_IMPRESSIONS])

    @property
    def groups(self) -> int:
        """Groups with at least one impression."""
        return int(self._totals[GROUPS_SEEN])

    @property
    def impressions(self) -> int:
        """Impressions of all groups."""
        return int(self._totals[IMPRESSIONS_OF_ALL])

    def squares(self) -> tuple[int, int, int]:
        """Sums over eligible groups of (w AUC)^2, w * w AUC and w^2, in units of 1 / `SQUARE_SCALE`."""
        if self._squares is None:
            terms = self._terms
            self._squares = weighted_squares(terms.weighted_auc, terms.weight, self._weighting == BY_VALUE)
        return self._squares

    def of_each(self) -> tuple[Weighted, Weighted, Weighted | None]:
        """The sums of every other weighting, see `weightings.of_each`: one pass over the groups."""
        if self._of_each is None:
            terms, value = self._terms, self._terms.value if self._values else None
            if self._with_copies:
                self._of_each = of_each(terms.many, terms.many_clicks, terms.pairs, value)
            else:
                self._of_each = of_each(self._lists.length, terms.clicks, terms.pairs, value)
        return self._of_each

    def by_block(
        self, ids: NDArray[np.uint64], halvings: int, less: NDArray[np.int64] | None = None
    ) -> tuple[int, ...]:
        """Groups with impressions by block of users, times 2**`halvings`; `ids`: the users by slot.

        `less`: impressions of the first slots to subtract.
        """
        length = self._lists.length.astype(np.int64)
        if less is not None:
            some = min(length.size, less.size)
            length[:some] -= less[:some]
        there = np.flatnonzero(length > 0)
        return tuple((np.bincount(blocks_of(ids[there]), minlength=BLOCKS) << halvings).tolist())

    def group_terms(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(w_u AUC_u, w_u) of the eligible groups, for standard errors."""
        on = self._terms.weight > 0
        return self._terms.weighted_auc[on], self._terms.weight[on]

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """Copies by slot: impressions, clicks, pairs, predicted_clicks, log_loss_nats.

        The last two are computed now, from the keys: a score counts as the middle of its key (within 3e-8).
        """
        predicted, loss = np.zeros(self._lists.length.size), np.zeros(self._lists.length.size)
        _sums(self._lists, predicted, loss)
        terms = self._terms
        return {
            "impressions": (terms.many if self._with_copies else self._lists.length).astype(np.int64),
            "clicks": (terms.many_clicks if self._with_copies else terms.clicks).astype(np.int64),
            "pairs": self._terms.pairs.copy(),
            "predicted_clicks": predicted,
            "log_loss_nats": loss,
        }

    def keep(self, slots: NDArray[np.int64]) -> None:
        """Drops every group but `slots`, which are renumbered 0, 1, 2, ... in this order."""
        self._forget()
        slots = slots[slots < self._lists.length.size]
        self._change(lambda column: column[slots])
        sorted_lists.fit(self._lists)
        self._compact(0)
        length, terms, totals = self._lists.length, self._terms, self._totals
        eligible = (terms.clicks > 0) & (terms.clicks < length)
        for at, term in ((AUC_HIGH, terms.weighted_auc), (WEIGHT_HIGH, terms.weight)):
            totals[at : at + 2] = in_limbs(term).sum(axis=0)
        totals[ELIGIBLE] = eligible.sum()
        many = terms.many if self._with_copies else length
        totals[ELIGIBLE_IMPRESSIONS] = many[eligible].sum()
        totals[GROUPS_SEEN] = (length > 0).sum()
        totals[IMPRESSIONS_OF_ALL] = many.sum()

    def clear(self) -> None:
        """Drops all groups, but keeps the memory for later ones."""
        self._forget()
        for column in (self._lists.length, *self._terms, self._totals):
            column[:] = 0

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Copies of what `restore` needs: every slot's length and value, and all lists in slot order."""
        own = self._lists
        lists = np.empty(int(own.length.sum()), np.uint32)
        sorted_lists.gather(own, own.arena, lists)
        state: dict[str, NDArray[Any]] = {
            "length": own.length.copy(),
            "lists": lists,
            **pack_worths(self._terms.value),
        }
        if self._with_copies:
            copies = np.empty_like(lists)
            sorted_lists.gather(own, own.copies, copies)
            state["copies"] = copies
        return state

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Adds everything that `state` returned to these ranks (if they are empty, they become equal to the saved ones)."""
        length = np.asarray(state["length"], np.int64)
        slot = np.repeat(np.arange(length.size, dtype=np.uint64), length)
        entries = (slot << SLOT) | np.asarray(state["lists"], np.uint32)
        value = unpack_worths(state)
        valued = np.flatnonzero(value.any(axis=1)).astype(np.int32)
        copies = NO_COPIES
        if self._with_copies:  # a checkpoint without copies: 1 each
            copies = np.asarray(state.get("copies", np.ones(entries.size)), np.uint32)
        self.apply(entries, np.empty(0, np.uint64), length.size, valued, value[valued], (copies, NO_COPIES))

    def snapshot(self, slot: int) -> NDArray[np.uint32]:
        """The sorted key << 1 | label entries of one group; a copy."""
        at = self._lists.offset[slot]
        return self._lists.arena[at : at + self._lists.length[slot]].copy()

    @property
    def nbytes(self) -> int:
        """Bytes of the tables; pages never written to take none."""
        lists = self._lists
        by_slot = (lists.offset, lists.length, lists.capacity, *self._terms)
        cell = lists.arena.itemsize * (2 if self._with_copies else 1)
        return sum(column.nbytes for column in by_slot) + cell * self._used

    def _forget(self) -> None:
        self._squares = self._of_each = None

    def _reserve_slots(self, slots: int) -> None:
        have = self._lists.length.size
        if slots <= have:
            return
        more = max(slots, have + have // 4) - have

        def longer(column: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate((column, np.zeros((more, *column.shape[1:]), column.dtype)))

        self._change(longer)

    def _change(self, column: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
        """Resizes every column by slot."""
        lists, terms = self._lists, self._terms
        self._lists = lists._replace(
            offset=column(lists.offset), length=column(lists.length), capacity=column(lists.capacity)
        )
        self._terms = GroupTerms(
            column(terms.clicks),
            column(terms.pairs),
            column(terms.weighted_auc),
            column(terms.weight),
            column(terms.value) if self._values else terms.value,
            column(terms.many) if self._with_copies else terms.many,
            column(terms.many_clicks) if self._with_copies else terms.many_clicks,
        )

    def _compact(self, need: int) -> None:
        """Moves all blocks together, in an arena with room for `need` more cells and three eighths more.

        What lists that grew have left behind is gone then: were the arena extended, it would be twice what the lists take.
        """
        lists = self._lists
        used = int(lists.capacity.sum()) + need
        if used >= 1 << 32:
            raise MemoryError("4 billion scores in one rank table; lower users.memory")
        size = min(used + 3 * used // 8, 1 << 32)  # pages never written to take no memory
        out = np.empty(size, np.uint32)
        many = np.empty(max(size, 1) if self._with_copies else 0, np.uint32)
        self._used = sorted_lists.compact(lists, out, many)
        self._lists = lists._replace(arena=out, copies=many)

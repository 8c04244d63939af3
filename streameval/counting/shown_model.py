"""Propensities by user and item: a logistic regression with an item's and a user's bias, fitted at the start of every
hour.

It is fitted to the impressions shown in the 24 hours before, and to the candidates that were not shown with them:
labels that matured on time, and candidates that came on time. Up to `_MOST` of them, 25 bytes each, are used in an
hour, and in a fit; beyond that, users are sampled by their id, and those left out have no propensity. Neither has an
item or user that does not occur in the fit. A candidate that is delivered twice counts once, by its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.counting.estimates import Maturing, hours_of
from streameval.counting.popularity import places_in, sampled
from streameval.events.batch import Impressions
from streameval.exposure.logistic import Biases, fit

_MOST = 1 << 17  # rows
_HOURS = 24
_NEVER = -(1 << 62)
_Ids = NDArray[np.uint64]
_Flags = NDArray[np.bool_]
_NO_IDS = np.empty(0, np.uint64)
_NO_FLAGS = np.empty(0, np.bool_)
_NO_BIASES = Biases(np.empty(0), np.empty(0), 0.0)


class _Hour:
    """What was shown and what was not, for the users of a sampling level; the level depends only on the rows, not on
    their order.
    """

    def __init__(self) -> None:
        self.level = 0
        self._size = 0
        self._parts: list[tuple[_Ids, _Ids, _Flags, _Ids]] = []

    def add(self, item: _Ids, user: _Ids, ids: _Ids | None = None) -> None:
        """Adds what was shown or, with `ids`, candidates that were not shown, with their ids."""
        keep = sampled(user, self.level)
        n = int(np.count_nonzero(keep))
        self.put(item[keep], user[keep], np.full(n, ids is None), np.zeros(n, np.uint64) if ids is None else ids[keep])
        if self._size > _MOST:
            self._fit_in(self.level)
        while self._size > _MOST:
            self.level += 1
            self._fit_in(self.level)

    def put(self, item: _Ids, user: _Ids, shown: _Flags, ids: _Ids) -> None:
        self._parts.append((item, user, shown, ids))
        self._size += item.size

    def rows(self, level: int) -> tuple[_Ids, _Ids, _Flags, _Ids]:
        """Returns (item, user, shown, id) for the users of a level, at least the hour's own, with every candidate once.

        The id is 0 for what was shown, and for candidates from a checkpoint without ids.
        """
        item, user, ids = (np.concatenate([_NO_IDS, *(part[n] for part in self._parts)]) for n in (0, 1, 3))
        shown = np.concatenate([_NO_FLAGS, *(part[2] for part in self._parts)])
        keep = sampled(user, level)
        keep[np.flatnonzero(keep)[_again(ids[keep])]] = False
        return item[keep], user[keep], shown[keep], ids[keep]

    def _fit_in(self, level: int) -> None:
        rows = self.rows(level)
        self._parts, self._size = [], 0
        self.put(*rows)


class ShownModel:
    """The model of one partition."""

    def __init__(self, pane: int) -> None:
        """`pane` in ms."""
        self._pane = pane
        self._hour = _NEVER  # the hour of the model
        self._hours: dict[int, _Hour] = {}
        self._items, self._users, self._biases = _NO_IDS, _NO_IDS, _NO_BIASES

    def of(self, rows: Maturing) -> NDArray[np.float64]:
        """See `Propensities`."""
        out = np.full(rows.hour.size, np.nan)
        for hour, on in rows.fresh_hours():
            if hour > self._hour:
                self._hour = hour
                self._fit()
            item, user = rows.item[on], rows.user[on]
            (i, item_known), (u, user_known) = places_in(self._items, item), places_in(self._users, user)
            known = item_known & user_known
            found = self._biases.propensity(i[known], u[known])
            out[on[known]] = np.where(found > 0, found, np.nan)  # 0: never shown before, as far as is known
            self._hours.setdefault(hour, _Hour()).add(item, user)
        return out

    def relabelled(
        self,
        hour: NDArray[np.int64],
        label: NDArray[np.int8],
        given: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Returns `given`: items are shown independently of the outcome."""
        return given

    def considered(self, candidates: Impressions) -> None:
        """See `Propensities`."""
        hour = hours_of(candidates.ts, self._pane)
        for one in np.unique(hour).tolist():
            on = (hour == one) & (candidates.item != 0)
            if one > self._hour - _HOURS:
                self._hours.setdefault(one, _Hour()).add(candidates.item[on], candidates.user[on], candidates.id[on])

    def state(self) -> dict[str, Any]:
        """Returns everything, for `restore`."""
        hours = []
        for hour, kept in sorted(self._hours.items()):
            item, user, shown, ids = _ordered(*kept.rows(kept.level))
            hours.append({"hour": hour, "level": kept.level, "item": item, "user": user, "shown": shown, "id": ids})
        biases = {"item_bias": self._biases.item, "user_bias": self._biases.user, "off": self._biases.off}
        return {"hour": self._hour, "hours": hours, "items": self._items, "users": self._users, **biases}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self._hour = state["hour"]
        self._items, self._users = state["items"].copy(), state["users"].copy()
        self._biases = Biases(state["item_bias"].copy(), state["user_bias"].copy(), state["off"])
        for saved in state["hours"]:
            self._hours[saved["hour"]] = kept = _Hour()
            kept.level = saved["level"]
            ids = saved["id"].copy() if "id" in saved else np.zeros(saved["item"].size, np.uint64)
            kept.put(saved["item"].copy(), saved["user"].copy(), saved["shown"].astype(np.bool_), ids)

    def _fit(self) -> None:
        """Fits the hours before the current one, and drops those that the next one does not need."""
        before = [kept for hour, kept in sorted(self._hours.items()) if self._hour - _HOURS <= hour < self._hour]
        level = max((kept.level for kept in before), default=0)
        while True:
            parts = [kept.rows(level) for kept in before]
            if sum(part[0].size for part in parts) <= _MOST:
                break
            level += 1
        item, user, ids = (np.concatenate([_NO_IDS, *(part[n] for part in parts)]) for n in (0, 1, 3))
        item, user, shown, _ = _ordered(item, user, np.concatenate([_NO_FLAGS, *(part[2] for part in parts)]), ids)
        self._items, self._users, self._biases = _NO_IDS, _NO_IDS, _NO_BIASES
        if shown.any() and not shown.all():
            self._items, i = np.unique(item, return_inverse=True)
            self._users, u = np.unique(user, return_inverse=True)
            found = fit(i.astype(np.int64), u.astype(np.int64), shown, self._items.size, self._users.size)
            self._biases = found
        for hour in [hour for hour in self._hours if hour <= self._hour - _HOURS]:
            del self._hours[hour]


def _again(ids: _Ids) -> _Flags:
    """Returns which ids have occurred before; 0 never counts as such."""
    out = np.ones(ids.size, np.bool_)
    out[np.unique(ids, return_index=True)[1]] = False
    return out & (ids != 0)


def _ordered(item: _Ids, user: _Ids, shown: _Flags, ids: _Ids) -> tuple[_Ids, _Ids, _Flags, _Ids]:
    """Returns rows in a canonical order, so that sums of reals do not depend on the order of arrival."""
    order = np.lexsort((ids, shown, user, item))
    return item[order], user[order], shown[order], ids[order]

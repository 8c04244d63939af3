"""What is known of every user, by series: refreshed periodically, because it takes a pass over all of them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from streameval.counting.users import Users
from streameval.events.batch import Catalog, Series
from streameval.results.snapshot import UserColumns

_REFRESH_SECONDS = 5.0  # at least between two computations, and 20 times what one takes


class UserLookup:
    """The columns, as last computed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._of: set[Series] = set()  # what there was then
        self._due = 0.0  # monotonic seconds
        self.columns: Mapping[Series, UserColumns] = {}

    def expire(self) -> None:
        """Makes the next `refresh` compute them."""
        self._due = 0.0

    def refresh(self, partitions: Sequence[Users], counted: Collection[Series]) -> None:
        """Computes them if it is time, or if `counted` (series with impressions) has a new one."""
        begin = time.monotonic()
        if begin < self._due and self._of.issuperset(counted):
            return
        self.columns, self._of = self.look_up(partitions), set(counted)
        took = time.monotonic() - begin
        self._due = begin + max(_REFRESH_SECONDS, 20 * took)

    def look_up(self, partitions: Sequence[Users]) -> dict[Series, UserColumns]:
        """As they are now."""
        out: dict[Series, UserColumns] = {}
        for code, series in enumerate(self._catalog.series):
            parts = [users.columns(code) for users in partitions if code in users.series()]
            if not parts:
                continue
            ids = np.concatenate([user for user, _ in parts])
            order = np.argsort(ids)
            columns = {name: np.concatenate([c[name] for _, c in parts])[order] for name in parts[0][1]}
            for column in columns.values():
                column.flags.writeable = False
            out[series] = UserColumns(ids[order], **columns)
        return out

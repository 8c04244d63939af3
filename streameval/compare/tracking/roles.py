"""The role of each series: live, shadow, learning or retired.

A version that serves is live (`watch`). One that does not serve, but scores what others serve, is a shadow; an online
model is learning at first (`learning`). One that did either, and now does neither, is retired: its model has served so
many impressions without its score that, at the share from which versions are noticed, twenty would have been its own;
live versions are gone by the same criterion. A series known only from scores without final labels already counts as a
shadow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from streameval.compare.evidence.ratio import Ints
from streameval.compare.reading.reading import Role
from streameval.compare.tracking.sums import RowName
from streameval.compare.tracking.watch import MISSED, Watch
from streameval.events.batch import Series
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BLOCKS, PAIR_CELLS, SERIES_CELLS

MOST_SCORING = 512  # series remembered


class Roles:
    """Which series score, or scored, what others serve. `share`: see `Watch`."""

    def __init__(self, share: float) -> None:
        self._gone = MISSED / share
        self._scoring: dict[Series, tuple[str, int]] = {}  # (model that serves, its impressions since the last score)

    def look(self, scored: Mapping[Series, str], served: Mapping[str, int]) -> None:
        """Adds a look's labels: for each series that scored, the model whose impressions it scored; and impressions by
        serving model.
        """
        for series, (model, missed) in self._scoring.items():
            self._scoring[series] = model, missed + served.get(model, 0)
        self._scoring |= {series: (model, 0) for series, model in scored.items()}
        if len(self._scoring) > MOST_SCORING:
            kept = sorted(self._scoring.items(), key=lambda item: (item[1][1], item[0]))
            self._scoring = dict(kept[:MOST_SCORING])

    def of(self, series: Series, watch: Watch, learned: bool) -> Role:
        """Returns a series' role; `learned`: it is an online model that has learned enough to be evaluated."""
        if series.source == "online" and not learned:
            return Role("learning")
        share = watch.share(series.model, series.version) if series.source == "logged" else 0.0
        if series.source == "logged" and (share > 0 or watch.is_live(series.model, series.version)):
            return Role("live", share)
        if series in self._scoring:
            return Role("shadow" if self._scoring[series][1] < self._gone else "retired")
        return Role("retired" if watch.knows(series.model, series.version) else "shadow")

    def state(self) -> list[list[Any]]:
        """Returns everything, as plain values."""
        return [[*series, model, missed] for series, (model, missed) in self._scoring.items()]

    def restore(self, state: list[list[Any]]) -> None:
        """Restores what `state` returned."""
        self._scoring = {Series(*names): (model, missed) for *names, model, missed in state}


def seen_in(gains: Iterable[tuple[int, Mapping[RowName, Ints]]]) -> tuple[dict[Series, str], dict[str, int]]:
    """Returns what `Roles.look` takes, from the rows that a look adds."""
    scored: dict[Series, str] = {}
    served_by: dict[str, int] = {}
    for _, rows in gains:
        for (served, other), row in rows.items():
            if other is None:
                n = int(row[: BLOCKS * SERIES_CELLS].reshape(BLOCKS, SERIES_CELLS)[:, cells.N].sum())
                served_by[served.model] = served_by.get(served.model, 0) + n
            elif row[: BLOCKS * PAIR_CELLS].reshape(BLOCKS, PAIR_CELLS)[:, cells.PAIR_N].sum():
                scored[other] = served.model
    return scored, served_by

"""The quarantine in front of a joiner: events that are dated far ahead of their input wait in it. See `leaps`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Batch, Clicks, Impressions, empty_clicks, empty_impressions
from streameval.events.codes import Codes
from streameval.join.leaps import MOST, Leaps


class Released(NamedTuple):
    """Events that may continue to the joiner."""

    before: Batch | None  # released by this batch, from earlier ones; may be empty
    now: Batch  # of this batch, or released in the middle of it
    places: NDArray[np.int32]  # of the impressions of `now` in the batch, negative for those of earlier ones


class Quarantine:
    """The waiting events of all inputs of a partition."""

    def __init__(self, horizon: int, inputs: int, shared: bool) -> None:
        """`horizon`: ms that an event may be ahead; `shared`: impressions and clicks come in one input."""
        self._leaps = [Leaps(horizon, shared) for _ in range(inputs)]

    def __len__(self) -> int:
        """The number of waiting events."""
        return sum(map(len, self._leaps))

    def screen(self, batch: Batch) -> Released:
        """Holds back events of a batch that are dated far ahead, and releases those that no longer are."""
        if len(self._leaps) == 1:
            shown = clicked = self._leaps[0].screen(batch.impressions, batch.clicks)
        else:
            shown = self._leaps[0].screen(batch.impressions, empty_clicks())
            clicked = self._leaps[1].screen(empty_impressions(), batch.clicks)
        before = None
        if shown.before is not None or clicked.before is not None:
            nothing = empty_impressions(), empty_clicks()
            before = replace(batch, impressions=(shown.before or nothing)[0], clicks=(clicked.before or nothing)[1])
        now = replace(batch, impressions=shown.now[0], clicks=clicked.now[1])
        return Released(before, now, now.impressions.order if shown.places is None else shown.places)

    def take_ahead(self) -> list[NDArray[np.int64]]:
        """By input, the newest time (ms) before each event that leapt ahead of it, since the last call."""
        return [leaps.take_ahead() for leaps in self._leaps]

    def finish(self) -> list[tuple[Impressions, Clicks]]:
        """The logs have ended; returns the waiting events that continue, by input."""
        return [leaps.finish() for leaps in self._leaps]

    @property
    def counts(self) -> Counter[str]:
        """Events whose stream never caught up, by the names of the report."""
        return sum((leaps.counts for leaps in self._leaps), Counter[str]())

    @property
    def share_used(self) -> float:
        """How full it is, from 0 to 1, for the fullest input."""
        return max(len(leaps) / MOST for leaps in self._leaps)

    def series_in_use(self) -> set[int]:
        """The series of the waiting impressions, logged or shadow."""
        return set().union(*(leaps.series_in_use() for leaps in self._leaps))

    def state(self) -> list[dict[str, Any]]:
        """Everything, for `restore`, by input."""
        return [leaps.state() for leaps in self._leaps]

    def restore(self, state: Sequence[Mapping[str, Any]], codes: Codes) -> None:
        """Restores what `state` returned."""
        for leaps, saved in zip(self._leaps, state, strict=True):
            leaps.restore(saved, codes)

    def begin_at(self, newest: Sequence[int]) -> None:
        """Continues inputs whose newest times, ms, are known."""
        for leaps, time in zip(self._leaps, newest, strict=True):
            leaps.begin_at(time)

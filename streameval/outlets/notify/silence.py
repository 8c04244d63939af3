"""Models that stop receiving data, and those that resume. Conditions are remembered over restarts, so each is sent once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from streameval.compare.reading.words import plain
from streameval.outlets.notify.changes import Change
from streameval.results.snapshot import Snapshot
from streameval.settings.outlets import NotifyOn
from streameval.settings.units import format_duration

_STEP_SECONDS = 30.0  # two looks may be so far apart from what has elapsed: a clock that is slewed is not that fast


@dataclass(frozen=True, slots=True)
class Silenced:
    """What has begun and ended, by the name of the condition."""

    changes: tuple[Change, ...]
    opens: tuple[str, ...]
    closes: tuple[str, ...]


def silences(
    snapshot: Snapshot, now: float, thresholds: Collection[int], going_on: Collection[str], stepped: float = 0.0
) -> Silenced:
    """Models without a new label for each of `thresholds` (ms of wall clock), and those of `going_on` that have one again.

    A process that has just started knows nothing, and neither does one whose clock was set at `stepped`: the time counts
    from then at the earliest.
    """
    began = max(stepped, snapshot.started_at if snapshot.started_at <= now else 0.0)
    newest: dict[str, float] = {}
    for series, seen in snapshot.last_seen.items():
        if series.source == "logged":
            newest[series.model] = max(seen if seen <= now else began, newest.get(series.model, 0.0))
    changes, opens, closes = [], [], []
    for model, seen in sorted(newest.items()):
        for after in sorted(thresholds):
            name = f"no_data|{after}|{model}"
            silent = now - max(seen, began) >= after / 1000
            if silent and name not in going_on:
                said = f"{plain(model)}: no new labels for {format_duration(after)}"
                changes.append(_change(f"{name}|{round(seen * 1000)}", "no_data", seen, model, said, after))
                opens.append(name)
            elif name in going_on and seen > began and not silent:
                said = f"{plain(model)}: labels arrive again"
                changes.append(_change(f"{name}|again|{round(seen * 1000)}", "recovered", seen, model, said, after))
                closes.append(name)
    known = {f"no_data|{after}|{model}" for model in newest for after in thresholds}
    closes += sorted(name for name in going_on if name not in known and newest)  # a model that is gone for good
    return Silenced(tuple(changes), tuple(opens), tuple(closes))


def _change(key: str, kind: NotifyOn, seen: float, model: str, text: str, after: int) -> Change:
    return Change(key, kind, round(seen * 1000), model, text, incident="no_data", after=after)


class ClockSteps:
    """When the system's clock was last set to another time, as far as those who ask now and then can tell.

    A suspended machine counts: its clock goes on, and nothing else does.
    """

    def __init__(self, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._origin: float | None = None
        self._last = 0.0

    def last(self, wall: float) -> float:
        """By that clock, which says `wall` now; 0.0 for never."""
        origin = wall - self._elapsed()
        if self._origin is not None and abs(origin - self._origin) > _STEP_SECONDS:
            self._last = wall
        self._origin = origin
        return self._last

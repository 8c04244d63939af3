"""Stretches without any click where many were expected: the clicks are delayed, and the labels are wrong until they
arrive.

A pane without a click is not evaluated before the next one with a click is known. If, at the CTR so far, at least
`SILENT_CLICKS` should have arrived in the stretch up to that one (probability by chance: e**-30), its panes are
deferred until nothing in them can be corrected. A few stray clicks, such as the first of many that are delivered at once
and in no order, do not end such a stretch. This uses labels as they were when they were due, so it depends on the
events alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streameval.counting.join_panes import SILENT_CLICKS

_ENOUGH = 10.0  # expected clicks by which it is judged whether clicks have come back
_FEWEST, _SHARE = 3, 0.05  # clicks of them, and of what was expected, with which they have

_Pane = tuple[int, int, int]  # (pane, impressions, clicks)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Deferred panes [first, end) without a click; `found`: the pane by which `SILENT_CLICKS` were expected."""

    first: int
    end: int
    found: int


@dataclass(frozen=True, slots=True)
class Due:
    """What to do with complete panes."""

    looks: list[int]  # panes to evaluate now, in order
    silent: list[Stretch]
    waiting: int | None  # the pane at which a stretch that still continues was found to be silent


class Silence:
    """The stretches of all partitions of a process."""

    def __init__(self) -> None:
        self._impressions = 0
        self._clicks = 0
        self.deferred: set[int] = set()

    def due(self, panes: Iterable[tuple[int, int, int]], over: bool) -> Due:
        """`panes`: complete panes that have not been evaluated, in order, as (pane, impressions, clicks); `over`: they
        are the last ones.
        """
        out = Due([], [], None)
        quiet: list[_Pane] = []
        back: list[_Pane] = []  # since a click after a silent stretch, until it is judged
        expected, found = 0.0, None
        for one in panes:
            pane, impressions, clicks = one
            if found is None and not clicks:
                quiet.append(one)
                expected += self._expected(impressions)
                if expected >= SILENT_CLICKS:
                    found = pane
                continue
            if found is not None:
                back += [one] if clicks or back else []
                quiet += [] if back else [one]
                if not back or self._expected(sum(n for _, n, _ in back)) < _ENOUGH:
                    continue
                if not self._have_come_back(back):
                    quiet, back = quiet + back, []
                    continue
            self._end(out, quiet, found)
            self._evaluate(out, back or [one])
            quiet, back, expected, found = [], [], 0.0, None
        if over and back and self._have_come_back(back):
            self._end(out, quiet, found)
            self._evaluate(out, back)
            quiet, back, found = [], [], None
        if over or not self._clicks:
            quiet += back
            self._end(out, quiet, found)
            if found is not None:  # no later look will include them
                out.looks.append(quiet[-1][0])
            return out
        return Due(out.looks, out.silent, found)

    def forget_before(self, pane: int) -> None:
        """Forgets deferred panes before `pane`, whose corrections have been added."""
        self.deferred = {one for one in self.deferred if one >= pane}

    def state(self) -> dict[str, Any]:
        """Returns everything, for `restore`."""
        return {"impressions": self._impressions, "clicks": self._clicks, "put_off": sorted(self.deferred)}

    def restore(self, state: Mapping[str, Any], look_of: Callable[[int], int]) -> None:
        """Restores what `state` returned. `look_of`: see `LookPanes.of`; older checkpoints have every pane."""
        self._impressions, self._clicks = state["impressions"], state["clicks"]
        self.deferred = set(map(look_of, state["put_off"]))

    def _expected(self, impressions: int) -> float:
        return impressions * self._clicks / self._impressions if self._impressions else 0.0

    def _have_come_back(self, panes: list[_Pane]) -> bool:
        clicks, expected = sum(y for _, _, y in panes), self._expected(sum(n for _, n, _ in panes))
        return clicks >= min(_FEWEST, expected) and clicks >= _SHARE * expected

    def _end(self, out: Due, quiet: list[_Pane], found: int | None) -> None:
        """Ends a stretch without clicks: its panes are deferred if it was silent, else evaluated."""
        if found is None:
            self._evaluate(out, quiet)
        else:
            out.silent.append(Stretch(quiet[0][0], quiet[-1][0] + 1, found))
            self.deferred |= {pane for pane, _, _ in quiet}

    def _evaluate(self, out: Due, panes: list[_Pane]) -> None:
        for pane, impressions, clicks in panes:
            out.looks.append(pane)
            self._take(impressions, clicks)

    def _take(self, impressions: int, clicks: int) -> None:
        self._impressions += impressions
        self._clicks += clicks

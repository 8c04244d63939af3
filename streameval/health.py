"""Can the labels be believed? A dead click topic must not look like a calibration collapse.

Two signs of a broken join, both in event time: clicks that find no impression, and a stretch of panes without any
click in which, at the run's own CTR, at least 30 should have come (chance of that by luck: e**-30). And one that has no
time: not a single click in the whole run, while dozens of events could not be read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streameval.counting import join_panes
from streameval.counting.join_panes import JoinPanes
from streameval.counting.panestats import CLICKS, FOUND, LOST, MATURED
from streameval.join.policy import DELAY_EDGES, FOREVER
from streameval.monitor import Monitor
from streameval.report import Delays, JoinHealth
from streameval.units import format_duration

MIN_JOIN_RATE = 0.9  # below it, too many positives are missing for calibration to mean anything
MIN_CLICKS = 50  # clicks before the join rate is judged
MIN_CONFLICTS = 10  # impressions refused for their id before they make anything unreliable
SILENT_CLICKS = 30.0  # expected clicks that did not come
RECENT_PANES = 60  # how far back the join rate looks while running, and for a look of a comparison


class HealthJudge:
    """Judges the join of all partitions: while it runs by the clicks of the last `RECENT_PANES` panes."""

    def __init__(self, pane: int) -> None:
        """`pane` in ms."""
        self._pane = pane

    def judge(
        self, monitors: Sequence[Monitor], end: int, refused: int = 0
    ) -> tuple[JoinHealth, list[tuple[int, int, str]]]:
        """(health now, stretches [first pane, end pane) whose labels cannot be believed and why); `end`: pane.

        `refused`: events that went to the dead letters.
        """
        overdue = sum(m.joiner.overdue_clicks() for m in monitors)
        found, clicks = self._clicks(monitors, end)
        rate = found / clicks if clicks else None
        silent = self._silent(monitors, end)
        reason = None
        if (lost := _lost(found, clicks)) is not None:
            reason = lost
            early = sum(m.joiner.counts["early_clicks"] for m in monitors)
            if early:
                reason += f"; {early} are dated before it by more than join.allowed_lateness: do the clocks agree?"
        elif silent and silent[-1][1] >= end:
            reason = silent[-1][2]
        elif (conflicting := self._conflicting(monitors)) is not None:
            reason = conflicting
        elif (leapt := self._ahead(monitors)) is not None:
            reason = leapt
        elif refused >= MIN_CLICKS and self._without_clicks(monitors):
            reason = f"not one click was counted, and {refused} events were refused: clicks may be among them"
        return JoinHealth(reason is None, reason, rate, overdue, _delays(monitors)), silent

    def _clicks(self, monitors: Sequence[Monitor], end: int) -> tuple[int, int]:
        """(clicks that found their impression, clicks that should have): recent ones; at the end of the run, all."""
        if not all(m.joiner.progress.watermark >= FOREVER for m in monitors):
            since = end - RECENT_PANES
            rows = [row for m in monitors for pane, row in m.panes.by_pane.items() if pane >= since]
            found, lost = sum(row[FOUND] for row in rows), sum(row[LOST] for row in rows)
            lost += sum(m.joiner.overdue_clicks(since * self._pane) for m in monitors)
            if found + lost:
                return found, found + lost
        found, lost = sum(m.panes.total[FOUND] for m in monitors), sum(m.panes.total[LOST] for m in monitors)
        return found, found + lost + sum(m.joiner.overdue_clicks() for m in monitors)

    @staticmethod
    def _conflicting(monitors: Sequence[Monitor]) -> str | None:
        """Much of the traffic was refused because it has the ids of another model or version."""
        refused, counted = (
            sum(m.joiner.counts[name] for m in monitors) for name in ("conflicting_impressions", "impressions")
        )
        return _refused(refused, counted)

    @staticmethod
    def _ahead(monitors: Sequence[Monitor]) -> str | None:
        """Many events wait, or have waited in vain, because they are dated far ahead."""
        ahead = sum(m.quarantined + sum(m.runaways.values()) for m in monitors)
        return _leapt(ahead, sum(m.joiner.counts["impressions"] + m.joiner.counts["clicks"] for m in monitors))

    @staticmethod
    def _without_clicks(monitors: Sequence[Monitor]) -> bool:
        """Labels have matured, and every one of them is "no click"."""
        matured, clicks = (sum(m.panes.total[column] for m in monitors) for column in (MATURED, CLICKS))
        return matured > 0 and clicks == 0

    def _silent(self, monitors: Sequence[Monitor], end: int) -> list[tuple[int, int, str]]:
        matured, clicks = _by_pane(monitors, end)
        total = sum(m.panes.total[MATURED] for m in monitors)
        ctr = sum(m.panes.total[CLICKS] for m in monitors) / total if total else 0.0
        out: list[tuple[int, int, str]] = []
        first: int | None = None
        expected = 0.0
        for pane in [*sorted(matured), end]:
            if pane < end and not clicks[pane]:
                first = pane if first is None else first
                expected += ctr * matured[pane]
                continue
            if first is not None and expected >= SILENT_CLICKS:
                length = format_duration((pane - first) * self._pane)
                out.append((first, pane, f"no click for {length} where about {expected:.0f} were due"))
            first, expected = None, 0.0
        return out


def broken(joins: Sequence[JoinPanes], pane: int) -> str | None:
    """Why no comparison may decide anything by a pane whose labels are complete; by the `RECENT_PANES` panes before it.

    A function of the logs alone, unlike `HealthJudge`, which says how it is now. A partition in which nobody waited for the
    clicks of the pane is left out: how far its clicks have been read is not known.
    """
    rows = [one.between(pane - RECENT_PANES, pane) for one in joins if one.unlabelled(pane)]
    n = [sum(column) for column in zip(*rows, strict=True)]
    if not n:
        return None
    return (
        _lost(n[join_panes.FOUND], n[join_panes.CLICKS])
        or _refused(n[join_panes.REFUSED], n[join_panes.IMPRESSIONS])
        or _leapt(n[join_panes.AHEAD], n[join_panes.IMPRESSIONS] + n[join_panes.CLICKS])
    )


def _lost(found: int, clicks: int) -> str | None:
    """Too many clicks are on no impression."""
    if clicks < MIN_CLICKS or found / clicks >= MIN_JOIN_RATE:
        return None
    return f"only {found / clicks:.0%} of {clicks} clicks found their impression"


def _refused(refused: int, counted: int) -> str | None:
    """Too many impressions have an id that is taken."""
    if refused < MIN_CONFLICTS or refused < (1 - MIN_JOIN_RATE) * (refused + counted):
        return None
    return (
        f"{refused} of {refused + counted} impressions were refused: another model's or version's impression has "
        "their impression_id"
    )


def _leapt(ahead: int, others: int) -> str | None:
    """Too many events are dated far ahead."""
    if ahead < MIN_CLICKS or ahead < (1 - MIN_JOIN_RATE) * (ahead + others):
        return None
    return f"{ahead} of {ahead + others} events are dated further ahead of their stream than join.correction_horizon"


def _by_pane(monitors: Sequence[Monitor], end: int) -> tuple[dict[int, int], dict[int, int]]:
    """Mature impressions and clicks of panes before `end`; of stretches with clicks that were let go, what tells them apart."""
    matured: dict[int, int] = {}
    clicks: dict[int, int] = {}
    for monitor in monitors:
        known = [(pane, row[MATURED], row[CLICKS]) for pane, row in monitor.panes.by_pane.items() if pane < end]
        known += [(first, n, 0) for first, _, n in monitor.panes.runs if n >= 0]
        for pane, n, clicked in known:
            if n or clicked:
                matured[pane] = matured.get(pane, 0) + n
                clicks[pane] = clicks.get(pane, 0) + clicked
    without = np.array(sorted(pane for pane, clicked in clicks.items() if not clicked), np.int64)
    for monitor in monitors:
        for first, last, n in monitor.panes.runs:
            if n < 0:
                inside = without[np.searchsorted(without, first) : np.searchsorted(without, last)]
                for pane in (first, *inside.tolist()):
                    matured.setdefault(pane, 0)
                    clicks[pane] = clicks.get(pane, 0) + 1
    return matured, clicks


def _delays(monitors: Sequence[Monitor]) -> Delays:
    counts = np.sum([m.joiner.delays for m in monitors], axis=0) if monitors else np.zeros(len(DELAY_EDGES) + 1, int)
    return Delays(DELAY_EDGES, tuple(int(c) for c in counts[:-1]), float(counts[-1]) / 1000.0)

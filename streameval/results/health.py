"""Are the labels reliable? A dead click topic must not look like a calibration collapse.

Two signs of a broken join in event time: unmatched clicks, and a stretch of panes without any click in which, at the
run's own CTR, at least 30 should have arrived (probability by chance: e**-30), or, while the run has too few clicks to know its
CTR, in which the scores predict 100: a model that predicts ten times too many would have had ten. Both are checked for all
partitions together, the second also for each by itself. And two signs without a time: not a single label of the whole run is a
click, although dozens of clicks arrived after the attribution window, or dozens of events were invalid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streameval.counting import join_panes
from streameval.counting.panestats import PANE_CLICKS, PANE_FOUND, PANE_LOST, PANE_MATURED, PaneStats
from streameval.join.joiner import Joiner
from streameval.join.policy import DELAY_EDGES, FOREVER, NEVER
from streameval.join.quarantine import Quarantine
from streameval.results.evaluate import Frame
from streameval.results.snapshot import Delays, JoinHealth
from streameval.settings.units import format_duration


@dataclass(frozen=True, slots=True)
class Joined:
    """What one partition knows of its join."""

    partition: int
    joiner: Joiner
    panes: PaneStats
    quarantine: Quarantine
    predicted: tuple[int, float]  # impressions that a score came with, and the sum of these scores: its own model's
    gone: bool = False  # the topics no longer have it, so no clicks are expected

    def overdue(self, since: int = NEVER) -> int:
        """Clicks from `since` (ms) on without an impression for longer than the allowed lateness."""
        return self.joiner.overdue_clicks(since)

    def count(self, *names: str) -> int:
        """Events by what became of them, over the run."""
        return sum(self.joiner.counts[name] for name in names)

    def total(self, column: int) -> int:
        """A column of `panestats` over the run."""
        return int(self.panes.total[column])

    @property
    def ended(self) -> bool:
        """Whether the stream has ended: no label is waited for."""
        return self.joiner.progress.watermark >= FOREVER

    @property
    def needs_clicks(self) -> bool:
        """Whether any impression came without its label."""
        return self.joiner.progress.needs_clicks

    @property
    def quarantined(self) -> int:
        """Events that are or were held back, because they are dated far ahead."""
        return len(self.quarantine) + sum(self.quarantine.counts.values())


@dataclass(frozen=True, slots=True)
class SourceSeen:
    """What is known of the source."""

    clicks_from: str  # the name of the input that carries clicks
    refused: int  # events that went to the dead letters


class HealthJudge:
    """Judges the join of all partitions: while it runs by the clicks of the last `RECENT_PANES` panes."""

    def __init__(self, pane: int) -> None:
        """`pane` in ms."""
        self._pane = pane

    def judge(
        self, parts: Sequence[Joined], end: int, source: SourceSeen
    ) -> tuple[JoinHealth, list[tuple[int, int, str]]]:
        """(health now, stretches [first pane, end pane) whose labels cannot be trusted and why); `end`: pane."""
        overdue = sum(part.overdue() for part in parts)
        found, clicks = self._clicks(parts, end)
        rate = found / clicks if clicks else None
        silent = self._silent(parts, end, source)
        if len(parts) > 1:  # a part of the clicks may be missing: of one broker, or what one producer writes
            silent = [*self._silent_alone(parts, end, source, silent), *silent]
        never, now = self._without_clicks(parts), next((why for _, last, why in reversed(silent) if last >= end), None)
        reason = None
        if (lost := join_panes.lost(found, clicks)) is not None:
            reason = lost
            early = sum(part.count("early_clicks") for part in parts)
            if early:
                reason += f"; {early} are dated before their impression by more than join.allowed_lateness: do the clocks agree?"
            forgotten = sum(part.count("forgotten_early") for part in parts)
            if forgotten:
                reason += f"; {forgotten} impressions were forgotten before their clicks could come, at join.max_pending in memory: raise it"
            if source.refused >= join_panes.MIN_CLICKS:
                reason += f"; {source.refused} events were rejected, which may include their impressions: see the dead letters"
        elif now is not None and not never:
            reason = now
        elif (conflicting := self._conflicting(parts)) is not None:
            reason = conflicting
        elif (leapt := self._ahead(parts)) is not None:
            reason = leapt
        elif (outdated := self._outdated(parts)) is not None:
            reason = outdated
        elif never:
            late = sum(part.count("late_clicks") for part in parts)
            if late >= join_panes.MIN_CLICKS:
                reason = f"no label is a click, and {late} clicks came later than join.attribution_window after their impression: do the clocks agree?"
            elif source.refused >= join_panes.MIN_CLICKS:
                reason = f"no click was counted, and {source.refused} events were rejected, which may include clicks"
            else:
                reason = now
        return JoinHealth(reason is None, reason, rate, overdue, _delays(parts)), silent

    def _clicks(self, parts: Sequence[Joined], end: int) -> tuple[int, int]:
        """(clicks that found their impression, clicks that should have): recent ones; at the end of the run, all."""
        if not all(part.ended for part in parts):
            since = end - join_panes.RECENT_PANES
            rows = [row for part in parts for pane, row in part.panes.by_pane.items() if pane >= since]
            found, lost = sum(row[PANE_FOUND] for row in rows), sum(row[PANE_LOST] for row in rows)
            lost += sum(part.overdue(since * self._pane) for part in parts)
            if found + lost:
                return found, found + lost
        found, lost = (sum(part.total(column) for part in parts) for column in (PANE_FOUND, PANE_LOST))
        return found, found + lost + sum(part.overdue() for part in parts)

    @staticmethod
    def _conflicting(parts: Sequence[Joined]) -> str | None:
        """Much of the traffic was rejected because it has the ids of another model or version."""
        refused, counted = (
            sum(part.count(name) for part in parts) for name in ("conflicting_impressions", "impressions")
        )
        return join_panes.refused(refused, counted)

    @staticmethod
    def _ahead(parts: Sequence[Joined]) -> str | None:
        """Many events are or were quarantined, because they are dated far ahead."""
        ahead = sum(part.quarantined for part in parts)
        return join_panes.leapt(ahead, sum(part.count("impressions", "clicks") for part in parts))

    @staticmethod
    def _outdated(parts: Sequence[Joined]) -> str | None:
        """Much of the traffic was not counted, because it was older than the correction horizon."""
        expired, counted = (sum(part.count(name) for part in parts) for name in ("expired_impressions", "impressions"))
        return join_panes.outdated(expired, counted)

    @staticmethod
    def _without_clicks(parts: Sequence[Joined]) -> bool:
        """Labels have matured, and every one of them is "no click"."""
        matured, clicks = (sum(part.total(column) for part in parts) for column in (PANE_MATURED, PANE_CLICKS))
        return matured > 0 and clicks == 0

    def _silent(
        self, parts: Sequence[Joined], end: int, source: SourceSeen, alone: int | None = None
    ) -> list[tuple[int, int, str]]:
        """Stretches of panes without any click; `alone`: the number of the only partition, if there are others."""
        matured, clicks = _by_pane(parts, end)
        total, clicked = (sum(part.total(column) for part in parts) for column in (PANE_MATURED, PANE_CLICKS))
        ctr = clicked / total if total else 0.0
        # of labels that impressions carry none is missing, however many the scores predict
        waits = any(part.needs_clicks for part in parts)
        score = _mean_score(parts) if waits and clicked < join_panes.UNHEARD_CLICKS else 0.0
        out: list[tuple[int, int, str]] = []
        first: int | None = None
        shown = 0
        for pane in [*sorted(matured), end]:
            if pane < end and not clicks[pane]:
                first = pane if first is None else first
                shown += matured[pane]
                continue
            if first is not None:
                length = format_duration((pane - first) * self._pane)
                if ctr * shown >= join_panes.SILENT_CLICKS:
                    out.append((first, pane, f"no clicks for {length}, where about {ctr * shown:.0f} were expected"))
                elif score * shown >= join_panes.UNHEARD_CLICKS:
                    clicks_from = repr(source.clicks_from) + ("" if alone is None else f" [{alone}]")
                    out.append((first, pane, _unheard(parts, clicks_from, length, score * shown)))
            first, shown = None, 0
        return out

    def _silent_alone(
        self, parts: Sequence[Joined], end: int, source: SourceSeen, together: list[tuple[int, int, str]]
    ) -> list[tuple[int, int, str]]:
        """The same for each partition by itself, where not all were silent; the longest-lasting one last."""
        found = [
            (first, last, f"partition {part.partition}: {why}")
            for part in parts
            if not part.gone
            for first, last, why in self._silent([part], end, source, part.partition)
            if not any(start <= first and last <= stop for start, stop, _ in together)
        ]
        return sorted(found, key=lambda one: one[1])


def _mean_score(parts: Sequence[Joined]) -> float:
    """0 without scores."""
    impressions, total = map(sum, zip(*(part.predicted for part in parts), strict=True))
    return total / impressions if impressions else 0.0


def _unheard(parts: Sequence[Joined], clicks_from: str, length: str, predicted: float) -> str:
    reason = f"no clicks for {length}, where the scores predict about {predicted:.0f}"
    if any(part.count("clicks") for part in parts):
        return reason
    return f"{reason}: no click has ever been read from {clicks_from}; is that where clicks are written to?"


def _by_pane(parts: Sequence[Joined], end: int) -> tuple[dict[int, int], dict[int, int]]:
    """Mature impressions and clicks of panes before `end`; of dropped stretches with clicks, only what separates them."""
    matured: dict[int, int] = {}
    clicks: dict[int, int] = {}
    for part in parts:
        known = [(pane, row[PANE_MATURED], row[PANE_CLICKS]) for pane, row in part.panes.by_pane.items() if pane < end]
        known += [(first, n, 0) for first, _, n in part.panes.runs if n >= 0]
        for pane, n, clicked in known:
            if n or clicked:
                matured[pane] = matured.get(pane, 0) + n
                clicks[pane] = clicks.get(pane, 0) + clicked
    without = np.array(sorted(pane for pane, clicked in clicks.items() if not clicked), np.int64)
    for part in parts:
        for first, last, n in part.panes.runs:
            if n < 0:
                inside = without[np.searchsorted(without, first) : np.searchsorted(without, last)]
                for pane in (first, *inside.tolist()):
                    matured.setdefault(pane, 0)
                    clicks[pane] = clicks.get(pane, 0) + 1
    return matured, clicks


def _delays(parts: Sequence[Joined]) -> Delays:
    counts = np.sum([part.joiner.delays for part in parts], axis=0) if parts else np.zeros(len(DELAY_EDGES) + 1, int)
    return Delays(DELAY_EDGES, tuple(int(c) for c in counts[:-1]), float(counts[-1]) / 1000.0)


def unreliable(frame: Frame, reason: str | None, silent: list[tuple[int, int, str]]) -> str | None:
    """Why the labels of a window cannot be trusted; None when they can."""
    if reason is not None:
        return reason
    return next((why for first, end, why in reversed(silent) if first < frame.end and end > frame.start), None)

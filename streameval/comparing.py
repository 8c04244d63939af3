"""The comparisons of all partitions of this process: what they have counted, brought to the board in event time."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

from streameval import health
from streameval.compare.announce import Announcements
from streameval.compare.before_after_tracked import BeforeAfterTracked
from streameval.compare.board import Board, Limits, Placing, named
from streameval.compare.choice import serves_nobody
from streameval.compare.evidence import Rule
from streameval.compare.reading import Comparison, Deploy, Role
from streameval.compare.silence import Due, Silence
from streameval.compare.sums import Ints, Key
from streameval.compare.tracked import Tracked
from streameval.compare.words import headline
from streameval.config import Compare, Join
from streameval.counting.strata import Strata
from streameval.events import RETIRED, Catalog, Series
from streameval.explaining import Explanations
from streameval.join.policy import FOREVER, NEVER
from streameval.monitor import Monitor
from streameval.report import UserColumns

log = logging.getLogger(__name__)

HOUR = 3_600_000
_ARRIVALS, _SILENT, _HEARD, _LOOK = range(4)  # what happens to a pane, in this order
RESTART = 6 * HOUR  # ms: windows of comparisons begin anew
MOST_COMPARISONS = 64


class Comparisons:
    """Deploys and comparisons over the monitors of a process. Used by the loop's thread, when nothing is being counted."""

    def __init__(
        self,
        settings: Compare,
        catalog: Catalog,
        pane: int,
        join: Join,
        edges: Sequence[float],
        announcements: Announcements,
    ) -> None:
        """`pane` in ms; `edges`: inner edges of the pClick buckets."""
        s = settings
        rule = Rule(
            alpha=s.alpha, margins=s.margins.model_dump(), tolerances=s.tolerances.model_dump(),
            min_duration=s.min_duration, min_clicks=s.min_clicks, min_blocks=s.min_blocks, strict=s.strict,
            user_cap=s.user_cap,
        )  # fmt: skip
        self._settings, self._catalog = settings, catalog
        self._pane, self._attribution_window = pane, join.attribution_window
        self._announcements = announcements
        restart = max(RESTART, s.horizon // rule.windows)
        limits = Limits(s.share, s.count, s.horizon, restart, MOST_COMPARISONS, s.keep, s.learning_window)
        self._board = Board(rule, limits, pane)
        self._strata = Strata(pane, join.correction_horizon)
        self._silence = Silence()
        self._horizon = -(-(join.correction_horizon + HOUR) // pane)  # panes after which what was put off counts
        self._explanations = Explanations(s.horizon, catalog, pane, join.attribution_window, edges)
        self._said: dict[str, str] = {}  # verdicts that the log has had

    @property
    def deploys(self) -> tuple[Deploy, ...]:
        """Oldest first."""
        return tuple(self._board.deploys)

    def begin(self, monitor: Monitor) -> None:
        """A partition is new, or was restored."""
        for pane in self._board.cuts():
            monitor.ledger.cut(pane)

    def advance(self, monitors: Sequence[Monitor]) -> None:
        """Takes in everything that has arrived, and every look that is due."""
        for announcement in self._announcements.take():
            deploy = self._board.announce(announcement)
            log.info("deploy %s: %s %s was announced", deploy.id, deploy.model, deploy.version)
        self._make_up(monitors)
        arrived, complete = self._reached(monitors)
        arrivals: dict[int, dict[Series, int]] = {}
        for monitor in monitors:
            for pane, counts in monitor.arrivals.take(arrived):
                if pane >= self._board.arrived:
                    row = arrivals.setdefault(pane, {})
                    for code, n in counts.items():
                        series = self._catalog.series[code]
                        if series != RETIRED:
                            row[series] = row.get(series, 0) + n
        ended = complete >= FOREVER // self._pane
        silence = self._silent(monitors, complete, ended)
        looks = silence.looks
        due = [((pane + 1) * self._pane, _ARRIVALS, pane) for pane in arrivals]
        for kind, panes in (
            (_LOOK, looks),
            (_SILENT, [s.found for s in silence.silent] + ([] if silence.waiting is None else [silence.waiting])),
            (_HEARD, [s.end - 1 for s in silence.silent]),
        ):
            due += [((pane + 1) * self._pane + self._attribution_window, kind, pane) for pane in panes]
        first = {s.end - 1: s.first for s in silence.silent}
        last = looks[-1] if looks and ended else None
        for _, kind, pane in sorted(due):
            if kind == _SILENT:
                self._board.withhold((pane + 1) * self._pane, "no click came where many were due")
            elif kind == _HEARD:  # clicks of impressions just before were held up, too
                self._board.retract(first[pane] * self._pane - self._attribution_window, (pane + 1) * self._pane)
            elif kind == _ARRIVALS:
                for deploy in self._board.arrivals(pane, arrivals[pane]):
                    over = f" replaces {deploy.replaces}" if deploy.replaces else ""
                    log.info("%s %s: %s %s%s", deploy.kind, deploy.id, deploy.model, deploy.version, over)
                self._board.tell_past(lambda: self._segments(monitors))
                for monitor in monitors:
                    self.begin(monitor)
            else:
                end, until = pane + 1, (pane + 1) * self._pane
                if pane == last:  # nothing can be corrected any more: what is late counts too
                    end, until = FOREVER // self._pane, FOREVER
                gains = [
                    (segment, named(self._catalog.series, rows.items()))
                    for monitor in monitors
                    for segment, rows in monitor.ledger.advance(end, self._silence.put_off)
                ]
                placed = self._strata.settle([m.ledger for m in monitors], pane + 1, over=pane == last)
                gains += [
                    (segment, named(self._catalog.series, [(key, row)])) for (segment, key), row in placed.items()
                ]
                gauc = [
                    (start // self._pane, named(self._catalog.series, rows.items()))
                    for monitor in monitors
                    for start, rows in monitor.gauc.take(until)
                ]
                why = health.broken([m.joins for m in monitors], pane)
                if pane in self._silence.put_off:
                    why = "no click came at the end, where many were due"
                for anew in self._board.look(pane, gains, why, gauc, self._placing(monitors), len(monitors)):
                    log.info("comparison %s begins anew: %s", anew.id, anew.reading().changes[-1].text)
                    for monitor in monitors:
                        self.begin(monitor)
        keep = self._board.looked - self._settings.keep // self._pane
        for monitor in monitors:
            monitor.ledger.forget_before(keep)
            monitor.joins.forget_before(self._board.looked - health.RECENT_PANES)
            monitor.gauc.forget_before(keep * self._pane)

    def readings(self, monitors: Sequence[Monitor], users: Mapping[Series, UserColumns]) -> tuple[Comparison, ...]:
        """For the readers, with all that partitions and users tell."""
        self._board.place(self._placing(monitors))
        self._explanations.begin(monitors, users, [t for t in self._board.tracked if isinstance(t, Tracked)])
        out = self._board.readings(self._finish)
        for comparison in out:
            if comparison.verdict != self._said.get(comparison.id, "undecided"):
                self._said[comparison.id] = comparison.verdict
                level = logging.INFO if serves_nobody(comparison) else logging.WARNING
                log.log(level, "comparison %s: %s", comparison.id, headline(comparison))
        return out

    def roles(self) -> dict[Series, Role]:
        """What every series that is known is there for."""
        return {series: self._board.role(series) for series in self._catalog.series if series != RETIRED}

    def _finish(self, tracked: Tracked | BeforeAfterTracked, reading: Comparison) -> Comparison:
        """What the sums do not tell."""
        if isinstance(tracked, Tracked):
            reading = self._explanations.finish(tracked, reading)
        return replace(reading, roles=(self._board.role(reading.baseline), self._board.role(reading.candidate)))

    def state(self) -> dict[str, Any]:
        """For `restore`; every partition's checkpoint has it, so that none is needed."""
        strata = self._strata.state(lambda code: list(astuple(self._catalog.series[code])))
        return {**self._board.state(), "strata": strata, "silence": self._silence.state()}

    def restore(self, state: Mapping[str, Any], monitors: Sequence[Monitor]) -> None:
        """Takes over what is newer than what is known here, and makes the sums again of all partitions' ledgers."""
        before = self._board.looked, self._board.arrived
        for anew in self._board.restore(state):
            log.warning("comparison %s begins anew: the rules of [compare] have changed", anew)
        if before != (self._board.looked, self._board.arrived):
            codes = self._codes()
            self._silence.restore(state["silence"])
            self._strata.restore(state["strata"], lambda name: codes.get(Series(*name)))
        for monitor in monitors:
            self.begin(monitor)
        self.rebuild(monitors)

    def rebuild(self, monitors: Sequence[Monitor]) -> None:
        """A partition has come or gone."""
        self._strata.settle([m.ledger for m in monitors], self._board.looked, close=False)
        self._board.rebuild(lambda: self._segments(monitors), lambda: self._gauc(monitors))
        self._explanations.forget()

    def clear(self, code: int) -> None:
        """Forgets a series; its code may be given to another."""
        self._strata.clear(code)

    def _codes(self) -> dict[Series, int]:
        return {series: code for code, series in enumerate(self._catalog.series) if series != RETIRED}

    def _placing(self, monitors: Sequence[Monitor]) -> Placing:
        """Gives what the open strata of some versions and pairs come to so far."""

        def placing(keys: Collection[Key]) -> dict[tuple[int, Key], Ints]:
            codes = self._codes()
            by_code = {}
            for served, other in keys:
                key = codes.get(served), -1 if other is None else codes.get(other)
                if key[0] is not None and key[1] is not None:
                    by_code[key[0], key[1]] = served, other
            placed = self._strata.so_far([m.ledger for m in monitors], by_code)
            return {(segment, by_code[key]): row for (segment, key), row in placed.items()}

        return placing

    def _gauc(self, monitors: Sequence[Monitor]) -> Iterator[tuple[int, Mapping[Key, Ints]]]:
        for monitor in monitors:
            for start, rows in monitor.gauc.given():
                yield start // self._pane, named(self._catalog.series, rows.items())

    def _segments(self, monitors: Sequence[Monitor]) -> Iterator[tuple[int, Mapping[Key, Ints]]]:
        """Everything that has been looked at."""
        for monitor in monitors:
            for segment, rows in monitor.ledger.segments():
                yield segment, named(self._catalog.series, rows.items())

    def _make_up(self, monitors: Sequence[Monitor]) -> None:
        """Partitions that were restored from before the last look: what they have counted again since was looked at then.

        Once all of it is there, or a window of GAUC would be taken in two pieces.
        """
        looked = self._board.looked
        put_off = self._silence.put_off
        behind = [m for m in monitors if m.ledger.waiting(looked, put_off) and self._reached([m])[1] >= looked]
        for monitor in behind:
            monitor.ledger.advance(looked, put_off)
            monitor.gauc.take(looked * self._pane)
        if behind:
            self.rebuild(monitors)

    def _silent(self, monitors: Sequence[Monitor], complete: int, over: bool) -> Due:
        """Which complete panes may be looked at."""
        waiting = sorted({p for m in monitors for p in m.ledger.waiting(complete, start=self._board.looked)})
        counts = []
        for pane in waiting:
            served = [m.ledger.served(pane) for m in monitors]
            counts.append((pane, sum(n for n, _ in served), sum(y for _, y in served)))
        silence = self._silence.due(counts, over)
        self._silence.forget_before(self._board.looked - self._horizon)
        return silence

    def _reached(self, monitors: Sequence[Monitor]) -> tuple[int, int]:
        """(first pane that may still get arrivals, first pane whose labels are not complete), over all partitions."""
        speaking = [m for m in monitors if m.joiner.progress.newest_event > NEVER and not m.joiner.progress.idle]
        watermark = min((m.joiner.progress.firm for m in speaking or monitors), default=NEVER)
        if watermark == NEVER:
            return 0, 0
        if watermark >= FOREVER:
            return FOREVER // self._pane, FOREVER // self._pane
        return watermark // self._pane, (watermark - self._attribution_window) // self._pane

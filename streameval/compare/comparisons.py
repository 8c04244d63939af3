"""The comparisons of all partitions of this process: passes what the partitions have counted to the board, in event
time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from streameval.compare.announce import Announcements
from streameval.compare.behind import Behind, VersionsBehind
from streameval.compare.counted import Counted
from streameval.compare.evidence.evidence import Weighed
from streameval.compare.evidence.ratio import Ints
from streameval.compare.evidence.rule_from_settings import rule_of
from streameval.compare.explain.explanations import Explanations
from streameval.compare.explain.findings import UserSums
from streameval.compare.ledger.gauc_rows import GaucRows
from streameval.compare.ledger.ledger import Ledger
from streameval.compare.ledger.row_shape import WHOLE_CURVE, shape_of
from streameval.compare.ledger.strata import Strata, with_placed
from streameval.compare.reading.choice import serves_nobody
from streameval.compare.reading.reading import Comparison, Deploy, Role
from streameval.compare.reading.words import headline
from streameval.compare.tracking.board import CHANGED_RULE, Board
from streameval.compare.tracking.limits import BoardLimits
from streameval.compare.tracking.rows_that_count import Placing, named
from streameval.compare.tracking.silence import Due, Silence, Stretch
from streameval.compare.tracking.sums import RowName
from streameval.compare.tracking.tracked import Tracked
from streameval.counting.arrivals import Arrivals, taken
from streameval.counting.join_panes import RECENT_PANES, JoinPanes, broken
from streameval.counting.late_by_version import LateByVersion
from streameval.counting.late_labels import LateLabels, corrected_since, incomplete_hours, lagging
from streameval.counting.look_panes import LookPanes
from streameval.events.batch import RETIRED, Catalog, Series
from streameval.events.durations import HOUR
from streameval.join.policy import FOREVER, NEVER
from streameval.settings.compare import Compare
from streameval.settings.tree import Join

log = logging.getLogger(__name__)

_ARRIVALS, _SILENT, _RESUMED, _LOOK = range(4)  # what can be due for a pane, in the order in which it is processed
MOST_COMPARISONS = 64


class Comparisons:
    """Deploys and comparisons over the partitions of a process. Used by the loop's thread, while nothing is being
    counted.
    """

    def __init__(
        self,
        settings: Compare,
        catalog: Catalog,
        pane: int,
        join: Join,
        edges: Sequence[float],
        announcements: Announcements,
        min_propensity: float | None = None,
        *,
        least: float = 1e-4,
        operating_range: tuple[float, float] = WHOLE_CURVE,
        guard_cut: int | None = None,
        weighed: Weighed = "",
        revisions: Mapping[str, int] | None = None,
    ) -> None:
        """`pane` in ms; `edges`: inner edges of the pClick buckets; `min_propensity`: see `Ledger`. For further
        metrics: `least` is the smallest propensity that is believed, `operating_range` the false positive rates of the
        partial AUC. `guard_cut`: see `shape_of`. `weighed`: see `Rule`. `revisions`: see `Board`.
        """
        s = settings
        shape = shape_of(s.more, least, operating_range, guard_cut)
        rule, self._shape = replace(rule_of(s), weighed=weighed, pieces=shape.pieces.names), shape
        self._settings, self._catalog = settings, catalog
        self._pane, self._join, self._edges = pane, join, edges
        self._looks = LookPanes(pane)
        self._min_propensity = min_propensity
        # rows are held this much longer, so the window is at most as long as the correction horizon
        self.gauc_window = min(s.gauc_window, max(join.correction_horizon // pane, 1) * pane)
        self._announcements = announcements
        limits = BoardLimits(s.share, s.count, MOST_COMPARISONS, s.keep, s.learning_window, self.gauc_window)
        self._board = Board(rule, limits, pane, self._shape, revisions)
        self._strata = Strata(pane, join.correction_horizon, lambda code: catalog.series[code].model)
        self._silence, self._behind = Silence(), VersionsBehind(pane, join.attribution_window)
        self._horizon = -(-(join.correction_horizon + HOUR) // pane)  # panes after which a deferred pane counts
        self._explanations = Explanations(catalog, pane, join.attribution_window, edges, self._board.aside)
        self._logged: dict[str, str] = {}  # the last verdict logged, by comparison

    @property
    def deploys(self) -> tuple[Deploy, ...]:
        """Oldest first."""
        return tuple(self._board.deploys.on_record)

    def counted(self) -> Counted:
        """Returns empty sums for a new partition."""
        pane, catalog, s, join = self._pane, self._catalog, self._settings, self._join
        out = Counted(
            Ledger(
                pane,
                join.correction_horizon,
                catalog.radix,
                len(catalog.dimensions),
                self._edges,
                s.user_cap,
                self._min_propensity,
                pieces=self._shape.pieces,
            ),
            GaucRows(
                self.gauc_window,
                join.attribution_window,
                join.correction_horizon,
                self._shape.lists,
                requests=self._shape.requests,
            ),
            Arrivals(pane, join.allowed_lateness),
            JoinPanes(pane, join.attribution_window, join.allowed_lateness),
            LateLabels(pane),
            LateByVersion(pane),
            LateByVersion(pane),
        )
        self._cut([out])
        return out

    def advance(self, partitions: Sequence[Counted]) -> None:
        """Processes all new arrivals, and takes every look that is due."""
        for announcement in self._announcements.take():
            deploy = self._board.deploys.announce(announcement)
            log.info("deploy %s: %s %s announced", deploy.id, deploy.model, deploy.version)
        self._catch_up(partitions)
        arrived, complete = self._reached(partitions)
        arrivals = taken([one.arrivals for one in partitions], self._board.arrived, arrived, self._catalog.series)
        ended = complete >= FOREVER // self._pane
        silence = self._silent(partitions, complete, ended)
        looks = silence.looks
        due = [((pane + 1) * self._pane, _ARRIVALS, pane) for pane in arrivals]
        for kind, panes in (
            (_LOOK, looks),
            (_SILENT, [s.found for s in silence.silent] + ([] if silence.waiting is None else [silence.waiting])),
            (_RESUMED, [s.end - 1 for s in silence.silent]),
        ):
            due += [((pane + 1) * self._pane + self._join.attribution_window, kind, pane) for pane in panes]
        silent = {s.end - 1: s for s in silence.silent}
        resumed: Stretch | None = None
        last = looks[-1] if looks and ended else None
        for _, kind, pane in sorted(due):
            if kind == _SILENT:
                self._board.withhold((pane + 1) * self._pane, "no clicks where many were expected")
            elif kind == _RESUMED:
                resumed = silent[pane]
            elif kind == _ARRIVALS:
                for deploy in self._board.arrivals(pane, *arrivals[pane]):
                    over = f" replaces {deploy.replaces}" if deploy.replaces else ""
                    log.info("%s %s: %s %s%s", deploy.kind, deploy.id, deploy.model, deploy.version, over)
                self._board.add_past(lambda: self._segments(partitions))
                self._cut(partitions)
            else:
                self._look(pane, partitions, resumed, over=pane == last)
                resumed = None
        keep = self._board.looked - self._settings.keep // self._pane
        for one in partitions:
            one.ledger.forget_before(keep)
            one.joins.forget_before(self._board.looked - RECENT_PANES)
            one.gauc.forget_before(keep * self._pane)

    def _look(self, pane: int, partitions: Sequence[Counted], resumed: Stretch | None, over: bool) -> None:
        """Takes the look at the end of a pane, the last of those looked at together.

        `resumed`: clicks have come again after this stretch; `over`: nothing can be corrected any more.
        """
        end, until = pane + 1, (pane + 1) * self._pane
        late, behind = [one.late for one in partitions], dict[Series, Behind]()
        settled = (pane + 1 - -(-self._join.correction_horizon // self._pane)) * self._pane // HOUR
        self._set_aside(partitions, late, pane, settled, over=over)
        if not over:
            came = pane + 1 + self._join.attribution_window // self._pane
            behind = self._behind.judge(partitions, self._catalog.series, came, settled)
        for version, one in behind.items():
            self._board.retract(one.since + 1, until, version)
        if resumed is not None:  # clicks of impressions just before the stretch may have been delayed, too
            first = self._looks.first(resumed.first) * self._pane
            self._retract(late, first - self._join.attribution_window, resumed.end * self._pane)
        if over:  # late events count too
            end, until = FOREVER // self._pane, FOREVER
        counted = [gain for one in partitions for gain in one.ledger.advance(end, self._silence.deferred)]
        placed = self._strata.settle([one.ledger for one in partitions], pane + 1, over=over)
        gains = [(segment, named(self._catalog.series, rows.items())) for segment, rows in with_placed(counted, placed)]
        gauc = [
            (start // self._pane, named(self._catalog.series, rows.items()))
            for one in partitions
            for start, rows in one.gauc.take(until)
        ]
        why = broken([one.joins for one in partitions], pane) or (None if over else lagging(late))
        if pane in self._silence.deferred:
            why = "no clicks at the end, where many were expected"
        past, placing = partial(self._segments, partitions), self._placing(partitions)
        of_versions = {version: one.why for version, one in behind.items()}
        for restarted in self._board.look(pane, gains, past, why, gauc, placing, len(partitions), of_versions):
            log.info("comparison %s restarts: %s", restarted.id, restarted.reading().changes[-1].text)
            self._cut(partitions)

    def _set_aside(
        self, partitions: Sequence[Counted], late: Sequence[LateLabels], pane: int, settled: int, over: bool
    ) -> None:
        """Before a look: leaves hours out that miss clicks which came late, until nothing can correct them any more, as those
        before the hour `settled`.
        """
        touched: set[int] = set()
        for one in late:
            touched |= one.advance(pane + 1 + self._join.attribution_window // self._pane)
            one.forget_before(settled)
        aside = self._board.aside.now
        if not touched and not aside:
            return
        hours = frozenset(h for h in aside | incomplete_hours(late, touched) if h >= settled and not over)
        if hours == aside:
            return
        self._board.set_aside(hours)
        if new := hours - aside:
            since = corrected_since(late, new)
            self._board.retract(since + 1, (pane + 1) * self._pane)
        self.rebuild(partitions)

    def _retract(self, late: Sequence[LateLabels], begin: int, end: int) -> None:
        """Retracts the verdicts that read labels of [begin, end), ms, which have been corrected since."""
        since = max(begin, corrected_since(late, range(begin // HOUR, -(-end // HOUR))))
        if since < end:
            self._board.retract(since + 1, end)

    def readings(
        self, partitions: Sequence[Counted], users: Mapping[Series, UserSums] | None
    ) -> tuple[Comparison, ...]:
        """Returns the comparisons for readers, with what partitions and users add; without the breakdown by user if
        `users` is None.
        """
        self._board.place(self._placing(partitions))
        if users is None:
            out = self._board.readings(self._with_roles)
        else:
            self._explanations.begin(partitions, users, [t for t in self._board.tracked if t.explained])
            out = self._board.readings(self._finish)
        for comparison in out:
            if comparison.verdict != self._logged.get(comparison.id, "undecided"):
                self._logged[comparison.id] = comparison.verdict
                level = logging.INFO if serves_nobody(comparison) else logging.WARNING
                log.log(level, "comparison %s: %s", comparison.id, headline(comparison, round(time.time() * 1000)))
        return out

    def roles(self, partitions: Sequence[Counted]) -> dict[Series, Role]:
        """Returns the role of every known series; none of a new version that serves, until its arrivals are taken.

        That is at the next look, or, if one input of a partition is silent, much later: such a version is no shadow.
        """
        serving = {code for one in partitions for code in one.arrivals.serving()}
        return {
            series: self._board.role(series)
            for code, series in enumerate(self._catalog.series)
            if series != RETIRED and not series.objective and (code not in serving or self._board.has_served(series))
        }

    def waited_for(self, partition: Counted) -> bool:
        """Returns whether no look has been taken without a partition."""
        return self._reached([partition])[1] >= self._board.looked

    def _finish(self, tracked: Tracked, reading: Comparison) -> Comparison:
        """Adds what cannot be read from the sums."""
        if tracked.explained:
            reading = self._explanations.finish(tracked, reading)
        return self._with_roles(tracked, reading)

    def _with_roles(self, tracked: Tracked, reading: Comparison) -> Comparison:
        del tracked
        return replace(reading, roles=(self._board.role(reading.baseline), self._board.role(reading.candidate)))

    def state(self) -> dict[str, Any]:
        """Returns the state for `restore`. Every partition's checkpoint contains it, so no particular partition is
        needed.
        """
        strata = self._strata.state(lambda code: list(self._catalog.series[code]))
        return {**self._board.state(), "strata": strata, "silence": self._silence.state()}

    def restore(self, state: Mapping[str, Any], partitions: Sequence[Counted]) -> None:
        """Restores a checkpoint's state if it is ahead of the current one; then recomputes the sums from all
        partitions' ledgers.
        """
        before = self._board.looked, self._board.arrived
        for restarted in self._board.restore(state):
            log.warning("comparison %s restarts: %s", restarted, CHANGED_RULE)
        if before != (self._board.looked, self._board.arrived):
            codes = self._codes()
            self._silence.restore(state["silence"], self._looks.of)
            self._strata.restore(state["strata"], lambda name: codes.get(Series(*name)))
        self._cut(partitions)
        self.rebuild(partitions)

    def rebuild(self, partitions: Sequence[Counted]) -> None:
        """Recomputes the sums: a partition was assigned or revoked, or hours were left out or returned."""
        self._strata.settle([one.ledger for one in partitions], self._board.looked, close=False)
        for one in partitions:
            one.ledger.leave_out_of_cap(self._board.aside.returned)
        self._board.rebuild(lambda: self._segments(partitions), lambda: self._gauc(partitions))
        self._explanations.forget()

    def clear(self, code: int) -> None:
        """Forgets a series, so that its code can be reused."""
        self._strata.clear(code)

    def _cut(self, partitions: Sequence[Counted]) -> None:
        """Makes the ledgers start a segment wherever a comparison starts."""
        for one in partitions:
            for pane in self._board.cuts():
                one.ledger.cut(pane)

    def _codes(self) -> dict[Series, int]:
        return {series: code for code, series in enumerate(self._catalog.series) if series != RETIRED}

    def _placing(self, partitions: Sequence[Counted]) -> Placing:
        """Returns a function that places the scores of strata that are still open, for given versions and pairs."""

        def placing(keys: Collection[RowName]) -> dict[tuple[int, RowName], Ints]:
            codes = self._codes()
            by_code = {}
            for served, other in keys:
                key = codes.get(served), -1 if other is None else codes.get(other)
                if key[0] is not None and key[1] is not None:
                    by_code[key[0], key[1]] = served, other
            placed = self._strata.so_far([one.ledger for one in partitions], by_code)
            return {(segment, by_code[key]): row for (segment, key), row in placed.items()}

        return placing

    def _gauc(self, partitions: Sequence[Counted]) -> Iterator[tuple[int, Mapping[RowName, Ints]]]:
        for one in partitions:
            for start, rows in one.gauc.given():
                yield start // self._pane, named(self._catalog.series, rows.items())

    def _segments(self, partitions: Sequence[Counted]) -> Iterator[tuple[int, Mapping[RowName, Ints]]]:
        """Yields (segment, rows by name) of all panes evaluated so far."""
        for one in partitions:
            for segment, rows in one.ledger.segments():
                yield segment, named(self._catalog.series, rows.items())

    def _catch_up(self, partitions: Sequence[Counted]) -> None:
        """Brings restored partitions up to the last look: what they have counted since their checkpoint was already
        evaluated.

        Waits until a partition has counted all of it; otherwise a window of GAUC would be added in two pieces.
        """
        looked = self._board.looked
        deferred = self._silence.deferred
        behind = [
            one for one in partitions if one.ledger.waiting(looked, deferred) and self._reached([one])[1] >= looked
        ]
        for one in behind:
            one.ledger.advance(looked, deferred)
            one.gauc.take(looked * self._pane)
        if behind:
            self.rebuild(partitions)

    def _silent(self, partitions: Sequence[Counted], complete: int, over: bool) -> Due:
        """Returns which complete panes may be evaluated."""
        waiting = sorted({p for one in partitions for p in one.ledger.waiting(complete, start=self._board.looked)})
        counts = []
        for pane in waiting:
            served = [one.ledger.served(pane) for one in partitions]
            counts.append((pane, sum(n for n, _ in served), sum(y for _, y in served)))
        silence = self._silence.due(counts, over)
        self._silence.forget_before(self._board.looked - self._horizon)
        return silence

    def _reached(self, partitions: Sequence[Counted]) -> tuple[int, int]:
        """Returns (first pane that may still get arrivals, first pane whose labels are not complete), over all
        partitions; of panes looked at together, the first.
        """
        active = [one for one in partitions if one.is_active]
        watermark = min((one.firm for one in active or partitions), default=NEVER)
        if watermark == NEVER:
            return 0, 0
        if watermark >= FOREVER:
            return FOREVER // self._pane, FOREVER // self._pane
        arrived, complete = watermark // self._pane, (watermark - self._join.attribution_window) // self._pane
        return self._looks.first(arrived), self._looks.first(complete)

"""What a comparison's sums do not tell: for whom and why (`compare.who`, `compare.mixes`), and what pending impressions say
already (`compare.early`). Gathered here from the partitions; kept until something new is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.columns import Scored
from streameval.compare.calibration_buckets import calibration_buckets
from streameval.compare.early import Arm, Delays, early_readings, learn_delays
from streameval.compare.mixes import paired_mixes, split_mixes
from streameval.compare.reading import CalibrationBucket, Comparison, EarlyReading, Finding, Mix
from streameval.compare.tracked import Tracked
from streameval.compare.who import (
    PCLICK,
    PairedParts,
    SplitParts,
    Terms,
    paired_findings,
    split_findings,
    user_findings,
)
from streameval.compare.words import plain
from streameval.counting.ledger import Ledger, ServedSums
from streameval.counting.ledger_sums import LEVEL_WIDTH, PART_D, PART_D_SQ, PART_N, PART_WIDTH, PART_Y, SERVED_WIDTH
from streameval.events import Catalog, Series
from streameval.join.policy import CLICKED, DELAY_EDGES, KNOWN
from streameval.monitor import Monitor
from streameval.report import UserColumns
from streameval.sketches.blocks import BLOCKS

PENDING_ROWS = 200_000  # newest ones, over all partitions
EARLY_SECONDS = 5.0  # at least between two gatherings, and so that they cost a twentieth of the time at the most
EARLY_SHARE = 20

Why = tuple[tuple[Finding, ...], tuple[Mix, ...]]
Buckets = tuple[CalibrationBucket, ...]


@dataclass(slots=True)
class _Pending:
    """Pending impressions of one partition."""

    ts: NDArray[np.int64]
    series: NDArray[np.int32]  # that served
    clicked: NDArray[np.bool_]
    known: NDArray[np.bool_]  # the event itself said whether there was a click
    age: NDArray[np.float64]  # ms up to which clicks have been read
    scored: Scored
    scores: dict[int, NDArray[np.float64]] = field(default_factory=dict)

    def of(self, code: int) -> NDArray[np.float64]:
        """A series' scores, NaN where it has none."""
        if code not in self.scores:
            out = np.full(self.ts.size, np.nan)
            on = self.scored.series == code
            out[self.scored.row[on]] = self.scored.p[on]
            self.scores[code] = out
        return self.scores[code]


# Of the whole's rho: a part has less traffic, and where one part carries a difference, much less variance than the whole.
SHARES = np.array([1.0, 1.0 / 8, 1.0 / 64])


class Explanations:
    """Findings, mixes and early readings of all comparisons of a process. Used by the loop's thread, when nothing is counted."""

    def __init__(
        self, horizon: int, catalog: Catalog, pane: int, attribution_window: int, edges: Sequence[float]
    ) -> None:
        """`horizon`, `pane`, `attribution_window` in ms; `edges`: inner edges of the pClick buckets."""
        self._horizon, self._catalog = horizon, catalog
        self._pane, self._window = pane, attribution_window
        bounds = [0.0, *edges, 1.0]
        self._buckets = [f"{a:g}-{b:g}" for a, b in pairwise(bounds)]
        self._values = max(catalog.radix, len(self._buckets))
        self._why: dict[str, tuple[Comparison, Why, Buckets]] = {}  # of this reading
        self._users: dict[str, tuple[object, tuple[Finding, ...]]] = {}  # of these columns
        self._early: dict[str, tuple[EarlyReading, ...]] = {}
        self._early_due = 0.0  # monotonic seconds
        self._monitors: Sequence[Monitor] = ()
        self._columns: Mapping[Series, UserColumns] = {}
        self._codes: dict[Series, int] = {}

    def begin(
        self, monitors: Sequence[Monitor], users: Mapping[Series, UserColumns], all_of: Sequence[Tracked]
    ) -> None:
        """Before the comparisons are read, for `finish`."""
        self._monitors, self._columns = monitors, users
        self._codes = {series: code for code, series in enumerate(self._catalog.series)}
        known = {tracked.id for tracked in all_of}
        for kept in (self._why, self._users, self._early):
            for gone in kept.keys() - known:
                del kept[gone]
        begin = time.monotonic()
        waiting = any(m.joiner.pending for m in monitors)
        if begin >= self._early_due or not waiting:  # what a run says in the end is no matter of when one last looked
            self._early = self._read_early(all_of)
            self._early_due = begin + max(EARLY_SECONDS, EARLY_SHARE * (time.monotonic() - begin))

    def forget(self) -> None:
        """Partitions have come or gone."""
        self._why.clear()
        self._early_due = 0.0

    def finish(self, tracked: Tracked, reading: Comparison) -> Comparison:
        """The comparison with all that is known."""
        (findings, mixes), buckets = self._known_why(tracked, reading)
        return replace(
            reading,
            findings=findings + self._known_users(tracked),
            mixes=mixes,
            calibration_buckets=buckets,
            early=self._early.get(tracked.id, ()),
        )

    # -- for whom, and why ---------------------------------------------------------------------------------------

    def _known_why(self, tracked: Tracked, reading: Comparison) -> tuple[Why, Buckets]:
        """Made anew when the reading is: every pane has a look, and without one nothing has changed."""
        of, why, buckets = self._why.get(tracked.id, (None, ((), ()), ()))
        if not tracked.kept:
            return ((), ()), ()
        if of is not reading and reading.impressions and {tracked.baseline, tracked.candidate} <= self._codes.keys():
            why = (self._paired if tracked.setup == "paired" else self._split)(tracked, reading)
            buckets = self._calibration(tracked)
            self._why[tracked.id] = reading, why, buckets
        return why, buckets

    def _paired(self, tracked: Tracked, reading: Comparison) -> Why:
        a, b = self._codes[tracked.baseline], self._codes[tracked.candidate]
        sums = np.zeros(((len(self._catalog.dimensions) + 1) * self._values, PART_WIDTH), np.int64)
        d = [*range(PART_D, PART_Y)]
        for monitor in self._monitors:
            for pair in ((a, b), (b, a)):
                values, rows = monitor.ledger.pair_parts(*pair, *self._span(tracked))
                if pair[0] == b:  # the candidate served
                    rows[:, d] *= -1
                sums[self._places(values)] += rows
        used = self._by_name(np.flatnonzero(sums[:, PART_N:PART_D].any(axis=1)))
        some = sums[used]
        parts = PairedParts(
            [self._name(k) for k in used.tolist()], some[:, PART_N:PART_D], some[:, PART_D:PART_Y], some[:, PART_Y],
            some[:, PART_D_SQ],
        )  # fmt: skip
        loss = next((m.baseline for m in reading.metrics if m.metric == "log_loss"), None)
        if loss is None or not used.size:
            return (), ()
        terms = self._terms(tracked)
        return paired_findings(parts, terms, loss), paired_mixes(parts, terms, plain(tracked.candidate.version))

    def _split(self, tracked: Tracked, reading: Comparison) -> Why:
        used, sums = self._served(tracked, Ledger.served_parts, SERVED_WIDTH)
        whole, blocks = tracked.log_loss(), tracked.arms()
        if not sums.any() or blocks is None or whole is None:
            return (), ()
        ordered = self._by_name(used)
        sums = sums[:, :, np.searchsorted(used, ordered)]
        parts = SplitParts([self._name(k) for k in ordered.tolist()], sums)
        terms = self._terms(tracked)
        return (
            split_findings(parts, terms, float(whole.v_clu), float(whole.df)),
            split_mixes(parts, blocks, terms, plain(tracked.candidate.version)),
        )

    def _calibration(self, tracked: Tracked) -> Buckets:
        """By bucket, of versions that both serve."""
        if tracked.deploy.kind == "shadow":
            return ()
        used, sums = self._served(tracked, Ledger.levels, LEVEL_WIDTH)
        if not sums.any():
            return ()
        by_cell = sums.reshape(*sums.shape[:3], 3, BLOCKS)
        return calibration_buckets([self._name(k)[1] for k in used.tolist()], by_cell, tracked.rule)

    def _served(
        self, tracked: Tracked, sums_of: Callable[[Ledger, int, int, int], ServedSums], width: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(places of K parts, int64[2, S, K, width]) of what both versions served in S hours."""
        found = []
        for arm, series in enumerate((tracked.baseline, tracked.candidate)):
            for monitor in self._monitors:
                values, by_segment = sums_of(monitor.ledger, self._codes[series], *self._span(tracked))
                found += [(arm, number, self._places(values), rows) for number, rows in by_segment.items()]
        used = np.unique(np.concatenate([np.empty(0, np.int64), *(places for _, _, places, _ in found)]))
        hours = sorted({number for _, number, _, _ in found})
        sums = np.zeros((2, len(hours), used.size, width), np.int64)
        for arm, number, places, rows in found:
            sums[arm, hours.index(number), np.searchsorted(used, places)] += rows
        return used, sums

    def _known_users(self, tracked: Tracked) -> tuple[Finding, ...]:
        """Of paired comparisons; made anew when the users' columns are."""
        if (
            tracked.setup != "paired"
            or not tracked.kept
            or not {tracked.baseline, tracked.candidate} <= self._columns.keys()
        ):
            return ()
        a, b = self._columns[tracked.baseline], self._columns[tracked.candidate]
        of, found = self._users.get(tracked.id, (None, ()))
        if of is not b:
            found = user_findings(
                (a.user, b.user), (a.impressions, b.impressions), b.clicks, (a.log_loss_nats, b.log_loss_nats)
            )
            self._users[tracked.id] = b, found
        return found

    def _terms(self, tracked: Tracked) -> Terms:
        rule, rho = tracked.rule, tracked.evidence.rho()
        return Terms(
            rule.alpha,
            rule.margins["log_loss"],
            rule.min_clicks,
            rule.min_blocks,
            None if rho is None else rho * SHARES,
        )

    def _span(self, tracked: Tracked) -> tuple[int, int]:
        """[first, last) pane of the comparison."""
        return tracked.segment, (tracked.start + self._horizon) // self._pane + 1

    def _places(self, values: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
        return np.array([dimension * self._values + value for dimension, value in values], np.int64)

    def _by_name(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Codes come in order of arrival; nothing, not even the last bit of a sum, may depend on that."""
        return np.array(sorted(places.tolist(), key=self._name), np.int64)

    def _name(self, place: int) -> tuple[str, str]:
        dimension, value = divmod(place, self._values)
        if dimension == len(self._catalog.dimensions):
            return PCLICK, self._buckets[value]
        return self._catalog.dimensions[dimension], self._catalog.values[dimension][value]

    # -- early readings ------------------------------------------------------------------------------------------

    def _read_early(self, all_of: Sequence[Tracked]) -> dict[str, tuple[EarlyReading, ...]]:
        some = [t for t in all_of if {t.baseline, t.candidate} <= self._codes.keys()]
        if not some or not self._monitors:
            return {}
        pending = [self._pending(m, PENDING_ROWS // len(self._monitors)) for m in self._monitors]
        pending = [rows for rows in pending if rows.ts.size]
        delays = self._delays(pending)
        return {tracked.id: self._early_of(tracked, pending, delays) for tracked in some}

    def _pending(self, monitor: Monitor, most: int) -> _Pending:
        joiner = monitor.joiner
        rows = joiner.pending_rows(most)
        table, state = joiner.table, joiner.table.state[rows]
        return _Pending(
            ts=table.ts[rows],
            series=np.where(np.isnan(table.pclick[rows]), np.int32(-1), table.series[rows]),
            clicked=(state & CLICKED) != 0,
            known=(state & KNOWN) != 0,
            age=np.maximum(joiner.progress.newest_label - table.ts[rows], 0).astype(np.float64),
            scored=joiner.scored(rows, [learner.series for learner in monitor.learners]),
        )

    def _delays(self, pending: Sequence[_Pending]) -> Delays | None:
        counts = sum(
            (m.joiner.delays[: len(DELAY_EDGES)] for m in self._monitors), np.zeros(len(DELAY_EDGES), np.int64)
        )
        ages = np.concatenate([np.empty(0), *(rows.age[rows.clicked & ~rows.known] for rows in pending)])
        return learn_delays(counts, DELAY_EDGES, float(self._window), ages)

    def _early_of(
        self, tracked: Tracked, pending: Sequence[_Pending], delays: Delays | None
    ) -> tuple[EarlyReading, ...]:
        paired = tracked.setup == "paired"
        codes = self._codes[tracked.baseline], self._codes[tracked.candidate]
        arms = []
        for mine, other in (codes, codes[::-1]):
            columns: list[tuple[NDArray[Any], ...]] = []
            for rows in pending:
                p = rows.of(mine)
                on = ~np.isnan(p) & (rows.ts >= tracked.start) & (rows.ts < tracked.start + self._horizon)
                on &= ~np.isnan(rows.of(other)) if paired else rows.series == mine
                arrived = np.ones(p.size) if delays is None else np.where(rows.known, 1.0, delays.within(rows.age))
                columns.append((p[on], rows.series[on] == mine, rows.clicked[on], arrived[on]))
            p, served, clicked, arrived = (
                np.concatenate([np.empty(0), *(column[i] for column in columns)]) for i in range(4)
            )
            arms.append(Arm(p, served > 0, clicked > 0, None if delays is None else arrived))
        return early_readings(arms[0], arms[1], paired)

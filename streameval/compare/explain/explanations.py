"""What a comparison's sums do not show: where and why versions differ (`explain.findings`, `explain.mixes`), and what
pending impressions already suggest (`explain.early`). Gathered from the partitions, and cached until something new is
known.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.compare.counted import Counted
from streameval.compare.evidence.evidence import Rule
from streameval.compare.explain.calibration_buckets import calibration_buckets
from streameval.compare.explain.early import Arm, DelayCurve, early_readings, learn_delays
from streameval.compare.explain.findings import (
    PairedParts,
    SplitParts,
    Terms,
    UserSums,
    paired_findings,
    split_findings,
    user_findings,
)
from streameval.compare.explain.mixes import split_mixes
from streameval.compare.explain.uniform_exposure import paired_mixes
from streameval.compare.ledger.parts import PartSums, ServedSums
from streameval.compare.ledger.sums import (
    LEVEL_WIDTH,
    LEVEL_Y,
    PART_D,
    PART_D_SQ,
    PART_N,
    PART_WIDTH,
    PART_Y,
    SERVED_WIDTH,
    SERVED_Y,
)
from streameval.compare.reading.reading import (
    PCLICK,
    CalibrationBucket,
    Comparison,
    EarlyReading,
    Finding,
    Mix,
    UnknownMix,
)
from streameval.compare.reading.words import plain
from streameval.compare.tracking.aside import AsideHours
from streameval.compare.tracking.tracked import Tracked
from streameval.events.batch import Catalog, Series
from streameval.join.pending import PendingImpressions
from streameval.join.policy import DELAY_EDGES
from streameval.sketches.blocks import BLOCKS

PENDING_ROWS = 1 << 16  # the newest ones, over all partitions: the error of a promised AUC is then about 0.002
EARLY_SECONDS = 5.0  # minimum time between two gatherings, which also take at most a twentieth of the time
EARLY_SHARE = 20

Why = tuple[tuple[Finding, ...], tuple[Mix, ...], tuple[UnknownMix, ...]]
_NO_WHY: Why = ((), (), ())
_Buckets = tuple[CalibrationBucket, ...]


# relative to rho of the whole comparison: a part has less traffic and, if it carries the difference, much less variance
_SHARES = np.array([1.0, 1.0 / 8, 1.0 / 64])


class Explanations:
    """Findings, mixes and early readings of all comparisons of a process. Used by the loop's thread, while nothing is
    being counted.
    """

    def __init__(
        self,
        catalog: Catalog,
        pane: int,
        attribution_window: int,
        edges: Sequence[float],
        aside: AsideHours,
    ) -> None:
        """`pane`, `attribution_window` in ms; `edges`: inner edges of the pClick buckets; `aside`: hours that
        comparisons leave out, and so their explanations.
        """
        self._catalog, self._aside = catalog, aside
        self._pane, self._window = pane, attribution_window
        bounds = [0.0, *edges, 1.0]
        self._buckets = [f"{a:g}-{b:g}" for a, b in pairwise(bounds)]
        self._values = max(catalog.radix, len(self._buckets))
        self._why: dict[str, tuple[Comparison, Why, _Buckets]] = {}  # for this reading
        self._users: dict[str, tuple[object, tuple[Finding, ...]]] = {}  # for these columns
        self._early: dict[str, tuple[EarlyReading, ...]] = {}
        self._early_due = 0.0  # monotonic seconds
        self._partitions: Sequence[Counted] = ()
        self._columns: Mapping[Series, UserSums] = {}
        self._codes: dict[Series, int] = {}

    def begin(self, partitions: Sequence[Counted], users: Mapping[Series, UserSums], all_of: Sequence[Tracked]) -> None:
        """Gathers the data for `finish`, before the comparisons are read."""
        self._partitions, self._columns = partitions, users
        self._codes = {series: code for code, series in enumerate(self._catalog.series)}
        known = {tracked.id for tracked in all_of}
        for kept in (self._why, self._users, self._early):
            for gone in kept.keys() - known:
                del kept[gone]
        begin = time.monotonic()
        waiting = any(one.pending for one in partitions)
        if begin >= self._early_due or not waiting:  # the end of a run must not depend on earlier readings
            self._early = self._read_early(all_of)
            self._early_due = begin + max(EARLY_SECONDS, EARLY_SHARE * (time.monotonic() - begin))

    def forget(self) -> None:
        """Drops cached results: partitions were assigned or revoked."""
        self._why.clear()
        self._early_due = 0.0

    def finish(self, tracked: Tracked, reading: Comparison) -> Comparison:
        """Returns the comparison with everything known added."""
        (findings, mixes, unknown), buckets = self._known_why(tracked, reading)
        return replace(
            reading,
            findings=findings + self._known_users(tracked),
            mixes=mixes,
            mixes_unknown=unknown,
            calibration_buckets=buckets,
            early=self._early.get(tracked.id, ()),
        )

    # -- for whom, and why ---------------------------------------------------------------------------------------

    def _known_why(self, tracked: Tracked, reading: Comparison) -> tuple[Why, _Buckets]:
        """Returns findings, mixes and buckets, recomputed when the reading is: every pane has a look, and nothing
        changes without one.
        """
        of, why, buckets = self._why.get(tracked.id, (None, _NO_WHY, ()))
        if not tracked.kept:
            return _NO_WHY, ()
        if of is not reading and reading.impressions and {tracked.baseline, tracked.candidate} <= self._codes.keys():
            why = (self._paired if tracked.setup == "paired" else self._split)(tracked, reading)
            buckets = self._calibration(tracked, reading)
            self._why[tracked.id] = reading, why, buckets
        return why, buckets

    def _paired(self, tracked: Tracked, reading: Comparison) -> Why:
        a, b = self._codes[tracked.baseline], self._codes[tracked.candidate]
        sums = np.zeros(((len(self._catalog.dimensions) + 1) * self._values, PART_WIDTH), np.int64)
        d = [*range(PART_D, PART_Y)]
        for one in self._partitions:
            for pair in ((a, b), (b, a)):
                values, rows = one.ledger.parts.of_pair(*pair, self._segments(tracked))
                if pair[0] == b:  # the candidate served
                    rows[:, d] *= -1
                sums[self._places(values)] += rows
        used = self._by_name(np.flatnonzero(sums[:, PART_N:PART_D].any(axis=1)))
        some = sums[used]
        parts = PairedParts(
            [self._name(k) for k in used.tolist()],
            some[:, PART_N:PART_D],
            some[:, PART_D:PART_Y],
            some[:, PART_Y],
            some[:, PART_D_SQ],
        )
        loss = next((m.baseline for m in reading.metrics if m.metric == "log_loss"), None)
        if loss is None or not used.size:
            return _NO_WHY
        clicks = some[used >= len(self._catalog.dimensions) * self._values, PART_Y].sum()  # buckets cover all traffic
        terms, exposure = self._terms(tracked, reading, clicks), tracked.exposure()
        findings = paired_findings(parts, terms, loss)
        if exposure is None:
            return findings, (), ()
        name = plain(tracked.candidate.version)
        mixes = paired_mixes(exposure.sums, exposure.found, exposure.exposed, terms, name, exposure.lists)
        return findings, *mixes

    def _split(self, tracked: Tracked, reading: Comparison) -> Why:
        used, sums = self._served(tracked, PartSums.of_served, SERVED_WIDTH)
        whole, blocks = tracked.log_loss(), tracked.arms()
        if not sums.any() or blocks is None or whole is None:
            return _NO_WHY
        ordered = self._by_name(used)
        sums = sums[:, :, np.searchsorted(used, ordered)]
        parts = SplitParts([self._name(k) for k in ordered.tolist()], sums)
        whole_of = ordered >= len(self._catalog.dimensions) * self._values
        clicks = sums[:, :, whole_of, SERVED_Y].sum(axis=(1, 2)).min()
        terms = self._terms(tracked, reading, clicks)
        return (
            split_findings(parts, terms, float(whole.v_clu), float(whole.df)),
            split_mixes(parts, blocks, terms, plain(tracked.candidate.version)),
            (),
        )

    def _calibration(self, tracked: Tracked, reading: Comparison) -> _Buckets:
        """Returns calibration by bucket, if both versions serve."""
        if tracked.deploy.kind == "shadow":
            return ()
        used, sums = self._served(tracked, PartSums.levels, LEVEL_WIDTH)
        if not sums.any():
            return ()
        by_cell = sums.reshape(*sums.shape[:3], 3, BLOCKS)
        clicks = by_cell[:, :, :, LEVEL_Y // BLOCKS].sum(axis=(1, 2, 3)).min()
        rule = replace(tracked.rule, min_clicks=_fewest(tracked.rule, reading, clicks))
        return calibration_buckets([self._name(k)[1] for k in used.tolist()], by_cell, rule)

    def _served(
        self, tracked: Tracked, sums_of: Callable[[PartSums, int, Container[int]], ServedSums], width: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns (places of K parts, int64[2, S, K, width]): sums of what both versions served in S hours."""
        found = []
        for arm, series in enumerate((tracked.baseline, tracked.candidate)):
            for one in self._partitions:
                values, by_segment = sums_of(one.ledger.parts, self._codes[series], self._segments(tracked))
                found += [(arm, number, self._places(values), rows) for number, rows in by_segment.items()]
        used = np.unique(np.concatenate([np.empty(0, np.int64), *(places for _, _, places, _ in found)]))
        hours = sorted({number for _, number, _, _ in found})
        sums = np.zeros((2, len(hours), used.size, width), np.int64)
        for arm, number, places, rows in found:
            sums[arm, hours.index(number), np.searchsorted(used, places)] += rows
        return used, sums

    def _known_users(self, tracked: Tracked) -> tuple[Finding, ...]:
        """Returns the users' findings of paired comparisons, recomputed when the users' columns are."""
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

    def _terms(self, tracked: Tracked, reading: Comparison, clicks: int) -> Terms:
        """`clicks`: over all parts, with copies if the log is sampled."""
        rule, rho = tracked.rule, tracked.rho()
        return Terms(
            rule.alpha,
            rule.margins["log_loss"],
            _fewest(rule, reading, clicks),
            rule.min_blocks,
            None if rho is None else rho * _SHARES,
        )

    def _segments(self, tracked: Tracked) -> Container[int]:
        """Returns the segments that the comparison reads, by first pane."""
        return self._aside.without(range(tracked.segment, tracked.until // self._pane + 1))

    def _places(self, values: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
        return np.array([dimension * self._values + value for dimension, value in values], np.int64)

    def _by_name(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns places sorted by name: codes are in order of arrival, and nothing, not even the last bit of a sum,
        may depend on that.
        """
        return np.array(sorted(places.tolist(), key=self._name), np.int64)

    def _name(self, place: int) -> tuple[str, str]:
        dimension, value = divmod(place, self._values)
        if dimension == len(self._catalog.dimensions):
            return PCLICK, self._buckets[value]
        return self._catalog.dimensions[dimension], self._catalog.values[dimension][value]

    # -- early readings ------------------------------------------------------------------------------------------

    def _read_early(self, all_of: Sequence[Tracked]) -> dict[str, tuple[EarlyReading, ...]]:
        # none for a sampled log: pending impressions are used unweighted
        some = [t for t in all_of if {t.baseline, t.candidate} <= self._codes.keys() and not t.rule.weighed]
        if not some or not self._partitions:
            return {}
        most = PENDING_ROWS // len(self._partitions)
        pending = [rows for one in self._partitions if (rows := one.newest_pending(most)).ts.size]
        delays = self._delays(pending)
        # by impression, the share of the clicks that should have arrived by now
        arrived = [
            np.ones(rows.ts.size) if delays is None else np.where(rows.known, 1.0, delays.within(rows.age))
            for rows in pending
        ]
        of = list(zip(pending, arrived, strict=True))
        return {tracked.id: self._early_of(tracked, of, delays is not None) for tracked in some}

    def _delays(self, pending: Sequence[PendingImpressions]) -> DelayCurve | None:
        counts = sum((one.delays for one in self._partitions), np.zeros(len(DELAY_EDGES), np.int64))
        ages = np.concatenate([np.empty(0), *(rows.age[rows.clicked & ~rows.known] for rows in pending)])
        return learn_delays(counts, DELAY_EDGES, float(self._window), ages)

    def _early_of(
        self, tracked: Tracked, pending: Sequence[tuple[PendingImpressions, NDArray[np.float64]]], delays_known: bool
    ) -> tuple[EarlyReading, ...]:
        paired = tracked.setup == "paired"
        codes = self._codes[tracked.baseline], self._codes[tracked.candidate]
        arms = []
        for mine, other in (codes, codes[::-1]):
            columns: list[tuple[NDArray[Any], ...]] = []
            for rows, share in pending:
                p = rows.scores_of(mine)
                on = ~np.isnan(p) & (rows.ts >= tracked.start) & (rows.ts < tracked.until)
                on &= ~np.isnan(rows.scores_of(other)) if paired else rows.series == mine
                columns.append((p[on], rows.series[on] == mine, rows.clicked[on], share[on]))
            p, served, clicked, arrived = (
                np.concatenate([np.empty(0), *(column[i] for column in columns)]) for i in range(4)
            )
            arms.append(Arm(p, served > 0, clicked > 0, arrived if delays_known else None))
        return early_readings(arms[0], arms[1], paired)


def _fewest(rule: Rule, reading: Comparison, clicks: int) -> int:
    """Returns the floor of clicks; for a weighted log it is multiplied by the ratio of all `clicks` to
    effective ones.
    """
    if not rule.weighed or not reading.clicks:
        return rule.min_clicks
    return math.ceil(rule.min_clicks * max(int(clicks) / reading.clicks, 1.0))

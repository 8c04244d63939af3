"""A comparison of two versions over a complete table, in a single look.

For a stream, a comparison accumulates its sums look by look, in event time; here they are computed from all rows and
evaluated at the end of the table: the same sums by block of users, the same variances, tests, margins and tolerances.
With one look there is one window, and no minimum duration; the floors of clicks and blocks of users remain. Versions that
served in turn have no hour in which both did, and cannot be compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from streameval.compare.evidence.evidence import Weighed
from streameval.compare.evidence.ratio import Ints
from streameval.compare.evidence.rule_from_settings import rule_of
from streameval.compare.ledger.gauc_rows import Gathered, GaucRows, ListScores
from streameval.compare.ledger.ledger import Ledger
from streameval.compare.ledger.row_shape import WHOLE_CURVE, shape_of
from streameval.compare.ledger.strata import Strata
from streameval.compare.ledger.user_aucs import Groups, UserScores, known_items
from streameval.compare.reading.reading import Comparison, Deploy, Setup
from streameval.compare.tracking.sequential import SequentialTracked
from streameval.counting.look_panes import LookPanes
from streameval.counting.scoreboard import Labelled
from streameval.events.batch import Catalog, Series
from streameval.events.columns import Scored, take_scored
from streameval.join.scores import split_scored
from streameval.settings.compare import Compare
from streameval.sketches.blocks import NO_ITEM, blocks_of

NEVER_TOGETHER = "no_hour_served_by_both"
WHOLE = 1 << 60  # ms: the window of users' AUC, long enough to hold any table


class AtOnce:
    """The sums of every version of a table, and of every pair of versions that scored the same rows."""

    def __init__(
        self,
        settings: Compare,
        catalog: Catalog,
        pane: int,
        edges: tuple[float, ...],
        users: bool = True,
        *,
        min_propensity: float = 1e-4,
        operating_range: tuple[float, float] = WHOLE_CURVE,
        weighed: Weighed = "",
    ) -> None:
        """`pane` in ms; `edges`: inner edges of the pClick buckets; `users`: whether rows have users, whose AUC is then
        compared too; `min_propensity`: the smallest propensity that is believed; `operating_range`: false positive
        rates of the partial AUC; `weighed`: see `Rule`.
        """
        self._rule = replace(
            rule_of(settings), min_duration=0, windows=1, first_weight=1.0, user_cap=0, strict=False, weighed=weighed
        )
        self._shape = shape_of(settings.more, min_propensity, operating_range)
        self._catalog, self._pane, self._users = catalog, pane, users
        self._ledger = Ledger(pane, pane, catalog.radix, len(catalog.dimensions), edges, pieces=self._shape.pieces)
        self._parts: list[tuple[Labelled, Scored]] = []  # rows with several scores, for users' AUC
        self._first = self._last = 0  # ms

    def observe(self, labelled: Labelled, scored: Scored) -> None:
        """Adds rows, in time order."""
        if not labelled.ts.size:
            return
        if not self._last:
            self._first = int(labelled.ts[0])
        self._last = int(labelled.ts[-1])
        self._ledger.observe(labelled, scored, +1)
        if self._users and len(scored.bounds) > 2:
            self._parts.append((labelled, scored))

    def comparisons(self, baseline: str | None) -> list[Comparison]:
        """Compares the other versions of every model with its baseline: the version named `baseline`, else the model's
        first version.

        Call it after all rows have been added. Raises ValueError if no version is called `baseline`.
        """
        series = [one for one in self._catalog.series if not one.objective]
        if baseline is not None and baseline not in {one.version for one in series}:
            there = ", ".join(one.version for one in series)
            raise ValueError(f"baseline = {baseline!r}: no such version; there are {there}")
        end = LookPanes(self._pane).of(self._last // self._pane) + 1
        gains = [(segment, key, row) for segment, rows in self._ledger.advance(end) for key, row in rows.items()]
        placed = Strata(self._pane, self._pane, str).settle([self._ledger], end, over=True)
        gains += [(segment, key, row) for (segment, key), row in placed.items()]
        gauc = list(self._gauc())
        out: list[Comparison] = []
        for model in dict.fromkeys(one.model for one in series):
            versions = [one for one in series if one.model == model]
            first = next((one for one in versions if one.version == baseline), versions[0])
            out += [self._compared(first, one, gains, gauc) for one in versions if one != first]
        return out

    def _compared(
        self,
        baseline: Series,
        candidate: Series,
        gains: list[tuple[int, tuple[int, int], Ints]],
        gauc: list[tuple[tuple[int, int], Ints]],
    ) -> Comparison:
        series = self._catalog.series
        codes = {series.index(baseline), series.index(candidate)}
        setup: Setup = "paired" if any(set(key) == codes for _, key, _ in gains) else "split"
        start, first = self._first, self._ledger.bounds.first(self._first // self._pane)
        deploy = Deploy(candidate.version, candidate.model, candidate.version, baseline.version, start, "deploy", start)
        tracked = SequentialTracked(deploy, setup, baseline, candidate, start, first, self._rule, shape=self._shape)
        for segment, (served, other), row in gains:
            tracked.add(segment, (series[served], series[other] if other >= 0 else None), row)
        for (served, other), row in gauc:
            tracked.gain_gauc(first, (series[served], series[other]), row)
        tracked.look(self._last, None)
        reading = tracked.reading()
        if setup == "split" and not reading.impressions:
            reading = _never_together(reading)
        # with a single look there is no time at which the verdict was reached
        return replace(reading, since=None, decided_at=None, decided_on=None, decided_now=None)

    def _gauc(self) -> Iterator[tuple[tuple[int, int], Ints]]:
        """Yields the sums behind the difference in users' AUC, by (server, other) codes, over all rows of users who
        have clicked.
        """
        if not self._parts:
            return
        user = np.concatenate([labelled.user for labelled, _ in self._parts])
        label = np.concatenate([labelled.label for labelled, _ in self._parts])
        users, of = np.unique(user, return_inverse=True)
        clicked = np.zeros(users.size, np.bool_)
        clicked[of[label == 1]] = True
        place = (np.cumsum(clicked) - 1).astype(np.int32)
        rows = np.flatnonzero(clicked[of])
        scored = take_scored([scored for _, scored in self._parts], rows)
        window = np.zeros(int(clicked.sum()), np.int32)
        item = [
            np.full(labelled.ts.size, NO_ITEM, np.int8) if labelled.item is None else labelled.item
            for labelled, _ in self._parts
        ]
        copies = [labelled.copies.now for labelled, _ in self._parts if labelled.copies is not None]
        groups = Groups(window, blocks_of(users[clicked]), place[of[rows]], label[rows])
        groups = groups._replace(item=known_items(np.concatenate(item)[rows]))
        if copies:
            groups = groups._replace(copies=np.concatenate(copies)[rows])
        gauc = GaucRows(WHOLE, 0, 0, self._shape.lists)
        scores = UserScores()
        scores.add(groups, *split_scored(scored, groups.group.size))
        gauc.compute(
            Gathered(0, np.zeros(1, np.int64), groups, scores, ListScores(scored, np.zeros(rows.size, np.uint64)))
        )
        for _, sums in gauc.take(WHOLE):
            yield from sums.items()


def _never_together(reading: Comparison) -> Comparison:
    """Says so in place of a floor: more clicks would not help."""
    floor = reading.reason
    metrics = tuple(replace(m, reason=NEVER_TOGETHER) if m.reason == floor else m for m in reading.metrics)
    return replace(reading, reason=NEVER_TOGETHER, metrics=metrics)

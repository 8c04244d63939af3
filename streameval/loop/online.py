"""The online models of a partition: they score rows of the joiner, and learn the labels of those that have matured."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Features
from streameval.join.joiner import Joiner
from streameval.join.policy import BEFORE, CLICKED, LATE, SHOWN
from streameval.join.rows import SCORE_OF
from streameval.loop.row_counts import RowCounts
from streameval.models.learner import Learner

log = logging.getLogger(__name__)


@dataclass(slots=True)
class OnlineModels:
    """`Partition.step` decides when they score and learn."""

    learners: list[Learner]
    joiner: Joiner
    rows: RowCounts
    window: int  # attribution window, ms: a label is known this long after its impression
    at_label: bool  # scores are computed when labels mature, just before these are learned
    counts: Counter[str]  # late_unscored
    _added: set[int] = field(default_factory=set)  # by number, models that have not seen all restored rows

    def score(self, rows: NDArray[np.int64]) -> None:
        """Scores rows that are not late; the model's training watermark is stored with each score."""
        table = self.joiner.table
        late = (table.state[rows] & LATE) != 0
        if late.any():
            self.counts["late_unscored"] += int(late.sum())
            rows = rows[~late]
        if not rows.size:
            return
        for numbers, some in self._by_model(rows):
            for part, features in self._features(some):
                for number in numbers:
                    learner = self.learners[number]
                    table.score[number][some[part]] = learner.score(features)
                    table.trained[number][some[part]] = learner.trained

    def learn(self, rows: NDArray[np.int64]) -> None:
        """Learns the labels of rows that have just matured."""
        table = self.joiner.table
        known = int(table.ts[rows[-1]]) + self.window
        asked = [learner for learner in self.learners if learner.suspended is None]
        for numbers, some in self._by_model(rows):
            for part, features in self._features(some):
                label = (table.state[some[part]] & CLICKED).astype(np.int8)
                for number in numbers:
                    learner = self.learners[number]
                    if learner.suspended is None:
                        done = learner.learn(features, label)
                        if learner.suspended is not None:
                            self._withdraw(number, some, part.start + done - 1)
        for learner in asked:
            learner.trained = max(learner.trained, known)

    def tell_blind(self) -> None:
        """Warns of models that have learned, but not before they had scored most of what there was."""
        for one in self.learners:
            if one.updates and one.scored_blindly > one.scored // 2:
                log.warning(
                    'model "%s" scored %d of %d impressions before it had learned a label: a log that is no longer than '
                    "join.attribution_window, or impressions that are read before their clicks (files are read one after the "
                    "other: give those of clicks first)",
                    one.name,
                    one.scored_blindly,
                    one.scored,
                )

    def _withdraw(self, number: int, rows: NDArray[np.int64], last: int) -> None:
        """Removes scores that a model, suspended at label `last` of these rows, should not have given.

        These are the scores of impressions since that label became known, which a batch scores before it learns the label.
        """
        table = self.joiner.table
        known = int(table.ts[rows[last]]) + self.window
        after = rows[last + 1 :] if self.at_label else self.joiner.shown_since(known)
        self.rows.hide(after[(table.state[after] & SHOWN) != 0])
        score = self.joiner.cold.copy(
            table, f"{SCORE_OF}{table.models[number]}"
        )  # a checkpoint in progress still reads the old column
        score[after] = np.nan
        table.score[number] = score

    def restore(self) -> None:
        """The rows of the joiner have been restored."""
        rows = self.joiner.pending_rows
        self._added = {n for n, trained in enumerate(self.joiner.table.trained) if (trained[rows] == BEFORE).any()}

    def _by_model(self, rows: NDArray[np.int64]) -> Iterator[tuple[list[int], NDArray[np.int64]]]:
        """Numbers of models, and those of the rows that they may see: an added one none that it has not met when they came, as their
        features may not have been kept, or not as it needs them.
        """
        if len(self._added) < len(self.learners):
            yield [n for n in range(len(self.learners)) if n not in self._added], rows
        for number in self._added:
            met = rows[self.joiner.table.trained[number][rows] != BEFORE]
            if met.size:
                yield [number], met

    def _features(self, rows: NDArray[np.int64]) -> list[tuple[slice, Features]]:
        if pieces := self.joiner.runs.features(rows):
            return pieces
        nothing = np.empty(0, np.uint64), np.empty(0)  # events without features: every row is empty
        dicts: tuple[dict[str, float], ...] = tuple({} for _ in range(rows.size))
        return [(slice(0, rows.size), Features(np.zeros(rows.size + 1, np.int64), *nothing, dicts))]

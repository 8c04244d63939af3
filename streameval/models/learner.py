"""An online model in the loop: what it has learned, where it failed, and when it is suspended.

A model is third-party code, and events are untrusted: sooner or later one fails on the other. Then that event gets no
score from that model, or is not learned by it, and is counted under a reason; everything else continues. A model that
keeps failing is suspended: `FORGIVEN_BY` successful events make up for one failure, so a model that fails in less than
one event in a hundred is never suspended, and one that always fails is suspended after `max_failures` events.

Failures of scores and of labels are counted separately, each in order of arrival, so that neither depends on how the
stream was divided into batches.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Features
from streameval.join.policy import NEVER
from streameval.models.protocol import OnlineModel

log = logging.getLogger(__name__)

FORGIVEN_BY = 100  # successful events that make up for a failure
_BOTH = 3  # a label without and one with a click have been learned

Verb = Literal["score", "learn"]


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """Where an online model works: the topic (or "files") of its impressions, and their partition."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Suspension:
    """Why and since which event a partition's model is suspended."""

    model: str
    topic: str
    partition: int
    offset: int | None  # of the impression's message (or its row in a file), where known
    verb: Verb  # what the model was doing with it: scoring or learning
    reason: str  # of `models.protocol.FAILURES`
    cause: str  # in words that do not quote the event

    def words(self) -> str:
        """In a line."""
        where = f"{self.topic}, partition {self.partition}" + ("" if self.offset is None else f", offset {self.offset}")
        return f'model "{self.model}" is suspended since {where}: {self.reason}: {self.cause}'


@dataclass(slots=True)
class Learner:
    """An online model of one partition, the series of its scores, and how far it has learned."""

    model: OnlineModel
    series: int
    name: str = "model"
    place: ModelPlace = ModelPlace("files", 0)
    max_failures: int = 100
    revision: int = 0  # the setting; a state of another revision is not taken up
    trained: int = NEVER  # ms: the latest moment at which a label that it learned became known
    updates: int = 0
    failures: Counter[str] = field(default_factory=Counter)  # by reason
    suspended: Suspension | None = None
    scored: int = 0  # by this process
    scored_blindly: int = 0  # of these, before it had learned anything
    _debt: Counter[str] = field(default_factory=Counter)  # by verb: failures * FORGIVEN_BY, minus successes since
    _labels: int = 0  # bits of the labels that it has learned

    def score(self, features: Features) -> NDArray[np.float64]:
        """P(click) of n impressions (float64[n]), NaN without one; of a suspended model all are."""
        n = features.rows
        if self.suspended is not None:
            return np.full(n, np.nan)
        self.scored += n
        self.scored_blindly += n if self.updates == 0 else 0
        account = _Account(self, "score", features)
        p = self.model.predict(features, account.failed)
        p[account.close(n) :] = np.nan
        return p

    def learn(self, features: Features, labels: NDArray[np.int8]) -> int:
        """Learns n labels, and returns how many rows it processed: fewer than n when it was suspended at the last."""
        if self.suspended is not None:
            return 0
        account = _Account(self, "learn", features)
        self.model.learn(features, labels, account.failed)
        n = account.close(labels.size)
        self.updates += n - account.failures
        if self._labels != _BOTH and n > account.failures:
            learned = np.ones(n, np.bool_)
            learned[account.rows] = False
            self._labels |= int(2 * labels[:n][learned].any()) | int((labels[:n][learned] == 0).any())
        return n

    def reason(self, reason: str) -> str:
        """Most classifiers know only the labels that they have learned: a missing one is no failure before both have occurred."""
        return "not_learned_yet" if reason == "one_class" and self._labels != _BOTH else reason

    def state(self) -> dict[str, Any]:
        """Everything, for `restore`."""
        return {
            "name": self.name,
            "trained": self.trained,
            "updates": self.updates,
            "model": dict(self.model.state()),
            "revision": self.revision,
            "failures": dict(self.failures),
            "debt": dict(self._debt),
            "labels": self._labels,
            "suspended": None if self.suspended is None else asdict(self.suspended),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a state; starts over if the entry's `revision` has changed. Raises ModelError."""
        saved = state.get("revision", 0)
        if saved != self.revision:
            log.info(
                'model "%s", partition %d: revision %d replaces %d: starting over',
                self.name,
                self.place.partition,
                self.revision,
                saved,
            )
            return
        self.trained, self.updates = state["trained"], state["updates"]
        self.model.restore(state["model"])
        self.failures, self._debt = Counter(state.get("failures", {})), Counter(state.get("debt", {}))
        # a state from before failures were counted does not say what was learned
        self._labels = state.get("labels", _BOTH if self.updates else 0)
        suspended = state.get("suspended")
        if suspended is not None:
            self.suspended = Suspension(**suspended)
            log.error("%s", self.suspended.words())


class _Account:
    """The failures of one call, as they occur."""

    def __init__(self, learner: Learner, verb: Verb, features: Features) -> None:
        self._learner = learner
        self._verb: Verb = verb
        self._offset = features.offset
        self._done = 0  # rows that are judged
        self.rows: list[int] = []

    @property
    def failures(self) -> int:
        """Rows that failed."""
        return len(self.rows)

    def failed(self, row: int, reason: str, cause: str) -> bool:
        """See `Failed`."""
        learner = self._learner
        reason = learner.reason(reason)
        self.rows.append(row)
        self._well(row)
        self._done = row + 1
        learner.failures[reason] += 1
        offset = None if self._offset is None else int(self._offset[row])
        found = Suspension(
            learner.name, learner.place.topic, learner.place.partition, offset, self._verb, reason, cause
        )
        if learner.failures[reason] == 1:
            log.warning(
                'model "%s" fails at %s, partition %d, offset %s: %s: %s; the event gets no score from it, or is not '
                "learned; further failures are counted",
                found.model,
                found.topic,
                found.partition,
                "unknown" if offset is None else offset,
                reason,
                cause,
            )
        if reason == "not_learned_yet":
            return True
        learner._debt[self._verb] += FORGIVEN_BY
        if learner._debt[self._verb] < learner.max_failures * FORGIVEN_BY:
            return True
        learner.suspended = found
        log.error(
            "%s; it has failed in more than one event in %d, %d times in all. Logged scores and other models are not "
            "affected. Fix it, raise `revision` of its entry in models, and start again",
            found.words(),
            FORGIVEN_BY,
            learner.failures.total(),
        )
        return False

    def close(self, n: int) -> int:
        """All rows are done: returns how many of n the model was asked for."""
        if self._learner.suspended is None:
            self._well(n)
            self._done = n
        return self._done

    def _well(self, row: int) -> None:
        debt = self._learner._debt
        if debt[self._verb]:
            debt[self._verb] = max(0, debt[self._verb] - (row - self._done))

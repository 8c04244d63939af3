"""One stream of `worlds` through the whole product: its `Pipeline`, fed with columns, and the readings of its comparison."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.feed import BASELINE, CANDIDATE, PAIRED, Plan, batches
from benchmarks.detection.versions import PAIRS, harm
from benchmarks.detection.worlds import HOUR, WORLDS, Stream, draw
from streameval.compare.reading.reading import COMPARED, Comparison
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings

NAMES = ("overall", *COMPARED)
RULES: Mapping[str, Mapping[str, object]] = {
    "default": {},
    "0.05/m0": {"alpha": 0.05, "margins": dict.fromkeys(COMPARED, 0.0)},
}
# between two snapshots, ms of arrival: before the deploy, in the day after it, and later; a live monitor takes one a second
STEPS = (6 * HOUR, HOUR // 4, 4 * HOUR)


@dataclass(frozen=True)
class Difference:
    """A metric's difference at one time, candidate minus baseline, and its standard error. NaN: unknown."""

    value: float
    stderr: float

    @property
    def z(self) -> float:
        """In standard errors; 0 where both are 0."""
        return 0.0 if self.value == 0.0 else self.value / self.stderr


@dataclass(frozen=True)
class Case:
    """All parameters of one stream. `world` and `pair` are names; `rule` is one of `RULES`."""

    world: str
    pair: str
    seed: int
    plan: Plan = PAIRED
    rule: str = "default"
    hours: float = 12.0
    alone: float = 24.0
    pane: str = "5m"
    floor: str = "1h"  # compare.min_duration
    marks: tuple[float, ...] = (1.0, 4.0, 12.0)  # hours since the deploy at which differences are kept
    cap: int = 0  # impressions of a user and day that count in a second e-process; 0: there is none (sums only)
    until: str | None = None  # the overall verdict after which the stream is abandoned

    def stream(self) -> Stream:
        """Its columns."""
        return draw(WORLDS[self.world], PAIRS[self.pair], self.seed, self.hours, self.alone)

    def settings(self) -> Settings:
        """The product's defaults, except for the pane, the rule and the floor of time, and without sliding windows."""
        compare = {"min_duration": self.floor, **RULES[self.rule]}
        return Settings.model_validate({"windows": {"pane": self.pane, "sliding": []}, "compare": compare})


@dataclass
class Outcome:
    """The verdicts of the comparison. Names are metrics and "overall"."""

    impressions: int = 0  # from the deploy on
    harm: float = float("nan")  # the true one, in log loss
    worse: dict[str, int] = field(default_factory=dict)  # impressions since the deploy at the first such verdict
    not_worse: dict[str, int] = field(default_factory=dict)
    retracted: set[str] = field(default_factory=set)  # names whose verdict was retracted
    final: dict[str, str] = field(default_factory=dict)
    at: dict[float, dict[str, Difference]] = field(default_factory=dict)  # by mark


def run(case: Case, stream: Stream | None = None) -> Outcome:
    """Feeds the stream and reads the comparison at every step. `stream`: the case's, if it has been drawn already."""
    stream = stream or case.stream()
    return read(stream, case.plan, case.settings(), case.marks, case.until)


def read(
    stream: Stream, plan: Plan, settings: Settings, marks: Iterable[float] = (), until: str | None = None
) -> Outcome:
    """The same for any stream; the last reading is after the end, when all labels are known."""
    with _muted():
        return _read(stream, plan, settings, marks, until)


@contextmanager
def _muted() -> Iterator[None]:
    """Mutes the log of verdicts."""
    log = logging.getLogger("streameval.compare.comparisons")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _read(stream: Stream, plan: Plan, settings: Settings, marks: Iterable[float], until: str | None) -> Outcome:
    setup = "paired" if plan.setup == "paired" else "split"
    now = [stream.ts[0] / 1000.0]
    pipeline = Pipeline(settings, lambda: now[0])
    out = Outcome(int((stream.ts >= stream.deploy).sum()))
    after = stream.ts >= stream.deploy
    out.harm = harm(stream.pclick[:, after], stream.truth[after])
    due = sorted(marks)
    # the labels of a mark are complete after the attribution window and the lateness
    slack = settings.join.attribution_window + settings.join.allowed_lateness + settings.windows.pane
    for end, some in batches(stream, plan, pipeline.catalog, snapshots(stream)):
        for batch in some:
            pipeline.take(batch)
        now[0] = end / 1000.0
        found = _comparison(pipeline.compare(), setup)
        if found is None:
            continue
        _note(out, found, stream)
        while due and end >= stream.deploy + due[0] * HOUR + slack:
            out.at[due.pop(0)] = differences(found)
        if until is not None and out.final["overall"] == until:
            return out
    pipeline.finish()
    found = _comparison(pipeline.compare(), setup)
    if found is not None:
        _note(out, found, stream)
        out.at |= {mark: differences(found) for mark in due}
    return out


def snapshots(stream: Stream) -> NDArray[np.int64]:
    """The arrival times, ms, at which snapshots are taken."""
    day = min(stream.deploy + 24 * HOUR, stream.end)
    before, first, later = STEPS
    return np.concatenate(
        (
            np.arange(int(stream.ts[0]) // HOUR * HOUR + before, stream.deploy, before),
            np.arange(stream.deploy, day, first),
            np.arange(day, stream.end + later, later),
        )
    )


def differences(found: Comparison) -> dict[str, Difference]:
    """By metric."""
    nan = float("nan")
    return {
        m.metric: Difference(nan if m.difference is None else m.difference, nan if m.stderr is None else m.stderr)
        for m in found.metrics
    }


def _comparison(comparisons: Iterable[Comparison], setup: str) -> Comparison | None:
    for c in comparisons:
        if c.setup == setup and (c.baseline.version, c.candidate.version) == (BASELINE, CANDIDATE):
            return c
    return None


def _note(out: Outcome, found: Comparison, stream: Stream) -> None:
    at = found.looked or found.start
    first, last = np.searchsorted(stream.ts, (stream.deploy, at))
    seen = int(last - first)
    verdicts = {"overall": found.verdict} | {m.metric: m.verdict for m in found.metrics}
    for name, verdict in verdicts.items():
        said = {"worse": out.worse, "not_worse": out.not_worse}.get(verdict)
        if said is not None:
            exact = found.since if name == "overall" and found.since is not None else at
            said.setdefault(name, int(np.searchsorted(stream.ts, exact) - first) if name == "overall" else seen)
        if out.final.get(name, "undecided") not in {"undecided", verdict} and verdict == "undecided":
            out.retracted.add(name)
        out.final[name] = verdict

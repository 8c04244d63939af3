"""Helpers for tests of streameval and of code built on it: hand-made batches, a scripted source, a manual clock, and
slow, obvious versions of the fast code."""

from __future__ import annotations

import sqlite3
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from streameval.counting.users import PaneEntries
from streameval.events import fields
from streameval.events.batch import Batch, Catalog, Clicks, Features, Impressions, Series
from streameval.events.hashing import hash_strings
from streameval.loop.pipeline import Pipeline
from streameval.results.snapshot import Snapshot, Surroundings
from streameval.sketches.accumulate import sketched
from streameval.sketches.grid import score_keys
from streameval.sketches.sorted_lists import entries
from streameval.sources.protocol import Place, Source
from streameval.store.history.format import HistoryFormat
from streameval.store.history.rows import PaneCounts, PaneRows


@dataclass(slots=True)
class Shown:
    """An impression by hand."""

    id: str
    ts: int
    user: str = "u"
    pclick: float = 0.5
    version: str = "v1"
    request: str = ""
    clicked: int | None = None
    features: Mapping[str, float] = field(default_factory=dict)  # as River has them
    fields: Mapping[str, float] = field(default_factory=dict)  # see `events.fields.carried`


@dataclass(slots=True)
class Tap:
    """A click by hand."""

    id: str
    ts: int
    fields: Mapping[str, float] = field(default_factory=dict)  # see `events.fields.carried`


Event = Shown | Tap


def make_batch(events: Sequence[Event], catalog: Catalog, partition: int = 0, shared: bool = True) -> Batch:
    """A batch of hand-made events, in arrival order."""
    shown = [(i, e) for i, e in enumerate(events) if isinstance(e, Shown)]
    taps = [(i, e) for i, e in enumerate(events) if isinstance(e, Tap)]
    n = len(shown)
    rows = [e for _, e in shown]
    names = [name for e in rows for name in e.features]
    values = [value for e in rows for value in e.features.values()]
    indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum([len(e.features) for e in rows], dtype=np.int64)))
    request = hash_strings([e.request for e in rows])
    request[[not e.request for e in rows]] = 0
    impressions = Impressions(
        order=np.array([i for i, _ in shown], np.int32),
        id=hash_strings([e.id for e in rows]),
        ts=np.array([e.ts for e in rows], np.int64),
        user=hash_strings([e.user for e in rows]),
        request=request,
        item=np.zeros(n, np.uint64),
        series=np.array([catalog.series_code("default", e.version) for e in rows], np.int32),
        pclick=np.array([e.pclick for e in rows], np.float64),
        slices=np.zeros(n, np.int64),
        label=np.array([-1 if e.clicked is None else e.clicked for e in rows], np.int8),
        fields=_fields(rows, fields.IMPRESSION),
        features=Features(indptr, hash_strings(names), np.array(values, float), tuple(dict(e.features) for e in rows)),
    )
    clicks = Clicks(
        np.array([i for i, _ in taps], np.int32),
        hash_strings([e.id for _, e in taps]),
        np.array([e.ts for _, e in taps], np.int64),
        _fields([e for _, e in taps], fields.CLICK),
    )
    return Batch(partition, impressions, clicks, shared)


def _fields(events: Sequence[Event], kind: fields.Kind) -> dict[str, NDArray[np.float64]]:
    return {one.name: np.array([e.fields.get(one.name, np.nan) for e in events]) for one in fields.carried(kind)}


@contextmanager
def carrying_all() -> Iterator[None]:
    """Batches made in the meantime carry every number of their events, also those that nobody needs."""
    more = {
        one.name: replace(one, needs=(fields.ALWAYS,)) for one in fields.scalars() if one.type in ("number", "integer")
    }
    more.pop("pclick")  # has its own column
    with patch.dict(fields.FIELDS, more):
        yield


class ManualClock:
    """A clock that moves when it is told to; seconds."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Moves on."""
        self.now += seconds


@dataclass(slots=True)
class Scores:
    """n labelled scores as columns: what one partition counted in one pane."""

    series: NDArray[np.int32]
    user: NDArray[np.uint64]
    p: NDArray[np.float64]
    label: NDArray[np.int8]
    country: NDArray[np.int32]  # a number, the value of the one dimension


def counted_pane(pane: int, names: tuple[Series, ...], scores: Scores, form: HistoryFormat) -> PaneRows:
    """The rows of one pane as a monitor would have them, slices by country included."""
    n, countries = scores.p.size, int(scores.country.max(initial=0)) + 1
    ids, slot = np.unique(scores.user, return_inverse=True)
    ranked = entries(slot.astype(np.int32), score_keys(scores.p), scores.label)
    users = {
        code: PaneEntries((ranked[scores.series == code],), (), ids, 0) for code in np.unique(scores.series).tolist()
    }
    return PaneRows(
        pane=pane,
        counts=PaneCounts(n, n, int(scores.label.sum()), 0, pane * form.pane if n else None),
        series=names,
        overall=sketched(form.overall, scores.series, scores.p, scores.label),
        slice_names={
            code * countries + c: (code, "country", f"c{c}") for code in range(len(names)) for c in range(countries)
        },
        slices=sketched(form.slice, scores.series * countries + scores.country, scores.p, scores.label),
        users=users,
    )


def history_content(path: Path) -> dict[str, set[tuple[object, ...]]]:
    """Everything that a history holds, by names: equal for files that say the same, however they were written."""
    queries = {
        "parts": "SELECT * FROM parts",
        "vectors": "SELECT model, version, source, dimension, value, level, start, partition, impressions, sums, scores "
        "FROM vectors JOIN series ON series.id = series LEFT JOIN slices ON slices.id = slice",
        "samples": "SELECT model, version, source, level, start, partition, k, entries "
        "FROM samples JOIN series ON series.id = series",
    }
    with closing(sqlite3.connect(path)) as db:
        return {name: set(db.execute(query)) for name, query in queries.items()}


class ScriptedSource(Source):
    """A source that plays what it was given: a batch, None (nothing came), or an exception (raised)."""

    inputs = ("impressions",)

    def __init__(self, script: Iterable[Batch | Exception | None]) -> None:
        self._script = deque(script)
        self.finished = not self._script
        self.committed: dict[Place, int] = {}

    def poll(self, timeout: float) -> list[Batch]:
        """The next entry of the script."""
        del timeout
        if not self._script:
            return []
        entry = self._script.popleft()
        self.finished = not self._script
        if isinstance(entry, Exception):
            raise entry
        return [] if entry is None else [entry]

    def partitions(self) -> frozenset[int]:
        """The partitions of the batches still to come."""
        return frozenset(entry.partition for entry in self._script if isinstance(entry, Batch))

    def caught_up(self) -> frozenset[Place]:
        """Nothing is known."""
        return frozenset()

    def commit(self, offsets: Mapping[Place, int]) -> None:
        """Remembered in `committed`."""
        self.committed.update(offsets)


class BruteForceJoiner:
    """The joiner's rules, one event at a time, in dictionaries: what `join.Joiner` must equal (one shared input)."""

    def __init__(self, window: int, lateness: int, horizon: int) -> None:
        self.window, self.lateness, self.horizon = window, lateness, horizon
        self.counts: Counter[str] = Counter()
        self.newest: int | None = None
        self.shown: dict[str, Shown] = {}
        self.clicked: dict[str, bool] = {}
        self.held: dict[str, list[Tap]] = {}

    @property
    def watermark(self) -> int:
        """Newest time less the lateness."""
        return -(1 << 62) if self.newest is None else self.newest - self.lateness

    def feed(self, event: Event) -> None:
        """One event."""
        self.newest = event.ts if self.newest is None else max(self.newest, event.ts)
        if isinstance(event, Shown):
            self._show(event)
        else:
            self.counts["clicks"] += 1
            known = self.shown.get(event.id)
            if known is not None and known.ts + self.horizon > self.watermark:
                self._click(known, event, arrived_after=True)
            elif event.ts + self.horizon <= self.watermark:
                self.counts["unmatched_clicks"] += 1
            else:
                self.held.setdefault(event.id, []).append(event)

    def finish(self) -> None:
        """Clicks still held are unmatched."""
        self.counts["unmatched_clicks"] += sum(len(taps) for taps in self.held.values())
        self.held.clear()

    def _show(self, event: Shown) -> None:
        known = self.shown.get(event.id)
        if event.ts + self.horizon <= self.watermark:
            self.counts["expired_impressions"] += 1
            return
        if known is not None and known.ts + self.horizon > self.watermark:
            self.counts["duplicate_impressions" if known.version == event.version else "conflicting_impressions"] += 1
            return
        self.counts["impressions"] += 1
        self.counts["late_impressions"] += event.ts < self.watermark
        self.shown[event.id] = event
        self.clicked[event.id] = event.clicked == 1
        for tap in self.held.pop(event.id, []):
            if tap.ts + self.horizon > self.watermark:
                self._click(event, tap, arrived_after=False)
            else:
                self.counts["unmatched_clicks"] += 1

    def _click(self, shown: Shown, tap: Tap, arrived_after: bool) -> None:
        if tap.ts + self.lateness < shown.ts:
            self.counts["early_clicks"] += 1
        elif shown.clicked is not None:
            self.counts["duplicate_clicks"] += 1
        elif tap.ts > shown.ts + self.window:
            self.counts["late_clicks"] += 1
        elif self.clicked[shown.id]:
            self.counts["duplicate_clicks"] += 1
        else:
            self.clicked[shown.id] = True
            self.counts["matched_clicks"] += 1
            self.counts["corrected"] += arrived_after and shown.ts + self.window <= self.watermark


def readers_see(pipeline: Pipeline, *, complete: bool = True, with_history: bool = True, **around: Any) -> Snapshot:
    """What readers see now: moved on, and shown. `around`: fields of `Surroundings`."""
    pipeline.advance(complete, with_history)
    return pipeline.snapshot(Surroundings(**around))

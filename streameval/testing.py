"""Parts for tests of streameval and of things built on it: batches by hand, a scripted source, a manual clock, and
slow, obvious twins of what is fast here."""

from __future__ import annotations

import sqlite3
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streameval.counting.users import PaneEntries
from streameval.events import Batch, Catalog, Clicks, Features, Impressions, Series
from streameval.hashing import hash_strings
from streameval.sketches.accumulate import CURVE_BITS, Scratch, add_scores, measure
from streameval.sketches.grid import bin_count, score_keys
from streameval.sketches.layout import Layout
from streameval.sketches.ranks import entries
from streameval.sketches.sparse import SparseVector
from streameval.store.history_format import HistoryFormat
from streameval.store.history_rows import PaneCounts, PaneRows


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


@dataclass(slots=True)
class Tap:
    """A click by hand."""

    id: str
    ts: int
    value: float = float("nan")


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
        position=np.full(n, -1, np.int32),
        propensity=np.full(n, np.nan),
        features=Features(indptr, hash_strings(names), np.array(values, float), tuple(dict(e.features) for e in rows)),
    )
    clicks = Clicks(
        np.array([i for i, _ in taps], np.int32),
        hash_strings([e.id for _, e in taps]),
        np.array([e.ts for _, e in taps], np.int64),
        np.array([e.value for _, e in taps], np.float64),
    )
    return Batch(partition, impressions, clicks, shared)


class ManualClock:
    """A clock that moves when it is told to; seconds."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Moves on."""
        self.now += seconds


def sketched(
    layout: Layout, series: NDArray[np.int32], p: NDArray[np.float64], label: NDArray[np.generic], sign: int = 1
) -> SparseVector:
    """The vectors of n scores of one pane, without slices: series, pClick and label (0/1) of each."""
    n, no = p.size, np.zeros(p.size, np.bool_)
    overall, slices = Scratch(layout), Scratch(Layout(1, layout.edges))
    overall.reserve(int(series.max(initial=0)) + 1, n)
    row = np.arange(n, dtype=np.int32)
    loss, curve_bin = measure(p, row, label.astype(np.int8))
    curve = np.zeros((int(series.max(initial=0)) + 1, 2, bin_count(CURVE_BITS)), np.int32)
    add_scores(
        overall, slices, p, loss, curve_bin, row, series, np.empty((0, n), np.int32), no,
        label.astype(np.int8), no, np.zeros(n, np.int32), np.zeros(n, np.int8), no, curve,
        np.zeros(len(curve), np.bool_), curve.astype(np.int64), sign,
    )  # fmt: skip
    return overall.drain()


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


class ScriptedSource:
    """A source that plays what it was given: a batch, None (nothing came), or an exception (raised)."""

    def __init__(self, script: Iterable[Batch | Exception | None]) -> None:
        self._script = deque(script)
        self.committed: dict[tuple[str, int], int] = {}

    def poll(self, timeout: float) -> list[Batch]:
        """The next entry of the script."""
        del timeout
        if not self._script:
            return []
        entry = self._script.popleft()
        if isinstance(entry, Exception):
            raise entry
        return [] if entry is None else [entry]

    @property
    def finished(self) -> bool:
        """Whether the script is over."""
        return not self._script

    def partitions(self) -> frozenset[int]:
        """The partitions of the batches still to come."""
        return frozenset(entry.partition for entry in self._script if isinstance(entry, Batch))

    def lag(self) -> Mapping[tuple[str, int], int]:
        """Nothing is known."""
        return {}

    def caught_up(self) -> frozenset[tuple[str, int]]:
        """Nothing is known."""
        return frozenset()

    def lost(self) -> Mapping[tuple[str, int], int]:
        """Nothing."""
        return {}

    def connected(self) -> bool:
        """Always."""
        return True

    def progress(self) -> tuple[int, int] | None:
        """Unknown."""
        return None

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Remembered in `committed`."""
        self.committed.update(offsets)

    def close(self) -> None:
        """Drops the rest."""
        self._script.clear()


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
            self.counts["duplicate_impressions"] += 1
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

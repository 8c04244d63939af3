"""Laws of the history: however panes were written, written again and folded, a range is the sum of its panes."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.events.batch import Series
from streameval.events.durations import DAY, HOUR
from streameval.metrics.view import NOT_KEPT_FOR_SLICES, View
from streameval.results.result import Result, SeriesView, Span, make_result, make_results
from streameval.sketches.layout import Options
from streameval.store.history.format import HistoryFormat
from streameval.store.history.reader import HistoryReader
from streameval.store.history.rows import PaneRows
from streameval.store.history.writer import HistoryWriter, Retention
from streameval.testing import Scores, counted_pane, history_content, sketched

FORM = HistoryFormat(20 * 60_000, Options((0.1, 0.5)), "impressions")
KEEP = Retention(minutes=6 * HOUR, hours=2 * DAY, days=1000 * DAY, max_size=1 << 30)
NAMES = (Series("a", "v1", "logged"), Series("a", "v2", "logged"))
FIRST = 19_000 * DAY
PANES = 5 * DAY // FORM.pane  # panes lie in these five days


def scores(seed: int) -> Scores:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    series = np.sort(rng.integers(0, 2, n)).astype(np.int32)
    user = rng.integers(1, 6, n).astype(np.uint64)
    return Scores(
        series, user, rng.random(n), rng.integers(0, 2, n).astype(np.int8), rng.integers(0, 2, n).astype(np.int32)
    )


def rows(pane: int, seed: int) -> PaneRows:
    return counted_pane(FIRST // FORM.pane + pane, NAMES, scores(seed), FORM)


@contextmanager
def database() -> Iterator[tuple[HistoryWriter, Path]]:
    folder = Path(tempfile.mkdtemp())
    writer = HistoryWriter(folder / "history.sqlite", FORM, KEEP)
    try:
        yield writer, writer.path
    finally:
        writer.close()
        shutil.rmtree(folder)


def plain(result: Result) -> dict[str, object]:
    """A result to compare, arrays as lists."""
    out = asdict(result)
    out["scores"] = [getattr(result.scores, name).tolist() for name in ("lower", "upper", "negatives", "positives")]
    return out


def gauc(counted: list[Scores], code: int) -> tuple[int, float | None]:
    """(users with both labels, GAUC) by brute force."""
    users: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    for s in counted:
        for one, user, p, label in zip(s.series, s.user, s.p, s.label, strict=True):
            if one == code:
                users[int(user)].append((float(p), int(label)))
    terms = []
    for ranked in users.values():
        clicks, others = ([p for p, label in ranked if label == y] for y in (1, 0))
        if clicks and others:
            auc = sum((c > o) + (c == o) / 2 for c in clicks for o in others) / len(clicks) / len(others)
            terms.append((len(ranked), auc))
    return len(terms), sum(n * auc for n, auc in terms) / sum(n for n, _ in terms) if terms else None


place = st.tuples(st.integers(0, 2), st.integers(0, PANES - 1))  # partition, pane
writes = st.lists(st.tuples(place, st.integers(0, 1000)), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(writes, st.randoms(use_true_random=False))
def test_the_file_holds_what_was_written_last_in_whatever_order_and_however_often(written, random) -> None:
    last = dict(written)
    with database() as (writer, path):
        for (partition, pane), seed in written:
            writer.write(partition, 1, [rows(pane, seed)])
        reference = history_content(path)
        for _ in range(2):
            for (partition, pane), seed in last.items():
                writer.write(partition, 1, [rows(pane, seed)])
        assert history_content(path) == reference
    shuffled = list(last.items())
    random.shuffle(shuffled)
    with database() as (writer, path):
        for partition in (2, 0, 1):
            writer.write(partition, 7, [rows(pane, seed) for (p, pane), seed in shuffled if p == partition])
        assert history_content(path) == reference


@settings(max_examples=40, deadline=None)
@given(
    writes,
    st.lists(st.tuples(st.integers(0, 8 * DAY), st.dictionaries(st.integers(0, 2), st.integers(0, 6 * DAY)))),
    st.tuples(st.integers(0, 5 * DAY), st.integers(0, 5 * DAY)),
)
def test_any_range_of_a_folded_history_is_the_sum_of_its_panes(written, folds, ends) -> None:
    last = dict(written)
    start, end = FIRST + min(ends), FIRST + max(ends) + 1
    with database() as (writer, path):
        for (partition, pane), seed in last.items():
            writer.write(partition, 1, [rows(pane, seed)])
        for now, settled in folds:
            writer.fold({p: FIRST + before for p, before in settled.items()}, FIRST + now)
        reader = HistoryReader(path, FORM, 5)
        found = reader.range(NAMES, start, end)
        cover = found.coverage
        assert cover.start <= start
        assert cover.end >= end
        inside = [
            (pane, scores(seed))
            for (_, pane), seed in last.items()
            if cover.start <= FIRST + pane * FORM.pane < cover.end
        ]
        assert cover.panes <= len({pane for pane, _ in inside})
        assert len(inside) == 0 or cover.panes > 0
        by_name = {(r.series, r.slice): r for r in found.results}
        expected = set()
        for code, name in enumerate(NAMES):
            for country in (None, 0, 1):
                layout = FORM.overall if country is None else FORM.slice
                dense = np.zeros(layout.size, np.int64)
                for _, s in inside:
                    on = (s.series == code) & ((s.country == country) if country is not None else True)
                    sketched(layout, np.zeros(int(on.sum()), np.int32), s.p[on], s.label[on]).add_to(dense)
                if not dense[0]:
                    continue
                where = None if country is None else ("country", f"c{country}")
                expected.add((name, where))
                result = by_name[name, where]
                view = View.of(dense, layout, NOT_KEPT_FOR_SLICES)
                whole = None if country is None else by_name[name, None]
                span = Span("range", cover.start, cover.end, result.matured_share, result.newest_label)
                if where is None:
                    [direct] = make_results(span, [SeriesView(name, view, 1.0, None)], 5)
                else:
                    direct = make_result(name, span, where, view, 5, whole)
                same, other = plain(result), plain(direct)
                if country is None:
                    users, of_users = gauc([s for _, s in inside], code)
                    assert (result.users_sampled, result.metrics["gauc_users"]) == (1.0, users)
                    assert result.metrics["gauc"] == (None if of_users is None else pytest.approx(of_users, abs=1e-8))
                for key in ("metrics", "reasons", "stderrs"):
                    for of in (same, other):
                        of[key] = {k: v for k, v in of[key].items() if not k.startswith("gauc")}
                [of.pop(key) for of in (same, other) for key in ("gauc_stderr_df", "user_dfs")]
                assert same == other
        assert set(by_name) == expected


@settings(max_examples=40, deadline=None)
@given(writes, st.integers(0, 8 * DAY))
def test_folding_again_changes_nothing_and_what_is_not_settled_stays(written, now) -> None:
    last = dict(written)
    settled = {0: FIRST + 3 * DAY, 1: FIRST + 5 * HOUR + 1}
    with database() as (writer, path):
        for (partition, pane), seed in last.items():
            writer.write(partition, 1, [rows(pane, seed)])
        before = history_content(path)
        writer.fold(settled, FIRST + now)
        once = history_content(path)
        writer.fold(settled, FIRST + now)
        assert history_content(path) == once
        for table, column in (("parts", 0), ("vectors", 5), ("samples", 3)):
            for row in before[table]:
                _, start, partition = row[column : column + 3]
                if start + FORM.pane > settled.get(partition, 0) or start + FORM.pane > FIRST + now - KEEP.minutes:
                    assert row in once[table]
        assert sum(row[3] for row in once["parts"]) == len(last)  # panes

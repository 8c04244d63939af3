"""Ranking sums are a function of the log alone: any arrival within the lateness, any batches, partitions and restarts give
the same bits."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from streameval.loop.pipeline import Pipeline
from streameval.sketches.list_cells import LISTS_TALLY, cut_tally
from streameval.sketches.sparse import SparseVector
from streameval.testing import ManualClock, readers_see
from tests.laws.streams import through_disk
from tests.ranked_lists import events, log, result, run, settings, take, take_late

Sums = tuple[Any, Any]  # cells and values by pane and version; averages by user


def sums(pipeline: Pipeline) -> Sums:
    """The ranking cells of every pane, whatever the codes of its series."""
    pipeline.finish()
    readers_see(pipeline)
    boards = [part.scoreboard for part in pipeline.partitions.values()]
    layout = boards[0].overall_layout
    out: defaultdict[tuple[int, str], SparseVector] = defaultdict(SparseVector.empty)
    for board in boards:
        for pane in board.overall.numbers():
            vector = board.overall.get(pane)
            ours = vector.cells % layout.size >= layout.tallies
            cells, values = vector.cells[ours], vector.values[ours]
            for code in np.unique(cells // layout.size).tolist():
                on = cells // layout.size == code
                name = pipeline.catalog.series[code].version
                out[pane, name] += SparseVector(cells[on] % layout.size, values[on])
    assert {tally.name for tally in layout.tallied} >= {LISTS_TALLY, cut_tally(3, "value")}
    found = {key: list(zip(v.cells.tolist(), v.values.tolist(), strict=True)) for key, v in out.items() if v.cells.size}
    return found, by_user(pipeline)


def by_user(pipeline: Pipeline) -> dict[tuple[str, str], dict[str, float | None]]:
    """By version and window."""
    return {
        (r.series.version, r.window): {
            name: of.get(name) for of in (r.metrics, r.stderrs) for name in r.metrics if name.endswith("_by_user")
        }
        for r in readers_see(pipeline).results
    }


@pytest.mark.slow
@given(seed=st.integers(0, 1 << 30), size=st.sampled_from([7, 50, 700, 5_000]), partitions=st.integers(1, 3))
@hypothesis_settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_order_batches_and_partitions_do_not_matter(seed: int, size: int, partitions: int) -> None:
    rows, rng = log(400, seed % 3), Random(seed)
    pipeline = Pipeline(settings("value"), ManualClock())
    take_late(pipeline, rows, rng, size, partitions)
    assert sums(pipeline) == undisturbed(seed % 3)


@pytest.mark.slow
@given(seed=st.integers(0, 1 << 30), cuts=st.lists(st.integers(1, 500), min_size=1, max_size=3))
@hypothesis_settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_restarts_do_not_matter(seed: int, cuts: list[int]) -> None:
    rows = log(400, seed % 3)
    stream = [event for _, event in events(rows)]
    pipeline = Pipeline(settings("value"), ManualClock())
    ends = sorted({*cuts, len(stream)})
    with tempfile.TemporaryDirectory() as folder:
        for start, end in zip([0, *ends], ends, strict=False):
            take(pipeline, stream[start:end], rows)
            state = through_disk(SimpleNamespace(pipeline=pipeline), 0, Path(folder) / f"{start}")
            pipeline = Pipeline(settings("value"), ManualClock())
            for number in range(seed % 2):  # codes differ from the other process'
                pipeline.catalog.series_code("other", f"v{number}")
            pipeline.restore_partition(0, state)
    assert sums(pipeline) == undisturbed(seed % 3)


def test_labels_that_come_late_are_counted_as_those_in_time() -> None:
    rows = log(600, 5)
    stream = sorted((event.ts, i, event) for i, (_, event) in enumerate(events(rows)))
    pipeline = Pipeline(settings("value"), ManualClock())
    take(pipeline, [event for *_, event in stream], rows)
    assert sums(pipeline) == sums(run(rows, "value"))
    assert result(pipeline).corrected < result(run(rows, "value")).corrected


@cache
def undisturbed(seed: int) -> Sums:
    return sums(run(log(400, seed), "value"))

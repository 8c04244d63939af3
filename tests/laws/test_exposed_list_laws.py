"""DCG and precision of lists by propensity, and NDCG by stratum, are functions of the log alone: any arrival within the lateness, any
batches, partitions, looks, corrections and restarts give the same bits."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from streameval.counting.request_lists import RankedLists, lists_of
from streameval.counting.scoreboard import Labelled
from streameval.events.columns import Scored
from streameval.events.hashing import hash_strings
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sketches.exposed_lists import EXPOSED_TALLY, exposed_cut
from streameval.sketches.sparse import SparseVector
from streameval.testing import Event, ManualClock, readers_see
from tests.laws.streams import through_disk
from tests.ranked_lists import Row, events, log, take, take_late

CONFIG = Settings.model_validate(
    {
        "join": {"attribution_window": "2m", "allowed_lateness": "30s", "correction_horizon": "1h", "request_gap": "1m"},
        "windows": {"pane": "1m", "sliding": ["5m", "20m"]},
        "ranking": {"k": [1, 3], "gain": "sqrt_value", "by_user": []},
        "strata": {"count": 3},
    }
)  # fmt: skip
Cells = dict[tuple[int, str], list[tuple[int, int]]]  # by pane and version


@cache
def requests(seed: int) -> tuple[Row, ...]:
    """Lists with propensities, heavy weights among them; a few impressions have none."""
    rng = np.random.default_rng(seed + 100)
    out = []
    for row in log(400, seed):
        propensity = float(10 ** rng.uniform(-5, 0))
        more = {} if rng.random() < 0.02 else {"propensity": propensity}
        out.append(replace(row, event=replace(row.event, fields={**row.event.fields, **more})))
    return tuple(out)


def cells(pipeline: Pipeline, finish: bool = True) -> Cells:
    """What is kept of lists by propensity, over partitions."""
    if finish:
        pipeline.finish()
    readers_see(pipeline)
    boards = [part.scoreboard for part in pipeline.partitions.values()]
    layout = boards[0].overall_layout
    mine = np.zeros(layout.size, np.bool_)
    names = {EXPOSED_TALLY, *map(exposed_cut, (1, 3))}
    for tally in layout.tallied:
        if tally.name.split(":")[0] in names or "_ndcg_" in tally.name:
            found = layout.tally(tally.name)
            assert found is not None
            mine[found[1] : found[1] + tally.size] = True
            names.discard(tally.name.split(":")[0])
    assert not names, "all are kept"
    out: defaultdict[tuple[int, str], SparseVector] = defaultdict(SparseVector.empty)
    for board in boards:
        for pane in board.overall.numbers():
            vector = board.overall.get(pane)
            code, cell = np.divmod(vector.cells, layout.size)
            for one in np.unique(code[mine[cell]]).tolist():
                on = (code == one) & mine[cell]
                out[pane, pipeline.catalog.series[one].version] += SparseVector(cell[on], vector.values[on])
    return {key: list(zip(v.cells.tolist(), v.values.tolist(), strict=True)) for key, v in out.items() if v.cells.size}


def fed(stream: Sequence[Event], rows: Sequence[Row], size: int = 3_000) -> Pipeline:
    pipeline = Pipeline(CONFIG, ManualClock())
    for start in range(0, len(stream), size):
        take(pipeline, stream[start : start + size], rows)
    return pipeline


@cache
def undisturbed(seed: int) -> Cells:
    rows = requests(seed)
    found = cells(fed([event for _, event in events(rows)], rows))
    assert len({pane for pane, _ in found}) > 20
    return found


def numbers(pipeline: Pipeline) -> dict[tuple[str, str], tuple[object, ...]]:
    """What readers see of it, to the bit."""
    return {
        (r.series.version, r.window): (
            {n: v for n, v in (*r.metrics.items(), *r.stderrs.items()) if "ips" in n or n.startswith("exposure")},
            r.strata,
        )
        for r in readers_see(pipeline).results
    }


@pytest.mark.slow
@given(seed=st.integers(0, 1 << 30), size=st.sampled_from([7, 50, 700, 5_000]), partitions=st.integers(1, 3))
@hypothesis_settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_order_batches_and_partitions_do_not_matter(seed: int, size: int, partitions: int) -> None:
    rows, rng = requests(seed % 3), Random(seed)
    pipeline = Pipeline(CONFIG, ManualClock())
    take_late(pipeline, rows, rng, size, partitions)
    assert cells(pipeline) == undisturbed(seed % 3)


@pytest.mark.slow
@given(seed=st.integers(0, 1 << 30), cuts=st.lists(st.integers(1, 500), min_size=1, max_size=3))
@hypothesis_settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_kills_and_restarts_do_not_matter(seed: int, cuts: list[int]) -> None:
    """What was read after the last checkpoint is lost with the process, and read again."""
    rows, luck = requests(seed % 3), Random(seed)
    stream = [event for _, event in events(rows)]
    pipeline = Pipeline(CONFIG, ManualClock())
    ends = sorted({*cuts, len(stream)})
    with tempfile.TemporaryDirectory() as folder:
        for start, end in zip([0, *ends], ends, strict=False):
            take(pipeline, stream[start:end], rows)
            state = through_disk(SimpleNamespace(pipeline=pipeline), 0, Path(folder) / f"{start}")
            if luck.random() < 0.7 and end < len(stream):
                take(pipeline, stream[end : end + luck.randrange(1, 200)], rows)
                readers_see(pipeline)
            pipeline = Pipeline(CONFIG, ManualClock())
            for number in range(seed % 2):  # codes differ from the other process'
                pipeline.catalog.series_code("other", f"v{number}")
            pipeline.restore_partition(0, state)
    assert cells(pipeline) == undisturbed(seed % 3)


def test_labels_that_come_late_are_taken_out_and_put_back_as_those_in_time() -> None:
    rows = requests(5)
    late = [event for _, event in events(rows)]
    prompt = [e for *_, e in sorted((e.ts, i, e) for i, e in enumerate(late))]
    one, other = fed(late, rows, 40), fed(prompt, rows)
    assert cells(one) == cells(other)
    assert numbers(one) == numbers(other)
    corrected = [sum(r.corrected for r in readers_see(p).results if r.window == "all") for p in (one, other)]
    assert corrected[0] > corrected[1]


def test_parts_add_up_and_what_is_taken_out_leaves_nothing() -> None:
    rows = requests(6)
    pipeline = fed([event for _, event in events(rows)], rows)
    (part,) = pipeline.partitions.values()
    before = cells(pipeline)
    names = sorted({row.event.request for row in rows if row.event.request})[:80]

    def observed(some: Sequence[str], sign: int) -> Cells:
        labelled, request, scored = listed(rows, some, pipeline)
        lists = lists_of(labelled.ts, labelled.user, request, part.scoreboard.pane)
        ranked = RankedLists.of(lists, labelled.label, scored)
        part.rows.exposed.observe(part.scoreboard, labelled, ranked, sign)
        return cells(pipeline, finish=False)

    whole = observed(names, +1)
    assert whole != before
    assert observed(names, -1) == before
    for some in (names[::2], names[1::2]):
        again = observed(some, +1)
    assert again == whole
    for some in (names[30:], names[:30]):
        again = observed(some, -1)
    assert again == before


def listed(rows: Sequence[Row], names: Sequence[str], pipeline: Pipeline) -> tuple[Labelled, NDArray[np.int32], Scored]:
    """Some requests as the joiner gives them, scored by v1."""
    some = sorted((row for row in rows if row.event.request in names), key=lambda row: row.event.request)
    n, nothing = len(some), np.empty(0, np.bool_)
    request = np.unique([row.event.request for row in some], return_inverse=True)[1].astype(np.int32)
    fields = {
        "propensity": np.array([row.event.fields.get("propensity", np.nan) for row in some]),
        "value": np.array([row.value for row in some]),
    }
    labelled = Labelled(
        np.array([row.event.ts for row in some]), hash_strings([row.event.user for row in some]), np.empty(0, np.int64),
        np.array([row.clicked for row in some], np.int8), nothing, fields, nothing,
    )  # fmt: skip
    code = np.full(n, pipeline.catalog.series_code("default", "v1"), np.int32)
    p = np.array([row.event.pclick for row in some])
    return labelled, request, Scored((0, n), np.arange(n, dtype=np.int32), code, p, np.zeros(n, np.bool_))


def test_there_are_lists_of_every_kind() -> None:
    """Or the laws above would say nothing: lists without a propensity, heavy weights, every stratum."""
    results = {r.series.version: r for r in readers_see(finished(0)).results if r.window == "all"}
    for version in ("v1", "v2"):
        metrics, strata = results[version].metrics, results[version].strata
        assert 10 < metrics["exposure_requests"] < metrics["requests"]
        assert metrics["exposure_requests_clipped"] > 0.05
        assert strata is not None
        assert sum(row.lists > 0 for row in strata) == 3


def finished(seed: int) -> Pipeline:
    pipeline = fed([event for _, event in events(requests(seed))], requests(seed), 40)
    pipeline.finish()
    return pipeline

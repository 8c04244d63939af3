"""Slices cost what has changed and what is read, and say what results say that are made at once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval.counting.row_sums import RowSums
from streameval.events.batch import Series
from streameval.loop.pipeline import Pipeline
from streameval.metrics import registry
from streameval.metrics.metric import Metric
from streameval.metrics.view import NOT_KEPT_FOR_SLICES, Undefined, View
from streameval.results import slices as slices_module
from streameval.results import window_slices
from streameval.results.result import Result, Span, make_result
from streameval.results.window_slices import SummedSlice
from streameval.settings.tree import Settings
from streameval.sketches.accumulate import sketched
from streameval.sketches.layout import IMPRESSIONS, Layout, Options
from streameval.sources.formats.decode import Decoder
from streameval.testing import ManualClock, readers_see

T0 = 1_700_000_000_000
SERIES = Series("default", "v1", "logged")


def pipeline(**changes: Any) -> Pipeline:
    tree = {
        "slices": {"dimensions": ["country", "device"], "max_values": 3},
        "windows": {"pane": "1m", "sliding": ["2m", "5m"]},
        "join": {"attribution_window": "10s", "allowed_lateness": "0s", "request_gap": "1s"},
        **changes,
    }
    return Pipeline(Settings.model_validate(tree), ManualClock())


def event(number: int, at: int, user: str, p: float, clicked: int, version: str, country: str, device: str) -> bytes:
    return json.dumps(
        {
            "impression_id": f"i{number}-{user}", "ts": T0 + at, "user_id": user, "pclick": p, "clicked": clicked,
            "model_version": version, "slices": {"country": country, "device": device},
        }
    ).encode()  # fmt: skip


def take_events(pipe: Pipeline, values: list[bytes], partition: int = 0) -> None:
    decoder = Decoder(pipe.catalog, clock=lambda: 1 << 62, max_future=0)
    batch, refused = decoder.messages(
        values, [0] * len(values), topic=("i", "i"), partition=partition, offsets=list(range(len(values))), format="json",
        shared=True,
    )  # fmt: skip
    assert not refused
    pipe.take(batch)


def take(pipe: Pipeline, start: int, count: int, partition: int = 0, countries: int = 6) -> None:
    luck = np.random.default_rng(start + 7 * partition)
    values = [
        event(
            i, i * 1_000, f"u{partition}-{i % 11}", float(luck.random()), int(luck.random() < 0.3),
            "v1" if i % 3 else "v2", f"c{int(luck.integers(countries) ** 1.5)}", "ab"[i % 2],
        )
        for i in range(start, start + count)
    ]  # fmt: skip
    take_events(pipe, values, partition)


def sliced(results: tuple[Result, ...]) -> dict[tuple[Series, str, tuple[str, str]], Result]:
    return {(r.series, r.window, r.slice): r for r in results if r.slice is not None}


def at_once(pipe: Pipeline, results: tuple[Result, ...]) -> Iterator[tuple[Result, Result]]:
    """Every slice, and the result of the same sums whose numbers are all made at once."""
    evaluator = pipe._evaluator
    layout = evaluator._slices._layout
    wholes = {(r.series, r.window): r for r in results if r.slice is None}
    boards = [part.scoreboard for part in pipe.partitions.values()]
    rows = {(one.series, one.where): one.rows for one in evaluator._slices._shown}
    windows = {"all": None, "2m": 0, "5m": 1}
    for (series, window, where), found in sliced(results).items():
        total = np.zeros(layout.size, np.int64)
        for board in boards:
            index = windows[window]
            sums = board.slices.total if index is None else board.slice_windows[index].sums
            for row in rows[series, where]:
                total += sums.row(row)
        span = Span(window, found.window_start, found.window_end, found.matured_share, found.newest_label)
        view = View.of(total, layout, NOT_KEPT_FOR_SLICES)
        yield found, make_result(series, span, where, view, 20, whole=wholes.get((series, window)))


def told(result: Result) -> dict[str, Any]:
    scores = [getattr(result.scores, name).tolist() for name in ("lower", "upper", "negatives", "positives")]
    return {**result.as_json(), "quantiles": list(result.quantiles), "scores": scores, "totals": result.totals}


def test_they_have_the_numbers_of_results_made_at_once() -> None:
    """Of two partitions, with a dimension that has more values than are shown, look after look."""
    pipe = pipeline()
    compared = 0
    for start in range(0, 600, 60):
        for partition in (0, 1):
            take(pipe, start, 60, partition)
        results = readers_see(pipe).results
        for found, expected in at_once(pipe, results):
            assert told(found) == told(expected)
            compared += 1
    assert compared > 200
    assert any(r.slice == ("country", "__other__") for r in results)


def test_only_those_that_have_changed_are_made() -> None:
    pipe = pipeline(slices={"dimensions": ["country"]})
    take(pipe, 0, 400, countries=4)
    before = sliced(readers_see(pipe).results)
    assert len(before) > 20
    again = sliced(readers_see(pipe).results)
    assert again.keys() == before.keys()
    assert all(again[key] is before[key] for key in before)
    take_events(pipe, [event(0, 400_000, "late", 0.5, 1, "v1", "c0", "a")])
    take_events(pipe, [event(1, 500_000, "later", 0.5, 1, "v1", "c0", "a")])
    after = sliced(readers_see(pipe).results)
    changed = {key for key in before if after[key].totals != before[key].totals and key[1] == "all"}
    pending = {("v1", "v2")[i % 3 == 0] for i in range(390, 400)}  # whose labels became final with them
    assert changed >= {(SERIES, "all", ("country", "c0"))}
    assert {series.version for series, *_ in changed} <= {"v1", *pending}
    assert len(changed) < sum(window == "all" for _, window, _ in before)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[View]:
    """What metrics are made of, as it happens."""
    out: list[View] = []

    def evaluated(view: View) -> Any:
        out.append(view)
        return evaluate(view)

    evaluate = registry.evaluate
    monkeypatch.setattr(registry, "evaluate", evaluated)
    return out


def test_numbers_are_made_when_they_are_read(made: list[View]) -> None:
    pipe = pipeline()
    take(pipe, 0, 400)
    found = list(sliced(readers_see(pipe).results).values())
    assert len(made) <= 6 < len(found)  # one for every kind of what there is in a slice
    made.clear()
    first = found[0]
    assert first.metrics["ctr"] == first.totals.clicks / first.totals.impressions
    assert len(made) == 1
    assert first.stderrs.keys() <= first.metrics.keys()
    assert len(made) == 1


def test_numbers_that_are_read_again_and_again_are_made_at_once(
    made: list[View], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrape need not wait for them."""
    pipe = pipeline()
    take(pipe, 0, 300)
    before = sliced(readers_see(pipe).results)
    key = (Series("default", "v1", "logged"), "all", ("device", "a"))
    assert before[key].metrics["auc"] is not None
    take(pipe, 300, 100)
    made.clear()
    after = sliced(readers_see(pipe).results)
    assert after[key].totals != before[key].totals
    kinds = len(made)
    assert after[key].stderrs["auc"] is not None
    assert after[key].metrics["auc"] != before[key].metrics["auc"]
    assert len(made) == kinds
    assert after[*key[:2], ("device", "b")].metrics["auc"] is not None
    assert len(made) == kinds + 1
    monkeypatch.setattr(window_slices, "READ_FOR", 0.0)
    take(pipe, 400, 100)
    made.clear()
    found = sliced(readers_see(pipe).results)[key]
    kinds = len(made)
    assert found.metrics["auc"] is not None
    assert len(made) == kinds + 1


def test_what_is_known_without_results_is_what_results_say() -> None:
    """Look after look, while values come and move to `__other__`; and a result is the same one as long as nothing changes."""
    pipe = pipeline()
    for start in range(0, 600, 60):
        take(pipe, start, 60)
        snapshot = readers_see(pipe)
        rows = list(snapshot.results.rows())
        every = [r for r in snapshot.results if r.slice is not None]
        assert [tuple(row)[:5] for row in rows] == [
            (r.series, r.window, r.slice, r.totals.impressions, r.reasons) for r in every
        ]
        assert all(row.result() is r for row, r in zip(rows, every, strict=True))
        assert len(snapshot.results) == len(snapshot.results.overall) + len(every)
        counts = Counter(f"{name}:{why}" for r in snapshot.results for name, why in r.reasons.items())
        assert snapshot.undefined == counts
        assert snapshot.results.names() == list(dict.fromkeys(r.slice for r in every))


def test_a_slice_that_is_read_stays_known_as_read_when_values_come(made: list[View]) -> None:
    pipe = pipeline(slices={"dimensions": ["country"]})
    take(pipe, 0, 300, countries=2)
    key = (SERIES, "all", ("country", "c1"))
    assert sliced(readers_see(pipe).results)[key].metrics["auc"] is not None
    take(pipe, 300, 200, countries=6)  # others, before and behind it
    after = sliced(readers_see(pipe).results)
    made.clear()
    assert after[key].metrics["auc"] is not None
    assert not made
    assert after[*key[:2], ("country", "c0")].metrics["auc"] is not None
    assert len(made) == 1


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.1, 0.4999, 0.5, 0.5001, 0.9, 1.0]), st.booleans()), min_size=1, max_size=5
    ),
    st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
)
def test_why_a_metric_has_no_value_follows_from_what_is_there(
    scores: list[tuple[float, bool]], threshold: float
) -> None:
    layout = Layout(7, (0.5,), options=Options((0.5,), threshold=threshold))
    p, y = np.array([p for p, _ in scores]), np.array([c for _, c in scores], np.int8)
    sums = RowSums(layout.size)
    sums.add(sketched(layout, np.zeros(p.size, np.int32), p, y))
    maker = slices_module.SliceResults(pipeline().catalog, None, layout, 20)  # type: ignore[arg-type]  # nothing is numbered
    maker._shown = [SummedSlice(SERIES, ("country", "de"), (0,))]
    maker._rows, maker._ends = np.array([0]), np.array([0, 1])
    [counted] = maker._counted(np.zeros(1, np.int64), [sums])
    [reasons] = counted.reasons
    assert reasons == registry.evaluate(View.of(sums.row(0), layout, NOT_KEPT_FOR_SLICES))[1]
    assert counted.heads[0, IMPRESSIONS] == len(scores)


def test_a_metric_of_somebody_elses_says_itself_why_it_has_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = Metric(
        "odd", lambda view: view.moments.impressions if view.moments.impressions % 2 else Undefined("even"), "odd"
    )
    monkeypatch.setattr(registry, "_rows", [*registry._rows, odd])
    registry._asked.cache_clear()
    registry._shared.cache_clear()
    try:
        pipe = pipeline()
        take(pipe, 0, 300)
        found = list(sliced(readers_see(pipe).results).values())
        assert {("odd" in r.reasons) for r in found} == {True, False}
        assert all(("odd" in r.reasons) == (r.totals.impressions % 2 == 0) for r in found)
    finally:
        registry._asked.cache_clear()
        registry._shared.cache_clear()

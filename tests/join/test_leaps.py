"""Events far ahead of their stream are held back until it follows, at any cut, through restarts, for next to nothing."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.events.batch import Catalog, Clicks, Impressions
from streameval.events.hashing import hash_strings
from streameval.join import leaps
from streameval.join.leaps import ENOUGH, MOST, Leaps
from streameval.loop.pipeline import Pipeline
from streameval.results.snapshot import Snapshot
from streameval.settings.tree import Settings
from streameval.testing import Event, ManualClock, Shown, Tap, make_batch, readers_see

BASE = 1_700_000_040_000  # on a minute
HOUR, DAY = 3_600_000, 86_400_000


def make_pipeline() -> Pipeline:
    return Pipeline(Settings(), ManualClock())


def feed(pipeline: Pipeline, events: list[Event], size: int, finish: bool = True, shared: bool = True) -> Snapshot:
    for start in range(0, len(events), size):
        pipeline.take(make_batch(events[start : start + size], pipeline.catalog, shared=shared))
    if finish:
        pipeline.finish()
    return readers_see(pipeline)


def stream(n: int = 3000, step: int = 2_000, first: int = BASE, name: str = "i") -> list[Event]:
    """n impressions, a click on every tenth."""
    events: list[Event] = []
    for i in range(n):
        events.append(Shown(f"{name}{i}", first + i * step, user=f"u{i % 50}"))
        if i % 10 == 0:
            events.append(Tap(f"{name}{i}", first + i * step + 1_000))
    return events


def counts(snapshot: Snapshot) -> dict[str, object]:
    names = (
        "impressions",
        "matched_clicks",
        "expired_impressions",
        "late_impressions",
        "runaway_impressions",
        "quarantined",
    )
    return {name: snapshot.events[name] for name in names}


# -- a few that are wrong ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("at", [0, 1, 267, -301, -1])
@pytest.mark.parametrize("size", [1, 100, 10_000])
@pytest.mark.slow
def test_one_impression_two_days_ahead_takes_nothing_with_it(at: int, size: int, shared: bool) -> None:
    # the same hundred minutes; a batch takes as long as 100 events
    n, step = (600, 10_000) if size == 1 else (3000, 2_000)
    events = stream(n, step)
    events.insert(at % len(events), Shown("ahead", events[at].ts + 2 * DAY))
    pipeline = make_pipeline()
    running = feed(pipeline, events, size, finish=False, shared=shared)
    assert (running.events["impressions"], running.events["quarantined"]) == (n, 1)
    pipeline.finish()
    assert counts(readers_see(pipeline)) == {
        "impressions": n, "matched_clicks": n // 10, "expired_impressions": 0, "late_impressions": 0,
        "runaway_impressions": 1, "quarantined": 0,
    }  # fmt: skip


def test_clocks_that_are_wrong_here_and_there_never_get_a_majority() -> None:
    events, rng = stream(), np.random.default_rng(0)
    wrong = [Shown(f"w{k}", 0) for k in range(600)]
    for event in wrong:
        at = int(rng.integers(50, len(events)))
        event.ts = events[at].ts + int(rng.integers(2, 40)) * DAY
        events.insert(at, event)
    found = counts(feed(make_pipeline(), events, 100))
    assert (found["impressions"], found["expired_impressions"], found["runaway_impressions"]) == (3000, 0, 600)


def test_one_event_sent_again_and_again_is_one() -> None:
    events = stream()
    events[500:500] = [Shown("ahead", BASE + 3 * DAY)] * 100
    assert counts(feed(make_pipeline(), events, 64))["expired_impressions"] == 0


@pytest.mark.slow
def test_an_event_ahead_counts_in_its_own_time_when_the_stream_has_got_there() -> None:
    events = stream(step=60_000 * 3)  # six days
    events.insert(100, Shown("ahead", BASE + 3 * DAY))
    found = counts(feed(make_pipeline(), events, 100))
    assert (found["impressions"], found["late_impressions"], found["runaway_impressions"]) == (3001, 0, 0)


# -- a gap -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("size", [1, 100, 10_000])
def test_a_gap_of_days_goes_on_by_itself(size: int, shared: bool) -> None:
    n = 400 if size == 1 else 1000
    events = [
        *stream(n),
        *stream(n, first=BASE + 4 * DAY, name="later"),
        *stream(50, first=BASE + 9 * DAY, name="x"),
    ]
    pipeline = make_pipeline()
    if not shared:  # 5 clicks are not enough to follow
        events = events[:-55]
    running = feed(pipeline, events, size, finish=False, shared=shared)
    assert running.events["quarantined"] == 0
    assert running.events["impressions"] == 2 * n + (50 if shared else 0)
    pipeline.finish()
    found = counts(readers_see(pipeline))
    assert (found["expired_impressions"], found["late_impressions"], found["runaway_impressions"]) == (0, 0, 0)


def test_a_log_of_few_events_goes_on_after_a_gap_once_as_many_have_come() -> None:
    for n in (1, 2, 3, 7):
        days = [[Shown(f"{d}-{i}", BASE + 3 * d * DAY + i) for i in range(max(n, 2))] for d in range(4)]
        assert counts(feed(make_pipeline(), [e for day in days for e in day], 3))["impressions"] == 4 * max(n, 2)
    assert feed(make_pipeline(), [Shown("only", BASE)], 1).events["impressions"] == 1


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_events_that_are_all_far_from_one_another_are_a_stream_too(size: int) -> None:
    events = [Shown(f"i{i}", BASE + 3 * i * DAY) for i in range(200)]
    pipeline = make_pipeline()
    assert feed(pipeline, events, size, finish=False).events["impressions"] > 150
    pipeline.finish()
    assert counts(readers_see(pipeline))["impressions"] == 200


def test_what_a_log_ends_with_is_a_gap_when_it_is_not_alone() -> None:
    for n in (2, 5, 19):
        events = [*stream(1000), *(Shown(f"x{i}", BASE + 3 * DAY + i) for i in range(n))]
        events.insert(500, Shown("wrong", BASE + 9 * DAY))
        found = counts(feed(make_pipeline(), events, 100))
        assert (found["impressions"], found["runaway_impressions"]) == (1000 + n, 1)


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("n", [2, 19, 20, 25])
def test_what_waited_before_the_gap_that_a_log_ends_with_is_no_part_of_it(n: int, size: int) -> None:
    """With exactly as many events after the gap as end it, several wrong clocks were taken for the end of the log."""
    events = stream(1000)
    events[500:500] = [Shown(f"wrong{i}", BASE + 9 * DAY + i) for i in range(3)]
    events += [Shown(f"x{i}", BASE + 3 * DAY + i) for i in range(n)]
    found = counts(feed(make_pipeline(), events, size))
    assert (found["impressions"], found["runaway_impressions"]) == (1000 + n, 3)


def test_what_begins_before_a_gap_of_days_is_not_taken_for_wrong_because_some_are_further_ahead() -> None:
    events = stream(1000)
    events += [Shown("far", BASE + 30 * DAY), *stream(1000, first=BASE + 4 * DAY, name="later")]
    found = counts(feed(make_pipeline(), events, 100))
    assert (found["impressions"], found["runaway_impressions"], found["expired_impressions"]) == (2000, 1, 0)


# -- laws --------------------------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 0, 1, 1, -3, 40, 150, 350]), st.booleans(), st.booleans()), max_size=120
)


def law_events(given_steps: list[tuple[int, bool, bool]]) -> list[Event]:
    """Steps of the stream's time, which some events run ahead of alone, and others take with them."""
    events: list[Event] = []
    now = BASE
    for i, (step, stays, click) in enumerate(given_steps):
        now += 0 if stays else step
        ts = now + (step if stays else 0)
        events.append(Tap(f"i{i}", ts) if click else Shown(f"i{i}", ts, features={f"f{i}": float(i)}))
    return events


def in_order(shown: Impressions, taps: Clicks) -> list[tuple[int, int, float]]:
    value = shown.features.value.tolist() if shown.features is not None else []
    dicts = (shown.features.dicts or ()) if shown.features is not None else ()
    assert [v for one in dicts for v in one.values()] == value
    rows = [
        *zip(shown.order.tolist(), shown.id.tolist(), shown.ts.tolist(), value, strict=True),
        *zip(taps.order.tolist(), taps.id.tolist(), taps.ts.tolist(), [-1.0] * len(taps), strict=True),
    ]
    return [row[1:] for row in sorted(rows)]


def passed(
    events: list[Event], sizes: list[int], restart: int | None = None
) -> tuple[list[tuple[int, int, float]], Leaps]:
    """(id, time, feature) of what goes on, in order."""
    catalog, gate = Catalog(), Leaps(100, True)
    out: list[tuple[int, int, float]] = []
    at = k = 0
    while at < len(events):
        size = sizes[k % len(sizes)]
        batch = make_batch(events[at : at + size], catalog)
        found = gate.screen(batch.impressions, batch.clicks)
        for part in (found.before, found.now):
            out += [] if part is None else in_order(*part)
        at, k = at + size, k + 1
        if k == restart:
            state = gate.state()
            gate = Leaps(100, True)
            gate.restore(state, catalog.adopt(catalog.names()))
    return out, gate


@settings(max_examples=200, deadline=None)
@given(steps, st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(1, 6))
def test_what_goes_on_is_a_function_of_the_log_not_of_batches_or_restarts(
    given_steps: list[tuple[int, bool, bool]], sizes: list[int], restart: int
) -> None:
    events = law_events(given_steps)
    one, first = passed(events, [1])
    other, second = passed(events, sizes, restart)
    assert one == other
    assert len(first) == len(second)
    names = {key: i for i, key in enumerate(hash_strings([e.id for e in events] or ["x"]).tolist())}
    assert len(one) + len(first) + sum(first.counts.values()) == len(events), "nothing is lost"
    assert len({names[key] for key, _, _ in one}) == len(one), "and nothing comes twice"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-150, 100), max_size=80), st.lists(st.integers(1, 30), min_size=1, max_size=5))
def test_a_stream_without_leaps_passes_as_it_came(moves: list[int], sizes: list[int]) -> None:
    newest, events = BASE, []
    for i, move in enumerate([0, 0, *moves]):
        events.append(Shown(f"i{i}", newest + move, features={"f": 1.0}))
        newest = max(newest, newest + move)
    assert [ts for _, ts, _ in passed(events, sizes)[0]] == [e.ts for e in events]


# -- bounds ------------------------------------------------------------------------------------------------------


def test_what_waits_is_bounded_and_what_is_refused_is_counted_and_said(caplog: pytest.LogCaptureFixture) -> None:
    catalog, gate = Catalog(), Leaps(HOUR, True)
    good = [Shown(f"g{i}", BASE + i) for i in range(4 * MOST)]
    far = [Shown(f"f{i}", BASE + DAY + (i % 7) * DAY) for i in range(2 * MOST)]
    mixed = [e for i, f in enumerate(far) for e in (*good[2 * i : 2 * i + 2], f)]
    with caplog.at_level(logging.INFO):
        for start in range(0, len(mixed), 50):
            batch = make_batch(mixed[start : start + 50], catalog)
            gate.screen(batch.impressions, batch.clicks)
    assert len(gate) == MOST
    assert gate.counts["runaway_impressions"] == MOST
    assert "dated ahead of their stream, which never caught up" in caplog.text


def test_a_batch_without_a_leap_is_not_even_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, gate = Catalog(), Leaps(HOUR, True)
    first = make_batch(stream(50), catalog)
    gate.screen(first.impressions, first.clicks)
    far = make_batch([Shown("far", BASE + 5 * DAY)], catalog)
    gate.screen(far.impressions, far.clicks)
    monkeypatch.setattr(leaps, "_screen", None)
    for k in range(3):
        batch = make_batch(stream(50, name=f"{k}-"), catalog)
        found = gate.screen(batch.impressions, batch.clicks)
        assert found.now[0] is batch.impressions
        assert found.now[1] is batch.clicks
    assert len(gate) == 1
    assert ENOUGH < MOST


# -- said --------------------------------------------------------------------------------------------------------


def test_a_tenth_of_the_events_waiting_makes_the_labels_unreliable() -> None:
    events = [
        e for i, e in enumerate(stream(1000)) for e in ((e, Shown(f"w{i}", e.ts + 2 * DAY)) if i % 5 == 0 else (e,))
    ]
    pipeline = make_pipeline()
    snapshot = feed(pipeline, events, 100, finish=False)
    assert not snapshot.join.reliable
    assert "dated further ahead of their stream than join.correction_horizon" in (snapshot.join.reason or "")


def test_impressions_that_pass_keep_the_place_that_they_had_in_their_batch() -> None:
    for shared in (True, False):
        catalog, gate = Catalog(), Leaps(HOUR, shared)
        first = make_batch([Shown("a", BASE), Shown("b", BASE + 1), Shown("far", BASE + DAY)], catalog)
        places = gate.screen(first.impressions, first.clicks).places
        assert places is not None
        assert places.tolist() == [0, 1]
        then = [Shown("c", BASE + 2), *(Shown(f"d{i}", BASE + DAY + i) for i in range(5))]
        batch = make_batch([*([Tap("a", BASE + 2)] if shared else []), *then], catalog)
        found = gate.screen(batch.impressions, batch.clicks)
        assert found.before is None or not len(found.before[0])
        assert found.now[0].id.tolist() == hash_strings(["c", "far", *(f"d{i}" for i in range(5))]).tolist()
        assert [max(place, -1) for place in (found.places if found.places is not None else ())] == [
            shared,
            -1,
            *range(shared + 1, shared + 6),
        ]

"""The ingest loop: what it commits, publishes and survives."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numba
import pytest

from streameval import app
from streameval.app import Loop, new_publisher
from streameval.compare.comparisons import Comparisons
from streameval.compare.ledger.ledger import MANY_PANES
from streameval.events.batch import Batch, Catalog
from streameval.loop import commits
from streameval.loop.partition import Partition
from streameval.loop.pipeline import Pipeline
from streameval.server.api.degraded import degraded
from streameval.settings.tree import Settings
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.protocol import LettersError, SourceError
from streameval.testing import ScriptedSource, Shown, make_batch, readers_see

T0 = 1_760_000_000_000


def loop_over(script: Iterable[Batch | Exception | None]) -> Loop:
    settings = Settings()
    letters = JsonlDeadLetters("")
    return Loop(ScriptedSource(script), Pipeline(settings, time.time), new_publisher(settings), 0.0, letters)


def batch(number: int) -> Batch:
    events = [Shown(f"i{number}-{k}", T0 + number * 1000 + k, "u", 0.5) for k in range(3)]
    made = make_batch(events, Catalog())
    return replace(made, offsets={("impressions", 0): (number + 1) * 3})


def test_every_offset_that_was_counted_is_committed_by_the_end() -> None:
    loop = loop_over([batch(0), None, batch(1), batch(2)])
    loop.run(threading.Event())
    assert loop.source.committed == {("impressions", 0): 9}
    assert readers_see(loop.pipeline).events["impressions"] == 9


def test_a_source_that_fails_ends_the_loop_and_nothing_uncounted_was_committed(monkeypatch) -> None:
    monkeypatch.setattr(commits, "_MOMENT", 60.0)  # a busy machine may take longer than that to store no letters
    loop = loop_over([batch(0), SourceError("the broker is gone"), batch(1)])
    with pytest.raises(SourceError, match="the broker is gone"):
        loop.run(threading.Event())
    assert loop.source.committed == {("impressions", 0): 3}


class NeverStored(JsonlDeadLetters):
    """Letters that are not delivered."""

    def flush(self, timeout: float = 0.0) -> None:
        raise SourceError("1 messages not delivered")


def test_offsets_of_events_whose_dead_letters_are_not_stored_are_not_committed(caplog) -> None:
    loop = replace(loop_over([batch(0), None, batch(1)]), letters=NeverStored(""))
    loop.run(threading.Event())
    assert loop.source.committed == {}
    assert "offsets not committed: 1 messages not delivered" in caplog.text


class NoTopic(JsonlDeadLetters):
    """Letters that wait for a topic."""

    def flush(self, timeout: float = 0.0) -> None:
        raise LettersError("create the topic")


def test_letters_that_wait_for_somebody_to_act_are_told(monkeypatch) -> None:
    """Nothing was committed any more, and nothing said so."""
    monkeypatch.setattr(commits, "_MOMENT", 60.0)
    loop = replace(loop_over([batch(0), None, batch(1)]), letters=NoTopic(""))
    loop.run(threading.Event())
    loop.publish()
    assert degraded(loop.publisher.latest()) == ["create the topic"]


def test_a_replay_has_helpers_for_what_it_must_compile(monkeypatch, tmp_path) -> None:
    seen = []

    @contextmanager
    def helped(stop: threading.Event | None, json: bool, rows: bool) -> Iterator[None]:
        seen.append(("json" if json else "") + ("rows" if rows else ""))
        yield
        seen.append("over")

    monkeypatch.setattr(app, "helped", helped)
    (tmp_path / "a.jsonl").write_text('{"impression_id": "a", "ts": 1760000000000, "user_id": "u", "pclick": 0.5}\n')
    snapshot = app.replay(Settings(), [tmp_path / "a.jsonl"])
    assert (seen, snapshot.events["impressions"]) == (["json", "over"], 1)
    (tmp_path / "b.csv").write_text("impression_id,ts,user_id,pclick\na,1760000000000,u,0.5\n")
    app.replay(Settings(), [tmp_path / "b.csv"])
    assert seen[2:] == ["rows", "over"]


def test_a_replay_that_is_to_stop_ends_at_the_next_kernel(monkeypatch, tmp_path) -> None:
    stop = threading.Event()

    def compile_it(*_: object) -> None:
        stop.set()
        numba.njit(lambda x: x + 1)(1)

    monkeypatch.setattr(Pipeline, "take", compile_it)
    (tmp_path / "a.jsonl").write_text('{"impression_id": "a", "ts": 1760000000000, "user_id": "u", "pclick": 0.5}\n')
    snapshot = app.replay(Settings(), [tmp_path / "a.jsonl"], stop=stop)
    assert snapshot.number == 0  # nothing was finished


def test_a_stop_that_is_already_set_reads_nothing() -> None:
    loop = loop_over([batch(0)])
    stop = threading.Event()
    stop.set()
    loop.run(stop)
    assert not loop.source.finished
    assert loop.source.committed == {}


def test_readiness_needs_an_assignment() -> None:
    loop = loop_over([batch(0), batch(1)])
    loop.publish()
    assert loop.publisher.latest().ready == {"broker": True, "assigned": True, "caught_up": True, "topics": True}
    loop.run(threading.Event())
    loop.publish()
    assert loop.publisher.latest().ready == {"broker": True, "assigned": False, "caught_up": False, "topics": True}


def test_readiness_needs_topics_that_exist() -> None:
    loop = loop_over([batch(0)])
    loop.source.missing = lambda: frozenset({"clicks"})
    loop.publish()
    assert not loop.publisher.latest().ready["topics"]


def test_no_comparison_looks_before_every_partition_was_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that comes first and fast, a backlog after a restart, is not the whole traffic."""
    looked: list[list[int]] = []
    advance = Comparisons.advance

    def seen(self: Comparisons, monitors: Sequence[Partition]) -> None:
        looked.append(sorted(loop.pipeline.partitions))
        advance(self, monitors)

    monkeypatch.setattr(Comparisons, "advance", seen)
    loop = loop_over([])
    minutes = range(MANY_PANES + 100)
    script = []
    for partition in (0, 1):
        for some in (minutes[:-50], minutes[-50:]):
            events = [Shown(f"{partition}-{m}", T0 + m * 60_000, f"u{m % 9}", 0.5) for m in some]
            script.append(make_batch(events, loop.pipeline.catalog, partition))
    loop = replace(loop, source=ScriptedSource([*script, None]))
    loop.run(threading.Event())
    loop.publish()
    assert looked
    assert all(partitions == [0, 1] for partitions in looked), looked


def test_what_waits_for_its_schema_is_not_said_to_have_no_leader(monkeypatch, caplog) -> None:
    """While the registry is away nothing is read: it was not named, and a leader was said to be gone."""
    loop = loop_over([batch(0)])
    loop.source.inputs = ("impressions", "clicks")
    loop.source.caught_up = frozenset
    why = ["schema registry: http://registry: HTTP 503; messages wait"]
    loop.source.schemas = lambda: why[0]
    now = [1000.0]
    monkeypatch.setattr(app.time, "monotonic", lambda: now[0])
    for _ in range(12):
        loop.publish()
        found = loop.publisher.latest()
        assert (degraded(found), found.ready["caught_up"], found.unread) == (why, False, ())
        now[0] += 4.0
    why[0] = ""
    loop.publish()
    found = loop.publisher.latest()
    assert (degraded(found), found.ready["caught_up"], found.unread) == ([], True, ())
    assert "leader" not in caplog.text
    for _ in range(5):  # from then on it counts
        now[0] += 4.0
        loop.publish()
    assert [place for place, _ in loop.publisher.latest().unread] == ["clicks", "impressions"]


def test_an_input_that_nothing_comes_from_before_its_end_is_not_caught_up_with(monkeypatch) -> None:
    loop = loop_over([batch(0), batch(1)])
    loop.source.inputs = ("impressions", "clicks")
    at_end = {("impressions", 0)}
    loop.source.caught_up = lambda: frozenset(at_end)  # the clicks' leader is gone, so their lag is not known either
    now = [1000.0]
    monkeypatch.setattr(app.time, "monotonic", lambda: now[0])
    for seconds, caught_up in ((0.0, True), (5.0, True), (10.0, True), (14.0, True), (16.0, False)):
        now[0] = 1000.0 + seconds
        loop.publish()
        assert loop.publisher.latest().ready["caught_up"] is caught_up, seconds
    assert loop.publisher.latest().unread == (("clicks", 0),)
    assert degraded(loop.publisher.latest()) == [
        "kafka: nothing comes from clicks [0], and no broker says that this is its end; has it a leader?"
    ]
    loop.source.held = lambda: frozenset({("clicks", 0)})  # its partner is behind: nobody asks for it
    loop.publish()
    assert loop.publisher.latest().unread == ()
    loop.source.held = frozenset
    for _ in range(4):
        now[0] += 4.0
        loop.publish()
    assert loop.publisher.latest().unread == (("clicks", 0),)
    at_end.add(("clicks", 0))
    loop.publish()
    assert (loop.publisher.latest().ready["caught_up"], loop.publisher.latest().unread) == (True, ())


def test_a_transaction_is_a_silence_only_if_it_lasts(monkeypatch) -> None:
    """At every look one may be open."""
    loop = loop_over([batch(0), batch(1)])
    loop.source.inputs, now, begun = ("impressions",), [1000.0], {("impressions", 0): 7}
    loop.source.caught_up = frozenset
    loop.source.in_transaction = lambda: dict(begun)
    monkeypatch.setattr(app.time, "monotonic", lambda: now[0])

    def after(seconds: float) -> list[str]:
        now[0] += seconds
        loop.publish()
        found = loop.publisher.latest()
        assert found.ready["caught_up"] is not bool(found.unread)
        return degraded(found)

    for _ in range(100):  # each is aborted, and followed by another
        begun["impressions", 0] += 2
        assert after(1.0) == []
    assert [after(4.0) for _ in range(19)] == [[]] * 19  # producers have a minute, unless they are told otherwise
    (said,) = after(4.0)
    assert said.startswith(
        "kafka: nothing comes from impressions [0]: a transaction was begun at offset 207 and has not"
    )
    begun.clear()  # nobody has answered
    assert after(1.0) != []
    begun["impressions", 0] = 207
    assert after(1.0) == [said]
    begun["impressions", 0] = 209
    assert after(1.0) == []

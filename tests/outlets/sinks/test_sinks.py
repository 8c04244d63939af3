"""Every sink holds each pane and verdict once, whatever is written again, killed or away; and what it holds is the API's."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema_rs
import pyarrow.dataset as pads
import pytest
import sqlalchemy as sa
from confluent_kafka import Consumer, TopicPartition

from streameval.events.batch import Series
from streameval.loop.pipeline import Pipeline
from streameval.outlets.secrets import Secret
from streameval.outlets.sinks.kinds import make_sink
from streameval.outlets.sinks.message_schema import message_schema
from streameval.outlets.sinks.protocol import Sink, SinkError
from streameval.outlets.sinks.rows import SinkPane, SinkVerdict, pane_digests, panes_of, verdicts_of
from streameval.results import panes as pane_history
from streameval.settings import toml
from streameval.settings.tree import ConfigError, Settings
from streameval.sources.kafka.embedded import EmbeddedBroker
from streameval.testing import ManualClock, Shown, make_batch
from tests.comparisons import NOON
from tests.outlets.sinks.panes import PANE, V1, V2, columns, corrected, expected, held, snapshot, until


class Place:
    """A sink and what it holds: panes by (start, version), every row that there is."""

    def __init__(
        self, make: Callable[[], Sink], read: Callable[[], tuple[list[dict[str, Any]], list[dict[str, Any]]]]
    ) -> None:
        self.make, self.read = make, read


@pytest.fixture(params=["parquet", "parquet-uri", "parquet-fsspec", "sql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param.startswith("parquet"):
        to = {
            "parquet": str(tmp_path / "out"),
            "parquet-uri": f"file://{tmp_path}/out",
            "parquet-fsspec": "memory://out",
        }[request.param]
        settings = toml.validate({"store": {"path": "s"}, "sinks": [{"kind": "parquet", "to": to}]})

        def read() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
            found = []
            for what in ("results", "verdicts"):
                if to.startswith("memory"):
                    import fsspec

                    files = fsspec.filesystem("memory")
                    names = files.glob(f"/out/{what}/*/*.parquet")
                    rows = (
                        pads.dataset(names, filesystem=files, format="parquet").to_table().to_pylist() if names else []
                    )
                else:
                    rows = pads.dataset(tmp_path / "out" / what, format="parquet").to_table().to_pylist()
                found.append(rows)
            return found[0], found[1]

        yield Place(lambda: make_sink(settings.sinks[0], settings.kafka), read)
        if to.startswith("memory"):
            import fsspec

            fsspec.filesystem("memory").rm("/out", recursive=True)
        return
    url = f"sqlite:///{tmp_path}/out.db"
    (tmp_path / "url").write_text(url)
    table = {"kind": "sql", "to_file": str(tmp_path / "url"), "prefix": "se_"}
    settings = toml.validate({"store": {"path": "s"}, "sinks": [table]})

    def ask() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        engine = sa.create_engine(url)
        with engine.begin() as db:
            found = [
                [dict(row._mapping) for row in db.execute(sa.text(f"SELECT * FROM se_{what}"))]
                for what in ("results", "verdicts")
            ]
        engine.dispose()
        return found[0], found[1]

    yield Place(lambda: make_sink(settings.sinks[0], settings.kafka), ask)


def test_what_is_written_is_there_once_and_again_replaces_it(place: Place) -> None:
    sink, first = place.make(), snapshot()
    starts = first.panes[V1].start.tolist()
    sink.write(panes_of(first, starts), list(verdicts_of(first)))
    sink.write(panes_of(first, starts[:2]), list(verdicts_of(first)))
    after = corrected(first, 1)
    sink.write(panes_of(after, starts[1:2]), [])
    sink.close()
    again = place.make()  # another process
    again.write(panes_of(after, starts[3:]), list(verdicts_of(after)))
    again.close()
    results, verdicts = place.read()
    assert held(results) == expected(after)
    assert [(v["verdict"], v["candidate"], v["log_e_worse"]) for v in verdicts] == [("worse", "v2", 9.0)]


def test_a_metric_that_is_new_gets_a_column_and_one_that_is_gone_keeps_its_own(place: Place) -> None:
    sink, first = place.make(), snapshot(2)
    starts = first.panes[V1].start.tolist()
    sink.write(panes_of(first, starts[:1]), [])
    sink.close()
    one = first.panes[V1]
    more = replace(one, metrics={"auc": one.metrics["auc"], "ndcg_10": one.metrics["auc"] / 2}, stderrs={})
    sink = place.make()
    sink.write(panes_of(replace(first, panes={V1: more}), starts[1:]), list(verdicts_of(first)))
    sink.close()
    results, _ = place.read()
    assert len(results) == 2
    if "ndcg_10" in results[0]:  # a file has the columns of its own time
        assert sorted(row["ndcg_10"] is None for row in results) == [False, True]


def test_any_change_of_one_number_changes_the_digest_of_its_pane_alone() -> None:
    before = snapshot(6)
    for index in range(6):
        a, b = pane_digests(before.panes), pane_digests(corrected(before, index).panes)
        assert [i for i, start in enumerate(a) if a[start] != b[start]] == [index]
    swapped = {V1: before.panes[V2], V2: before.panes[V1]}
    assert pane_digests(swapped) != pane_digests(before.panes)
    assert pane_digests(dict(reversed(before.panes.items()))) == pane_digests(before.panes)


# -- the feed --------------------------------------------------------------------------------------------------------


class Scripted(Sink):
    """Notes what is written; fails as long as it is told to."""

    def __init__(self) -> None:
        self.panes: list[int] = []
        self.verdicts: list[str] = []
        self.fails = False

    def write(self, panes: Any, verdicts: Any) -> None:
        if self.fails:
            raise SinkError("away")
        self.panes += [pane.start for pane in panes]
        self.verdicts += [one.key for one in verdicts]

    def close(self) -> None:
        """Nothing is held."""


def test_a_pane_is_written_when_it_is_new_and_when_it_changes(feeding: Any) -> None:
    sink = Scripted()
    feed, seen = feeding(sink)
    first = snapshot(4)
    starts = first.panes[V1].start.tolist()
    seen.append(first)
    feed.wake()
    until(lambda: len(sink.panes) == 4)
    seen.append(corrected(first, 2))
    feed.wake()
    until(lambda: len(sink.panes) == 5)
    assert sink.panes == [*starts, starts[2]]
    until(lambda: (feed.state().panes, feed.state().waiting) == (5, 0))
    assert len(sink.verdicts) == 1
    assert feed.state().error == ""


def test_a_restart_writes_what_is_missing_and_no_more(feeding: Any, tmp_path: Path) -> None:
    first, second = Scripted(), Scripted()
    feed, seen = feeding(first)
    seen.append(snapshot(4))
    feed.wake()
    until(lambda: (feed.state().panes, feed.state().waiting) == (4, 0))  # written, and noted
    feed.close(60.0)
    feed._outbox.close()
    feed, seen = feeding(second)
    grown = snapshot(4)
    late = columns([NOON + 4 * PANE], 9)
    joined = replace(grown, panes={**grown.panes, Series("ads", "v3", "logged"): late})
    seen.append(joined)
    feed.wake()
    until(lambda: len(second.panes) == 1)
    time.sleep(0.1)
    assert second.panes == [NOON + 4 * PANE]
    assert second.verdicts == []


def test_a_part_of_the_partitions_is_not_written(feeding: Any) -> None:
    sink = Scripted()
    feed, seen = feeding(sink)
    seen.append(snapshot(4, whole=False))
    feed.wake()
    time.sleep(0.2)
    assert sink.panes == []


def test_a_sink_that_was_away_gets_all_and_what_left_memory_is_counted(feeding: Any) -> None:
    sink = Scripted()
    feed, seen = feeding(sink)
    sink.fails = True
    seen.append(snapshot(4))
    feed.wake()
    until(lambda: feed.state().failures > 1)
    assert (feed.state().waiting, feed.state().error) == (5, "away")
    seen.append(snapshot(4, first=2, number=2))
    feed.wake()
    until(lambda: feed.state().lost == 2)
    sink.fails = False
    until(lambda: len(sink.panes) == 4)
    assert sink.panes == [NOON + i * PANE for i in range(2, 6)]


@pytest.mark.parametrize("looks", [1, 2, 3], ids=["every snapshot is seen", "every second", "every third"])
@pytest.mark.parametrize("most", [None, 100])
def test_a_backlog_that_passes_by_faster_than_snapshots_come_gets_to_sinks(
    feeding: Any, monkeypatch: pytest.MonkeyPatch, most: int | None, looks: int
) -> None:
    """A day and a half of it passed between two snapshots: no sink got it, and none counted it as lost."""
    if most is not None:
        monkeypatch.setattr(pane_history, "MOST_HELD", most)
    sink = Scripted()
    feed, seen = feeding(sink)
    join = {"attribution_window": "5m", "allowed_lateness": "0s", "request_gap": "0s", "correction_horizon": "10m"}
    settings = {"windows": {"sliding": ["10m"]}, "join": join}
    pipeline = Pipeline(Settings.model_validate(settings), ManualClock())
    pipeline.panes.lacking = lambda: feed.lacking

    def look() -> None:
        pipeline.advance()
        shown = replace(pipeline.snapshot(), whole=True)
        if shown.number % looks == 0:
            seen.append(shown)
            feed.wake()
            until(lambda: feed.state().waiting == 0)

    minutes = 4_000
    for begin in range(0, minutes, 800):
        shown = [Shown(f"i{i}", NOON + i * PANE, clicked=i % 2) for i in range(begin, begin + 800)]
        pipeline.take(make_batch(shown, pipeline.catalog))
        look()
    last = minutes - 6  # of those after it the labels are not final
    deadline = time.monotonic() + 240
    while len(set(sink.panes)) + feed.state().lost < last and time.monotonic() < deadline:
        time.sleep(0.05)
        look()
    written = set(sink.panes)
    assert written <= {NOON + i * PANE for i in range(minutes)}
    assert len(written) + feed.state().lost == last
    assert (feed.state().lost > 1_000) == (most is not None)
    pipeline.finish()


# -- Kafka -----------------------------------------------------------------------------------------------------------


def test_messages_are_keyed_by_what_they_are_about_and_fit_their_schema() -> None:
    with EmbeddedBroker() as broker:
        kafka = {"bootstrap_servers": broker.bootstrap_servers}
        settings = toml.validate(
            {"store": {"path": "s"}, "kafka": kafka, "sinks": [{"kind": "kafka", "to": "results"}]}
        )
        sink, first = make_sink(settings.sinks[0], settings.kafka), snapshot()
        starts = first.panes[V1].start.tolist()
        after = corrected(first, 1)
        for one in (first, after):  # as after a kill
            sink.write(panes_of(one, starts), list(verdicts_of(one)))
        sink.close()
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "t", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition("results", p, 0) for p in range(4)])
        found: list[Any] = []
        deadline = time.monotonic() + 240
        while len(found) < 16 and time.monotonic() < deadline:
            found += [m for m in consumer.consume(100, 0.2) if not m.error()]
        consumer.close()
    check = jsonschema_rs.validator_for(message_schema())
    newest: dict[bytes, Any] = {}
    for message in found:
        newest[message.key()] = json.loads(message.value())
        check.validate(newest[message.key()])
    rows = [row for row in newest.values() if row["about"] == "result"]
    assert len(found) == 16
    assert len(rows) == 7
    for row in rows:
        row["pane_start"] = row["pane_start"].removesuffix("Z")
    assert held(rows) == expected(after)
    assert [row["verdict"] for row in newest.values() if row["about"] == "verdict"] == ["worse"]


# -- errors ----------------------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = toml.validate(
        {"store": {"path": "s"}, "sinks": [{"kind": "parquet", "to": str(tmp_path / "file" / "x")}]}
    )
    with pytest.raises(SinkError):
        make_sink(settings.sinks[0], settings.kafka).write([SinkPane(NOON, ({"pane_start": NOON},))], [])


def test_an_error_of_a_database_does_not_show_its_password(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql+psycopg://u:hushhushhush@127.0.0.1:1/d")
    settings = toml.validate({"store": {"path": "s"}, "sinks": [{"kind": "sql", "to_file": str(tmp_path / "url")}]})
    with pytest.raises(SinkError) as raised:
        make_sink(settings.sinks[0], settings.kafka).write([], [SinkVerdict("k", {"at": NOON})])
    assert "hush" not in str(raised.value)
    (tmp_path / "url").write_text("hushhush")
    with pytest.raises(ConfigError) as wrong:
        make_sink(settings.sinks[0], settings.kafka)
    assert "hush" not in str(wrong.value)


def test_a_password_of_a_letter_does_not_blank_the_error(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql+psycopg://u:o@127.0.0.1:1/d")
    settings = toml.validate({"store": {"path": "s"}, "sinks": [{"kind": "sql", "to_file": str(tmp_path / "url")}]})
    with pytest.raises(SinkError) as raised:
        make_sink(settings.sinks[0], settings.kafka).write([], [SinkVerdict("k", {"at": NOON})])
    assert str(raised.value).startswith(
        "postgresql+psycopg://u:***@127.0.0.1:1/d: connection failed: connection to server"
    )


def test_a_secret_is_blanked_in_errors_from_six_characters_on() -> None:
    said = "no connection to hooks/secret1, by abcde"
    for secret, left in (("secret1", said.replace("secret1", "***")), ("abcde", said), ("o", said)):
        assert Secret("url", "", "HOOK", {"HOOK": secret}).hide(said) == left


def test_an_address_that_no_library_knows_is_an_error_at_the_start() -> None:
    settings = toml.validate({"store": {"path": "s"}, "sinks": [{"kind": "parquet", "to": "nope://x/y"}]})
    with pytest.raises(ConfigError, match="nope"):
        make_sink(settings.sinks[0], settings.kafka)

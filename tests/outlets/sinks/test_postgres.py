"""The SQL sink on a real PostgreSQL that is stopped, frozen, killed and asked with wrong passwords."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.rows import dict_row

from streameval.events.batch import Series
from streameval.outlets.sinks import sql
from streameval.outlets.sinks.kinds import make_sink
from streameval.outlets.sinks.protocol import Sink, SinkError
from streameval.outlets.sinks.rows import RESULT_TIMES, VERDICT_TIMES, panes_of, verdicts_of
from streameval.settings import toml
from streameval.settings.tree import ConfigError
from tests.comparisons import NOON
from tests.foreign.need import without
from tests.foreign.postgres import PASSWORD, USER, Postgres, programs
from tests.outlets.sinks.panes import PANE, V1, columns, corrected, expected, held, snapshot, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    found = programs()
    if found is None:
        without("install postgresql: the SQL sink is tried on a real PostgreSQL")
    else:
        with Postgres(found) as one:
            yield one


@pytest.fixture
def database(server: Postgres) -> Iterator[Postgres]:
    """The server, up and empty."""
    if server.down:
        server.start()
    yield server
    if not server.down:
        with asking(server) as db:
            db.execute("DROP TABLE IF EXISTS streameval_results, streameval_verdicts")


def asking(server: Postgres) -> psycopg.Connection[dict[str, Any]]:
    """A client that knows nothing of ours."""
    return psycopg.connect(server.url().replace("+psycopg", ""), row_factory=dict_row, autocommit=True)


def rows(server: Postgres, what: str = "results") -> list[dict[str, Any]]:
    with asking(server) as db:
        return db.execute(f"SELECT * FROM streameval_{what}").fetchall()  # type: ignore[call-overload]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[[str], Sink]]:
    """`made(url)`: a sink by an address in a file."""
    sinks = []

    def make(url: str) -> Sink:
        (tmp_path / "url").write_text(url)
        table = {"kind": "sql", "to_file": str(tmp_path / "url")}
        settings = toml.validate({"store": {"path": "s"}, "sinks": [table]})
        sinks.append(make_sink(settings.sinks[0], settings.kafka))
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()


def as_given(row: Any, times: tuple[str, ...]) -> dict[str, Any]:
    """What a row must be in a table."""
    zero = datetime(1970, 1, 1, tzinfo=UTC)
    return {name: zero + timedelta(milliseconds=value) if name in times else value for name, value in row.items()}


def by_text(found: list[dict[str, Any]]) -> list[str]:
    """In some order, without our key; times in UTC."""
    plain = [
        {n: v.astimezone(UTC) if isinstance(v, datetime) else v for n, v in row.items() if n != "id"} for row in found
    ]
    return sorted(str(sorted(row.items())) for row in plain)


def test_rows_are_to_the_bit_those_that_were_given(database: Postgres, made: Any) -> None:
    sink, given = made(database.url()), snapshot(70)
    panes, verdicts = panes_of(given, given.panes[V1].start.tolist()), list(verdicts_of(given))
    sink.write(panes, verdicts)
    assert by_text(rows(database)) == by_text([as_given(row, RESULT_TIMES) for pane in panes for row in pane.rows])
    assert by_text(rows(database, "verdicts")) == by_text([as_given(one.row, VERDICT_TIMES) for one in verdicts])
    assert any(row["log_loss"] is None for row in rows(database))
    with asking(database) as db:
        said = db.execute("SELECT column_name, data_type FROM information_schema.columns").fetchall()
    kinds = {row["column_name"]: row["data_type"] for row in said}
    names = ("pane_start", "impressions", "auc", "auc_stderr", "model", "at")
    assert [kinds[name] for name in names] == [
        "timestamp with time zone", "bigint", "double precision", "double precision", "text", "timestamp with time zone",
    ]  # fmt: skip


def test_a_corrected_pane_replaces_the_old_one(database: Postgres, made: Any) -> None:
    sink, first = made(database.url()), snapshot()
    sink.write(panes_of(first, first.panes[V1].start.tolist()), list(verdicts_of(first)))
    after = corrected(first, 1)
    sink.write(panes_of(after, [NOON + PANE]), list(verdicts_of(after)))
    assert held(rows(database)) == expected(after) != expected(first)
    assert len(rows(database, "verdicts")) == 1


def test_a_new_metric_is_a_column_and_one_that_is_gone_keeps_its_own(database: Postgres, made: Any) -> None:
    first, sink = snapshot(3), made(database.url())
    sink.write(panes_of(first, [NOON]), [])
    one = first.panes[V1]
    more = replace(one, metrics={"auc": one.metrics["auc"], "ndcg_10": one.metrics["auc"] / 2}, stderrs={})
    sink.write(panes_of(replace(first, panes={V1: more}), [NOON + PANE]), [])
    sink.close()
    made(database.url()).write(panes_of(first, [NOON + 2 * PANE]), [])  # another process, with the old settings
    found = {(row["pane_start"].astimezone(UTC).minute, row["version"]): row for row in rows(database)}
    assert [found[minute, "v1"]["ndcg_10"] is None for minute in range(3)] == [True, False, True]
    assert [found[minute, "v1"]["log_loss"] is None for minute in (1, 2)] == [True, False]


def test_names_that_a_database_cannot_hold_do_not_hold_up_the_others(database: Postgres, made: Any) -> None:
    """JSON has a character zero, PostgreSQL's texts have none."""
    first = snapshot(1)
    odd = Series("ads", "v\x00'; --", "logged")
    sink = made(database.url())
    sink.write(panes_of(replace(first, panes={**first.panes, odd: columns([NOON], 3)}), [NOON]), [])
    assert {row["version"] for row in rows(database)} == {"v1", "v\ufffd'; --"}


def test_a_restart_of_the_server_between_two_writes_is_not_noticed(database: Postgres, made: Any) -> None:
    sink, first = made(database.url()), snapshot()
    starts = first.panes[V1].start.tolist()
    sink.write(panes_of(first, starts[:2]), [])
    database.stop()
    database.start()
    sink.write(panes_of(first, starts[2:]), [])
    assert held(rows(database)) == expected(first)


def test_what_was_missed_while_the_server_was_away_is_there_afterwards(
    database: Postgres, made: Any, feeding: Any
) -> None:
    feed, seen = feeding(made(database.url()))
    seen.append(snapshot(4))
    feed.wake()
    until(lambda: feed.state().panes == 4)
    database.stop()
    seen.append(corrected(snapshot(200), 2))
    feed.wake()
    until(lambda: feed.state().failures > 1)
    assert (feed.state().waiting, feed.state().lost) == (200, 0)
    assert "check" in feed.state().error
    database.start()
    until(lambda: feed.state().waiting == 0)
    assert held(rows(database)) == expected(seen[-1])


class Interrupted(Sink):
    """A sink whose server crashes in the middle of the third write: what was there is deleted, and the new not yet sent."""

    def __init__(self, sink: Any, crash: Callable[[], None]) -> None:
        self._sink, self._crash, self._writes = sink, crash, 0

    def write(self, panes: Any, verdicts: Any) -> None:
        self._writes += 1
        if self._writes == 3:
            sa.event.listen(self._sink._engine, "before_cursor_execute", self._executes)
        self._sink.write(panes, verdicts)

    def _executes(self, connection: Any, cursor: Any, statement: str, *more: Any) -> None:
        if statement.startswith("INSERT"):
            self._crash()

    def close(self) -> None:
        """The sink itself is closed by who made it."""


def test_a_crash_of_the_server_within_a_write_leaves_whole_panes_and_no_gap(
    database: Postgres, made: Any, feeding: Any
) -> None:
    many = [Series("ads", f"v{i}", "logged") for i in range(40)]
    starts = [NOON + i * PANE for i in range(400)]
    panes = {one: columns(starts, seed) for seed, one in enumerate(many)}
    feed, seen = feeding(Interrupted(made(database.url()), database.crash))
    seen.append(replace(snapshot(1), panes=panes))
    feed.wake()
    until(lambda: feed.state().failures > 0)
    known = feed.state().panes
    assert 0 < known < 400
    database.start()
    with asking(database) as db:
        counts = db.execute("SELECT count(*) AS n FROM streameval_results GROUP BY pane_start").fetchall()
    assert {row["n"] for row in counts} == {40}
    assert len(counts) >= known
    until(lambda: feed.state().waiting == 0)
    assert held(rows(database)) == expected(seen[-1])


def test_a_monitor_killed_before_it_noted_what_it_wrote_repeats_it_without_doubles(
    database: Postgres, made: Any, feeding: Any, tmp_path: Path
) -> None:
    def end(feed: Any) -> None:
        feed.close(60.0)
        feed._outbox.close()

    feed, seen = feeding(made(database.url()))
    seen.append(snapshot(2))
    feed.wake()
    until(lambda: feed.state().panes == 2)
    end(feed)
    shutil.copy(tmp_path / "outbox.sqlite", tmp_path / "before")
    feed, seen = feeding(made(database.url()))
    seen.append(snapshot(4))
    feed.wake()
    until(lambda: feed.state().panes == 4)
    assert len(rows(database)) == 7
    end(feed)
    shutil.move(tmp_path / "before", tmp_path / "outbox.sqlite")  # as if it had been killed right after the write
    feed, seen = feeding(made(database.url()))
    seen.append(corrected(snapshot(6), 1))
    feed.wake()
    until(lambda: feed.state().waiting == 0 and feed.state().panes == 6)
    assert held(rows(database)) == expected(seen[-1])


def test_a_server_that_hangs_is_an_error_in_time_and_gets_all_when_it_goes_on(
    database: Postgres, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "_CONNECT_SECONDS", 2)
    sink, first = made(database.url()), snapshot()
    panes = panes_of(first, first.panes[V1].start.tolist())
    database.freeze(True)
    try:
        with pytest.raises(
            SinkError, match="timeout"
        ):  # the server never says a word: without a limit this would not end
            sink.write(panes, [])
    finally:
        database.freeze(False)

    def written() -> bool:
        try:
            sink.write(panes, [])
        except SinkError:  # two seconds are little on a busy machine
            return False
        return True

    until(written)
    assert held(rows(database)) == expected(first)


def test_what_is_wrong_is_one_line_with_the_address_the_fix_and_no_password(database: Postgres, made: Any) -> None:
    first = snapshot(1)
    refused = f"p-{PASSWORD}"
    for url, why in (
        (database.url(password=refused), f'password authentication failed for user "{USER}"'),
        (database.url(database="streameval_none"), 'database "streameval_none" does not exist'),
        (database.url().replace(str(database.port), "1"), "Connection refused"),
    ):
        with pytest.raises(SinkError) as raised:
            made(f"{url}?options=-cwork_mem%3D4MB").write(panes_of(first, [NOON]), [])
        said = str(raised.value)
        assert why in said
        assert said.startswith(f"postgresql+psycopg://{USER}:***@{url.partition('@')[2]}: ")
        assert "; check " in said
        assert "\n" not in said
        assert "hush" not in said


def test_a_user_who_may_not_write_is_told_so(database: Postgres, made: Any) -> None:
    with asking(database) as db:
        db.execute("CREATE ROLE reader LOGIN PASSWORD 'hush-of-readers'")
    url = database.url().replace(f"{USER}:{PASSWORD}", "reader:hush-of-readers")
    with pytest.raises(SinkError, match=r"permission denied for schema public.*; check .*rights"):
        made(url).write(panes_of(snapshot(1), [NOON]), [])


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql+mysqldb://u:hush@h/d", "driver"),
        ("nope://u:hush@h/d", "driver"),
        ("postgresql+psycopg://u:hu@hush@h/d", "%40"),
        ("postgresql+psycopg://u:hush@h:hush/d", "address"),
        ("hush", "address"),
    ],
)
def test_an_address_that_cannot_work_is_an_error_at_the_start(made: Any, url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^sinks: .*{said}") as raised:
        made(url)
    assert "hu@" not in str(raised.value)
    assert "hush" not in str(raised.value)

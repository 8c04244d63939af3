"""Who was told of a change stays on record as long as the change does: over restarts, and in files of before there was a record."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from streameval.compare.reading.notified import Told
from streameval.store import outbox as module
from streameval.store.errors import StoreError
from streameval.store.outbox import OUTBOX_FORMAT, OUTBOX_NAME, Outbox, Parcel

FORMAT_1 = """
CREATE TABLE changes (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, comparison TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE deliveries (number INTEGER NOT NULL, receiver TEXT NOT NULL, found REAL NOT NULL, due REAL NOT NULL,
    tries INTEGER NOT NULL, PRIMARY KEY (receiver, number)) WITHOUT ROWID;
CREATE TABLE conditions (name TEXT PRIMARY KEY, since REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE handlings (comparison TEXT PRIMARY KEY, state TEXT NOT NULL, by TEXT NOT NULL, reason TEXT NOT NULL,
    at INTEGER NOT NULL, verdict TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE written (sink TEXT, kind TEXT, item TEXT, digest BLOB NOT NULL, PRIMARY KEY (sink, kind, item)) WITHOUT ROWID;
INSERT INTO changes VALUES (7, 'old', 'c', '{"text": "said before"}');
INSERT INTO deliveries VALUES (7, 'ops', 1.0, 1.0, 2);
INSERT INTO handlings VALUES ('c', 'acknowledged', 'ana', 'seen', 5, 'worse');
PRAGMA user_version = 1;
"""
FORMAT_2 = """
CREATE TABLE told (entry INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER NOT NULL, receiver TEXT NOT NULL, kind TEXT NOT NULL,
    at INTEGER NOT NULL, state TEXT NOT NULL, UNIQUE (number, receiver));
PRAGMA user_version = 2;
"""


def told(receiver: str = "ops", at: int = 1_000, state: str = "delivered") -> Told:
    return Told(receiver, "webhook", at, state)  # type: ignore[arg-type]


def put(outbox: Outbox, *keys: str, receivers: tuple[str, ...] = ("ops",)) -> None:
    outbox.put([Parcel(key, "c", {}, receivers) for key in keys], 1.0)


def on_record(outbox: Outbox) -> list[tuple[str, Told]]:
    return [(one.key, one.told) for one in outbox.told()]


def test_who_has_been_told_is_on_record_after_a_restart_too(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    put(outbox, "a", receivers=("ops", "oncall"))
    assert on_record(outbox) == []  # nobody yet
    outbox.done(1, told("oncall", 2_000))
    outbox.done(1, told("ops", 3_000, "muted"))
    wanted = [("a", told("oncall", 2_000)), ("a", told("ops", 3_000, "muted"))]
    assert on_record(outbox) == wanted
    assert outbox.queues() == {}
    outbox.close()
    again = Outbox(tmp_path)
    assert on_record(again) == wanted
    put(again, "b")
    again.done(2, told())
    assert [(one.entry, one.key) for one in again.told(after=2)] == [(3, "b")]
    again.close()


def test_what_is_dropped_for_a_full_queue_was_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING_MESSAGES", 2)
    outbox = Outbox(None)
    put(outbox, *"abcd")
    while (waiting := outbox.next_due("ops", 2.0)) is not None:
        outbox.done(waiting.number, told())
    assert [key for key, _ in on_record(outbox)] == ["c", "d"]
    assert [(one.key, one.why) for one in outbox.untold()] == [("a", "dropped"), ("b", "dropped")]


def test_why_nobody_is_told_is_on_record_after_a_restart_too(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    put(outbox, "a")
    outbox.put([Parcel("b", "c", {}, (), "serves_nobody")], 1.0)
    outbox.put([Parcel("b", "c", {}, (), "not_subscribed")], 1.0)  # found again
    assert outbox.waiting() == {"a"}
    assert outbox.forget_receivers(["other"]) == 1
    outbox.close()
    again = Outbox(tmp_path)
    assert again.waiting() == frozenset()
    assert [(one.key, one.why) for one in again.untold()] == [("b", "serves_nobody"), ("a", "receiver_removed")]
    assert [one.key for one in again.untold(after=1)] == ["a"]
    again.close()


def test_a_delivery_and_its_record_are_one_transaction(tmp_path: Path) -> None:
    """What stops between them leaves both as they were: the message is sent again."""
    outbox = Outbox(tmp_path)
    put(outbox, "a")
    with sqlite3.connect(tmp_path / OUTBOX_NAME) as other:
        other.execute("CREATE TRIGGER fails BEFORE INSERT ON told BEGIN SELECT RAISE(ABORT, 'killed'); END")
    with pytest.raises(StoreError, match="killed"):
        outbox.done(1, told())
    assert outbox.next_due("ops", 2.0) is not None
    assert on_record(outbox) == []
    with sqlite3.connect(tmp_path / OUTBOX_NAME) as other:
        other.execute("DROP TRIGGER fails")
    outbox.done(1, told(at=5_000))
    assert on_record(outbox) == [("a", told(at=5_000))]
    outbox.close()


def test_the_record_goes_with_its_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEYS", 3)
    outbox = Outbox(tmp_path)
    for number in range(1, 11):
        put(outbox, f"k{number}", receivers=("ops", "oncall"))
        for receiver in ("ops", "oncall"):
            outbox.done(number, told(receiver))
    kept = ["k8", "k9", "k10"]
    assert sorted(outbox.known()) == sorted(kept)
    assert [key for key, _ in on_record(outbox)] == [key for key in kept for _ in range(2)]
    outbox.done(1, told())  # of a change that is forgotten
    with sqlite3.connect(tmp_path / OUTBOX_NAME) as other:
        assert other.execute("SELECT count(*) FROM told").fetchone() == (6,)
    monkeypatch.setattr(module, "MOST_TOLD", 3)
    assert [key for key, _ in on_record(outbox)] == ["k9", "k10", "k10"]
    outbox.close()


@pytest.mark.parametrize("script", [FORMAT_1, FORMAT_1 + FORMAT_2])
def test_a_file_of_an_earlier_format_is_upgraded_in_place_with_what_it_has(tmp_path: Path, script: str) -> None:
    with sqlite3.connect(tmp_path / OUTBOX_NAME) as old:
        old.executescript(script)
    old.close()
    for _ in range(2):
        outbox = Outbox(tmp_path)
        assert outbox.known() == {"old"}
        assert [said.by for said in outbox.handlings().values()] == ["ana"]
        outbox.close()
    outbox = Outbox(tmp_path)
    assert on_record(outbox) == outbox.untold() == []
    waiting = outbox.next_due("ops", 2.0)
    assert waiting is not None
    outbox.done(waiting.number, told())
    assert on_record(outbox) == [("old", told())]
    outbox.close()
    with sqlite3.connect(tmp_path / OUTBOX_NAME) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (OUTBOX_FORMAT,)


def test_a_file_of_a_later_format_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / OUTBOX_NAME) as later:
        later.execute(f"PRAGMA user_version = {OUTBOX_FORMAT + 1}")
    with pytest.raises(StoreError, match=f"format {OUTBOX_FORMAT + 1}, but this program reads format {OUTBOX_FORMAT};"):
        Outbox(tmp_path)
    with sqlite3.connect(tmp_path / OUTBOX_NAME) as later:
        assert later.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


@pytest.mark.parametrize("how", ["cut short", "something else"])
def test_a_damaged_outbox_is_one_error_that_says_what_moving_it_away_costs(tmp_path: Path, how: str) -> None:
    Outbox(tmp_path).close()
    path = tmp_path / OUTBOX_NAME
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if how == "cut short" else b"x" * len(data))
    with pytest.raises(
        StoreError, match=r"outbox\.sqlite: .*; put a good copy in its place, or move it away: what waits"
    ):
        Outbox(tmp_path)


def test_an_empty_file_begins_a_new_outbox_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Outbox(tmp_path).close()
    assert not caplog.records, "a file that is not there yet is a first start"
    path = tmp_path / OUTBOX_NAME
    path.unlink()
    path.touch()
    outbox = Outbox(tmp_path)
    put(outbox, "a")
    assert outbox.known() == {"a"}
    outbox.close()
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert caplog.records[0].getMessage().startswith(f"{path}: is empty (0 bytes): a new outbox begins; ")


def test_an_outbox_that_may_not_be_written_is_an_error_about_permissions(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox._db.execute("PRAGMA query_only = 1")  # SQLite says the same of a file of somebody else
    with pytest.raises(
        StoreError, match=r"outbox\.sqlite: attempt to write a readonly .*; check the file, its folder and their perm"
    ):
        outbox.put([Parcel("a", "c", {}, ("hook",))], 1.0)


def test_a_disk_that_hangs_does_not_hold_the_end_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CLOSE_SECONDS", 0.2)
    outbox, writes, hangs = Outbox(tmp_path), threading.Event(), threading.Event()

    def write() -> None:
        with outbox._transaction():
            writes.set()
            hangs.wait()

    def close() -> None:
        outbox.close()

    writing, closing = (threading.Thread(target=target, daemon=True) for target in (write, close))
    writing.start()
    writes.wait()
    closing.start()
    closing.join(5.0)
    waited = closing.is_alive()
    hangs.set()
    writing.join()
    assert not waited

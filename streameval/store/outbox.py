"""What has to leave this process exactly once: messages about verdicts; and the progress of every sink.

One SQLite file beside the history (`outbox.sqlite`), or memory without a store. A change of a verdict is put in under a key
that follows from the event stream alone, together with a delivery for every receiver, in one transaction that is
on the disk (`synchronous = FULL`) before anything is sent; after its receiver has answered, one transaction deletes the
delivery and keeps who was told and when. So whatever is killed when: a change that is found again is known, and one whose delivery
was cut off is delivered again, under the same key. A kill between the answer and that transaction leaves the delivery to be sent
again; the time on record is then that of the second.

Thread-safe: one connection behind a lock, transactions of about a millisecond. Several workers of a machine may share the file.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streameval.compare.reading.handling import Handling
from streameval.compare.reading.notified import Told, Untold
from streameval.store.errors import BARS, StoreError, barred, check_writable, warn_if_empty
from streameval.store.thread import WorkThread

OUTBOX_NAME = "outbox.sqlite"
OUTBOX_FORMAT = 3  # PRAGMA user_version; 1 had no `told`, 2 no `untold`, and both are upgraded
MOST_WAITING_MESSAGES = 1_000  # for each receiver; then the oldest are dropped, and counted
MOST_KEYS = 100_000  # changes that are remembered; comparisons on record have at most 6,400
MOST_TOLD = 50_000  # newest entries of who was notified, or why nobody was, that are returned
_BUSY_SECONDS = 10.0
_CLOSE_SECONDS = 5.0  # two writes of a slow disk

_TABLES = """
CREATE TABLE changes (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, comparison TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE deliveries (number INTEGER NOT NULL, receiver TEXT NOT NULL, found REAL NOT NULL, due REAL NOT NULL,
    tries INTEGER NOT NULL, PRIMARY KEY (receiver, number)) WITHOUT ROWID;
CREATE TABLE conditions (name TEXT PRIMARY KEY, since REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE handlings (comparison TEXT PRIMARY KEY, state TEXT NOT NULL, by TEXT NOT NULL, reason TEXT NOT NULL,
    at INTEGER NOT NULL, verdict TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE written (sink TEXT, kind TEXT, item TEXT, digest BLOB NOT NULL, PRIMARY KEY (sink, kind, item)) WITHOUT ROWID;
"""
_TOLD_TABLE = """
CREATE TABLE told (entry INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER NOT NULL, receiver TEXT NOT NULL, kind TEXT NOT NULL,
    at INTEGER NOT NULL, state TEXT NOT NULL, UNIQUE (number, receiver));
"""
_UNTOLD_TABLE = """
CREATE TABLE untold (entry INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER NOT NULL UNIQUE, why TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A change and the receivers to notify; none: it is only recorded."""

    key: str
    comparison: str  # the key of its comparison; "": of none
    body: Mapping[str, Any]  # as JSON
    receivers: tuple[str, ...]
    untold: Untold | None = None  # why nobody is notified


@dataclass(frozen=True, slots=True)
class Waiting:
    """A delivery that is due."""

    number: int
    key: str
    body: Mapping[str, Any]
    tries: int
    muted: bool  # its comparison was muted since


@dataclass(frozen=True, slots=True)
class ToldEntry:
    """A receiver that was notified of the change with this key; entries are numbered in the order in which any process makes them."""

    entry: int
    key: str
    told: Told


@dataclass(frozen=True, slots=True)
class UntoldEntry:
    """Why nobody was notified of the change with this key."""

    entry: int
    key: str
    why: Untold


@dataclass(frozen=True, slots=True)
class ReceiverQueue:
    """The messages waiting for one receiver."""

    messages: int
    oldest: float | None  # wall clock, seconds


class Outbox:
    """See the module."""

    def __init__(self, folder: Path | None) -> None:
        """`folder`: that of the store; None: in memory. Raises StoreError."""
        self._path = None if folder is None else folder / OUTBOX_NAME
        self._lock = threading.Lock()
        self._lease: int | None = None
        with self._errors():
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                warn_if_empty(self._path, "a new outbox")
            self._db = sqlite3.connect(
                ":memory:" if self._path is None else self._path,
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            self._begin()
            if self._path is not None:
                check_writable(self._path)

    @property
    def durable(self) -> bool:
        """Whether it outlives the process."""
        return self._path is not None

    # -- messages ------------------------------------------------------------------------------------------------

    def put(
        self, parcels: Sequence[Parcel], now: float, opens: Iterable[str] = (), closes: Iterable[str] = ()
    ) -> dict[str, int]:
        """Adds the changes that are not known, on the disk when it returns; returns how many messages were dropped for them, by receiver.

        `opens`, `closes`: conditions that begin or end with them, in the same transaction. Raises StoreError.
        """
        with self._transaction() as db:
            touched: set[str] = set()
            for one in parcels:
                added = db.execute(
                    "INSERT OR IGNORE INTO changes (key, comparison, body) VALUES (?, ?, ?)",
                    (one.key, one.comparison, json.dumps(one.body)),
                )
                if added.rowcount == 1:
                    rows = [(added.lastrowid, receiver, now, now) for receiver in one.receivers]
                    db.executemany("INSERT INTO deliveries VALUES (?, ?, ?, ?, 0)", rows)
                    touched.update(one.receivers)
                    if one.untold is not None:
                        _note_untold(db, [added.lastrowid], one.untold)
            db.executemany("INSERT OR IGNORE INTO conditions VALUES (?, ?)", [(name, now) for name in opens])
            db.executemany("DELETE FROM conditions WHERE name = ?", [(name,) for name in closes])
            dropped = {receiver: _drop_oldest(db, receiver) for receiver in touched}
            db.execute(
                "DELETE FROM changes WHERE number <= (SELECT max(number) FROM changes) - ? AND NOT EXISTS "
                "(SELECT 1 FROM deliveries d WHERE d.number = changes.number)",
                (MOST_KEYS,),
            )
            for table in ("told", "untold"):
                db.execute(
                    f"DELETE FROM {table} WHERE number <= (SELECT max(number) FROM changes) - ? AND NOT EXISTS "  # noqa: S608  (two names of ours)
                    f"(SELECT 1 FROM changes c WHERE c.number = {table}.number)",
                    (MOST_KEYS,),
                )
        return dropped

    def known(self) -> set[str]:
        """The keys of all changes that are known. Raises StoreError."""
        with self._transaction() as db:
            return {key for (key,) in db.execute("SELECT key FROM changes")}

    def conditions(self) -> set[str]:
        """Those that continue."""
        with self._transaction() as db:
            return {name for (name,) in db.execute("SELECT name FROM conditions")}

    def next_due(self, receiver: str, now: float) -> Waiting | None:
        """The oldest message for a receiver that may be tried now."""
        with self._transaction() as db:
            row = db.execute(
                "SELECT c.number, c.key, c.body, d.tries, h.state IS NOT NULL FROM deliveries d JOIN changes c USING "
                "(number) LEFT JOIN handlings h ON h.comparison = c.comparison AND h.state = 'muted' "
                "WHERE d.receiver = ? AND d.due <= ? ORDER BY d.number LIMIT 1",
                (receiver, now),
            ).fetchone()
        return None if row is None else Waiting(row[0], row[1], json.loads(row[2]), row[3], bool(row[4]))

    def done(self, number: int, told: Told) -> None:
        """It has been delivered, or is muted; that stays on record as long as its change does. Raises StoreError."""
        with self._transaction() as db:
            db.execute("DELETE FROM deliveries WHERE receiver = ? AND number = ?", (told.receiver, number))
            db.execute(
                "INSERT OR IGNORE INTO told (number, receiver, kind, at, state) "
                "SELECT number, ?, ?, ?, ? FROM changes WHERE number = ?",
                (told.receiver, told.kind, told.at, told.state, number),
            )

    def told(self, after: int = 0) -> list[ToldEntry]:
        """Who was notified of what, by entry, after entry `after`; the newest `MOST_TOLD`. Raises StoreError."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT t.entry, c.key, t.receiver, t.kind, t.at, t.state FROM told t JOIN changes c USING (number) "
                "WHERE t.entry > ? ORDER BY t.entry DESC LIMIT ?",
                (after, MOST_TOLD),
            ).fetchall()
        return [ToldEntry(entry, key, Told(*whom)) for entry, key, *whom in reversed(rows)]

    def untold(self, after: int = 0) -> list[UntoldEntry]:
        """The same for changes of which nobody was notified. Raises StoreError."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT u.entry, c.key, u.why FROM untold u JOIN changes c USING (number) "
                "WHERE u.entry > ? ORDER BY u.entry DESC LIMIT ?",
                (after, MOST_TOLD),
            ).fetchall()
        return [UntoldEntry(*row) for row in reversed(rows)]

    def waiting(self) -> frozenset[str]:
        """The keys of changes with a waiting message. Raises StoreError."""
        with self._transaction() as db:
            rows = db.execute("SELECT DISTINCT c.key FROM deliveries d JOIN changes c USING (number)").fetchall()
        return frozenset(key for (key,) in rows)

    def put_off(self, receiver: str, number: int, due: float) -> None:
        """An attempt has failed; the next is at `due` (wall clock). Raises StoreError."""
        with self._transaction() as db:
            db.execute(
                "UPDATE deliveries SET tries = tries + 1, due = ? WHERE receiver = ? AND number = ?",
                (due, receiver, number),
            )

    def queues(self) -> dict[str, ReceiverQueue]:
        """The messages waiting, by receiver; only receivers that have some."""
        with self._transaction() as db:
            rows = db.execute("SELECT receiver, count(*), min(found) FROM deliveries GROUP BY receiver").fetchall()
        return {receiver: ReceiverQueue(n, oldest) for receiver, n, oldest in rows}

    def forget_receivers(self, known: Iterable[str]) -> int:
        """Deletes the messages for receivers that are no longer configured (not among these); returns how many."""
        names = list(known)
        with self._transaction() as db:
            marks = ", ".join("?" * len(names))
            sql = f"DELETE FROM deliveries WHERE receiver NOT IN ({marks}) RETURNING number"  # noqa: S608  (question marks)
            gone = [number for (number,) in db.execute(sql, names).fetchall()]
            _note_untold(db, gone, "receiver_removed")
            return len(gone)

    # -- handlings ------------------------------------------------------------------------------------------------

    def handle(self, comparison: str, handling: Handling | None) -> None:
        """Stores the handling of a verdict; None: removes it. Raises StoreError."""
        with self._transaction() as db:
            db.execute("DELETE FROM handlings WHERE comparison = ?", (comparison,))
            if handling is not None:
                h = handling
                row = (comparison, h.state, h.by, h.reason, h.at, h.verdict)
                db.execute("INSERT INTO handlings VALUES (?, ?, ?, ?, ?, ?)", row)

    def handlings(self) -> dict[str, Handling]:
        """By the key of the comparison. Raises StoreError."""
        with self._transaction() as db:
            rows = db.execute("SELECT comparison, state, by, reason, at, verdict FROM handlings").fetchall()
        return {key: Handling(*said) for key, *said in rows}

    # -- sinks -----------------------------------------------------------------------------------------------------

    def written(self, sink: str, kind: str) -> dict[str, bytes]:
        """The digest of everything of a kind that a sink is known to have, by item. Raises StoreError."""
        with self._transaction() as db:
            rows = db.execute("SELECT item, digest FROM written WHERE sink = ? AND kind = ?", (sink, kind))
            return dict(rows.fetchall())

    def note_written(self, sink: str, kind: str, items: Mapping[str, bytes], gone: Iterable[str] = ()) -> None:
        """A sink has these now; `gone`: items that will not be needed again. Raises StoreError."""
        with self._transaction() as db:
            rows = [(sink, kind, item, digest) for item, digest in items.items()]
            db.executemany("INSERT OR REPLACE INTO written VALUES (?, ?, ?, ?)", rows)
            places = [(sink, kind, item) for item in gone]
            db.executemany("DELETE FROM written WHERE sink = ? AND kind = ? AND item = ?", places)

    # -- inside ----------------------------------------------------------------------------------------------------

    def lease(self) -> bool:
        """Whether this process is the one that sends: the first of those that share the file, until it ends."""
        if self._path is None or self._lease is not None:
            return True
        try:
            file = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel drops it, however the process ends
        except OSError:
            os.close(file)
            return False
        self._lease = file
        return True

    def close(self) -> None:
        """No more calls. Does not wait for a disk that hangs: what was acknowledged is on it, the rest is found again."""
        closing = WorkThread("outbox")
        closing.submit(self._close)
        closing.close(_CLOSE_SECONDS)

    def _close(self) -> None:
        with self._lock:
            self._db.close()
            if self._lease is not None:
                os.close(self._lease)
                self._lease = None

    def _begin(self) -> None:
        db = self._db
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")  # what is acknowledged survives a power cut
        db.execute("BEGIN IMMEDIATE")
        found = db.execute("PRAGMA user_version").fetchone()[0]
        if found == 0:
            for statement in _TABLES.split(";"):
                db.execute(statement)
        if found in (0, 1):
            db.execute(_TOLD_TABLE)
        if found in (0, 1, 2):
            db.execute(_UNTOLD_TABLE)
            db.execute(f"PRAGMA user_version = {OUTBOX_FORMAT}")
        db.execute("COMMIT")
        if found not in (0, 1, 2, OUTBOX_FORMAT):
            raise StoreError(
                f"{self._path}: format {found}, but this program reads format {OUTBOX_FORMAT}; move the file away, or run the version that wrote it"
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            fix = "check the disk of store.path"
            if "malformed" in str(error) or "not a database" in str(error):
                fix = "put a good copy in its place, or move it away: what waits in it is not sent then, and sinks get their panes again"
            elif self._path and (isinstance(error, BARS) or "readonly" in str(error) or "unable to open" in str(error)):
                fix = barred(self._path)
            raise StoreError(f"{self._path or 'outbox'}: {error}; {fix}") from error


def _drop_oldest(db: sqlite3.Connection, receiver: str) -> int:
    """Keeps the newest messages of a receiver."""
    dropped = db.execute(
        "DELETE FROM deliveries WHERE receiver = ?1 AND number <= (SELECT number FROM deliveries WHERE receiver = ?1 "
        "ORDER BY number DESC LIMIT 1 OFFSET ?2) RETURNING number",
        (receiver, MOST_WAITING_MESSAGES),
    ).fetchall()
    _note_untold(db, [number for (number,) in dropped], "dropped")
    return len(dropped)


def _note_untold(db: sqlite3.Connection, numbers: Iterable[int | None], why: Untold) -> None:
    """It holds as long as nobody else is notified of them."""
    db.executemany("INSERT OR REPLACE INTO untold (number, why) VALUES (?, ?)", [(number, why) for number in numbers])

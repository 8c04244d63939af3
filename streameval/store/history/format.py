"""What the parts of the history are, and the file that holds them: tables, format, and the settings they depend on.

A part is what one partition counted in one pane (level 0), hour (1) or day (2) of UTC. It holds, by names and never by
codes of one process: a row per (series, slice) with its integer vector, a sample of users per series, and how far its
labels are. Parts of a partition never overlap, and a part's vector is the exact sum of its panes' vectors.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from streameval.events.durations import DAY, HOUR
from streameval.settings.units import format_duration
from streameval.sketches.codec import VERSION as CODEC_VERSION
from streameval.sketches.codec import CodecError
from streameval.sketches.copies import WEIGHTS
from streameval.sketches.layout import OVERALL_BITS, SLICE_BITS, Layout, Options
from streameval.sketches.ranks import Weighting
from streameval.store.errors import BARS, StoreError, barred, check_writable, warn_if_empty

HISTORY_FORMAT = 2  # PRAGMA user_version
APPLICATION = 0x53457668  # PRAGMA application_id: "SEvh"
# Entries of sampled users in a part, by level; at 10 bytes each they are no more than the vectors beside them.
SAMPLE_ENTRIES = (1_024, 8_192, 32_768)
BUSY_SECONDS = 10.0  # how long a writer waits for another worker's transaction
NO_SLICE = 0  # the slice id of overall rows

_TABLES = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE owners (partition INTEGER PRIMARY KEY, epoch INTEGER NOT NULL);
CREATE TABLE series (id INTEGER PRIMARY KEY, model TEXT NOT NULL, version TEXT NOT NULL, source TEXT NOT NULL,
    UNIQUE (model, version, source));
CREATE TABLE slices (id INTEGER PRIMARY KEY, dimension TEXT NOT NULL, value TEXT NOT NULL, UNIQUE (dimension, value));
CREATE TABLE parts (level INTEGER, start INTEGER, partition INTEGER, panes INTEGER NOT NULL, seen INTEGER NOT NULL,
    matured INTEGER NOT NULL, clicks INTEGER NOT NULL, corrected INTEGER NOT NULL, newest INTEGER,
    PRIMARY KEY (level, start, partition)) WITHOUT ROWID;
CREATE TABLE vectors (series INTEGER, slice INTEGER, level INTEGER, start INTEGER, partition INTEGER,
    impressions INTEGER NOT NULL, bytes INTEGER NOT NULL, sums BLOB NOT NULL, scores BLOB NOT NULL,
    PRIMARY KEY (series, slice, level, start, partition));
CREATE INDEX vectors_by_time ON vectors (level, start, partition, series, slice, impressions, bytes);
CREATE TABLE samples (series INTEGER, level INTEGER, start INTEGER, partition INTEGER, k INTEGER NOT NULL,
    entries BLOB NOT NULL, PRIMARY KEY (series, level, start, partition));
CREATE INDEX samples_by_time ON samples (level, start, partition);
"""


@dataclass(frozen=True, slots=True)
class HistoryFormat:
    """The settings that rows depend on: rows made under others cannot be added to them."""

    pane: int  # ms
    options: Options
    weighting: Weighting

    @property
    def overall(self) -> Layout:
        """The cells of a series' vector."""
        return self.options.overall

    @property
    def slice(self) -> Layout:
        """The cells of a series' vector in a slice."""
        return self.options.slice

    @property
    def keeps_users(self) -> bool:
        """Whether GAUC can be made of what is kept of users: neither the value of their clicks is, nor what impressions stand for."""
        return self.weighting != "value" and self.overall.tally(WEIGHTS.name) is None

    @property
    def lengths(self) -> tuple[int, int, int]:
        """Length of a part by level, ms: a pane, an hour, a day; the next multiple where they are no multiple."""
        hour = -(-HOUR // self.pane) * self.pane
        return self.pane, hour, -(-DAY // hour) * hour

    def fingerprint(self) -> dict[str, str]:
        """Setting -> value, as text."""
        return {
            "windows.pane": format_duration(self.pane),
            "buckets.edges": str(list(self.options.edges)),
            "users.weighting": self.weighting,
            "score histogram": f"{OVERALL_BITS} and {SLICE_BITS} bits, codec {CODEC_VERSION}",
        }


def open_to_write(path: Path, form: HistoryFormat) -> sqlite3.Connection:
    """The database, made if it is not there. Raises StoreError, also when it is not ours or of other settings."""
    with store_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        warn_if_empty(path, "a new history")
        # one thread at a time uses it, but not always the one that opened it
        db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            _begin(db, path, form)
            _verify(db, path, form)
            check_writable(path)
            # FULL: what `write` has acknowledged survives a power cut, as the checkpoint beside it does
            db.execute("PRAGMA synchronous = FULL")
        except BaseException:
            db.close()
            raise
    return db


def open_to_read(path: Path, form: HistoryFormat) -> sqlite3.Connection:
    """The database, read-only. Raises StoreError."""
    with store_errors(path):
        if not path.exists():
            raise StoreError(f"{path}: does not exist; it is created by the first `streameval run` with store.path")
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=1.0, isolation_level=None, uri=True)
        try:
            _verify(db, path, form)
        except BaseException:
            db.close()
            raise
    return db


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """What SQLite and the system say, as StoreError."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path}: {error}; {_fix(error, path)}") from error
    except CodecError as error:
        raise StoreError(f"{path}: {error}; put a good copy of the file in its place, or move it away") from error
    except OSError as error:
        raise StoreError(
            f"{path}: {error.strerror or error}; {barred(path) if isinstance(error, BARS) else 'check store.path'}"
        ) from error


def _fix(error: sqlite3.DatabaseError, path: Path) -> str:
    text = str(error)
    if "locked" in text or "busy" in text:
        return f"another process held it for {BUSY_SECONDS:.0f} s; will be retried"
    if "full" in text or "I/O" in text:
        return "free disk space, or lower store.max_size"
    if any(damage in text for damage in ("not a database", "malformed", "corrupt", "decode")):
        return "move the file away to begin a new history, or put a good copy in its place"
    return barred(path)


def _begin(db: sqlite3.Connection, path: Path, form: HistoryFormat) -> None:
    """Makes the tables in a file that holds none."""
    if not _empty(db):
        return
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only before the first page is written
    _until_free(db, "PRAGMA journal_mode = WAL")
    db.execute("BEGIN IMMEDIATE")
    if _empty(db):  # of several workers that start together, one makes them
        for statement in _TABLES.split(";"):
            db.execute(statement)
        db.executemany("INSERT INTO settings VALUES (?, ?)", form.fingerprint().items())
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {HISTORY_FORMAT}")
    db.execute("COMMIT")


def _empty(db: sqlite3.Connection) -> bool:
    return _one(db, "SELECT count(*) FROM sqlite_master") == 0 and _one(db, "PRAGMA application_id") == 0


def _until_free(db: sqlite3.Connection, statement: str) -> None:
    """Changing the journal does not wait for others by itself."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            db.execute(statement)
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _verify(db: sqlite3.Connection, path: Path, form: HistoryFormat) -> None:
    if _one(db, "PRAGMA application_id") != APPLICATION:
        raise StoreError(f"{path}: is another program's database; move it away, or set store.path to another folder")
    version = _one(db, "PRAGMA user_version")
    if version != HISTORY_FORMAT:
        raise StoreError(
            f"{path}: history of format {version}, this program reads format {HISTORY_FORMAT}; use the program that wrote it, "
            "or move the file away to begin a new history"
        )
    stored = dict(db.execute("SELECT name, value FROM settings"))
    for name, value in form.fingerprint().items():
        if stored.get(name) != value:
            raise StoreError(
                f"{path}: holds panes counted with {name} = {stored.get(name)}, which cannot be added to the current ones, "
                f"{value}; set it back, or move the file away to begin a new history"
            )


def _one(db: sqlite3.Connection, query: str) -> int:
    with closing(db.execute(query)) as rows:
        return int(rows.fetchone()[0])

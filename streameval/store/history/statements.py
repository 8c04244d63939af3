"""The statements that change the tables of a history, inside the caller's transaction: rows in, parts out."""

from __future__ import annotations

import sqlite3

from streameval.events.batch import Series
from streameval.store.errors import FencedError
from streameval.store.history.format import NO_SLICE
from streameval.store.history.rows import EncodedPane
from streameval.store.history.stored import EncodedVector

_DELETIONS = 256  # starts deleted in one transaction

# What SQLite raises about one row, which has changed nothing then: a name or key that is there, a number or a text that
# cannot be stored. Of anything else it is not known what it would do to the rows after it.
_UNFIT = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, OverflowError, ValueError)

PartKey = tuple[int, int, int]  # level, start, partition


def fence(db: sqlite3.Connection, partition: int, epoch: int) -> None:
    """Notes that this epoch of a partition writes. Raises FencedError when a later one has written."""
    known = db.execute("SELECT epoch FROM owners WHERE partition = ?", (partition,)).fetchone()
    if known is not None and known[0] > epoch:
        raise FencedError(f"partition {partition}: epoch {epoch} may no longer write, epoch {known[0]} has written")
    db.execute("INSERT OR REPLACE INTO owners VALUES (?, ?)", (partition, epoch))


def insert_pane(db: sqlite3.Connection, pane: EncodedPane, partition: int) -> list[str]:
    """Writes the rows that can be written; returns the others, and why."""
    skipped = list(pane.unfit)
    key, c = (0, pane.start, partition), pane.counts
    db.execute(
        "INSERT INTO parts VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?)",
        (*key, c.seen, c.matured, c.clicks, c.corrected, c.newest),
    )
    for series, where, vector in pane.vectors:
        try:
            slice_id = NO_SLICE if where is None else _id(db, "slices", ("dimension", "value"), where)
            insert_vector(db, _series_id(db, series), slice_id, key, vector)
        except _UNFIT as error:
            skipped.append(f"{series!r}, slice {where!r}: {error}")
    for series, k, entries in pane.samples:
        try:
            insert_sample(db, _series_id(db, series), key, k, entries)
        except _UNFIT as error:
            skipped.append(f"users of {series!r}: {error}")
    return skipped


def insert_vector(db: sqlite3.Connection, series: int, where: int, key: PartKey, v: EncodedVector) -> None:
    """Writes one series' vector in one part, `where` being a slice's id."""
    db.execute(
        "INSERT INTO vectors VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (series, where, *key, v.impressions, v.nbytes, v.sums, v.scores),
    )


def insert_sample(db: sqlite3.Connection, series: int, key: PartKey, k: int, entries: bytes) -> None:
    """Writes one series' sample of users in one part."""
    db.execute("INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?)", (series, *key, k, entries))


def _series_id(db: sqlite3.Connection, series: Series) -> int:
    # files from before there were objectives have no column for them, and none that is unique with them
    source = f"{series.source}/{series.objective}" if series.objective else series.source
    return _id(db, "series", ("model", "version", "source"), (series.model, series.version, source))


def _id(db: sqlite3.Connection, table: str, columns: tuple[str, ...], names: tuple[str, ...]) -> int:
    """The id of a name, given out when it is new. Not remembered: names without rows are deleted, by any worker."""
    plain = tuple(name.encode("utf-8", "backslashreplace").decode() for name in names)  # no halves of surrogate pairs
    found = db.execute(f"SELECT id FROM {table} WHERE {' = ? AND '.join(columns)} = ?", plain).fetchone()
    if found:
        return int(found[0])
    marks = ", ".join("?" * len(plain))
    return int(db.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", plain).lastrowid or 0)


def delete(db: sqlite3.Connection, where: str, values: tuple[int, ...]) -> int:
    """Deletes parts with all their rows; returns how many parts."""
    for table in ("vectors", "samples"):
        db.execute(f"DELETE FROM {table} WHERE {where}", values)
    return db.execute(f"DELETE FROM parts WHERE {where}", values).rowcount


def delete_oldest(db: sqlite3.Connection, lengths: tuple[int, int, int], most: int) -> int:
    """Deletes the parts that begin first until `most` bytes are used, or there are none, or it has been many.

    With an hour or a day go what other partitions still have of it in finer parts: they alone would answer for it.
    `lengths`: of a part, ms, by level.
    """
    gone = 0
    for _ in range(_DELETIONS):
        first = {
            level: start
            for level in (0, 1, 2)
            for (start,) in db.execute("SELECT min(start) FROM parts WHERE level = ?", (level,))
            if start is not None
        }
        if not first or used(db) <= most:
            break
        start = min(first.values())
        coarsest = max(level for level, begins in first.items() if begins == start)
        within = (coarsest, start, start + lengths[coarsest])
        gone += delete(db, "level <= ? AND start >= ? AND start < ?", within)
    return gone


def forget_names(db: sqlite3.Connection) -> None:
    """Deletes names that no row has any more: versions come and go for years."""
    db.execute("DELETE FROM series WHERE NOT EXISTS (SELECT 1 FROM vectors WHERE vectors.series = series.id)")
    db.execute(
        "DELETE FROM slices WHERE NOT EXISTS (SELECT 1 FROM series JOIN vectors ON vectors.series = series.id"
        " AND vectors.slice = slices.id)"
    )


def used(db: sqlite3.Connection) -> int:
    """Bytes of the pages in use."""
    return (pragma(db, "page_count") - pragma(db, "freelist_count")) * pragma(db, "page_size")


def pragma(db: sqlite3.Connection, name: str) -> int:
    """The value of one of SQLite's settings or counters."""
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])

"""The writing side of the history: panes in, old parts folded into hours and days, the file kept to its size.

One thread uses it; several processes of one machine may have one each on the same file. Whatever happens, the file
holds whole transactions only, and a failed call changed nothing: the caller keeps its rows and writes them again.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from streameval.sketches.codec import CodecError, decode
from streameval.sketches.sparse import SparseVector
from streameval.store.errors import FencedError, StoreError
from streameval.store.history import begun, user_samples
from streameval.store.history import points as history_points
from streameval.store.history.format import (
    NO_SLICE,
    SAMPLE_ENTRIES,
    HistoryFormat,
    open_to_read,
    open_to_write,
    store_errors,
)
from streameval.store.history.rows import PaneRows, encode_pane
from streameval.store.history.statements import (
    delete,
    delete_oldest,
    fence,
    forget_names,
    insert_pane,
    insert_sample,
    insert_vector,
    pragma,
    used,
)
from streameval.store.history.stored import EncodedVector, encode_stored
from streameval.store.history.user_samples import UserSample

log = logging.getLogger(__name__)

_REFRESH_SECONDS = 0.5  # of one call: a tenth of the time between two writes
_FOLDS = 64  # parts that one call of `fold` makes at most: `write` waits for it
_SHARE = 0.85  # of max_size for the database; the journal beside it, and pages on the move, get the rest
_MOVED = 2048  # pages given back at a time
_CUT = 0.95  # of that share is left after a deletion, so that not every write deletes

_KEY = "level = ? AND start = ? AND partition = ?"
_INSIDE = "level = ? AND start >= ? AND start < ? AND partition = ?"

_NAMED = 20  # rows of one call that the log names


@dataclass(frozen=True, slots=True)
class Retention:
    """The age, ms, at which panes become hours, hours become days, and days are deleted; bytes of all at most."""

    minutes: int
    hours: int
    days: int
    max_size: int


class HistoryWriter:
    """Writes one file."""

    def __init__(self, path: Path, form: HistoryFormat, keep: Retention) -> None:
        """Opens or makes the file. Raises StoreError when it is not ours, damaged, or of other settings."""
        self.path = path
        self._form = form
        self._keep = keep
        self._journal = min(keep.max_size // 20, 4 << 20)  # bytes it grows to before it starts over
        self._db: sqlite3.Connection | None = self._open()  # to the file `_opened`
        # parts: written, refused, folded, damaged, deleted_by_age, _by_size; rows: skipped; failures
        self.counts: Counter[str] = Counter()

    def write(self, partition: int, epoch: int, panes: Sequence[PaneRows]) -> None:
        """Puts panes in place of what was there of them, in one transaction; no panes: only says whose it is.

        Panes that are part of an hour or a day already are left as they are, and counted as refused. A row that cannot
        be written is skipped, counted and named in the log; the rest of its pane is written. Raises FencedError
        when a higher epoch of the partition has written, StoreError when it cannot be done now.
        """
        encoded = [encode_pane(rows, self._form) for rows in panes]  # before the transaction: others may write
        done: Counter[str] = Counter()
        skipped: list[tuple[int, str]] = []  # pane, row
        with self._transaction() as db:
            fence(db, partition, epoch)
            for pane in encoded:
                if self._is_folded(db, pane.start, partition):
                    done["refused"] += 1
                else:
                    delete(db, _KEY, (0, pane.start, partition))
                    skipped += [(pane.start, row) for row in insert_pane(db, pane, partition)]
                    done["written"] += 1
        done["skipped"] = len(skipped)
        self.counts.update(done)
        for start, row in skipped[:_NAMED]:
            log.error("history: partition %d, pane from %d ms: not written: %s", partition, start, row)
        if len(skipped) > _NAMED:
            log.error("history: partition %d: %d more rows were not written", partition, len(skipped) - _NAMED)
        if done["refused"]:
            log.warning(
                "history: %d panes of partition %d came after their hour or day had been merged, and were not added",
                done["refused"],
                partition,
            )
        self._fit_size()

    def last_epoch(self, partition: int) -> int:
        """The epoch in which a partition was last written or claimed; 0: never. Any thread may call it. Raises StoreError."""
        with store_errors(self.path), closing(open_to_read(self.path, self._form)) as db:
            known = db.execute("SELECT epoch FROM owners WHERE partition = ?", (partition,)).fetchone()
        return 0 if known is None else int(known[0])

    def fold(self, settled_before: Mapping[int, int], now: int) -> int:
        """Deletes old days, makes hours of old panes and days of old hours; returns how many parts it made.

        `settled_before`: by partition, the time (ms) before which no pane will ever be written again. A part that
        would reach past it is not made, nor one of a partition without it. `now` (ms): what ages are counted from. A
        part is one transaction, and a call makes a bounded number of them. Raises StoreError.
        """
        day = self._form.lengths[2]
        kept = (now - self._keep.days) // day * day  # whole days go, or what is left of one would be made a day
        with self._transaction() as db:
            gone = sum(delete(db, "level = ? AND start < ?", (level, kept)) for level in (0, 1, 2))
            forget_names(db)
        self.counts["deleted_by_age"] += gone
        made = 0
        for level, age in ((0, self._keep.minutes), (1, max(self._keep.minutes, self._keep.hours))):
            length = self._form.lengths[level + 1]
            with self._connected() as db:
                due = db.execute(
                    "SELECT DISTINCT start - start % ?, partition FROM parts WHERE level = ? AND start < ? ORDER BY 1, 2",
                    (length, level, now - age),
                ).fetchall()
            for start, partition in due:
                settled = min(now - age, settled_before.get(partition, start))
                if start + length <= settled and made < _FOLDS:
                    made += self._fold_one(level, start, partition)
        self.counts["folded"] += made
        self._fit_size()
        return made

    def refresh(self, seconds: float = _REFRESH_SECONDS) -> None:
        """Computes the metrics of parts that have changed (see `history_points`), newest first, for about `seconds`.

        What is left over is done next time; until then queries add it up themselves. Raises StoreError.
        """
        until = time.monotonic() + seconds
        left = True
        while left and time.monotonic() < until:
            with self._transaction() as db:
                left = history_points.refresh(db, self._form) > 0

    @property
    def nbytes(self) -> int:
        """Bytes of the database and the journal beside it."""
        return self._journal_bytes() + (self.path.stat().st_size if self.path.exists() else 0)

    def close(self) -> None:
        """Drops the file; what was written is in it."""
        if self._db is not None:
            db, self._db = self._db, None
            with store_errors(self.path):
                db.close()

    # -- inside --------------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        db = open_to_write(self.path, self._form)
        with store_errors(self.path):
            begun.note(db, self._form)
            history_points.prepare(db, self._form)
        self._opened = _file_at(self.path)
        db.execute(f"PRAGMA journal_size_limit = {self._journal}")
        db.execute(f"PRAGMA wal_autocheckpoint = {max(1, self._journal // pragma(db, 'page_size'))}")
        return db

    def _journal_bytes(self) -> int:
        journal = self.path.with_name(self.path.name + "-wal")
        return journal.stat().st_size if journal.exists() else 0

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """The connection; after a failure a new one, because nothing is known of the old one."""
        try:
            with store_errors(self.path):
                if self._db is None:
                    self._db = self._open()
                elif _file_at(self.path) != self._opened:  # SQLite would keep writing to a file that nobody can read
                    raise StoreError(
                        f"{self.path}: was deleted or replaced while this worker was running; what is at its place is used from "
                        "now on, or a new file; to have the old panes, stop, put it back and start"
                    )
                yield self._db
        except FencedError:  # no failure: the file is as it should be
            raise
        except StoreError:
            self.counts["failures"] += 1
            if self._db is not None:
                db, self._db = self._db, None
                with suppress(sqlite3.Error):
                    db.close()  # rolls back
            raise

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connected() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:  # SQLite may have rolled back by itself
                    db.execute("ROLLBACK")
                raise

    def _is_folded(self, db: sqlite3.Connection, start: int, partition: int) -> bool:
        keys = [(level, start - start % self._form.lengths[level], partition) for level in (1, 2)]
        return any(db.execute(f"SELECT 1 FROM parts WHERE {_KEY}", key).fetchone() for key in keys)

    def _fold_one(self, level: int, start: int, partition: int) -> int:
        """Makes one part of the parts of `level` inside it; 0 when there are none, or some are still finer."""
        inside = (level, start, start + self._form.lengths[level + 1], partition)
        with self._transaction() as db:
            finer = db.execute(f"SELECT 1 FROM parts WHERE {_INSIDE.replace('level =', 'level <')}", inside).fetchone()
            totals = db.execute(
                "SELECT sum(panes), sum(seen), sum(matured), sum(clicks), sum(corrected), max(newest) FROM parts "
                f"WHERE {_INSIDE}",
                inside,
            ).fetchone()
            if finer or totals[0] is None:
                return 0
            try:
                vectors = self._summed(db, inside)
                samples = _sampled(db, inside, SAMPLE_ENTRIES[level + 1])
            except CodecError as error:  # the others can still be folded
                log.error("%s: not merged: partition %d, from %d ms: %s", self.path, partition, start, error)
                self.counts["damaged"] += 1
                return 0
            delete(db, _INSIDE, inside)
            key = (level + 1, start, partition)
            db.execute("INSERT INTO parts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*key, *totals))
            for (series, where), vector in vectors.items():
                insert_vector(db, series, where, key, vector)
            for series, sample in samples.items():
                insert_sample(db, series, key, sample.k, user_samples.encode(sample))
        return 1

    def _summed(self, db: sqlite3.Connection, inside: tuple[int, ...]) -> dict[tuple[int, int], EncodedVector]:
        """The sums of the vectors, by series and slice."""
        parts: defaultdict[tuple[int, int], list[bytes]] = defaultdict(list)
        query = f"SELECT series, slice, sums, scores FROM vectors WHERE {_INSIDE}"
        for series, where, sums, scores in db.execute(query, inside):
            parts[series, where] += (sums, scores)
        layout = {True: self._form.overall, False: self._form.slice}
        return {
            (series, where): encode_stored(SparseVector.sum([decode(b) for b in blobs]), layout[where == NO_SLICE])
            for (series, where), blobs in parts.items()
        }

    def _fit_size(self) -> None:
        """Deletes the oldest parts, and gives their room back, when the file has outgrown its share."""
        most = int(self._keep.max_size * _SHARE)
        try:
            with self._connected() as db:
                fits = pragma(db, "page_count") * pragma(db, "page_size") <= most
                full = used(db) > most
            while full:
                with self._transaction() as db:
                    gone = delete_oldest(db, self._form.lengths, int(_CUT * most))
                    full = used(db) > most and gone > 0
                self.counts["deleted_by_size"] += gone
                if gone:
                    log.warning("history: the %d oldest parts deleted, to stay within store.max_size", gone)
            with self._connected() as db:
                while not fits and pragma(db, "freelist_count"):  # in steps, for moved pages pass through the journal
                    db.executescript(f"PRAGMA incremental_vacuum({_MOVED})")  # `execute` ends it after the first page
                    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                # as long as one question follows another the journal cannot start over by itself: wait for a gap
                if self._journal_bytes() > 2 * self._journal:
                    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except StoreError as error:  # the rows are written; the next call tries again
            log.warning("history: old parts not deleted: %s", error)


def _file_at(path: Path) -> tuple[int, int] | None:
    """Which file has this name; None: none."""
    with suppress(FileNotFoundError, NotADirectoryError):
        now = path.stat()
        return now.st_dev, now.st_ino
    return None


def _sampled(db: sqlite3.Connection, inside: tuple[int, ...], most: int) -> dict[int, UserSample]:
    """The samples of users combined, by series."""
    parts: defaultdict[int, list[UserSample]] = defaultdict(list)
    for series, entries in db.execute(f"SELECT series, entries FROM samples WHERE {_INSIDE}", inside):
        parts[series].append(user_samples.decode(entries))
    return {series: user_samples.together(samples, most) for series, samples in parts.items()}

"""Every metric of every part, with its standard error, computed once and kept beside the vectors it follows from.

A line over a day has thousands of panes, each in as many rows as there are partitions: adding them up again for every
query would take seconds. So the table `points` holds the values of a (series, part) over all its partitions. It is a
cache and nothing else: triggers in the file drop a point with any change of its vectors, by whatever program (even
one that does not know this table), and record the part in `stale`; `refresh` computes it again. A part without a
point, as in files from before there were any, or whose point the disk has changed (its checksum), is added up by the
reader.
"""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from streameval.metrics.registry import by_name, names, with_stderr
from streameval.metrics.view import NOT_KEPT_FOR_RANGES, View
from streameval.results.lines import Point, Stored, number_names, numbers, stored_point
from streameval.sketches.codec import CodecError
from streameval.sketches.layout import Options, has_result
from streameval.store.history import user_samples
from streameval.store.history.begun import lacking
from streameval.store.history.cover import RANGE, Slot
from streameval.store.history.format import NO_SLICE, HistoryFormat
from streameval.store.history.stored import decode_vector

log = logging.getLogger(__name__)

_AT_ONCE = 16  # parts in one transaction: others wait for it
_CHECKSUM = 4  # bytes at the end of `numbers`

_POINTS = """
CREATE TABLE points (series INTEGER, level INTEGER, start INTEGER, impressions INTEGER NOT NULL, clicks INTEGER NOT NULL,
    corrected INTEGER NOT NULL, numbers BLOB NOT NULL, reasons TEXT NOT NULL,
    PRIMARY KEY (series, level, start)) WITHOUT ROWID
"""
_STALE = "CREATE TABLE stale (level INTEGER, start INTEGER, PRIMARY KEY (level, start)) WITHOUT ROWID"
_TRIGGER = """
CREATE TRIGGER vectors_{change} AFTER {change} ON vectors WHEN {row}.slice = 0 BEGIN
    DELETE FROM points WHERE series = {row}.series AND level = {row}.level AND start = {row}.start;
    INSERT OR IGNORE INTO stale VALUES ({row}.level, {row}.start);
END
"""


def _content(form: HistoryFormat) -> str:
    """What a point's numbers are: points of programs with other metrics, or other settings of them, are computed again."""
    of = form.options
    given = (
        [f"{of.operating_range} {of.threshold} {of.cost_ratio} {of.gain} {of.mainline}"]
        if of != Options(of.edges, of.tallies, k=of.k)
        else []
    )
    return " ".join(("4", *names(of), *with_stderr(of), *given))


def prepare(db: sqlite3.Connection, form: HistoryFormat) -> None:
    """Makes the tables in a file that has none; every part is then stale."""
    if _known(db) == _content(form):
        return
    db.execute("BEGIN IMMEDIATE")
    known = _known(db)  # of several workers that start together, one makes them
    if known is None:
        db.execute(_POINTS)
        db.execute(_STALE)
        for change, row in (("INSERT", "new"), ("DELETE", "old"), ("UPDATE", "old")):
            db.execute(_TRIGGER.format(change=change, row=row))
    if known != _content(form):
        db.execute("DELETE FROM points")
        db.execute("INSERT OR REPLACE INTO settings VALUES ('points', ?)", (_content(form),))
        db.execute("INSERT OR IGNORE INTO stale SELECT DISTINCT level, start FROM parts")
    db.execute("COMMIT")


def readable(db: sqlite3.Connection, form: HistoryFormat) -> bool:
    """Whether the file has points that this program knows how to read."""
    return _known(db) == _content(form)


def refresh(db: sqlite3.Connection, form: HistoryFormat) -> int:
    """Computes some stale parts, newest first, inside the caller's transaction; how many there were."""
    parts = db.execute("SELECT level, start FROM stale ORDER BY start DESC LIMIT ?", (_AT_ONCE,)).fetchall()
    for level, start in parts:
        db.execute("DELETE FROM stale WHERE level = ? AND start = ?", (level, start))
        try:
            rows = list(_worked_out(db, form, level, start))
        except CodecError:  # a damaged part has no point; a question that needs it says what is wrong with it
            continue
        db.executemany("INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return len(parts)


def stored(
    db: sqlite3.Connection, form: HistoryFormat, series: int, metric: str, start: int, end: int
) -> dict[Slot, Point]:
    """The points of one series whose parts begin in [start, end), by part."""
    query = f"SELECT level, start, impressions, clicks, corrected, numbers, reasons FROM points WHERE series = ? AND {RANGE}"
    found = db.execute(query, (series, start, end)).fetchall()
    rows = [row for row in found if _is_whole((series, *row[:5]), *row[5:])]
    if len(rows) < len(found):
        log.error("history: %d points of panes are damaged, and added up again: check the disk", len(found) - len(rows))
    of, columns = by_name(metric), number_names(form.options)
    table = np.frombuffer(b"".join(row[5][:-_CHECKSUM] for row in rows), "<f8").reshape(-1, len(columns))

    def column(name: str) -> list[float]:
        values: list[float] = table[:, columns.index(name)].tolist() if name in columns else [math.nan] * len(rows)
        return values

    df = column("df" if not of.of_users else f"{metric}_df")
    kept = zip(column(metric), column(of.bound), column("sampling"), column(f"{metric}_stderr"), df, strict=True)
    out = {}
    for (level, begin, *counts, _, why), numbers_kept in zip(rows, kept, strict=True):
        reason = json.loads(why).get(metric) if why else None
        where = begin, begin + form.lengths[level]
        out[level, begin] = stored_point(where, of, (counts[0], counts[1], counts[2]), Stored(*numbers_kept), reason)
    return out


def _known(db: sqlite3.Connection) -> str | None:
    row = db.execute("SELECT value FROM settings WHERE name = 'points'").fetchone()
    return None if row is None else str(row[0])


def _checksum(key: tuple[int, ...], numbers_kept: bytes, why: str) -> bytes:
    """Of a row of `points`: a page that the disk has changed may still be one that SQLite can read."""
    return zlib.crc32(numbers_kept, zlib.crc32(f"{key} {why}".encode())).to_bytes(_CHECKSUM, "little")


def _is_whole(key: tuple[int, ...], kept: object, why: object) -> bool:
    if not isinstance(kept, bytes) or not isinstance(why, str):  # the type of a value is on the page, too
        return False
    return kept[-_CHECKSUM:] == _checksum(key, kept[:-_CHECKSUM], why)


def _worked_out(
    db: sqlite3.Connection, form: HistoryFormat, level: int, start: int
) -> Iterable[tuple[int, int, int, int, int, int, bytes, str]]:
    """A row of `points` for every series in a part."""
    layout = form.overall
    late = lacking(db, form, start)
    dense: dict[int, NDArray[np.int64]] = {}
    query = f"SELECT series, sums, scores FROM vectors WHERE level = ? AND start = ? AND slice = {NO_SLICE}"
    for series, *blobs in db.execute(query, (level, start)):
        vector = dense.setdefault(series, np.zeros(layout.size, np.int64))
        for blob in blobs:
            decode_vector(blob, layout).add_to(vector)
    samples: defaultdict[int, list[user_samples.UserSample]] = defaultdict(list)
    for series, blob in db.execute("SELECT series, entries FROM samples WHERE level = ? AND start = ?", (level, start)):
        samples[series].append(user_samples.decode(blob))
    for series, vector in dense.items():
        if not has_result(vector, layout):  # only a request that began here, of impressions elsewhere
            continue
        most = sum(part.users.size for part in samples[series])
        ranked, sampling = user_samples.rank(user_samples.together(samples[series], most), form.weighting)
        view = View.of(vector, layout, ranked if form.keeps_users else NOT_KEPT_FOR_RANGES, lacking=late)
        row, reasons = numbers(view, sampling)
        why = json.dumps(reasons) if reasons else ""
        key = series, level, start, view.moments.impressions, view.moments.clicks, view.moments.corrected
        kept = row.astype("<f8").tobytes()
        yield *key, kept + _checksum(key, kept, why), why

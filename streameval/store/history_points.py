"""Every metric of every part, with its standard error, worked out once and kept beside the vectors it follows from.

A line over a day has thousands of panes, each in as many rows as there are partitions: to add them up anew for every
question would take seconds. So the table `points` holds what a (series, part) came to over all its partitions. It is a
cache and nothing else: triggers in the file drop a point with any change of its vectors, whoever makes it (also a
program that knows nothing of this table), and note the part in `stale`; `refresh` works it out again. A part without a
point, as in files from before there were any, is added up by the reader.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.metrics.errors import Errors, standard_errors
from streameval.metrics.registry import METRICS, evaluate
from streameval.metrics.view import View
from streameval.report import WITH_STDERR
from streameval.sketches.codec import CodecError, decode
from streameval.sketches.layout import IMPRESSIONS, Moments, read_blocks, read_buckets, read_histogram
from streameval.store import user_samples
from streameval.store.history_cover import RANGE, Slot
from streameval.store.history_format import OVERALL, HistoryFormat

NOT_KEPT = "not_kept_for_ranges"  # why there is no GAUC weighted by value
OF_USERS = ("gauc", "gauc_users", "gauc_impressions")

_VALUES = {metric.name: i for i, metric in enumerate(METRICS)}
_STDERRS = {name: len(_VALUES) + i for i, name in enumerate(WITH_STDERR)}
_SAMPLING = len(_VALUES) + len(_STDERRS)  # of GAUC, from taking a sample of users; NaN: all of them
_DF = _SAMPLING + 1  # of the standard errors, and of that of GAUC
_GAUC_DF = _DF + 1
_WIDTH = _GAUC_DF + 1
_CONTENT = " ".join(("3", *_VALUES, *_STDERRS))  # what a point's numbers are; those of other programs are made anew
_AT_ONCE = 16  # parts in one transaction: others wait for it

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


@dataclass(frozen=True, slots=True)
class StoredPoint:
    """One metric of one series in one part. NaN: undefined or unknown; `reason` says why there is no value."""

    impressions: int
    clicks: int
    corrected: int
    value: float
    stderr: float
    stderr_df: float
    auc_error: float
    sampling_error: float
    reason: str | None


def prepare(db: sqlite3.Connection) -> None:
    """Makes the tables in a file that has none; every part of it is then to be worked out."""
    if _known(db) == _CONTENT:
        return
    db.execute("BEGIN IMMEDIATE")
    known = _known(db)  # of several workers that start together, one makes them
    if known is None:
        db.execute(_POINTS)
        db.execute(_STALE)
        for change, row in (("INSERT", "new"), ("DELETE", "old"), ("UPDATE", "old")):
            db.execute(_TRIGGER.format(change=change, row=row))
    if known != _CONTENT:
        db.execute("DELETE FROM points")
        db.execute("INSERT OR REPLACE INTO settings VALUES ('points', ?)", (_CONTENT,))
        db.execute("INSERT OR IGNORE INTO stale SELECT DISTINCT level, start FROM parts")
    db.execute("COMMIT")


def readable(db: sqlite3.Connection) -> bool:
    """Whether the file has points that this program knows how to read."""
    return _known(db) == _CONTENT


def refresh(db: sqlite3.Connection, form: HistoryFormat) -> int:
    """Works out some stale parts, newest first, inside the caller's transaction; how many there were."""
    parts = db.execute("SELECT level, start FROM stale ORDER BY start DESC LIMIT ?", (_AT_ONCE,)).fetchall()
    for level, start in parts:
        db.execute("DELETE FROM stale WHERE level = ? AND start = ?", (level, start))
        try:
            rows = list(_worked_out(db, form, level, start))
        except CodecError:  # a damaged part has no point; a question that needs it says what is wrong with it
            continue
        db.executemany("INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return len(parts)


def stored(db: sqlite3.Connection, series: int, metric: str, start: int, end: int) -> dict[Slot, StoredPoint]:
    """The points of one series whose parts begin in [start, end), by part."""
    query = f"SELECT level, start, impressions, clicks, corrected, numbers, reasons FROM points WHERE series = ? AND {RANGE}"
    rows = db.execute(query, (series, start, end)).fetchall()
    table = np.frombuffer(b"".join(row[5] for row in rows), "<f8").reshape(-1, _WIDTH)
    unknown = np.full(len(rows), math.nan)
    df_of = _GAUC_DF if metric == "gauc" else _DF
    columns = (_VALUES[metric], _STDERRS.get(metric), df_of, _VALUES["auc_error"], _SAMPLING)
    value, stderr, df, error, sampling = (unknown.tolist() if i is None else table[:, i].tolist() for i in columns)
    out = {}
    for i, (level, begin, n, clicks, corrected, _, why) in enumerate(rows):
        reason = json.loads(why).get(metric) if why else None
        out[level, begin] = StoredPoint(n, clicks, corrected, value[i], stderr[i], df[i], error[i], sampling[i], reason)
    return out


def _known(db: sqlite3.Connection) -> str | None:
    row = db.execute("SELECT value FROM settings WHERE name = 'points'").fetchone()
    return None if row is None else str(row[0])


def _worked_out(
    db: sqlite3.Connection, form: HistoryFormat, level: int, start: int
) -> Iterable[tuple[int, int, int, int, int, int, bytes, str]]:
    """A row of `points` for every series in a part."""
    layout = form.overall
    dense: dict[int, NDArray[np.int64]] = {}
    query = f"SELECT series, sums, scores FROM vectors WHERE level = ? AND start = ? AND slice = {OVERALL}"
    for series, *blobs in db.execute(query, (level, start)):
        vector = dense.setdefault(series, np.zeros(layout.size, np.int64))
        for blob in blobs:
            decode(blob).add_to(vector)
    samples: defaultdict[int, list[user_samples.UserSample]] = defaultdict(list)
    for series, blob in db.execute("SELECT series, entries FROM samples WHERE level = ? AND start = ?", (level, start)):
        samples[series].append(user_samples.decode(blob))
    for series, vector in dense.items():
        if not vector[IMPRESSIONS]:  # only a request that began here, of impressions elsewhere
            continue
        most = sum(part.users.size for part in samples[series])
        ranked, sampling = user_samples.rank(user_samples.together(samples[series], most), form.weighting)
        negatives, positives = read_histogram(vector, layout)
        moments = Moments.read(vector)
        blocks = read_blocks(vector, layout)
        view = View(moments, read_buckets(vector, layout), negatives, positives, ranked, None, blocks)
        values, reasons = evaluate(view)
        if form.weighting == "value":
            values.update(dict.fromkeys(OF_USERS))
            reasons.update(dict.fromkeys(OF_USERS, NOT_KEPT))
        errors = standard_errors(view, values)
        numbers = _numbers(values, errors, sampling)
        why = json.dumps(reasons) if reasons else ""
        counts = (moments.impressions, moments.clicks, moments.corrected)
        yield series, level, start, *counts, numbers, why


def _numbers(values: Mapping[str, float | int | None], errors: Errors, sampling: float | None) -> bytes:
    stderrs = (errors.stderr.get(name) for name in _STDERRS)
    all_of_them = [*(values[name] for name in _VALUES), *stderrs, sampling, errors.df, errors.gauc_df]
    return np.array([math.nan if number is None else number for number in all_of_them], "<f8").tobytes()

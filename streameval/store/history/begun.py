"""Since when a file holds which tallies.

A tally that the settings ask for later begins with the parts written from then on. Sums of some are divided by those of
others (`Tally.family`), which began earlier: over a range that begins before one of them did, nothing can be said of it. So the
file remembers, in its settings, where each began; files from before it did hold all of theirs from the beginning.
"""

from __future__ import annotations

import json
import sqlite3

from streameval.store.history.format import HistoryFormat

_NAME = "tallies"


def note(db: sqlite3.Connection, form: HistoryFormat) -> None:
    """Records tallies that are new in the file, and forgets those that are no longer asked for."""
    if _known(db) == _wanted(db, form):
        return
    db.execute("BEGIN IMMEDIATE")  # and again: of several workers that start together, the first decides
    db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (_NAME, json.dumps(_wanted(db, form))))
    db.execute("COMMIT")


def lacking(db: sqlite3.Connection, form: HistoryFormat, start: int) -> frozenset[str]:
    """The tallies, by name, that began after `start` (ms), and after others of their family."""
    began = _known(db) or {}
    first: dict[str, int] = {}
    for tally in form.overall.tallied:
        since = began.get(tally.name, 0)
        first[tally.family] = min(first.get(tally.family, since), since)
    late = (tally for tally in form.overall.tallied if max(start, first[tally.family]) < began.get(tally.name, 0))
    return frozenset(tally.name for tally in late)


def _known(db: sqlite3.Connection) -> dict[str, int] | None:
    row = db.execute("SELECT value FROM settings WHERE name = ?", (_NAME,)).fetchone()
    return None if row is None else dict(json.loads(row[0]))


def _wanted(db: sqlite3.Connection, form: HistoryFormat) -> dict[str, int]:
    known, names = _known(db), [tally.name for tally in form.overall.tallied]
    if known is None:
        return dict.fromkeys(names, 0)
    last = db.execute("SELECT level, max(start) FROM parts GROUP BY level").fetchall()
    end = max((start + form.lengths[level] for level, start in last), default=0)
    return {name: known.get(name, end) for name in names}

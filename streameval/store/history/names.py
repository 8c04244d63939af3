"""The names behind the ids of the history's tables."""

from __future__ import annotations

import sqlite3

from streameval.events.batch import Series
from streameval.results.lines import Slice
from streameval.store.history.format import NO_SLICE


def series_by_id(db: sqlite3.Connection) -> dict[int, Series]:
    """Every series with rows."""
    rows = db.execute("SELECT id, model, version, source FROM series")
    return {number: Series(model, version, *_of_source(source)) for number, model, version, source in rows}


def _of_source(stored: str) -> tuple[str, str]:
    """(source, objective), from the text in which the writer joins them."""
    source, _, objective = stored.partition("/")
    return source, objective


def slices_by_id(db: sqlite3.Connection) -> dict[int, Slice]:
    """Every slice with rows; None is the whole."""
    rows = db.execute("SELECT id, dimension, value FROM slices")
    return {NO_SLICE: None, **{number: (dimension, value) for number, dimension, value in rows}}


def name_order(series: Series) -> tuple[str, str, str, str]:
    """The key by which series are sorted in answers."""
    return series.model, series.version, series.source, series.objective

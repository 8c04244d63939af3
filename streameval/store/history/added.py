"""The sums of a range's rows: a series' vector, and one sample of its users."""

from __future__ import annotations

import sqlite3

import numpy as np
from numpy.typing import NDArray

from streameval.sketches.codec import CodecError
from streameval.sketches.layout import Layout
from streameval.store.history import user_samples
from streameval.store.history.cover import RANGE
from streameval.store.history.stored import decode_vector
from streameval.store.history.user_samples import UserSample

RANKED = 1 << 21  # entries of users that are ranked at a time: 100 MB; beyond, fewer users are taken


def vector_over(
    db: sqlite3.Connection, layout: Layout, series: int, where: int, within: tuple[int, int], scores: bool = True
) -> NDArray[np.int64]:
    """The sum of a series' vectors in a slice (its id); without `scores` it ends before the blocks of users."""
    dense = np.zeros(layout.size if scores else layout.blocks, np.int64)
    columns = "start, partition, sums" + (", scores" if scores else "")
    query = f"SELECT {columns} FROM vectors WHERE series = ? AND slice = ? AND {RANGE}"
    for row in db.execute(query, (series, where, *within)):
        _add(dense, layout, *row)
    return dense


def _add(dense: NDArray[np.int64], layout: Layout, start: int, partition: int, *blobs: bytes) -> None:
    """Adds a row's vector. Raises CodecError that says which part it is."""
    try:
        for blob in blobs:
            decode_vector(blob, layout).add_to(dense)
    except CodecError as error:
        raise CodecError(f"partition {partition}, from {start} ms: {error}") from error


def sample_over(db: sqlite3.Connection, series: int, start: int, end: int) -> UserSample:
    """One sample of all in the range, under the largest k among them."""
    within = (series, start, end)
    k = db.execute(f"SELECT max(k) FROM samples WHERE series = ? AND {RANGE}", within).fetchone()[0] or 0
    held: list[UserSample] = []
    size = 0
    for (blob,) in db.execute(f"SELECT entries FROM samples WHERE series = ? AND {RANGE}", within):
        held.append(user_samples.decode(blob).deeper(k))
        size += held[-1].users.size
        if size > 2 * RANKED:
            held = [user_samples.together(held, RANKED)]
            size, k = held[0].users.size, held[0].k
    return user_samples.together(held, RANKED)

"""Batches as short as those of live traffic, for online models.

A batch is scored before any of its labels is learned. Live it spans a moment. In a replay of a small log it may span all
of it, and a model would have learned nothing before it scored the last impression.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from streameval.events.batch import NO_IMPRESSIONS, Batch
from streameval.events.columns import cut_clicks, cut_impressions

_PART = 10  # a label is learned at most this part of the attribution window later than it would be live
_LEAST = 10  # impressions of a batch, because each has a cost of its own
_SHARE = 100  # of the impressions so far a batch has at least one in so many: cutting costs a long log little


def short_batches(batch: Batch, window: int, so_far: int) -> Iterator[tuple[Batch, int]]:
    """Yields a batch in pieces, in arrival order, and the number of the first impression of each.

    A piece spans about a tenth of the attribution `window` (ms), or more if it would have few impressions, judging by
    those `so_far`. What a batch has beside events comes with the last piece.
    """
    n, least, span = len(batch.impressions), max(_LEAST, so_far // _SHARE), window // _PART
    reached = np.maximum.accumulate(batch.impressions.ts)
    first = click = 0
    while n - first >= 2 * least:
        end = max(first + least, int(np.searchsorted(reached, reached[first] + span, "right")))
        if n - end < least:
            break
        until = int(np.searchsorted(batch.clicks.order, batch.impressions.order[end]))
        piece = _cut(batch, slice(first, end), slice(click, until))
        yield replace(piece, invalid={}, candidates=NO_IMPRESSIONS), first
        first, click = end, until
    yield _cut(batch, slice(first, n), slice(click, len(batch.clicks))) if first else batch, first


def _cut(batch: Batch, shown: slice, clicked: slice) -> Batch:
    return replace(
        batch, impressions=cut_impressions(batch.impressions, shown), clicks=cut_clicks(batch.clicks, clicked)
    )

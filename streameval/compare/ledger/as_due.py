"""Labels as they were when they were due and, separately, what has changed since (see `ledger`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from streameval.compare.ledger.subset import subset
from streameval.counting.scoreboard import Labelled
from streameval.events.columns import Scored

DuePart = tuple[Labelled, Scored, int, int]  # to be added with a sign; late: 0 or 1


def as_due(labelled: Labelled, scored: Scored, sign: int, values: bool) -> Iterator[DuePart]:
    """Yields labelled impressions in the parts in which they are counted, in time order; `values`: whether values of
    clicks count, too.

    A click that came after the label was due may have been read before the label matured, and may have a higher value
    than the one in time; rows keep the value of clicks in time (`value_in_time`).
    """
    if not labelled.fresh.any():
        yield labelled, scored, sign, 1
        return
    unclicked = labelled.corrected & labelled.fresh
    changed, fields = unclicked, labelled.fields
    if values and "value_in_time" in fields:
        in_time = fields["value_in_time"]
        changed = unclicked | (labelled.fresh & (fields["value"] != in_time))
        fields = {**fields, "value": in_time}
    if bool(labelled.fresh.all()) and not changed.any():
        yield labelled, scored, sign, 0
        return
    copies = None if labelled.copies is None else labelled.copies.labelled_as_due(unclicked)
    label = np.where(unclicked, 0, labelled.label).astype(np.int8)
    due = replace(labelled, label=label, fields=fields, copies=copies)
    parts = (due, labelled.fresh, sign, 0), (due, changed, -sign, 1), (labelled, changed | ~labelled.fresh, sign, 1)
    for one, on, signed, late in parts:
        if on.all():  # true when all that is counted is a late click
            yield one, scored, signed, late
        elif on.any():
            yield *subset(one, scored, on), signed, late

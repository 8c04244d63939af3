"""The weights of the rows of a sampled log."""

from __future__ import annotations

import logging
from functools import cache

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Impressions
from streameval.join.policy import JoinPolicy
from streameval.join.rows import Table
from streameval.sketches.copies import Copies, by_label, copies_of

log = logging.getLogger(__name__)


def copies(table: Table, policy: JoinPolicy, rows: NDArray[np.int64], label: NDArray[np.int8]) -> Copies | None:
    """The copies of rows with these labels (0, 1); None: the log is not a sample."""
    if policy.negatives < 1.0:
        return by_label(table.id[rows], 1.0 / policy.negatives, label)
    for number, one in enumerate(policy.keep):
        if one.name == "weight":
            if not table.given[number]:
                once = np.ones(rows.size, np.int64)
                return Copies(once, once)
            found = copies_of(table.id[rows], table.kept_field(number, rows))
            return Copies(found, found)
    return None


def tell_unread(impressions: Impressions, policy: JoinPolicy) -> None:
    """Warns once if impressions have weights that the settings do not use."""
    weight = impressions.fields.get("weight")
    if weight is None or any(one.name == "weight" for one in policy.keep):
        return
    if bool(((weight != 1.0) & ~np.isnan(weight)).any()):
        _tell()


@cache
def _tell() -> None:
    log.warning("impressions have a weight, which is ignored: each counts once unless sampling.weights is true")

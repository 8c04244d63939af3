"""The rules of the join, and the flags of a row's state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Impressions
from streameval.events.columns import Scored
from streameval.events.fields import Field

NEVER = -(1 << 62)
BEFORE = NEVER + 1  # in place of a training watermark: the row came before the model was added
FOREVER = 1 << 62

CLICKED, KNOWN, MATURED, LATE, CORRECTED = 1, 2, 4, 8, 16
SHOWN = 32  # not mature, but counted for readers because an input is silent

DELAY_EDGES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 10800.0, 86400.0, float("inf"))


@dataclass(frozen=True, slots=True)
class JoinPolicy:
    """The rules, in ms; see `config.Join`."""

    attribution_window: int
    allowed_lateness: int
    correction_horizon: int
    max_pending: int = 50_000_000
    wide_slices: bool = True  # slice combinations need 64 bits (32 otherwise)
    hold: int = 0  # ms that rows are kept after they can no longer be corrected; clicks do not find them then
    request_life: int = 0  # ms that impressions of one request are apart at most; see `counting.requests`
    mark: Callable[[Impressions], NDArray[np.uint64]] | None = None  # computes a further column of the rows
    items: bool = False  # rows keep the ids of their items
    keep: tuple[Field, ...] = ()  # the fields of events that rows keep, see `events.fields.needed`
    segment_rows: int = 0  # rows of a segment, which goes to disk when their labels are mature; 0: rows stay in memory
    negatives: float = 1.0  # share of the non-clicks that the log contains
    recalibrate: Callable[[Scored], None] | None = None  # corrects the scores of models trained on such a log

    @property
    def of_clicks(self) -> list[Field]:
        """The fields of clicks that rows keep; they come first in `keep`."""
        return [field for field in self.keep if field.join is not None]

"""The outcomes of a batch's events, apart from its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Batch
from streameval.join import kernel
from streameval.join.policy import CLICKED, CORRECTED
from streameval.join.rows import Table


@dataclass(frozen=True, slots=True)
class Flips:
    """Labels that changed after they had matured: the previous values, by row."""

    rows: NDArray[np.int64]
    was_clicked: NDArray[np.bool_]
    was_fields: NDArray[np.float64]  # [fields of clicks that rows keep, flips]
    was_corrected: NDArray[np.bool_]


_Times = tuple[NDArray[np.int64], NDArray[np.int64]]


class Met(NamedTuple):
    """Clicks that met their impression: its time, the key (see `kernel`) at which both had arrived, the series that served."""

    shown: NDArray[np.int64]
    key: NDArray[np.int64]
    series: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Fates:
    """Times and keys (see `kernel`) of a batch's clicks; of clicks that found their impression, with the key at which both
    had arrived; and of impressions refused because their id belongs to another version. `met`: those that found it;
    `corrected`: those by which an impression became positive after its label was due, with the key of the click.
    """

    clicks: _Times
    found: _Times
    refused: _Times
    met: Met
    corrected: Met


_NO_TIMES = np.empty(0, np.int64)
_NONE, _NOTHING_MET = (_NO_TIMES, _NO_TIMES), Met(_NO_TIMES, _NO_TIMES, np.empty(0, np.int32))
NO_FATES = Fates(_NONE, _NONE, _NONE, _NOTHING_MET, _NOTHING_MET)


def flips_of(out: kernel.Outcome, flips: int) -> Flips:
    """The first `flips` flips that the kernel wrote."""
    was = out.flip_state[:flips]
    return Flips(out.flip_row[:flips], (was & CLICKED) != 0, out.flip_fields[:, :flips], (was & CORRECTED) != 0)


def fates_of(
    batch: Batch, out: kernel.Outcome, refused: NDArray[np.int32], refused_key: NDArray[np.int64], table: Table
) -> Fates:
    """`refused`: the refused impressions, by number; `refused_key`: their keys; `table`: the rows that the kernel wrote."""
    found, fixed = slice(out.counters[kernel.FOUND]), slice(out.counters[kernel.FIXED])
    met, corrected = out.found_row[found], out.fixed_row[fixed]
    return Fates(
        (batch.clicks.ts, out.click_key),
        (out.found_ts[found], out.found_key[found]),
        (batch.impressions.ts[refused], refused_key),
        Met(table.ts[met], out.found_key[found], table.series[met]),
        Met(table.ts[corrected], out.fixed_key[fixed], table.series[corrected]),
    )


class Judged:
    """Collects the times of matched clicks, and of those given up, until they are taken."""

    def __init__(self) -> None:
        self._found: list[NDArray[np.int64]] = []
        self._lost: list[NDArray[np.int64]] = []

    def add(self, found: NDArray[np.int64], lost: NDArray[np.int64]) -> None:
        """Adds the times of some clicks, ms."""
        self._found.append(found)
        self._lost.append(lost)

    def take(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(found, given up) since the last call."""
        found, lost = (np.concatenate([np.empty(0, np.int64), *parts]) for parts in (self._found, self._lost))
        self._found.clear()
        self._lost.clear()
        return found, lost

"""Tallies: the cells of optional sums of a series, beside those that every series has.

A tally is a named group of int64 cells behind the score histogram of an overall vector, so panes, windows, the run, the
history and checkpoints carry it like everything else. A cell holds a count, or a real in fixed point.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.sketches.blocks import BLOCKS, SCALE

# by how names begin: cuts are divided by the lists of all cuts, values by the requests of yields
_FAMILIES = {"ranking": "ranking", "exposure_lists": "exposure_lists", "yields_": "yields", "values": "yields"}


@dataclass(frozen=True, slots=True)
class Tally:
    """`cells`, by name, for every block of users (`blocks`; the total is the sum over blocks) or once.

    The name contains everything that the sums depend on ("ranking_10_click"), because stored sums are identified by it. Looking
    it up does not require what follows a colon ("exposure:0.0001:100"). `scales`: units per 1.0 of the cells that hold reals; a
    cell without one is a count.
    """

    name: str
    cells: tuple[str, ...]
    blocks: bool = True
    scales: tuple[tuple[str, float], ...] = ()
    size: int = field(init=False, repr=False, compare=False)  # int64 cells in total
    _units: NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", len(self.cells) * (BLOCKS if self.blocks else 1))
        scales = dict(self.scales)
        units = np.array([1.0 / scales.get(cell, 1.0) for cell in self.cells])
        units.flags.writeable = False
        object.__setattr__(self, "_units", units)

    @property
    def family(self) -> str:
        """Which tallies begin to count together: sums of one are divided by sums of another."""
        return next((one for start, one in _FAMILIES.items() if self.name.startswith(start)), self.name)

    def units(self) -> NDArray[np.float64]:
        """The real value of an integer 1, float64[cells]; read-only."""
        return self._units


def reals(*cells: str, scale: float = SCALE) -> tuple[tuple[str, float], ...]:
    """`Tally.scales` of cells that hold reals in units of 1 / `scale`."""
    return tuple((cell, scale) for cell in cells)


class PaneSums(NamedTuple):
    """Sums to add to some series in some panes: all cells of some tallies, one after the other; series ascend."""

    panes: NDArray[np.int64]
    series: NDArray[np.int32]
    cells: NDArray[np.int64]  # [panes, series, cells]

"""What the codes of another process mean in this one, and how many values of a slice dimension have codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SPARE = 4  # values of a dimension that are counted for one that is shown, so that those with most impressions can be
MOST_VALUES = 1000  # that are counted of a dimension


@dataclass(frozen=True, slots=True)
class Codes:
    """What another process' codes mean in this one: `series[c]`, and `values[d][v]` for the value v of dimension d.

    `radix` is the other's, `here` that of this process (0: the same).
    """

    series: NDArray[np.int32]
    values: tuple[NDArray[np.int64], ...]
    radix: int
    here: int = 0

    def series_of(self, codes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Codes of the other process, as this one writes them; one that it did not have (a damaged file) becomes some other."""
        return self.series.take(codes, mode="clip")

    def slices(self, combined: NDArray[np.int64]) -> NDArray[np.int64]:
        """Combined slice values of the other process (`Catalog.combine`), as this one writes them; unknown ones as in `series_of`."""
        out = np.zeros(combined.size, np.int64)
        for dimension in reversed(range(len(self.values))):
            value = (combined // self.radix**dimension) % self.radix
            out = out * (self.here or self.radix) + self.values[dimension].take(value, mode="clip")
        return out

    def saved(self) -> dict[str, Any]:
        """For `after`."""
        return {"series": self.series, "values": list(self.values), "radix": self.radix}

    def after(self, saved: Mapping[str, Any]) -> Codes:
        """Composes a translation that the other process had saved, from the codes of an earlier one, with this one."""
        values = tuple(now[then] for now, then in zip(self.values, saved["values"], strict=True))
        return Codes(self.series[saved["series"]], values, saved["radix"], self.here or self.radix)


def counted_values(max_values: int, dimensions: int) -> int:
    """How many values of a dimension are counted when `max_values` are shown: `_SPARE` times as many where that is possible.

    Combinations of all dimensions must fit into one number, and into 32 bits if those of `max_values` would.
    """
    room = 1 << 62 if (max_values + 2) ** dimensions >= 1 << 32 else 1 << 32
    most = max(max_values, min(_SPARE * max_values, MOST_VALUES))
    while most > max_values and (most + 2) ** dimensions >= room:
        most -= 1
    return most

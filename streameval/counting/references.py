"""Placement curves: by them the AUC becomes a sum over impressions, so that it has a variance by user.

The curves of a series are F0(s), the share of non-clicks that score below s, and S1(s), the share of clicks that score
above s (ties by half). With A = F0(s) for a click and B = S1(s) - AUC for a non-click, mean(A) + mean(B) is the AUC,
and what a user adds to the two sums is what the user adds to the AUC (the structural components of DeLong et al. 1988;
for clusters Obuchowski 1997). The curves are frozen, so sums only grow; an error of a curve enters the estimate only to
second order, and B is centred, so sums made with different curves (of other partitions) add up.

A partition makes the curves of a series from its own first labels, by time: rough ones as soon as there are `ENOUGH[0]`
labels of either kind, better ones at the further counts, the last of which stay. Until then labels are kept here, and
placed again whenever the curves change. Only labels that are on time make curves, as they were when they matured: which
those are, and so every sum, depends on the partition's events alone, however they are cut into batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.accumulate import CURVE_BITS
from streameval.sketches.blocks import SCALE
from streameval.sketches.grid import bin_count, key_bin, score_key

BINS = bin_count(CURVE_BITS)  # AUC off by less than 5e-5, differences by less (docs/metrics.md)
# Labels of either kind that curves are made of. An AUC from the first curves is off by 1e-3 (one standard deviation), and
# by 5e-4, 2e-4 and 4e-5 at 100, 300 and 1,000 labels; differences of like models by as much (docs/metrics.md).
ENOUGH = (50, 300, 2000)
MOST_LABELS = 1 << 18  # from which the last curves are made at the most, though one kind may be scarce
MOST_ROWS = 1 << 20  # that are kept, late ones and corrections included: 13 MB
_OPEN = 1 << 62


@dataclass(frozen=True, slots=True)
class Placed:
    """n labels that waited and can be placed now: columns."""

    pane: NDArray[np.int64]
    block: NDArray[np.int8]
    bin: NDArray[np.int16]
    label: NDArray[np.int8]
    sign: NDArray[np.int8]


@dataclass(slots=True)
class _Waiting:
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros((2, BINS), np.int64))  # by label
    parts: list[Placed] = field(default_factory=list)
    rows: int = 0  # in the parts
    stage: int = 0  # how often curves were made
    until: int = _OPEN  # ms: the moment at which there were enough for the next ones

    def count(
        self, ts: NDArray[np.int64], bins: NDArray[np.int16], label: NDArray[np.int8]
    ) -> NDArray[np.int64] | None:
        """Takes in labels by ascending time; the counts to make curves of, once all labels of their moment have come."""
        out = None
        while ts.size and self.stage < len(ENOUGH):
            if self.until == _OPEN:
                no, yes = self.counts.sum(axis=1).tolist()
                clicks, others = np.cumsum(label == 1) + yes, np.cumsum(label == 0) + no
                enough = np.minimum(clicks, others) >= ENOUGH[self.stage]
                enough |= clicks + others >= MOST_LABELS
                if enough.any():
                    self.until = int(ts[np.argmax(enough)])
            end = int(np.searchsorted(ts, self.until, side="right"))
            np.add.at(self.counts, (label[:end], bins[:end]), 1)
            if end == ts.size:
                break
            out = self.counts.copy()
            ts, bins, label = ts[end:], bins[end:], label[end:]
            self.stage, self.until = self.stage + 1, _OPEN
        return out


@numba.njit(cache=True, nogil=True)
def score_bins(p: NDArray[np.float64]) -> NDArray[np.int16]:
    """The bin of every score in the curves."""
    out = np.empty(p.size, np.int16)
    for i in range(p.size):
        out[i] = key_bin(score_key(p[i]), CURVE_BITS)
    return out


class References:
    """The curves of one partition's series.

    `curve[s, 1]` is F0 and `curve[s, 0]` is S1 less the AUC, of series s by bin, in units of 1 / `blocks.SCALE`: the
    first index after the series is the label. They are 0 until a series is `ready`, and stay once they are `final`.
    """

    def __init__(self) -> None:
        self.curve = np.zeros((0, 2, BINS), np.int32)
        self.ready = np.zeros(0, np.bool_)
        self.final = np.zeros(0, np.bool_)
        self.changes = 0  # of any curve
        self._waiting: dict[int, _Waiting] = {}

    def reserve(self, series: int) -> None:
        """Makes room for series 0 .. series - 1."""
        have = self.ready.size
        if series > have:
            self.curve = np.concatenate((self.curve, np.zeros((series - have, 2, BINS), np.int32)))
            self.ready = np.concatenate((self.ready, np.zeros(series - have, np.bool_)))
            self.final = np.concatenate((self.final, np.zeros(series - have, np.bool_)))

    @property
    def open(self) -> bool:
        """Whether any series that has been seen is not final."""
        return bool(self._waiting)

    def hold(self, series: int, rows: Placed, ts: NDArray[np.int64], matured: NDArray[np.int8]) -> Placed | None:
        """Keeps labels of a series that is not final; when its curves have changed, all of those kept: to be placed again.

        `ts` (ms, ascending) and `matured`: when the impressions were shown, and what their labels were at maturity; -1:
        not on time, or counted before.
        """
        waiting = self._waiting.setdefault(series, _Waiting())
        waiting.parts.append(rows)
        waiting.rows += rows.pane.size
        makes = matured >= 0
        counts = waiting.count(ts[makes], rows.bin[makes], matured[makes])
        if waiting.rows > MOST_ROWS:  # nearly everything is late: no better curves are to be expected
            counts, waiting.stage = waiting.counts.copy(), len(ENOUGH)
        if counts is None:
            return None
        kept = _joined(waiting.parts)
        waiting.parts = [kept]
        self._make(series, counts)
        if waiting.stage == len(ENOUGH):
            self.final[series] = True
            del self._waiting[series]
        return kept

    def clear(self, series: int) -> None:
        """Forgets a series."""
        self._waiting.pop(series, None)
        if series < self.ready.size:
            self.ready[series] = self.final[series] = False
            self.curve[series] = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the curves and of what waits."""
        waiting = sum(13 * sum(p.pane.size for p in w.parts) + w.counts.nbytes for w in self._waiting.values())
        return self.curve.nbytes + waiting

    def state(self) -> dict[str, Any]:
        """Everything, for `restore`; series by their codes."""
        ready = np.flatnonzero(self.ready)
        waiting = []
        for series, one in self._waiting.items():
            rows = _joined(one.parts)
            columns = {"pane": rows.pane, "block": rows.block, "bin": rows.bin, "label": rows.label, "sign": rows.sign}
            waiting.append(
                {"series": series, "counts": one.counts.copy(), "until": one.until, "stage": one.stage, **columns}
            )
        return {"series": ready, "curve": self.curve[ready], "final": self.final[ready], "waiting": waiting}

    def restore(self, state: Mapping[str, Any], codes: NDArray[np.int32]) -> None:
        """Takes over what `state` gave. `codes[c]` is what series c is called here."""
        series = codes[state["series"]] if len(state["series"]) else np.empty(0, np.int32)
        self.reserve(int(series.max(initial=-1)) + 1)
        self.curve[series] = state["curve"]
        self.ready[series] = True
        self.final[series] = state["final"]
        for saved in state["waiting"]:
            rows = Placed(*(saved[name].copy() for name in ("pane", "block", "bin", "label", "sign")))
            self._waiting[int(codes[saved["series"]])] = _Waiting(
                saved["counts"].copy(), [rows], rows.pane.size, saved["stage"], saved["until"]
            )

    def _make(self, series: int, counts: NDArray[np.int64]) -> None:
        no, yes = counts.astype(np.float64)
        others, clicks = max(no.sum(), 1.0), max(yes.sum(), 1.0)
        below = (np.cumsum(no) - no / 2) / others
        above = (clicks - np.cumsum(yes) + yes / 2) / clicks
        auc = float(below @ yes) / clicks
        self.changes += 1
        self.curve[series, 1] = np.rint(below * SCALE)
        self.curve[series, 0] = np.rint((above - auc) * SCALE)
        self.ready[series] = True


def _joined(parts: list[Placed]) -> Placed:
    if not parts:
        nothing = np.empty(0, np.int8)
        return Placed(np.empty(0, np.int64), nothing, np.empty(0, np.int16), nothing, nothing)
    columns = zip(*((p.pane, p.block, p.bin, p.label, p.sign) for p in parts), strict=True)
    return Placed(*(np.concatenate(column) for column in columns))
